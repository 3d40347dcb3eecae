"""Runs a seed, and makes a run that failed small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from reference_scheduler.core.decisions import Decision
from reference_scheduler.fuzz.model import CheckError
from reference_scheduler.fuzz.monitor import Monitor
from reference_scheduler.fuzz.swarm import Swarm, draw_swarm
from reference_scheduler.fuzz.world import Item, Restart, World, heal
from reference_scheduler.replay.recorder import Recorder

_Result = TypeVar("_Result")
MOST_TRIES = 2000
"""Shrinking ends after so many runs, whatever it has come to."""


class Failure(msgspec.Struct, frozen=True):
    """The last of ``items`` is the event at which ``check`` failed with ``message``."""

    items: tuple[Item, ...]
    check: str
    message: str

    @property
    def kind(self) -> str:
        """What stays the same while the history shrinks: the check, and a message up to its first number."""
        words = self.message.split(":")[:2] if self.check == "core" else []
        return ":".join((self.check, *words))


class Outcome(msgspec.Struct, frozen=True):
    """A run of ``events`` events, those that heal included, and how it failed, if it did.

    ``items`` are the events and the restarts among them.
    """

    swarm: Swarm
    items: tuple[Item, ...]
    events: int
    failure: Failure | None


class _Run:
    """A monitored core and all that was given to it, up to the first failure."""

    def __init__(self) -> None:
        self.monitor = Monitor()
        self.items: list[Item] = []
        self.events = 0
        self.failure: Failure | None = None

    def take(self, item: Item) -> tuple[Decision, ...]:
        """Give ``item`` to the core."""
        self.items.append(item)
        if isinstance(item, Restart):
            self.monitor.restart()
            return ()
        self.events += 1
        return self._watched(lambda: self.monitor.handle(item)) or ()

    def heal(self, workers: tuple[str, ...]) -> None:
        """Stop all faults; everything must finish."""
        for event in heal(self.monitor.core, workers):
            if self.failure is not None:
                return
            self.take(event)
        self._watched(self.monitor.finish)

    def _watched(self, action: Callable[[], _Result]) -> _Result | None:
        try:
            return action()
        except CheckError as error:
            self.failure = Failure(tuple(self.items), error.check, error.message)
            return None


def run_seed(seed: int, events: int) -> Outcome:
    """Run the history of ``seed``, ``events`` long, then heal it; equal arguments give equal runs."""
    swarm = draw_swarm(seed)
    run, world = _Run(), World(swarm)
    while run.failure is None and run.events < events:
        world.react(run.take(world.next(run.monitor.core)))
    if run.failure is None:
        run.heal(swarm.workers)
    return Outcome(swarm, tuple(run.items), run.events, run.failure)


def rerun(items: Sequence[Item], workers: tuple[str, ...]) -> Failure | None:
    """Run ``items`` and heal; return how that fails."""
    run = _Run()
    for item in items:
        run.take(item)
        if run.failure is not None:
            return run.failure
    run.heal(workers)
    return run.failure


def shrink(failure: Failure, workers: tuple[str, ...]) -> Failure:
    """Return a failure of the same kind with as few items as leaving out parts, ever smaller ones, can find.

    Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28(2), 2002.
    """
    best, size, tries = failure, max(len(failure.items) // 2, 1), 0
    while tries < MOST_TRIES:
        start, found = 0, False
        while start < len(best.items) and tries < MOST_TRIES:
            shorter = best.items[:start] + best.items[start + size :]
            tries += 1
            again = rerun(shorter, workers)
            if again is not None and again.kind == failure.kind and len(again.items) < len(best.items):
                best, found = again, True
            else:
                start += size
        if size == 1 and not found:
            break
        size = max(size // 2, 1)
    return best


def save(items: Sequence[Item], path: Path, failure: Failure | None = None) -> None:
    """Write a log of ``items``, whose checkpoints are the restarts; the last event is that of ``failure``.

    Raises:
        OSError: the file cannot be written.
    """
    monitor = Monitor()
    recorder = Recorder.start(path, monitor.core)
    for index, item in enumerate(items):
        if isinstance(item, Restart):
            monitor.restart()
            recorder.checkpoint()
        elif failure is not None and index == len(items) - 1:
            recorder.fail(item, failure.check, failure.message)
        else:
            recorder(item, monitor.handle(item))
    recorder.close(state=failure is None)
