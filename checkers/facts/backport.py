"""Syntax that is newer than the running interpreter's, spelled in what it can parse, with the same facts.

Type parameters and ``type`` statements (PEP 695, Python 3.12; their defaults are of PEP 696, 3.13) are common, and
LibCST takes ten times as long to read a file. Lines stay what they were, and so do columns but in ``type`` statements,
of which no place is ever asked for. What looks like them inside a string is changed as well: no string is read as a
program.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

ALIAS = "__type__"
"""The annotation of an assignment that takes the place of a ``type`` statement."""
_STATEMENT = re.compile(
    r"^([ \t]*)(?:(type)|class|(?:async[ \t]+)?def)[ \t]+([^\W\d]\w*)[ \t]*(?:(\[)|=(?!=))", re.MULTILINE
)
_PART_OF_LIST = re.compile(r"[\[\]\"'#\\]")
_NESTED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_PARAMETER = re.compile(r"\s*\*{0,2}\s*([^\W\d]\w*)")
_ASSIGNED = re.compile(r"[ \t]*=(?!=)")


class Backported(NamedTuple):
    """A source that may be parsed."""

    text: str
    parameters: dict[int, tuple[str, ...]]
    """By line of a definition, the names of its type parameters, which ``text`` lacks."""


def backport(text: str) -> Backported | None:
    """Valid ``text`` without type parameters and ``type`` statements; None where there is nothing to leave out."""
    if sys.version_info >= (3, 13) or "\r" in text.replace("\r\n", ""):
        return None
    parts: list[str] = []
    parameters: dict[int, tuple[str, ...]] = {}
    done, line, counted = 0, 1, 0
    for match in _STATEMENT.finditer(text):
        indent, alias, name, bracket = match.groups()
        if match.start() < done or (bracket is None and alias is None):
            continue
        end = match.end() if bracket is None else _end_of_list(text, match.end(4))
        value = _ASSIGNED.match(text, end) if bracket is not None and alias is not None else None
        if end < 0 or (bracket is not None and alias is not None and value is None):
            continue
        line += text.count("\n", counted, match.start())
        counted = match.start()
        inside = text[match.end() : end - 1] if bracket is not None else ""
        if inside:
            parameters[line] = _names(inside)
        kept = text[match.start() : match.start(4)] if alias is None else f"{indent}{name}:{ALIAS}"
        parts += [text[done : match.start()], kept, _blank(text[match.start(4) : end]) if bracket is not None else "="]
        done = end
    return Backported("".join([*parts, text[done:]]), parameters) if parts else None


def _end_of_list(text: str, start: int) -> int:
    """Behind the bracket that closes one before ``start``; -1 where strings or comments stand between."""
    depth = 1
    for match in _PART_OF_LIST.finditer(text, start):
        if match[0] == "[":
            depth += 1
        elif match[0] == "]":
            depth -= 1
        else:
            return -1
        if not depth:
            return match.end()
    return -1


def _names(inside: str) -> tuple[str, ...]:
    while inside != (inside := _NESTED.sub("", inside)):
        pass
    return tuple(match[1] for part in inside.split(",") if (match := _PARAMETER.match(part)) is not None)


def _blank(text: str) -> str:
    """White space of the same lines and columns, which a statement may go on behind."""
    return re.sub(r"[^\n]", " ", text).replace("\n", "\\\n")
