"""Pickers that order the queue by a score.

Logarithms are computed in integers, so that every platform gives the same order.
"""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from reference_scheduler.core.amounts import unpack
from reference_scheduler.core.model import SECOND_US, Job
from reference_scheduler.core.passes import Pass
from reference_scheduler.core.pickers.base import OrderedPicker

_FRACTION_BITS = 24


def log2_fixed(number: int) -> int:
    """Return ``log2(number)`` in units of 2**-24, rounded down, for ``number`` >= 1.

    Digit by digit: squaring a number in [1, 2) doubles its logarithm.
    """
    whole = number.bit_length() - 1
    mantissa = (number << 63) >> whole
    result = whole
    for _ in range(_FRACTION_BITS):
        mantissa = mantissa * mantissa >> 63
        carry = mantissa >> 64
        result = result << 1 | carry
        mantissa >>= carry
    return result


def _seconds_log2(time_us: int) -> int:
    return log2_fixed(max(time_us, 1)) - log2_fixed(SECOND_US)


def _width(job: Job) -> int:
    """Return the number of processors ``n``."""
    return max(unpack(job.total).process_slots, 1)


class FcfsPicker(OrderedPicker):
    """First come, first served."""

    name = "fcfs"


class SjfPicker(OrderedPicker):
    """Shortest estimate first."""

    name = "sjf"

    def score(self, job: Job) -> int:
        """See :class:`OrderedPicker`."""
        return job.estimate_us


class F1Picker(OrderedPicker):
    """``log10(r)·n + 870·log10(s)``, ``r`` estimate and ``s`` submission in seconds, ``n`` processors.

    Source: Carastan-Santos and de Camargo, "Obtaining dynamic scheduling policies with simulation and machine
    learning", SC'17. All logarithms are to base 2 here, which scales every score alike.
    """

    name = "f1"

    def score(self, job: Job) -> int:
        """See :class:`OrderedPicker`."""
        return _seconds_log2(job.estimate_us) * _width(job) + 870 * _seconds_log2(job.submitted_us)


class WaitingPicker(OrderedPicker):
    """Base of the pickers whose score depends on the time waited, so that each pass sorts anew."""

    _now_us = 0

    @abstractmethod
    def score_at(self, job: Job, waited_us: int) -> int:
        """Return the score of ``job`` after ``waited_us``, lowest first."""

    def score(self, job: Job) -> int:
        """See :class:`OrderedPicker`; as of the last pass."""
        return self.score_at(job, max(self._now_us - job.submitted_us, 0))

    def run(self, view: Pass) -> None:
        """See :class:`OrderedPicker`."""
        self._sort(view.now_us)
        super().run(view)

    def save(self) -> bytes:
        """See :class:`Picker`: the time of the last pass, by which the queue is sorted."""
        return msgspec.msgpack.encode(self._now_us)

    def load(self, saved: bytes) -> None:
        """See :class:`Picker`."""
        self._sort(msgspec.msgpack.decode(saved, type=int))

    def _sort(self, now_us: int) -> None:
        self._now_us = now_us
        self._queue, self._gone = sorted((self.score(job), job.seq, job) for job in self._waiting()), 0


class Wfp3Picker(WaitingPicker):
    """``-(w/r)³·n``: ``w`` waited, ``r`` estimate, ``n`` processors.

    Source: Tang, Lan, Desai and Buettner, "Fault-aware, utility-based job scheduling on Blue Gene/P",
    CLUSTER'09.
    """

    name = "wfp3"

    def score_at(self, job: Job, waited_us: int) -> int:
        """See :class:`WaitingPicker`; in units of 2**-64."""
        return -((waited_us**3 * _width(job) << 64) // max(job.estimate_us, 1) ** 3)


class UnicepPicker(WaitingPicker):
    """``-w/(log2(n)·r)``; a job of one processor, whose logarithm is 0, comes before all others.

    Source: as for :class:`Wfp3Picker`.
    """

    name = "unicep"

    def score_at(self, job: Job, waited_us: int) -> int:
        """See :class:`WaitingPicker`; in units of 2**-40."""
        scale = log2_fixed(_width(job)) * max(job.estimate_us, 1)
        return -((waited_us << 64) // scale) if scale else -(1 << 200)
