"""Where each node of a LibCST tree stands in the source, without a ``MetadataWrapper``.

LibCST reproduces a module byte for byte from its tokens; counting lines and characters while it does so gives every
position in about a fifth of the time of the parse, where ``PositionProvider`` takes twice the parse.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple

import libcst as cst
from libcst._nodes.internal import CodegenState

from checkers.lines import NEWLINE

_NOTHING: AbstractContextManager[None] = nullcontext()
_LIBCST_CODEGEN = cst.CSTNode._codegen


def _codegen(self: cst.CSTNode, state: CodegenState, **kwargs: Any) -> None:
    """What LibCST's method does, by a call that CPython runs without recursing in C.

    LibCST calls a bound method with ``**kwargs``; CPython 3.12.1 allows 1,500 such levels, whatever is set.
    """
    state.before_codegen(self)
    write = type(self)._codegen_impl
    write(self, state, **kwargs)
    state.after_codegen(self)


class Spot(NamedTuple):
    """1-based line and column, counted in characters."""

    line: int
    column: int


class Positions(CodegenState):
    """Lines and columns by ``id`` of the node; the tree must stay alive while they are used."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self._line = 1
        self._column = 1
        self.starts: dict[int, Spot] = {}
        """Where a node begins, its own parentheses and leading lines included."""
        self.inner: dict[int, Spot] = {}
        """Where an expression begins inside its parentheses, a statement behind its leading lines and decorators."""
        self.inner_ends: dict[int, int] = {}
        """Line on which a parenthesised expression ends inside its parentheses."""
        self.ends: dict[int, int] = {}
        """Line on which a node ends."""
        self.comments: list[tuple[Spot, str]] = []
        cst.CSTNode._codegen = _codegen  # type: ignore[method-assign]
        try:
            module._codegen(self)
        finally:
            cst.CSTNode._codegen = _LIBCST_CODEGEN  # type: ignore[method-assign]

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self._column += len(token)

    def add_token(self, value: str) -> None:
        if "\n" in value or "\r" in value:
            breaks = list(NEWLINE.finditer(value))
            self._line += len(breaks)
            self._column = len(value) - breaks[-1].end() + 1
        else:
            self._column += len(value)

    def before_codegen(self, node: cst.CSTNode) -> None:
        spot = Spot(self._line, self._column)
        self.starts[id(node)] = spot
        if type(node) is cst.Comment:
            self.comments.append((spot, node.value))

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.ends[id(node)] = self._line

    def pop_trailing_newline(self) -> None:
        """The file ends without a newline: nothing stands behind it that could be misplaced."""

    def record_syntactic_position(  # type: ignore[override]
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> AbstractContextManager[None]:
        self.inner[id(node)] = Spot(self._line, self._column)
        return _InnerEnd(self, node) if getattr(node, "lpar", None) else _NOTHING

    def inner_end(self, node: cst.CSTNode) -> int:
        """Line on which ``node`` ends, without its own parentheses."""
        return self.inner_ends.get(id(node), self.ends[id(node)])

    def note_inner_end(self, node: cst.CSTNode) -> None:
        """The expression is written, its closing parentheses are not."""
        self.inner_ends[id(node)] = self._line


class _InnerEnd(AbstractContextManager[None]):
    def __init__(self, positions: Positions, node: cst.CSTNode) -> None:
        self.positions = positions
        self.node = node

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.positions.note_inner_end(self.node)
