"""Lines of one module on which something governed may stand; what lies between them is told in outline only."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from checkers.facts.hot import Hits

_WALRUS = ":="
"""It binds from inside an expression, and so is told wherever it stands."""
_CLASS_OF = re.compile(r"\btype\s*\((?:[^()]|\([^()]*\))*(?:\)\s*\(|\([^()]*\()")
"""``type(x)()``: a class that is called without its name."""
_MANY = 1000
"""Words for which it takes longer to look than to pass over nothing."""


class Sieve:
    """The lines that hold one of ``words``, of which those with a dot count behind one only."""

    def __init__(self, lines: Sequence[str], words: Iterable[str]) -> None:
        text, words = "\n".join(lines), frozenset(words)
        if len(words) > _MANY:
            self._found = self._walruses = [*range(1, len(lines) + 1)]
            return
        if not text.isascii() and not unicodedata.is_normalized("NFKC", text):
            self._found = self._walruses = [*range(1, len(lines) + 1)]  # words may be spelled in other characters
            return
        found = {offset for word in words for offset in _places(text, word)}
        self._found = _lines_of(text, found.union(match.start() for match in _CLASS_OF.finditer(text)))
        self._walruses = _lines_of(text, _places(text, _WALRUS))

    def holds(self, first: int, last: int) -> bool:
        """Whether a use or a binding has to be looked for inside the expressions on the lines, 1-based."""
        return _any_within(self._found, first, last) or _any_within(self._walruses, first, last)

    def counts(self, first: int, last: int) -> bool:
        """Whether a word stands on one of the lines."""
        return _any_within(self._found, first, last)

    def has_walrus(self, first: int, last: int) -> bool:
        """Whether ``:=`` stands on one of the lines."""
        return _any_within(self._walruses, first, last)


def _any_within(numbers: Sequence[int], first: int, last: int) -> bool:
    position = bisect_left(numbers, first)
    return position < len(numbers) and numbers[position] <= last


def _lines_of(text: str, offsets: Iterable[int]) -> list[int]:
    """The lines on which ``offsets`` stand."""
    found = []
    line, done = 1, 0
    for offset in sorted(offsets):
        line += text.count("\n", done, offset)
        done = offset
        found.append(line)
    return found


def _places(text: str, word: str) -> Iterator[int]:
    """Where ``word`` stands; behind a dot, if it begins with one."""
    name = word.lstrip(".")
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if name == _WALRUS or (_is_whole(text, start, end) and (word == name or _is_behind_dot(text, start))):
            yield start
        start = text.find(name, end)


def _is_whole(text: str, start: int, end: int) -> bool:
    around = text[start - 1 : start] if start else "", text[end : end + 1]
    return not any(character == "_" or character.isalnum() for character in around)


def _is_behind_dot(text: str, start: int) -> bool:
    """Whether a dot stands before ``start``, with white space or comments between."""
    before = start
    while before and text[before - 1] in " \t\n\\":
        before -= 1
    if text[before - 1 : before] == ".":
        return True
    line = text.rfind("\n", 0, before) + 1
    return text.find("\n", before, start) >= 0 and text.find("#", line, before) >= 0


def words_for(hits: Hits) -> frozenset[str]:
    """All that is looked for, where ``hits`` count."""
    unnamed = {"super"} if hits.contagious else set()
    return frozenset({*(word for word in hits.plain if word[0] != '"'), ".__class__", *unnamed})
