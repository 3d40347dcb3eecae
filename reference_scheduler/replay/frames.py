"""Bytes of a ``.replay`` file: a preamble, then frames. ``docs/replay-format.md`` shows them one by one.

All numbers are little-endian; checks are CRC-32 as in :func:`zlib.crc32`. A frame's head has a check of its
own, so a length that was damaged is told from a frame that was not written to its end.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from struct import Struct
from typing import BinaryIO

import msgspec

MAGIC = b"\x89SGR\r\n\x1a\n"
"""Eight bytes that a transfer as text would change."""
VERSION = 1
_PREAMBLE = Struct("<8sI")
_HEAD = Struct("<BII")
_HEAD_CHECK = Struct("<I")
PREAMBLE = _PREAMBLE.pack(MAGIC, VERSION)
HEAD_BYTES = _HEAD.size + _HEAD_CHECK.size


class ReplayError(Exception):
    """A file is no log, or not one that can be read or continued here; the message says why."""


class Kind(IntEnum):
    """What a frame holds; see :mod:`reference_scheduler.replay.records`."""

    HEADER = 1
    START = 2
    EVENT = 3
    CHECKPOINT = 4
    FAILURE = 5
    END = 6


class Frame(msgspec.Struct, frozen=True):
    """A frame whose checks hold; ``end`` is the offset of the first byte after it."""

    kind: int
    payload: bytes
    end: int


class Condition(StrEnum):
    """How a file ends.

    ``whole``: with a complete frame. ``torn``: its last frame was not written to the end, or is followed by
    nothing but zeros, as after a crash. ``damaged``: what follows the last good frame was changed.
    """

    WHOLE = "whole"
    TORN = "torn"
    DAMAGED = "damaged"


class Tail(msgspec.Struct, frozen=True):
    """What is after the last good frame, which ends at ``offset``: ``excess`` bytes, and what is wrong."""

    condition: Condition
    offset: int
    excess: int = 0
    problem: str = ""

    def __str__(self) -> str:
        if self.condition is Condition.WHOLE:
            return f"whole, {self.offset} bytes"
        return f"{self.condition} at byte {self.offset}: {self.problem}; {self.excess} bytes are unreadable"


def pack_frame(kind: Kind, payload: bytes) -> bytes:
    """Return the bytes of one frame."""
    head = _HEAD.pack(kind, len(payload), zlib.crc32(payload))
    return b"".join((head, _HEAD_CHECK.pack(zlib.crc32(head)), payload))


class FrameReader:
    """Reads the frames of a seekable ``stream``; ``tail`` says how the file ended when that was last seen.

    A file that grows can be read on: :meth:`frames` goes on behind the last good frame.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._offset = 0
        self.tail = Tail(Condition.WHOLE, 0)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that are not yet read.

        Raises:
            ReplayError: the file is no log, or of a format version that is not supported; or it is a pipe.
        """
        if not self._stream.seekable():
            raise ReplayError("a log is read back and forth, which a pipe cannot be: save it to a file first")
        size = self._stream.seek(0, os.SEEK_END)
        if self._offset == 0 and not self._read_preamble(size):
            return
        while True:
            frame = self._read_frame(size)
            if frame is None:
                return
            self._offset = frame.end
            yield frame

    def _read_preamble(self, size: int) -> bool:
        self._stream.seek(0)
        raw = self._stream.read(_PREAMBLE.size)
        if len(raw) < _PREAMBLE.size and PREAMBLE.startswith(raw):
            self.tail = Tail(Condition.TORN, 0, size, "the file ends before its first frame")
            return False
        if len(raw) < _PREAMBLE.size or not raw.startswith(MAGIC):
            raise ReplayError("not a .replay file: it does not begin with the magic bytes")
        check_version(_PREAMBLE.unpack(raw)[1])
        self._offset = _PREAMBLE.size
        return True

    def _read_frame(self, size: int) -> Frame | None:
        offset = self._offset
        rest = size - offset
        self._stream.seek(offset)
        raw = self._stream.read(HEAD_BYTES)
        if len(raw) < HEAD_BYTES:
            problem = "the last frame is incomplete" if rest else ""
            self.tail = Tail(Condition.TORN if rest else Condition.WHOLE, offset, rest, problem)
            return None
        kind, length, check = _HEAD.unpack_from(raw)
        if zlib.crc32(raw[: _HEAD.size]) != _HEAD_CHECK.unpack_from(raw, _HEAD.size)[0]:
            self._set_bad(size, offset, "the head of a frame fails its check")
            return None
        if length > rest - HEAD_BYTES:
            self.tail = Tail(Condition.TORN, offset, rest, "the last frame is incomplete")
            return None
        payload = self._stream.read(length)
        if zlib.crc32(payload) != check:
            self._set_bad(size, offset + HEAD_BYTES + length, "the content of a frame fails its check")
            return None
        return Frame(kind, payload, offset + HEAD_BYTES + length)

    def _set_bad(self, size: int, rest_at: int, problem: str) -> None:
        """Tell a frame that a crash left half written from one that was changed later."""
        torn = only_zeros(self._stream, rest_at, size)
        condition = Condition.TORN if torn else Condition.DAMAGED
        self.tail = Tail(condition, self._offset, size - self._offset, problem)


def only_zeros(stream: BinaryIO, start: int, end: int) -> bool:
    """Return whether the bytes from ``start`` to ``end`` are all zero, as if never written."""
    stream.seek(start)
    while start < end and (block := stream.read(min(1 << 16, end - start))):  # it may have become shorter
        if block.strip(b"\0"):
            return False
        start += len(block)
    return True


def check_version(version: int) -> None:
    """Raise ReplayError, saying what to do, unless files of ``version`` can be read."""
    if version < VERSION:
        raise ReplayError(
            f"format version {version} is older than {VERSION}, the oldest that can be read: "
            "read it with the release that wrote it, or record anew"
        )
    if version > VERSION:
        raise ReplayError(f"format version {version} is newer than {VERSION}: read it with a newer release")
