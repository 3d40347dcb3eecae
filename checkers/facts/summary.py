"""What of one module's facts concerns the rest of the tree: its names, its interface, what it teaches.

The interface is all that other modules can see of it, in numbers that do not depend on what else the module holds: as
long as its digest stays, a change to the module changes no other module's sites.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from checkers.facts import model as f


class Summary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``names`` are qualified inside the module; as long as ``interface`` stays, no other module's sites change."""

    names: tuple[str, ...]
    interface: bytes
    signs: tuple[str, ...] = ()
    """What the module tells of the tree, see :class:`checkers.intake.words.Known`."""


def summarise(facts: f.ModuleFacts) -> Summary:
    """The summary of a module."""
    names = {*facts.symbols, *facts.exports}
    names.update(f"{owner.symbol}.{name}" for owner in facts.classes for name in owner.members)
    return Summary(tuple(sorted(names)), _Interface(facts).digest(), facts.signs)


class _Interface:
    """Writes what can be reached from a module's exports, each thing once and numbered as it is met."""

    def __init__(self, facts: f.ModuleFacts) -> None:
        self._facts = facts
        self._numbers: dict[tuple[str, int], int] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._written: list[str] = []

    def digest(self) -> bytes:
        facts = self._facts
        self._write("module", repr(facts.all_names), repr(facts.all_computed))
        for name in sorted(facts.exports):
            self._write("export", name)
            self._refer("binding", facts.exports[name])
        self._refer("binding", facts.stars)
        while self._waiting:
            kind, number = self._waiting.popleft()
            self._write(kind)
            getattr(self, f"_{kind}")(number)
        text = "\0".join(self._written)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _write(self, *words: str) -> None:
        self._written += words

    def _refer(self, kind: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            key = kind, number
            if key not in self._numbers:
                self._numbers[key] = len(self._numbers)
                self._waiting.append(key)
            self._write(str(self._numbers[key]))
        self._write(";")

    def _binding(self, number: int) -> None:
        binding = self._facts.bindings.get(number)
        if binding is None:
            self._write("builtin" if number == f.BUILTIN else "unknown")
        else:
            self._write(binding.name)
            self._values([binding.value])

    def _load(self, number: int) -> None:
        self._write(self._facts.names.get(number, ""))
        self._refer("binding", self._facts.loads.get(number, ()))

    def _function(self, number: int) -> None:
        function = self._facts.functions[number]
        self._write(function.symbol)
        self._values([function.returns, *function.decorators])

    def _class(self, number: int) -> None:
        owner = self._facts.classes[number]
        self._write(owner.symbol)
        self._values(owner.bases)
        for name in sorted(owner.members):
            self._write("member", name)
            self._refer("binding", owner.members[name])
        for name in sorted(owner.attributes):
            self._write("attribute", name)
            self._values(owner.attributes[name])

    def _values(self, values: Iterable[f.Expression]) -> None:
        """Write expressions; with a stack of their own, since they may nest deep."""
        todo: list[Any] = [*reversed([*values])]
        while todo:
            value = todo.pop()
            match value:
                case f.Name(load):
                    self._refer("load", [load])
                case f.FunctionValue(number):
                    self._refer("function", [number])
                case f.ClassValue(number) | f.SelfValue(number, _) | f.SuperValue(number):
                    self._write(type(value).__name__, repr(value.is_class) if isinstance(value, f.SelfValue) else "")
                    self._refer("class", [number])
                case msgspec.Struct():
                    self._write(type(value).__name__)
                    todo += [getattr(value, field) for field in reversed(value.__struct_fields__)]
                case tuple():
                    self._write(str(len(value)))
                    todo += reversed(value)
                case _:
                    self._write(repr(value))
