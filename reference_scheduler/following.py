"""The output of one job as one stream: of the attempt that runs, of later ones, and of those that have ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from reference_scheduler.drivers.attempts import Attempts, LiveAttempt
from reference_scheduler.drivers.live import LiveDriver
from reference_scheduler.executors.base import AttemptResult, decode_result
from reference_scheduler.journal.base import Journal
from reference_scheduler.logs import OutputChunk, Position


async def followed(
    job: str, follow: bool, driver: LiveDriver, attempts: Attempts, journal: Journal
) -> AsyncGenerator[OutputChunk, None]:
    """Yield what the latest attempt of ``job`` has printed, with ``follow`` also what comes until the job has ended.

    Raises:
        SchedulerStopping: the scheduler stopped before that.
    """
    live = attempts.of(job)
    number = (live.number if live else max((at.attempt for at, _ in _results(job, journal)), default=1)) - 1
    live = live or attempts.recent(job, number + 1)
    while True:
        past = _next_result(job, number, live, journal)  # of an attempt that came and went while another was read
        if past is not None:
            position, result = past
            number = position.attempt
            for chunk in position.rest(result):
                yield chunk
            live = attempts.of(job)
            continue
        if live is None or live.number <= number:
            live = await _next_attempt(job, driver, attempts, journal) if follow else None
        if live is None:
            return
        number = live.number
        async with aclosing(_printed(live, follow)) as chunks:
            async for chunk in chunks:
                yield chunk
        if not follow:
            return
        live = attempts.of(job)


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


def _next_result(
    job: str, number: int, live: LiveAttempt | None, journal: Journal
) -> tuple[Position, AttemptResult] | None:
    """Return the result of the first attempt after ``number`` that has one and comes before ``live``."""
    end = sys.maxsize if live is None else live.number
    return next((found for found in _results(job, journal) if number < found[0].attempt < end), None)


def _results(job: str, journal: Journal) -> list[tuple[Position, AttemptResult]]:
    return [(Position(row.number), decode_result(row.result)) for row in journal.attempts(job) if row.result]
