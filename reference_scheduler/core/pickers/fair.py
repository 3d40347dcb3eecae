"""The default picker: weighted classes, round robin lanes, and one reservation for a blocked head."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from reference_scheduler.core.fair_queue import FairQueue, SavedQueue
from reference_scheduler.core.model import Attempt, Fairness, Job, PendReason
from reference_scheduler.core.passes import PASSED_OVER, Pass, Reservation


class FairPicker:
    """Serves lanes in the order of :class:`FairQueue`.

    The first job whose turn it is and that does not fit gets a reservation, as the head does in EASY: others
    may pass it only where they cannot delay it. Being passed costs no turn, so it stays the first.
    """

    name: ClassVar[str] = "fair"

    def __init__(self) -> None:
        self._queue = FairQueue()
        self._fresh: list[Job] = []
        self._promised: Job | None = None

    def configure(self, fairness: Fairness) -> None:
        """See :class:`Picker`."""
        self._queue.configure(fairness)

    def add(self, job: Job) -> None:
        """See :class:`Picker`."""
        self._queue.add(job)
        self._fresh.append(job)
        if job.reserved_us is not None:
            self._promised = job  # after a restore

    def remove(self, job: Job) -> None:
        """See :class:`Picker`."""
        self._queue.remove(job)
        if job is self._promised:
            self._promised = None

    def ended(self, job: Job, attempt: Attempt, now_us: int) -> None:
        """See :class:`Picker`; nothing is kept about attempts."""

    def capacity_changed(self) -> None:
        """See :class:`Picker`; nothing is kept about capacity."""

    def run(self, view: Pass) -> None:
        """See :class:`Picker`."""
        reservation: Reservation | None = None
        promised: Job | None = None
        lanes = self._queue.lanes()
        while (lane := self._queue.next_lane(lanes, view.now_us)) is not None:
            job = lane.head
            place = lanes.index(lane)
            del lanes[place]
            reason = view.start(job) if reservation is None else view.backfill(job, reservation)
            if reason is None:
                self._queue.serve(lane, view.now_us)
                if not lane.is_spent:
                    lanes.append(lane)
                continue
            if reason is PendReason.BATCH:
                break
            if reason in PASSED_OVER:
                view.pend_alike(lane.pass_over(reason), reason)
                if not lane.is_spent:
                    lanes.insert(place, lane)
                continue
            view.pend(job, reason)
            if promised is None:
                promised, reservation = job, view.reserve(job)
        self._promise(promised, reservation)
        fresh, self._fresh = self._fresh, []
        view.pend_newcomers(fresh)

    def _promise(self, job: Job | None, reservation: Reservation | None) -> None:
        if self._promised is not None:
            self._promised.reserved_us = None
        self._promised = job
        if job is not None:
            job.reserved_us = None if reservation is None else reservation.at_us

    def next_due(self, now_us: int) -> int | None:
        """See :class:`Picker`; the next time that age raises a job."""
        return self._queue.next_rise_us(now_us)

    def place(self, job: Job) -> int:
        """See :class:`Picker`; the place in the job's own lane."""
        return 1 + sum(1 for seq, _ in self._queue.lane_of(job).jobs if seq < job.seq)

    def save(self) -> bytes:
        """See :class:`Picker`."""
        saved = self._queue.save()
        try:
            return msgspec.msgpack.encode(saved)
        except OverflowError:  # of weights that have no small common multiple; JSON counts as far as one likes
            return msgspec.json.encode(saved)

    def load(self, saved: bytes) -> None:
        """See :class:`Picker`."""
        decode = msgspec.json.decode if saved.startswith(b"{") else msgspec.msgpack.decode
        self._queue.load(decode(saved, type=SavedQueue))
