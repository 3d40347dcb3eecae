"""This repository under its own checks: green as it is, red at the very place where a stray site is added."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkers.checkout import CHECKOUT, copy_checkout

CODES = {"ownership": "OWN001", "bypass": "BYP001"}


@dataclass(frozen=True, slots=True)
class Stray:
    """A change to the tree: files by path, and the one place, kind and API that both checks must report."""

    files: dict[str, str]
    path: str
    line: int
    column: int
    kind: str
    api: str


STRAYS = {
    "call": Stray(
        {"checkers/stray.py": "import subprocess\n\n\ndef tag() -> None:\n    subprocess.run(['git'])\n"},
        "checkers/stray.py",
        line=5,
        column=16,
        kind="call",
        api="subprocess.run",
    ),
    "alias": Stray(
        {"checkers/stray.py": "import subprocess as sp\n\nlaunch = sp.Popen\nlaunch(['true'])\n"},
        "checkers/stray.py",
        line=4,
        column=1,
        kind="call",
        api="subprocess.Popen",
    ),
    "re-export across files": Stray(
        {
            "checkers/helpers/__init__.py": "from checkers.helpers.quiet import *\n",
            "checkers/helpers/quiet.py": "from os import system as say\n\n__all__ = ['say']\n",
            "checkers/stray.py": "from checkers import helpers\n\nhelpers.say('true')\n",
        },
        "checkers/stray.py",
        line=3,
        column=9,
        kind="call",
        api="os.system",
    ),
    "pool outside the scan": Stray(
        {"checkers/stray.py": "from concurrent.futures import ProcessPoolExecutor as Pool\n\nPOOL = Pool()\n"},
        "checkers/stray.py",
        line=3,
        column=8,
        kind="call",
        api="concurrent.futures.ProcessPoolExecutor",
    ),
    "reference": Stray(
        {"checkers/stray.py": "import os\n\nHANDLERS = {\n    'shell': os.system,\n}\n"},
        "checkers/stray.py",
        line=4,
        column=17,
        kind="reference",
        api="os.system",
    ),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("copy"))


@pytest.fixture
def stray(request: pytest.FixtureRequest, copy: Path) -> Iterator[Stray]:
    """One of ``STRAYS``, written into the copy and gone from it after the test."""
    change: Stray = request.param
    targets = [copy / path for path in change.files]
    for target, text in zip(targets, change.files.values(), strict=True):
        assert not target.exists()
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    yield change
    for target in targets:
        target.unlink()


def check(copy: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "checkers", command, "--root", str(copy), "--output-format", "json"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", CODES)
def test_this_tree_is_green_and_its_worker_pools_declared(copy: Path, command: str) -> None:
    done = check(copy, command)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    sites = [site for site in json.loads(done.stdout)["sites"] if not site["path"].startswith("tests/")]
    pools = [site for site in sites if site["api"] == "concurrent.futures.ProcessPoolExecutor"]
    assert [pool["path"] for pool in pools] == ["benchmarks/simulate.py", "checkers/intake/workers.py"]
    if command == "ownership":
        assert [(pool["owner"], pool["source"]) for pool in pools] == [("standalone_compat", "manifest")] * 2


@pytest.mark.parametrize("command", CODES)
@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS, indirect=True)
def test_a_stray_site_fails_the_build_at_its_place(copy: Path, stray: Stray, command: str) -> None:
    done = check(copy, command)

    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    found = [(f["code"], f["path"], f["line"], f["column"], f["api"]) for f in report["findings"]]
    assert found == [(CODES[command], stray.path, stray.line, stray.column, stray.api)]
    kinds = [s["kind"] for s in report["sites"] if (s["path"], s["line"]) == (stray.path, stray.line)]
    assert kinds == [stray.kind]
