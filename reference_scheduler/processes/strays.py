"""Processes that outlived their scheduler, known by the marks in their environment and never by a recorded pid."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import NamedTuple

from reference_scheduler.processes import cgroup, tree
from reference_scheduler.processes.environment import MARK

PAUSE_S, MAX_PAUSE_S = 0.001, 1.0

Marks = Mapping[str, str]
Refused = Callable[[int, str], None]
"""Told that the process with a pid could not be given a signal."""


def marks_of(pid: int) -> dict[str, str]:
    """Return the marks in the environment of a process, without their prefix; none if it cannot be read."""
    entries = tree.environment(pid).split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if entry.startswith(MARK.encode()))
    return {
        name.decode(errors="surrogateescape")[len(MARK) :]: value.decode(errors="surrogateescape")
        for name, _, value in pairs
    }


def find(is_stray: Callable[[Marks], bool]) -> list[tree.Process]:
    """Return the processes that have marks for which ``is_stray`` holds, with all that descends from them."""
    found: dict[int, tree.Process] = {}
    for process in tree.processes():
        if process.pid not in found and (marks := marks_of(process.pid)) and is_stray(marks):
            found.update((one.pid, one) for one in (process, *tree.descendants(process.pid)))
    return list(found.values())


class Ended(NamedTuple):
    """How many processes were killed, and how many could not be."""

    killed: int
    refused: int


async def end(is_stray: Callable[[Marks], bool], on_refused: Refused | None = None) -> Ended:
    """Kill what :func:`find` finds, until nothing is left but what this process may not kill."""
    seen: set[tuple[int, int]] = set()
    refused: set[tuple[int, int]] = set()
    pause_s = PAUSE_S
    while found := [process for process in find(is_stray) if process.identity not in refused]:
        for process in found:
            seen.add(process.identity)
            try:
                tree.send_signal(process, signal.SIGKILL)
            except PermissionError:
                refused.add(process.identity)
                if on_refused:
                    on_refused(process.pid, signal.SIGKILL.name)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, MAX_PAUSE_S)
    return Ended(len(seen - refused), len(refused))


async def end_strays(owner: str, generation: str, on_refused: Refused | None = None) -> int:
    """End what other generations of ``owner`` have left, as a new one does before it starts anything.

    Processes of other owners are let alone: several schedulers may share a machine. Returns how many were ended.
    """
    in_groups = sum([await cgroup.end(group) for group in cgroup.left_over()])
    marked = await end(lambda marks: marks.get("OWNER") == owner and marks.get("GENERATION") != generation, on_refused)
    return in_groups + marked.killed
