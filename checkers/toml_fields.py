"""Typed fields that validate themselves: what a manifest may say is declared once, as classes.

A table of a manifest is a :class:`Table`. Each key is one of its attributes, made by :func:`key` from a
*kind* that says what the key may hold, how that is read, and in which words it is asked for.
:func:`read_table` is the only validator.

What makes a manifest unusable (a wrong type, a path outside the root) raises :class:`ManifestError`. What
is wrong with one entry alone (an unknown key, a missing reason) becomes a finding at its place, and the
rest is judged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime, time
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

import msgspec

from checkers.codes import CODES
from checkers.intake.files import MAX_STARS, is_pattern
from checkers.lines import is_blank
from checkers.model import Finding
from checkers.toml_places import Keys, Place, Places

T = TypeVar("T", covariant=True)
TableT = TypeVar("TableT", bound="Table")

_SHOWN_CHARACTERS = 60
_COMPARED = 60
"""Similar words are looked for among so many candidates at most, for difflib is slow."""


class ManifestError(Exception):
    """A manifest that cannot be used. ``str()`` is one line: path, line, key, what is wrong, what helps."""

    def __init__(self, path: str, what: str, *, line: int | None = None, key: str = "", help: str = "") -> None:
        self.path, self.what, self.line, self.key, self.help = path, what, line, key, help
        where = path if line is None else f"{path}:{line}"
        super().__init__(": ".join(filter(None, (where, key, what))) + (f"; {help}" if help else ""))


class Fault(Enum):
    """What can be wrong with a single entry."""

    UNKNOWN_KEY = "unknown key"
    MISSING = "missing"
    UNKNOWN_OWNER = "unknown owner"


class Document(msgspec.Struct, frozen=True, eq=False):
    """The manifest that is being read: its path for messages, places, codes of faults, and faults found."""

    path: str
    places: Places
    codes: Mapping[Fault, str]
    base: Keys = ()
    """Keys that lead to the manifest inside its file; not shown in messages."""
    problems: list[tuple[Keys, Finding]] = msgspec.field(default_factory=list)


class At(msgspec.Struct, frozen=True, eq=False):
    """A value's place in a document."""

    document: Document
    keys: Keys = ()

    def child(self, key: str | int) -> At:
        """The place of a key of this table or of an element of this array."""
        return At(self.document, (*self.keys, key))

    @property
    def place(self) -> Place:
        """Line and column; those of the nearest table around it if the key is not written down."""
        return self.document.places.of((*self.document.base, *self.keys))

    @property
    def key(self) -> str:
        """The key as messages name it: ``site.owner``."""
        return ".".join(printable(part) for part in self.keys if isinstance(part, str))

    def refuse(self, what: str, help: str = "") -> NoReturn:
        """Raise ManifestError for this place."""
        raise ManifestError(self.document.path, what, line=self.place.line, key=self.key, help=help)

    def finding(self, code: str, message: str, help: str) -> Finding:
        """A finding at this place."""
        place = self.place
        return Finding(code, CODES[code].name, self.document.path, place.line, place.column, message, help)

    def report(self, fault: Fault, message: str, help: str) -> None:
        """Note a fault of one entry."""
        self.document.problems.append((self.keys, self.finding(self.document.codes[fault], message, help)))


# Words for messages


def printable(text: str, limit: int = _SHOWN_CHARACTERS) -> str:
    """``text`` on one line, however hostile: unprintable characters escaped, cut at ``limit`` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def shown(value: object) -> str:
    """A value and its TOML type, for "… is not allowed"."""
    if isinstance(value, str):
        return f'the string "{printable(value)}"'
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int):  # Python does not print an integer of thousands of digits
        return f"the integer {value}" if value.bit_length() <= 64 else "an integer of more than 64 bits"
    return next(
        (toml.format(printable(str(value))) for python, toml in _TOML_TYPES if isinstance(value, python)),
        type(value).__name__,
    )


_TOML_TYPES: tuple[tuple[type, str], ...] = (
    (float, "the float {}"),
    (datetime, "the date-time {}"),
    (date, "the date {}"),
    (time, "the time {}"),
    (list, "an array"),
    (dict, "a table"),
)


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """``did you mean …?`` for the one of a few candidates most like ``word``; empty if none is like it."""
    close = difflib.get_close_matches(word[:200], sorted(candidates)[:_COMPARED], n=1, cutoff=0.6)
    return f"did you mean `{printable(close[0], 120)}`?" if close else ""


class Vocabulary:
    """Many paths or dotted names, for suggestions: those that share a word's last part or all but that."""

    def __init__(self, words: Iterable[str], separator: str) -> None:
        self._words = sorted(words)
        self._separator = separator

    def suggestion(self, word: str) -> str:
        """``did you mean …?`` for the word most like ``word``; empty if none is like it."""
        if len(self._words) <= _COMPARED:
            return suggestion(word, self._words)
        head, tail = self._parts(word)
        return suggestion(word, {*self._by_head.get(head, ()), *self._by_tail.get(tail, ())})

    def _parts(self, word: str) -> tuple[str, str]:
        head, _, tail = word.rstrip(self._separator).rpartition(self._separator)
        return head, tail

    @cached_property
    def _by_head(self) -> Mapping[str, list[str]]:
        return self._grouped(0)

    @cached_property
    def _by_tail(self) -> Mapping[str, list[str]]:
        return self._grouped(1)

    def _grouped(self, part: int) -> Mapping[str, list[str]]:
        """At most so many words for each part that one suggestion stays cheap."""
        groups: dict[str, list[str]] = {}
        for word in self._words:
            group = groups.setdefault(self._parts(word)[part], [])
            if len(group) < _COMPARED // 2:
                group.append(word)
        return groups


def joined(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def sentence(*parts: str) -> str:
    """The parts that say something, joined by semicolons; a question ends in its own mark."""
    return "; ".join(filter(None, parts)).replace("?; ", "? ")


# Kinds


class Kind(Protocol[T]):
    """What a key may hold."""

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        ...

    def read(self, value: object, at: At) -> T:
        """The value as the rules want it. Raises ManifestError."""
        ...


def _wrong_type(value: object, at: At, allowed: str) -> NoReturn:
    at.refuse(f"{shown(value)} is not allowed", f"allowed: {allowed}")


class Text(msgspec.Struct, frozen=True):
    """Some words."""

    allowed: str = "a string"

    def read(self, value: object, at: At) -> str:
        if not isinstance(value, str):
            _wrong_type(value, at, self.allowed)
        if is_blank(value):
            at.refuse("an empty string is not allowed", f"allowed: {self.allowed}; or leave the key out")
        return value


class Pattern(msgspec.Struct, frozen=True):
    """A string of a certain form."""

    allowed: str
    form: str

    def read(self, value: object, at: At) -> str:
        text = Text(self.allowed).read(value, at)
        if not re.fullmatch(self.form, text):
            _wrong_type(value, at, self.allowed)
        return text


class IgnorePattern(msgspec.Struct, frozen=True):
    """A pattern as git takes it in ``.gitignore``."""

    allowed: str = f"a pattern as in .gitignore, with at most {MAX_STARS} `*` between two `/`"

    def read(self, value: object, at: At) -> str:
        text = Text(self.allowed).read(value, at)
        if not is_pattern(text):
            _wrong_type(value, at, self.allowed)
        return text


class Choice(msgspec.Struct, frozen=True):
    """One of a few words. With ``fault``, another word is a fault of the entry and is kept as it is."""

    values: tuple[str, ...]
    fault: Fault | None = None

    @property
    def allowed(self) -> str:
        return joined(f"`{value}`" for value in self.values)

    def read(self, value: object, at: At) -> str:
        if not isinstance(value, str):
            _wrong_type(value, at, self.allowed)
        if value in self.values:
            return value
        help = sentence(suggestion(value, self.values), f"allowed: {self.allowed}")
        if self.fault is None:
            at.refuse(f"{shown(value)} is not allowed", help)
        at.report(self.fault, f"{self.fault.value} `{printable(value)}`", help)
        return value


class Whole(msgspec.Struct, frozen=True):
    """A whole number."""

    minimum: int

    @property
    def allowed(self) -> str:
        return f"a whole number of at least {self.minimum}"

    def read(self, value: object, at: At) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < self.minimum:
            _wrong_type(value, at, self.allowed)
        if value >= 10**15:
            _wrong_type(value, at, "a whole number of 15 digits at most")
        return value


class Version(msgspec.Struct, frozen=True):
    """The one version of the format that is understood."""

    version: int

    @property
    def allowed(self) -> str:
        return str(self.version)

    def read(self, value: object, at: At) -> int:
        if isinstance(value, bool) or value != self.version or not isinstance(value, int):
            _wrong_type(value, at, self.allowed)
        return value


class Flag(msgspec.Struct, frozen=True):
    """true or false."""

    allowed: str = "true or false"

    def read(self, value: object, at: At) -> bool:
        if not isinstance(value, bool):
            _wrong_type(value, at, self.allowed)
        return value


class Day(msgspec.Struct, frozen=True):
    """A date: TOML's own, or a string."""

    allowed: str = "a date, YYYY-MM-DD"

    def read(self, value: object, at: At) -> date:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            try:
                return date.fromisoformat(value)
            except ValueError:
                pass
        _wrong_type(value, at, self.allowed)


class RelativePath(msgspec.Struct, frozen=True):
    """A path below the project's root. A folder ends in ``/``."""

    patterns: bool = False
    """Whether ``*`` and ``**`` are allowed."""
    root: bool = False
    """Whether ``.``, the root itself, is."""

    @property
    def allowed(self) -> str:
        pattern = ", or a pattern with *" if self.patterns else ""
        return f"a file, or a folder with a trailing /{pattern}, relative to the root and written with /"

    def read(self, value: object, at: At) -> str:
        path = Text(self.allowed).read(value, at)
        if self.root and path in (".", "./"):
            return "."
        if (wrong := self._wrong(path)) is not None:
            at.refuse(f"{shown(path)} {wrong}", f"allowed: {self.allowed}")
        return path

    def _wrong(self, path: str) -> str | None:
        parts = path.removesuffix("/").split("/")
        checks = (
            ("\\" in path, "holds a backslash"),
            (path.startswith("/") or re.match(r"[A-Za-z]:", path) is not None, "is an absolute path"),
            (".." in parts, "leads up with `..`"),
            ("." in parts, "holds a `.` component"),
            ("" in parts, "holds an empty component"),
            (not path.isprintable(), "holds an unprintable character"),
            ("*" in path and not self.patterns, "is a pattern"),
        )
        return next((wrong for found, wrong in checks if found), None)


class Array(msgspec.Struct, Generic[T], frozen=True):
    """An array of values of one kind."""

    element: Kind[T]
    nonempty: bool = False

    @property
    def allowed(self) -> str:
        return f"an array; each element: {self.element.allowed}"

    def read(self, value: object, at: At) -> tuple[T, ...]:
        if not isinstance(value, list):
            _wrong_type(value, at, self.allowed)
        if self.nonempty and not value:
            at.refuse("an empty array is not allowed", f"allowed: {self.allowed}")
        return tuple(self.element.read(element, at.child(index)) for index, element in enumerate(value))


class Placed(msgspec.Struct, Generic[T], frozen=True):
    """A value that keeps its place, so that a rule can point at it."""

    kind: Kind[T]

    @property
    def allowed(self) -> str:
        return self.kind.allowed

    def read(self, value: object, at: At) -> Value[T]:
        return Value(self.kind.read(value, at), at)


class Value(msgspec.Struct, Generic[T], frozen=True):
    """A value and its place."""

    value: T
    at: At


class Made(msgspec.Struct, Generic[T], frozen=True):
    """A value of another kind, made into what the rules want."""

    kind: Kind[Any]
    make: Callable[[Any], T]

    @property
    def allowed(self) -> str:
        return self.kind.allowed

    def read(self, value: object, at: At) -> T:
        return self.make(self.kind.read(value, at))


class Subtable(msgspec.Struct, Generic[TableT], frozen=True):
    """A table inside the table."""

    table: type[TableT]
    allowed: str = "a table"

    def read(self, value: object, at: At) -> TableT:
        return read_table(self.table, value, at)


class Tables(msgspec.Struct, Generic[TableT], frozen=True):
    """An array of tables. One that lacks what it cannot do without is reported and left out."""

    table: type[TableT]
    allowed: str = "an array of tables"

    def read(self, value: object, at: At) -> tuple[TableT, ...]:
        if not isinstance(value, list):
            _wrong_type(value, at, self.allowed)
        read = ((at.child(index), element) for index, element in enumerate(value))
        tables = (read_table(self.table, element, inner) for inner, element in read)
        return tuple(table for table in tables if not table.broken)


# Tables


class Need(Enum):
    """How badly a table needs a key."""

    NONE = "none"
    WANTED = "wanted"
    """A finding where it is missing; the entry still counts."""
    ESSENTIAL = "essential"
    """A finding where it is missing, and the entry says nothing without it."""
    FATAL = "fatal"
    """The manifest cannot be used without it."""


class Key(msgspec.Struct, frozen=True):
    """The declaration of one key. ``when`` = another key and the value of it that makes this one wanted."""

    kind: Kind[Any]
    default: Any
    need: Need
    when: tuple[str, str] | None


def key(kind: Kind[Any], default: Any = None, *, need: Need = Need.NONE, when: tuple[str, str] | None = None) -> Any:
    """The attribute of a table that declares a key."""
    return Key(kind, default, need, when)


class Table:
    """A table of a manifest: its keys are the attributes made by :func:`key`. Nothing can change it.

    No dataclass: that would write and compile a constructor for each table as it is imported.
    """

    declared: ClassVar[Mapping[str, Key]] = {}
    """Its keys by name, those of its bases first."""
    at: At
    broken: bool
    """Whether it lacks something that it cannot do without."""

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Key)}
        cls.declared = {**cls.declared, **own}

    def __init__(self, at: At, values: Mapping[str, object], *, broken: bool) -> None:
        held = {name: values.get(name, declared.default) for name, declared in self.declared.items()}
        vars(self).update(held, at=at, broken=broken)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a table of a manifest cannot be changed: {name}")


def read_table(table: type[TableT], value: object, at: At) -> TableT:
    """A TOML table, validated. Faults of the entry are noted in its document; others raise ManifestError."""
    if not isinstance(value, dict):
        _wrong_type(value, at, "a table")
    keys = table.declared
    for name in value:
        if name not in keys:
            _unknown_key(name, keys, at)
    known = {name: value[name] for name in keys if name in value}
    absent = [name for name, declared in keys.items() if _is_missing(name, declared, known, at)]
    read = {name: keys[name].kind.read(held, at.child(name)) for name, held in known.items() if name not in absent}
    broken = any(keys[name].need is Need.ESSENTIAL for name in absent)
    return table(at, read, broken=broken)


def _unknown_key(name: str, keys: Collection[str], at: At) -> None:
    help = sentence(suggestion(name, keys), "allowed: " + ", ".join(keys))
    at.child(name).report(Fault.UNKNOWN_KEY, f"unknown key `{printable(name)}`{_of(at)}", help)


def _is_missing(name: str, declared: Key, known: Mapping[str, object], at: At) -> bool:
    """Whether a key that is needed is not there, or is there and empty, which is reported."""
    if declared.when is not None:
        needed = known.get(declared.when[0]) == declared.when[1]
    else:
        needed = declared.need is not Need.NONE
    held = known.get(name)
    empty = isinstance(held, str) and is_blank(held)
    if not needed or not (held is None or empty):
        return False
    what = f"{'empty' if empty else 'missing'} `{name}`"
    reason = f', which `{declared.when[0]} = "{declared.when[1]}"` needs' if declared.when else ""
    if declared.need is Need.FATAL:
        at.child(name).refuse(what, f"allowed: {declared.kind.allowed}")
    at.child(name).report(Fault.MISSING, what + _of(at) + reason, f"allowed: {declared.kind.allowed}")
    return True


def _of(at: At) -> str:
    return f" in `{at.key}`" if at.key else ""
