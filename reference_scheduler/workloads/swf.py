"""The Standard Workload Format.

Source: Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers", JSSPP 1999;
fields 1 to 18 as described in the Parallel Workloads Archive. Fields beyond 18 are ignored.
"""

from __future__ import annotations

from pathlib import Path

from reference_scheduler.core.amounts import MAX_QUANTITY
from reference_scheduler.core.model import check_bounds
from reference_scheduler.workloads.model import (
    TimedJob,
    Workload,
    open_trace,
    seconds_us,
    trace_job,
    trace_workload,
    whole_number,
)

_JOB, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_TIME, _USER, _QUEUE = 0, 1, 3, 4, 7, 8, 11, 14
_FIELDS = 18


def read_swf(path: Path, processors: int | None = None) -> Workload:
    """Read a trace in SWF, also gzipped.

    Processors of a job are those allocated if known, else those requested, at most the machine's
    (``MaxProcs`` of the header, else ``MaxNodes``, else no bound). Its estimate is the larger of requested
    and actual time. Rows without positive run time or processors are skipped and counted.

    Raises:
        WorkloadError: a row has a field that is no number.
        OSError: the file cannot be read.
    """
    header: dict[str, int] = {}
    jobs: list[TimedJob] = []
    skipped = 0
    most = processors
    with open_trace(path) as stream:
        for line in stream:
            fields = line.split()
            if not fields:
                continue
            if fields[0].startswith(";"):
                _read_header(line, header)
                most = processors or header.get("MaxProcs") or header.get("MaxNodes")
                continue
            job = _read_row(fields, most)
            if job is None:
                skipped += 1
            else:
                jobs.append(job)
    return trace_workload(jobs, most or max((_width(job) for job in jobs), default=1), skipped)


def _width(job: TimedJob) -> int:
    return job.job.effective_request.process_slots


def _read_header(line: str, header: dict[str, int]) -> None:
    name, _, value = line.strip().lstrip(";").partition(":")
    words = value.split()
    if name.strip() in ("MaxProcs", "MaxNodes") and words and words[0].isdecimal():
        header[name.strip()] = whole_number(words[0])
        check_bounds(name.strip(), header[name.strip()], 0, MAX_QUANTITY)


def _read_row(fields: list[str], most: int | None) -> TimedJob | None:
    if len(fields) < _FIELDS:
        fields += ["-1"] * (_FIELDS - len(fields))
    run_us = seconds_us(fields[_RUN])
    allocated = whole_number(fields[_ALLOCATED])
    width = allocated if allocated > 0 else whole_number(fields[_REQUESTED])
    if run_us <= 0 or width <= 0:
        return None
    requested_us = seconds_us(fields[_REQUESTED_TIME])
    return trace_job(
        fields[_JOB],
        seconds_us(fields[_SUBMIT]),
        run_us,
        min(width, most) if most else width,
        max(requested_us, run_us),
        user=_known(fields[_USER]),
        queue=_known(fields[_QUEUE]),
    )


def _known(field: str) -> str:
    return "" if field == "-1" else field
