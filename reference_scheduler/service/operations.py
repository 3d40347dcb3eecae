"""What each request does: the same methods that programs call on a scheduler."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import assert_never

import msgspec
from msgspec.structs import replace

from reference_scheduler.executors.base import Progress
from reference_scheduler.observers import Gap
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.service import protocol
from reference_scheduler.service.bounds import Places
from reference_scheduler.service.errors import BadRequest, Denied, ServiceError, WaitedLongEnough
from reference_scheduler.service.metrics import exposition
from reference_scheduler.service.protocol import (
    MAX_JOBS,
    MAX_PROGRESS_BYTES,
    VERSION,
    AnyRequest,
    Began,
    Greeting,
    Operating,
    Outcome,
    Reading,
    Request,
    Streamed,
    Submitting,
    problem_of,
)
from reference_scheduler.service.roles import Peer, Role
from reference_scheduler.views import JobView, RecordStatus


class Operations:
    """Carries out requests of peers on ``scheduler``; admin operations need one of ``places``."""

    def __init__(self, scheduler: Scheduler, journal: Path, places: Places) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._places = places

    async def __call__(self, peer: Peer, request: AnyRequest) -> object:
        """Return what the request gives: a value, or a stream of events.

        Raises:
            SchedulerError: it is refused.
        """
        allow(peer, type(request))
        if isinstance(request, Reading):
            return await self._read(peer, request)
        if isinstance(request, Submitting):
            return await self._submit(peer, request)
        if isinstance(request, protocol.Drain):  # it may take hours, and must not hold up who wants to end it
            return await asyncio.shield(asyncio.ensure_future(self._scheduler.drain()))
        with self._places.place(peer.uid):
            return await self._operate(request)

    async def _read(self, peer: Peer, request: Reading) -> object:
        scheduler = self._scheduler
        match request:
            case protocol.Hello():
                role = peer.role.name.lower()
                return Greeting((VERSION,), role, peer.user, os.getpid(), str(self._journal), scheduler.recovery)
            case protocol.Get(job=job):
                view = scheduler.get(job)
                return view if is_own(peer, view) else replace(view, payload=None)
            case protocol.ListJobs():
                limit = _bounded("limit", request.limit)
                return scheduler.jobs(
                    request.states, request.kind, request.workspace, limit, request.before, request.array
                )
            case protocol.Attempts(job=job):
                return scheduler.attempts(job)
            case protocol.Why(job=job):
                return scheduler.why(job)
            case protocol.Wait(job=job, timeout_us=timeout_us):
                try:
                    return await scheduler.wait(job, None if timeout_us is None else timeout_us / 1e6)
                except TimeoutError:
                    raise WaitedLongEnough(f"job {job} has not ended yet") from None
            case protocol.Events(job=job):
                return events(scheduler, job)
            case protocol.Metrics():
                return exposition(scheduler.snapshot())
            case protocol.Snapshot():
                return scheduler.snapshot()
            case protocol.RecordStatus():
                return scheduler.record_status()
        assert_never(request)

    async def _submit(self, peer: Peer, request: Submitting) -> object:
        scheduler = self._scheduler
        match request:
            case protocol.Submit(job=job):
                return await scheduler.submit(own(peer, job))
            case protocol.SubmitMany(jobs=jobs):
                _bounded("number of jobs", len(jobs))
                outcomes = await scheduler.submit_many([own(peer, job) for job in jobs])
                return [
                    Outcome(found) if isinstance(found, str) else Outcome("", problem_of(found)) for found in outcomes
                ]
            case protocol.Check(jobs=jobs):
                _bounded("number of jobs", len(jobs))
                refusals = scheduler.check(own(peer, job) for job in jobs)
                return [None if found is None else problem_of(found) for found in refusals]
            case protocol.Result(job=job):
                self._check_own(peer, job)
                return scheduler.result(job)
            case protocol.Logs(job=job, follow=follow):
                self._check_own(peer, job)
                return scheduler.logs(job, follow)
            case protocol.Cancel(job=job, reason=reason):
                self._check_own(peer, job)
                return await scheduler.cancel(job, reason)
            case protocol.Update(job=job, priority=priority):
                self._check_own(peer, job)
                return await scheduler.update(job, priority)
            case protocol.Report(job=job, result=result):
                self._check_own(peer, job)
                return scheduler.report(job, result)
            case protocol.Heartbeat(token=token):
                self._check_token(peer, token)
                return scheduler.heartbeat(token)
            case protocol.ReportProgress(token=token, progress=progress):
                check_progress(progress)
                self._check_token(peer, token)
                return scheduler.progress(token, progress)
        assert_never(request)

    async def _operate(self, request: Operating) -> object:
        scheduler = self._scheduler
        match request:
            case protocol.Pause(queue=queue):
                await scheduler.pause(queue)
            case protocol.Resume(queue=queue):
                await scheduler.resume(queue)
            case protocol.RecordStop():
                return scheduler.record_stop()
            case protocol.RecordStart(path=path):
                return record_start(scheduler, Path(path))
        return None

    def _check_own(self, peer: Peer, job: str) -> None:
        if not is_own(peer, self._scheduler.get(job)):
            raise Denied(f"job {job} is another user's; that takes the admin role")

    def _check_token(self, peer: Peer, token: str) -> None:
        """Refuse to act for an attempt of another user's job; tokens can be guessed, and a stale one does nothing."""
        if self._scheduler.user_of(token) not in (None, peer.user) and peer.role < Role.ADMIN:
            raise Denied("the attempt is of another user's job; that takes the admin role")


def allow(peer: Peer, request: type[Request]) -> None:
    """Raise Denied unless the role of ``peer`` is enough for this kind of request."""
    if peer.role < request.needs:
        op, needed, has = request.__struct_config__.tag, request.needs.name.lower(), peer.role.name.lower()
        raise Denied(
            f"{op} takes the role {needed}, {peer.user} has {has}: see [scheduler.service] in the configuration"
        )


def is_own(peer: Peer, job: JobView) -> bool:
    """Return whether ``job`` is the peer's own, as all are an admin's."""
    return job.user == peer.user or peer.role >= Role.ADMIN


def own(peer: Peer, job: JobRequest) -> JobRequest:
    """Return ``job`` with its user, who is the peer unless an admin says otherwise.

    Raises:
        Denied: the peer is no admin and names somebody else.
    """
    if job.user and job.user != peer.user and peer.role < Role.ADMIN:
        raise Denied(f"user: {peer.user} cannot submit jobs of {job.user!r}; that takes the admin role")
    return job if job.user else replace(job, user=peer.user)


def check_progress(progress: Progress) -> None:
    """Raise BadRequest if ``progress`` is too large to be shown to everybody."""
    size = len(msgspec.json.encode(progress))
    if size > MAX_PROGRESS_BYTES:
        raise BadRequest(f"progress: has {size} bytes, at most {MAX_PROGRESS_BYTES} are taken")


async def events(scheduler: Scheduler, job: str) -> AsyncGenerator[Streamed, None]:
    """Yield what happens from now on to ``job``, or to all if that is empty; of a gap nobody knows whose it is.

    What happens to the jobs of an array happens to it.
    """
    subscription = scheduler.observe()
    try:
        yield Began()
        async for found in subscription:
            if isinstance(found, Gap) or not job or found.job == job or found.job.startswith(f"{job}["):
                yield found
    finally:
        subscription.close()


def record_start(scheduler: Scheduler, path: Path) -> RecordStatus:
    """Have ``scheduler`` record into ``path``.

    Raises:
        ServiceError: that is no place for a log; the message says why.
    """
    if not path.is_absolute():
        raise BadRequest(f"path: must be absolute, got {str(path)!r}")
    try:
        if path.exists() and not path.is_file():
            raise ServiceError(f"{path}: is no file")  # to open a pipe would hold up everything
        return scheduler.record_start(path)
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # no path at all, or no log
        raise ServiceError(f"{str(path)!r}: {error}") from error


def _bounded(name: str, count: int) -> int:
    if not 1 <= count <= MAX_JOBS:
        raise BadRequest(f"{name} must be between 1 and {MAX_JOBS}, got {count}")
    return count
