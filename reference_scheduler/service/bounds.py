"""What one user, and all together, may ask for at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from reference_scheduler.service.errors import Busy


class Bounds(msgspec.Struct, frozen=True):
    """The bounds of a server.

    A user may send ``requests_per_s`` in the long run and ``burst`` of them at once; what comes faster is read
    later. Admin operations beyond ``admin_operations`` at a time are refused at once.
    """

    connections: int = 384
    connections_per_user: int = 128
    admin_operations: int = 4
    requests_per_s: int = 10_000
    burst: int = 1_000


class Places:
    """Places that are taken for a while, ``total`` in all and so many for each user."""

    def __init__(self, total: int, per_user: int) -> None:
        self._total = total
        self._per_user = per_user
        self._taken: Counter[int] = Counter()

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self._taken.total()

    @contextmanager
    def place(self, uid: int) -> Iterator[None]:
        """Hold a place for the user.

        Raises:
            Busy: there is none.
        """
        if self.taken >= self._total or self._taken[uid] >= self._per_user:
            raise Busy("server busy, try again")
        self._taken[uid] += 1
        try:
            yield
        finally:
            self._taken[uid] -= 1


class Rate:
    """A bucket that holds ``burst`` requests and fills at ``per_s``."""

    def __init__(self, per_s: int, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = float(burst)
        self._at_s = 0.0

    def take(self, now_s: float) -> float:
        """Take one request out at the time ``now_s``, and return the seconds it has to wait."""
        self._level = min(self._burst, self._level + max(0.0, now_s - self._at_s) * self._per_s) - 1
        self._at_s = now_s
        return max(0.0, -self._level / self._per_s)
