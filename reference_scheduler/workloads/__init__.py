"""Workloads: jobs with the times at which they come and the times they run, read from traces or made."""

from __future__ import annotations

from pathlib import Path

from reference_scheduler.workloads.csvfile import read_csv
from reference_scheduler.workloads.jsonl import read_jsonl, write_jsonl
from reference_scheduler.workloads.model import TimedJob, Workload, WorkloadError
from reference_scheduler.workloads.swf import read_swf
from reference_scheduler.workloads.synthetic import SyntheticOptions, generate

__all__ = [
    "SyntheticOptions",
    "TimedJob",
    "Workload",
    "WorkloadError",
    "generate",
    "read_csv",
    "read_jsonl",
    "read_swf",
    "read_workload",
    "write_jsonl",
]


def read_workload(path: Path, processors: int | None = None) -> Workload:
    """Read a trace in the format its name says: ``.csv``, ``.jsonl``, else SWF; each also with ``.gz``.

    Args:
        path: the trace.
        processors: size of the machine; by default that of the trace's header, or else its widest job.

    Raises:
        WorkloadError: the trace is malformed; the message has file and line.
        OSError: it cannot be read.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        return read_jsonl(path, processors)
    return read_csv(path, processors) if name.endswith(".csv") else read_swf(path, processors)
