"""Virtual time: runs a workload through a core as fast as it goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from heapq import heappop, heappush

from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Cancel, Decision, Dispatch, Expire, Preempt, Reject
from reference_scheduler.core.events import (
    ConfigLoaded,
    Event,
    JobStateChanged,
    JobSubmitted,
    Tick,
    WorkerUpdated,
)
from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.model import Config, JobState, QueueBounds
from reference_scheduler.drivers.schedule import JobRun, Schedule
from reference_scheduler.workloads.model import TimedJob, Workload, WorkloadError

UNBOUNDED = 1 << 40
Observer = Callable[[Event, tuple[Decision, ...]], None]


class Tie(StrEnum):
    """What happens first among events of one instant; it changes schedules, so it has a name.

    ``event``: all ends that fall exactly on their estimate, without a pass; each submission, a pass after
    each; each early end, a pass after each; at last one pass. ``batch``: all ends, all submissions, one pass.
    """

    EVENT = "event"
    BATCH = "batch"


def simulation_config(picker: str = "fair", allocator: str = "sequential") -> Config:
    """Return a configuration without bounds on the queue, for machines that a workload brings."""
    bounds = QueueBounds(UNBOUNDED, UNBOUNDED, UNBOUNDED, UNBOUNDED)
    return Config(resources=None, queue=bounds, picker=picker, allocator=allocator)


class SimulationDriver:
    """Delivers submissions and ends to ``core`` in the order that ``tie`` says, and plays the executors.

    ``observer`` is called with each event and the decisions it gave. Jobs run for the time their workload
    says and complete; what is preempted or cancelled stops at once.

    Raises:
        WorkloadError: two jobs have the same id.
    """

    def __init__(
        self, core: SchedulerCore, workload: Workload, tie: Tie = Tie.EVENT, observer: Observer | None = None
    ) -> None:
        self._core = core
        self._workload = workload
        self._tie = tie
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
        self._now_us = 0

    def run(self, config: Config) -> Schedule:
        """Run to the end and return the schedule.

        Raises:
            ValueError: ``config`` names a picker or allocator that the core does not have.
            InvariantViolation: the core is defective, or jobs are left that nothing will ever start.
        """
        jobs = self._workload.jobs
        self._now_us = min(jobs[0].submit_us, 0) if jobs else 0
        self._deliver(ConfigLoaded(at=self._now_us, config=config))
        for worker, capacity in self._workload.workers:
            self._deliver(WorkerUpdated(at=self._now_us, worker=worker, capacity=capacity))
        submitted = 0
        while True:
            due = self._core.next_due()
            times = [time for time in (due, self._ends[0][0] if self._ends else None) if time is not None]
            if submitted < len(jobs):
                times.append(jobs[submitted].submit_us)
            if not times:
                break
            self._now_us = max(self._now_us, min(times))
            arrived = submitted
            while arrived < len(jobs) and jobs[arrived].submit_us <= self._now_us:
                arrived += 1
            self._instant(jobs[submitted:arrived])
            submitted = arrived
        invariant(not self._core.open_jobs(), "jobs are left that nothing will start", len(self._core.open_jobs()))
        return self._schedule()

    def _instant(self, arriving: tuple[TimedJob, ...]) -> None:
        """Deliver what happens now; the last event carries the pass that ends the instant."""
        batch = self._tie is Tie.BATCH
        exact, early = self._take_ends()
        events: list[Event] = [self._completed(index, attempt, run_pass=False) for index, attempt in exact]
        if batch:
            events += [self._completed(index, attempt, run_pass=False) for index, attempt in early]
        events += [JobSubmitted(at=self._now_us, run_pass=not batch, job=timed.job) for timed in arriving]
        if not batch:
            events += [self._completed(index, attempt, run_pass=True) for index, attempt in early]
        for event in events[:-1]:
            self._deliver(event)
        self._deliver(replace(events[-1], run_pass=True) if events else Tick(at=self._now_us))

    def _take_ends(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the attempts that end now: on their estimate, and early. Both in order of submission."""
        exact: list[tuple[int, int]] = []
        early: list[tuple[int, int]] = []
        while self._ends and self._ends[0][0] <= self._now_us:
            _, index, attempt = heappop(self._ends)
            if attempt == self._attempt[index]:
                timed = self._workload.jobs[index]
                (exact if timed.job.estimate_us == timed.run_us else early).append((index, attempt))
        return exact, early

    def _completed(self, index: int, attempt: int, run_pass: bool) -> JobStateChanged:
        self._end[index] = self._now_us
        return self._changed(self._workload.jobs[index].job.id, attempt, JobState.COMPLETED, run_pass)

    def _changed(self, job: str, attempt: int, state: JobState, run_pass: bool = True) -> JobStateChanged:
        return JobStateChanged(
            at=self._now_us, run_pass=run_pass, job=job, attempt=attempt, old=JobState.RUNNING, new=state
        )

    def _deliver(self, event: Event) -> None:
        """Give ``event`` to the core, carry out what it decides, and report what follows at once."""
        self._handle(event)
        while self._replies:
            self._handle(self._replies.popleft())

    def _handle(self, event: Event) -> None:
        decisions = self._core.handle(event)
        if self._observer is not None:
            self._observer(event, decisions)
        for decision in decisions:
            if isinstance(decision, Dispatch):
                index = self._order[decision.job]
                self._attempt[index] = decision.attempt
                self._first_start.setdefault(index, self._now_us)
                heappush(self._ends, (self._now_us + self._workload.jobs[index].run_us, index, decision.attempt))
            elif isinstance(decision, Preempt):
                for victim in decision.victims:
                    self._stop(victim.job, victim.attempt, JobState.INTERRUPTED)
            elif isinstance(decision, Cancel) and decision.attempt:
                self._stop(decision.job, decision.attempt, JobState.CANCELLED)
            elif isinstance(decision, Reject | Expire | Cancel):
                self._refused.append(decision.job)

    def _stop(self, job: str, attempt: int, state: JobState) -> None:
        self._attempt[self._order[job]] = 0  # its end, already in the heap, must not be reported
        self._replies.append(self._changed(job, attempt, state))

    def _schedule(self) -> Schedule:
        runs = []
        for index, end_us in sorted(self._end.items()):
            timed = self._workload.jobs[index]
            start_us, spec = self._first_start[index], timed.job
            width = spec.effective_request.process_slots * spec.tasks
            runs.append(JobRun(spec.id, timed.submit_us, start_us, end_us, width, spec.priority, spec.workspace))
        processors = sum(resources.process_slots for _, resources in self._workload.workers)
        return Schedule(tuple(runs), processors, self._workload.skipped, tuple(self._refused))


def simulate(workload: Workload, config: Config, tie: Tie = Tie.EVENT, observer: Observer | None = None) -> Schedule:
    """Run ``workload`` through a new core with ``config``; see :class:`SimulationDriver`."""
    return SimulationDriver(SchedulerCore(), workload, tie, observer).run(config)
