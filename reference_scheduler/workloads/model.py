"""What all readers and generators give."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import msgspec

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.events import JobUpdated, QueueConfigured
from reference_scheduler.core.model import SECOND_US, JobSpec, Priority, ResourceRequest

MACHINE = "machine"
"""The one worker of a trace that knows only a number of processors."""


class WorkloadError(ValueError):
    """A trace is malformed."""


class TimedJob(msgspec.Struct, frozen=True, gc=False):
    """A job, when it is submitted, and how long it would run if nothing stopped it."""

    submit_us: int
    run_us: int
    job: JobSpec


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


def seconds_us(text: str) -> int:
    """Return ``text``, seconds as a decimal number, in microseconds.

    Raises:
        ValueError: it is no number.
    """
    try:
        return int(text) * SECOND_US
    except ValueError:
        try:
            return int(Decimal(text) * SECOND_US)
        except (InvalidOperation, OverflowError):
            raise ValueError(f"not a number of seconds: {text!r}") from None


@contextmanager
def open_trace(path: Path) -> Iterator[TextIO]:
    """Open a text file that may be gzipped; bytes that are not UTF-8 are kept out of the way, not refused.

    Raises:
        WorkloadError: what was to be gzipped is not, or is damaged.
        OSError: the file cannot be read.
    """
    if path.suffix == ".gz":
        try:
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as stream:
                yield stream
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise WorkloadError(f"{path}: not a whole gzip file: {error}") from error
    else:
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield stream
