"""The published table of RLScheduler, and the rules of its engine on jobs small enough to check by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.rlscheduler import PUBLISHED, SCORES, RlEngine, RlJob, mean_slowdown, read_jobs, table_entry

SHARED = Path(os.environ.get("SPAWNGATE_SHARED") or Path(__file__).parents[3] / "shared")
TRACE = SHARED / "data" / "traces" / "lublin_256.swf"


@pytest.mark.skipif(not TRACE.is_file(), reason="the trace is not here")
@pytest.mark.parametrize(("policy", "backfilling"), PUBLISHED)
def test_the_published_number_is_reproduced_to_its_last_digit(policy: str, backfilling: bool) -> None:
    jobs, processors = read_jobs(TRACE)
    assert (len(jobs), processors) == (10_000, 256)
    computed = round(table_entry(jobs, processors, policy, backfilling), 2)
    assert computed == PUBLISHED[policy, backfilling]


def run(jobs: list[tuple[int, int, int, int]], policy: str, backfilling: bool) -> list[int]:
    """Return the starts of jobs of (submit, run, processors, requested) on four processors."""
    window = [RlJob(index, *job) for index, job in enumerate(jobs)]
    starts = RlEngine(window, 4, SCORES[policy], backfilling).run()
    return [starts[job.index] for job in window]


def test_the_job_that_was_chosen_is_waited_for_even_if_a_better_one_comes() -> None:
    assert run([(1, 10, 4, 10), (2, 9, 4, 9), (3, 1, 4, 1)], "SJF", False) == [1, 11, 20]


def test_backfilling_ends_strictly_before_the_shadow_time() -> None:
    first, head = (1, 10, 3, 10), (2, 5, 4, 5)
    assert run([first, head, (3, 8, 1, 8)], "FCFS", True) == [1, 11, 16]
    assert run([first, head, (3, 7, 1, 7)], "FCFS", True) == [1, 11, 3]


def test_the_slowdown_is_bounded_below_by_one_and_by_ten_seconds_of_run_time() -> None:
    window = [RlJob(7, 0, 5, 1, 5), RlJob(8, 0, 20, 1, 20)]
    assert mean_slowdown(window, {7: 15, 8: 0}) == (2.0 + 1.0) / 2
