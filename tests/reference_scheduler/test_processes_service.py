"""A managed process from start to end: what it is given, how it ends, what is kept of its output."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from pathlib import Path

import pytest
from process_world import named, new_token, open_fds, run, run_one, sh

from reference_scheduler.core.model import MAX_TIME_US, Failure
from reference_scheduler.processes import cgroup, tree
from reference_scheduler.processes.model import Output, ProcessResult, ProcessSpec
from reference_scheduler.processes.service import (
    MAX_IDLE,
    ManagedProcessService,
    ServiceClosedError,
)
from reference_scheduler.processes.supervisor import Ending

FOREVER_US = 600_000_000
IGNORE_TERM = "trap '' TERM; echo up; while :; do sleep 600; done"


async def up(token: str) -> None:
    """Wait until a process called ``token`` runs."""
    while not named(token):
        await asyncio.sleep(0.002)


def sleeper(token: str, **options: object) -> ProcessSpec:
    """Return a process of two, both called ``token``, of which the first waits for the second."""
    script = 'import os, sys; t = sys.argv[1]; os.spawnv(os.P_WAIT, "/bin/sleep", [t, "600"])'
    return ProcessSpec(argv=(sys.executable, "-c", script, token), **options)  # type: ignore[arg-type]


# How it ends.


def test_the_longest_timeout_is_no_trouble() -> None:
    spec = sh("sleep 0.01; exit 3", timeout_us=MAX_TIME_US, grace_us=MAX_TIME_US)
    assert run_one(spec).exit_code == 3


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
def test_an_exit_code_is_kept(code: int) -> None:
    result = run_one(sh(f"exit {code}"))
    assert (result.ending, result.exit_code, result.signal) == (Ending.EXITED, code, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_an_end_by_a_signal_is_told_apart_from_an_exit(number: signal.Signals) -> None:
    result = run_one(sh(f"kill -{int(number)} $$"))
    assert (result.ending, result.exit_code, result.signal) == (Ending.SIGNALLED, None, number)


def test_a_timeout_asks_first_and_keeps_the_exit_code() -> None:
    result = run_one(sh("trap 'echo bye; exit 7' TERM; sleep 600 & wait", timeout_us=100_000, grace_us=FOREVER_US))
    assert (result.ending, result.exit_code, result.stdout.head) == (Ending.TIMED_OUT, 7, b"bye\n")


def test_after_the_grace_it_is_killed() -> None:
    result = run_one(sh(IGNORE_TERM, timeout_us=50_000, grace_us=50_000))
    assert (result.ending, result.signal) == (Ending.TIMED_OUT, signal.SIGKILL)


def test_a_grandchild_that_holds_stdout_delays_nothing() -> None:
    result = run_one(sh("setsid sh -c \"trap '' TERM; sleep 600\" & echo on", timeout_us=FOREVER_US))
    assert (result.ending, result.exit_code, result.stdout.head) == (Ending.EXITED, 0, b"on\n")
    assert result.left_behind >= 1
    result = run_one(sh("setsid sh -c \"trap '' TERM; sleep 600\" & sleep 600", timeout_us=100_000, grace_us=50_000))
    assert result.ending is Ending.TIMED_OUT


def test_a_stop_with_a_long_grace_can_be_hurried() -> None:
    token = new_token()

    async def body(service: ManagedProcessService) -> ProcessResult:
        running = await service.start(ProcessSpec(argv=("/bin/sh", "-c", f"trap '' TERM; {IGNORE_TERM}", token)))
        await up(token)
        running.stop(FOREVER_US)
        running.stop(0)
        result = await running.wait()
        running.stop(0)  # too late to mean anything, for this process or the next one
        return result

    result = run(body)
    assert (result.ending, result.signal) == (Ending.STOPPED, signal.SIGKILL)


def test_the_first_reason_to_end_stays() -> None:
    async def body(service: ManagedProcessService) -> ProcessResult:
        running = await service.start(sh(IGNORE_TERM, timeout_us=1_500_000, grace_us=0))
        while len(tree.descendants(os.getpid())) < 4:  # guardian, supervisor, shell and sleep
            await asyncio.sleep(0.002)
        running.stop(FOREVER_US)
        return await running.wait()

    result = run(body)
    assert (result.ending, result.signal) == (Ending.STOPPED, signal.SIGKILL)


def test_an_idle_supervisor_keeps_no_directory_busy(tmp_path: Path) -> None:
    async def body(service: ManagedProcessService) -> Path:
        await service.run(ProcessSpec(argv=("/bin/true",), cwd=str(tmp_path)))
        await service.run(ProcessSpec(argv=("/no/such/program",), cwd=str(tmp_path)))
        supervisor = Path(f"/proc/{max(process.pid for process in tree.descendants(os.getpid()))}/cwd")
        while supervisor.readlink() != Path("/"):
            await asyncio.sleep(0.002)
        return supervisor.readlink()

    assert run(body) == Path("/")


def test_a_stop_that_comes_too_late_does_not_hit_the_next_process() -> None:
    async def body(service: ManagedProcessService) -> list[Ending]:
        endings = []
        for _ in range(50):
            running = await service.start(sh("exit 0"))
            (supervisor,) = [supervisor for supervisor in service._supervisors if supervisor.running]
            result = await running.wait()
            supervisor.send(0)  # as if it had been on its way when the process ended
            endings.append(result.ending)
        return endings

    assert set(run(body)) == {Ending.EXITED}


def test_a_caller_that_is_cancelled_leaves_when_everything_is_gone() -> None:
    token = new_token()

    async def body(service: ManagedProcessService) -> list[int]:
        task = asyncio.ensure_future(service.run(sleeper(token)))
        await up(token)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return named(token)

    assert run(body) == []


def test_closing_the_service_ends_what_runs_and_refuses_more() -> None:
    token = new_token()

    async def body() -> ProcessResult:
        service = ManagedProcessService()
        running = await service.start(sleeper(token))
        await up(token)
        await service.close()
        with pytest.raises(ServiceClosedError):
            await service.start(sleeper(token))
        return await running.wait()

    assert asyncio.run(body()).ending is Ending.STOPPED
    assert named(token) == []
    assert tree.descendants(os.getpid()) == []


def test_a_hundred_processes_at_a_time_each_get_their_own_result() -> None:
    async def body(service: ManagedProcessService) -> list[ProcessResult]:
        return await asyncio.gather(*(service.run(sh(f"echo {n}; exit {n}")) for n in range(100)))

    assert [(result.exit_code, result.stdout.head) for result in run(body)] == [(n, b"%d\n" % n) for n in range(100)]


def test_after_a_rush_only_so_many_supervisors_are_kept() -> None:
    async def body(service: ManagedProcessService) -> None:
        for _ in range(2):
            await asyncio.gather(*(service.run(sh("exit 0")) for _ in range(MAX_IDLE + 4)))
        (guardian,) = [process for process in tree.descendants(os.getpid()) if process.parent == os.getpid()]
        while len(tree.descendants(guardian.pid)) > MAX_IDLE:
            await asyncio.sleep(0.002)
        assert len(tree.descendants(guardian.pid)) == MAX_IDLE

    run(body)


# What it is given.


def test_stdin_is_at_its_end_and_nothing_else_is_open(tmp_path: Path) -> None:
    with (tmp_path / "leak").open("w") as leak, socket.socket() as open_socket:
        os.set_inheritable(leak.fileno(), True)
        os.set_inheritable(open_socket.fileno(), True)
        code = (
            "import os, sys; print(sys.stdin.read() == '', [n for n in range(256) if os.path.exists(f'/dev/fd/{n}')])"
        )
        assert run_one(ProcessSpec(argv=(sys.executable, "-c", code))).stdout.head == b"True [0, 1, 2]\n"


def test_it_leads_a_session_of_its_own_with_no_signal_blocked_or_ignored() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])
    try:
        code = "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))"
        shown = run_one(ProcessSpec(argv=("/bin/cat", "/proc/self/status"))).stdout.head.decode()
        leads = run_one(ProcessSpec(argv=(sys.executable, "-c", code))).stdout.head.decode()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGUSR2])
        signal.signal(signal.SIGUSR1, before)
    known = sum(1 << (number - 1) for number in signal.valid_signals())  # the C library keeps two to itself
    masks = [int(line.split()[1], 16) & known for line in shown.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
    assert masks == [0, 0]
    assert leads == "True\n"


def test_arguments_and_directory_arrive_byte_for_byte(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff\n $(touch x) ;'\"")
    folder = tmp_path / odd
    folder.mkdir()
    result = run_one(ProcessSpec(argv=("/bin/sh", "-c", 'printf "%s|%s" "$1" "$PWD"', "sh", odd), cwd=str(folder)))
    assert result.stdout.head == os.fsencode(f"{odd}|{folder}")
    assert list(folder.iterdir()) == []


def test_a_program_is_looked_for_in_the_path_it_is_given(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho found\n")
    (tmp_path / "no" / "tool").mkdir(parents=True)
    path = f"{tmp_path}/missing:{tmp_path}/no:{tmp_path}/bin"
    spec = ProcessSpec(argv=("tool",), env={"PATH": path})
    assert run_one(spec).failure is Failure.PERMISSION
    program.chmod(0o755)
    assert run_one(spec).stdout.head == b"found\n"
    assert run_one(ProcessSpec(argv=("./tool",), cwd=str(program.parent))).stdout.head == b"found\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"argv": ()}, "argv: needs a program"),
        ({"argv": ("",)}, "argv: needs a program"),
        ({"argv": ("a", "b\0")}, "argv: no process can be given a NUL"),
        ({"argv": ("a", "\ud800")}, r"argv: no process can be given .* has no bytes: '\\ud800'"),
        ({"cwd": "/a\0"}, "cwd: no process can be given a NUL"),
        ({"timeout_us": -1}, "timeout_us must be between"),
        ({"grace_us": -1}, "grace_us must be between"),
        ({"head_bytes": 1 << 40}, "head_bytes must be between"),
        ({"max_output_bytes": -1}, "max_output_bytes must be between"),
        ({"tail_bytes": -1}, "tail_bytes must be between"),
    ],
)
def test_what_no_process_can_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProcessSpec(**({"argv": ("true",)} | change))  # type: ignore[arg-type]


# What cannot be started.


@pytest.mark.parametrize(
    ("argv", "cwd", "failure", "detail"),
    [
        (("no-such-program",), "/", Failure.VALIDATION, "no-such-program: No such file or directory"),
        (("/no/such/program",), "/", Failure.VALIDATION, "/no/such/program: No such file or directory"),
        (("/tmp",), "/", Failure.PERMISSION, "/tmp: Permission denied"),
        ((__file__,), "/", Failure.PERMISSION, f"{__file__}: Permission denied"),
        (("/no/\udcff",), "/", Failure.VALIDATION, r"/no/\xff: No such file or directory"),
        (("/bin/true",), "/no/such/folder", Failure.VALIDATION, "/no/such/folder: No such file or directory"),
        (("/bin/true",), __file__, Failure.VALIDATION, f"{__file__}: Not a directory"),
        (("/bin/true", "x" * (1 << 18)), "/", Failure.VALIDATION, "/bin/true: Argument list too long"),
    ],
)
def test_what_cannot_be_started_is_a_result(argv: tuple[str, ...], cwd: str, failure: Failure, detail: str) -> None:
    async def body(service: ManagedProcessService) -> tuple[ProcessResult, ProcessResult]:
        return await service.run(ProcessSpec(argv=argv, cwd=cwd)), await service.run(sh("exit 0"))

    failed, after = run(body)
    assert (failed.ending, failed.failure, failed.detail) == (Ending.SPAWN_FAILED, failure, detail)
    assert after.exit_code == 0


@pytest.mark.parametrize("spare", [0, 1, 2, 3])
def test_running_out_of_descriptors_is_a_passing_failure(spare: int) -> None:
    """With none to spare no socket can be made, with more not what the guardian needs."""

    async def body(service: ManagedProcessService) -> tuple[ProcessResult, ProcessResult]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_fds() - 1 + spare, hard))
        try:
            failed = await service.run(sh("exit 0"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return failed, await service.run(sh("exit 0"))

    failed, after = run(body)
    assert (failed.ending, failed.failure) == (Ending.SPAWN_FAILED, Failure.TRANSIENT)
    assert "Too many open files" in failed.detail
    assert after.exit_code == 0


def test_a_guardian_that_cannot_take_a_socket_is_a_passing_failure() -> None:
    async def body(service: ManagedProcessService) -> tuple[ProcessResult, ProcessResult]:
        await service.run(sh("exit 0"))
        held = await service.start(sh("sleep 600"))  # so that another supervisor is needed
        (guardian,) = [process.pid for process in tree.descendants(os.getpid()) if process.parent == os.getpid()]
        soft, hard = resource.prlimit(guardian, resource.RLIMIT_NOFILE)
        resource.prlimit(guardian, resource.RLIMIT_NOFILE, (open_fds(guardian), hard))
        failed = await service.run(sh("exit 0"))
        resource.prlimit(guardian, resource.RLIMIT_NOFILE, (soft, hard))
        after = await service.run(sh("exit 0"))
        held.stop(0)
        await held.wait()
        return failed, after

    failed, after = run(body)
    assert (failed.ending, failed.failure) == (Ending.SPAWN_FAILED, Failure.TRANSIENT)
    assert failed.detail == "no supervisor: the guardian could not make one"
    assert after.exit_code == 0


def test_a_service_that_is_closed_while_it_has_no_guardian_starts_none() -> None:
    async def body() -> None:
        service = ManagedProcessService()
        await service.run(sh("exit 0"))
        held = await service.start(sh("sleep 600"))
        (guardian,) = [process.pid for process in tree.descendants(os.getpid()) if process.parent == os.getpid()]
        os.kill(guardian, signal.SIGKILL)
        await held.wait()
        starting = [asyncio.ensure_future(service.run(sh("exit 0"))) for _ in range(3)]
        for _ in range(2):
            await asyncio.sleep(0)
        await service.close()
        assert len(await asyncio.gather(*starting, return_exceptions=True)) == 3

    asyncio.run(body())
    assert tree.descendants(os.getpid()) == []


@pytest.mark.skipif(cgroup.delegated() is None, reason="no control group is delegated to this process")
def test_a_service_that_is_closed_while_a_lost_guardian_is_buried_starts_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buried, end = asyncio.Event(), cgroup.end

    async def end_later(group: Path) -> int:
        await buried.wait()
        return await end(group)

    async def body() -> None:
        service = ManagedProcessService()
        await service.run(sh("exit 0"))
        (guardian,) = [process.pid for process in tree.descendants(os.getpid()) if process.parent == os.getpid()]
        monkeypatch.setattr(cgroup, "end", end_later)
        os.kill(guardian, signal.SIGKILL)
        while service._supervisors or not (service._guardian and service._guardian.ended):
            await asyncio.sleep(0.002)
        starting = asyncio.ensure_future(service.run(sh("exit 0")))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(service.close())
        await asyncio.sleep(0)
        buried.set()
        await closing
        with pytest.raises(ServiceClosedError):
            await starting

    asyncio.run(body())
    assert tree.descendants(os.getpid()) == []


@pytest.mark.parametrize(
    ("limit", "detail"),
    [(resource.RLIMIT_AS, "Cannot allocate memory"), (resource.RLIMIT_NOFILE, "Too many open files")],
)
def test_what_a_supervisor_runs_out_of_is_a_passing_failure(limit: int, detail: str) -> None:
    async def body(service: ManagedProcessService) -> tuple[ProcessResult, ProcessResult]:
        await service.run(sh("exit 0"))
        supervisor = tree.descendants(os.getpid())[-1].pid
        pages = int(Path(f"/proc/{supervisor}/statm").read_text().split()[0])
        used = pages * resource.getpagesize() if limit == resource.RLIMIT_AS else open_fds(supervisor) + 1
        soft, hard = resource.prlimit(supervisor, limit)
        resource.prlimit(supervisor, limit, (used, hard))
        failed = await service.run(sh("exit 0"))
        resource.prlimit(supervisor, limit, (soft, hard))
        return failed, await service.run(sh("exit 0"))

    failed, after = run(body)
    assert (failed.ending, failed.failure) == (Ending.SPAWN_FAILED, Failure.TRANSIENT)
    assert detail in failed.detail
    assert after.exit_code == 0


# What is kept of its output.


def test_both_ends_of_a_long_output_are_kept() -> None:
    result = run_one(sh("seq 1 100000; seq 7 >&2", head_bytes=10, tail_bytes=7))
    whole = b"".join(b"%d\n" % n for n in range(1, 100001))
    assert result.stdout == Output(whole[:10], whole[-7:], len(whole) - 17)
    assert result.stderr == Output(b"1\n2\n3\n4\n5\n6\n7\n")


def test_what_is_in_a_larger_pipe_when_the_process_ends_is_not_lost() -> None:
    code = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20); os.write(1, bytes(1 << 20))"
    output = run_one(ProcessSpec(argv=(sys.executable, "-c", code))).stdout
    assert len(output.head) + output.omitted_bytes + len(output.tail) == 1 << 20


def test_output_is_bytes_whatever_they_are(tmp_path: Path) -> None:
    blob = bytes(range(256)) * 3 + "ä\ud800".encode("utf-8", "surrogatepass") + b"\0\xc3"
    (tmp_path / "blob").write_bytes(blob)
    assert run_one(sh(f"cat {tmp_path}/blob")).stdout.head == blob


def test_too_much_output_ends_it() -> None:
    result = run_one(sh("yes", max_output_bytes=1 << 20, head_bytes=2, tail_bytes=2))
    assert (result.ending, result.stdout.head, result.signal) == (Ending.OUTPUT_LIMIT, b"y\n", signal.SIGTERM)
    assert run_one(sh("seq 100", max_output_bytes=291)).ending is Ending.OUTPUT_LIMIT
    assert run_one(sh("seq 100", max_output_bytes=292)).ending is Ending.EXITED


def test_a_gigabyte_on_both_pipes_is_drained_in_little_memory() -> None:
    def peak_kb() -> int:
        below = [process.pid for process in tree.descendants(os.getpid())]
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in (os.getpid(), *below)]
        return sum(int(text.partition("VmHWM:")[2].split()[0]) for text in texts)

    async def body(service: ManagedProcessService) -> tuple[int, ProcessResult]:
        await service.run(sh("exit 0"))
        before = peak_kb()
        result = await service.run(sh("head -c 1G /dev/zero >&2 & head -c 1G /dev/zero; wait"))
        return peak_kb() - before, result

    grown_kb, result = run(body)
    assert result.exit_code == 0
    for output in (result.stdout, result.stderr):
        assert len(output.head) + output.omitted_bytes + len(output.tail) == 1 << 30
    assert grown_kb < 20 * 1024


def test_ten_thousand_random_outputs_and_no_descriptor_more() -> None:
    jobs, abreast = 10_000, 4

    async def body(service: ManagedProcessService) -> tuple[list[int], list[int]]:
        async def worker(start: int) -> None:
            for n in range(start, jobs, abreast):
                size = n % 97
                spec = ProcessSpec(
                    argv=("/usr/bin/head", "-c", str(size), "/dev/urandom"), head_bytes=16, tail_bytes=16
                )
                output = (await service.run(spec)).stdout
                assert len(output.head) + output.omitted_bytes + len(output.tail) == size
                assert output.omitted_bytes == max(0, size - 32)

        def count() -> list[int]:
            return [open_fds(), *(open_fds(process.pid) for process in tree.descendants(os.getpid()))]

        await asyncio.gather(*(service.run(sh("sleep 0.1")) for _ in range(abreast)))
        before = count()
        await asyncio.gather(*map(worker, range(abreast)))
        return before, count()

    before, after = run(body)
    assert after == before
