"""Real processes for tests: how to find them, and how to wait until they are gone."""

from __future__ import annotations

import asyncio
import os
import select
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from reference_scheduler.processes import tree
from reference_scheduler.processes.model import ProcessResult, ProcessSpec
from reference_scheduler.processes.service import ManagedProcessService

PATIENCE_S = 60
Value = TypeVar("Value")


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
