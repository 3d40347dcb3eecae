"""A control group for all processes of a scheduler, where cgroup v2 is delegated to it.

Membership is inherited and cannot be given up without write access, so a group also holds what cleared its
environment and outlived both guardian and supervisor. One write kills all of it, however fast it forks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from reference_scheduler.processes import tree

PREFIX = "spawngate"
MAX_PAUSE_S = 1.0


def delegated() -> Path | None:
    """Return the directory in which this process may make groups, ``None`` if it may not."""
    if not tree.IS_LINUX:
        return None
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        root = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
    except (OSError, StopIteration):
        return None
    folder = Path(root + own.removeprefix("0::"))
    # Root may write everywhere, but what a service manager keeps to itself is not to be changed.
    is_ours = os.geteuid() != 0 or own == "0::/" or _is_marked(folder, "trusted") or _is_marked(folder, "user")
    return folder if is_ours and os.access(folder, os.W_OK) else None


def _is_marked(folder: Path, namespace: str) -> bool:
    try:
        return os.getxattr(folder, f"{namespace}.delegate") == b"1"
    except OSError:
        return False


def _name(scheduler: tree.Process) -> str:
    """A pid and its start name a process within one pid namespace only."""
    return f"{PREFIX}-{Path('/proc/self/ns/pid').stat().st_ino}-{scheduler.pid}-{scheduler.start_ticks}"


def make() -> Path | None:
    """Make the group of this process, as its scheduler; return ``None`` where that is not possible."""
    parent, scheduler = delegated(), tree.look_up(os.getpid())
    if parent is None or scheduler is None:
        return None
    try:
        group = parent / _name(scheduler)
        group.mkdir(exist_ok=True)
        has_kill = (group / "cgroup.kill").exists()
    except OSError:
        return None
    return group if has_kill else None


async def end(group: Path) -> int:
    """Kill everything in ``group`` until nothing is left, and remove it; return how many processes it held."""
    pause_s, most = 0.001, 0
    with contextlib.suppress(OSError):
        while count := len((group / "cgroup.procs").read_text().split()):
            most = max(most, count)
            (group / "cgroup.kill").write_text("1")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        group.rmdir()
    return most


def left_over() -> list[Path]:
    """Return the groups whose schedulers are gone."""
    parent = delegated()
    if parent is None:
        return []
    alive = {_name(process) for process in tree.processes()}
    mine = _name(tree.Process(0, 0, 0)).removesuffix("0-0")
    return [group for group in parent.glob(f"{mine}*") if group.name not in alive]
