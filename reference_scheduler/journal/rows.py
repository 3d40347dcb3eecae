"""What an event and its decisions change in the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Decision, Dispatch
from reference_scheduler.core.events import CancelRequested, Event, GenerationStarted, JobStateChanged
from reference_scheduler.core.model import AttemptState, JobState, task_of
from reference_scheduler.journal.base import AttemptRow, JobChange


def concerned(core: SchedulerCore, event: Event) -> list[str]:
    """Return the job that ``event``, which ``core`` has not yet handled, may change: none that has ended."""
    if isinstance(event, (JobStateChanged, CancelRequested)) and core.job(event.job) is not None:
        return [event.job]
    return []


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


def is_as_new(change: JobChange, arrays: Collection[str]) -> bool:
    """Return whether a job of one of the new ``arrays`` has come to nothing but what it begins with."""
    if not arrays or change.state is not JobState.QUEUED or change.attempts:
        return False
    task = task_of(change.job)
    return task is not None and task[0] in arrays


def arrays_ended(core: SchedulerCore, jobs: Iterable[str], wall_us: int) -> list[JobChange]:
    """Return the arrays that have ended with the last of ``jobs``, which just changed."""
    arrays = dict.fromkeys(task[0] for job in jobs if job[-1] == "]" and (task := task_of(job)))
    ended = ((array, core.outcome(array)) for array in arrays)
    return [
        JobChange(array, outcome.state, None, ended_us=wall_us, is_array=True)
        for array, outcome in ended
        if outcome is not None
    ]


def beginnings(at_us: int, decisions: Iterable[Decision]) -> list[JobStateChanged]:
    """Return what the core is to be told of the attempts that ``decisions`` make: they run."""
    return [
        JobStateChanged(
            at=at_us,
            run_pass=False,
            job=decision.job,
            attempt=decision.attempt,
            old=JobState.QUEUED,
            new=JobState.RUNNING,
        )
        for decision in decisions
        if isinstance(decision, Dispatch)
    ]


def attempt_begun(event: JobStateChanged, generation: str, wall_us: int) -> AttemptRow:
    """Return the row of a new attempt."""
    return AttemptRow(event.job, event.attempt, AttemptState.RUNNING, generation, wall_us)
