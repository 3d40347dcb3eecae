"""What happens to the scheduler. The stream of these, in this order, is its only input.

``at`` is in microseconds. ``run_pass`` says whether a scheduling pass follows the event: that choice changes
schedules, so it is recorded with the event instead of being made by whoever replays it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import Config, Failure, JobSpec, JobState


class _Event(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True, gc=False):
    at: int
    run_pass: bool = True


class ConfigLoaded(_Event, frozen=True):
    """The first event of any stream; later ones replace the configuration."""

    config: Config


class JobSubmitted(_Event, frozen=True):
    """A job, or, with ``array_size`` > 0, that many equal ones named ``id[0]``, ``id[1]``, ….

    At most ``array_running`` of them run at once (0: no such limit). The array's id can be depended on and
    cancelled as a whole.
    """

    job: JobSpec
    array_size: int = 0
    array_running: int = 0


class JobUpdated(_Event, frozen=True):
    """A job that has not ended gets new fields; ``changed`` names them, ``job`` is the whole result.

    If ``job`` has the id of an array, all of its jobs that have not ended get these fields, and keep their others.
    """

    job: JobSpec
    changed: tuple[str, ...]


class JobStateChanged(_Event, frozen=True):
    """An executor says what became of attempt ``attempt``: it runs, or it ended in state ``new``."""

    job: str
    attempt: int
    old: JobState
    new: JobState
    exit_code: int | None = None
    failure: Failure = Failure.UNKNOWN


class CancelRequested(_Event, frozen=True):
    """Someone wants a job or an array gone."""

    job: str
    reason: str = ""


class WorkerUpdated(_Event, frozen=True):
    """A worker joins, or says anew what it has and whether it takes work."""

    worker: str
    capacity: Resources
    accepting: bool = True


class WorkerLost(_Event, frozen=True):
    """A worker and all that ran on it is gone."""

    worker: str


class ResourcesChanged(_Event, frozen=True):
    """The budget of a known worker is set by hand; below its use, it takes nothing until it is back under."""

    worker: str
    capacity: Resources


class QueueConfigured(_Event, frozen=True):
    """A named queue is paused, resumed or limited."""

    queue: str
    paused: bool = False
    max_running: int | None = None


class UsageReported(_Event, frozen=True):
    """What an attempt was seen to use; told apart from what it holds, never added to it."""

    job: str
    attempt: int
    used: Resources


class GenerationStarted(_Event, frozen=True):
    """The scheduler was started anew: whatever ran under an earlier generation runs no longer."""

    generation: str


class Tick(_Event, frozen=True):
    """Time has passed; due at ``next_due``."""


Event: TypeAlias = (
    ConfigLoaded
    | JobSubmitted
    | JobUpdated
    | JobStateChanged
    | CancelRequested
    | WorkerUpdated
    | WorkerLost
    | ResourcesChanged
    | QueueConfigured
    | UsageReported
    | GenerationStarted
    | Tick
)
