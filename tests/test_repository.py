"""What the repository promises about itself: pins, packaging, hooks, documents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkers.checkout import CHECKOUT, copy_checkout, git

HOOKS = ("check-bypass", "check-ownership")
NAME = re.compile(r"[A-Za-z0-9._-]+")


def read(path: str) -> str:
    return (CHECKOUT / path).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(read("pyproject.toml"))["project"]
    return table


def requirements() -> list[str]:
    """Names of all that pyproject.toml asks for, normalised."""
    asked = [*project()["dependencies"], *project()["optional-dependencies"]["dev"]]
    return [normal(match[0]) for one in asked if (match := NAME.match(one))]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def committed() -> Iterator[tuple[str, bytes]]:
    for name in git(CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (CHECKOUT / name).is_file():
            yield name, (CHECKOUT / name).read_bytes()


def test_every_dependency_is_pinned_and_has_its_reason() -> None:
    pins = [line for line in read("constraints.txt").splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in pins)
    pinned = {normal(line.partition("==")[0]) for line in pins}
    assert set(requirements()) <= pinned

    explained = re.findall(r"^\| ([a-z0-9-]+) \| \S.{20,} \|$", read("docs/dependencies.md"), re.MULTILINE)
    assert sorted(explained) == sorted(requirements())


def test_no_address_of_an_index_and_no_path_of_a_machine_is_committed() -> None:
    # Written with a class of one letter each, so that this file does not hold what it forbids.
    forbidden = re.compile(rb"pypi[.]org|python[h]osted|--(extra-)?index-[u]rl|/r[o]ot/|/t[m]p/v|/w[o]rk/")
    found = [f"{name}: {match[0]!r}" for name, data in committed() if (match := forbidden.search(data))]
    assert found == []


def test_hooks_are_the_console_scripts_and_judge_the_whole_project() -> None:
    hooks = yaml.safe_load(read(".pre-commit-hooks.yaml"))
    assert tuple(hook["id"] for hook in hooks) == HOOKS
    assert set(HOOKS) <= set(project()["scripts"])
    for hook in hooks:
        assert hook["entry"] == hook["id"]
        assert (hook["language"], hook["pass_filenames"], hook["require_serial"]) == ("python", False, True)

    own = {hook["id"]: hook for hook in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]}
    assert set(own) == {"ruff", "ruff-format", *HOOKS}


@pytest.mark.parametrize("command", ["bypass", "ownership"])
def test_the_readme_names_every_hook_and_option(command: str) -> None:
    text = read("README.md")
    for hook in HOOKS:
        assert f"`{hook}`" in text
        assert f"id: {hook}" in text
    done = subprocess.run(
        [sys.executable, "-m", "checkers", command, "--help"], capture_output=True, text=True, check=True
    )
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", done.stdout, re.MULTILINE))
    assert {"--list-sites", "--help"} < options
    assert sorted(option for option in options if f"`{option}" not in text) == []


def test_links_between_documents_lead_somewhere() -> None:
    pages = [(n, data.decode()) for n, data in committed() if n.endswith(".md") and not n.startswith("fixtures/")]
    prose = [(name, re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)) for name, text in pages]
    links = [(name, link) for name, text in prose for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)]
    broken = [f"{name}: {link}" for name, link in links if not ((CHECKOUT / name).parent / link).exists()]
    assert broken == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("checkout"))


def test_wheel_and_source_archive_hold_data_pages_and_schema(copy: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    [wheel] = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [scripts] = [archive.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    for data in sorted((CHECKOUT / "checkers").rglob("*")):
        if data.suffix in {".py", ".toml", ".json", ".typed"}:
            assert data.relative_to(CHECKOUT).as_posix() in names
    for page in (CHECKOUT / "docs" / "checks").glob("*.md"):
        assert f"checkers/docs/{page.name}" in names
    assert not [name for name in names if name.startswith(("tests/", "fixtures/", "benchmarks/"))]
    assert "check-bypass = checkers.warm:bypass_main" in scripts
    assert "check-ownership = checkers.warm:ownership_main" in scripts

    [source] = (copy / "dist").glob("*.tar.gz")
    with tarfile.open(source) as tar:
        held = {name.partition("/")[2] for name in tar.getnames()}
    assert {"LICENSE", "constraints.txt", "Makefile", "docs/checks/OWN001.md"} <= held


def test_make_refuses_an_old_python_with_one_clear_line(copy: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && { echo "Python 3.9.2"; exit 0; }\nexit 1\n')
    old.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    for python, says in (
        (str(old), "is Python 3.9.2; spawngate needs Python 3.11"),
        ("no-such", "not found"),
    ):
        done = subprocess.run(
            ["make", f"PYTHON={python}", "setup"],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert says in done.stderr.splitlines()[0]
    assert not (copy / ".venv").exists()


def test_ci_runs_make_test() -> None:
    assert os.access(CHECKOUT / ".ci" / "run", os.X_OK)
    assert read(".ci/run").splitlines()[-1] == "exec make test"
