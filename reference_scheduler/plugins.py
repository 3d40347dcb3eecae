"""Finds pickers and allocators that other distributions provide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from reference_scheduler.core.allocators import ALLOCATORS, Allocator
from reference_scheduler.core.pickers import PICKERS, Picker
from reference_scheduler.errors import SchedulerError

PICKER_GROUP = "spawngate.pickers"
ALLOCATOR_GROUP = "spawngate.allocators"
_Plugin = TypeVar("_Plugin")


class PluginError(SchedulerError):
    """A name is claimed twice, by two distributions or by one and a built-in plug-in; or loading failed."""

    code = "plugin"


def available_pickers() -> Mapping[str, Callable[[], Picker]]:
    """Return the constructors of all pickers by name, built-in ones first.

    Raises:
        PluginError: a name is taken twice, or a plug-in cannot be loaded.
    """
    return _with_plugins(PICKERS, PICKER_GROUP)


def available_allocators() -> Mapping[str, Callable[[], Allocator]]:
    """Return the constructors of all allocators by name, built-in ones first.

    Raises:
        PluginError: a name is taken twice, or a plug-in cannot be loaded.
    """
    return _with_plugins(ALLOCATORS, ALLOCATOR_GROUP)


def _with_plugins(built_in: Mapping[str, Callable[[], _Plugin]], group: str) -> Mapping[str, Callable[[], _Plugin]]:
    found = dict(built_in)
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        if entry.name not in found:
            found[entry.name] = _load(entry, group)
        elif not _is_own(entry.value):
            raise PluginError(f"{group}: the name {entry.name!r} is taken twice, by {entry.value}")
    return found


def _load(entry: EntryPoint, group: str) -> Any:
    try:
        return entry.load()
    except Exception as error:  # a module of somebody else's may raise anything as it is imported
        what = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise PluginError(
            f"{group}: {entry.name!r} from {entry.value} cannot be loaded: {what}; mend or uninstall its distribution"
        ) from error


def _is_own(value: str) -> bool:
    return value.startswith("reference_scheduler.")
