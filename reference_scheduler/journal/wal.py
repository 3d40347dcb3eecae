"""What a crash left of a write-ahead log, told before SQLite drops it in silence.

The format is at https://www.sqlite.org/fileformat2.html#walformat. SQLite reads frames up to the first that fails
its check. That is right for a commit that a crash cut short, and wrong for damage further up: commits that were
acknowledged would vanish.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct, unpack

from reference_scheduler.errors import JournalDamaged, JournalUnavailable

_MAGIC = 0x377F0682
_HEADER = Struct(">8I")
_FRAME = Struct(">6I")


def inspect_wal(journal: Path) -> tuple[str, ...]:
    """Return a note on what is torn at the end of the write-ahead log of ``journal``, if anything is.

    Each commit is on disk before the next begins, so a crash tears the last one at most.

    Raises:
        JournalDamaged: commits follow the place where the log fails its check.
        JournalUnavailable: it cannot be read.
    """
    path = journal.with_name(journal.name + "-wal")
    try:
        raw = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise JournalUnavailable(f"{path}: {error.strerror}") from error
    if not raw:
        return ()
    if len(raw) < _HEADER.size:
        return (f"{path.name}: its header was not written to the end; {len(raw)} bytes are dropped",)
    magic, _, page_bytes, _, *salts, sum_1, sum_2 = _HEADER.unpack_from(raw)
    order = ">" if magic & 1 else "<"
    sums = _checksum(raw[: _HEADER.size - 8], (0, 0), order)
    if magic & ~1 != _MAGIC or sums != (sum_1, sum_2) or page_bytes < 512:
        if _commits(raw, _HEADER.size, page_bytes or 4096, salts):
            raise JournalDamaged(f"{path}: its header fails its check, and commits follow it; restore a copy")
        return (f"{path.name}: its header fails its check; {len(raw)} bytes are dropped",)
    return _inspect_frames(path, raw, page_bytes, salts, sums, order)


def _inspect_frames(
    path: Path, raw: bytes, page_bytes: int, salts: list[int], sums: tuple[int, int], order: str
) -> tuple[str, ...]:
    offset = committed = _HEADER.size
    step = _FRAME.size + page_bytes
    while offset + step <= len(raw):
        _, pages, *found, sum_1, sum_2 = _FRAME.unpack_from(raw, offset)
        if found != salts:
            break  # of an earlier round: the file is not cut when it is begun anew
        sums = _checksum(raw[offset : offset + 8], sums, order)
        sums = _checksum(raw[offset + _FRAME.size : offset + step], sums, order)
        if sums != (sum_1, sum_2):
            break
        offset += step
        if pages:
            committed = offset
    following = _commits(raw, offset, page_bytes, salts)
    if following > 1:
        raise JournalDamaged(
            f"{path}: it fails its check at byte {offset}, and {following} commits follow; restore a copy"
        )
    torn = sum(
        min(step, len(raw) - at)
        for at in range(committed, len(raw), step)
        if _salts(raw, at) == salts or len(raw) - at < step
    )
    return (f"{path.name}: the last commit was not written to the end; {torn} bytes are dropped",) if torn else ()


def _salts(raw: bytes, offset: int) -> list[int]:
    return list(unpack(">2I", raw[offset + 8 : offset + 16])) if offset + 16 <= len(raw) else []


def _commits(raw: bytes, offset: int, page_bytes: int, salts: list[int]) -> int:
    """Return how many frames from ``offset`` on end a commit of this round."""
    frames = range(offset, len(raw) - _FRAME.size + 1, _FRAME.size + page_bytes)
    return sum(1 for at in frames if _salts(raw, at) == salts and raw[at + 4 : at + 8] != bytes(4))


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second
