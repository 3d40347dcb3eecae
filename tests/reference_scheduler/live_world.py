"""What the tests of the live scheduler share: settings, an executor they hold by the hand, and waiting for it."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from reference_scheduler.config import Settings
from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.events import Event
from reference_scheduler.core.model import AttemptState, Config, Failure, QueueBounds
from reference_scheduler.executors.base import AttemptContext, AttemptResult, stopped_state
from reference_scheduler.replay.records import CHAIN_BYTES, Entry
from reference_scheduler.requests import JobRequest

ROOT = Path(__file__).parents[2]
DONE = AttemptResult(AttemptState.COMPLETED, exit_code=0)
FAILED = AttemptResult(AttemptState.FAILED, exit_code=1, failure=Failure.EXECUTION)
TIMEOUT_S = 30.0
"""No test waits longer for anything; it is a bound on hanging, not on speed."""


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine, for a bounded time."""

    async def bounded(*arguments: Any, **fixtures: Any) -> None:
        async with asyncio.timeout(2 * TIMEOUT_S):
            await test(*arguments, **fixtures)

    @wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        asyncio.run(bounded(*arguments, **fixtures))

    return run


def settings(slots: int = 4, reconcile_ms: int = 50, **changes: Any) -> Settings:
    """Return settings with room for ``slots`` jobs of kind ``held``, and long queues."""
    config = Config(
        resources=Resources(slots, 256 * slots, slots, slots, slots), queue=QueueBounds(10**6, 10**6, 10**6, 32)
    )
    return replace(Settings(core=config, reconcile_interval_us=1000 * reconcile_ms), **changes)


def held(**fields: Any) -> JobRequest:
    """Return a request for a job of kind ``held``."""
    return JobRequest(kind="held", **fields)


class HeldExecutor:
    """Each attempt runs until the test ends it, or until it is to stop, which a ``stubborn`` one ignores."""

    kind = "held"

    def __init__(self, stubborn: bool = False) -> None:
        self.stubborn = stubborn
        self.contexts: list[AttemptContext] = []
        self._ends: dict[str, asyncio.Future[AttemptResult]] = {}
        self._begun = asyncio.Condition()

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse a payload that says so."""
        if "wrong" in payload:
            raise ValueError("wrong: not a key of this payload")

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Wait for the test, or for the wish to stop."""
        end: asyncio.Future[AttemptResult] = asyncio.get_running_loop().create_future()
        self._ends[context.token] = end
        async with self._begun:
            self.contexts.append(context)
            self._begun.notify_all()

        def stop() -> None:
            if context.stop.reason and not self.stubborn and not end.done():
                end.set_result(AttemptResult(stopped_state(context.stop.reason)))

        context.stop.add_callback(stop)
        return await end

    async def begun(self, count: int) -> list[AttemptContext]:
        """Return all attempts once ``count`` have begun."""
        async with asyncio.timeout(TIMEOUT_S), self._begun:
            await self._begun.wait_for(lambda: len(self.contexts) >= count)
        return self.contexts

    def running(self) -> list[AttemptContext]:
        """Return the attempts that have begun and not ended."""
        return [context for context in self.contexts if not self._ends[context.token].done()]

    def end(self, context: AttemptContext, result: AttemptResult = DONE) -> None:
        """Let an attempt end."""
        self._ends[context.token].set_result(result)


class AtOnceExecutor:
    """Each attempt completes as soon as it has begun."""

    kind = "at_once"

    def check(self, payload: Mapping[str, Any]) -> None:
        """Take any payload."""

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Return."""
        return DONE


def told(core: SchedulerCore, number: int, *events: Event) -> list[Entry]:
    """Return what is recorded when ``core`` handles ``events`` after event ``number``."""
    entries = []
    for event in events:
        number += 1
        decisions = core.handle(event)
        entries.append(Entry(number, core.chain[:CHAIN_BYTES], event, decisions))
    return entries


def wal(path: Path) -> Path:
    """Return the write-ahead log of the journal ``path``."""
    return path.with_name(path.name + "-wal")


@contextmanager
def no_room(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond what the write-ahead log of ``path`` has now, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal(path).stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def start_program(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python program that can import the scheduler and this module, with pipes for input and output."""
    path = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def line_of(program: subprocess.Popen[str]) -> str:
    """Return the next line that ``program`` prints."""
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, f"the program ended with status {program.wait()}"
    return line.strip()
