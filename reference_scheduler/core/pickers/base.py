"""The seam between the core and the policies that decide who starts next."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import ClassVar, Protocol

from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.model import Attempt, Fairness, Job, PendReason
from reference_scheduler.core.passes import PASSED_OVER, Pass


class Picker(Protocol):
    """A policy that holds the queued jobs and starts some of them in each pass.

    It acts only through the :class:`~reference_scheduler.core.passes.Pass` it is given and takes a job out of
    its own queue when the pass has started it. It has no clock, no randomness, and iterates over nothing
    that is unordered. Register one under the entry point group ``spawngate.pickers``.
    """

    name: ClassVar[str]

    def configure(self, fairness: Fairness) -> None:
        """Take over the weights; called before anything else and again when they change."""
        ...

    def add(self, job: Job) -> None:
        """A job is queued: newly, or again with its old place by ``seq``."""
        ...

    def remove(self, job: Job) -> None:
        """A queued job left the queue without having been started by this picker."""
        ...

    def ended(self, job: Job, attempt: Attempt, now_us: int) -> None:
        """An attempt ended, and what it held is free."""
        ...

    def capacity_changed(self) -> None:
        """A worker came, went or changed, or a limit did."""
        ...

    def run(self, view: Pass) -> None:
        """Start what may start now, and tell ``view`` why the others it looked at wait."""
        ...

    def next_due(self, now_us: int) -> int | None:
        """Return the first time after ``now_us`` at which a pass could decide differently by itself."""
        ...

    def place(self, job: Job) -> int:
        """Return the place of the queued ``job`` in the queue, 1 being first."""
        ...

    def save(self) -> bytes:
        """Return what :meth:`load` needs besides the jobs themselves."""
        ...

    def load(self, saved: bytes) -> None:
        """Continue from ``saved``; the queued jobs have been added already."""
        ...


class OrderedPicker:
    """Starts jobs in the order of a score that does not change while a job waits; no backfilling.

    The first job that must wait holds up all others, except that jobs held by a limit are passed over. While
    nothing is given back and it stays the first, it is not tried again.

    The queue is a sorted list whose first ``_gone`` entries have left it already: to shift a long list for each
    job that starts would cost more than all else.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Job]] = []
        self._gone = 0
        self._fresh: list[Job] = []
        self._blocked: Job | None = None
        self._releases = -1

    def score(self, job: Job) -> int:
        """Return the key to sort by, lowest first; ties go by time of submission."""
        return job.seq

    def configure(self, fairness: Fairness) -> None:
        """See :class:`Picker`; no use of weights."""

    def add(self, job: Job) -> None:
        """See :class:`Picker`."""
        insort(self._queue, (self.score(job), job.seq, job), self._gone)
        self._fresh.append(job)

    def remove(self, job: Job) -> None:
        """See :class:`Picker`."""
        self._take_out(self._index(job))

    def ended(self, job: Job, attempt: Attempt, now_us: int) -> None:
        """See :class:`Picker`; nothing is kept about attempts."""

    def capacity_changed(self) -> None:
        """See :class:`Picker`; nothing is kept about capacity."""

    def run(self, view: Pass) -> None:
        """See :class:`Picker`."""
        if self._queue and not (self._first() is self._blocked and view.releases == self._releases):
            self._blocked = self._first() if self.start_heads(view) == self._gone else None
            self._releases = view.releases
        self.pend_newcomers(view)

    def pend_newcomers(self, view: Pass) -> None:
        """Tell the jobs that came since the last pass, and that this one did not look at, that they wait."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            view.pend_newcomers(fresh)

    def start_heads(self, view: Pass) -> int | None:
        """Start jobs from the front; return the index of the first that must wait, ``None`` if none must."""
        index = self._gone
        while index < len(self._queue):
            job = self._queue[index][2]
            reason = view.start(job)
            if reason is None:
                index = self._take_out(index)
                continue
            if reason is PendReason.BATCH:
                return None
            view.pend(job, reason)
            if reason not in PASSED_OVER:
                return index
            index += 1
        return None

    def next_due(self, now_us: int) -> int | None:
        """See :class:`Picker`; time alone changes nothing."""
        return None

    def place(self, job: Job) -> int:
        """See :class:`Picker`."""
        return self._index(job) - self._gone + 1

    def _first(self) -> Job:
        return self._queue[self._gone][2]

    def _waiting(self) -> list[Job]:
        """Return the jobs of the queue in their order."""
        return [job for _, _, job in self._queue[self._gone :]]

    def _index(self, job: Job) -> int:
        index = bisect_left(self._queue, (self.score(job), job.seq), self._gone)
        invariant(self._queue[index][2] is job, "a queued job is not in its place", job.spec.id)
        return index

    def _take_out(self, index: int) -> int:
        """Take the entry at ``index`` out of the queue, and return the index of the one behind it."""
        if index > self._gone:
            del self._queue[index]
            return index
        self._gone += 1
        if 2 * self._gone > len(self._queue):
            del self._queue[: self._gone]
            self._gone = 0
        return self._gone

    def save(self) -> bytes:
        """See :class:`Picker`; the order follows from the jobs."""
        return b""

    def load(self, saved: bytes) -> None:
        """See :class:`Picker`."""
