"""What ran where and when, gathered from the stream of events and decisions: what plots are drawn from."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

import msgspec

from reference_scheduler.core.decisions import Cancel, Decision, Dispatch, Expire, Reject, Requeue
from reference_scheduler.core.events import Event, JobStateChanged, JobSubmitted, JobUpdated, WorkerUpdated
from reference_scheduler.core.machine import ATTEMPT_ENDS
from reference_scheduler.core.model import Allocation, JobState, Priority, task_id


class Span(msgspec.Struct, frozen=True, gc=False):
    """What one attempt held on one worker: ``processors`` process slots from ``start_us`` to ``end_us``."""

    job: str
    worker: str
    processors: int
    start_us: int
    end_us: int
    priority: Priority


class Step(msgspec.Struct, frozen=True, gc=False):
    """From ``at_us`` on, until the next step, so many jobs wait and so many process slots are held."""

    at_us: int
    waiting: int
    held: int


class Timeline:
    """An observer of :class:`~reference_scheduler.drivers.simulation.SimulationDriver`.

    ``workers`` has the process slots of each worker; ``spans`` are in order of their ends; ``steps`` has one
    for each instant from the first submission on; ``waits_us`` has, by class, the time from submission to
    first start of each job. Lost workers and restarts, which no simulated workload has, are not followed.
    """

    def __init__(self) -> None:
        self.workers: dict[str, int] = {}
        self.spans: list[Span] = []
        self.steps: list[Step] = []
        self.waits_us: dict[Priority, list[int]] = {}
        self._names: dict[str, list[str]] = {}
        self._submitted: dict[str, tuple[int, Priority]] = {}
        self._live: dict[str, tuple[int, int, Allocation]] = {}
        self._waiting = 0
        self._held = 0

    def __call__(self, event: Event, decisions: Iterable[Decision]) -> None:
        """Take in ``event`` and what it led to."""
        if isinstance(event, WorkerUpdated):
            self.workers[event.worker] = event.capacity.process_slots
            return
        if isinstance(event, JobSubmitted):
            job, size = event.job, event.array_size
            names = self._names[job.id] = [task_id(job.id, index) for index in range(size)] or [job.id]
            self._submitted |= dict.fromkeys(names, (event.at, job.priority))
            self._waiting += len(names)
        elif isinstance(event, JobUpdated):
            for name in self._names.get(event.job.id, [event.job.id]):
                self._submitted[name] = self._submitted[name][0], event.job.priority
        elif isinstance(event, JobStateChanged):
            self._changed(event)
        for decision in decisions:
            self._decided(event.at, decision)
        if not self._submitted:
            return
        step = Step(event.at, self._waiting, self._held)
        if self.steps and self.steps[-1].at_us == event.at:
            self.steps[-1] = step
        else:
            self.steps.append(step)

    def _changed(self, event: JobStateChanged) -> None:
        number, start_us, allocation = self._live.get(event.job, (0, 0, ()))
        if number != event.attempt or event.old is not JobState.RUNNING or event.new not in ATTEMPT_ENDS:
            return
        del self._live[event.job]
        priority = self._submitted[event.job][1]
        for worker, resources in allocation:
            slots = resources.process_slots
            self._held -= slots
            self.spans.append(Span(event.job, worker, slots, start_us, event.at, priority))

    def _decided(self, at_us: int, decision: Decision) -> None:
        if isinstance(decision, Dispatch):
            submitted_us, priority = self._submitted[decision.job]
            if decision.attempt == 1:
                self.waits_us.setdefault(priority, []).append(at_us - submitted_us)
            self._live[decision.job] = decision.attempt, at_us, decision.allocation
            self._waiting -= 1
            self._held += sum(resources.process_slots for _, resources in decision.allocation)
        elif isinstance(decision, Requeue):
            self._waiting += 1
        elif isinstance(decision, Reject):
            self._waiting -= len(self._names[decision.job])
        elif isinstance(decision, Expire) or (isinstance(decision, Cancel) and not decision.attempt):
            self._waiting -= 1


class Block(msgspec.Struct, frozen=True, gc=False):
    """A part of a span as it is drawn: the process slots from ``low`` up to ``high`` of the whole machine."""

    span: Span
    low: int
    high: int


def stack(workers: dict[str, int], spans: Iterable[Span]) -> list[Block]:
    """Give each span slots of its own, so that no two overlap; workers lie one above the other.

    A span takes the lowest gap that is wide enough, or else several. One without process slots gets no block.
    """
    free: dict[str, list[tuple[int, int]]] = {}
    low = 0
    for worker, slots in workers.items():
        free[worker] = [(low, low + slots)]
        low += slots
    blocks: list[Block] = []
    ending: list[tuple[int, int, list[Block]]] = []
    for number, span in enumerate(sorted(spans, key=lambda span: (span.start_us, span.end_us))):
        while ending and ending[0][0] <= span.start_us:
            for block in ending.pop(0)[2]:
                _give(free[block.span.worker], block.low, block.high)
        taken = [Block(span, *gap) for gap in _take(free[span.worker], span.processors)]
        insort(ending, (span.end_us, number, taken))
        blocks += taken
    return blocks


def _take(gaps: list[tuple[int, int]], wanted: int) -> list[tuple[int, int]]:
    """Take ``wanted`` slots out of the sorted ``gaps``."""
    wide = next((gap for gap in gaps if gap[1] - gap[0] >= wanted), None)
    taken = []
    for low, high in [wide] if wide else list(gaps):
        upto = min(high, low + wanted)
        if upto == low:
            break
        taken.append((low, upto))
        wanted -= upto - low
        gaps.remove((low, high))
        if upto < high:
            insort(gaps, (upto, high))
    return taken


def _give(gaps: list[tuple[int, int]], low: int, high: int) -> None:
    """Put slots back, joined with the gaps they touch."""
    for gap in [gap for gap in gaps if gap[1] == low or gap[0] == high]:
        gaps.remove(gap)
        low, high = min(low, gap[0]), max(high, gap[1])
    insort(gaps, (low, high))


def total(workers: dict[str, int]) -> int:
    """Return the process slots of all workers."""
    return sum(workers.values())


def binned(steps: list[Step], start_us: int, end_us: int, bins: int) -> list[tuple[float, float, int]]:
    """Return for each of ``bins`` equal parts of time: mean held, mean waiting, most waiting."""
    width = (end_us - start_us) / bins
    sums = [[0.0, 0.0, 0.0] for _ in range(bins)]
    for index, step in enumerate(steps):
        until_us = steps[index + 1].at_us if index + 1 < len(steps) else end_us
        first = min(int((step.at_us - start_us) / width), bins - 1)
        last = min(int((until_us - start_us) / width), bins - 1)
        for part in range(first, last + 1):
            low, high = start_us + part * width, start_us + (part + 1) * width
            share = (min(until_us, high) - max(step.at_us, low)) / width
            if share <= 0:
                continue  # it ends where this part begins
            sums[part][0] += step.held * share
            sums[part][1] += step.waiting * share
            sums[part][2] = max(sums[part][2], step.waiting)
    return [(held, waiting, int(most)) for held, waiting, most in sums]
