"""What :mod:`~reference_scheduler.processes.tree` tells of processes on systems other than Linux, by way of psutil."""

from __future__ import annotations

import os

import psutil

from reference_scheduler.processes.tree import Process


def pids() -> list[int]:
    """Return the pids of all processes that can be seen."""
    return psutil.pids()


def look_up(pid: int) -> Process | None:
    """Return what runs as ``pid``, ``None`` if nothing does or it is a zombie."""
    try:
        found = psutil.Process(pid)
        with found.oneshot():
            if found.status() == psutil.STATUS_ZOMBIE:
                return None
            return Process(pid, round(found.create_time() * 1e6), found.ppid())
    except psutil.Error:
        return None


def environment(pid: int) -> bytes:
    """Return the environment of a process as Linux tells it; empty if it cannot be read."""
    try:
        variables = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return b""
    return b"".join(os.fsencode(f"{name}={value}\0") for name, value in variables.items())
