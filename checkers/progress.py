"""A bar that shows how far a long scan is, for a person who waits at a terminal. It is no part of what is reported."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY_S = 1.0
"""A scan that takes less shows nothing."""
_REFRESH_S = 0.1


class Bar:
    """Calls tell how many files are read of how many; on leaving, the line is blank again.

    Nothing is imported before there is something to show, and no thread is started: workers may be forked meanwhile.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + DELAY_S
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Bar:
        return self

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if now < self._due:
            return
        self._due = now + _REFRESH_S
        if self._shown is None:
            self._shown = _start(total)
        progress, task = self._shown
        progress.update(task, completed=done, total=total, refresh=True)

    def __exit__(self, *raised: object) -> None:
        if self._shown is not None:
            self._shown[0].stop()


def is_watched() -> bool:
    """Whether somebody is likely to look: standard error is a terminal, and not that of a CI job."""
    return sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("CI")


def _start(total: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("reading files"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
    progress.start()
    return progress, progress.add_task("", total=total)
