"""One scheduling pass: all that a picker may see and do."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from operator import attrgetter

from reference_scheduler.core.allocators import Allocator
from reference_scheduler.core.amounts import GUARD, Amount, Share, fits, shortfall
from reference_scheduler.core.decisions import Decision, Dispatch, Pend
from reference_scheduler.core.invariants import invariant, violated
from reference_scheduler.core.ledger import Ledger
from reference_scheduler.core.limits import Limits
from reference_scheduler.core.machine import move
from reference_scheduler.core.model import (
    FOREVER_US,
    QUEUED,
    RUNNING,
    Attempt,
    AttemptState,
    Job,
    PendReason,
    allocation_of,
)

PASSED_OVER = frozenset({PendReason.LIMIT, PendReason.PAUSED, PendReason.TOO_LARGE})
"""Reasons that do not make a job the head of the queue: no end of another job it could wait for is known."""

End = tuple[int, int, Job]
"""Expected end of a live attempt, sequence number of its job, the job."""


class Reservation:
    """The promise to a blocked ``job``: at ``at_us`` it fits, by estimates, in what is ``free`` then.

    ``extra`` is what it leaves over.
    """

    __slots__ = ("at_us", "extra", "free", "job")

    def __init__(self, job: Job, at_us: int, free: dict[str, Amount], shares: Iterable[Share]) -> None:
        self.job = job
        self.at_us = at_us
        self.free = free
        self.extra = dict(free)
        for worker, amount in shares:
            self.extra[worker] -= amount


class Pass:
    """The machine at one instant, and the two ways to start a job on it.

    ``releases`` changes whenever something was given back or a limit moved: while it stays the same, a job
    that did not fit still does not. ``exhausted`` says that this pass has started as many as one pass may.
    """

    def __init__(self, ledger: Ledger, limits: Limits, allocator: Allocator) -> None:
        self.now_us = 0
        self.releases = 0
        self.ends: list[End] = []
        self.decisions: list[Decision] = []
        self.started: list[Job] = []
        self.ledger = ledger
        self.allocator = allocator
        self.exhausted = False
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
        self.exhausted = False

    @property
    def limited(self) -> bool:
        """Whether there are limits at all, so that the start of one job may hold another."""
        return self._limits.has_caps

    def start(self, job: Job) -> PendReason | None:
        """Start ``job`` if it may and fits: all it asks for or nothing. Return what keeps it otherwise."""
        if self.exhausted or self._limits.active or job.keys:
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
        if self.exhausted or self._limits.active or job.keys:
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
            if any(key in reservation.job.keys for key in job.keys):
                return PendReason.RESERVATION
            for worker, amount in shares:
                extra[worker] -= amount
        self._dispatch(job, shares, reservation.job.spec.id)
        self._check_promise(reservation, job)
        return None

    def _check_promise(self, reservation: Reservation, passer: Job) -> None:
        """Check, apart from how that was decided, that the blocked job still has its place at its time."""
        if passer.attempt is not None and passer.attempt.expected_end_us <= reservation.at_us:
            return
        free, blocked = reservation.free, reservation.job
        for worker, amount in passer.shares:
            invariant(fits(amount, free[worker]), "a backfilled job delays the reservation", blocked.spec.id)
            free[worker] -= amount
        still = self.allocator.place(blocked.need, blocked.spec.tasks, free)
        invariant(still is not None, "a backfilled job delays the reservation", blocked.spec.id)

    def reserve(self, job: Job) -> Reservation | None:
        """Return the earliest time at which ``job`` fits if all attempts end as estimated; ``None`` if never.

        Attempts past their estimate are taken to end now. Those without one end after all others, but those
        that have passed ``job`` never: what was left over beside it is used up, or one after the other could
        pass.
        """
        return self._reserve(job, job.spec.id) or self._reserve(job, None)

    def _reserve(self, job: Job, passed: str | None) -> Reservation | None:
        """Return the reservation if attempts without an estimate that passed the job ``passed`` never end."""
        free, total, ends = dict(self.ledger.free), job.total, self.ends
        guarded = self.ledger.room | GUARD
        held = {key for key in job.keys if key in self.ledger.holders}
        last = len(ends) - 1
        for index, (end_us, _, other) in enumerate(ends):
            if held:
                held.difference_update(_live_attempt(other).keys)
            if end_us < FOREVER_US or passed is None or _live_attempt(other).passed != passed:
                for worker, amount in other.shares:
                    if worker in free:
                        free[worker] += amount
                        guarded += amount
            if (guarded - total) & GUARD != GUARD or held or (index < last and ends[index + 1][0] == end_us):
                continue
            shares = self.allocator.place(job.need, job.spec.tasks, free)
            if shares is not None:
                return Reservation(job, max(end_us, self.now_us), free, shares)
        return None

    def held(self, job: Job) -> PendReason | None:
        """Return whether a pause or a limit holds ``job``, whatever is free."""
        blocked = self._limits.blocks(job) if self._limits.active else None
        return blocked[0] if blocked else None

    def possible(self, need: Amount, tasks: int) -> bool:
        """Return whether a job of ``tasks`` times ``need`` would fit if nothing else ran."""
        return self.allocator.place(need, tasks, self.ledger.available) is not None

    def room(self) -> Amount:
        """Return what is free on all workers together: a job whose total exceeds it fits nowhere."""
        return self.ledger.room

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

    def pend_alike(self, jobs: list[Job], reason: PendReason) -> None:
        """Record why ``jobs`` wait, all of which the same numbers hold; see :meth:`pend`."""
        detail: str | None = None
        for job in jobs:
            if job.reason is not reason:
                detail = self.detail(job, reason) if detail is None else detail
                job.reason, job.detail = reason, detail
                self.decisions.append(Pend(job.spec.id, reason, detail))

    def pend_newcomers(self, jobs: list[Job]) -> None:
        """Tell those of ``jobs`` that are still queued and were given no reason that they wait their turn.

        In order of submission: a restored picker has them in another order than one that saw them come.
        """
        news = [job for job in jobs if job.reason is None and job.state is QUEUED]
        if not news:
            return
        news.sort(key=attrgetter("seq"))
        if self._limits.active:
            for job in news:
                self.pend(job, PendReason.BEHIND)
        else:
            self.pend_alike(news, PendReason.BEHIND)

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
        blocked = self._limits.blocks(job) if self._limits.active else None
        return blocked[1] if blocked else ""

    def _held_back(self, job: Job) -> PendReason | None:
        if self.exhausted:
            return PendReason.BATCH
        held = self.held(job)
        if held is None and job.keys and self.ledger.held_key(job.keys):
            return PendReason.EXCLUSIVITY
        return held

    def _no_room(self, job: Job) -> PendReason:
        possible = self.possible(job.need, job.spec.tasks)
        return PendReason.RESOURCES if possible else PendReason.TOO_LARGE

    def _dispatch(self, job: Job, shares: tuple[Share, ...], passed: str = "") -> None:
        name = job.spec.id
        if job.attempt is not None:
            violated("a job has two live attempts", name)
        self.ledger.acquire(name, shares, job.keys)
        move(job, RUNNING)
        allocation = allocation_of(shares)
        job.attempts += 1
        job.reason, job.detail, job.reserved_us = None, "", None
        end_us = min(self.now_us + job.estimate_us, FOREVER_US)
        job.attempt = Attempt(
            job.attempts, AttemptState.ADMITTED, self.now_us, end_us, allocation, job.keys, passed=passed
        )
        job.shares = shares
        if self._limits.has_caps:
            self._limits.started(job)
        insort(self.ends, (end_us, job.seq, job))
        self.started.append(job)
        self.exhausted = len(self.started) >= self._claim_batch
        self.decisions.append(Dispatch(name, job.attempts, allocation))


def _live_attempt(job: Job) -> Attempt:
    if job.attempt is None:
        violated("no live attempt", job.spec.id)
    return job.attempt
