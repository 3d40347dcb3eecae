"""Speed of the simulation: jobs per second and peak memory by trace and picker, and cost as a trace grows.

    python benchmarks/simulate.py [TRACE ...] [--accasim PYTHON] [--largest 1000000] [--write]

Each row is measured in a process of its own, invariants on, no log written; reading a trace is included,
generating a workload is not. Traces are SWF files, by default those in ``../shared/data/traces`` beside this
repository. ``PYTHON`` is an interpreter that has accasim==1.1.3; it runs the same jobs, normalised and
written as SWF, right after each row that it has a picker for: on one node with all processors (the quickest
for it, and the machine that the row has), and with a node for each processor (how it reads SWF). Ratios are
of processor time, so that what else the machine does weighs little. ``--write`` puts the tables into
``docs/performance-scheduler.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import msgspec

from reference_scheduler.core.model import SECOND_US
from reference_scheduler.drivers.simulation import simulate, simulation_config
from reference_scheduler.workloads import Workload, load_workload
from reference_scheduler.workloads.source import SYNTHETIC

ROOT = Path(__file__).parents[1]
TRACES = ROOT.parent / "shared" / "data" / "traces"
PAGE = ROOT / "docs" / "performance-scheduler.md"
MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")
ACCASIM_PICKERS = ("fcfs", "easy")
ACCASIM_LIMIT_S = 40
"""AccaSim is stopped after this long by the clock. No ratio is given then: how much of a processor it had in
that time depends on what else the machine did."""
SMALLEST = 1000
GROWTH = 10


class Cost(msgspec.Struct, frozen=True):
    """What one run took: elapsed and processor seconds, and peak memory of its process in MiB."""

    jobs: int
    elapsed_s: float
    processor_s: float
    peak_mib: int


def peak_mib() -> int:
    """Return the most memory this process has had, in MiB, as Linux counts it.

    ``getrusage`` would count what the parent had when it started this process.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def measure(source: str, picker: str) -> Cost:
    """Read and simulate the trace at a path, or a ``synthetic:`` one."""
    elapsed_s, processor_s = time.perf_counter(), time.process_time()
    workload = load_workload(source)
    if source.startswith(SYNTHETIC):
        elapsed_s, processor_s = time.perf_counter(), time.process_time()
    simulate(workload, simulation_config(picker))
    elapsed_s, processor_s = time.perf_counter() - elapsed_s, time.process_time() - processor_s
    return Cost(len(workload.jobs), elapsed_s, processor_s, peak_mib())


def measure_apart(source: str, picker: str) -> Cost:
    """Measure in a process of its own, so that peak memory is that of this run."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, source, picker).result()


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


def measure_accasim(python: str, source: str, picker: str, one_node: bool) -> Cost | None:
    """Run the jobs of ``source`` through AccaSim; ``None`` if it takes longer than ``ACCASIM_LIMIT_S``."""
    workload = load_workload(source)
    processors = workload.workers[0][1].process_slots
    with tempfile.NamedTemporaryFile("w", suffix=".swf") as trace:
        trace.write(as_swf(workload))
        trace.flush()
        nodes = 1 if one_node else processors
        script = Path(__file__).with_name("accasim_run.py")
        command = [python, str(script), trace.name, picker, str(processors), str(nodes)]
        try:
            done = subprocess.run(command, check=True, capture_output=True, timeout=ACCASIM_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def ratio(ours: Cost, theirs: Cost | None) -> str:
    """Say how many times the processor time per job of ``ours`` AccaSim takes."""
    if theirs is None:
        return f"stopped after {ACCASIM_LIMIT_S} s"
    return f"{theirs.processor_s / theirs.jobs / (ours.processor_s / ours.jobs):.1f}"


def trace_row(source: str, picker: str, accasim: str | None) -> list[str]:
    """Measure one trace under one picker, and right after it AccaSim if it has the picker."""
    ours = measure_apart(source, picker)
    speed = f"{ours.jobs / ours.elapsed_s:.0f}"
    row = [Path(source).stem, picker, str(ours.jobs), speed, f"{ours.processor_s / ours.jobs * 1e6:.0f}"]
    row.append(str(ours.peak_mib))
    if accasim is None or picker not in ACCASIM_PICKERS:
        return [*row, "", "", "", ""]
    one, many = (measure_accasim(accasim, source, picker, one_node) for one_node in (True, False))
    their_speed = "" if one is None else f"{one.jobs / one.elapsed_s:.0f}"
    peak = "" if one is None else str(one.peak_mib)
    return [*row, their_speed, peak, ratio(ours, one), ratio(ours, many)]


def growth_row(jobs: int, picker: str) -> list[str]:
    """Measure a generated workload of ``jobs`` jobs."""
    cost = measure_apart(f"{SYNTHETIC}jobs={jobs}", picker)
    speed, each_us = cost.jobs / cost.elapsed_s, cost.processor_s / cost.jobs * 1e6
    return [str(jobs), picker, f"{speed:.0f}", f"{each_us:.0f}", str(cost.peak_mib)]


TRACE_HEAD = [
    *("trace", "picker", "jobs", "jobs/s", "µs/job", "MiB"),
    *("AccaSim jobs/s", "AccaSim MiB", "ratio, one node", "ratio, node per processor"),
]
GROWTH_HEAD = ["jobs", "picker", "jobs/s", "µs/job", "MiB"]


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
    """Put ``tables`` between the marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    PAGE.write_text("\n\n".join([before + MARKS[0], *tables, MARKS[1] + after]), encoding="utf-8")


def main() -> None:
    """Print one row for each trace and picker, then one for each size and picker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--pickers", default="fcfs,easy,fair,conservative")
    parser.add_argument("--growing", default="fcfs,easy", help="pickers for the generated workloads")
    parser.add_argument("--accasim", metavar="PYTHON")
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    traces = options.traces or sorted(TRACES.glob("*.swf*"))
    pickers, growing = options.pickers.split(","), options.growing.split(",")
    tables = [
        table(TRACE_HEAD, (trace_row(str(t), picker, options.accasim) for t in traces for picker in pickers)),
        table(GROWTH_HEAD, (growth_row(n, picker) for picker in growing for n in sizes(options.largest))),
    ]
    if options.write:
        write_page(tables)


if __name__ == "__main__":
    main()
