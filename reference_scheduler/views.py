"""What callers are shown of jobs, attempts and the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import AttemptState, JobState
from reference_scheduler.executors.base import Progress, decode_result
from reference_scheduler.journal.base import AttemptRow, JobRow


class JobView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job as it durably is; ``reason`` says what it waits for. Times are of the wall clock.

    One that is ``observed`` is run by its caller, who reports its end. ``command``, one line that says what it runs,
    and when its latest attempt began and how long that took are there for whoever asks for the job or for a list;
    ``payload`` is for whoever asks for the one job.

    An array has an ``array_size``, and ``tasks`` counts its jobs by state, those that are remembered; it runs while one
    of them does, and has completed when all have. Each of them names it as ``array``, and has an ``array_index``.
    """

    id: str
    kind: str
    state: JobState
    priority: str
    command: str = ""
    user: str = ""
    workspace: str = ""
    session: str = ""
    queue: str = ""
    key: str = ""
    attempts: int = 0
    exit_code: int | None = None
    reason: str = ""
    submitted_at_us: int = 0
    started_at_us: int | None = None
    ended_at_us: int | None = None
    took_us: int | None = None
    observed: bool = False
    progress: Progress | None = None
    payload: dict[str, Any] | None = None
    array: str = ""
    array_index: int | None = None
    array_size: int = 0
    tasks: dict[str, int] = {}


def end_of(row: JobRow, attempts: Sequence[AttemptView], followed: Sequence[JobRow] = ()) -> str:
    """Say in one sentence how a job ended; ``followed`` are those that had to complete before it."""
    said = f"Job {row.job} is {row.state}"
    missing = next((other for other in followed if other.state is not JobState.COMPLETED), None)
    if row.state is JobState.COMPLETED:
        return f"{said}."
    if missing is not None:
        return f"{said}; job {missing.job}, which had to complete first, is {missing.state}."
    if not attempts:
        return f"{said}; it never started."
    last = attempts[-1]
    what = last.detail
    if not what and last.state is AttemptState.INTERRUPTED:
        what = "cut short, and such work is not simply repeated"
    if not what and last.signal is not None:
        what = f"ended by signal {last.signal}"
    if not what:
        what = str(last.state) if last.exit_code is None else f"exit status {last.exit_code}"
    return f"{said}; attempt {last.number}: {what}."


def in_order(tasks: Mapping[JobState, int]) -> dict[str, int]:
    """Return the counts of an array's jobs by state, in the order of the states."""
    return {str(state): tasks[state] for state in JobState if state in tasks}


def array_sentence(row: JobRow, tasks: Mapping[JobState, int], hold: str) -> str:
    """Say in one sentence how far an array is, of whose jobs ``tasks`` are in each state, and what holds them all."""
    counts = ", ".join(f"{count} {state}" for state, count in in_order(tasks).items())
    return f"Job {row.job} is an array of {row.array_size}, and {row.state}: {counts}{f'; {hold}' if hold else ''}."


class AttemptView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt of a job."""

    job: str
    number: int
    state: AttemptState
    generation: str
    started_at_us: int
    ended_at_us: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    failure: str = ""
    detail: str = ""

    @classmethod
    def of(cls, row: AttemptRow) -> AttemptView:
        """Return the view of ``row``."""
        result = decode_result(row.result) if row.result else None
        failed = result is not None and result.state is AttemptState.FAILED
        return cls(
            row.job,
            row.number,
            row.state,
            row.generation,
            row.started_us,
            row.ended_us,
            row.exit_code,
            result.signal if result else None,
            result.failure if result and failed else "",
            result.detail if result else "",
        )


class RecoveryReport(msgspec.Struct, frozen=True):
    """What a start found, for the operator: attempts that an earlier generation left, and what became of them.

    The jobs of the ``interrupted`` attempts were ``requeued`` or are ``terminal``. ``strays`` processes were still
    there and were ended. ``notes`` tell what the journal had to put right.
    """

    generation: str
    previous: str = ""
    interrupted: int = 0
    requeued: int = 0
    terminal: int = 0
    strays: int = 0
    notes: tuple[str, ...] = ()


class Budget(msgspec.Struct, frozen=True):
    """What there is of the resources, and what live attempts hold of it."""

    capacity: Resources
    used: Resources


class SchedulerSnapshot(msgspec.Struct, frozen=True):
    """The scheduler at one moment, for people and monitors; its size is bounded.

    It is ``accepting`` if it takes jobs; ``hold`` says what keeps all jobs from starting, and is empty if nothing
    does. ``queued`` and ``running`` count jobs by class, kind and workspace (``"priority:normal"``); those beyond
    the first hundred names are counted in ``overflow``. ``held_keys`` are hashes, for keys may be paths. ``ended``
    counts the jobs that have ended in this generation, by state. ``executors`` counts what runs by kind; what is
    wrong with them, if they say so, is in ``unhealthy``.
    """

    generation: str
    rollout: str
    enabled: bool
    accepting: bool
    unavailable: str
    budget: Budget
    queued: dict[str, int]
    running: dict[str, int]
    overflow: dict[str, int]
    blocked: dict[str, int]
    held_keys: tuple[str, ...]
    executors: dict[str, int]
    oldest_queued_us: int
    stale_writes: int
    clamped: int
    wakes: dict[str, int]
    ended: dict[str, int]
    unhealthy: dict[str, str] = {}
    hold: str = ""


class RecordStatus(msgspec.Struct, frozen=True):
    """Whether a recording is under way, to which file, and what stopped it if it broke off."""

    active: bool
    path: str = ""
    events: int = 0
    error: str = ""
