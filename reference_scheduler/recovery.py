"""What becomes of that which an earlier start left behind."""

from __future__ import annotations

from collections.abc import Sequence

from reference_scheduler.core import SchedulerCore
from reference_scheduler.views import RecoveryReport


class Recovery:
    """Remembers what was under way in ``core`` before a new generation starts, to tell what became of it."""

    def __init__(self, core: SchedulerCore) -> None:
        self._previous = core.generation
        self._jobs = [job.spec.id for job in core.running()]

    def report(self, core: SchedulerCore, strays: int, notes: Sequence[str]) -> RecoveryReport:
        """Return what became of it in ``core``, which the new generation has started."""
        terminal = sum(1 for job in self._jobs if core.outcome(job) is not None)
        interrupted = len(self._jobs)
        return RecoveryReport(
            core.generation,
            self._previous,
            interrupted,
            interrupted - terminal,
            terminal,
            strays,
            tuple(notes),
        )
