"""The events that a start begins with, and what they did to what an earlier start left behind."""

from __future__ import annotations

from collections.abc import Sequence

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.events import ConfigLoaded, Event, GenerationStarted
from reference_scheduler.core.model import Config
from reference_scheduler.views import RecoveryReport


def first_events(config: Config, generation: str, now_us: int) -> list[Event]:
    """Return what the core is told at a start."""
    return [
        ConfigLoaded(at=now_us, run_pass=False, config=config),
        GenerationStarted(at=now_us, run_pass=False, generation=generation),
    ]


class Recovery:
    """Remembers what was under way in ``core`` before its first events, to tell what became of it."""

    def __init__(self, core: SchedulerCore) -> None:
        self._previous = core.generation
        self._jobs = [job.spec.id for job in core.running()]

    def report(self, core: SchedulerCore, strays: int, notes: Sequence[str]) -> RecoveryReport:
        """Return what became of it in ``core``, after its first events."""
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
