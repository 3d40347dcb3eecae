"""What belongs to an attempt, and whether any of it lives."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

from reference_scheduler.processes import tree

MARK = b"REFSCHED_LINEAGE"
"""None of the marks of the scheduler: those say whose a process is, and are compared as a whole."""
PAUSE_S, MAX_PAUSE_S = 0.001, 0.25
"""Between two looks at what is no child, and so tells nobody that it ends; each is twice as long as the one before."""


class Lineage:
    """All that is below this process: where it adopts orphans, nothing escapes from there."""

    due_at: float | None = None
    """When to look again, by the monotonic clock; ``None`` where ends are told."""

    def marked(self, env: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        """Return the environment in which the first process has to start."""
        return env

    def begin(self, first: int) -> None:
        """The first process has started, and is not reaped yet."""

    def members(self) -> list[tree.Process]:
        """Return what lives, parents before children."""
        return tree.descendants(os.getpid())

    def is_over(self) -> bool:
        """Return whether nothing lives, when this process has no child left."""
        return True


class Traces(Lineage):
    """Where others adopt the orphans: what has the session of the first process, or the mark that it was given, or was
    among these when last looked at, with all that descends from it.

    What has rid itself of all of that between two looks is lost.
    """

    def __init__(self) -> None:
        self._mark = b"%s=%d-%d" % (MARK, os.getpid(), time.monotonic_ns())
        self._session: int | None = None
        self._first: tree.Process | None = None
        self._known: set[tuple[int, int]] = set()
        self._pause_s = PAUSE_S

    def marked(self, env: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        """See :class:`Lineage`."""
        name, _, value = self._mark.partition(b"=")
        return {**env, name: value}

    def begin(self, first: int) -> None:
        """See :class:`Lineage`."""
        self._session, self._first = first, tree.look_up(first)

    def members(self) -> list[tree.Process]:
        """See :class:`Lineage`."""
        if self._session is None:
            return []
        since = self._first.start_ticks if self._first else 0  # what is older need not be asked for its environment
        alive = [process for process in tree.processes() if process.start_ticks >= since]
        leader = next((process for process in alive if process.pid == self._session), None)
        # A stranger that got the pid may lead a session by it.
        is_ours = leader is None or (self._first is not None and leader.identity == self._first.identity)
        roots = [process for process in alive if self._is_root(process, is_ours)]
        found = {process.identity: process for process in (*roots, *tree.below([root.pid for root in roots], alive))}
        self._known = set(found)
        return list(found.values())

    def _is_root(self, process: tree.Process, has_session: bool) -> bool:
        if process.pid == os.getpid():
            return False
        if process.identity in self._known or (has_session and _session_of(process.pid) == self._session):
            return True
        return self._mark in tree.environment(process.pid).split(b"\0")

    def is_over(self) -> bool:
        """See :class:`Lineage`."""
        self.due_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        return not self.members()


def _session_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None
