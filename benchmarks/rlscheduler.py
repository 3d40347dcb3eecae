"""The table of RLScheduler for Lublin-1: average bounded slowdown over ten windows of 1,024 jobs.

    python benchmarks/rlscheduler.py [TRACE]

TRACE is by default ``../shared/data/traces/lublin_256.swf`` beside this repository. Source of table and
engine: Zhang, Dai, He, Bao and Xie, "RLScheduler", SC'20, with the engine in its published code. The pickers
of this package give other numbers, because that engine is not EASY:

- it takes the lowest score of the queued jobs and then waits until that very job has started;
- the queue grows only while it is empty or such a job waits; at one instant an arrival precedes an end;
- with backfilling, the shadow time of the waiting job is computed once, from requested times; then, after
  each arrival or end, the queued jobs start in order of submission if they fit and end strictly before it.

The columns WFP3 and UNICEP of the published table are not reproduced: its code takes the time waited from the
start of a job, -1 until it has started, so ``w`` is -1 - submit for every queued job, and what those columns
rank is something other than the two policies.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import TypeAlias

import msgspec

from reference_scheduler.core.model import SECOND_US
from reference_scheduler.drivers.schedule import BOUND_S
from reference_scheduler.workloads import read_workload

TRACE = Path(__file__).parents[2] / "shared" / "data" / "traces" / "lublin_256.swf"
STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
"""Index of the first job of each window."""
WINDOW = 1024
PUBLISHED: dict[tuple[str, bool], float] = {
    ("FCFS", False): 7273.77,
    ("SJF", False): 277.35,
    ("F1", False): 258.37,
    ("FCFS", True): 235.82,
    ("SJF", True): 73.31,
    ("F1", True): 75.07,
}
"""By policy, without and with backfilling."""


class RlJob(msgspec.Struct, frozen=True):
    """A job: its place in the trace, its width in processors, and its times in seconds."""

    index: int
    submit_s: int
    run_s: int
    processors: int
    requested_s: int


Score: TypeAlias = Callable[[RlJob], float]
SCORES: dict[str, Score] = {
    "FCFS": lambda job: job.submit_s,
    "SJF": lambda job: job.requested_s,
    "F1": lambda job: math.log10(job.requested_s) * job.processors + 870 * math.log10(job.submit_s),
}


class RlEngine:
    """Runs one window of jobs, given in order of submission, on an empty machine of ``processors``."""

    def __init__(self, window: Sequence[RlJob], processors: int, score: Score, backfilling: bool) -> None:
        self._arriving = list(reversed(window))
        self._free = processors
        self._score = score
        self._backfilling = backfilling
        self._now_s = 0
        self._queue: dict[int, RlJob] = {}
        self._running: list[tuple[int, int, RlJob]] = []
        self._starts: dict[int, int] = {}

    def run(self) -> dict[int, int]:
        """Return the start of each job, in seconds, by index; equal scores go by submission."""
        while self._queue or self._arriving:
            if not self._queue:
                self._move_on()
                continue
            job = min(self._queue.values(), key=self._score)
            del self._queue[job.index]
            self._wait_for(job)
            self._start(job)
        return self._starts

    def _wait_for(self, job: RlJob) -> None:
        """Let time pass until ``job`` fits."""
        shadow_s = self._shadow_s(job)
        while job.processors > self._free:
            if self._backfilling:
                self._backfill(shadow_s)
            self._move_on()

    def _shadow_s(self, blocked: RlJob) -> int:
        """Return when ``blocked`` fits if what runs ends as requested."""
        free, shadow_s = self._free, self._now_s
        ends = [(self._starts[index] + job.requested_s, job.processors) for _, index, job in self._running]
        for end_s, processors in sorted(ends):
            if free >= blocked.processors:
                break
            free, shadow_s = free + processors, end_s
        return shadow_s

    def _backfill(self, shadow_s: int) -> None:
        for job in list(self._queue.values()):
            if job.processors <= self._free and self._now_s + job.requested_s < shadow_s:
                del self._queue[job.index]
                self._start(job)

    def _start(self, job: RlJob) -> None:
        self._starts[job.index] = self._now_s
        self._free -= job.processors
        heappush(self._running, (self._now_s + job.run_s, job.index, job))

    def _move_on(self) -> None:
        """Go to the next event: an arrival goes before an end at the same time."""
        if self._arriving and (not self._running or self._arriving[-1].submit_s <= self._running[0][0]):
            job = self._arriving.pop()
            self._now_s = max(self._now_s, job.submit_s)
            self._queue[job.index] = job
        else:
            end_s, _, job = heappop(self._running)
            self._now_s = max(self._now_s, end_s)
            self._free += job.processors


def read_jobs(path: Path) -> tuple[list[RlJob], int]:
    """Return the jobs of a trace and the processors of its machine."""
    workload = read_workload(path)
    jobs = [
        RlJob(
            index,
            timed.submit_us // SECOND_US,
            timed.run_us // SECOND_US,
            timed.job.effective_request.process_slots,
            (timed.job.estimate_us or timed.run_us) // SECOND_US,
        )
        for index, timed in enumerate(workload.jobs)
    ]
    return jobs, workload.workers[0][1].process_slots


def mean_slowdown(window: Sequence[RlJob], starts: Mapping[int, int]) -> float:
    """Return the mean of max(1, (wait + run) / max(run, 10 s)) over the jobs of ``window``."""
    slowdowns = [max(1.0, (starts[job.index] - job.submit_s + job.run_s) / max(job.run_s, BOUND_S)) for job in window]
    return sum(slowdowns) / len(slowdowns)


def table_entry(jobs: Sequence[RlJob], processors: int, policy: str, backfilling: bool) -> float:
    """Return the mean over all windows for one entry of the table."""
    total = 0.0
    for start in STARTS:
        window = jobs[start : start + WINDOW]
        total += mean_slowdown(window, RlEngine(window, processors, SCORES[policy], backfilling).run())
    return total / len(STARTS)


def main() -> None:
    """Print published and computed numbers side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path, default=TRACE)
    jobs, processors = read_jobs(parser.parse_args().trace)
    print(f"{'policy':8} {'backfilling':11} {'published':>10} {'computed':>10}")
    for (policy, backfilling), published in PUBLISHED.items():
        computed = table_entry(jobs, processors, policy, backfilling)
        print(f"{policy:8} {'yes' if backfilling else 'no':11} {published:10.2f} {computed:10.2f}")


if __name__ == "__main__":
    main()
