"""Conservative backfilling: every waiting job has a reservation.

Source: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001. The profile is of the machine as a whole: with several
workers a reserved time may come without one worker having the room, and the job then waits for the next end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import msgspec

from reference_scheduler.core.amounts import Amount, fits, monus
from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.model import FOREVER_US, Attempt, Job, PendReason
from reference_scheduler.core.passes import PASSED_OVER, Pass
from reference_scheduler.core.pickers.base import OrderedPicker


class Profile:
    """What is free from each of the sorted ``times`` on, until the next; the last holds for ever."""

    def __init__(self, start_us: int, free: Amount) -> None:
        self.times = [start_us]
        self.free = [free]

    def forget_before(self, now_us: int) -> None:
        """Drop what is past."""
        index = bisect_right(self.times, now_us) - 1
        if index > 0:
            del self.times[:index], self.free[:index]
        self.times[0] = max(self.times[0], now_us)

    def earliest(self, need: Amount, duration_us: int, from_us: int) -> int:
        """Return the first time from ``from_us`` on at which ``need`` is free for ``duration_us``."""
        times, free = self.times, self.free
        index = max(bisect_right(times, from_us) - 1, 0)
        start = from_us
        while index < len(times):
            if not fits(need, free[index]):
                invariant(index + 1 < len(times), "a job that can run never fits the profile")
                start = times[index + 1]
            elif index + 1 == len(times) or times[index + 1] >= start + duration_us:
                break
            index += 1
        return start

    def take(self, need: Amount, start_us: int, end_us: int) -> None:
        """Reserve ``need`` from ``start_us`` to ``end_us``."""
        for index in self._span(start_us, end_us):
            invariant(fits(need, self.free[index]), "the profile is overbooked", self.times[index])
            self.free[index] -= need
        self._merge(start_us, end_us)

    def give(self, need: Amount, start_us: int, end_us: int) -> None:
        """Undo :meth:`take`."""
        for index in self._span(start_us, end_us):
            self.free[index] += need
        self._merge(start_us, end_us)

    def _span(self, start_us: int, end_us: int) -> range:
        start_us = max(start_us, self.times[0])  # what is past is no longer kept
        if end_us <= start_us:
            return range(0)
        return range(self._cut(start_us), self._cut(end_us))

    def _cut(self, at_us: int) -> int:
        index = bisect_left(self.times, at_us)
        if index == len(self.times) or self.times[index] != at_us:
            self.times.insert(index, at_us)
            self.free.insert(index, self.free[index - 1])
        return index

    def _merge(self, *cuts: int) -> None:
        for at_us in cuts:
            index = bisect_left(self.times, at_us)
            if 0 < index < len(self.times) and self.free[index] == self.free[index - 1]:
                del self.times[index], self.free[index]


class ConservativePicker(OrderedPicker):
    """At submission a job gets the earliest slot in the profile; it starts when that time has come.

    When an attempt ends early its tail is given back, and each waiting job, in order of submission, is taken
    out and put into its earliest slot again, so no reservation ever moves back.
    """

    name = "conservative"

    def __init__(self) -> None:
        super().__init__()
        self._profile: Profile | None = None
        self._held: dict[str, tuple[int, Amount]] = {}
        self._unplaced: list[tuple[int, Job]] = []

    def add(self, job: Job) -> None:
        """See :class:`Picker`."""
        super().add(job)
        insort(self._unplaced, (job.seq, job))

    def remove(self, job: Job) -> None:
        """See :class:`Picker`."""
        super().remove(job)
        index = bisect_left(self._unplaced, (job.seq,))
        if self._unplaced[index : index + 1] == [(job.seq, job)]:
            del self._unplaced[index]
        self.capacity_changed()

    def capacity_changed(self) -> None:
        """See :class:`Picker`; all reservations are made anew by the next pass."""
        self._profile = None

    def ended(self, job: Job, attempt: Attempt, now_us: int) -> None:
        """See :class:`Picker`."""
        if self._profile is None:
            return
        end_us, amount = self._held.pop(job.spec.id)
        if amount != sum(given for _, given in attempt.shares):
            self.capacity_changed()
        elif end_us > now_us:
            self._profile.forget_before(now_us)
            self._profile.give(amount, now_us, end_us)
            self._compress(self._profile, now_us)

    def _compress(self, profile: Profile, now_us: int) -> None:
        waiting = self._waiting()
        if any(job.reserved_us is not None and job.reserved_us < now_us for job in waiting):
            self._profile = None  # no pass was made at that time, so what was planned cannot be held
            return
        for job in waiting:
            reserved_us = job.reserved_us
            if reserved_us is not None:
                profile.give(job.total, reserved_us, _until(job, reserved_us))
                start_us = self._put(profile, job, now_us)
                invariant(start_us <= reserved_us, "a reservation moved back", job.spec.id)

    def _put(self, profile: Profile, job: Job, now_us: int) -> int:
        job.reserved_us = start = profile.earliest(job.total, _length(job), now_us)
        profile.take(job.total, start, _until(job, start))
        return start

    def _rebuild(self, view: Pass) -> Profile:
        """Return a profile of what runs; an attempt past its estimate counts as never ending.

        Of what overdraws the machine the profile has only the part that fits.
        """
        profile = Profile(view.now_us, sum(view.ledger.available.values()))
        self._held = {}
        for end_us, _, job in view.ends:
            until = end_us if end_us > view.now_us else FOREVER_US
            amount = _on(view, job)
            amount -= monus(amount, profile.free[0])
            self._held[job.spec.id] = (until, amount)
            profile.take(amount, view.now_us, until)
        self._unplaced = [(job.seq, job) for job in self._waiting()]
        for _, job in self._unplaced:
            job.reserved_us = None
        return profile

    def run(self, view: Pass) -> None:
        """See :class:`Picker`."""
        again = True
        while again:
            if self._profile is None:
                self._profile = self._rebuild(view)
            self._profile.forget_before(view.now_us)
            self._place(view, self._profile)
            again = self._start_due(view)
        self.pend_newcomers(view)

    def _place(self, view: Pass, profile: Profile) -> None:
        """Give reservations to the jobs that have none, except those that could not use it."""
        unplaced, self._unplaced = self._unplaced, []
        for seq, job in unplaced:
            held = view.held(job)
            if held is not None:
                view.pend(job, held)
                self._unplaced.append((seq, job))
            elif view.possible(job.need, job.spec.tasks):
                self._put(profile, job, view.now_us)
            else:
                view.pend(job, PendReason.TOO_LARGE)

    def _start_due(self, view: Pass) -> bool:
        """Start the jobs whose time has come.

        Return whether one is held instead: it then gave up its reservation, so others may be due now.
        """
        index = self._gone
        while index < len(self._queue):
            job = self._queue[index][2]
            if job.reserved_us is None or job.reserved_us > view.now_us:
                index += 1
                continue
            reserved_us = job.reserved_us
            reason = view.start(job)
            if reason is None:
                self._held[job.spec.id] = (_until(job, reserved_us), job.total)
                index = self._take_out(index)
                if reserved_us < view.now_us:
                    self._profile = None  # it ends later than was planned
                continue
            view.pend(job, reason)
            if reason in PASSED_OVER:
                self._give_up(job, view.now_us)
                return True
            self._profile = None  # what it waits for is not in the profile
            index += 1
        return False

    def _give_up(self, job: Job, now_us: int) -> None:
        """Take back the reservation of a job that is held, and let the others move up."""
        reserved_us, job.reserved_us = job.reserved_us, None
        if self._profile is not None and reserved_us is not None:
            insort(self._unplaced, (job.seq, job))
            self._profile.give(job.total, reserved_us, _until(job, reserved_us))
            self._compress(self._profile, now_us)

    def next_due(self, now_us: int) -> int | None:
        """See :class:`Picker`; the first reserved time to come."""
        times = (job.reserved_us for job in self._waiting() if job.reserved_us is not None)
        return min((time for time in times if now_us < time < FOREVER_US), default=None)

    def save(self) -> bytes:
        """See :class:`Picker`."""
        profile = self._profile
        saved = None if profile is None else (profile.times, profile.free)
        return msgspec.json.encode((saved, list(self._held.items()), [seq for seq, _ in self._unplaced]))

    def load(self, saved: bytes) -> None:
        """See :class:`Picker`."""
        profile, held, unplaced = msgspec.json.decode(saved, type=_Saved)
        self._profile = None
        if profile is not None:
            self._profile = Profile(0, 0)
            self._profile.times, self._profile.free = profile
        self._held = dict(held)
        self._unplaced = [entry for entry in self._unplaced if entry[0] in unplaced]


_Saved = tuple[tuple[list[int], list[Amount]] | None, list[tuple[str, tuple[int, Amount]]], set[int]]


def _length(job: Job) -> int:
    return max(job.estimate_us, 1)


def _until(job: Job, start_us: int) -> int:
    """Return when ``job`` ends if it starts then; what has no known end does so at ``FOREVER_US``."""
    return min(start_us + _length(job), FOREVER_US)


def _on(view: Pass, job: Job) -> Amount:
    """Return what ``job`` holds of workers that take work."""
    return sum(amount for worker, amount in job.shares if worker in view.ledger.free)
