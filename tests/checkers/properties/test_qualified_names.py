"""Qualified names of called imports against LibCST's ``QualifiedNameProvider``.

The provider knows imports and scopes, and gives every binding that a scope has of a name, at whatever place. So each
scope of the programs here binds a name once, before it is used. What the provider does not know is left out: captures
of ``match``, ``del``, assignments, that a comprehension in a class body does not see the class, and that the name of
``import a.b`` may be hidden by another ``a`` further in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import libcst as cst
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from libcst.metadata import (
    MetadataWrapper,
    PositionProvider,
    QualifiedNameProvider,
    QualifiedNameSource,
    WhitespaceInclusivePositionProvider,
)

from checkers.engine import Scan, scan

NAMES = ("a", "b", "lib", "sub")
LEAVES = ("run", "a", "sub")


class Import(NamedTuple):
    """One form of import and the names that it binds."""

    text: str
    binds: frozenset[str]


IMPORTS = [
    Import("import lib", frozenset({"lib"})),
    Import("import lib.sub.deep as a", frozenset({"a"})),
    Import("import lib as b, lib.sub as sub", frozenset({"b", "sub"})),
    Import("from lib import a", frozenset({"a"})),
    Import("from lib import run as b", frozenset({"b"})),
    Import("from lib.sub import (a as b, sub)", frozenset({"b", "sub"})),
    Import("from lib import sub as lib", frozenset({"lib"})),
    Import("if x:\n    from lib import a\nelse:\n    from lib.sub import a", frozenset({"a"})),
    Import("try:\n    from lib import b\nexcept ImportError:\n    from lib.sub import run as b", frozenset({"b"})),
    Import("a = None", frozenset({"a"})),
    Import("def b(): ...", frozenset({"b"})),
    Import("class sub: ...", frozenset({"sub"})),
]

chains = st.builds(
    lambda name, rest: ".".join([name, *rest]),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(LEAVES), max_size=2),
)
IN_CLASS = ["{}()", "{}(1)({})", "x = {}()", "print({}(x))", "{}(**y)", "x[{}()]", "f'{{{}()}}'", "assert {}(), {}()"]
ANYWHERE = [
    *IN_CLASS,
    "(lambda {name}: {}())(1)",
    "(lambda: {}())()",
    "[{}() for {name} in x]",
    "{{{}(): 1 for x in y if {}()}}",
]


@st.composite
def bodies(draw: st.DrawFn, depth: int, in_class: bool, bound: frozenset[str] = frozenset()) -> list[str]:
    """Lines of a scope: imports of different names, none of them ``bound`` already, then calls and inner scopes."""
    lines: list[str] = []
    for imported in draw(st.lists(st.sampled_from(IMPORTS), max_size=4)):
        if not bound & imported.binds:
            bound |= imported.binds
            lines += imported.text.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        form = draw(st.sampled_from(IN_CLASS if in_class else ANYWHERE))
        lines.append(form.format(draw(chains), draw(chains), name=draw(st.sampled_from(NAMES))))
    for number in range(draw(st.integers(0, 2)) if depth else 0):
        is_class = draw(st.booleans())
        # The first parameter of a method is its object, whose attributes the provider does not know.
        parameter = "" if is_class or in_class else draw(st.sampled_from(["", *NAMES]))
        lines.append(f"class C{number}:" if is_class else f"def f{number}({parameter}):")
        inner = draw(bodies(depth - 1, is_class, frozenset({parameter})))
        lines += ["    " + line for line in inner]
    return lines


modules = bodies(2, False).map(lambda lines: "\n".join(lines) + "\n")

Named = tuple[int, int, frozenset[str]]
"""Line and column of the last name of a callee, and the names it may mean."""


def oracle(text: str) -> set[Named]:
    """What the provider says of every call of something that is imported."""
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    names = wrapper.resolve(QualifiedNameProvider)
    places = wrapper.resolve(WhitespaceInclusivePositionProvider)
    found: set[Named] = set()
    for node in wrapper.resolve(PositionProvider):
        if not isinstance(node, cst.Call) or isinstance(node.func, cst.Call):
            continue
        known = names.get(node.func, ())
        found_names = known() if callable(known) else known
        imported = frozenset(name.name for name in found_names if name.source is QualifiedNameSource.IMPORT)
        imported = frozenset(name for name in imported if name.startswith("lib."))
        if imported:
            last = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
            place = places[last].start
            found.add((place.line, place.column + 1, imported))
    return found


def reported(root: Path, text: str) -> Iterator[Named]:
    """What the engine says, with everything of the library declared as a target."""
    request = Scan(root, targets=("lib.*",), stdin=("main.py", text.encode()), jobs=1)
    for file in scan(request).files:
        assert file.unanalysed is None
        for site in file.sites:
            if site.kind == "call":
                yield site.line, site.column, frozenset(site.names)


@pytest.fixture(scope="module")
def empty_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the module exists only as unsaved text."""
    return tmp_path_factory.mktemp("project")


@settings(max_examples=50)
@given(text=modules)
@example(text="import lib.sub\nlib.sub.run()\n")
@example(text="import lib\nclass C:\n    from lib import a as lib\n    lib()\n    def f(self):\n        lib.a()\n")
@example(text="from lib import a\n[a() for a in x]\n")
@example(text="def f(lib):\n    lib.run()\nimport lib\n")
def test_called_imports_have_the_names_that_libcst_gives_them(empty_project: Path, text: str) -> None:
    assert set(reported(empty_project, text)) == oracle(text), text
