"""The invariants of the core, one test each, over random histories with faults in them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scheduler_world import (
    HISTORIES,
    NUMBERS,
    OPERATIONS,
    PICKER_NAMES,
    Operation,
    apply_operation,
    heal,
    play,
    reload_snapshot,
    start_world,
)

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.amounts import fits, pack
from reference_scheduler.core.decisions import Decision, Dispatch, Reject
from reference_scheduler.core.events import Event, JobSubmitted, Tick
from reference_scheduler.core.machine import TERMINAL
from reference_scheduler.core.model import JobState

histories = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


class CoreMachine(RuleBasedStateMachine):
    """Any operation at any time; the core audits itself after each event."""

    @initialize(number=NUMBERS)
    def begin(self, number: int) -> None:
        self.world = start_world(number)
        self.terminal: dict[str, JobState] = {}

    @rule(operation=OPERATIONS)
    def operate(self, operation: Operation) -> None:
        apply_operation(self.world, operation)

    @rule()
    def restart_from_snapshot(self) -> None:
        before = self.world.core.snapshot()
        self.world.core = reload_snapshot(self.world.core)
        assert self.world.core.snapshot() == before

    @invariant()
    def terminal_states_stay(self) -> None:
        outcomes = dict(self.world.core.snapshot().outcomes)
        for name, state in self.terminal.items():
            assert outcomes[name].state is state
        self.terminal = {name: outcome.state for name, outcome in outcomes.items()}

    def teardown(self) -> None:
        if hasattr(self, "world"):
            heal(self.world)
            assert self.world.core.open_jobs() == ()


CoreMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestCoreMachine = CoreMachine.TestCase


@histories
@given(NUMBERS, HISTORIES)
def test_resources_held_are_the_sum_over_live_attempts_and_within_capacity(
    number: int, history: list[Operation]
) -> None:
    world = start_world(number)
    for operation in history:
        before = {w.name: w.capacity for w in world.core.snapshot().workers}
        apply_operation(world, operation)
        snapshot = world.core.snapshot()
        used = {worker.name: 0 for worker in snapshot.workers}
        for job in snapshot.jobs:
            for name, resources in job.attempt.allocation if job.attempt else ():
                used[name] += pack(resources)
        for worker in snapshot.workers:
            unchanged = before.get(worker.name) == worker.capacity
            granted = any(
                isinstance(decision, Dispatch) and any(name == worker.name for name, _ in decision.allocation)
                for decision in world.log[-1][1]
            )
            if unchanged and granted:
                assert fits(used[worker.name], pack(worker.capacity))


@histories
@given(NUMBERS, HISTORIES)
def test_an_exclusivity_key_has_one_holder(number: int, history: list[Operation]) -> None:
    world = start_world(number)
    for operation in history:
        apply_operation(world, operation)
        held = [key for job in world.core.open_jobs() if job.attempt for key in job.attempt.keys]
        assert len(held) == len(set(held))


@histories
@given(NUMBERS, HISTORIES)
def test_a_job_has_one_live_attempt_and_no_number_twice(number: int, history: list[Operation]) -> None:
    world = play(number, history)
    seen: dict[str, int] = {}
    for _, decisions in world.log:
        for decision in decisions:
            if isinstance(decision, Dispatch):
                assert decision.attempt == seen.get(decision.job, 0) + 1
                seen[decision.job] = decision.attempt


@histories
@given(NUMBERS, HISTORIES)
def test_terminal_states_never_change(number: int, history: list[Operation]) -> None:
    world = start_world(number)
    terminal: dict[str, JobState] = {}
    for operation in history:
        apply_operation(world, operation)
        outcomes = {name: outcome.state for name, outcome in world.core.snapshot().outcomes}
        assert outcomes.items() >= terminal.items()
        assert set(outcomes.values()) <= TERMINAL
        terminal = outcomes


@histories
@given(NUMBERS, HISTORIES)
def test_no_job_is_lost(number: int, history: list[Operation]) -> None:
    world = play(number, history)
    expected = set()
    for event, decisions in world.log:
        if isinstance(event, JobSubmitted) and not any(isinstance(d, Reject) for d in decisions):
            name = event.job.id
            expected |= {f"{name}[{i}]" for i in range(event.array_size)} or {name}
    for name in expected:
        assert (world.core.job(name) is None) != (world.core.outcome(name) is None)


@histories
@given(NUMBERS, HISTORIES)
def test_arrays_and_dependencies_settle_once_faults_stop(number: int, history: list[Operation]) -> None:
    world = play(number, history)
    heal(world)
    assert world.core.open_jobs() == ()
    assert world.core.snapshot().arrays == ()


@histories
@given(NUMBERS, HISTORIES)
def test_a_job_that_waits_holds_nothing(number: int, history: list[Operation]) -> None:
    world = start_world(number)
    for operation in history:
        apply_operation(world, operation)
        for job in world.core.snapshot().jobs:
            if job.state is not JobState.RUNNING:
                assert job.attempt is None


@histories
@given(NUMBERS, HISTORIES)
def test_the_same_events_give_the_same_decisions_and_hashes(number: int, history: list[Operation]) -> None:
    world = play(number, history)
    again = SchedulerCore()
    raw = msgspec.json.encode(world.events())
    for event, (_, decisions) in zip(msgspec.json.decode(raw, type=list[Event]), world.log, strict=True):
        assert again.handle(event) == decisions
    assert again.chain == world.core.chain
    assert again.snapshot() == world.core.snapshot()


@histories
@given(NUMBERS, HISTORIES, st.sampled_from(PICKER_NAMES), st.integers(0, 60))
def test_a_restored_core_goes_on_exactly(number: int, history: list[Operation], picker: str, cut: int) -> None:
    world = play(number, history, picker)
    core = SchedulerCore()
    for index, (event, decisions) in enumerate(world.log):
        if index == cut:
            core = reload_snapshot(core)
        assert core.handle(event) == decisions
    assert core.chain == world.core.chain


@histories
@given(NUMBERS, HISTORIES)
def test_next_due_is_a_function_of_state_and_never_late(number: int, history: list[Operation]) -> None:
    world = start_world(number)
    for operation in history:
        apply_operation(world, operation)
        due = world.core.next_due()
        assert due == world.core.next_due()
        assert due == reload_snapshot(world.core).next_due()
        waiting = [job for job in world.core.open_jobs() if job.state is JobState.SCHEDULED]
        assert all(due is not None and due <= job.not_before_us for job in waiting)


@pytest.mark.parametrize("picker", PICKER_NAMES)
def test_an_idle_core_asks_for_no_tick(picker: str) -> None:
    world = start_world(0, picker)
    world.submit("a")
    world.end("a")
    assert world.core.next_due() is None


@histories
@given(NUMBERS, HISTORIES)
def test_events_and_decisions_survive_serialisation(number: int, history: list[Operation]) -> None:
    for event, decisions in play(number, history).log:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(decisions), type=tuple[Decision, ...]) == decisions


@histories
@given(NUMBERS, HISTORIES, st.integers(1, 3600))
def test_a_clock_that_steps_back_changes_no_decision(number: int, history: list[Operation], step_s: int) -> None:
    world = play(number, history)
    core, twin = SchedulerCore(), SchedulerCore()
    for event, _ in world.log:
        stepped = Tick(at=event.at - step_s * 1_000_000, run_pass=False)
        core.handle(event)
        twin.handle(event)
        core.handle(stepped)
        assert core.now_us == twin.now_us
        assert core.snapshot().jobs == twin.snapshot().jobs


@histories
@given(NUMBERS, HISTORIES)
def test_every_open_job_says_why_with_numbers(number: int, history: list[Operation]) -> None:
    world = play(number, history)
    for job in world.core.open_jobs():
        sentence = world.core.why(job.spec.id)
        assert sentence.startswith(f"Job {job.spec.id} ")
        assert any(character.isdigit() for character in sentence.removeprefix(f"Job {job.spec.id}"))
