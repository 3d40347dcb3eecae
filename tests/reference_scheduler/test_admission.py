"""Permits without jobs: all or nothing, never more than the budget, each given back exactly once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from reference_scheduler.admission import (
    AdmissionController,
    Admitted,
    Impossible,
    NotAdmittedError,
    Permit,
    TemporarilyBlocked,
)
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import ResourceRequest

BUDGET = Resources(8, 8192, 4, 8, 4)
ONE = ResourceRequest(1, 256, 1, 1, 0)
ALL = ResourceRequest(*BUDGET)


def admitted(controller: AdmissionController, request: ResourceRequest) -> Permit:
    """Return the permit that ``controller`` gives."""
    outcome = controller.try_admit(request)
    assert isinstance(outcome, Admitted)
    return outcome.permit


def forget(held: Admitted | TemporarilyBlocked | Impossible | Permit) -> None:
    """Lose the last reference to ``held``."""
    del held
    gc.collect()


def test_the_default_budget_is_that_of_the_configuration() -> None:
    assert AdmissionController().available == BUDGET


def test_a_permit_takes_every_dimension_and_gives_all_of_it_back() -> None:
    controller = AdmissionController()
    with controller.try_admit(ResourceRequest(2, 1024, 1, 2, 3)) as permit:
        assert (permit.live, controller.available) == (True, (6, 7168, 3, 6, 1))
    assert (permit.live, controller.available) == (False, BUDGET)


@pytest.mark.parametrize("dimension", range(5))
def test_more_than_the_budget_is_impossible_and_says_both_numbers(dimension: int) -> None:
    controller = AdmissionController()
    name, most = Resources._fields[dimension], BUDGET[dimension]
    request = convert({name: most + 1}, ResourceRequest)
    outcome = controller.try_admit(request)
    reason = f"needs {most + 1} {name} with {most} free"
    assert outcome == Impossible(request, BUDGET, reason)
    assert controller.available == BUDGET


def test_what_others_hold_blocks_for_a_time_and_holds_nothing_itself() -> None:
    controller = AdmissionController()
    first = admitted(controller, ResourceRequest(process_slots=3))
    request = ResourceRequest(cpu_weight=1, process_slots=2)
    assert controller.try_admit(request) == TemporarilyBlocked(
        request, Resources(8, 8192, 1, 8, 4), "needs 2 process_slots with 1 free"
    )
    assert first.release()
    with controller.try_admit(request):
        assert controller.available == (7, 8192, 2, 8, 4)


def test_a_key_has_one_holder_however_it_is_written() -> None:
    controller = AdmissionController()
    first = admitted(controller, ResourceRequest(exclusivity_keys=("tree", "other")))
    request = ResourceRequest(exclusivity_keys=("exclusive:tree",))
    outcome = controller.try_admit(request)
    assert outcome == TemporarilyBlocked(request, BUDGET, "exclusive:tree is held by another")
    first.release()
    assert admitted(controller, request).release()


def test_no_block_is_entered_without_a_permit() -> None:
    controller = AdmissionController(Resources(process_slots=1))
    with controller.try_admit(ResourceRequest(process_slots=1)):
        with (
            pytest.raises(NotAdmittedError, match="needs 1 process_slots with 0 free") as blocked,
            controller.try_admit(ResourceRequest(process_slots=1)),
        ):
            pytest.fail("entered")
        with (
            pytest.raises(NotAdmittedError, match="needs 2 process_slots with 1 free") as impossible,
            controller.try_admit(ResourceRequest(process_slots=2)),
        ):
            pytest.fail("entered")
    assert isinstance(blocked.value.outcome, TemporarilyBlocked)
    assert isinstance(impossible.value.outcome, Impossible)


@pytest.mark.parametrize("quantity", [-1, 1 << 31])
def test_a_quantity_that_cannot_be_counted_is_refused(quantity: int) -> None:
    with pytest.raises(ValueError, match="cpu_weight must be between 0 and"):
        AdmissionController().try_admit(ResourceRequest(cpu_weight=quantity))


def test_a_smaller_budget_takes_nothing_away_and_admits_nothing_until_it_fits() -> None:
    controller = AdmissionController()
    held = admitted(controller, ResourceRequest(process_slots=3))
    controller.set_budget(Resources(8, 8192, 2, 8, 4))
    assert held.live
    assert isinstance(controller.try_admit(ONE), TemporarilyBlocked)
    held.release()
    assert controller.available.process_slots == 2


# Exactly once.


def test_an_exception_and_a_second_release_give_back_once() -> None:
    controller = AdmissionController()
    with pytest.raises(KeyError), controller.try_admit(ONE) as permit:
        raise KeyError
    other = admitted(controller, ALL)
    assert not permit.release()
    assert controller.available == Resources()
    other.release()


def test_a_cancelled_task_gives_back() -> None:
    controller = AdmissionController()

    async def work() -> None:
        with controller.try_admit(ALL):
            await asyncio.Event().wait()

    async def body() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        assert controller.available == Resources()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())
    assert controller.available == BUDGET


def test_a_forgotten_permit_gives_back_with_a_warning() -> None:
    controller = AdmissionController()
    with pytest.warns(ResourceWarning, match="a permit was never released: ResourceRequest"):
        forget(controller.try_admit(ALL))
    assert controller.available == BUDGET


def test_a_detached_permit_outlives_its_block_and_is_the_callers() -> None:
    controller = AdmissionController()
    with controller.try_admit(ALL) as permit:
        kept = permit.detach()
        assert (permit.live, kept.live) == (False, True)
    assert controller.available == Resources()
    assert kept.release()
    assert controller.available == BUDGET
    with pytest.raises(ValueError, match="released or detached already"):
        permit.detach()


def test_a_detached_permit_that_is_forgotten_gives_back_with_a_warning() -> None:
    controller = AdmissionController()
    with pytest.warns(ResourceWarning, match="a permit was never released"):
        forget(admitted(controller, ALL).detach())
    assert controller.available == BUDGET


def test_a_permit_that_is_collected_inside_the_controller_waits_its_turn() -> None:
    """A finalizer can run at any moment, also while this thread is inside the controller."""
    controller = AdmissionController()
    permit = admitted(controller, ALL)
    with controller._lock:
        assert permit.release()
    assert controller.available == BUDGET


def test_of_many_releases_at_once_one_takes_effect() -> None:
    released: list[None] = []
    for _ in range(200):
        permit = Permit(ONE, lambda: released.append(None))
        done: list[bool] = []
        in_threads(8, partial(release_into, permit, done))
        assert sorted(done) == [False] * 7 + [True]
    assert len(released) == 200


def release_into(permit: Permit, done: list[bool]) -> None:
    """Note whether a release took effect."""
    done.append(permit.release())


def test_sixty_four_threads_never_hold_more_than_the_budget() -> None:
    controller = AdmissionController()
    inside, most, entered = [0], [0], [0]
    lock = threading.Lock()

    def work() -> None:
        mine = 0
        while mine < 20:
            with suppress(NotAdmittedError), controller.try_admit(ONE):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                mine += 1
                with lock:
                    inside[0] -= 1
                    entered[0] += 1

    in_threads(64, work)
    assert 1 <= most[0] <= BUDGET.process_slots
    assert entered[0] == 64 * 20
    assert controller.available == BUDGET


def in_threads(count: int, work: Callable[[], object]) -> None:
    """Run ``work`` in ``count`` threads that begin together."""
    barrier = threading.Barrier(count)

    def body() -> None:
        barrier.wait()
        work()

    threads = [threading.Thread(target=body) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


REQUESTS = st.builds(
    ResourceRequest,
    *[st.integers(0, 10)] * 5,
    exclusivity_keys=st.lists(st.sampled_from("abc"), max_size=2).map(tuple),
)


@given(st.lists(st.one_of(REQUESTS, st.integers(0, 9)), max_size=40))
def test_what_is_available_is_always_the_budget_less_the_live_permits(steps: list[ResourceRequest | int]) -> None:
    budget = Resources(20, 20, 20, 20, 20)
    controller = AdmissionController(budget)
    permits: list[Permit] = []
    for step in steps:
        if isinstance(step, ResourceRequest):
            outcome = controller.try_admit(step)
            free = controller.available
            fits = all(want <= have for want, have in zip(step.resources, free, strict=True))
            clash = any(set(step.keys) & set(permit.request.keys) for permit in permits)
            if isinstance(outcome, Admitted):
                assert not clash
                permits.append(outcome.permit)
            else:
                assert isinstance(outcome, TemporarilyBlocked)
                assert clash or not fits
        elif permits:
            permits.pop(step % len(permits)).release()
        held = [sum(column) for column in zip(*(permit.request.resources for permit in permits), strict=True)]
        expected = [size - used for size, used in zip(budget, held or [0] * 5, strict=True)]
        assert list(controller.available) == expected
    for permit in permits:
        permit.release()
    assert controller.available == budget
