"""What a scheduler shows of itself, and the same from threads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import NoneType

import pytest
from live_world import DONE, TIMEOUT_S, AtOnceExecutor, HeldExecutor, held, no_room, on_loop, settings
from msgspec.structs import replace

from reference_scheduler.config import Rollout, Settings, StopMode
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import JobState, Priority, ResourceRequest
from reference_scheduler.errors import (
    InvalidSubmission,
    JournalLocked,
    JournalUnavailable,
    NoSuchJob,
    QueueFull,
    SchedulerDisabled,
    SchedulerStopping,
    UnknownKind,
)
from reference_scheduler.executors.base import StopReason
from reference_scheduler.executors.subagent import Call, SubagentExecutor
from reference_scheduler.processes import tree
from reference_scheduler.replay.verify import verify
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.service.metrics import exposition
from reference_scheduler.sync import SyncScheduler


@on_loop
async def test_a_snapshot_counts_what_waits_and_runs_and_shows_no_key() -> None:
    executor = HeldExecutor()
    scheduler = await Scheduler(settings(2), executors=[executor, AtOnceExecutor()]).start()
    disk = ResourceRequest(1, 10, 1, exclusivity_keys=("/home/someone/disk",))
    await scheduler.submit(held(request=disk, workspace="/a", priority=Priority.URGENT))
    await scheduler.submit(held(request=disk, workspace="/b"))
    await scheduler.submit(held(request=ResourceRequest(2, 1, 2), workspace="/b"))
    await scheduler.submit(held(delay_us=10**12, workspace="/c"))
    await executor.begun(1)
    shown = scheduler.snapshot()
    assert (shown.generation, shown.rollout, shown.enabled) == (scheduler.recovery.generation, "mandatory", True)
    assert (shown.accepting, shown.unavailable, shown.stale_writes, shown.clamped) == (True, "", 0, 0)
    assert (shown.budget.capacity, shown.budget.used) == (Resources(2, 512, 2, 2, 2), Resources(1, 10, 1, 0, 0))
    assert shown.running == {"priority:urgent": 1, "kind:held": 1, "workspace:/a": 1}
    assert shown.queued == {"priority:normal": 3, "kind:held": 3, "workspace:/b": 2, "workspace:/c": 1}
    assert (shown.blocked["exclusivity"], shown.blocked["time"]) == (1, 1)
    assert shown.executors == {"at_once": 0, "held": 1}
    assert len(shown.held_keys) == 1
    assert "disk" not in str(shown.held_keys)
    assert shown.oldest_queued_us > 0
    assert shown.overflow == {}
    await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_a_snapshot_tells_whether_jobs_are_taken_and_what_keeps_them_from_starting(tmp_path: Path) -> None:
    path, some = tmp_path / "j.db", settings(1)
    off = replace(some, core=replace(some.core, enabled=False))

    def found() -> tuple[bool, str]:
        shown = scheduler.snapshot()
        return shown.accepting, shown.hold

    async with Scheduler(some, path, [AtOnceExecutor()]) as scheduler:
        assert found() == (True, "")
        await scheduler.pause()
        assert found() == (True, "paused")
        waits = await scheduler.submit(JobRequest(kind="at_once"))
        await scheduler.reload(off)
        assert found() == (False, "disabled")
        with pytest.raises(SchedulerDisabled):
            await scheduler.submit(JobRequest(kind="at_once"))
        await scheduler.reload(some)
        await scheduler.drain()
        assert found() == (False, "draining")
        with pytest.raises(SchedulerStopping):
            await scheduler.submit(JobRequest(kind="at_once"))
        await scheduler.resume()
        await scheduler.wait(waits.id, TIMEOUT_S)
        with no_room(path):
            for _ in range(2):
                with pytest.raises(JournalUnavailable):
                    await scheduler.submit(JobRequest(kind="at_once"))
                assert found() == (False, "journal")


@on_loop
async def test_a_snapshot_stays_small_however_many_workspaces_there_are() -> None:
    scheduler = await Scheduler(settings(1), executors=[HeldExecutor()]).start()
    await scheduler.pause()
    await scheduler.submit_many(held(workspace=f"/w{number}") for number in range(250))
    shown = scheduler.snapshot()
    assert (len(shown.queued), shown.overflow) == (102, {"queued:workspace": 150})
    assert shown.queued["priority:normal"] == 250
    await scheduler.close()


@on_loop
async def test_a_higher_class_displaces_one_that_may_be_and_that_one_runs_again() -> None:
    executor = HeldExecutor()
    chosen = settings(1)
    chosen = replace(chosen, core=replace(chosen.core, preemption=True))
    scheduler = await Scheduler(chosen, executors=[executor]).start()
    low = await scheduler.submit(held(priority=Priority.BACKGROUND, preemptible=True))
    await executor.begun(1)
    high = await scheduler.submit(held(priority=Priority.URGENT))
    contexts = await executor.begun(2)
    assert (contexts[0].stop.reason, contexts[1].job) == (StopReason.PREEMPTED, high.id)
    assert scheduler.get(low.id).state is JobState.QUEUED
    executor.end(contexts[1])
    executor.end((await executor.begun(3))[2])
    assert (await scheduler.wait(low.id, TIMEOUT_S)).attempts == 2
    await scheduler.close()


def test_the_blocking_scheduler_does_the_same(tmp_path: Path) -> None:
    path, log = tmp_path / "j.db", tmp_path / "x.replay"
    with SyncScheduler(settings(1), path, [AtOnceExecutor(), HeldExecutor()]) as scheduler:
        assert scheduler.record_start(log).active
        job = scheduler.submit(JobRequest(kind="at_once"))
        assert scheduler.wait(job.id, TIMEOUT_S).state is JobState.COMPLETED
        assert scheduler.get(job.id).attempts == len(scheduler.attempts(job.id)) == 1
        assert scheduler.result(job.id) == DONE
        assert scheduler.why(job.id) == f"Job {job.id} is completed."
        scheduler.pause()
        waits = scheduler.submit(held())
        assert [view.id for view in scheduler.jobs(states=[JobState.QUEUED])] == [waits.id]
        assert scheduler.update(waits.id, Priority.URGENT).priority == "urgent"
        assert scheduler.cancel(waits.id).state is JobState.CANCELLED
        scheduler.resume()
        assert scheduler.submit_many([JobRequest(kind="at_once")]) == ["3"]
        with pytest.raises(NoSuchJob):
            scheduler.get("99")
        with pytest.raises(TimeoutError):
            scheduler.wait(scheduler.submit(JobRequest(kind="at_once", delay_us=10**12)).id, 0.01)
        with pytest.raises(JournalLocked):
            SyncScheduler(settings(1), path, [AtOnceExecutor()]).start()
        assert (scheduler.record_status().active, scheduler.record_stop().active) == (True, False)
        assert scheduler.snapshot().accepting
        found = scheduler.check([held(), held(payload={"wrong": 1}), JobRequest(kind="nope")])
        assert [type(refusal) for refusal in found] == [NoneType, InvalidSubmission, UnknownKind]
        scheduler.drain()
        assert [type(refusal) for refusal in scheduler.check([held()])] == [SchedulerStopping]
        with pytest.raises(SchedulerStopping):
            scheduler.submit(JobRequest(kind="at_once"))
    with log.open("rb") as stream:
        assert verify(stream).same


def test_a_blocking_caller_that_runs_its_own_work_reports_it() -> None:
    with SyncScheduler(settings(1, rollout=Rollout.OBSERVE), executors=[HeldExecutor()]) as scheduler:
        job = scheduler.submit(held())
        assert job.observed
        assert scheduler.report(job.id, DONE)
        assert scheduler.wait(job.id, TIMEOUT_S).exit_code == 0


def test_an_error_inside_the_block_interrupts_what_runs() -> None:
    executor = HeldExecutor()
    with suppress(KeyError), SyncScheduler(settings(1), executors=[executor]) as scheduler:
        scheduler.submit(held())
        raise KeyError
    assert [context.stop.reason for context in executor.contexts] == [StopReason.SHUTDOWN]


def test_after_its_end_the_blocking_scheduler_says_so_and_can_be_closed_again() -> None:
    with SyncScheduler(settings(), executors=[AtOnceExecutor()]) as scheduler:
        job = scheduler.submit(JobRequest(kind="at_once")).id
        chunks = scheduler.logs(job)
        scheduler.close(StopMode.INTERRUPT)
    scheduler.close()
    calls: list[Callable[[], object]] = [
        scheduler.snapshot,
        scheduler.drain,
        partial(scheduler.submit, held()),
        partial(scheduler.wait, job),
        partial(scheduler.get, job),
        partial(next, chunks),
    ]
    for call in calls:
        with pytest.raises(SchedulerStopping, match=r"^the scheduler has stopped$"):
            call()


def test_who_calls_the_blocking_scheduler_as_it_ends_is_told_so() -> None:
    executor = HeldExecutor()
    ended: list[str] = []

    def submit() -> None:
        with suppress(SchedulerStopping):
            while True:
                scheduler.submit(JobRequest(kind="at_once"))
        ended.append("submit")

    def wait() -> None:
        with suppress(SchedulerStopping):
            scheduler.wait("1")
        ended.append("wait")

    threads = [threading.Thread(target=work, daemon=True) for work in (submit, wait) * 8]
    with SyncScheduler(settings(16), executors=[executor, AtOnceExecutor()]) as scheduler:
        scheduler.submit(held())
        for thread in threads:
            thread.start()
        scheduler.close(StopMode.INTERRUPT)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert Counter(ended) == {"submit": 8, "wait": 8}


def test_when_ctrl_c_cuts_its_end_short_nobody_waits_for_ever() -> None:
    waited: list[str] = []

    def wait() -> None:
        try:
            scheduler.wait("1")
        except SchedulerStopping as error:
            waited.append(str(error))

    scheduler = SyncScheduler(settings(), executors=[HeldExecutor(stubborn=True)]).start()
    scheduler.submit(held())
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    threading.Thread(target=interrupt_close, args=[scheduler], daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        scheduler.close()
    waiting.join(TIMEOUT_S)
    assert waited == ["the scheduler has stopped"]


def interrupt_close(scheduler: SyncScheduler) -> None:
    """Press Ctrl-C once somebody closes it."""
    while scheduler.snapshot().hold != "draining":
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_a_coroutine_that_would_wait_for_its_own_thread_is_told_so() -> None:
    async def nested(call: Call) -> str:
        return scheduler.wait(call.job).state

    async def apart(call: Call) -> str:
        return await asyncio.to_thread(lambda: scheduler.get(call.job).state)

    executors = [SubagentExecutor({"nested": nested, "apart": apart})]
    with SyncScheduler(settings(), executors=executors) as scheduler:
        jobs = [JobRequest(kind="subagent", payload={"callable": name}) for name in ("nested", "apart")]
        failed, completed = (scheduler.wait(scheduler.submit(job).id, TIMEOUT_S) for job in jobs)
        assert (failed.state, completed.state) == ("failed", "completed")
        message = "RuntimeError: the scheduler's own thread cannot wait for it: await asyncio.to_thread(...)"
        assert scheduler.attempts(failed.id)[0].detail == message
        result = scheduler.result(completed.id)
        assert result is not None
        assert result.values == {"result": "running"}


def test_threads_share_one_queue_and_its_bounds() -> None:
    core = replace(settings(1).core, queue=replace(settings(1).core.queue, max_total=32, max_per_workspace=32))
    accepted, refused = [], []
    with SyncScheduler(replace(Settings(), core=core), executors=[HeldExecutor()]) as scheduler:
        scheduler.pause()

        def submit() -> None:
            for _ in range(10):
                try:
                    accepted.append(scheduler.submit(held()).id)
                except QueueFull:
                    refused.append(1)

        threads = [threading.Thread(target=submit) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(set(accepted)), len(refused)) == (32, 48)
        assert len(scheduler.jobs()) == 32


@on_loop
async def test_an_executor_that_lost_its_helpers_says_so_until_it_has_others() -> None:
    async with Scheduler() as scheduler:
        true = JobRequest(kind="shell", payload={"script": "true"})
        await scheduler.wait((await scheduler.submit(true)).id, TIMEOUT_S)
        assert scheduler.snapshot().unhealthy == {}
        (guardian,) = [process.pid for process in tree.descendants(os.getpid()) if process.parent == os.getpid()]
        os.kill(guardian, signal.SIGKILL)
        while not (unhealthy := scheduler.snapshot().unhealthy):
            await asyncio.sleep(0)
        assert set(unhealthy) == set(scheduler.executors.kinds) - {"subagent"}
        assert unhealthy["shell"].startswith("its guardian was lost")
        assert 'refsched_executor_healthy{kind="shell"} 0\n' in exposition(scheduler.snapshot())
        job = await scheduler.wait((await scheduler.submit(true)).id, TIMEOUT_S)
        assert (job.state, scheduler.snapshot().unhealthy) == ("completed", {})
        assert 'refsched_executor_healthy{kind="shell"} 1\n' in exposition(scheduler.snapshot())
