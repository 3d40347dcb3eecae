"""Talks to a scheduler that runs as a service; errors are of the types that the scheduler itself raises."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from msgspec import structs

from reference_scheduler.core.model import JobState, Priority
from reference_scheduler.errors import InvalidSubmission, SchedulerError
from reference_scheduler.executors.base import AttemptResult, Progress
from reference_scheduler.logs import OutputChunk
from reference_scheduler.observers import Gap, Notice
from reference_scheduler.requests import JobRequest, what_is_wrong
from reference_scheduler.service import protocol
from reference_scheduler.service.errors import Unreachable
from reference_scheduler.service.places import default_socket
from reference_scheduler.service.protocol import (
    MAX_JOBS,
    MAX_REQUEST_BYTES,
    Began,
    Greeting,
    JobToSubmit,
    Outcome,
    Problem,
    Received,
    Request,
    Streamed,
    decode_answer,
    error_of,
    line_of,
)
from reference_scheduler.views import AttemptView, JobView, RecordStatus, SchedulerSnapshot

Form = TypeVar("Form")
_MAYBE_RESULT: type[AttemptResult | None] = AttemptResult | None  # type: ignore[assignment]
_CHUNK_BYTES = MAX_REQUEST_BYTES // 2


class Client:
    """One connection, for one thread. All methods raise SchedulerError, of the type that tells why.

    Raises:
        Unreachable: no scheduler answers at ``path``.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_socket()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(self.path))
        except OSError as error:
            self._socket.close()
            raise Unreachable(
                f"no scheduler answers at {self.path} ({error.strerror or error}): start one with refsched serve, "
                "or name its socket with --socket"
            ) from error
        self._answers = self._socket.makefile("rb")

    def close(self) -> None:
        """End the connection; what was asked for and not answered is given up."""
        self._answers.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Jobs.

    def submit(self, job: JobRequest) -> JobView:
        """Submit a job or an array; it is durable when this returns."""
        return self._ask(protocol.Submit(job=_checked(job)), JobView)

    def submit_many(self, jobs: Iterable[JobRequest]) -> list[str | SchedulerError]:
        """Submit any number of jobs, and return the id of each, or why it was refused, in the same order."""
        found: list[str | SchedulerError] = []
        for chunk in _chunks(jobs):
            outcomes = self._ask(protocol.SubmitMany(jobs=chunk), list[Outcome])
            found += [error_of(outcome.error) if outcome.error else outcome.job for outcome in outcomes]
        return found

    def check(self, jobs: Iterable[JobRequest]) -> list[SchedulerError | None]:
        """Submit nothing, and return why each job would be refused, as far as that can be told before."""
        found: list[SchedulerError | None] = []
        for chunk in _chunks(jobs):
            problems = self._ask(protocol.Check(jobs=chunk), list[Problem | None])
            found += [None if problem is None else error_of(problem) for problem in problems]
        return found

    def get(self, job: str) -> JobView:
        """Return a job as it durably is."""
        return self._ask(protocol.Get(job=job), JobView)

    def wait(self, job: str, timeout_s: float | None = None) -> JobView:
        """Return the job once it has ended; WaitedLongEnough after ``timeout_s``."""
        timeout_us = None if timeout_s is None else max(0, round(timeout_s * 1e6))
        return self._ask(protocol.Wait(job=job, timeout_us=timeout_us), JobView)

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
        """
        request = protocol.ListJobs(
            states=tuple(states), kind=kind, workspace=workspace, limit=limit, before=before, array=array
        )
        return self._ask(request, list[JobView])

    def attempts(self, job: str) -> list[AttemptView]:
        """Return the attempts of a job, oldest first."""
        return self._ask(protocol.Attempts(job=job), list[AttemptView])

    def result(self, job: str) -> AttemptResult | None:
        """Return the result of the latest attempt, ``None`` if there is none yet."""
        return self._ask(protocol.Result(job=job), _MAYBE_RESULT)

    def logs(self, job: str, follow: bool = False) -> Iterator[OutputChunk]:
        """Yield what the latest attempt of a job has printed, with ``follow`` also what comes until the job has ended.

        Ask nothing else meanwhile. Who is slow misses some of it, and holds up nobody.
        """
        for event in self._stream(protocol.Logs(job=job, follow=follow)):
            assert isinstance(event, OutputChunk)
            yield event

    def why(self, job: str) -> str:
        """Return in one sentence what became of a job, or what it waits for."""
        return self._ask(protocol.Why(job=job), str)

    def cancel(self, job: str, reason: str = "") -> JobView:
        """Have a job end; the wish is durable when this returns."""
        return self._ask(protocol.Cancel(job=job, reason=reason), JobView)

    def update(self, job: str, priority: Priority) -> JobView:
        """Give a job another priority; it is durable when this returns."""
        return self._ask(protocol.Update(job=job, priority=priority), JobView)

    # By token.

    def report(self, job: str, result: AttemptResult) -> bool:
        """Tell how the caller's own run of an observed job ended; ``False`` if that is known or not wanted."""
        return self._ask(protocol.Report(job=job, result=result), bool)

    def heartbeat(self, token: str) -> bool:
        """Say that an attempt is alive; ``False``: the token is stale."""
        return self._ask(protocol.Heartbeat(token=token), bool)

    def progress(self, token: str, progress: Progress) -> bool:
        """Say how far an attempt is; ``False``: the token is stale."""
        return self._ask(protocol.ReportProgress(token=token, progress=progress), bool)

    # The scheduler.

    def hello(self) -> Greeting:
        """Return who answers, and what the caller may do there."""
        return self._ask(protocol.Hello(), Greeting)

    def snapshot(self) -> SchedulerSnapshot:
        """Return what monitors want to know."""
        return self._ask(protocol.Snapshot(), SchedulerSnapshot)

    def metrics(self) -> str:
        """Return the same in the text format of Prometheus."""
        return self._ask(protocol.Metrics(), str)

    def events(self, job: str = "") -> Iterator[Began | Notice | Gap]:
        """Yield a ``Began``, and what happens from then on until the scheduler stops; ask nothing else meanwhile."""
        for event in self._stream(protocol.Events(job=job)):
            assert not isinstance(event, OutputChunk)
            yield event

    def pause(self, queue: str = "") -> None:
        """Start nothing more, or nothing of one queue."""
        self._ask(protocol.Pause(queue=queue), type(None))

    def resume(self, queue: str = "") -> None:
        """Undo :meth:`pause` and :meth:`drain`."""
        self._ask(protocol.Resume(queue=queue), type(None))

    def drain(self) -> None:
        """Have no more jobs taken or started, and return when none runs any more."""
        self._ask(protocol.Drain(), type(None))

    def record_start(self, path: Path) -> RecordStatus:
        """Have the scheduler record into a file."""
        return self._ask(protocol.RecordStart(path=str(path.absolute())), RecordStatus)

    def record_stop(self) -> RecordStatus:
        """End the recording, and return how it went."""
        return self._ask(protocol.RecordStop(), RecordStatus)

    def record_status(self) -> RecordStatus:
        """Return whether a recording is under way."""
        return self._ask(protocol.RecordStatus(), RecordStatus)

    # The wire.

    def _ask(self, request: Request, form: type[Form]) -> Form:
        self._send(request)
        return msgspec.json.decode(self._receive().ok, type=form)

    def _stream(self, request: Request) -> Iterator[Streamed]:
        self._send(request)
        while (answer := self._receive()).event is not msgspec.UNSET:
            yield answer.event

    def _send(self, request: Request) -> None:
        try:
            self._socket.sendall(_line(request))
        except OSError as error:
            # What the scheduler said before it hung up tells more than the broken pipe.
            self._receive()
            raise self._lost() from error

    def _receive(self) -> Received:
        try:
            line = self._answers.readline()
        except OSError as error:
            raise self._lost() from error
        if not line.endswith(b"\n"):
            raise self._lost()
        answer = decode_answer(line)
        if answer.error is not msgspec.UNSET:
            raise error_of(answer.error)
        return answer

    def _lost(self) -> Unreachable:
        return Unreachable(f"the scheduler at {self.path} hung up; what it did not answer may not have happened")


def _line(request: Request) -> bytes:
    try:
        return line_of(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidSubmission(f"no JSON: {what_is_wrong(error)}") from error


def _checked(job: JobRequest) -> JobToSubmit:
    return job if isinstance(job, JobToSubmit) else JobToSubmit(**structs.asdict(job))


def _chunks(jobs: Iterable[JobRequest]) -> Iterator[tuple[JobToSubmit, ...]]:
    """Yield the jobs in groups that fit into one request each."""
    chunk: list[JobToSubmit] = []
    size = 0
    for job in map(_checked, jobs):
        job_bytes = len(_line(protocol.Submit(job=job)))
        if chunk and (len(chunk) == MAX_JOBS or size + job_bytes > _CHUNK_BYTES):
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(job)
        size += job_bytes
    if chunk:
        yield tuple(chunk)
