"""The one way in: checks a request, gives it to the driver, and answers when the job is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from operator import itemgetter

from reference_scheduler.config import Settings
from reference_scheduler.core.decisions import Decision, Reject, RejectCode
from reference_scheduler.core.events import Event, JobSubmitted
from reference_scheduler.core.model import JobSpec, JobState, Priority, task_id
from reference_scheduler.drivers.attempts import Attempts
from reference_scheduler.drivers.intents import WakeReason
from reference_scheduler.drivers.live import MAX_BATCH, LiveDriver
from reference_scheduler.errors import (
    ImpossibleRequest,
    InvalidSubmission,
    JournalUnavailable,
    QueueFull,
    SchedulerDisabled,
    SchedulerError,
    SchedulerStopping,
    SubmissionError,
    SubmissionKeyConflict,
    UnknownDependency,
    UnknownKind,
)
from reference_scheduler.executors import ExecutorRegistry
from reference_scheduler.executors.base import told
from reference_scheduler.journal.base import Batch, JobRow, Journal
from reference_scheduler.requests import JobRequest, encoded, fingerprint, spec_of

_REFUSALS: dict[RejectCode, type[SubmissionError]] = {
    RejectCode.DISABLED: SchedulerDisabled,
    RejectCode.UNKNOWN_DEPENDENCY: UnknownDependency,
    RejectCode.IMPOSSIBLE: ImpossibleRequest,
    RejectCode.QUEUE_FULL: QueueFull,
}

Outcome = str | SubmissionError
"""The id of the job, or why there is none."""


class JobSubmissionService:
    """Takes requests for a running scheduler.

    A job whose id was returned is durable. What is refused has left no trace and can be submitted again.
    """

    def __init__(
        self, driver: LiveDriver, journal: Journal, executors: ExecutorRegistry, attempts: Attempts, settings: Settings
    ) -> None:
        self.settings = settings
        self.closed = False
        self._driver = driver
        self._journal = journal
        self._executors = executors
        self._attempts = attempts
        self._last_job = driver.last_job
        self._keys: dict[str, _Submission] = {}

    async def submit(self, request: JobRequest) -> str:
        """Submit one job or array and return its id; with a key that was used before, that of the job it made.

        Raises:
            SubmissionError: it was refused; the type says why.
        """
        (outcome,) = await self.submit_many([request])
        if isinstance(outcome, SubmissionError):
            raise outcome
        return outcome

    async def submit_many(self, requests: Iterable[JobRequest]) -> list[Outcome]:
        """Submit jobs, each of which is accepted or refused by itself; return their outcomes in the same order."""
        outcomes = _Outcomes()
        for number, request in enumerate(requests, 1):
            try:
                submission = self._submission(request, outcomes)
            except SubmissionError as error:
                outcomes.values.append(error)
            else:
                outcomes.expect()
                self._driver.post(submission)
            if number % MAX_BATCH == 0:
                await asyncio.sleep(0)  # let others have their turn
        return await outcomes.all()

    def check(self, request: JobRequest) -> SubmissionError | None:
        """Return why ``request`` would be refused, ``None`` if that depends on what else there is by then."""
        try:
            _, request = self._checked(request)
            self.check_size(request)
            self.spec(request, "1", 0)
        except SubmissionError as error:
            return error
        return None

    def _submission(self, request: JobRequest, outcomes: _Outcomes) -> _Submission:
        raw, request = self._checked(request)
        return _Submission(self, request, raw, len(outcomes.values), outcomes)

    def _checked(self, request: JobRequest) -> tuple[bytes, JobRequest]:
        """Return the request as it is kept, and as it is read."""
        if not self.settings.core.enabled:
            raise SchedulerDisabled("the scheduler is disabled: set scheduler.enabled to true, or run nothing")
        if self.closed:
            raise SchedulerStopping("the scheduler is stopping; submit again once it has started anew")
        if self._driver.unavailable:
            raise JournalUnavailable(self._driver.unavailable)
        raw, request = encoded(request)
        if request.kind not in self._executors:
            kinds = ", ".join(sorted(self._executors.kinds))
            raise UnknownKind(f"kind must be one of {kinds}, got {request.kind!r}")
        try:
            self._executors.of(request.kind).check(request.payload)
        except ValueError as error:
            raise InvalidSubmission(str(error)) from error
        except Exception as error:  # others may be submitted together with this one
            raise InvalidSubmission(f"the executor of {request.kind!r} cannot check it: {told(error)}") from error
        return raw, request

    # What submissions need while they are handled; on the loop, one at a time.

    def check_size(self, request: JobRequest) -> None:
        """Refuse an array that would not fit if nothing waited: the core tells it no otherwise than a full queue."""
        bounds = self.settings.core.queue
        most = {"max_total": bounds.max_total, "max_per_workspace": bounds.max_per_workspace}
        if request.priority is Priority.INTERACTIVE and request.session:
            most["max_interactive_per_session"] = bounds.max_interactive_per_session
        name, least = min(most.items(), key=itemgetter(1))
        if request.array_size > least:
            raise ImpossibleRequest(
                f"array_size is {request.array_size}, and at most {least} jobs may wait: all of an array wait at "
                f"first, so submit smaller ones or raise {name} in [scheduler.queue]"
            )

    def spec(self, request: JobRequest, job: str, now_us: int) -> JobSpec:
        """Return what the core is told of ``request``.

        Raises:
            InvalidSubmission: a field is out of bounds; the message names it.
        """
        try:
            return spec_of(request, job, self.settings.profile(request.kind), now_us)
        except ValueError as error:
            raise InvalidSubmission(str(error)) from error

    def next_job(self, array_size: int) -> str:
        """Return an id that no job ever had, with as many after it for the jobs of an array."""
        job = self._last_job + 1
        self._last_job = job + array_size
        return str(job)

    def first_of(self, submission: _Submission) -> _Submission | str | None:
        """Return who has the key of ``submission`` already: one that is not yet durable, or a job.

        Raises:
            SubmissionKeyConflict: the key belongs to another request.
        """
        key = submission.request.key
        pending = self._keys.get(key)
        found = self._journal.job_of_key(key) if pending is None else None
        first = pending.fingerprint if pending is not None else found[1] if found is not None else None
        if first is not None and first != submission.fingerprint:
            raise SubmissionKeyConflict(f"the submission key {key!r} belongs to another request")
        if pending is None and found is None:
            self._keys[key] = submission
        return pending or (found[0] if found else None)

    def release_key(self, submission: _Submission) -> None:
        """Forget that ``submission`` is under way: it is durable, or nothing."""
        if self._keys.get(submission.request.key) is submission:
            del self._keys[submission.request.key]

    def observe(self, job: str) -> None:
        """Let the caller of ``job``, which is not run here, report its end."""
        self._attempts.expect_caller(job)

    def forget(self, job: str) -> None:
        """Undo :meth:`observe`: there is no such job."""
        self._attempts.forget_caller(job)


class _Outcomes:
    """The outcomes of submissions that were made together."""

    def __init__(self) -> None:
        self.values: list[Outcome] = []
        self._open = 0
        self._complete = asyncio.Event()

    def expect(self) -> None:
        """Keep a place for the outcome of one more."""
        self._open += 1
        self.values.append("")

    def set(self, index: int, outcome: Outcome) -> None:
        """Take the outcome of one that was waited for; the first stays, for a driver that breaks off refuses all."""
        if self.values[index] == "":
            self.values[index] = outcome
            self._open -= 1
            if not self._open:
                self._complete.set()

    async def all(self) -> list[Outcome]:
        """Wait until all are there."""
        while self._open:
            self._complete.clear()
            await self._complete.wait()
        return self.values


class _Submission:
    """A request on its way; see :class:`reference_scheduler.drivers.intents.Intent`."""

    wake = WakeReason.JOB_ENQUEUED

    def __init__(
        self, service: JobSubmissionService, request: JobRequest, raw: bytes, index: int, outcomes: _Outcomes
    ) -> None:
        self.request = request
        self.fingerprint = fingerprint(raw)
        self._service = service
        self._raw = raw
        self._index = index
        self._outcomes = outcomes
        self._job = ""
        self._observed = False
        self._same: list[_Submission] = []

    def event(self, now_us: int) -> Event | None:
        """See :meth:`Intent.event`."""
        service, request = self._service, self.request
        if request.key:
            first = service.first_of(self)
            if isinstance(first, str):
                self._settle(first)
                return None
            if first is not None:
                first._same.append(self)
                return None
        service.check_size(request)
        self._job = service.next_job(request.array_size)
        self._observed = not service.settings.executes(request.kind)
        spec = service.spec(request, self._job, now_us)
        if not request.array_size:
            return JobSubmitted(at=now_us, run_pass=False, job=spec)
        return JobSubmitted(
            at=now_us, run_pass=False, job=spec, array_size=request.array_size, array_running=request.array_running
        )

    def add_rows(self, batch: Batch, decisions: Sequence[Decision]) -> None:
        """See :meth:`Intent.add_rows`."""
        if _refusal(self._job, decisions) is not None:
            return
        request = self.request
        row = JobRow(
            self._job,
            request.kind,
            request.priority.value,
            request.user,
            request.workspace,
            request.session,
            request.queue,
            request.key,
            self.fingerprint,
            self._raw,
            batch.wall_us,
            self._observed,
            JobState.QUEUED,
            array_size=request.array_size,
        )
        batch.jobs.append(row)
        if self._observed:  # by the time that this is durable, attempts may have begun that ask for their callers
            for job in self._names():
                self._service.observe(job)

    def _names(self) -> Iterable[str]:
        """Return the jobs that it makes."""
        size = self.request.array_size
        return (task_id(self._job, index) for index in range(size)) if size else (self._job,)

    def durable(self, decisions: Sequence[Decision]) -> None:
        """See :meth:`Intent.durable`."""
        refusal = _refusal(self._job, decisions)
        if refusal is not None:
            size, reason = self.request.array_size, refusal.reason
            if size and refusal.code is RejectCode.QUEUE_FULL:
                reason = f"{reason}, and {size} more were to be submitted together"
            self._settle(_REFUSALS.get(refusal.code, InvalidSubmission)(reason))
            return
        self._settle(self._job)

    def refused(self, error: SchedulerError) -> bool:
        """See :meth:`Intent.refused`."""
        if self._observed:
            for job in self._names():
                self._service.forget(job)
        self._settle(error if isinstance(error, SubmissionError) else SchedulerStopping(str(error)))
        return False

    def _settle(self, outcome: Outcome) -> None:
        self._service.release_key(self)
        self._outcomes.set(self._index, outcome)
        for other in self._same:
            other._settle(outcome)


def _refusal(job: str, decisions: Sequence[Decision]) -> Reject | None:
    if not decisions:
        return None
    return next((decision for decision in decisions if isinstance(decision, Reject) and decision.job == job), None)
