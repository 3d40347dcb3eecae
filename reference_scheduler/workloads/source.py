"""Workloads by the one string a command line has for them: a file, or ``synthetic:`` and what to generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from reference_scheduler.workloads.csvfile import read_csv
from reference_scheduler.workloads.jsonl import read_jsonl
from reference_scheduler.workloads.model import Workload, WorkloadError
from reference_scheduler.workloads.recorded import read_replay
from reference_scheduler.workloads.swf import read_swf
from reference_scheduler.workloads.synthetic import SyntheticOptions, generate

SYNTHETIC = "synthetic:"


def load_workload(source: str, processors: int | None = None) -> Workload:
    """Return the workload at a path (see :func:`read_workload`) or, for ``synthetic:``, a generated one.

    ``synthetic:jobs=1000,seed=7,load=0.9,priorities=urgent+normal`` sets fields of
    :class:`SyntheticOptions`; ``jobs`` is required. ``processors`` is the size of the machine in either case.

    Raises:
        WorkloadError: the trace or the options are malformed; the message says where.
        OSError: the trace cannot be read.
    """
    if source.startswith(SYNTHETIC):
        options = synthetic_options(source, processors)
        try:
            return generate(options)
        except ValueError as error:
            raise WorkloadError(f"{source}: {error}") from error
    return read_workload(Path(source), processors)


def synthetic_options(source: str, processors: int | None = None) -> SyntheticOptions:
    """Return the options that ``source``, which begins with ``synthetic:``, gives.

    Raises:
        WorkloadError: a key is unknown or repeated, or a value is malformed.
    """
    known = SyntheticOptions.__struct_fields__
    given: dict[str, Any] = {}
    for part in filter(None, source.removeprefix(SYNTHETIC).split(",")):
        key, _, value = part.partition("=")
        if key not in known or key in given:
            what = "given twice" if key in given else "unknown"
            raise WorkloadError(f"{source}: {key!r} is {what}; the keys are {', '.join(known)}")
        given[key] = value.split("+") if key == "priorities" else value
    if processors is not None:
        given["processors"] = processors
    if "jobs" not in given:
        raise WorkloadError(f"{source}: say how many jobs, such as {SYNTHETIC}jobs=1000")
    try:
        return msgspec.convert(given, SyntheticOptions, strict=False)
    except ValueError as error:
        raise WorkloadError(f"{source}: {error}") from error


def read_workload(path: Path, processors: int | None = None) -> Workload:
    """Read a trace in the format its name says: ``.replay``, or, also with ``.gz``, ``.csv``, ``.jsonl``, else SWF.

    Args:
        path: the trace.
        processors: size of the machine; by default that of the trace's header, or else its widest job.

    Raises:
        WorkloadError: the trace is malformed; the message has file and line.
        OSError: it cannot be read.
    """
    if path.suffix == ".replay":
        return read_replay(path, processors)
    name = path.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        return read_jsonl(path, processors)
    return read_csv(path, processors) if name.endswith(".csv") else read_swf(path, processors)
