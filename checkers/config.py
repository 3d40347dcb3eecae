"""What one run was asked to do: the project's root, the selected paths and the options, typed and checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from checkers import warm
from checkers.model import ApiKind, Tier
from checkers.resolve.layout import LayoutError


class Request(msgspec.Struct, frozen=True):
    """The options of one run, after parsing. Empty ``kinds`` and ``tiers`` leave the manifest's choice."""

    root: Path
    paths: tuple[str, ...] = ()
    """Selected paths relative to the root; empty: the whole tree."""
    given: tuple[str, ...] = ()
    """These paths as they were given: from the working directory, perhaps by way of links."""
    manifest: Path | None = None
    output_format: str = "text"
    output_file: Path | None = None
    list_sites: bool = False
    rollout: str | None = None
    kinds: frozenset[ApiKind] = frozenset()
    tiers: frozenset[Tier] = frozenset()
    by_name: bool = False
    jobs: int | None = None
    no_cache: bool = False
    cache_dir: Path | None = None
    """Folder of the cache; None for the one inside the root."""
    clear_cache: bool = False
    stdin_filename: str | None = None
    """Path, relative to the root, of the file whose text comes on standard input."""
    explain: str | None = None
    statistics: bool = False
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"


def absolute(path: str | Path) -> Path:
    """``path`` without ``..``, symbolic links kept: a link that is asked for stays that link."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - `Path.resolve` follows links


def find_root(start: Path) -> Path:
    """The nearest folder from ``start`` upwards that holds a root marker, else ``start`` itself; absolute."""
    return Path(warm.find_root(os.fspath(absolute(start))))


def root_of(paths: Sequence[str]) -> Path:
    """The root of the project that all ``paths`` are in, those being relative to the working directory; absolute."""
    if not paths:
        return find_root(Path.cwd())
    common = Path(os.path.commonpath([absolute(path) for path in paths]))
    return find_root(common if common.is_dir() else common.parent)


def below_root(root: Path, path: str) -> str:
    """``path``, as given from the working directory, relative to ``root`` and with ``/``.

    Of links only one to a file, the path's last component, has a name of its own in the root. One to a folder stands
    for that folder, for the scan follows none. Raises LayoutError where the path leads out of the root.
    """
    given = absolute(path)
    folder, name = (given, "") if os.path.isdir(given) else (given.parent, given.name)  # noqa: PTH112 - never raises
    below = Path(os.path.relpath(os.path.realpath(folder), os.path.realpath(root))) / name
    if ".." in below.parts:
        what = f"{path}: lies outside the project root {root}"
        raise LayoutError(f"{what}; paths count from the working directory: give --root, or another path")
    return below.as_posix()


def select(root: Path, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The given paths relative to ``root``; none where the root itself is among them: the whole tree.

    Raises LayoutError.
    """
    selected = tuple(dict.fromkeys(below_root(root, path) for path in paths))
    return () if "." in selected else selected


def wants_color(choice: str, is_terminal: bool) -> bool:
    """Whether to colour: as told, else on a terminal that takes it, unless NO_COLOR is set (no-color.org)."""
    if choice != "auto":
        return choice == "always"
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
