"""Recording a live scheduler: it starts and stops at any time, and what was recorded verifies and simulates."""

from __future__ import annotations

import asyncio
import io
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from day import day
from live_world import FAILED, TIMEOUT_S, AtOnceExecutor, HeldExecutor, held, no_room, on_loop, settings
from msgspec.structs import replace
from scheduler_world import S, World, simple

from reference_scheduler.cli import main
from reference_scheduler.config import Settings, StopMode
from reference_scheduler.core.decisions import Dispatch
from reference_scheduler.core.events import GenerationStarted, JobStateChanged, JobUpdated, Tick
from reference_scheduler.core.model import (
    Backoff,
    Failure,
    JobState,
    Limit,
    Priority,
    ResourceRequest,
    RetryPolicy,
    Scope,
)
from reference_scheduler.drivers.schedule import starts
from reference_scheduler.drivers.simulation import Tie, simulate, simulation_config
from reference_scheduler.errors import JournalUnavailable
from reference_scheduler.replay import FrameReader, Recorder, ReplayError
from reference_scheduler.replay.records import Entry, unpack_record
from reference_scheduler.replay.verify import Verification, verify
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.workloads.model import WorkloadError
from reference_scheduler.workloads.recorded import read_replay

AT_ONCE = JobRequest(kind="at_once")


def verified(path: Path) -> Verification:
    found = verify(io.BytesIO(path.read_bytes()))
    assert found.divergence is None
    return found


def recorded_starts(log: Path) -> dict[str, float]:
    """Return when each job of a log was started, in seconds."""
    with log.open("rb") as stream:
        records = [unpack_record(frame) for frame in FrameReader(stream).frames()]
    return {
        decision.job: entry.event.at / 1e6
        for entry in records
        if isinstance(entry, Entry)
        for decision in entry.decisions
        if isinstance(decision, Dispatch)
    }


def test_of_a_late_report_about_an_earlier_attempt_a_recording_takes_no_end(tmp_path: Path) -> None:
    log, world = tmp_path / "log.replay", World(simple(), {"m": 1})
    ends = {"job": "a", "old": JobState.RUNNING, "new": JobState.FAILED, "failure": Failure.TRANSIENT}
    with Recorder.start(log, world.core) as recorder:
        world.submit("a", retry=RetryPolicy(max_attempts=3, backoff=Backoff.NONE))
        for at_s, attempt in ((2, 1), (3, 1), (5, 1), (9, 2), (10, 2)):  # the first attempt is reported three times
            world.at_us = at_s * S
            world.send(JobStateChanged, attempt=attempt, **ends)
        world.at_us = 12 * S
        world.end("a")
        for entry in world.log[2:]:
            recorder(*entry)
    assert [job.run_us for job in read_replay(log).jobs] == [3 * S]  # of the third attempt, from 9 s on


def test_a_job_that_runs_again_at_the_end_of_a_recording_has_not_run_to_an_end(tmp_path: Path) -> None:
    log, world = tmp_path / "log.replay", World(simple(), {"m": 1})
    with Recorder.start(log, world.core) as recorder:
        world.submit("a", retry=RetryPolicy(max_attempts=3, backoff=Backoff.NONE))
        world.end("a", JobState.FAILED, failure=Failure.TRANSIENT)
        for entry in world.log[2:]:
            recorder(*entry)
    found = read_replay(log)
    assert (found.jobs, found.skipped) == ((), 1)


def test_of_a_pause_that_lasts_over_a_restart_nobody_can_tell_the_end(tmp_path: Path) -> None:
    log, world = tmp_path / "log.replay", World(simple(), {"m": 1})
    with Recorder.start(log, world.core) as recorder:
        for at_s, passes in ((1, True), (2, False), (4, True), (5, False), (7, False), (9, False), (11, True)):
            world.at_us = at_s * S
            kind: dict[str, Any] = {"kind": GenerationStarted, "generation": "g"} if at_s == 7 else {"kind": Tick}
            world.send(**kind, run_pass=passes)
            recorder(*world.log[-1])
    assert read_replay(log).pauses == ((2 * S, 4 * S), (9 * S, 11 * S))


@pytest.mark.parametrize("other", ["folder/../live.replay", "link.replay", "linked/live.replay"])
@on_loop
async def test_a_file_that_is_being_recorded_into_is_not_begun_again_by_another_name(
    tmp_path: Path, other: str
) -> None:
    log = tmp_path / "live.replay"
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.replay").symlink_to(log)
    (tmp_path / "linked").symlink_to(tmp_path)
    async with Scheduler(settings(), executors=[AtOnceExecutor()]) as scheduler:
        scheduler.record_start(log)
        await scheduler.wait((await scheduler.submit(AT_ONCE)).id, TIMEOUT_S)
        assert scheduler.record_start(tmp_path / other).path == str(log)
        await scheduler.wait((await scheduler.submit(AT_ONCE)).id, TIMEOUT_S)
        stopped = scheduler.record_stop()
    found = verified(log)
    assert (found.sessions, found.events, found.closed) == (1, stopped.events, True)


@on_loop
async def test_a_recording_starts_and_stops_at_any_time(tmp_path: Path) -> None:
    log = tmp_path / "live.replay"
    executor = HeldExecutor()
    async with Scheduler(settings(1), executors=[executor, AtOnceExecutor()]) as scheduler:
        await scheduler.submit(held())
        await executor.begun(1)
        assert not scheduler.record_status().active
        assert scheduler.record_start(log).active
        await scheduler.submit(AT_ONCE)
        executor.end(executor.contexts[0])
        await scheduler.wait("2", TIMEOUT_S)
        status = scheduler.record_status()
        assert (status.active, status.path, status.error) == (True, str(log), "")
        assert not verified(log).closed  # of a log that is still written to
        stopped = scheduler.record_stop()
        assert (stopped.active, stopped.events) == (False, verified(log).events)
        assert scheduler.record_stop() == scheduler.record_status()
        await scheduler.wait((await scheduler.submit(AT_ONCE)).id, TIMEOUT_S)
        scheduler.record_start(log)
        await scheduler.wait((await scheduler.submit(AT_ONCE)).id, TIMEOUT_S)
    found = verified(log)
    assert (found.sessions, found.closed, found.events > stopped.events) == (2, True, True)


@on_loop
async def test_what_was_recorded_simulates_to_the_same_starts(tmp_path: Path) -> None:
    log, draw = tmp_path / "load.replay", random.Random(5)
    executor = HeldExecutor()
    scheduler = await Scheduler(settings(4), executors=[executor]).start()
    scheduler.record_start(log)
    loop = asyncio.get_running_loop()
    for number in range(60):
        request = ResourceRequest(1, 256, draw.choice((1, 1, 2, 4)), exclusivity_keys=("k",) if number % 9 == 0 else ())
        priority = draw.choice(list(Priority))
        await scheduler.submit(held(request=request, priority=priority, workspace=f"w{number % 3}"))
    ended = 0
    while ended < 60:
        context = (await executor.begun(ended + 1))[ended]
        loop.call_later(draw.uniform(0, 0.01), executor.end, context)
        ended += 1
    for job in scheduler.jobs():
        await scheduler.wait(job.id, TIMEOUT_S)
    await scheduler.close()
    assert verified(log).closed

    workload = read_replay(log)
    assert (len(workload.jobs), workload.skipped) == (60, 0)
    schedule = simulate(workload, simulation_config(), Tie.BATCH)
    assert {job: float(start) for job, start in starts(schedule)} == recorded_starts(log)
    command = CliRunner().invoke(main, ["simulate", str(log), "--picker", "easy-sjf"])
    assert (command.exit_code, '"jobs": 60' in command.stdout) == (0, True)


@on_loop
async def test_a_priority_that_was_changed_is_changed_in_the_simulation_too(tmp_path: Path) -> None:
    log, executor = tmp_path / "priority.replay", HeldExecutor()
    async with Scheduler(settings(1), executors=[executor]) as scheduler:
        scheduler.record_start(log)
        for _ in range(4):
            await scheduler.submit(held(workspace="w"))
        await executor.begun(1)
        await scheduler.update("4", Priority.URGENT)
        await scheduler.update("2", Priority.BACKGROUND)
        await scheduler.update("1", Priority.BACKGROUND)
        for count in range(1, 5):
            executor.end((await executor.begun(count))[count - 1])
        await scheduler.wait(executor.contexts[3].job, TIMEOUT_S)
    assert [context.job for context in executor.contexts] != ["1", "2", "3", "4"]
    workload = read_replay(log)
    updates = [update for update in workload.updates if isinstance(update, JobUpdated)]
    assert [(update.job.id, update.job.priority) for update in updates] == [
        ("4", "urgent"),
        ("2", "background"),
        ("1", "background"),
    ]
    schedule = simulate(workload, simulation_config(), Tie.BATCH)
    assert {job: float(start) for job, start in starts(schedule)} == recorded_starts(log)
    shortest_first = simulate(workload, simulation_config("sjf"), Tie.BATCH)  # where some end before they are updated
    assert len(shortest_first.runs) == 4


@on_loop
async def test_what_was_paused_is_paused_in_the_simulation_too(tmp_path: Path) -> None:
    log, executor = tmp_path / "pauses.replay", HeldExecutor()
    async with Scheduler(settings(2), executors=[executor]) as scheduler:
        await scheduler.pause("slow")
        scheduler.record_start(log)
        await scheduler.submit(held(queue="slow"))
        await scheduler.submit(held())
        await executor.begun(1)
        await scheduler.pause()
        await scheduler.submit(held())
        executor.end(executor.contexts[0])
        await scheduler.wait("2", TIMEOUT_S)
        await scheduler.submit(held(workspace="w"))
        await scheduler.resume()
        await executor.begun(3)
        await scheduler.pause()
        await scheduler.resume("slow")
        executor.end(executor.contexts[1])
        await scheduler.wait("3", TIMEOUT_S)
        await scheduler.resume()
        for context in (await executor.begun(4))[2:]:
            executor.end(context)
        for job in ("1", "4"):
            await scheduler.wait(job, TIMEOUT_S)
        await scheduler.pause("slow")
        await scheduler.pause()
    assert [context.job for context in executor.contexts] == ["2", "3", "4", "1"]
    workload = read_replay(log)
    assert (len(workload.jobs), len(workload.pauses), workload.left_out) == (4, 2, {})
    schedule = simulate(workload, simulation_config(), Tie.BATCH)
    assert {job: float(start) for job, start in starts(schedule)} == recorded_starts(log)
    for tie in Tie:
        other = simulate(workload, simulation_config("sjf"), tie)
        assert all(not begin <= run.start_us < end for run in other.runs for begin, end in workload.pauses)
        assert len(other.runs) == 4
        narrow = simulate(read_replay(log, processors=1), simulation_config(), tie)
        assert len(narrow.runs) == 4  # also what was not in the queue any more when that was paused for good


def test_what_of_a_recording_is_not_repeated_is_said(tmp_path: Path) -> None:
    log, path, executor = tmp_path / "x.replay", tmp_path / "j.db", HeldExecutor()
    limited = replace(settings(2), core=replace(settings(2).core, limits=(Limit(Scope.USER, 5),)))

    @on_loop
    async def first() -> None:
        async with Scheduler(limited, path, [executor]) as scheduler:
            scheduler.record_start(log)
            await scheduler.submit(held(idempotency="safe_repeat"))
            await executor.begun(1)
            await scheduler.reload(settings(3))
            await scheduler.close(StopMode.INTERRUPT)

    @on_loop
    async def second() -> None:
        async with Scheduler(settings(3), path, [executor]) as scheduler:
            scheduler.record_start(log)
            executor.end((await executor.begun(2))[1])
            await scheduler.wait("1", TIMEOUT_S)
            await scheduler.submit(held())
            scheduler.record_stop()
            await scheduler.cancel("2")

    first()
    second()
    assert read_replay(log).left_out == {
        "limits of the configuration": 1,
        "changes of the configuration": 1,
        "restarts": 1,
        "jobs that did not run to an end": 1,
    }
    command = CliRunner().invoke(main, ["simulate", str(log)])
    assert (command.exit_code, '"jobs": 1' in command.stdout) == (0, True)
    assert command.stderr == (
        f"note: {log}: not repeated: limits of the configuration (1), changes of the configuration (1), restarts (1), "
        "jobs that did not run to an end (1)\n"
    )


def test_a_compressed_day_verifies_and_simulates_to_the_same_starts() -> None:
    report = day(seconds=2, jobs=120, seed=4)
    assert (report.jobs, report.verified, report.different, report.problems) == (134, True, (), ())
    assert report.longest_wait_us > 0


@on_loop
async def test_a_recorded_load_of_every_kind_of_event_verifies(tmp_path: Path) -> None:
    log, draw = tmp_path / "mixed.replay", random.Random(8)
    executor = HeldExecutor()
    scheduler = await Scheduler(settings(3), executors=[executor, AtOnceExecutor()]).start()
    scheduler.record_start(log)
    jobs: list[str] = []
    for step in range(300):
        action = draw.choice(("submit", "submit", "at_once", "cancel", "end", "pause", "reload"))
        if action == "submit":
            jobs.append((await scheduler.submit(held(timeout_us=draw.choice((None, 1000))))).id)
        elif action == "at_once":
            jobs.append((await scheduler.submit(AT_ONCE)).id)
        elif action == "cancel" and jobs:
            await scheduler.cancel(draw.choice(jobs))
        elif action == "end":
            for context in executor.running()[:1]:
                executor.end(context, FAILED)
        elif action == "pause":
            await (scheduler.pause() if step % 2 else scheduler.resume())
        elif action == "reload":
            await scheduler.reload(settings(1 + step % 3))
    await scheduler.close(StopMode.INTERRUPT)
    found = verified(log)
    assert (found.closed, found.events > 300) == (True, True)


@on_loop
async def test_a_recording_goes_on_when_the_journal_could_not_be_written(tmp_path: Path) -> None:
    path, log = tmp_path / "j.db", tmp_path / "live.replay"
    async with Scheduler(settings(), path, [AtOnceExecutor()]) as scheduler:
        await scheduler.wait((await scheduler.submit(AT_ONCE)).id, TIMEOUT_S)
        scheduler.record_start(log)
        with no_room(path), pytest.raises(JournalUnavailable):
            await scheduler.submit(AT_ONCE)
        while scheduler.snapshot().unavailable:
            await asyncio.sleep(0.01)
        await scheduler.wait((await scheduler.submit(AT_ONCE)).id, TIMEOUT_S)
    assert (verified(log).closed, verified(log).sessions) == (True, 2)


@on_loop
async def test_a_recording_that_cannot_be_made_is_said_so_and_stops_nothing(tmp_path: Path) -> None:
    async with Scheduler(Settings(), executors=[AtOnceExecutor()]) as scheduler:
        with pytest.raises(FileNotFoundError):
            scheduler.record_start(tmp_path / "missing" / "x.replay")
        (tmp_path / "text").write_text("no log, and long enough")
        with pytest.raises(ReplayError, match="magic bytes"):
            scheduler.record_start(tmp_path / "text")
        assert not scheduler.record_status().active
        await scheduler.wait((await scheduler.submit(AT_ONCE)).id, TIMEOUT_S)
        scheduler.record_start(tmp_path / "x.replay")
        with pytest.raises(ReplayError, match="magic bytes"):
            scheduler.record_start(tmp_path / "text")
        assert scheduler.record_start(tmp_path / "x.replay") == scheduler.record_status()
        assert (scheduler.record_status().active, scheduler.record_status().path) == (True, str(tmp_path / "x.replay"))


def test_no_log_is_no_workload(tmp_path: Path) -> None:
    (tmp_path / "x.replay").write_text("no log, and long enough")
    with pytest.raises(WorkloadError, match=r"x\.replay: not a \.replay file"):
        read_replay(tmp_path / "x.replay")
