"""Traces as CSV with the header ``job,submit,run,procs,estimate`` and, optionally, more columns."""

from __future__ import annotations

import csv
from pathlib import Path

from reference_scheduler.core.model import Priority
from reference_scheduler.workloads.model import (
    TimedJob,
    Workload,
    open_trace,
    seconds_us,
    trace_job,
    trace_workload,
    whole_number,
)

_REQUIRED = ("job", "submit", "run", "procs", "estimate")


def read_csv(path: Path, processors: int | None = None) -> Workload:
    """Read a CSV trace, also gzipped; times are in seconds.

    Of other columns, ``user``, ``queue``, ``workspace``, ``session`` and ``priority`` are used. Rows without
    positive ``run`` or ``procs`` are skipped and counted; an estimate below the run time is raised to it.

    Raises:
        WorkloadError: a column is missing or a field is malformed.
        OSError: the file cannot be read.
    """
    jobs: list[TimedJob] = []
    skipped = widest = 0
    with open_trace(path) as stream:
        rows = csv.DictReader(stream)
        missing = [name for name in _REQUIRED if name not in (rows.fieldnames or ())]
        if missing:
            raise ValueError(f"column {missing[0]!r} is missing")
        for row in rows:
            run_us, width = seconds_us(row["run"]), whole_number(row["procs"])
            if run_us <= 0 or width <= 0:
                skipped += 1
                continue
            widest = max(widest, width)
            jobs.append(_read_row(row, run_us, min(width, processors or width)))
    return trace_workload(jobs, processors or max(widest, 1), skipped)


def _read_row(row: dict[str, str], run_us: int, width: int) -> TimedJob:
    user = row.get("user") or ""
    return trace_job(
        row["job"],
        seconds_us(row["submit"]),
        run_us,
        width,
        max(seconds_us(row["estimate"] or "0"), run_us),
        user="" if user == "-1" else user,
        queue=row.get("queue") or "",
        workspace=row.get("workspace") or "",
        session=row.get("session") or "",
        priority=Priority(row.get("priority") or "normal"),
    )
