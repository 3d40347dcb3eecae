"""Nothing of an attempt outlives it, whatever tricks it plays and whoever is killed."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from process_world import (
    FAMILY_SIZE,
    FOUND_ELSEWHERE,
    TRICKS,
    family,
    fork,
    is_sleeping,
    kin,
    leave_linux,
    named,
    new_token,
    run,
    scheduler,
    serve,
    wait_gone,
    wait_up,
)

from reference_scheduler.processes import cgroup, strays, tree
from reference_scheduler.processes.model import ProcessResult, ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.processes.supervisor import Ending

PR_CAPBSET_DROP = 24
CAP_KILL = 5


HELD = [*(("linux", trick) for trick in TRICKS), *(("elsewhere", trick) for trick in FOUND_ELSEWHERE)]
"""By system, the tricks that let nothing get away."""


@pytest.fixture
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return which means are used: all that Linux has, or only what there is elsewhere."""
    name = str(request.param)
    if name == "elsewhere":
        leave_linux(monkeypatch)
    return name


# The attempt ends.


@pytest.mark.parametrize(("system", "trick"), HELD, indirect=["system"])
def test_nothing_is_left_when_the_first_process_exits(system: str, trick: str) -> None:
    token = new_token()

    async def body(service: ManagedProcessService) -> tuple[ProcessResult, list[int]]:
        return await service.run(family(token, trick, "exit")), named(token)

    result, alive = run(body)
    assert (result.exit_code, result.stdout.head) == (0, b"ready %d\n" % FAMILY_SIZE)
    assert result.left_behind == FAMILY_SIZE
    assert alive == []


@pytest.mark.parametrize(("system", "trick"), HELD, indirect=["system"])
def test_nothing_is_left_when_it_is_stopped(system: str, trick: str) -> None:
    token = new_token()

    async def body(service: ManagedProcessService) -> tuple[ProcessResult, list[int]]:
        running = await service.start(family(token, trick, "stay"))
        await wait_up(token)
        running.stop(600_000_000)
        return await running.wait(), named(token)

    result, alive = run(body)
    assert (result.ending, result.signal, alive) == (Ending.STOPPED, signal.SIGTERM, [])


def test_a_process_that_is_forked_while_its_parent_is_asked_to_end_is_asked_too() -> None:
    async def body(service: ManagedProcessService) -> set[Ending]:
        spec = ProcessSpec(argv=("/bin/sh", "-c", "sleep 600; exit"))
        endings = set()
        for turn in range(100):
            running = await service.start(spec)
            for _ in range(turn):
                await asyncio.sleep(0)
            running.stop(600_000_000)
            endings.add((await running.wait()).ending)
        return endings

    assert run(body) == {Ending.STOPPED}


CLEANER = """
import os, signal, subprocess, sys
def clean(*_):
    for _ in range(3):
        subprocess.run(["/bin/sleep", "0.05"], check=True)
    os.write(1, b"clean")
    sys.exit(7)
signal.signal(signal.SIGTERM, clean)
if os.fork() == 0:
    if os.fork() == 0:
        os.execv("/bin/sleep", [sys.argv[1], "600"])
    os._exit(0)
os.wait()
while True:
    signal.pause()
"""


def test_what_a_process_runs_to_clean_up_is_let_alone() -> None:
    """An orphan ends at once when it is asked, which makes the supervisor look for others to ask."""
    token = new_token()

    async def body(service: ManagedProcessService) -> ProcessResult:
        running = await service.start(ProcessSpec(argv=(sys.executable, "-c", CLEANER, token)))
        while not any(is_sleeping(pid) for pid in named(token)):
            await asyncio.sleep(0.002)
        running.stop(600_000_000)
        return await running.wait()

    result = run(body)
    assert (result.ending, result.exit_code, result.stdout.head) == (Ending.STOPPED, 7, b"clean")


@pytest.mark.parametrize(("system", "trick"), [("linux", "all"), ("elsewhere", "orphan")], indirect=["system"])
def test_one_attempt_ends_without_the_others(system: str, trick: str) -> None:
    first, second = new_token(), new_token()

    async def body(service: ManagedProcessService) -> tuple[list[int], list[int]]:
        running = [await service.start(family(token, trick, "stay")) for token in (first, second)]
        await wait_up(first)
        others = await wait_up(second)
        running[0].stop(0)
        await running[0].wait()
        return others, named(second)

    others, alive = run(body)
    assert alive == others


# Someone is killed.


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("victim", ["guardian", "supervisor", "both"])
@pytest.mark.parametrize("grouped", [True, False])
def test_a_lost_helper_loses_no_process(
    trick: str, victim: str, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not grouped:
        monkeypatch.setattr(cgroup, "make", lambda: None)
    if victim == "both" and trick in ("scrubbed", "all") and not (grouped and cgroup.delegated()):
        pytest.skip("without marks, and with both helpers gone, only a control group can tell")
    token = new_token()

    async def body(service: ManagedProcessService) -> tuple[ProcessResult, list[int], ProcessResult]:
        running = await service.start(family(token, trick, "stay"), {"JOB": token})
        await wait_up(token)
        guardian, supervisors = kin(os.getpid())
        for pid in {"guardian": [guardian], "supervisor": supervisors, "both": [guardian, *supervisors]}[victim]:
            os.kill(pid, signal.SIGKILL)
        lost = await running.wait()
        return lost, named(token), await service.run(ProcessSpec(argv=("/bin/true",)))

    lost, alive, after = run(body)
    assert (lost.ending, alive) == (Ending.SUPERVISOR_LOST, [])
    assert after.exit_code == 0


@pytest.mark.parametrize(("system", "trick"), HELD, indirect=["system"])
def test_nothing_outlives_a_scheduler_that_is_killed(system: str, trick: str) -> None:
    token = new_token()
    with scheduler(lambda: serve(family(token, trick, "stay"))) as (pid,):
        pids = asyncio.run(wait_up(token))
        assert system != "linux" or set(pids) <= {process.pid for process in tree.descendants(pid)}
    assert named(token) == []


@pytest.mark.parametrize("system", ["linux", "elsewhere"], indirect=True)
def test_a_fork_of_the_scheduler_does_not_keep_its_processes_alive(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "make", lambda: None)  # which others on this machine might end
    token = new_token()
    forks: list[int] = []

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


def test_a_signal_at_any_moment_leaves_no_orphan() -> None:
    """SIGTERM 0 to 50 ms after a scheduler began to start processes, 200 times, four at a time."""
    specs = [ProcessSpec(argv=("/bin/sh", "-c", "sleep 0.001 & setsid sleep 600 & exit 0"))] * 2
    for attempt in range(50):
        with scheduler(*[lambda: serve(*specs)] * 4) as pids:
            for step, pid in enumerate(pids):
                select.select([], [], [], 0.05 / 200 if step else attempt * 0.05 / 50)
                os.kill(pid, signal.SIGTERM)
            for pid in pids:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_lost_supervisor_is_reported_when_the_guardian_has_cleaned_up() -> None:
    token = new_token()

    async def body(service: ManagedProcessService) -> tuple[bool, list[int], ProcessResult, list[int]]:
        await asyncio.gather(*(service.run(ProcessSpec(argv=("/bin/sleep", "0.05"))) for _ in range(2)))
        running = await service.start(family(token, "all", "stay"))
        pids = await wait_up(token)
        guardian, _ = kin(os.getpid())
        os.kill(guardian, signal.SIGSTOP)
        (supervisor,) = {process.parent for process in map(tree.look_up, pids) if process} & set(kin(os.getpid())[1])
        os.kill(supervisor, signal.SIGKILL)
        for _ in range(5):
            await service.run(ProcessSpec(argv=("/bin/true",)))
        early, left = running.over.is_set(), named(token)
        os.kill(guardian, signal.SIGCONT)
        return early, left, await running.wait(), named(token)

    early, left, lost, alive = run(body)
    assert (early, lost.ending, alive) == (False, Ending.SUPERVISOR_LOST, [])
    assert len(left) == FAMILY_SIZE + 1


# A control group.


@pytest.mark.skipif(cgroup.delegated() is None, reason="no control group is delegated to this process")
def test_a_group_holds_what_a_scheduler_started_and_is_removed_with_it() -> None:
    async def body(service: ManagedProcessService) -> tuple[Path, set[int], set[int]]:
        running = await service.start(ProcessSpec(argv=("/bin/sh", "-c", "sleep 600; exit")))
        while len(below := tree.descendants(os.getpid())) < 4:  # guardian, supervisor, shell and sleep
            await asyncio.sleep(0.002)
        group = cgroup.make()
        assert group is not None
        members = {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
        running.stop(0)
        await running.wait()
        return group, members, {process.pid for process in below}

    group, members, below = run(body)
    assert members == below
    assert not group.exists()


@pytest.mark.skipif(cgroup.delegated() is None, reason="no control group is delegated to this process")
def test_groups_of_dead_schedulers_are_emptied_and_removed_and_others_let_alone() -> None:
    token = new_token()
    spec = ProcessSpec(argv=("/bin/sh", "-c", "sleep 600; exit", token))
    with scheduler(lambda: serve(spec)) as (pid,):
        while len(named(token)) < 1:
            select.select([], [], [], 0.005)
        parent, process = cgroup.delegated(), tree.look_up(pid)
        assert parent is not None
        assert process is not None
        (group,) = parent.glob(f"spawngate-*-{pid}-{process.start_ticks}")
        assert group not in cgroup.left_over()
        stray = fork(signal.pause)
        (group / "cgroup.procs").write_text(str(stray))
        os.kill(pid, signal.SIGKILL)
        wait_gone([pid])
        asyncio.run(strays.end_strays("nobody", "none"))
        wait_gone([stray])
        assert not group.exists()


# A kill that fails.


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")
def test_a_kill_that_is_refused_is_told_and_the_attempt_goes_on() -> None:
    token = new_token()
    code = "import os, time; os.setuid(65534); print('up', flush=True); time.sleep(600)"
    read, write = os.pipe()

    def body() -> None:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_KILL, 0, 0, 0)

        async def main() -> None:
            async with ManagedProcessService() as service:
                spec = ProcessSpec(argv=(sys.executable, "-c", code, token), max_output_bytes=1)
                running = await service.start(spec, {}, lambda pid, name: say(f"refused {pid} {name}"))
                result = await running.wait()
                say(f"{result.ending} {result.signal}")

        def say(text: str) -> None:
            os.write(write, f"{text}\n".encode())

        asyncio.run(main())

    with scheduler(body), os.fdopen(read) as lines:
        os.close(write)
        word, pid, name = next(lines).split()
        assert (word, name, [int(pid)]) == ("refused", "SIGTERM", named(token))
        os.kill(int(pid), signal.SIGINT)
        assert next(lines).split() == ["output_limit", str(int(signal.SIGINT))]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")
def test_recovery_does_not_wait_for_what_it_may_not_kill() -> None:
    read, write = os.pipe()

    def body() -> None:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_KILL, 0, 0, 0)
        code = "import os, time; os.setuid(65534); print(flush=True); time.sleep(600)"
        env = {"SPAWNGATE_OWNER": "me", "SPAWNGATE_GENERATION": "1"}
        recover = (
            "import asyncio, sys; from reference_scheduler.processes.strays import end_strays;"
            "print(asyncio.run(end_strays('me', '2', lambda pid, name: print(pid, name))), flush=True)"
        )
        with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) as stray:
            assert stray.stdout
            stray.stdout.readline()
            os.write(write, f"{stray.pid}\n".encode())
            subprocess.run([sys.executable, "-c", recover], stdout=write, check=True)

    with scheduler(body), os.fdopen(read) as lines:
        os.close(write)
        pid = int(next(lines))
        assert next(lines).split() == [str(pid), "SIGKILL"]
        assert next(lines) == "0\n"
        os.kill(pid, signal.SIGKILL)
