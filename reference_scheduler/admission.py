"""Permits: what may use how much of the machine, each given back exactly once.

:class:`AdmissionController` is for code that wants permits without jobs; it accounts with the core's own ledger.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import NoReturn, Self, TypeAlias

import msgspec

from reference_scheduler.core.amounts import Resources, fits, pack, shortfall, unpack
from reference_scheduler.core.ledger import Ledger
from reference_scheduler.core.model import LOCAL, Config, ResourceRequest
from reference_scheduler.errors import SchedulerError


class NotAdmittedError(SchedulerError):
    """A ``with`` block needed a permit that was not given; ``outcome`` says what was asked for and what is there."""

    code = "not_admitted"

    def __init__(self, outcome: TemporarilyBlocked | Impossible) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Permit:
    """The right to use ``request`` until :meth:`release`, which takes effect once, from whatever thread.

    As a context manager it is released at the end of the block. One that is forgotten is released when it is
    collected, with a ResourceWarning.
    """

    def __init__(self, request: ResourceRequest, on_release: Callable[[], None]) -> None:
        self.request = request
        self._duty = [on_release]

    @property
    def live(self) -> bool:
        """Whether it still holds what it was given."""
        return bool(self._duty)

    def release(self) -> bool:
        """Give everything back; return whether this call did it."""
        try:
            on_release = self._duty.pop()  # whoever gets it, and nobody else, has to call it
        except IndexError:
            return False
        on_release()
        return True

    def detach(self) -> Permit:
        """Move what is held into a new permit, which the caller has to release; this one is live no longer.

        Raises:
            ValueError: it is not live.
        """
        try:
            return Permit(self.request, self._duty.pop())
        except IndexError:
            raise ValueError("the permit has been released or detached already") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        if self.live:
            warnings.warn(f"a permit was never released: {self.request}", ResourceWarning, stacklevel=2, source=self)
            self.release()


class Admitted(msgspec.Struct, frozen=True):
    """The request was granted, whole."""

    permit: Permit

    def __enter__(self) -> Permit:
        return self.permit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.permit.release()


class TemporarilyBlocked(msgspec.Struct, frozen=True):
    """Not now: others hold some of what was ``requested``; of the rest ``available`` is there."""

    requested: ResourceRequest
    available: Resources
    reason: str

    def __enter__(self) -> NoReturn:
        raise NotAdmittedError(self)

    def __exit__(self, *_: object) -> None:
        """Nothing was entered."""


class Impossible(msgspec.Struct, frozen=True):
    """Never: more was ``requested`` than the whole ``budget``."""

    requested: ResourceRequest
    budget: Resources
    reason: str

    def __enter__(self) -> NoReturn:
        raise NotAdmittedError(self)

    def __exit__(self, *_: object) -> None:
        """Nothing was entered."""


Outcome: TypeAlias = Admitted | TemporarilyBlocked | Impossible


class AdmissionController:
    """Gives permits for a ``budget``: all dimensions and keys of a request at once, or nothing. Thread-safe."""

    def __init__(self, budget: Resources | None = None) -> None:
        self._ledger = Ledger()
        self._lock = threading.Lock()
        self._returned: deque[tuple[str, ResourceRequest]] = deque()
        self._count = 0
        self.set_budget(budget or Config().resources or Resources())

    def try_admit(self, request: ResourceRequest) -> Outcome:
        """Decide about ``request`` now. The outcome is a context manager that gives the permit.

        Raises:
            ValueError: a quantity is negative or too large to be counted.
            NotAdmittedError: on entering an outcome that is not :class:`Admitted`.
        """
        need = pack(request.resources)
        with self._lock:
            self._settle()
            budget, free = self._ledger.capacity[LOCAL], self._ledger.free[LOCAL]
            if not fits(need, budget):
                return Impossible(request, unpack(budget), shortfall(need, budget))
            if key := self._ledger.held_key(request.keys):
                return TemporarilyBlocked(request, unpack(free), f"{key} is held by another")
            if not fits(need, free):
                return TemporarilyBlocked(request, unpack(free), shortfall(need, free))
            self._count += 1
            holder = str(self._count)
            self._ledger.acquire(holder, ((LOCAL, need),), request.keys)
        return Admitted(Permit(request, partial(self._returned.append, (holder, request))))

    def set_budget(self, budget: Resources) -> None:
        """Change the budget; below what is held it admits nothing until enough has come back."""
        with self._lock:
            self._ledger.set_worker(LOCAL, budget, True)

    @property
    def available(self) -> Resources:
        """What could be given now."""
        with self._lock:
            self._settle()
            return unpack(self._ledger.free[LOCAL])

    def _settle(self) -> None:
        """Take back what was returned; a permit may be collected while this very thread holds the lock."""
        while self._returned:
            holder, request = self._returned.popleft()
            self._ledger.release(holder, ((LOCAL, pack(request.resources)),), request.keys)
