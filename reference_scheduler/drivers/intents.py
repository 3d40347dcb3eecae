"""What reaches the live driver from outside the core: each becomes an event, and is told when that is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec
from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Decision, Reject
from reference_scheduler.core.events import Event, JobStateChanged, JobUpdated, Tick
from reference_scheduler.core.model import JobState, Priority
from reference_scheduler.drivers.attempts import LiveAttempt
from reference_scheduler.errors import JobEnded, SchedulerError
from reference_scheduler.executors.base import AttemptResult
from reference_scheduler.journal.base import AttemptRow, Batch, JobChange

_encode = msgspec.msgpack.Encoder().encode


class WakeReason(StrEnum):
    """What woke the driver."""

    JOB_ENQUEUED = "job_enqueued"
    EXECUTOR_COMPLETED = "executor_completed"
    CANCELLATION_REQUESTED = "cancellation_requested"
    SCHEDULE_TICK = "schedule_tick"
    SCHEDULE_CLAIMED = "schedule_claimed"
    MANUAL = "manual"
    RETRY_REQUESTED = "retry_requested"
    RECONCILED = "reconciled"


class Intent(Protocol):
    """One thing to be handled by the core and made durable."""

    wake: WakeReason

    def event(self, now_us: int) -> Event | None:
        """Return the event, without a pass, or ``None`` if there is nothing to tell the core.

        Raises:
            SchedulerError: it is refused; :meth:`refused` follows.
        """
        ...

    def add_rows(self, batch: Batch, decisions: tuple[Decision, ...]) -> None:
        """Add to ``batch`` what is to be kept besides the event."""
        ...

    def durable(self, decisions: tuple[Decision, ...]) -> None:
        """Take note that event and rows are durable; ``decisions`` were carried out."""
        ...

    def refused(self, error: SchedulerError) -> bool:
        """Take note that nothing happened, and return whether to try again."""
        ...


class Command:
    """An event that somebody waits for: cancel, pause, configure; without one, that the driver has come to it."""

    def __init__(self, make: Callable[[int], Event | None], wake: WakeReason = WakeReason.MANUAL) -> None:
        self.wake = wake
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._make = make

    def event(self, now_us: int) -> Event | None:
        """See :meth:`Intent.event`."""
        event = self._make(now_us)
        if event is None:
            self.durable(())
            return None
        try:
            _encode(event)
        except ValueError as error:  # text that has no bytes, which would be found only after the core has taken it
            raise SchedulerError(f"that cannot be written: {error}") from error
        return event

    def add_rows(self, batch: Batch, decisions: tuple[Decision, ...]) -> None:
        """See :meth:`Intent.add_rows`."""

    def durable(self, decisions: tuple[Decision, ...]) -> None:
        """See :meth:`Intent.durable`."""
        if not self.done.done():
            self.done.set_result(None)

    def refused(self, error: SchedulerError) -> bool:
        """See :meth:`Intent.refused`."""
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # whoever does not wait for it does not want to know
        return False


class Wanted(Command):
    """An operator wants nothing to start, or no longer so; the next start of the scheduler knows it too."""

    def __init__(self, paused: bool) -> None:
        super().__init__(lambda at_us: Tick(at=at_us, run_pass=False))
        self._paused = paused

    def add_rows(self, batch: Batch, decisions: tuple[Decision, ...]) -> None:
        """See :meth:`Intent.add_rows`."""
        batch.paused = self._paused


class Reprioritised(Command):
    """A job, or all of an array that have not ended, are to have another priority; ``core`` is that of the moment."""

    def __init__(self, core: Callable[[], SchedulerCore], job: str, priority: Priority) -> None:
        super().__init__(self._update)
        self._core = core
        self._job = job
        self._priority = priority

    def _update(self, now_us: int) -> Event:
        jobs = self._core().open_jobs_of(self._job)
        if not jobs:
            raise self._too_late()
        spec = replace(jobs[0].spec, id=self._job, priority=self._priority)
        return JobUpdated(at=now_us, run_pass=False, job=spec, changed=("priority",))

    def add_rows(self, batch: Batch, decisions: tuple[Decision, ...]) -> None:
        """See :meth:`Intent.add_rows`."""
        jobs, priority = self._core().open_jobs_of(self._job), self._priority
        batch.changes += [JobChange(job.spec.id, job.state, job.attempts, priority=priority) for job in jobs]
        if jobs and jobs[0].array == self._job:
            batch.changes.append(JobChange(self._job, JobState.QUEUED, None, priority=priority, is_array=True))

    def durable(self, decisions: tuple[Decision, ...]) -> None:
        """See :meth:`Intent.durable`; what was handled just before may have been the end of the job."""
        if any(isinstance(decision, Reject) for decision in decisions):
            self.refused(self._too_late())
        super().durable(decisions)

    def _too_late(self) -> JobEnded:
        return JobEnded(f"job {self._job} has ended, and keeps its priority")


class Ended:
    """An attempt has come to ``result``, and nothing of it lives any more."""

    wake = WakeReason.EXECUTOR_COMPLETED

    def __init__(self, live: LiveAttempt, result: AttemptResult, gone: Callable[[LiveAttempt], None]) -> None:
        self._live = live
        self._result = result
        self._gone = gone

    def event(self, now_us: int) -> Event | None:
        """See :meth:`Intent.event`."""
        live, result = self._live, self._result
        return JobStateChanged(
            at=now_us,
            run_pass=False,
            job=live.job,
            attempt=live.number,
            old=JobState.RUNNING,
            new=JobState(result.state),
            exit_code=result.exit_code,
            failure=result.failure,
        )

    def add_rows(self, batch: Batch, decisions: tuple[Decision, ...]) -> None:
        """See :meth:`Intent.add_rows`."""
        live, result = self._live, self._result
        row = AttemptRow(
            live.job,
            live.number,
            result.state,
            live.generation,
            batch.wall_us,
            batch.wall_us,
            result.exit_code,
            _encode(result),
        )
        batch.attempts.append(row)

    def durable(self, decisions: tuple[Decision, ...]) -> None:
        """See :meth:`Intent.durable`."""
        self._gone(self._live)

    def refused(self, error: SchedulerError) -> bool:
        """See :meth:`Intent.refused`."""
        return True
