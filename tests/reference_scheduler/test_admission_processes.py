"""Capacity comes back whatever becomes of the processes that used it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from executor_world import Driver
from msgspec.structs import replace
from process_world import named, new_token, run

from reference_scheduler.admission import AdmissionController, Admitted, TemporarilyBlocked
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import ResourceRequest
from reference_scheduler.executors import AttemptResult, ManagedArgvExecutor, StopReason
from reference_scheduler.processes import tree
from reference_scheduler.processes.service import ManagedProcessService

ONE = ResourceRequest(process_slots=1)


async def admitted_attempt(
    controller: AdmissionController, executor: ManagedArgvExecutor, driver: Driver
) -> AttemptResult:
    """Run an attempt under a permit of ``controller``."""
    driver.permit.release()
    with controller.try_admit(ONE) as permit:
        return await executor.run(replace(driver.context, permit=permit))


def endless(token: str, **options: Any) -> Driver:
    """Return an attempt that never ends by itself."""
    return Driver("managed_argv", {"argv": ["/bin/sh", "-c", "sleep 600; exit", token]}, **options)


def test_after_fifty_kills_all_capacity_is_back() -> None:
    controller = AdmissionController(Resources(process_slots=4))

    async def body(processes: ManagedProcessService) -> list[AttemptResult]:
        executor = ManagedArgvExecutor(processes)
        results = []
        for turn in range(50):
            token = new_token()
            running = asyncio.ensure_future(admitted_attempt(controller, executor, endless(token)))
            while not (found := named(token)):
                await asyncio.sleep(0.001)
            supervisor = tree.look_up(found[0])
            assert supervisor is not None
            os.kill(supervisor.parent if turn % 2 else found[0], signal.SIGKILL)
            results.append(await running)
            assert named(token) == []
        return results

    results = run(body)
    assert [(result.state, result.signal) for result in results] == [("failed", 9), ("interrupted", None)] * 25
    assert controller.available == Resources(process_slots=4)


def test_a_cancelled_attempt_frees_the_only_slot_for_the_next() -> None:
    controller = AdmissionController(Resources(process_slots=1))
    token = new_token()

    async def body(processes: ManagedProcessService) -> tuple[AttemptResult, AttemptResult]:
        executor = ManagedArgvExecutor(processes)
        driver = endless(token)
        running = asyncio.ensure_future(admitted_attempt(controller, executor, driver))
        while not named(token):
            await asyncio.sleep(0.001)
        assert isinstance(controller.try_admit(ONE), TemporarilyBlocked)
        driver.stop.set(StopReason.CANCELLED)
        cancelled = await running
        after = Driver("managed_argv", {"argv": ["/bin/true"]})
        return cancelled, await admitted_attempt(controller, executor, after)

    cancelled, after = run(body)
    assert (cancelled.state, after.state) == ("cancelled", "completed")


def test_what_cannot_be_started_gives_its_permit_back_once() -> None:
    controller = AdmissionController(Resources(process_slots=1))

    async def body(processes: ManagedProcessService) -> AttemptResult:
        driver = Driver("managed_argv", {"argv": ["/no/such/program"]})
        return await admitted_attempt(controller, ManagedArgvExecutor(processes), driver)

    assert run(body).state == "failed"
    outcome = controller.try_admit(ONE)
    assert isinstance(outcome, Admitted)
    assert controller.available == Resources()
    outcome.permit.release()
