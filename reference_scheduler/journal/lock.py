"""One scheduler per journal: a lock that the operating system frees when its holder dies, however it dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from reference_scheduler.errors import JournalLocked, JournalUnavailable

STANDBY_INTERVAL_S = 1.0


class JournalLock:
    """Holds ``<journal>.lock`` until it is released or the process ends; no pid is kept, so none can be reused.

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
            if not isinstance(error, BlockingIOError):
                raise JournalUnavailable(f"{path}: cannot be locked: {error.strerror}") from error
            raise JournalLocked(f"{journal}: another scheduler uses this journal") from error

    def release(self) -> None:
        """Let another scheduler have the journal; again, it does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


async def wait_until_free(journal: Path) -> None:
    """Return when no scheduler held the journal a moment ago: what a standby does before it tries to start."""
    while True:
        try:
            JournalLock(journal).release()
        except JournalLocked:
            await asyncio.sleep(STANDBY_INTERVAL_S)
        else:
            return
