"""A core with hands: what the tests use to make things happen and to look at what came of it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.decisions import Decision, Dispatch
from reference_scheduler.core.events import (
    CancelRequested,
    ConfigLoaded,
    Event,
    GenerationStarted,
    JobStateChanged,
    JobSubmitted,
    JobUpdated,
    QueueConfigured,
    ResourcesChanged,
    Tick,
    UsageReported,
    WorkerLost,
    WorkerUpdated,
)
from reference_scheduler.core.model import (
    SECOND_US,
    Attempt,
    Backoff,
    Config,
    Failure,
    Fairness,
    Idempotency,
    Job,
    JobSpec,
    JobState,
    Limit,
    Priority,
    QueueBounds,
    ResourceRequest,
    RetryPolicy,
    Scope,
)
from reference_scheduler.core.snapshot import Outcome, Snapshot

WIDE_OPEN = QueueBounds(10_000, 10_000, 10_000, 10_000)
S = SECOND_US


def slots(count: int, *keys: str) -> ResourceRequest:
    """Return a request for ``count`` process slots and ``keys``."""
    return ResourceRequest(process_slots=count, exclusivity_keys=keys)


class World:
    """Sends events at ``at_us`` and audits the core after each."""

    def __init__(self, config: Config | None = None, workers: dict[str, int] | None = None) -> None:
        self.core = SchedulerCore()
        self.at_us = 0
        self.log: list[tuple[Event, tuple[Decision, ...]]] = []
        if config is not None:
            self.send(ConfigLoaded, config=config)
        for name, count in (workers or {}).items():
            self.send(WorkerUpdated, worker=name, capacity=Resources(process_slots=count))

    def send(self, kind: type, **fields: Any) -> tuple[Decision, ...]:
        """Handle one event and return its decisions."""
        event = kind(at=self.at_us, **fields)
        decisions = self.core.handle(event)
        self.core.audit()
        self.log.append((event, decisions))
        return decisions

    def submit(self, job: str, width: int = 1, **fields: Any) -> tuple[Decision, ...]:
        """Submit a job of ``width`` slots."""
        fields.setdefault("request", slots(width))
        return self.send(JobSubmitted, job=JobSpec(id=job, **fields))

    def end(self, job: str, new: JobState = JobState.COMPLETED, **fields: Any) -> tuple[Decision, ...]:
        """Report the end of the live attempt of ``job``."""
        attempt = self.attempt(job)
        return self.send(JobStateChanged, job=job, attempt=attempt, old=JobState.RUNNING, new=new, **fields)

    def runs(self, job: str) -> tuple[Decision, ...]:
        """Report that the attempt of ``job`` has begun."""
        attempt = self.attempt(job)
        return self.send(JobStateChanged, job=job, attempt=attempt, old=JobState.QUEUED, new=JobState.RUNNING)

    def wait(self, duration_us: int) -> tuple[Decision, ...]:
        """Let time pass and deliver a tick."""
        self.at_us += duration_us
        return self.send(Tick)

    def job(self, job: str) -> Job:
        """Return ``job``, which is not terminal."""
        found = self.core.job(job)
        assert found is not None
        return found

    def live(self, job: str) -> Attempt:
        """Return the live attempt of ``job``."""
        attempt = self.job(job).attempt
        assert attempt is not None
        return attempt

    def attempt(self, job: str) -> int:
        """Return the number of the live attempt of ``job``."""
        return self.live(job).number

    def outcome(self, job: str) -> Outcome:
        """Return how ``job`` or an array ended."""
        outcome = self.core.outcome(job)
        assert outcome is not None
        return outcome

    def state(self, job: str) -> JobState:
        """Return the state of ``job``, terminal or not."""
        outcome = self.core.outcome(job)
        return self.job(job).state if outcome is None else outcome.state

    def running(self) -> list[str]:
        """Return the jobs with a live attempt, oldest first."""
        return [job.spec.id for job in self.core.open_jobs() if job.attempt is not None]

    def started(self) -> list[str]:
        """Return all jobs dispatched so far, in order."""
        return [d.job for _, decisions in self.log for d in decisions if isinstance(d, Dispatch)]

    def events(self) -> list[Event]:
        """Return all events sent so far."""
        return [event for event, _ in self.log]


def simple(picker: str = "fair", **fields: Any) -> Config:
    """Return a configuration whose queue is not bounded and which brings no worker."""
    fields.setdefault("queue", WIDE_OPEN)
    return Config(resources=None, picker=picker, **fields)


def reload_snapshot(core: SchedulerCore) -> SchedulerCore:
    """Return the core that comes out of the serialised snapshot of ``core``."""
    raw = msgspec.msgpack.encode(core.snapshot())
    return SchedulerCore.restore(msgspec.msgpack.decode(raw, type=Snapshot))


# Random histories. An operation is a kind and small numbers; what they mean depends on the state, so that
# most operations are about something that exists and Hypothesis can leave any of them out.

PICKER_NAMES = ("fair", "fcfs", "sjf", "f1", "wfp3", "unicep", "easy", "easy-sjf", "conservative")
KINDS = (
    *("submit",) * 3,
    *("array", "dependent", "end", "end", "end", "fail", "runs", "cancel", "cancel_array", "worker", "lose"),
    *("resources", "queue", "usage", "generation", "tick", "tick", "back", "config", "update", "stale"),
)
NUMBERS = st.integers(0, 63)
Operation = tuple[str, int, int, int]
OPERATIONS = st.tuples(st.sampled_from(KINDS), NUMBERS, NUMBERS, NUMBERS)
HISTORIES = st.lists(OPERATIONS, min_size=5, max_size=40)


def config_of(number: int, picker: str | None = None) -> Config:
    """Return one of 64 configurations."""
    return Config(
        resources=None if number % 2 else Resources(8, 64, 4, 8, 2),
        queue=QueueBounds(40, 20, 6, 1 + number % 3 * 19),
        fairness=Fairness(8, 4, 2, 1, 1 + number % 4, 20 * S),
        limits=(Limit(Scope.USER, 2, "u1"), Limit(Scope.SESSION, 3)) if number % 3 == 0 else (),
        picker=picker or PICKER_NAMES[number % len(PICKER_NAMES)],
        allocator="parallel" if number // 8 % 2 else "sequential",
        preemption=bool(number // 4 % 2),
    )


def spec_of(name: str, a: int, b: int, c: int, at_us: int) -> JobSpec:
    """Return a job whose every field follows from the numbers."""
    request = ResourceRequest(a % 3, b % 20, 1 + a % 4, c % 3, 0, ("k",) if b % 5 == 0 else ())
    return JobSpec(
        id=name,
        priority=list(Priority)[c % 5],
        user=f"u{a % 3}",
        workspace=f"w{b % 4}",
        session=f"s{c % 2}",
        queue=f"q{a % 2}",
        request=None if a == 63 else request,
        tasks=1 + b % 2,
        estimate_us=None if c % 7 == 0 else (1 + c) * S,
        not_before_us=at_us + b * S if a % 9 == 0 else 0,
        deadline_us=at_us + (5 + c) * S if b % 6 == 0 else None,
        preemptible=bool(c % 2),
        idempotency=list(Idempotency)[a % 5],
        retry=RetryPolicy(1 + b % 3, a % 3, list(Backoff)[c % 4], S, 10 * S),
    )


def _pick(jobs: list[Job], number: int) -> Job | None:
    return jobs[number % len(jobs)] if jobs else None


def apply_operation(world: World, operation: Operation) -> None:
    """Turn ``operation`` into an event about what there is, and send it, if there is such a thing."""
    kind, a, b, c = operation
    fields: dict[str, Any] = {"run_pass": c % 4 != 3}
    jobs = list(world.core.open_jobs())
    live = _pick([job for job in jobs if job.attempt is not None], a)
    some = _pick(jobs, a)
    name = f"j{len(world.log)}"
    if kind == "submit":
        world.send(JobSubmitted, job=spec_of(name, a, b, c, world.at_us), **fields)
    elif kind == "array":
        job = spec_of(name, a, b, c, world.at_us)
        world.send(JobSubmitted, job=job, array_size=1 + a % 4, array_running=b % 3, **fields)
    elif kind == "dependent" and some is not None:
        target = some.array or some.spec.id
        ok, anyhow = ((target,), ()) if b % 2 else ((), (target,))
        job = msgspec.structs.replace(spec_of(name, a, b, c, world.at_us), after_ok=ok, after_any=anyhow)
        world.send(JobSubmitted, job=job, **fields)
    elif kind in ("end", "fail", "runs", "usage", "stale"):
        if live is not None and live.attempt is not None:
            _about_attempt(world, kind, live.spec.id, live.attempt.number, (b, c), fields)
    elif kind == "cancel" and some is not None:
        world.send(CancelRequested, job=some.spec.id, reason="test", **fields)
    elif kind == "cancel_array" and some is not None:
        world.send(CancelRequested, job=some.array or "nothing", **fields)
    elif kind == "worker":
        capacity = Resources(b % 9, 64, 1 + c % 8, 8, 2)
        world.send(WorkerUpdated, worker=f"n{a % 3}", capacity=capacity, accepting=b % 5 != 0, **fields)
    elif kind == "lose":
        world.send(WorkerLost, worker=f"n{a % 3}", **fields)
    elif kind == "resources":
        world.send(ResourcesChanged, worker=f"n{a % 3}", capacity=Resources(b % 9, 64, c % 8, 8, 2), **fields)
    elif kind == "queue":
        world.send(QueueConfigured, queue=f"q{a % 2}", paused=b % 3 == 0, max_running=b % 4 or None, **fields)
    elif kind == "generation":
        world.send(GenerationStarted, generation=f"g{a}", **fields)
    elif kind == "tick":
        due = world.core.next_due()
        world.at_us = max(world.at_us, due) if due is not None and a % 2 else world.at_us + b * S
        world.send(Tick, **fields)
    elif kind == "back":
        now_us, world.at_us = world.at_us, world.at_us - a * S
        world.send(Tick, **fields)
        world.at_us = now_us
    elif kind == "config" and a % 8 == 0:
        world.send(ConfigLoaded, config=config_of(b), **fields)
    elif kind == "update" and some is not None:
        new = msgspec.structs.replace(
            spec_of(some.spec.id, a, b, c, world.at_us),
            after_ok=some.spec.after_ok,
            after_any=some.spec.after_any,
        )
        world.send(JobUpdated, job=new, changed=JobSpec.__struct_fields__, **fields)


def _about_attempt(
    world: World, kind: str, job: str, attempt: int, numbers: tuple[int, int], fields: dict[str, Any]
) -> None:
    b, c = numbers
    if kind == "usage":
        world.send(UsageReported, job=job, attempt=attempt, used=Resources(b, c), **fields)
        return
    old, new = JobState.RUNNING, JobState.COMPLETED
    if kind == "fail":
        new = (JobState.FAILED, JobState.TIMED_OUT, JobState.INTERRUPTED, JobState.CANCELLED)[b % 4]
    elif kind == "runs":
        old, new = JobState.QUEUED, JobState.RUNNING
    elif kind == "stale":
        attempt += 1 + b % 2
    failure = list(Failure)[c % len(Failure)]
    world.send(JobStateChanged, job=job, attempt=attempt, old=old, new=new, exit_code=b, failure=failure, **fields)


def start_world(number: int, picker: str | None = None) -> World:
    """Return a world with one of 64 configurations and, at first, one worker."""
    world = World(config_of(number, picker))
    world.send(WorkerUpdated, worker="n0", capacity=Resources(8, 64, 6, 8, 2))
    return world


def play(number: int, history: list[Operation], picker: str | None = None) -> World:
    """Return the world after ``history``."""
    world = start_world(number, picker)
    for operation in history:
        apply_operation(world, operation)
    return world


def heal(world: World) -> None:
    """Stop all faults, give the machine room, and let everything that waits come to its end."""
    world.send(
        ConfigLoaded,
        config=Config(resources=Resources(99, 9999, 64, 99, 99), picker=world.core.config.picker),
    )
    for queue in ("q0", "q1"):
        world.send(QueueConfigured, queue=queue)
    for _ in range(2000):
        live = next((job for job in world.core.open_jobs() if job.attempt is not None), None)
        if live is not None:
            world.end(live.spec.id)
            continue
        due = world.core.next_due()
        if due is None:
            return
        world.at_us = max(world.at_us, due)
        world.send(Tick)
