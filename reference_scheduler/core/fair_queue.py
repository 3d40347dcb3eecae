"""The queue of the ``fair`` picker: classes, and in each class one lane per workspace.

The bound on waiting. Let a job be the ``p``-th of its lane, ``L`` the number of lanes, ``B`` the longest run
of high classes (urgent, interactive), and ``w(c)`` the weight of class ``c``. While the job is not held by a
limit, at most::

    (p·L + 3) · (1 + Σ over classes d below urgent of (⌈w(d)/w(c)⌉ + 1)) · (B + 1)

turns pass before its own: of ``B + 1`` turns one is for a lower class; between two turns of class ``c`` any
other class ``d`` has at most ``⌈w(d)/w(c)⌉ + 1``; between two turns of a lane every other lane has at most
one; and rising a class, at most three times, costs one more round. A job whose turn it is but that does not
fit keeps its turn and a reservation, and starts at the latest when all that runs now has ended. So if no
attempt runs longer than ``H``, the job waits at most that many times ``H``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from math import lcm

import msgspec

from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.model import RANK, Fairness, Job, PendReason
from reference_scheduler.core.passes import PASSED_OVER

INTERACTIVE_RANK = 1
FIRST_LOW_RANK = 2
SHARED = frozenset({PendReason.LIMIT, PendReason.PAUSED})
"""Reasons that are the same for all to whom the same limits and pauses apply."""


def waiting_bound(fairness: Fairness, rank: int, lanes: int, position: int) -> int:
    """Return the bound of this module's docstring, in turns, for a job of class ``rank`` >= 1."""
    own = fairness.weights[rank - 1]
    between = 1 + sum(-(-weight // own) + 1 for weight in fairness.weights)
    return (position * lanes + 3) * between * (fairness.max_high_priority_burst + 1)


class Lane:
    """The jobs of one workspace in one class, oldest first; ``turn`` says when it was last served.

    A job that a limit, a pause or its size holds does not hold up its lane: ``passed`` of the first jobs have
    been passed over in the present pass.
    """

    __slots__ = ("jobs", "passed", "rank", "turn")

    def __init__(self, rank: int, turn: int) -> None:
        self.rank = rank
        self.turn = turn
        self.passed = 0
        self.jobs: list[tuple[int, Job]] = []

    @property
    def head(self) -> Job:
        """The oldest job that was not passed over."""
        return self.jobs[self.passed][1]

    @property
    def is_spent(self) -> bool:
        """Whether no job is left in the present pass."""
        return self.passed >= len(self.jobs)

    def pass_over(self, reason: PendReason) -> list[Job]:
        """Pass over the head for ``reason``, and with it those after it that it holds too; return them all.

        These are jobs of its array with its age, to which the same limits and pauses apply: it would be their turn one
        after the other, and nothing would change meanwhile.
        """
        head = self.head
        self.passed += 1
        if not head.array or reason not in SHARED:
            return [head]
        alike = [head]
        array, age, spec = head.array, head.queued_us, head.spec
        user, queue, session = spec.user, spec.queue, spec.session
        for _, job in islice(self.jobs, self.passed, None):
            spec = job.spec
            if job.array != array or job.queued_us != age:
                break
            if spec.user != user or spec.queue != queue or spec.session != session:
                break
            alike.append(job)
        self.passed += len(alike) - 1
        return alike


class SavedQueue(msgspec.Struct, frozen=True):
    """What the order of service depends on besides the jobs."""

    turn: int
    burst: int
    virtual: tuple[int, ...]
    clock: int
    lanes: tuple[tuple[int, str, int], ...]


class FairQueue:
    """Stride scheduling between classes, round robin between lanes, first in first out in a lane.

    Source of stride scheduling: Waldspurger and Weihl, MIT/LCS/TM-528, 1995. A lane that was empty joins at
    the back of the round, and a class that was empty joins at the present virtual time: idling saves nothing.
    """

    def __init__(self) -> None:
        self.configure(Fairness())
        self._lanes: dict[tuple[int, str], Lane] = {}
        self._turn = 0
        self._burst = 0
        self._virtual = [0] * len(RANK)
        self._clock = 0

    def configure(self, fairness: Fairness) -> None:
        """Take over the weights."""
        common = lcm(*fairness.weights)
        self._strides = [0, *(common // weight for weight in fairness.weights)]
        self._max_burst = fairness.max_high_priority_burst
        self._aging_us = fairness.aging_us

    def add(self, job: Job) -> None:
        """Put ``job`` into its lane by age."""
        rank = RANK[job.spec.priority]
        key = (rank, job.spec.workspace)
        lane = self._lanes.get(key)
        if lane is None:
            if all(other.rank != rank for other in self._lanes.values()):
                self._virtual[rank] = max(self._virtual[rank], self._clock)
            self._turn += 1
            lane = self._lanes[key] = Lane(rank, self._turn)
        if lane.jobs and job.seq < lane.jobs[-1][0]:
            insort(lane.jobs, (job.seq, job))
        else:
            lane.jobs.append((job.seq, job))

    def remove(self, job: Job) -> None:
        """Take ``job`` out."""
        key = (RANK[job.spec.priority], job.spec.workspace)
        jobs = self._lanes[key].jobs
        index = -1 if jobs[-1][1] is job else bisect_left(jobs, (job.seq,))
        invariant(jobs[index][1] is job, "a queued job is not in its lane", job.spec.id)
        del jobs[index]
        if not jobs:
            del self._lanes[key]

    def rank(self, lane: Lane, now_us: int) -> int:
        """Return the class in which the lane is served: that of its head, raised by age."""
        if lane.rank <= INTERACTIVE_RANK:
            return lane.rank
        return max(INTERACTIVE_RANK, lane.rank - (now_us - lane.head.queued_us) // self._aging_us)

    def lanes(self) -> list[Lane]:
        """Begin a pass: return the lanes, the one that has waited longest for its turn first."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.passed = 0
        return lanes

    def next_lane(self, lanes: list[Lane], now_us: int) -> Lane | None:
        """Return whose turn it is among ``lanes``, which are in order of their turns."""
        if self._burst >= self._max_burst:
            lanes = [lane for lane in lanes if lane.rank >= FIRST_LOW_RANK] or lanes
        first: dict[int, Lane] = {}
        for lane in lanes:
            first.setdefault(self.rank(lane, now_us), lane)
        if not first or 0 in first:
            return first.get(0)
        return first[min(first, key=lambda rank: (self._virtual[rank], rank))]

    def serve(self, lane: Lane, now_us: int) -> None:
        """Take the head out of ``lane`` and charge its class with the turn."""
        job, rank = lane.head, self.rank(lane, now_us)
        self._burst = self._burst + 1 if lane.rank < FIRST_LOW_RANK else 0
        if rank:
            self._clock = max(self._clock, self._virtual[rank])
            self._virtual[rank] = self._clock + self._strides[rank]
        self._turn += 1
        lane.turn = self._turn
        key = (lane.rank, job.spec.workspace)
        self._lanes[key] = self._lanes.pop(key)  # to the back: the dictionary is in order of turns
        self.remove(job)

    def lane_of(self, job: Job) -> Lane:
        """Return the lane of the queued ``job``."""
        return self._lanes[RANK[job.spec.priority], job.spec.workspace]

    def next_rise_us(self, now_us: int) -> int | None:
        """Return the first time after ``now_us`` at which age raises the head of a lane."""
        rises = []
        for lane in self._lanes.values():
            lane.passed = 0
            waiting = (index for index, (_, job) in enumerate(lane.jobs) if job.reason not in PASSED_OVER)
            lane.passed = next(waiting, len(lane.jobs))
            if not lane.is_spent and self.rank(lane, now_us) > INTERACTIVE_RANK:
                age = now_us - lane.head.queued_us
                rises.append(lane.head.queued_us + (age // self._aging_us + 1) * self._aging_us)
        return min(rises, default=None)

    def save(self) -> SavedQueue:
        """Return the state for :meth:`load`."""
        lanes = tuple((rank, workspace, lane.turn) for (rank, workspace), lane in self._lanes.items())
        return SavedQueue(self._turn, self._burst, tuple(self._virtual), self._clock, lanes)

    def load(self, saved: SavedQueue) -> None:
        """Continue from ``saved``; the same jobs have been added."""
        invariant(len(saved.lanes) == len(self._lanes), "lanes of a snapshot do not match its jobs")
        for rank, workspace, turn in saved.lanes:
            lane = self._lanes[rank, workspace] = self._lanes.pop((rank, workspace))
            lane.turn = turn
        self._turn, self._burst, self._clock = saved.turn, saved.burst, saved.clock
        self._virtual = list(saved.virtual)
