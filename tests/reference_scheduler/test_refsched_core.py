"""What the core does with each kind of event."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from scheduler_world import S, World, simple, slots

from reference_scheduler.core import InvariantViolation, SchedulerCore
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.decisions import (
    Cancel,
    Decision,
    Dispatch,
    Expire,
    Pend,
    Preempt,
    Reject,
    RejectCode,
    Requeue,
    Victim,
)
from reference_scheduler.core.events import (
    CancelRequested,
    ConfigLoaded,
    GenerationStarted,
    JobStateChanged,
    JobSubmitted,
    JobUpdated,
    QueueConfigured,
    ResourcesChanged,
    Tick,
    UsageReported,
    WorkerLost,
    WorkerUpdated,
)
from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.machine import JOB_MOVES, TERMINAL, move
from reference_scheduler.core.model import (
    Backoff,
    Config,
    Failure,
    Idempotency,
    Job,
    JobSpec,
    JobState,
    Limit,
    PendReason,
    Priority,
    QueueBounds,
    ResourceRequest,
    RetryPolicy,
    Scope,
)
from reference_scheduler.core.retry import delay_us


def machine(width: int = 4, **fields: Any) -> World:
    return World(simple(**fields), {"m": width})


def dispatch(job: str, width: int = 1, attempt: int = 1, worker: str = "m") -> Dispatch:
    return Dispatch(job, attempt, ((worker, Resources(process_slots=width)),))


def refusal(decisions: tuple[Decision, ...]) -> RejectCode:
    (only,) = decisions
    assert isinstance(only, Reject)
    return only.code


# Submission.


def test_a_job_that_fits_starts_at_once() -> None:
    assert machine().submit("a", 3) == (dispatch("a", 3),)


def test_nothing_is_accepted_before_a_configuration_or_when_disabled() -> None:
    world = World()
    assert world.submit("a") == (Reject("a", RejectCode.DISABLED, "the scheduler is disabled"),)
    world.send(ConfigLoaded, config=Config(enabled=False))
    assert refusal(world.submit("a")) is RejectCode.DISABLED


def test_an_impossible_job_is_refused_with_both_numbers_and_reserves_nothing() -> None:
    world = machine(4)
    assert world.submit("a", 5) == (Reject("a", RejectCode.IMPOSSIBLE, "needs 5 process_slots with 4 free"),)
    assert world.core.open_jobs() == ()


def test_an_id_is_never_used_twice_not_even_after_its_end() -> None:
    world = machine()
    world.submit("a")
    assert refusal(world.submit("a")) is RejectCode.DUPLICATE
    world.end("a")
    assert refusal(world.submit("a")) is RejectCode.DUPLICATE
    assert world.state("a") is JobState.COMPLETED


@pytest.mark.parametrize(
    ("bounds", "fields", "sentence"),
    [
        (QueueBounds(2, 2, 2, 2), {}, "2 of at most 2 jobs wait"),
        (QueueBounds(9, 2, 9, 9), {}, "2 of at most 2 jobs wait in workspace 'w'"),
        (
            QueueBounds(9, 9, 2, 9),
            {"priority": Priority.INTERACTIVE, "session": "s"},
            "2 of at most 2 interactive jobs wait in session 's'",
        ),
    ],
)
def test_a_full_queue_refuses_and_says_which_bound(bounds: QueueBounds, fields: dict[str, Any], sentence: str) -> None:
    world = machine(1, queue=bounds)
    for name in ("runs", "waits", "waits too"):
        assert not isinstance(world.submit(name, workspace="w", **fields)[0], Reject)
    assert world.submit("d", workspace="w", **fields) == (Reject("d", RejectCode.QUEUE_FULL, sentence),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, "length of id must be between 1 and 256, got 0"),
        ({"tasks": 0}, "tasks must be between 1 and 1048576, got 0"),
        ({"estimate_us": -1}, "estimate_us must be between 0"),
        ({"request": ResourceRequest(cpu_weight=-1)}, "cpu_weight over all tasks must be between 0"),
        ({"request": slots(1 << 30), "tasks": 4}, "process_slots over all tasks must be between 0"),
    ],
)
def test_a_malformed_job_cannot_be_made_nor_decoded(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JobSpec(**{"id": "a", **fields})  # type: ignore[arg-type]
    raw = msgspec.json.encode({"id": "a", **fields})
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.json.decode(raw, type=JobSpec)


def test_defaults_of_each_kind_apply_and_bare_keys_are_normalised() -> None:
    world = World(Config(picker="fcfs"))
    world.submit("a", kind="build", request=None)
    assert world.live("a").allocation == (("local", Resources(3, 2048, 1, 3, 0)),)
    world.submit("b", request=slots(1, "workspace-mutation", "exclusive:workspace-mutation"))
    assert world.job("b").keys == ("exclusive:workspace-mutation",)
    assert world.job("b").reason is PendReason.EXCLUSIVITY


# Reports of executors, and fencing.


def test_a_stale_report_changes_nothing_and_is_counted() -> None:
    world = machine()
    world.submit("a")
    before = world.core.snapshot().jobs
    for attempt, old, new in (
        (2, JobState.RUNNING, JobState.COMPLETED),
        (0, JobState.RUNNING, JobState.COMPLETED),
        (1, JobState.BLOCKED, JobState.COMPLETED),
        (1, JobState.RUNNING, JobState.EXPIRED),
    ):
        assert world.send(JobStateChanged, job="a", attempt=attempt, old=old, new=new) == ()
    world.send(JobStateChanged, job="b", attempt=1, old=JobState.RUNNING, new=JobState.COMPLETED)
    world.send(UsageReported, job="a", attempt=7, used=Resources(1))
    assert world.core.snapshot().jobs == before
    assert world.core.counters.stale == 6


def test_a_completion_is_counted_once_however_often_it_is_told() -> None:
    world = machine(1)
    world.submit("a")
    world.submit("b")
    assert world.end("a", exit_code=0) == (dispatch("b"),)
    for _ in range(3):
        world.send(JobStateChanged, job="a", attempt=1, old=JobState.RUNNING, new=JobState.FAILED)
    assert world.outcome("a").exit_code == 0
    assert world.running() == ["b"]


@pytest.mark.parametrize(
    "order", list(itertools.permutations([JobState.CANCELLED, JobState.COMPLETED, JobState.TIMED_OUT]))
)
def test_of_cancel_finish_and_timeout_the_first_to_be_told_holds(order: tuple[JobState, ...]) -> None:
    world = machine()
    world.submit("a", retry=RetryPolicy(max_attempts=5))
    world.send(CancelRequested, job="a")
    for code, new in enumerate(order):
        world.send(JobStateChanged, job="a", attempt=1, old=JobState.RUNNING, new=new, exit_code=code)
    assert world.outcome("a").state is order[0]
    assert world.outcome("a").exit_code == 0


def test_usage_is_remembered_by_its_peak_and_never_added_to_what_is_held() -> None:
    world = machine()
    world.submit("a", 2)
    for used in (Resources(1, 9), Resources(5, 2)):
        world.send(UsageReported, job="a", attempt=1, used=used)
    assert world.live("a").peak == Resources(5, 9)
    assert world.submit("b", 2) == (dispatch("b", 2),)


# Cancellation.


def test_cancelling_a_queued_job_ends_it_and_a_running_one_is_stopped_once() -> None:
    world = machine(1)
    world.submit("a")
    world.submit("b")
    assert world.send(CancelRequested, job="b", reason="no") == (Cancel("b", 0, "no"),)
    assert world.state("b") is JobState.CANCELLED
    assert world.send(CancelRequested, job="a", reason="no") == (Cancel("a", 1, "no"),)
    assert world.send(CancelRequested, job="a", reason="no") == ()
    assert world.state("a") is JobState.RUNNING
    world.submit("c")
    assert world.end("a", JobState.CANCELLED) == (dispatch("c"),)


def test_a_cancelled_job_is_not_run_again_when_it_is_interrupted() -> None:
    world = machine()
    world.submit("a", idempotency=Idempotency.READ_ONLY)
    world.send(CancelRequested, job="a")
    world.send(GenerationStarted, generation="g2")
    assert world.state("a") is JobState.CANCELLED


# Retries.


def test_a_failed_job_is_retried_after_a_growing_pause_and_ends_as_a_dead_letter() -> None:
    policy = RetryPolicy(max_attempts=3, backoff=Backoff.EXPONENTIAL, base_us=S, jitter_permille=0)
    world = machine()
    world.submit("a", retry=policy)
    pauses = []
    for attempt in (1, 2):
        decisions = world.end("a", JobState.FAILED, failure=Failure.TRANSIENT)
        requeue = decisions[0]
        assert isinstance(requeue, Requeue)
        assert requeue.attempt == attempt
        pauses.append(requeue.not_before_us - world.at_us)
        assert world.state("a") is JobState.SCHEDULED
        assert world.core.next_due() == requeue.not_before_us
        assert world.wait(pauses[-1] - 1) == ()
        assert world.wait(1) == (dispatch("a", attempt=attempt + 1),)
    assert pauses == [S, 2 * S]
    world.end("a", JobState.FAILED, failure=Failure.TRANSIENT, exit_code=9)
    assert (world.state("a"), world.outcome("a").exit_code) == (JobState.DEAD_LETTER, 9)


def test_a_failure_that_is_not_to_be_retried_is_final() -> None:
    world = machine()
    world.submit("a", retry=RetryPolicy(max_attempts=3))
    world.end("a", JobState.FAILED, failure=Failure.VALIDATION)
    assert world.state("a") is JobState.FAILED


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff.NONE, [0, 0, 0, 0]),
        (Backoff.FIXED, [3, 3, 3, 3]),
        (Backoff.LINEAR, [3, 6, 9, 10]),
        (Backoff.EXPONENTIAL, [3, 6, 10, 10]),
    ],
)
def test_pauses_grow_as_the_policy_says_up_to_the_cap(backoff: Backoff, expected: list[int]) -> None:
    policy = RetryPolicy(backoff=backoff, base_us=3, cap_us=10, jitter_permille=0)
    assert [delay_us(policy, "a", failures) for failures in (1, 2, 3, 4)] == expected


def test_jitter_is_a_function_of_job_and_failure_within_its_share() -> None:
    policy = RetryPolicy(backoff=Backoff.FIXED, base_us=1000 * S, cap_us=1000 * S, jitter_permille=100)
    pauses = {(job, n): delay_us(policy, job, n) for job in "abc" for n in (1, 2)}
    assert pauses == {key: delay_us(policy, *key) for key in pauses}
    assert len(set(pauses.values())) == 6
    assert all(1000 * S <= pause <= 1100 * S for pause in pauses.values())


# Restarts.


@pytest.mark.parametrize(
    ("idempotency", "expected"),
    [
        (Idempotency.READ_ONLY, JobState.RUNNING),
        (Idempotency.SAFE_REPEAT, JobState.RUNNING),
        (Idempotency.CONDITIONAL, JobState.FAILED),
        (Idempotency.NON_IDEMPOTENT, JobState.FAILED),
        (Idempotency.DESTRUCTIVE, JobState.FAILED),
    ],
)
def test_a_restart_runs_again_only_what_may_be_repeated(idempotency: Idempotency, expected: JobState) -> None:
    world = machine()
    world.submit("a", idempotency=idempotency)
    world.runs("a")
    world.send(GenerationStarted, generation="g2")
    assert world.state("a") is expected


def test_results_from_before_a_restart_are_refused() -> None:
    world = machine()
    world.submit("a", idempotency=Idempotency.READ_ONLY)
    world.runs("a")
    world.send(GenerationStarted, generation="g2")
    world.send(JobStateChanged, job="a", attempt=1, old=JobState.RUNNING, new=JobState.COMPLETED)
    assert (world.state("a"), world.attempt("a"), world.core.counters.stale) == (JobState.RUNNING, 2, 1)


def test_a_claim_that_never_ran_costs_no_attempt_whatever_its_class() -> None:
    world = machine()
    world.submit("a", idempotency=Idempotency.DESTRUCTIVE, retry=RetryPolicy(max_interruptions=0))
    for generation in ("g2", "g3", "g4"):
        world.send(GenerationStarted, generation=generation)
    assert (world.state("a"), world.attempt("a")) == (JobState.RUNNING, 4)


def test_a_job_that_brings_its_host_down_ends_as_a_dead_letter() -> None:
    world = machine()
    world.submit("a", idempotency=Idempotency.READ_ONLY, retry=RetryPolicy(max_interruptions=2))
    for generation in ("g1", "g2", "g3"):
        world.runs("a")
        world.send(GenerationStarted, generation=generation)
    assert world.state("a") is JobState.DEAD_LETTER


def test_exclusivity_keys_and_capacity_are_free_after_a_restart() -> None:
    world = machine(1)
    world.submit("a", request=slots(1, "k"))
    world.runs("a")
    world.submit("b", request=slots(1, "k"))
    assert world.send(GenerationStarted, generation="g2") == (dispatch("b"),)


# Workers.


def test_a_lost_worker_interrupts_what_ran_on_it_and_only_that() -> None:
    world = World(simple(), {"m": 1, "n": 1})
    for name in ("a", "b"):
        world.submit(name, idempotency=Idempotency.SAFE_REPEAT)
        world.runs(name)
    decisions = world.send(WorkerLost, worker="m")
    assert decisions[0] == Requeue("a", 1, 0, "worker m is lost")
    assert (world.state("a"), world.running()) == (JobState.QUEUED, ["b"])
    assert world.end("b") == (dispatch("a", attempt=2, worker="n"),)


def test_a_gang_that_loses_a_worker_is_stopped_and_holds_the_rest_until_it_has_ended() -> None:
    world = World(simple(allocator="parallel"), {"m": 2, "n": 2})
    world.submit("a", tasks=4)
    world.runs("a")
    assert world.send(WorkerLost, worker="n") == (Cancel("a", 1, "worker n is lost"),)
    assert world.live("a").allocation == (("m", Resources(process_slots=2)),)
    world.submit("b")
    assert world.state("b") is JobState.QUEUED
    assert world.end("a", JobState.INTERRUPTED) == (dispatch("b"),)


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("new", [JobState.INTERRUPTED, JobState.CANCELLED])
def test_a_gang_stopped_with_a_lost_worker_is_cancelled_only_if_somebody_wants_that(
    new: JobState, cancelled: bool
) -> None:
    world = World(simple(allocator="parallel"), {"m": 2, "n": 2})
    world.submit("a", tasks=4, idempotency=Idempotency.SAFE_REPEAT)
    world.runs("a")
    world.send(WorkerLost, worker="n")
    if cancelled:
        world.send(CancelRequested, job="a")
    decisions = world.end("a", new)
    requeued = Requeue("a", 1, 0, "interrupted")
    assert decisions[:1] == (() if cancelled else (requeued,))
    assert world.state("a") is (JobState.CANCELLED if cancelled else JobState.QUEUED)


def test_a_budget_below_use_admits_nothing_until_it_is_back_under() -> None:
    world = machine(4)
    world.submit("a", 3)
    world.submit("b", 1)
    world.send(ResourcesChanged, worker="m", capacity=Resources(process_slots=2))
    world.submit("c", 1)
    world.end("b")
    assert world.state("c") is JobState.QUEUED
    assert world.end("a") == (dispatch("c"),)


def test_a_drained_worker_gets_no_work() -> None:
    world = machine(4)
    drained = {"worker": "m", "capacity": Resources(process_slots=4)}
    world.send(WorkerUpdated, **drained, accepting=False)
    world.send(WorkerUpdated, worker="n", capacity=Resources(process_slots=1))
    assert world.submit("a") == (dispatch("a", worker="n"),)
    assert world.submit("b")[0] == Pend("b", PendReason.RESOURCES, "needs 1 process_slots with 0 free")
    assert world.send(WorkerUpdated, **drained) == (dispatch("b"),)


# Arrays and dependencies.


def test_an_array_runs_as_many_at_once_as_it_may_and_completes_when_all_have() -> None:
    world = machine(8)
    decisions = world.send(JobSubmitted, job=JobSpec(id="a", request=slots(1)), array_size=3, array_running=2)
    assert [d.job for d in decisions if isinstance(d, Dispatch)] == ["a[0]", "a[1]"]
    assert world.core.why("a[2]").endswith("(limit: 2 of at most 2 run for array 'a').")
    world.submit("after", after_ok=("a",))
    world.end("a[0]")
    world.end("a[1]")
    assert world.core.outcome("a") is None
    assert world.end("a[2]") == (dispatch("after"),)
    assert world.outcome("a").state is JobState.COMPLETED


def test_what_must_follow_success_is_cancelled_after_failure_and_so_on_down_the_chain() -> None:
    world = machine()
    world.submit("a")
    world.submit("b", after_ok=("a",))
    world.submit("c", after_ok=("b",))
    world.submit("d", after_any=("b",))
    assert world.state("b") is JobState.BLOCKED
    decisions = world.end("a", JobState.FAILED)
    assert decisions == (
        Cancel("b", 0, "job a, which it depends on, is failed"),
        Cancel("c", 0, "job b, which it depends on, is cancelled"),
        dispatch("d"),
    )


def test_an_array_whose_ids_would_be_too_long_is_refused_as_a_whole() -> None:
    world = machine()
    decisions = world.send(JobSubmitted, job=JobSpec(id="a" * 255, request=slots(1)), array_size=1)
    assert decisions == (Reject("a" * 255, RejectCode.INVALID, "length of id with its index must be at most 256"),)
    assert world.core.open_jobs() == ()


def test_a_dependency_that_is_over_already_counts_and_an_unknown_one_is_refused() -> None:
    world = machine()
    world.submit("a")
    world.end("a")
    assert world.submit("b", after_ok=("a",)) == (dispatch("b"),)
    assert world.submit("c", after_ok=("x",)) == (Reject("c", RejectCode.UNKNOWN_DEPENDENCY, "there is no job x"),)
    world.end("b", JobState.FAILED)
    world.submit("d", after_ok=("b",))
    assert world.state("d") is JobState.CANCELLED


def test_a_dependent_with_a_later_start_is_woken_by_a_timer() -> None:
    world = machine()
    world.submit("a")
    world.submit("b", after_any=("a",), not_before_us=9 * S)
    world.end("a")
    assert (world.state("b"), world.core.next_due()) == (JobState.SCHEDULED, 9 * S)
    assert world.wait(9 * S) == (dispatch("b"),)


def test_cancelling_an_array_cancels_all_of_it() -> None:
    world = machine(1)
    world.send(JobSubmitted, job=JobSpec(id="a", request=slots(1)), array_size=3)
    decisions = world.send(CancelRequested, job="a", reason="no")
    assert decisions == (Cancel("a[0]", 1, "no"), Cancel("a[1]", 0, "no"), Cancel("a[2]", 0, "no"))
    world.end("a[0]", JobState.CANCELLED)
    assert world.outcome("a").state is JobState.FAILED


# Time.


def test_a_deadline_that_is_given_later_counts_as_one_that_was_given_at_once() -> None:
    world = machine(1, picker="fcfs")
    world.submit("a")
    world.submit("b", deadline_us=5 * S)
    for deadline_us in (None, 9 * S, 7 * S):
        later = msgspec.structs.replace(world.job("b").spec, deadline_us=deadline_us)
        world.send(JobUpdated, job=later, changed=("deadline_us",))
        assert world.core.next_due() == deadline_us
    world.at_us = 7 * S - 1
    assert world.send(Tick) == ()
    world.at_us += 1
    assert world.send(Tick) == (Expire("b", "not started within 7 s"),)


def test_a_job_that_does_not_start_before_its_deadline_expires_then_and_not_before() -> None:
    world = machine(1)
    world.submit("a")
    world.submit("b", deadline_us=5 * S)
    assert world.core.next_due() == 5 * S
    assert world.wait(5 * S - 1) == ()
    assert world.wait(1) == (Expire("b", "not started within 5 s"),)
    world.submit("c", deadline_us=99 * S)
    world.end("a")
    world.wait(200 * S)
    assert world.state("c") is JobState.RUNNING


def test_an_earlier_time_is_clamped_and_counted() -> None:
    world = machine()
    world.wait(3600 * S)
    world.at_us = 0
    world.send(Tick)
    assert (world.core.now_us, world.core.counters.clamped) == (3600 * S, 1)


def test_a_pass_starts_at_most_a_batch_and_asks_to_go_on_at_once() -> None:
    world = machine(9, queue=QueueBounds(99, 99, 9, 2), picker="fcfs")
    decisions = world.send(JobSubmitted, job=JobSpec(id="a", request=slots(1)), array_size=5)
    assert [d.job for d in decisions if isinstance(d, Dispatch)] == ["a[0]", "a[1]"]
    rounds = 0
    while world.core.next_due() == world.at_us:
        world.send(Tick)
        rounds += 1
    assert (len(world.running()), rounds) == (5, 2)


def test_no_pass_follows_an_event_that_says_so() -> None:
    world = machine()
    assert world.send(JobSubmitted, job=JobSpec(id="a", request=slots(1)), run_pass=False) == ()
    assert world.send(Tick) == (dispatch("a"),)


# Limits and queues.


@pytest.mark.parametrize("scope", list(Scope))
def test_a_limit_holds_jobs_of_its_scope_and_no_others(scope: Scope) -> None:
    world = machine(9, limits=(Limit(scope, 1),), picker="fcfs")
    for name, value in (("a", "x"), ("b", "x"), ("c", "y"), ("d", ""), ("e", "")):  # who names none has no limit
        fields: dict[str, Any] = {scope.value: value}
        world.submit(name, **fields)
    assert world.running() == ["a", "c", "d", "e"]
    assert world.core.why("b").endswith(f"(limit: 1 of at most 1 run for {scope} 'x').")
    assert world.end("a") == (dispatch("b"),)


def test_a_paused_queue_waits_until_it_is_resumed() -> None:
    world = machine()
    world.send(QueueConfigured, queue="q", paused=True)
    assert world.submit("a", queue="q") == (Pend("a", PendReason.PAUSED, "queue 'q' is paused"),)
    assert world.send(QueueConfigured, queue="q", max_running=1) == (dispatch("a"),)
    world.submit("b", queue="q")
    assert world.job("b").reason is PendReason.LIMIT


# Updates.


def test_an_update_changes_a_waiting_job_and_refuses_what_it_does_not_name() -> None:
    world = machine(1)
    world.submit("a")
    world.submit("b")
    world.submit("c")
    spec = world.job("c").spec
    urgent = msgspec.structs.replace(spec, priority=Priority.URGENT)
    assert refusal(world.send(JobUpdated, job=urgent, changed=("user",))) is RejectCode.INVALID
    world.send(JobUpdated, job=urgent, changed=("priority",))
    assert world.end("a") == (dispatch("c"),)
    gone = msgspec.structs.replace(spec, id="zz")
    assert refusal(world.send(JobUpdated, job=gone, changed=())) is RejectCode.TERMINAL


def test_an_update_of_an_array_changes_what_it_names_of_all_its_jobs_that_have_not_ended() -> None:
    world = machine(1)
    whole = JobSpec("a", user="u", estimate_us=S, request=slots(1))
    world.send(JobSubmitted, job=whole, array_size=3)
    world.submit("b")
    other = msgspec.structs.replace(world.job("a[2]").spec, user="v")
    world.send(JobUpdated, job=other, changed=("user",))
    assert world.end("a[0]")[0] == dispatch("a[1]")
    after = msgspec.structs.replace(whole, after_ok=("b",))
    assert refusal(world.send(JobUpdated, job=after, changed=("after_ok",))) is RejectCode.INVALID
    urgent = msgspec.structs.replace(whole, priority=Priority.URGENT, user="ignored")
    decisions = world.send(JobUpdated, job=urgent, changed=("priority",))
    assert decisions[0] == Pend("a[2]", PendReason.RESOURCES, "needs 1 process_slots with 0 free")
    found = [(job.spec.id, job.spec.priority, job.spec.user) for job in world.core.open_jobs_of("a")]
    assert found == [("a[1]", "urgent", "u"), ("a[2]", "urgent", "v")]
    assert world.send(JobUpdated, job=urgent, changed=("priority",)) == ()  # they have it, and keep their place
    assert world.end("a[1]")[0] == dispatch("a[2]")
    world.end("a[2]")
    assert refusal(world.send(JobUpdated, job=urgent, changed=("priority",))) is RejectCode.TERMINAL


# Preemption.


def preempting(width: int, **fields: object) -> World:
    return machine(width, preemption=True, **fields)


def test_the_fewest_then_cheapest_then_youngest_make_way_and_are_requeued_once() -> None:
    world = preempting(6)
    for name, width in (("wide", 3), ("old", 1), ("young", 1), ("firm", 1)):
        world.submit(name, width, priority=Priority.BACKGROUND, preemptible=name != "firm")
        world.wait(S)
    decisions = world.submit("u", 1, priority=Priority.URGENT)
    assert decisions[-1] == Preempt("u", (Victim("young", 1, ("m",)),), "urgent job needs 1 process_slots with 0 free")
    decisions = world.end("young", JobState.INTERRUPTED)
    assert decisions == (
        Requeue("young", 1, world.at_us, "preempted for job u"),
        dispatch("u"),
        Pend("young", PendReason.RESOURCES, "needs 1 process_slots with 0 free"),
    )


@pytest.mark.parametrize(
    ("widths", "wanted", "victims"),
    [
        ((1, 5, 6, 12), 11, [12]),  # one is fewer than two, whatever it holds
        ((1, 5, 6, 10), 11, [1, 10]),  # 5 and 6 hold the same; the cheapest of all goes first
        ((1, 6, 7, 11), 12, [1, 11]),
        ((1, 5, 6, 16), 17, [1, 16]),
        ((1, 6, 7, 12), 13, [1, 12]),
        ((1, 5, 6, 10), 16, [6, 10]),
        ((2, 5, 6, 10), 11, [5, 6]),  # the least that is enough, though 2 is the cheapest of all
        ((1, 4, 5, 6, 20), 15, [20]),
        ((2, 4, 5, 6, 14), 15, [2, 14]),  # 4, 5 and 6 hold less, and are more
        ((1, 2, 7, 8, 13), 22, [1, 8, 13]),
        ((1, 6, 7, 100), 13, [100]),
        ((1, 6, 7, 11), 13, [6, 7]),  # 1 and 11 are not enough, 6 and 11 hold more
        ((1, 7, 8, 9, 13), 24, [7, 8, 9]),  # not 1, 8, 13 or others, which hold more or are not enough
    ],
)
def test_of_all_that_are_few_enough_the_cheapest_together_make_way(
    widths: tuple[int, ...], wanted: int, victims: list[int]
) -> None:
    world = preempting(sum(widths))
    for width in widths:
        world.submit(f"w{width}", width, priority=Priority.BACKGROUND, preemptible=True)
        world.wait(S)
    displaced = next(d for d in world.submit("u", wanted, priority=Priority.URGENT) if isinstance(d, Preempt))
    assert sorted(int(victim.job[1:]) for victim in displaced.victims) == victims


@pytest.mark.parametrize("holds", ["limit", "pause", "size"])
def test_a_job_that_could_not_start_anyway_keeps_no_other_from_displacing(holds: str) -> None:
    world = preempting(2, limits=(Limit(Scope.USER, 1, "u"),))
    world.send(QueueConfigured, queue="q", paused=True)
    world.submit("own", user="u")
    world.submit("low", priority=Priority.BACKGROUND, preemptible=True)
    world.submit("held", 2, priority=Priority.URGENT, user="u" * (holds == "limit"), queue="q" * (holds == "pause"))
    if holds == "size":
        world.send(
            JobUpdated, job=msgspec.structs.replace(world.job("held").spec, request=slots(3)), changed=("request",)
        )
    displaced = next(d for d in world.submit("i", priority=Priority.INTERACTIVE) if isinstance(d, Preempt))
    assert (displaced.job, [victim.job for victim in displaced.victims]) == ("i", ["low"])


def test_what_a_victim_costs_is_what_it_holds_and_not_what_it_will_ask_for() -> None:
    world = preempting(4)
    for name in ("a", "b"):
        world.submit(name, 2, priority=Priority.BACKGROUND, preemptible=True)
    smaller = msgspec.structs.replace(world.job("a").spec, request=slots(1))
    world.send(JobUpdated, job=smaller, changed=("request",))
    displaced = next(d for d in world.submit("u", 2, priority=Priority.URGENT) if isinstance(d, Preempt))
    assert [victim.job for victim in displaced.victims] == ["b"]  # they hold the same, and it is younger


@pytest.mark.parametrize("new", [JobState.INTERRUPTED, JobState.CANCELLED])
def test_a_victim_waits_again_whatever_its_executor_calls_its_end(new: JobState) -> None:
    world = preempting(1)
    world.submit("low", priority=Priority.BACKGROUND, preemptible=True)
    world.submit("u", priority=Priority.URGENT)
    assert world.end("low", new)[0] == Requeue("low", 1, 0, "preempted for job u")


def test_a_preempted_job_keeps_its_place_and_is_never_preempted_again() -> None:
    world = preempting(1)
    world.submit("low", priority=Priority.BACKGROUND, preemptible=True)
    world.submit("later", priority=Priority.BACKGROUND)
    world.submit("u1", priority=Priority.URGENT)
    world.end("low", JobState.INTERRUPTED)
    assert world.end("u1") == (dispatch("low", attempt=2),)
    decisions = world.submit("u2", priority=Priority.URGENT)
    assert not any(isinstance(decision, Preempt) for decision in decisions)


def test_what_victims_give_back_goes_to_the_job_they_made_way_for() -> None:
    world = preempting(2)
    for name in ("low1", "low2"):
        world.submit(name, priority=Priority.BACKGROUND, preemptible=True)
    world.submit("u", 2, priority=Priority.URGENT)
    world.submit("thief", priority=Priority.URGENT)
    assert [d for d in world.end("low1", JobState.INTERRUPTED) if isinstance(d, Dispatch)] == []
    decisions = world.end("low2", JobState.INTERRUPTED)
    assert [d for d in decisions if isinstance(d, Dispatch)] == [dispatch("u", 2)]


def test_equals_and_higher_classes_are_never_displaced() -> None:
    world = preempting(1)
    world.submit("a", priority=Priority.NORMAL, preemptible=True)
    decisions = world.submit("b", priority=Priority.NORMAL)
    assert not any(isinstance(decision, Preempt) for decision in decisions)


def test_victims_have_to_be_enough_when_the_budget_is_below_what_is_in_use() -> None:
    world = preempting(4)
    for name in ("x", "y"):
        world.submit(name, 2, priority=Priority.BACKGROUND, preemptible=True)
    world.send(ResourcesChanged, worker="m", capacity=Resources(process_slots=2))
    decisions = world.submit("u", 2, priority=Priority.URGENT)
    displaced = next(decision for decision in decisions if isinstance(decision, Preempt))
    assert [victim.job for victim in displaced.victims] == ["y", "x"]  # one would leave nothing free


def test_what_victims_give_back_goes_past_those_who_are_first_in_the_order_of_the_picker() -> None:
    world = preempting(1, picker="fcfs")
    world.submit("low", priority=Priority.BACKGROUND, preemptible=True)
    world.submit("first", priority=Priority.BACKGROUND)
    world.submit("u", priority=Priority.URGENT)
    decisions = world.end("low", JobState.INTERRUPTED)
    assert [d for d in decisions if isinstance(d, Dispatch)] == [dispatch("u")]
    assert world.end("u") == (dispatch("low", attempt=2),)


# Reasons.


def test_a_pend_is_given_when_the_reason_changes_and_not_on_every_pass() -> None:
    world = machine(2, picker="fcfs")
    world.submit("a", 2)
    assert world.submit("b") == (Pend("b", PendReason.RESOURCES, "needs 1 process_slots with 0 free"),)
    assert world.submit("c") == (Pend("c", PendReason.BEHIND),)
    assert world.wait(S) == ()
    world.send(CancelRequested, job="b", run_pass=False)
    assert world.wait(S) == (Pend("c", PendReason.RESOURCES, "needs 1 process_slots with 0 free"),)


def test_why_is_one_sentence_with_reason_place_and_reservation() -> None:
    world = machine(4, picker="easy")
    world.submit("a", 3, estimate_us=10 * S)
    world.submit("b", 2, estimate_us=10 * S)
    world.submit("c", 2, estimate_us=20 * S)
    world.wait(4 * S)
    assert world.core.why("a") == "Job a has been running for 4 s as attempt 1."
    assert world.core.why("b") == (
        "Job b has been waiting for 4 s at place 1 of its queue (resources: needs 2 process_slots with 1 free), "
        "reserved to start in 6 s."
    )
    late = world.core.why("b", 17 * S)  # a runs longer than was estimated, and the next event is not there yet
    assert late.endswith("reserved to start in 0 s.")
    assert world.core.why("c") == "Job c has been waiting for 4 s at place 2 of its queue (behind)."
    assert world.core.why("c", 7 * S) == "Job c has been waiting for 7 s at place 2 of its queue (behind)."
    for name in ("d", "e"):
        world.submit(name)
    world.submit("later", not_before_us=9 * S)
    for now_us, wait_s in ((4 * S, 5), (10 * S, 0)):
        assert world.core.why("later", now_us).endswith(f" and may start in {wait_s} s.")
    world.submit("f", after_ok=("a", "b"), after_any=("c", "d", "a"))
    assert world.core.why("f") == "Job f has been waiting for 0 s: 4 other jobs have to end first (a, b, c, …)."
    world.end("a")
    world.end("b")
    assert world.core.why("b") == "Job b is completed."
    with pytest.raises(KeyError):
        world.core.why("nobody")


# Configuration.


@pytest.mark.parametrize("picker", ["fair", "fcfs", "easy-sjf", "conservative"])
def test_no_promise_of_a_picker_outlives_it(picker: str) -> None:
    world = machine(2, picker="easy")
    world.submit("a", estimate_us=5 * S)
    world.submit("b", 2, estimate_us=5 * S)
    assert world.job("b").reserved_us == 5 * S
    world.send(ConfigLoaded, config=simple(picker), run_pass=False)
    assert world.job("b").reserved_us is None


def test_the_picker_can_be_changed_while_jobs_wait() -> None:
    world = machine(1, picker="fcfs")
    for name, estimate_s in (("a", 1), ("long", 9), ("short", 2)):
        world.submit(name, estimate_us=estimate_s * S)
    world.send(ConfigLoaded, config=simple("sjf"))
    assert world.end("a") == (dispatch("short"),)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"picker": "nope"}, "picker must be one of fair, fcfs"),
        ({"allocator": "nope"}, "allocator must be one of sequential, parallel"),
    ],
)
def test_a_name_that_is_not_there_is_refused_and_nothing_changes(config: dict[str, str], message: str) -> None:
    core = SchedulerCore()
    before = core.snapshot()
    with pytest.raises(ValueError, match=message):
        core.handle(ConfigLoaded(at=5, config=Config(**config)))  # type: ignore[arg-type]
    assert core.snapshot() == before


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"queue": QueueBounds(max_total=0)}, "max_total must be between 1 and"),
        (
            {"queue": QueueBounds(max_total=8, claim_batch=9)},
            r"max_per_workspace must be at most max_total \(8\)",
        ),
        ({"limits": (Limit(Scope.USER, 0),)}, "max_running must be between 1 and"),
        ({"resources": Resources(-1)}, "cpu_weight must be between 0 and"),
    ],
)
def test_bounds_of_a_configuration_are_named(section: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**section)  # type: ignore[arg-type]
    Config(enabled=False, **section)  # type: ignore[arg-type]


def test_a_weight_of_zero_is_refused() -> None:
    raw = msgspec.json.encode({"fairness": {"background_weight": 0}})
    with pytest.raises(msgspec.ValidationError, match="background_weight must be between 1 and"):
        msgspec.json.decode(raw, type=Config)


# The machine of states.


@pytest.mark.parametrize("state", list(JobState))
def test_no_state_moves_to_one_that_the_table_does_not_have(state: JobState) -> None:
    for target in JobState:
        job = Job.of(JobSpec(id="a"), 0, 0)
        job.state = state
        if target in JOB_MOVES[state]:
            move(job, target)
            assert job.state is target
        else:
            with pytest.raises(InvariantViolation, match="illegal move"):
                move(job, target)
    assert (JOB_MOVES[state] == frozenset()) == (state in TERMINAL)


def test_an_invariant_names_the_facts() -> None:
    invariant(True, "fine")
    with pytest.raises(InvariantViolation, match="broken: 1: 'x'"):
        invariant(False, "broken", 1, "x")
