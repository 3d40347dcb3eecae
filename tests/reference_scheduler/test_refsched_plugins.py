"""One suite that every picker and every allocator passes, and what is particular to each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from scheduler_world import PICKER_NAMES, S, World, simple, slots

from reference_scheduler import plugins
from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.allocators import ALLOCATORS
from reference_scheduler.core.amounts import (
    MAX_QUANTITY,
    Amount,
    Resources,
    fits,
    monus,
    pack,
    shortfall,
    unpack,
)
from reference_scheduler.core.events import JobStateChanged, JobUpdated, QueueConfigured
from reference_scheduler.core.model import MAX_TIME_US, Job, JobSpec, JobState, Priority, QueueBounds, ResourceRequest
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.core.pickers.base import OrderedPicker
from reference_scheduler.core.pickers.conservative import Profile
from reference_scheduler.core.pickers.scored import (
    F1Picker,
    UnicepPicker,
    Wfp3Picker,
    log2_fixed,
)
from reference_scheduler.drivers.schedule import starts
from reference_scheduler.drivers.simulation import SimulationDriver, Tie, simulate, simulation_config
from reference_scheduler.drivers.timeline import Timeline
from reference_scheduler.workloads import SyntheticOptions, TimedJob, Workload, WorkloadError, generate
from reference_scheduler.workloads.model import TimedArray

QUANTITIES = st.builds(Resources, *[st.integers(0, 40)] * 5)
FREE = st.dictionaries(st.sampled_from("abcd"), QUANTITIES.map(pack), max_size=4)
FULL = st.builds(Resources, *[st.integers(0, MAX_QUANTITY)] * 5)


# Amounts.


@given(FULL, FULL)
def test_amounts_compare_and_subtract_each_dimension_by_itself(a: Resources, b: Resources) -> None:
    assert unpack(pack(a)) == a
    assert fits(pack(a), pack(b)) == all(x <= y for x, y in zip(a, b, strict=True))
    assert unpack(monus(pack(a), pack(b))) == tuple(max(x - y, 0) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("quantity", [-1, MAX_QUANTITY + 1])
def test_a_quantity_out_of_range_cannot_be_packed(quantity: int) -> None:
    with pytest.raises(ValueError, match=f"io_weight must be between 0 and {MAX_QUANTITY}, got {quantity}"):
        pack(Resources(io_weight=quantity))


def test_a_shortfall_names_what_lacks_with_both_numbers() -> None:
    need, free = Resources(5, 10, 2, 1, 0), Resources(4, 10, 1, 9, 9)
    assert shortfall(pack(need), pack(free)) == "needs 5 cpu_weight with 4 free and 2 process_slots with 1 free"


# Allocators.


@pytest.mark.parametrize("name", ALLOCATORS)
@given(need=QUANTITIES, tasks=st.integers(1, 5), free=FREE, more=FREE)
def test_an_allocator_places_all_or_nothing_and_more_room_never_hurts(
    name: str, need: Resources, tasks: int, free: Mapping[str, Amount], more: Mapping[str, Amount]
) -> None:
    allocator = ALLOCATORS[name]()
    before = dict(free)
    placement = allocator.place(pack(need), tasks, free)
    assert dict(free) == before
    assert allocator.place(pack(need), tasks, free) == placement
    wider = {worker: free.get(worker, 0) + more.get(worker, 0) for worker in {**free, **more}}
    if placement is None:
        total = pack(need) * tasks
        assert not any(fits(total, amount) for amount in free.values())
        return
    assert allocator.place(pack(need), tasks, wider) is not None
    assert sum(amount for _, amount in placement) == pack(need) * tasks
    workers = [worker for worker, _ in placement]
    assert workers == [worker for worker in free if worker in workers]
    assert all(fits(amount, free[worker]) for worker, amount in placement)


def test_sequential_takes_one_worker_and_parallel_fills_several_in_order() -> None:
    free = {"a": pack(Resources(process_slots=2)), "b": pack(Resources(process_slots=3))}
    one = pack(Resources(process_slots=1))
    assert ALLOCATORS["sequential"]().place(one, 3, free) == (("b", 3 * one),)
    assert ALLOCATORS["sequential"]().place(one, 4, free) is None
    assert ALLOCATORS["parallel"]().place(one, 4, free) == (("a", 2 * one), ("b", 2 * one))
    assert ALLOCATORS["parallel"]().place(one, 6, free) is None


# Pickers.

SMALL = st.builds(
    SyntheticOptions,
    jobs=st.integers(1, 40),
    seed=st.integers(0, 1 << 20),
    processors=st.sampled_from([4, 16]),
    load=st.sampled_from([0.5, 3.0]),
    max_run_s=st.just(60),
    max_overestimate=st.sampled_from([1, 4]),
    memory_mb=st.sampled_from([0, 64]),
)


@pytest.mark.parametrize("name", PICKERS)
@settings(max_examples=12, deadline=None)
@given(options=SMALL, tie=st.sampled_from(list(Tie)))
def test_a_picker_runs_every_job_once_within_capacity_and_the_same_way_again(
    name: str, options: SyntheticOptions, tie: Tie
) -> None:
    workload = generate(options)
    core = SchedulerCore()
    driver = SimulationDriver(core, workload, tie, lambda *_: core.audit())
    schedule = driver.run(simulation_config(name))
    assert sorted(run.job for run in schedule.runs) == sorted(timed.job.id for timed in workload.jobs)
    assert schedule.refused == ()
    changes = sorted(
        change for run in schedule.runs for change in ((run.start_us, run.processors), (run.end_us, -run.processors))
    )
    held = 0
    for _, change in changes:
        held += change
        assert held <= options.processors
    assert starts(simulate(workload, simulation_config(name), tie)) == starts(schedule)


@pytest.mark.parametrize("name", PICKERS)
def test_a_picker_starts_everything_that_fits_when_all_fits(name: str) -> None:
    world = World(simple(name), {"m": 10})
    for index in range(4):
        world.submit(f"j{index}", 2, estimate_us=(9 - index) * S, workspace=f"w{index}")
    assert world.running() == ["j0", "j1", "j2", "j3"]


@pytest.mark.parametrize("name", PICKERS)
def test_a_picker_leaves_a_job_that_a_limit_holds_out_of_the_way(name: str) -> None:
    world = World(simple(name), {"m": 4})
    world.submit("a", 1, estimate_us=S, workspace="a", queue="q")
    world.send(QueueConfigured, queue="q", paused=True)
    world.submit("b", 1, estimate_us=S, workspace="b", queue="q")
    world.submit("c", 1, estimate_us=S, workspace="c")
    assert world.running() == ["a", "c"]


@pytest.mark.parametrize("name", PICKERS)
def test_a_picker_gives_places_from_one_on_and_goes_on_after_a_full_batch(name: str) -> None:
    world = World(simple(name, queue=QueueBounds(99, 99, 99, 1)), {"m": 3})
    for index in range(5):
        world.submit(f"j{index}", 1, estimate_us=S)
    while world.core.next_due() == world.at_us:
        world.wait(0)
    assert len(world.running()) == 3
    assert [world.core.why(f"j{index}").split(" of its queue")[0][-1] for index in (3, 4)] == ["1", "2"]


def queue_order(picker: OrderedPicker, jobs: list[tuple[str, int, int, int]], now_s: int) -> list[str]:
    """Return the order in which ``picker`` would try jobs of (id, submit s, width, estimate s)."""
    made = []
    for seq, (name, submit_s, width, estimate_s) in enumerate(jobs):
        spec = JobSpec(id=name, request=slots(width), estimate_us=estimate_s * S)
        made.append(Job.of(spec, seq, submit_s * S))
        picker.add(made[-1])
    if isinstance(picker, Wfp3Picker | UnicepPicker):
        picker._sort(now_s * S)
    return sorted((job.spec.id for job in made), key=lambda name: picker.place(made[[j[0] for j in jobs].index(name)]))


TRIPLES = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 512), st.integers(1, 10**5)), min_size=2, max_size=8)


@pytest.mark.parametrize("name", ["f1", "wfp3", "unicep"])
@given(jobs=TRIPLES)
def test_scores_order_jobs_as_their_formulas_do(name: str, jobs: list[tuple[int, int, int]]) -> None:
    now_s = 2 * 10**6
    formulas: dict[str, Callable[[int, int, int], float]] = {
        "f1": lambda s, n, r: math.log10(r) * n + 870 * math.log10(s),
        "wfp3": lambda s, n, r: -(((now_s - s) / r) ** 3) * n,
        "unicep": lambda s, n, r: -(now_s - s) / (math.log2(n) * r) if n > 1 else -math.inf,
    }
    picker = {"f1": F1Picker, "wfp3": Wfp3Picker, "unicep": UnicepPicker}[name]()
    score = {str(i): formulas[name](*job) for i, job in enumerate(jobs)}
    order = queue_order(picker, [(str(i), *job) for i, job in enumerate(jobs)], now_s)
    for first, second in pairwise(order):
        assert score[first] <= score[second] or math.isclose(score[first], score[second], rel_tol=1e-6)


@given(st.integers(1, 1 << 200))
def test_the_integer_logarithm_is_the_logarithm(number: int) -> None:
    assert abs(log2_fixed(number) / 2**24 - math.log2(number)) < 1e-6


def test_easy_backfills_what_ends_by_the_shadow_time_or_fits_in_the_extra() -> None:
    world = World(simple("easy"), {"m": 10})
    world.submit("runs", 6, estimate_us=100 * S)
    world.submit("head", 8, estimate_us=10 * S)
    world.submit("too long", 3, estimate_us=101 * S)
    world.submit("by then", 1, estimate_us=100 * S)
    world.submit("extra", 2, estimate_us=1000 * S)
    world.submit("no extra left", 1, estimate_us=1000 * S)
    assert world.running() == ["runs", "by then", "extra"]
    assert world.job("head").reserved_us == 100 * S
    assert world.job("too long").reserved_us is None


def test_easy_sjf_tries_the_shortest_first() -> None:
    found = {}
    for name in ("easy", "easy-sjf"):
        world = World(simple(name), {"m": 4})
        world.submit("runs", 3, estimate_us=100 * S)
        world.submit("head", 4, estimate_us=S)
        world.send(QueueConfigured, queue="q", paused=True)
        world.submit("long", 1, estimate_us=50 * S, queue="q")
        world.submit("short", 1, estimate_us=10 * S, queue="q")
        world.send(QueueConfigured, queue="q", paused=False)
        found[name] = world.running()[-1]
    assert found == {"easy": "long", "easy-sjf": "short"}


def test_conservative_moves_reservations_only_forward_when_a_job_ends_early() -> None:
    world = World(simple("conservative"), {"m": 4})
    world.submit("a", 4, estimate_us=100 * S)
    world.submit("b", 3, estimate_us=50 * S)
    world.submit("c", 2, estimate_us=10 * S)
    world.submit("d", 1, estimate_us=50 * S)
    reserved = {name: world.job(name).reserved_us for name in "bcd"}
    assert reserved == {"b": 100 * S, "c": 150 * S, "d": 100 * S}
    world.wait(20 * S)
    world.end("a")
    assert world.running() == ["b", "d"]
    assert world.job("c").reserved_us == 70 * S
    assert world.core.next_due() == 70 * S


def test_conservative_copes_with_a_reserved_time_that_went_by_without_a_pass() -> None:
    world = World(simple("conservative"), {"m": 4})
    world.submit("a", 3, estimate_us=10 * S)
    world.submit("c", 1, estimate_us=90 * S)
    world.submit("b", 3, estimate_us=50 * S)
    world.at_us = 20 * S
    complete = {"old": JobState.RUNNING, "new": JobState.COMPLETED, "attempt": 1, "run_pass": False}
    world.send(JobStateChanged, job="a", **complete)
    world.at_us = 30 * S
    world.send(JobStateChanged, job="c", **complete)
    world.submit("d", 4, estimate_us=10 * S)
    assert (world.running(), world.job("d").reserved_us) == (["b"], 80 * S)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 8)), max_size=12))
def test_a_profile_finds_the_first_slot_and_gives_all_back(slots_wanted: list[tuple[int, int, int]]) -> None:
    profile = Profile(0, 8)
    free = [8] * 400
    taken = []
    for from_us, duration, need in slots_wanted:
        start = profile.earliest(need, duration, from_us)
        naive = next(t for t in range(from_us, 400) if all(free[u] >= need for u in range(t, min(t + duration, 400))))
        assert start == naive
        profile.take(need, start, start + duration)
        taken.append((need, start, start + duration))
        for at in range(start, start + duration):
            free[at] -= need
    for slot in taken:
        profile.give(*slot)
    assert (profile.times, profile.free) == ([0], [8])


# Entry points.


class LastPicker(OrderedPicker):
    """Last come, first served."""

    name = "last"

    def score(self, job: Job) -> int:
        return -job.seq


@pytest.mark.parametrize("tie", list(Tie))
@pytest.mark.parametrize("picker", sorted({*PICKER_NAMES} - {"f1"}))  # its score has the time of submission in it
def test_a_schedule_does_not_depend_on_where_time_begins(picker: str, tie: Tie) -> None:
    workload = generate(SyntheticOptions(jobs=60, seed=3, load=2.0, processors=16, max_run_s=500))
    schedules = []
    for begin_us in (0, -300 * S, -(10**6) * S):
        moved = [structs.replace(timed, submit_us=timed.submit_us + begin_us) for timed in workload.jobs]
        schedule = simulate(structs.replace(workload, jobs=tuple(moved)), simulation_config(picker), tie)
        schedules.append([(run.job, run.start_us - begin_us, run.end_us - begin_us) for run in schedule.runs])
    assert schedules[0] == schedules[1] == schedules[2]


@pytest.mark.parametrize("begin_us", [0, -10 * S, -200 * S])
def test_all_that_a_workload_has_of_times_is_meant_from_where_its_time_begins(begin_us: int) -> None:
    array = JobSpec("5", request=slots(1), not_before_us=260 * S + begin_us)
    specs = [
        JobSpec("later", request=slots(1), not_before_us=250 * S + begin_us),
        JobSpec("held", request=slots(1), queue="q"),
        JobSpec("expires", request=slots(1), queue="q", deadline_us=220 * S + begin_us),
        JobSpec("paused", request=slots(1)),
        JobSpec("changed", request=slots(1), queue="q"),
        *(structs.replace(array, id=f"5[{index}]") for index in range(2)),
    ]
    times_us = [0, 10 * S, 11 * S, 105 * S, 106 * S, 107 * S, 107 * S]
    changed = structs.replace(specs[4], queue="", not_before_us=240 * S + begin_us)
    workload = Workload(
        (("m", Resources(process_slots=9)),),
        tuple(TimedJob(at_us + begin_us, S, spec) for at_us, spec in zip(times_us, specs, strict=True)),
        updates=(
            QueueConfigured(at=5 * S + begin_us, queue="q", paused=True),
            JobUpdated(at=210 * S + begin_us, job=changed, changed=("queue", "not_before_us")),
            QueueConfigured(at=230 * S + begin_us, queue="q"),
        ),
        arrays={"5": TimedArray(array, 2, 0)},
        pauses=((100 * S + begin_us, 110 * S + begin_us),),
    )
    schedule = simulate(workload, simulation_config("easy"))
    begun = {run.job: (run.submit_us - begin_us, run.start_us - begin_us) for run in schedule.runs}
    assert schedule.refused == ("expires",)
    assert {job: (submit_us // S, start_us // S) for job, (submit_us, start_us) in begun.items()} == {
        "later": (0, 250),
        "held": (10, 230),
        "paused": (105, 110),
        "changed": (106, 240),
        "5[0]": (107, 260),
        "5[1]": (107, 260),
    }


def test_of_an_attempt_that_was_stopped_a_simulation_reports_no_second_end() -> None:
    low = JobSpec("low", request=slots(1), priority=Priority.BACKGROUND, preemptible=True)
    urgent = JobSpec("u", request=slots(1), priority=Priority.URGENT)
    jobs = (TimedJob(0, 100 * S, low), TimedJob(10 * S, 5 * S, urgent))
    core, timeline = SchedulerCore(), Timeline()
    driver = SimulationDriver(core, Workload((("m", Resources(process_slots=1)),), jobs), observer=timeline)
    schedule = driver.run(structs.replace(simulation_config(), preemption=True))
    assert [(run.job, run.start_us // S, run.end_us // S) for run in schedule.runs] == [("low", 0, 115), ("u", 10, 15)]
    assert core.counters.stale == 0
    assert [(step.at_us // S, step.waiting, step.held) for step in timeline.steps] == [
        (0, 0, 1),
        (10, 1, 1),
        (15, 0, 1),
        (100, 0, 1),  # when the first attempt would have ended
        (115, 0, 0),
    ]


def test_an_update_of_a_job_that_has_ended_already_refuses_no_job() -> None:
    job = JobSpec("a", request=slots(1))
    late = JobUpdated(at=9 * S, job=structs.replace(job, priority=Priority.URGENT), changed=("priority",))
    workload = Workload((("m", Resources(process_slots=1)),), (TimedJob(0, S, job),), updates=(late,))
    schedule = simulate(workload, simulation_config())
    assert ([run.job for run in schedule.runs], schedule.refused) == (["a"], ())


def test_a_workload_whose_times_are_too_far_apart_is_refused() -> None:
    jobs = [TimedJob(at_us, S, JobSpec(str(at_us), request=slots(1))) for at_us in (-MAX_TIME_US, 1)]
    with pytest.raises(WorkloadError, match="counted from the first submission, submit_us must be between"):
        simulate(Workload((("m", Resources(process_slots=1)),), tuple(jobs)), simulation_config())


@pytest.mark.parametrize("picker", ["easy", "easy-sjf", "fair"])
def test_what_would_hold_a_key_beyond_the_reserved_time_does_not_pass_who_waits_for_that_key(picker: str) -> None:
    world = World(simple(picker), {"m": 4})
    world.submit("running", 3, estimate_us=10 * S)
    wide = ResourceRequest(process_slots=2, exclusivity_keys=("k",))
    world.submit("head", request=wide, workspace="a", estimate_us=S)
    assert world.job("head").reserved_us == 10 * S
    narrow = ResourceRequest(process_slots=1, exclusivity_keys=("k",))
    world.submit("long", request=narrow, workspace="b", estimate_us=11 * S)  # it fits beside the head
    assert world.running() == ["running"]
    world.submit("short", request=narrow, workspace="c", estimate_us=10 * S)
    world.submit("keyless", request=slots(1), workspace="d", estimate_us=11 * S)
    assert world.running() == ["running", "short"]


def fake_entry_points(*entries: EntryPoint) -> object:
    def find(*, group: str) -> tuple[EntryPoint, ...]:
        return tuple(entry for entry in entries if entry.group == group)

    return find


def test_a_picker_from_another_distribution_is_found_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("last", f"{__name__}:LastPicker", plugins.PICKER_GROUP)
    own = EntryPoint("easy", "reference_scheduler.core.pickers.easy:EasyPicker", plugins.PICKER_GROUP)
    monkeypatch.setattr(plugins, "entry_points", fake_entry_points(entry, own))
    pickers = plugins.available_pickers()
    assert list(pickers) == [*PICKERS, "last"]
    core = SchedulerCore(pickers)
    workload = generate(SyntheticOptions(jobs=20, load=5.0, processors=4))
    schedule = SimulationDriver(core, workload).run(simulation_config("last"))
    assert len(schedule.runs) == 20
    assert starts(schedule) != starts(simulate(workload, simulation_config("fcfs")))


def test_a_name_taken_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("sequential", "elsewhere:Allocator", plugins.ALLOCATOR_GROUP)
    monkeypatch.setattr(plugins, "entry_points", fake_entry_points(entry))
    with pytest.raises(plugins.PluginError, match="'sequential' is taken twice, by elsewhere:Allocator"):
        plugins.available_allocators()


def test_the_suite_covers_every_picker() -> None:
    assert tuple(PICKERS) == PICKER_NAMES
