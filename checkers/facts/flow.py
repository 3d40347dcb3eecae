"""Which bindings reach which reads of a name, inside one scope.

A structured reaching-definitions analysis, one name at a time: the events of a name (bindings, deletions, reads) lie
in a tree of *blocks*, the arms of ``if``, loops, ``try`` and ``match``. Only the blocks that hold an event of the name
are visited, so that a module with a thousand branches costs nothing for a name bound once.

Rule (docs/resolver.md): a binding ends an earlier one only where it must have run, so every arm that may have been
taken counts, an exception may leave a ``try`` body after any of its statements, and a loop may come around again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

import msgspec

UNBOUND = -1
"""The state of a name that nothing has bound, or that ``del`` unbound."""

State = frozenset[int]


class EventKind(Enum):
    """What happens to a name at a point of the program."""

    BIND = auto()
    MAY_BIND = auto()
    UNBIND = auto()
    READ = auto()
    READ_LATER = auto()
    """The read of a function body: it runs at some time after the definition stands."""


class Event(msgspec.Struct, frozen=True):
    """``number`` is the binding or the read it concerns; ``order`` is the order of execution in straight-line code."""

    kind: EventKind
    number: int
    order: int
    block: int


class GroupKind(Enum):
    """What decides which arms of a group run."""

    BRANCH = auto()
    LOOP = auto()
    TRY = auto()


class ArmKind(Enum):
    """What an arm is to its group."""

    BODY = auto()
    HANDLER = auto()
    ORELSE = auto()
    FINALLY = auto()


class Group(msgspec.Struct):
    """A compound statement; ``exhaustive`` when one of the arms must run."""

    kind: GroupKind
    parent: int
    exhaustive: bool = False
    arms: list[int] = msgspec.field(default_factory=list)


class Block(msgspec.Struct):
    """An arm of a group, or the body of a scope (``group`` is None)."""

    group: int | None
    kind: ArmKind = ArmKind.BODY
    leaves: bool = False
    """Ends with ``return`` or ``raise``: what holds at its end does not flow on."""


class Flow(msgspec.Struct):
    """The tree of blocks of one module."""

    blocks: list[Block] = msgspec.field(default_factory=list)
    groups: list[Group] = msgspec.field(default_factory=list)

    def open_root(self) -> int:
        """A block for the body of a scope that runs on its own."""
        self.blocks.append(Block(None))
        return len(self.blocks) - 1

    def open_group(self, kind: GroupKind, parent: int) -> int:
        """A compound statement inside block ``parent``."""
        self.groups.append(Group(kind, parent))
        return len(self.groups) - 1

    def open_arm(self, group: int, kind: ArmKind) -> int:
        """The next arm of ``group``."""
        self.blocks.append(Block(group, kind))
        self.groups[group].arms.append(len(self.blocks) - 1)
        return len(self.blocks) - 1

    def reads(self, root: int, events: Sequence[Event], start: State, end: int | None) -> dict[int, State]:
        """For each read among ``events`` the bindings that may reach it; ``end`` numbers a read at the very end.

        ``events`` all lie in or below block ``root`` and are sorted by order.
        """
        reached: dict[int, State] = {}
        final = self._run(root, events, start, reached)
        if end is not None:
            reached[end] = final
        self._add_later_bindings(events, reached)
        return reached

    @staticmethod
    def _add_later_bindings(events: Sequence[Event], reached: dict[int, State]) -> None:
        later: set[int] = set()
        for event in reversed(events):
            if event.kind in (EventKind.BIND, EventKind.MAY_BIND):
                later.add(event.number)
            elif event.kind is EventKind.READ_LATER and later:
                reached[event.number] = reached.get(event.number, frozenset()) | later

    def _run(self, block: int, events: Sequence[Event], state: State, reached: dict[int, State]) -> State:
        position = 0
        while position < len(events):
            event = events[position]
            if event.block == block:
                state = _apply(event, state, reached)
                position += 1
                continue
            group = self._child_group(event.block, block)
            stop = position
            arms: dict[int, list[Event]] = {}
            while stop < len(events) and (arm := self._arm_in(events[stop].block, block, group)) is not None:
                arms.setdefault(arm, []).append(events[stop])
                stop += 1
            state = self._run_group(self.groups[group], arms, state, reached)
            position = stop
        return state

    def _child_group(self, inner: int, block: int) -> int:
        """The group directly inside ``block`` that holds block ``inner``."""
        while True:
            group = self.blocks[inner].group
            assert group is not None, "an event lies outside the scope it was filed under"
            if self.groups[group].parent == block:
                return group
            inner = self.groups[group].parent

    def _arm_in(self, inner: int, block: int, group: int) -> int | None:
        """The arm of ``group`` that holds block ``inner``, or None when another part of ``block`` does."""
        while inner != block:
            own = self.blocks[inner].group
            if own is None:
                return None
            if own == group:
                return inner
            inner = self.groups[own].parent
        return None

    def _run_group(self, group: Group, arms: dict[int, list[Event]], state: State, reached: dict[int, State]) -> State:
        def run(arm: int, before: State) -> State:
            return self._run(arm, arms.get(arm, ()), before, reached)

        if group.kind is GroupKind.LOOP:
            return self._run_loop(group, arms, state, run)
        if group.kind is GroupKind.TRY:
            return self._run_try(group, arms, state, run)
        after = [run(arm, state) for arm in group.arms]
        alive = [out for out, arm in zip(after, group.arms, strict=True) if not self.blocks[arm].leaves]
        if not group.exhaustive or not alive:
            alive.append(state)
        return frozenset[int]().union(*alive)

    def _run_loop(
        self, group: Group, arms: dict[int, list[Event]], state: State, run: Callable[[int, State], State]
    ) -> State:
        for arm in group.arms:
            if self.blocks[arm].kind is ArmKind.BODY:
                # Once around with all that any earlier turn may have left; twice would double at each level of nesting.
                state |= _bound(arms.get(arm, ()))
                state |= run(arm, state)
            else:
                state = state | run(arm, state)
        return state

    def _run_try(
        self, group: Group, arms: dict[int, list[Event]], state: State, run: Callable[[int, State], State]
    ) -> State:
        """Body, then ``else``; or a handler, entered from anywhere in the body; then ``finally``, from anywhere."""
        arm_of = {kind: [arm for arm in group.arms if self.blocks[arm].kind is kind] for kind in ArmKind}
        normal, interrupted, outcomes = state, state, []
        for arm in arm_of[ArmKind.BODY]:
            normal = run(arm, normal)
            interrupted |= normal | _bound(arms.get(arm, ()))
        for arm in arm_of[ArmKind.ORELSE]:
            normal = run(arm, normal)
        if not any(self.blocks[arm].leaves for arm in arm_of[ArmKind.BODY] + arm_of[ArmKind.ORELSE]):
            outcomes.append(normal)
        for arm in arm_of[ArmKind.HANDLER]:
            after = run(arm, interrupted)
            if not self.blocks[arm].leaves:
                outcomes.append(after)
        result = frozenset[int]().union(*outcomes) or interrupted
        for arm in arm_of[ArmKind.FINALLY]:
            run(arm, interrupted.union(*(_bound(events) for events in arms.values())))
            result = run(arm, result)
        return result


def _apply(event: Event, state: State, reached: dict[int, State]) -> State:
    match event.kind:
        case EventKind.BIND:
            return frozenset({event.number})
        case EventKind.MAY_BIND:
            return state | {event.number}
        case EventKind.UNBIND:
            return frozenset({UNBOUND})
        case _:
            reached[event.number] = reached.get(event.number, frozenset()) | state
            return state


def _bound(events: Sequence[Event]) -> State:
    """Every state an exception may leave behind: all that the events bind or unbind."""
    bound = {e.number for e in events if e.kind in (EventKind.BIND, EventKind.MAY_BIND)}
    if any(e.kind is EventKind.UNBIND for e in events):
        bound.add(UNBOUND)
    return frozenset(bound)
