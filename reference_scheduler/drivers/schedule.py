"""What a run of a workload came to, and how good it was."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

import msgspec

from reference_scheduler.core.model import SECOND_US, Priority
from reference_scheduler.workloads.model import open_trace

BOUND_S = 10
"""Shorter run times count as this long in the bounded slowdown (Feitelson et al., JSSPP 1997)."""

Metrics: TypeAlias = dict[str, "int | float | dict[str, Metrics] | None"]


class JobRun(msgspec.Struct, frozen=True, gc=False):
    """One job that ended: its first start, its end, and the processors it held."""

    job: str
    submit_us: int
    start_us: int
    end_us: int
    processors: int
    priority: Priority
    lane: str


class Schedule(msgspec.Struct, frozen=True):
    """The jobs that ended, in order of submission, on a machine of ``processors``."""

    runs: tuple[JobRun, ...]
    processors: int
    skipped: int = 0
    refused: tuple[str, ...] = ()


def metrics(schedule: Schedule, elapsed_s: float) -> Metrics:
    """Return the measures of ``schedule``, times in seconds; ``elapsed_s`` is what computing it took.

    Wait is start - submit; bounded slowdown max(1, (wait + run) / max(run, 10 s)); makespan last end - first
    submit; utilisation Σ processors·run / (processors of the machine · makespan).
    """
    runs = schedule.runs
    result: Metrics = {"jobs": len(runs), "skipped": schedule.skipped, "refused": len(schedule.refused)}
    result |= _measures(runs, schedule.processors)
    result["jobs_per_second"] = round(len(runs) / elapsed_s, 1) if elapsed_s > 0 else None
    result["classes"] = _grouped(schedule, attrgetter("priority.value"))
    result["lanes"] = _grouped(schedule, attrgetter("lane"))
    return result


def _grouped(schedule: Schedule, name_of: Callable[[JobRun], str]) -> dict[str, Metrics]:
    groups: dict[str, list[JobRun]] = {}
    for run in schedule.runs:
        groups.setdefault(name_of(run), []).append(run)
    return {name: {"jobs": len(runs), **_measures(runs, schedule.processors)} for name, runs in sorted(groups.items())}


def _measures(runs: Sequence[JobRun], processors: int) -> Metrics:
    if not runs:
        return dict.fromkeys(("mean_wait", "max_wait", "mean_bounded_slowdown", "utilisation", "makespan"))
    waits = [(run.start_us - run.submit_us) / SECOND_US for run in runs]
    lengths = [(run.end_us - run.start_us) / SECOND_US for run in runs]
    slowdowns = [max(1.0, (wait + long) / max(long, BOUND_S)) for wait, long in zip(waits, lengths, strict=True)]
    makespan = (max(run.end_us for run in runs) - min(run.submit_us for run in runs)) / SECOND_US
    work = sum(run.processors * long for run, long in zip(runs, lengths, strict=True))
    return {
        "mean_wait": sum(waits) / len(runs),
        "max_wait": max(waits),
        "mean_bounded_slowdown": sum(slowdowns) / len(runs),
        "utilisation": work / (processors * makespan) if processors and makespan else None,
        "makespan": makespan,
    }


def starts(schedule: Schedule) -> list[tuple[str, str]]:
    """Return ``(job, start in seconds)`` in job order: by number where ids are numbers."""
    numeric = all(run.job.isdecimal() for run in schedule.runs)
    runs = sorted(schedule.runs, key=lambda run: int(run.job)) if numeric else schedule.runs
    return [(run.job, _seconds(run.start_us)) for run in runs]


def starts_csv(schedule: Schedule) -> str:
    """Return :func:`starts` as CSV with the header ``job,start``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["job", "start"])
    writer.writerows(starts(schedule))
    return stream.getvalue()


def first_difference(schedule: Schedule, reference: Path) -> str | None:
    """Say which job, in the order of ``reference`` (CSV ``job,start``), is first to start at another time.

    Raises:
        OSError: the file cannot be read.
        WorkloadError: it is no such CSV; the message says where.
    """
    ours, expected = dict(starts(schedule)), {}
    with open_trace(reference) as stream:
        rows = csv.DictReader(stream)
        if not {"job", "start"} <= set(rows.fieldnames or ()):
            raise ValueError("needs the columns job and start")
        for row in rows:
            if row["start"] is None:
                raise ValueError("the row has no start")
            expected[row["job"]] = row["start"]
    for job, start in expected.items():
        if job not in ours:
            return f"job {job}: expected to start at {start} s, never started"
        if ours[job] != start:
            return f"job {job}: expected to start at {start} s, started at {ours[job]} s"
    extra = next((job for job in ours if job not in expected), None)
    return None if extra is None else f"job {extra}: not expected, started at {ours[extra]} s"


def _seconds(time_us: int) -> str:
    whole, rest = divmod(time_us, SECOND_US)
    return f"{whole}.{rest:06}".rstrip("0") if rest else str(whole)
