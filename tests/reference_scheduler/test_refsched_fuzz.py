"""Fuzzing itself: it repeats, it covers, it notices, and what it saves reproduces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from scheduler_world import PICKER_NAMES, S, World, simple

from reference_scheduler.cli import main
from reference_scheduler.core import events
from reference_scheduler.core.amounts import Resources, Share
from reference_scheduler.core.decisions import Decision, Dispatch
from reference_scheduler.core.events import ConfigLoaded, Event, JobSubmitted, JobUpdated, Tick, WorkerUpdated
from reference_scheduler.core.ledger import Ledger
from reference_scheduler.core.model import JobSpec, Priority, ResourceRequest
from reference_scheduler.fuzz.model import CheckError, Model
from reference_scheduler.fuzz.monitor import Monitor
from reference_scheduler.fuzz.run import rerun, run_seed, save, shrink
from reference_scheduler.fuzz.swarm import FAULTS, TRAITS, draw_swarm
from reference_scheduler.fuzz.world import Item, Restart
from reference_scheduler.replay.verify import verify


def test_equal_seeds_give_equal_histories() -> None:
    assert run_seed(17, 120) == run_seed(17, 120)
    assert run_seed(17, 120).items != run_seed(26, 120).items


@pytest.mark.parametrize("seed", range(18))
def test_a_history_ends_without_a_violation_and_with_nothing_left(seed: int) -> None:
    outcome = run_seed(seed, 120)
    assert outcome.failure is None
    assert outcome.events >= 120
    assert outcome.swarm.config.picker == PICKER_NAMES[seed % 9]


@pytest.mark.parametrize("seed", range(9))
def test_updates_of_whole_arrays_break_nothing(seed: int) -> None:
    outcome, draw = run_seed(seed, 200), Random(seed)
    items, arrays, updates = list[Item](), list[str](), 0
    for item in outcome.items:
        items.append(item)
        if isinstance(item, JobSubmitted) and item.array_size:
            arrays.append(item.job.id)
        if arrays and not isinstance(item, Restart) and draw.random() < 0.3:
            spec = JobSpec(
                draw.choice(arrays[-3:]), priority=draw.choice(list(Priority)), queue=draw.choice(("", "q0"))
            )
            items.append(JobUpdated(at=item.at, job=spec, changed=("priority", "queue")))
            updates += 1
    assert bool(updates) == bool(arrays)
    assert rerun(items, outcome.swarm.workers) is None


def test_swarms_have_every_kind_and_every_kind_is_missing_somewhere() -> None:
    counts = Counter(kind for seed in range(100) for kind in draw_swarm(seed).kinds)
    assert set(counts) == {*FAULTS, *TRAITS}
    assert all(20 < count < 80 for count in counts.values())


def test_histories_have_every_kind_of_event_restarts_and_clocks_that_step() -> None:
    items = [item for seed in range(18) for item in run_seed(seed, 120).items]
    seen = {type(item).__name__ for item in items}
    assert seen == {cls.__name__ for cls in events.Event.__args__} | {"Restart"}
    times = [item.at for item in items if not isinstance(item, Restart)]
    assert any(later < earlier - 1000 * S for earlier, later in pairwise(times))


# A defect: of some jobs, a part of what they release stays taken.


def break_release(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Ledger.release

    def wrong(self: Ledger, job: str, shares: tuple[Share, ...], keys: Iterable[str]) -> None:
        right(self, job, shares, keys)
        for worker, _ in shares:
            self.used[worker] += 1 if len(job) % 2 else 0

    monkeypatch.setattr(Ledger, "release", wrong)


def test_a_failing_history_is_made_small_and_saved_and_reproduces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "fail.replay"
    with monkeypatch.context() as defect:
        break_release(defect)
        outcome = run_seed(1, 200)
        assert outcome.failure is not None
        small = shrink(outcome.failure, outcome.swarm.workers)
        assert small.kind == outcome.failure.kind
        assert len(small.items) < len(outcome.failure.items)
        assert len(small.items) <= 5
        for index in range(len(small.items)):
            fewer = small.items[:index] + small.items[index + 1 :]
            again = rerun(fewer, outcome.swarm.workers)
            assert again is None or again.kind != small.kind or len(again.items) >= len(small.items)
        save(small.items, log, small)
        with log.open("rb") as stream:
            found = verify(stream)
        assert not found.same
        assert found.failure is not None
        assert found.failure_now == f"{small.check}: {small.message}"
    with log.open("rb") as stream:
        mended = verify(stream)
    assert mended.failure == found.failure
    assert mended.failure_now is None
    assert mended.same


def test_the_command_saves_what_fails_and_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["fuzz", "--seed", "1", "--seeds", "1", "--events", "60", "--out", str(tmp_path / "found")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0
    assert "1 seeds from 1 on" in done.output
    assert done.output.endswith("no violation\n")
    break_release(monkeypatch)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "resources held are not the sum over live attempts" in done.output
    log = tmp_path / "found" / "fuzz-1.replay"
    assert log.exists()
    assert CliRunner().invoke(main, ["verify", str(log)]).exit_code == 1
    monkeypatch.undo()
    done = CliRunner().invoke(main, ["verify", str(log)])
    assert done.exit_code == 0
    assert "it fails no more" in done.output


def test_jobs_that_never_end_are_noticed() -> None:
    monitor = Monitor()
    monitor.handle(ConfigLoaded(at=0, config=simple()))
    monitor.handle(JobSubmitted(at=0, job=JobSpec(id="a")))
    with pytest.raises(CheckError, match="stuck: 1 jobs never end, as Job a has been waiting for 0 s at place 1"):
        monitor.finish()


# The model alone: what no core may decide.

JOB = JobSpec(id="a", request=ResourceRequest(process_slots=2, exclusivity_keys=("k",)), deadline_us=9)
RIGHT = Dispatch("a", 1, (("n", Resources(process_slots=2)),))


@pytest.mark.parametrize(
    ("event", "decision", "message"),
    [
        (Tick(at=1), Dispatch("b", 1, RIGHT.allocation), "job b was never accepted"),
        (Tick(at=1), Dispatch("a", 2, RIGHT.allocation), "attempt 2 of a should be 1"),
        (Tick(at=1), Dispatch("a", 1, (("m", Resources(process_slots=2)),)), "is put on m, which takes no"),
        (Tick(at=1), Dispatch("a", 1, (("n", Resources(process_slots=1)),)), "asked for .* and got"),
        (Tick(at=9), RIGHT, "first starts after its deadline"),
        (
            WorkerUpdated(at=1, worker="n", capacity=Resources(process_slots=1)),
            RIGHT,
            "has .* left and gives",
        ),
    ],
)
def test_the_model_refuses_what_cannot_be(event: Event, decision: Decision, message: str) -> None:
    world, model = World(simple(), {"n": 2}), Model()
    for sent, decisions in world.log:
        model.follow(world.core, sent, decisions)
    quiet = JobSubmitted(at=0, job=JOB, run_pass=False)
    model.follow(world.core, quiet, world.core.handle(quiet))
    with pytest.raises(CheckError, match=message):
        model.follow(world.core, event, (decision,))


def test_the_model_and_the_core_must_agree_on_what_runs() -> None:
    world, model = World(simple(), {"n": 2}), Model()
    world.submit("a", 2)
    event, _ = world.log[-1]
    with pytest.raises(CheckError, match="live: the core has"):
        model.follow(world.core, event, ())
