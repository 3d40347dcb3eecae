"""What earlier scans of a tree found, file by file, kept until the file changes.

One file per way of asking (tool, catalogue, Python, request): for each source its stamp, the facts of it, and what was
found in it. The stat is compared first, the content only where the stat changed or is too young to be trusted, as git
does with its index ("racy git": a file written in the tick in which the cache was written may change once more without
a trace). It is MessagePack of checked types and cannot run code; a cache that is corrupt, foreign or hostile in form is
passed over and written anew. It is replaced atomically, so that runs side by side see the one or the other.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from checkers import catalog, warm
from checkers.facts.hot import Hits
from checkers.intake.files import Folder
from checkers.intake.source import Stamp, read
from checkers.intake.words import Glance
from checkers.model import SourceFile

FOLDER = warm.FOLDER
_TAG = "CACHEDIR.TAG"
_SELF_DESCRIPTION = {
    _TAG: b"Signature: 8a477f597d28d172789f06886806bc55\n# A cache of spawngate; see https://bford.info/cachedir/\n",
    ".gitignore": b"*\n",
}
_SUM_BYTES = 4
_UNFINISHED = ".tmp-"
_KEPT = (f"{_UNFINISHED}*", "*.catalogue", "*.facts", "*.run", "*.run.*")
"""Names of what a cache keeps, or would have."""
_GLANCE = msgspec.msgpack.Decoder(Glance)
_CATALOGUE = msgspec.msgpack.Decoder(dict[str, catalog.File])


class Record(msgspec.Struct, array_like=True):
    """What is known of one source. What is asked of few of them stays MessagePack until then."""

    stamp: Stamp
    packed: memoryview
    """A :class:`~checkers.intake.pipeline.Analysed`, packed there; empty where there is none that can be packed."""
    interface: bytes | None
    """See :class:`~checkers.facts.summary.Summary`; None where the source gave no facts."""
    names: tuple[str, ...] = ()
    """The names of that summary, where the scan asks for names."""
    file: SourceFile | None = None
    calls: tuple[str, ...] = ()
    """The watched names that it calls."""
    reaches: tuple[str, ...] = ()
    """The files that were looked at for its sake or for that of what it exports."""
    packed_glance: memoryview | None = None
    """What a look at it told; None where it could not be read, or every file is analysed."""
    hits: Hits | None = None
    """The words that counted when it was analysed; None where all did, or where it was passed over."""

    @property
    def is_passed_over(self) -> bool:
        """Whether none of its words counted, so that it was not analysed."""
        return self.packed_glance is not None and self.hits is None

    def glance(self) -> Glance | None:
        """What a look at it told. Raises ValueError for a record that is not ours."""
        return None if self.packed_glance is None else _GLANCE.decode(self.packed_glance)

    def see(self, glance: Glance) -> None:
        """Note what a look at it told."""
        self.packed_glance = memoryview(msgspec.msgpack.encode(glance))


class Document(msgspec.Struct, array_like=True):
    """``tool`` and ``question`` tell for what it holds; ``written``, in ns since 1970, when its scan began.

    A file may have changed after it was read, in the same tick of its clock, however long the scan went on.
    """

    records: dict[str, Record]
    folders: dict[str, Folder]
    """What each folder gave when it was last listed."""
    common: tuple[str, ...] = ()
    """The files that were looked at for the sake of all."""
    signs: tuple[str, ...] = ()
    """What was known of the tree, see :class:`checkers.intake.words.Known`."""
    tool: str = ""
    question: str = ""
    written: int = 0


NOTHING = Document({}, {})
"""What an empty cache knows."""


class Cache:
    """The cache of one project, for one way of asking. A scan makes it before it looks at anything."""

    def __init__(self, root: Path, folder: Path, asked: Sequence[str], limit: int) -> None:
        self._root = os.fspath(root)
        self._folder = folder
        self._limit = limit
        self._began = time.time_ns()
        self._tool = _digest(warm.tool())
        self.looked_again = False
        """Whether some content was compared, because its stamp told nothing."""
        self._path = folder / f"{_digest(chr(10).join(asked))}.facts"

    def exists(self) -> bool:
        """Whether something may be known."""
        return os.path.exists(self._path)  # false, too, for a name that no file can have

    def load(self) -> Document:
        """What is known; nothing where there is no cache, or not one of ours."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            document = unpack(_read(self._path))
            if document.tool == self._tool:
                with contextlib.suppress(OSError):
                    os.utime(self._path)  # it is in use
                return document
        return NOTHING

    def catalogue(self) -> Mapping[str, catalog.File]:
        """The whole catalogue. Its TOML takes twenty times as long to read as what it came to last time."""
        path, roots = self._folder / f"{self._tool}.catalogue", catalog.Catalog.known_roots()
        with contextlib.suppress(OSError, ValueError, RecursionError):
            files = _CATALOGUE.decode(_opened(_read(path)))
            if files.keys() == roots:
                return files
        files = catalog.read(roots)
        with contextlib.suppress(OSError):
            self._write(path, *_sealed(msgspec.msgpack.encode(files)))
        return files

    def unchanged(self, document: Document, question: str, stamps: Mapping[str, warm.Stamp]) -> dict[str, Record]:
        """The records of files that are as they were; ``stamps`` are those that the files have now.

        ``question`` is what may change from run to run in one way of asking, and spoils them all.
        """
        found: dict[str, Record] = {}
        if document.question != _digest(question):
            return found
        for path, record in document.records.items():
            if path in stamps and _speaks_of(record.file, path):
                stamp = self._same(path, record.stamp, stamps[path], document.written)
                if stamp is not None:
                    record.stamp = stamp
                    found[path] = record
        return found

    def _same(self, path: str, before: Stamp, now: warm.Stamp, written: int) -> Stamp | None:
        if now[0] != before.status[0] or now == warm.NOTHING:
            return None
        if now == before.status and warm.is_settled(now, written):
            return before
        self.looked_again = True
        stamp = read(self._root, path, self._limit)[1]
        return stamp if stamp.digest == before.digest else None

    def store(self, question: str, document: Document) -> None:
        """Keep what is known. A folder that cannot be written costs the next run its head start, and nothing else."""
        document.tool, document.question, document.written = self._tool, _digest(question), self._began
        with contextlib.suppress(OSError, ValueError, OverflowError, RecursionError):
            self._write(self._path, *pack(document))
            warm.forget_old(os.fspath(self._folder))

    def _write(self, path: Path, *data: bytes) -> None:
        """Raises OSError, also where the folder is not one of ours."""
        prepare(self._folder)
        replace(path, *data)


def pack(document: Document) -> tuple[bytes, bytes]:
    """The two parts of a cache's file. Raises OverflowError and RecursionError."""
    return _sealed(msgspec.msgpack.encode(document))


def unpack(data: bytes) -> Document:
    """The document of a cache's file. Raises ValueError and RecursionError where it is none, or has changed since."""
    return msgspec.msgpack.decode(_opened(data), type=Document)


def _sealed(data: bytes) -> tuple[bytes, bytes]:
    """A checksum, and the data."""
    return zlib.crc32(data).to_bytes(_SUM_BYTES, "big"), data


def _opened(data: bytes) -> memoryview:
    """What follows the checksum. Raises ValueError where it is another one."""
    packed = memoryview(data)[_SUM_BYTES:]
    if zlib.crc32(packed).to_bytes(_SUM_BYTES, "big") != data[:_SUM_BYTES]:
        raise ValueError("the checksum is another one")
    return packed


def clear(folder: Path) -> None:
    """Remove what a cache folder of ours holds, and the folder when nothing else is in it."""
    with contextlib.suppress(OSError):
        if folder.is_symlink() or not _describes_itself(folder, _TAG):
            return
        ours = [path for path in folder.iterdir() if any(map(path.match, _KEPT))]
        ours += [folder / name for name in reversed(_SELF_DESCRIPTION) if _describes_itself(folder, name)]
        for path in ours:
            path.unlink(missing_ok=True)
        folder.rmdir()


def is_foreign(folder: Path) -> bool:
    """Whether a folder holds other things than a cache of ours: none to be hidden from git as a whole."""
    try:
        if (folder.name == FOLDER and not folder.is_symlink()) or _describes_itself(folder, _TAG):
            return False
        return not all(any(map(path.match, (*_KEPT, *_SELF_DESCRIPTION))) for path in folder.iterdir())
    except OSError:
        return False  # there is none yet, or none that could be written


def _describes_itself(folder: Path, name: str) -> bool:
    try:
        return _read(folder / name) == _SELF_DESCRIPTION[name]
    except OSError:
        return False


def _read(path: Path) -> bytes:
    """What a regular file holds: opening a pipe would wait for its writer. Raises OSError."""
    return path.read_bytes() if path.is_file() else b""


def _speaks_of(file: SourceFile | None, path: str) -> bool:
    """Whether what was found is of that very file: a report shows lines of the files that it names."""
    if file is None:
        return False
    told = (*file.sites, *file.uses, *((file.unanalysed,) if file.unanalysed is not None else ()))
    return file.path == path and all(one.path == path for one in told)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def prepare(folder: Path) -> None:
    """Make a cache folder that version control and backups pass over. Raises OSError, also for a foreign folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if is_foreign(folder):
        raise OSError(errno.ENOTEMPTY, "the folder holds other things", os.fspath(folder))
    for name, data in _SELF_DESCRIPTION.items():
        if not (folder / name).exists():
            replace(folder / name, data)
            (folder / name).chmod(0o644)  # for whoever else looks at the folder, such as git


def replace(path: Path, *data: bytes) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(data)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
