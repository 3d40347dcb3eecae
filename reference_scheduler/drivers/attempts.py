"""The attempts that are under way: each has a token, and only its holder may write about it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from weakref import ref

import msgspec
from msgspec.structs import replace

from reference_scheduler.admission import Permit
from reference_scheduler.clock import wall_us
from reference_scheduler.config import Settings
from reference_scheduler.core.model import AttemptState, Failure, ResourceRequest, task_of
from reference_scheduler.executors import ExecutorRegistry
from reference_scheduler.executors.base import (
    AttemptContext,
    AttemptResult,
    Output,
    OutputSource,
    Progress,
    StopReason,
    StopSignal,
    decode_result,
    one_line,
    stopped_state,
    told,
)
from reference_scheduler.journal.base import JobRow, Journal
from reference_scheduler.observers import Observers
from reference_scheduler.requests import DEFAULT_GRACE_US, JobRequest, decode_request, fingerprint
from reference_scheduler.waiting import Waiters

MAX_RECENT, LINGER_S = 4, 10.0
"""Of so many attempts that printed more than is kept, the last of it can be read for so long after their end."""
MAX_UNREAD = 32
"""Of so many attempts the last can be read for as long as somebody does who began before that."""
MAX_RESULT_BYTES = 4 << 20
"""A larger result keeps its state, but not its output and values."""

_encode = msgspec.msgpack.Encoder().encode


class LiveAttempt:
    """One attempt from its dispatch until its end is durable."""

    def __init__(self, job: str, number: int, generation: str, request: ResourceRequest) -> None:
        self.job = job
        self.number = number
        self.generation = generation
        self.token = f"{generation}:{job}:{number}"
        self.stop = StopSignal()
        self.permit = Permit(request, lambda: None)
        self.progress: Progress | None = None
        self.lease_us: int | None = None
        self.heard_us = 0
        self.task: asyncio.Task[None] | None = None
        """Kept here because the event loop itself holds tasks weakly."""
        self.source: OutputSource | None = None
        self.result: AttemptResult | None = None
        self.over = False
        self._watching: list[asyncio.Future[None]] = []

    async def changed(self) -> None:
        """Wait until there is a ``source`` of what it prints, or it is ``over``: ended durably, or given up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching.append(future)
        await future

    def offer(self, source: OutputSource) -> None:
        """Take note of where its output can be read."""
        self.source = source
        self._notify()

    def end(self) -> None:
        """Take note that it is over."""
        self.over, self.source = True, None
        self._notify()

    def _notify(self) -> None:
        for future in self._watching:
            if not future.done():
                future.set_result(None)
        self._watching.clear()


class Attempts:
    """Runs attempts by their executors and knows which tokens are good.

    ``ended`` is called, on the loop, with each attempt and its result once nothing of it lives any more.
    """

    def __init__(
        self,
        journal: Journal,
        executors: ExecutorRegistry,
        settings: Settings,
        observers: Observers,
        ended: Callable[[LiveAttempt, AttemptResult], None],
    ) -> None:
        self.settings = settings
        self.stale = 0
        self._closing = False
        self._journal = journal
        self._executors = executors
        self._observers = observers
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, LiveAttempt] = {}
        self._tokens: dict[str, LiveAttempt] = {}
        self._callers: dict[str, asyncio.Future[AttemptResult]] = {}
        self._recent: deque[tuple[LiveAttempt, asyncio.TimerHandle]] = deque()
        self._unread: list[ref[LiveAttempt]] = []
        self._awaited = Waiters[LiveAttempt]()
        self.none_left = asyncio.Event()
        self.none_left.set()

    # What the driver does with them.

    def launch(self, live: LiveAttempt, row: JobRow) -> None:
        """Let the work of ``live``, which was dispatched, begin; ``row`` is what the journal has of its job."""
        self._live[live.job] = live
        self._tokens[live.token] = live
        self.none_left.clear()
        if self._closing:
            live.stop.set(StopReason.SHUTDOWN)
        live.task = self._loop.create_task(self._run(live, row), name=live.token)
        self._awaited.tell(live.job, live)

    def gone(self, live: LiveAttempt) -> None:
        """Forget an attempt whose end is durable."""
        self._tokens.pop(live.token, None)
        source = live.source
        live.end()
        self._linger(live, source)
        if self._live.get(live.job) is live:
            del self._live[live.job]
        if not self._live:
            self.none_left.set()

    def _linger(self, live: LiveAttempt, source: OutputSource | None) -> None:
        """Keep for a while what somebody may just be about to read who saw it begin."""
        result = live.result
        if source is None or not result or not (result.stdout.omitted_bytes or result.stderr.omitted_bytes):
            return
        live.source = source
        if len(self._recent) == MAX_RECENT:
            _, timer = self._recent.popleft()
            timer.cancel()  # or it would take away one that came later
        self._recent.append((live, self._loop.call_later(LINGER_S, self._recent_is_over)))
        self._unread = [*(one for one in self._unread if one()), ref(live)]
        for oldest in self._unread[:-MAX_UNREAD]:
            if (other := oldest()) is not None and other.source is not None:
                other.source.forget()
        del self._unread[:-MAX_UNREAD]

    def _recent_is_over(self) -> None:
        self._recent.popleft()  # they came in the order of their times

    def recent(self, job: str, number: int) -> LiveAttempt | None:
        """Return an attempt that is over, if it can still be read."""
        return next((live for live, _ in self._recent if (live.job, live.number) == (job, number)), None)

    def next_of(self, job: str) -> asyncio.Future[LiveAttempt]:
        """Return a future that is done with the next attempt of ``job`` that begins."""
        return self._awaited.wait_for(job)

    def of(self, job: str) -> LiveAttempt | None:
        """Return the attempt of ``job`` that is under way."""
        return self._live.get(job)

    def tokens(self) -> set[tuple[str, int]]:
        """Return job and number of each attempt that is under way."""
        return {(live.job, live.number) for live in self._live.values()}

    @property
    def all_over(self) -> bool:
        """Whether nothing runs, though the end of some may not be durable yet."""
        return all(live.result is not None for live in self._live.values())

    def stop(self, job: str, number: int, reason: StopReason) -> None:
        """Ask an attempt to stop, if it is still under way."""
        live = self._live.get(job)
        if live is not None and live.number == number:
            live.stop.set(reason)

    def stop_all(self) -> None:
        """Ask all attempts to stop for shutdown, also later ones; those asked before are to hurry."""
        self._closing = True
        for live in list(self._live.values()):
            if live.stop.reason is not None:
                live.stop.set_hurry()
            live.stop.set(StopReason.SHUTDOWN)

    def release_all(self) -> None:
        """Give back what attempts hold that did not come to an end, when everything ends."""
        for live in list(self._live.values()):
            live.permit.release()
            live.end()

    def expire_leases(self) -> None:
        """Take the token from every attempt that was silent for too long, and stop it."""
        now_us = monotonic_ns() // 1000
        for live in list(self._tokens.values()):
            if live.lease_us is not None and now_us - live.heard_us > live.lease_us:
                del self._tokens[live.token]
                self._observers.tell(wall_us(), "lease_expired", live.job, live.number)
                live.stop.set(StopReason.LEASE)

    # What the holder of a token may do, from any thread.

    def heartbeat(self, token: str) -> bool:
        """Say that the attempt is alive; ``False``: the token is not good, nothing happened."""
        live = self._tokens.get(token)
        if live is None:
            self._refuse(token, "heartbeat")
            return False
        live.heard_us = monotonic_ns() // 1000
        return True

    def progress(self, token: str, progress: Progress) -> bool:
        """Say how far the attempt is; ``False``: the token is not good, nothing happened."""
        live = self._tokens.get(token)
        if live is None:
            self._refuse(token, "progress")
            return False
        live.heard_us = monotonic_ns() // 1000
        live.progress = progress
        self._tell("progress", live.job, live.number, "", progress)
        return True

    def job_of(self, token: str) -> str:
        """Return the job whose attempt has ``token``, "" if the token is not good."""
        live = self._tokens.get(token)
        return live.job if live else ""

    def _refuse(self, token: str, what: str) -> None:
        self.stale += 1
        _, _, rest = token.partition(":")
        job, _, number = rest.partition(":")
        self._tell("stale", job, int(number) if number.isdigit() else 0, what, None)

    def _tell(self, what: str, job: str, number: int, detail: str, progress: Progress | None) -> None:
        tell = partial(self._observers.tell, wall_us(), what, job, number, detail, progress)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(tell)

    # Jobs that their callers run.

    def expect_caller(self, job: str) -> None:
        """Wait for the caller of ``job`` to say how its own run ended."""
        self._callers[job] = self._loop.create_future()

    def caller_ended(self, job: str, result: AttemptResult) -> bool:
        """Take the result of a caller's own run; ``False`` if none is expected."""
        expected = self._callers.get(job)
        if expected is None or expected.done():
            return False
        expected.set_result(result)
        return True

    def forget_caller(self, job: str) -> None:
        """Expect nothing more about ``job``, which has ended."""
        self._callers.pop(job, None)

    # One attempt.

    async def _run(self, live: LiveAttempt, row: JobRow) -> None:
        result = await self._result(live, row)
        live.stop.end()
        if self._tokens.pop(live.token, None) is None:
            self._refuse(live.token, "result")
            result = AttemptResult(AttemptState.INTERRUPTED, detail=f"no heartbeat within {live.lease_us} us")
        live.permit.release()
        live.result = result
        self._ended(live, result)

    async def _result(self, live: LiveAttempt, row: JobRow) -> AttemptResult:
        timer: asyncio.TimerHandle | None = None
        try:
            if fingerprint(row.request) != row.fingerprint:
                return _failed(Failure.VALIDATION, "the journal holds another request than was submitted")
            request = decode_request(row.request)
            if row.observed:
                timer = self._stop_in_time(live, request, _grace_us(request))
                return await self._caller_result(live)
            if request.kind not in self._executors:
                return _failed(Failure.VALIDATION, f"no executor is registered for kind {request.kind!r}")
            timer = self._stop_in_time(live, request)
            live.heard_us, live.lease_us = monotonic_ns() // 1000, request.lease_us
            return _kept(await self._executors.of(request.kind).run(self._context(live, request)))
        except GeneratorExit:  # the loop was closed, and nobody is there any more
            raise
        except BaseException as error:  # whatever goes wrong is how the attempt failed
            if isinstance(error, asyncio.CancelledError) and live.stop.reason is not None:
                return AttemptResult(stopped_state(live.stop.reason))
            return _failed(Failure.UNKNOWN, told(error))
        finally:
            if timer is not None:
                timer.cancel()

    def _stop_in_time(self, live: LiveAttempt, request: JobRequest, more_us: int = 0) -> asyncio.TimerHandle | None:
        timeout_us = request.timeout_us or self.settings.profile(request.kind).timeout_us
        if timeout_us is None:
            return None
        return self._loop.call_later((timeout_us + more_us) / 1e6, live.stop.set, StopReason.TIMEOUT)

    def _context(self, live: LiveAttempt, request: JobRequest) -> AttemptContext:
        array, index = task_of(live.job) or ("", 0)
        return AttemptContext(
            owner=self._journal.owner,
            generation=live.generation,
            job=live.job,
            attempt=live.number,
            token=live.token,
            kind=request.kind,
            payload=request.payload,
            workspace=request.workspace,
            user=request.user,
            grace_us=_grace_us(request),
            array=array,
            array_index=index,
            array_size=request.array_size,
            permit=live.permit,
            stop=live.stop,
            heartbeat=partial(self.heartbeat, live.token),
            progress=partial(self.progress, live.token),
            offer_output=live.offer,
        )

    async def _caller_result(self, live: LiveAttempt) -> AttemptResult:
        """Wait for what the caller of an observed job says, or for the wish to stop, which it is not told of."""
        expected = self._callers.get(live.job)
        if expected is None:
            return _failed(Failure.UNKNOWN, "its caller ended with an earlier start of the scheduler")
        stopping = asyncio.ensure_future(live.stop.wait())
        try:
            await asyncio.wait((expected, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not expected.done():
            timed_out = live.stop.reason is StopReason.TIMEOUT
            state = AttemptState.TIMED_OUT if timed_out else AttemptState.CANCELLED
            return AttemptResult(state, detail="its caller was not waited for")
        return _kept(expected.result())


def _grace_us(request: JobRequest) -> int:
    return DEFAULT_GRACE_US if request.grace_us is None else request.grace_us


def _failed(failure: Failure, detail: str) -> AttemptResult:
    return AttemptResult(AttemptState.FAILED, failure=failure, detail=one_line(detail))


def _kept(result: object) -> AttemptResult:
    """Return ``result`` as it will be read again, without what makes it too large or cannot be written.

    Raises:
        Exception: it is no result, or something in it is not what it has to be.
    """
    if not isinstance(result, AttemptResult):
        raise TypeError(f"an executor has to return an AttemptResult, got {type(result).__name__}")
    result = replace(result, detail=one_line(result.detail))
    try:
        raw = _encode(result)
        if len(raw) <= MAX_RESULT_BYTES:
            return decode_result(raw)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        if not result.values:
            raise
        less, why = replace(result, values={}), f"its values cannot be written: {error}"
    else:
        less = replace(result, stdout=Output(), stderr=Output(), values={})
        why = f"its output and values, {len(raw)} bytes, were too large to keep"
    return _kept(replace(less, detail=f"{result.detail} ({why})".strip()))
