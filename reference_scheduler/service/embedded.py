"""Runs one job in this very process: in a scheduler of its own, or because a scheduler only observes."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from msgspec.structs import replace

from reference_scheduler.admission import Permit
from reference_scheduler.config import Rollout, Settings
from reference_scheduler.core.model import SECOND_US, Idempotency, ResourceRequest
from reference_scheduler.errors import JournalLocked
from reference_scheduler.executors import default_registry
from reference_scheduler.executors.base import AttemptContext, AttemptResult, StopReason, StopSignal
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.requests import DEFAULT_GRACE_US, JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.views import JobView

START_WITHIN_US = 10 * SECOND_US


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


async def run_alone(
    signals: Signals, request: JobRequest, settings: Settings, directory: Path, say: Callable[[str], None]
) -> Ran:
    """Run the job in a scheduler of its own, with a journal in ``directory`` that nobody else uses just now.

    Nobody would wait for it later, so it runs now or never: no restart brings it back, whatever its class says.

    Raises:
        SchedulerError: it was refused.
    """
    within_us = request.start_within_us or request.delay_us + START_WITHIN_US
    own = replace(request, idempotency=Idempotency.NON_IDEMPOTENT, start_within_us=within_us)
    async with AsyncExitStack() as stack:
        scheduler = await _enter(stack, replace(settings, rollout=Rollout.MANDATORY, active_kinds=()), directory, say)
        job = (await scheduler.submit(own)).id
        cancelling: list[asyncio.Task[JobView]] = []
        signals.stop = lambda: cancelling.append(asyncio.ensure_future(scheduler.cancel(job, "interrupted")))
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


async def run_observed(signals: Signals, request: JobRequest, job: str) -> Ran:
    """Run the job as the caller's own work, which a scheduler knows as ``job`` and does not run.

    Raises:
        ValueError: its payload is wrong.
    """
    stop = StopSignal()
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
            )
            result = await default_registry(processes).of(request.kind).run(context)
    return Ran(signals.caught, result)
