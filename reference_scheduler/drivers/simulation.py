"""Virtual time: runs a workload through a core as fast as it goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from heapq import heappop, heappush

from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Cancel, Decision, Dispatch, Expire, Pend, Preempt, Reject
from reference_scheduler.core.events import (
    ConfigLoaded,
    Event,
    JobStateChanged,
    JobSubmitted,
    JobUpdated,
    QueueConfigured,
    Tick,
    WorkerUpdated,
)
from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.model import (
    COMPLETED,
    MAX_TIME_US,
    RUNNING,
    Config,
    JobState,
    PendReason,
    QueueBounds,
    task_of,
)
from reference_scheduler.drivers.schedule import JobRun, Schedule
from reference_scheduler.workloads.model import TimedJob, Workload, WorkloadError, from_zero

UNBOUNDED = 1 << 40
NEVER_US = 1 << 63
MAX_VAIN_TICKS, CLOSE_US = 1000, 1000
"""After so many ticks in a row that led to nothing, one that is due so soon waits for something else to happen."""
Observer = Callable[[Event, tuple[Decision, ...]], None]
Run = tuple[int, int]
"""Index of a job in the workload, number of its attempt."""


class Tie(StrEnum):
    """What happens first among events of one instant; it changes schedules, so it has a name.

    ``event``: all ends that fall exactly on their estimate, without a pass; each submission, a pass after
    each; each early end, a pass after each; at last one pass. ``batch``: all ends, all submissions, one pass.
    Updates, which only recorded workloads have, follow the submissions. While it is paused there is no pass.
    """

    EVENT = "event"
    BATCH = "batch"


def simulation_config(picker: str = "fair", allocator: str = "sequential") -> Config:
    """Return a configuration without bounds on the queue, for machines that a workload brings."""
    bounds = QueueBounds(UNBOUNDED, UNBOUNDED, UNBOUNDED, UNBOUNDED)
    return Config(resources=None, queue=bounds, picker=picker, allocator=allocator)


class SimulationDriver:
    """Delivers submissions and ends to ``core`` in the order that ``tie`` says, and plays the executors.

    ``observer`` is called with each event and the decisions it gave; their times are those of the workload, or, if
    that begins before time 0, from its first submission on. Jobs run for the time their workload says and complete;
    what is preempted or cancelled stops at once.

    Raises:
        WorkloadError: two jobs have the same id, or times are too far apart to be counted.
    """

    def __init__(
        self, core: SchedulerCore, workload: Workload, tie: Tie = Tie.EVENT, observer: Observer | None = None
    ) -> None:
        self._core = core
        workload, self._later_us = from_zero(workload)
        self._workload = workload
        self._jobs = workload.jobs
        self._batch = tie is Tie.BATCH
        self._observer = observer
        self._order: dict[str, int] = {}
        for index, timed in enumerate(workload.jobs):
            if self._order.setdefault(timed.job.id, index) != index:
                raise WorkloadError(f"two jobs have the id {timed.job.id!r}; ids must be unique")
        self._ends: list[tuple[int, int, int]] = []
        self._attempt = [0] * len(workload.jobs)
        self._first_start: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._refused: list[str] = []
        self._replies: deque[JobStateChanged] = deque()
        self._updates = deque(workload.updates)
        self._pauses = deque(workload.pauses)
        self._now_us = 0
        self._vain_ticks = 0

    def run(self, config: Config) -> Schedule:
        """Run to the end and return the schedule.

        Raises:
            ValueError: ``config`` names a picker or allocator that the core does not have.
            WorkloadError: the workload makes a job larger than the machine, or has one end later than can be counted.
            InvariantViolation: the core is defective, or jobs are left that nothing will ever start.
        """
        jobs, count, ends = self._jobs, len(self._jobs), self._ends
        self._deliver(ConfigLoaded(at=self._now_us, config=config))
        for worker, capacity in self._workload.workers:
            self._deliver(WorkerUpdated(at=self._now_us, worker=worker, capacity=capacity))
        submitted = 0
        while True:
            next_us = jobs[submitted].submit_us if submitted < count else NEVER_US
            if ends and ends[0][0] < next_us:
                next_us = ends[0][0]
            if self._updates and self._updates[0].at < next_us:
                next_us = self._updates[0].at
            due_us = self._core.next_due()
            if self._pauses:
                due_us = self._outside_pauses(due_us)
            if (
                due_us is not None
                and due_us < next_us
                and not (
                    self._vain_ticks >= MAX_VAIN_TICKS and due_us <= self._now_us + CLOSE_US and next_us != NEVER_US
                )
            ):
                next_us = due_us
            if next_us == NEVER_US:
                break
            self._now_us = now_us = max(self._now_us, next_us)
            arrived = submitted
            while arrived < count and jobs[arrived].submit_us <= now_us:
                arrived += 1
            self._instant(jobs[submitted:arrived])
            submitted = arrived
        self._check_left()
        return self._schedule()

    def _check_left(self) -> None:
        """Tell jobs that the workload itself keeps from starting from a defect."""
        left = list(self._core.open_jobs())
        for job in left:
            if job.reason is PendReason.TOO_LARGE:  # refused when it came, if it had not been updated since
                name = job.spec.id
                raise WorkloadError(f"an update makes job {name!r} larger than the machine: {self._core.why(name)}")
        invariant(not left, "jobs are left that nothing will start", len(left))

    def _outside_pauses(self, due_us: int | None) -> int | None:
        """Return when the next pass is due if it is due at ``due_us``: none is during a pause, and one when it ends."""
        while self._pauses and self._pauses[0][1] <= self._now_us:
            self._pauses.popleft()
        if not self._pauses or (due_us is not None and due_us < self._pauses[0][0]):
            return due_us
        return self._pauses[0][1]

    def _is_paused(self) -> bool:
        return self._pauses[0][0] <= self._now_us < self._pauses[0][1]

    def _instant(self, arriving: tuple[TimedJob, ...]) -> None:
        """Deliver what happens now; the last event carries the pass that ends the instant."""
        first, last = self._take_ends() if self._ends and self._ends[0][0] <= self._now_us else ((), ())
        if self._workload.arrays:
            arriving = tuple(timed for timed in arriving if not self._is_within_array(timed))
        updates = self._take_updates() if self._updates else ()
        left = len(first) + len(arriving) + len(updates) + len(last)
        passes = not (self._pauses and self._is_paused())
        if not left:
            self._deliver(Tick(at=self._now_us, run_pass=passes))
        for index, attempt in first:
            left -= 1
            self._complete(index, attempt, run_pass=passes and not left)
        for timed in arriving:
            left -= 1
            self._submit(timed, run_pass=passes and not (self._batch and left))
        for update in updates:
            left -= 1
            self._update(update, run_pass=passes and not (self._batch and left))
        for index, attempt in last:
            self._complete(index, attempt, run_pass=passes)

    def _is_within_array(self, timed: TimedJob) -> bool:
        """Return whether a job is submitted with the first one of its array."""
        task = task_of(timed.job.id)
        return task is not None and task[0] in self._workload.arrays and task[1] > 0

    def _submit(self, timed: TimedJob, run_pass: bool) -> None:
        task = task_of(timed.job.id) if self._workload.arrays else None
        array = self._workload.arrays.get(task[0]) if task else None
        if array is None:
            event = JobSubmitted(at=self._now_us, run_pass=run_pass, job=timed.job)
        else:
            event = JobSubmitted(
                at=self._now_us,
                run_pass=run_pass,
                job=array.job,
                array_size=array.size,
                array_running=array.max_running,
            )
        self._deliver(event)

    def _take_updates(self) -> Sequence[JobUpdated | QueueConfigured]:
        """Return what is to change now."""
        found = []
        while self._updates and self._updates[0].at <= self._now_us:
            found.append(self._updates.popleft())
        return found

    def _update(self, update: JobUpdated | QueueConfigured, run_pass: bool) -> None:
        """Deliver ``update``, or a tick in its place if the job has ended earlier than where it was recorded."""
        if isinstance(update, JobUpdated) and not self._core.open_jobs_of(update.job.id):
            self._deliver(Tick(at=self._now_us, run_pass=run_pass))
        else:
            self._deliver(replace(update, at=self._now_us, run_pass=run_pass))

    def _take_ends(self) -> tuple[Sequence[Run], Sequence[Run]]:
        """Return what ends now, before and after what is submitted now; each in order of submission."""
        first: list[Run] = []
        last: list[Run] = []
        ends = self._ends
        while ends and ends[0][0] <= self._now_us:
            _, index, attempt = heappop(ends)
            if attempt == self._attempt[index]:
                timed = self._jobs[index]
                (first if timed.job.estimate_us == timed.run_us else last).append((index, attempt))
        return (first + last, []) if self._batch else (first, last)

    def _complete(self, index: int, attempt: int, run_pass: bool) -> None:
        self._end[index] = self._now_us
        self._deliver(
            JobStateChanged(
                at=self._now_us,
                run_pass=run_pass,
                job=self._jobs[index].job.id,
                attempt=attempt,
                old=RUNNING,
                new=COMPLETED,
            )
        )

    def _deliver(self, event: Event) -> None:
        """Give ``event`` to the core, carry out what it decides, and report what follows at once."""
        decisions = self._core.handle(event)
        self._vain_ticks = 0 if decisions or type(event) is not Tick else self._vain_ticks + 1
        if self._observer is not None:
            self._observer(event, decisions)
        for decision in decisions:
            if isinstance(decision, Dispatch):
                index = self._order[decision.job]
                self._attempt[index] = decision.attempt
                self._first_start.setdefault(index, self._now_us)
                end_us = self._now_us + self._jobs[index].run_us
                if end_us > MAX_TIME_US:
                    raise WorkloadError(
                        f"job {decision.job!r} ends later than the {MAX_TIME_US} µs that can be counted"
                    )
                heappush(self._ends, (end_us, index, decision.attempt))
            elif not isinstance(decision, Pend):
                self._carry_out(decision)
        while self._replies:
            self._deliver(self._replies.popleft())

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Preempt):
            for victim in decision.victims:
                self._stop(victim.job, victim.attempt, JobState.INTERRUPTED)
        elif isinstance(decision, Cancel) and decision.attempt:
            self._stop(decision.job, decision.attempt, JobState.CANCELLED)
        elif isinstance(decision, Reject | Expire | Cancel):
            self._refused.append(decision.job)

    def _stop(self, job: str, attempt: int, state: JobState) -> None:
        self._attempt[self._order[job]] = 0  # its end, already in the heap, must not be reported
        self._replies.append(JobStateChanged(at=self._now_us, job=job, attempt=attempt, old=RUNNING, new=state))

    def _schedule(self) -> Schedule:
        runs = []
        for index, end_us in sorted(self._end.items()):
            timed = self._jobs[index]
            start_us, spec = self._first_start[index], timed.job
            width = spec.effective_request.process_slots * spec.tasks
            runs.append(JobRun(spec.id, timed.submit_us, start_us, end_us, width, spec.priority, spec.workspace))
        if self._later_us:
            runs = [_earlier(run, self._later_us) for run in runs]
        processors = sum(resources.process_slots for _, resources in self._workload.workers)
        return Schedule(tuple(runs), processors, self._workload.skipped, tuple(self._refused))


def _earlier(run: JobRun, by_us: int) -> JobRun:
    return replace(run, submit_us=run.submit_us - by_us, start_us=run.start_us - by_us, end_us=run.end_us - by_us)


def simulate(workload: Workload, config: Config, tie: Tie = Tie.EVENT, observer: Observer | None = None) -> Schedule:
    """Run ``workload`` through a new core with ``config``; see :class:`SimulationDriver`."""
    return SimulationDriver(SchedulerCore(), workload, tie, observer).run(config)
