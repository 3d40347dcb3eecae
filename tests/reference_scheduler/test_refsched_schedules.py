"""Schedules of an independent simulator, start by start, from the tables and straight from the traces.

The data has its own terms and is not part of the repository: without it these tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reference_scheduler.drivers.schedule import first_difference
from reference_scheduler.drivers.simulation import Tie, simulate, simulation_config
from reference_scheduler.workloads import Workload, read_workload

SHARED = Path(os.environ.get("SPAWNGATE_SHARED") or Path(__file__).parents[3] / "shared")
DATA = SHARED / "data"
TRACES = {
    "sdsc_sp2_5k": ("SDSC-SP2-1998-5K_sample.swf", 128, 4606),
    "hpc2n_3k": ("alea_hpc2n.swf", 240, 3145),
    "nasa_ipsc": ("NASA-iPSC-1993-3.1-cln.swf", 128, 18066),
    "lublin_256": ("lublin_256.swf", 256, 10000),
}
CASES = [
    *((trace, picker, Tie.EVENT, f"{picker}__pyss") for trace in TRACES for picker in ("fcfs", "easy")),
    ("sdsc_sp2_5k", "easy-sjf", Tie.EVENT, "easysjbf__pyss"),
    ("sdsc_sp2_5k", "conservative", Tie.EVENT, "cons__pyss"),
    ("hpc2n_3k", "easy", Tie.BATCH, "easy__oracle_batch"),
]


pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the traces are not here")


def jobs_of(workload: Workload) -> list[tuple[str, int, int, int, int | None]]:
    return [
        (t.job.id, t.submit_us, t.run_us, t.job.effective_request.process_slots, t.job.estimate_us)
        for t in workload.jobs
    ]


@pytest.mark.parametrize("trace", TRACES)
def test_the_trace_and_the_table_have_the_same_jobs(trace: str) -> None:
    swf, processors, _ = TRACES[trace]
    table = read_workload(DATA / "schedules" / f"{trace}__jobs.csv", processors)
    straight = read_workload(DATA / "traces" / swf)
    assert jobs_of(straight) == jobs_of(table)
    assert straight.workers == table.workers


@pytest.mark.parametrize(("trace", "picker", "tie", "reference"), CASES)
def test_every_start_is_that_of_the_reference(trace: str, picker: str, tie: Tie, reference: str) -> None:
    swf, _, jobs = TRACES[trace]
    schedule = simulate(read_workload(DATA / "traces" / swf), simulation_config(picker), tie)
    assert len(schedule.runs) == jobs
    assert first_difference(schedule, DATA / "schedules" / f"{trace}__{reference}.csv") is None
