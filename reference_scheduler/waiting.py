"""Waiting: for what happens to a job, and so that a cancellation does not cut it short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Waiters(Generic[_Value]):
    """Those who wait for one thing to happen to a job; who is cancelled is forgotten."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[_Value]]] = {}

    def wait_for(self, job: str) -> asyncio.Future[_Value]:
        """Return a future that is done when it happens to ``job``."""
        future: asyncio.Future[_Value] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, []).append(future)
        future.add_done_callback(lambda _: self._forget(job, future))
        return future

    def _forget(self, job: str, future: asyncio.Future[_Value]) -> None:
        waiting = self._waiting.get(job, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[job]

    def tell(self, job: str, value: _Value) -> None:
        """Say that it has happened to ``job``, and with what."""
        if self._waiting:
            for future in self._waiting.pop(job, ()):
                if not future.done():
                    future.set_result(value)

    def refuse(self, error: Exception) -> None:
        """Say that it will happen to none of the jobs."""
        for future in [future for waiting in self._waiting.values() for future in waiting]:
            if not future.done():
                future.set_exception(error)


async def outlast(over: asyncio.Event, end: Callable[[], object]) -> None:
    """Wait until ``over`` is set; whoever is cancelled meanwhile calls ``end``, and still waits, first."""
    cancelled = False
    while not over.is_set():
        try:
            await over.wait()
        except asyncio.CancelledError:
            cancelled = True
            end()
    if cancelled:
        raise asyncio.CancelledError
