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
    HEADER,
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


FOUND = {
    "a later item of a with statement sees what an earlier one binds": {
        "main.py": """\
            with governed.Pool() as p, p.submit() as q, p.submit():
                p.submit()
            """
    },
    "a class's global is not its methods'": {
        "main.py": """\
            def outer():
                x = governed.run
                class C:
                    global x
                    x = decoy
                    def method(self):
                        x()
                C().method()
            outer()
            """
    },
    "a submodule takes the name that its package has bound": {
        "pkg/__init__.py": "from governed import run as part",
        "pkg/part.py": "from governed import call",
        "main.py": """\
            import pkg
            pkg.part()
            import pkg.part
            pkg.part.call()
            """,
    },
    "match captures the subject": {
        "main.py": """\
            match governed.run:
                case f:
                    f()
            """
    },
    "nonlocal": {
        "main.py": """\
            def outer():
                x = decoy
                def inner():
                    nonlocal x
                    x = governed.run
                inner()
                x()
            outer()
            """
    },
    "global, between other bindings": {
        "main.py": """\
            x = governed.run
            x()
            def set():
                global x
                x = governed.call
            x = decoy
            set()
            x()
            """
    },
    "a walrus in a condition": {
        "main.py": """\
            if (g := governed) and g.run():
                g.call()
            """
    },
    "a name that goes on to its own attribute, twice": {
        "one.py": "import two as after",
        "two.py": "from governed import run as after",
        "main.py": """\
            import one
            x = one
            for _ in (1, 2):
                x = x.after
            x()
            """,
    },
    "a list of all names made of another": {
        "pkg/__init__.py": "from .one import *\n__all__ = [*one.__all__]",
        "pkg/one.py": "__all__ = ['_hidden']\nfrom governed import run as _hidden",
        "main.py": "from pkg import *\n_hidden()",
    },
    "a name bound later in a loop": {
        "main.py": """\
            for i in (1, 2):
                def later():
                    g.run()
                if i == 2:
                    later()
                g = governed
            """
    },
    "a receiver made in another method": {
        "main.py": """\
            class Owner:
                def __init__(self):
                    self.pool: "governed.Pool | None" = None
                def open(self):
                    self.pool = governed.Pool()
                    return self
                def use(self):
                    self.pool.submit()
            Owner().open().use()
            """
    },
}
"""What the properties and their author found, or looked for."""


@pytest.mark.parametrize("files", FOUND.values(), ids=FOUND)
def test_found(interpreter: Interpreter, files: Mapping[str, str]) -> None:
    texts = {path: f"{HEADER}; import governed\n{dedent(text)}\n" for path, text in files.items()}
    done, sites = run_and_scan(interpreter, Project(texts, frozenset()))
    assert not done.crashes
    assert done.calls
    assert done.calls <= reported(sites)


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
