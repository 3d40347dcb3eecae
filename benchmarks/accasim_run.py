"""Runs one trace through AccaSim 1.1.3 and prints, as JSON, what it took; called by ``simulate.py``.

    python benchmarks/accasim_run.py TRACE fcfs|easy PROCESSORS NODES

It imports nothing of this project, so that it can run in an environment of its own. All output of AccaSim is
off. Its EASY does not protect the reservation of the head, so only speed is compared, never schedules.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
import tempfile
import time
from pathlib import Path


def peak_mib() -> int:
    """Return the most memory this process has had, in MiB, as Linux counts it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def main() -> None:
    """Print jobs dispatched, elapsed and processor seconds, and peak memory in MiB."""
    trace, picker, processors, nodes = sys.argv[1:]
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
            scheduling_output=False,
            statistics_output=False,
            show_statistics=False,
            RESULTS_FOLDER_PATH=folder,
            LOG_LEVEL="ERROR",
        )
        elapsed_s, processor_s = time.perf_counter(), time.process_time()
        simulator.start_simulation()
        elapsed_s, processor_s = time.perf_counter() - elapsed_s, time.process_time() - processor_s
    print(json.dumps([simulator.dispatched_jobs, elapsed_s, processor_s, peak_mib()]))


if __name__ == "__main__":
    main()
