"""The result of the last scan of a tree, kept to be given again while nothing has changed.

One JSON file per way of asking (tool, catalogue, Python, request). Every file of the tree is there with size, time and
content hash: the stat is compared first, the content only where the stat changed or is too young to be trusted, as
git does with its index ("racy git": a file written in the tick in which the cache was written may change once more
without a trace). JSON cannot run code; a cache that is corrupt, foreign or hostile in form is passed over and
written anew. It is replaced atomically, so that runs side by side see the one or the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from checkers import model
from checkers.facts.model import Broken
from checkers.intake.source import read
from checkers.limits import recursion

FOLDER = ".spawngate_cache"
_FORMAT = 1
_RACY_NS = 2_000_000_000
"""Coarsest tick of the file systems in use (FAT)."""
_NESTING = 1000
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of spawngate; see https://bford.info/cachedir/\n"
_CLASSES = {
    cls.__name__: cls
    for cls in (
        model.Argument,
        model.Comment,
        model.Extent,
        model.Header,
        model.Site,
        model.SourceFile,
        model.Unanalysed,
        model.Use,
    )
}
_ENUMS: dict[str, type[StrEnum]] = {
    cls.__name__: cls for cls in (model.ApiKind, model.Confidence, model.SiteKind, model.Tier)
}


class Kept(NamedTuple):
    """What a scan found: the files that have something to tell, by path, and the watched calls."""

    files: list[model.SourceFile]
    names: frozenset[str]
    calls: frozenset[str]


class Cache:
    """The cache of one project, for one way of asking."""

    def __init__(self, root: Path, folder: Path, asked: Sequence[str], limit: int) -> None:
        self._root = os.fspath(root)
        self._folder = folder
        self._limit = limit
        parts = [str(_FORMAT), sys.version, *_tool(), *asked]
        self._path = folder / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.json"

    def load(self, paths: Sequence[str]) -> Kept | None:
        """What the last scan found, if exactly ``paths`` were read and none has changed since."""
        try:
            with recursion(_NESTING):  # JSON is read by C code, which deep nesting would bring down
                document = json.loads(self._path.read_bytes())
            written, stamps = document["written"], document["stamps"]
            if list(stamps) != list(paths) or not all(
                map(self._is_same, paths, stamps.values(), [written] * len(paths))
            ):
                return None
            files = [_decode(value) for value in document["files"]]
            if [file.path for file in files if isinstance(file, model.SourceFile)] != list(paths):
                return None
            return Kept(files, _strings(document["names"]), _strings(document["calls"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def stamps(self, paths: Iterable[str]) -> dict[str, list[Any]]:
        """Size, time and content hash of each file, to be taken before it is analysed."""
        return {path: self._stamp(path) for path in paths}

    def store(self, stamps: Mapping[str, list[Any]], found: Kept) -> None:
        """Keep a result. A folder that cannot be written costs the next run its head start, and nothing else."""
        document = {
            "written": time.time_ns(),
            "stamps": stamps,
            "files": [_encode(file) for file in found.files],
            "names": sorted(found.names),
            "calls": sorted(found.calls),
        }
        with contextlib.suppress(OSError):
            _prepare(self._folder)
            _replace(self._path, json.dumps(document, separators=(",", ":")).encode())

    def _is_same(self, path: str, stamp: list[Any], written: int) -> bool:
        size, changed, digest = stamp
        status = os.stat(os.path.join(self._root, path))
        if status.st_size != size:
            return False
        if status.st_mtime_ns == changed and changed < written - _RACY_NS:
            return True
        return bool(self._stamp(path)[2] == digest)

    def _stamp(self, path: str) -> list[Any]:
        try:
            status = os.stat(os.path.join(self._root, path))
        except OSError:
            return [-1, 0, ""]
        data = read(self._root, path, self._limit)
        digest = repr(data) if isinstance(data, Broken) else hashlib.blake2b(data, digest_size=16).hexdigest()
        return [status.st_size, status.st_mtime_ns, digest]


def clear(folder: Path) -> None:
    """Remove a cache folder, if it is one of ours."""
    if (folder / "CACHEDIR.TAG").is_file() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def _tool() -> list[str]:
    """What this package is made of: a change to its code or catalogue is another tool."""
    package = Path(__file__).parent.parent
    parts = []
    for folder, _, names in sorted(os.walk(package)):
        for name in sorted(names):
            if name.endswith((".py", ".toml")):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return parts


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("CACHEDIR.TAG", _TAG), (".gitignore", "*\n")):
        if not (folder / name).exists():
            _replace(folder / name, text.encode())


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _encode(value: Any) -> Any:
    """A value of :mod:`checkers.model` as JSON: lists that begin with what they are."""
    if isinstance(value, StrEnum):
        return [type(value).__name__, value.value]
    if isinstance(value, tuple):
        return ["tuple", *map(_encode, value)]
    if isinstance(value, frozenset):
        return ["frozenset", *sorted(value)]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return [type(value).__name__, *(_encode(getattr(value, field.name)) for field in fields)]
    return value


def _decode(value: Any) -> Any:
    """The value again. Raises ValueError, TypeError or KeyError for anything that was not encoded here."""
    if not isinstance(value, list):
        if value is None or isinstance(value, str | int):
            return value
        raise ValueError("no value of the model")
    kind, *parts = value
    if kind in _ENUMS:
        return _ENUMS[kind](*parts)
    if kind == "frozenset":
        return _strings(parts)
    decoded = map(_decode, parts)
    return tuple(decoded) if kind == "tuple" else _CLASSES[kind](*decoded)


def _strings(values: list[Any]) -> frozenset[str]:
    if not all(isinstance(value, str) for value in values):
        raise ValueError("not a name")
    return frozenset(values)
