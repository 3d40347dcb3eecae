"""The benchmark: what it feeds to the other simulator, what it computes, and where it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import simulate as benchmark
from benchmarks.simulate import Cost, as_swf, best, measure, measure_log, ratio, sizes, table
from reference_scheduler.workloads import SyntheticOptions, generate, read_workload


def test_the_other_simulator_is_given_the_same_jobs(tmp_path: Path) -> None:
    workload = generate(SyntheticOptions(jobs=50))
    path = tmp_path / "t.swf"
    path.write_text(as_swf(workload))
    read = read_workload(path, 128)
    assert [(t.submit_us, t.run_us, t.job.effective_request.process_slots, t.job.estimate_us) for t in read.jobs] == [
        (t.submit_us, t.run_us, t.job.effective_request.process_slots, t.job.estimate_us) for t in workload.jobs
    ]


def test_a_run_is_measured_and_a_ratio_is_of_processor_time_per_job() -> None:
    cost = measure("synthetic:jobs=50", "easy")
    assert cost.jobs == 50
    assert min(cost.elapsed_s, cost.processor_s, cost.peak_mib) > 0
    assert ratio(Cost(10, 9.0, 2.0, 1), Cost(5, 1.0, 8.0, 1)) == "8.0"
    assert ratio(Cost(10, 9.0, 2.0, 1), None) == f"stopped after {benchmark.ACCASIM_LIMIT_S} s"


def test_the_cheapest_of_short_runs_counts_a_long_one_is_made_once_and_a_stopped_one_is_none() -> None:
    short = [Cost(1, 1.0, processor_s, 1) for processor_s in (3.0, 2.0, 5.0, 1.0)]
    assert best(iter(short).__next__) == short[1]
    assert best(iter([Cost(1, benchmark.SHORT_S + 1, 9.0, 1)]).__next__) == Cost(1, benchmark.SHORT_S + 1, 9.0, 1)
    assert best(iter([short[0], None]).__next__) is None


def test_a_log_is_recorded_measured_and_verified() -> None:
    cost = measure_log("synthetic:jobs=50", "easy")
    assert cost.events == 2 + 2 * 50
    assert cost.size_bytes / cost.events > 100
    assert min(cost.unrecorded_s, cost.recorded_s, cost.verify_s) > 0


def test_tables_go_between_the_marks_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{benchmark.MARKS[0]}\nold\n{benchmark.MARKS[1]}\nbelow\n")
    monkeypatch.setattr(benchmark, "PAGE", page)
    lines = "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert table(["a", "b"], iter([["1", "2"]])) == lines
    assert capsys.readouterr().out == f"{lines}\n"
    benchmark.write_page([lines])
    assert page.read_text() == f"above\n{benchmark.MARKS[0]}\n\n{lines}\n\n{benchmark.MARKS[1]}\nbelow\n"
    assert sizes(100_000) == [1000, 10_000, 100_000]
