"""Replays a log through a new core and compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import msgspec

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.allocators import ALLOCATORS, Allocator
from reference_scheduler.core.behaviours import BEHAVIOURS
from reference_scheduler.core.decisions import Decision
from reference_scheduler.core.events import Event
from reference_scheduler.core.pickers import PICKERS, Picker
from reference_scheduler.fuzz.monitor import reproduce
from reference_scheduler.replay.difference import compare_effects, compare_states
from reference_scheduler.replay.fingerprint import schema_fingerprint
from reference_scheduler.replay.frames import FrameReader, Kind, ReplayError, Tail
from reference_scheduler.replay.records import (
    CHAIN_BYTES,
    Entry,
    FailureRecord,
    Header,
    Record,
    State,
    unpack_record,
)

Progress = Callable[[int], None]


class Divergence(msgspec.Struct, frozen=True):
    """Where replay first differs from the log: after event ``number``.

    ``event`` is ``None`` if all decisions are as recorded but the state at a checkpoint is not; ``error`` is
    set if the core broke off instead of deciding. ``effects`` is what differs in the jobs that the decisions
    are about; ``state`` what differs at the next checkpoint, after event ``state_number``.
    """

    number: int
    event: Event | None = None
    expected: tuple[Decision, ...] = ()
    got: tuple[Decision, ...] = ()
    error: str = ""
    effects: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    state_number: int | None = None


class Verification(msgspec.Struct, frozen=True):
    """What came of a verification; ``closed`` says whether the recording was ended on purpose.

    ``other_behaviours`` are those in which the recording core and this one differ. ``failure`` is the defect
    that the log records, and ``failure_now`` what the core does there now, ``None`` if the defect is gone.
    """

    events: int
    sessions: int
    closed: bool
    tail: Tail
    chain: bytes
    other_behaviours: tuple[str, ...] = ()
    divergence: Divergence | None = None
    failure: str | None = None
    failure_now: str | None = None

    @property
    def same(self) -> bool:
        """Whether all that could be read replays as recorded, and records no defect that is still there."""
        return self.divergence is None and self.failure_now is None


class _Replay:
    """One pass over the records of a log."""

    def __init__(
        self,
        stream: BinaryIO,
        pickers: Mapping[str, Callable[[], Picker]],
        allocators: Mapping[str, Callable[[], Allocator]],
        progress: Progress,
    ) -> None:
        self._stream = stream
        self._pickers = pickers
        self._allocators = allocators
        self._progress = progress
        self.reader = FrameReader(stream)
        self.core: SchedulerCore | None = None
        self.events = 0
        self.sessions = 0
        self.closed = False
        self.other: tuple[str, ...] = ()
        self.failure: str | None = None
        self.failure_now: str | None = None
        self._records = self._read()

    def _read(self) -> Iterator[tuple[Kind, Record]]:
        schema = own = schema_fingerprint()
        for frame in self.reader.frames():
            try:
                record = unpack_record(frame)
            except ReplayError as error:
                if schema == own:
                    raise
                raise ReplayError(f"recorded with schema {schema}, this core has {own}: {error}") from error
            if isinstance(record, Header):
                schema = record.schema
            yield Kind(frame.kind), record

    def run(self) -> Divergence | None:
        """Replay to the end of the log or the first difference."""
        for kind, record in self._records:
            self.closed = kind is Kind.END
            divergence = None
            if isinstance(record, Header):
                self._check_header(record)
            elif isinstance(record, State):
                divergence = self._state(record, kind)
            elif isinstance(record, Entry):
                divergence = self._entry(record)
            elif isinstance(record, FailureRecord):
                self.failure = f"event {record.number}: {record.check}: {record.message}"
                self.failure_now = reproduce(self._stream, self._pickers, self._allocators)
            if divergence is not None:
                return divergence
        return None

    def _check_header(self, header: Header) -> None:
        own = tuple(BEHAVIOURS)
        self.other = tuple(name for name in header.behaviours if name not in own)
        self.other += tuple(name for name in own if name not in header.behaviours)

    def _restore(self, state: State) -> SchedulerCore:
        config = state.snapshot.config
        for name, known in ((config.picker, self._pickers), (config.allocator, self._allocators)):
            if name not in known:
                raise ReplayError(f"the log needs the plug-in {name!r}, which is not installed")
        try:
            return SchedulerCore.restore(state.snapshot, self._pickers, self._allocators)
        except Exception as error:  # whatever a state comes to that no core has, or a plug-in that cannot load its own
            what = f"{type(error).__name__}: {error}"
            raise ReplayError(f"the state after event {state.number} cannot be restored: {what}") from error

    def _state(self, record: State, kind: Kind) -> Divergence | None:
        """Compare at a checkpoint; in any case go on from the recorded state, which tests restoring too."""
        if kind is Kind.START:
            self.sessions += 1
            self.events = record.number
        elif self._live.snapshot() != record.snapshot:
            lines = compare_states(record.snapshot, self._live.snapshot())
            return Divergence(record.number, state=lines, state_number=record.number)
        self.core = self._restore(record)
        return None

    @property
    def _live(self) -> SchedulerCore:
        if self.core is None:
            raise ReplayError("the log has events before its first state")
        return self.core

    def _entry(self, record: Entry) -> Divergence | None:
        core = self._live
        if record.number != self.events + 1:
            raise ReplayError(f"event {self.events + 1} is missing: event {record.number} follows")
        self.events = record.number
        self._progress(record.number)
        got, error = _handle(core, record.event)
        if not error and got == record.decisions and core.chain[:CHAIN_BYTES] == record.chain:
            return None
        effects = compare_effects(core, record.decisions, got)
        number, state = (None, ()) if error else self._next_checkpoint(core)
        return Divergence(record.number, record.event, record.decisions, got, error, effects, state, number)

    def _next_checkpoint(self, core: SchedulerCore) -> tuple[int | None, tuple[str, ...]]:
        """Replay on to the next recorded state of this session and compare, if there is one."""
        for kind, record in self._records:
            if isinstance(record, State) and kind is Kind.CHECKPOINT:
                return record.number, compare_states(record.snapshot, core.snapshot())
            if not isinstance(record, Entry) or _handle(core, record.event)[1]:
                break
        return None, ()


def _handle(core: SchedulerCore, event: Event) -> tuple[tuple[Decision, ...], str]:
    """Return what ``core`` decides, or how it broke off."""
    try:
        return core.handle(event), ""
    except Exception as error:  # whatever a defective core or plug-in raises is what replay came to
        return (), f"{type(error).__name__}: {error}"


def verify(
    stream: BinaryIO,
    pickers: Mapping[str, Callable[[], Picker]] = PICKERS,
    allocators: Mapping[str, Callable[[], Allocator]] = ALLOCATORS,
    progress: Progress = lambda number: None,
) -> Verification:
    """Feed the events of the log in ``stream`` to new cores and compare every decision and state.

    Each session starts from its recorded state, and replay goes on from each checkpoint. A torn or damaged
    log is compared as far as it can be read.

    Raises:
        ReplayError: it is no log, lacks an event, or needs another schema or a plug-in that is not there.
    """
    replay = _Replay(stream, pickers, allocators, progress)
    divergence = replay.run()
    return Verification(
        events=replay.events,
        sessions=replay.sessions,
        closed=replay.closed,
        tail=replay.reader.tail,
        chain=replay.core.chain if replay.core else b"",
        other_behaviours=replay.other,
        divergence=divergence,
        failure=replay.failure,
        failure_now=replay.failure_now,
    )
