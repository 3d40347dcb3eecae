"""The thread that commits: a journal may block on a disk, and the event loop may not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

from reference_scheduler.journal.base import Batch, JobRow, Journal

Begun: TypeAlias = dict[str, JobRow]
_Order: TypeAlias = tuple[Batch, asyncio.Future[Begun]]


class Writer:
    """Commits batches one after the other.

    Between a job's end and the next start stands one commit, so what handing it over costs counts: an executor of
    the standard library takes two more turns of the loop.
    A process that ends without :meth:`close` does not wait for it; what was not told to be durable may then be lost.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="journal", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def commit(self, batch: Batch) -> asyncio.Future[Begun]:
        """Return a future that is done when ``batch`` is durable, or has what the journal raised.

        Its result is what the jobs ask for of which attempts begin.
        """
        done: asyncio.Future[Begun] = self._loop.create_future()
        self._orders.put((batch, done))
        return done

    def close(self) -> None:
        """Return once everything is written and the thread has ended."""
        self._orders.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while order := self._orders.get():
            batch, done = order
            try:
                begun = {row.job: row for row in self._journal.commit(batch)}
            except BaseException as error:
                self._loop.call_soon_threadsafe(_settle, done, done.set_exception, error)
            else:
                self._loop.call_soon_threadsafe(_settle, done, done.set_result, begun)


def _settle(done: asyncio.Future[Begun], settle: Callable[[Any], None], value: Any) -> None:
    if not done.done():
        settle(value)
