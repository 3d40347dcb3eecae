"""One scheduling pass: all that a picker may see and do."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from reference_scheduler.core.allocators import Allocator
from reference_scheduler.core.amounts import Amount, fits, pack, shortfall, unpack
from reference_scheduler.core.decisions import Decision, Dispatch, Pend
from reference_scheduler.core.invariants import InvariantViolation, invariant
from reference_scheduler.core.ledger import Ledger, Share
from reference_scheduler.core.limits import Limits
from reference_scheduler.core.machine import move
from reference_scheduler.core.model import (
    FOREVER_US,
    Attempt,
    AttemptState,
    Job,
    JobState,
    PendReason,
)

PASSED_OVER = frozenset({PendReason.LIMIT, PendReason.PAUSED, PendReason.TOO_LARGE})
"""Reasons that do not make a job the head of the queue: no end of another job it could wait for is known."""

End = tuple[int, int, Job]
"""Expected end of a live attempt, sequence number of its job, the job."""


class Reservation:
    """The promise to a blocked job: at ``at_us`` it fits, by estimates, and ``extra`` is then left over."""

    __slots__ = ("at_us", "extra", "job", "keys")

    def __init__(self, at_us: int, extra: dict[str, Amount], job: Job) -> None:
        self.at_us = at_us
        self.extra = extra
        self.job = job.spec.id
        self.keys = job.keys


class Pass:
    """The machine at one instant, and the two ways to start a job on it.

    ``releases`` changes whenever something was given back or a limit moved: while it stays the same, a job
    that did not fit still does not.
    """

    def __init__(self, ledger: Ledger, limits: Limits, allocator: Allocator) -> None:
        self.now_us = 0
        self.releases = 0
        self.ends: list[End] = []
        self.decisions: list[Decision] = []
        self.started: list[Job] = []
        self.ledger = ledger
        self.allocator = allocator
        self._limits = limits
        self._claim_batch = 0

    def configure(self, allocator: Allocator, claim_batch: int) -> None:
        """Place with ``allocator``, and start at most ``claim_batch`` jobs in one pass."""
        self.allocator = allocator
        self._claim_batch = claim_batch

    def begin(self, now_us: int, decisions: list[Decision]) -> None:
        """Start a new pass that adds to ``decisions``."""
        self.now_us = now_us
        self.decisions = decisions
        self.started = []

    @property
    def exhausted(self) -> bool:
        """Whether this pass has started as many jobs as one pass may."""
        return len(self.started) >= self._claim_batch

    @property
    def limited(self) -> bool:
        """Whether there are limits at all, so that the start of one job may hold another."""
        return self._limits.active

    def start(self, job: Job) -> PendReason | None:
        """Start ``job`` if it may and fits: all it asks for or nothing. Return what keeps it otherwise."""
        reason = self._held_back(job)
        if reason is not None:
            return reason
        shares = self.allocator.place(job.need, job.spec.tasks, self.ledger.free)
        if shares is None:
            return self._no_room(job)
        self._dispatch(job, shares)
        return None

    def backfill(self, job: Job, reservation: Reservation) -> PendReason | None:
        """Start ``job`` if, besides, that cannot delay ``reservation``.

        It cannot if ``job`` ends by then, or if it takes only what is left over then, which it uses up.
        """
        reason = self._held_back(job)
        if reason is not None:
            return reason
        shares = self.allocator.place(job.need, job.spec.tasks, self.ledger.free)
        if shares is None:
            return self._no_room(job)
        if job.estimate_us > reservation.at_us - self.now_us:
            extra = reservation.extra
            if not all(fits(amount, extra[worker]) for worker, amount in shares):
                return PendReason.RESERVATION
            if any(key in reservation.keys for key in job.keys):
                return PendReason.RESERVATION
            for worker, amount in shares:
                extra[worker] -= amount
        self._dispatch(job, shares, reservation.job)
        return None

    def reserve(self, job: Job) -> Reservation | None:
        """Return the earliest time at which ``job`` fits if all attempts end as estimated; ``None`` if never.

        Attempts past their estimate are taken to end now. Those without one end after all others, but those
        that have passed ``job`` never: what was left over beside it is used up, or one after the other could
        pass.
        """
        return self._reserve(job, job.spec.id) or self._reserve(job, None)

    def _reserve(self, job: Job, passed: str | None) -> Reservation | None:
        """Return the reservation if attempts without an estimate that passed the job ``passed`` never end."""
        free = dict(self.ledger.free)
        room = sum(free.values())
        held = {key for key in job.keys if key in self.ledger.holders}
        last = len(self.ends) - 1
        for index, (end_us, _, other) in enumerate(self.ends):
            attempt = live_attempt(other)
            held.difference_update(attempt.keys)
            stays = passed is not None and end_us >= FOREVER_US and attempt.passed == passed
            for worker, resources in attempt.allocation:
                if worker in free and not stays:
                    amount = pack(resources)
                    free[worker] += amount
                    room += amount
            if held or not fits(job.total, room) or (index < last and self.ends[index + 1][0] == end_us):
                continue
            shares = self.allocator.place(job.need, job.spec.tasks, free)
            if shares is not None:
                for worker, amount in shares:
                    free[worker] -= amount
                return Reservation(max(end_us, self.now_us), free, job)
        return None

    def held(self, job: Job) -> PendReason | None:
        """Return whether a pause or a limit holds ``job``, whatever is free."""
        blocked = self._limits.blocks(job)
        return blocked[0] if blocked else None

    def possible(self, need: Amount, tasks: int) -> bool:
        """Return whether a job of ``tasks`` times ``need`` would fit if nothing else ran."""
        return self.allocator.place(need, tasks, self.ledger.available) is not None

    def room(self) -> Amount:
        """Return what is free on all workers together: a job whose total exceeds it fits nowhere."""
        return sum(self.ledger.free.values())

    def lacking(self, total: Amount) -> str:
        """Say what ``total`` asks for beyond what there would be if nothing else ran."""
        return shortfall(total, sum(self.ledger.available.values()))

    def pend(self, job: Job, reason: PendReason) -> None:
        """Record why ``job`` waits, and say so if that is news."""
        if reason is job.reason or reason is PendReason.BATCH:
            return
        job.reason = reason
        job.detail = self.detail(job, reason)
        self.decisions.append(Pend(job.spec.id, reason, job.detail))

    def pend_newcomers(self, jobs: Iterable[Job]) -> None:
        """Tell those of ``jobs`` that are still queued and were given no reason that they wait their turn.

        In order of submission: a restored picker has them in another order than one that saw them come.
        """
        new = [job for job in jobs if job.reason is None and job.state is JobState.QUEUED]
        for job in sorted(new, key=lambda job: job.seq):
            self.pend(job, PendReason.BEHIND)

    def detail(self, job: Job, reason: PendReason) -> str:
        """Say ``reason`` with the numbers of this moment."""
        if reason is PendReason.RESOURCES:
            return shortfall(job.total, self.room())
        if reason is PendReason.TOO_LARGE:
            return self.lacking(job.total)
        if reason is PendReason.EXCLUSIVITY:
            key = self.ledger.held_key(job.keys) or ""
            return f"{key} is held by job {self.ledger.holders.get(key)!r}"
        if reason is PendReason.RESERVATION:
            return "would delay a job that waits for a wider place"
        blocked = self._limits.blocks(job)
        return blocked[1] if blocked else ""

    def _held_back(self, job: Job) -> PendReason | None:
        if self.exhausted:
            return PendReason.BATCH
        held = self.held(job)
        if held is not None:
            return held
        if job.keys and self.ledger.held_key(job.keys):
            return PendReason.EXCLUSIVITY
        return None

    def _no_room(self, job: Job) -> PendReason:
        possible = self.possible(job.need, job.spec.tasks)
        return PendReason.RESOURCES if possible else PendReason.TOO_LARGE

    def _dispatch(self, job: Job, shares: tuple[Share, ...], passed: str = "") -> None:
        invariant(job.attempt is None, "a job has two live attempts", job.spec.id)
        self.ledger.acquire(job.spec.id, shares, job.keys)
        move(job, JobState.RUNNING)
        allocation = tuple([(worker, unpack(amount)) for worker, amount in shares])
        job.attempts += 1
        job.reason, job.detail, job.reserved_us = None, "", None
        end_us = min(self.now_us + job.estimate_us, FOREVER_US)
        job.attempt = Attempt(
            job.attempts, AttemptState.ADMITTED, self.now_us, end_us, allocation, job.keys, passed=passed
        )
        self._limits.started(job)
        insort(self.ends, (end_us, job.seq, job))
        self.started.append(job)
        self.decisions.append(Dispatch(job.spec.id, job.attempts, allocation))


def live_attempt(job: Job) -> Attempt:
    """Return the attempt of a job that must have one."""
    attempt = job.attempt
    if attempt is None:
        raise InvariantViolation(f"no live attempt: {job.spec.id!r}")
    return attempt
