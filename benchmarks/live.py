"""How fast the live scheduler takes jobs and starts them, and what it costs when it waits.

    python benchmarks/live.py [--runs 5] [--jobs 1000] [--huey PYTHON] [PART ...]

All of it in one run, medians of ``--runs``, on the disk that holds the temporary folder; beside it stands what bare
SQLite does there at the same time. Every submission is durable (WAL, ``synchronous=FULL``). The part ``jobs`` has the
scheduler run ``/bin/true`` beside what :mod:`benchmarks.process_rate` compares: its clock starts with the submission
of all jobs, or, for the drain rate, when they are queued, and stops when the end of the last is durable.
"""

from __future__ import annotations

import asyncio
import gc
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from benchmarks.process_rate import ABREAST, ARGV, Runner, others, table
from reference_scheduler.config import Settings
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import AttemptState, Config, JobState, QueueBounds, ResourceRequest
from reference_scheduler.errors import SubmissionError
from reference_scheduler.executors.base import AttemptContext, AttemptResult
from reference_scheduler.observers import Notice
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler

CLIENTS = 16
EACH = 100
MANY = 1000
QUEUED = 100_000
IDLE_S = 5.0
COMMITS = 300

Measure = dict[str, float]


class Nothing:
    """An executor whose attempts end at once; ``begun_s`` has when each began."""

    kind = "nothing"

    def __init__(self) -> None:
        self.begun_s: list[float] = []

    def check(self, payload: Mapping[str, Any]) -> None:
        """Take anything."""

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Return."""
        self.begun_s.append(time.perf_counter())
        return AttemptResult(AttemptState.COMPLETED, 0)


def job(number: int = 0) -> JobRequest:
    """Return a small request like those of a build, in one of 50 workspaces."""
    request = ResourceRequest(1, 256, 1, 1, 0)
    payload = {"argv": ["/bin/true", str(number)]}
    return JobRequest(kind="nothing", payload=payload, workspace=f"/project/{number % 50}", request=request)


def settings() -> Settings:
    """Return settings with four places and room for everything in the queue."""
    core = Config(resources=Resources(ABREAST, 8192, ABREAST, 8, 4), queue=QueueBounds(10**6, 10**6, 10**6, 32))
    return replace(Settings(), core=core)


def commits(folder: Path) -> Measure:
    """Commit small rows with SQLite alone, one at a time: what the disk allows."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, body BLOB)")
    begun_s = time.perf_counter()
    for number in range(COMMITS):
        connection.execute("INSERT INTO rows VALUES (?, ?)", (number, bytes(300)))
    elapsed_s = time.perf_counter() - begun_s
    connection.close()
    return {"bare SQLite commits, one row each (1/s)": COMMITS / elapsed_s}


async def submissions(folder: Path) -> Measure:
    """Submit one by one from many clients, then many at once, while nothing is started."""
    async with Scheduler(settings(), folder / "submit.db", [Nothing()]) as scheduler:
        await scheduler.pause()

        async def client() -> None:
            for number in range(EACH):
                await scheduler.submission.submit(job(number))

        begun_s = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        one_by_one_s = time.perf_counter() - begun_s
        requests = [job(number) for number in range(MANY)]
        begun_s = time.perf_counter()
        outcomes = await scheduler.submit_many(requests)
        many_s = time.perf_counter() - begun_s
        assert not any(isinstance(outcome, SubmissionError) for outcome in outcomes)
    return {
        f"submissions one by one from {CLIENTS} clients (1/s)": CLIENTS * EACH / one_by_one_s,
        f"submit_many of {MANY} (1/s)": MANY / many_s,
    }


async def latency(folder: Path) -> Measure:
    """Submit to an idle scheduler and take the time until the executor is called."""
    executor = Nothing()
    waits_ms = []
    async with Scheduler(settings(), folder / "latency.db", [executor]) as scheduler:
        for number in range(300):
            begun_s = time.perf_counter()
            submitted = await scheduler.submission.submit(job(number))
            await scheduler.wait(submitted)
            waits_ms.append(1000 * (executor.begun_s[-1] - begun_s))
    ordered = sorted(waits_ms)
    return {
        "submit to running, median (ms)": statistics.median(ordered),
        "submit to running, 99th percentile (ms)": ordered[len(ordered) * 99 // 100],
    }


async def queued(folder: Path) -> Measure:
    """Queue many jobs and see what memory the process then has, and its most."""
    gc.collect()
    before_mb = _resident_mb()
    async with Scheduler(settings(), folder / "queue.db", [Nothing()]) as scheduler:
        await scheduler.pause()
        for start in range(0, QUEUED, MANY):
            await scheduler.submit_many(job(number) for number in range(start, start + MANY))
        gc.collect()
        return {
            f"memory with {QUEUED} queued (MiB)": _resident_mb(),
            "of it before there was any (MiB)": before_mb,
            "most at any time (MiB)": _status_kb("VmHWM") / 1024,
        }


async def idle(folder: Path) -> Measure:
    """Let a scheduler with one job for later wait."""
    async with Scheduler(settings(), folder / "idle.db", [Nothing()]) as scheduler:
        await scheduler.submit(replace(job(), delay_us=3600 * 10**6))
        before = sum(scheduler.snapshot().wakes.values())
        begun_s = time.process_time()
        await asyncio.sleep(IDLE_S)
        used_s = time.process_time() - begun_s
        wakes = sum(scheduler.snapshot().wakes.values()) - before
    return {"CPU when idle (% of one core)": 100 * used_s / IDLE_S, f"wake-ups in {IDLE_S:g} s idle": wakes}


def true_jobs(count: int, are_queued: bool = False) -> float:
    """Return the seconds that the scheduler takes for ``count`` processes, with their submission unless they wait."""
    request = JobRequest(kind="managed_process", payload={"argv": ARGV}, request=ResourceRequest(1, 256, 1, 1, 0))

    async def finish(scheduler: Scheduler, some: int) -> float:
        notices, left = scheduler.observe(limit=10**6), some
        if are_queued:
            await scheduler.pause()
            await scheduler.submit_many([request] * some)
        began = time.perf_counter()
        await (scheduler.resume() if are_queued else scheduler.submit_many([request] * some))
        async for notice in notices:
            assert isinstance(notice, Notice), notice
            left -= notice.what == JobState.COMPLETED
            if not left:
                break
        notices.close()
        return time.perf_counter() - began

    async def body(folder: Path) -> float:
        async with Scheduler(settings(), folder / "jobs.db") as scheduler:
            await finish(scheduler, ABREAST)
            return await finish(scheduler, count)

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(body(Path(folder)))


def _resident_mb() -> float:
    return _status_kb("VmRSS") / 1024


def _status_kb(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


PARTS: dict[str, Callable[[Path], Measure]] = {
    "commits": commits,
    "submissions": lambda folder: asyncio.run(submissions(folder)),
    "latency": lambda folder: asyncio.run(latency(folder)),
    "idle": lambda folder: asyncio.run(idle(folder)),
    "queued": lambda folder: asyncio.run(queued(folder)),
}
ONCE = {"idle", "queued"}
JOBS = "jobs"


@click.command(context_settings={"show_default": True})
@click.option("--runs", default=5, type=click.IntRange(min=1), help="Runs of each part, of which the median counts.")
@click.option("--jobs", "count", default=1000, type=click.IntRange(min=ABREAST), help="Jobs of each run of the part.")
@click.option("--huey", metavar="PYTHON", help="An interpreter that has huey, to compare with.")
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS, JOBS]))
def main(runs: int, count: int, huey: str | None, parts: tuple[str, ...]) -> None:
    """Measure PARTS (all of them) and print tables."""
    chosen = parts or (*PARTS, JOBS)
    click.echo(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, medians of {runs}")
    measures: dict[str, list[float]] = {}
    for run in range(runs):
        for part in chosen:
            if part == JOBS or (run and part in ONCE):
                continue
            with tempfile.TemporaryDirectory() as folder:
                for name, value in PARTS[part](Path(folder)).items():
                    measures.setdefault(name, []).append(value)
    if measures:
        click.echo("\n| what | median | least | most |\n| --- | ---: | ---: | ---: |")
    for name, values in measures.items():
        shown = " | ".join(f"{value:,.1f}" for value in (statistics.median(values), min(values), max(values)))
        click.echo(f"| {name} | {shown} |")
    if JOBS in chosen:
        ours: dict[str, Runner] = {
            "the scheduler, durable, with submission": true_jobs,
            "the scheduler, durable: drain": partial(true_jobs, are_queued=True),
        }
        click.echo(f"\n{table({**ours, **others(huey)}, count, runs)}")


if __name__ == "__main__":
    sys.exit(main())
