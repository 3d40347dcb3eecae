"""Readers, generators, the simulation's rules and measures, and the command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from reference_scheduler.cli import main
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.events import Event, Tick
from reference_scheduler.core.model import JobSpec, Priority, ResourceRequest
from reference_scheduler.drivers.schedule import JobRun, Schedule, first_difference, metrics, starts
from reference_scheduler.drivers.simulation import Tie, simulate, simulation_config
from reference_scheduler.workloads import (
    SyntheticOptions,
    TimedJob,
    Workload,
    WorkloadError,
    generate,
    read_workload,
    write_jsonl,
)

S = 1_000_000
SWF = """\
; MaxNodes: 4
; MaxProcs: 8
;
  1  10 -1 100  2 -1 -1 -1  60 -1 1 7 1 -1 3 -1 -1 -1
  2  11 -1  50 -1 -1 -1 99 200 -1 1 -1 1 -1 -1 -1 -1 -1 {9,9} extra
  3  12 -1  -1  2 -1 -1  2  60 -1 5 7 1 -1 3 -1 -1 -1
  4  13 -1  10  0 -1 -1 -1  60 -1 5 7 1 -1 3 -1 -1 -1
  5  14 -1  10  1
"""


def summary(workload: Workload) -> list[tuple[str, int, int, int, int]]:
    return [
        (
            t.job.id,
            t.submit_us // S,
            t.run_us // S,
            t.job.effective_request.process_slots,
            (t.job.estimate_us or 0) // S,
        )
        for t in workload.jobs
    ]


@pytest.mark.parametrize("zipped", [False, True])
def test_swf_rows_are_normalised_and_unusable_ones_counted(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / ("t.swf.gz" if zipped else "t.swf")
    path.write_bytes(gzip.compress(SWF.encode()) if zipped else SWF.encode())
    workload = read_workload(path)
    assert summary(workload) == [("1", 10, 100, 2, 100), ("2", 11, 50, 8, 200), ("5", 14, 10, 1, 10)]
    assert (workload.skipped, workload.workers) == (2, (("machine", Resources(process_slots=8)),))
    spec = workload.jobs[0].job
    assert (spec.user, spec.workspace, spec.queue) == ("7", "7", "3")
    assert summary(read_workload(path, 4))[1] == ("2", 11, 50, 4, 200)


def test_csv_reads_optional_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job,submit,run,procs,estimate,user,priority\nb,2.5,1,3,,u,urgent\na,0,7,1,9,-1,\nc,1,0,1,1,,\n")
    workload = read_workload(path)
    assert [t.job.id for t in workload.jobs] == ["a", "b"]
    b = workload.jobs[1]
    assert (b.submit_us, b.job.estimate_us, b.job.user) == (2_500_000, S, "u")
    assert (b.job.priority, workload.skipped) == (Priority.URGENT, 1)
    assert workload.workers[0][1].process_slots == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "job,submit\n", ":1: column 'run' is missing"),
        ("t.csv", "job,submit,run,procs,estimate\na,0,x,1,1\n", ":2: not a number of seconds: 'x'"),
        ("t.swf", "1 0 0 x 1\n", ":1: not a number of seconds: 'x'"),
        ("t.jsonl", '{"format": "other", "version": 1, "workers": []}\n', ":1: not a workload of version 1"),
        ("t.jsonl", "{\n", ":1: Input data was truncated"),
    ],
)
def test_a_malformed_trace_is_named_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(WorkloadError, match=f"{name}{message}"):
        read_workload(path)


def test_json_lines_keep_all_of_a_job(tmp_path: Path) -> None:
    spec = JobSpec("a", priority=Priority.URGENT, request=ResourceRequest(1, 2, 3, 4, 5, ("k",)), tasks=2)
    workload = Workload((("n", Resources(9, 9, 9, 9, 9)), ("m", Resources())), (TimedJob(3, 4, spec),))
    write_jsonl(workload, tmp_path / "w.jsonl")
    assert read_workload(tmp_path / "w.jsonl") == workload
    assert read_workload(tmp_path / "w.jsonl", 7).workers[0] == ("n", Resources(9, 9, 7, 9, 9))


def test_a_generated_workload_is_a_function_of_its_options() -> None:
    options = SyntheticOptions(jobs=200, seed=3, memory_mb=64, priorities=tuple(Priority))
    assert generate(options) == generate(options)
    assert generate(options) != generate(SyntheticOptions(jobs=200, seed=4, memory_mb=64))
    first = generate(options).jobs[:2]
    assert [(t.submit_us // S, t.run_us // S, t.job.workspace) for t in first] == [
        (1380, 212, "w7"),
        (3330, 341, "w3"),
    ]
    with pytest.raises(ValueError, match="load must be positive, got 0"):
        SyntheticOptions(jobs=1, load=0)


def test_streams_of_a_generator_are_independent() -> None:
    plain = generate(SyntheticOptions(jobs=50))
    other = generate(SyntheticOptions(jobs=50, priorities=tuple(Priority), memory_mb=8, workspaces=3))
    assert [(t.submit_us, t.run_us) for t in plain.jobs] == [(t.submit_us, t.run_us) for t in other.jobs]


def tie_workload() -> Workload:
    """At 10 s: ``exact`` ends on its estimate, ``early`` before it, and two jobs come."""
    jobs = [("exact", 0, 10, 1, 10), ("early", 0, 10, 1, 20), ("x", 10, 5, 2, 5), ("y", 10, 5, 1, 5)]
    timed = [
        TimedJob(submit * S, run * S, JobSpec(name, request=ResourceRequest(process_slots=n), estimate_us=e * S))
        for name, submit, run, n, e in jobs
    ]
    return Workload((("machine", Resources(process_slots=2)),), tuple(timed))


@pytest.mark.parametrize(
    ("tie", "expected"),
    [
        (
            Tie.EVENT,
            [("exact", True), ("early", True), ("exact", False), ("x", True), ("y", True), ("early", True)],
        ),
        (
            Tie.BATCH,
            [
                ("exact", False),
                ("early", True),
                ("exact", False),
                ("early", False),
                ("x", False),
                ("y", True),
            ],
        ),
    ],
)
def test_the_order_at_one_instant_is_that_of_the_tie_rule(tie: Tie, expected: list[tuple[str, bool]]) -> None:
    seen: list[tuple[str, bool]] = []

    def observe(event: Event, decisions: object) -> None:
        job = getattr(event, "job", None)
        if job is not None and event.at <= 10 * S:
            seen.append((job if isinstance(job, str) else job.id, event.run_pass))

    schedule = simulate(tie_workload(), simulation_config("easy"), tie, observe)
    assert seen == expected
    order = {Tie.EVENT: {"y": "10", "x": "15"}, Tie.BATCH: {"x": "10", "y": "15"}}[tie]
    assert dict(starts(schedule)).items() >= order.items()


def test_nothing_is_polled_while_nothing_happens() -> None:
    seen: list[Event] = []
    simulate(generate(SyntheticOptions(jobs=50)), simulation_config("fcfs"), observer=lambda e, _: seen.append(e))
    assert not any(isinstance(event, Tick) for event in seen)


def schedule_of_two() -> Schedule:
    runs = (
        JobRun("2", 0, 0, 100 * S, 2, Priority.NORMAL, "a"),
        JobRun("10", 10 * S, 100 * S, 105 * S, 4, Priority.URGENT, "b"),
    )
    return Schedule(runs, 4, skipped=3)


def test_measures_are_those_of_their_definitions() -> None:
    found = metrics(schedule_of_two(), elapsed_s=0.5)
    assert found["jobs"] == 2
    assert found["skipped"] == 3
    assert found["mean_wait"] == 45
    assert found["max_wait"] == 90
    assert found["mean_bounded_slowdown"] == (1 + 95 / 10) / 2
    assert found["makespan"] == 105
    assert found["utilisation"] == (2 * 100 + 4 * 5) / (4 * 105)
    assert found["jobs_per_second"] == 4
    classes, lanes = found["classes"], found["lanes"]
    assert isinstance(classes, dict)
    assert isinstance(lanes, dict)
    assert classes["urgent"]["mean_bounded_slowdown"] == 9.5
    assert lanes["a"]["utilisation"] == 0.5
    assert metrics(Schedule((), 4), 0)["mean_wait"] is None


def test_starts_are_in_job_order_and_the_first_difference_is_named(tmp_path: Path) -> None:
    schedule = schedule_of_two()
    assert starts(schedule) == [("2", "0"), ("10", "100")]
    reference = tmp_path / "r.csv"
    for rows, expected in (
        ("2,0\n10,100\n", None),
        ("2,0\n10,99\n", "job 10: expected to start at 99 s, started at 100 s"),
        ("2,0\n3,5\n10,100\n", "job 3: expected to start at 5 s, never started"),
        ("2,0\n", "job 10: not expected, started at 100 s"),
    ):
        reference.write_text("job,start\n" + rows)
        assert first_difference(schedule, reference) == expected


def test_the_command_simulates_compares_and_says_what_differs(tmp_path: Path) -> None:
    trace, out, measures = tmp_path / "t.swf", tmp_path / "starts.csv", tmp_path / "m.json"
    trace.write_text(SWF)
    arguments = ["simulate", str(trace), "--picker", "fcfs", "--starts", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, json.loads(result.output)["jobs"]) == (0, 3)
    assert out.read_text() == "job,start\n1,10\n2,110\n5,160\n"
    result = CliRunner().invoke(main, [*arguments, "--metrics", str(measures), "--compare", str(out)])
    assert (result.exit_code, result.output) == (0, "")
    assert json.loads(measures.read_text())["skipped"] == 2
    reference = tmp_path / "r.csv"
    reference.write_text("job,start\n1,10\n2,111\n5,160\n")
    result = CliRunner().invoke(main, [*arguments, "--metrics", str(measures), "--compare", str(reference)])
    assert (result.exit_code, result.output) == (1, "job 2: expected to start at 111 s, started at 110 s\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--picker", "nope"], "picker must be one of fair, fcfs"),
        (["--allocator", "nope"], "allocator must be one of sequential"),
        (["--tie", "nope"], "'nope' is not one of 'event', 'batch'"),
        (["--processors", "0"], "0 is not in the range 1<=x<=2147483647"),
    ],
)
def test_bad_usage_exits_with_two_and_says_what_there_is(tmp_path: Path, arguments: list[str], message: str) -> None:
    trace = tmp_path / "t.swf"
    trace.write_text(SWF)
    result = CliRunner().invoke(main, ["simulate", str(trace), *arguments])
    assert result.exit_code == 2
    assert message in result.output
