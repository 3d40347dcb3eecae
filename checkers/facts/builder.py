"""Turns the events of one module, told in order of execution, into :class:`ModuleFacts`.

A front end knows syntax. It tells this of scopes, blocks, bindings and uses, and gets the same facts whichever parser
it stands on: :mod:`checkers.facts.scopes` decides which scope a name belongs to, :mod:`checkers.facts.flow` which
bindings reach a read, :mod:`checkers.facts.interest` what is worth keeping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from checkers.facts import model as f
from checkers.facts.flow import ArmKind, Event, EventKind, Flow, GroupKind
from checkers.facts.hot import Hits, Hot
from checkers.facts.interest import Contents, Interest, Reach
from checkers.facts.scopes import MODULE, Read, Resolution, Scope, StarEvent


class _Class(msgspec.Struct):
    symbol: str
    bases: tuple[f.Expression, ...]
    place: Any
    scope: int = -1
    attributes: dict[str, list[f.Expression]] = msgspec.field(default_factory=dict)


class _PendingUse(msgspec.Struct, frozen=True):
    """A use whose aliases are not known until the assignment has been told."""

    use: f.Use
    aliases: list[int]
    container: list[int]


class Builder:
    """Collects one module. Call :meth:`finish` once, at the end.

    A front end that finds places dear tells whatever it can find them by; ``locate`` and ``extent`` are asked for
    those that are kept.
    """

    def __init__(
        self,
        interest: Interest,
        locate: Callable[[Any], f.Place] = lambda place: place,
        extent: Callable[[Any], f.Statement] = lambda lines: lines,
        hits: Hits | None = None,
    ) -> None:
        self.interest = interest
        self._hits = hits
        self._locate = locate
        self._extent = extent
        self.scopes: list[Scope] = []
        self._flow = Flow()
        self._order = 0
        self._bindings: list[f.Binding] = []
        self._latest: dict[str, f.Expression] = {}
        self._functions: list[f.Function] = []
        self._classes: list[_Class] = []
        self._statements: list[Any] = []
        self._all_names: list[str] | None = None
        self._all_computed = False
        self._reads: list[Read] = []
        self._type_checks: set[int] = set()
        self._uses: list[_PendingUse] = []
        self._stars: list[StarEvent] = []
        self._nonlocal_bindings: list[tuple[int, str, int]] = []
        self._symbols: set[str] = set()
        self._block = self._flow.open_root()
        self._outer_blocks: list[int] = []
        self._scope = self._open(Scope(None, self._block, ""))

    # --- scopes -------------------------------------------------------------------------------------------------

    @property
    def here(self) -> Scope:
        """The scope being told."""
        return self.scopes[self._scope]

    @property
    def at_module_level(self) -> bool:
        """Whether a binding made now is the module's."""
        return self._scope == MODULE

    def qualify(self, name: str) -> str:
        """Qualified name, inside the module, of ``name`` defined here."""
        return f"{self.here.symbol}.{name}" if self.here.symbol else name

    def _open(self, scope: Scope) -> int:
        self.scopes.append(scope)
        return len(self.scopes) - 1

    def open_class(self, name: str, bases: tuple[f.Expression, ...], place: Any) -> f.ClassValue:
        """Enter a class body, which runs in place."""
        symbol = self.qualify(name)
        self._symbols.add(symbol)
        number = len(self._classes)
        self._scope = self._open(Scope(self._scope, self._block, symbol, is_class=True, class_number=number))
        self._classes.append(_Class(symbol, bases, place, self._scope))
        return f.ClassValue(number)

    def define(self, name: str, returns: f.Expression, decorators: tuple[f.Expression, ...]) -> f.FunctionValue:
        """A function of this scope; its body is told between :meth:`open_function` and :meth:`close`."""
        symbol = self.qualify(name)
        self._symbols.add(symbol)
        self._functions.append(f.Function(symbol, returns, decorators))
        return f.FunctionValue(len(self._functions) - 1)

    def open_function(self, name: str | None) -> None:
        """Enter a function (or, without a name, a lambda), whose body runs later."""
        around = self._scope
        while self.scopes[around].sees_class:
            around = self.scopes[around].parent or MODULE
        self._outer_blocks.append(self._block)
        defined_at = (self._tick(), self._block)
        self._block = self._flow.open_root()
        symbol = self.here.symbol if name is None else self.qualify(name)
        scope = Scope(self._scope, self._block, symbol, is_function=True, defined_at=defined_at)
        if name is not None and self.scopes[around].is_class:
            scope.class_number = self.scopes[around].class_number
        self._scope = self._open(scope)

    def open_inner(self, *, comprehension: bool) -> None:
        """Enter a scope that runs in place: a comprehension, or a list of type parameters."""
        self._scope = self._open(
            Scope(
                self._scope,
                self._block,
                self.here.symbol,
                is_comprehension=comprehension,
                sees_class=not comprehension,
            )
        )

    def close(self) -> None:
        """Leave the innermost scope."""
        scope = self.here
        assert scope.parent is not None, "the module's scope is never left"
        if scope.is_function:
            self._block = self._outer_blocks.pop()
        self._scope = scope.parent

    # --- flow ---------------------------------------------------------------------------------------------------

    def open_group(self, kind: GroupKind) -> int:
        """A compound statement begins."""
        return self._flow.open_group(kind, self._block)

    def open_arm(self, group: int, kind: ArmKind = ArmKind.BODY) -> None:
        """The next arm of ``group`` begins."""
        self._block = self._flow.open_arm(group, kind)

    def close_arm(self) -> None:
        """Back to the block that holds the compound statement."""
        group = self._flow.blocks[self._block].group
        assert group is not None, "no arm is open"
        self._block = self._flow.groups[group].parent

    def exhaust(self, group: int) -> None:
        """One of the arms of ``group`` must run."""
        self._flow.groups[group].exhaustive = True

    def leave(self) -> None:
        """``return`` or ``raise``: the rest of this arm does not run."""
        self._flow.blocks[self._block].leaves = True

    def _tick(self) -> int:
        self._order += 1
        return self._order

    # --- names --------------------------------------------------------------------------------------------------

    def declare(self, names: Iterable[str], *, is_global: bool) -> None:
        """``global`` or ``nonlocal``."""
        (self.here.global_names if is_global else self.here.nonlocal_names).update(names)

    def read(self, name: str) -> f.Name:
        """The value of ``name`` here and now."""
        self._reads.append(Read(name, self._scope, self._tick(), self._block))
        return f.Name(len(self._reads) - 1)

    def check_type(self, value: f.Expression) -> None:
        """``value`` is read for an ``isinstance`` test or an ``except`` clause only."""
        if isinstance(value, f.Name):
            self._type_checks.add(value.load)

    def bind(self, name: str, value: f.Expression, *, may: bool = False, order: int | None = None) -> int:
        """Bind ``name`` in the scope it belongs to; the binding's number.

        ``may``: what the name was before stays possible. ``order``: when it happens, if not now.
        """
        scope, number = self.here, len(self._bindings)
        self._latest[name] = value
        at_module = self.at_module_level or name in scope.global_names
        self._bindings.append(f.Binding(name, value, at_module or scope.is_class))
        if at_module and not self.at_module_level:
            self.scopes[MODULE].anytime.setdefault(name, []).append(number)
        elif name in scope.nonlocal_names:
            self._nonlocal_bindings.append((self._scope, name, number))
        else:
            kind = EventKind.MAY_BIND if may else EventKind.BIND
            at = self._tick() if order is None else order
            scope.events.setdefault(name, []).append(Event(kind, number, at, self._block))
        return number

    def latest(self, name: str) -> f.Expression:
        """What ``name`` was last bound to, in whatever scope; a guess for what may be reported once too often."""
        return self._latest.get(name, f.OPAQUE)

    def bind_walrus(self, name: str, value: f.Expression, *, order: int, certain: bool) -> list[int]:
        """Bind from inside an expression, in the nearest scope that is no comprehension.

        It holds from ``order``, the start of its statement, since the order inside an expression is not told;
        ``certain``: it always runs, and so ends what the name was before.
        """
        home = self._scope
        while self.here.is_comprehension:
            self._scope = self.here.parent or MODULE
        numbers = [self.bind(name, value, may=True, order=order)]
        if certain and self._scope == home:
            numbers.append(self.bind(name, value))
        self._scope = home
        return numbers

    def unbind(self, name: str) -> None:
        """``del name``."""
        scope = self.here
        if name not in scope.global_names and name not in scope.nonlocal_names:
            scope.events.setdefault(name, []).append(Event(EventKind.UNBIND, f.BUILTIN, self._tick(), self._block))

    def star(self, module: str, level: int) -> None:
        """``from module import *``."""
        number = len(self._bindings)
        self._bindings.append(f.Binding("*", f.Star(module, level), True))
        self._stars.append(StarEvent(number, self._tick(), self._block))

    def export(self, names: Iterable[str] | None, *, add: bool) -> None:
        """``__all__`` is set, or gets more; None where the names are computed."""
        if names is None:
            self._all_computed = True
        else:
            add = add or self._block != self.scopes[MODULE].root  # in a branch: what other branches say stays possible
            self._all_names = [*((self._all_names or []) if add else []), *names]

    def store_attribute(self, owner: str, name: str, value: f.Expression) -> None:
        """``owner.name = value``: kept when ``owner`` is the first parameter of a method around it."""
        for scope in self._functions_around():
            if scope.self_name == owner and scope.class_number is not None:
                self._classes[scope.class_number].attributes.setdefault(name, []).append(value)
                return

    def owners(self) -> frozenset[str]:
        """Names whose attributes :meth:`store_attribute` keeps."""
        return frozenset(scope.self_name for scope in self._functions_around() if scope.self_name is not None)

    def _functions_around(self) -> Iterator[Scope]:
        """The scopes from here outward, up to the next class."""
        number: int | None = self._scope
        while number is not None and not self.scopes[number].is_class:
            yield self.scopes[number]
            number = self.scopes[number].parent

    def method_class(self) -> int | None:
        """Number of the class whose method is being told."""
        number: int | None = self._scope
        while number is not None and not self.scopes[number].is_class:
            if self.scopes[number].class_number is not None:
                return self.scopes[number].class_number
            number = self.scopes[number].parent
        return None

    def declare_attribute(self, name: str, value: f.Expression) -> None:
        """``name: annotation`` in a class body."""
        number = self.here.class_number
        assert number is not None, "told outside a class body"
        self._classes[number].attributes.setdefault(name, []).append(value)

    # --- uses ---------------------------------------------------------------------------------------------------

    def statement(self, lines: Any) -> int:
        """A statement, header or decorator; its number."""
        self._statements.append(lines)
        return len(self._statements) - 1

    def now(self) -> int:
        """The present place in the order of execution."""
        return self._tick()

    def use(
        self,
        use: f.Use,
        *,
        aliases: list[int] | None = None,
        container: list[int] | None = None,
    ) -> None:
        """A value is called, handed on, or given another name.

        ``aliases`` and ``container`` are filled by the caller later: the bindings it makes, and the bindings of the
        display it is an element of.
        """
        self._uses.append(_PendingUse(use, [] if aliases is None else aliases, [] if container is None else container))

    # --- the end ------------------------------------------------------------------------------------------------

    def finish(
        self, comments: tuple[f.CommentFacts, ...] = (), headers: tuple[f.HeaderFacts, ...] = ()
    ) -> f.ModuleFacts:
        """The facts of the module, without what can never reach a governed name."""
        self._settle_nonlocals()
        loads, exports, members = Resolution(self.scopes, self._reads, self._stars, self._flow).resolve()
        classes = tuple(
            f.Class(
                c.symbol,
                c.bases,
                members[c.scope],
                {name: tuple(values) for name, values in c.attributes.items()},
                self._locate(c.place),
            )
            for c in self._classes
        )
        names = [read.name for read in self._reads]
        contents = Contents(loads, names, self._bindings, self._functions, classes)
        reach = Reach(self.interest, contents)
        checked = self._only_type_checked(loads)
        hot = None if self._hits is None else Hot(self._hits, self.interest, contents)
        uses = tuple(
            replace(pending.use, place=self._locate(pending.use.place), aliases=tuple(pending.aliases))
            for pending in self._uses
            if not (pending.container and checked.issuperset(pending.container))
            and (hot is None or hot.uses(pending.use))
            and reach.use(pending.use)
        )
        stars = tuple(star.binding for star in self._stars)
        kept = reach.closure(uses, (*exports.values(), stars), classes)
        placed = {use.place.statement for use in uses} | {c.place.statement for c in classes}
        named_elsewhere = {f.BUILTIN, *stars}
        facts = f.ModuleFacts(
            uses=uses,
            loads={load: loads[load] for load in sorted(kept.loads)},
            names={load: names[load] for load in sorted(kept.loads) if named_elsewhere.intersection(loads[load])},
            bindings={number: self._bindings[number] for number in sorted(kept.bindings)},
            exports=exports,
            stars=stars,
            all_names=None if self._all_names is None else tuple(self._all_names),
            all_computed=self._all_computed,
            functions=tuple(self._functions),
            classes=classes,
            statements={number: self._extent(self._statements[number]) for number in sorted(placed)},
            comments=comments,
            headers=headers,
            symbols=tuple(sorted(self._symbols)),
            signs=() if hot is None else hot.signs(),
            given_names=() if hot is None else tuple(sorted(hot.given_names)),
            derived=None if hot is None else tuple(n for n, owner in enumerate(classes) if hot.derives(owner)),
        )
        # What was put off refers to the front end and its tree, and so back to here, through values into which the
        # collector does not look.
        for told in (self._uses, self._statements, self._classes):
            told.clear()
        return facts

    def _settle_nonlocals(self) -> None:
        """File each binding of a ``nonlocal`` name under the function that owns it, whose body is known by now."""
        for scope_number, name, number in self._nonlocal_bindings:
            parent = self.scopes[scope_number].parent
            while parent is not None:
                scope = self.scopes[parent]
                if scope.is_function and name in scope.events:
                    scope.anytime.setdefault(name, []).append(number)
                    break
                parent = scope.parent

    def _only_type_checked(self, loads: list[tuple[int, ...]]) -> set[int]:
        """Bindings that are read for type tests and for nothing else: what they hold is never handed on."""
        checked = {number for load in self._type_checks for number in loads[load]}
        for load, numbers in enumerate(loads):
            if load not in self._type_checks:
                checked.difference_update(numbers)
        return checked
