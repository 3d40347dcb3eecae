"""The scheduler: events in, decisions out, all state inside."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from hashlib import blake2b
from heapq import heappop, heappush

import msgspec
from msgspec.structs import replace

from reference_scheduler.core.allocators import ALLOCATORS, Allocator
from reference_scheduler.core.amounts import Resources, pack, unpack
from reference_scheduler.core.decisions import (
    Cancel,
    Decision,
    Expire,
    Pend,
    Preempt,
    Reject,
    RejectCode,
    Requeue,
    Victim,
)
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
from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.ledger import Ledger
from reference_scheduler.core.limits import Limits, overflow
from reference_scheduler.core.machine import ATTEMPT_ENDS, LIVE_ATTEMPT, TERMINAL, move
from reference_scheduler.core.model import (
    LOCAL,
    MAX_ARRAY,
    RANK,
    REPEATABLE,
    SECOND_US,
    Attempt,
    AttemptState,
    Config,
    Failure,
    Job,
    JobSpec,
    JobState,
    PendReason,
    QueueSettings,
    spec_error,
)
from reference_scheduler.core.passes import Pass
from reference_scheduler.core.pickers import PICKERS, Picker
from reference_scheduler.core.preemption import choose_victims
from reference_scheduler.core.retry import delay_us
from reference_scheduler.core.snapshot import ArrayRecord, Counters, Outcome, Snapshot, WorkerRecord

_FIXED_FIELDS = frozenset({"id", "after_ok", "after_any"})
_encode = msgspec.msgpack.Encoder().encode


class SchedulerCore:
    """The single authority over which job runs where and when.

    It refuses all work until the first ``ConfigLoaded``. ``pickers`` and ``allocators`` map names that a
    configuration may use to constructors.
    """

    def __init__(
        self,
        pickers: Mapping[str, Callable[[], Picker]] = PICKERS,
        allocators: Mapping[str, Callable[[], Allocator]] = ALLOCATORS,
    ) -> None:
        self._pickers = pickers
        self._allocators = allocators
        self.now_us = 0
        self.generation = ""
        self.chain = bytes(16)
        self.counters = Counters()
        self.ledger = Ledger()
        self._limits = Limits()
        self._jobs: dict[str, Job] = {}
        self._arrays: dict[str, ArrayRecord] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._queues: dict[str, QueueSettings] = {}
        self._dependents: dict[str, list[str]] = {}
        self._ended: list[str] = []
        self._timers: list[tuple[int, int, str]] = []
        self._accepted = 0
        self._next_seq = 0
        self._beneficiary = ""
        self._unfinished = False
        self._decisions: list[Decision] = []
        self._install(Config(enabled=False))

    # The three things a driver calls.

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Take in ``event`` and return what is to be done, in this order.

        Raises:
            ValueError: the event contradicts itself (an unknown picker, a negative quantity); nothing changed.
            InvariantViolation: the core is defective and must not be used further.
        """
        self._check(event)
        if event.at < self.now_us:
            self.counters = replace(self.counters, clamped=self.counters.clamped + 1)
        else:
            self.now_us = event.at
        self._decisions = decisions = []
        self._fire_timers()
        _APPLY[type(event)](self, event)
        self._fire_timers()
        if event.run_pass:
            self._run_pass()
        live = len(self._view.ends)
        invariant(
            self._accepted == len(self._jobs) + len(self._outcomes) + len(self._arrays), "a job is lost"
        )
        free = [unpack(amount) for amount in self.ledger.free.values()]
        vital = (self.chain, event, decisions, self.now_us, len(self._jobs), live, free)
        self.chain = blake2b(_encode(vital), digest_size=16).digest()
        return tuple(decisions)

    def next_due(self) -> int | None:
        """Return when the next ``Tick`` is due, ``None`` if only another event can change anything."""
        if self._unfinished:
            return self.now_us
        timers = self._timers
        while timers and not self._is_valid(timers[0]):
            heappop(timers)
        turn = self._picker.next_due(self.now_us)
        if not timers:
            return turn
        return timers[0][0] if turn is None else min(turn, timers[0][0])

    def why(self, job_id: str) -> str:
        """Say in one sentence, with numbers, what became of a job, or what it waits for.

        Raises:
            KeyError: there was never such a job.
        """
        if job_id in self._outcomes:
            return f"Job {job_id} is {self._outcomes[job_id].state}."
        job = self._jobs[job_id]
        waited = (self.now_us - job.submitted_us) / SECOND_US
        if job.attempt is not None:
            ran = (self.now_us - job.attempt.started_us) / SECOND_US
            return f"Job {job_id} runs as attempt {job.attempt.number} since {ran:g} s."
        if job.state is JobState.BLOCKED:
            return f"Job {job_id} waits since {waited:g} s for {job.unmet} other jobs to end."
        if job.state is JobState.SCHEDULED:
            left = (job.not_before_us - self.now_us) / SECOND_US
            return f"Job {job_id} may start in {left:g} s."
        reason = job.reason or PendReason.BEHIND
        detail = self._view.detail(job, reason)
        reserved = job.reserved_us
        return (
            f"Job {job_id} waits since {waited:g} s at place {self._picker.place(job)} of its queue ({reason}"
            + (f": {detail})" if detail else ")")
            + (
                ""
                if reserved is None
                else f", reserved to start in {(reserved - self.now_us) / SECOND_US:g} s"
            )
            + "."
        )

    # Reading the state.

    def job(self, job_id: str) -> Job | None:
        """Return the job if it is not terminal; it must not be changed."""
        return self._jobs.get(job_id)

    def outcome(self, job_id: str) -> Outcome | None:
        """Return how the job or array ended, ``None`` if it did not."""
        return self._outcomes.get(job_id)

    def open_jobs(self) -> tuple[Job, ...]:
        """Return all jobs that are not terminal, oldest first."""
        return tuple(self._jobs.values())

    def snapshot(self) -> Snapshot:
        """Return a copy of all that decisions depend on."""
        ledger = self.ledger
        return Snapshot(
            now_us=self.now_us,
            generation=self.generation,
            config=self.config,
            workers=tuple(
                WorkerRecord(name, unpack(capacity), ledger.accepting[name])
                for name, capacity in ledger.capacity.items()
            ),
            queues=tuple(self._queues.items()),
            jobs=tuple(job.record() for job in self._jobs.values()),
            arrays=tuple(self._arrays.items()),
            outcomes=tuple(self._outcomes.items()),
            accepted=self._accepted,
            next_seq=self._next_seq,
            beneficiary=self._beneficiary,
            unfinished=self._unfinished,
            counters=self.counters,
            chain=self.chain,
            picker_state=self._picker.save(),
        )

    @classmethod
    def restore(
        cls,
        snapshot: Snapshot,
        pickers: Mapping[str, Callable[[], Picker]] = PICKERS,
        allocators: Mapping[str, Callable[[], Allocator]] = ALLOCATORS,
    ) -> SchedulerCore:
        """Return a core that goes on exactly as the one ``snapshot`` was taken from."""
        core = cls(pickers, allocators)
        core.now_us, core.generation, core.chain = snapshot.now_us, snapshot.generation, snapshot.chain
        core.counters, core._accepted, core._next_seq = (
            snapshot.counters,
            snapshot.accepted,
            snapshot.next_seq,
        )
        core._beneficiary, core._unfinished = snapshot.beneficiary, snapshot.unfinished
        core._queues = dict(snapshot.queues)
        core._arrays = dict(snapshot.arrays)
        core._outcomes = dict(snapshot.outcomes)
        core._jobs = {record.spec.id: Job.revived(record) for record in snapshot.jobs}
        for worker in snapshot.workers:
            core.ledger.set_worker(worker.name, worker.capacity, worker.accepting)
        core.ledger.load(core._live_attempts())
        core._install(snapshot.config)
        for job in core._jobs.values():
            core._set_timers(job)
            for target in _dependencies(job.spec):
                if target not in core._outcomes:
                    core._dependents.setdefault(target, []).append(job.spec.id)
        core._picker.load(snapshot.picker_state)
        return core

    def audit(self) -> None:
        """Check all invariants from scratch, in time linear in the state; :meth:`handle` checks the cheap ones.

        Raises:
            InvariantViolation: one does not hold.
        """
        self.ledger.audit(self._live_attempts())
        ends = sorted((a.expected_end_us, j.seq, j.spec.id) for j in self._jobs.values() if (a := j.attempt))
        invariant(
            ends == [(end, seq, job.spec.id) for end, seq, job in self._view.ends], "ends are not those live"
        )
        places: dict[int, list[int]] = {}
        for job in self._jobs.values():
            invariant(
                (job.attempt is not None) == (job.state is JobState.RUNNING), "a running job has no attempt"
            )
            invariant(job.attempt is None or job.attempt.state in LIVE_ATTEMPT, "an ended attempt is kept")
            open_targets = [target for target in _dependencies(job.spec) if target not in self._outcomes]
            invariant(job.unmet == len(open_targets), "dependencies are miscounted", job.spec.id)
            invariant(
                (job.state is JobState.BLOCKED) == (job.unmet > 0), "a job is blocked by nothing", job.spec.id
            )
            invariant(
                job.reserved_us is None or job.state is JobState.QUEUED, "a job not queued has a reservation"
            )
            if job.state is JobState.SCHEDULED:
                due = self.next_due()
                invariant(
                    due is not None and due <= job.not_before_us, "a scheduled job is forgotten", job.spec.id
                )
            if job.state is JobState.QUEUED:
                places.setdefault(self._picker.place(job), []).append(job.seq)
        invariant(all(place >= 1 for place in places), "a place in the queue is below 1")
        for name, array in self._arrays.items():
            alive = sum(1 for job in self._jobs.values() if job.array == name)
            invariant(alive == array.open > 0, "an array is miscounted", name)

    # One method per kind of event.

    def _check(self, event: Event) -> None:
        if isinstance(event, ConfigLoaded):
            if event.config.picker not in self._pickers:
                raise ValueError(
                    f"picker must be one of {', '.join(self._pickers)}, got {event.config.picker!r}"
                )
            if event.config.allocator not in self._allocators:
                names = ", ".join(self._allocators)
                raise ValueError(f"allocator must be one of {names}, got {event.config.allocator!r}")
            if event.config.resources is not None:
                self._check_capacity(LOCAL, event.config.resources)
        elif isinstance(event, WorkerUpdated | ResourcesChanged):
            self._check_capacity(event.worker, event.capacity)

    def _check_capacity(self, worker: str, capacity: Resources) -> None:
        pack(capacity)
        others = (unpack(amount) for name, amount in self.ledger.capacity.items() if name != worker)
        pack(Resources(*map(sum, zip(capacity, *others, strict=True))))

    def _config_loaded(self, event: ConfigLoaded) -> None:
        if event.config.resources is not None:
            accepting = self.ledger.accepting.get(LOCAL, True)
            self.ledger.set_worker(LOCAL, event.config.resources, accepting)
        self._install(event.config)

    def _job_submitted(self, event: JobSubmitted) -> None:
        spec, count = event.job, max(event.array_size, 1)
        refusal = self._refusal(spec, event.array_size, event.array_running)
        if refusal is not None:
            self._decisions.append(Reject(spec.id, *refusal))
            return
        self._accepted += count
        if not event.array_size:
            self._admit(spec, "")
            return
        self._accepted += 1
        self._arrays[spec.id] = ArrayRecord(count, count, 0, event.array_running)
        if event.array_running:
            self._configure_limits()
        for index in range(count):
            self._admit(replace(spec, id=f"{spec.id}[{index}]"), spec.id)

    def _refusal(self, spec: JobSpec, array_size: int, array_running: int) -> tuple[RejectCode, str] | None:
        if not self.config.enabled:
            return RejectCode.DISABLED, "the scheduler is disabled"
        error = spec_error(spec)
        if error is None and not (0 <= array_size <= MAX_ARRAY and 0 <= array_running <= MAX_ARRAY):
            error = f"the size of an array must be between 0 and {MAX_ARRAY}"
        if error is not None:
            return RejectCode.INVALID, error
        for name in (spec.id, *(f"{spec.id}[{index}]" for index in range(array_size))):
            if self._is_known(name):
                return RejectCode.DUPLICATE, f"there is already a job {name}"
        unknown = [target for target in _dependencies(spec) if not self._is_known(target)]
        if unknown:
            return RejectCode.UNKNOWN_DEPENDENCY, f"there is no job {unknown[0]}"
        waiting = len(self._jobs) - len(self._view.ends)
        full = overflow(self.config, spec, max(array_size, 1), waiting, self._jobs.values())
        if full is not None:
            return RejectCode.QUEUE_FULL, full
        job = Job.of(spec, 0, self.now_us)
        if self.ledger.capacity and not self._view.possible(job):
            return RejectCode.IMPOSSIBLE, self._view.detail(job, PendReason.TOO_LARGE)
        return None

    def _admit(self, spec: JobSpec, array: str) -> None:
        job = Job.of(spec, self._next_seq, self.now_us, array)
        self._next_seq += 1
        self._jobs[spec.id] = job
        broken = ""
        for target in _dependencies(spec):
            outcome = self._outcomes.get(target)
            if outcome is None:
                job.unmet += 1
                self._dependents.setdefault(target, []).append(spec.id)
            elif target in spec.after_ok and outcome.state is not JobState.COMPLETED:
                broken = target
        if broken:
            self._cancel_waiting(job, f"job {broken}, which it depends on, is {self._outcomes[broken].state}")
            self._propagate()
        else:
            self._enqueue(job)
            self._set_timers(job)

    def _job_updated(self, event: JobUpdated) -> None:
        new = event.job
        job = self._jobs.get(new.id)
        if job is None:
            self._decisions.append(
                Reject(new.id, RejectCode.TERMINAL, "there is no such job, or it has ended")
            )
            return
        old = job.spec
        different = {name for name in JobSpec.__struct_fields__ if getattr(new, name) != getattr(old, name)}
        error = spec_error(new)
        if not different <= set(event.changed) - _FIXED_FIELDS:
            error = "an update may change only the fields it names, and no id or dependency"
        if error is not None:
            self._decisions.append(Reject(new.id, RejectCode.INVALID, error))
            return
        if job.state is JobState.QUEUED:
            self._leave_queue(job)
        fresh = Job.of(new, job.seq, job.submitted_us)
        job.spec, job.need, job.total, job.keys = new, fresh.need, fresh.total, fresh.keys
        job.estimate_us = fresh.estimate_us
        if new.not_before_us != old.not_before_us:
            job.not_before_us = new.not_before_us
        self._configure_limits()
        if job.attempt is None:
            self._enqueue(job)
        self._set_timers(job)

    def _job_state_changed(self, event: JobStateChanged) -> None:
        job, attempt = self._live(event.job, event.attempt)
        if job is None or attempt is None:
            return
        if (event.old, event.new) == (JobState.QUEUED, JobState.RUNNING):
            if attempt.state is AttemptState.ADMITTED:
                job.attempt = replace(attempt, state=AttemptState.RUNNING)
            return
        if event.old is not job.state or event.new not in ATTEMPT_ENDS:
            self._count_stale()
            return
        self._end_attempt(job, attempt)
        if event.new is JobState.INTERRUPTED:
            self._interrupted(job, attempt, "interrupted")
        elif event.new in (JobState.FAILED, JobState.TIMED_OUT):
            self._failed(job, attempt, event)
        else:
            self._settle(job, event.new, event.exit_code)
        self._propagate()

    def _cancel_requested(self, event: CancelRequested) -> None:
        array = self._arrays.get(event.job)
        names = [event.job] if array is None else [f"{event.job}[{index}]" for index in range(array.size)]
        jobs = [self._jobs[name] for name in names if name in self._jobs]
        if not jobs:
            self._count_stale()
        for job in jobs:
            if job.attempt is None:
                if job.spec.id in self._jobs:  # an earlier one of this array may have taken it along
                    self._cancel_waiting(job, event.reason)
            elif not job.cancel_requested:
                job.cancel_requested = True
                self._stop(job, job.attempt, event.reason)
        self._propagate()

    def _worker_updated(self, event: WorkerUpdated) -> None:
        self.ledger.set_worker(event.worker, event.capacity, event.accepting)
        self._capacity_changed()

    def _resources_changed(self, event: ResourcesChanged) -> None:
        if event.worker not in self.ledger.capacity:
            self._count_stale()
            return
        self.ledger.set_worker(event.worker, event.capacity, self.ledger.accepting[event.worker])
        self._capacity_changed()

    def _worker_lost(self, event: WorkerLost) -> None:
        if event.worker not in self.ledger.capacity:
            self._count_stale()
            return
        for job in [job for job in self._jobs.values() if job.attempt is not None]:
            attempt = job.attempt
            if attempt is None or all(worker != event.worker for worker, _ in attempt.allocation):
                continue
            lost = tuple(share for share in attempt.allocation if share[0] == event.worker)
            rest = tuple(share for share in attempt.allocation if share[0] != event.worker)
            if rest:  # the tasks on other workers still have to be stopped before their share is free
                self.ledger.release(job.spec.id, lost, ())
                job.attempt = replace(attempt, allocation=rest)
                self._stop(job, job.attempt, f"worker {event.worker} is lost")
            else:
                self._end_attempt(job, attempt)
                self._interrupted(job, attempt, f"worker {event.worker} is lost")
        self.ledger.lose_worker(event.worker)
        self._capacity_changed()
        self._propagate()

    def _queue_configured(self, event: QueueConfigured) -> None:
        self._queues[event.queue] = QueueSettings(event.paused, event.max_running)
        self._configure_limits()
        self._capacity_changed()

    def _usage_reported(self, event: UsageReported) -> None:
        job, attempt = self._live(event.job, event.attempt)
        if job is not None and attempt is not None:
            job.attempt = replace(attempt, peak=Resources(*map(max, attempt.peak, event.used)))

    def _generation_started(self, event: GenerationStarted) -> None:
        if event.generation == self.generation:
            self._count_stale()
            return
        self.generation = event.generation
        for job in list(self._jobs.values()):
            if job.attempt is not None:
                attempt = job.attempt
                self._end_attempt(job, attempt)
                self._interrupted(job, attempt, f"generation {event.generation} started")
        self._propagate()

    def _tick(self, event: Tick) -> None:
        """Time has been moved on already."""

    # The lives of jobs.

    def _enqueue(self, job: Job) -> None:
        """Put a job that has no attempt where it has to wait."""
        job.reason, job.detail = None, ""
        if job.unmet:
            move(job, JobState.BLOCKED)
            self._tell(job, PendReason.DEPENDENCY, f"{job.unmet} other jobs have to end first")
        elif job.not_before_us > self.now_us:
            move(job, JobState.SCHEDULED)
            self._tell(job, PendReason.TIME, f"may start from {job.not_before_us} us on")
        else:
            if job.state in (JobState.BLOCKED, JobState.SCHEDULED) and job.attempts == 0:
                job.queued_us = self.now_us
            move(job, JobState.QUEUED)
            self._picker.add(job)

    def _tell(self, job: Job, reason: PendReason, detail: str) -> None:
        job.reason, job.detail = reason, detail
        self._decisions.append(Pend(job.spec.id, reason, detail))

    def _leave_queue(self, job: Job) -> None:
        self._picker.remove(job)
        job.reserved_us = None

    def _requeue(self, job: Job, attempt: Attempt, pause_us: int, reason: str) -> None:
        job.not_before_us = self.now_us + pause_us
        self._decisions.append(Requeue(job.spec.id, attempt.number, job.not_before_us, reason))
        self._enqueue(job)
        self._set_timers(job)

    def _end_attempt(self, job: Job, attempt: Attempt) -> None:
        """Give back all that the attempt holds; the job is then to be settled or requeued."""
        view = self._view
        self.ledger.release(job.spec.id, attempt.allocation, attempt.keys)
        self._limits.ended(job)
        index = bisect_left(view.ends, (attempt.expected_end_us, job.seq))
        invariant(view.ends[index][2] is job, "a live attempt has no expected end", job.spec.id)
        del view.ends[index]
        view.releases += 1
        job.attempt = None
        self._picker.ended(job, attempt, self.now_us)

    def _interrupted(self, job: Job, attempt: Attempt, reason: str) -> None:
        """Decide about a job whose attempt was cut short.

        An attempt that was not reported as running has done nothing yet, so it costs nothing.
        """
        move(job, JobState.INTERRUPTED)
        if job.cancel_requested:
            self._settle(job, JobState.CANCELLED)
        elif attempt.preempted_for:
            job.preempted = True
            self._requeue(job, attempt, 0, f"preempted for job {attempt.preempted_for}")
        elif attempt.state is AttemptState.ADMITTED:
            self._requeue(job, attempt, 0, f"{reason} before it ran")
        elif job.spec.idempotency not in REPEATABLE:
            self._settle(job, JobState.FAILED)
        elif job.interruptions >= job.spec.retry.max_interruptions:
            self._settle(job, JobState.DEAD_LETTER)
        else:
            job.interruptions += 1
            self._requeue(job, attempt, 0, reason)

    def _failed(self, job: Job, attempt: Attempt, event: JobStateChanged) -> None:
        policy = job.spec.retry
        failure = Failure.TIMEOUT if event.new is JobState.TIMED_OUT else event.failure
        job.failures += 1
        if job.cancel_requested or failure not in policy.retry_on or policy.max_attempts == 1:
            self._settle(job, event.new, event.exit_code)
        elif job.failures < policy.max_attempts:
            pause_us = delay_us(policy, job.spec.id, job.failures)
            self._requeue(
                job, attempt, pause_us, f"failure {job.failures} of {policy.max_attempts}: {failure}"
            )
        else:
            self._settle(job, JobState.DEAD_LETTER, event.exit_code)

    def _stop(self, job: Job, attempt: Attempt, reason: str) -> None:
        if not attempt.stopping:
            job.attempt = replace(attempt, stopping=True)
            self._decisions.append(Cancel(job.spec.id, attempt.number, reason))

    def _cancel_waiting(self, job: Job, reason: str) -> None:
        if job.state is JobState.QUEUED:
            self._leave_queue(job)
        self._decisions.append(Cancel(job.spec.id, 0, reason))
        self._settle(job, JobState.CANCELLED)

    def _settle(self, job: Job, state: JobState, exit_code: int | None = None) -> None:
        """End ``job`` for good; :meth:`_propagate` must follow."""
        name = job.spec.id
        invariant(state in TERMINAL and name not in self._outcomes, "a job ends twice", name, state)
        move(job, state)
        del self._jobs[name]
        self._outcomes[name] = Outcome(state, exit_code)
        self._ended.append(name)
        if job.array:
            array = self._arrays[job.array]
            failed = array.failed + (state is not JobState.COMPLETED)
            self._arrays[job.array] = replace(array, open=array.open - 1, failed=failed)
            if array.open == 1:
                del self._arrays[job.array]
                self._outcomes[job.array] = Outcome(JobState.FAILED if failed else JobState.COMPLETED)
                self._ended.append(job.array)

    def _propagate(self) -> None:
        """Release or cancel what depended on the jobs that ended, and so on."""
        while self._ended:
            target = self._ended.pop(0)
            completed = self._outcomes[target].state is JobState.COMPLETED
            for name in self._dependents.pop(target, ()):
                job = self._jobs.get(name)
                if job is None:
                    continue
                job.unmet -= 1
                if target in job.spec.after_ok and not completed:
                    state = self._outcomes[target].state
                    self._cancel_waiting(job, f"job {target}, which it depends on, is {state}")
                elif not job.unmet:
                    self._enqueue(job)

    # Time.

    def _set_timers(self, job: Job) -> None:
        if job.state is JobState.SCHEDULED:
            heappush(self._timers, (job.not_before_us, job.seq, job.spec.id))
        if job.spec.deadline_us is not None and job.attempts == 0:
            heappush(self._timers, (job.spec.deadline_us, job.seq, job.spec.id))

    def _is_valid(self, timer: tuple[int, int, str]) -> bool:
        job = self._jobs.get(timer[2])
        if job is None:
            return False
        if job.state is JobState.SCHEDULED and job.not_before_us == timer[0]:
            return True
        return job.spec.deadline_us == timer[0] and job.attempts == 0

    def _fire_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_us:
            timer = heappop(timers)
            if not self._is_valid(timer):
                continue
            job = self._jobs[timer[2]]
            if job.attempts == 0 and job.spec.deadline_us is not None and job.spec.deadline_us <= self.now_us:
                if job.state is JobState.QUEUED:
                    self._leave_queue(job)
                late = (self.now_us - job.submitted_us) / SECOND_US
                self._decisions.append(Expire(job.spec.id, f"not started within {late:g} s"))
                self._settle(job, JobState.EXPIRED)
                self._propagate()
            else:
                self._enqueue(job)

    # Passes.

    def _run_pass(self) -> None:
        view = self._view
        view.begin(self.now_us, self._decisions)
        self._unfinished = False
        if self._beneficiary and self._serve_beneficiary():
            return
        self._picker.run(view)
        self._unfinished = view.exhausted
        if self.config.preemption and not self._unfinished:
            self._preempt()

    def _serve_beneficiary(self) -> bool:
        """Return whether the pass is over because victims are still stopping.

        Until they have stopped nothing else starts, so what they give back cannot go to another.
        """
        job = self._jobs.get(self._beneficiary)
        if job is None or job.state is not JobState.QUEUED:
            self._beneficiary = ""
            return False
        ongoing = any(
            other.attempt and other.attempt.preempted_for == job.spec.id for _, _, other in self._view.ends
        )
        if ongoing:
            self._view.pend(job, PendReason.PREEMPTING)
            return True
        self._beneficiary = ""
        self._picker.remove(job)
        reason = self._view.start(job)
        if reason is not None:
            self._picker.add(job)
        return False

    def _preempt(self) -> None:
        """Let the highest blocked job displace lower ones, if that is enough for it to start."""
        queued = [job for job in self._jobs.values() if job.state is JobState.QUEUED]
        job = min(queued, key=lambda job: (RANK[job.spec.priority], job.seq), default=None)
        if job is None or self._limits.blocks(job):
            return
        live = [other for _, _, other in self._view.ends]
        victims = choose_victims(job, live, self.ledger, self._allocator)
        if not victims:
            return
        named = []
        for victim, attempt in victims:
            victim.attempt = replace(attempt, stopping=True, preempted_for=job.spec.id)
            workers = tuple(worker for worker, _ in attempt.allocation)
            named.append(Victim(victim.spec.id, attempt.number, workers))
        self._beneficiary = job.spec.id
        reason = f"{job.spec.priority} job, {self._view.detail(job, PendReason.RESOURCES)}"
        self._decisions.append(Preempt(job.spec.id, tuple(named), reason))

    # Configuration and small helpers.

    def _install(self, config: Config) -> None:
        """Build what depends on the configuration, keeping all jobs and attempts."""
        self.config = config
        self._allocator = self._allocators[config.allocator]()
        self._picker = self._pickers[config.picker]()
        self._picker.configure(config.fairness)
        self._view = Pass(self.ledger, self._allocator, self._limits, config.queue.claim_batch)
        for job in self._jobs.values():
            if job.attempt is not None:
                insort(self._view.ends, (job.attempt.expected_end_us, job.seq, job))
            elif job.state is JobState.QUEUED:
                self._picker.add(job)
        self._configure_limits()

    def _configure_limits(self) -> None:
        caps = {name: array.max_running for name, array in self._arrays.items() if array.max_running}
        live = [job for _, _, job in self._view.ends]
        self._limits.configure(self.config, self._queues, caps, live)

    def _capacity_changed(self) -> None:
        self._view.releases += 1
        self._picker.capacity_changed()

    def _live(self, job_id: str, number: int) -> tuple[Job | None, Attempt | None]:
        """Return job and attempt if the token is that of a live attempt; count it otherwise."""
        job = self._jobs.get(job_id)
        if job is None or job.attempt is None or job.attempt.number != number:
            self._count_stale()
            return None, None
        return job, job.attempt

    def _live_attempts(self) -> list[tuple[str, Attempt]]:
        return [(name, job.attempt) for name, job in self._jobs.items() if job.attempt is not None]

    def _count_stale(self) -> None:
        self.counters = replace(self.counters, stale=self.counters.stale + 1)

    def _is_known(self, name: str) -> bool:
        return name in self._jobs or name in self._outcomes or name in self._arrays


def _dependencies(spec: JobSpec) -> tuple[str, ...]:
    """Return what ``spec`` depends on, each once."""
    if not spec.after_ok and not spec.after_any:
        return ()
    return tuple(dict.fromkeys((*spec.after_ok, *spec.after_any)))


_APPLY: dict[type, Callable[[SchedulerCore, Event], None]] = {
    ConfigLoaded: SchedulerCore._config_loaded,
    JobSubmitted: SchedulerCore._job_submitted,
    JobUpdated: SchedulerCore._job_updated,
    JobStateChanged: SchedulerCore._job_state_changed,
    CancelRequested: SchedulerCore._cancel_requested,
    WorkerUpdated: SchedulerCore._worker_updated,
    WorkerLost: SchedulerCore._worker_lost,
    ResourcesChanged: SchedulerCore._resources_changed,
    QueueConfigured: SchedulerCore._queue_configured,
    UsageReported: SchedulerCore._usage_reported,
    GenerationStarted: SchedulerCore._generation_started,
    Tick: SchedulerCore._tick,
}  # type: ignore[dict-item]
