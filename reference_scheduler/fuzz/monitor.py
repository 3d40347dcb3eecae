"""A core under watch: every check there is, after every event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

import msgspec

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.allocators import ALLOCATORS, Allocator
from reference_scheduler.core.decisions import Decision
from reference_scheduler.core.events import Event
from reference_scheduler.core.pickers import PICKERS, Picker
from reference_scheduler.core.snapshot import Snapshot
from reference_scheduler.fuzz.model import CheckError, Model
from reference_scheduler.replay.frames import FrameReader, Kind
from reference_scheduler.replay.records import Entry, FailureRecord, unpack_record

_ENDS_EVERY = 32


class Monitor:
    """Hands events to a new ``core`` and raises :class:`CheckError` at the first thing that is wrong.

    After each event the core audits itself, a :class:`Model` must agree, and a *twin*, restored from the
    serialised state at the latest :meth:`restart`, must have decided the same.
    """

    def __init__(
        self,
        pickers: Mapping[str, Callable[[], Picker]] = PICKERS,
        allocators: Mapping[str, Callable[[], Allocator]] = ALLOCATORS,
    ) -> None:
        self._plugins = (pickers, allocators)
        self.core = SchedulerCore(pickers, allocators)
        self._model = Model()
        self._twin: SchedulerCore | None = None
        self._restarting = False
        self._events = 0

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Return what the core decides.

        Raises:
            CheckError: something is wrong with that, or with the core.
        """
        if self._restarting:
            self._restore()
        try:
            decisions = self.core.handle(event)
            self.core.audit()
        except Exception as error:  # whatever it is, a defective core raised it
            raise CheckError("core", f"{type(error).__name__}: {error}") from error
        self._model.follow(self.core, event, decisions)
        self._events += 1
        if self._events % _ENDS_EVERY == 0:
            self._model.check_ends(self.core)
        if self._twin is not None:
            self._check_twin(self._twin, event, decisions)
        return decisions

    def restart(self) -> None:
        """Restore a twin from the present state before the next event."""
        self._restarting = True

    def finish(self) -> None:
        """Check the end of a run in which all faults have stopped.

        Raises:
            CheckError: jobs are left, or the ends of jobs are not what they were.
        """
        self._model.check_ends(self.core)
        left = [job.spec.id for job in self.core.open_jobs()]
        if left:
            raise CheckError("stuck", f"{len(left)} jobs never end, as {self.core.why(left[0])}")

    def _restore(self) -> None:
        self._restarting = False
        snapshot = self.core.snapshot()
        try:
            raw = msgspec.msgpack.encode(snapshot)
            twin = SchedulerCore.restore(msgspec.msgpack.decode(raw, type=Snapshot), *self._plugins)
            twin.audit()
        except Exception as error:
            raise CheckError("restore", f"{type(error).__name__}: {error}") from error
        if twin.snapshot() != snapshot:
            raise CheckError("restore", "the restored state is not the one that was saved")
        self._twin = twin

    def _check_twin(self, twin: SchedulerCore, event: Event, decisions: tuple[Decision, ...]) -> None:
        try:
            restored = twin.handle(event)
        except Exception as error:
            raise CheckError("restore", f"{type(error).__name__}: {error}") from error
        if (restored, twin.chain, twin.next_due()) != (decisions, self.core.chain, self.core.next_due()):
            raise CheckError("restore", f"after a restore the core decides {restored}, not {decisions}")


def reproduce(
    stream: BinaryIO,
    pickers: Mapping[str, Callable[[], Picker]] = PICKERS,
    allocators: Mapping[str, Callable[[], Allocator]] = ALLOCATORS,
) -> str | None:
    """Run a log that ends in a failure through all checks; return what fails now, ``None`` if nothing does.

    The log starts with an empty core, as those do that fuzzing saves; its checkpoints are restarts.
    """
    monitor = Monitor(pickers, allocators)
    try:
        for frame in FrameReader(stream).frames():
            record = unpack_record(frame)
            if frame.kind == Kind.CHECKPOINT:
                monitor.restart()
            elif isinstance(record, Entry):
                monitor.handle(record.event)
            elif isinstance(record, FailureRecord):
                monitor.handle(record.event)
                if record.check == "stuck":
                    monitor.finish()
                break
    except CheckError as failure:
        return str(failure)
    return None
