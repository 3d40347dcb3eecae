"""The files of a project: one pass over the tree, ignored folders never entered."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from checkers.warm import Stamp, stamp

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


@dataclass(slots=True)
class Listing:
    """Python sources in path order; stubs are listed apart, since they hold no sites."""

    files: list[str] = field(default_factory=list)
    stubs: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    watched: dict[str, Stamp] = field(default_factory=dict)
    """Stamps of all that the listing depends on, taken before it was looked at."""


def list_files(root: Path, exclude: Iterable[str] = (), named: Iterable[str] = ()) -> Listing:
    """All Python sources below ``root``; of those in ``named`` also the ones that only their name does not tell.

    Left out: what ``.gitignore`` files at or below the root ignore, ``exclude`` (patterns of the same kind, counted
    from the root), and folders that never hold a project's source. Symbolic links to folders are not followed.
    """
    walk = _Walk(os.fspath(root), _patterns(exclude), frozenset(named))
    walk.folder("", [])
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
    def __init__(self, root: str, exclude: GitIgnoreSpec, named: frozenset[str]) -> None:
        self.root = os.path.join(root, "")
        self.named = named
        self.real_root = os.path.realpath(root)
        self.exclude = exclude
        self.listing = Listing()

    def folder(self, folder: str, ignores: list[_Ignore]) -> None:
        """List ``folder`` (relative, with a trailing slash) and what is below it."""
        todo = [(folder, ignores)]
        while todo:
            folder, ignores = todo.pop()
            self._watch(folder)
            try:
                with os.scandir(self.root + folder) as entries:
                    found = list(entries)
            except OSError as error:
                self._unreadable(folder.rstrip("/") or ".", f"cannot list the folder: {error.strerror}")
                continue
            names = {entry.name for entry in found}
            if folder and "pyvenv.cfg" in names:
                continue
            if ".gitignore" in names:
                ignores = [*ignores, *self._gitignore(folder)]
            for entry in found:
                path = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    below = path + "/"
                    if entry.name not in NEVER_ENTERED and not self._ignored(below, ignores):
                        todo.append((below, ignores))
                elif self._is_python(entry, path) and not self._ignored(path, ignores):
                    self._take(entry, path)

    def _watch(self, path: str) -> Stamp:
        self.listing.watched[path] = stamp(self.root + path)
        return self.listing.watched[path]

    def _watch_way_to(self, target: str) -> None:
        """Watch the folders a link leads through: git may ignore them, and one that moves takes its files with it."""
        folder = os.path.dirname(target)
        while folder.startswith(self.real_root + os.sep):
            self._watch(os.path.relpath(folder, self.real_root))
            folder = os.path.dirname(folder)

    def _gitignore(self, folder: str) -> Sequence[_Ignore]:
        *_, mode = self._watch(folder + ".gitignore")
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

    def _take(self, entry: os.DirEntry[str], path: str) -> None:
        self._watch(path)
        if entry.is_symlink():
            target = os.path.realpath(self.root + path)
            if os.path.isdir(target):
                return
            if not target.startswith(self.real_root + os.sep):
                self._unreadable(path, "the link leads out of the project root", "SRC006")
                return
            self._watch_way_to(target)
        elif not entry.is_file(follow_symlinks=False):
            self._unreadable(path, "not a regular file")
            return
        (self.listing.stubs if path.endswith(STUB_SUFFIX) else self.listing.files).append(path)

    def _unreadable(self, path: str, message: str, code: str = "SRC002") -> None:
        self.listing.unreadable.append(Unreadable(path, code, message))


def _patterns(lines: Iterable[str]) -> GitIgnoreSpec:
    # The matcher that is always there: others are picked up when they happen to be installed, and refuse some names.
    return GitIgnoreSpec.from_lines((line for line in lines if is_pattern(line)), backend="simple")
