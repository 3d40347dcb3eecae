"""One scheduler per journal: a lock that the operating system frees when its holder dies, however it dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from weakref import WeakSet

from reference_scheduler.errors import JournalLocked, JournalUnavailable

STANDBY_INTERVAL_S = 1.0


def real_path(journal: Path) -> Path:
    """Return the path of ``journal`` itself, whatever links lead there: its lock and its logs are beside it."""
    return Path(os.path.realpath(journal))


class JournalLock:
    """Holds ``<journal>.lock`` until it is released or the process ends; no pid is kept, so none can be reused.

    A fork of the process, which may outlive it, does not hold it.

    Raises:
        JournalLocked: another scheduler holds it.
        JournalUnavailable: the file cannot be made, or is where no locks are.
    """

    def __init__(self, journal: Path) -> None:
        path = journal.with_name(journal.name + ".lock")
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalUnavailable(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if isinstance(error, BlockingIOError):
                raise JournalLocked(f"{journal}: another scheduler uses this journal") from error
            raise JournalUnavailable(f"{path}: cannot be locked: {error.strerror}") from error
        _held.add(self)

    def release(self) -> None:
        """Let another scheduler have the journal; again, it does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_held = WeakSet[JournalLock]()


def _release_all() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_all)


async def wait_until_free(journal: Path) -> None:
    """Return when no scheduler held the journal a moment ago: what a standby does before it tries to start."""
    while True:
        try:
            JournalLock(journal).release()
        except JournalLocked:
            await asyncio.sleep(STANDBY_INTERVAL_S)
        else:
            return
