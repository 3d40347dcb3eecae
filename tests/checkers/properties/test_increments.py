"""After any change of any file, what a scan finds with its cache is what it finds without."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from checkers import engine
from checkers.intake import cache
from checkers.model import Tree

MODULES = ("m0", "m1", "m2", "pkg.m3", "pkg")
NAMES = ("a", "b", "c")
LINES = (
    "import os",
    "import subprocess",
    "import threading",
    "import subprocess as {name}",
    "import multiprocessing.pool",
    "{name} = multiprocessing.pool",
    "for {name} in [{other}]: pass",
    "from operator import attrgetter",
    "{name} = attrgetter('{other}')({module})",
    "{name}.run('x')",
    "{module}.{name}.run('x')",
    "{name}.ThreadPool().map(print)",
    "import {module}",
    "from {module} import {name}",
    "from {module} import {name} as {other}",
    "from {module} import *",
    "from .m3 import {name}",
    "{name} = os.system",
    "{name} = subprocess.run",
    "{name} = {other}",
    "{name} = {module}.{other}",
    "{name} = {other}()",
    "class {name}({other}):\n    pass",
    "class {name}(threading.Thread):\n    def go(self):\n        self.{other} = subprocess.Popen('x')\n        go()",
    "class {name}:\n    {other} = os.system",
    "def {name}() -> threading.Thread: ...",
    "def {name}(x: {other}):\n    x.start()\n    return {module}.{name}('x')",
    "def {name}():\n    y = {other}\n    y('x')\n    {other}('x')",
    "{name}('x')",
    "{name}().start()",
    "{module}.{name}('x')",
    "{module}.{name}.{other}('x')",
    "{name}.{other}('x')",
    "getattr({module}, '{name}')('x')",
    "__all__ = ['{name}']",
    "print({name})  # execution-ownership: scheduler",
    "def broken(:",
)


@st.composite
def source(draw: st.DrawFn) -> str:
    lines = draw(st.lists(st.sampled_from(LINES), max_size=6))
    values = {"module": st.sampled_from(MODULES), "name": st.sampled_from(NAMES), "other": st.sampled_from(NAMES)}
    return "\n".join(line.format(**{key: draw(value) for key, value in values.items()}) for line in lines) + "\n"


PATHS = {name: name.replace(".", "/") + ("/__init__.py" if name == "pkg" else ".py") for name in MODULES}


def told(tree: Tree) -> object:
    return without_statements(tree), tree.selected, sorted(tree.names), tree.calls


@settings(max_examples=25, deadline=None)
@given(
    st.fixed_dictionaries({path: source() for path in PATHS.values()}),
    st.lists(st.tuples(st.sampled_from([*PATHS.values(), "pkg/m4.py", "new.py"]), st.none() | source()), max_size=4),
)
def test_any_change_gives_what_a_scan_without_cache_gives(
    files: dict[str, str], changes: list[tuple[str, str | None]]
) -> None:
    root = Path(tempfile.mkdtemp())
    try:
        (root / "pkg").mkdir()
        for path, text in files.items():
            (root / path).write_text(text, encoding="utf-8")
        asked = {"jobs": 1, "targets": ("m1.a", "*.go"), "watch": ("m2.b",)}
        engine.scan(engine.Scan(root, cache=root / cache.FOLDER, **asked))  # type: ignore[arg-type]
        for path, new in changes:
            if new is None:
                (root / path).unlink(missing_ok=True)
            else:
                (root / path).write_text(new, encoding="utf-8")
            kept = engine.scan(engine.Scan(root, cache=root / cache.FOLDER, **asked))  # type: ignore[arg-type]
            assert told(kept) == told(engine.scan(engine.Scan(root, **asked)))  # type: ignore[arg-type]
    finally:
        shutil.rmtree(root)


def without_statements(tree: Tree) -> object:
    """What was found, without the numbers that statements have among those that were looked at."""

    def plain(found: tuple[Any, ...]) -> list[Any]:
        return [replace(one, extent=replace(one.extent, statement=0)) for one in found]

    return [(file.path, plain(file.sites), plain(file.uses), file.unanalysed, file.comments) for file in tree.files]


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries({path: source() for path in PATHS.values()}))
def test_what_is_passed_over_holds_nothing(files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pkg").mkdir()
        for path, text in files.items():
            (root / path).write_text(text, encoding="utf-8")
        asked: dict[str, Any] = {"jobs": 1, "targets": ("m1.a", "*.go()"), "watch": ("m2.b",)}
        found, whole = engine.scan(engine.Scan(root, **asked)), engine.scan(engine.Scan(root, whole=True, **asked))
        assert (without_statements(found), found.calls) == (without_statements(whole), whole.calls)
