"""Allocators choose the workers of a job.

A new one is a class with the two members below, registered under the entry point group
``spawngate.allocators``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from reference_scheduler.core.allocators.parallel import ParallelAllocator
from reference_scheduler.core.allocators.sequential import SequentialAllocator
from reference_scheduler.core.amounts import Amount

__all__ = ["ALLOCATORS", "Allocator", "ParallelAllocator", "SequentialAllocator"]


class Allocator(Protocol):
    """A pure function from free resources to a placement."""

    name: str

    def place(self, need: Amount, tasks: int, free: Mapping[str, Amount]) -> tuple[tuple[str, Amount], ...] | None:
        """Return which worker gives how much to a job of ``tasks`` tasks of ``need`` each.

        All tasks or none: the amounts sum to ``need * tasks``, each fits in the ``free`` of its worker, each
        worker is named once, in the order of ``free``. ``None`` if there is no such placement. More free
        resources never turn a placement into ``None``.
        """
        ...


ALLOCATORS: Mapping[str, Callable[[], Allocator]] = {
    SequentialAllocator.name: SequentialAllocator,
    ParallelAllocator.name: ParallelAllocator,
}
