"""The default picker: weighted classes, round robin lanes, and one reservation for a blocked head."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from reference_scheduler.core.fair_queue import FairQueue, Lane, SavedQueue
from reference_scheduler.core.model import Attempt, Fairness, Job, PendReason
from reference_scheduler.core.passes import PASSED_OVER, Pass, Reservation


class _Saved(msgspec.Struct, frozen=True):
    queue: SavedQueue
    holder: int | None


class FairPicker:
    """Serves lanes in the order of :class:`FairQueue`.

    The first job whose turn it is and that does not fit becomes the *holder*: it keeps a reservation, as the
    head does in EASY, until it starts, so small jobs pass it only where they cannot delay it.
    """

    name: ClassVar[str] = "fair"

    def __init__(self) -> None:
        self._queue = FairQueue()
        self._holder: Job | None = None

    def configure(self, fairness: Fairness) -> None:
        """See :class:`Picker`."""
        self._queue.configure(fairness)

    def add(self, job: Job) -> None:
        """See :class:`Picker`."""
        self._queue.add(job)

    def remove(self, job: Job) -> None:
        """See :class:`Picker`."""
        self._queue.remove(job)
        if job is self._holder:
            self._holder = None

    def ended(self, job: Job, attempt: Attempt, now_us: int) -> None:
        """See :class:`Picker`; nothing is kept about attempts."""

    def capacity_changed(self) -> None:
        """See :class:`Picker`; nothing is kept about capacity."""

    def run(self, view: Pass) -> None:
        """See :class:`Picker`."""
        reservation = self._serve_holder(view)
        lanes = self._queue.lanes()
        while (lane := self._queue.next_lane(lanes, view.now_us)) is not None:
            job = lane.head
            lanes.remove(lane)
            reason = view.start(job) if reservation is None else view.backfill(job, reservation)
            if reason is None:
                self._serve(view, lane)
                if lane.jobs:
                    lanes.append(lane)
                continue
            view.pend(job, reason)
            if reservation is None and reason not in PASSED_OVER and reason is not PendReason.BATCH:
                reservation = self._hold(view, job)
        for lane in self._queue.lanes():
            self._pend_followers(view, lane)

    def _serve_holder(self, view: Pass) -> Reservation | None:
        holder = self._holder
        if holder is None:
            return None
        lane = self._queue.lane_of(holder)
        if lane.head is not holder:
            self._let_go()  # an older job of its lane came back and has the turn
            return None
        reason = view.start(holder)
        if reason is None:
            self._serve(view, lane)
            return None
        view.pend(holder, reason)
        if reason in PASSED_OVER:
            self._let_go()
            return None
        return self._hold(view, holder)

    def _hold(self, view: Pass, job: Job) -> Reservation | None:
        reservation = view.reserve(job)
        self._holder = None if reservation is None else job
        job.reserved_us = None if reservation is None else reservation.at_us
        return reservation

    def _let_go(self) -> None:
        if self._holder is not None:
            self._holder.reserved_us = None
            self._holder = None

    def _serve(self, view: Pass, lane: Lane) -> None:
        if lane.head is self._holder:
            self._holder = None
        self._queue.serve(lane, view.now_us)

    def _pend_followers(self, view: Pass, lane: Lane) -> None:
        for _, job in reversed(lane.jobs):
            if job.reason is not None:
                break  # those before it came earlier and were told
            view.pend(job, PendReason.BEHIND)

    def next_due(self, now_us: int) -> int | None:
        """See :class:`Picker`; the next time that age raises a job."""
        return self._queue.next_rise_us(now_us)

    def place(self, job: Job) -> int:
        """See :class:`Picker`; the place in the job's own lane."""
        return 1 + sum(1 for seq, _ in self._queue.lane_of(job).jobs if seq < job.seq)

    def save(self) -> bytes:
        """See :class:`Picker`."""
        holder = self._holder
        return msgspec.msgpack.encode(_Saved(self._queue.save(), None if holder is None else holder.seq))

    def load(self, saved: bytes) -> None:
        """See :class:`Picker`."""
        state = msgspec.msgpack.decode(saved, type=_Saved)
        self._queue.load(state.queue)
        queued = (job for lane in self._queue.lanes() for _, job in lane.jobs)
        self._holder = next((job for job in queued if job.seq == state.holder), None)
