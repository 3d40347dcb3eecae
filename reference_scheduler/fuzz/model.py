"""A second, naive account of what runs where, kept from events and decisions alone.

It shares no code with the core: what the core decides must be possible by this account, and what the core
believes must agree with it. It looks at everything each time and is slow on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.decisions import Cancel, Decision, Dispatch, Preempt, Reject, Requeue
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
    WorkerLost,
    WorkerUpdated,
)
from reference_scheduler.core.model import LOCAL, Config, JobSpec, JobState, Priority

_ENDS = ("completed", "failed", "cancelled", "timed_out", "interrupted")
_CLASSES = tuple(Priority)


class CheckError(Exception):
    """The core is defective: ``check`` names what noticed, ``message`` says what is wrong."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"{check}: {message}")
        self.check = check
        self.message = message


class Held(msgspec.Struct):
    """What a live attempt holds, and whether it has to stop though nobody wants that of the job."""

    attempt: int
    shares: dict[str, Resources]
    keys: frozenset[str]
    stopped: bool = False


class Known(msgspec.Struct):
    """What was submitted and accepted."""

    spec: JobSpec
    array: str = ""
    attempts: int = 0
    failures: int = 0
    not_before_us: int = 0
    preempted: bool = False
    unwanted: bool = False


class Model:
    """Follows a core from its first event on; :meth:`follow` raises :class:`CheckError`."""

    def __init__(self) -> None:
        self._now_us = 0
        self._config = Config(enabled=False)
        self._generation = ""
        self._jobs: dict[str, Known] = {}
        self._array_caps: dict[str, int] = {}
        self._live: dict[str, Held] = {}
        self._workers: dict[str, tuple[Resources, bool]] = {}
        self._queues: dict[str, QueueConfigured] = {}
        self._ended: dict[str, JobState] = {}

    def follow(self, core: SchedulerCore, event: Event, decisions: tuple[Decision, ...]) -> None:
        """Take in what ``core`` was told and decided, and compare.

        Raises:
            CheckError: a decision was not possible, or the core believes something else.
        """
        self._now_us = max(self._now_us, event.at)
        self._take(core, event, decisions)
        for decision in decisions:
            self._carry_out(core, decision)
        self._compare(core)
        if event.run_pass:
            self._check_progress(core, decisions)

    def check_ends(self, core: SchedulerCore) -> None:
        """Check that no job is lost and that no end changes."""
        for name in self._jobs:
            outcome = core.outcome(name)
            _check((outcome is None) == (core.job(name) is not None), "lost", f"job {name} is lost")
            before = self._ended.get(name)
            if before is not None:
                _check(outcome is not None and outcome.state is before, "end", f"job {name} changed its end")
            if outcome is not None:
                self._ended[name] = outcome.state

    # Events.

    def _take(self, core: SchedulerCore, event: Event, decisions: tuple[Decision, ...]) -> None:
        match event:
            case JobSubmitted():
                self._submitted(event, decisions)
            case JobUpdated():
                if not any(isinstance(d, Reject) and d.job == event.job.id for d in decisions):
                    self._updated(event)
            case JobStateChanged():
                self._state_changed(core, event)
            case CancelRequested():
                for name, known in self._jobs.items():
                    known.unwanted |= event.job in (name, known.array)
                if event.job in self._jobs and event.job not in self._live:
                    _check(core.outcome(event.job) is not None, "cancel", f"job {event.job} is still there")
            case GenerationStarted():
                if event.generation != self._generation:
                    self._live.clear()
                self._generation = event.generation
            case _:
                self._machine(event)

    def _machine(self, event: Event) -> None:
        match event:
            case ConfigLoaded():
                self._config = event.config
                if event.config.resources is not None:
                    accepting = self._workers.get(LOCAL, (None, True))[1]
                    self._workers[LOCAL] = (event.config.resources, accepting)
            case WorkerUpdated():
                self._workers[event.worker] = (event.capacity, event.accepting)
            case ResourcesChanged():
                if event.worker in self._workers:
                    self._workers[event.worker] = (event.capacity, self._workers[event.worker][1])
            case WorkerLost():
                self._workers.pop(event.worker, None)
                for name, held in list(self._live.items()):
                    held.stopped |= held.shares.pop(event.worker, None) is not None
                    if not held.shares:
                        del self._live[name]
            case QueueConfigured():
                self._queues[event.queue] = event

    def _updated(self, event: JobUpdated) -> None:
        new = event.job
        values = {name: getattr(new, name) for name in event.changed}
        for name, known in self._jobs.items():
            if known.array == new.id:
                known.spec = replace(known.spec, **values)
            elif name == new.id:
                if known.spec.not_before_us != new.not_before_us:
                    known.not_before_us = new.not_before_us
                known.spec = new

    def _submitted(self, event: JobSubmitted, decisions: tuple[Decision, ...]) -> None:
        spec = event.job
        if any(isinstance(decision, Reject) and decision.job == spec.id for decision in decisions):
            return
        names = [f"{spec.id}[{index}]" for index in range(event.array_size)] or [spec.id]
        if event.array_running:
            self._array_caps[spec.id] = event.array_running
        for name in names:
            _check(name not in self._jobs, "duplicate", f"job {name} was accepted twice")
            array = spec.id if event.array_size else ""
            self._jobs[name] = Known(spec, array, not_before_us=spec.not_before_us)

    def _state_changed(self, core: SchedulerCore, event: JobStateChanged) -> None:
        held = self._live.get(event.job)
        if held is None or held.attempt != event.attempt or event.old != "running" or event.new not in _ENDS:
            return
        del self._live[event.job]
        known, outcome = self._jobs[event.job], core.outcome(event.job)
        if event.new == "cancelled" and held.stopped and not known.unwanted:
            right = outcome is None or outcome.state in ("failed", "dead_letter")
            _check(right, "end", f"job {event.job} is cancelled, which nobody wanted")
        elif event.new in ("completed", "cancelled"):
            right = outcome is not None and outcome.state == event.new
            _check(right, "end", f"job {event.job} did not end {event.new}")
        elif event.new in ("failed", "timed_out"):
            known.failures += 1
            if known.failures >= known.spec.retry.max_attempts:
                _check(outcome is not None, "retry", f"job {event.job} goes on after its last attempt")

    # Decisions.

    def _carry_out(self, core: SchedulerCore, decision: Decision) -> None:
        match decision:
            case Dispatch():
                self._dispatch(core, decision)
            case Cancel() if decision.attempt:
                held = self._live.get(decision.job)
                live = held is not None and held.attempt == decision.attempt
                _check(live, "cancel", f"attempt {decision.attempt} of {decision.job} does not run")
            case Requeue():
                self._jobs[decision.job].not_before_us = decision.not_before_us
            case Preempt():
                self._preempt(decision)

    def _preempt(self, decision: Preempt) -> None:
        beneficiary = self._jobs[decision.job].spec
        for victim in decision.victims:
            held, known = self._live.get(victim.job), self._jobs[victim.job]
            lower = _CLASSES.index(known.spec.priority) > _CLASSES.index(beneficiary.priority)
            allowed = lower and known.spec.preemptible and not known.preempted
            live = held is not None and held.attempt == victim.attempt
            _check(allowed and live, "preempt", f"job {victim.job} may not be displaced")
            known.preempted = True
            if held is not None:
                held.stopped = True

    def _dispatch(self, core: SchedulerCore, decision: Dispatch) -> None:
        name = decision.job
        _check(name in self._jobs, "dispatch", f"job {name} was never accepted")
        _check(name not in self._live, "dispatch", f"job {name} has two live attempts")
        _check(core.outcome(name) is None, "dispatch", f"job {name} has ended")
        known = self._jobs[name]
        known.attempts += 1
        numbers = f"attempt {decision.attempt} of {name} should be {known.attempts}"
        _check(decision.attempt == known.attempts, "dispatch", numbers)
        self._check_times(core, name, known)
        self._check_placement(name, known.spec, decision)
        keys = frozenset("exclusive:" + k.removeprefix("exclusive:") for k in _request(known.spec)[1])
        for other, held in self._live.items():
            _check(not keys & held.keys, "keys", f"{name} and {other} hold {sorted(keys & held.keys)}")
        self._live[name] = Held(decision.attempt, dict(decision.allocation), keys)
        self._check_limits(name, known)

    def _check_times(self, core: SchedulerCore, name: str, known: Known) -> None:
        spec = known.spec
        _check(known.not_before_us <= self._now_us, "time", f"job {name} starts before its time")
        late = known.attempts == 1 and spec.deadline_us is not None and spec.deadline_us <= self._now_us
        _check(not late, "deadline", f"job {name} first starts after its deadline")
        for target in (*spec.after_ok, *spec.after_any):
            outcome = core.outcome(target)
            right = outcome is not None and (outcome.state == "completed" or target not in spec.after_ok)
            _check(right, "dependency", f"job {name} starts without {target}")

    def _check_placement(self, name: str, spec: JobSpec, decision: Dispatch) -> None:
        wanted = [quantity * spec.tasks for quantity in _request(spec)[0]]
        given = [0] * len(wanted)
        for worker, share in decision.allocation:
            capacity, accepting = self._workers.get(worker, (Resources(), False))
            _check(accepting, "placement", f"job {name} is put on {worker}, which takes no work")
            free = [most - used for most, used in zip(capacity, self._used(worker), strict=True)]
            for left, taken in zip(free, share, strict=True):
                _check(taken <= max(left, 0), "capacity", f"{worker} has {free} left and gives {list(share)}")
            given = [total + taken for total, taken in zip(given, share, strict=True)]
        named = [worker for worker, _ in decision.allocation]
        whole = given == wanted and len(set(named)) == len(named)
        _check(whole, "placement", f"job {name} asked for {wanted} and got {given}")

    def _used(self, worker: str) -> list[int]:
        shares = [held.shares[worker] for held in self._live.values() if worker in held.shares]
        return [sum(share[index] for share in shares) for index in range(len(Resources._fields))]

    def _check_limits(self, name: str, known: Known) -> None:
        spec = known.spec
        queue = self._queues.get(spec.queue)
        if queue is not None:
            _check(not queue.paused, "limit", f"job {name} starts in a paused queue")
        caps = {(limit.scope.value, limit.name): limit.max_running for limit in self._config.limits}
        for other in self._queues.values():
            if other.max_running is not None:
                caps["queue", other.queue] = other.max_running
        for (scope, only), most in caps.items():
            value = getattr(spec, scope)
            if value and only in (None, value):
                count = sum(1 for live in self._live if getattr(self._jobs[live].spec, scope) == value)
                _check(count <= most, "limit", f"{count} jobs of {scope} {value}, at most {most}")
        array_cap = self._array_caps.get(known.array)
        if array_cap is not None:
            count = sum(1 for live in self._live if self._jobs[live].array == known.array)
            _check(count <= array_cap, "limit", f"{count} jobs of array {known.array}, at most {array_cap}")

    # What the core believes.

    def _compare(self, core: SchedulerCore) -> None:
        believed = {job.spec.id: job.attempt.number for job in core.open_jobs() if job.attempt is not None}
        actual = {name: held.attempt for name, held in self._live.items()}
        _check(believed == actual, "live", f"the core has {believed} running, in truth it is {actual}")

    def _check_progress(self, core: SchedulerCore, decisions: tuple[Decision, ...]) -> None:
        """After a pass, time must have something to wait for, and an idle machine no job that fits."""
        due = core.next_due()
        if due is not None and due <= self._now_us:
            started = any(isinstance(decision, Dispatch) for decision in decisions)
            _check(started, "due", f"due at {due} again, though nothing was started at {self._now_us}")
        elif not self._live and (self._config.picker != "conservative" or due is None):
            for job in core.open_jobs():
                idle = job.state is JobState.QUEUED and self._could_start(job.spec)
                _check(not idle, "idle", f"nothing runs, job {job.spec.id} fits and does not start")

    def _could_start(self, spec: JobSpec) -> bool:
        queue = self._queues.get(spec.queue)
        return not (queue is not None and queue.paused) and any(self._rooms(spec))

    def _rooms(self, spec: JobSpec) -> Iterator[bool]:
        """Yield whether the empty machine has room: on one worker, or, for a gang, on all together."""
        need = _request(spec)[0]
        total = 0
        for capacity, accepting in self._workers.values():
            rooms = [most // want for most, want in zip(capacity, need, strict=True) if want]
            room = min(rooms, default=spec.tasks) if accepting else 0
            total = total + room if self._config.allocator == "parallel" else room
            yield total >= spec.tasks


def _request(spec: JobSpec) -> tuple[Resources, tuple[str, ...]]:
    request = spec.effective_request
    return request.resources, request.exclusivity_keys


def _check(condition: bool, check: str, message: str) -> None:
    if not condition:
        raise CheckError(check, message)
