"""The two manifests: what a project declares about its own work, read, validated and looked up.

:func:`load_ownership` and :func:`load_bypass` find the file, read it once and give a frozen manifest.
Values come from the standard library's TOML parser, which is strict; tomlkit tells where they stand, and
only when something has to be pointed at. ``docs/manifests.md`` describes every key.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from checkers.annotations import EXECUTION_OWNERSHIP
from checkers.catalog import Catalog, Entry, Form
from checkers.codes import CODES
from checkers.config import absolute
from checkers.model import DEFAULT_KINDS, DEFAULT_TIERS, ApiKind, Finding, PathSet, Selection, Tier
from checkers.targets import NAMED, name_matches
from checkers.toml_fields import (
    Array,
    At,
    Choice,
    Day,
    Document,
    Fault,
    Flag,
    IgnorePattern,
    Made,
    ManifestError,
    Need,
    Pattern,
    Placed,
    RelativePath,
    Subtable,
    Table,
    Tables,
    Text,
    Value,
    Version,
    Whole,
    joined,
    key,
    printable,
    read_table,
    shown,
    suggestion,
)
from checkers.toml_places import Keys, Places
from checkers.warm import Stamp, stamp

__all__ = [
    "MAX_MANIFEST_BYTES",
    "OWNERS",
    "Allow",
    "Boundaries",
    "BypassManifest",
    "CatalogApi",
    "CatalogTable",
    "Manifest",
    "ManifestError",
    "OwnershipManifest",
    "Rule",
    "SiteEntry",
    "Target",
    "UnanalysedEntry",
    "bypass_from_text",
    "load_bypass",
    "load_ownership",
    "ownership_from_text",
]

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
"""A larger manifest is refused: 50,000 entries fit, and pointing into one takes some ten seconds."""

MAX_DOTS_IN_LINE = 2_000
"""A line with more is refused: the parser's time for a dotted key grows with the square of its parts."""

OWNERS = EXECUTION_OWNERSHIP.values
ROLLOUTS = ("observe", "active", "mandatory")
DEFAULT_MAX_FILE_BYTES = 10 * 1024 * 1024

ManifestT = TypeVar("ManifestT", bound="Manifest")

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_KINDS = tuple(kind.value for kind in ApiKind if kind is not ApiKind.DECLARED)
_TIERS = tuple(tier.value for tier in Tier)
_FORMS = tuple(form.value for form in Form if form is not Form.KEYWORD)  # which keyword, an entry cannot say

_QUALIFIED = Pattern("a qualified name such as `app.jobs.submit`", _NAME)
_PATHS = Made(Array(RelativePath(patterns=True)), PathSet)
_PLACED_PATHS = Array(Placed(RelativePath(patterns=True)))
_ROOTS = Made(Array(RelativePath(root=True)), lambda paths: tuple(path.removesuffix("/") for path in paths))


# What both manifests hold


class CatalogApi(Table):
    """``[[catalog.api]]``: an API that the project governs besides the shipped catalogue."""

    name: str = key(_QUALIFIED, "", need=Need.ESSENTIAL)
    kind: str = key(Choice(_KINDS), "", need=Need.ESSENTIAL)
    form: str = key(Choice(_FORMS), "call")
    tier: str = key(Choice(_TIERS), "core")
    why: str = key(Text("some words that say what it starts"), "", need=Need.WANTED)

    @property
    def entry(self) -> Entry:
        """The catalogue's own form of it."""
        kind, form, tier = ApiKind(self.kind), Form(self.form), Tier(self.tier)
        return Entry(name=self.name, kind=kind, form=form, tier=tier, why=self.why)


class CatalogTable(Table):
    """``[catalog]``: which catalogue entries count."""

    kinds: tuple[str, ...] = key(Array(Choice(_KINDS), nonempty=True), tuple(sorted(DEFAULT_KINDS)))
    tiers: tuple[str, ...] = key(Array(Choice(_TIERS), nonempty=True), tuple(sorted(DEFAULT_TIERS)))
    by_name: bool = key(Flag(), False)
    api: tuple[CatalogApi, ...] = key(Tables(CatalogApi), ())


class UnanalysedEntry(Table):
    """``[[unanalysed]]``: a file that cannot be analysed, and why that is accepted."""

    path: str = key(RelativePath(), "", need=Need.ESSENTIAL)
    reason: str = key(Text("some words that say why"), "", need=Need.WANTED)


class Manifest(Table):
    """The keys that both manifests have."""

    version: int = key(Version(1), 1, need=Need.FATAL)
    roots: tuple[str, ...] = key(_ROOTS, ())
    tests: PathSet = key(_PATHS, PathSet())
    exclude: tuple[str, ...] = key(Array(IgnorePattern()), ())
    max_file_bytes: int = key(Whole(1), DEFAULT_MAX_FILE_BYTES)
    catalog: CatalogTable | None = key(Subtable(CatalogTable))
    unanalysed: tuple[UnanalysedEntry, ...] = key(Tables(UnanalysedEntry), ())
    rollout: str = key(Choice(ROLLOUTS), "mandatory")

    @property
    def path(self) -> str:
        """The manifest's own path, relative to the root."""
        return self.at.document.path

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Faults of single entries that validation found."""
        return tuple(finding for _, finding in self.at.document.problems)

    def in_roots(self, path: str) -> bool:
        """Whether a file lies in the manifest's roots, which are the whole tree unless it lists some."""
        return not self.roots or any(root == "." or path.startswith(f"{root}/") for root in self.roots)

    @property
    def selection(self) -> Selection:
        """Which sites count."""
        if self.catalog is None:
            return Selection(DEFAULT_KINDS | self._named_kinds())
        kinds = frozenset(ApiKind(kind) for kind in self.catalog.kinds)
        tiers = frozenset(Tier(tier) for tier in self.catalog.tiers)
        return Selection(kinds | self._named_kinds(), tiers, self.catalog.by_name)

    def _named_kinds(self) -> frozenset[ApiKind]:
        """Kinds that count because something else than ``[catalog]`` names them."""
        return frozenset()

    @property
    def apis(self) -> tuple[Entry, ...]:
        """The project's own catalogue entries."""
        return tuple(api.entry for api in self.catalog.api) if self.catalog is not None else ()


# check-ownership


class SiteEntry(Table):
    """``[[site]]``: who owns the work that starts in a place."""

    path: str = key(RelativePath(), "", need=Need.ESSENTIAL)
    symbol: str | None = key(Pattern("a function, class or method such as `Runner.run`", r"[^\s*]+"))
    api: str | None = key(Pattern("an API's name, which may end in `*`", r"[^\s*]+\*?"))
    owner: str = key(Choice(OWNERS, Fault.UNKNOWN_OWNER), "", need=Need.WANTED)
    reason: str = key(Text("some words that say why"), "", need=Need.WANTED)
    entrypoint: str | None = key(_QUALIFIED)
    followup: str | None = key(
        Text("where the move to the scheduler is tracked"), when=("owner", "deferred_domain_executor")
    )
    until: date | None = key(Day())
    max_sites: int | None = key(Whole(1))

    @property
    def is_folder(self) -> bool:
        """Whether it speaks of a folder."""
        return self.path.endswith("/")


class Boundaries(Table):
    """``[boundaries]``: paths in which processes must end, and argument lists must be lists."""

    finite: tuple[Value[str], ...] = key(_PLACED_PATHS, ())
    typed_argv: tuple[Value[str], ...] = key(_PLACED_PATHS, ())


class OwnershipManifest(Manifest):
    """``manifests/execution-ownership.toml``. What is ``active`` is a code: each is a rule of its own."""

    active: tuple[Value[str], ...] = key(Array(Placed(Text("a code such as `OWN001`"))), ())
    site: tuple[SiteEntry, ...] = key(Tables(SiteEntry), ())
    boundaries: Boundaries | None = key(Subtable(Boundaries))


# check-bypass


class Allow(Table):
    """An ``allow`` entry of a rule: a file or folder in which the rule does not hold."""

    path: str = key(RelativePath(), "", need=Need.ESSENTIAL)
    reason: str = key(Text("some words that say why"), "", need=Need.WANTED)
    until: date | None = key(Day())


class Rule(Table):
    """``[[rule]]``: which work must not start outside the scheduler."""

    id: str = key(Pattern("letters, digits, `-`, `_` and `.`", r"[\w.-]+"), "", need=Need.WANTED)
    targets: tuple[Value[str], ...] = key(
        Array(
            Placed(Pattern("`@kind`, a qualified name, a name with `*`, or a method chain", NAMED)),
            nonempty=True,
        ),
        (),
        need=Need.ESSENTIAL,
    )
    message: str = key(Text("some words that say what the rule wants"), "", need=Need.WANTED)
    use: str | None = key(Text())
    allow: tuple[Allow, ...] = key(Tables(Allow), ())


class Target(msgspec.Struct, frozen=True):
    """What a rule's target means: the name as the catalogue spells it, and whether the catalogue knows it."""

    name: str
    catalogued: bool


class BypassManifest(Manifest):
    """``manifests/scheduler-bypass.toml``."""

    scheduler: PathSet = key(_PATHS, PathSet())
    submission: tuple[Value[str], ...] | None = key(Array(Placed(_QUALIFIED)))
    active: tuple[Value[str], ...] = key(Array(Placed(Text("the id of a rule"))), ())
    rule: tuple[Rule, ...] = key(Tables(Rule), ())

    @cached_property
    def meanings(self) -> Mapping[str, Target]:
        """What each target of the rules means, by its spelling in the manifest."""
        return _meanings(self)

    def _named_kinds(self) -> frozenset[ApiKind]:
        targets = {value.value for rule in self.rule for value in rule.targets}
        return frozenset(ApiKind(kind) for kind in _KINDS if f"@{kind}" in targets)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names, patterns and method chains that the rules govern, for the scan."""
        return tuple(dict.fromkeys(target.name for target in self.meanings.values() if target.name[0] != "@"))

    @property
    def watch(self) -> tuple[str, ...]:
        """The submission API: what ``submission`` lists, else what the rules say to use."""
        if self.submission is not None:
            return tuple(dict.fromkeys(value.value for value in self.submission))
        used = (rule.use for rule in self.rule if rule.use and re.fullmatch(_NAME, rule.use))
        return tuple(dict.fromkeys(used))

    def rule_of(self, keys: Keys) -> str | None:
        """Id of the rule in which ``keys`` lie."""
        return next((rule.id for rule in self.rule if rule.at.keys == keys[:2]), None)


# From text


def ownership_from_text(text: str, path: str, base: Keys = ()) -> OwnershipManifest:
    """The ownership manifest that the table at ``base`` of a TOML document is. Raises ManifestError."""
    manifest = _read(OwnershipManifest, text, path, _OWNERSHIP, base)
    codes = [code for code in CODES if code.startswith("OWN")]
    for active in manifest.active:
        if active.value not in codes:
            active.at.refuse(f"no code `{printable(active.value)}`", suggestion(active.value, codes))
    return manifest


def bypass_from_text(text: str, path: str, base: Keys = ()) -> BypassManifest:
    """The bypass manifest that the table at ``base`` of a TOML document is. Raises ManifestError."""
    manifest = _read(BypassManifest, text, path, _BYPASS, base)
    ids = [rule.id for rule in manifest.rule]
    for active in manifest.active:
        if active.value not in ids:
            active.at.refuse(f"no rule has the id `{printable(active.value)}`", suggestion(active.value, ids))
    return manifest


def _read(table: type[ManifestT], text: str, path: str, file: _File, base: Keys) -> ManifestT:
    data: object = _parse(text, path)
    for part in base:
        data = data[part] if isinstance(data, dict) else None
    return read_table(table, data, At(Document(path, Places(text), file.codes, base)))


def _meanings(manifest: BypassManifest) -> dict[str, Target]:
    texts = list(dict.fromkeys(value.value for rule in manifest.rule for value in rule.targets))
    roots = {text.partition(".")[0] for text in texts}
    if any("*" in root for root in roots):
        roots = set(Catalog.known_roots())
    known = Catalog.load(roots, manifest.apis)
    return {text: _meaning(text, known) for text in texts}


def _meaning(text: str, known: Catalog) -> Target:
    if text.startswith("@"):
        return Target(text, text[1:] in _KINDS)
    if "*" in text:
        return Target(text, any(name_matches(text, entry.name) for entry in known.entries))
    name = known.canonical(text)
    return Target(name, known.entry(name) is not None or bool(known.keyword_entries(name)))


def _parse(text: str, path: str) -> dict[str, object]:
    for number, row in enumerate(text.split("\n"), start=1):
        if row.count(".") > MAX_DOTS_IN_LINE:
            raise ManifestError(path, f"more than {MAX_DOTS_IN_LINE} dots in a line", line=number, help="break it")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ManifestError(path, "nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        what, line = _parsers_words(str(error), text)
    except ValueError:  # an integer of so many digits that Python does not read it
        what, line = "an integer of thousands of digits", _longest_number(text)
    held = text.split("\n")[line - 1].strip() if line is not None else ""
    where = f"here: {printable(held)}" if held else ""
    raise ManifestError(path, f"not valid TOML: {printable(what, 120)}", line=line, help=where)


def _longest_number(text: str) -> int:
    """The line on which the longest run of digits stands."""
    runs = [max((len(run) for run in re.findall(r"[0-9_]+", row)), default=0) for row in text.split("\n")]
    return runs.index(max(runs)) + 1


def _parsers_words(message: str, text: str) -> tuple[str, int | None]:
    """What the parser says is wrong, and on which line it says so: before Python 3.14 it has no other way."""
    found = re.search(r" *\((?:at line (\d+), column \d+|at end of document)\)$", message)
    if found is None:
        return message, None
    last = text.rstrip("\n").count("\n") + 1
    return message[: found.start()], int(found[1]) if found[1] else last


# From files


class _File(msgspec.Struct, frozen=True):
    """Where a manifest is looked for, and the codes of its faults."""

    command: str
    name: str
    """Of its table in pyproject.toml."""
    default: str
    example: str
    """Code whose page shows such a manifest."""
    codes: Mapping[Fault, str]


_OWNERSHIP = _File(
    "check-ownership",
    "ownership",
    "manifests/execution-ownership.toml",
    "OWN001",
    {Fault.UNKNOWN_OWNER: "OWN003", Fault.UNKNOWN_KEY: "OWN004", Fault.MISSING: "OWN009"},
)
_BYPASS = _File(
    "check-bypass",
    "bypass",
    "manifests/scheduler-bypass.toml",
    "BYP001",
    {Fault.UNKNOWN_KEY: "BYP006", Fault.MISSING: "BYP007"},
)


def load_ownership(root: Path, file: Path | None, watched: dict[str, Stamp] | None = None) -> OwnershipManifest:
    """The ownership manifest of the project at ``root``, or the one in ``file``.

    ``watched`` is given the stamp of every path that is looked at, taken before. Raises ManifestError.
    """
    looked = _Looked(root, {} if watched is None else watched)
    manifest = ownership_from_text(*_find(looked, file, _OWNERSHIP))
    boundaries = manifest.boundaries
    _check_folders(manifest, looked, (*boundaries.finite, *boundaries.typed_argv) if boundaries else ())
    return manifest


def load_bypass(root: Path, file: Path | None, watched: dict[str, Stamp] | None = None) -> BypassManifest:
    """The bypass manifest of the project at ``root``, or the one in ``file``; see :func:`load_ownership`."""
    looked = _Looked(root, {} if watched is None else watched)
    manifest = bypass_from_text(*_find(looked, file, _BYPASS))
    _check_folders(manifest, looked, _placed(manifest, "scheduler", manifest.scheduler))
    return manifest


class _Looked(msgspec.Struct, frozen=True):
    """What below the project's ``root`` was looked at."""

    root: Path
    watched: dict[str, Stamp]

    def at(self, path: str) -> Path:
        """The path, which is about to be looked at."""
        full = self.root / path
        self.watched[path] = stamp(os.fspath(full))
        return full

    def holds_folder(self, path: str) -> bool:
        """Whether there is a folder of that path."""
        return os.path.isdir(self.at(path))  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long


def _find(looked: _Looked, file: Path | None, wanted: _File) -> tuple[str, str, Keys]:
    """Text, shown path and base keys of a manifest."""
    base = ("tool", "spawngate", wanted.name)
    if file is not None:
        held = base if file.name == "pyproject.toml" else ()
        shown = _shown(file, looked.root)
        return _text(looked.at(os.fspath(absolute(file))), shown), shown, held
    default, pyproject = looked.at(wanted.default), looked.at("pyproject.toml")
    declared = _declared(pyproject, base, strict=not os.path.lexists(default))
    if os.path.lexists(default):
        if declared not in (None, wanted.default):
            what = f"a second manifest beside {wanted.default}"
            raise ManifestError("pyproject.toml", what, key=".".join(base), help="keep one of the two")
        return _text(default, wanted.default), wanted.default, ()
    if isinstance(declared, str):
        return _text(looked.at(declared), declared), declared, ()
    if declared is not None:
        return _text(pyproject, "pyproject.toml"), "pyproject.toml", base
    raise ManifestError(
        wanted.default,
        "there is no manifest",
        help=f"begin with a file that holds `version = 1`; `{wanted.command} --list-sites` shows what it has to speak "
        f"of, and `{wanted.command} --explain {wanted.example}` has an example",
    )


def _declared(pyproject: Path, base: Keys, *, strict: bool) -> object:
    """What pyproject.toml holds at ``base``: None, a manifest's path, or a table.

    Unless ``strict``, a file that is no TOML holds nothing: it is not the manifest.
    """
    if not os.path.lexists(pyproject):
        return None
    try:
        text = _text(pyproject, "pyproject.toml")
        data: object = _parse(text, "pyproject.toml")
    except ManifestError:
        if strict:
            raise
        return None
    for depth, part in enumerate(base):
        if depth == len(base) - 1:
            _refuse_unknown_checks(data, base[:-1], text)
        data = data.get(part) if isinstance(data, dict) else None
    at = At(Document("pyproject.toml", Places(text), {}), base)
    if isinstance(data, str):
        RelativePath().read(data, at)
    elif data is not None and not isinstance(data, dict):
        at.refuse(f"{shown(data)} is not allowed", "allowed: a table, or a string that names the manifest's file")
    return data


def _refuse_unknown_checks(data: object, base: Keys, text: str) -> None:
    """``[tool.spawngate]`` holds one key a check; anything else is a slip that would leave a check without manifest."""
    document = Document("pyproject.toml", Places(text), {})
    names = [file.name for file in (_OWNERSHIP, _BYPASS)]
    if data is not None and not isinstance(data, dict):
        At(document, base).refuse(f"{shown(data)} is not allowed", f"allowed: a table of {joined(names)}")
    for name in data or ():
        if name not in names:
            help = f"{suggestion(name, names)} allowed: {', '.join(names)}".strip()
            At(document, (*base, name)).refuse("unknown key", help)


def _shown(file: Path, root: Path) -> str:
    try:
        path = Path(os.path.relpath(file, root)).as_posix()
    except ValueError:  # another drive
        path = file.as_posix()
    return printable(path, 300)


def _text(file: Path, path: str) -> str:
    """The file's text. A byte order mark is passed over."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ManifestError(path, f"{what}, not a manifest")
        with file.open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ManifestError(path, f"cannot be read: {what}") from None
    if len(data) > MAX_MANIFEST_BYTES:
        help = f"allowed: {MAX_MANIFEST_BYTES // 1024**2} MiB; list folders instead of files"
        raise ManifestError(path, "the manifest is too large", help=help)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ManifestError(path, "not UTF-8, which TOML has to be", line=line) from None


def _check_folders(manifest: Manifest, looked: _Looked, placed: Iterable[Value[str]]) -> None:
    """Roots exist; a folder among the paths ends in ``/``, for without it would hold nothing."""
    for index, path in enumerate(manifest.roots):
        if not looked.holds_folder(path):
            at = manifest.at.child("roots").child(index)
            at.refuse(f"there is no folder `{printable(path)}`", suggestion(path, _folders(looked.root)))
    for value in (*_placed(manifest, "tests", manifest.tests), *placed):
        path = value.value
        if not path.endswith("/") and "*" not in path and looked.holds_folder(path):
            value.at.refuse(f"`{printable(path)}` is a folder", f"write `{printable(path)}/`")


def _placed(manifest: Manifest, name: str, paths: PathSet) -> Iterator[Value[str]]:
    at = manifest.at.child(name)
    return (Value(path, at.child(index)) for index, path in enumerate(paths.entries))


def _folders(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        return [entry.name for entry in entries if entry.is_dir()]
