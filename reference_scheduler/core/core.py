"""The scheduler: events in, decisions out, all state inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from reference_scheduler.core.allocators import ALLOCATORS, Allocator
from reference_scheduler.core.amounts import Resources, pack, unpack
from reference_scheduler.core.decisions import Decision, Preempt, Reject, RejectCode, Victim
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
from reference_scheduler.core.jobs import JobTable, dependencies
from reference_scheduler.core.ledger import Ledger
from reference_scheduler.core.limits import Limits, overflow
from reference_scheduler.core.machine import ATTEMPT_ENDS
from reference_scheduler.core.model import (
    BLOCKED,
    COMPLETED,
    FOREVER_US,
    LOCAL,
    MAX_ARRAY,
    MAX_ID,
    MAX_TIME_US,
    QUEUED,
    RANK,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    Attempt,
    AttemptState,
    Config,
    Job,
    JobSpec,
    JobState,
    PendReason,
    QueueSettings,
    check_bounds,
    demand,
    task_id,
)
from reference_scheduler.core.passes import Pass
from reference_scheduler.core.pickers import PICKERS, Picker
from reference_scheduler.core.preemption import choose_victims
from reference_scheduler.core.snapshot import Counters, Outcome, Snapshot, WorkerRecord

_FIXED_FIELDS = frozenset({"id", "after_ok", "after_any"})
_NEED_NO_CHECK = frozenset({JobSubmitted, JobStateChanged, Tick})
"""The kinds of events that come most often; nothing in them can be malformed but the time."""
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
        self.config = Config(enabled=False)
        self.generation = ""
        self.chain = bytes(16)
        self.counters = Counters()
        self._ledger = Ledger()
        self._limits = Limits()
        self._view = Pass(self._ledger, self._limits, allocators[self.config.allocator]())
        self._picker = pickers[self.config.picker]()
        self._jobs = JobTable(self._ledger, self._limits, self._view, self._picker)
        self._queues: dict[str, QueueSettings] = {}
        self._beneficiary = ""
        self._unfinished = False
        self._most_waiting = 0
        """With so many jobs waiting no bound of the queue can be broken."""

    # What a driver calls.

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Take in ``event`` and return what is to be done, in this order.

        Raises:
            ValueError: the event is malformed (an unknown picker, a negative quantity); nothing changed.
            InvariantViolation: the core is defective and must not be used further.
        """
        if type(event) not in _NEED_NO_CHECK or not -MAX_TIME_US <= event.at <= MAX_TIME_US:
            self._check(event)
        jobs = self._jobs
        decisions: list[Decision] = []
        jobs.decisions, jobs.released = decisions, []
        if event.at < jobs.now_us:
            self.counters = replace(self.counters, clamped=self.counters.clamped + 1)
        else:
            jobs.now_us = event.at
        if jobs.timers:
            jobs.fire_timers()
        self._apply(event)
        if jobs.timers:
            jobs.fire_timers()
        if event.run_pass:
            self._run_pass()
        jobs.check()
        room = unpack(self._ledger.room)
        vital = (self.chain, event, decisions, jobs.now_us, len(jobs.open), len(self._view.ends), room)
        self.chain = blake2b(_encode(vital), digest_size=16).digest()
        return tuple(decisions)

    def next_due(self) -> int | None:
        """Return when the next ``Tick`` is due, ``None`` if only another event can change anything."""
        if self._unfinished:
            return self._jobs.now_us
        timer = self._jobs.next_timer()
        turn = self._picker.next_due(self._jobs.now_us)
        return timer if turn is None else turn if timer is None else min(turn, timer)

    def why(self, job_id: str, now_us: int = -MAX_TIME_US, hold: str = "") -> str:
        """Say in one sentence, with numbers, what became of a job, or what it waits for.

        It is said of ``now_us``, if that is later than the latest event. ``hold`` is what the driver knows to keep
        all jobs from starting.

        Raises:
            KeyError: there was never such a job, or it is an array of which jobs are left.
        """
        outcome = self._jobs.outcomes.get(job_id)
        if outcome is not None:
            return f"Job {job_id} is {outcome.state}."
        now_us, job = max(now_us, self._jobs.now_us), self._jobs.open[job_id]
        if job.attempt is not None:
            span = _s(now_us - job.attempt.started_us)
            return f"Job {job_id} has been running for {span} as attempt {job.attempt.number}."
        waits = f"Job {job_id} has been waiting for {_s(now_us - job.submitted_us)}"
        if job.state is BLOCKED:
            missing = [target for target in dependencies(job.spec) if target not in self._jobs.outcomes]
            named = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
            return f"{waits}: {len(missing)} other jobs have to end first ({named})."
        if job.state is SCHEDULED:
            return f"{waits} and may start in {_s(max(job.not_before_us - now_us, 0))}."
        if hold:
            return f"{waits}: {hold}."
        reason = job.reason or PendReason.BEHIND
        detail = self._view.detail(job, reason)
        place = f"at place {self._picker.place(job)} of its queue"
        cause = f"{reason}: {detail}" if detail else str(reason)
        if job.reserved_us is None or job.reserved_us >= FOREVER_US:
            return f"{waits} {place} ({cause})."
        return f"{waits} {place} ({cause}), reserved to start in {_s(max(job.reserved_us - now_us, 0))}."

    # Reading the state.

    @property
    def now_us(self) -> int:
        """The time of the latest event."""
        return self._jobs.now_us

    @property
    def released(self) -> list[str]:
        """The jobs that with the latest event no longer had to wait for others or for their time."""
        return self._jobs.released

    def job(self, job_id: str) -> Job | None:
        """Return the job if it is not terminal; it must not be changed."""
        return self._jobs.open.get(job_id)

    def outcome(self, job_id: str) -> Outcome | None:
        """Return how the job or array ended, ``None`` if it did not."""
        return self._jobs.outcomes.get(job_id)

    def open_jobs_of(self, name: str) -> list[Job]:
        """Return the job ``name``, or the jobs of the array ``name``, as far as they are not terminal."""
        job = self._jobs.open.get(name)
        return self._jobs.tasks(name) if job is None else [job]

    def open_arrays(self) -> tuple[str, ...]:
        """Return the arrays of which a job is not terminal, oldest first."""
        return tuple(self._jobs.arrays)

    def ended(self) -> list[str]:
        """Return the jobs and arrays that are terminal and not forgotten, in the order in which they ended."""
        return list(self._jobs.outcomes)

    def open_jobs(self) -> tuple[Job, ...]:
        """Return all jobs that are not terminal, oldest first."""
        return tuple(self._jobs.open.values())

    def running(self) -> tuple[Job, ...]:
        """Return the jobs that have a live attempt, in the order in which these are expected to end."""
        return tuple(job for _, _, job in self._view.ends)

    @property
    def size(self) -> int:
        """The number of jobs and outcomes that are kept."""
        return len(self._jobs.open) + len(self._jobs.outcomes)

    def snapshot(self) -> Snapshot:
        """Return a copy of all that decisions depend on."""
        ledger, jobs = self._ledger, self._jobs
        return Snapshot(
            now_us=jobs.now_us,
            generation=self.generation,
            config=self.config,
            workers=tuple(
                WorkerRecord(name, unpack(capacity), ledger.accepting[name])
                for name, capacity in ledger.capacity.items()
            ),
            queues=tuple(self._queues.items()),
            jobs=tuple(job.record() for job in jobs.open.values()),
            arrays=tuple(jobs.arrays.items()),
            outcomes=tuple(jobs.outcomes.items()),
            next_seq=jobs.next_seq,
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
        """Return a core that goes on exactly as the one ``snapshot`` was taken from.

        Raises:
            KeyError: the snapshot's picker or allocator is not among those given.
        """
        core = cls(pickers, allocators)
        core.generation, core.chain, core.counters = snapshot.generation, snapshot.chain, snapshot.counters
        core._beneficiary, core._unfinished = snapshot.beneficiary, snapshot.unfinished
        core._queues = dict(snapshot.queues)
        core._jobs.load(snapshot)
        for worker in snapshot.workers:
            core._ledger.set_worker(worker.name, worker.capacity, worker.accepting)
        core._ledger.load(core._jobs.live_attempts())
        core._install(snapshot.config)
        core._picker.load(snapshot.picker_state)
        return core

    def audit(self) -> None:
        """Check all invariants from scratch, in time linear in the state; ``handle`` checks the cheap ones.

        Raises:
            InvariantViolation: one does not hold.
        """
        self._ledger.audit(self._jobs.live_attempts())
        self._limits.audit([job for _, _, job in self._view.ends])
        self._jobs.audit()

    # One method per kind of event.

    def _apply(self, event: Event) -> None:
        match event:
            case JobSubmitted():
                self._job_submitted(event)
            case JobStateChanged():
                self._job_state_changed(event)
            case Tick():
                pass  # time has been moved on already
            case CancelRequested():
                self._cancel_requested(event)
            case JobUpdated():
                self._job_updated(event)
            case UsageReported():
                self._usage_reported(event)
            case WorkerUpdated():
                self._ledger.set_worker(event.worker, event.capacity, event.accepting)
                self._capacity_changed()
            case ResourcesChanged():
                self._resources_changed(event)
            case WorkerLost():
                self._worker_lost(event)
            case QueueConfigured():
                self._queues[event.queue] = QueueSettings(event.paused, event.max_running)
                self._configure_limits()
            case ConfigLoaded():
                self._config_loaded(event)
            case GenerationStarted():
                self._generation_started(event)

    def _check(self, event: Event) -> None:
        check_bounds("at", event.at, -MAX_TIME_US, MAX_TIME_US)
        if isinstance(event, WorkerUpdated | ResourcesChanged):
            self._check_capacity(event.worker, event.capacity)
        elif isinstance(event, ConfigLoaded):
            config = event.config
            if config.picker not in self._pickers:
                raise ValueError(f"picker must be one of {', '.join(self._pickers)}, got {config.picker!r}")
            if config.allocator not in self._allocators:
                names = ", ".join(self._allocators)
                raise ValueError(f"allocator must be one of {names}, got {config.allocator!r}")
            if config.resources is not None:
                self._check_capacity(LOCAL, config.resources)

    def _check_capacity(self, worker: str, capacity: Resources) -> None:
        pack(capacity)
        others = [unpack(amount) for name, amount in self._ledger.capacity.items() if name != worker]
        pack(Resources(*map(sum, zip(capacity, *others, strict=True))))

    def _job_submitted(self, event: JobSubmitted) -> None:
        spec, jobs = event.job, self._jobs
        refusal = self._refusal(spec, event.array_size, event.array_running)
        if refusal is not None:
            jobs.decisions.append(Reject(spec.id, *refusal))
        elif event.array_size:
            jobs.admit_array(spec, event.array_size, event.array_running)
            self._configure_limits()
        else:
            jobs.admit(spec)

    def _refusal(self, spec: JobSpec, array_size: int, array_running: int) -> tuple[RejectCode, str] | None:
        """Return why a submission is refused, ``None`` if nothing speaks against it."""
        if not self.config.enabled:
            return RejectCode.DISABLED, "the scheduler is disabled"
        jobs, names = self._jobs, [spec.id]
        if array_size or array_running:
            if not (0 <= array_size <= MAX_ARRAY and 0 <= array_running <= MAX_ARRAY):
                return RejectCode.INVALID, f"array_size and array_running must be between 0 and {MAX_ARRAY}"
            names += [task_id(spec.id, index) for index in range(array_size)]
            if array_size and len(names[-1]) > MAX_ID:
                return RejectCode.INVALID, f"length of id with its index must be at most {MAX_ID}"
        known = jobs.first_known(names)
        if known is not None:
            return RejectCode.DUPLICATE, f"there is already a job {known}"
        for target in dependencies(spec):
            if not jobs.is_known(target):
                return RejectCode.UNKNOWN_DEPENDENCY, f"there is no job {target}"
        count, waiting = array_size or 1, len(jobs.open) - len(self._view.ends)
        if waiting + count > self._most_waiting:
            full = overflow(self.config.queue, spec, count, waiting, jobs.open.values())
            if full is not None:
                return RejectCode.QUEUE_FULL, full
        need, _ = demand(spec.effective_request)
        if self._ledger.capacity and not self._view.possible(need, spec.tasks):
            return RejectCode.IMPOSSIBLE, self._view.lacking(need * spec.tasks)
        return None

    def _job_updated(self, event: JobUpdated) -> None:
        jobs, new = self._jobs, event.job
        found = self.open_jobs_of(new.id)
        if not found:
            reason = "there is no such job, or it has ended"
            jobs.decisions.append(Reject(new.id, RejectCode.TERMINAL, reason))
            return
        try:
            updated = _updated(found, event)
        except ValueError as error:
            jobs.decisions.append(Reject(new.id, RejectCode.INVALID, str(error)))
            return
        jobs.leave_queue(*(job for job, _ in updated))
        for job, spec in updated:
            jobs.update(job, spec)
        self._configure_limits()

    def _job_state_changed(self, event: JobStateChanged) -> None:
        jobs = self._jobs
        job, attempt = self._live(event.job, event.attempt)
        if job is None or attempt is None:
            return
        new = event.new
        if event.old is QUEUED and new is RUNNING:
            job.attempt = replace(attempt, state=AttemptState.RUNNING)
            return
        if event.old is not RUNNING or new not in ATTEMPT_ENDS:
            self._count_stale()
            return
        jobs.end_attempt(job, attempt)
        if new is COMPLETED or (new is JobState.CANCELLED and (job.cancel_requested or not attempt.stopping)):
            jobs.settle(job, new, event.exit_code)
        elif new is JobState.INTERRUPTED or new is JobState.CANCELLED:  # which nobody wanted of the job
            jobs.interrupted(job, attempt, "interrupted")
        else:
            jobs.failed(job, attempt, event)
        jobs.propagate()

    def _cancel_requested(self, event: CancelRequested) -> None:
        jobs, found = self._jobs, self.open_jobs_of(event.job)
        if not found:
            self._count_stale()
        jobs.leave_queue(*found)
        for job in found:
            if job.attempt is None:
                jobs.cancel_waiting(job, event.reason)
            elif not job.cancel_requested:
                job.cancel_requested = True
                jobs.stop(job, job.attempt, event.reason)
        jobs.propagate()

    def _resources_changed(self, event: ResourcesChanged) -> None:
        if event.worker not in self._ledger.capacity:
            self._count_stale()
            return
        self._ledger.set_worker(event.worker, event.capacity, self._ledger.accepting[event.worker])
        self._capacity_changed()

    def _worker_lost(self, event: WorkerLost) -> None:
        if event.worker not in self._ledger.capacity:
            self._count_stale()
            return
        for job in list(self._jobs.open.values()):
            if job.attempt is not None:
                self._jobs.lose_shares(job, job.attempt, event.worker)
        self._ledger.lose_worker(event.worker)
        self._capacity_changed()
        self._jobs.propagate()

    def _usage_reported(self, event: UsageReported) -> None:
        job, attempt = self._live(event.job, event.attempt)
        if job is not None and attempt is not None:
            job.attempt = replace(attempt, peak=Resources(*map(max, attempt.peak, event.used)))

    def _config_loaded(self, event: ConfigLoaded) -> None:
        if event.config.resources is not None:
            accepting = self._ledger.accepting.get(LOCAL, True)
            self._ledger.set_worker(LOCAL, event.config.resources, accepting)
        if event.config.picker != self.config.picker:
            for job in self._jobs.open.values():
                job.reserved_us = None  # no promise of the old picker binds the new one
            self._install(event.config)
        else:
            self._configure(event.config)

    def _generation_started(self, event: GenerationStarted) -> None:
        if event.generation == self.generation:
            self._count_stale()
            return
        self.generation = event.generation
        for job in list(self._jobs.open.values()):
            if job.attempt is not None:
                attempt = job.attempt
                self._jobs.end_attempt(job, attempt)
                self._jobs.interrupted(job, attempt, f"generation {event.generation} started")
        self._jobs.propagate()

    # Passes.

    def _run_pass(self) -> None:
        view = self._view
        view.begin(self._jobs.now_us, self._jobs.decisions)
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
        view, job = self._view, self._jobs.open.get(self._beneficiary)
        if job is None or job.state is not QUEUED:
            self._beneficiary = ""
            return False
        live = [other.attempt for _, _, other in view.ends]
        if any(attempt and attempt.preempted_for == job.spec.id for attempt in live):
            view.pend(job, PendReason.PREEMPTING)
            return True
        self._beneficiary = ""
        if view.start(job) is None:
            self._picker.remove(job)
        return False

    def _preempt(self) -> None:
        """Let the highest job that no limit, pause or size holds displace lower ones, if that lets it start."""
        view = self._view
        queued = [job for job in self._jobs.open.values() if job.state is QUEUED]
        queued.sort(key=lambda job: (RANK[job.spec.priority], job.seq))
        job = next((job for job in queued if not view.held(job) and view.possible(job.need, job.spec.tasks)), None)
        if job is None:
            return
        live = [other for _, _, other in view.ends]
        victims = choose_victims(job, live, self._ledger, view.allocator)
        if not victims:
            return
        named = []
        for victim, attempt in victims:
            invariant(RANK[victim.spec.priority] > RANK[job.spec.priority], "preempted a class not lower")
            victim.attempt = replace(attempt, stopping=True, preempted_for=job.spec.id)
            victim.preempted = True  # now: what is asked to stop may as well report that it failed
            workers = tuple(worker for worker, _ in attempt.allocation)
            named.append(Victim(victim.spec.id, attempt.number, workers))
        self._beneficiary = job.spec.id
        reason = f"{job.spec.priority} job {view.detail(job, job.reason or PendReason.RESOURCES)}"
        self._jobs.decisions.append(Preempt(job.spec.id, tuple(named), reason))

    # Configuration and small helpers.

    def _install(self, config: Config) -> None:
        """Make the picker that ``config`` names and give it the queue."""
        self._picker = self._pickers[config.picker]()
        self._picker.configure(config.fairness)
        self._jobs.install(self._picker)
        self._configure(config)

    def _configure(self, config: Config) -> None:
        self.config, bounds = config, config.queue
        self._most_waiting = min(bounds.max_total, bounds.max_per_workspace, bounds.max_interactive_per_session)
        self._picker.configure(config.fairness)
        self._view.configure(self._allocators[config.allocator](), config.queue.claim_batch)
        self._configure_limits()

    def _configure_limits(self) -> None:
        caps = {name: array.max_running for name, array in self._jobs.arrays.items() if array.max_running}
        live = [job for _, _, job in self._view.ends]
        self._limits.configure(self.config, self._queues, caps, live)
        self._capacity_changed()

    def _capacity_changed(self) -> None:
        self._view.releases += 1
        self._picker.capacity_changed()

    def _live(self, job_id: str, number: int) -> tuple[Job | None, Attempt | None]:
        """Return job and attempt if the token is that of a live attempt; count it otherwise."""
        job = self._jobs.open.get(job_id)
        if job is None or job.attempt is None or job.attempt.number != number:
            self._count_stale()
            return None, None
        return job, job.attempt

    def _count_stale(self) -> None:
        self.counters = replace(self.counters, stale=self.counters.stale + 1)


def _updated(jobs: list[Job], event: JobUpdated) -> list[tuple[Job, JobSpec]]:
    """Return what ``event`` makes of ``jobs``: the one that it is about, or those of an array that it changes.

    Raises:
        ValueError: it changes what it may not.
    """
    new, fields = event.job, JobSpec.__struct_fields__
    if jobs[0].spec.id == new.id:
        changed = {name for name in fields if getattr(new, name) != getattr(jobs[0].spec, name)}
        updated = [(jobs[0], new)]
    else:
        changed = {name for name in fields if name in event.changed}
        values = {name: getattr(new, name) for name in changed}
        updated = [(job, spec) for job in jobs if (spec := replace(job.spec, **values)) != job.spec]
    if not changed <= set(event.changed) - _FIXED_FIELDS:
        raise ValueError("an update may change only the fields it names, and no id or dependency")
    return updated


def _s(duration_us: int) -> str:
    return f"{round(duration_us / SECOND_US, 1):.12g} s"
