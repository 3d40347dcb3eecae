"""From what a journal holds to a core, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.allocators import ALLOCATORS, Allocator
from reference_scheduler.core.events import ConfigLoaded
from reference_scheduler.core.jobs import dependencies
from reference_scheduler.core.model import Config, task_of
from reference_scheduler.core.pickers import PICKERS, Picker
from reference_scheduler.errors import JournalDamaged, JournalError
from reference_scheduler.journal.base import Saved
from reference_scheduler.replay.records import CHAIN_BYTES, Entry, State


class Plugins(NamedTuple):
    """The pickers and allocators that a core may be configured with."""

    pickers: Mapping[str, Callable[[], Picker]] = PICKERS
    allocators: Mapping[str, Callable[[], Allocator]] = ALLOCATORS

    def check(self, config: Config) -> None:
        """Raise JournalError if a journal has a ``config`` that names a plug-in that is not there."""
        for name, known in ((config.picker, self.pickers), (config.allocator, self.allocators)):
            if name not in known:
                raise JournalError(f"the journal needs the plug-in {name!r}, which is not installed")


def core_of(saved: Saved, plugins: Plugins) -> SchedulerCore:
    """Return the core that ``saved`` leads to, having compared every decision on the way.

    Raises:
        JournalError: this core decides differently, or lacks a plug-in.
        JournalDamaged: an event cannot be handled at all.
    """
    core = restored(saved.state, plugins)
    for entry in saved.entries:
        if not decides_alike(core, entry, plugins):
            raise JournalError(
                f"event {entry.number} of the journal was decided differently by the release that wrote it: "
                "stop it cleanly with that release first"
            )
    return core


def restored(state: State | None, plugins: Plugins) -> SchedulerCore:
    """Return the core of ``state``, a new one if there is none yet.

    Raises:
        JournalError: it lacks a plug-in.
    """
    if state is None:
        return SchedulerCore(*plugins)
    plugins.check(state.snapshot.config)
    return SchedulerCore.restore(state.snapshot, *plugins)


def decides_alike(core: SchedulerCore, entry: Entry, plugins: Plugins) -> bool:
    """Have ``core`` handle the event of ``entry``, and return whether it comes to what was kept.

    Raises:
        JournalError: it lacks a plug-in.
        JournalDamaged: the event cannot be handled at all.
    """
    if isinstance(entry.event, ConfigLoaded):
        plugins.check(entry.event.config)
    try:
        decisions = core.handle(entry.event)
    except ValueError as error:
        raise JournalDamaged(f"event {entry.number} of the journal cannot be: {error}") from error
    return decisions == entry.decisions and core.chain[:CHAIN_BYTES] == entry.chain


def without(core: SchedulerCore, ended: Iterable[str], plugins: Plugins) -> tuple[SchedulerCore, list[str]]:
    """Return a core like ``core`` that has forgotten the ``ended`` jobs that no other waits for, and those jobs."""
    snapshot = core.snapshot()
    needed = {target for record in snapshot.jobs for target in dependencies(record.spec)}
    needed |= {task[0] for target in needed if (task := task_of(target))}  # which has the request of its jobs
    forgotten = [job for job in ended if job not in needed]
    drop = set(forgotten)
    outcomes = tuple(pair for pair in snapshot.outcomes if pair[0] not in drop)
    return SchedulerCore.restore(replace(snapshot, outcomes=outcomes), *plugins), forgotten
