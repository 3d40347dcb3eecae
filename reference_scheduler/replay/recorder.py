"""Writes what a core is told and what it decides to a log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Decision
from reference_scheduler.core.events import Event
from reference_scheduler.replay.frames import PREAMBLE, Condition, FrameReader, Kind, ReplayError, Tail
from reference_scheduler.replay.records import (
    CHAIN_BYTES,
    End,
    Entry,
    FailureRecord,
    Header,
    State,
    header_of,
    pack_record,
    unpack_record,
)

CHECKPOINT_SHARE = 4
"""A checkpoint follows when the events since the last state have so many times its size."""
MIN_CHECKPOINT_BYTES = 1 << 16


class Recorder:
    """Records ``core`` from now on until it is closed; call it with each event and its decisions, in order.

    It is an observer of :class:`~reference_scheduler.drivers.simulation.SimulationDriver`, and of any other
    driver, and may start and stop at any time. Its memory is bounded by the size of one snapshot. A scheduler
    does not stop because its log cannot be written: the first ``OSError`` ends the recording, is kept in
    ``error``, and raised by :meth:`close`. ``number`` is that of the latest event.
    """

    def __init__(self, stream: BinaryIO, core: SchedulerCore, number: int = 0) -> None:
        self._stream = stream
        self._core = core
        self.number = number
        self._since_state = 0
        self._state_bytes = 0
        self.error: OSError | None = None
        self._write_state(Kind.START)

    @classmethod
    def start(cls, path: Path, core: SchedulerCore) -> Self:
        """Record into a new file; one that is there is replaced.

        Raises:
            OSError: the file cannot be made.
        """
        stream = path.open("wb")
        stream.write(PREAMBLE + pack_record(Kind.HEADER, header_of(core.config)))
        return cls(stream, core)

    @classmethod
    def resume(cls, path: Path, core: SchedulerCore) -> tuple[Self, Tail]:
        """Record more into an existing file, and tell how it ended; what is torn is cut off first.

        Between the old recording and this one anything may have happened, so this one begins with the whole
        state again. A file that ends before its first state is begun anew.

        Raises:
            OSError: the file cannot be read or written.
            ReplayError: it is no log, or damaged, or was recorded with another schema or other behaviours.
        """
        with path.open("rb") as stream:
            tail, number = _last_number(stream, header_of(core.config))
        if tail.condition is Condition.DAMAGED:
            raise ReplayError(f"{tail}; nothing is appended to a damaged log")
        if number is None:
            return cls.start(path, core), tail
        appending = path.open("r+b")
        appending.truncate(tail.offset)
        appending.seek(tail.offset)
        return cls(appending, core, number), tail

    def __call__(self, event: Event, decisions: tuple[Decision, ...]) -> None:
        """Record what the core has just handled."""
        self.number += 1
        entry = Entry(self.number, self._core.chain[:CHAIN_BYTES], event, decisions)
        self._since_state += self._write(pack_record(Kind.EVENT, entry))
        if self._since_state >= max(CHECKPOINT_SHARE * self._state_bytes, MIN_CHECKPOINT_BYTES):
            self._write_state(Kind.CHECKPOINT)

    def follow(self, core: SchedulerCore) -> None:
        """Go on with ``core``, whose state is not the one the latest event led to; it is recorded whole."""
        self._core = core
        self._write_state(Kind.START)

    def checkpoint(self) -> None:
        """Record the whole state, for ``verify`` to compare and to go on from."""
        self._write_state(Kind.CHECKPOINT)

    def fail(self, event: Event, check: str, message: str) -> None:
        """Record ``event`` as the one at which ``check`` found the core defective; nothing may follow."""
        self.number += 1
        self._write(pack_record(Kind.FAILURE, FailureRecord(self.number, event, check, message)))

    def flush(self) -> None:
        """Let readers see all that was recorded."""
        self._guarded(self._stream.flush)

    def close(self, state: bool = True) -> None:
        """End the recording, with a last checkpoint unless ``state`` is false; again, it does nothing.

        Raises:
            OSError: something could not be written, now or earlier; the log ends before it.
        """
        if self._stream.closed:
            return
        if state:
            self._write_state(Kind.CHECKPOINT)
        self._write(pack_record(Kind.END, End(self.number)))
        try:
            self._stream.close()
        except OSError as error:
            self.error = self.error or error
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; if the core is what failed, without asking it for its state."""
        self.close(state=error is None)

    def _write_state(self, kind: Kind) -> None:
        self._state_bytes = self._write(pack_record(kind, State(self.number, self._core.snapshot())))
        self._since_state = 0

    def _write(self, frame: bytes) -> int:
        self._guarded(lambda: self._stream.write(frame))
        return len(frame)

    def _guarded(self, action: Callable[[], object]) -> None:
        if self.error is None:
            try:
                action()
            except OSError as error:
                self.error = error


def _last_number(stream: BinaryIO, own: Header) -> tuple[Tail, int | None]:
    """Return how the log ends and the number of its last event, ``None`` if it has no state yet."""
    reader = FrameReader(stream)
    number: int | None = None
    for frame in reader.frames():
        record = unpack_record(frame)
        if not isinstance(record, Header):
            number = record.number
        elif (record.schema, record.behaviours) != (own.schema, own.behaviours):
            raise ReplayError("the log was recorded by another version of the core: record into a new file")
    return reader.tail, number
