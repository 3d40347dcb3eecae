"""Tells observers what happens; one that is slow loses some of it and is told how much."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

import msgspec

from reference_scheduler.executors.base import Progress


class Notice(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, gc=False):
    """Something durable happened to a job, or something else is worth knowing.

    ``what`` is the new state of the job, or ``progress``, ``stale`` (a write under a token that is not good),
    ``lease_expired``, or ``journal`` (it could not be written). ``number`` counts the notices of a generation.
    """

    number: int
    at_us: int
    what: str
    job: str = ""
    attempt: int = 0
    detail: str = ""
    progress: Progress | None = None


class Gap(msgspec.Struct, frozen=True, tag=True):
    """``missed`` notices came faster than they were read."""

    missed: int


class Subscription:
    """An endless stream of notices, at most ``limit`` of them unread."""

    def __init__(self, observers: Observers, limit: int) -> None:
        self._observers = observers
        self._unread: deque[Notice] = deque()
        self._limit = limit
        self._missed = 0
        self._closed = False
        self._news = asyncio.Event()

    def put(self, notice: Notice) -> None:
        """Add ``notice``, or count it as missed: what is unread already is kept, so that the gap has one place."""
        if len(self._unread) >= self._limit or self._missed:
            self._missed += 1
        else:
            self._unread.append(notice)
        self._news.set()

    def close(self) -> None:
        """End the stream; what is unread can still be read."""
        self._closed = True
        self._observers.discard(self)
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice | Gap:
        while True:
            if self._unread:
                return self._unread.popleft()
            if self._missed:
                gap, self._missed = Gap(self._missed), 0
                return gap
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()


class Observers:
    """All who are told."""

    def __init__(self) -> None:
        self._all: list[Subscription] = []
        self._count = 0
        self._over = False

    def __bool__(self) -> bool:
        return bool(self._all)

    def subscribe(self, limit: int) -> Subscription:
        """Return a stream that begins now; when all have ended it has ended too."""
        subscription = Subscription(self, limit)
        if self._over:
            subscription.close()
        else:
            self._all.append(subscription)
        return subscription

    def discard(self, subscription: Subscription) -> None:
        """Tell ``subscription`` nothing more."""
        if subscription in self._all:
            self._all.remove(subscription)

    def tell(
        self, at_us: int, what: str, job: str = "", attempt: int = 0, detail: str = "", progress: Progress | None = None
    ) -> None:
        """Tell everybody, at once and without waiting for any of them."""
        self._count += 1
        notice = Notice(self._count, at_us, what, job, attempt, detail, progress)
        for subscription in self._all:
            subscription.put(notice)

    def close(self) -> None:
        """End all streams."""
        self._over = True
        for subscription in list(self._all):
            subscription.close()
