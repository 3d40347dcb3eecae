"""The seam between scheduler and storage: what is written together, and what can be asked for.

A journal is used by one thread that writes and one that reads; :meth:`Journal.commit` may block on a disk.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from reference_scheduler.core.model import AttemptState, JobState, task_id, task_of
from reference_scheduler.replay.records import Entry, State

GENESIS = bytes(16)
"""The mark before the first commit."""
_TOO_MANY_DIGITS = 19
"""So many a number may have that no journal can count to."""
MAX_LISTED_BYTES = 16 * 1024
"""A longer request does not come with the list of jobs, of which there may be a thousand."""


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """A job as the journal keeps it; ``request`` is as :func:`reference_scheduler.requests.encoded` gives it.

    Times are of the wall clock, in microseconds, for people: nothing is decided by them. A job that is
    ``observed`` is run by its caller, not by the scheduler. An array has a row too, with its ``array_size`` and the
    request that its jobs share; theirs name it as ``array``, and are made by the journal that writes its own.
    """

    job: str
    kind: str
    priority: str
    user: str
    workspace: str
    session: str
    queue: str
    key: str
    fingerprint: bytes
    request: bytes
    submitted_us: int
    observed: bool = False
    state: JobState = JobState.QUEUED
    attempts: int = 0
    exit_code: int | None = None
    ended_us: int | None = None
    array: str = ""
    array_size: int = 0

    @property
    def is_array(self) -> bool:
        """Whether it is no job itself, but an array of them."""
        return self.array_size > 0

    @property
    def last_number(self) -> int:
        """The number of the job, or of the last job of the array."""
        return number_of(self.job) + self.array_size


class JobChange(msgspec.Struct, frozen=True, gc=False):
    """What became of a job; ``ended_us`` is set if it ended for good.

    ``None`` for ``attempts`` or ``priority``: as before.
    """

    job: str
    state: JobState
    attempts: int | None
    exit_code: int | None = None
    ended_us: int | None = None
    priority: str | None = None
    is_array: bool = False


class AttemptRow(msgspec.Struct, frozen=True, gc=False):
    """One attempt; ``result`` is the encoded ``AttemptResult`` once it has ended with one."""

    job: str
    number: int
    state: AttemptState
    generation: str
    started_us: int
    ended_us: int | None = None
    exit_code: int | None = None
    result: bytes = b""


class GenerationRow(msgspec.Struct, frozen=True, gc=False):
    """One start of the scheduler; its time is the monotonic clock of ``boot`` plus ``offset_us``."""

    generation: str
    started_us: int
    boot: str
    offset_us: int


class Batch(msgspec.Struct):
    """What becomes durable together or not at all.

    ``entries`` are consecutive. ``jobs`` are new; those of an array are queued with it, and ``changes`` follow. An
    attempt that is there already keeps its generation and start. ``state`` is that after the last entry; with it come
    the jobs to ``forget``, all of which have ended. ``paused``, if it is not ``None``, is whether an operator from now
    on wants nothing to start.
    """

    wall_us: int
    entries: list[Entry] = []
    jobs: list[JobRow] = []
    changes: list[JobChange] = []
    attempts: list[AttemptRow] = []
    generation: GenerationRow | None = None
    state: State | None = None
    forget: list[str] = []
    paused: bool | None = None

    @property
    def begun(self) -> list[str]:
        """The jobs of which attempts begin."""
        return [row.job for row in self.attempts if row.state is AttemptState.RUNNING]


class Saved(msgspec.Struct, frozen=True):
    """What a scheduler goes on from: the latest state and the ``entries`` after it."""

    state: State | None
    entries: list[Entry]
    generation: GenerationRow | None
    wall_us: int
    last_job: int
    paused: bool = False

    @property
    def number(self) -> int:
        """The number of the latest event, 0 if there was none."""
        if self.entries:
            return self.entries[-1].number
        return self.state.number if self.state else 0


class JobFilter(msgspec.Struct, frozen=True):
    """Which jobs to list: of any of ``states`` (empty: all), older than the job ``before``, newest first.

    An array is listed as one; its jobs only if it is the ``array`` asked for.
    """

    states: Collection[JobState] = ()
    kind: str = ""
    workspace: str = ""
    before: str = ""
    limit: int = 100
    array: str = ""


class Journal(Protocol):
    """Where a scheduler keeps what must survive it."""

    @property
    def owner(self) -> str:
        """A random name that the journal keeps for life."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed and put right when the journal was opened, for the operator."""
        ...

    def commit(self, batch: Batch) -> list[JobRow]:
        """Make ``batch`` durable; when this returns it survives a crash. Return the jobs of which attempts begin.

        Raises:
            JournalUnavailable: it could not be written, and none of it ever will be.
        """
        ...

    def load(self) -> Saved:
        """Return what to go on from.

        Raises:
            JournalDamaged: what is there is not what was written.
        """
        ...

    def upgrade(self) -> None:
        """Bring it to the form of this release, which has found that it can go on from what was loaded.

        Before that nothing but :meth:`load` can be asked, and the release that wrote it can still go on from it.
        """
        ...

    def job(self, job: str) -> JobRow | None:
        """Return the job or array, ``None`` if there is none of that id. An array of which jobs run is running."""
        ...

    def tasks(self, array: JobRow) -> dict[JobState, int]:
        """Return how many jobs of ``array`` are in which state, of those that are remembered."""
        ...

    def job_of_key(self, key: str) -> tuple[str, bytes] | None:
        """Return job and fingerprint of a submission key, ``None`` if it was not used."""
        ...

    def jobs(self, wanted: JobFilter) -> list[JobRow]:
        """Return the jobs that ``wanted`` asks for, newest first; requests beyond ``MAX_LISTED_BYTES`` are left out."""
        ...

    def attempts(self, job: str) -> list[AttemptRow]:
        """Return the attempts of ``job``, oldest first."""
        ...

    def latest(self, job: str) -> AttemptRow | None:
        """Return the latest attempt of ``job`` without its result, ``None`` if there is none."""
        ...

    def close(self) -> None:
        """Let go of the journal; again, it does nothing."""
        ...


def number_of(job: str) -> int:
    """Return the number behind a job's id, 0 if it can be none.

    The jobs of an array have the numbers that follow its own: ``12[3]`` is job number 16.
    """
    array, index = task_of(job) or (job, -1)
    is_number = array.isascii() and array.isdigit() and not array.startswith("0")
    return int(array) + 1 + index if is_number and len(array) < _TOO_MANY_DIGITS else 0


def id_of(number: int, array: int) -> str:
    """Return the id of the job ``number``, which is part of the array of that number, or of none if that is 0."""
    return task_id(str(array), number - array - 1) if array else str(number)
