"""The scheduler as a library: ``async with Scheduler(...)``, or ``with SyncScheduler(...)`` from threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import aclosing, suppress
from os.path import realpath
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from reference_scheduler.config import ConfigError, Settings, StopMode, check_kinds
from reference_scheduler.core.events import CancelRequested, ConfigLoaded, Event, QueueConfigured
from reference_scheduler.core.machine import TERMINAL
from reference_scheduler.core.model import AttemptState, Job, JobState, Priority, task_of
from reference_scheduler.drivers.attempts import Attempts, LiveAttempt
from reference_scheduler.drivers.intents import Command, Reprioritised, WakeReason
from reference_scheduler.drivers.live import LiveDriver
from reference_scheduler.errors import (
    InvalidSubmission,
    IsArray,
    NoSuchJob,
    SchedulerStopping,
    SubmissionError,
)
from reference_scheduler.executors import Executor, ExecutorRegistry, default_registry
from reference_scheduler.executors.base import AttemptResult, Progress, decode_result, told
from reference_scheduler.following import followed
from reference_scheduler.journal.base import JobFilter, JobRow, Journal
from reference_scheduler.journal.memory import MemoryJournal
from reference_scheduler.journal.sqlite import SqliteJournal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.logs import OutputChunk
from reference_scheduler.observers import Observers, Subscription
from reference_scheduler.plugins import available_allocators, available_pickers
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.processes.strays import end_strays
from reference_scheduler.recovery import Recovery
from reference_scheduler.replay import Recorder
from reference_scheduler.requests import JobRequest, decode_request
from reference_scheduler.status import Hold, explained, hold_of, take_snapshot
from reference_scheduler.submission import JobSubmissionService, Outcome
from reference_scheduler.summary import command_of
from reference_scheduler.views import (
    AttemptView,
    JobView,
    RecordStatus,
    RecoveryReport,
    SchedulerSnapshot,
    array_sentence,
    end_of,
    in_order,
)


class Scheduler:
    """Runs jobs on this machine; all of it on the event loop that it was started in, but for what says otherwise.

    ``journal`` is a file, made if it is not there; without one nothing survives the object, or give a
    :class:`Journal`. ``executors`` run the jobs; without them those that come with the scheduler.
    """

    submission: JobSubmissionService
    recovery: RecoveryReport

    def __init__(
        self,
        settings: Settings | None = None,
        journal: Path | Journal | None = None,
        executors: ExecutorRegistry | Iterable[Executor] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.observers = Observers()
        self._where = journal
        self._processes: ManagedProcessService | None = None
        if executors is None:
            self._processes = ManagedProcessService()
            executors = default_registry(self._processes)
        self.executors = executors if isinstance(executors, ExecutorRegistry) else ExecutorRegistry(executors)
        self._record_path: Path | None = None
        self._closing: asyncio.Task[None] | None = None
        self._paused = False
        """Whether an operator wants it, whatever the configuration says."""

    # Start and end.

    async def start(self) -> Self:
        """Open the journal, put right what an earlier start left behind, and begin.

        Raises:
            JournalError: the journal is in use, damaged, or cannot be written.
            ConfigError: the settings name a plug-in or a kind that is not there.
            PluginError: a plug-in that is installed cannot be used.
        """
        plugins = Plugins(available_pickers(), available_allocators())
        check_plugins(self.settings, plugins)
        check_kinds(self.settings, self.executors.kinds)
        where = self._where
        self._journal = MemoryJournal() if where is None else SqliteJournal(where) if isinstance(where, Path) else where
        try:
            await self._begin(plugins)
        except BaseException:
            self._journal.close()
            raise
        return self

    async def _begin(self, plugins: Plugins) -> None:
        settings, journal = self.settings, self._journal
        self._plugins = plugins
        self._attempts = Attempts(journal, self.executors, settings, self.observers, self._ended)
        self._driver = LiveDriver(journal, self._attempts, self.observers, settings, plugins)
        self.submission = JobSubmissionService(self._driver, journal, self.executors, self._attempts, settings)
        self._paused = self._driver.wanted_paused
        core = self._driver.core
        recovery = Recovery(core)
        strays = await end_strays(journal.owner, self._driver.generation)
        await self._driver.start()
        self.recovery = recovery.report(core, strays, journal.notes)

    def _ended(self, live: LiveAttempt, result: AttemptResult) -> None:
        self._driver.post_end(live, result)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(self.settings.on_stop if error is None else StopMode.INTERRUPT)

    async def drain(self) -> None:
        """Take no more jobs, start none of those that wait, and return when none runs any more."""
        self.submission.closed = self._paused = True
        driver = self._driver
        none_left = self._none_left(driver.set_paused(True))
        ends = list(map(asyncio.ensure_future, (none_left, driver.broken.wait(), driver.gave_up.wait())))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def _none_left(self, paused: asyncio.Future[None]) -> None:
        with suppress(SchedulerStopping):  # it broke off
            await paused
            await self._attempts.none_left.wait()

    async def close(self, mode: StopMode = StopMode.DRAIN) -> None:
        """Stop for good: let running attempts end, or interrupt them. What waits is there at the next start.

        To interrupt while another call drains makes that one hurry; to do so again takes the grace from attempts. Who
        interrupts does not wait for a journal that cannot be written: what it lacks then was interrupted, for the next
        start.
        """
        self.submission.closed = self._paused = True
        if mode is StopMode.INTERRUPT:
            self._driver.set_paused(True)
            self._driver.in_a_hurry = True
            self._attempts.stop_all()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def finished(self) -> None:
        """Return once it is closed.

        Raises:
            Exception: the defect that made it break off; jobs that ran are recovered by the next start.
        """
        await self._driver.finished()

    async def _close(self) -> None:
        try:
            await self.drain()
            self.record_stop()
            await self._driver.stop()
        finally:
            self.observers.close()
            if self._processes is not None:
                await self._processes.close()
            self._attempts.release_all()
            self._journal.close()

    # Jobs.

    async def submit(self, request: JobRequest) -> JobView:
        """Submit a job or an array; it is durable when this returns. See :meth:`JobSubmissionService.submit`."""
        return self._view(self._row(await self.submission.submit(request)))

    async def submit_many(self, requests: Iterable[JobRequest]) -> list[Outcome]:
        """Submit jobs together. See :meth:`JobSubmissionService.submit_many`."""
        return await self.submission.submit_many(requests)

    def check(self, requests: Iterable[JobRequest]) -> list[SubmissionError | None]:
        """Submit nothing, and return why each would be refused. See :meth:`JobSubmissionService.check`."""
        return list(map(self.submission.check, requests))

    async def wait(self, job: str, timeout_s: float | None = None) -> JobView:
        """Return the job, or the array with the last of its jobs, once it has ended.

        Raises:
            NoSuchJob: there is no such job.
            TimeoutError: it has not ended within ``timeout_s``.
        """
        if self._driver.is_open(job) or self._row(job).ended_us is None:
            async with asyncio.timeout(timeout_s):
                await self._driver.ended(job)
        return self._view(self._row(job))

    async def run(self, request: JobRequest, own: Callable[[], Awaitable[AttemptResult]]) -> JobView:
        """Have a job run, and return it once it has ended: by the scheduler, or, if the rollout says so, by ``own``.

        Then ``own`` is called at once, and the scheduler records what it would have decided.

        Raises:
            SubmissionError: it was refused; an array always is, for ``own`` is one job.
        """
        if request.array_size:
            raise InvalidSubmission("array_size: one job is run and waited for; submit an array, and wait for it")
        job = await self.submit(request)
        if job.observed:
            try:
                result = await own()
            except BaseException as error:
                self.report(job.id, AttemptResult(AttemptState.FAILED, detail=told(error)))
                raise
            self.report(job.id, result)
        return await self.wait(job.id)

    def report(self, job: str, result: AttemptResult) -> bool:
        """Tell how the caller's own run of an observed job ended; ``False`` if that is known or not wanted."""
        return self._attempts.caller_ended(job, result)

    async def cancel(self, job: str, reason: str = "") -> JobView:
        """Have a job, or all of an array, end; the wish is durable when this returns. What has ended stays as it is.

        Raises:
            NoSuchJob: there is no such job.
        """
        self._row(job)
        await self._do(
            lambda at: CancelRequested(at=at, run_pass=False, job=job, reason=reason), WakeReason.CANCELLATION_REQUESTED
        )
        return self._view(self._row(job))

    async def update(self, job: str, priority: Priority) -> JobView:
        """Give a job another priority, which counts from its next start on; it is durable when this returns.

        Of an array, all jobs that have not ended get it together.

        Raises:
            NoSuchJob: there is no such job.
            JobEnded: it has ended.
        """
        self._row(job)
        command = Reprioritised(lambda: self._driver.core, job, priority)
        self._driver.post(command)
        await command.done
        return self._view(self._row(job))

    # Reading.

    def get(self, job: str) -> JobView:
        """Return a job as it durably is, with its payload.

        Raises:
            NoSuchJob: there is no such job.
        """
        row = self._row(job)
        return replace(self._detailed(row), payload=payload_of(row))

    def jobs(
        self,
        states: Collection[JobState] = (),
        kind: str = "",
        workspace: str = "",
        limit: int = 100,
        before: str = "",
        array: str = "",
    ) -> list[JobView]:
        """Return jobs, newest first; ``before`` is the last of those that were listed before.

        An array is one of them; its jobs are returned if it is the ``array`` asked for.

        Raises:
            NoSuchJob: there is no such array.
        """
        if array and not self._row(array).array_size:
            raise NoSuchJob(f"job {array} is no array")
        wanted = JobFilter(states, kind, workspace, before, limit, array)
        return [self._detailed(row) for row in self._journal.jobs(wanted)]

    def attempts(self, job: str) -> list[AttemptView]:
        """Return the attempts of a job, oldest first.

        Raises:
            NoSuchJob: there is no such job.
            IsArray: it is an array.
        """
        self._one(job)
        return [AttemptView.of(row) for row in self._journal.attempts(job)]

    def result(self, job: str) -> AttemptResult | None:
        """Return the result of the latest attempt of a job, ``None`` if there is none yet.

        Raises:
            NoSuchJob: there is no such job.
            IsArray: it is an array.
        """
        self._one(job)
        rows = self._journal.attempts(job)
        return decode_result(rows[-1].result) if rows and rows[-1].result else None

    async def logs(self, job: str, follow: bool = False) -> AsyncGenerator[OutputChunk, None]:
        """Yield what the latest attempt of a job has printed, as far as it was kept.

        With ``follow`` go on with what it prints as it does, and with later attempts, until the job has ended. Who is
        slow misses some of it, and holds up nobody. An executor that offers no output shows it at the attempt's end.

        Raises:
            NoSuchJob: there is no such job.
            IsArray: it is an array.
            SchedulerStopping: the scheduler stopped before the job ended.
        """
        self._one(job)
        async with aclosing(followed(job, follow, self._driver, self._attempts, self._journal)) as chunks:
            async for chunk in chunks:
                yield chunk

    def why(self, job: str) -> str:
        """Say in one sentence what became of a job, or what it waits for.

        Raises:
            NoSuchJob: there is no such job.
        """
        row = self._row(job)
        if row.array_size:
            hold = self._hold() if row.ended_us is None else None
            return array_sentence(row, self._journal.tasks(row), explained(hold, self._driver) if hold else "")
        if row.state not in TERMINAL:
            return self._waits_for(row)
        attempts = self.attempts(job)
        if attempts or row.state is not JobState.CANCELLED:
            return end_of(row, attempts)
        followed = [self._journal.job(other) for other in decode_request(row.request).after_ok]
        return end_of(row, [], [other for other in followed if other is not None])

    def _waits_for(self, row: JobRow) -> str:
        if row.observed:
            rollout = self.settings.rollout
            return f"Job {row.job} is run by its caller; under the rollout {rollout} the scheduler only records it."
        driver, hold = self._driver, self._hold()
        if hold is Hold.JOURNAL:  # the core may be ahead of what is durable
            return f"Job {row.job} is {row.state}, and {explained(hold, driver)}."
        return driver.core.why(row.job, driver.now_us(), explained(hold, driver) if hold else "")

    def _hold(self) -> Hold | None:
        return hold_of(self._driver, self.settings, draining=self.submission.closed)

    def snapshot(self) -> SchedulerSnapshot:
        """Return what monitors want to know."""
        return take_snapshot(self._driver, self._attempts, self.settings, self.executors, self._hold())

    def observe(self, limit: int = 1024) -> Subscription:
        """Return a stream of what happens from now on; of a reader who is slow, at most ``limit`` notices are kept."""
        return self.observers.subscribe(limit)

    def _row(self, job: str) -> JobRow:
        row = self._journal.job(job)
        if row is None:
            raise NoSuchJob(f"there is no job {job!r}, or it ended long ago and was forgotten")
        return row

    def _one(self, job: str) -> JobRow:
        row = self._row(job)
        if row.array_size:
            raise IsArray(f"job {job} is an array: name one of its jobs, {job}[0] to {job}[{row.array_size - 1}]")
        return row

    def _view(self, row: JobRow) -> JobView:
        live, waiting = self._attempts.of(row.job), self._driver.core.job(row.job)
        return JobView(
            id=row.job,
            kind=row.kind,
            state=row.state,
            priority=row.priority,
            user=row.user,
            workspace=row.workspace,
            session=row.session,
            queue=row.queue,
            key=row.key,
            attempts=row.attempts,
            exit_code=row.exit_code,
            reason=self._reason(row, waiting) if row.state not in TERMINAL else "",
            submitted_at_us=row.submitted_us,
            ended_at_us=row.ended_us,
            observed=row.observed,
            progress=live.progress if live else None,
            array=row.array,
            array_index=task[1] if (task := task_of(row.job)) else None,
            array_size=row.array_size,
            tasks=in_order(self._journal.tasks(row)) if row.array_size else {},
        )

    def _reason(self, row: JobRow, job: Job | None) -> str:
        hold = self._hold()
        if job is None:  # an array, or one whose end is not durable yet
            return (hold or "") if row.array_size else ""
        if hold is Hold.JOURNAL:
            return "" if row.state is JobState.RUNNING else hold
        return hold if hold and job.state is JobState.QUEUED else job.reason or ""

    def _detailed(self, row: JobRow) -> JobView:
        payload, latest = payload_of(row), self._journal.latest(row.job)
        return replace(
            self._view(row),
            command="…" if payload is None else command_of(payload),
            started_at_us=latest.started_us if latest else None,
            took_us=latest.ended_us - latest.started_us if latest and latest.ended_us is not None else None,
        )

    # Operating.

    async def pause(self, queue: str = "") -> None:
        """Start nothing more, or nothing of one queue, also after a restart; what runs goes on."""
        await self._set_paused(queue, True)

    async def resume(self, queue: str = "") -> None:
        """Undo :meth:`pause`, and :meth:`drain` if it is not about one queue.

        Raises:
            SchedulerStopping: it is being closed.
        """
        if self._closing is not None:
            raise SchedulerStopping("the scheduler is stopping, and starts nothing any more")
        await self._set_paused(queue, False)
        if not queue:
            self.submission.closed = False

    async def _set_paused(self, queue: str, paused: bool) -> None:
        if queue:
            await self._do(lambda at: QueueConfigured(at=at, run_pass=False, queue=queue, paused=paused))
        else:
            self._paused = paused
            await self._driver.set_paused(paused or not self.settings.core.enabled, wanted=paused)

    async def reload(self, settings: Settings) -> None:
        """Go on with other settings; attempts that run keep what they hold, and what is paused stays so.

        Raises:
            ConfigError: the settings name a plug-in or a kind that is not there.
        """
        check_plugins(settings, self._plugins)
        check_kinds(settings, self.executors.kinds)
        was_enabled = self.settings.core.enabled
        await self._do(lambda at: ConfigLoaded(at=at, run_pass=False, config=settings.core))
        self.settings = self.submission.settings = self._attempts.settings = self._driver.settings = settings
        if settings.core.enabled != was_enabled:
            await self._driver.set_paused(self._paused or not settings.core.enabled)

    async def _do(self, make: Callable[[int], Event], wake: WakeReason = WakeReason.MANUAL) -> None:
        command = Command(make, wake)
        self._driver.post(command)
        await command.done

    # Recording.

    def record_start(self, path: Path) -> RecordStatus:
        """Record all events and decisions from now on into ``path``; a log that is there is continued.

        A recording into another file ends.

        Raises:
            OSError: the file cannot be written.
            ReplayError: the file is no log, or damaged, or of another version of the core.
            SchedulerStopping: it is being closed.
        """
        if self._closing is not None:
            raise SchedulerStopping("the scheduler is stopping, and records nothing any more")
        under_way = self._record_path if self._driver.recorder is not None else None
        if under_way is not None and realpath(path) == realpath(under_way):  # two would write over each other
            return self.record_status()
        core = self._driver.core
        recorder = Recorder.resume(path, core)[0] if path.exists() else Recorder.start(path, core)
        self.record_stop()  # one that was under way goes on if the new one cannot begin
        self._driver.recorder, self._record_path = recorder, path
        return self.record_status()

    def record_stop(self) -> RecordStatus:
        """End the recording, if there is one, and say how it went."""
        recorder, self._driver.recorder = self._driver.recorder, None
        if recorder is None:
            return RecordStatus(False)
        error = ""
        try:
            recorder.close()
        except OSError as problem:
            error = str(problem)
        return RecordStatus(False, str(self._record_path), recorder.number, error)

    def record_status(self) -> RecordStatus:
        """Say whether a recording is under way."""
        recorder = self._driver.recorder
        if recorder is None:
            return RecordStatus(False)
        recorder.flush()
        return RecordStatus(True, str(self._record_path), recorder.number, str(recorder.error or ""))

    # By token.

    def user_of(self, token: str) -> str | None:
        """Return whose job it is that the attempt of ``token`` carries out, ``None`` if the token is stale."""
        job = self._driver.core.job(self._attempts.job_of(token))
        return None if job is None else job.spec.user

    def heartbeat(self, token: str) -> bool:
        """Say that an attempt is alive; ``False``: the token is stale, nothing happened. From any thread."""
        return self._attempts.heartbeat(token)

    def progress(self, token: str, progress: Progress) -> bool:
        """Say how far an attempt is; ``False``: the token is stale, nothing happened. From any thread."""
        return self._attempts.progress(token, progress)


def payload_of(row: JobRow) -> dict[str, Any] | None:
    """Return the payload of a job, ``None`` if its row comes without the request, or with one that cannot be read."""
    try:
        return decode_request(row.request).payload
    except msgspec.MsgspecError:
        return None


def check_plugins(settings: Settings, plugins: Plugins) -> None:
    """Raise ConfigError if ``settings`` name a picker or an allocator that is not there."""
    core = settings.core
    for key, name, known in (
        ("picker", core.picker, plugins.pickers),
        ("allocator", core.allocator, plugins.allocators),
    ):
        if core.enabled and name not in known:
            raise ConfigError(f"scheduler.{key}: must be one of {', '.join(known)}, got {name!r}")
