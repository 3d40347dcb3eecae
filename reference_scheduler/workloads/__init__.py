"""Workloads: jobs with the times at which they come and the times they run, read from traces or made."""

from reference_scheduler.workloads.csvfile import read_csv
from reference_scheduler.workloads.jsonl import read_jsonl, write_jsonl
from reference_scheduler.workloads.model import TimedJob, Workload, WorkloadError
from reference_scheduler.workloads.source import load_workload, read_workload
from reference_scheduler.workloads.swf import read_swf
from reference_scheduler.workloads.synthetic import SyntheticOptions, generate

__all__ = [
    "SyntheticOptions",
    "TimedJob",
    "Workload",
    "WorkloadError",
    "generate",
    "load_workload",
    "read_csv",
    "read_jsonl",
    "read_swf",
    "read_workload",
    "write_jsonl",
]
