"""Lines and columns of ``checkers.facts.positions`` against LibCST's own position providers."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import libcst as cst
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from libcst.metadata import MetadataWrapper, PositionProvider, WhitespaceInclusivePositionProvider

from checkers.facts.interest import Interest
from checkers.facts.libcst_frontend import parse
from checkers.facts.positions import Positions
from checkers.intake.source import decode

EXPRESSIONS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Tuple, cst.Lambda)
STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.Decorator)


def check(text: str) -> None:
    """Demand that every position which the front end reads is LibCST's."""
    module = cst.parse_module(text)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    exact = wrapper.resolve(PositionProvider)
    whole = wrapper.resolve(WhitespaceInclusivePositionProvider)
    mine = Positions(module)
    for node, place in exact.items():
        if isinstance(node, EXPRESSIONS):
            assert tuple(mine.starts[id(node)]) == _spot(whole[node].start), cst.Module([]).code_for_node(node)
            assert tuple(mine.inner[id(node)]) == _spot(place.start)
            assert mine.ends[id(node)] == whole[node].end.line
            assert mine.inner_end(node) == place.end.line
        elif isinstance(node, STATEMENTS):
            assert tuple(mine.inner[id(node)]) == _spot(place.start), cst.Module([]).code_for_node(node)
        if isinstance(node, cst.BaseSmallStatement):
            assert mine.ends[id(node)] == whole[node].end.line
        if isinstance(node, cst.BaseSuite):
            assert mine.starts[id(node)].line == whole[node].start.line
    comments = [(_spot(whole[node].start), node.value) for node in whole if isinstance(node, cst.Comment)]
    assert sorted((tuple(spot), value) for spot, value in mine.comments) == sorted(comments)


def _spot(place: cst.metadata.CodePosition) -> tuple[int, int]:
    return place.line, place.column + 1


# --- generated modules ----------------------------------------------------------------------------------------------

atoms = st.sampled_from(
    [
        "x",
        "os.system",
        "f(a)",
        "f(a, *b, **c)[d]",
        "(x)",
        "( (f) (a) )",
        "(a,\n  b.c(),\n)",
        "f(  # why\n    a,\n)",
        "(\n    f\n)(\n    a\n)",
        "lambda a, b=f(): f(a)",
        "'line one \\\nline two'",
        '"""one\ntwo\n""".f(x)',
        "'\u2028\x85' + f('\x0b\x1c')",
        "f'{f(a)}{b!r:>{c}}'",
        "[f(a) for a in b if c(a)]",
        "名(x)",
        "'😀'; f(x)",
        "await_(a)if b else f(c)",
    ]
)
simple = st.one_of(
    atoms,
    st.builds("y = {}".format, atoms),
    st.builds("y = {}; f(x)".format, atoms),
    st.builds("y = {};".format, atoms),
    st.builds("y = {}  # note\u2028{{}}".format, atoms),
    st.builds("# own line\n{}".format, atoms),
    st.sampled_from(
        ["pass", "import os, sys as s", "from a import (\n    b,\n    c as d,\n)", "del x", "x: int = f()"]
    ),
)
headers = st.sampled_from(
    [
        "if f(x):",
        "while f(x): # note",
        "@f(x)\n@a.b\ndef g(a=f(), *, b: c = d) -> e:",
        "# above\n\n@f(  # why\n    x\n)\nclass C(a.b, c=f()):",
        "with f(x) as y, g():",
        "for x in f(y):",
        "async def g():",
    ]
)


@st.composite
def modules(draw: st.DrawFn) -> str:
    """Text of a module, with the line ends and indents that Python allows."""
    indent = draw(st.sampled_from(["    ", "\t", " ", " \t"]))
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            lines.append(draw(headers))
            body = draw(st.lists(simple, min_size=1, max_size=3))
            lines += [_indented(statement, indent) for statement in body]
            if draw(st.booleans()):
                lines.append(draw(st.sampled_from(["", indent, indent + "# last", "# outside"])))
        else:
            lines.append(draw(simple))
    text = draw(st.sampled_from(["", "\ufeff", "\n\n", "\x0c", "#!shebang\n"])) + "\n".join(lines)
    text += draw(st.sampled_from(["", "\n", "\n\n", "\n# end", "\n\x0c\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\n", "\r\n", "\r"])))


def _indented(statement: str, indent: str) -> str:
    """Indent what begins a line of its own: the first line and what follows a comment."""
    first, newline, rest = statement.partition("\n")
    return indent + first + newline + (indent + rest if first.startswith("#") else rest)


@settings(max_examples=120)
@given(modules())
@example("x = (\n    f\n)(\n    a\n)")
@example("if x:\r\n\tf(x)\r\n\r\n\t# last")
@example("\ufefff(x)\n")
@example("\x0cf(x)\n\x0c\ndef g():\n    pass")
def test_generated_modules(text: str) -> None:
    check(text)


# --- the standard library -------------------------------------------------------------------------------------------

SAMPLE = """
__future__ abc antigravity bisect codeop colorsys copy copyreg dis fnmatch genericpath getpass graphlib
hashlib heapq keyword linecache numbers opcode pkgutil pty py_compile queue quopri reprlib rlcompleter sched
secrets shelve signal socketserver stat string struct stringprep this timeit token tty types zipapp
concurrent/futures/thread asyncio/queues asyncio/subprocess json/decoder
"""
"""Short modules; those that the running Python does not have are passed over."""


def sample() -> list[Path]:
    folder = Path(sysconfig.get_path("stdlib"))
    return [path for name in SAMPLE.split() if (path := folder / f"{name}.py").is_file()]


def test_the_sample_is_large_enough() -> None:
    assert len(sample()) >= 40


@pytest.mark.parametrize("path", sample(), ids=lambda path: path.name)
def test_the_standard_library(path: Path) -> None:
    text = decode(path.read_bytes())
    assert isinstance(text, str)
    check(text)


# --- what it is for: lines of uses ----------------------------------------------------------------------------------

KEEP = Interest(roots=frozenset({"os"}))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("import os\r\n\r\nos.system(x)\r\n", 3, 4),
        ("import os\r\ros.system(x)\r", 3, 4),
        ("import os\n\x0c\nos.system(x)", 3, 4),
        ("\ufeffimport os; os.system(x)\n", 1, 15),
        ("import os\nx = '\u2028 \x85'; os.system(x)\n", 2, 15),
        ("import os\nx = '''\n\u2029\n'''; os.system(x)\n", 4, 9),
        ("import os\nif x:\n\tos.system(x)\n", 3, 5),
        ("import os\n(\n    os\n    .system\n)(x)\n", 4, 6),
        ("import os\nx = '😀', os.system(x)\n", 2, 13),
        ("import os\n@x\n# note\n@os.system\ndef f(): pass\n", 4, 5),
    ],
)
def test_where_a_use_is_reported(text: str, line: int, column: int) -> None:
    (use,) = parse(text, KEEP, annotated=False).uses
    assert (use.place.line, use.place.column) == (line, column)
