"""Speed of the simulation: jobs per second and peak memory by trace and picker, cost as a trace grows, and logs.

    python benchmarks/simulate.py [TRACE ...] [--accasim PYTHON] [--largest 1000000] [--write]

Each row is measured in a process of its own, invariants on; reading a trace is included, generating a
workload is not. Traces are SWF files, by default those in ``../shared/data/traces`` beside this repository that
``TRACES`` names. ``PYTHON`` is an interpreter that has accasim==1.1.3; it runs the same jobs, normalised and
written as SWF, right after each row that it has a picker for: with a node for each processor, which is how it
reads SWF and how these machines were built, and on one node with all processors, the quickest for it; once with
all its output off, and once with both programs writing the schedule, as ``refsched simulate --starts`` and AccaSim
as it comes do. Short runs are made three times, on both sides, and the one with the least processor time counts;
ratios are of processor time, so that what else the machine does weighs little. ``--write`` puts the tables into
``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import msgspec

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.model import SECOND_US
from reference_scheduler.drivers.schedule import starts_csv
from reference_scheduler.drivers.simulation import SimulationDriver, simulate, simulation_config
from reference_scheduler.replay import Recorder
from reference_scheduler.replay.verify import verify
from reference_scheduler.workloads import Workload, load_workload
from reference_scheduler.workloads.source import SYNTHETIC

ROOT = Path(__file__).parents[1]
FOLDER = ROOT.parent / "shared" / "data" / "traces"
TRACES = (
    "SDSC-SP2-1998-5K_sample.swf",
    "alea_hpc2n.swf",
    "NASA-iPSC-1993-3.1-cln.swf",
    "lublin_256.swf",
    "predictsim_KTH-SP2_log.swf",
)
PAGE = ROOT / "docs" / "performance.md"
MARKS = ("<!-- scheduler: begin -->", "<!-- scheduler: end -->")
ACCASIM_PICKERS = ("fcfs", "easy")
ACCASIM_LIMIT_S = 600
"""AccaSim is stopped after this long by the clock. No ratio is given then: how much of a processor it had in
that time depends on what else the machine did."""
RUNS = 3
SHORT_S = 10
"""A run that takes longer by the clock is made only once."""
Result = TypeVar("Result")
SMALLEST = 1000
GROWTH = 10


class Cost(msgspec.Struct, frozen=True):
    """What one run took: elapsed and processor seconds, and peak memory of its process in MiB."""

    jobs: int
    elapsed_s: float
    processor_s: float
    peak_mib: int

    @property
    def each_us(self) -> float:
        """Processor time of one job."""
        return self.processor_s / self.jobs * 1e6


class LogCost(msgspec.Struct, frozen=True):
    """A recorded run: its log, and the processor seconds to run it unrecorded, to record and to verify it."""

    events: int
    size_bytes: int
    unrecorded_s: float
    recorded_s: float
    verify_s: float


def peak_mib() -> int:
    """Return the most memory this process has had, in MiB, as Linux counts it.

    ``getrusage`` would count what the parent had when it started this process.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def measure(source: str, picker: str) -> Cost:
    """Read and simulate the trace at a path, or a ``synthetic:`` one."""
    return _measure(source, picker, None)


def measure_written(source: str, picker: str) -> Cost:
    """The same, and write when each job starts."""
    with tempfile.TemporaryDirectory() as folder:
        return _measure(source, picker, Path(folder, "starts.csv"))


def _measure(source: str, picker: str, written: Path | None) -> Cost:
    elapsed_s, processor_s = time.perf_counter(), time.process_time()
    workload = load_workload(source)
    if source.startswith(SYNTHETIC):
        elapsed_s, processor_s = time.perf_counter(), time.process_time()
    schedule = simulate(workload, simulation_config(picker))
    if written is not None:
        written.write_text(starts_csv(schedule), encoding="utf-8")
    elapsed_s, processor_s = time.perf_counter() - elapsed_s, time.process_time() - processor_s
    return Cost(len(workload.jobs), elapsed_s, processor_s, peak_mib())


def measure_log(source: str, picker: str) -> LogCost:
    """Record the run of ``source`` and verify what was recorded."""
    workload, config = load_workload(source), simulation_config(picker)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "run.replay")
        times_s = [time.process_time()]
        simulate(workload, config)
        times_s.append(time.process_time())
        core = SchedulerCore()
        with Recorder.start(log, core) as recorder:
            SimulationDriver(core, workload, observer=recorder).run(config)
        times_s.append(time.process_time())
        with log.open("rb") as stream:
            found = verify(stream)
        times_s.append(time.process_time())
        if not found.same:
            raise RuntimeError(f"{source}, {picker}: what was recorded does not replay")
        size_bytes = log.stat().st_size
    unrecorded_s, recorded_s, verify_s = (later - earlier for earlier, later in pairwise(times_s))
    return LogCost(found.events, size_bytes, unrecorded_s, recorded_s, verify_s)


def apart(measured: Callable[[str, str], Result], source: str, picker: str) -> Result:
    """Measure in a process of its own, so that peak memory is that of this run."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measured, source, picker).result()


def best(run: Callable[[], Cost | None]) -> Cost | None:
    """Return the cheapest of a few runs, ``None`` if a run was stopped."""
    costs: list[Cost] = []
    while len(costs) < RUNS:
        cost = run()
        if cost is None:
            return None
        costs.append(cost)
        if cost.elapsed_s > SHORT_S:
            break
    return min(costs, key=lambda cost: cost.processor_s)


def as_swf(workload: Workload) -> str:
    """Return the jobs of a workload on one machine as SWF with all fields that AccaSim reads."""
    lines = []
    for number, timed in enumerate(workload.jobs, 1):
        width = timed.job.effective_request.process_slots
        run_s, estimate_s = timed.run_us // SECOND_US, (timed.job.estimate_us or timed.run_us) // SECOND_US
        lines.append(
            f"{number} {timed.submit_us // SECOND_US} -1 {run_s} {width} -1 -1 "
            f"{width} {estimate_s} -1 1 1 1 -1 1 -1 -1 -1\n"
        )
    return "".join(lines)


def measure_accasim(python: str, source: str, picker: str, one_node: bool, written: bool) -> Cost | None:
    """Run the jobs of ``source`` through AccaSim, the schedule ``written`` or not.

    Returns ``None`` if it takes longer than ``ACCASIM_LIMIT_S``.
    """
    workload = load_workload(source)
    processors = workload.workers[0][1].process_slots
    with tempfile.NamedTemporaryFile("w", suffix=".swf") as trace:
        trace.write(as_swf(workload))
        trace.flush()
        nodes = 1 if one_node else processors
        script = Path(__file__).with_name("accasim_run.py")
        command = [python, str(script), trace.name, picker, str(processors), str(nodes), *["schedule"] * written]
        try:
            done = subprocess.run(command, check=True, capture_output=True, timeout=ACCASIM_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def ratio(ours: Cost, theirs: Cost | None) -> str:
    """Say how many times the processor time per job of ``ours`` AccaSim takes."""
    if theirs is None:
        return f"stopped after {ACCASIM_LIMIT_S} s"
    return f"{theirs.each_us / ours.each_us:.1f}"


def trace_row(source: str, picker: str, accasim: str | None) -> list[str]:
    """Measure one trace under one picker, and right after it AccaSim if it has the picker."""
    ours = best(lambda: apart(measure, source, picker))
    assert ours is not None, "a run of ours is never stopped"
    row = [Path(source).stem, picker, str(ours.jobs), f"{ours.jobs / ours.elapsed_s:.0f}"]
    row += [f"{ours.each_us:.0f}", str(ours.peak_mib)]
    if accasim is None or picker not in ACCASIM_PICKERS:
        return [*row, *[""] * (len(TRACE_HEAD) - len(row))]
    return row + against(accasim, source, picker, ours, written=False)


def written_row(source: str, picker: str, accasim: str) -> list[str]:
    """Measure one trace under one picker, and AccaSim, the schedule written by both."""
    ours = best(lambda: apart(measure_written, source, picker))
    assert ours is not None, "a run of ours is never stopped"
    row = [Path(source).stem, picker, f"{ours.each_us:.0f}"]
    return row + against(accasim, source, picker, ours, written=True)


def against(accasim: str, source: str, picker: str, ours: Cost, *, written: bool) -> list[str]:
    """Measure AccaSim on both machines: processor time of a job and its ratio to ``ours`` for each, then MiB."""
    row: list[str] = []
    for one_node in (False, True):
        theirs = best(lambda: measure_accasim(accasim, source, picker, one_node, written))  # noqa: B023 - called at once
        row += ["" if theirs is None else f"{theirs.each_us:.0f}", ratio(ours, theirs)]
    return [*row, "" if theirs is None else str(theirs.peak_mib)]


def growth_row(jobs: int, picker: str) -> list[str]:
    """Measure a generated workload of ``jobs`` jobs."""
    cost = apart(measure, f"{SYNTHETIC}jobs={jobs}", picker)
    return [str(jobs), picker, f"{cost.jobs / cost.elapsed_s:.0f}", f"{cost.each_us:.0f}", str(cost.peak_mib)]


def log_row(source: str, picker: str) -> list[str]:
    """Record and verify one trace under one picker."""
    cost = apart(measure_log, source, picker)
    added_us = (cost.recorded_s - cost.unrecorded_s) / cost.events * 1e6
    sizes_and_times = [cost.size_bytes / cost.events, added_us, cost.events / cost.verify_s]
    return [Path(source).stem, picker, str(cost.events), *(f"{number:.0f}" for number in sizes_and_times)]


TRACE_HEAD = [
    *("trace", "picker", "jobs", "jobs/s", "µs/job", "MiB"),
    *("AccaSim µs/job, node per processor", "ratio", "AccaSim µs/job, one node", "ratio", "MiB"),
]
WRITTEN_HEAD = ["trace, schedule written", "picker", "µs/job", *TRACE_HEAD[6:]]
GROWTH_HEAD = ["jobs", "picker", "jobs/s", "µs/job", "MiB"]
LOG_HEAD = ["trace", "picker", "events", "bytes/event", "µs/event to record", "events/s to verify"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, and print each line as soon as it is known."""
    lines = []
    for cells in chain([head, ["---"] * len(head)], rows):
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def sizes(largest: int) -> list[int]:
    """Return the sizes from ``SMALLEST`` up to ``largest``."""
    found = [SMALLEST]
    while found[-1] * GROWTH <= largest:
        found.append(found[-1] * GROWTH)
    return found


def write_page(tables: Sequence[str]) -> None:
    """Put ``tables`` between the scheduler's marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    PAGE.write_text("\n\n".join([before + MARKS[0], *tables, MARKS[1] + after]), encoding="utf-8")


def main() -> None:
    """Print one row for each trace and picker, then for each size and picker, then for each log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--pickers", default="fcfs,easy,fair,conservative")
    parser.add_argument("--growing", default="fcfs,easy", help="pickers for the generated workloads")
    parser.add_argument("--accasim", metavar="PYTHON")
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    traces = [str(trace) for trace in options.traces or [FOLDER / name for name in TRACES]]
    pickers, growing = options.pickers.split(","), options.growing.split(",")
    pairs = [(trace, picker) for trace in traces for picker in pickers]
    tables = [table(TRACE_HEAD, (trace_row(*pair, options.accasim) for pair in pairs))]
    if options.accasim:
        compared = (pair for pair in pairs if pair[1] in ACCASIM_PICKERS)
        tables.append(table(WRITTEN_HEAD, (written_row(*pair, options.accasim) for pair in compared)))
    tables += [
        table(GROWTH_HEAD, (growth_row(n, picker) for picker in growing for n in sizes(options.largest))),
        table(LOG_HEAD, (log_row(trace, picker) for trace in traces for picker in growing)),
    ]
    if options.write:
        write_page(tables)


if __name__ == "__main__":
    main()
