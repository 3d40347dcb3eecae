"""Who holds what: the resources of each worker, and the exclusivity keys."""

from __future__ import annotations

from collections.abc import Iterable

from reference_scheduler.core.amounts import Amount, Resources, Share, fits, monus, pack, unpack
from reference_scheduler.core.invariants import invariant, violated
from reference_scheduler.core.model import Attempt


class Ledger:
    """Resources held are the sum over live attempts, never above capacity when granted, never negative.

    ``free`` has, in order of registration, what each worker that takes work could still give. A worker whose
    capacity was set below its use is overdrawn: it gives nothing in that dimension until it is back under.
    ``available`` is what ``free`` would be if nothing ran, ``room`` the sum of ``free``.
    """

    def __init__(self) -> None:
        self.capacity: dict[str, Amount] = {}
        self.used: dict[str, Amount] = {}
        self.accepting: dict[str, bool] = {}
        self.holders: dict[str, str] = {}
        self.free: dict[str, Amount] = {}
        self.available: dict[str, Amount] = {}
        self.room: Amount = 0

    def set_worker(self, worker: str, capacity: Resources, accepting: bool) -> None:
        """Register ``worker``, or change what it has."""
        self.capacity[worker] = pack(capacity)
        self.used.setdefault(worker, 0)
        self.accepting[worker] = accepting
        self._refresh()

    def lose_worker(self, worker: str) -> None:
        """Forget ``worker``, which nothing may hold any more."""
        invariant(self.used.pop(worker) == 0, "a lost worker is still held", worker)
        del self.capacity[worker], self.accepting[worker]
        self._refresh()

    def _refresh(self) -> None:
        self.free = {
            worker: monus(capacity, self.used[worker])
            for worker, capacity in self.capacity.items()
            if self.accepting[worker]
        }
        self.available = {worker: self.capacity[worker] for worker in self.free}
        self.room = sum(self.free.values())

    def held_key(self, keys: Iterable[str]) -> str | None:
        """Return the first of ``keys`` that has a holder."""
        return next((key for key in keys if key in self.holders), None)

    def acquire(self, job: str, shares: Iterable[Share], keys: Iterable[str]) -> None:
        """Give ``job`` all of ``shares`` and ``keys``, which must be free."""
        for worker, amount in shares:
            free = self.free[worker]
            if not fits(amount, free):
                violated("granted more than is free", job, worker, unpack(amount), unpack(free))
            self.used[worker] += amount
            self.free[worker] = free - amount
            self.room -= amount
        for key in keys:
            invariant(key not in self.holders, "an exclusivity key has two holders", key, job)
            self.holders[key] = job

    def release(self, job: str, shares: Iterable[Share], keys: Iterable[str]) -> None:
        """Take back what ``job`` holds."""
        for worker, amount in shares:
            used = self.used[worker]
            if not fits(amount, used):
                violated("released more than was held", job, worker)
            self.used[worker] = used = used - amount
            if worker in self.free:
                capacity = self.capacity[worker]
                free = capacity - used if fits(used, capacity) else monus(capacity, used)
                self.room += free - self.free[worker]
                self.free[worker] = free
        for key in keys:
            invariant(self.holders.pop(key, None) == job, "released a key it does not hold", key, job)

    def free_without(self, shares: Iterable[Share]) -> dict[str, Amount]:
        """Return what would be free if all of ``shares``, which are held now, were given back."""
        used, free = dict(self.used), dict(self.free)
        for worker, amount in shares:
            used[worker] -= amount
            if worker in free:
                free[worker] = monus(self.capacity[worker], used[worker])
        return free

    def load(self, live: Iterable[tuple[str, Attempt]]) -> None:
        """Take over what the ``live`` attempts hold, also where a worker is overdrawn."""
        self.used, self.holders = self._derive(live)
        self._refresh()

    def audit(self, live: Iterable[tuple[str, Attempt]]) -> None:
        """Recompute everything from the ``live`` attempts and compare."""
        used, holders = self._derive(live)
        invariant(holders == self.holders, "key holders are not those of live attempts", holders, self.holders)
        invariant(used == self.used, "resources held are not the sum over live attempts", used, self.used)
        for worker, free in self.free.items():
            expected = monus(self.capacity[worker], used[worker])
            invariant(free == expected, "free is not capacity less use", worker)
        invariant(self.room == sum(self.free.values()), "room is not the sum of what is free", self.room)

    def _derive(self, live: Iterable[tuple[str, Attempt]]) -> tuple[dict[str, Amount], dict[str, str]]:
        used: dict[str, Amount] = dict.fromkeys(self.capacity, 0)
        holders: dict[str, str] = {}
        for job, attempt in live:
            for worker, amount in attempt.shares:
                used[worker] += amount
            for key in attempt.keys:
                invariant(key not in holders, "an exclusivity key has two holders", key)
                holders[key] = job
        return used, holders
