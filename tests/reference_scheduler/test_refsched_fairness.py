"""Who is served when: classes, lanes, ageing, wide jobs, and the written bound on waiting."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scheduler_world import S, World, simple, slots

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Dispatch
from reference_scheduler.core.events import CancelRequested, Event, JobSubmitted
from reference_scheduler.core.fair_queue import FairQueue, Lane, waiting_bound
from reference_scheduler.core.limits import Limits
from reference_scheduler.core.model import RANK, Fairness, Job, JobSpec, PendReason, Priority
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.core.pickers.fair import FairPicker
from reference_scheduler.fuzz.run import run_seed
from reference_scheduler.fuzz.world import Restart

CLASSES = list(Priority)


class Backlog:
    """A one-slot machine on which each end of a job starts the next; ``refill`` keeps lanes from emptying."""

    def __init__(self, fairness: Fairness | None = None) -> None:
        self.world = World(simple(fairness=fairness or Fairness()), {"m": 1})
        self.count = 0

    def add(self, priority: Priority, workspace: str) -> str:
        self.count += 1
        name = f"{priority}/{workspace}/{self.count}"
        self.world.submit(name, priority=priority, workspace=workspace, estimate_us=S)
        return name

    def serve(self) -> str:
        """End what runs and return what starts, empty if nothing waits."""
        self.world.at_us += S
        running = self.world.running()
        decisions = self.world.end(running[0]) if running else ()
        return next((d.job for d in decisions if isinstance(d, Dispatch)), "")


def test_classes_share_by_their_weights() -> None:
    backlog = Backlog(Fairness(max_high_priority_burst=1000, aging_us=10**9 * S))
    for priority in CLASSES[1:]:
        for _ in range(26):
            backlog.add(priority, "w")
    served = Counter(backlog.serve().split("/")[0] for _ in range(45))
    assert served == {"interactive": 24, "normal": 12, "background": 6, "maintenance": 3}


@pytest.mark.parametrize("idle", [Priority.INTERACTIVE, Priority.BACKGROUND, Priority.MAINTENANCE])
def test_a_class_that_had_nothing_to_do_has_saved_nothing(idle: Priority) -> None:
    backlog = Backlog(Fairness(max_high_priority_burst=1000, aging_us=10**9 * S))
    for _ in range(100):
        backlog.add(Priority.NORMAL, "w")
    for _ in range(50):
        backlog.serve()
    for _ in range(100):
        backlog.add(idle, "w")
    served = Counter(backlog.serve().split("/")[0] for _ in range(30))
    weights = {"normal": 4, idle.value: {"interactive": 8, "background": 2, "maintenance": 1}[idle]}
    for name, weight in weights.items():
        assert abs(served[name] - 30 * weight / sum(weights.values())) <= 1


@pytest.mark.parametrize("weights", [(8, 4, 2, 1), (1_000_003, 999_983, 999_979, 999_961), (10**9, 10**9 - 1, 7, 1)])
def test_a_state_can_be_saved_whatever_the_weights_and_the_order_goes_on(weights: tuple[int, int, int, int]) -> None:
    backlog = Backlog(Fairness(*weights, aging_us=10**9 * S))
    for number in range(200):
        backlog.add(CLASSES[1:][number % 4], f"w{number % 3}")
    for _ in range(150):
        backlog.serve()
    backlog.world.core, first = SchedulerCore.restore(backlog.world.core.snapshot()), backlog.world.core
    assert backlog.world.core.snapshot() == first.snapshot()
    for _ in range(49):
        backlog.serve()
        event = backlog.world.events()[-1]
        assert first.handle(event) == backlog.world.log[-1][1]


def test_urgent_comes_first_but_a_burst_forces_a_lower_class() -> None:
    backlog = Backlog(Fairness(max_high_priority_burst=3, aging_us=10**9 * S))
    for priority in (Priority.URGENT, Priority.NORMAL):
        for _ in range(20):
            backlog.add(priority, "w")
    served = [backlog.serve().split("/")[0] for _ in range(9)]
    assert served == [
        "urgent",
        "urgent",
        "normal",
        "urgent",
        "urgent",
        "urgent",
        "normal",
        "urgent",
        "urgent",
    ]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_workspaces_with_endless_work_are_served_within_one_of_each_other(count: int) -> None:
    backlog = Backlog()
    for _ in range(20):
        for workspace in range(count):
            backlog.add(Priority.NORMAL, f"w{workspace}")
    served: Counter[str] = Counter()
    for _ in range(15 * count):
        served[backlog.serve().split("/")[1]] += 1
        assert max(served.values()) - min(served[f"w{w}"] for w in range(count)) <= 1


def test_the_round_is_stable_when_lanes_come_and_go() -> None:
    backlog = Backlog()
    for workspace in "abcde":
        for _ in range(3):
            backlog.add(Priority.NORMAL, workspace)
    assert [backlog.serve().split("/")[1] for _ in range(2)] == ["a", "b"]
    gone = [j.spec.id for j in backlog.world.core.open_jobs() if "/d/" in j.spec.id]
    for name in gone:
        backlog.world.send(CancelRequested, job=name)
    for _ in range(3):
        backlog.add(Priority.NORMAL, "new")
    assert [backlog.serve().split("/")[1] for _ in range(6)] == ["c", "e", "a", "b", "new", "c"]


def test_first_in_first_out_in_a_lane() -> None:
    backlog = Backlog()
    names = [backlog.add(Priority.NORMAL, "w") for _ in range(6)]
    assert [backlog.serve() for _ in range(5)] == names[1:]


def test_age_raises_a_job_one_class_at_a_time_up_to_interactive_and_is_due_then() -> None:
    queue = FairQueue()
    queue.configure(Fairness(aging_us=10 * S))
    job = Job.of(JobSpec(id="a", priority=Priority.MAINTENANCE, request=slots(1)), 0, 0)
    queue.add(job)
    lane = queue.lane_of(job)
    assert [queue.rank(lane, t * S) for t in (0, 9, 10, 20, 30, 1000)] == [4, 4, 3, 2, 1, 1]
    assert [queue.next_rise_us(t * S) for t in (0, 9, 10, 29, 30)] == [10 * S, 10 * S, 20 * S, 30 * S, None]
    assert job.spec.priority is Priority.MAINTENANCE


def test_a_small_job_starts_beside_a_blocked_wide_head_which_starts_within_its_reservation() -> None:
    world = World(simple(), {"m": 4})
    world.submit("runs", 3, estimate_us=10 * S, workspace="a")
    world.submit("wide", 4, estimate_us=10 * S, workspace="b")
    world.submit("long", 1, estimate_us=60 * S, workspace="c")
    world.submit("small", 1, estimate_us=5 * S, workspace="d")
    assert world.running() == ["runs", "small"]
    assert world.job("wide").reserved_us == 10 * S
    world.at_us = 5 * S
    world.end("small")
    world.at_us = 10 * S
    world.end("runs")
    assert world.running() == ["wide"]


def test_a_blocked_head_does_not_block_other_lanes() -> None:
    world = World(simple(), {"m": 2})
    world.submit("holds", workspace="a", request=slots(1, "k"), estimate_us=9 * S)
    world.submit("head", workspace="b", request=slots(1, "k"), estimate_us=9 * S)
    world.submit("behind", workspace="b", estimate_us=S)
    world.submit("other", workspace="c", estimate_us=S)
    assert world.running() == ["holds", "other"]


def test_a_wide_job_without_estimates_is_not_starved_by_small_ones() -> None:
    world = World(simple(), {"m": 2})
    world.submit("s0", workspace="small")
    world.submit("wide", 2, workspace="wide")
    for index in range(1, 20):
        world.submit(f"s{index}", workspace="small")
    assert world.running() == ["s0"]
    world.end("s0")
    assert world.running() == ["wide"]


def flood(high: Priority, low: Priority, fairness: Fairness, seconds: int) -> int:
    """Return how many jobs start before one of ``low`` does, in an endless flood of ``high``."""
    backlog = Backlog(fairness)
    for _ in range(5):
        backlog.add(high, "flood")
    target = backlog.add(low, "w")
    for turns in range(seconds):
        backlog.add(high, "flood")
        if backlog.serve() == target:
            return turns
    raise AssertionError(f"not served within {seconds} turns")


@pytest.mark.parametrize("low", CLASSES[2:])
def test_a_day_of_the_highest_class_does_not_keep_a_lower_job_beyond_the_bound(low: Priority) -> None:
    fairness = Fairness()
    bound = waiting_bound(fairness, RANK[low], lanes=2, position=1)
    turns = flood(Priority.URGENT, low, fairness, 86_400)
    assert turns == fairness.max_high_priority_burst - 1
    assert turns <= bound


ARRIVALS = st.lists(st.tuples(st.sampled_from(CLASSES), st.integers(0, 4), st.integers(1, 4)), min_size=10, max_size=40)


@settings(max_examples=20, deadline=None)
@given(ARRIVALS, st.integers(1, 4), st.integers(1, 9), st.sampled_from([3, 1000]))
def test_the_bound_on_waiting_holds_in_turns(
    arrivals: list[tuple[Priority, int, int]], burst: int, weight: int, aging_s: int
) -> None:
    """Jobs of one slot on one slot: a turn is a start. New work of all classes keeps coming."""
    fairness = Fairness(weight, 4, 2, 1, burst, aging_s * S)
    backlog = Backlog(fairness)
    bounds: dict[str, tuple[int, int]] = {}
    for turn, (priority, lane, count) in enumerate(arrivals):
        for _ in range(count):
            waiting = [job for job in backlog.world.core.open_jobs() if job.attempt is None]
            here = [j for j in waiting if j.spec.priority is priority and j.spec.workspace == f"w{lane}"]
            name = backlog.add(priority, f"w{lane}")
            if RANK[priority] >= 2:
                bound = waiting_bound(fairness, RANK[priority], lanes=25, position=len(here) + 1)
                bounds[name] = (turn, bound)
        started = backlog.serve()
        if started in bounds:
            asked, bound = bounds.pop(started)
            assert turn - asked <= bound


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2**32))
def test_the_bound_on_waiting_holds_in_time_for_jobs_of_all_widths(low_rank: int, seed: int) -> None:
    """No attempt runs longer than ``H`` = 4 s; a wide job of a low class meets endless work above it."""
    fairness = Fairness(max_high_priority_burst=2)
    world = World(simple(fairness=fairness), {"m": 4})
    low = CLASSES[low_rank + 1]
    bound_us = waiting_bound(fairness, RANK[low], lanes=4, position=1) * 4 * S
    for index in range(12):
        submit_flood(world, index, seed)
    world.submit("target", 4, priority=low, workspace="target", estimate_us=4 * S)
    index = 12
    while (job := world.core.job("target")) is not None and job.attempt is None:
        assert world.at_us <= bound_us
        ends = {j.spec.id: j.attempt.expected_end_us for j in world.core.open_jobs() if j.attempt}
        world.at_us = min(ends.values())
        for name in [name for name, end_us in ends.items() if end_us == world.at_us]:
            world.end(name)
            submit_flood(world, index, seed)
            index += 1


def submit_flood(world: World, index: int, seed: int) -> None:
    draw = (seed >> index % 24) + index
    spec = JobSpec(
        id=f"f{index}",
        priority=CLASSES[draw % 2],
        workspace=f"w{draw % 3}",
        request=slots(1 + draw % 3),
        estimate_us=(1 + draw % 4) * S,
    )
    world.send(JobSubmitted, job=spec)


def decided(items: list[Event]) -> bytes:
    """Return the chain of all that a core decides about ``items``."""
    core = SchedulerCore()
    for item in items:
        core.handle(item)
        core.next_due()
    return core.chain


@pytest.mark.parametrize("seed", range(0, 20 * len(PICKERS), len(PICKERS)))
def test_to_pass_over_an_array_at_once_decides_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run_seed(seed, 150)
    assert outcome.swarm.config.picker == FairPicker.name
    items = [
        replace(item, array_size=8 * item.array_size) if isinstance(item, JobSubmitted) and item.array_size else item
        for item in outcome.items
        if not isinstance(item, Restart)
    ]
    at_once = decided(items)

    def one_by_one(lane: Lane, reason: PendReason) -> list[Job]:
        lane.passed += 1
        return [lane.jobs[lane.passed - 1][1]]

    monkeypatch.setattr(Lane, "pass_over", one_by_one)
    assert decided(items) == at_once


def test_an_array_at_its_limit_is_not_looked_at_job_by_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(simple(), {"m": 4})
    world.send(JobSubmitted, job=JobSpec("a", estimate_us=S, request=slots(1)), array_size=50, array_running=2)
    assert world.running() == ["a[0]", "a[1]"]
    looked_at: list[str] = []
    blocks = Limits.blocks

    def watched(limits: Limits, job: Job) -> tuple[PendReason, str] | None:
        looked_at.append(job.spec.id)
        return blocks(limits, job)

    monkeypatch.setattr(Limits, "blocks", watched)
    world.end("a[0]")
    assert (world.running(), looked_at) == (["a[1]", "a[2]"], ["a[2]", "a[3]"])
