"""Scopes of a module, and which bindings each read of a name may see: Python's rules of name resolution.

Language reference, "Naming and binding": a class body is not visible from the functions and comprehensions in it; a
name bound anywhere in a function is that function's throughout; ``global`` and ``nonlocal`` move it; a class body
reads what it has not bound yet from the module.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from checkers.facts.flow import UNBOUND, Event, EventKind, Flow, State

MODULE = 0
"""Number of the module's own scope."""


class Scope(msgspec.Struct):
    """A module, class, function, lambda, comprehension or list of type parameters."""

    parent: int | None
    root: int
    """Block its body begins in."""
    symbol: str
    is_class: bool = False
    is_function: bool = False
    is_comprehension: bool = False
    sees_class: bool = False
    """A list of type parameters: in a class body it sees the class's names."""
    defined_at: tuple[int, int] | None = None
    """Order and block of the definition, for a body that runs later; None for one that runs in place."""
    class_number: int | None = None
    """For a class its number; for a method that of its class."""
    self_name: str | None = None
    events: dict[str, list[Event]] = msgspec.field(default_factory=dict)
    anytime: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Bindings made from other scopes by ``global`` and ``nonlocal``: they may have run before any read."""
    global_names: set[str] = msgspec.field(default_factory=set)
    nonlocal_names: set[str] = msgspec.field(default_factory=set)


class Read(NamedTuple):
    """A name read at a point of the program."""

    name: str
    scope: int
    order: int
    block: int


class StarEvent(NamedTuple):
    """A star import at module level."""

    binding: int
    order: int
    block: int


class Resolved(NamedTuple):
    """Binding numbers, ``UNBOUND`` among them where the builtin may be meant."""

    loads: list[tuple[int, ...]]
    exports: dict[str, tuple[int, ...]]
    members: dict[int, dict[str, tuple[int, ...]]]
    """By number of the class scope and name."""


class Resolution:
    """Finds, for every read of the module, the bindings that may reach it."""

    def __init__(self, scopes: list[Scope], reads: list[Read], stars: list[StarEvent], flow: Flow) -> None:
        self.scopes = scopes
        self.reads = reads
        self.flow = flow
        self.stars = [Event(EventKind.MAY_BIND, star.binding, star.order, star.block) for star in stars]

    def resolve(self) -> Resolved:
        """All reads, and what is bound at the end of the module and of each class body."""
        loads: list[State] = [frozenset()] * len(self.reads)
        ends: dict[int, dict[str, tuple[int, ...]]] = {}
        filed: dict[tuple[int, str], list[Event]] = {}
        for number, scope in enumerate(self.scopes):
            if scope.is_class or number == MODULE:
                ends[number] = {}
                filed |= {(number, name): [] for name in (*scope.events, *scope.anytime)}
        for number, read in enumerate(self.reads):
            owner, event = self._owner(number, read)
            filed.setdefault((owner, read.name), []).append(event)
        fallen: dict[tuple[int, str], list[Event]] = {}
        for (owner, name), reads in filed.items():
            reached, end = self._flow(owner, name, reads)
            for number, state in reached.items():
                loads[number] = state
                if UNBOUND in state and self.scopes[owner].is_class:
                    loads[number] = state - {UNBOUND}
                    fallen.setdefault((MODULE, name), []).append(self._module_read(number))
            if owner in ends and end - {UNBOUND}:
                ends[owner][name] = tuple(sorted(end - {UNBOUND}))
        for (owner, name), reads in fallen.items():
            for number, state in self._flow(owner, name, reads)[0].items():
                loads[number] |= state
        return Resolved([tuple(sorted(state)) for state in loads], ends.pop(MODULE), ends)

    def _owner(self, number: int, read: Read) -> tuple[int, Event]:
        """The scope whose name is read, and the read as that scope sees it."""
        scope_number: int | None = read.scope
        later: tuple[int, int] | None = None
        direct = True
        while scope_number is not None:
            scope = self.scopes[scope_number]
            visible = direct or not scope.is_class
            if visible and read.name in scope.global_names:
                return MODULE, self._module_read(number)
            if visible and read.name in scope.events and read.name not in scope.nonlocal_names:
                return scope_number, _read_event(number, read, later)
            direct = direct and scope.sees_class
            later = scope.defined_at or later
            scope_number = scope.parent
        return MODULE, _read_event(number, read, later)

    def _module_read(self, number: int) -> Event:
        read = self.reads[number]
        later: tuple[int, int] | None = None
        scope_number: int | None = read.scope
        while scope_number is not None:
            later = self.scopes[scope_number].defined_at or later
            scope_number = self.scopes[scope_number].parent
        return _read_event(number, read, later)

    def _flow(self, owner: int, name: str, reads: list[Event]) -> tuple[dict[int, State], State]:
        """What reaches each read of ``name`` in scope ``owner``, and what is bound at the scope's end."""
        scope = self.scopes[owner]
        events = scope.events.get(name, [])
        if owner == MODULE and self.stars:
            events = [*events, *self.stars]
        anytime = frozenset(scope.anytime.get(name, ()))
        start: State = frozenset() if scope.is_function else frozenset({UNBOUND})
        if not events:
            return {read.number: start | anytime for read in reads}, start | anytime
        if (simple := _bound_once(scope, events, reads)) is not None:
            return {read.number: simple | anytime for read in reads}, simple | anytime
        end = -1
        ordered = sorted([*events, *reads], key=lambda event: event.order)
        reached = self.flow.reads(scope.root, ordered, start, end)
        final = reached.pop(end)
        return {number: state | anytime for number, state in reached.items()}, final | anytime


def _read_event(number: int, read: Read, later: tuple[int, int] | None) -> Event:
    if later is None:
        return Event(EventKind.READ, number, read.order, read.block)
    return Event(EventKind.READ_LATER, number, *later)


def _bound_once(scope: Scope, events: list[Event], reads: list[Event]) -> State | None:
    """The usual case, without any flow: one unconditional binding, before every read."""
    only = events[0]
    if len(events) > 1 or only.kind is not EventKind.BIND or only.block != scope.root:
        return None
    if any(read.order < only.order for read in reads):
        return None
    return frozenset({only.number})
