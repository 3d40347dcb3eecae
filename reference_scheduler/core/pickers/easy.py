"""EASY backfilling.

Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995); Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from reference_scheduler.core.amounts import fits, fitting
from reference_scheduler.core.invariants import invariant
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
        self._releases = -1

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
        if self._is_current(view):
            jobs = self._fresh
        else:
            index = self.start_heads(view)
            self._head = None if index is None else self._queue[index][2]
            self._reservation = None if self._head is None else view.reserve(self._head)
            self._releases = view.releases
            jobs = [] if index is None else [entry[2] for entry in self._queue[index + 1 :]]
        head, reservation = self._head, self._reservation
        self._promise(head, reservation)
        if head is not None and reservation is not None:
            self._backfill(view, head, reservation, jobs)
        if view.exhausted or (view.limited and view.started) or any(job.keys for job in view.started):
            self._head = None  # some were not tried, or those that started may hold the head by a limit or key
        self.pend_newcomers(view)

    def _promise(self, head: Job | None, reservation: Reservation | None) -> None:
        if self._promised is not None:
            self._promised.reserved_us = None
        self._promised = head
        if head is not None:
            head.reserved_us = None if reservation is None else reservation.at_us

    def _is_current(self, view: Pass) -> bool:
        reservation = self._reservation
        return (
            self._head is not None
            and reservation is not None
            and self._releases == view.releases
            and view.now_us < reservation.at_us
        )

    def _backfill(self, view: Pass, head: Job, reservation: Reservation, jobs: list[Job]) -> None:
        before = len(view.started)
        span_us = reservation.at_us - view.now_us
        room, spare = view.room(), sum(reservation.extra.values())
        for job in self.candidates(fitting(jobs, room)):
            if not fits(job.total, room) or (job.estimate_us > span_us and not fits(job.total, spare)):
                continue  # necessary conditions, cheaper than trying
            if view.backfill(job, reservation) is None:
                del self._queue[self.place(job) - 1]
                room, spare = view.room(), sum(reservation.extra.values())
        if len(view.started) > before:
            again = view.reserve(head)
            invariant(
                again is not None and again.at_us <= reservation.at_us,
                "a backfilled job delays the reservation",
                head.spec.id,
            )


class EasyShortestPicker(EasyPicker):
    """EASY, but the shortest by estimate are tried first for backfilling.

    Source: Tsafrir, Etsion and Feitelson, "Backfilling using system-generated predictions", IEEE TPDS 18(6),
    2007 (there called EASY-SJBF).
    """

    name = "easy-sjf"

    def candidates(self, jobs: list[Job]) -> list[Job]:
        """See :class:`EasyPicker`."""
        return sorted(jobs, key=lambda job: (job.estimate_us, job.seq))
