"""Processes a second: ``/bin/true``, four at a time, both pipes captured, a session of its own, a clean environment.

    python benchmarks/process_rate.py [--processes 1000] [--rounds 5] [--huey PYTHON]

Nothing is durable here but huey's queue: this is the process service alone, beside what else starts processes. The
runners take turns in each round, each after a probe of what the machine gives at that moment (one ``posix_spawn``
after the other); the table has medians. Processor time is that of the runner and of all that it starts, its own start
included; what else the machine does weighs least on it. GNU parallel and task-spooler (Debian: ``parallel``,
``task-spooler``) are left out where they are missing. ``PYTHON`` is an interpreter that has huey: its queue is SQLite
with ``fsync``, filled before the clock starts, and it keeps each exit status and output, as the scheduler does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

from reference_scheduler.processes.model import ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService

ABREAST = 4
ARGV = ("/bin/true",)
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
PROBES = 200
POOL = "`ThreadPoolExecutor` and `subprocess.run`"
DAEMON = "task-spooler"
TASK_SPOOLER_SHARE = 5
"""Task-spooler starts a process to enqueue each process, so it gets fewer of them."""

Runner = Callable[[int], float]
"""Takes a number of processes, and returns the seconds in which it ran them."""

HUEY = """
import queue, subprocess, sys, time
from huey import SqliteHuey
folder, count, abreast = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
huey = SqliteHuey(filename=folder + "/huey.db", fsync=True, results=True)
ends = queue.SimpleQueue()
@huey.task()
def work():
    done = subprocess.run(["/bin/true"], capture_output=True, start_new_session=True, env={"PATH": "/usr/bin:/bin"})
    return done.returncode, done.stdout, done.stderr
@huey.signal("complete")
def end(*_):
    ends.put(None)
for _ in range(count):
    work()
consumer = huey.create_consumer(workers=abreast, periodic=False, initial_delay=0.001, max_delay=0.01)
began = time.perf_counter()
consumer.start()
for _ in range(count):
    ends.get()
print(time.perf_counter() - began)
consumer.stop(graceful=True)
"""


def managed(count: int) -> float:
    """Return the seconds that the process service takes, once it runs."""

    async def worker(service: ManagedProcessService, share: int) -> None:
        for _ in range(share):
            result = await service.run(ProcessSpec(argv=ARGV, env=ENVIRONMENT))
            assert result.exit_code == 0

    async def body() -> float:
        async with ManagedProcessService(inherited=()) as service:
            await asyncio.gather(*(worker(service, 1) for _ in range(ABREAST)))
            began = time.perf_counter()
            await asyncio.gather(*(worker(service, count // ABREAST) for _ in range(ABREAST)))
            return time.perf_counter() - began

    return asyncio.run(body())


def pool(count: int) -> float:
    """Return the seconds that ``ThreadPoolExecutor`` with ``subprocess.run`` takes."""

    def work(_: int) -> None:
        subprocess.run(ARGV, capture_output=True, start_new_session=True, env=ENVIRONMENT, check=True)

    with ThreadPoolExecutor(ABREAST) as executor:
        began = time.perf_counter()
        for _ in executor.map(work, range(count)):
            pass
        return time.perf_counter() - began


def gnu_parallel(count: int) -> float:
    """Return the seconds that GNU parallel takes, its own start included."""
    began = time.perf_counter()
    argv = ["parallel", "--will-cite", f"-j{ABREAST}", "-N0", *ARGV, ":::", *map(str, range(count))]
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def task_spooler(count: int) -> float:
    """Return the seconds that task-spooler takes for ``count`` processes, from enqueuing on."""
    few = count // TASK_SPOOLER_SHARE
    with tempfile.TemporaryDirectory() as folder:
        environment = {**ENVIRONMENT, "TS_SOCKET": f"{folder}/socket", "TMPDIR": folder, "TS_MAXFINISHED": str(few)}

        def tsp(*arguments: str) -> None:
            subprocess.run(["tsp", *arguments], stdout=subprocess.DEVNULL, env=environment, check=True)

        tsp("-S", str(ABREAST))
        try:
            began = time.perf_counter()
            for _ in range(few):
                tsp(*ARGV)
            while b"queued" in (listed := subprocess.check_output(["tsp"], env=environment)) or b"running" in listed:
                time.sleep(0.001)
            return (time.perf_counter() - began) * TASK_SPOOLER_SHARE
        finally:
            tsp("-K")


def huey_at(python: str) -> Runner:
    """Return a runner that has huey drain a full queue."""

    def huey(count: int) -> float:
        with tempfile.TemporaryDirectory(dir=Path.home()) as folder:  # not a file system in memory
            argv = [python, "-c", HUEY, folder, str(count), str(ABREAST)]
            return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    return huey


def probe() -> float:
    """Return how many processes a second one bare ``posix_spawn`` after the other gives."""
    began = time.perf_counter()
    for _ in range(PROBES):
        os.waitpid(os.posix_spawn(ARGV[0], ARGV, ENVIRONMENT), 0)
    return PROBES / (time.perf_counter() - began)


class Sample(NamedTuple):
    """One run: its rate and that of the probe before it, in processes a second, and its processor time for each."""

    rate: float
    bare: float
    processor_us: float


def sample(runner: Runner, count: int) -> Sample:
    """Run ``runner`` once."""
    bare, before = probe(), os.times()
    rate = count / runner(count)
    return Sample(rate, bare, 1e6 * (sum(os.times()[:4]) - sum(before[:4])) / count)


def others(python_with_huey: str | None) -> dict[str, Runner]:
    """Return what is compared with, as far as it is installed."""
    runners: dict[str, Runner] = {POOL: pool}
    if shutil.which("parallel"):
        runners["GNU parallel"] = gnu_parallel
    if shutil.which("tsp"):
        runners[DAEMON] = task_spooler
    if python_with_huey:
        runners["huey, SQLite with fsync, results kept: drain"] = huey_at(python_with_huey)
    return runners


def table(runners: dict[str, Runner], count: int, rounds: int) -> str:
    """Let the runners take turns, and return a table of their medians; each share is one of the pool's same round."""
    samples: dict[str, list[Sample]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            samples[name].append(sample(runner, count))
    lines = [
        "| runner | processes/s | of the pool's | bare spawn beside it, processes/s | processor time each, µs |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, some in samples.items():
        one = Sample(*map(median, zip(*some, strict=True)))
        share = median(mine.rate / pools.rate for mine, pools in zip(some, samples[POOL], strict=True))
        processor = "its server is no child" if name == DAEMON else f"{one.processor_us:.0f}"
        lines.append(f"| {name} | {one.rate:.0f} | {share:.2f} | {one.bare:.0f} | {processor} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--huey", metavar="PYTHON")
    options = parser.parse_args()
    print(table({"`ManagedProcessService`": managed, **others(options.huey)}, options.processes, options.rounds))


if __name__ == "__main__":
    main()
