"""The project's own workload format: JSON Lines, which can say all that a job can be.

The first line is ``{"format": "spawngate-workload", "version": 1, "workers": [[name, [cpu_weight,
memory_mb_hint, process_slots, io_weight, network_slots]], …]}``; each other line is
``{"submit_us": …, "run_us": …, "job": {…}}`` with the fields of
:class:`~reference_scheduler.core.model.JobSpec`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from reference_scheduler.core.amounts import Resources, pack
from reference_scheduler.workloads.model import TimedJob, Workload, open_trace

_FORMAT = "spawngate-workload"
_VERSION = 1


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    workers: tuple[tuple[str, Resources], ...]


def read_jsonl(path: Path, processors: int | None = None) -> Workload:
    """Read a workload that :func:`write_jsonl` wrote, also gzipped.

    ``processors``, if given, replaces the process slots of the first worker.

    Raises:
        WorkloadError: the header is of another format or version, or a line is malformed.
        OSError: the file cannot be read.
    """
    with open_trace(path) as stream:
        workers = _read_header(next(stream, "{}"))
        jobs = [msgspec.json.decode(line, type=TimedJob) for line in stream]
    if processors is not None:
        name, resources = workers[0]
        workers = ((name, resources._replace(process_slots=processors)), *workers[1:])
    jobs.sort(key=lambda timed: timed.submit_us)
    return Workload(workers, tuple(jobs))


def _read_header(line: str) -> tuple[tuple[str, Resources], ...]:
    """Return the workers that the first line names."""
    header = msgspec.json.decode(line, type=_Header)
    if (header.format, header.version) != (_FORMAT, _VERSION) or not header.workers:
        raise ValueError(f"not a workload of version {_VERSION} with at least one worker")
    machine = [resources for _, resources in header.workers]
    for resources in (*machine, Resources(*map(sum, zip(*machine, strict=True)))):
        pack(resources)  # refuses what cannot be counted
    return header.workers


def write_jsonl(workload: Workload, path: Path) -> None:
    """Write ``workload`` to ``path``.

    Raises:
        OSError: the file cannot be written.
    """
    header = _Header(_FORMAT, _VERSION, workload.workers)
    lines = [msgspec.json.encode(header), *map(msgspec.json.encode, workload.jobs)]
    path.write_bytes(b"\n".join(lines) + b"\n")
