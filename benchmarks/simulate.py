"""Speed of the simulation: jobs per second and peak memory by trace and picker, and cost as a trace grows.

    python benchmarks/simulate.py [--traces FOLDER] [--pickers fcfs,easy] [--largest 100000]

Each row is measured in a process of its own, invariants on. ``FOLDER`` has SWF traces; without it only
generated workloads are run. The last column is microseconds of processor time per job: it stays level when
cost is linear.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from reference_scheduler.drivers.simulation import simulate, simulation_config
from reference_scheduler.workloads import SyntheticOptions, Workload, generate, read_workload

SMALLEST = 1000
GROWTH = 10


def load(source: str) -> Workload:
    """Return the trace at a path, or, for ``generated:N``, a generated workload of N jobs."""
    kind, _, count = source.partition(":")
    if kind == "generated":
        return generate(SyntheticOptions(jobs=int(count)))
    return read_workload(Path(source))


def measure(source: str, picker: str) -> tuple[int, float, float, int]:
    """Return jobs, elapsed and processor seconds of the simulation, and peak memory of the process in MiB."""
    workload = load(source)
    elapsed_s, processor_s = time.perf_counter(), time.process_time()
    simulate(workload, simulation_config(picker))
    elapsed_s, processor_s = time.perf_counter() - elapsed_s, time.process_time() - processor_s
    return (
        len(workload.jobs),
        elapsed_s,
        processor_s,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    )


def sources(traces: Path | None, largest: int) -> Iterator[str]:
    """Yield the traces of a folder, then generated ones from ``SMALLEST`` to ``largest``."""
    if traces is not None:
        yield from sorted(str(path) for path in traces.glob("*.swf*"))
    count = SMALLEST
    while count <= largest:
        yield f"generated:{count}"
        count *= GROWTH


def main() -> None:
    """Print one row for each trace and picker."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--pickers", default="fcfs,easy")
    parser.add_argument("--largest", type=int, default=100_000)
    options = parser.parse_args()
    print(f"{'trace':32} {'picker':13} {'jobs':>8} {'jobs/s':>8} {'MiB':>6} {'us/job':>8}")
    for source in sources(options.traces, options.largest):
        for picker in options.pickers.split(","):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                jobs, elapsed_s, processor_s, peak_mib = pool.submit(measure, source, picker).result()
            name = Path(source).name
            speed, cost_us = jobs / elapsed_s, processor_s / jobs * 1e6
            print(f"{name:32} {picker:13} {jobs:8} {speed:8.0f} {peak_mib:6} {cost_us:8.1f}", flush=True)


if __name__ == "__main__":
    main()
