"""Runs one trace through AccaSim 1.1.3 and prints, as JSON, what it took; called by ``simulate.py``.

    python benchmarks/accasim_run.py TRACE fcfs|easy PROCESSORS NODES [SCHEDULE]

It imports nothing of this project, so that it can run in an environment of its own. All output of AccaSim is
off; with ``SCHEDULE``, any word, the schedule is written, as it is by default, by processes of its own whose time
counts. Its EASY does not protect the reservation of the head, so only speed is compared, never schedules.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import resource
import sys
import tempfile
import time
from pathlib import Path


def peak_mib() -> int:
    """Return the most memory this process has had, in MiB, as Linux counts it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def processor_s() -> float:
    """Return the processor time of this process and of those that it has waited for, in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    """Print jobs dispatched, elapsed and processor seconds, and peak memory in MiB."""
    trace, picker, processors, nodes, *schedule = sys.argv[1:]
    collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]  # gone since Python 3.10
    from accasim.base.allocator_class import FirstFit  # type: ignore[import-not-found]
    from accasim.base.scheduler_class import (  # type: ignore[import-not-found]
        EASYBackfilling,
        FirstInFirstOut,
    )
    from accasim.base.simulator_class import Simulator  # type: ignore[import-not-found]

    dispatcher = {"fcfs": FirstInFirstOut, "easy": EASYBackfilling}[picker](FirstFit())
    node = {"core": int(processors) // int(nodes)}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "machine.json")
        config.write_text(json.dumps({"groups": {"node": node}, "resources": {"node": int(nodes)}}))
        simulator = Simulator(
            trace,
            str(config),
            dispatcher,
            scheduling_output=bool(schedule),
            statistics_output=False,
            show_statistics=False,
            RESULTS_FOLDER_PATH=folder,
            LOG_LEVEL="ERROR",
        )
        began_s, spent_s = time.perf_counter(), processor_s()
        simulator.start_simulation()
        elapsed_s, spent_s = time.perf_counter() - began_s, processor_s() - spent_s
    print(json.dumps([simulator.dispatched_jobs, elapsed_s, spent_s, peak_mib()]))


if __name__ == "__main__":
    main()
