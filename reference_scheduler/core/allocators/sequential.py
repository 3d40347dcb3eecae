"""The whole job on one worker."""

from __future__ import annotations

from collections.abc import Mapping

from reference_scheduler.core.amounts import GUARD, Amount


class SequentialAllocator:
    """All tasks go to the first worker, in order of registration, that has room for all of them."""

    name = "sequential"

    def place(self, need: Amount, tasks: int, free: Mapping[str, Amount]) -> tuple[tuple[str, Amount], ...] | None:
        """See :class:`reference_scheduler.core.allocators.Allocator`."""
        total = need * tasks
        for worker, amount in free.items():
            if ((amount | GUARD) - total) & GUARD == GUARD:  # fits, written out: this runs for each job tried
                return ((worker, total),)
        return None
