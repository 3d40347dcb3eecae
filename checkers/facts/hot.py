"""Names for something governed, judged by how they are spelled: what of a module is worth keeping, and what it teaches.

A site spells a word that counts in its file (:class:`Hits`), or a name that the file gave to such a thing. Nothing is
looked up in other modules here: a name that another module gave is a word that counts by then, see
:mod:`checkers.intake.words`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from checkers.facts import model as f
from checkers.facts.interest import ACCESSORS, Contents, Interest
from checkers.targets import chain_end

_NAMESPACES = frozenset({"globals", "locals", "vars"})
ITSELF = frozenset({"__call__", "__func__", "__get__", "__wrapped__"})
"""Attributes of a callable that are, or give, the callable again."""
_ITSELF_BY_STRING = {f'"{name}' for name in ITSELF}
ENTER = ("__aenter__", "__enter__")
"""Methods that ``with`` calls without their names: they give what it binds."""
_TYPES = frozenset({"Type", "type"})


class Hits(NamedTuple):
    """The words that count in one file; those with a dot count behind one, those with a quote in a string."""

    plain: frozenset[str]
    contagious: frozenset[str] = frozenset()
    """Of these, those for objects that are called under any name: what comes of them counts as well."""
    giving: frozenset[str] = frozenset()
    """Of these, those for functions of the project that give something governed when they are called."""
    behind: frozenset[str] = frozenset()
    """Names for what a declared name is an alias of."""

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
        self._words = _ITSELF_BY_STRING.union(hits.plain)
        self._giving_words = _ITSELF_BY_STRING.union(hits.giving)
        self._wild_words = set(hits.contagious)
        self._behind = set(hits.behind)
        self._looked_behind = set[int]()
        """Loads of aliases of declared names."""
        self._hot = set[int]()
        """Bindings that give something governed."""
        self._wild = set[int]()
        """Bindings that give something that is called under any name."""
        self._giving = set[int]()
        """Bindings to functions that give something governed."""
        self._own = set[str]()
        self._signs = set[str]()
        self._learn()

    def _learn(self) -> None:
        """Go over the bindings until nothing more is known of any (Kleene's fixpoint)."""
        numbered = [
            number
            for number, binding in enumerate(self._bindings)
            if binding.name != "*" and (binding.value != f.OPAQUE or self._interest.is_local(binding.name))
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
        return len(self._hot) + len(self._wild) + len(self._giving) + len(self._signs) + len(self._behind)

    def _take_binding(self, number: int, binding: f.Binding) -> None:
        kinds = self._take(binding.name, binding.value, escapes=binding.escapes)
        for found, holds in zip((self._hot, self._wild, self._giving), kinds, strict=True):
            if holds:
                found.add(number)

    def _take(self, name: str, value: f.Expression, *, escapes: bool) -> tuple[bool, bool, bool]:
        """Whether ``value`` is hot, wild and giving; its ``name`` is noted."""
        is_wild = self._is_wild(value) or self._reaches_anything(name, value)
        is_declared = self._interest.is_local(name) or name in self._behind
        is_hot, is_giving = is_wild or is_declared or self._is_hot(value), self._is_giving(value)
        if is_hot or is_giving:
            self._own.add(name)
        if escapes:
            if is_declared:
                self._look_behind(name, value)
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
        return is_hot, is_wild, is_giving

    def _look_behind(self, name: str, value: f.Expression) -> None:
        """What a declared name is an alias of is governed under its own name, too."""
        todo, seen = [value], self._looked_behind
        while todo:
            match todo.pop():
                case f.Member(_, _, other) | f.Attribute(_, other):
                    self._note_behind(name, other)
                case f.Name(load) if load not in seen:
                    seen.add(load)
                    self._note_behind(name, self._names[load])
                    todo += self._bound_to(load)
                case other_value:
                    todo += _parts(other_value)

    def _note_behind(self, name: str, other: str) -> None:
        if other != name:
            self._behind.add(other)
            self._own |= {other, f".{other}"}
            self._words |= {other, f".{other}"}
            self._signs.add(f"behind:{other}")

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
        last = chain_end(use.chain)
        if use.chain.endswith(self._interest.chain_ends) or f".{last}" in self._words:
            return True
        if last in self._interest.method_names:
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
                return name != self._names[load]
            case _ if parts := _parts(value):
                return any(self._reaches_anything(name, part) for part in parts)
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
            case f.Item(inner, _):
                return self._is_hot(inner) or self._by_string(value, self._words)
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
                return self._any_hot(_parts(value))

    def _is_giving(self, value: f.Expression) -> bool:
        """Whether ``value`` may be a function of the project that gives something governed."""
        match value:
            case f.Name(load):
                return self._is_bound(load, self._giving, self._giving_words)
            case f.Attribute(owner, name):
                return f".{name}" in self._giving_words or (name in ITSELF and self._is_giving(owner))
            case f.Member(_, _, name):
                return name in self._giving_words
            case f.FunctionValue(number):
                return self._is_type_of_hot(self._functions[number].returns)
            case f.Call() | f.Item():
                return self._by_string(value, self._giving_words) or self._is_getter(value, self._words)
            case _:
                return any(self._is_giving(part) for part in _parts(value))

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
        return self._by_string(call, self._words) or self._is_giving(call.function)

    def _by_string(self, value: f.Expression, words: set[str]) -> bool:
        """Whether ``value`` is reached by a string that names one of ``words``."""
        match value:
            case f.Call(f.Attribute(owner, "get"), arguments) if self._is_namespace(owner):
                return _names_one(arguments, 0, words)
            case f.Call(f.Name() | f.Attribute() as function, arguments) if self._last(function) == "getattr":
                return _names_one(arguments, 1, words)
            case f.Call(function, _):
                return self._is_getter(function, words)
            case f.Item(owner, key):
                return self._is_namespace(owner) and _is_word(key, words)
            case _:
                return False

    def _is_getter(self, value: f.Expression, words: set[str]) -> bool:
        """Whether ``value`` is an ``attrgetter`` of one of ``words``."""
        if not isinstance(value, f.Call) or self._last(value.function) != "attrgetter":
            return False
        return _names_one(value.arguments, 0, words)

    def _is_namespace(self, value: f.Expression) -> bool:
        """Whether ``value`` may be the names of a module or class, as a mapping."""
        bound: list[f.Expression] = []  # an alias of an alias is wild by itself
        todo = [value]
        while todo or bound:
            is_bound = not todo
            match (bound if is_bound else todo).pop():
                case f.Call(function, _) if self._last(function) in _NAMESPACES:
                    return True
                case f.Attribute(_, "__dict__" | "modules"):
                    return True
                case f.Attribute(owner, name) if name in ITSELF and not is_bound:
                    todo.append(owner)
                case f.Name(load) if not is_bound:
                    bound += self._bound_to(load)
                case other:
                    bound += _parts(other)
        return False

    def _is_hot_instance(self, value: f.Expression) -> bool:
        """Whether ``value`` may be made by a class that is governed."""
        if not isinstance(value, f.Name):
            return True
        for number in self._loads[value.load]:
            match f.OPAQUE if number == f.BUILTIN else self._bindings[number].value:
                case f.SelfValue(owner, _):
                    found = self.derives(self._classes[owner])
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
            case f.Call(callee, arguments):
                is_wild = self._is_wild(callee) or self._by_string(value, self._wild_words)
                is_wild = is_wild or self._last(callee) == "attrgetter"  # its result may be called with what is wild
                return is_wild or (self._is_access(callee) and self._is_any_wild(arguments))
            case f.Item(inner, key):
                is_wild = self._is_wild(inner) or self._is_wild(key) or self._by_string(value, self._wild_words)
                return is_wild or (self._is_namespace(inner) and self._names_wild(key))
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
                found = self._classes[number]
                entered = {n for name in ENTER for n in found.members.get(name, ())}
                return not self._wild.isdisjoint(entered) or any(self._is_wild(base) for base in found.bases)
            case _:
                return any(self._is_wild(part) for part in _parts(value))

    def _is_any_wild(self, arguments: Iterable[f.CallArgument]) -> bool:
        return any(self._is_wild(argument.value) or self._names_wild(argument.value) for argument in arguments)

    def _names_wild(self, value: f.Expression) -> bool:
        """Whether a string names a library whose objects are called under any name, or something that comes of one."""
        text = value.value if isinstance(value, f.Constant) else None
        names = text.split(".") if isinstance(text, str) else [""]
        words = self._wild_words
        return names[0] in self._interest.contagious or any(n in words or f".{n}" in words for n in names)

    def _is_access(self, function: f.Expression) -> bool:
        """Whether ``function`` gives what its argument has under a name, or all of it; or an object of that type."""
        name = self._last(function.function if isinstance(function, f.Call) else function)
        return name in ACCESSORS or name == "cast"


def _parts(value: f.Expression) -> tuple[f.Expression, ...]:
    """What ``value`` is chosen from or taken out of, where it is no more than that."""
    match value:
        case f.Choice(values) | f.Display(values) | f.Joined(values):
            return values
        case f.Element(inner) | f.Part(inner, _) | f.Entered(inner) | f.Awaited(inner):
            return (inner,)
        case _:
            return ()


def _names_one(arguments: Iterable[f.CallArgument], position: int, words: set[str]) -> bool:
    """Whether a positional argument is a string that names one of ``words``."""
    positional = [argument.value for argument in arguments if argument.keyword is None]
    return any(_is_word(value, words) for value in positional[position : position + 1])


def _is_word(value: f.Expression, words: set[str]) -> bool:
    """Whether a constant string names one of ``words``."""
    if not isinstance(value, f.Constant) or not isinstance(value.value, str):
        return False
    name = value.value.rpartition(".")[2]
    return f'"{name}' in words or f".{name}" in words
