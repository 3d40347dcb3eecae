"""What holds where Linux's own means are not to be had: on Linux, without using them.

Orphans then go to whoever adopts them on this machine, and no pid is certain, as on macOS. What both have in common is
in ``test_processes_tree.py``.
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
    FOUND_ELSEWHERE,
    family,
    kin,
    leave_linux,
    named,
    new_token,
    run,
    run_one,
    sh,
    wait_up,
)

from reference_scheduler.processes import strays, tree
from reference_scheduler.processes.lineage import MARK, Traces
from reference_scheduler.processes.model import ProcessResult, ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.processes.supervisor import Ending, end


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_linux(monkeypatch)


# The attempt ends.


def test_a_process_gets_a_mark_of_its_own_that_no_other_attempt_has() -> None:
    spec = ProcessSpec(argv=("/usr/bin/env",))

    async def body(service: ManagedProcessService) -> list[ProcessResult]:
        return [await service.run(spec), await service.run(spec)]

    marks = [[line for line in result.stdout.head.splitlines() if line.startswith(MARK + b"=")] for result in run(body)]
    assert [len(found) for found in marks] == [1, 1]
    assert marks[0] != marks[1]


# Someone is killed.


@pytest.mark.parametrize("trick", FOUND_ELSEWHERE)
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
