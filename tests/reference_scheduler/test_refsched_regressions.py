"""Defects that fuzzing found, one test each."""

from __future__ import annotations

import pytest
from scheduler_world import PICKER_NAMES, S, World, reload_snapshot, simple, slots

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.decisions import Preempt
from reference_scheduler.core.events import (
    JobSubmitted,
    JobUpdated,
    QueueConfigured,
    ResourcesChanged,
    Tick,
    WorkerUpdated,
)
from reference_scheduler.core.fair_queue import waiting_bound
from reference_scheduler.core.model import (
    Failure,
    JobSpec,
    JobState,
    Limit,
    PendReason,
    Priority,
    RetryPolicy,
    Scope,
)
from reference_scheduler.drivers.simulation import simulate, simulation_config
from reference_scheduler.workloads.model import TimedJob, Workload


@pytest.mark.parametrize("picker", PICKER_NAMES)
def test_a_job_too_large_for_what_is_left_does_not_hold_up_its_lane(picker: str) -> None:
    world = World(simple(picker), {"n": 2})
    world.send(QueueConfigured, queue="later", paused=True)
    world.submit("wide", 2, queue="later", estimate_us=1)
    world.send(WorkerUpdated, worker="n", capacity=Resources(process_slots=1))
    world.send(QueueConfigured, queue="later")
    world.submit("narrow", 1, estimate_us=1)
    assert world.running() == ["narrow"]


def test_a_paused_queue_does_not_hold_up_other_queues_in_the_lane() -> None:
    world = World(simple(), {"n": 1})
    world.send(QueueConfigured, queue="paused", paused=True)
    world.submit("held", queue="paused")
    world.submit("free", queue="open")
    assert world.running() == ["free"]
    assert world.core.job("held") is not None
    world.end("free")
    world.send(QueueConfigured, queue="paused")
    assert world.running() == ["held"]


def test_the_bound_on_waiting_holds_behind_jobs_that_a_limit_holds() -> None:
    config = simple(limits=(Limit(Scope.USER, 1, "greedy"),))
    world = World(config, {"n": 2})
    for index in range(6):
        world.submit(f"held{index}", user="greedy")
        world.submit(f"rival{index}", workspace="other")
    world.submit("mine", user="modest")
    turns = 0
    while "mine" not in world.running():
        world.end(next(job for job in world.running() if job != "held0"))
        turns += 1
    assert turns <= waiting_bound(config.fairness, 2, 2, 1)
    assert world.running() == ["held0", "mine"]


@pytest.mark.parametrize("picker", PICKER_NAMES)
def test_a_restored_core_tells_newcomers_in_the_same_order(picker: str) -> None:
    world = World(simple(picker), {"n": 1})
    world.submit("running", estimate_us=1)
    spec = JobSpec(id="older", request=slots(1), estimate_us=5)
    world.send(JobSubmitted, job=spec)
    twin = reload_snapshot(world.core)
    younger = JobSpec(id="younger", request=slots(1), estimate_us=5)
    updated = JobSpec(id="older", request=slots(1), estimate_us=6)
    for event in (
        JobSubmitted(at=0, job=younger, run_pass=False),
        JobUpdated(at=0, job=updated, changed=("estimate_us",)),
    ):
        assert twin.handle(event) == world.core.handle(event)
    assert twin.chain == world.core.chain


def test_conservative_keeps_no_place_for_a_job_that_a_pause_holds() -> None:
    world = World(simple("conservative"), {"n": 3})
    world.send(QueueConfigured, queue="paused", paused=True)
    world.submit("held", 2, queue="paused")
    world.submit("free", 2)
    assert world.running() == ["free"]
    world.send(QueueConfigured, queue="paused")
    world.end("free")
    assert world.running() == ["held"]


def test_conservative_lets_others_move_up_when_a_limit_is_met_at_the_reserved_time() -> None:
    world = World(simple("conservative", limits=(Limit(Scope.USER, 1, "greedy"),)), {"n": 3})
    world.submit("first", 3, estimate_us=10, user="modest")
    world.submit("second", 2, estimate_us=10, user="greedy")
    world.submit("third", 1, estimate_us=10, user="greedy")
    world.submit("fourth", 1, estimate_us=10, user="modest")
    world.end("first")
    assert world.running() == ["second", "fourth"]
    world.end("second")
    assert world.running() == ["third", "fourth"]


def test_conservative_plans_anew_when_an_attempt_ends_of_which_only_a_part_was_planned_with() -> None:
    world = World(simple("conservative"), {"m": 4})
    world.submit("a", 3, estimate_us=10 * S)
    world.submit("b", 1, estimate_us=20 * S)
    world.send(ResourcesChanged, worker="m", capacity=Resources(process_slots=2))  # b has no place in the plan
    world.submit("c", 2, estimate_us=5 * S)
    assert world.job("c").reserved_us == 10 * S
    world.at_us = 5 * S
    world.end("a")
    assert world.job("c").reserved_us == 20 * S


def test_conservative_plans_anew_after_a_reserved_time_without_a_pass() -> None:
    world = World(simple("conservative"), {"n": 4})
    world.submit("first", 3, estimate_us=10)
    world.submit("second", 2, estimate_us=20)
    world.submit("third", 3, estimate_us=5)
    world.at_us = 25
    world.send(Tick, run_pass=False)
    world.end("first", run_pass=False)
    world.send(Tick)
    assert world.running() == ["second"]
    world.send(Tick)
    assert [job.reserved_us for job in world.core.open_jobs()] == [None, 45]


def test_a_job_asked_to_make_way_is_not_asked_again_though_it_reports_a_failure() -> None:
    world = World(simple(preemption=True), {"n": 1})
    world.submit("low", priority=Priority.BACKGROUND, preemptible=True, retry=RetryPolicy(9, base_us=0))
    world.submit("high", priority=Priority.URGENT)
    world.end("low", JobState.FAILED, failure=Failure.TRANSIENT)
    world.end("high")
    assert world.running() == ["low"]
    world.submit("higher", priority=Priority.URGENT)
    assert not any(isinstance(decision, Preempt) for decision in world.log[-1][1])


@pytest.mark.parametrize("picker", ["fair", "easy", "easy-sjf"])
def test_small_jobs_without_estimates_pass_a_wide_one_only_beside_it(picker: str) -> None:
    world = World(simple(picker), {"n": 6})
    for index in range(3):
        world.submit(f"running{index}", 2)
    world.submit("wide", 4)
    for index in range(8):
        world.submit(f"small{index}", 2)
    for index in range(3):
        world.end(f"running{index}")
        assert world.core.snapshot() == reload_snapshot(world.core).snapshot()
    assert world.running() == ["wide", "small0"]


@pytest.mark.parametrize("picker", ["easy", "easy-sjf"])
def test_a_head_that_a_limit_comes_to_hold_is_no_longer_the_head(picker: str) -> None:
    world = World(simple(picker, limits=(Limit(Scope.USER, 1, "greedy"),)), {"n": 4})
    world.submit("running", 3, estimate_us=50)
    world.submit("head", 2, estimate_us=50, user="greedy")
    world.submit("passing", 1, estimate_us=10, user="greedy")
    world.at_us = 5
    world.submit("other", 1, estimate_us=500)
    assert world.job("head").reason is PendReason.LIMIT
    twin = reload_snapshot(world.core)
    assert twin.handle(Tick(at=6)) == world.core.handle(Tick(at=6))


@pytest.mark.parametrize("picker", ["easy", "easy-sjf"])
def test_a_head_whose_key_was_taken_by_one_that_passed_says_so(picker: str) -> None:
    world = World(simple(picker), {"n": 4})
    world.submit("running", 3, estimate_us=50)
    world.submit("head", estimate_us=50, request=slots(2, "k"))
    world.submit("passing", estimate_us=10, request=slots(1, "k"))
    world.wait(1)
    assert world.running() == ["running", "passing"]
    assert world.job("head").reason is PendReason.EXCLUSIVITY


def test_a_place_behind_a_job_that_waits_for_a_key_is_not_simulated_microsecond_by_microsecond() -> None:
    jobs = (
        TimedJob(0, 100 * S, JobSpec("overdue", estimate_us=1, request=slots(1, "k"))),
        TimedJob(0, S, JobSpec("due", estimate_us=0, request=slots(1, "k"))),
        TimedJob(0, S, JobSpec("behind", estimate_us=S, request=slots(1))),
    )
    schedule = simulate(Workload((("m", Resources(process_slots=2)),), jobs), simulation_config("conservative"))
    assert [(run.job, run.start_us) for run in schedule.runs] == [("overdue", 0), ("due", 100 * S), ("behind", 100 * S)]
