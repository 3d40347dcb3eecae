"""A gang of tasks over several workers."""

from __future__ import annotations

from collections.abc import Mapping

from reference_scheduler.core.amounts import Amount, unpack


class ParallelAllocator:
    """Workers are filled in order of registration; the job starts on all of them or not at all."""

    name = "parallel"

    def place(self, need: Amount, tasks: int, free: Mapping[str, Amount]) -> tuple[tuple[str, Amount], ...] | None:
        """See :class:`reference_scheduler.core.allocators.Allocator`."""
        shares: list[tuple[str, Amount]] = []
        wanted = unpack(need)
        for worker, amount in free.items():
            room = min(
                (left // want for want, left in zip(wanted, unpack(amount), strict=True) if want),
                default=tasks,
            )
            if room:
                taken = min(room, tasks)
                shares.append((worker, need * taken))
                tasks -= taken
                if not tasks:
                    return tuple(shares)
        return None
