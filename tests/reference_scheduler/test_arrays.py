"""Arrays: one submission, many jobs that differ in their index only."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from live_world import DONE, FAILED, TIMEOUT_S, AtOnceExecutor, HeldExecutor, held, no_room, on_loop, settings
from msgspec.structs import replace
from service_world import Service, refsched_here
from test_live_record import recorded_starts, verified

from reference_scheduler.cli import main
from reference_scheduler.config import Rollout, StopMode
from reference_scheduler.core.model import MAX_ARRAY, JobState, Priority, QueueBounds, task_of
from reference_scheduler.drivers import live
from reference_scheduler.drivers.schedule import starts
from reference_scheduler.drivers.simulation import Tie, simulate, simulation_config
from reference_scheduler.errors import (
    ImpossibleRequest,
    InvalidSubmission,
    IsArray,
    JobEnded,
    JournalUnavailable,
    NoSuchJob,
    QueueFull,
    SubmissionKeyConflict,
)
from reference_scheduler.executors.base import AttemptResult
from reference_scheduler.journal.base import Batch, JobRow, Journal, id_of, number_of
from reference_scheduler.journal.check import check_journal
from reference_scheduler.journal.memory import MemoryJournal
from reference_scheduler.journal.schema import MIGRATIONS, VERSION, migrate
from reference_scheduler.journal.sqlite import SqliteJournal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.observers import Notice
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.service.protocol import Began
from reference_scheduler.workloads.recorded import read_replay


def array(size: int, **fields: object) -> JobRequest:
    """Return a request for an array of jobs of kind ``held``."""
    return held(array_size=size, **fields)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Journal:
    return MemoryJournal() if request.param == "memory" else tmp_path / "j.db"


def sound(path: Path) -> bool:
    """Return whether the journal is all right."""
    return not check_journal(path, Plugins()).problems


@pytest.mark.parametrize(("job", "number"), [("12", 12), ("12[0]", 13), ("12[3]", 16), (f"12[{MAX_ARRAY - 1}]", 65548)])
def test_the_jobs_of_an_array_have_the_numbers_after_its_own(job: str, number: int) -> None:
    assert number_of(job) == number
    assert id_of(number, 12 if "[" in job else 0) == job


NO_TASKS = ("", "]", "[", "[]", "12", "12[]", "12[3", "12]", "12[03]", "12[-1]", "12[+1]", "12[1_0]", "12[ 1]", "12[٣]")


@pytest.mark.parametrize("job", [*NO_TASKS, "12[4[5]]", "12[3]]", f"12[{'9' * 5000}]"])
def test_what_no_array_has_is_the_name_of_none_of_its_jobs(job: str) -> None:
    assert task_of(job) is None
    assert number_of(job) == (12 if job == "12" else 0)


@pytest.mark.parametrize("job", ["[3]", "a[3]", "0[3]", "01", "12[3][4]", "٣", "٣[1]", "9" * 19, f"{'9' * 5000}[0]"])
def test_what_no_scheduler_names_a_job_is_no_number(job: str) -> None:
    assert number_of(job) == 0


@on_loop
async def test_there_is_no_job_of_a_name_that_none_can_have(journal: Path | Journal) -> None:
    async with Scheduler(settings(), journal, [AtOnceExecutor()]) as scheduler:
        await scheduler.wait((await scheduler.submit(JobRequest(kind="at_once", array_size=3))).id)
        for job in ("1[1[1]]", "1[01]", "1[3]", "2", "1[٣]", "9" * 5000):
            with pytest.raises(NoSuchJob):
                scheduler.get(job)
            with pytest.raises(NoSuchJob):
                scheduler.jobs(array=job)
            assert scheduler.jobs(before=job) in ([], scheduler.jobs())


@on_loop
async def test_an_array_runs_as_its_jobs_do_and_ends_with_the_last(journal: Path | Journal) -> None:
    executor = HeldExecutor()
    async with Scheduler(settings(4), journal, [executor]) as scheduler:
        whole = await scheduler.submit(array(3, array_running=2, workspace="/w", payload={"a": 1}))
        assert (whole.id, whole.array_size, whole.array, whole.priority) == ("1", 3, "", "normal")
        first, second = await executor.begun(2)
        assert [(one.job, one.array, one.array_index, one.array_size) for one in (first, second)] == [
            ("1[0]", "1", 0, 3),
            ("1[1]", "1", 1, 3),
        ]
        assert first.payload == {"a": 1}
        view = scheduler.get("1")
        assert (view.state, view.tasks, view.payload) == ("running", {"queued": 1, "running": 2}, {"a": 1})
        waiting = scheduler.get("1[2]")
        assert (waiting.array, waiting.array_index, waiting.reason, waiting.payload) == ("1", 2, "limit", {"a": 1})
        assert scheduler.why("1[2]").endswith("(limit: 2 of at most 2 run for array '1').")
        assert scheduler.why("1") == "Job 1 is an array of 3, and running: 1 queued, 2 running."
        executor.end(first)
        await executor.begun(3)
        for one in executor.running():
            executor.end(one)
        view = await scheduler.wait("1", TIMEOUT_S)
        assert (view.state, view.tasks, view.ended_at_us is not None) == ("completed", {"completed": 3}, True)
        assert (await scheduler.wait("1[2]", TIMEOUT_S)).state == "completed"
        assert [one.job for one in scheduler.attempts("1[2]")] == ["1[2]"]
        assert scheduler.result("1[2]") == DONE
        assert dict(scheduler.snapshot().ended) == {"completed": 3}
        for ask in (scheduler.attempts, scheduler.result):
            with pytest.raises(IsArray, match=r"name one of its jobs, 1\[0\] to 1\[2\]"):
                ask("1")
        for missing in ("1[3]", "2", "3", "4"):
            with pytest.raises(NoSuchJob):
                scheduler.get(missing)
        assert (await scheduler.submit(held())).id == "5"
        await scheduler.cancel("5")


@on_loop
async def test_a_list_has_an_array_as_one_and_its_jobs_for_who_asks(journal: Path | Journal) -> None:
    executor = HeldExecutor()
    async with Scheduler(settings(1), journal, [executor]) as scheduler:
        await scheduler.submit(array(3))
        await scheduler.submit(held())
        await executor.begun(1)
        assert [view.id for view in scheduler.jobs()] == ["5", "1"]
        assert [view.id for view in scheduler.jobs([JobState.RUNNING])] == ["1"]
        assert [view.id for view in scheduler.jobs([JobState.QUEUED])] == ["5"]
        assert [view.id for view in scheduler.jobs(array="1")] == ["1[2]", "1[1]", "1[0]"]
        assert [view.id for view in scheduler.jobs([JobState.QUEUED], array="1", before="1[2]")] == ["1[1]"]
        with pytest.raises(NoSuchJob, match="job 5 is no array"):
            scheduler.jobs(array="5")
        await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_an_array_is_accepted_whole_or_not_at_all_and_once_for_a_key(tmp_path: Path) -> None:
    some = settings(1)
    some = replace(some, core=replace(some.core, queue=QueueBounds(4, 4, 4, 4)))
    async with Scheduler(some, tmp_path / "j.db", [HeldExecutor()]) as scheduler:
        with pytest.raises(ImpossibleRequest, match="array_size is 5, and at most 4 jobs may wait"):
            await scheduler.submit(array(5, key="k"))
        assert isinstance(scheduler.check([array(5)])[0], ImpossibleRequest)
        assert scheduler.jobs() == []
        whole = await scheduler.submit(array(4, key="k"))
        assert whole.id == "1"  # what was refused has taken no numbers
        with pytest.raises(QueueFull, match=r"3 of at most 4 jobs wait, and 4 more were to be submitted together"):
            await scheduler.submit(array(4))
        assert (await scheduler.submit(array(4, key="k"))).id == whole.id
        with pytest.raises(SubmissionKeyConflict):
            await scheduler.submit(array(3, key="k"))
        for wrong in (array(1 << 17), array(2, array_running=3), array(-1), held(array_running=1)):
            with pytest.raises(InvalidSubmission, match=r"array_(size|running) must be between 0 and "):
                await scheduler.submit(wrong)
        await scheduler.cancel(whole.id)
        assert (await scheduler.wait(whole.id, TIMEOUT_S)).tasks == {"cancelled": 4}
    assert sound(tmp_path / "j.db")


@on_loop
async def test_a_cancelled_array_ends_what_waits_and_what_runs_and_what_depends_on_it(journal: Path | Journal) -> None:
    executor = HeldExecutor()
    async with Scheduler(settings(2), journal, [executor, AtOnceExecutor()]) as scheduler:
        await scheduler.submit(array(5))
        await executor.begun(2)
        after = await scheduler.submit(JobRequest(kind="at_once", after_any=("1",)))
        never = await scheduler.submit(JobRequest(kind="at_once", after_ok=("1",)))
        one = await scheduler.submit(JobRequest(kind="at_once", after_any=("1[0]",)))
        await scheduler.cancel("1", "not wanted")
        view = await scheduler.wait("1", TIMEOUT_S)
        assert (view.state, view.tasks) == ("failed", {"cancelled": 5})
        assert (await scheduler.wait(after.id, TIMEOUT_S)).state == "completed"
        assert (await scheduler.wait(one.id, TIMEOUT_S)).state == "completed"
        assert (await scheduler.wait(never.id, TIMEOUT_S)).state == "cancelled"
        assert scheduler.why(never.id).endswith("; job 1, which had to complete first, is failed.")


@on_loop
async def test_another_priority_is_that_of_all_jobs_that_have_not_ended(tmp_path: Path) -> None:
    path, executor = tmp_path / "j.db", HeldExecutor()
    async with Scheduler(settings(1), path, [executor]) as scheduler:
        await scheduler.submit(array(3))
        executor.end((await executor.begun(1))[0])
        await executor.begun(2)
        assert (await scheduler.update("1", Priority.URGENT)).priority == "urgent"
        assert [view.priority for view in scheduler.jobs(array="1")] == ["urgent", "urgent", "normal"]
        await scheduler.cancel("1")
        await scheduler.wait("1", TIMEOUT_S)
        with pytest.raises(JobEnded):
            await scheduler.update("1", Priority.URGENT)
    assert sound(path)


@on_loop
async def test_another_priority_is_that_of_all_jobs_or_of_none(tmp_path: Path) -> None:
    path, log = tmp_path / "j.db", tmp_path / "array.replay"
    async with Scheduler(settings(1), path, [HeldExecutor()]) as scheduler:
        scheduler.record_start(log)
        await scheduler.pause()
        await scheduler.submit(array(3000))
        with no_room(path), pytest.raises(JournalUnavailable):
            await scheduler.update("1", Priority.URGENT)
        assert {view.priority for view in scheduler.jobs(array="1", limit=3000)} == {"normal"}
        updating = asyncio.ensure_future(scheduler.update("1", Priority.BACKGROUND))
        while not updating.done():
            assert len({view.priority for view in scheduler.jobs(array="1", limit=3000)}) == 1
            await asyncio.sleep(0)
        assert {view.priority for view in scheduler.jobs(array="1", limit=3000)} == {"background"}
        assert {job.spec.priority for job in scheduler._driver.core.open_jobs()} == {"background"}
        await scheduler.cancel("1")
    assert verified(log).closed
    assert sound(path)


@on_loop
async def test_a_large_array_leaves_others_their_turn() -> None:
    async with Scheduler(settings(1), None, [HeldExecutor()]) as scheduler:
        await scheduler.pause()
        notices = scheduler.observe()  # of which so many are kept that a reader has to have its turn in between
        for step in (
            scheduler.submit(array(5000)),
            scheduler.update("1", Priority.BACKGROUND),
            scheduler.cancel("1"),
        ):
            doing = asyncio.ensure_future(step)
            told = [await anext(notices) for _ in range(5001)]
            about = {notice.job for notice in told if isinstance(notice, Notice)}
            assert about == {"1", *(f"1[{index}]" for index in range(5000))}
            await doing


@on_loop
async def test_an_array_of_which_a_job_begins_at_once_is_told_in_order() -> None:
    async with Scheduler(settings(1), None, [HeldExecutor()]) as scheduler:
        notices = scheduler.observe()
        await scheduler.submit(array(2))
        told = [await anext(notices) for _ in range(4)]
        assert [(notice.job, notice.what) for notice in told if isinstance(notice, Notice)] == [
            ("1", "queued"),
            ("1[0]", "queued"),
            ("1[1]", "queued"),
            ("1[0]", "running"),
        ]
        await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_an_array_goes_on_after_a_restart(tmp_path: Path) -> None:
    path, executor = tmp_path / "j.db", HeldExecutor()
    async with Scheduler(settings(2), path, [executor]) as scheduler:
        await scheduler.submit(array(4, array_running=1, idempotency="safe_repeat", payload={"big": "x" * 50_000}))
        executor.end((await executor.begun(1))[0], FAILED)
        await executor.begun(2)
        await scheduler.close(StopMode.INTERRUPT)
    found = check_journal(path, Plugins())
    assert (found.problems, found.jobs, found.open_jobs) == ((), 4, 3)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size < 500_000  # the request is there once
    executor = HeldExecutor()
    async with Scheduler(settings(2), path, [executor]) as scheduler:
        again = (await executor.begun(1))[0]
        assert (again.job, again.attempt, len(again.payload["big"])) == ("1[1]", 2, 50_000)
        for count in (1, 2, 3):
            executor.end((await executor.begun(count))[-1])
        view = await scheduler.wait("1", TIMEOUT_S)
        assert (view.state, view.tasks) == ("failed", {"completed": 3, "failed": 1})
        assert (await scheduler.submit(held())).id == "6"
        await scheduler.cancel("6")
    assert sound(path)


@on_loop
async def test_what_ended_long_ago_is_forgotten_and_no_job_without_its_request(tmp_path: Path) -> None:
    path, some = tmp_path / "j.db", replace(settings(4), keep_ended=10)
    async with Scheduler(some, path, [AtOnceExecutor()]) as scheduler:
        for _ in range(40):
            whole = await scheduler.submit(JobRequest(kind="at_once", array_size=70))
            await scheduler.wait(whole.id, TIMEOUT_S)
        with pytest.raises(NoSuchJob):
            scheduler.get("1")
        last = scheduler.get(whole.id)
        assert last.tasks == {"completed": 70}
        for view in scheduler.jobs(limit=1000):
            assert all(task.command != "…" for task in scheduler.jobs(array=view.id))
    assert sound(path)


@on_loop
async def test_an_array_is_remembered_as_long_as_one_of_its_jobs_is(
    journal: Path | Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MIN_EVENTS_PER_STATE", 1)  # what nobody waits for is forgotten at once
    executor = HeldExecutor()
    async with Scheduler(settings(keep_ended=0), journal, [executor, AtOnceExecutor()]) as scheduler:
        await scheduler.pause()
        await scheduler.submit(JobRequest(kind="at_once", array_size=2, payload={"argv": ["a"]}))
        await scheduler.submit(held(after_ok=("1[1]",)))
        await scheduler.resume()
        (context,) = await executor.begun(1)
        for _ in range(3):
            await scheduler.wait((await scheduler.submit(JobRequest(kind="at_once"))).id, TIMEOUT_S)
        with pytest.raises(NoSuchJob):
            scheduler.get("1[0]")
        assert (scheduler.get("1[1]").payload, scheduler.get("1").tasks) == ({"argv": ["a"]}, {"completed": 1})
        executor.end(context)
    assert not isinstance(journal, Path) or sound(journal)


@on_loop
async def test_the_caller_of_an_array_that_is_only_observed_reports_each_end() -> None:
    async with Scheduler(settings(rollout=Rollout.OBSERVE), executors=[AtOnceExecutor()]) as scheduler:
        await scheduler.submit(JobRequest(kind="at_once", array_size=2))
        for job in ("1[0]", "1[1]"):
            assert scheduler.report(job, AttemptResult(DONE.state, exit_code=0))
        assert (await scheduler.wait("1", TIMEOUT_S)).state == "completed"
        with pytest.raises(InvalidSubmission, match="one job is run and waited for"):
            await scheduler.run(JobRequest(kind="at_once", array_size=2), lambda: never())


@on_loop
async def test_the_caller_of_an_observed_job_is_expected_before_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "MAX_BATCH", 2)  # so that attempts begin while the driver still tells of the array
    async with Scheduler(settings(9, rollout=Rollout.OBSERVE), executors=[AtOnceExecutor()]) as scheduler:
        await scheduler.submit(JobRequest(kind="at_once", array_size=9))
        assert scheduler.get("1").tasks == {"running": 9}
        assert all(scheduler.report(f"1[{index}]", DONE) for index in range(9))
        assert (await scheduler.wait("1", TIMEOUT_S)).tasks == {"completed": 9}


class Full(MemoryJournal):
    """A journal that has no room for new jobs."""

    def commit(self, batch: Batch) -> list[JobRow]:
        """Refuse new jobs."""
        if batch.jobs:
            raise JournalUnavailable("full")
        return super().commit(batch)


@pytest.mark.parametrize("size", [0, 2])
@on_loop
async def test_of_an_observed_job_that_could_not_be_written_no_end_is_expected(size: int) -> None:
    async with Scheduler(settings(rollout=Rollout.OBSERVE), Full(), [AtOnceExecutor()]) as scheduler:
        with pytest.raises(JournalUnavailable):
            await scheduler.submit(JobRequest(kind="at_once", array_size=size))
        assert not any(scheduler.report(job, DONE) for job in ("1", "1[0]", "1[1]"))


async def never() -> AttemptResult:
    raise AssertionError("is not to be called")


@on_loop
async def test_a_recorded_array_verifies_and_simulates_to_the_same_starts(tmp_path: Path) -> None:
    log, executor = tmp_path / "array.replay", HeldExecutor()
    async with Scheduler(settings(3), executors=[executor]) as scheduler:
        scheduler.record_start(log)
        await scheduler.submit(array(5, array_running=2, workspace="a"))
        await scheduler.submit(held(workspace="b", after_ok=("1",)))
        await scheduler.submit(array(2, workspace="b"))
        for count in range(1, 9):
            executor.end((await executor.begun(count))[count - 1])
        await scheduler.wait("8", TIMEOUT_S)
        await scheduler.wait("7", TIMEOUT_S)
    assert verified(log).closed
    workload = read_replay(log)
    assert (len(workload.jobs), workload.skipped, sorted(workload.arrays)) == (8, 0, ["1", "8"])
    schedule = simulate(workload, simulation_config(), Tie.BATCH)
    assert {job: float(start) for job, start in starts(schedule)} == recorded_starts(log)
    command = CliRunner().invoke(main, ["simulate", str(log), "--picker", "fcfs"])
    assert (command.exit_code, '"jobs": 8' in command.stdout) == (0, True)


@on_loop
async def test_of_a_recorded_array_that_did_not_end_the_jobs_that_did_are_simulated(tmp_path: Path) -> None:
    log, executor = tmp_path / "array.replay", HeldExecutor()
    async with Scheduler(settings(1), executors=[executor]) as scheduler:
        scheduler.record_start(log)
        await scheduler.submit(array(3))
        executor.end((await executor.begun(1))[0])
        await scheduler.wait("1[0]", TIMEOUT_S)
        scheduler.record_stop()
        await scheduler.close(StopMode.INTERRUPT)
    workload = read_replay(log)
    assert ([timed.job.id for timed in workload.jobs], workload.skipped, workload.arrays) == (["1[0]"], 2, {})
    assert len(simulate(workload, simulation_config()).runs) == 1


def test_a_journal_of_the_second_version_takes_arrays(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    assert migrate(connection, MIGRATIONS[:2]) == 0
    columns = "kind, priority, user, workspace, session, queue, key, fingerprint, request, submitted_us, observed"
    connection.execute(
        f"INSERT INTO jobs ({columns}, state, attempts, ended_us) "
        "VALUES ('shell', 'normal', '', '', '', '', '', x'', x'80', 0, 0, 'completed', 0, 5)"
    )
    connection.close()
    journal = SqliteJournal(path)
    journal.upgrade()
    row = journal.job("1")
    assert row is not None
    assert (row.job, row.array, row.array_size, row.request, row.state) == ("1", "", 0, b"\x80", "completed")
    journal.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    connection.close()


def test_on_the_command_line(tmp_path: Path) -> None:
    script = (
        'test "$SPAWNGATE_ARRAY_INDEX" != 1 && echo "$SPAWNGATE_ARRAY $SPAWNGATE_ARRAY_INDEX/$SPAWNGATE_ARRAY_SIZE"'
    )
    with Service(tmp_path):
        submit = ("submit", "--array", "3", "--array-running", "9", "--kind", "shell", "--", script)
        assert refsched_here(tmp_path, *submit) == (0, "1\n", "")
        assert refsched_here(tmp_path, "wait", "1") == (1, "1  failed: 2 completed, 1 failed\n", "")
        assert refsched_here(tmp_path, "wait", "1[2]") == (0, "1[2]  completed, exit status 0\n", "")
        assert refsched_here(tmp_path, "get", "--output", "1[2]") == (0, "1 2/3\n", "")
        told = "error: job 1 is an array: name one of its jobs, 1[0] to 1[2]\n"
        assert refsched_here(tmp_path, "attempts", "1") == (1, "", told)
        status, out, _ = refsched_here(tmp_path, "get", "1")
        assert (status, out.splitlines()[-1]) == (0, "Job 1 is an array of 3, and failed: 2 completed, 1 failed.")
        assert json.loads(refsched_here(tmp_path, "get", "--json", "1")[1])["tasks"] == {"completed": 2, "failed": 1}
        listed = refsched_here(tmp_path, "list", "--array", "1")[1].splitlines()[1:]
        assert [line.split()[:2] for line in listed] == [
            ["1[2]", "completed"],
            ["1[1]", "failed"],
            ["1[0]", "completed"],
        ]
        assert [line.split()[:2] for line in refsched_here(tmp_path, "list")[1].splitlines()[1:]] == [["1", "failed"]]
        refsched_here(tmp_path, "pause")
        assert refsched_here(tmp_path, "submit", "--array", "2", "true")[1] == "5\n"
        assert "  paused, 0 of 2 ended  " in refsched_here(tmp_path, "list")[1].splitlines()[1]
        hold = "the scheduler is paused: 0 run, and 2 wait for refsched resume"
        told = f"Job 5 is an array of 2, and queued: 2 queued; {hold}."
        assert refsched_here(tmp_path, "get", "5")[1].splitlines()[-1] == told


def test_the_events_of_an_array_are_those_of_its_jobs_too(tmp_path: Path) -> None:
    true = JobRequest(kind="shell", payload={"script": "true"})
    with Service(tmp_path) as service, service.client() as watching, service.client() as client:
        happenings = watching.events("1")
        assert isinstance(next(happenings), Began)
        client.submit(replace(true, array_size=2))
        client.wait(client.submit(true).id)
        told = []
        for event in happenings:
            assert isinstance(event, Notice)
            told.append((event.job, event.what))
            if told[-1] == ("1", "completed"):
                break
    assert {job for job, _ in told} == {"1", "1[0]", "1[1]"}
    assert told[0] == ("1", "queued")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--array", "0", "x"], "Invalid value for '--array': 0 is not in the range 1<=x<=65536; see refsched submit"),
        (["--array-running", "2", "x"], "--array-running: only has a meaning with --array\n"),
        (["--array", "2", "--from", "-"], "--from: either that, or a command\n"),
        (
            ["--array", "257", "x"],
            "array_size is 257, and at most 64 jobs may wait: all of an array wait at first",
        ),
    ],
)
def test_a_wrong_array_is_told_on_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    with Service(tmp_path):
        status, out, err = refsched_here(tmp_path, "submit", *arguments)
    assert (status, out, err.startswith(f"error: {message}")) == (1 if "257" in arguments else 2, "", True)
