"""A day's mixed load, compressed, through a live scheduler on SQLite; recorded, verified and simulated.

``python day.py SECONDS [JOBS]`` takes so long. The recording has to verify without a difference, and simulated as a
workload it has to give each job the start that it had.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from live_world import DONE, settings
from msgspec.structs import replace

from reference_scheduler.core.decisions import Dispatch
from reference_scheduler.core.model import Priority
from reference_scheduler.drivers.schedule import starts
from reference_scheduler.drivers.simulation import Tie, simulate, simulation_config
from reference_scheduler.errors import JobEnded
from reference_scheduler.executors.base import AttemptContext, AttemptResult, stopped_state
from reference_scheduler.journal.check import check_journal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.replay import FrameReader
from reference_scheduler.replay.records import Entry, unpack_record
from reference_scheduler.replay.verify import verify
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.workloads import SyntheticOptions, TimedJob, generate
from reference_scheduler.workloads.recorded import read_replay

PROCESSORS = 16


class Report(msgspec.Struct, frozen=True):
    """How many jobs and events there were, how long the longest wait was, and ``different`` starts."""

    jobs: int
    events: int
    longest_wait_us: int
    verified: bool
    different: tuple[str, ...]
    problems: tuple[str, ...]


class Sleeping:
    """Attempts that take the time their payload says."""

    kind = "sleeping"

    def check(self, payload: Mapping[str, Any]) -> None:
        """Take anything."""

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Sleep, or stop when asked to."""
        try:
            async with asyncio.timeout(context.payload["run_us"] / 1e6):
                reason = await context.stop.wait()
        except TimeoutError:
            return DONE
        return AttemptResult(stopped_state(reason))


async def live_through(load: list[TimedJob], scale: float, folder: Path) -> None:
    """Submit each job when its time has come, some as arrays, some with another priority soon after; wait for all."""
    chosen = settings(PROCESSORS)
    loop = asyncio.get_running_loop()
    async with Scheduler(chosen, folder / "j.db", [Sleeping()]) as scheduler:
        scheduler.record_start(folder / "day.replay")
        begun_s = loop.time()
        ids: list[str] = []
        for number, timed in enumerate(load):
            await asyncio.sleep(max(0.0, begun_s + timed.submit_us * scale / 1e6 - loop.time()))
            spec = timed.job
            request = spec.effective_request
            if number % 11 == 0:
                request = replace(request, exclusivity_keys=("workspace-mutation",))
            job = JobRequest(
                kind="sleeping",
                payload={"run_us": int(timed.run_us * scale)},
                key=str(number),
                request=request,
                priority=spec.priority,
                workspace=spec.workspace,
                after_any=(ids[-1],) if number % 13 == 12 else (),
                estimate_us=None if number % 5 == 0 else int((spec.estimate_us or 0) * scale),
                array_size=3 if number % 17 == 5 else 0,
                array_running=2 if number % 17 == 5 else 0,
            )
            ids.append((await scheduler.submit(job)).id)
            if number % 6 == 1:
                with suppress(JobEnded):
                    await scheduler.update(ids[-2], list(Priority)[number % len(Priority)])
        for submitted in ids:
            await scheduler.wait(submitted)


def day(seconds: float, jobs: int, seed: int = 1) -> Report:
    """Live through a day in about so many seconds."""
    options = SyntheticOptions(
        jobs=jobs, seed=seed, processors=PROCESSORS, load=0.9, max_run_s=7200, priorities=tuple(Priority)
    )
    load = list(generate(options).jobs)
    scale = seconds * 1e6 / max(load[-1].submit_us, 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(live_through(load, scale, folder))
        log = folder / "day.replay"
        with log.open("rb") as stream:
            found = verify(stream)
        recorded = _starts(log)
        workload = read_replay(log)
        schedule = simulate(workload, simulation_config(), Tie.BATCH)
        simulated = {job: int(float(start) * 1e6 + 0.5) for job, start in starts(schedule)}
        different = [job for job in {**recorded, **simulated} if recorded.get(job) != simulated.get(job)]
        waits = [recorded[timed.job.id] - timed.submit_us for timed in workload.jobs]
        problems = check_journal(folder / "j.db", Plugins()).problems
        return Report(len(recorded), found.events, max(waits), found.same and found.closed, tuple(different), problems)


def _starts(log: Path) -> dict[str, int]:
    with log.open("rb") as stream:
        records = [unpack_record(frame) for frame in FrameReader(stream).frames()]
    return {
        decision.job: entry.event.at
        for entry in records
        if isinstance(entry, Entry)
        for decision in entry.decisions
        if isinstance(decision, Dispatch)
    }


def main(arguments: list[str]) -> int:
    """Live through a day, say what came of it, and fail if anything differs."""
    report = day(float(arguments[0]), int(arguments[1]) if arguments[1:] else 2000)
    print(f"{report.jobs} jobs, {report.events} events, longest wait {report.longest_wait_us / 1e6:.3f} s")
    print(f"verified: {report.verified}; {len(report.different)} starts differ in simulation: {report.different[:10]}")
    print(*report.problems, sep="\n")
    return 0 if report.verified and not report.different and not report.problems else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
