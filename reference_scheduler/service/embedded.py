"""Runs one job in this very process: in a scheduler of its own, or because a scheduler only observes."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import msgspec
from msgspec.structs import replace

from reference_scheduler.admission import Permit
from reference_scheduler.config import Rollout, Settings
from reference_scheduler.core.model import SECOND_US, Idempotency, ResourceRequest
from reference_scheduler.errors import JournalLocked
from reference_scheduler.executors import default_registry
from reference_scheduler.executors.base import AttemptContext, AttemptResult, OutputSource, StopReason, StopSignal
from reference_scheduler.logs import OutputChunk, Position
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.requests import DEFAULT_GRACE_US, JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.views import JobView

START_WITHIN_US = 10 * SECOND_US
Write = Callable[[OutputChunk], None]


class Ran(msgspec.Struct, frozen=True):
    """How a job ended, as far as it came; ``caught`` is the signal that cut it short, 0 if none did."""

    caught: int
    result: AttemptResult | None = None
    view: JobView | None = None


class Signals:
    """Calls ``stop`` at the first SIGINT or SIGTERM; a second one, or one before that is set, cancels the task."""

    def __init__(self) -> None:
        loop, main = asyncio.get_running_loop(), asyncio.current_task()
        assert main is not None
        self.caught = 0
        self.stop: Callable[[], object] = main.cancel
        self._cancel = main.cancel
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._catch, number)

    def _catch(self, number: int) -> None:
        stop = self._cancel if self.caught else self.stop
        self.caught = self.caught or number
        stop()


def run_here(body: Callable[[Signals], Awaitable[Ran]]) -> Ran:
    """Run ``body`` on an event loop of its own; if a signal cancels it, that is how it ended."""

    async def main() -> Ran:
        signals = Signals()
        try:
            return await body(signals)
        except asyncio.CancelledError:
            if not signals.caught:
                raise
            return Ran(signals.caught)

    return asyncio.run(main())


class _Outlet:
    """Calls ``write``, which may have to wait for a reader, in a thread, so that nothing else waits for that.

    The thread is no reason for the process to go on.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._orders: SimpleQueue[tuple[OutputChunk, asyncio.Future[None]]] = SimpleQueue()
        Thread(target=self._work, name="outlet", daemon=True).start()

    async def write_all(self, chunks: AsyncGenerator[OutputChunk, None] | Iterable[OutputChunk]) -> None:
        """Write chunks as they come.

        Raises:
            Exception: what ``write`` raises.
        """
        if isinstance(chunks, AsyncGenerator):
            async with aclosing(chunks):
                async for chunk in chunks:
                    await self._hand_over(chunk)
        else:
            for chunk in chunks:
                await self._hand_over(chunk)

    async def _hand_over(self, chunk: OutputChunk) -> None:
        written: asyncio.Future[None] = self._loop.create_future()
        self._orders.put((chunk, written))
        await written

    def _work(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            while True:
                chunk, written = self._orders.get()
                error: Exception | None = None
                try:
                    self._write(chunk)
                except Exception as problem:
                    error = problem
                self._loop.call_soon_threadsafe(_settle, written, error)


def _settle(written: asyncio.Future[None], error: Exception | None) -> None:
    if not written.done():
        written.set_result(None) if error is None else written.set_exception(error)


async def run_alone(
    signals: Signals, request: JobRequest, settings: Settings, directory: Path, say: Callable[[str], None], write: Write
) -> Ran:
    """Run the job in a scheduler of its own, with a journal in ``directory`` that nobody else uses just now.

    What it prints is given to ``write``. Nobody would wait for it later, so it runs now or never: no restart brings it
    back, whatever its class says.

    Raises:
        SchedulerError: it was refused.
        Exception: what ``write`` raised; the job was stopped.
    """
    within_us = request.start_within_us or request.delay_us + START_WITHIN_US
    own = replace(request, idempotency=Idempotency.NON_IDEMPOTENT, start_within_us=within_us)
    async with AsyncExitStack() as stack:
        scheduler = await _enter(stack, replace(settings, rollout=Rollout.MANDATORY, active_kinds=()), directory, say)
        job = (await scheduler.submit(own)).id
        cancelling: list[asyncio.Task[JobView]] = []
        signals.stop = lambda: cancelling.append(asyncio.ensure_future(scheduler.cancel(job, "interrupted")))
        await _Outlet(write).write_all(scheduler.logs(job, follow=True))
        view = await scheduler.wait(job)
        await asyncio.gather(*cancelling)
        return Ran(signals.caught, scheduler.result(job), view)


async def _enter(stack: AsyncExitStack, settings: Settings, directory: Path, say: Callable[[str], None]) -> Scheduler:
    number = 1
    while True:
        journal = directory / f"run-{number}.db"
        try:
            scheduler = await stack.enter_async_context(Scheduler(settings, journal))
        except JournalLocked:  # by another command like this one
            number += 1
        else:
            say(f"this job runs in a scheduler of its own, with the journal {journal}")
            return scheduler


async def run_observed(signals: Signals, request: JobRequest, job: str, write: Write) -> Ran:
    """Run the job as the caller's own work, which a scheduler knows as ``job`` and does not run.

    What it prints is given to ``write``.

    Raises:
        ValueError: its payload is wrong.
        Exception: what ``write`` raised; the job was stopped.
    """
    stop, position, outlet = StopSignal(), Position(1), _Outlet(write)
    source: asyncio.Future[OutputSource] = asyncio.get_running_loop().create_future()

    async def show() -> None:
        try:
            await outlet.write_all(position.live(await source, follow=True))
        except Exception:
            stop.set(StopReason.CANCELLED)
            raise

    if request.timeout_us is not None:
        asyncio.get_running_loop().call_later(request.timeout_us / 1e6, stop.set, StopReason.TIMEOUT)
    async with ManagedProcessService() as processes:
        signals.stop = lambda: stop.set(StopReason.CANCELLED)
        with Permit(request.request or ResourceRequest(), lambda: None) as permit:
            context = AttemptContext(
                owner=secrets.token_hex(16),  # not the scheduler's: what it starts is not that one's to end
                generation=secrets.token_hex(16),
                job=job,
                attempt=1,
                token="",
                kind=request.kind,
                payload=request.payload,
                workspace=request.workspace,
                grace_us=DEFAULT_GRACE_US if request.grace_us is None else request.grace_us,
                permit=permit,
                stop=stop,
                heartbeat=lambda: True,
                progress=lambda progress: True,
                offer_output=source.set_result,
            )
            showing = asyncio.ensure_future(show())
            try:
                result = await default_registry(processes).of(request.kind).run(context)
            finally:
                if not source.done():
                    showing.cancel()
            await showing
            await outlet.write_all(position.rest(result))
    return Ran(signals.caught, result)
