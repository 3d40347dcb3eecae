"""The nouns of the scheduler: jobs, attempts, configuration, and the words for their states.

All times are integer microseconds since an origin of the driver's choice, before which nothing happens; times and
durations end in ``_us``.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import TypeAlias

import msgspec
from msgspec.structs import force_setattr

from reference_scheduler.core.amounts import MAX_QUANTITY, Amount, Resources, Share, pack, unpack

SECOND_US = 1_000_000
FOREVER_US = 1 << 62
"""A time later than any other: when a job without an estimate is expected to end."""
UNKNOWN_US = 1 << 63
"""The estimate of a job that has none: too long to end by any time, even ``FOREVER_US``."""
MAX_TIME_US = 1 << 61
"""Times and durations given from outside stay below this, so that sums stay below ``FOREVER_US``."""
MAX_ID = 256
MAX_TASKS = 1 << 20
MAX_ATTEMPTS = 1000
MAX_ARRAY = 1 << 16
_INDEX_DIGITS = len(str(MAX_ARRAY))


def task_id(array: str, index: int) -> str:
    """Return the id of one job of an array."""
    return f"{array}[{index}]"


def task_of(job: str) -> tuple[str, int] | None:
    """Return the array and the index that :func:`task_id` made ``job`` of, ``None`` if it did not."""
    array, bracket, index = job.removesuffix("]").rpartition("[")
    if not bracket or not index.isdecimal() or len(index) > _INDEX_DIGITS:
        return None
    found = array, int(index)
    return found if task_id(*found) == job else None


def check_bounds(name: str, value: int, low: int, high: int) -> None:
    """Raise ValueError naming the bounds unless ``low`` <= ``value`` <= ``high``."""
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low} and {high}, got {value}")


class Priority(StrEnum):
    """Classes of service, highest first."""

    URGENT = "urgent"
    INTERACTIVE = "interactive"
    NORMAL = "normal"
    BACKGROUND = "background"
    MAINTENANCE = "maintenance"


RANK: dict[Priority, int] = {priority: rank for rank, priority in enumerate(Priority)}
"""0 for the highest class."""


class JobState(StrEnum):
    """Where a job is in its life; see :mod:`reference_scheduler.core.machine`."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    BLOCKED = "blocked"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"
    DEAD_LETTER = "dead_letter"


SCHEDULED, QUEUED, BLOCKED, RUNNING, COMPLETED = list(JobState)[:5]
"""For the inner loops: Python 3.11 reads a name four times as fast as a member of an enumeration."""


class AttemptState(StrEnum):
    """Where one attempt is in its life."""

    CREATED = "created"
    ADMITTED = "admitted"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class Idempotency(StrEnum):
    """What may be done with a job whose attempt was interrupted: only the first two run again."""

    READ_ONLY = "read_only"
    SAFE_REPEAT = "safe_repeat"
    CONDITIONAL = "conditional"
    NON_IDEMPOTENT = "non_idempotent"
    DESTRUCTIVE = "destructive"


REPEATABLE = (Idempotency.READ_ONLY, Idempotency.SAFE_REPEAT)


class Failure(StrEnum):
    """Why an attempt failed."""

    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PERMISSION = "permission"
    VALIDATION = "validation"
    EXECUTION = "execution"
    UNKNOWN = "unknown"


class Backoff(StrEnum):
    """How the pause before attempt ``n + 1`` grows with ``n``."""

    NONE = "none"
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class PendReason(StrEnum):
    """Why a job that could be queued does not run."""

    BEHIND = "behind"
    RESOURCES = "resources"
    EXCLUSIVITY = "exclusivity"
    RESERVATION = "reservation"
    LIMIT = "limit"
    PAUSED = "paused"
    TOO_LARGE = "too_large"
    PREEMPTING = "preempting"
    BATCH = "batch"
    DEPENDENCY = "dependency"
    TIME = "time"


class ResourceRequest(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """What one task of a job holds while it runs; keys without ``exclusive:`` get it."""

    cpu_weight: int = 0
    memory_mb_hint: int = 0
    process_slots: int = 0
    io_weight: int = 0
    network_slots: int = 0
    exclusivity_keys: tuple[str, ...] = ()

    @property
    def resources(self) -> Resources:
        """The request without its keys."""
        return Resources(self.cpu_weight, self.memory_mb_hint, self.process_slots, self.io_weight, self.network_slots)

    @property
    def keys(self) -> tuple[str, ...]:
        """The normalised exclusivity keys, sorted, each once."""
        if not self.exclusivity_keys:
            return ()
        return tuple(sorted({f"exclusive:{key.removeprefix('exclusive:')}" for key in self.exclusivity_keys}))


@lru_cache(maxsize=4096)
def demand(request: ResourceRequest) -> tuple[Amount, tuple[str, ...]]:
    """Return the resources of ``request`` as one amount, and its keys."""
    return pack(request.resources), request.keys


@lru_cache(maxsize=4096)
def _extremes(request: ResourceRequest) -> tuple[int, int]:
    """Return the smallest and the largest quantity of ``request``."""
    return min(request.resources), max(request.resources)


DEFAULT_REQUESTS: dict[str, ResourceRequest] = {
    "test": ResourceRequest(2, 1024, 1, 2, 0),
    "build": ResourceRequest(3, 2048, 1, 3, 0, ("exclusive:workspace-mutation",)),
    "lint": ResourceRequest(1, 768, 1, 1, 0),
    "format": ResourceRequest(1, 256, 1, 1, 0, ("exclusive:workspace-mutation",)),
    "subagent": ResourceRequest(1, 512, 1, 1, 1),
    "git_mutation": ResourceRequest(1, 256, 1, 1, 0, ("exclusive:worktree-mutation",)),
    "git_read": ResourceRequest(1, 128, 1, 1, 0),
    "shell": ResourceRequest(1, 256, 1, 1, 0),
    "managed_process": ResourceRequest(1, 256, 1, 1, 0),
    "python": ResourceRequest(1, 512, 1, 1, 0),
    "maintenance": ResourceRequest(1, 128, 1, 1, 0),
}


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often a job runs again, and after what pause.

    ``max_attempts`` bounds the attempts that ended in a failure listed in ``retry_on``;
    ``max_interruptions`` bounds those that a restart or a lost worker cut short, so that a job that
    brings its host down cannot do so for ever. ``jitter_permille`` widens the pause by at most that share.

    Raises:
        ValueError: a field is out of bounds; the message names both.
    """

    max_attempts: int = 1
    max_interruptions: int = 3
    backoff: Backoff = Backoff.EXPONENTIAL
    base_us: int = SECOND_US
    cap_us: int = 300 * SECOND_US
    jitter_permille: int = 100
    retry_on: tuple[Failure, ...] = (Failure.TRANSIENT, Failure.TIMEOUT)

    def __post_init__(self) -> None:
        check_bounds("retry.max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        check_bounds("retry.max_interruptions", self.max_interruptions, 0, MAX_ATTEMPTS)
        check_bounds("retry.base_us", self.base_us, 0, MAX_TIME_US)
        check_bounds("retry.cap_us", self.cap_us, 0, MAX_TIME_US)
        check_bounds("retry.jitter_permille", self.jitter_permille, 0, 1000)


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """A job as it was asked for.

    A job is ``tasks`` equal shares of ``request`` that run together or not at all. ``estimate_us`` is the
    promised upper bound of its run time, ``None`` if nobody knows. It starts at ``not_before_us`` at the
    earliest and expires unless it has first started before ``deadline_us``.

    Raises:
        ValueError: a field is out of bounds; the message names both.
    """

    id: str
    kind: str = "shell"
    priority: Priority = Priority.NORMAL
    user: str = ""
    workspace: str = ""
    session: str = ""
    queue: str = ""
    request: ResourceRequest | None = None
    tasks: int = 1
    estimate_us: int | None = None
    not_before_us: int = 0
    deadline_us: int | None = None
    after_ok: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    preemptible: bool = False
    idempotency: Idempotency = Idempotency.CONDITIONAL
    retry: RetryPolicy = RetryPolicy()

    def __post_init__(self) -> None:
        least, most = _extremes(self.effective_request)
        if not (
            1 <= len(self.id) <= MAX_ID
            and 1 <= self.tasks <= MAX_TASKS
            and 0 <= (self.estimate_us or 0) <= MAX_TIME_US
            and 0 <= self.not_before_us <= MAX_TIME_US
            and 0 <= (self.deadline_us or 0) <= MAX_TIME_US
            and least >= 0
            and most * self.tasks <= MAX_QUANTITY
        ):
            self._refuse()

    def _refuse(self) -> None:
        """Say which field is out of bounds."""
        check_bounds("length of id", len(self.id), 1, MAX_ID)
        check_bounds("tasks", self.tasks, 1, MAX_TASKS)
        check_bounds("estimate_us", self.estimate_us or 0, 0, MAX_TIME_US)
        check_bounds("not_before_us", self.not_before_us, 0, MAX_TIME_US)
        check_bounds("deadline_us", self.deadline_us or 0, 0, MAX_TIME_US)
        for name, quantity in zip(Resources._fields, self.effective_request.resources, strict=True):
            check_bounds(f"{name} over all tasks", quantity * self.tasks, 0, MAX_QUANTITY)

    @property
    def effective_request(self) -> ResourceRequest:
        """The request, or else the default of the job's kind (that of ``shell`` for unknown kinds)."""
        return self.request or DEFAULT_REQUESTS.get(self.kind) or DEFAULT_REQUESTS["shell"]


Allocation: TypeAlias = tuple[tuple[str, Resources], ...]
"""Which worker gives what: each worker once, in the order of registration."""


@lru_cache(maxsize=4096)
def allocation_of(shares: tuple[Share, ...]) -> Allocation:
    """Return ``shares`` with their amounts unpacked."""
    return tuple((worker, unpack(amount)) for worker, amount in shares)


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One live attempt. ``(job, number)`` is its fencing token: numbers of a job are never used twice.

    ``passed`` is the blocked job that it was allowed to pass, empty if there was none.
    """

    number: int
    state: AttemptState
    started_us: int
    expected_end_us: int
    allocation: Allocation
    keys: tuple[str, ...]
    stopping: bool = False
    preempted_for: str = ""
    peak: Resources = Resources()
    passed: str = ""

    @property
    def shares(self) -> tuple[Share, ...]:
        """The allocation as amounts."""
        return tuple((worker, pack(resources)) for worker, resources in self.allocation)


class JobRecord(msgspec.Struct, omit_defaults=True):
    """All that is remembered of a job that is not yet terminal; ``unmet`` counts its open dependencies."""

    spec: JobSpec
    seq: int
    submitted_us: int
    state: JobState = JobState.BLOCKED
    not_before_us: int = 0
    queued_us: int = 0
    unmet: int = 0
    attempts: int = 0
    failures: int = 0
    interruptions: int = 0
    preempted: bool = False
    cancel_requested: bool = False
    attempt: Attempt | None = None
    reserved_us: int | None = None
    reason: PendReason | None = None
    detail: str = ""
    array: str = ""


class Job(JobRecord, gc=False):
    """A record with what follows from its ``spec`` and attempt, in the form the inner loops want.

    ``need`` is per task; ``total`` over all tasks; ``shares`` are the allocation of the live attempt. Only the
    core changes it.
    """

    need: Amount = 0
    total: Amount = 0
    keys: tuple[str, ...] = ()
    estimate_us: int = 0
    shares: tuple[Share, ...] = ()

    @classmethod
    def of(cls, spec: JobSpec, seq: int, now_us: int, array: str = "") -> Job:
        """Return the job for a newly submitted ``spec``."""
        job = cls(spec, seq, now_us, not_before_us=spec.not_before_us, array=array)
        job.respecify(spec)
        return job

    def twin(self, name: str, seq: int) -> Job:
        """Return a job that differs in its id and its number only."""
        twin: Job = _copied(self)
        spec: JobSpec = _copied(self.spec)
        force_setattr(spec, "id", name)  # what is in bounds is not checked again for each job of an array
        twin.spec, twin.seq = spec, seq
        return twin

    def respecify(self, spec: JobSpec) -> None:
        """Take over ``spec`` and what follows from it."""
        self.spec = spec
        self.need, self.keys = demand(spec.effective_request)
        self.total = self.need * spec.tasks
        self.estimate_us = UNKNOWN_US if spec.estimate_us is None else spec.estimate_us

    @classmethod
    def revived(cls, record: JobRecord) -> Job:
        """Return the job that ``record`` was taken from."""
        job = cls.of(record.spec, record.seq, record.submitted_us)
        for field in JobRecord.__struct_fields__:
            setattr(job, field, getattr(record, field))
        if job.attempt is not None:
            job.shares = job.attempt.shares
        return job

    def record(self) -> JobRecord:
        """Return a copy of what is remembered, safe from later changes."""
        return JobRecord(*_record_fields(self))


_copied = methodcaller("__copy__")
"""What ``copy.copy`` does, in half the time."""
_record_fields = attrgetter(*JobRecord.__struct_fields__)


class Scope(StrEnum):
    """The field of a job that a limit counts by."""

    USER = "user"
    QUEUE = "queue"
    WORKSPACE = "workspace"
    SESSION = "session"


class Limit(msgspec.Struct, frozen=True):
    """At most ``max_running`` live attempts per value of ``scope``; ``name`` restricts it to one value."""

    scope: Scope
    max_running: int
    name: str | None = None


class QueueBounds(msgspec.Struct, frozen=True):
    """How many jobs may wait, and how many may start in one pass."""

    max_total: int = 256
    max_per_workspace: int = 64
    max_interactive_per_session: int = 8
    claim_batch: int = 32


class Fairness(msgspec.Struct, frozen=True):
    """Weights of the classes below urgent, the longest run of high classes, and the time to rise a class."""

    interactive_weight: int = 8
    normal_weight: int = 4
    background_weight: int = 2
    maintenance_weight: int = 1
    max_high_priority_burst: int = 8
    aging_us: int = 300 * SECOND_US

    @property
    def weights(self) -> tuple[int, int, int, int]:
        """Weights by rank, from interactive (rank 1) down."""
        return (self.interactive_weight, self.normal_weight, self.background_weight, self.maintenance_weight)


LOCAL = "local"
"""The worker whose capacity is the configuration's budget."""


class Config(msgspec.Struct, frozen=True):
    """All that a deployment may choose.

    ``resources`` is the capacity of the worker ``local``; ``None`` if all workers register themselves.

    Raises:
        ValueError: a bound is not positive or contradicts another; the message names both.
    """

    enabled: bool = True
    resources: Resources | None = Resources(8, 8192, 4, 8, 4)
    queue: QueueBounds = QueueBounds()
    fairness: Fairness = Fairness()
    limits: tuple[Limit, ...] = ()
    picker: str = "fair"
    allocator: str = "sequential"
    preemption: bool = False

    def __post_init__(self) -> None:
        if not self.enabled:
            return  # it refuses all work, so no bound of it can matter
        for group in (self.queue, self.fairness, *self.limits):
            for key in group.__struct_fields__:
                value = getattr(group, key)
                if isinstance(value, int):
                    check_bounds(key, value, 1, MAX_TIME_US)
        for key in ("max_per_workspace", "claim_batch"):
            if getattr(self.queue, key) > self.queue.max_total:
                raise ValueError(f"{key} must be at most max_total ({self.queue.max_total})")
        if self.resources is not None:
            pack(self.resources)


class QueueSettings(msgspec.Struct, frozen=True):
    """What an operator set for one named queue."""

    paused: bool = False
    max_running: int | None = None
