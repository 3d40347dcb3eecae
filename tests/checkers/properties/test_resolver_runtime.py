"""What the engine reports, against what really happens when the program runs.

Complete: wherever a governed function was called or handed on, there is a site that names it. Sound, where nothing
depends on a branch, a loop or time: there is no other site.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings

from checkers.catalog import Entry, Form
from checkers.engine import Scan, scan
from checkers.model import ApiKind, Site
from tests.checkers.properties.programs import (
    GOVERNED,
    PROBES,
    RUNNER,
    Project,
    circles,
    compiles,
    packages,
    single_modules,
    straight_programs,
)

APIS = (
    Entry("governed.run", ApiKind.PROCESS),
    Entry("governed.call", ApiKind.PROCESS),
    Entry("governed.Pool", ApiKind.POOL, Form.CLASS),
    Entry("governed.Pool.submit", ApiKind.POOL, Form.METHOD),
)

Call = tuple[str, int, str]
"""Path, line, API."""


class Run(NamedTuple):
    """What a program did."""

    calls: frozenset[Call]
    crashes: tuple[str, ...]
    """Why it, or a body in it, was left before its end."""


class Interpreter:
    """A Python process that runs one project after the other."""

    def __init__(self) -> None:
        # execution-ownership: test_only -- the programs of the properties run in a process of their own
        self._process = subprocess.Popen(
            [sys.executable, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, root: Path) -> Run:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{root}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Run(frozenset((path, line, api) for path, line, api in answer["calls"]), tuple(answer["crashes"]))

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    process = Interpreter()
    yield process
    process.close()


def run_and_scan(interpreter: Interpreter, program: Project) -> tuple[Run, dict[str, tuple[Site, ...]]]:
    with TemporaryDirectory() as folder:
        root, beside = Path(folder).resolve() / "run", Path(folder).resolve() / "scan"
        write(root, {**program.files, "governed.py": GOVERNED, "probes.py": PROBES})
        done = interpreter.run(root)
        write(beside, program.files)
        tree = scan(Scan(beside, apis=APIS, jobs=1))
    assert not [file for file in tree.files if file.unanalysed is not None]
    return done, {file.path: file.sites for file in tree.files}


def write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def reported(sites: dict[str, tuple[Site, ...]]) -> frozenset[Call]:
    return frozenset((path, site.line, api) for path, found in sites.items() for site in found for api in site.names)


def check_complete(interpreter: Interpreter, program: Project) -> None:
    assume(compiles(program))
    done, sites = run_and_scan(interpreter, program)
    missing = done.calls - reported(sites)
    assert not missing, f"{sorted(missing)}\n{program}"


@settings(max_examples=60)
@given(program=single_modules())
def test_every_call_of_a_module_is_a_site(interpreter: Interpreter, program: Project) -> None:
    check_complete(interpreter, program)


@settings(max_examples=30)
@given(program=packages())
def test_every_call_through_other_modules_is_a_site(interpreter: Interpreter, program: Project) -> None:
    check_complete(interpreter, program)


@settings(max_examples=30)
@given(program=circles())
def test_every_call_through_circles_of_imports_is_a_site(interpreter: Interpreter, program: Project) -> None:
    check_complete(interpreter, program)


@settings(max_examples=40)
@given(program=straight_programs())
def test_nothing_but_the_calls_is_a_site(interpreter: Interpreter, program: Project) -> None:
    assume(compiles(program))
    done, sites = run_and_scan(interpreter, program)
    assume(not done.crashes)
    found = frozenset(site for site in reported(sites) if site[:2] not in program.aliases)
    assert found == done.calls, f"extra {sorted(found - done.calls)}, missing {sorted(done.calls - found)}\n{program}"


def sites_of(root: Path, files: Mapping[str, str]) -> list[Call]:
    write(root, files)
    tree = scan(Scan(root, apis=APIS, jobs=1))
    assert not [file for file in tree.files if file.unanalysed is not None]
    return [(file.path, site.line, site.api) for file in tree.files for site in file.sites]


def test_a_name_that_becomes_its_own_attribute_in_a_loop(tmp_path: Path) -> None:
    """What properties found: three ways to go made more names in a few rounds than are looked at."""
    text = """\
        from governed import run, tree as node
        while node:
            if node.key < wanted:
                node = node.left
            elif node.key > wanted:
                node = node.right
            else:
                node = node.equal
        node()
        run()
    """
    assert sites_of(tmp_path, {"main.py": dedent(text)}) == [("main.py", 10, "governed.run")]


def test_an_attribute_of_a_module_reached_in_a_loop(tmp_path: Path) -> None:
    text = """\
        import governed as step
        while step:
            step()
            step = step.run
    """
    assert sites_of(tmp_path, {"main.py": dedent(text)}) == [("main.py", 3, "governed.run")]
