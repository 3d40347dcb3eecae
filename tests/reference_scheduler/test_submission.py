"""Submission: what is accepted, what is refused with which error, and keys."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from live_world import TIMEOUT_S, AtOnceExecutor, HeldExecutor, held, settings

from reference_scheduler.config import Settings, StopMode
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import Config, Idempotency, JobState, Priority, QueueBounds, ResourceRequest
from reference_scheduler.errors import (
    ImpossibleRequest,
    InvalidSubmission,
    PayloadTooLarge,
    QueueFull,
    SchedulerDisabled,
    SchedulerStopping,
    SubmissionError,
    SubmissionKeyConflict,
    UnknownDependency,
    UnknownKind,
)
from reference_scheduler.requests import MAX_PAYLOAD_BYTES, JobRequest, Profile
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.sync import SyncScheduler


def refusal(request: JobRequest, chosen: Settings | None = None) -> SubmissionError:
    """Return the error that ``request`` is refused with, having checked that nothing of it is left.

    What does not depend on other jobs or on the budget is also told by a check.
    """

    async def submit() -> SubmissionError:
        async with Scheduler(chosen or settings(), executors=[HeldExecutor()]) as scheduler:
            with pytest.raises(SubmissionError) as caught:
                await scheduler.submit(request)
            assert scheduler.jobs() == []
            checked = scheduler.check([request])[0]
            if checked is not None or not isinstance(caught.value, UnknownDependency | ImpossibleRequest):
                assert (type(checked), str(checked)) == (type(caught.value), str(caught.value))
            return caught.value

    return asyncio.run(submit())


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (JobRequest(kind="other"), UnknownKind, "kind must be one of held, got 'other'"),
        (held(payload={"wrong": 1}), InvalidSubmission, "wrong: not a key of this payload"),
        (held(payload={"text": "x" * MAX_PAYLOAD_BYTES}), PayloadTooLarge, "at most 262144 are taken"),
        (
            held(payload={"text": "a" * 99 + "\ud800" + "b" * 99}),
            InvalidSubmission,
            f"'{'a' * 40}\\ud800{'b' * 40}' cannot be written as UTF-8",
        ),
        (held(payload={"object": object()}), InvalidSubmission, "type object is unsupported"),
        (held(key="k" * 257), InvalidSubmission, "bytes of key must be between 0 and 256, got 257"),
        (held(key="я" * 129), InvalidSubmission, "bytes of key must be between 0 and 256, got 258"),
        (held(workspace="w" * 4097), InvalidSubmission, "bytes of workspace must be between 0 and 4096"),
        (held(timeout_us=0), InvalidSubmission, "timeout_us must be between 1 and"),
        (held(priority="high"), InvalidSubmission, "Invalid enum value 'high' - at `$.priority`"),
        (held(user=7), InvalidSubmission, "Expected `str`, got `int` - at `$.user`"),
        (held(preemptible=3), InvalidSubmission, "Expected `bool`, got `int` - at `$.preemptible`"),
        (held(payload={1: 2}), InvalidSubmission, "Only dicts with str keys are supported"),
        (held(payload=[]), InvalidSubmission, "Expected `object`, got `array` - at `$.payload`"),
        (held(delay_us=-1), InvalidSubmission, "delay_us must be between 0 and"),
        (held(start_within_us=1 << 62), InvalidSubmission, "start_within_us must be between 1 and"),
        (held(estimate_us=-1), InvalidSubmission, "estimate_us must be between 0 and"),
        (held(request=ResourceRequest(cpu_weight=-1)), InvalidSubmission, "cpu_weight over all tasks must be"),
        (held(after_ok=("17",)), UnknownDependency, "there is no job 17"),
        (held(after_any=("x",) * 257), InvalidSubmission, "number of dependencies must be between 0 and 256"),
        (held(request=ResourceRequest(process_slots=5)), ImpossibleRequest, "needs 5 process_slots with 4 free"),
    ],
)
def test_a_wrong_request_is_refused_and_leaves_nothing(
    request_: JobRequest, error: type[SubmissionError], message: str
) -> None:
    found = refusal(request_)
    assert type(found) is error
    assert message in str(found)


def test_a_payload_of_the_greatest_size_is_kept_whole() -> None:
    payload = {"text": "x" * (MAX_PAYLOAD_BYTES - 20)}

    async def run() -> object:
        executor = HeldExecutor()
        async with Scheduler(settings(), executors=[executor]) as scheduler:
            await scheduler.submit(held(payload=payload))
            (context,) = await executor.begun(1)
            executor.end(context)
            return context.payload

    assert asyncio.run(run()) == payload


def test_a_disabled_scheduler_refuses_all_work_and_starts_none_that_it_finds(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "j.db"
        async with Scheduler(settings(), path, [HeldExecutor()]) as scheduler:
            await scheduler.pause()
            one, two = [(await scheduler.submit(held())).id for _ in range(2)]
        executor = HeldExecutor()
        async with Scheduler(Settings(core=Config(enabled=False)), path, [executor]) as scheduler:
            with pytest.raises(SchedulerDisabled, match="the scheduler is disabled"):
                await scheduler.submit(held())
            await scheduler.resume()
            assert (await scheduler.cancel(one)).state is JobState.CANCELLED  # with a pass, the other would start
            assert (scheduler.get(two).state, executor.contexts) == (JobState.QUEUED, [])

    asyncio.run(run())


def test_a_full_queue_refuses_and_takes_again_when_there_is_room() -> None:
    core = Config(resources=Resources(1, 256, 1, 1, 0), queue=QueueBounds(2, 2, 2, 1))

    async def run() -> None:
        executor = HeldExecutor()
        async with Scheduler(Settings(core=core), executors=[executor]) as scheduler:
            outcomes = await scheduler.submit_many([held()] * 5)
            assert [type(outcome) for outcome in outcomes] == [str, str, QueueFull, QueueFull, QueueFull]
            assert "2 of at most 2 jobs wait" in str(outcomes[2])
            await executor.begun(1)
            third = await scheduler.submit(held())
            with pytest.raises(QueueFull):
                await scheduler.submit(held())
            for index in range(3):
                executor.end((await executor.begun(index + 1))[index])
            await scheduler.wait(third.id, TIMEOUT_S)

    asyncio.run(run())


def test_many_are_accepted_or_refused_one_by_one_in_their_order() -> None:
    async def run() -> None:
        async with Scheduler(settings(), executors=[AtOnceExecutor(), HeldExecutor()]) as scheduler:
            good = JobRequest(kind="at_once")
            outcomes = await scheduler.submit_many(
                [good, JobRequest(kind="no"), held(payload={"wrong": 1}), good, held(after_ok=("99",)), good]
            )
            refused = [type(outcome) if isinstance(outcome, SubmissionError) else None for outcome in outcomes]
            assert refused == [None, UnknownKind, InvalidSubmission, None, UnknownDependency, None]
            jobs = [outcome for outcome in outcomes if isinstance(outcome, str)]
            assert len({(await scheduler.wait(job, TIMEOUT_S)).id for job in jobs}) == 3
            assert await scheduler.submit_many([]) == []

    asyncio.run(run())


def test_more_than_a_batch_of_them_lets_others_have_their_turn() -> None:
    async def run() -> None:
        async with Scheduler(settings(), executors=[AtOnceExecutor()]) as scheduler:
            await scheduler.pause()
            many = asyncio.ensure_future(scheduler.submit_many([JobRequest(kind="at_once")] * 3500))
            one = await scheduler.submit(JobRequest(kind="at_once", user="other"))
            assert not many.done()
            outcomes = await many
            assert len({*outcomes, one.id}) == 3501
            assert [scheduler.get(str(outcome)).user for outcome in (outcomes[0], outcomes[-1])] == ["", ""]

    asyncio.run(run())


def test_after_the_end_has_begun_nothing_is_taken() -> None:
    async def run() -> None:
        executor = HeldExecutor()
        async with Scheduler(settings(), executors=[executor]) as scheduler:
            await scheduler.submit(held())
            (context,) = await executor.begun(1)
            draining = asyncio.ensure_future(scheduler.drain())
            await asyncio.sleep(0)
            with pytest.raises(SchedulerStopping):
                await scheduler.submit(held())
            executor.end(context)
            await draining

    asyncio.run(run())


# Keys.


def test_the_same_key_and_request_give_the_same_job_also_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        path, request = tmp_path / "j.db", JobRequest(kind="at_once", key="k", payload={"b": 1, "a": [2, None]})
        same = JobRequest(kind="at_once", key="k", payload={"a": [2, None], "b": 1})
        async with Scheduler(settings(), path, [AtOnceExecutor()]) as scheduler:
            first = await scheduler.submit(request)
            assert (await scheduler.submit(same)).id == first.id
            await scheduler.wait(first.id, TIMEOUT_S)
        async with Scheduler(settings(), path, [AtOnceExecutor()]) as scheduler:
            assert (await scheduler.submit(same)).id == first.id
            with pytest.raises(SubmissionKeyConflict, match="'k' belongs to another request"):
                await scheduler.submit(JobRequest(kind="at_once", key="k"))
            assert len(scheduler.jobs()) == 1

    asyncio.run(run())


def test_keys_that_are_used_together_are_one_job_and_another_request_a_conflict() -> None:
    async def run() -> None:
        async with Scheduler(settings(), executors=[AtOnceExecutor()]) as scheduler:
            one, other = JobRequest(kind="at_once", key="k"), JobRequest(kind="at_once", key="k", user="u")
            outcomes = await scheduler.submit_many([one, other, one, one])
            assert isinstance(outcomes[1], SubmissionKeyConflict)
            assert outcomes[0] == outcomes[2] == outcomes[3] == "1"
            await scheduler.wait("1", TIMEOUT_S)

    asyncio.run(run())


def test_a_key_is_not_used_up_by_a_submission_that_was_refused() -> None:
    async def run() -> None:
        async with Scheduler(settings(), executors=[AtOnceExecutor()]) as scheduler:
            refused = JobRequest(kind="at_once", key="k", after_ok=("5",))
            with pytest.raises(UnknownDependency):
                await scheduler.submit(refused)
            job = await scheduler.submit(JobRequest(kind="at_once", key="k"))
            assert (await scheduler.wait(job.id, TIMEOUT_S)).key == "k"

    asyncio.run(run())


def test_64_threads_with_one_key_make_one_job(tmp_path: Path) -> None:
    found: list[str] = []
    with SyncScheduler(settings(), tmp_path / "j.db", [AtOnceExecutor()]) as scheduler:
        start = threading.Barrier(64)

        def submit() -> None:
            start.wait()
            found.append(scheduler.submit(JobRequest(kind="at_once", key="one")).id)

        threads = [threading.Thread(target=submit) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["1"] * 64
        assert [job.id for job in scheduler.jobs()] == ["1"]


# Defaults.


def test_what_a_request_leaves_out_comes_from_the_profile_of_its_kind() -> None:
    profile = Profile(Idempotency.READ_ONLY, None, ResourceRequest(process_slots=2, exclusivity_keys=("disk",)))
    executor = HeldExecutor()

    async def run() -> None:
        scheduler = await Scheduler(settings(4, profiles={"held": profile}), executors=[executor]).start()
        await scheduler.submit(held())
        own = await scheduler.submit(held(request=ResourceRequest(process_slots=1), priority=Priority.BACKGROUND))
        waits = await scheduler.submit(held())
        await executor.begun(2)
        shown = scheduler.snapshot()
        assert shown.budget.used.process_slots == 3
        assert len(shown.held_keys) == 1
        assert "disk" not in shown.held_keys[0]
        assert scheduler.get(own.id).priority == "background"
        assert scheduler.get(waits.id).reason == "exclusivity"
        assert "exclusive:disk is held by job '1'" in scheduler.why(waits.id)
        await scheduler.close(StopMode.INTERRUPT)

    asyncio.run(run())
