"""One suite that every executor passes, a user's own as well."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from executor_world import Driver, until
from process_world import named, new_token, run

from reference_scheduler.admission import Permit
from reference_scheduler.core.model import AttemptState, Failure, ResourceRequest
from reference_scheduler.executors import (
    AttemptContext,
    AttemptResult,
    Call,
    Executor,
    ExecutorRegistry,
    PermitRequiredError,
    StopReason,
    SubagentExecutor,
    default_registry,
    stopped_state,
)
from reference_scheduler.executors.base import require_permit
from reference_scheduler.processes.service import ManagedProcessService


class Waiter:
    """A user's executor: it waits for nothing, or for ever."""

    kind = "waiter"

    def __init__(self) -> None:
        self.waiting = 0

    def check(self, payload: Mapping[str, Any]) -> None:
        if payload.get("how") not in ("briefly", "badly", "forever"):
            raise ValueError("how: must be briefly, badly or forever")

    async def run(self, context: AttemptContext) -> AttemptResult:
        require_permit(context)
        if context.payload["how"] == "briefly":
            return AttemptResult(AttemptState.COMPLETED)
        if context.payload["how"] == "badly":
            return AttemptResult(AttemptState.FAILED, failure=Failure.EXECUTION, detail="badly")
        self.waiting += 1
        try:
            return AttemptResult(stopped_state(await context.stop.wait()))
        finally:
            self.waiting -= 1


class Case:
    """An executor with payloads that end well, end badly, never end, and are none."""

    def __init__(self, folder: Path, kind: str, processes: ManagedProcessService) -> None:
        self.token = new_token()
        self.inside: list[None] = []
        waiter, subagents = Waiter(), SubagentExecutor()
        registry = ExecutorRegistry([waiter])
        for executor in (default_registry(processes).of(name) for name in ("build", "shell", "python", "test")):
            registry.register(executor)
        registry.register(subagents)
        self.executor: Executor = registry.of(kind.partition("-")[0])
        self.good: dict[str, Any]
        self.bad: dict[str, Any]
        self.endless: dict[str, Any]
        self.wrong: dict[str, Any]
        self.alive: Callable[[], bool] = lambda: bool(named(self.token) or self.inside or waiter.waiting)
        getattr(self, f"_{kind.replace('-', '_')}")(folder, subagents)

    def _managed_argv(self, folder: Path, _: SubagentExecutor) -> None:
        self.good, self.bad, self.wrong = {"argv": ["true"]}, {"argv": ["false"]}, {"argv": []}
        self.endless = {"argv": ["/bin/sh", "-c", "sleep 600; exit", self.token]}

    def _shell(self, folder: Path, _: SubagentExecutor) -> None:
        self.good, self.bad, self.wrong = {"script": "exit 0"}, {"script": "exit 1"}, {"argv": ["true"]}
        self.endless = {"script": f"/bin/sh -c 'sleep 600; exit' {self.token}; exit"}

    def _python(self, folder: Path, _: SubagentExecutor) -> None:
        self.good, self.bad, self.wrong = {"code": "1"}, {"code": "1/0"}, {"code": 1}
        self.endless = {"code": "import time; time.sleep(600)", "argv": [self.token]}

    def _test(self, folder: Path, _: SubagentExecutor) -> None:
        wait = f"import subprocess; subprocess.run(['/bin/sh', '-c', 'sleep 600; exit', '{self.token}'])"
        texts = {"good": "def test(): pass", "bad": "def test(): assert 0", "endless": f"def test(): {wait}"}
        for name, text in texts.items():
            (folder / f"test_{name}.py").write_text(text)
            setattr(self, name, {"args": ["-q", "-p", "no:cacheprovider", f"test_{name}.py"], "cwd": str(folder)})
        self.wrong = {"args": "tests"}

    def _subagent_async(self, folder: Path, subagents: SubagentExecutor) -> None:
        async def good(call: Call) -> None: ...

        async def bad(call: Call) -> None:
            raise LookupError("no\nsuch thing")

        async def endless(call: Call) -> None:
            self.inside.append(None)
            try:
                await asyncio.Event().wait()
            finally:
                self.inside.pop()

        self._callables(subagents, good, bad, endless)

    def _subagent_thread(self, folder: Path, subagents: SubagentExecutor) -> None:
        def good(call: Call) -> None: ...

        def bad(call: Call) -> None:
            raise LookupError("no\nsuch thing")

        def endless(call: Call) -> None:
            self.inside.append(None)
            while not call.stopping:
                threading.Event().wait(0.001)
            self.inside.pop()

        self._callables(subagents, good, bad, endless)

    def _callables(self, subagents: SubagentExecutor, *functions: Callable[[Call], object]) -> None:
        for function in functions:
            subagents.register(function.__name__, function)
        self.good, self.bad, self.endless = ({"callable": name} for name in ("good", "bad", "endless"))
        self.wrong = {"callable": "missing"}

    def _waiter(self, folder: Path, _: SubagentExecutor) -> None:
        self.good, self.bad, self.endless = ({"how": how} for how in ("briefly", "badly", "forever"))
        self.wrong = {"how": "slowly"}


KINDS = ("managed_argv", "shell", "python", "test", "subagent-async", "subagent-thread", "waiter")
Run = Callable[[Callable[[Case], Any]], Any]


@pytest.fixture(params=KINDS)
def with_case(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Call a coroutine function with the case of a kind."""

    def with_case(body: Callable[[Case], Any]) -> Any:
        return run(lambda processes: body(Case(tmp_path, request.param, processes)))

    return with_case


def test_work_that_ends_well_is_completed(with_case: Run) -> None:
    async def body(case: Case) -> AttemptResult:
        return await Driver(case.executor.kind, case.good).run(case.executor)

    result = with_case(body)
    assert (result.state, result.failure) == (AttemptState.COMPLETED, Failure.UNKNOWN)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=AttemptResult) == result
    msgspec.json.encode(result.values)


def test_work_that_ends_badly_has_failed_and_says_so_in_a_line(with_case: Run) -> None:
    async def body(case: Case) -> AttemptResult:
        return await Driver(case.executor.kind, case.bad).run(case.executor)

    result = with_case(body)
    assert (result.state, result.failure) == (AttemptState.FAILED, Failure.EXECUTION)
    assert result.detail
    assert "\n" not in result.detail


def test_without_a_live_permit_nothing_runs(with_case: Run) -> None:
    async def body(case: Case) -> bool:
        driver = Driver(case.executor.kind, case.endless)
        driver.permit.release()
        with pytest.raises(PermitRequiredError, match="attempt 1 of job job has no permit"):
            await case.executor.run(driver.context)
        return case.alive()

    assert not with_case(body)


def test_a_payload_that_could_never_run_is_refused_with_its_key(with_case: Run) -> None:
    async def body(case: Case) -> tuple[str, str]:
        with pytest.raises(ValueError, match=r"^\w+: ") as refused:
            case.executor.check(case.wrong)
        return str(refused.value), next(iter(case.wrong))

    message, key = with_case(body)
    assert key in message
    assert "\n" not in message


@pytest.mark.parametrize("reason", StopReason)
def test_stopped_work_is_what_its_reason_makes_of_it_and_gone(with_case: Run, reason: StopReason) -> None:
    async def body(case: Case) -> tuple[AttemptResult, bool]:
        driver = Driver(case.executor.kind, case.endless)
        running = asyncio.ensure_future(driver.run(case.executor))
        await until(case.alive)
        driver.stop.set(reason)
        driver.stop.set(StopReason.CANCELLED)  # too late: the first reason stays
        return await running, case.alive()

    result, alive = with_case(body)
    expected = {"cancelled": "cancelled", "timeout": "timed_out"}.get(reason, "interrupted")
    assert (result.state, alive) == (expected, False)


def test_work_that_is_stopped_before_it_begins_ends_too(with_case: Run) -> None:
    async def body(case: Case) -> tuple[AttemptResult, bool]:
        driver = Driver(case.executor.kind, case.endless)
        driver.stop.set(StopReason.CANCELLED)
        return await driver.run(case.executor), case.alive()

    result, alive = with_case(body)
    assert (result.state, alive) == (AttemptState.CANCELLED, False)


def test_a_driver_that_is_cancelled_leaves_when_the_work_is_gone(with_case: Run) -> None:
    async def body(case: Case) -> bool:
        driver = Driver(case.executor.kind, case.endless)
        running = asyncio.ensure_future(driver.run(case.executor))
        await until(case.alive)
        running.cancel()
        if case.executor.kind == "subagent":
            driver.stop.set(StopReason.SHUTDOWN)  # a thread ends only if it is told
        with pytest.raises(asyncio.CancelledError):
            await running
        return case.alive()

    assert not with_case(body)


def test_attempts_side_by_side_keep_apart(with_case: Run) -> None:
    async def body(case: Case) -> list[AttemptResult]:
        drivers = [Driver(case.executor.kind, payload) for payload in (case.endless, case.good, case.bad)]
        first, *others = (asyncio.ensure_future(driver.run(case.executor)) for driver in drivers)
        results = [await other for other in others]
        assert not first.done()
        await until(case.alive)
        drivers[0].stop.set(StopReason.TIMEOUT)
        return [await first, *results]

    assert [result.state for result in with_case(body)] == ["timed_out", "completed", "failed"]


def test_the_permit_is_the_drivers_to_release(with_case: Run) -> None:
    released: list[None] = []

    async def body(case: Case) -> None:
        driver = Driver(case.executor.kind, case.good)
        permit = Permit(ResourceRequest(), lambda: released.append(None))
        await case.executor.run(msgspec.structs.replace(driver.context, permit=permit))
        assert (released, permit.live) == ([], True)
        permit.release()
        driver.permit.release()

    with_case(body)
    assert released == [None]
