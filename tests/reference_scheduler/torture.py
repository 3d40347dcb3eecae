"""Kills a scheduler at random moments, again and again, and then asks what became of its jobs.

``python torture.py SECONDS``; ``make torture`` runs it for a minute. Jobs are real processes that append a line to a
file when they begin and when they end, so what ran how often is known without asking the scheduler.
"""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from live_world import line_of, settings, start_program

from reference_scheduler.core.machine import TERMINAL
from reference_scheduler.core.model import Idempotency
from reference_scheduler.journal.check import check_journal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.views import JobView

CLASSES = list(Idempotency)
REPEATED = (Idempotency.READ_ONLY, Idempotency.SAFE_REPEAT)
MAX_KEPT = 20_000

VICTIM = """
import sys
import torture
torture.victim(*sys.argv[1:])
"""


class Report(msgspec.Struct, frozen=True):
    """What a torture came to; ``broken`` has what must never be."""

    kills: int
    acknowledged: int
    interrupted: int
    broken: tuple[str, ...]


def request(folder: Path, key: str) -> JobRequest:
    """Return a job, or an array, of some class that leaves its traces in ``folder``."""
    number = number_of(key)
    traces = shlex.quote(str(folder / "traces"))
    label = f'"{key}${{SPAWNGATE_ARRAY_INDEX+.$SPAWNGATE_ARRAY_INDEX}}"'
    script = f"echo begin {label} >> {traces}; sleep 0.0{number % 4}; echo end {label} >> {traces}"
    idempotency, size = CLASSES[number % len(CLASSES)], 3 if number % 7 == 2 else 0
    return JobRequest(
        kind="shell",
        payload={"script": script},
        key=key,
        idempotency=idempotency,
        array_size=size,
        array_running=size // 2,
    )


def number_of(label: str) -> int:
    """Return which of a client's requests a key, or the label of one job of an array, belongs to."""
    return int(label.rpartition("-")[2].partition(".")[0])


def victim(folder: str, seed: str) -> None:
    """Run a scheduler that takes jobs without an end, and print the key of each that is acknowledged."""
    asyncio.run(_victim(Path(folder), seed))


async def _victim(folder: Path, seed: str) -> None:
    async with Scheduler(settings(4, keep_ended=MAX_KEPT), folder / "journal.db") as scheduler:
        report = scheduler.recovery
        print(f"started {report.interrupted} {report.strays}", flush=True)

        async def client(name: int) -> None:
            for count in range(10**6):
                key = f"{seed}-{name}-{count}"
                await scheduler.submit(request(folder, key))
                print(key, flush=True)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(client(name) for name in range(4)))


def torture(seconds: float, seed: int = 0) -> Report:
    """Kill a scheduler at random moments for so long, and return what was found afterwards."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        acknowledged: list[str] = []
        kills = interrupted = 0
        end = time.monotonic() + seconds
        while kills < 2 or time.monotonic() < end:
            program = start_program(VICTIM, folder, f"{seed}.{kills}")
            try:
                interrupted += int(line_of(program).split()[1])
                time.sleep(draw.uniform(0, 0.4))
            finally:
                program.kill()
            acknowledged += program.communicate()[0].split()
            kills += 1
        return Report(kills, len(acknowledged), interrupted, tuple(asyncio.run(_examine(folder, acknowledged))))


async def _examine(folder: Path, acknowledged: list[str]) -> list[str]:
    """Let all that is left come to its end, and compare with the traces that the jobs left."""
    broken = list(check_journal(folder / "journal.db", Plugins()).problems)
    async with Scheduler(settings(4, keep_ended=MAX_KEPT), folder / "journal.db") as scheduler:
        views = {view.key: view for view in scheduler.jobs(limit=10**6)}
        jobs: dict[str, JobView] = {}
        for key, view in views.items():
            tasks = scheduler.jobs(array=view.id) if view.array_size else []
            if len(tasks) != view.array_size:
                broken.append(f"{key} is an array of {view.array_size} and has {len(tasks)} jobs")
            for task in tasks:
                jobs[f"{key}.{task.array_index}"] = await scheduler.wait(task.id, 60)
            if not tasks:
                jobs[key] = await scheduler.wait(view.id, 60)
        shown = scheduler.snapshot()
        if any(shown.budget.used):
            broken.append(f"capacity is not full afterwards: {shown.budget.used} is held")
    broken += [f"{key} was acknowledged and is lost" for key in acknowledged if key not in views]
    broken += _runs(folder, jobs)
    broken += check_journal(folder / "journal.db", Plugins()).problems
    marked = _marked(folder)
    return broken + [f"process {pid} is left" for pid in marked]


def _runs(folder: Path, jobs: dict[str, JobView]) -> list[str]:
    traces = (folder / "traces").read_text().splitlines()
    begun, ended = (Counter(line.split()[1] for line in traces if line.startswith(word)) for word in ("begin", "end"))
    broken = []
    for key, view in jobs.items():
        idempotency = CLASSES[number_of(key) % len(CLASSES)]
        if view.state not in TERMINAL:
            broken.append(f"{key} is {view.state}")
        if begun[key] > 1 and idempotency not in REPEATED:
            broken.append(f"{key} is {idempotency} and ran {begun[key]} times")
        if view.state == "completed" and not ended[key]:
            broken.append(f"{key} is completed and never ended")
        if idempotency in REPEATED and view.state not in ("completed", "dead_letter"):
            broken.append(f"{key} may be repeated and is {view.state}")
    broken += [f"{key} ran and is not known" for key in begun if key not in jobs]
    return broken


def _marked(folder: Path) -> list[str]:
    """Return the processes whose arguments name ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in arguments:
                found.append(entry.name)
    return found


def main(arguments: list[str]) -> int:
    """Torture for so many seconds, say what came of it, and fail if anything did that must not."""
    report: Any = torture(float(arguments[0]), seed=int(time.time()))
    print(f"{report.kills} kills, {report.acknowledged} jobs acknowledged, {report.interrupted} attempts cut short")
    for line in report.broken:
        print(line)
    print(f"{len(report.broken)} violations")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
