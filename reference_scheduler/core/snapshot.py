"""The whole state of a core as frozen, serialisable values."""

from __future__ import annotations

import msgspec

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import Config, JobRecord, JobState, QueueSettings


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a job or an array ended."""

    state: JobState
    exit_code: int | None = None


class ArrayRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An array with ``open`` of its ``size`` jobs not terminal and ``failed`` not completed."""

    size: int
    open: int
    failed: int = 0
    max_running: int = 0


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker; what it has in use follows from the attempts."""

    name: str
    capacity: Resources
    accepting: bool


class Counters(msgspec.Struct, frozen=True):
    """What was put right or refused: events from the past, and reports about no live attempt or job."""

    clamped: int = 0
    stale: int = 0


class Snapshot(msgspec.Struct, frozen=True):
    """All that decisions depend on. Restored, it gives the same decisions and hashes ever after.

    Sequences are in the order the core iterates in. ``chain`` is the hash chain so far, ``picker_state`` is
    private to the configured picker.
    """

    now_us: int
    generation: str
    config: Config
    workers: tuple[WorkerRecord, ...]
    queues: tuple[tuple[str, QueueSettings], ...]
    jobs: tuple[JobRecord, ...]
    arrays: tuple[tuple[str, ArrayRecord], ...]
    outcomes: tuple[tuple[str, Outcome], ...]
    next_seq: int
    beneficiary: str
    unfinished: bool
    counters: Counters
    chain: bytes
    picker_state: bytes
