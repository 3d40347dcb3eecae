"""The files of a project: one pass over the tree, ignored folders never entered."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pathspec import GitIgnoreSpec

from checkers.warm import Stamp, is_settled, stamp

NEVER_ENTERED = frozenset(
    {
        ".bzr",
        ".direnv",
        ".eggs",
        ".git",
        ".hg",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".spawngate_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "__pypackages__",
        "node_modules",
        "site-packages",
    }
)
"""Folders that hold no source of the project; so is any folder with a ``pyvenv.cfg``."""

PYTHON_SUFFIXES = frozenset({".ipynb", ".py", ".pyw"})
STUB_SUFFIX = ".pyi"
_SUFFIXES = PYTHON_SUFFIXES | {STUB_SUFFIX}
MAX_STARS = 4
_STARS = re.compile(r"\*+")
_SHEBANG_BYTES = 128
_INTERPRETERS = (b"python", b"pypy", b"uv run", b"pipx run")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A path that could not be looked into, and why."""

    path: str
    code: str
    message: str


class Folder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one folder gave. While its stamp stays no name in it comes or goes, nor turns from a file into a folder."""

    stamp: Stamp
    gitignore: Stamp | None = None
    """The stamp of the ``.gitignore`` in it; None where there is none."""
    folders: tuple[str, ...] = ()
    """Names of the folders in it that were entered."""
    sources: tuple[str, ...] | None = None
    """Names of the sources and stubs in it; None where more than the names of its files was looked at."""

    def __post_init__(self) -> None:
        for name in (*self.folders, *(self.sources or ())):
            if "/" in name or name in ("", ".", ".."):
                raise ValueError(f"{name!r} does not lie in the folder")


@dataclass(frozen=True, slots=True)
class Seen:
    """The folders of an earlier listing with the same ``exclude``, and when it began, in ns since 1970."""

    folders: Mapping[str, Folder] = field(default_factory=dict)
    began_ns: int = 0


@dataclass(slots=True)
class Listing:
    """Python sources in path order; stubs are listed apart, since they hold no sites."""

    files: list[str] = field(default_factory=list)
    stubs: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    watched: dict[str, Stamp] = field(default_factory=dict)
    """Stamps of all that the listing depends on, taken before it was looked at."""
    folders: dict[str, Folder] = field(default_factory=dict)
    """What each folder gave."""


def list_files(root: Path, exclude: Iterable[str] = (), named: Iterable[str] = (), seen: Seen | None = None) -> Listing:
    """All Python sources below ``root``; of those in ``named`` also the ones that only their name does not tell.

    Left out: what ``.gitignore`` files at or below the root ignore, ``exclude`` (patterns of the same kind, counted
    from the root), and folders that never hold a project's source. Symbolic links to folders are not followed.
    Folders that were ``seen`` and have not changed are not read again.
    """
    walk = _Walk(os.fspath(root), _patterns(exclude), frozenset(named), seen or Seen())
    walk.tree()
    listing = walk.listing
    listing.files.sort()
    listing.stubs.sort()
    listing.unreadable.sort(key=lambda unreadable: unreadable.path)
    return listing


def is_excluded(path: str, exclude: Iterable[str]) -> bool:
    """Whether one of the patterns of ``exclude`` takes the file ``path``, relative to the root, from the scan."""
    return _patterns(exclude).match_file(path)


def is_pattern(line: str) -> bool:
    """Whether git takes the line as a pattern; it passes over what it cannot read, such as a lone ``!``.

    With more stars between two slashes than :data:`MAX_STARS` it is none either: a long name could take hours to match.
    """
    if any(len(_STARS.findall(component)) > MAX_STARS for component in line.split("/")):
        return False
    try:
        GitIgnoreSpec.from_lines([line], backend="simple")
    except (ValueError, re.error):
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Ignore:
    """The patterns of one ``.gitignore`` and the folder they count from."""

    folder: str
    spec: GitIgnoreSpec

    def verdict(self, path: str) -> bool | None:
        """True: ignored, False: taken back by a ``!`` pattern, None: not spoken of."""
        return self.spec.check_file(path[len(self.folder) :]).include


class _Walk:
    def __init__(self, root: str, exclude: GitIgnoreSpec, named: frozenset[str], seen: Seen) -> None:
        self.root = os.path.join(root, "")
        self.named = named
        self.real_root = os.path.realpath(root)
        self.exclude = exclude
        self.seen = seen
        self.listing = Listing()

    def tree(self) -> None:
        """List the root and what is below it."""
        todo: list[tuple[str, Sequence[_Ignore], bool]] = [("", (), True)]
        while todo:
            path, ignores, as_seen = todo.pop()  # whether what is ignored there is what was when it was seen
            now = self._watch(path)
            folder = self._as_seen(path, now) if as_seen else None
            if folder is None:
                folder, ignores = self._read(path, now, ignores)
                as_seen = as_seen and self._ignores_as_seen(path, folder)
            self.listing.folders[path] = folder
            todo += [(f"{path}{name}/", ignores, as_seen) for name in folder.folders]

    def _as_seen(self, path: str, now: Stamp) -> Folder | None:
        """The folder as it was seen, its sources taken; None if it has to be read."""
        folder = self.seen.folders.get(path)
        if folder is None or folder.sources is None or folder.gitignore is not None:
            return None
        if folder.stamp != now or not is_settled(now, self.seen.began_ns):
            return None
        for name in folder.sources:
            self._watch(path + name)
            self._add(path + name)
        return folder

    def _ignores_as_seen(self, path: str, folder: Folder) -> bool:
        """Whether a folder that was read says of what is below it what it said when it was seen."""
        before, now = self.seen.folders.get(path), folder.gitignore
        if before is None or before.gitignore != now:
            return False
        return now is None or is_settled(now, self.seen.began_ns)

    def _read(self, folder: str, now: Stamp, ignores: Sequence[_Ignore]) -> tuple[Folder, Sequence[_Ignore]]:
        """Take what is in one folder (relative, with a trailing slash): what it gave, and what is ignored below it."""
        try:
            with os.scandir(self.root + folder) as entries:
                found = list(entries)
        except OSError as error:
            self._unreadable(folder.rstrip("/") or ".", f"cannot list the folder: {error.strerror}")
            return Folder(now), ignores
        names = {entry.name for entry in found}
        if folder and "pyvenv.cfg" in names:
            return Folder(now), ignores
        gitignore = self._watch(folder + ".gitignore") if ".gitignore" in names else None
        if gitignore is not None:
            ignores = [*ignores, *self._gitignore(folder, gitignore)]
        folders: list[str] = []
        sources: list[str] = []
        by_name = True
        for entry in found:
            path = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in NEVER_ENTERED and not self._ignored(path + "/", ignores):
                    folders.append(entry.name)
                continue
            by_name &= "." in entry.name
            if self._is_python(entry, path) and not self._ignored(path, ignores):
                by_name &= self._take(entry, path)
                sources.append(entry.name)
        return Folder(now, gitignore, tuple(folders), tuple(sources) if by_name else None), ignores

    def _watch(self, path: str) -> Stamp:
        self.listing.watched[path] = stamp(self.root + path)
        return self.listing.watched[path]

    def _watch_way_to(self, target: str) -> None:
        """Watch the folders a link leads through: git may ignore them, and one that moves takes its files with it."""
        folder = os.path.dirname(target)
        while folder.startswith(self.real_root + os.sep):
            self._watch(os.path.relpath(folder, self.real_root))
            folder = os.path.dirname(folder)

    def _gitignore(self, folder: str, now: Stamp) -> Sequence[_Ignore]:
        *_, mode = now
        if not stat.S_ISREG(mode):
            return ()  # opening a pipe would wait for its writer
        path = Path(self.root, folder, ".gitignore")
        try:
            lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return ()  # nothing is ignored, so more is checked
        return (_Ignore(folder, _patterns(lines)),)

    def _ignored(self, path: str, ignores: Sequence[_Ignore]) -> bool:
        if self.exclude.patterns and self.exclude.match_file(path):
            return True
        for ignore in reversed(ignores):  # the innermost file that speaks of a path decides, as in git
            verdict = ignore.verdict(path)
            if verdict is not None:
                return verdict
        return False

    def _is_python(self, entry: os.DirEntry[str], path: str) -> bool:
        stem, dot, suffix = entry.name.rpartition(".")
        if stem.strip("."):  # what only begins with dots has no suffix, as os.path.splitext has it
            return dot + suffix in _SUFFIXES
        if dot:
            return False
        self._watch(path)
        return path in self.named or self._has_shebang(entry, path)

    def _has_shebang(self, entry: os.DirEntry[str], path: str) -> bool:
        """A script without a suffix is Python when its first line says so."""
        try:
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
                return False
            with Path(self.root, path).open("rb") as stream:
                first = stream.read(_SHEBANG_BYTES).partition(b"\n")[0]
        except OSError:
            return False
        return first.startswith(b"#!") and any(program in first for program in _INTERPRETERS)

    def _take(self, entry: os.DirEntry[str], path: str) -> bool:
        """Take a source; whether its name told all there is to know."""
        self._watch(path)
        if entry.is_symlink():
            target = os.path.realpath(self.root + path)
            if os.path.isdir(target):
                return False
            if not target.startswith(self.real_root + os.sep):
                self._unreadable(path, "the link leads out of the project root", "SRC006")
                return False
            self._watch_way_to(target)
        elif not entry.is_file(follow_symlinks=False):
            self._unreadable(path, "not a regular file")
            return False
        self._add(path)
        return not entry.is_symlink()

    def _add(self, path: str) -> None:
        (self.listing.stubs if path.endswith(STUB_SUFFIX) else self.listing.files).append(path)

    def _unreadable(self, path: str, message: str, code: str = "SRC002") -> None:
        self.listing.unreadable.append(Unreadable(path, code, message))


def _patterns(lines: Iterable[str]) -> GitIgnoreSpec:
    # The matcher that is always there: others are picked up when they happen to be installed, and refuse some names.
    return GitIgnoreSpec.from_lines((line for line in lines if is_pattern(line)), backend="simple")
