"""The jobs that are not terminal, how the others ended, and every way from one state to the next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from heapq import heappop, heappush

from msgspec.structs import replace

from reference_scheduler.core.decisions import Cancel, Decision, Expire, Pend, Requeue
from reference_scheduler.core.events import JobStateChanged
from reference_scheduler.core.invariants import invariant, violated
from reference_scheduler.core.ledger import Ledger
from reference_scheduler.core.limits import Limits
from reference_scheduler.core.machine import LIVE_ATTEMPT, TERMINAL, move
from reference_scheduler.core.model import (
    BLOCKED,
    COMPLETED,
    QUEUED,
    REPEATABLE,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    Attempt,
    AttemptState,
    Failure,
    Job,
    JobSpec,
    JobState,
    PendReason,
    task_id,
)
from reference_scheduler.core.passes import Pass
from reference_scheduler.core.pickers import Picker
from reference_scheduler.core.retry import delay_us
from reference_scheduler.core.snapshot import ArrayRecord, Outcome, Snapshot


class JobTable:
    """Moves jobs through their lives, keeping ledger, limits, queue and timers in step.

    ``open`` has the jobs that are not terminal, oldest first; ``outcomes`` those that are, and the arrays
    that are complete. Whatever a move has to tell goes to ``decisions``; that a job need not wait for others or for its
    time any more is not told, but has it among the ``released``. ``timers`` is a heap of what has to happen by itself:
    time, sequence number, job.
    """

    def __init__(self, ledger: Ledger, limits: Limits, view: Pass, picker: Picker) -> None:
        self.now_us = 0
        self.decisions: list[Decision] = []
        self.released: list[str] = []
        self.open: dict[str, Job] = {}
        self.arrays: dict[str, ArrayRecord] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.next_seq = 0
        self._accepted = 0
        self._ledger = ledger
        self._limits = limits
        self._view = view
        self._picker = picker
        self._dependents: dict[str, list[str]] = {}
        self._ended: deque[str] = deque()
        self.timers: list[tuple[int, int, str]] = []

    def install(self, picker: Picker) -> None:
        """Hand all queued jobs to ``picker``, from now on the one that is told about changes."""
        self._picker = picker
        for job in self.open.values():
            if job.state is QUEUED:
                picker.add(job)

    def load(self, snapshot: Snapshot) -> None:
        """Take over the jobs of ``snapshot``; :meth:`install` must follow."""
        self.now_us, self.next_seq = snapshot.now_us, snapshot.next_seq
        self.open = {record.spec.id: Job.revived(record) for record in snapshot.jobs}
        self.arrays, self.outcomes = dict(snapshot.arrays), dict(snapshot.outcomes)
        self._accepted = len(self.open) + len(self.arrays) + len(self.outcomes)
        for job in self.open.values():
            self._watch_deadline(job)
            if job.state is SCHEDULED:
                self.set_timer(job.not_before_us, job)
            if job.attempt is not None:
                insort(self._view.ends, (job.attempt.expected_end_us, job.seq, job))
            for target in dependencies(job.spec):
                if target not in self.outcomes:
                    self._dependents.setdefault(target, []).append(job.spec.id)

    def live_attempts(self) -> list[tuple[str, Attempt]]:
        """Return the live attempts with their jobs, oldest job first."""
        return [(name, job.attempt) for name, job in self.open.items() if job.attempt is not None]

    def is_known(self, name: str) -> bool:
        """Return whether there is or was a job or array of that name."""
        return name in self.open or name in self.outcomes or name in self.arrays

    def first_known(self, names: list[str]) -> str | None:
        """Return the first of ``names`` that is or was that of a job or array."""
        if len(names) > 1 and all(known.keys().isdisjoint(names) for known in (self.open, self.outcomes, self.arrays)):
            return None  # as nearly always, and an array has many names
        return next(filter(self.is_known, names), None)

    def tasks(self, array: str) -> list[Job]:
        """Return the jobs of ``array`` that are not terminal, in order."""
        record = self.arrays.get(array)
        names = (task_id(array, index) for index in range(record.size if record else 0))
        return [job for job in map(self.open.get, names) if job is not None]

    # Into and out of the queue.

    def admit_array(self, spec: JobSpec, size: int, max_running: int) -> None:
        """Take in ``size`` jobs like ``spec``."""
        self._accepted += 1
        self.arrays[spec.id] = ArrayRecord(size, size, 0, max_running)
        first = Job.of(spec, self.next_seq, self.now_us, spec.id)
        for index in range(size):
            self._admit(first.twin(task_id(spec.id, index), self.next_seq))

    def admit(self, spec: JobSpec) -> None:
        """Take in a submission that nothing speaks against."""
        self._admit(Job.of(spec, self.next_seq, self.now_us))

    def _admit(self, job: Job) -> None:
        spec = job.spec
        self.next_seq += 1
        self._accepted += 1
        self.open[spec.id] = job
        broken = ""
        for target in dependencies(spec):
            outcome = self.outcomes.get(target)
            if outcome is None:
                job.unmet += 1
                self._dependents.setdefault(target, []).append(spec.id)
            elif target in spec.after_ok and outcome.state is not COMPLETED:
                broken = target
        if broken:
            self.cancel_waiting(job, f"job {broken}, which it depends on, is {self.outcomes[broken].state}")
            self.propagate()
        else:
            self.enqueue(job)
            if spec.deadline_us is not None:
                self._watch_deadline(job)

    def enqueue(self, job: Job) -> None:
        """Put a job that has no attempt where it has to wait."""
        job.reason, job.detail = None, ""
        if job.unmet:
            move(job, BLOCKED)
            self._tell(job, PendReason.DEPENDENCY, f"{job.unmet} other jobs have to end first")
        elif job.not_before_us > self.now_us:
            move(job, SCHEDULED)
            self.set_timer(job.not_before_us, job)
            self._tell(job, PendReason.TIME, f"may start from {job.not_before_us} us on")
        else:
            if job.attempts == 0 and (job.state is BLOCKED or job.state is SCHEDULED):
                job.queued_us = self.now_us
            move(job, QUEUED)
            self._picker.add(job)

    def _release(self, job: Job) -> None:
        self.released.append(job.spec.id)
        self.enqueue(job)

    def update(self, job: Job, spec: JobSpec) -> None:
        """Give ``job``, which has left the queue, a new ``spec``; a live attempt keeps what it holds."""
        if spec.not_before_us != job.spec.not_before_us:
            job.not_before_us = spec.not_before_us
        job.respecify(spec)
        if job.attempt is None:
            self.enqueue(job)
            self._watch_deadline(job)

    def _watch_deadline(self, job: Job) -> None:
        if job.spec.deadline_us is not None and job.attempts == 0:
            self.set_timer(job.spec.deadline_us, job)

    def _tell(self, job: Job, reason: PendReason, detail: str) -> None:
        job.reason, job.detail = reason, detail
        self.decisions.append(Pend(job.spec.id, reason, detail))

    def leave_queue(self, *jobs: Job) -> None:
        """Take those of ``jobs``, oldest first, that are queued out of the queue.

        The youngest leaves first: what stands behind the others is taken out of a long queue at the least cost.
        """
        for job in reversed(jobs):
            if job.state is QUEUED:
                self._picker.remove(job)
                job.reserved_us = None

    def requeue(self, job: Job, attempt: Attempt, pause_us: int, reason: str) -> None:
        """Let the job wait again, for at least ``pause_us``, keeping its place by age."""
        job.not_before_us = self.now_us + pause_us
        self.decisions.append(Requeue(job.spec.id, attempt.number, job.not_before_us, reason))
        self.enqueue(job)

    def end_attempt(self, job: Job, attempt: Attempt) -> None:
        """Give back all that the attempt holds; the job is then to be settled or requeued."""
        view = self._view
        self._ledger.release(job.spec.id, job.shares, attempt.keys)
        if self._limits.has_caps:
            self._limits.ended(job)
        index = bisect_left(view.ends, (attempt.expected_end_us, job.seq))
        if view.ends[index][2] is not job:
            violated("a live attempt has no expected end", job.spec.id)
        del view.ends[index]
        view.releases += 1
        job.attempt, job.shares = None, ()
        self._picker.ended(job, attempt, self.now_us)

    def interrupted(self, job: Job, attempt: Attempt, reason: str) -> None:
        """Decide about a job whose attempt was cut short.

        An attempt that was not reported as running has done nothing yet, so it costs nothing.
        """
        move(job, JobState.INTERRUPTED)
        if job.cancel_requested:
            self.settle(job, JobState.CANCELLED)
        elif attempt.preempted_for:
            self.requeue(job, attempt, 0, f"preempted for job {attempt.preempted_for}")
        elif attempt.state is AttemptState.ADMITTED:
            self.requeue(job, attempt, 0, f"{reason} before it ran")
        elif job.spec.idempotency not in REPEATABLE:
            self.settle(job, JobState.FAILED)
        elif job.interruptions >= job.spec.retry.max_interruptions:
            self.settle(job, JobState.DEAD_LETTER)
        else:
            job.interruptions += 1
            self.requeue(job, attempt, 0, reason)

    def failed(self, job: Job, attempt: Attempt, event: JobStateChanged) -> None:
        """Decide about a job whose attempt failed or timed out: again after a pause, or never."""
        policy = job.spec.retry
        failure = Failure.TIMEOUT if event.new is JobState.TIMED_OUT else event.failure
        job.failures += 1
        if job.cancel_requested or failure not in policy.retry_on or policy.max_attempts == 1:
            self.settle(job, event.new, event.exit_code)
        elif job.failures < policy.max_attempts:
            pause_us = delay_us(policy, job.spec.id, job.failures)
            self.requeue(job, attempt, pause_us, f"failure {job.failures} of {policy.max_attempts}: {failure}")
        else:
            self.settle(job, JobState.DEAD_LETTER, event.exit_code)

    def lose_shares(self, job: Job, attempt: Attempt, worker: str) -> None:
        """Take what ``attempt`` holds on ``worker``, which is gone.

        Tasks on other workers have to be stopped before what they hold is free.
        """
        lost = [share for share in job.shares if share[0] == worker]
        rest = tuple(share for share in attempt.allocation if share[0] != worker)
        reason = f"worker {worker} is lost"
        if lost and rest:
            self._ledger.release(job.spec.id, lost, ())
            job.attempt = replace(attempt, allocation=rest)
            job.shares = job.attempt.shares
            self.stop(job, job.attempt, reason)
        elif lost:
            self.end_attempt(job, attempt)
            self.interrupted(job, attempt, reason)

    def stop(self, job: Job, attempt: Attempt, reason: str) -> None:
        """Ask once that ``attempt`` be stopped; it holds what it has until its end is reported."""
        if not attempt.stopping:
            job.attempt = replace(attempt, stopping=True)
            self.decisions.append(Cancel(job.spec.id, attempt.number, reason))

    def cancel_waiting(self, job: Job, reason: str) -> None:
        """Cancel a job that has no attempt and has left the queue; :meth:`propagate` must follow."""
        self.decisions.append(Cancel(job.spec.id, 0, reason))
        self.settle(job, JobState.CANCELLED)

    def settle(self, job: Job, state: JobState, exit_code: int | None = None) -> None:
        """End ``job`` for good; :meth:`propagate` must follow."""
        name = job.spec.id
        if state not in TERMINAL or name in self.outcomes:
            violated("a job ends twice", name, state)
        move(job, state)
        del self.open[name]
        self.outcomes[name] = Outcome(state, exit_code)
        if name in self._dependents:
            self._ended.append(name)
        if job.array:
            array = self.arrays[job.array]
            failed = array.failed + (state is not COMPLETED)
            self.arrays[job.array] = replace(array, open=array.open - 1, failed=failed)
            if array.open == 1:
                del self.arrays[job.array]
                self.outcomes[job.array] = Outcome(JobState.FAILED if failed else COMPLETED)
                if job.array in self._dependents:
                    self._ended.append(job.array)

    def propagate(self) -> None:
        """Release or cancel what depended on the jobs that ended, and so on."""
        while self._ended:
            target = self._ended.popleft()
            completed = self.outcomes[target].state is COMPLETED
            for name in self._dependents.pop(target):
                job = self.open.get(name)
                if job is None:
                    continue
                job.unmet -= 1
                if target in job.spec.after_ok and not completed:
                    state = self.outcomes[target].state
                    self.cancel_waiting(job, f"job {target}, which it depends on, is {state}")
                elif not job.unmet:
                    self._release(job)

    # Time.

    def set_timer(self, due_us: int, job: Job) -> None:
        """Be woken at ``due_us``, when ``job`` may start or expires."""
        heappush(self.timers, (due_us, job.seq, job.spec.id))

    def next_timer(self) -> int | None:
        """Return when the first timer is due."""
        timers = self.timers
        while timers and not self._is_valid(timers[0]):
            heappop(timers)
        return timers[0][0] if timers else None

    def _is_valid(self, timer: tuple[int, int, str]) -> bool:
        job = self.open.get(timer[2])
        if job is None:
            return False
        if job.state is SCHEDULED and job.not_before_us == timer[0]:
            return True
        return job.spec.deadline_us == timer[0] and job.attempts == 0

    def fire_timers(self) -> None:
        """Queue the jobs whose time has come and expire those that are too late."""
        timers = self.timers
        while timers and timers[0][0] <= self.now_us:
            timer = heappop(timers)
            if not self._is_valid(timer):
                continue
            job = self.open[timer[2]]
            if job.attempts == 0 and job.spec.deadline_us is not None and job.spec.deadline_us <= self.now_us:
                self.leave_queue(job)
                late = (self.now_us - job.submitted_us) / SECOND_US
                self.decisions.append(Expire(job.spec.id, f"not started within {late:g} s"))
                self.settle(job, JobState.EXPIRED)
                self.propagate()
            else:
                self._release(job)

    # Invariants.

    def check(self) -> None:
        """Check in constant time that no job is lost."""
        present = len(self.open) + len(self.outcomes) + len(self.arrays)
        if self._accepted != present:
            violated("a job is lost", self._accepted, present)

    def audit(self) -> None:
        """Check each job against everything that is kept about it elsewhere."""
        ends = [(job.attempt.expected_end_us, job.seq, name) for name, job in self.open.items() if job.attempt]
        kept = [(end_us, seq, job.spec.id) for end_us, seq, job in self._view.ends]
        invariant(sorted(ends) == kept, "expected ends are not those of live attempts", ends, kept)
        for job in self.open.values():
            self._audit_job(job)
        for name, array in self.arrays.items():
            alive = sum(1 for job in self.open.values() if job.array == name)
            invariant(alive == array.open > 0, "an array is miscounted", name)
        invariant(not self._ended, "ends of jobs were not passed on", self._ended)

    def _audit_job(self, job: Job) -> None:
        name, state, attempt = job.spec.id, job.state, job.attempt
        shares = attempt.shares if attempt else ()
        invariant(job.shares == shares, "shares are not those of the allocation", name)
        invariant((attempt is not None) == (state is RUNNING), "running is not having an attempt", name)
        invariant(attempt is None or attempt.state in LIVE_ATTEMPT, "an attempt that ended is kept", name)
        targets = [target for target in dependencies(job.spec) if target not in self.outcomes]
        invariant(job.unmet == len(targets), "dependencies are miscounted", name, targets)
        invariant(all(name in self._dependents[target] for target in targets), "a dependent is lost", name)
        invariant((state is BLOCKED) == bool(targets), "blocked is not having open dependencies", name)
        invariant(job.reserved_us is None or state is QUEUED, "a job not queued has a reservation", name)
        if state is SCHEDULED:
            due = self.next_timer()
            invariant(self.now_us < job.not_before_us, "a job is late into the queue", name)
            invariant(due is not None and due <= job.not_before_us, "a scheduled job is forgotten", name)
        if state is QUEUED:
            invariant(self._picker.place(job) >= 1, "a queued job has no place", name)


def dependencies(spec: JobSpec) -> tuple[str, ...]:
    """Return what ``spec`` depends on, each once."""
    if not spec.after_ok and not spec.after_any:
        return ()
    return tuple(dict.fromkeys((*spec.after_ok, *spec.after_any)))
