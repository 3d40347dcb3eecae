"""Lines of one module on which something governed may stand; what lies between them is told in outline only."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

_WALRUS = ":="
"""It binds from inside an expression, and so is told wherever it stands."""
_STORES = re.compile(
    r"\bglobal\b|\.\s*\w+\s*=(?!=)"  # self.a = b
    r"|^[ \t]*\w+(?:\s*\.\s*\w+)+\s*:(?!=)"  # self.a: T = b
    r"|^[ \t]*[(\[]?[^()=:\n]*\.\s*\w+\s*[,)\]][^=\n]*=(?!=)"  # self.a, self.b = c
    r"|\b(?:for|as)\s+[(\[]?[\w\s,.*]*\.\s*\w+"
    r"|\b(?:def|class)\b",
    re.MULTILINE,
)
"""What other code can see of a function: attributes and globals that it stores, and what it defines."""
_CLASS_OF = re.compile(r"\btype\s*\([^()\n]*\)\s*\(")
"""``type(x)()``: a class that is called without its name."""


class Sieve:
    """The lines that hold one of ``words``, of which those with a dot count behind one only."""

    def __init__(self, lines: Sequence[str], words: Iterable[str]) -> None:
        self._lines = lines
        text = "\n".join(lines)
        if not text.isascii() and not unicodedata.is_normalized("NFKC", text):
            self._found = [*range(1, len(lines) + 1)]  # words may be spelled in other characters
            return
        found = {offset for word in words for offset in _places(text, word)}
        offsets = sorted(found.union(match.start() for match in _CLASS_OF.finditer(text)))
        self._found = []
        line, done = 1, 0
        for offset in offsets:
            line += text.count("\n", done, offset)
            done = offset
            self._found.append(line)

    def holds(self, first: int, last: int) -> bool:
        """Whether a word stands on one of the lines, 1-based."""
        found = self._found
        position = bisect_left(found, first)
        return position < len(found) and found[position] <= last

    def is_idle(self, first: int, body: int, last: int) -> bool:
        """Whether the function on these lines, its body from ``body`` on, can be left out."""
        if self.holds(first, last):
            return False
        return _STORES.search("\n".join(self._lines[body - 1 : last])) is None


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


def words_for(hits: Iterable[str]) -> frozenset[str]:
    """All that is looked for, where ``hits`` count."""
    return frozenset({*(word for word in hits if word[0] != '"'), _WALRUS, ".__class__"})
