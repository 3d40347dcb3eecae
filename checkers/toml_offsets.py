"""Where in the text of a TOML document its tables, keys and values begin.

tomlkit keeps a document as written but tells no positions. It renders every key and value as it stood, so
the position of one is found by passing over all that was rendered before it. A header opens a *block* that
reaches to the next header: blocks are placed one after the other in the order of the source, because
tomlkit gathers the tables of an array that others stand between. A header is read by the TOML parser
itself, never by a pattern. Only white space, commas and comments between keys and values are passed over
unseen: there tomlkit is not always exact.
"""

from __future__ import annotations

import tomllib
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, InlineTable, Item, Table

from checkers.toml_places import Keys


def offsets(text: str) -> Mapping[Keys, int]:
    """Offsets by the keys that lead there; of what follows a part that is not where it should be there are none."""
    try:
        document = tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError):
        return {}
    return _Placing(text, document).offsets


class _Pair(msgspec.Struct, frozen=True):
    """A key with its value. ``written`` is the key as it stands, up to the value."""

    keys: Keys
    written: str
    value: Item


class _Block(msgspec.Struct):
    """A header and the pairs up to the next one. The document's first block has no header."""

    keys: Keys = ()
    pairs: list[_Pair] = msgspec.field(default_factory=list)


class _MisplacedError(Exception):
    """A key or value does not stand where it should."""


class _Placing:
    """Offsets of everything in one document."""

    def __init__(self, text: str, document: Container) -> None:
        self.offsets: dict[Keys, int] = {}
        self._text = text
        self._waiting: dict[tuple[str, ...], deque[_Block]] = {}
        self._elements: Counter[Keys] = Counter()
        first = _Block()
        self._collect(document, first, (), "")
        with suppress(_MisplacedError):
            self._place(first)

    def _collect(self, container: Container, block: _Block, keys: Keys, prefix: str) -> None:
        for key, item in container.body:
            if key is None:
                continue
            inner = (*keys, key.key)
            if isinstance(item, AoT):
                self._collect_elements(item, inner)
            elif not isinstance(item, Table):
                block.pairs.append(_Pair(inner, f"{prefix}{key.as_string()}{key.sep}", item))
            elif item.is_super_table():  # a dotted key, or the unwritten parent of a header
                self._collect(item.value, block, inner, f"{prefix}{key.as_string()}.")
            else:
                self._collect(item.value, self._open(inner), inner, "")

    def _collect_elements(self, array: AoT, keys: Keys) -> None:
        for element in array.body:
            inner = (*keys, self._elements[keys])
            self._elements[keys] += 1
            self._collect(element.value, self._open(inner), inner, "")

    def _open(self, keys: Keys) -> _Block:
        block = _Block(keys)
        names = tuple(key for key in keys if isinstance(key, str))
        self._waiting.setdefault(names, deque()).append(block)
        return block

    def _place(self, first: _Block) -> None:
        cursor = self._past_filler(self._past_pairs(first.pairs, 0))
        while cursor < len(self._text):
            end = self._line_end(cursor)
            waiting = self._waiting.get(_header(self._text[cursor:end]))
            if not waiting:
                raise _MisplacedError
            block = waiting.popleft()
            self._note(block.keys, cursor)
            cursor = self._past_filler(self._past_pairs(block.pairs, end))

    def _past_pairs(self, pairs: Iterable[_Pair], cursor: int) -> int:
        for pair in pairs:
            cursor = self._past_filler(cursor)
            self._note(pair.keys, cursor)
            cursor = self._past_value(pair.value, pair.keys, self._past(pair.written, cursor))
        return cursor

    def _past_value(self, value: Item, keys: Keys, cursor: int) -> int:
        if isinstance(value, Array):
            cursor = self._past("[", cursor)
            for index, element in enumerate(value):
                cursor = self._past_filler(cursor)
                self._note((*keys, index), cursor)
                cursor = self._past_value(element, (*keys, index), cursor)
            return self._past("]", self._past_filler(cursor))
        if isinstance(value, InlineTable):
            inside = _Block()
            self._collect(value.value, inside, keys, "")
            cursor = self._past_pairs(inside.pairs, self._past("{", cursor))
            return self._past("}", self._past_filler(cursor))
        return self._past(value.as_string(), cursor)

    def _past(self, written: str, cursor: int) -> int:
        if not self._text.startswith(written, cursor):
            raise _MisplacedError
        return cursor + len(written)

    def _past_filler(self, cursor: int) -> int:
        """Past the white space, commas and comments that stand between keys and values."""
        while cursor < len(self._text):
            if self._text[cursor] == "#":
                cursor = self._line_end(cursor)
            elif self._text[cursor] in " \t\r\n,":
                cursor += 1
            else:
                break
        return cursor

    def _line_end(self, cursor: int) -> int:
        return self._text.find("\n", cursor) + 1 or len(self._text)

    def _note(self, keys: Keys, offset: int) -> None:
        """A table without a header of its own stands where the first thing in it does."""
        while keys and keys not in self.offsets:
            self.offsets[keys] = offset
            keys = keys[:-1]


def _header(line: str) -> tuple[str, ...]:
    """Keys of a header line, as TOML reads them; none if it is no header."""
    try:
        table: object = tomllib.loads(line)
    except ValueError:
        return ()
    names = []
    while table:
        if isinstance(table, list):
            table = table[0]
        elif isinstance(table, dict):
            ((name, table),) = table.items()
            names.append(name)
        else:
            return ()
    return tuple(names)
