"""Attempts for tests of executors, without a scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from process_world import PATIENCE_S

from reference_scheduler.admission import Permit
from reference_scheduler.core.model import ResourceRequest
from reference_scheduler.executors import AttemptContext, AttemptResult, Executor, Progress, StopSignal

GRACE_US = 600_000_000


class Driver:
    """Holds what an attempt is given, and remembers what it reports."""

    def __init__(self, kind: str, payload: Mapping[str, Any], grace_us: int = GRACE_US, workspace: str = "") -> None:
        self.reports: list[Progress] = []
        self.stop = StopSignal()
        self.permit = Permit(ResourceRequest(), lambda: None)
        self.context = AttemptContext(
            owner="owner",
            generation="generation",
            job="job",
            attempt=1,
            token="generation:job:1",
            kind=kind,
            payload=payload,
            workspace=workspace,
            grace_us=grace_us,
            permit=self.permit,
            stop=self.stop,
            heartbeat=lambda: True,
            progress=self._progress,
        )

    def _progress(self, progress: Progress) -> bool:
        self.reports.append(progress)
        return True

    async def run(self, executor: Executor) -> AttemptResult:
        """Check and run the attempt, then give back its permit, which has to be live still."""
        executor.check(self.context.payload)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await executor.run(self.context)
        finally:
            assert self.permit.release()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds."""
    while not condition():
        await asyncio.sleep(0.002)


def attempt(executor: Executor, payload: Mapping[str, Any], **options: Any) -> Awaitable[AttemptResult]:
    """Run one attempt to its end."""
    return Driver(executor.kind, payload, **options).run(executor)
