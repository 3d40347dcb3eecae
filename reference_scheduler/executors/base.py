"""The seam between the driver and what carries out attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from reference_scheduler.admission import Permit
from reference_scheduler.core.model import AttemptState, Failure, check_bounds
from reference_scheduler.errors import SchedulerError
from reference_scheduler.processes.model import Output, Printed

__all__ = [
    "AttemptContext",
    "AttemptResult",
    "Executor",
    "HasHealth",
    "Output",
    "OutputSource",
    "PermitRequiredError",
    "Progress",
    "StopReason",
    "StopSignal",
    "decode_result",
    "one_line",
    "require_permit",
    "stopped_state",
    "told",
]


MAX_DETAIL = 1000
_ENDS = (
    AttemptState.COMPLETED,
    AttemptState.FAILED,
    AttemptState.CANCELLED,
    AttemptState.TIMED_OUT,
    AttemptState.INTERRUPTED,
)


class PermitRequiredError(SchedulerError):
    """An executor was asked to run an attempt that holds no permit."""

    code = "permit_required"


def one_line(text: str) -> str:
    """Return the first line of ``text``, not too long, and such that it can be written everywhere."""
    return text.encode(errors="backslashreplace").decode().partition("\n")[0][:MAX_DETAIL]


def told(error: BaseException) -> str:
    """Return the type and message of ``error`` in one line, whatever they are."""
    try:
        message = str(error)
    except Exception as another:
        message = f"its message cannot be had: {type(another).__name__}"
    return one_line(f"{type(error).__name__}: {message}")


class StopReason(StrEnum):
    """Why an attempt has to end."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    LEASE = "lease"
    SHUTDOWN = "shutdown"


def stopped_state(reason: StopReason) -> AttemptState:
    """Return what an attempt that was stopped has become."""
    if reason is StopReason.CANCELLED:
        return AttemptState.CANCELLED
    return AttemptState.TIMED_OUT if reason is StopReason.TIMEOUT else AttemptState.INTERRUPTED


class StopSignal:
    """Tells an executor that its attempt has to end; set on the event loop, once: the first reason stays.

    With ``hurry`` there is no grace any more.
    """

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.hurry = False
        self._event = asyncio.Event()
        self._callbacks: list[Callable[[], object]] = []

    def set(self, reason: StopReason) -> None:
        """Have the attempt end."""
        if self.reason is None:
            self.reason = reason
            self._event.set()
            self._notify()

    def set_hurry(self) -> None:
        """Have the attempt end at once, as soon as there is a reason for it to end."""
        if not self.hurry:
            self.hurry = True
            self._notify()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` whenever something is set, and now if something is."""
        self._callbacks.append(callback)
        if self.reason or self.hurry:
            callback()

    def end(self) -> None:
        """Call nobody any more: the attempt has ended, and what it held is not to wait for the garbage collector."""
        self._callbacks.clear()

    async def wait(self) -> StopReason:
        """Wait for the reason."""
        await self._event.wait()
        assert self.reason is not None
        return self.reason

    def _notify(self) -> None:
        for callback in self._callbacks:
            try:
                callback()
            except Exception as error:  # whoever asks the attempt to stop has others to ask
                context = {"message": "an executor could not be told to stop", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an attempt is: ``fraction`` from 0 to 1 if it is known, and counts of the executor's choice."""

    fraction: float | None = None
    message: str = ""
    counts: dict[str, int] = {}


class OutputSource(Protocol):
    """Where what an attempt prints can be read while it runs."""

    async def read(self, stdout: int, stderr: int, wait: bool = True) -> tuple[Printed, Printed] | None:
        """Return something of what was printed after so many bytes of each stream, ``None`` when there is no more.

        With ``wait``, once there is something.
        """
        ...

    def forget(self) -> None:
        """Keep no more of what was printed than the result does, whoever still reads: others have to have room."""
        ...


class AttemptContext(msgspec.Struct, frozen=True, kw_only=True):
    """All that an executor is given for one attempt.

    ``token`` names the attempt in every write about it. ``heartbeat`` and ``progress`` may be called from any
    thread; ``False`` means that the attempt is no longer this one's, and has to end. A job that is part of an ``array``
    has an index there. Who prints may call ``offer_output``, so that it can be read meanwhile.
    """

    owner: str
    generation: str
    job: str
    attempt: int
    token: str
    kind: str
    payload: Mapping[str, Any]
    workspace: str = ""
    user: str = ""
    grace_us: int
    array: str = ""
    array_index: int = 0
    array_size: int = 0
    permit: Permit
    stop: StopSignal
    heartbeat: Callable[[], bool]
    progress: Callable[[Progress], bool]
    offer_output: Callable[[OutputSource], None] = lambda source: None


class AttemptResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an attempt ended: with an exit code of 0 to 255, or by a signal, or without either.

    ``failure`` counts for failed attempts; ``detail`` is one line; ``values`` are JSON values of the executor's own.

    Raises:
        ValueError: it is not how an attempt can end; the message says what is wrong.
    """

    state: AttemptState
    exit_code: int | None = None
    signal: int | None = None
    failure: Failure = Failure.UNKNOWN
    detail: str = ""
    stdout: Output = Output()
    stderr: Output = Output()
    values: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.state not in _ENDS:
            raise ValueError(f"state must be one of {', '.join(_ENDS)}, got {str(self.state)!r}")
        if self.exit_code is not None:
            check_bounds("exit_code", self.exit_code, 0, 255)
        if self.signal is not None:
            check_bounds("signal", self.signal, 1, 127)


decode_result = msgspec.msgpack.Decoder(AttemptResult).decode
"""Return the result that was kept as these bytes."""


class Executor(Protocol):
    """Carries out the attempts of one kind."""

    @property
    def kind(self) -> str:
        """The name that it is registered under."""

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse at submission what could never run.

        Raises:
            ValueError: the message says which key is wrong, and what is allowed.
        """

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Carry out an attempt, and return when nothing of it lives any more.

        Once ``context.stop`` is set it ends its work within ``context.grace_us`` and returns the state of
        :func:`stopped_state`, unless the work had ended by itself before.

        Raises:
            PermitRequiredError: the permit is not live.
        """


@runtime_checkable
class HasHealth(Protocol):
    """An executor that can tell whether it could carry out an attempt now."""

    def health(self) -> str:
        """Return in one line why it could not, or what it has lost since the latest attempt; "" if all is well."""
        ...


def require_permit(context: AttemptContext) -> None:
    """Raise PermitRequiredError unless the attempt holds a live permit."""
    if not context.permit.live:
        raise PermitRequiredError(f"attempt {context.attempt} of job {context.job} has no permit")
