"""What the frames of a log hold, as MessagePack.

The header is a map; the other records are arrays, with events, decisions and states in them as maps. Every
record but the header begins with the number of the latest event, so a frame that is missing is noticed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from reference_scheduler.core.behaviours import BEHAVIOURS
from reference_scheduler.core.decisions import Decision
from reference_scheduler.core.events import Event
from reference_scheduler.core.model import Config
from reference_scheduler.core.snapshot import Snapshot
from reference_scheduler.replay.fingerprint import schema_fingerprint
from reference_scheduler.replay.frames import Frame, Kind, ReplayError, pack_frame

CHAIN_BYTES: Final = 8
"""So much of the core's hash chain is kept with each event."""


class Header(msgspec.Struct, frozen=True):
    """Who can read the log, and the configuration at its start.

    ``behaviours`` are the names in :data:`reference_scheduler.core.behaviours.BEHAVIOURS` of the core that
    recorded.
    """

    schema: str
    behaviours: tuple[str, ...]
    config: Config


class State(msgspec.Struct, frozen=True, array_like=True):
    """The whole state after event ``number``: where a recording starts, or, as a checkpoint, on the way."""

    number: int
    snapshot: Snapshot


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event, the decisions it gave, and the first bytes of the core's hash chain after it."""

    number: int
    chain: bytes
    event: Event
    decisions: tuple[Decision, ...]


class FailureRecord(msgspec.Struct, frozen=True, array_like=True):
    """The event at which ``check`` of :mod:`reference_scheduler.fuzz.monitor` failed; the last of its log."""

    number: int
    event: Event
    check: str
    message: str


class End(msgspec.Struct, frozen=True, array_like=True):
    """The recording was stopped on purpose after event ``number``."""

    number: int


Record = Header | State | Entry | FailureRecord | End

_TYPES: dict[Kind, type[Record]] = {
    Kind.HEADER: Header,
    Kind.START: State,
    Kind.CHECKPOINT: State,
    Kind.EVENT: Entry,
    Kind.FAILURE: FailureRecord,
    Kind.END: End,
}
_DECODERS = {kind: msgspec.msgpack.Decoder(shape) for kind, shape in _TYPES.items()}
_encode = msgspec.msgpack.Encoder().encode


def header_of(config: Config) -> Header:
    """Return the header of a log that this core records."""
    return Header(schema_fingerprint(), tuple(BEHAVIOURS), config)


def pack_record(kind: Kind, record: Record) -> bytes:
    """Return the frame of ``record``."""
    return pack_frame(kind, _encode(record))


def unpack_record(frame: Frame) -> Record:
    """Return what ``frame`` holds.

    Raises:
        ReplayError: its kind or shape is unknown here: another version of the schema wrote it.
    """
    try:
        return _DECODERS[Kind(frame.kind)].decode(frame.payload)
    except (ValueError, msgspec.MsgspecError) as error:
        raise ReplayError(f"the frame that ends at byte {frame.end} has an unknown shape: {error}") from error
