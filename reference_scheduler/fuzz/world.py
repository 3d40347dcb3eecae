"""Callers, executors and clocks that do what real ones do, and what they should not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

import msgspec
from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.decisions import Cancel, Decision, Dispatch, Preempt
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
from reference_scheduler.core.model import SECOND_US, Config, Failure, Job, JobSpec, JobState, QueueBounds
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.fuzz.swarm import Swarm, draw_capacity, draw_config, draw_job, stream

ENOUGH_OPEN = 40
_HOUR_US = 3600 * SECOND_US
_ENDS = (JobState.FAILED, JobState.TIMED_OUT, JobState.INTERRUPTED, JobState.CANCELLED)


class Restart(msgspec.Struct, frozen=True, tag=True):
    """Not an event: the core is restored from its snapshot before the next one."""


Item = Event | Restart
Happening = Callable[[SchedulerCore], list[Item]]


class World:
    """Chooses what happens next; time is its own, and what the events say of it may be wrong."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm
        self._pick = stream(swarm.seed, "events")
        self._jobs = stream(swarm.seed, "jobs")
        self._machine = stream(swarm.seed, "machine")
        self._delivery = stream(swarm.seed, "delivery")
        self._now_us = 0
        self._offset_us = 0
        self._sent = 0
        self._names = 0
        self._generations = 0
        self._messages: list[tuple[int, int, JobStateChanged]] = []
        self._coming: list[Item] = self._beginning()
        self._happenings = self._possible()

    def _beginning(self) -> list[Item]:
        joining = [
            WorkerUpdated(at=0, worker=name, capacity=draw_capacity(self._machine)) for name in self._swarm.workers
        ]
        return [*joining[::-1], ConfigLoaded(at=0, config=self._swarm.config)]

    def _possible(self) -> list[Happening]:
        """Return what may happen in this run, more often the more often it is named."""
        chances: dict[str, list[Happening]] = {
            "array": [self._array],
            "budget": [self._budget, self._worker],
            "burst": [self._burst],
            "cancel": [self._cancel],
            "clock": [self._clock],
            "dependency": [self._dependent, self._dependent],
            "leave": [self._leave, self._worker],
            "pause": [self._queue],
            "picker": [self._new_picker],
            "restart": [self._restart],
            "stale": [self._stale],
            "storm": [self._storm],
            "update": [self._update],
        }
        found: list[Happening] = [*[self._submit] * 6, self._usage]
        for kind, happenings in chances.items():
            if self._swarm.has(kind):
                found += happenings
        return found

    def next(self, core: SchedulerCore) -> Item:
        """Return what happens next to ``core``."""
        while not self._coming:
            self._coming = self._more(core)[::-1]
        item = self._coming.pop()
        if isinstance(item, Restart):
            return item
        quiet = self._swarm.has("quiet") and self._pick.random() < 0.25
        return replace(item, at=item.at + self._offset_us, run_pass=not quiet)

    def _more(self, core: SchedulerCore) -> list[Item]:
        roll = self._pick.random()
        if self._messages and roll < 0.5:
            at_us, _, message = heappop(self._messages)
            self._now_us = max(self._now_us, at_us)
            return [replace(message, at=self._now_us)]
        if roll < 0.65:
            return self._tick(core)
        self._now_us += self._pick.choice((0, 0, 1, SECOND_US, 7 * SECOND_US))
        return self._pick.choice(self._happenings)(core)

    def _tick(self, core: SchedulerCore) -> list[Item]:
        due = core.next_due()
        if due is None:
            return []
        late_us = self._pick.randint(0, 90) * SECOND_US if self._swarm.has("slow_tick") else 0
        return [Tick(at=max(due, core.now_us) - self._offset_us + late_us)]

    # What executors do.

    def react(self, decisions: tuple[Decision, ...]) -> None:
        """Let the executors carry out ``decisions``, well or badly."""
        for decision in decisions:
            if isinstance(decision, Dispatch):
                self._run(decision)
            elif isinstance(decision, Cancel) and decision.attempt:
                self._report(decision.job, decision.attempt, JobState.CANCELLED, SECOND_US)
            elif isinstance(decision, Preempt):
                for victim in decision.victims:
                    self._report(victim.job, victim.attempt, JobState.INTERRUPTED, SECOND_US)

    def _run(self, decision: Dispatch) -> None:
        draw = self._delivery
        self._report(decision.job, decision.attempt, JobState.RUNNING, draw.choice((0, 1, SECOND_US)))
        end, duration_us = JobState.COMPLETED, draw.choice((0, 1, 2, 5, 30, 60, 90)) * SECOND_US
        if self._swarm.has("fail") and draw.random() < 0.4:
            end = draw.choice(_ENDS)
        self._report(decision.job, decision.attempt, end, duration_us)

    def _report(self, job: str, attempt: int, new: JobState, after_us: int) -> None:
        draw, has = self._delivery, self._swarm.has
        if has("lost") and draw.random() < 0.1:
            return
        if has("late") and draw.random() < 0.2:
            after_us += draw.randint(1, 600) * SECOND_US
        old = JobState.QUEUED if new is JobState.RUNNING else JobState.RUNNING
        failure = draw.choice(list(Failure))
        message = JobStateChanged(at=0, job=job, attempt=attempt, old=old, new=new, exit_code=1, failure=failure)
        for _ in range(2 if has("duplicate") and draw.random() < 0.3 else 1):
            self._sent += 1
            heappush(self._messages, (self._now_us + after_us, self._sent, message))
            after_us += draw.randint(0, 30) * SECOND_US

    # What callers do.

    def _spec(self, core: SchedulerCore) -> JobSpec:
        self._names += 1
        return draw_job(self._jobs, self._swarm, f"j{self._names}", core.now_us)

    def _submit(self, core: SchedulerCore) -> list[Item]:
        if len(core.open_jobs()) >= ENOUGH_OPEN and self._pick.random() < 0.9:
            return []
        return [JobSubmitted(at=self._now_us, job=self._spec(core))]

    def _burst(self, core: SchedulerCore) -> list[Item]:
        return [event for _ in range(self._pick.randint(2, 8)) for event in self._submit(core)]

    def _array(self, core: SchedulerCore) -> list[Item]:
        size, most = self._pick.randint(1, 5), self._pick.randint(0, 3)
        return [JobSubmitted(at=self._now_us, job=self._spec(core), array_size=size, array_running=most)]

    def _dependent(self, core: SchedulerCore) -> list[Item]:
        targets = [job.array or job.spec.id for job in self._some(core, 3)]
        spec = self._spec(core)
        cut = self._pick.randint(0, len(targets))
        ok, anyhow = tuple(targets[:cut]), tuple(targets[cut:])
        return [JobSubmitted(at=self._now_us, job=replace(spec, after_ok=ok, after_any=anyhow))]

    def _some(self, core: SchedulerCore, most: int) -> list[Job]:
        jobs = core.open_jobs()
        return self._pick.sample(jobs, self._pick.randint(min(1, len(jobs)), min(most, len(jobs))))

    def _cancel(self, core: SchedulerCore) -> list[Item]:
        return [
            CancelRequested(at=self._now_us, job=self._pick.choice((job.spec.id, job.array or "j0")), reason="fuzz")
            for job in self._some(core, 1)
        ]

    def _storm(self, core: SchedulerCore) -> list[Item]:
        if self._pick.random() < 0.7:
            return []
        names = [job.spec.id for job in self._some(core, ENOUGH_OPEN)]
        return [CancelRequested(at=self._now_us, job=name, reason="storm") for name in names]

    def _update(self, core: SchedulerCore) -> list[Item]:
        events: list[Item] = []
        for job in self._some(core, 1):
            new, old = draw_job(self._jobs, self._swarm, job.spec.id, core.now_us), job.spec
            new = replace(new, after_ok=old.after_ok, after_any=old.after_any)
            events.append(JobUpdated(at=self._now_us, job=new, changed=JobSpec.__struct_fields__))
        return events

    # What the machine and its operators do.

    def _usage(self, core: SchedulerCore) -> list[Item]:
        live = [job for job in self._some(core, 2) if job.attempt is not None]
        used = draw_capacity(self._machine)
        return [UsageReported(at=self._now_us, job=job.spec.id, attempt=job.attempts, used=used) for job in live]

    def _stale(self, core: SchedulerCore) -> list[Item]:
        new = self._pick.choice((JobState.COMPLETED, *_ENDS))
        return [
            JobStateChanged(
                at=self._now_us,
                job=self._pick.choice((job.spec.id, "nobody")),
                attempt=job.attempts + self._pick.choice((-1, 1)),
                old=JobState.RUNNING,
                new=new,
            )
            for job in self._some(core, 1)
        ]

    def _worker(self, core: SchedulerCore) -> list[Item]:
        name, accepting = self._machine.choice(self._swarm.workers), self._machine.random() < 0.8
        capacity = draw_capacity(self._machine)
        return [WorkerUpdated(at=self._now_us, worker=name, capacity=capacity, accepting=accepting)]

    def _leave(self, core: SchedulerCore) -> list[Item]:
        return [WorkerLost(at=self._now_us, worker=self._machine.choice((*self._swarm.workers, "local")))]

    def _budget(self, core: SchedulerCore) -> list[Item]:
        if self._machine.random() < 0.5:
            config = draw_config(self._machine, self._swarm.kinds, core.config.picker)
            return [ConfigLoaded(at=self._now_us, config=replace(config, allocator=core.config.allocator))]
        worker = self._machine.choice((*self._swarm.workers, "local"))
        return [ResourcesChanged(at=self._now_us, worker=worker, capacity=draw_capacity(self._machine))]

    def _new_picker(self, core: SchedulerCore) -> list[Item]:
        picker = self._machine.choice(list(PICKERS))
        return [ConfigLoaded(at=self._now_us, config=draw_config(self._machine, self._swarm.kinds, picker))]

    def _queue(self, core: SchedulerCore) -> list[Item]:
        paused, most = self._machine.random() < 0.3, self._machine.choice((None, 1, 3))
        name = self._machine.choice(("q0", "q1"))
        return [QueueConfigured(at=self._now_us, queue=name, paused=paused, max_running=most)]

    def _restart(self, core: SchedulerCore) -> list[Item]:
        """Restart; what the executors of before report may still arrive."""
        self._generations += 1
        if self._delivery.random() < 0.5:
            self._messages.clear()
        if self._delivery.random() < 0.3:
            return [Restart()]
        return [Restart(), GenerationStarted(at=self._now_us, generation=f"g{self._generations}")]

    def _clock(self, core: SchedulerCore) -> list[Item]:
        self._offset_us = self._pick.choice((0, 1, -1, _HOUR_US, -_HOUR_US))
        return [Tick(at=self._now_us)]


def heal(core: SchedulerCore, workers: tuple[str, ...]) -> Iterator[Event]:
    """Yield events that undo all faults, then let what runs complete, until nothing is left or all is stuck.

    The oldest attempt completes first; when nothing runs, time goes on to when the core is due.
    """
    at_us = core.now_us
    roomy = Resources(99, 9999, 64, 99, 99)
    bounds = QueueBounds(1000, 1000, 1000, 100)
    config = Config(resources=roomy, queue=bounds, picker=core.config.picker, allocator=core.config.allocator)
    yield ConfigLoaded(at=at_us, config=config)
    for worker in workers:
        yield WorkerUpdated(at=at_us, worker=worker, capacity=roomy)
    for queue in ("q0", "q1"):
        yield QueueConfigured(at=at_us, queue=queue)
    for _ in range(20 * (len(core.open_jobs()) + 10)):
        live = next((job for job in core.open_jobs() if job.attempt is not None), None)
        due = core.next_due()
        if live is not None:
            yield JobStateChanged(
                at=at_us,
                job=live.spec.id,
                attempt=live.attempts,
                old=JobState.RUNNING,
                new=JobState.COMPLETED,
            )
        elif due is not None:
            at_us = max(at_us, due)
            yield Tick(at=at_us)
        else:
            return
