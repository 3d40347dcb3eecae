"""The output of one job as one stream: of the attempt that runs, of later ones, and of those that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from reference_scheduler.drivers.attempts import Attempts, LiveAttempt
from reference_scheduler.drivers.live import LiveDriver
from reference_scheduler.executors.base import AttemptResult
from reference_scheduler.journal.base import Journal
from reference_scheduler.logs import OutputChunk, Position
from reference_scheduler.views import decode_result


async def followed(
    job: str, follow: bool, driver: LiveDriver, attempts: Attempts, journal: Journal
) -> AsyncGenerator[OutputChunk, None]:
    """Yield what the latest attempt of ``job`` has printed, with ``follow`` also what comes until the job has ended.

    Raises:
        SchedulerStopping: the scheduler stopped before that.
    """
    number, live = 0, attempts.of(job)
    if live is None:
        for position, result in _results(job, journal)[-1:]:
            number = position.attempt
            live = attempts.recent(job, number)
            for chunk in position.rest(result) if live is None else ():
                yield chunk
    while True:
        if live is None and follow:
            live = await _next_attempt(job, driver, attempts, journal)
        if live is None:
            break
        number = live.number
        async with aclosing(_printed(live, follow)) as chunks:
            async for chunk in chunks:
                yield chunk
        if not follow:
            return
        live = attempts.of(job)
        if live is not None and live.number == number:
            live = None  # it was given up, as everything stops
    for position, result in _results(job, journal):  # of attempts that were over before they were noticed
        if follow and position.attempt > number:
            for chunk in position.rest(result):
                yield chunk


async def _printed(live: LiveAttempt, follow: bool) -> AsyncGenerator[OutputChunk, None]:
    """Yield what an attempt prints: to its end, or unless ``follow`` what it has printed so far."""
    position = Position(live.number)
    while follow and live.source is None and not live.over:
        await live.changed()
    if live.source is not None:
        async with aclosing(position.live(live.source, follow)) as chunks:
            async for chunk in chunks:
                yield chunk
    while follow and not live.over:
        await live.changed()
    if live.result is not None:
        for chunk in position.rest(live.result):
            yield chunk


async def _next_attempt(job: str, driver: LiveDriver, attempts: Attempts, journal: Journal) -> LiveAttempt | None:
    """Return the next attempt that begins, ``None`` once the job has ended."""
    if not driver.is_open(job):
        row = journal.job(job)
        if row is None or row.ended_us is not None:
            return None
    begun, ended = attempts.next_of(job), driver.ended(job)
    try:
        await asyncio.wait((begun, ended), return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            return begun.result()
        ended.result()
        return None
    finally:
        begun.cancel()
        ended.cancel()


def _results(job: str, journal: Journal) -> list[tuple[Position, AttemptResult]]:
    return [(Position(row.number), decode_result(row.result)) for row in journal.attempts(job) if row.result]
