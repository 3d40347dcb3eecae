"""From what a journal holds to a core, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.allocators import ALLOCATORS, Allocator
from reference_scheduler.core.jobs import dependencies
from reference_scheduler.core.model import task_of
from reference_scheduler.core.pickers import PICKERS, Picker
from reference_scheduler.errors import JournalDamaged, JournalError
from reference_scheduler.journal.base import Saved
from reference_scheduler.replay.records import CHAIN_BYTES


class Plugins(NamedTuple):
    """The pickers and allocators that a core may be configured with."""

    pickers: Mapping[str, Callable[[], Picker]] = PICKERS
    allocators: Mapping[str, Callable[[], Allocator]] = ALLOCATORS


@contextmanager
def missing_plugins_told() -> Iterator[None]:
    """Raise JournalError for a picker or an allocator that a core was to have and that is not there."""
    try:
        yield
    except KeyError as error:
        raise JournalError(f"the journal needs the plug-in {error}, which is not installed") from error


def core_of(saved: Saved, plugins: Plugins) -> SchedulerCore:
    """Return the core that ``saved`` leads to, having compared every decision on the way.

    Raises:
        JournalError: this core decides differently, or lacks a plug-in.
        JournalDamaged: an event cannot be handled at all.
    """
    try:
        with missing_plugins_told():
            if saved.state is None:
                core = SchedulerCore(plugins.pickers, plugins.allocators)
            else:
                core = SchedulerCore.restore(saved.state.snapshot, plugins.pickers, plugins.allocators)
            for entry in saved.entries:
                decisions = core.handle(entry.event)
                if decisions != entry.decisions or core.chain[:CHAIN_BYTES] != entry.chain:
                    raise JournalError(
                        f"event {entry.number} of the journal was decided differently by the release that wrote it: "
                        "stop it cleanly with that release first"
                    )
    except ValueError as error:
        raise JournalDamaged(f"the journal holds an event that cannot be: {error}") from error
    return core


def without(core: SchedulerCore, ended: Iterable[str], plugins: Plugins) -> tuple[SchedulerCore, list[str]]:
    """Return a core like ``core`` that has forgotten the ``ended`` jobs that no other waits for, and those jobs."""
    snapshot = core.snapshot()
    needed = {target for record in snapshot.jobs for target in dependencies(record.spec)}
    needed |= {task[0] for target in needed if (task := task_of(target))}  # which has the request of its jobs
    forgotten = [job for job in ended if job not in needed]
    drop = set(forgotten)
    outcomes = tuple(pair for pair in snapshot.outcomes if pair[0] not in drop)
    return SchedulerCore.restore(replace(snapshot, outcomes=outcomes), plugins.pickers, plugins.allocators), forgotten
