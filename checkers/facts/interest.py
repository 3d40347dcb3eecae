"""What can reach a governed name, seen from inside one module: the rest of its facts is not kept.

The test is one-sided. A name is dropped only when everything that may reach it is known to be of no interest: a
parameter without annotation, a value computed here, a module that neither the project nor the catalogue has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from checkers.facts import model as f
from checkers.targets import chain_matches, name_matches

ACCESSORS = frozenset({"__import__", "attrgetter", "getattr", "globals", "import_module", "locals", "vars"})
"""Functions that reach a name by a string."""

MAX_DEPTH = 400
"""Nested values and aliases of aliases beyond which a value is kept unjudged."""


class Interest(msgspec.Struct, frozen=True):
    """What the catalogue, the policy and the tree make worth keeping."""

    roots: frozenset[str] = frozenset()
    """Top-level module names: the catalogue's, the project's own, those of declared targets."""
    builtins: frozenset[str] = ACCESSORS
    """Builtin names that are governed or that give access to others."""
    method_names: frozenset[str] = frozenset()
    """Methods that count whatever their receiver is: by-name methods, ends of declared chains."""
    chain_ends: tuple[str, ...] = ()
    """Ends of callees as written that count whatever their receiver is."""
    local_names: frozenset[str] = frozenset()
    """Last components of declared names: a project's own function or class of that name is followed."""
    local_patterns: tuple[str, ...] = ()
    """The same of declared patterns, in which ``*`` stands for any characters."""
    chains: tuple[str, ...] = ()
    """Declared method chains whose last component is a pattern."""
    contagious: frozenset[str] = frozenset()
    """Top-level names of libraries whose objects are called under any name."""
    keywords: frozenset[str] = frozenset()
    """Keyword arguments that make a call a site."""

    def is_local(self, name: str) -> bool:
        """Whether ``name`` may be the last component of something declared."""
        return name in self.local_names or any(name_matches(pattern, name) for pattern in self.local_patterns)


class Contents(NamedTuple):
    """What one module reads, binds and defines, numbered as in its facts; ``names`` are those of the loads."""

    loads: Sequence[tuple[int, ...]]
    names: Sequence[str]
    bindings: Sequence[f.Binding]
    functions: Sequence[f.Function]
    classes: Sequence[f.Class]


class Kept(NamedTuple):
    """Numbers of the loads and bindings that the kept facts refer to."""

    loads: set[int]
    bindings: set[int]


class Reach:
    """Judges the values of one module."""

    def __init__(self, interest: Interest, contents: Contents) -> None:
        self.interest = interest
        self.loads, self.names, self.bindings, self.functions, self.classes = contents
        self._bindings: dict[int, bool] = {}
        self._classes: dict[int, bool] = {}
        self._members: dict[tuple[int, str], bool] = {}
        self._depth = 0

    def use(self, use: f.Use) -> bool:
        """Whether the use may be a site, or something that a rule judges."""
        value = use.value
        if use.role == f.Role.CALL:
            if use.chain.endswith(self.interest.chain_ends):
                return True
            if any(chain_matches(chain, use.chain) for chain in self.interest.chains):
                return True
            if isinstance(value, f.Attribute) and value.name in self.interest.method_names:
                return True
            if isinstance(value, f.Name) and self.interest.is_local(self.names[value.load]):
                return True
        return self.value(value)

    def value(self, value: f.Expression) -> bool:
        """Whether ``value`` may be, or hold, something governed."""
        if self._depth > MAX_DEPTH:
            return True
        self._depth += 1
        try:
            return self._value(value)
        finally:
            self._depth -= 1

    def _any(self, values: Iterable[f.Expression]) -> bool:
        # A loop and no any(…): a generator in a C call would use the C stack for each level.
        for value in values:  # noqa: SIM110
            if self.value(value):
                return True
        return False

    def _value(self, value: f.Expression) -> bool:
        match value:
            case f.Name(load):
                for number in self.loads[load]:  # noqa: SIM110
                    if self.binding(number, load):
                        return True
                return False
            case f.Attribute(owner, name):
                return self.interest.is_local(name) or self._attribute(owner, name)
            case f.Item(inner, key):
                return self.value(inner) or self.value(key)  # ``Optional[Cls]`` is of interest for the key
            case f.Call(inner, _) | f.Part(inner, _):
                return self.value(inner)
            case f.Element(inner) | f.Entered(inner) | f.Awaited(inner) | f.Instance(inner):
                return self.value(inner)
            case f.Choice(options) | f.Display(options):
                return self._any(options)
            case f.Member(_, _, name) if self.interest.is_local(name):
                return True
            case f.Module(name) | f.Member(name, 0, _) | f.Star(name, 0):
                return name.partition(".")[0] in self.interest.roots
            case f.Member() | f.Star():
                return True
            case f.FunctionValue(number):
                return self._function(number)
            case f.ClassValue(number) | f.SelfValue(number, _) | f.SuperValue(number):
                return self._class(number)
            case _:
                return False

    def binding(self, number: int, load: int) -> bool:
        """Whether what a binding gives may be governed."""
        if number == f.BUILTIN:
            return self.names[load] in self.interest.builtins
        if number not in self._bindings:
            self._bindings[number] = True  # while it is being judged: a cycle keeps too much, never too little
            binding = self.bindings[number]
            self._bindings[number] = self.interest.is_local(binding.name) or self.value(binding.value)
        return self._bindings[number]

    def _attribute(self, owner: f.Expression, name: str) -> bool:
        """``self.method`` of a plain method is the commonest value of all, and of no interest."""
        if isinstance(owner, f.Name) and name != "__class__":
            numbers = self.loads[owner.load]
            values = [self.bindings[number].value for number in numbers if number != f.BUILTIN]
            if len(values) == len(numbers) == 1 and isinstance(values[0], f.SelfValue | f.ClassValue):
                return self._member(values[0].number, name)
        return self.value(owner)

    def _member(self, number: int, name: str) -> bool:
        key = (number, name)
        if key not in self._members:
            self._members[key] = True
            owner = self.classes[number]
            own = [self.bindings[binding].value for binding in owner.members.get(name, ())]
            own += owner.attributes.get(name, ())
            self._members[key] = self._any(own) or self._any(owner.bases)
        return self._members[key]

    def _function(self, number: int) -> bool:
        function = self.functions[number]
        if self.interest.is_local(function.symbol.rpartition(".")[2]):
            return True
        return self._any((function.returns, *function.decorators))

    def _class(self, number: int) -> bool:
        if number not in self._classes:
            self._classes[number] = True
            owner = self.classes[number]
            values = [*owner.bases, *(value for values in owner.attributes.values() for value in values)]
            values += [self.bindings[n].value for numbers in owner.members.values() for n in numbers]
            named = self.interest.is_local(owner.symbol.rpartition(".")[2])
            self._classes[number] = named or self._any(values)
        return self._classes[number]

    def closure(self, uses: Sequence[f.Use], exports: Iterable[Sequence[int]], classes: Sequence[f.Class]) -> Kept:
        """Everything that the uses, the exported bindings and the classes refer to."""
        kept = Kept(set(), set())
        todo: list[f.Expression] = [use.value for use in uses]
        todo += [argument.value for use in uses for argument in use.arguments or ()]
        todo += [value for function in self.functions for value in (function.returns, *function.decorators)]
        numbers = [number for use in uses for number in use.aliases]
        numbers += [number for exported in exports for number in exported]
        for owner in classes:
            todo += [*owner.bases, *(value for values in owner.attributes.values() for value in values)]
            numbers += [number for members in owner.members.values() for number in members]
        while todo or numbers:
            for number in numbers:
                if number != f.BUILTIN and number not in kept.bindings:
                    kept.bindings.add(number)
                    todo.append(self.bindings[number].value)
            numbers = list(self._references(todo.pop(), todo, kept)) if todo else []
        return kept

    def _references(self, value: f.Expression, todo: list[f.Expression], kept: Kept) -> Sequence[int]:
        match value:
            case f.Name(load):
                if load in kept.loads:
                    return ()
                kept.loads.add(load)
                return self.loads[load]
            case f.Call(function, arguments):
                todo.append(function)
                todo += [argument.value for argument in arguments]
            case f.Item(inner, key):
                todo += [inner, key]
            case f.Choice(options) | f.Display(options) | f.Joined(options):
                todo += options
            case f.Attribute(inner, _) | f.Element(inner) | f.Part(inner, _) | f.Entered(inner):
                todo.append(inner)
            case f.Awaited(inner) | f.Instance(inner):
                todo.append(inner)
        return ()
