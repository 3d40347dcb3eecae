"""What an event and its decisions change in the tables."""

from __future__ import annotations

from collections.abc import Iterable

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Decision, Dispatch
from reference_scheduler.core.events import CancelRequested, Event, GenerationStarted, JobStateChanged
from reference_scheduler.core.model import AttemptState, JobState
from reference_scheduler.journal.base import AttemptRow, JobChange


def touched(event: Event, decisions: Iterable[Decision]) -> list[str]:
    """Return the jobs that may be in another state than before, besides those that a restart cut short."""
    names = [decision.job for decision in decisions]
    begins = isinstance(event, JobStateChanged) and event.new is JobState.RUNNING  # it was so since its dispatch
    if isinstance(event, JobStateChanged | CancelRequested) and not begins:
        names.append(event.job)
    return names


def attempts_interrupted(core: SchedulerCore, event: Event, wall_us: int) -> list[AttemptRow]:
    """Return the attempts that ``event``, which ``core`` has not yet handled, cuts short."""
    if not isinstance(event, GenerationStarted):
        return []
    return [
        AttemptRow(job.spec.id, job.attempts, AttemptState.INTERRUPTED, core.generation, wall_us, wall_us)
        for job in core.running()
    ]


def change_of(core: SchedulerCore, job: str, wall_us: int) -> JobChange | None:
    """Return what ``job`` has come to, ``None`` if the core does not know it."""
    alive = core.job(job)
    if alive is not None:
        return JobChange(job, alive.state, alive.attempts)
    outcome = core.outcome(job)
    return None if outcome is None else JobChange(job, outcome.state, None, outcome.exit_code, wall_us)


def attempts_started(decisions: Iterable[Decision], generation: str, wall_us: int) -> list[AttemptRow]:
    """Return the attempts that ``decisions`` make."""
    return [
        AttemptRow(decision.job, decision.attempt, AttemptState.ADMITTED, generation, wall_us)
        for decision in decisions
        if isinstance(decision, Dispatch)
    ]
