"""The scheduler for code without an event loop: it has one of its own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from reference_scheduler.config import Settings, StopMode
from reference_scheduler.core.model import JobState, Priority
from reference_scheduler.errors import SchedulerStopping, SubmissionError
from reference_scheduler.executors import Executor, ExecutorRegistry
from reference_scheduler.executors.base import AttemptResult
from reference_scheduler.journal.base import Journal
from reference_scheduler.logs import OutputChunk
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.submission import Outcome
from reference_scheduler.views import AttemptView, JobView, RecordStatus, SchedulerSnapshot

_Value = TypeVar("_Value")


class SyncScheduler:
    """A :class:`Scheduler` whose methods block, and may be called from any thread between its start and its end.

    After that they raise SchedulerStopping. An executor that is a coroutine is run by the scheduler's own thread, which
    they would block for ever: there they raise RuntimeError.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        journal: Path | Journal | None = None,
        executors: ExecutorRegistry | Iterable[Executor] | None = None,
    ) -> None:
        self._make: Callable[[], Scheduler] = lambda: Scheduler(settings, journal, executors)
        self._thread = threading.Thread(target=self._live, name="scheduler", daemon=True)
        self._gate = threading.Lock()
        self._is_open = False

    def start(self) -> Self:
        """Begin. See :meth:`Scheduler.start`."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        self._is_open = True
        try:
            self._scheduler = self._run(self._started())
        except BaseException:
            self._end()
            raise
        return self

    async def _started(self) -> Scheduler:
        return await self._make().start()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # what is left at its end is cancelled
            runner.get_loop().run_forever()

    def close(self, mode: StopMode = StopMode.DRAIN) -> None:
        """Stop for good; again, it does nothing. See :meth:`Scheduler.close`."""
        try:
            with suppress(SchedulerStopping):
                self._run(self._scheduler.close(mode))
        finally:
            self._end()

    def _end(self) -> None:
        with self._gate:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(self._scheduler.settings.on_stop if error is None else StopMode.INTERRUPT)

    def _run(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        try:
            if threading.current_thread() is self._thread:
                raise RuntimeError("the scheduler's own thread cannot wait for it: await asyncio.to_thread(...)")
            with self._gate:  # or else the loop could end before it has seen this, and nobody would be told
                if not self._is_open:
                    raise SchedulerStopping("the scheduler has stopped")
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise SchedulerStopping("the scheduler has stopped") from None

    def _call(self, function: Callable[..., _Value], *arguments: Any) -> _Value:
        async def call() -> _Value:
            return function(*arguments)

        return self._run(call())

    def submit(self, request: JobRequest) -> JobView:
        """See :meth:`Scheduler.submit`."""
        return self._run(self._scheduler.submit(request))

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Outcome]:
        """See :meth:`Scheduler.submit_many`."""
        return self._run(self._scheduler.submit_many(requests))

    def check(self, requests: Iterable[JobRequest]) -> list[SubmissionError | None]:
        """See :meth:`Scheduler.check`."""
        return self._call(self._scheduler.check, requests)

    def wait(self, job: str, timeout_s: float | None = None) -> JobView:
        """See :meth:`Scheduler.wait`."""
        return self._run(self._scheduler.wait(job, timeout_s))

    def cancel(self, job: str, reason: str = "") -> JobView:
        """See :meth:`Scheduler.cancel`."""
        return self._run(self._scheduler.cancel(job, reason))

    def update(self, job: str, priority: Priority) -> JobView:
        """See :meth:`Scheduler.update`."""
        return self._run(self._scheduler.update(job, priority))

    def get(self, job: str) -> JobView:
        """See :meth:`Scheduler.get`."""
        return self._call(self._scheduler.get, job)

    def jobs(
        self,
        states: Collection[JobState] = (),
        kind: str = "",
        workspace: str = "",
        limit: int = 100,
        before: str = "",
        array: str = "",
    ) -> list[JobView]:
        """See :meth:`Scheduler.jobs`."""
        return self._call(self._scheduler.jobs, states, kind, workspace, limit, before, array)

    def attempts(self, job: str) -> list[AttemptView]:
        """See :meth:`Scheduler.attempts`."""
        return self._call(self._scheduler.attempts, job)

    def logs(self, job: str, follow: bool = False) -> Iterator[OutputChunk]:
        """See :meth:`Scheduler.logs`."""
        chunks = self._scheduler.logs(job, follow)

        async def following() -> OutputChunk | None:
            return await anext(chunks, None)

        try:
            while (chunk := self._run(following())) is not None:
                yield chunk
        finally:
            with suppress(SchedulerStopping):
                self._run(chunks.aclose())

    def result(self, job: str) -> AttemptResult | None:
        """See :meth:`Scheduler.result`."""
        return self._call(self._scheduler.result, job)

    def why(self, job: str) -> str:
        """See :meth:`Scheduler.why`."""
        return self._call(self._scheduler.why, job)

    def snapshot(self) -> SchedulerSnapshot:
        """See :meth:`Scheduler.snapshot`."""
        return self._call(self._scheduler.snapshot)

    def report(self, job: str, result: AttemptResult) -> bool:
        """See :meth:`Scheduler.report`."""
        return self._call(self._scheduler.report, job, result)

    def drain(self) -> None:
        """See :meth:`Scheduler.drain`."""
        self._run(self._scheduler.drain())

    def pause(self, queue: str = "") -> None:
        """See :meth:`Scheduler.pause`."""
        self._run(self._scheduler.pause(queue))

    def resume(self, queue: str = "") -> None:
        """See :meth:`Scheduler.resume`."""
        self._run(self._scheduler.resume(queue))

    def record_start(self, path: Path) -> RecordStatus:
        """See :meth:`Scheduler.record_start`."""
        return self._call(self._scheduler.record_start, path)

    def record_stop(self) -> RecordStatus:
        """See :meth:`Scheduler.record_stop`."""
        return self._call(self._scheduler.record_stop)

    def record_status(self) -> RecordStatus:
        """See :meth:`Scheduler.record_status`."""
        return self._call(self._scheduler.record_status)
