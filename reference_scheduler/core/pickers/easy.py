"""EASY backfilling.

Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995); Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from reference_scheduler.core.amounts import GUARD, fits
from reference_scheduler.core.model import Job
from reference_scheduler.core.passes import Pass, Reservation
from reference_scheduler.core.pickers.base import OrderedPicker


class EasyPicker(OrderedPicker):
    """First come first served; behind a blocked head, jobs start that cannot delay it.

    The head's reservation is its *shadow time*, the earliest at which it fits by estimates, and the *extra*
    resources left over then.
    """

    name = "easy"

    def __init__(self) -> None:
        super().__init__()
        self._head: Job | None = None
        self._promised: Job | None = None
        self._reservation: Reservation | None = None

    def candidates(self, jobs: list[Job]) -> list[Job]:
        """Return ``jobs``, given in queue order, in the order in which they are tried."""
        return jobs

    def add(self, job: Job) -> None:
        """See :class:`Picker`."""
        super().add(job)
        if job.reserved_us is not None:
            self._promised = job  # after a restore
        if self._queue[-1][2] is not job:
            self._head = None  # one that was tried already may now be behind this one

    def remove(self, job: Job) -> None:
        """See :class:`Picker`."""
        super().remove(job)
        self._head = None
        if job is self._promised:
            self._promised = None

    def run(self, view: Pass) -> None:
        """See :class:`Picker`.

        While nothing is given back, the shadow time stands and those that were refused stay refused, so only
        the jobs that came since the last pass are tried.
        """
        jobs = self._fresh if self._is_current(view) else self._begin_anew(view)
        if jobs and self._reservation is not None:
            self._backfill(view, self._reservation, jobs)
        started = view.started
        if started and (view.exhausted or view.limited or any(job.keys for job in started)):
            self._head = None  # some were not tried, or those that started may hold the head by a limit or key
        self.pend_newcomers(view)

    def _begin_anew(self, view: Pass) -> list[Job]:
        """Start heads, make the promise to the first that must wait, and return the jobs behind it."""
        if self._promised is not None:
            self._promised.reserved_us = None
        index = self.start_heads(view) if self._queue else None
        self._releases = view.releases
        if index is None:
            self._head = self._promised = self._reservation = None
            return []
        self._head = self._promised = head = self._queue[index][2]
        self._reservation = view.reserve(head)
        head.reserved_us = None if self._reservation is None else self._reservation.at_us
        return [entry[2] for entry in self._queue[index + 1 :]]

    def _is_current(self, view: Pass) -> bool:
        reservation = self._reservation
        return (
            self._head is not None
            and reservation is not None
            and self._releases == view.releases
            and view.now_us < reservation.at_us
        )

    def _backfill(self, view: Pass, reservation: Reservation, jobs: list[Job]) -> None:
        span_us = reservation.at_us - view.now_us
        room, spare = view.room() | GUARD, sum(reservation.extra.values()) | GUARD
        hopeful = [  # necessary conditions, far cheaper than trying, for what may be a long queue
            job
            for job in jobs
            if (room - job.total) & GUARD == GUARD
            and (job.estimate_us <= span_us or (spare - job.total) & GUARD == GUARD)
        ]
        for job in self.candidates(hopeful):
            if fits(job.total, view.room()) and view.backfill(job, reservation) is None:
                self._take_out(self._index(job))


class EasyShortestPicker(EasyPicker):
    """EASY, but the shortest by estimate are tried first for backfilling.

    Source: Tsafrir, Etsion and Feitelson, "Backfilling using system-generated predictions", IEEE TPDS 18(6),
    2007 (there called EASY-SJBF).
    """

    name = "easy-sjf"

    def candidates(self, jobs: list[Job]) -> list[Job]:
        """See :class:`EasyPicker`."""
        return sorted(jobs, key=lambda job: (job.estimate_us, job.seq))
