"""What holds where Linux's own means are not to be had: on Linux, without using them.

Orphans then go to whoever adopts them on this machine, and no pid is certain, as on macOS.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
from process_world import (
    FAMILY_SIZE,
    family,
    kin,
    named,
    new_token,
    run,
    run_one,
    scheduler,
    serve,
    sh,
    wait_gone,
    wait_up,
)

from reference_scheduler.processes import strays, tree
from reference_scheduler.processes.lineage import MARK, Traces
from reference_scheduler.processes.model import ProcessResult, ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.processes.supervisor import Ending, end

FOUND = ("plain", "setsid", "group", "orphan", "scrubbed")
"""Tricks that are not enough to get away; all at once are."""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have neither this process nor its helpers use what only Linux has."""
    monkeypatch.setattr(tree, "IS_LINUX", False)
    monkeypatch.setattr(tree, "HAS_PIDFD", False)
    monkeypatch.setenv(tree.WITHOUT_LINUX, "1")


# The attempt ends.


@pytest.mark.parametrize("trick", FOUND)
def test_nothing_is_left_when_the_first_process_exits(trick: str) -> None:
    token = new_token()

    async def body(service: ManagedProcessService) -> tuple[ProcessResult, list[int]]:
        return await service.run(family(token, trick, "exit")), named(token)

    result, alive = run(body)
    assert (result.exit_code, result.stdout.head) == (0, b"ready %d\n" % FAMILY_SIZE)
    assert (result.left_behind, alive) == (FAMILY_SIZE, [])


@pytest.mark.parametrize("trick", FOUND)
def test_nothing_is_left_when_it_is_stopped(trick: str) -> None:
    token = new_token()

    async def body(service: ManagedProcessService) -> tuple[ProcessResult, list[int]]:
        running = await service.start(family(token, trick, "stay"))
        await wait_up(token)
        running.stop(600_000_000)
        return await running.wait(), named(token)

    result, alive = run(body)
    assert (result.ending, result.signal, alive) == (Ending.STOPPED, signal.SIGTERM, [])


def test_one_attempt_ends_without_the_others() -> None:
    first, second = new_token(), new_token()

    async def body(service: ManagedProcessService) -> tuple[list[int], list[int]]:
        running = [await service.start(family(token, "orphan", "stay")) for token in (first, second)]
        await wait_up(first)
        others = await wait_up(second)
        running[0].stop(0)
        await running[0].wait()
        return others, named(second)

    others, alive = run(body)
    assert alive == others


def test_a_process_gets_a_mark_of_its_own_that_no_other_attempt_has() -> None:
    spec = ProcessSpec(argv=("/usr/bin/env",))

    async def body(service: ManagedProcessService) -> list[ProcessResult]:
        return [await service.run(spec), await service.run(spec)]

    marks = [[line for line in result.stdout.head.splitlines() if line.startswith(MARK + b"=")] for result in run(body)]
    assert [len(found) for found in marks] == [1, 1]
    assert marks[0] != marks[1]


# Someone is killed.


@pytest.mark.parametrize("trick", FOUND)
def test_a_lost_guardian_loses_no_process(trick: str) -> None:
    assert lose("guardian", trick, {}) == (Ending.SUPERVISOR_LOST, [])


@pytest.mark.parametrize("trick", ["plain", "setsid", "group", "orphan"])
def test_what_a_lost_supervisor_leaves_is_found_by_its_marks(trick: str) -> None:
    assert lose("supervisor", trick, {"JOB": new_token()}) == (Ending.SUPERVISOR_LOST, [])


def lose(victim: str, trick: str, marks: dict[str, str]) -> tuple[Ending, list[int]]:
    """Kill a helper while a family is there; return how the process ended, and who of it is left."""
    token = new_token()

    async def body(service: ManagedProcessService) -> tuple[Ending, list[int]]:
        running = await service.start(family(token, trick, "stay"), marks)
        await wait_up(token)
        guardian, supervisors = kin(os.getpid())
        os.kill(guardian if victim == "guardian" else supervisors[0], signal.SIGKILL)
        lost = await running.wait()
        assert (await service.run(ProcessSpec(argv=("/bin/true",)))).exit_code == 0
        return lost.ending, named(token)

    return run(body)


@pytest.mark.parametrize("trick", FOUND)
def test_nothing_outlives_a_scheduler_that_is_killed(trick: str) -> None:
    token = new_token()
    with scheduler(lambda: serve(family(token, trick, "stay"))):
        asyncio.run(wait_up(token))
    assert named(token) == []


def test_a_fork_of_the_scheduler_does_not_keep_its_processes_alive() -> None:
    token = new_token()

    def body() -> None:
        async def main() -> None:
            async with ManagedProcessService() as service:
                running = await service.start(ProcessSpec(argv=("/bin/sh", "-c", "sleep 600; exit", token)))
                if os.fork() == 0:  # holds every descriptor of the scheduler
                    signal.pause()
                await running.wait()

        asyncio.run(main())

    with scheduler(body) as (pid,):
        while len(below := tree.descendants(pid)) < 5:  # a fork, the guardian, a supervisor, the shell and sleep
            select.select([], [], [], 0.005)
        forks = [process.pid for process in below if process.parent == pid and len(tree.descendants(process.pid)) == 0]
        os.kill(pid, signal.SIGKILL)
        wait_gone([process.pid for process in below if process.pid not in forks])
        os.kill(forks[0], signal.SIGKILL)


def test_what_an_older_generation_left_is_ended() -> None:
    token, marks = new_token(), {"SPAWNGATE_OWNER": new_token(), "SPAWNGATE_GENERATION": "1"}
    with subprocess.Popen(["/bin/sleep", "600"], env=marks, start_new_session=True) as left:
        assert asyncio.run(strays.end_strays(token, "2")) == 0
        assert asyncio.run(strays.end_strays(marks["SPAWNGATE_OWNER"], "1")) == 0
        assert asyncio.run(strays.end_strays(marks["SPAWNGATE_OWNER"], "2")) == 1
    assert left.returncode == -signal.SIGKILL


# Nobody else is.


def test_before_anything_has_started_nothing_belongs_to_it() -> None:
    assert Traces().members() == []


def test_a_process_that_cannot_be_started_ends_no_other() -> None:
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as bystander:
        assert run_one(ProcessSpec(argv=("/no/such/program",))).ending is Ending.SPAWN_FAILED
        assert bystander.poll() is None
        bystander.kill()


def test_a_stranger_with_the_pid_of_the_first_process_is_let_alone() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"], start_new_session=True) as stranger:
        while len(below := tree.descendants(stranger.pid)) < 1:
            select.select([], [], [], 0.005)
        lineage = Traces()
        lineage.begin(stranger.pid)
        assert {process.pid for process in lineage.members()} == {stranger.pid, below[0].pid}
        other = Traces()
        other.begin(stranger.pid)
        other._first = tree.Process(stranger.pid, 1, os.getpid())
        assert other.members() == []
        end(lineage)
        assert lineage.members() == []


def test_a_pid_that_was_used_again_is_not_signalled() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as bystander:
        assert not tree.send_signal(tree.Process(bystander.pid, 1, os.getpid()), signal.SIGKILL)
        now = tree.look_up(bystander.pid)
        assert now is not None
        assert tree.send_signal(now, signal.SIGKILL)
    assert tree.look_up(bystander.pid) is None


def test_a_linux_without_pidfds_is_told_from_one_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tree.has_pidfd()

    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert not tree.has_pidfd()
    monkeypatch.delattr(os, "pidfd_open")
    assert not tree.has_pidfd()


def test_what_is_printed_and_how_it_ended_is_as_on_linux() -> None:
    result = run_one(sh("echo out; echo err >&2; exit 3"))
    assert (result.exit_code, result.stdout.head, result.stderr.head) == (3, b"out\n", b"err\n")
    timed_out = run_one(sh("trap 'exit 4' TERM; while :; do sleep 0.01; done", timeout_us=50_000))
    assert (timed_out.ending, timed_out.exit_code) == (Ending.TIMED_OUT, 4)
    assert result.peak_rss_kb < 1024**2


def test_the_command_line_of_a_helper_names_where_psutil_is() -> None:
    psutil = pytest.importorskip("psutil")

    async def body(service: ManagedProcessService) -> list[str]:
        await service.run(ProcessSpec(argv=("/bin/true",)))
        return list(psutil.Process(kin(os.getpid())[0]).cmdline())

    assert str(Path(psutil.__file__).parent.parent) in run(body)
