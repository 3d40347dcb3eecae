"""Quantities of the five resource dimensions, and their packed form.

An *amount* holds all five dimensions in one integer: a lane of 32 bits each, of which the top one is a
guard that stays clear. Adding, subtracting and comparing all dimensions at once is then one integer
operation each, which keeps the inner loops of the pickers short and fast, and makes "all dimensions or
none" the only thing that can be said.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

Amount: TypeAlias = int
Share: TypeAlias = tuple[str, Amount]
"""A worker, and what it gives."""

LANE_BITS = 32
MAX_QUANTITY = (1 << (LANE_BITS - 1)) - 1


class Resources(NamedTuple):
    """One quantity per dimension: plain counts, except ``memory_mb_hint`` in MiB."""

    cpu_weight: int = 0
    memory_mb_hint: int = 0
    process_slots: int = 0
    io_weight: int = 0
    network_slots: int = 0


DIMENSIONS: tuple[str, ...] = Resources._fields
GUARD: Amount = sum(1 << (LANE_BITS * lane + LANE_BITS - 1) for lane in range(len(DIMENSIONS)))


@lru_cache(maxsize=4096)
def pack(resources: Resources) -> Amount:
    """Return ``resources`` as one amount.

    Raises:
        ValueError: a quantity is negative or above ``MAX_QUANTITY``.
    """
    amount = 0
    for lane, quantity in enumerate(resources):
        if not 0 <= quantity <= MAX_QUANTITY:
            raise ValueError(f"{DIMENSIONS[lane]} must be between 0 and {MAX_QUANTITY}, got {quantity}")
        amount |= quantity << (LANE_BITS * lane)
    return amount


@lru_cache(maxsize=4096)
def unpack(amount: Amount) -> Resources:
    """Return the five quantities of ``amount``."""
    return Resources(*((amount >> (LANE_BITS * lane)) & MAX_QUANTITY for lane in range(len(DIMENSIONS))))


def fits(need: Amount, free: Amount) -> bool:
    """Return whether ``need`` is at most ``free`` in every dimension.

    A lane that would go below zero borrows its own guard bit, and only that.
    """
    return ((free | GUARD) - need) & GUARD == GUARD


def monus(left: Amount, right: Amount) -> Amount:
    """Return ``max(left - right, 0)`` for each dimension."""
    return pack(Resources(*(max(a - b, 0) for a, b in zip(unpack(left), unpack(right), strict=True))))


@lru_cache(maxsize=4096)
def shortfall(need: Amount, free: Amount) -> str:
    """Say which dimensions of ``need`` exceed ``free``, the sum over all workers, with both numbers."""
    pairs = zip(DIMENSIONS, unpack(need), unpack(free), strict=True)
    lacking = [f"{wanted} {name} with {left} free" for name, wanted, left in pairs if wanted > left]
    if not lacking:
        return f"needs {unpack(need).process_slots} process_slots together, no worker has the room"
    return "needs " + " and ".join(lacking)
