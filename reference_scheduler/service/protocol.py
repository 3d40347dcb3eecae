"""What goes over the socket: one JSON object per line each way. ``docs/service.md`` is the specification."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from reference_scheduler.core.model import MAX_TIME_US, JobState, Priority
from reference_scheduler.errors import SchedulerError
from reference_scheduler.executors.base import AttemptResult, Progress
from reference_scheduler.logs import OutputChunk
from reference_scheduler.observers import Gap, Notice
from reference_scheduler.requests import JobRequest
from reference_scheduler.service.errors import BadRequest, ServiceError, UnsupportedVersion
from reference_scheduler.service.roles import Role
from reference_scheduler.views import RecoveryReport

VERSION = 1
MAX_REQUEST_BYTES = 2 << 20
"""The longest line that is read; a payload of the greatest size fits, however JSON has to write it."""
MAX_PROGRESS_BYTES = 4096
"""The longest progress, in JSON; every observer gets a copy."""
MAX_JOBS = 1000
"""Jobs in one request to submit many, or in one answer that lists them."""


def _tag(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


Id = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Time = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_US)]
Label = Annotated[str, msgspec.Meta(max_length=1000)]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag=_tag):
    """One request: ``op`` is the name of the class in snake case, ``id`` comes back with every answer to it."""

    needs: ClassVar[Role] = Role.READER
    v: int = VERSION
    id: Id = 0


class JobToSubmit(JobRequest, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job request in which a misspelt field is an error."""


class Hello(Request, frozen=True, kw_only=True):
    """Who are you, and what may I do? Gives a :class:`Greeting`."""


class Get(Request, frozen=True, kw_only=True):
    """Gives the ``JobView``, with its payload; of other users' jobs that only to admins."""

    job: str


class ListJobs(Request, frozen=True, kw_only=True, tag="list"):
    """Gives at most ``limit`` ``JobView``, newest first; ``before`` is the last of those listed before.

    An array is one of them; its jobs are listed if it is the ``array`` asked for.
    """

    states: tuple[JobState, ...] = ()
    kind: str = ""
    workspace: str = ""
    limit: int = 100
    before: str = ""
    array: str = ""


class Attempts(Request, frozen=True, kw_only=True):
    """Gives the ``AttemptView`` of a job, oldest first."""

    job: str


class Why(Request, frozen=True, kw_only=True):
    """Gives a sentence: what became of a job, or what it waits for."""

    job: str


class Wait(Request, frozen=True, kw_only=True):
    """Gives the ``JobView`` once the job has ended, or the error ``timeout`` after ``timeout_us``."""

    job: str
    timeout_us: Time | None = None


class Snapshot(Request, frozen=True, kw_only=True):
    """Gives the ``SchedulerSnapshot``."""


class Metrics(Request, frozen=True, kw_only=True):
    """Gives a text in the exposition format of Prometheus."""


class Events(Request, frozen=True, kw_only=True):
    """Gives a ``Began``, then every ``Notice``, of one job or of all, and a ``Gap`` where some were missed."""

    job: str = ""


class RecordStatus(Request, frozen=True, kw_only=True):
    """Gives the ``RecordStatus``."""


class Result(Request, frozen=True, kw_only=True):
    """Gives the ``AttemptResult`` of the latest attempt, ``null`` if there is none; of other users' jobs to admins."""

    needs = Role.SUBMITTER
    job: str


class Logs(Request, frozen=True, kw_only=True):
    """Gives an ``OutputChunk`` for what the latest attempt of a job has printed, and for what it goes on to print.

    With ``follow`` until the job has ended, as it prints it; of other users' jobs to admins.
    """

    needs = Role.SUBMITTER
    job: str
    follow: bool = False


class Submit(Request, frozen=True, kw_only=True):
    """Gives the ``JobView`` of a job that is durable."""

    needs = Role.SUBMITTER
    job: JobToSubmit


class SubmitMany(Request, frozen=True, kw_only=True):
    """Gives an ``Outcome`` for each job, in the same order."""

    needs = Role.SUBMITTER
    jobs: tuple[JobToSubmit, ...]


class Check(Request, frozen=True, kw_only=True):
    """Submits nothing; gives for each job the ``Problem`` it would be refused for, ``null`` if none is seen yet."""

    needs = Role.SUBMITTER
    jobs: tuple[JobToSubmit, ...]


class Cancel(Request, frozen=True, kw_only=True):
    """Gives the ``JobView`` when the wish is durable; of other users' jobs to admins."""

    needs = Role.SUBMITTER
    job: str
    reason: Label = ""


class Update(Request, frozen=True, kw_only=True):
    """Gives a job another priority, and the ``JobView`` when that is durable; of other users' jobs to admins."""

    needs = Role.SUBMITTER
    job: str
    priority: Priority


class Report(Request, frozen=True, kw_only=True):
    """Tells how the caller's own run of an observed job ended; gives whether that was wanted; of others' to admins."""

    needs = Role.SUBMITTER
    job: str
    result: AttemptResult


class Heartbeat(Request, frozen=True, kw_only=True):
    """Says that the attempt of ``token`` is alive; gives ``false`` if the token is stale; of other users' to admins."""

    needs = Role.SUBMITTER
    token: str


class ReportProgress(Request, frozen=True, kw_only=True, tag="progress"):
    """Says how far the attempt of ``token`` is; gives ``false`` if the token is stale; of other users' to admins."""

    needs = Role.SUBMITTER
    token: str
    progress: Progress


class Pause(Request, frozen=True, kw_only=True):
    """Starts nothing more, or nothing of one queue."""

    needs = Role.ADMIN
    queue: Label = ""


class Resume(Request, frozen=True, kw_only=True):
    """Undoes ``pause`` and ``drain``."""

    needs = Role.ADMIN
    queue: Label = ""


class Drain(Request, frozen=True, kw_only=True):
    """Takes no more jobs, starts none, and answers when none runs any more."""

    needs = Role.ADMIN


class RecordStart(Request, frozen=True, kw_only=True):
    """Records into the file at an absolute path; gives the ``RecordStatus``."""

    needs = Role.ADMIN
    path: str


class RecordStop(Request, frozen=True, kw_only=True):
    """Ends the recording; gives the ``RecordStatus``."""

    needs = Role.ADMIN


Reading = Hello | Get | ListJobs | Attempts | Why | Wait | Snapshot | Metrics | Events | RecordStatus
Submitting = Result | Logs | Submit | SubmitMany | Check | Cancel | Update | Report | Heartbeat | ReportProgress
Operating = Pause | Resume | Drain | RecordStart | RecordStop
AnyRequest = Reading | Submitting | Operating


class Greeting(msgspec.Struct, frozen=True):
    """Who answers, and what the peer may do there."""

    versions: tuple[int, ...]
    role: str
    user: str
    pid: int
    journal: str
    recovery: RecoveryReport


class Problem(msgspec.Struct, frozen=True):
    """An error: a stable code and a sentence that says what to do."""

    code: str
    message: str


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The id of a job that was accepted, or why it was not."""

    job: str = ""
    error: Problem | None = None


class Began(msgspec.Struct, frozen=True, tag=True):
    """A stream of events begins; whatever happens from here on is in it."""


Streamed = Began | Notice | Gap | OutputChunk


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line to the peer: the result ``ok``, one ``event`` of a stream, or an ``error``."""

    id: int
    ok: Any = msgspec.UNSET
    event: Streamed | msgspec.UnsetType = msgspec.UNSET
    error: Problem | msgspec.UnsetType = msgspec.UNSET


class Received(msgspec.Struct, frozen=True):
    """The same as the client reads it, before it knows what ``ok`` is to be."""

    id: int
    ok: msgspec.Raw = msgspec.Raw()
    event: Streamed | msgspec.UnsetType = msgspec.UNSET
    error: Problem | msgspec.UnsetType = msgspec.UNSET


class _Envelope(msgspec.Struct, frozen=True):
    v: int = VERSION
    id: Id = 0


_encode = msgspec.json.Encoder().encode
_decode_request: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
decode_answer = msgspec.json.Decoder(Received).decode
Form = TypeVar("Form")


def line_of(message: Request | Answer) -> bytes:
    """Return the line that carries ``message``.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: something in it is no JSON value.
    """
    return _encode(message) + b"\n"


def read_request(line: bytes) -> AnyRequest:
    """Return the request in ``line``.

    Raises:
        BadRequest: it is none, or of another version; the message says what is wrong.
    """
    try:
        request = _decode_request.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        check_version(_envelope(line).v)
        raise BadRequest(f"no request: {error}") from None
    check_version(request.v)
    return request


def check_version(version: int) -> None:
    """Raise UnsupportedVersion unless ``version`` is the one spoken here."""
    if version != VERSION:
        raise UnsupportedVersion(f"version {version} of the protocol is not spoken here, only {VERSION}")


def id_of(line: bytes) -> int:
    """Return the id in a line that is no good request, 0 if it cannot be told."""
    return _envelope(line).id


def _envelope(line: bytes) -> _Envelope:
    try:
        return _decode_envelope(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Envelope()


def problem_of(error: SchedulerError) -> Problem:
    """Return ``error`` as it is sent: on one line."""
    return Problem(error.code, " ".join(str(error).split()))


def error_of(problem: Problem) -> SchedulerError:
    """Return what was sent as ``problem``, of the same type as it was raised there."""
    kind = _kinds(SchedulerError).get(problem.code, ServiceError)
    return kind.__new__(kind, problem.message)


def _kinds(base: type[SchedulerError]) -> dict[str, type[SchedulerError]]:
    found = {base.code: base}
    for kind in base.__subclasses__():
        found |= _kinds(kind)
    return found
