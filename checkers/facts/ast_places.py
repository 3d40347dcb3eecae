"""Where things stand that Python's own syntax tree does not tell: colons, brackets, keywords and names.

The tree counts UTF-8 bytes from the start of a line; everything here counts characters from 0 and lines from 1.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from checkers.facts.ast_values import NeedsReferenceError
from checkers.lines import split_lines


class Spot(NamedTuple):
    """A line and a column in it."""

    line: int
    column: int


class Places:
    """The lines of one module."""

    def __init__(self, text: str) -> None:
        self.lines = split_lines(text)
        self._is_ascii = text.isascii()

    def column(self, line: int, offset: int) -> int:
        """The column at ``offset`` bytes."""
        if self._is_ascii or self.lines[line - 1].isascii():
            return offset
        return len(self.lines[line - 1].encode()[:offset].decode())

    def start(self, node: ast.expr | ast.stmt | ast.keyword | ast.excepthandler) -> Spot:
        """Where a node begins."""
        return Spot(node.lineno, self.column(node.lineno, node.col_offset))

    def end(self, node: ast.AST) -> Spot:
        """Just behind the end of a node."""
        line, offset = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return Spot(line, self.column(line, offset))

    def name(self, node: ast.Name | ast.Attribute) -> Spot:
        """Where the name begins that a name or an attribute ends with."""
        end = self.end(node)
        text = node.id if isinstance(node, ast.Name) else node.attr
        spot = Spot(end.line, end.column - len(text))
        if spot.column < 0 or self.lines[spot.line - 1][spot.column : end.column] != text:
            raise NeedsReferenceError  # inside an f-string before Python 3.12, or spelled in other characters
        return spot

    def only_word(self, node: ast.expr, word: str) -> Spot:
        """Where ``word`` stands between start and end of ``node``, if it stands there once and in a one-line string."""
        start, end = self.start(node), self.end(node)
        found: list[Spot] = []
        for line in range(start.line, end.line + 1):
            text = self.lines[line - 1][: end.column if line == end.line else None]
            if '"""' in text or "'''" in text or text.endswith("\\"):
                raise NeedsReferenceError
            first = start.column if line == start.line else 0
            found += [
                Spot(line, match.start()) for match in re.finditer(rf"\b{word}\b", text) if match.start() >= first
            ]
        if len(found) != 1:
            raise NeedsReferenceError
        return found[0]

    def ahead(self, spot: Spot, wanted: str) -> Spot:
        """The next character of ``wanted`` from ``spot`` on, outside comments; no string may stand between."""
        line, column = spot
        while line <= len(self.lines):
            text = self.lines[line - 1]
            for position in range(column, len(text)):
                character = text[position]
                if character in wanted:
                    return Spot(line, position)
                if character == "#":
                    break
            line, column = line + 1, 0
        raise NeedsReferenceError

    def token_line(self, spot: Spot) -> int:
        """Line of the next token from ``spot`` on."""
        line, column = spot
        while line <= len(self.lines):
            rest = self.lines[line - 1][column:].strip()
            if rest not in ("", "\\") and not rest.startswith("#"):
                return line
            line, column = line + 1, 0
        raise NeedsReferenceError

    def colon_line(self, spot: Spot) -> int:
        """Line of the colon that ends a header whose last expression ends at ``spot``."""
        return self.ahead(spot, ":").line

    def keyword_before(self, line: int, column: int, keyword: str) -> int:
        """The nearest line, from the given place upward, that begins with ``keyword``."""
        text = self.lines[line - 1][:column]
        while line > 0:
            if text.lstrip(" \t\f").startswith(keyword):
                return line
            line -= 1
            text = self.lines[line - 1]
        raise NeedsReferenceError

    def defined_name(self, node: ast.ClassDef) -> Spot:
        """Where the name of a class begins."""
        line, column = self.start(node)
        column += len("class")
        while True:
            rest = self.lines[line - 1][column:]
            stripped = rest.lstrip(" \t\f")
            if stripped.startswith(node.name):
                return Spot(line, column + len(rest) - len(stripped))
            if stripped != "\\":
                raise NeedsReferenceError
            line, column = line + 1, 0
