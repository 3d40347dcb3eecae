"""Governed APIs and what a resolver must know of library names: TOML, one file per top-level import name.

``stdlib/<root>.toml`` and ``third_party/<root>.toml`` are read only for the import roots that are asked for,
and for the roots of names that those files refer to (``loky`` names ``concurrent.futures.Executor`` as base,
``posix`` holds other spellings of names of ``os``). ``docs/catalogue.md`` describes the format.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from checkers.model import ApiKind, Tier

_FOLDERS = (Path(__file__).parent / "stdlib", Path(__file__).parent / "third_party")


class Form(StrEnum):
    """How a governed API is used where it is a site."""

    CALL = "call"
    """Calling it is a site."""
    CLASS = "class"
    """Constructing or subclassing it is a site."""
    METHOD = "method"
    """Calling it on a receiver of its class is a site."""
    DECORATOR = "decorator"
    """Decorating with it, or calling it to decorate, is a site."""
    DYNAMIC = "dynamic"
    """Calling it with a computed name is a site; a call with a constant name is followed instead."""
    KEYWORD = "keyword"
    """A call that passes the entry's keyword is a site."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A governed API.

    ``until`` is the first Python version without it; ``platform`` is ``win32`` or ``posix``.
    """

    name: str
    kind: ApiKind
    form: Form = Form.CALL
    tier: Tier = Tier.CORE
    why: str = ""
    since: str | None = None
    until: str | None = None
    platform: str | None = None
    by_name: bool = False
    keyword: str | None = None


@dataclass(frozen=True, slots=True)
class NameFacts:
    """What is known of a library name that may hand out a receiver.

    ``returns``: class of what a call gives, also once awaited, entered with ``with`` or iterated over.
    ``returns_by_argument``: the same for a constant first argument. ``decorates``: class of what a decorated
    function becomes. ``members``: attributes of the class or module that hold an instance, with its class;
    ``*`` is any other attribute.
    """

    name: str
    bases: tuple[str, ...] = ()
    returns: str | None = None
    returns_by_argument: Mapping[str, str] = field(default_factory=dict)
    decorates: str | None = None
    members: Mapping[str, str] = field(default_factory=dict)
    is_class: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """One catalogue file: entries, facts, other spellings, and the other roots whose files its names need."""

    entries: tuple[Entry, ...]
    facts: tuple[NameFacts, ...]
    spellings: Mapping[str, str]
    needs: frozenset[str]


class Catalog:
    """Entries and facts of some import roots. Names are looked up as documented; see :meth:`canonical`."""

    def __init__(self, files: Iterable[File], extra: Sequence[Entry] = (), declared: Sequence[str] = ()) -> None:
        self._entries: dict[str, Entry] = {}
        self._facts: dict[str, NameFacts] = {}
        self._spellings: dict[str, str] = {}
        self._keywords: list[Entry] = []
        for file in files:
            self._add(file.entries)
            self._facts.update((facts.name, facts) for facts in file.facts)
            self._spellings.update(file.spellings)
        self._add(extra)
        named = [Entry(name, ApiKind.DECLARED) for name in declared if name not in self._entries]
        self._add(named)
        self._own = {entry.name for entry in (*extra, *named)}
        self._know_owners((*extra, *named))
        self._others: dict[str, list[str]] = {}
        for also, documented in self._spellings.items():
            self._others.setdefault(documented, []).append(also)
        self._documented = self._entries.keys() | self._facts.keys() | set(self._spellings.values())

    @classmethod
    def load(cls, roots: Iterable[str], extra: Sequence[Entry] = (), declared: Sequence[str] = ()) -> Catalog:
        """The catalogue of the top-level import names ``roots``, and what the project adds.

        Roots without a file are passed over. An ``extra`` entry takes the place of a catalogue entry of its name; a
        ``declared`` name that has no entry becomes one.
        """
        return cls(read(roots).values(), extra, declared)

    @staticmethod
    def known_roots() -> frozenset[str]:
        """Top-level import names that have a file. Nothing is parsed."""
        return frozenset(_known())

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every loaded entry, by name; those of form ``keyword`` after the others."""
        by_name = sorted(self._entries.values(), key=lambda entry: entry.name)
        return (*by_name, *sorted(self._keywords, key=lambda entry: (entry.name, entry.keyword or "")))

    @property
    def all_facts(self) -> tuple[NameFacts, ...]:
        """What is known of names, in their order."""
        return tuple(self._facts[name] for name in sorted(self._facts))

    def spellings_of(self, name: str) -> tuple[str, ...]:
        """A documented ``name`` and every other spelling of it, by its private homes and those of what holds it."""
        found, prefix = [name], name
        while prefix:
            found += [also + name[len(prefix) :] for also in self._others.get(prefix, ())]
            prefix = prefix.rpartition(".")[0]
        return tuple(found)

    def canonical(self, name: str) -> str:
        """``name`` as documented: private homes and re-exports replaced, also where they are its prefix."""
        while (better := self._respell(name)) != name:
            name = better
        return name

    def entry(self, name: str) -> Entry | None:
        """The entry of a canonical name; those of form ``keyword`` only :meth:`keyword_entries` finds."""
        return self._entries.get(name)

    def is_own(self, name: str) -> bool:
        """Whether the project, and not the shipped catalogue, says something of ``name``."""
        return name in self._own

    def keyword_entries(self, name: str) -> tuple[Entry, ...]:
        """Entries of form ``keyword`` for calls of the canonical ``name``, each under that name.

        An entry named ``package.*`` speaks of every name below ``package``.
        """
        return tuple(dataclasses.replace(entry, name=name) for entry in self._keywords if _speaks_of(entry.name, name))

    def facts(self, name: str) -> NameFacts | None:
        """What is known of a canonical name; a governed class is at least known to be a class."""
        return self._facts.get(name)

    def method(self, type_name: str, attribute: str) -> Entry | None:
        """The entry that ``attribute`` is on an instance of ``type_name``, looked up through its bases."""
        name = self.attribute(type_name, attribute)
        return None if name is None else self._entries.get(name)

    def attribute(self, type_name: str, attribute: str) -> str | None:
        """``attribute`` of ``type_name`` under the class that documents it; None if no class does.

        The first class in method order that has an entry or facts for it decides.
        """
        for owner in self._lineage(type_name):
            name = self.canonical(f"{owner}.{attribute}")
            if name in self._entries or name in self._facts:
                return name
        return None

    def member(self, type_name: str, attribute: str) -> str | None:
        """Class of the instance that ``attribute`` of a class or module holds, found through its bases."""
        for owner in self._lineage(type_name):
            members = self._facts[owner].members if owner in self._facts else {}
            found = members.get(attribute) or members.get("*")
            if found is not None:
                return found
        return None

    def by_name(self, attribute: str) -> tuple[Entry, ...]:
        """Method entries whose name alone speaks for a call of ``attribute`` on an unseen receiver."""
        found = (e for e in self._entries.values() if e.by_name and e.name.rpartition(".")[2] == attribute)
        return tuple(sorted(found, key=lambda entry: entry.name))

    def _add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.form is Form.KEYWORD:
                self._keywords.append(entry)
                continue
            self._entries[entry.name] = entry
            if entry.form is Form.CLASS:
                self._facts.setdefault(entry.name, NameFacts(entry.name, is_class=True))

    def _know_owners(self, entries: Iterable[Entry]) -> None:
        """What an own entry belongs to may be a class; that does no harm where it is a module, which nobody calls."""
        for entry in entries:
            owner = entry.name.rpartition(".")[0]
            may_be_method = entry.form is Form.METHOD or entry.kind is ApiKind.DECLARED
            if may_be_method and owner not in self._facts:
                self._facts[owner] = NameFacts(owner, is_class=True)
                self._own.add(owner)

    def _respell(self, name: str) -> str:
        """One replacement: the longest prefix that is known decides, and a documented one stays."""
        prefix = name
        while prefix:
            if prefix in self._spellings:
                return self._spellings[prefix] + name[len(prefix) :]
            if prefix in self._documented:
                return name
            prefix = prefix.rpartition(".")[0]
        return name

    def _lineage(self, type_name: str) -> Iterator[str]:
        """The class and its bases, depth first, each once."""
        pending, seen = [self.canonical(type_name)], set[str]()
        while pending:
            owner = pending.pop()
            if owner in seen:
                continue
            seen.add(owner)
            yield owner
            facts = self._facts.get(owner)
            if facts is not None:
                pending += reversed(facts.bases)


def read(roots: Iterable[str]) -> dict[str, File]:
    """The files of the import roots that have one, and of the roots whose names those speak of, by root."""
    known = _known()
    files: dict[str, File] = {}
    pending = [root for root in roots if root in known]
    while pending:
        root = pending.pop()
        if root not in files:
            files[root] = _read(known[root])
            pending += files[root].needs & known.keys()
    return {root: files[root] for root in sorted(files)}


@cache
def _known() -> Mapping[str, Path]:
    return {path.stem: path for folder in _FOLDERS for path in sorted(folder.glob("*.toml"))}


@cache
def _read(path: Path) -> File:
    with path.open("rb") as stream:
        tables = tomllib.load(stream)
    apis, names = tables.get("api", []), tables.get("name", [])
    entries = tuple(_entry(table) for table in apis)
    classes = {entry.name for entry in entries if entry.form is Form.CLASS}
    facts = tuple(_facts(table, classes) for table in names if not _only_spells(table, path.stem))
    spellings = {also: table["name"] for table in (*apis, *names) for also in table.get("also", [])}
    referred = {name for fact in facts for name in _references(fact)}
    roots = {_root(name) for name in referred | set(spellings.values())}
    return File(entries, facts, spellings, frozenset(roots - {path.stem}))


def _entry(table: Mapping[str, Any]) -> Entry:
    known = {key: value for key, value in table.items() if key not in ("also", "distribution")}
    known["kind"] = ApiKind(table["kind"])
    known["form"] = Form(table["form"])
    known["tier"] = Tier(table.get("tier", Tier.CORE))
    return Entry(**known)


def _facts(table: Mapping[str, Any], classes: set[str]) -> NameFacts:
    bases = tuple(table.get("bases", ()))
    return NameFacts(
        name=table["name"],
        bases=bases,
        returns=table.get("returns"),
        returns_by_argument=table.get("returns_by_argument", {}),
        decorates=table.get("decorates"),
        members=table.get("members", {}),
        is_class=bool(bases) or table.get("class", False) or table["name"] in classes,
    )


def _only_spells(table: Mapping[str, Any], root: str) -> bool:
    """Whether ``table`` gives spellings of a name that another root's file describes."""
    return _root(table["name"]) != root and table.keys() <= {"name", "also"}


def _references(facts: NameFacts) -> Iterator[str]:
    yield from facts.bases
    yield from facts.returns_by_argument.values()
    yield from facts.members.values()
    yield from (name for name in (facts.returns, facts.decorates) if name is not None)


def _root(name: str) -> str:
    """``boto3.client:batch`` → ``boto3``."""
    return name.partition(".")[0].partition(":")[0]


def _speaks_of(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith(".*") else name == pattern
