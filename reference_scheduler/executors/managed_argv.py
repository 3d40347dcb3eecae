"""Attempts that are one managed process: an argument list, or by their own kinds a shell script or Python."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec

from reference_scheduler.core.model import AttemptState, Failure
from reference_scheduler.executors.base import (
    AttemptContext,
    AttemptResult,
    Progress,
    StopReason,
    require_permit,
    stopped_state,
)
from reference_scheduler.processes.environment import check_environment
from reference_scheduler.processes.model import Ending, ProcessResult, ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService

SHELL = "/bin/sh"


class ProcessPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every payload of a process may say: all of it is optional.

    ``cwd`` is absolute; without it the job runs in its workspace if that is an absolute path, or else in ``/``.

    Raises:
        ValueError: a value is one that no process can be given.
    """

    cwd: str | None = None
    env: dict[str, str] = {}
    max_output_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.cwd is not None and not PurePath(self.cwd).is_absolute():
            raise ValueError(f"cwd: {self.cwd!r} is not an absolute path")
        check_environment(self.env)
        self.spec("/", 0)

    def command(self) -> tuple[str, ...]:
        """Return the argument list."""
        raise NotImplementedError

    def spec(self, workspace: str, grace_us: int) -> ProcessSpec:
        """Return the process for a job of ``workspace``."""
        return ProcessSpec(
            argv=self.command(),
            cwd=self.cwd or (workspace if workspace.startswith("/") else "/"),
            env=self.env,
            grace_us=grace_us,
            max_output_bytes=self.max_output_bytes,
        )


class ArgvPayload(ProcessPayload, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program and its arguments; no shell reads them."""

    argv: list[str]

    def command(self) -> tuple[str, ...]:
        """Return the argument list."""
        return tuple(self.argv)


class ShellPayload(ProcessPayload, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A script for ``/bin/sh``."""

    script: str

    def command(self) -> tuple[str, ...]:
        """Return the argument list."""
        return (SHELL, "-c", self.script)


class PythonPayload(ProcessPayload, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Source text in ``code``, or arguments in ``argv``, for the interpreter that runs the scheduler."""

    code: str | None = None
    argv: list[str] = []

    def __post_init__(self) -> None:
        if self.code is None and not self.argv:
            raise ValueError("code: needs source text, or argv the arguments of the interpreter")
        super().__post_init__()

    def command(self) -> tuple[str, ...]:
        """Return the argument list."""
        return (sys.executable, *(() if self.code is None else ("-c", self.code)), *self.argv)


AnyPayload = TypeVar("AnyPayload", bound=msgspec.Struct)


def read_payload(form: type[AnyPayload], payload: Mapping[str, Any]) -> AnyPayload:
    """Return ``payload`` as a ``form``.

    Raises:
        ValueError: it is not one; the message names the key.
    """
    try:
        return msgspec.convert(payload, form)
    except msgspec.ValidationError as error:
        raise ValueError(f"payload: {error}") from None


class ManagedArgvExecutor:
    """Runs payloads of one ``form`` as managed processes, under the name ``kind``."""

    def __init__(
        self, processes: ManagedProcessService, kind: str = "managed_argv", form: type[ProcessPayload] = ArgvPayload
    ) -> None:
        self.kind = kind
        self._processes = processes
        self._form = form

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse what could never run.

        Raises:
            ValueError: the payload is wrong; the message names the key.
        """
        read_payload(self._form, payload)

    def health(self) -> str:
        """See :meth:`HasHealth.health`."""
        return self._processes.health()

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Run the process to its end."""
        spec = read_payload(self._form, context.payload).spec(context.workspace, context.grace_us)
        return attempt_result(await run_process(self._processes, spec, context), context.stop.reason)


async def run_process(processes: ManagedProcessService, spec: ProcessSpec, context: AttemptContext) -> ProcessResult:
    """Run a process as the attempt of ``context``, marked as such and stopped when that is.

    Raises:
        PermitRequiredError: the attempt holds no permit.
    """
    require_permit(context)
    marks = {
        "OWNER": context.owner,
        "GENERATION": context.generation,
        "JOB": context.job,
        "ATTEMPT": str(context.attempt),
    }
    if context.array:
        marks["ARRAY"] = context.array
        marks["ARRAY_INDEX"], marks["ARRAY_SIZE"] = str(context.array_index), str(context.array_size)

    def refused(pid: int, name: str) -> None:
        context.progress(Progress(message=f"process {pid} could not be sent {name}; trying again"))

    def stop() -> None:
        if context.stop.reason:
            running.stop(0 if context.stop.hurry else context.grace_us)

    running = await processes.start(spec, marks, refused)
    context.offer_output(running)
    context.stop.add_callback(stop)
    return await running.wait()


def attempt_result(result: ProcessResult, reason: StopReason | None) -> AttemptResult:
    """Return what the end of a process means for its attempt, which was to stop for ``reason``."""
    state, failure, detail = AttemptState.FAILED, Failure.EXECUTION, result.detail
    match result.ending:
        case Ending.EXITED if result.exit_code == 0:
            state, failure = AttemptState.COMPLETED, Failure.UNKNOWN
        case Ending.EXITED:
            detail = f"exit status {result.exit_code}"
        case Ending.SIGNALLED:
            detail = f"ended by {_signal_name(result.signal)}"
        case Ending.STOPPED if reason:
            state, failure, detail = stopped_state(reason), Failure.UNKNOWN, f"stopped: {reason}"
        case Ending.TIMED_OUT:
            state, detail = AttemptState.TIMED_OUT, "timed out"
        case Ending.OUTPUT_LIMIT:
            detail = "printed more than max_output_bytes"
        case Ending.SPAWN_FAILED:
            failure, detail = result.failure, f"could not be started: {result.detail}"
        case _:
            state, failure = AttemptState.INTERRUPTED, Failure.UNKNOWN
    counts = {"left_behind": result.left_behind, "peak_rss_kb": result.peak_rss_kb}
    return AttemptResult(
        state,
        result.exit_code,
        result.signal,
        failure,
        detail,
        result.stdout,
        result.stderr,
        {name: count for name, count in counts.items() if count},
    )


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
