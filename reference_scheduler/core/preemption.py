"""Which attempts make way for a blocked job of a higher class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from reference_scheduler.core.allocators import Allocator
from reference_scheduler.core.amounts import unpack
from reference_scheduler.core.ledger import Ledger
from reference_scheduler.core.model import RANK, Attempt, Job

MOST_EXACT = 3
"""Up to this many victims the fewest are found for certain, above by a greedy choice."""

Candidate = tuple[Job, Attempt]


def choose_victims(job: Job, live: Sequence[Job], ledger: Ledger, allocator: Allocator) -> list[Candidate]:
    """Return the fewest attempts whose end lets ``job`` start; of those the cheapest, then the youngest.

    Only preemptible attempts of a lower class are taken, and no job twice in its life, so preemption cannot
    go round in circles. Cheap means holding little, all victims together. The result is empty if no choice would do.
    """
    candidates = sorted(
        (
            (other, other.attempt)
            for other in live
            if other.attempt is not None and _may_be_displaced(other, other.attempt, job)
        ),
        key=lambda pair: (_cost(pair), -pair[1].started_us, -pair[0].seq),
    )
    if not _suffices(job, candidates, ledger, allocator):
        return []
    priced = [(_cost(candidate), candidate) for candidate in candidates]
    for size in range(1, min(MOST_EXACT, len(candidates)) + 1):
        cheapest = _cheapest(job, priced, size, ledger, allocator)
        if cheapest:
            return cheapest
    victims = list(candidates)
    for candidate in reversed(candidates):
        fewer = [victim for victim in victims if victim is not candidate]
        if _suffices(job, fewer, ledger, allocator):
            victims = fewer
    return victims


def _cheapest(
    job: Job, priced: Sequence[tuple[int, Candidate]], size: int, ledger: Ledger, allocator: Allocator
) -> list[Candidate]:
    """Return the ``size`` of ``priced``, sorted by price, that cost the least together and are enough; else nothing."""
    best: list[Candidate] = []
    least = 0
    for chosen in combinations(priced, size):
        if best and size * chosen[0][0] >= least:
            break  # none is cheaper than the first, and in all that follow that is no cheaper
        cost = sum(price for price, _ in chosen)
        victims = [candidate for _, candidate in chosen]
        if (not best or cost < least) and _suffices(job, victims, ledger, allocator):
            best, least = victims, cost
    return best


def _cost(candidate: Candidate) -> int:
    """Return how much it holds, all dimensions together."""
    return sum(sum(unpack(amount)) for _, amount in candidate[0].shares)


def _may_be_displaced(other: Job, attempt: Attempt, job: Job) -> bool:
    return (
        other.spec.preemptible
        and not other.preempted
        and not attempt.stopping
        and RANK[other.spec.priority] > RANK[job.spec.priority]
    )


def _suffices(job: Job, victims: Sequence[Candidate], ledger: Ledger, allocator: Allocator) -> bool:
    held = {key for key in job.keys if key in ledger.holders}
    for _, attempt in victims:
        held.difference_update(attempt.keys)
    free = ledger.free_without(share for victim, _ in victims for share in victim.shares)
    return not held and allocator.place(job.need, job.spec.tasks, free) is not None
