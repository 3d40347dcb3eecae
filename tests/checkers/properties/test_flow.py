"""The reaching definitions of ``checkers.facts.flow`` against every execution of small programs of one name.

Programs go through the front end, so that what it tells of blocks is tested with what the analysis makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.facts import model as f
from checkers.facts.interest import Interest
from checkers.facts.libcst_frontend import parse

# --- programs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simple:
    """``bind``, ``unbind``, ``read``, or one of the statements that go elsewhere."""

    what: str


@dataclass(frozen=True)
class If:
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] | None


@dataclass(frozen=True)
class Loop:
    is_for: bool
    """A ``for`` that binds the name itself; else a ``while`` that does not."""
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...]


@dataclass(frozen=True)
class Try:
    body: tuple[Statement, ...]
    handlers: tuple[tuple[Statement, ...], ...]
    orelse: tuple[Statement, ...]
    final: tuple[Statement, ...]


Statement = Simple | If | Loop | Try
Body = tuple[Statement, ...]


@cache
def bodies(depth: int, leaves: tuple[str, ...], *, only_branches: bool) -> st.SearchStrategy[Body]:
    """Sequences of statements nested ``depth`` deep; ``leaves`` are the simple ones allowed here."""
    simple = st.sampled_from(leaves).map(Simple)
    if depth == 0:
        return st.lists(simple, min_size=1, max_size=2).map(tuple)
    inner = bodies(depth - 1, leaves, only_branches=only_branches)
    compounds: list[st.SearchStrategy[Statement]] = [st.builds(If, inner, st.none() | inner)]
    if not only_branches:
        in_loop = bodies(depth - 1, (*leaves, "break", "continue"), only_branches=False)
        rest = st.just(()) | inner
        compounds.append(st.builds(Loop, st.booleans(), in_loop, rest))
        handlers = st.lists(inner, min_size=1, max_size=2).map(tuple)
        compounds.append(st.builds(Try, inner, handlers, rest, rest))
        compounds.append(st.builds(Try, inner, st.just(()), st.just(()), inner))
    return st.lists(st.one_of(simple, simple, *compounds), min_size=1, max_size=3).map(tuple)


class Source:
    """A program as text; a binding is known by its line, and so is a read."""

    def __init__(self, body: Body) -> None:
        self.lines: list[str] = ["def f():"]
        self.line_of: dict[int, int] = {}
        """Line by ``id`` of a statement; the programs below keep theirs alive."""
        self._write(body, 1)

    def _add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def _write(self, body: Body, depth: int) -> None:
        for statement in body:
            self.line_of[id(statement)] = line = len(self.lines) + 1
            match statement:
                case Simple("bind"):
                    self._add(depth, f"import line{line} as x")
                case Simple("unbind"):
                    self._add(depth, "del x")
                case Simple("read"):
                    self._add(depth, "x()")
                case Simple(what):
                    self._add(depth, what)
                case If(inner, orelse):
                    self._part(depth, "if unknown:", inner)
                    if orelse is not None:
                        self._part(depth, "else:", orelse)
                case Loop(is_for, inner, orelse):
                    self._part(depth, "for x in unknown:" if is_for else "while unknown:", inner)
                    if orelse:
                        self._part(depth, "else:", orelse)
                case Try(inner, handlers, orelse, final):
                    self._part(depth, "try:", inner)
                    for number, handler in enumerate(handlers):
                        self._part(depth, f"except E{number}:", handler)
                    if orelse and handlers:
                        self._part(depth, "else:", orelse)
                    if final:
                        self._part(depth, "finally:", final)

    def _part(self, depth: int, header: str, body: Body) -> None:
        self._add(depth, header)
        self._write(body, depth + 1)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def copied(body: Body) -> Body:
    """The same program with a new object for each statement, which Hypothesis may share."""
    return tuple(_copied(statement) for statement in body)


def _copied(statement: Statement) -> Statement:
    match statement:
        case Simple(what):
            return Simple(what)
        case If(body, orelse):
            return If(copied(body), None if orelse is None else copied(orelse))
        case Loop(is_for, body, orelse):
            return Loop(is_for, copied(body), copied(orelse))
        case Try(body, handlers, orelse, final):
            return Try(copied(body), tuple(copied(h) for h in handlers), copied(orelse), copied(final))


# --- every execution ------------------------------------------------------------------------------------------------

FALLS, RAISES = "falls", "raise Error"
"""Ways to leave a statement; the others are the statements that cause them."""
Outcome = tuple[str, int | None]
"""How a statement is left, and the line of the binding that holds then."""


class Executions:
    """Runs a program in all ways at once: each statement maps a state to the set of its outcomes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.reads: dict[int, set[int]] = {}
        """Lines of the bindings that a read really sees, by line of the read."""

    def body(self, body: Body, state: int | None, in_try: bool) -> set[Outcome]:
        states: set[int | None] = {state}
        left: set[Outcome] = set()
        for statement in body:
            outcomes = {outcome for state in states for outcome in self.statement(statement, state, in_try)}
            left |= {outcome for outcome in outcomes if outcome[0] != FALLS}
            states = {state for how, state in outcomes if how == FALLS}
        return left | {(FALLS, state) for state in states}

    def statement(self, statement: Statement, state: int | None, in_try: bool) -> set[Outcome]:
        line = self.source.line_of[id(statement)]
        early: set[Outcome] = {(RAISES, state)} if in_try else set()
        match statement:
            case Simple("bind"):
                return early | {(FALLS, line)}
            case Simple("unbind"):
                return early | {(FALLS, None)}
            case Simple("read"):
                seen = self.reads.setdefault(line, set())
                seen.update([state] if state is not None else [])
                return early | {(FALLS, state)}
            case Simple("return" | "raise Error" | "break" | "continue"):
                return early | {(statement.what, state)}
            case Simple():
                return early | {(FALLS, state)}
            case If(body, orelse):
                return early | self.body(body, state, in_try) | self.body(orelse or (), state, in_try)
            case Loop():
                return early | self.loop(statement, state, in_try)
            case Try():
                return self.protected(statement, state, in_try)

    def loop(self, loop: Loop, state: int | None, in_try: bool) -> set[Outcome]:
        left: set[Outcome] = set()
        starts: set[int | None] = {state}
        before: set[int | None] = {state}
        for _ in range(2):
            entered = {None} if loop.is_for else starts  # what a ``for`` binds is no import
            outcomes = {outcome for state in entered for outcome in self.body(loop.body, state, in_try)}
            starts = {state for how, state in outcomes if how in (FALLS, "continue")}
            before |= starts
            left |= {(FALLS, state) for how, state in outcomes if how == "break"}
            left |= {outcome for outcome in outcomes if outcome[0] in ("return", RAISES)}
        for state in before:
            left |= self.body(loop.orelse, state, in_try)
        return left

    def protected(self, node: Try, state: int | None, in_try: bool) -> set[Outcome]:
        outcomes: set[Outcome] = set()
        for how, after in self.body(node.body, state, True):
            if how == FALLS and node.handlers:
                outcomes |= self.body(node.orelse, after, in_try or bool(node.final))
            else:
                outcomes.add((how, after))
            if how == RAISES:
                for handler in node.handlers:
                    outcomes |= self.body(handler, after, in_try or bool(node.final))
        if not node.final:
            return outcomes
        result: set[Outcome] = set()
        for how, after in outcomes:
            for last, state in self.body(node.final, after, in_try):
                result.add((how if last == FALLS else last, state))
        return result


def real_reads(body: Body, source: Source) -> dict[int, set[int]]:
    executions = Executions(source)
    executions.body(body, None, False)
    return executions.reads


# --- what the analysis says -----------------------------------------------------------------------------------------


def reported_reads(text: str) -> dict[int, set[int]]:
    """Lines of the bindings that may reach each read, by line of the read."""
    roots = frozenset(f"line{line}" for line in range(text.count("\n") + 2))
    facts = parse(text, Interest(roots=roots), annotated=False)
    reads: dict[int, set[int]] = {}
    for use in facts.uses:
        assert isinstance(use.value, f.Name)
        reads[use.place.line] = set(_lines(facts, use.value.load))
    return reads


def _lines(facts: f.ModuleFacts, load: int) -> Iterator[int]:
    for number in facts.loads[load]:
        binding = facts.bindings.get(number)
        if binding is not None and isinstance(binding.value, f.Module):
            yield int(binding.value.name.removeprefix("line"))


# --- properties -----------------------------------------------------------------------------------------------------

ANYWHERE = ("bind", "read", "unbind", "bind", "read", "pass", "return", "raise Error")


@settings(max_examples=150)
@given(bodies(3, ANYWHERE, only_branches=False).map(copied))
def test_every_binding_that_reaches_a_read_is_reported(body: Body) -> None:
    source = Source(body)
    reported = reported_reads(source.text)
    for line, bindings in real_reads(body, source).items():
        assert bindings <= reported.get(line, set()), source.text


@settings(max_examples=150)
@given(bodies(3, ("bind", "read", "unbind", "bind", "read"), only_branches=True).map(copied))
def test_nothing_else_is_reported_where_code_only_branches(body: Body) -> None:
    source = Source(body)
    reported = reported_reads(source.text)
    for line, bindings in real_reads(body, source).items():
        assert bindings == reported.get(line, set()), source.text


@st.composite
def leaving_arms(draw: st.DrawFn) -> Body:
    """Branches of which one arm may end with ``return`` or ``raise``, the other never."""
    arms = bodies(1, ("bind", "read", "unbind"), only_branches=True)
    statements: list[Statement] = []
    for _ in range(draw(st.integers(1, 3))):
        leaving = (*draw(arms), Simple(draw(st.sampled_from(["return", "raise Error"]))))
        staying = draw(arms)
        first = draw(st.booleans())
        statements += draw(arms)
        statements.append(If(leaving, staying) if first else If(staying, leaving))
    return copied((*statements, *draw(arms), Simple("read")))


@given(leaving_arms())
def test_an_arm_that_leaves_passes_nothing_on(body: Body) -> None:
    source = Source(body)
    reported = reported_reads(source.text)
    for line, bindings in real_reads(body, source).items():
        assert bindings == reported.get(line, set()), source.text


@pytest.mark.parametrize(
    ("text", "line", "bindings"),
    [
        ("import line1 as x\nimport line2 as x\nx()\n", 3, {2}),
        ("import line1 as x\ndel x\nx()\n", 3, set()),
        ("import line1 as x\nif c:\n    import line3 as x\nx()\n", 4, {1, 3}),
        ("if c:\n    import line2 as x\nelse:\n    import line4 as x\nx()\n", 5, {2, 4}),
        ("import line1 as x\nif c:\n    del x\nx()\n", 4, {1}),
        ("try:\n    import line2 as x\nexcept E:\n    import line4 as x\nx()\n", 5, {2, 4}),
        ("import line1 as x\nwhile c:\n    x()\n    import line4 as x\n", 3, {1, 4}),
        ("def g():\n    x()\nimport line3 as x\nimport line4 as x\n", 2, {3, 4}),
        ("import line1 as x\nimport line2 as x\ndef g():\n    x()\n", 4, {2}),
        ("import line1 as x\nwith suppress(E):\n    import line3 as x\nx()\n", 4, {1, 3}),
        (
            "import line1 as x\nmatch c:\n    case 1:\n        import line4 as x\n    case _:\n        x = 1\nx()\n",
            7,
            {4},
        ),
    ],
)
def test_the_rule_in_examples(text: str, line: int, bindings: set[int]) -> None:
    assert reported_reads(text).get(line, set()) == bindings
