"""A picker and an allocator, as another distribution would provide them."""

from __future__ import annotations

from collections.abc import Mapping

from reference_scheduler.core.amounts import Amount, fits, unpack
from reference_scheduler.core.model import Job
from reference_scheduler.core.pickers import OrderedPicker


class WidestPicker(OrderedPicker):
    """The job with the most process slots first; of equals, the one submitted first."""

    name = "widest"

    def score(self, job: Job) -> int:
        """See :class:`OrderedPicker`: the lowest goes first."""
        return -unpack(job.total).process_slots


class BestFitAllocator:
    """All tasks go to the worker that has the fewest process slots left over, of equals the first."""

    name = "best-fit"

    def place(self, need: Amount, tasks: int, free: Mapping[str, Amount]) -> tuple[tuple[str, Amount], ...] | None:
        """See :class:`reference_scheduler.core.allocators.Allocator`."""
        total = need * tasks
        able = [worker for worker, amount in free.items() if fits(total, amount)]
        if not able:
            return None
        return ((min(able, key=lambda worker: unpack(free[worker]).process_slots), total),)
