"""Processes and their descent, as the system tells it: Linux by itself, others by way of psutil."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
WITHOUT_LINUX = "SPAWNGATE_WITHOUT_LINUX"
"""A variable that keeps Linux's own means from being used: so what other systems get is tested on Linux."""
IS_LINUX = sys.platform == "linux" and WITHOUT_LINUX not in os.environ


def has_pidfd() -> bool:
    """Return whether a process can be named by a descriptor: from Linux 5.3 on, where no sandbox forbids it."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


HAS_PIDFD = IS_LINUX and has_pidfd()


class Process(NamedTuple):
    """A process that was alive; ``pid`` and ``start_ticks`` together name it until the next boot.

    Ticks are those of Linux, since boot; elsewhere microseconds of the wall clock.
    """

    pid: int
    start_ticks: int
    parent: int

    @property
    def identity(self) -> tuple[int, int]:
        """What stays the same when its parent ends."""
        return self.pid, self.start_ticks


def adopt_orphans() -> bool:
    """Make this process the parent of every descendant whose own parent ends; return whether that is to be had."""
    if not IS_LINUX:
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def look_up(pid: int) -> Process | None:
    """Return what runs as ``pid``, ``None`` if nothing does or it is a zombie."""
    if not IS_LINUX:
        from reference_scheduler.processes import elsewhere

        return elsewhere.look_up(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - this is read for every process there is
            state, *fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if state in (b"Z", b"X") else Process(pid, int(fields[18]), int(fields[0]))


def processes() -> list[Process]:
    """Return every process that can be seen, by pid."""
    return [process for pid in sorted(_pids()) if (process := look_up(pid))]


def _pids() -> list[int]:
    if not IS_LINUX:
        from reference_scheduler.processes import elsewhere

        return elsewhere.pids()
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - a string less for each
    except FileNotFoundError:
        return []


def environment(pid: int) -> bytes:
    """Return the environment of a process, each variable with a NUL behind it; empty if it cannot be read."""
    if not IS_LINUX:
        from reference_scheduler.processes import elsewhere

        return elsewhere.environment(pid)
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - this is read for every process there is
            return file.read()
    except OSError:
        return b""


def descendants(root: int) -> list[Process]:
    """Return what descends from ``root``, parents before children."""
    return below([root], processes())


def below(roots: list[int], among: list[Process]) -> list[Process]:
    """Return what descends from ``roots``, themselves left out, parents before children."""
    children: dict[int, list[Process]] = {}
    for process in among:
        children.setdefault(process.parent, []).append(process)
    found = [child for root in roots for child in children.get(root, ())]
    for process in found:
        found += children.get(process.pid, ())
    return found


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Signal ``process``, and by a pidfd never another that got its pid; return whether it was still there.

    Raises:
        PermissionError: it may not be signalled.
    """
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(process.pid) if HAS_PIDFD else None
        try:
            now = look_up(process.pid)
            if now is None or now.identity != process.identity:
                return False
            if fd is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(fd, number)
            return True
        finally:
            if fd is not None:
                os.close(fd)
    return False
