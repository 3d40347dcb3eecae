"""Processes and their descent, as the kernel tells it (Linux; elsewhere there is nothing to read)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """A process that was alive; ``pid`` and ``start_ticks`` (since boot) together name it until the next boot."""

    pid: int
    start_ticks: int
    parent: int

    @property
    def identity(self) -> tuple[int, int]:
        """What stays the same when its parent ends."""
        return self.pid, self.start_ticks


def adopt_orphans() -> bool:
    """Make this process the parent of every descendant whose own parent ends; return whether that is to be had."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def look_up(pid: int) -> Process | None:
    """Return what runs as ``pid``, ``None`` if nothing does or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - this is read for every process there is
            state, *fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if state in (b"Z", b"X") else Process(pid, int(fields[18]), int(fields[0]))


def processes() -> list[Process]:
    """Return every process that can be seen, by pid."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - a string less for each
    except FileNotFoundError:
        return []
    return [process for pid in sorted(pids) if (process := look_up(pid))]


def descendants(root: int) -> list[Process]:
    """Return what descends from ``root``, parents before children."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(root, ()))
    for process in found:
        found += children.get(process.pid, ())
    return found


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Signal exactly ``process``, never another that got its pid; return whether it was still there.

    Raises:
        PermissionError: it may not be signalled.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        now = look_up(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)
            return True
        return False
    finally:
        os.close(fd)
