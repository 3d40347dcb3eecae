"""Real processes for tests: how to find them, and how to wait until they are gone."""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from reference_scheduler.processes import tree
from reference_scheduler.processes.model import ProcessResult, ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService

PATIENCE_S = 60
FAMILY = Path(__file__).with_name("family.py")
FAMILY_SIZE = 14
TRICKS = ("plain", "setsid", "group", "orphan", "scrubbed", "all")
FOUND_ELSEWHERE = tuple(trick for trick in TRICKS if trick != "all")
"""Where orphans are not adopted, all tricks at once are enough to get away."""
Value = TypeVar("Value")


def leave_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have neither this process nor its helpers use what only Linux has."""
    monkeypatch.setattr(tree, "IS_LINUX", False)
    monkeypatch.setattr(tree, "HAS_PIDFD", False)
    monkeypatch.setenv(tree.WITHOUT_LINUX, "1")


def run(main: Callable[[ManagedProcessService], Awaitable[Value]]) -> Value:
    """Call ``main`` with a service, on a new event loop; what hangs fails."""

    async def body() -> Value:
        async with asyncio.timeout(PATIENCE_S), ManagedProcessService() as service:
            return await main(service)

    return asyncio.run(body())


def run_one(spec: ProcessSpec, marks: Mapping[str, str] | None = None) -> ProcessResult:
    """Run one process in a service of its own."""
    return run(lambda service: service.run(spec, marks))


def sh(script: str, **options: object) -> ProcessSpec:
    """Return a process that runs ``script``."""
    return ProcessSpec(argv=("/bin/sh", "-c", script), **options)  # type: ignore[arg-type]


def new_token() -> str:
    """Return a name that no process has."""
    return f"spawngate-test-{uuid.uuid4().hex}"


def named(token: str) -> list[int]:
    """Return the pids of the processes that live and have ``token`` as an argument of their own."""
    found = []
    for process in tree.processes():
        with suppress(OSError):
            if token.encode() in Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0"):
                found.append(process.pid)
    return found


def wait_gone(pids: list[int]) -> None:
    """Wait until each of the processes has ended."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([fd], [], [], PATIENCE_S)[0], f"process {pid} is still there"
        finally:
            os.close(fd)


def open_fds(pid: int | str = "self") -> int:
    """Return how many descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def family(token: str, trick: str, end: str, **options: object) -> ProcessSpec:
    """Return a job with a family of ``FAMILY_SIZE`` besides itself."""
    argv = (sys.executable, "-I", str(FAMILY), token, trick, "3", end)
    return ProcessSpec(argv=argv, **options)  # type: ignore[arg-type]


async def wait_up(token: str) -> list[int]:
    """Wait until a whole family is there, and return its pids."""
    while len(pids := [pid for pid in named(token) if is_sleeping(pid)]) < FAMILY_SIZE + 1:
        await asyncio.sleep(0.005)
    return pids


def is_sleeping(pid: int) -> bool:
    """Return whether a process is a member of a family that has become what it wants to be."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes() == b"sleep\n"
    except OSError:
        return False


def kin(service_pid: int) -> tuple[int, list[int]]:
    """Return the pids of the guardian of a scheduler, and of its supervisors."""
    (guardian,) = [process.pid for process in tree.descendants(service_pid) if process.parent == service_pid]
    return guardian, [process.pid for process in tree.descendants(guardian) if process.parent == guardian]


@contextmanager
def scheduler(*bodies: Callable[[], None]) -> Iterator[list[int]]:
    """Run each body in a fork of this process, kill them at the end, and see that nothing of them stays.

    Whatever loses its parent meanwhile becomes a child of this process, so nothing can hide.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(tree.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pids = [fork(body) for body in bodies]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        while left := tree.descendants(os.getpid()):
            wait_gone([process.pid for process in left])
        while pids:
            pids = [pid for pid in pids if pid != os.waitpid(-1, 0)[0]]
        while reap():
            pass
        libc.prctl(tree.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def fork(body: Callable[[], None]) -> int:
    """Return the pid of a fork that runs ``body``."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    return pid


def reap() -> bool:
    """Collect a child that has ended; return whether there was one."""
    try:
        return bool(os.waitpid(-1, 0))
    except ChildProcessError:
        return False


def serve(*specs: ProcessSpec) -> None:
    """Be a scheduler that runs ``specs`` at the same time, over and over."""

    async def body() -> None:
        async with ManagedProcessService() as service:
            while True:
                await asyncio.gather(*map(service.run, specs))

    asyncio.run(body())
