"""The live driver: what runs, what stops it, who may write about it, and when it wakes."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import signal
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from live_world import (
    DONE,
    FAILED,
    TIMEOUT_S,
    AtOnceExecutor,
    HeldExecutor,
    held,
    line_of,
    no_room,
    on_loop,
    settings,
    start_program,
)
from msgspec.structs import replace

from reference_scheduler import clock
from reference_scheduler.clock import Clock
from reference_scheduler.config import ConfigError, Rollout, Settings, StopMode
from reference_scheduler.core.machine import TERMINAL
from reference_scheduler.core.model import (
    AttemptState,
    Backoff,
    Config,
    Failure,
    Idempotency,
    JobState,
    Limit,
    Priority,
    QueueBounds,
    ResourceRequest,
    RetryPolicy,
    Scope,
)
from reference_scheduler.drivers import live
from reference_scheduler.drivers.live import TICK_PAUSE_US
from reference_scheduler.errors import (
    InvalidSubmission,
    JobEnded,
    JournalDamaged,
    JournalUnavailable,
    NoSuchJob,
    SchedulerError,
    SchedulerStopping,
)
from reference_scheduler.executors.base import AttemptContext, AttemptResult, Executor, Progress, StopReason, StopSignal
from reference_scheduler.journal.base import Batch, GenerationRow, JobRow, Saved
from reference_scheduler.journal.check import check_journal
from reference_scheduler.journal.memory import MemoryJournal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.observers import Gap, Notice, Observers
from reference_scheduler.replay.verify import verify
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.views import JobView

SECOND_US = 1_000_000


async def world(slots: int = 1, **changes: Any) -> tuple[Scheduler, HeldExecutor]:
    executor = HeldExecutor()
    return await Scheduler(settings(slots, **changes), executors=[executor, AtOnceExecutor()]).start(), executor


class Defective:
    """An executor that does what it should not."""

    kind = "held"

    def __init__(self, does: Callable[[], Any] = lambda: DONE, checks: Callable[[], Any] = lambda: None) -> None:
        self._does = does
        self._checks = checks

    def check(self, payload: Mapping[str, Any]) -> None:
        """Do it to who submits."""
        self._checks()

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Do it to the attempt."""
        return self._does()  # type: ignore[no-any-return]

    def health(self) -> str:
        """Do it to who looks."""
        return self._checks()  # type: ignore[no-any-return]


class UnspeakableError(Exception):
    """An error without a message that could be had."""

    def __str__(self) -> str:
        raise LookupError


def raising(error: BaseException) -> Callable[[], Any]:
    def does() -> None:
        raise error

    return does


def result(state: Any = AttemptState.COMPLETED, *arguments: Any, **fields: Any) -> Callable[[], AttemptResult]:
    return lambda: AttemptResult(state, *arguments, **fields)


@on_loop
async def test_a_job_runs_to_its_end_and_its_result_is_kept() -> None:
    scheduler, executor = await world()
    job = await scheduler.submit(held(payload={"n": 1}, workspace="/w", user="u"))
    (context,) = await executor.begun(1)
    assert (context.job, context.attempt, context.payload, context.workspace) == (job.id, 1, {"n": 1}, "/w")
    assert context.token == f"{context.generation}:{job.id}:1"
    assert context.permit.live
    assert scheduler.get(job.id).state is JobState.RUNNING
    assert "has been running for" in scheduler.why(job.id)
    result = AttemptResult(AttemptState.FAILED, 3, failure=Failure.EXECUTION, detail="d", values={"tests": 2})
    executor.end(context, result)
    view = await scheduler.wait(job.id, TIMEOUT_S)
    assert (view.state, view.exit_code, view.attempts) == (JobState.FAILED, 3, 1)
    assert scheduler.result(job.id) == result
    (attempt,) = scheduler.attempts(job.id)
    assert (attempt.state, attempt.exit_code, attempt.failure, attempt.detail) == ("failed", 3, "execution", "d")
    assert not context.permit.release()
    assert scheduler.why(job.id) == f"Job {job.id} is failed; attempt 1: d."
    await scheduler.close()


@pytest.mark.parametrize(
    ("does", "detail"),
    [
        (raising(LookupError("no such thing")), "LookupError: no such thing"),
        (raising(LookupError("first line\nsecond \udcff")), "LookupError: first line"),
        (raising(LookupError("\udcff")), "LookupError: \\udcff"),
        (raising(UnspeakableError()), "UnspeakableError: its message cannot be had: LookupError"),
        (raising(SystemExit(3)), "SystemExit: 3"),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt: "),
        (raising(asyncio.CancelledError()), "CancelledError: "),
        (raising(BaseException("of its own")), "BaseException: of its own"),
        (lambda: None, "TypeError: an executor has to return an AttemptResult, got NoneType"),
        (lambda: {"state": "completed"}, "TypeError: an executor has to return an AttemptResult, got dict"),
        (result("well"), "ValueError: state must be one of completed, failed, cancelled, timed_out, interrupted, got"),
        (result(AttemptState.RUNNING), "ValueError: state must be one of completed, failed, cancelled, timed_out, in"),
        (result(exit_code=-9), "ValueError: exit_code must be between 0 and 255, got -9"),
        (result(exit_code=2**80), "ValueError: exit_code must be between 0 and 255, got 1208925819614629174706176"),
        (result(signal=0), "ValueError: signal must be between 1 and 127, got 0"),
        (result(failure="odd"), "ValidationError: Invalid enum value 'odd' - at `$.failure`"),
        (result(stdout="text"), "ValidationError: Expected `object`, got `str` - at `$.stdout`"),
    ],
)
@on_loop
async def test_whatever_an_executor_does_wrong_is_how_the_attempt_failed(does: Callable[[], Any], detail: str) -> None:
    async with Scheduler(settings(), executors=[Defective(does), AtOnceExecutor()]) as scheduler:
        job = await scheduler.wait((await scheduler.submit(held())).id, TIMEOUT_S)
        (attempt,) = scheduler.attempts(job.id)
        assert (job.state, attempt.detail[: len(detail)]) == (JobState.FAILED, detail)
        assert scheduler.result(job.id) is not None
        other = await scheduler.submit(JobRequest(kind="at_once"))
        assert (await scheduler.wait(other.id, TIMEOUT_S)).state is JobState.COMPLETED
        assert not any(scheduler.snapshot().budget.used)


@pytest.mark.parametrize(
    ("does", "kept"),
    [
        (result("completed"), AttemptResult(AttemptState.COMPLETED)),
        (
            result(detail="\udcff", values={"text": object()}),
            AttemptResult(
                AttemptState.COMPLETED,
                detail="\\udcff (its values cannot be written: Encoding objects of type object is unsupported)",
            ),
        ),
        (
            result(values={1: 2}),
            AttemptResult(
                AttemptState.COMPLETED,
                detail="(its values cannot be written: Expected `str`, got `int` - at `key` in `$.values`)",
            ),
        ),
        (
            result(values={"text": "x" * (5 << 20)}),
            AttemptResult(
                AttemptState.COMPLETED, detail="(its output and values, 5242915 bytes, were too large to keep)"
            ),
        ),
    ],
)
@on_loop
async def test_of_a_result_what_cannot_be_kept_is_left_out(does: Callable[[], Any], kept: AttemptResult) -> None:
    async with Scheduler(settings(), executors=[Defective(does)]) as scheduler:
        job = await scheduler.wait((await scheduler.submit(held())).id, TIMEOUT_S)
        assert (job.state, scheduler.result(job.id)) == (JobState.COMPLETED, kept)


@pytest.mark.parametrize(("reason", "state"), [(StopReason.CANCELLED, "cancelled"), (StopReason.TIMEOUT, "timed_out")])
@on_loop
async def test_an_executor_that_is_cancelled_as_it_is_to_stop_has_stopped(reason: StopReason, state: str) -> None:
    class Cancelling(HeldExecutor):
        async def run(self, context: AttemptContext) -> AttemptResult:
            task = asyncio.current_task()
            assert task is not None
            context.stop.add_callback(task.cancel)
            return await super().run(context)

    executor = Cancelling(stubborn=True)
    async with Scheduler(settings(), executors=[executor]) as scheduler:
        job = await scheduler.submit(held())
        (context,) = await executor.begun(1)
        context.stop.set(reason)
        assert (await scheduler.wait(job.id, TIMEOUT_S)).state == state


@on_loop
async def test_an_executor_that_cannot_be_told_to_stop_is_no_trouble_for_others() -> None:
    executor = HeldExecutor()
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context["exception"]))
    async with Scheduler(settings(), executors=[executor]) as scheduler:
        jobs = [await scheduler.submit(held()) for _ in range(2)]
        first, _ = await executor.begun(2)
        first.stop.add_callback(raising(error := LookupError()))
        for job in jobs:
            await scheduler.cancel(job.id)
        assert [(await scheduler.wait(job.id, TIMEOUT_S)).state for job in jobs] == [JobState.CANCELLED] * 2
    assert troubles == [error]


@on_loop
async def test_a_check_with_a_defect_refuses_its_job_and_no_other() -> None:
    executors: list[Executor] = [Defective(checks=raising(LookupError("a"))), AtOnceExecutor()]
    async with Scheduler(settings(), executors=executors) as scheduler:
        job, refusal, other = await scheduler.submit_many(
            [JobRequest(kind="at_once"), held(), JobRequest(kind="at_once")]
        )
        assert str(refusal) == "the executor of 'held' cannot check it: LookupError: a"
        assert isinstance(refusal, InvalidSubmission)
        assert [job, other] == [view.id for view in reversed(scheduler.jobs())]
        assert scheduler.snapshot().unhealthy == {"held": "LookupError: a"}


@pytest.mark.parametrize(
    ("reported", "detail"),
    [
        (None, "TypeError: an executor has to return an AttemptResult, got NoneType"),
        (result(failure="bad luck")(), "ValidationError: Invalid enum value 'bad luck'"),
    ],
)
@on_loop
async def test_what_a_caller_reports_wrongly_is_how_its_attempt_failed(reported: Any, detail: str) -> None:
    scheduler, _ = await world(rollout=Rollout.OBSERVE)
    job = await scheduler.submit(held())
    assert scheduler.report(job.id, reported)
    assert (await scheduler.wait(job.id, TIMEOUT_S)).state is JobState.FAILED
    assert scheduler.attempts(job.id)[0].detail.startswith(detail)
    another = asyncio.ensure_future(scheduler.run(JobRequest(kind="at_once"), lambda: asyncio.sleep(0, DONE)))
    assert (await another).state is JobState.COMPLETED
    await scheduler.close()


@on_loop
async def test_what_cannot_be_written_of_a_detail_is_shown_in_another_way() -> None:
    class Unreadable(AtOnceExecutor):
        async def run(self, context: AttemptContext) -> AttemptResult:
            if context.payload:
                raise LookupError("a \udcff\nb")
            return AttemptResult(AttemptState.COMPLETED, detail="a \udcff\nb", values={"a": 1})

    async with Scheduler(settings(), executors=[Unreadable()]) as scheduler:
        details = []
        for payload in ({}, {"raise": True}):
            job = await scheduler.submit(JobRequest(kind="at_once", payload=payload))
            state = (await scheduler.wait(job.id, TIMEOUT_S)).state
            details.append((state, scheduler.attempts(job.id)[0].detail.partition(" (its")[0]))
    assert details == [(JobState.COMPLETED, r"a \udcff"), (JobState.FAILED, r"LookupError: a \udcff")]


@on_loop
async def test_text_that_cannot_be_written_is_refused_and_nothing_else_happens() -> None:
    scheduler, executor = await world()
    job = await scheduler.submit(held())
    for call in (
        lambda: scheduler.cancel(job.id, "\udcff"),
        lambda: scheduler.pause("\udcff"),
        lambda: scheduler.reload(Settings(core=Config(limits=(Limit(Scope.USER, 1, "\udcff"),)))),
        lambda: scheduler.submit(held(user="\udcff")),
    ):
        with pytest.raises(SchedulerError, match=r"surrogates not allowed|cannot be written as UTF-8"):
            await call()
    executor.end((await executor.begun(1))[0])
    assert (await scheduler.wait(job.id, TIMEOUT_S)).state is JobState.COMPLETED
    await scheduler.close()


@on_loop
async def test_unknown_jobs() -> None:
    scheduler, _ = await world()
    for call in (scheduler.get, scheduler.attempts, scheduler.result, scheduler.why):
        with pytest.raises(NoSuchJob, match="there is no job '5'"):
            call("5")
    with pytest.raises(NoSuchJob):
        await scheduler.wait("5")
    with pytest.raises(NoSuchJob):
        await scheduler.cancel("5")
    await scheduler.close()


@on_loop
async def test_waiting_gives_up_after_its_time_and_only_that_wait() -> None:
    scheduler, executor = await world()
    job = await scheduler.submit(held())
    patient = asyncio.ensure_future(scheduler.wait(job.id, TIMEOUT_S))
    with pytest.raises(TimeoutError):
        await scheduler.wait(job.id, 0.01)
    executor.end((await executor.begun(1))[0])
    assert (await patient).state is JobState.COMPLETED
    await scheduler.close()


# Ends.


@on_loop
async def test_a_timeout_stops_the_attempt_and_no_other() -> None:
    scheduler, executor = await world(2)
    slow, other = [await scheduler.submit(held(timeout_us=limit)) for limit in (10_000, None)]
    view = await scheduler.wait(slow.id, TIMEOUT_S)
    assert (view.state, scheduler.attempts(slow.id)[0].state) == (JobState.TIMED_OUT, AttemptState.TIMED_OUT)
    assert scheduler.get(other.id).state is JobState.RUNNING
    executor.end(executor.contexts[1])
    await scheduler.close()


@on_loop
async def test_a_cancelled_job_frees_its_place_for_the_next() -> None:
    scheduler, executor = await world(1)
    first, second, third = [await scheduler.submit(held()) for _ in range(3)]
    await executor.begun(1)
    assert (await scheduler.cancel(second.id, "not wanted")).state is JobState.CANCELLED
    await scheduler.cancel(first.id)
    contexts = await executor.begun(2)
    assert (contexts[0].stop.reason, contexts[1].job) == (StopReason.CANCELLED, third.id)
    assert (await scheduler.wait(first.id, TIMEOUT_S)).state is JobState.CANCELLED
    executor.end(contexts[1])
    assert (await scheduler.wait(third.id, TIMEOUT_S)).state is JobState.COMPLETED
    ended = await scheduler.wait(third.id)
    assert (ended.state, await scheduler.cancel(third.id)) == (JobState.COMPLETED, ended), "nor is its end another"
    assert scheduler.why(second.id) == "Job 2 is cancelled; it never started."
    fourth = await scheduler.submit(held(after_ok=(first.id,)))
    assert scheduler.why(fourth.id) == "Job 4 is cancelled; job 1, which had to complete first, is cancelled."
    await scheduler.close()


@pytest.mark.parametrize("order", list(itertools.permutations(["cancel", "finish", "timeout"])))
@on_loop
async def test_cancel_finish_and_timeout_in_any_order_end_a_job_once(order: tuple[str, ...]) -> None:
    executor = HeldExecutor(stubborn=True)
    async with Scheduler(settings(1), executors=[executor]) as scheduler:
        news = scheduler.observe()
        job = await scheduler.submit(held())
        (context,) = await executor.begun(1)
        for step in order:
            if step == "cancel":
                await scheduler.cancel(job.id)
            elif step == "timeout":
                context.stop.set(StopReason.TIMEOUT)
            else:
                executor.end(context, AttemptResult(AttemptState.COMPLETED, exit_code=7))
        view = await scheduler.wait(job.id, TIMEOUT_S)
        assert (view.state, view.exit_code) == (JobState.COMPLETED, 7)
    words = [notice.what async for notice in news if isinstance(notice, Notice)]
    assert [word for word in words if word in ("completed", "cancelled", "timed_out")] == ["completed"]


@on_loop
async def test_real_processes_that_end_as_they_are_stopped_have_one_end_each() -> None:
    random = Random(22)
    async with Scheduler(settings(4)) as scheduler:
        news = scheduler.observe(10**6)
        script = {"script": "trap 'exit 4' TERM; sleep 0.02 & wait $!; exit 3"}
        requests = [shell(script, random.choice((10, 20, 40))) for _ in range(80)]
        jobs = [str(job) for job in await scheduler.submit_many(requests)]
        for job in random.sample(jobs, len(jobs)):
            if random.random() < 0.3:
                await scheduler.cancel(job)
            elif scheduler.get(job).state is JobState.RUNNING:
                await asyncio.sleep(random.choice((0, 0.01, 0.02)))
                await scheduler.cancel(job)
        ended = [await scheduler.wait(job, TIMEOUT_S) for job in jobs]
        for view in ended:
            await scheduler.cancel(view.id)
        assert [await scheduler.wait(view.id) for view in ended] == ended
        for view in ended:
            states = [str(attempt.state) for attempt in scheduler.attempts(view.id)]
            assert states == ([] if view.attempts == 0 else [view.state])
            stopped = view.state in (JobState.TIMED_OUT, JobState.CANCELLED)
            assert view.exit_code in ((3, 4, None) if stopped else (3,)), view
        assert scheduler.snapshot().budget.used.process_slots == 0
    ends = Counter([notice.job async for notice in news if isinstance(notice, Notice) and notice.what in TERMINAL])
    assert ends == Counter(jobs)


def shell(payload: dict[str, Any], timeout_ms: int) -> JobRequest:
    return JobRequest(kind="shell", payload=payload, timeout_us=1000 * timeout_ms)


@on_loop
async def test_a_process_that_ignores_the_wish_to_stop_frees_its_place_within_its_grace() -> None:
    script = {"script": "trap '' TERM; echo up; while :; do sleep 600; done"}
    async with Scheduler(settings(1)) as scheduler:
        stubborn = await scheduler.submit(JobRequest(kind="shell", payload=script, grace_us=50_000))
        after = await scheduler.submit(JobRequest(kind="shell", payload={"script": "exit 6"}))
        assert (stubborn.state, after.state) == (JobState.RUNNING, JobState.QUEUED)
        await scheduler.cancel(stubborn.id)
        assert (await scheduler.wait(after.id, TIMEOUT_S)).exit_code == 6
        assert scheduler.get(stubborn.id).state is JobState.CANCELLED


@on_loop
async def test_a_failure_is_tried_again_as_often_as_its_policy_says() -> None:
    scheduler, executor = await world()
    policy = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, base_us=1000, retry_on=(Failure.EXECUTION,))
    job = await scheduler.submit(held(retry=policy))
    for number in range(3):
        executor.end((await executor.begun(number + 1))[number], FAILED)
    view = await scheduler.wait(job.id, TIMEOUT_S)
    assert (view.state, view.attempts, view.exit_code) == (JobState.DEAD_LETTER, 3, 1)
    assert [attempt.number for attempt in scheduler.attempts(job.id)] == [1, 2, 3]
    await scheduler.close()


@on_loop
async def test_times_and_dependencies_are_kept() -> None:
    scheduler, executor = await world(4)
    first = await scheduler.submit(held())
    after = await scheduler.submit(held(after_ok=(first.id,)))
    late = await scheduler.submit(held(delay_us=300_000))
    hopeless = await scheduler.submit(held(after_any=(first.id,), start_within_us=1))
    assert (after.state, late.state) == (JobState.BLOCKED, JobState.SCHEDULED)
    assert (await scheduler.wait(hopeless.id, TIMEOUT_S)).state is JobState.EXPIRED
    contexts = await executor.begun(2)
    assert [context.job for context in contexts] == [first.id, late.id]
    executor.end(contexts[0], FAILED)
    assert (await scheduler.wait(after.id, TIMEOUT_S)).state is JobState.CANCELLED
    executor.end(contexts[1])
    await scheduler.close()


# Tokens, leases, progress.


@on_loop
async def test_what_a_stale_token_writes_changes_nothing_and_is_told() -> None:
    scheduler, executor = await world()
    news = scheduler.observe()
    job = await scheduler.submit(held())
    (context,) = await executor.begun(1)
    assert context.heartbeat()
    assert context.progress(Progress(0.5, "half"))
    assert scheduler.get(job.id).progress == Progress(0.5, "half")
    executor.end(context)
    await scheduler.wait(job.id, TIMEOUT_S)
    for token in (context.token, f"{'0' * 32}:{job.id}:1", "", "::", "a:b:c"):
        assert not scheduler.heartbeat(token)
        assert not scheduler.progress(token, Progress(1.0))
    assert not context.permit.release()
    assert scheduler.get(job.id).progress is None
    assert scheduler.snapshot().stale_writes == 10
    await scheduler.close()
    stale = [notice async for notice in news if isinstance(notice, Notice) and notice.what == "stale"]
    assert len(stale) == 10
    assert (stale[0].job, stale[0].attempt, stale[0].detail) == (job.id, 1, "heartbeat")


WORKER = """
import sys
print("up", flush=True)
for line in sys.stdin:
    print("beat", flush=True)
"""


class WorkerExecutor:
    """Keeps a real process, whose every line is a heartbeat of its attempt, and does not end it when asked to."""

    kind = "held"

    def __init__(self) -> None:
        self.worker = start_program(WORKER)
        self.answers: list[bool] = []
        self.contexts: list[AttemptContext] = []
        line_of(self.worker)

    def check(self, payload: Mapping[str, Any]) -> None:
        """Take anything."""

    def ask(self) -> None:
        assert self.worker.stdin is not None
        self.worker.stdin.write("\n")
        self.worker.stdin.flush()

    async def run(self, context: AttemptContext) -> AttemptResult:
        self.contexts.append(context)
        if context.attempt > 1:
            return DONE
        while context.stop.reason is None:
            self.ask()
            await asyncio.to_thread(line_of, self.worker)
            self.answers.append(context.heartbeat())
            if len(self.answers) == 3:
                self.worker.send_signal(signal.SIGSTOP)
                self.ask()
                await context.stop.wait()
        self.worker.send_signal(signal.SIGCONT)
        line_of(self.worker)
        self.answers.append(context.heartbeat())
        return DONE


@on_loop
async def test_a_worker_that_was_stopped_past_its_lease_is_refused_when_it_goes_on() -> None:
    executor = WorkerExecutor()
    async with Scheduler(settings(1), executors=[executor]) as scheduler:
        news = scheduler.observe()
        job = await scheduler.submit(held(lease_us=1_500_000, idempotency=Idempotency.SAFE_REPEAT))
        view = await scheduler.wait(job.id, TIMEOUT_S)
        assert (view.state, view.attempts) == (JobState.COMPLETED, 2)
        assert executor.contexts[0].stop.reason is StopReason.LEASE
        assert not executor.contexts[0].permit.live
        assert [attempt.state for attempt in scheduler.attempts(job.id)] == ["interrupted", "completed"]
    assert executor.answers == [True, True, True, False]
    told = [(notice.what, notice.detail) async for notice in news if isinstance(notice, Notice)]
    assert [one for one in told if one[0] in ("stale", "lease_expired")] == [
        ("lease_expired", ""),
        ("stale", "heartbeat"),
        ("stale", "result"),
    ]
    executor.worker.communicate()


@on_loop
async def test_nothing_is_rescued_by_the_time_it_runs_alone() -> None:
    scheduler, executor = await world(1, reconcile_ms=1)
    job = await scheduler.submit(held(estimate_us=1, lease_us=None, grace_us=1, idempotency=Idempotency.SAFE_REPEAT))
    (context,) = await executor.begun(1)
    while scheduler.snapshot().wakes.get("reconciled", 0) < 5:  # each looks at what runs
        await asyncio.sleep(0.001)
    assert (context.stop.reason, len(executor.contexts)) == (None, 1)
    executor.end(context)
    assert (await scheduler.wait(job.id, TIMEOUT_S)).attempts == 1
    await scheduler.close()


# Pauses, configuration, rollout.


@on_loop
async def test_whatever_keeps_all_jobs_from_starting_is_named_as_the_reason(tmp_path: Path) -> None:
    path, executor = tmp_path / "journal.db", HeldExecutor()
    scheduler = await Scheduler(settings(2), path, [executor]).start()
    running = await scheduler.submit(held())
    await executor.begun(1)

    def reasons(job: JobView) -> tuple[str, str]:
        said = re.fullmatch(rf"Job {job.id} has been waiting for [\d.]+ s: (.*)\.", scheduler.why(job.id))
        return scheduler.get(job.id).reason, said[1] if said else ""

    await scheduler.pause()
    first, second = await scheduler.submit(held()), await scheduler.submit(held())
    later = await scheduler.submit(held(after_ok=(first.id,)))
    assert reasons(first) == ("paused", "the scheduler is paused: 1 run, and 3 wait for refsched resume")
    assert [view.reason for view in scheduler.jobs()] == ["dependency", "paused", "paused", ""]
    assert reasons(later) == ("dependency", f"1 other jobs have to end first ({first.id})")
    assert "has been running for" in scheduler.why(running.id)
    await scheduler.reload(replace(scheduler.settings, core=replace(scheduler.settings.core, enabled=False)))
    assert reasons(second) == ("disabled", "the scheduler is disabled by its configuration")
    await scheduler.reload(settings(2))
    await scheduler.resume()
    await executor.begun(2)
    draining = asyncio.ensure_future(scheduler.drain())
    await asyncio.sleep(0)
    told = "the scheduler drains: 2 run, and 2 wait for its next start or refsched resume"
    assert reasons(second) == ("draining", told)
    for context in executor.running():
        executor.end(context)
    await draining
    with no_room(path):
        with pytest.raises(JournalUnavailable):
            await scheduler.resume()
        assert scheduler.get(second.id).reason == "journal"
        told = f"Job {second.id} is queued, and the journal cannot be used, so nothing starts ({path}: "
        assert scheduler.why(second.id).startswith(told)
    await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_of_a_job_that_its_caller_runs_nothing_is_said_to_hold_it_up() -> None:
    scheduler = await Scheduler(settings(1, rollout=Rollout.OBSERVE), executors=[HeldExecutor()]).start()
    for job in [await scheduler.submit(held()) for _ in range(2)]:
        told = "is run by its caller; under the rollout observe the scheduler only records it."
        assert scheduler.why(job.id) == f"Job {job.id} {told}"
    await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_a_pause_starts_nothing_more_until_it_is_undone() -> None:
    scheduler, executor = await world(2)
    await scheduler.pause()
    job = await scheduler.submit(held())
    await scheduler.pause("q")
    await scheduler.resume()
    assert (await executor.begun(1))[0].job == job.id
    queued = await scheduler.submit(held(queue="q"))
    other = await scheduler.submit(held())
    assert (await executor.begun(2))[1].job == other.id
    assert scheduler.get(queued.id).reason == "paused"
    executor.end(executor.contexts[0])
    await scheduler.resume("q")
    assert (await executor.begun(3))[2].job == queued.id
    await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_what_comes_into_the_queue_while_nothing_starts_is_shown_and_kept_as_queued(tmp_path: Path) -> None:
    path, executor = tmp_path / "j.db", HeldExecutor()
    async with Scheduler(settings(1), path, [executor]) as scheduler:
        first = await scheduler.submit(held())
        await executor.begun(1)
        await scheduler.pause()
        notices = scheduler.observe()
        after = await scheduler.submit(held(after_ok=(first.id,)))
        later = await scheduler.submit(held(delay_us=1000))
        executor.end(executor.contexts[0])
        missing = {(after.id, "queued"), (later.id, "queued")}
        while missing:
            notice = await anext(notices)
            assert isinstance(notice, Notice)
            missing.discard((notice.job, notice.what))
        assert [view.state for view in scheduler.jobs()] == ["queued", "queued", "completed"]
        assert check_journal(path, Plugins()).problems == ()
        await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_what_an_operator_paused_stays_so_when_the_configuration_enables_again() -> None:
    scheduler, executor = await world(1)
    off = replace(scheduler.settings, core=replace(scheduler.settings.core, enabled=False))
    await scheduler.pause()
    waiting = await scheduler.submit(held())
    for reason in ("paused", "draining"):
        await scheduler.reload(off)
        assert scheduler.get(waiting.id).reason == "disabled"
        await scheduler.reload(settings(1))
        assert scheduler.get(waiting.id).reason == reason
        await scheduler.drain()
    await scheduler.reload(off)
    await scheduler.resume()
    assert scheduler.get(waiting.id).reason == "disabled"
    await scheduler.reload(settings(1))
    assert (await executor.begun(1))[0].job == waiting.id
    await scheduler.close(StopMode.INTERRUPT)


@pytest.mark.parametrize("kept", ["memory", "file"])
@on_loop
async def test_a_pause_lasts_over_a_restart_and_a_drain_does_not(tmp_path: Path, kept: str) -> None:
    journal, executor = (MemoryJournal() if kept == "memory" else tmp_path / "j.db"), HeldExecutor()
    async with Scheduler(settings(1), journal, [executor]) as scheduler:
        await scheduler.pause()
        job = await scheduler.submit(held())
    async with Scheduler(settings(1), journal, [executor]) as scheduler:
        assert scheduler.get(job.id).reason == "paused"
        await scheduler.resume()
        await executor.begun(1)
        waiting = await scheduler.submit(held())
        draining = asyncio.ensure_future(scheduler.drain())
        executor.end(executor.contexts[0])
        await draining
    async with Scheduler(settings(1), journal, [executor]) as scheduler:
        assert (await executor.begun(2))[1].job == waiting.id
        executor.end(executor.contexts[1])


@pytest.mark.parametrize("drains", [False, True])
@on_loop
async def test_who_interrupts_does_not_wait_for_a_journal_that_cannot_be_written(tmp_path: Path, drains: bool) -> None:
    path, executor = tmp_path / "j.db", HeldExecutor()
    scheduler = await Scheduler(settings(2), path, [executor]).start()
    ended = await scheduler.submit(held(idempotency=Idempotency.SAFE_REPEAT))
    await scheduler.submit(held())
    await executor.begun(2)
    notices = scheduler.observe()
    with no_room(path):
        executor.end(executor.contexts[0])
        assert (await anext(notices)).what == "journal"  # type: ignore[union-attr]
        draining = asyncio.ensure_future(scheduler.close()) if drains else None
        await asyncio.sleep(0)
        await scheduler.close(StopMode.INTERRUPT)
        assert draining is None or draining.done()
    async with Scheduler(settings(2), path, [executor]) as scheduler:
        assert (scheduler.recovery.interrupted, scheduler.recovery.requeued) == (2, 1)
        executor.end((await executor.begun(3))[2])
        assert (await scheduler.wait(ended.id, TIMEOUT_S)).state == "completed"


@on_loop
async def test_new_settings_hold_for_what_starts_later() -> None:
    scheduler, executor = await world(3)
    for _ in range(4):
        await scheduler.submit(held())
    await executor.begun(3)
    await scheduler.reload(settings(1))
    executor.end(executor.contexts[0])
    executor.end(executor.contexts[1])
    await asyncio.gather(*(scheduler.wait(context.job, TIMEOUT_S) for context in executor.contexts[:2]))
    assert scheduler.snapshot().budget.used.process_slots == 1
    executor.end(executor.contexts[2])
    assert (await executor.begun(4))[3].job == "4"
    with pytest.raises(ConfigError, match=r"scheduler.picker: must be one of fair, .*, got 'none'"):
        await scheduler.reload(Settings(core=Config(picker="none")))
    with pytest.raises(ConfigError, match=r"scheduler.allocator: must be one of sequential, .*, got 'none'"):
        await scheduler.reload(Settings(core=Config(allocator="none")))
    assert scheduler.snapshot().budget.used.process_slots == 1  # it goes on
    await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_observe_lets_callers_run_their_work_and_records_what_would_have_been() -> None:
    scheduler, executor = await world(1, rollout=Rollout.OBSERVE)
    running = asyncio.Event()

    async def own(result: AttemptResult = DONE) -> AttemptResult:
        await running.wait()
        return result

    first = asyncio.ensure_future(scheduler.run(held(), own))
    second = asyncio.ensure_future(scheduler.run(held(), lambda: own(FAILED)))
    while len(scheduler.jobs()) < 2:
        await asyncio.sleep(0)
    states = {job.id: job.state for job in scheduler.jobs()}
    assert states == {"1": JobState.RUNNING, "2": JobState.QUEUED}  # it would have waited
    running.set()
    assert (await first).state is JobState.COMPLETED
    assert ((await second).state, (await second).exit_code) == (JobState.FAILED, 1)
    assert (executor.contexts, scheduler.report("1", DONE)) == ([], False)

    async def fails() -> AttemptResult:
        raise LookupError("own")

    with pytest.raises(LookupError):
        await scheduler.run(held(), fails)
    assert (await scheduler.wait("3", TIMEOUT_S)).state is JobState.FAILED
    assert scheduler.attempts("3")[0].detail == "LookupError: own"
    await scheduler.close()


@on_loop
async def test_of_an_observed_job_that_was_cancelled_nothing_more_is_expected() -> None:
    scheduler, _ = await world(1, rollout=Rollout.OBSERVE)
    await scheduler.pause()
    job = await scheduler.submit(held())
    assert (await scheduler.cancel(job.id)).state is JobState.CANCELLED
    assert not scheduler.report(job.id, DONE)
    await scheduler.close()


@on_loop
async def test_a_caller_that_never_says_how_its_run_ended_is_waited_for_until_its_time_is_up() -> None:
    async with Scheduler(settings(1, rollout=Rollout.OBSERVE), executors=[HeldExecutor()]) as scheduler:
        lost = await scheduler.submit(held(timeout_us=1000, grace_us=1000))
        assert (await scheduler.wait(lost.id, TIMEOUT_S)).state is JobState.TIMED_OUT
        assert scheduler.attempts(lost.id)[0].detail == "its caller was not waited for"
        assert not scheduler.report(lost.id, DONE)
        other = await scheduler.submit(held(timeout_us=10**12))  # whose place it would have taken
        assert scheduler.report(other.id, DONE)
        assert (await scheduler.wait(other.id, TIMEOUT_S)).state is JobState.COMPLETED


@on_loop
async def test_what_a_caller_ran_under_an_earlier_start_has_failed() -> None:
    journal = MemoryJournal()
    first = await Scheduler(settings(1, rollout=Rollout.OBSERVE), journal, [HeldExecutor()]).start()
    await first.pause()
    job = await first.submit(held(idempotency=Idempotency.SAFE_REPEAT))
    await first.close()
    async with Scheduler(settings(1, rollout=Rollout.OBSERVE), journal, [HeldExecutor()]) as second:
        await second.resume()
        assert (await second.wait(job.id, TIMEOUT_S)).state is JobState.FAILED
        assert second.attempts(job.id)[0].detail == "its caller ended with an earlier start of the scheduler"


@on_loop
async def test_active_runs_the_listed_kinds_and_only_these() -> None:
    scheduler, executor = await world(2, rollout=Rollout.ACTIVE, active_kinds=("held",))
    own = await scheduler.run(JobRequest(kind="at_once"), lambda: asyncio.sleep(0, FAILED))
    assert (own.observed, own.state) == (True, JobState.FAILED)
    governed = asyncio.ensure_future(scheduler.run(held(), lambda: pytest.fail("the caller ran it too")))
    executor.end((await executor.begun(1))[0])
    assert ((await governed).observed, (await governed).state) == (False, JobState.COMPLETED)
    await scheduler.close()


class Attached(AtOnceExecutor):
    """What is to be called for the wish to stop holds the attempt, which holds the wish."""

    def __init__(self) -> None:
        self.stop: weakref.ref[StopSignal] | None = None

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Return."""
        context.stop.add_callback(lambda: print(context.token))
        self.stop = weakref.ref(context.stop)
        return DONE


@on_loop
async def test_what_an_attempt_held_goes_with_it_and_needs_no_garbage_collector() -> None:
    executor = Attached()
    gc.disable()
    try:
        async with Scheduler(settings(1), executors=[executor]) as scheduler:
            await scheduler.wait((await scheduler.submit(JobRequest(kind="at_once"))).id)
        assert executor.stop is not None
        assert executor.stop() is None
    finally:
        gc.enable()


# The end.


@on_loop
async def test_a_drain_waits_for_what_runs_and_leaves_what_waits(tmp_path: Path) -> None:
    executor = HeldExecutor()
    scheduler = await Scheduler(settings(1), tmp_path / "j.db", [executor]).start()
    first, second = [await scheduler.submit(held()) for _ in range(2)]
    (context,) = await executor.begun(1)
    closing = asyncio.ensure_future(scheduler.close(StopMode.DRAIN))
    executor.end(context)
    await closing
    async with Scheduler(settings(1), tmp_path / "j.db", [executor]) as again:
        assert again.get(first.id).state is JobState.COMPLETED
        executor.end((await executor.begun(2))[1])
        assert (await again.wait(second.id, TIMEOUT_S)).state is JobState.COMPLETED
        assert again.recovery.interrupted == 0


@on_loop
async def test_to_interrupt_requeues_what_may_run_again_and_hurries_a_drain(tmp_path: Path) -> None:
    executor = HeldExecutor()
    scheduler = await Scheduler(settings(2), tmp_path / "j.db", [executor]).start()
    safe, other = [
        await scheduler.submit(held(idempotency=idempotency))
        for idempotency in (Idempotency.SAFE_REPEAT, Idempotency.NON_IDEMPOTENT)
    ]
    contexts = list(await executor.begun(2))
    draining = asyncio.ensure_future(scheduler.close(StopMode.DRAIN))
    await asyncio.sleep(0)
    await scheduler.close(StopMode.INTERRUPT)
    await draining
    assert {context.stop.reason for context in contexts} == {StopReason.SHUTDOWN}
    assert not any(context.permit.live for context in contexts)
    async with Scheduler(settings(2), tmp_path / "j.db", [executor]) as again:
        assert (again.get(other.id).state, again.get(safe.id).attempts) == (JobState.FAILED, 2)
        executor.end((await executor.begun(3))[2])
        assert (await again.wait(safe.id, TIMEOUT_S)).state is JobState.COMPLETED


@on_loop
async def test_to_interrupt_again_takes_the_grace() -> None:
    executor = HeldExecutor(stubborn=True)
    scheduler = await Scheduler(settings(1), executors=[executor]).start()
    await scheduler.submit(held())
    (context,) = await executor.begun(1)
    closing = [asyncio.ensure_future(scheduler.close(StopMode.INTERRUPT)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (context.stop.reason, context.stop.hurry) == (StopReason.SHUTDOWN, True)
    executor.end(context, AttemptResult(AttemptState.INTERRUPTED))
    await asyncio.gather(*closing)


class Slow(MemoryJournal):
    """A journal whose next commit waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.wait = threading.Event()
        self.waits = threading.Event()
        self.wait.set()
        self.commits = 0

    def commit(self, batch: Batch) -> list[JobRow]:
        """Wait, then commit."""
        if not self.wait.is_set():
            self.waits.set()
            self.wait.wait()
        self.commits += 1
        return super().commit(batch)


@on_loop
async def test_two_who_submit_by_turns_soon_share_their_commits() -> None:
    journal, each = Slow(), 20

    async def client(scheduler: Scheduler) -> None:
        for _ in range(each):
            await scheduler.submit(held())

    async with Scheduler(settings(1), journal, [HeldExecutor()]) as scheduler:
        await scheduler.pause()
        before = journal.commits
        journal.wait.clear()
        first = asyncio.ensure_future(client(scheduler))
        await asyncio.to_thread(journal.waits.wait)
        second = asyncio.ensure_future(client(scheduler))
        await asyncio.sleep(0)
        journal.wait.set()
        await asyncio.gather(first, second)
        assert journal.commits - before == 1 + each


@pytest.mark.parametrize("size", [0, 1])
@on_loop
async def test_a_priority_that_comes_with_the_end_of_a_job_is_told_to_be_too_late(size: int) -> None:
    journal, executor = Slow(), HeldExecutor()
    async with Scheduler(settings(1), journal, [executor]) as scheduler:
        job = await scheduler.submit(held(array_size=size))
        (context,) = await executor.begun(1)
        journal.wait.clear()
        other = asyncio.ensure_future(scheduler.submit(held()))
        await asyncio.to_thread(journal.waits.wait)
        executor.end(context)  # the end and the wish are handled together
        while not scheduler._attempts.all_over:
            await asyncio.sleep(0)
        late = asyncio.ensure_future(scheduler.update(job.id, Priority.URGENT))
        await asyncio.sleep(0)
        journal.wait.set()
        with pytest.raises(JobEnded, match="job 1 has ended, and keeps its priority"):
            await late
        assert scheduler.get(job.id).priority == "normal"
        await other
        executor.end((await executor.begun(2))[1])


@on_loop
async def test_a_drain_waits_for_what_was_decided_before_it_and_is_being_written() -> None:
    journal, executor = Slow(), HeldExecutor()
    scheduler = await Scheduler(settings(1), journal, [executor]).start()
    journal.wait.clear()
    submitting = asyncio.ensure_future(scheduler.submit(held(idempotency=Idempotency.NON_IDEMPOTENT)))
    await asyncio.to_thread(journal.waits.wait)
    closing = asyncio.ensure_future(scheduler.close(StopMode.DRAIN))
    await asyncio.sleep(0)
    journal.wait.set()
    job = await submitting
    executor.end((await executor.begun(1))[0])
    await closing
    row = journal.job(job.id)
    assert row is not None
    assert row.state is JobState.COMPLETED


@on_loop
async def test_to_interrupt_stops_also_what_is_being_started() -> None:
    journal, executor = Slow(), HeldExecutor()
    scheduler = await Scheduler(settings(1), journal, [executor]).start()
    journal.wait.clear()
    submitting = asyncio.ensure_future(scheduler.submit(held(idempotency=Idempotency.SAFE_REPEAT)))
    await asyncio.to_thread(journal.waits.wait)
    closing = asyncio.ensure_future(scheduler.close(StopMode.INTERRUPT))
    await asyncio.sleep(0)
    journal.wait.set()
    await asyncio.gather(submitting, closing)
    assert [context.stop.reason for context in executor.contexts] == [StopReason.SHUTDOWN]


# Observers.


@on_loop
async def test_a_slow_observer_loses_the_newest_is_told_how_many_and_slows_nobody() -> None:
    scheduler, _ = await world(4)
    slow, quick = scheduler.observe(limit=3), scheduler.observe(limit=10_000)
    jobs = [await scheduler.submit(JobRequest(kind="at_once")) for _ in range(20)]
    for job in jobs:
        await scheduler.wait(job.id, TIMEOUT_S)
    await scheduler.close()
    all_of_it = [notice async for notice in quick]
    read = [notice async for notice in slow]
    assert read[:3] == all_of_it[:3]
    assert read[3:] == [Gap(len(all_of_it) - 3)]
    assert [notice.what for notice in all_of_it if isinstance(notice, Notice) and notice.job == "1"] == [
        "running",
        "completed",
    ]


@on_loop
async def test_a_gap_comes_where_it_was_also_for_who_reads_while_more_happens() -> None:
    observers = Observers()
    slow = observers.subscribe(2)
    for name in ("a", "b", "c"):
        observers.tell(0, name)
    assert await anext(slow) == Notice(1, 0, "a")
    observers.tell(0, "d")  # there is room again, but that c was missed is not told yet
    assert [await anext(slow), await anext(slow)] == [Notice(2, 0, "b"), Gap(2)]
    observers.tell(0, "e")
    observers.close()
    assert [notice async for notice in slow] == [Notice(5, 0, "e")]


# Time.


@on_loop
async def test_an_idle_scheduler_is_not_woken(tmp_path: Path) -> None:
    async with Scheduler(settings(1, reconcile_ms=1), tmp_path / "j.db", [HeldExecutor()]) as scheduler:
        await scheduler.submit(held(delay_us=3600 * SECOND_US))
        before = scheduler.snapshot().wakes
        await asyncio.sleep(0.1)
        assert scheduler.snapshot().wakes == before


@on_loop
async def test_what_is_due_again_at_once_does_not_turn_in_circles() -> None:
    some, executor = settings(2), HeldExecutor()
    some = replace(some, core=replace(some.core, picker="conservative"))
    one = ResourceRequest(1, 1, 1, exclusivity_keys=("k",))
    async with Scheduler(some, None, [executor]) as scheduler:
        await scheduler.submit(held(request=one, estimate_us=1))
        await executor.begun(1)
        await scheduler.submit(held(request=one, estimate_us=0))  # its place comes, and it waits for the key
        behind = await scheduler.submit(held(request=ResourceRequest(1, 1, 1)))  # and this one's comes just after that
        assert scheduler.get(behind.id).reason == "behind"
        begun, number, notices = time.monotonic_ns(), scheduler._driver._number, scheduler.observe()
        later = await scheduler.submit(held(delay_us=100_000))
        while (await anext(notices)).job != later.id or scheduler.get(later.id).state is JobState.SCHEDULED:  # type: ignore[union-attr]
            pass
        took_us = (time.monotonic_ns() - begun) // 1000
        assert scheduler._driver._number - number <= took_us // TICK_PAUSE_US + 5
        await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_a_pause_between_two_passes_does_not_turn_in_circles(tmp_path: Path) -> None:
    journal, executor = Slow(), HeldExecutor()
    core = replace(settings(4).core, queue=QueueBounds(claim_batch=1))
    scheduler = await Scheduler(replace(settings(4), core=core), journal, [executor]).start()
    journal.wait.clear()
    submitting = asyncio.ensure_future(scheduler.submit_many([held()] * 3))
    await asyncio.to_thread(journal.waits.wait)
    pausing = asyncio.ensure_future(scheduler.pause())  # when one is started, and two more would be at once
    await asyncio.sleep(0)
    journal.wait.set()
    await asyncio.gather(submitting, pausing)
    scheduler.record_start(tmp_path / "x.replay")
    await asyncio.sleep(0.2)
    assert scheduler.record_stop().events <= 5  # once in 50 ms
    assert len(executor.contexts) == 1
    await scheduler.resume()
    await executor.begun(3)
    await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_a_step_of_the_wall_clock_changes_no_order_no_timeout_and_no_duration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = time.time_ns
    scheduler, executor = await world(1)
    order = []
    for step_s in (3600, -3600, 0):
        monkeypatch.setattr(time, "time_ns", lambda step_s=step_s: real() + step_s * 10**9)
        order.append((await scheduler.submit(held(timeout_us=3600 * SECOND_US))).id)
        late = await scheduler.submit(held(delay_us=1800 * SECOND_US, start_within_us=7200 * SECOND_US))
    for index, job in enumerate(order):
        context = (await executor.begun(index + 1))[index]
        assert (context.job, context.stop.reason) == (job, None)
        executor.end(context)
        await scheduler.wait(job, TIMEOUT_S)
    assert scheduler.get(late.id).state is JobState.SCHEDULED
    assert scheduler.snapshot().clamped == 0
    await scheduler.close()


@on_loop
async def test_after_a_step_of_the_wall_clock_what_ended_last_is_still_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    async with Scheduler(settings(64, keep_ended=50), tmp_path / "j.db", [AtOnceExecutor()]) as scheduler:
        arrays = []
        for hours in (0, 2, -1):
            monkeypatch.setattr(time, "time_ns", lambda hours=hours: real() + hours * 3600 * 10**9)
            array = await scheduler.submit(JobRequest(kind="at_once", array_size=1500))
            await scheduler.wait(array.id, TIMEOUT_S)
            arrays.append(array.id)
        assert scheduler.get(array.id).state is JobState.COMPLETED
        for earlier in arrays[:2]:
            with pytest.raises(NoSuchJob):
                scheduler.get(earlier)
        kept = [int(view.id.partition("[")[2][:-1]) for view in scheduler.jobs(array=array.id, limit=1000)]
        assert max(kept) == 1499


def saved(boot: str, offset_us: int, at_us: int) -> Saved:
    return Saved(None, [], GenerationRow("g", 0, boot, offset_us), at_us, 0)


def test_time_goes_on_over_a_restart_and_not_back_over_a_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: "here")
    now_us = time.monotonic_ns() // 1000
    same = Clock.resumed(saved("here", 500, 1), 0)
    assert same.offset_us == 500
    assert same.now_us() >= now_us + 500
    hour_us = 3600 * SECOND_US
    for wall_us, least_us, most_us in ((-hour_us, hour_us, 2 * hour_us), (hour_us, 0, hour_us)):
        after_boot = Clock.resumed(saved("other", 500, clock.wall_us() + wall_us), 7 * hour_us)
        assert 7 * hour_us + least_us <= after_boot.now_us() < 7 * hour_us + most_us


def test_the_first_start_has_a_time_of_its_own() -> None:
    first = Clock.resumed(Saved(None, [], None, 0, 0), 0)
    assert 0 <= first.now_us() < 3600 * SECOND_US


# What goes wrong inside.


class Breaking(MemoryJournal):
    """A journal that turns out to be damaged at one commit."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    def commit(self, batch: Batch) -> list[JobRow]:
        """Break at the commit that was named."""
        self._left -= 1
        if self._left == 0:
            raise JournalDamaged("a page is not what it was")
        return super().commit(batch)


@on_loop
async def test_when_the_journal_breaks_all_who_wait_are_told_and_what_runs_is_stopped() -> None:
    executor = HeldExecutor()
    scheduler = await Scheduler(
        settings(1), Breaking(3), [executor]
    ).start()  # after the start and the first submission
    job = await scheduler.submit(held())
    (context,) = await executor.begun(1)
    waiting = asyncio.ensure_future(scheduler.wait(job.id))
    with pytest.raises(SchedulerStopping, match="broke off: JournalDamaged: a page is not what it was"):
        await scheduler.submit(held())
    with pytest.raises(SchedulerStopping, match="a page is not what it was"):
        await waiting
    for call in (lambda: scheduler.cancel(job.id), lambda: scheduler.submit(held()), lambda: scheduler.pause("q")):
        with pytest.raises(SchedulerStopping):
            await call()
    assert context.stop.reason is StopReason.SHUTDOWN
    with pytest.raises(JournalDamaged):
        await scheduler.close()
    assert not context.permit.live


@on_loop
async def test_who_was_refused_before_the_journal_broke_hears_that_and_all_hear_something() -> None:
    scheduler = await Scheduler(settings(1), Breaking(2), [HeldExecutor()]).start()
    outcomes = await scheduler.submit_many([held(estimate_us=-1), held(), held(key="k"), held(key="k")])
    assert [type(outcome) for outcome in outcomes] == [InvalidSubmission, *[SchedulerStopping] * 3]
    with pytest.raises(JournalDamaged):
        await scheduler.close()


@on_loop
async def test_a_journal_that_breaks_at_the_start_is_the_error_of_the_start() -> None:
    with pytest.raises(JournalDamaged):
        await Scheduler(settings(1), Breaking(1), [HeldExecutor()]).start()


@on_loop
async def test_after_the_end_nothing_hangs_and_what_cannot_be_had_is_told(tmp_path: Path) -> None:
    scheduler = await Scheduler(settings(), tmp_path / "j.db", [AtOnceExecutor()]).start()
    job = await scheduler.submit(JobRequest(kind="at_once"))
    await scheduler.wait(job.id, TIMEOUT_S)
    await scheduler.close()
    for call in (
        lambda: scheduler.cancel(job.id),
        lambda: scheduler.wait(job.id),
        lambda: scheduler.submit(held()),
        lambda: asyncio.to_thread(scheduler.get, job.id),
        lambda: asyncio.to_thread(scheduler.jobs),
        lambda: asyncio.to_thread(scheduler.result, job.id),
        lambda: asyncio.to_thread(scheduler.record_start, tmp_path / "x.replay"),
    ):
        with pytest.raises(SchedulerStopping, match=r"the scheduler (has stopped|is stopping)"):
            await call()
    assert [notice async for notice in scheduler.observe()] == []
    assert not (tmp_path / "x.replay").exists()
    await scheduler.close()


# What is forgotten.


@pytest.mark.parametrize("keep_ended", [50, 0])
@on_loop
async def test_of_what_ended_only_the_latest_is_kept_also_in_memory_and_in_a_recording(
    tmp_path: Path, keep_ended: int
) -> None:
    path, log = tmp_path / "j.db", tmp_path / "x.replay"
    scheduler = await Scheduler(settings(64, keep_ended=keep_ended), path, [AtOnceExecutor(), HeldExecutor()]).start()
    scheduler.record_start(log)
    kept = await scheduler.submit(held(key="kept"))
    for _ in range(4):
        outcomes = await scheduler.submit_many([JobRequest(kind="at_once", queue="q")] * 500)
        last = [outcome for outcome in outcomes if isinstance(outcome, str)][-1]
        await scheduler.wait(last, TIMEOUT_S)
        while any(job.state is JobState.QUEUED for job in scheduler.jobs(limit=1000)):
            await asyncio.sleep(0)
    assert scheduler.get(kept.id).state is JobState.RUNNING
    assert len(scheduler.jobs(limit=10_000)) < 2000
    with pytest.raises(NoSuchJob, match="or it ended long ago and was forgotten"):
        scheduler.get("2")
    again = await scheduler.submit(held(key="kept"))
    assert again.id == kept.id
    await scheduler.close(StopMode.INTERRUPT)
    assert check_journal(path, Plugins()).problems == ()
    with log.open("rb") as stream:
        found = verify(stream)
    assert (found.same, found.sessions > 1) == (True, True)
    async with Scheduler(settings(1), path, [AtOnceExecutor()]) as later:
        assert int((await later.submit(JobRequest(kind="at_once"))).id) == 2002


def kill_itself() -> JobRequest:
    return JobRequest(kind="shell", payload={"script": "kill -9 $$"})


@pytest.mark.parametrize("kept", ["memory", "sqlite"])
@on_loop
async def test_who_waits_for_a_job_hears_of_its_end_before_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    monkeypatch.setattr(live, "MIN_EVENTS_PER_STATE", 1)  # with each commit
    journal = MemoryJournal() if kept == "memory" else tmp_path / "journal.db"
    async with Scheduler(settings(keep_ended=0), journal, [AtOnceExecutor()]) as scheduler:
        for _ in range(5):
            views = [await scheduler.submit(JobRequest(kind="at_once", array_size=size)) for size in (0, 3)]
            ended = await asyncio.gather(*(scheduler.wait(view.id, TIMEOUT_S) for view in views))
            assert [view.state for view in ended] == [JobState.COMPLETED, JobState.COMPLETED]
        assert len(scheduler.jobs()) <= 2


@on_loop
async def test_after_50_kills_the_capacity_is_full() -> None:
    async with Scheduler(settings(4)) as scheduler:
        outcomes = await scheduler.submit_many([kill_itself()] * 50)
        views = [await scheduler.wait(str(outcome), TIMEOUT_S) for outcome in outcomes]
        assert {(view.state, view.exit_code) for view in views} == {(JobState.FAILED, None)}
        assert {scheduler.attempts(view.id)[0].signal for view in views} == {9}
        assert not any(scheduler.snapshot().budget.used)
