"""What is particular to each executor, and which one carries out which kind of job."""

from __future__ import annotations

import asyncio
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from executor_world import Driver, attempt, until
from process_world import new_token, run

from reference_scheduler.core.model import AttemptState, Failure
from reference_scheduler.executors import (
    AttemptResult,
    Call,
    ExecutorRegistry,
    ManagedArgvExecutor,
    Progress,
    StopReason,
    StopSignal,
    SubagentExecutor,
    TestRunExecutor,
    default_registry,
)
from reference_scheduler.executors.managed_argv import attempt_result
from reference_scheduler.executors.test_run import Counts, read_report
from reference_scheduler.processes.model import Ending, ProcessResult
from reference_scheduler.processes.service import ManagedProcessService


def run_kind(kind: str, payload: dict[str, Any], **options: Any) -> AttemptResult:
    """Run one attempt of a job of ``kind``."""

    async def body(processes: ManagedProcessService) -> AttemptResult:
        return await attempt(default_registry(processes).of(kind), payload, **options)

    return run(body)


# The registry.


def test_every_kind_of_the_vocabulary_has_an_executor() -> None:
    registry = default_registry(ManagedProcessService())
    assert registry.kinds == (
        *("build", "format", "git_mutation", "git_read", "lint", "maintenance", "managed_argv", "managed_process"),
        *("python", "shell", "subagent", "test", "test_run"),
    )
    assert {kind: registry.executor_kind_for_job(kind) for kind in ("build", "shell", "python", "test", "own")} == {
        "build": "managed_argv",
        "shell": "shell",
        "python": "python",
        "test": "test_run",
        "own": "own",
    }
    assert all(kind in registry for kind in registry.kinds)
    assert "own" not in registry
    assert None not in registry
    with pytest.raises(KeyError, match="own"):
        registry.of("own")


def test_a_second_executor_of_a_kind_is_refused() -> None:
    registry = default_registry(ManagedProcessService())
    with pytest.raises(ValueError, match="an executor of kind 'subagent' is registered already"):
        registry.register(SubagentExecutor())
    with pytest.raises(ValueError, match="kind 'subagent' is registered already"):
        ExecutorRegistry([SubagentExecutor(), SubagentExecutor()])


def test_an_executor_that_is_named_like_a_kind_of_job_takes_it_over() -> None:
    processes = ManagedProcessService()
    registry = default_registry(processes)
    own = ManagedArgvExecutor(processes, "build")
    registry.register(own)
    assert registry.of("build") is own
    assert registry.of("lint") is not own


# The signal to stop.


def test_a_stop_signal_keeps_its_first_reason_and_tells_whoever_asks() -> None:
    async def body() -> list[tuple[StopReason | None, bool]]:
        stop = StopSignal()
        told: list[tuple[StopReason | None, bool]] = []
        stop.add_callback(lambda: told.append((stop.reason, stop.hurry)))
        waiting = asyncio.ensure_future(stop.wait())
        await asyncio.sleep(0)
        stop.set(StopReason.LEASE)
        stop.set(StopReason.CANCELLED)
        stop.set_hurry()
        stop.set_hurry()
        assert await waiting is StopReason.LEASE
        assert await stop.wait() is StopReason.LEASE
        stop.add_callback(lambda: told.append((None, False)))
        return told

    assert asyncio.run(body()) == [(StopReason.LEASE, False), (StopReason.LEASE, True), (None, False)]


# Managed processes.


def test_output_directory_and_marks_of_a_process(tmp_path: Path) -> None:
    script = 'pwd; echo "$A $SPAWNGATE_OWNER $SPAWNGATE_GENERATION $SPAWNGATE_JOB $SPAWNGATE_ATTEMPT"; echo bad >&2'
    result = run_kind("shell", {"script": script, "env": {"A": "a"}, "cwd": str(tmp_path)})
    assert result.stdout.head.decode() == f"{tmp_path}\na owner generation job 1\n"
    assert result.stderr.head == b"bad\n"
    assert (result.exit_code, result.signal) == (0, None)


@pytest.mark.parametrize(("workspace", "cwd"), [("/usr", "/usr"), ("project", "/"), ("", "/")])
def test_a_process_runs_in_its_workspace_if_that_is_a_path(workspace: str, cwd: str) -> None:
    assert run_kind("build", {"argv": ["/bin/pwd"]}, workspace=workspace).stdout.head.decode() == f"{cwd}\n"


def test_no_shell_reads_the_arguments() -> None:
    assert run_kind("lint", {"argv": ["/bin/echo", "$HOME; *"]}).stdout.head == b"$HOME; *\n"


def test_a_program_that_is_missing_is_a_failure_of_the_request() -> None:
    result = run_kind("build", {"argv": ["/no/such/program"]})
    assert (result.state, result.failure) == (AttemptState.FAILED, Failure.VALIDATION)
    assert result.detail == "could not be started: /no/such/program: No such file or directory"


def test_a_second_signal_takes_the_grace_away() -> None:
    token = new_token()

    async def body(processes: ManagedProcessService) -> AttemptResult:
        executor = default_registry(processes).of("shell")
        driver = Driver("shell", {"script": "trap '' TERM; while :; do sleep 600; done", "env": {"A": token}})
        running = asyncio.ensure_future(driver.run(executor))
        await asyncio.sleep(0)
        driver.stop.set(StopReason.SHUTDOWN)
        driver.stop.set_hurry()
        return await running

    result = run(body)
    assert result.state is AttemptState.INTERRUPTED


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ProcessResult(Ending.EXITED, 3), ("failed", "execution", "exit status 3")),
        (ProcessResult(Ending.SIGNALLED, signal=11), ("failed", "execution", "ended by SIGSEGV")),
        (ProcessResult(Ending.SIGNALLED, signal=40), ("failed", "execution", "ended by signal 40")),
        (ProcessResult(Ending.TIMED_OUT, signal=15), ("timed_out", "execution", "timed out")),
        (ProcessResult(Ending.OUTPUT_LIMIT, signal=15), ("failed", "execution", "printed more than max_output_bytes")),
        (ProcessResult(Ending.SUPERVISOR_LOST, detail="lost"), ("interrupted", "unknown", "lost")),
        (
            ProcessResult(Ending.SPAWN_FAILED, failure=Failure.TRANSIENT, detail="too many"),
            ("failed", "transient", "could not be started: too many"),
        ),
    ],
)
def test_each_end_of_a_process_is_one_end_of_its_attempt(result: ProcessResult, expected: tuple[str, str, str]) -> None:
    ended = attempt_result(result, None)
    assert (ended.state, ended.failure, ended.detail) == expected
    assert (ended.exit_code, ended.signal) == (result.exit_code, result.signal)


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("build", {}, "argv"),
        ("build", {"argv": []}, "argv: needs a program"),
        ("build", {"argv": "make all"}, r"Expected `array`, got `str` - at `\$.argv`"),
        ("build", {"argv": ["make", 1]}, r"Expected `str`, got `int` - at `\$.argv\[1\]`"),
        ("build", {"argv": ["make"], "script": "make"}, "unknown field `script`"),
        ("build", {"argv": ["make"], "cwd": "src"}, "cwd: 'src' is not an absolute path"),
        ("build", {"argv": ["make"], "env": {"LD_PRELOAD": "x"}}, "env: LD_PRELOAD makes other programs run code"),
        ("build", {"argv": ["make"], "max_output_bytes": -1}, "max_output_bytes must be between"),
        ("shell", {"script": "a\0"}, "argv: no process can be given a NUL"),
        ("python", {}, "code: needs source text"),
        ("test", {"report": "report.xml"}, "report: 'report.xml' is not an absolute path"),
        ("subagent", {"callable": "missing"}, "callable: 'missing' is not registered; there are: none"),
    ],
)
def test_a_payload_is_refused_at_submission(kind: str, payload: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        default_registry(ManagedProcessService()).of(kind).check(payload)


def test_python_takes_source_text_and_arguments() -> None:
    result = run_kind("python", {"code": "import sys; print(sys.argv)", "argv": ["a"]})
    assert result.stdout.head == b"['-c', 'a']\n"
    assert run_kind("python", {"argv": ["-c", "print(1)"]}).stdout.head == b"1\n"


# Runs of pytest.

SUITE = """
import pytest
def test_good(): pass
@pytest.mark.skip
def test_skipped(): pass
def test_bad(): assert 1 == 2
@pytest.fixture
def broken(): raise RuntimeError("broken")
def test_error(broken): pass
"""


def test_a_test_run_counts_and_names_what_failed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    report = tmp_path / "report.xml"
    report.write_text("of an earlier run")

    async def body(processes: ManagedProcessService) -> tuple[AttemptResult, list[Progress]]:
        executor = TestRunExecutor(processes)
        driver = Driver("test", {"args": ["-p", "no:cacheprovider"], "report": str(report)}, workspace=str(tmp_path))
        return await driver.run(executor), driver.reports

    result, reports = run(body)
    counts = {"tests": 4, "passed": 1, "failed": 1, "errors": 1, "skipped": 1}
    assert (result.state, result.failure, result.exit_code) == (AttemptState.FAILED, Failure.EXECUTION, 1)
    assert result.detail == "2 of 4 tests failed"
    assert {name: result.values[name] for name in counts} == counts
    failures = result.values["failures"]
    assert [failure["test"] for failure in failures] == ["test_it::test_bad", "test_it::test_error"]
    assert failures[0]["message"].startswith("assert 1 == 2")
    assert result.values["report"] == str(report)
    assert report.read_text().startswith("<?xml")
    assert reports == [Progress(1.0, counts=counts)]


def test_a_report_that_nobody_asked_for_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "test_it.py").write_text("def test_good(): pass")
    result = run_kind("test", {"args": ["-p", "no:cacheprovider"], "cwd": str(tmp_path)})
    assert (result.state, result.values["passed"]) == (AttemptState.COMPLETED, 1)
    assert "report" not in result.values
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("python", "args", "failure", "detail"),
    [
        ("/bin/true", [], Failure.VALIDATION, "no report: No such file or directory"),
        (sys.executable, ["--no-such-option"], Failure.VALIDATION, "exit status 4, no report"),
        ("/bin/false", [], Failure.EXECUTION, "exit status 1, no report"),
    ],
)
def test_a_run_without_a_report_has_failed(python: str, args: list[str], failure: Failure, detail: str) -> None:
    result = run_kind("test", {"python": python, "args": args})
    assert (result.state, result.failure) == (AttemptState.FAILED, failure)
    assert result.detail.startswith(detail)


def test_a_report_of_an_earlier_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text("<testsuites><testcase name='old'/></testsuites>")
    result = run_kind("test", {"python": "/bin/true", "report": str(report)})
    assert (result.state, result.detail) == (AttemptState.FAILED, "no report: No such file or directory")


def test_a_report_that_is_none_is_a_failure(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nfor last; do :; done; echo "<testsuites><testcase" > "${last#--junitxml=}"\n')
    fake.chmod(0o755)
    result = run_kind("test", {"python": str(fake)})
    assert (result.state, result.failure) == (AttemptState.FAILED, Failure.VALIDATION)
    assert result.detail.startswith("the report is not XML: ")


def test_a_report_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nfor last; do :; done; mkfifo "${last#--junitxml=}"\n')
    fake.chmod(0o755)
    result = run_kind("test", {"python": str(fake)})
    assert (result.state, result.detail) == (AttemptState.FAILED, "the report is no regular file")


def test_only_what_stands_right_in_a_test_is_its_outcome(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><failure/><testsuite>"
        "<testcase classname='m' name='a'><system-out><error/></system-out></testcase>"
        "<testcase classname='m' name='b'><properties/><error message='no'/><failure message='later'/></testcase>"
        "<testcase classname='m' name='c'><skipped message='not now'/></testcase><failure/>"
        "<testcase classname='m' name='d'><failure/></testcase>"
        "</testsuite></testsuites>"
    )
    failures = [{"test": "m::b", "message": "no"}, {"test": "m::d", "message": ""}]
    assert read_report(report) == Counts(4, 1, 1, 1, 1, failures)


def test_a_long_report_takes_no_memory(tmp_path: Path) -> None:
    report, count = tmp_path / "report.xml", 100_000
    report.write_text(f"<testsuite>{'<testcase/><x/>' * count}</testsuite>")
    tracemalloc.start()
    try:
        assert read_report(report).tests == count
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# Callables.


def run_callable(function: Any, arguments: dict[str, Any], **options: Any) -> AttemptResult:
    """Run one attempt that calls ``function``."""
    return asyncio.run(as_coroutine(function, arguments, **options))


async def as_coroutine(function: Any, arguments: dict[str, Any], **options: Any) -> AttemptResult:
    """Run one attempt that calls ``function``, on the running loop."""
    payload = {"callable": "it", "arguments": arguments}
    return await attempt(SubagentExecutor({"it": function}), payload, **options)


class Adder:
    """A callable that is no function, and gives a coroutine."""

    async def __call__(self, call: Call, a: int, b: int = 1) -> dict[str, int]:
        return {call.job: a + b * call.attempt}


def test_a_callable_gets_its_arguments_and_returns_a_value() -> None:
    def add(call: Call, a: int, b: int = 1) -> dict[str, int]:
        assert threading.current_thread() is not threading.main_thread()
        return {call.job: a + b * call.attempt}

    for function in (add, Adder()):
        result = run_callable(function, {"a": 2})
        assert (result.state, result.values) == (AttemptState.COMPLETED, {"result": {"job": 3}})


def test_a_callable_reports_progress_from_its_thread() -> None:
    async def body() -> list[Progress]:
        def work(call: Call) -> None:
            assert call.heartbeat()
            assert call.progress(Progress(0.5, "half"))

        driver = Driver("subagent", {"callable": "it"})
        await driver.run(SubagentExecutor({"it": work}))
        return driver.reports

    assert asyncio.run(body()) == [Progress(0.5, "half")]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (PermissionError("no"), Failure.PERMISSION),
        (ConnectionResetError("no"), Failure.TRANSIENT),
        (TimeoutError("no"), Failure.TIMEOUT),
        (RuntimeError("no"), Failure.EXECUTION),
        (SystemExit("no"), Failure.EXECUTION),
        (KeyboardInterrupt("no"), Failure.EXECUTION),
    ],
)
def test_what_a_callable_raises_says_what_kind_of_failure_it_is(error: BaseException, failure: Failure) -> None:
    def work(call: Call) -> None:
        raise error

    async def work_async(call: Call) -> None:
        raise error

    for function in (work, work_async):
        result = run_callable(function, {})
        assert (result.state, result.failure) == (AttemptState.FAILED, failure)
        assert result.detail.endswith(f"{type(error).__name__}: no")


def test_what_a_callable_says_can_always_be_written() -> None:
    def work(call: Call) -> None:
        raise LookupError("\ud800" + "x" * 5000 + "\n")

    detail = run_callable(work, {}).detail
    assert detail == ("LookupError: \\ud800" + "x" * 5000)[:1000]
    msgspec.json.encode(detail)


@pytest.mark.parametrize(("value", "detail"), [({1j}, "TypeError: "), ("x" * (1 << 18), "it returned 262146 bytes")])
def test_a_value_that_cannot_be_kept_is_a_failure(value: object, detail: str) -> None:
    result = run_callable(lambda call: value, {})
    assert result.state is AttemptState.FAILED
    assert result.detail.startswith(detail)


def test_a_coroutine_that_cancels_itself_was_not_stopped() -> None:
    async def work(call: Call) -> None:
        raise asyncio.CancelledError

    result = run_callable(work, {})
    assert (result.state, result.detail) == (AttemptState.FAILED, "it cancelled itself")


def test_an_attempt_that_waits_for_a_thread_can_be_stopped() -> None:
    release = threading.Event()
    calls: list[str] = []

    def work(call: Call, name: str) -> None:
        calls.append(name)
        release.wait()

    async def body() -> tuple[AttemptResult, AttemptResult]:
        executor = SubagentExecutor({"it": work}, max_threads=1)
        first, second = (Driver("subagent", {"callable": "it", "arguments": {"name": name}}) for name in "ab")
        busy = asyncio.ensure_future(first.run(executor))
        await until(lambda: bool(calls))
        waiting = asyncio.ensure_future(second.run(executor))
        await asyncio.sleep(0)
        second.stop.set(StopReason.CANCELLED)
        stopped = await waiting
        release.set()
        return stopped, await busy

    stopped, finished = asyncio.run(body())
    assert (stopped.state, finished.state, calls) == (AttemptState.CANCELLED, AttemptState.COMPLETED, ["a"])


def test_names_and_arguments_of_callables_are_checked() -> None:
    executor = SubagentExecutor({"add": lambda call, a: a})
    with pytest.raises(ValueError, match="a callable 'add' is registered already"):
        executor.register("add", print)
    with pytest.raises(ValueError, match="callable: 'sub' is not registered; there are: add"):
        executor.check({"callable": "sub"})
    with pytest.raises(ValueError, match="arguments: add: missing a required argument: 'a'"):
        executor.check({"callable": "add"})
    with pytest.raises(ValueError, match="arguments: add: got an unexpected keyword argument 'b'"):
        executor.check({"callable": "add", "arguments": {"a": 1, "b": 2}})
