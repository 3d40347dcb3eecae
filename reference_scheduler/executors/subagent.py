"""Attempts that are a call of a registered function, in a thread if it is not a coroutine function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from reference_scheduler.core.model import AttemptState, Failure
from reference_scheduler.executors.base import (
    AttemptContext,
    AttemptResult,
    Progress,
    StopReason,
    require_permit,
    stopped_state,
    told,
)
from reference_scheduler.executors.managed_argv import read_payload
from reference_scheduler.waiting import outlast

MAX_VALUE_BYTES = 1 << 18
FAILURES: tuple[tuple[type[Exception], Failure], ...] = (
    (PermissionError, Failure.PERMISSION),
    (TimeoutError, Failure.TIMEOUT),
    (ConnectionError, Failure.TRANSIENT),
)
"""What an exception of a callable says about its failure; any other is one of execution."""


class SubagentPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a registered callable, and its keyword arguments."""

    callable: str
    arguments: dict[str, Any] = {}


class Call:
    """What a callable is given first: a view of its attempt, to be used from any thread."""

    def __init__(self, context: AttemptContext) -> None:
        self.job = context.job
        self.attempt = context.attempt
        self.array_index = context.array_index
        self.token = context.token
        self.heartbeat = context.heartbeat
        self.progress: Callable[[Progress], bool] = context.progress
        self._stop = context.stop

    @property
    def stopping(self) -> StopReason | None:
        """Why it has to return, ``None`` as long as it may go on."""
        return self._stop.reason


class SubagentExecutor:
    """A pool of callables: ``fn(call, **arguments)`` returns a JSON value, or is a coroutine function that does.

    A coroutine is cancelled when its attempt is to stop. A function in a thread cannot be: it has to look at
    ``call.stopping``, and holds its permit until it has returned. At most ``max_threads`` run at a time.
    """

    def __init__(self, callables: Mapping[str, Callable[..., Any]] | None = None, max_threads: int = 32) -> None:
        self.kind = "subagent"
        self._callables: dict[str, Callable[..., Any]] = {}
        self._threads = ThreadPoolExecutor(max_threads, thread_name_prefix="subagent")
        for name, function in (callables or {}).items():
            self.register(name, function)

    def register(self, name: str, function: Callable[..., Any]) -> None:
        """Make ``function`` callable by ``name``.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._callables:
            raise ValueError(f"a callable {name!r} is registered already")
        self._callables[name] = function

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse what could never run.

        Raises:
            ValueError: no such callable, or arguments that it does not take.
        """
        self._bind(payload, object())

    def _bind(self, payload: Mapping[str, Any], call: object) -> tuple[Callable[[], Any], bool]:
        """Return the call, and whether it gives a coroutine."""
        form = read_payload(SubagentPayload, payload)
        function = self._callables.get(form.callable)
        if function is None:
            known = ", ".join(sorted(self._callables)) or "none"
            raise ValueError(f"callable: {form.callable!r} is not registered; there are: {known}")
        try:
            inspect.signature(function).bind(call, **form.arguments)
        except TypeError as error:
            raise ValueError(f"arguments: {form.callable}: {error}") from None
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        return partial(function, call, **form.arguments), is_async

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Call the function, and wait until it has returned."""
        require_permit(context)
        bound, is_async = self._bind(context.payload, Call(context))
        work: asyncio.Future[Any]
        end: Callable[[], object]
        if is_async:
            work = asyncio.ensure_future(_finish(bound))
            end = work.cancel
        else:
            thread = self._threads.submit(bound)
            work, end = asyncio.wrap_future(thread), thread.cancel
        asked: list[StopReason] = []

        def stop() -> None:
            if context.stop.reason and not asked and not work.done():
                asked.append(context.stop.reason)
                end()

        context.stop.add_callback(stop)
        over = asyncio.Event()
        work.add_done_callback(lambda _: over.set())
        await outlast(over, end)
        return _stopped(asked[0]) if asked else _result(work)


async def _finish(bound: Callable[[], Awaitable[Any]]) -> Any:
    """Let a callable that exits end itself and nothing else."""
    try:
        return await bound()
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _stopped(reason: StopReason) -> AttemptResult:
    return AttemptResult(stopped_state(reason), detail=f"stopped: {reason}")


def _result(work: asyncio.Future[Any]) -> AttemptResult:
    try:
        value = work.result()
        size = len(msgspec.json.encode(value))
    except asyncio.CancelledError:
        return AttemptResult(AttemptState.FAILED, failure=Failure.EXECUTION, detail="it cancelled itself")
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        failure = next((failure for kind, failure in FAILURES if isinstance(error, kind)), Failure.EXECUTION)
        return AttemptResult(AttemptState.FAILED, failure=failure, detail=told(error))
    if size > MAX_VALUE_BYTES:
        detail = f"it returned {size} bytes of JSON, at most {MAX_VALUE_BYTES} are kept"
        return AttemptResult(AttemptState.FAILED, failure=Failure.VALIDATION, detail=detail)
    return AttemptResult(AttemptState.COMPLETED, values={"result": value})
