"""Names for something governed, judged by how they are spelled: what of a module is worth keeping, and what it teaches.

A site spells a word that counts in its file (:class:`Hits`), or a name that the file gave to such a thing. Nothing is
looked up in other modules here: a name that another module gave is a word that counts by then, see
:mod:`checkers.intake.words`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from checkers.facts import model as f
from checkers.facts.interest import ACCESSORS, Contents, Interest

_NAMESPACES = frozenset({"globals", "locals", "vars"})
ITSELF = frozenset({"__call__", "__func__", "__get__", "__wrapped__"})
"""Attributes of a callable that are, or give, the callable again."""
_TYPES = frozenset({"Type", "type"})


class Hits(NamedTuple):
    """The words that count in one file; those with a dot count behind one, those with a quote in a string."""

    plain: frozenset[str]
    contagious: frozenset[str] = frozenset()
    """Of these, those for objects that are called under any name: what comes of them counts as well."""
    giving: frozenset[str] = frozenset()
    """Of these, those for functions of the project that give something governed when they are called."""

    def __bool__(self) -> bool:
        return bool(self.plain)

    def with_names(self, names: frozenset[str]) -> Hits:
        """These words, and what the module itself gave."""
        return self._replace(plain=self.plain | names)

    def exceed(self, other: Hits) -> bool:
        """Whether there are words that ``other`` lacks."""
        return not all(mine <= theirs for mine, theirs in zip(self, other, strict=True))


class Hot:
    """Judges the values of one module."""

    def __init__(self, hits: Hits, interest: Interest, contents: Contents) -> None:
        self._interest = interest
        self._loads, self._names, self._bindings, self._functions, self._classes = contents
        self._words = set(hits.plain)
        self._giving_words = set(hits.giving)
        self._wild_words = set(hits.contagious)
        self._renamed = defaultdict[str, set[str]](set)
        """Names that this module gives to modules, and the top-level names of those."""
        self._hot = set[int]()
        """Bindings that give something governed."""
        self._wild = set[int]()
        """Bindings that give something that is called under any name."""
        self._giving = set[int]()
        """Bindings to functions that give something governed."""
        self._module = defaultdict[int, set[str]](set)
        """Bindings that give a module which may hold something governed, and its top-level name."""
        self._own = set[str]()
        self._signs = set[str]()
        self._learn()

    def _learn(self) -> None:
        """Go over the bindings until nothing more is known of any (Kleene's fixpoint)."""
        numbered = [
            number
            for number, binding in enumerate(self._bindings)
            if binding.value != f.OPAQUE or self._interest.is_local(binding.name)
        ]
        stored = [(name, value) for owner in self._classes for name, of in owner.attributes.items() for value in of]
        size, before = self._size(), -1
        while size != before:
            for number in numbered:
                self._take_binding(number, self._bindings[number])
            for name, value in stored:
                self._take(name, value, escapes=True)
            size, before = self._size(), size

    def _size(self) -> int:
        found = len(self._hot) + len(self._wild) + len(self._giving) + len(self._signs)
        return found + sum(len(roots) for roots in self._module.values())

    def _take_binding(self, number: int, binding: f.Binding) -> None:
        *kinds, roots = self._take(binding.name, binding.value, escapes=binding.escapes)
        for found, holds in zip((self._hot, self._wild, self._giving), kinds, strict=True):
            if holds:
                found.add(number)
        if roots:
            self._module[number] |= roots

    def _take(self, name: str, value: f.Expression, *, escapes: bool) -> tuple[bool, bool, bool, set[str]]:
        """Whether ``value`` is hot, wild and giving, and of which modules it may be one; its ``name`` is noted."""
        is_wild = self._is_wild(value) or self._reaches_anything(name, value)
        is_hot, is_giving = is_wild or self._interest.is_local(name) or self._is_hot(value), self._is_giving(value)
        roots = self._roots(value)
        if is_hot or is_giving:
            self._own.add(name)
        if escapes:
            kinds = (
                ("hot", is_hot, self._words),
                ("wild", is_wild, self._wild_words),
                ("gives", is_giving, self._giving_words),
            )
            for kind, holds, words in kinds:
                if holds:
                    self._own.add(f".{name}")
                    words.add(f".{name}")
                    self._signs.add(f"{kind}:{name}")
            if new := roots.difference(self._interest.modules.get(name, ())):
                self._renamed[name] |= new
                self._signs |= {f"module:{root}:{name}" for root in new}
        return is_hot, is_wild, is_giving, roots

    @property
    def given_names(self) -> frozenset[str]:
        """Names that the module gave to something governed, and attributes with their dot."""
        return frozenset(self._own)

    def signs(self) -> tuple[str, ...]:
        """What other files have to know, see :class:`checkers.intake.words.Known`."""
        return tuple(sorted(self._signs))

    def uses(self, use: f.Use) -> bool:
        """Whether a use may be of something governed."""
        keywords = self._interest.keywords
        if any(argument.keyword in keywords for argument in use.arguments or ()):
            return True
        if use.chain.endswith(self._interest.chain_ends) or f".{use.chain.rpartition('.')[2]}" in self._words:
            return True
        return self._is_hot(use.value) or self._is_wild(use.value)

    def derives(self, owner: f.Class) -> bool:
        """Whether a class may be governed by one of its bases."""
        return any(self._is_hot(base) or self._is_wild(base) or isinstance(base, f.Call) for base in owner.bases)

    def _reaches_anything(self, name: str, value: f.Expression) -> bool:
        """Whether ``value`` is a mapping of names, or gives things by their names under another name than its own."""
        match value:
            case f.Member(_, _, given) | f.Attribute(_, given) if given in ACCESSORS:
                return name != given
            case f.Name(load) if self._names[load] in ACCESSORS:
                return f.BUILTIN in self._loads[load] and name != self._names[load]
            case _:
                return self._is_namespace(value)

    def _any_hot(self, values: Iterable[f.Expression]) -> bool:
        for value in values:  # noqa: SIM110  (a generator would use the C stack for each level)
            if self._is_hot(value):
                return True
        return False

    def _is_hot(self, value: f.Expression) -> bool:
        """Whether ``value`` itself may be governed, rather than lead to something that is."""
        match value:
            case f.Attribute(owner, "__class__"):
                return self._is_hot_instance(owner)
            case f.Attribute(owner, name):
                return f".{name}" in self._words or (name in ITSELF and self._is_hot(owner))
            case f.Name(load):
                return self._is_bound(load, self._hot, self._words)
            case f.Call():
                return self._gives(value)
            case f.Item(inner, key):
                return self._is_hot(inner) or (self._is_namespace(inner) and self._is_word(key))
            case f.Choice(values) | f.Display(values) | f.Joined(values):
                return self._any_hot(values)
            case f.Element(inner) | f.Part(inner, _) | f.Entered(inner) | f.Awaited(inner):
                return self._is_hot(inner)
            case f.Instance(annotation):
                return self._is_type_of_hot(annotation)
            case f.Member(_, _, name):
                return name in self._words
            case f.Star():
                return True
            case f.ClassValue(number):
                return self.derives(self._classes[number])
            case f.SelfValue(number, is_class):
                return is_class and self.derives(self._classes[number])
            case _:
                return False

    def _is_giving(self, value: f.Expression) -> bool:
        """Whether ``value`` may be a function of the project that gives something governed."""
        match value:
            case f.Name(load):
                return self._is_bound(load, self._giving, self._giving_words)
            case f.Attribute(_, name):
                return f".{name}" in self._giving_words
            case f.Member(_, _, name):
                return name in self._giving_words
            case f.FunctionValue(number):
                return self._is_type_of_hot(self._functions[number].returns)
            case f.Call(function, _):
                return self._last(function) == "attrgetter" and self._names_hot(value, 0)
            case f.Choice(options):
                return any(self._is_giving(option) for option in options)
            case _:
                return False

    def _is_bound(self, load: int, found: set[int], words: set[str]) -> bool:
        """Whether a name is bound to one of ``found`` where it is read; a builtin is, if it is one of ``words``."""
        name = self._names[load]
        for number in self._loads[load]:
            if number == f.BUILTIN or isinstance(self._bindings[number].value, f.Star):
                if name in words:
                    return True
            elif number in found:
                return True
        return False

    def _gives(self, call: f.Call) -> bool:
        """Whether a call may give something governed: by its name, or from what this project defines."""
        function = call.function
        match function:
            case f.Attribute(owner, "get") if self._is_namespace(owner):
                return any(self._is_word(argument.value) for argument in call.arguments[:1])
            case f.Name() | f.Attribute() if self._last(function) == "getattr":
                return self._names_hot(call, 1)
            case _:
                return self._is_giving(function)

    def _names_hot(self, call: f.Call, position: int) -> bool:
        """Whether a positional argument is a string that names something which counts."""
        positional = [argument.value for argument in call.arguments if argument.keyword is None]
        return any(self._is_word(value) for value in positional[position : position + 1])

    def _is_word(self, value: f.Expression) -> bool:
        """Whether a constant string names something that counts."""
        if not isinstance(value, f.Constant) or not isinstance(value.value, str):
            return False
        name = value.value.rpartition(".")[2]
        return f'"{name}' in self._words or f".{name}" in self._words

    def _is_namespace(self, value: f.Expression) -> bool:
        """Whether ``value`` may be the names of a module or class, as a mapping."""
        match value:
            case f.Call(function, _):
                return self._last(function) in _NAMESPACES
            case f.Attribute(_, name):
                return name in ("__dict__", "modules")
            case f.Name(load):
                found = (value for value in self._bound_to(load) if isinstance(value, f.Call | f.Attribute))
                return any(self._is_namespace(value) for value in found)
            case _:
                return False

    def _is_hot_instance(self, value: f.Expression) -> bool:
        """Whether ``value`` may be made by a class that is governed."""
        if not isinstance(value, f.Name):
            return True
        for number in self._loads[value.load]:
            match f.OPAQUE if number == f.BUILTIN else self._bindings[number].value:
                case f.SelfValue(owner, _):
                    found = self.derives(self._classes[owner])
                case f.Call(function, _):
                    found = self._is_hot(function)
                case f.Instance(annotation):
                    found = self._is_hot(annotation)
                case f.Opaque() | f.Module() | f.FunctionValue() | f.ClassValue():
                    found = False
                case _:
                    found = True
            if found:
                return True
        return False

    def _is_type_of_hot(self, annotation: f.Expression) -> bool:
        """Whether an annotation is ``type[X]`` of something governed, however wrapped, or a name for such a type."""
        todo, seen = [annotation], set[int]()
        while todo:
            match todo.pop():
                case f.Instance(inner):
                    todo.append(inner)
                case f.Item(owner, key):
                    keys = key.elements if isinstance(key, f.Display) else (key,)
                    if self._last(owner) in _TYPES and self._any_hot(keys):
                        return True
                    todo += keys
                case f.Choice(options):
                    todo += options
                case f.Name(load) if load not in seen:
                    seen.add(load)
                    todo += [value for value in self._bound_to(load) if isinstance(value, f.Item | f.Choice)]
        return False

    def _bound_to(self, load: int) -> list[f.Expression]:
        return [self._bindings[number].value for number in self._loads[load] if number != f.BUILTIN]

    def _last(self, value: f.Expression) -> str:
        match value:
            case f.Name(load):
                return self._names[load]
            case f.Attribute(_, name):
                return name
            case _:
                return ""

    def _is_wild(self, value: f.Expression) -> bool:
        """Whether ``value`` may come of a library whose objects are called under any name."""
        if not self._wild_words and not self._wild:
            return False
        match value:
            case f.Name(load):
                return self._is_bound(load, self._wild, self._wild_words)
            case f.Attribute(owner, name):
                return f".{name}" in self._wild_words or self._is_wild(owner)
            case f.Call(inner, _) | f.Element(inner) | f.Part(inner, _) | f.Entered(inner) | f.Awaited(inner):
                return self._is_wild(inner)
            case f.Item(inner, key):
                return self._is_wild(inner) or self._is_wild(key)
            case f.Choice(values) | f.Display(values) | f.Joined(values):
                return any(self._is_wild(inner) for inner in values)
            case f.Instance(inner):
                return self._is_wild(inner)
            case f.Module(module):
                return module.partition(".")[0] in self._interest.contagious
            case f.Member(module, _, name):
                return name in self._wild_words or module.partition(".")[0] in self._interest.contagious
            case f.FunctionValue(number):
                function = self._functions[number]
                return any(self._is_wild(inner) for inner in (function.returns, *function.decorators))
            case f.ClassValue(number) | f.SelfValue(number, _) | f.SuperValue(number):
                return any(self._is_wild(base) for base in self._classes[number].bases)
            case _:
                return False

    def _roots(self, value: f.Expression) -> set[str]:
        """Top-level names of the modules that ``value`` may be, of those that hold something governed."""
        match value:
            case f.Name(load):
                return {root for number in self._loads[load] for root in self._module.get(number, ())}
            case f.Attribute(owner, name) if self._is_handed(owner):
                return self._of_name(name)
            case f.Module(module):
                return self._of_name(module.partition(".")[0])
            case f.Member(_, _, name):
                return self._of_name(name)
            case f.Choice(options):
                return {root for option in options for root in self._roots(option)}
            case f.Call(function, arguments) if self._last(function) in ACCESSORS:
                return {root for argument in arguments for root in self._roots_named(argument.value)}
            case f.Item(owner, key) if self._last(owner) == "modules" or self._is_namespace(owner):
                return self._roots_named(key)
            case _:
                return set()

    def _roots_named(self, value: f.Expression) -> set[str]:
        """The same for a module that a string names."""
        if not isinstance(value, f.Constant) or not isinstance(value.value, str):
            return set()
        return {root for part in value.value.split(".") for root in self._of_name(part)}

    def _of_name(self, name: str) -> set[str]:
        """The same for a module, or a part of its name, that is spelled so."""
        return {*self._interest.modules.get(name, ()), *self._renamed.get(name, ())}

    def _is_handed(self, owner: f.Expression) -> bool:
        """Whether ``owner`` may be a module, or an object that holds one."""
        while isinstance(owner, f.Attribute):
            owner = owner.value
        if not isinstance(owner, f.Name):
            return isinstance(owner, f.Call)
        handed = f.Module | f.Member | f.Star | f.SelfValue | f.Call
        return any(isinstance(value, handed) for value in self._bound_to(owner.load))
