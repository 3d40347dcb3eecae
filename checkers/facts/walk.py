"""What the walks of both front ends share: the stack of steps, and where the value of an expression goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from checkers.facts import model as f
from checkers.facts.builder import Builder

MAX_CHAIN = 64
"""Links of a chain that are followed; no API is that many attributes and calls away from its module."""
MAX_ELEMENTS = 64
"""Elements of a display that are looked at for instances kept in it."""
MAX_QUOTED = 1000
"""Characters of a quoted annotation that is read."""

ENTERS = frozenset({"aclosing", "closing", "enter_async_context", "enter_context"})
"""What of contextlib gives, in the end, what ``with`` on its argument gives."""
SPLIT = frozenset({"split", "rsplit", "splitlines"})

RECURSION_LIMIT = 200_000
"""Python frames live on the heap: following values, and writing LibCST's tokens, costs memory only."""

Step = tuple[Any, ...]
"""A function and its arguments."""


class Context(msgspec.Struct, frozen=True, eq=False):
    """What becomes of a value: handed on (``role``), given a name (``aliases``), or neither."""

    role: str | None = None
    aliases: list[int] | None = None
    container: list[int] | None = None
    is_type: bool = False
    """In a type expression nothing is handed on, however deep."""
    call: Any = None
    """The call node that calls the value."""

    def stored(self) -> Context:
        """The context of what a value of this context holds."""
        return self if self.is_type else replace(STORED, container=self.aliases)


IGNORED = Context()
STORED = Context(f.Role.REFERENCE)
TYPE = Context(is_type=True)

TYPE_TESTS = frozenset({"isinstance", "issubclass"})
CLASS_METHODS = frozenset({"__class_getitem__", "__init_subclass__", "__new__", "classmethod"})
_ONLY_LOOKED_AT = frozenset({"callable", "delattr", "getattr", "hasattr", "id", "repr", "super", "type"})
"""Builtins that take a callable without keeping or calling it."""
_TYPE_MAKERS = frozenset({"NamedTuple", "NewType", "TypeAliasType", "TypeVar", "TypedDict", "assert_type", "cast"})
_TYPE_POSITION = {"assert_type": 1, "cast": 0}
"""Which argument of a type maker is a type, where not all are."""
_TYPING = frozenset({"typing", "typing_extensions"})


def names_attribute(arguments: Sequence[f.CallArgument]) -> bool:
    """Whether arguments are those of ``getattr``, whatever it is called: the first matters, however it is computed."""
    match arguments:
        case [f.CallArgument(None), f.CallArgument(None, f.Constant(str())), *_]:
            return True
        case _:
            return False


def argument_context(builtin: str | None, maker: str | None, position: int) -> Context:
    """Where an argument goes: handed on, unless the callee is known only to look at it.

    ``builtin`` is the callee where it is a bare name, ``maker`` what :meth:`Walk._type_maker` says of it.
    """
    if builtin in TYPE_TESTS:
        return TYPE
    if maker is not None:
        return TYPE if _TYPE_POSITION.get(maker, position) == position else STORED
    if builtin in _ONLY_LOOKED_AT:
        return STORED if builtin == "getattr" and position == 2 else IGNORED
    return STORED


class Walk:
    """A walk over one tree with an explicit stack: a deep tree costs memory and no recursion.

    A step may put further steps in front of what waits.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._todo: list[Step] = []
        self._statement = 0
        self._started = 0
        self._symbol: str | None = None
        self._certain = True

    def _work(self, *steps: Step) -> None:
        self._then(*steps)
        todo = self._todo
        while todo:
            step, *arguments = todo.pop()
            step(*arguments)

    def _then(self, *steps: Step) -> None:
        self._todo.extend(reversed(steps))

    def _open_statement(self, lines: Any) -> None:
        self._statement = self.builder.statement(lines)
        self._started = self.builder.now()

    def _use_symbol(self) -> str:
        return self.builder.here.symbol if self._symbol is None else self._symbol

    def _type_maker(self, callee: str) -> str | None:
        """``cast`` and its kin, if the dotted name of a callee was imported as that, however spelled."""
        root, *attributes = callee.split(".")
        match self.builder.latest(root):
            case f.Module(module):
                name = ".".join([module, *attributes])
            case f.Member(module, 0, member):
                name = ".".join([module, member, *attributes])
            case _:
                return None
        module, _, maker = name.rpartition(".")
        return maker if module in _TYPING and maker in _TYPE_MAKERS else None
