"""Lines and columns of a TOML document's tables, keys and values, by the keys that lead to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property

import msgspec

Keys = tuple[str | int, ...]
"""Keys and array indices from the top of a document to a value: ``("site", 2, "owner")``."""


class Place(msgspec.Struct, frozen=True, order=True):
    """1-based line and column; columns count characters."""

    line: int
    column: int


class Places:
    """The places in one document, found the first time that one is asked for.

    A key is placed at its first character, a table at its header, an element of an array at its value.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def of(self, keys: Keys) -> Place:
        """Place of what ``keys`` lead to; if it is not written down (a missing key), of the table around."""
        while keys and keys not in self._offsets:
            keys = keys[:-1]
        return self.at(self._offsets.get(keys, 0))

    def at(self, offset: int) -> Place:
        """Place of the character at ``offset`` in the text."""
        line = bisect_right(self._lines, offset)
        return Place(line, offset - self._lines[line - 1] + 1)

    @cached_property
    def _lines(self) -> list[int]:
        """Offsets at which lines begin."""
        starts = [0]
        while (end := self._text.find("\n", starts[-1])) >= 0:
            starts.append(end + 1)
        return starts

    @cached_property
    def _offsets(self) -> Mapping[Keys, int]:
        # Imported only where a place is asked for: tomlkit takes as long to import as a manifest to read.
        from checkers.toml_offsets import offsets

        return offsets(self._text)
