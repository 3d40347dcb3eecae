"""Values that pass between the stages: files → facts → sites → findings → report.

Everything here is frozen and holds no behaviour beyond small derived properties, so that a stage can be read, tested
and replaced alone. Lines and columns are 1-based; columns count characters; paths are relative to the project root
and written with ``/``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from checkers.warm import Stamp


class ApiKind(StrEnum):
    """What kind of work a governed API starts."""

    PROCESS = "process"
    EXEC = "exec"
    POOL = "pool"
    THREAD = "thread"
    TASK = "task"
    LOOP = "loop"
    TIMER = "timer"
    DISPATCH = "dispatch"
    DECORATOR = "decorator"
    DYNAMIC = "dynamic"
    DECLARED = "declared"
    """A name that only a rule of the project's own manifest governs."""


class Tier(StrEnum):
    """How openly a governed API starts work: in plain sight, behind the caller, by policy, or as dynamic code."""

    CORE = "core"
    HIDDEN = "hidden"
    POLICY = "policy"
    STRICT = "strict"


DEFAULT_KINDS = frozenset({ApiKind.PROCESS, ApiKind.EXEC, ApiKind.POOL, ApiKind.THREAD, ApiKind.DISPATCH})
DEFAULT_TIERS = frozenset({Tier.CORE})


class SiteKind(StrEnum):
    """How the source reaches a governed API."""

    CALL = "call"
    REFERENCE = "reference"
    SUBCLASS = "subclass"
    METHOD = "method"
    DYNAMIC = "dynamic"


class Confidence(StrEnum):
    """``by-name``: only the method's name speaks for it, its receiver cannot be seen."""

    CERTAIN = "certain"
    BY_NAME = "by-name"


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """The lines an annotation of a site may refer to.

    ``statement_*`` are the lines of the innermost simple statement, compound-statement header or decorator that holds
    the site; ``statement`` numbers it within its file, so that sites which share one can be counted.
    """

    first_line: int
    name_line: int
    paren_line: int
    last_line: int
    statement: int
    statement_first_line: int
    statement_last_line: int


class Argument(msgspec.Struct, frozen=True, array_like=True):
    """One argument of a call as the boundary rules see it.

    ``value`` is the constant, where it is one (``constant`` is true); ``split`` says that the value was built by
    ``str.split`` on something that is not :mod:`shlex`, directly or through a variable.
    """

    name: str | None
    """Keyword, ``*`` or ``**`` for unpacked arguments, None for a positional one."""
    constant: bool = False
    value: str | int | bool | None = None
    split: bool = False


class Site(msgspec.Struct, frozen=True, array_like=True):
    """One place in source where governed work can start."""

    path: str
    line: int
    column: int
    kind: SiteKind
    api: str
    api_kind: ApiKind
    tier: Tier
    symbol: str
    """Qualified name of the enclosing function or class inside its module; empty at module level."""
    ordinal: int
    """1-based among the sites of the same path, symbol and API, in source order: with those three it is the key."""
    extent: Extent
    confidence: Confidence = Confidence.CERTAIN
    candidates: tuple[str, ...] = ()
    """All APIs the name may be, in order, where there are several; ``api`` is the first."""
    chain: str = ""
    """The callee as written, calls as ``()``: ``self.spawner().send``. Matched by method-chain targets."""
    arguments: tuple[Argument, ...] | None = None
    """Arguments of the call; None where the site is no call."""
    cell: int | None = None
    """1-based number of the notebook cell; ``line`` then counts inside it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every API the site may reach."""
        return self.candidates or (self.api,)


class Use(msgspec.Struct, frozen=True, array_like=True):
    """A use of a started process that is no site, but that the boundary rules judge: ``communicate()`` and the like."""

    path: str
    line: int
    column: int
    symbol: str
    chain: str
    arguments: tuple[Argument, ...]
    extent: Extent
    cell: int | None = None


class Comment(msgspec.Struct, frozen=True, array_like=True):
    """A comment that may be an annotation.

    ``block_last_line`` is the last line of the run of own-line comment lines that holds it (its own line when it
    trails code): an own-line annotation speaks of what begins on the line below that.
    """

    line: int
    column: int
    text: str
    own_line: bool
    block_last_line: int
    cell: int | None = None


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The header of a compound statement or a decorator: lines an annotation may stand at without blessing the body."""

    first_line: int
    last_line: int
    body_last_line: int
    """Last line of the body; of the decorated definition for a decorator."""
    is_decorator: bool = False
    cell: int | None = None


class Unanalysed(msgspec.Struct, frozen=True, array_like=True):
    """A file that could not be read or parsed; never green."""

    path: str
    code: str
    name: str
    message: str
    line: int = 1
    column: int = 1
    help: str = ""
    cell: int | None = None


class SourceFile(msgspec.Struct, frozen=True, array_like=True):
    """What the engine found in one file."""

    path: str
    sites: tuple[Site, ...] = ()
    uses: tuple[Use, ...] = ()
    comments: tuple[Comment, ...] = ()
    headers: tuple[Header, ...] = ()
    """Headers of compound statements, filled only for files that hold an annotation."""
    unanalysed: Unanalysed | None = None
    symbols: frozenset[str] = frozenset()
    """Qualified names of the functions, classes and methods it defines, if it was asked for (``Scan.defining``)."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What the engine found in a project: every file in path order, and the names that its modules define."""

    files: tuple[SourceFile, ...]
    selected: frozenset[str] = frozenset()
    """Paths of the files that were asked for; the others were read for what the selected ones use."""
    names: frozenset[str] = frozenset()
    """Fully qualified first-party names: all modules, and what bindings, functions, classes and methods were asked
    about (``Scan.named``); every one of them where one that was asked about is missing, or every file was analysed."""
    calls: frozenset[str] = frozenset()
    """``path\\0name`` for each fully qualified first-party name that a file calls and the caller asked to watch."""
    passed_over: tuple[str, ...] = ()
    """Paths that were asked for and hold nothing to analyse."""
    watched: Mapping[str, Stamp] = field(default_factory=dict, compare=False)
    """The stamp of every file and folder that was looked at, from before that."""


class Finding(msgspec.Struct, frozen=True):
    """One judgement of a rule. Ordered in reports by path, line, column, code."""

    code: str
    name: str
    path: str
    line: int
    column: int
    message: str
    help: str
    api: str | None = None
    symbol: str | None = None
    ordinal: int | None = None
    cell: int | None = None


class Selection(msgspec.Struct, frozen=True):
    """Which sites count: catalogue kinds and tiers, and whether by-name ones do."""

    kinds: frozenset[ApiKind] = DEFAULT_KINDS
    tiers: frozenset[Tier] = DEFAULT_TIERS
    by_name: bool = False

    def counts(self, site: Site) -> bool:
        """Whether ``site`` is judged. Dynamic code has a tier of its own, so asking for that tier asks for its kind."""
        if site.confidence is Confidence.BY_NAME and not self.by_name:
            return False
        if site.tier not in self.tiers:
            return False
        return site.api_kind in self.kinds or (site.tier is Tier.STRICT and site.api_kind is ApiKind.DYNAMIC)


class PathSet:
    """Paths as a manifest lists them: a file, a folder with a trailing ``/``, or a pattern with ``*``.

    A pattern's ``*`` stays inside one path component and ``**`` crosses them, as in ``.gitignore``; every entry counts
    from the root.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self.entries = tuple(entries)
        self._files = frozenset(entry for entry in self.entries if not _is_folder(entry) and "*" not in entry)
        self._folders = tuple(entry for entry in self.entries if _is_folder(entry) and "*" not in entry)
        self._patterns = tuple((entry, _pattern(entry)) for entry in self.entries if "*" in entry)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def matches(self, path: str) -> bool:
        """Whether ``path`` lies in the set."""
        return self.entry_for(path) is not None

    def entry_for(self, path: str) -> str | None:
        """The most specific entry that holds ``path``: the file itself, else the longest folder or pattern."""
        if path in self._files:
            return path
        held = [folder for folder in self._folders if path.startswith(folder)]
        held += [entry for entry, pattern in self._patterns if pattern.fullmatch(path)]
        return max(held, key=len, default=None)


def _is_folder(entry: str) -> bool:
    return entry.endswith("/")


def _pattern(entry: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*)", entry + ("**" if _is_folder(entry) else ""))
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in parts))
