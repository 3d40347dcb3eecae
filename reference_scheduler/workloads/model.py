"""What all readers and generators give."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec.structs import replace

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.events import JobUpdated, QueueConfigured
from reference_scheduler.core.model import MAX_TIME_US, SECOND_US, JobSpec, Priority, ResourceRequest, check_bounds

MACHINE = "machine"
"""The one worker of a trace that knows only a number of processors."""
MAX_LINE = 1 << 22
"""The longest line of a trace, in characters: a small gzipped file may hold one that fills the memory."""
_MOST_SHOWN = 40
"""So many characters of a field are shown in an error."""


class WorkloadError(ValueError):
    """A trace is malformed."""


class TimedJob(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A job, when it is submitted, and how long it would run if nothing stopped it.

    Raises:
        ValueError: a time is out of bounds; the message names both.
    """

    submit_us: int
    run_us: int
    job: JobSpec

    def __post_init__(self) -> None:
        if not (-MAX_TIME_US <= self.submit_us <= MAX_TIME_US and 0 <= self.run_us <= MAX_TIME_US):
            check_bounds("submit_us", self.submit_us, -MAX_TIME_US, MAX_TIME_US)
            check_bounds("run_us", self.run_us, 0, MAX_TIME_US)


class TimedArray(msgspec.Struct, frozen=True):
    """The submission of an array, whose jobs are among those of the workload, one after the other."""

    job: JobSpec
    size: int
    max_running: int


class Workload(msgspec.Struct, frozen=True):
    """The machine, and the jobs in order of submission; ``skipped`` rows of the trace were unusable.

    ``updates`` are what people changed while it went on, in order of time; ``arrays`` are by their ids. Nothing starts
    during the ``pauses``, each from one time until before another. What of a recording is ``left_out`` is counted.
    """

    workers: tuple[tuple[str, Resources], ...]
    jobs: tuple[TimedJob, ...]
    skipped: int = 0
    updates: tuple[JobUpdated | QueueConfigured, ...] = ()
    arrays: Mapping[str, TimedArray] = {}
    pauses: tuple[tuple[int, int], ...] = ()
    left_out: Mapping[str, int] = {}


def from_zero(workload: Workload) -> tuple[Workload, int]:
    """Return ``workload`` later by so many microseconds that no job of it is submitted before time 0, and how many.

    For a core no time is before that.

    Raises:
        WorkloadError: a time is then later than can be counted.
    """
    later_us = -min(workload.jobs[0].submit_us, 0) if workload.jobs else 0
    if not later_us:
        return workload, 0
    try:
        moved = replace(
            workload,
            jobs=tuple(TimedJob(at.submit_us + later_us, at.run_us, _later(at.job, later_us)) for at in workload.jobs),
            updates=tuple(_updated_later(update, later_us) for update in workload.updates),
            arrays={name: replace(at, job=_later(at.job, later_us)) for name, at in workload.arrays.items()},
            pauses=tuple((begin_us + later_us, end_us + later_us) for begin_us, end_us in workload.pauses),
        )
    except ValueError as error:
        raise WorkloadError(f"counted from the first submission, {error}") from error
    return moved, later_us


def _later(job: JobSpec, by_us: int) -> JobSpec:
    not_before_us = job.not_before_us + by_us if job.not_before_us else 0
    return replace(
        job, not_before_us=not_before_us, deadline_us=None if job.deadline_us is None else job.deadline_us + by_us
    )


def _updated_later(update: JobUpdated | QueueConfigured, by_us: int) -> JobUpdated | QueueConfigured:
    at = update.at + by_us
    if isinstance(update, JobUpdated):
        return replace(update, at=at, job=_later(update.job, by_us))
    return replace(update, at=at)


@lru_cache(maxsize=4096)
def _processors(count: int) -> ResourceRequest:
    return ResourceRequest(process_slots=count)


def trace_workload(jobs: list[TimedJob], processors: int, skipped: int) -> Workload:
    """Return the workload of ``jobs`` on one machine of ``processors``; equal times keep the given order."""
    ordered = sorted(jobs, key=lambda timed: timed.submit_us)
    return Workload(((MACHINE, Resources(process_slots=processors)),), tuple(ordered), skipped)


def trace_job(
    job: str,
    submit_us: int,
    run_us: int,
    processors: int,
    estimate_us: int,
    *,
    user: str = "",
    queue: str = "",
    workspace: str = "",
    session: str = "",
    priority: Priority = Priority.NORMAL,
) -> TimedJob:
    """Return a job of a trace that knows processors; its lane is its workspace, or else its user."""
    spec = JobSpec(
        id=job,
        priority=priority,
        user=user,
        workspace=workspace or user,
        session=session,
        queue=queue,
        request=_processors(processors),
        estimate_us=estimate_us,
    )
    return TimedJob(submit_us, run_us, spec)


def seconds_us(text: str | None) -> int:
    """Return ``text``, seconds as a decimal number, in microseconds; ``None`` stands for a field that is missing.

    Raises:
        ValueError: it is no number, or too large for a time.
    """
    try:
        time_us = int(text or "") * SECOND_US
    except ValueError:
        try:
            time_us = int(Decimal(text or "") * SECOND_US)
        except (ArithmeticError, ValueError):
            raise ValueError(f"not a number of seconds: {_shown(text)}") from None
    if not -MAX_TIME_US <= time_us <= MAX_TIME_US:
        raise ValueError(f"more than the {MAX_TIME_US // SECOND_US} seconds that can be counted: {_shown(text)}")
    return time_us


def whole_number(text: str | None) -> int:
    """Return ``text`` as a whole number; ``None`` stands for a field that is missing.

    Raises:
        ValueError: it is none.
    """
    try:
        return int(text or "")
    except ValueError:
        raise ValueError(f"not a whole number: {_shown(text)}") from None


def _shown(text: str | None) -> str:
    return "a missing field" if text is None else repr(text[:_MOST_SHOWN])


class _Lines:
    """The lines of a trace; ``number`` is that of the latest."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(MAX_LINE):
            self.number += 1
            if len(line) == MAX_LINE:
                raise ValueError(f"the line has {MAX_LINE} characters or more; a line tells of one job")
            yield line


@contextmanager
def open_trace(path: Path) -> Iterator[Iterator[str]]:
    """Give the lines of a text file that may be gzipped; bytes that are not UTF-8 are replaced, not refused.

    What the block raises because of a line becomes an error that names it.

    Raises:
        WorkloadError: a line is malformed, or longer than ``MAX_LINE``; what was to be gzipped is not, or is damaged.
        OSError: the file cannot be read.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    lines: _Lines | None = None
    try:
        with opened(path, "rt", encoding="utf-8-sig", errors="replace") as stream:
            lines = _Lines(stream)
            yield iter(lines)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise WorkloadError(f"{path}: not a whole gzip file: {error}") from error
    except (ValueError, csv.Error) as error:
        raise WorkloadError(f"{path}:{max(lines.number, 1) if lines else 1}: {error}") from error
