"""The lives of jobs and attempts, as tables. Nothing else changes a state."""

from __future__ import annotations

from reference_scheduler.core.invariants import violated
from reference_scheduler.core.model import AttemptState, Job, JobState

_WAITING = frozenset({JobState.SCHEDULED, JobState.QUEUED, JobState.BLOCKED})
_LEAVES_WAITING = frozenset({JobState.CANCELLED, JobState.EXPIRED})

TERMINAL = frozenset(
    {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMED_OUT,
        JobState.EXPIRED,
        JobState.DEAD_LETTER,
    }
)

JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.SCHEDULED: _WAITING | _LEAVES_WAITING,
    JobState.BLOCKED: _WAITING | _LEAVES_WAITING,
    JobState.QUEUED: _WAITING | _LEAVES_WAITING | {JobState.RUNNING},
    JobState.RUNNING: (TERMINAL - {JobState.EXPIRED}) | _WAITING | {JobState.INTERRUPTED},
    JobState.INTERRUPTED: _WAITING | {JobState.CANCELLED, JobState.FAILED, JobState.DEAD_LETTER},
    **{state: frozenset[JobState]() for state in TERMINAL},
}

LIVE_ATTEMPT = frozenset({AttemptState.ADMITTED, AttemptState.RUNNING})

ATTEMPT_ENDS: dict[JobState, AttemptState] = {
    JobState.COMPLETED: AttemptState.COMPLETED,
    JobState.FAILED: AttemptState.FAILED,
    JobState.CANCELLED: AttemptState.CANCELLED,
    JobState.TIMED_OUT: AttemptState.TIMED_OUT,
    JobState.INTERRUPTED: AttemptState.INTERRUPTED,
}
"""The states an executor may report as the end of an attempt."""


def move(job: Job, state: JobState) -> None:
    """Put ``job`` into ``state``; a move that the table does not have is a defect of the core."""
    if state not in JOB_MOVES[job.state]:
        violated("illegal move of a job", job.spec.id, job.state, state)
    job.state = state
