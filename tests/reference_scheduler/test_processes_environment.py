"""What a job finds in its environment, and how processes are known by it when their scheduler is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from process_world import named, new_token, run, run_one, sh, wait_gone

from reference_scheduler.processes import strays
from reference_scheduler.processes.environment import child_environment, inherited_environment, refusal
from reference_scheduler.processes.model import ProcessResult, ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService

SECRETS = {
    "API_TOKEN": "t-1",
    "AWS_SECRET_ACCESS_KEY": "s-2",
    "DB_PASSWORD": "p-3",
    "SSH_KEY": "k-4",
    "SESSION_COOKIE": "c-5",
}
COMMANDS = {
    "LD_PRELOAD": "",
    "PYTHONSTARTUP": "/tmp/x",
    "BASH_ENV": "/tmp/x",
    "GIT_SSH_COMMAND": "/tmp/x",
    "EDITOR": "/tmp/x",
}


def test_a_job_sees_what_is_allowed_what_it_asked_for_and_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    kept = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    for name, value in {**kept, **SECRETS, **COMMANDS, "OTHER": "1", "SPAWNGATE_JOB": "outer"}.items():
        monkeypatch.setenv(name, value)
    argv = ("/usr/bin/env", "-0")
    result = run_one(ProcessSpec(argv=argv, env={"TZ": "CET", "EMPTY": ""}), {"JOB": "j-1", "ATTEMPT": "2"})
    seen = dict(entry.split("=", 1) for entry in result.stdout.head.decode().rstrip("\0").split("\0"))
    assert seen == kept | {"TZ": "CET", "EMPTY": "", "SPAWNGATE_JOB": "j-1", "SPAWNGATE_ATTEMPT": "2"}


@pytest.mark.parametrize(
    "name", [*SECRETS, *COMMANDS, "git_pager", "my_secret_2", "BASH_FUNC_ls%%", "PS4", "NODE_OPTIONS"]
)
def test_a_secret_or_a_command_is_refused_also_when_it_is_asked_for(name: str) -> None:
    with pytest.raises(ValueError, match=r"looks like a secret|makes other programs run code"):
        child_environment({}, {name: "x"}, {})
    assert inherited_environment({name: "x", "A": "1"}, ["*"]) == {b"A": b"1"}


@pytest.mark.parametrize("name", ["CI", "PYTHONPATH", "GIT_AUTHOR_NAME", "KEYBOARD", "MONKEYPATCH", "PSALM", "AUTHOR"])
def test_ordinary_names_may_be_asked_for(name: str) -> None:
    assert refusal(name) == ""
    assert child_environment({b"A": b"1"}, {name: "x"}, {}) == {b"A": b"1", name.encode(): b"x"}


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"": "x"}, "is no name of a variable"),
        ({"A=B": "x"}, "A=B is no name of a variable"),
        ({"A\0": "x"}, "is no name of a variable"),
        ({"A": "x\0"}, "A: no process can be given a NUL"),
        ({"A": "\ud800"}, "A: no process can be given .* has no bytes"),
        ({"\ud800": "x"}, "is no name of a variable"),
        ({"SPAWNGATE_JOB": "x"}, "SPAWNGATE_JOB is set by the scheduler itself"),
    ],
)
def test_what_cannot_be_in_an_environment_is_refused(env: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        child_environment({}, env, {})


def test_more_may_be_let_through_but_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("CI_TOKEN", "t")

    async def body() -> ProcessResult:
        async with ManagedProcessService(inherited=("PATH", "CI*")) as service:
            return await service.run(sh("echo $CI$CI_TOKEN"))

    assert asyncio.run(body()).stdout.head == b"true\n"


# Processes of schedulers that are gone.


def stray(token: str, **marks: str) -> subprocess.Popen[bytes]:
    """Start a process of two, of which the second has cleared its environment."""
    env = {f"SPAWNGATE_{name}": value for name, value in marks.items()}
    script = f"env -i /bin/sh -c 'sleep 600; exit' {token} & wait"
    return subprocess.Popen(["/bin/sh", "-c", script, token], env=env, start_new_session=True)


def test_only_older_generations_of_the_same_owner_are_ended() -> None:
    old, new, other, bare = (new_token() for _ in range(4))
    with ExitStack() as stack:
        for token, marks in (
            (old, {"OWNER": "a", "GENERATION": "1", "JOB": "j"}),
            (new, {"OWNER": "a", "GENERATION": "2"}),
            (other, {"OWNER": "b", "GENERATION": "1"}),
            (bare, {}),
        ):
            process = stack.enter_context(stray(token, **marks))
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            while len(named(token)) < 2:
                pass
        gone = named(old)
        ended = asyncio.run(strays.end_strays("a", "2"))
        assert ended == 3  # two shells and a sleep
        wait_gone(gone)
        assert [len(named(token)) for token in (old, new, other, bare)] == [0, 2, 2, 2]
        assert asyncio.run(strays.end_strays("a", "2")) == 0


def test_a_scheduler_is_not_its_own_stray() -> None:
    async def body(service: ManagedProcessService) -> tuple[int, ProcessResult]:
        running = await service.start(sh("sleep 600"), {"OWNER": "a", "GENERATION": "1"})
        ended = await strays.end_strays("a", "1")
        running.stop(0)
        return ended, await running.wait()

    ended, result = run(body)
    assert (ended, result.ending) == (0, "stopped")


def test_a_pid_that_was_used_again_is_not_signalled() -> None:
    from reference_scheduler.processes import tree

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        now = tree.look_up(process.pid)
        assert now is not None
        earlier = now._replace(start_ticks=now.start_ticks - 1)
        assert not tree.send_signal(earlier, signal.SIGKILL)
        assert process.poll() is None
        assert tree.send_signal(now, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not tree.send_signal(now, signal.SIGKILL)
    assert tree.look_up(process.pid) is None
