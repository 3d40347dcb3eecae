"""Follows values across the modules of a tree.

Every lookup gives all values that may be meant, in a fixed order. Cycles (modules that import each other, names
defined by themselves) are solved by iteration: within one outermost question a name that is being looked up stands
for what the last round found, and rounds repeat until nothing is new (Kleene's fixpoint, over finite sets).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from checkers.catalog import Catalog
from checkers.facts import model as f
from checkers.facts.hot import ITSELF
from checkers.resolve.layout import Layout
from checkers.resolve.values import (
    External,
    Getter,
    LibraryObject,
    Lookup,
    Method,
    Names,
    ProjectClass,
    ProjectFunction,
    ProjectModule,
    ProjectObject,
    Text,
    Value,
    Values,
)

MAX_DEPTH = 10_000
"""Names behind a name that are followed, some four for each module of a re-export; more is reported."""
MAX_ROUNDS = 12
FULL_ROUNDS = 2
"""Rounds after which ``node = node.left`` gives no longer names: a library's attributes have no end of their own."""
MAX_VALUES = 1000

_TYPE_WRAPPERS = frozenset(
    {"Annotated", "ClassVar", "Final", "InitVar", "NotRequired", "Optional", "ReadOnly", "Required", "Union"}
)
_FIRST_ONLY = frozenset({"Annotated", "ClassVar", "Final", "InitVar", "NotRequired", "ReadOnly", "Required"})
_CLASS_OF = frozenset({"builtins.type", "typing.Type"})
_PROPERTIES = frozenset({"builtins.property", "functools.cached_property", "django.utils.functional.cached_property"})
_CONTEXT_MANAGERS = frozenset({"contextlib.asynccontextmanager", "contextlib.contextmanager"})


class TooDeepError(Exception):
    """A name is defined through more aliases, or stands for more values, than are followed."""


class Evaluator:
    """Answers what the expressions of a tree may stand for."""

    def __init__(self, modules: Mapping[str, f.ModuleFacts], layout: Layout, catalog: Catalog) -> None:
        self.modules = modules
        self.layout = layout
        self.catalog = catalog
        self.reached: dict[str, set[str]] = defaultdict(set)
        """Files that were looked at, by the file whose names led there; under ``""`` those that a request names."""
        self._known: dict[Hashable, Values] = {}
        self._assumed: dict[Hashable, Values] = {}
        self._round: dict[Hashable, Values] = {}
        self._active: set[Hashable] = set()
        self._cyclic = False
        self._rounds = 0

    # --- names, with memory ------------------------------------------------------------------------------------

    def _remember(self, key: Hashable, compute: Callable[[], Values]) -> Values:
        if key in self._known:
            return self._known[key]
        if key in self._round:
            return self._round[key]
        if key in self._active:
            self._cyclic = True
            return self._assumed.get(key, ())
        if len(self._active) >= MAX_DEPTH:
            raise TooDeepError
        if self._active:
            return self._in_round(key, compute)
        self._assumed = {}
        for self._rounds in range(MAX_ROUNDS):
            self._round, self._cyclic = {}, False
            try:
                self._in_round(key, compute)
            finally:
                found, self._round = self._round, {}
            if not self._cyclic or found == self._assumed:
                break
            self._assumed = found
        self._known |= found
        return found[key]

    def _in_round(self, key: Hashable, compute: Callable[[], Values]) -> Values:
        self._active.add(key)
        try:
            values = compute()
        finally:
            self._active.discard(key)
        if self._rounds >= FULL_ROUNDS:
            values = self._without_growth(values, self._assumed.get(key, ()))
        self._round[key] = values
        return values

    def _without_growth(self, values: Values, assumed: Values) -> Values:
        """``values`` without attributes of what the name already stands for, unless the catalogue has them."""
        shorter = tuple(f"{value.name}." for value in assumed if isinstance(value, External))
        return tuple(
            value
            for value in values
            if not isinstance(value, External)
            or value in assumed
            or not value.name.startswith(shorter)
            or self._catalogued(value.name)
        )

    def binding(self, path: str, number: int, name: str = "") -> Values:
        """What binding ``number`` of a file gives; for a star import, what it brings under ``name``."""
        binding = self.modules[path].bindings.get(number)
        if binding is None:
            return ()
        if isinstance(binding.value, f.Star):
            star = binding.value
            return self._remember(("star", path, number, name), lambda: self._star(path, star, name))
        return self._remember(("binding", path, number), lambda: self._bound(path, number, binding))

    def _bound(self, path: str, number: int, binding: f.Binding) -> Values:
        values = self.value(path, binding.value)
        if number in self.modules[path].exports.get(binding.name, ()):
            return _union((self._own_entry(path, binding.name), values))
        return values

    def _own_entry(self, path: str, name: str) -> Values:
        """A module's name that the project declares is governed under that name, whatever it stands for."""
        module = self.layout.names[path]
        full = f"{module}.{name}" if module else name
        return (External(full),) if self.catalog.is_own(full) and self.catalog.entry(full) is not None else ()

    def named(self, name: str) -> Values:
        """What a qualified name of the tree stands for; nothing if it is none."""
        module, attributes = name, list[str]()
        while (path := self.layout.find(module, "")) is None:
            module, _, attribute = module.rpartition(".")
            attributes.append(attribute)
            if not module:
                return ()
        self.reached[""].add(path)
        values: Values = (ProjectModule(module, path),)
        for attribute in reversed(attributes):
            values = _union(self.attribute(value, attribute, path) for value in values)
        return values

    def export(self, path: str, name: str) -> Values:
        """What ``name`` stands for when module ``path`` has run."""
        return self._remember(("export", path, name), lambda: self._export(path, name))

    def _export(self, path: str, name: str) -> Values:
        facts = self.modules[path]
        numbers = facts.exports.get(name, ())
        if numbers:
            return _union(self.binding(path, number, name) for number in numbers)
        values = _union(self.binding(path, number, name) for number in facts.stars)
        return _union((self._own_entry(path, name), values)) if values else ()

    def _star(self, path: str, star: f.Star, name: str) -> Values:
        module = self.module(path, star.module, star.level)
        if isinstance(module, External):
            full = f"{module.name}.{name}"
            return (External(full),) if not name.startswith("_") and self._catalogued(full) else ()
        if module is None:
            return ()
        facts = self.modules.get(module.path or "")
        if facts is None:
            return ()
        if facts.all_names is not None and not facts.all_computed:
            if name not in facts.all_names:
                return ()
        elif name.startswith("_") and not facts.all_computed:
            return ()
        return self.attribute(module, name, path)

    # --- modules -----------------------------------------------------------------------------------------------

    def module(self, path: str, name: str, level: int) -> ProjectModule | External | None:
        """The module that an import in file ``path`` means; None for a relative one that leads nowhere."""
        if level:
            absolute = self.layout.relative(path, name, level)
            if absolute is None:
                return None
            name = absolute
        found = self.layout.find(name, path)
        if found is not None:
            self.reached[path].add(found)
            return ProjectModule(self.layout.names[found], found)
        if self.layout.is_package(name):
            return ProjectModule(name, None)
        return External(name) if name and not level else None

    def _imported_module(self, path: str, name: str) -> Values:
        """``import a.b.c as d``: each component is an attribute of the one before."""
        module = self.module(path, name, 0)
        if module is None:
            return ()
        if isinstance(module, External) and "." in name:
            top = self.module(path, name.partition(".")[0], 0)
            if isinstance(top, ProjectModule):
                values: Values = (top,)
                for part in name.split(".")[1:]:
                    values = _union(self.attribute(value, part, path) for value in values)
                return values
        return (module,)

    def _member(self, path: str, member: f.Member) -> Values:
        module = self.module(path, member.module, member.level)
        return () if module is None else self.attribute(module, member.name, path)

    def _module_attribute(self, module: ProjectModule, name: str, importer: str) -> Values:
        full = f"{module.name}.{name}"
        if self._catalogued(full) and not self.catalog.is_own(full):
            return (External(full),)
        facts = self.modules.get(module.path or "")
        values: Values = ()
        if module.path is not None and facts is not None:
            values = self.export(module.path, name)
        below = self.layout.find(full, module.path or importer)
        if below is not None:
            self.reached[module.path or importer].add(below)
            # Importing it takes the name in the package, whatever that bound before.
            return _union((values, (ProjectModule(self.layout.names[below], below),)))
        if values:
            return values
        if self.layout.is_package(full):
            return (ProjectModule(full, None),)
        # A folder without ``__init__.py`` never hides a library of its name.
        return (External(full),) if module.path is None else ()

    def _catalogued(self, name: str) -> bool:
        canonical = self.catalog.canonical(name)
        return self.catalog.entry(canonical) is not None or self.catalog.facts(canonical) is not None

    # --- values ------------------------------------------------------------------------------------------------

    def value(self, path: str, expression: f.Expression) -> Values:
        """Everything that ``expression`` of the file ``path`` may stand for.

        Raises :class:`TooDeepError`.
        """
        match expression:
            case f.Name(load):
                return self._load(path, load)
            case f.Attribute(owner, name):
                return _union(self.attribute(value, name, path) for value in self.value(path, owner))
            case f.Call():
                return self._call(path, expression)
            case f.Item(owner, key):
                return self._item(path, owner, key)
            case f.Choice(options):
                return _union(self.value(path, option) for option in options)
            case f.Constant(str(text)):
                return (Text(text),)
            case f.Entered(inner):
                return self._entered(path, inner)
            case f.Awaited(inner):
                return self.value(path, inner)
            case f.Element(inner) | f.Part(inner, _):
                return self._taken_out(path, expression, inner)
            case f.Instance(annotation):
                return self.instances(path, annotation)
            case f.Module(name):
                return self._imported_module(path, name)
            case f.Member():
                return self._member(path, expression)
            case f.FunctionValue(number):
                return self._function(path, number)
            case f.ClassValue(number):
                return (ProjectClass(path, number),)
            case f.SelfValue(number, is_class):
                return (ProjectClass(path, number),) if is_class else (ProjectObject(path, number),)
            case f.SuperValue(number):
                return self._super(path, number)
            case _:
                return ()

    def _load(self, path: str, load: int) -> Values:
        facts = self.modules[path]
        name = facts.names.get(load, "")
        values = _union(self.binding(path, number, name) for number in facts.loads.get(load, ()) if number != f.BUILTIN)
        if f.BUILTIN in facts.loads.get(load, ()) and not values:
            return (External(f"builtins.{name}"),)
        return values

    def _super(self, path: str, number: int) -> Values:
        bases = self.modules[path].classes[number].bases
        return _union(self._construct(value) for base in bases for value in self.value(path, base))

    def _taken_out(self, path: str, expression: f.Element | f.Part, inner: f.Expression) -> Values:
        """What is taken out of a display: instances are followed, callables were reported where they were put in."""
        if not isinstance(inner, f.Display):
            held = _held(inner, self.modules[path])
            if held is None:
                return self._followed_out(self.value(path, inner))
            inner = held
        elements = inner.elements
        if isinstance(expression, f.Part):
            elements = elements[expression.position : expression.position + 1]
        return self._followed_out(_union(self.value(path, element) for element in elements))

    def _followed_out(self, values: Values) -> Values:
        """Without the callables: those were reported where they were put in."""
        followed = LibraryObject | ProjectObject | ProjectModule
        return tuple(
            value
            for value in values
            if isinstance(value, followed) or (isinstance(value, External) and not self._catalogued(value.name))
        )

    def _entered(self, path: str, inner: f.Expression) -> Values:
        found: list[Values] = []
        for value in self.value(path, inner):
            if isinstance(value, ProjectObject):
                entered = [
                    *self.attribute(value, "__enter__", path),
                    *self.attribute(value, "__aenter__", path),
                ]
                returned = _union(self._result(method) for method in entered)
                found.append(returned or (value,))
            else:
                found.append((value,))
        return _union(found)

    # --- attributes --------------------------------------------------------------------------------------------

    def attribute(self, value: Value, name: str, importer: str) -> Values:
        """``value.name``, read in the file ``importer``."""
        if name == "__dict__":
            return (Names(value),)
        if name == "__class__":
            return self._class_of(value)
        if name in ITSELF and isinstance(value, External | Method | ProjectFunction):
            return (value,)
        match value:
            case External(owner):
                return self._external_attribute(owner, name)
            case LibraryObject(type_name):
                return self._object_attribute(type_name, name)
            case ProjectModule():
                return self._module_attribute(value, name, importer)
            case ProjectClass(path, number) | ProjectObject(path, number):
                return self._class_attribute(path, number, name, isinstance(value, ProjectObject))
            case Names() if name == "get":
                return (Lookup(value),)
            case _:
                return ()

    @staticmethod
    def _class_of(value: Value) -> Values:
        match value:
            case ProjectObject(path, number):
                return (ProjectClass(path, number),)
            case LibraryObject(type_name):
                return (External(type_name),)
            case _:
                return ()

    def _external_attribute(self, owner: str, name: str) -> Values:
        known = self.catalog.attribute(owner, name)
        if known is not None:
            return (External(known),)
        held = self.catalog.member(owner, name)
        return (External(f"{owner}.{name}"),) if held is None else (LibraryObject(held),)

    def _object_attribute(self, type_name: str, name: str) -> Values:
        method = self.catalog.attribute(type_name, name)
        if method is not None:
            return (Method(method),)
        held = self.catalog.member(type_name, name)
        return () if held is None else (LibraryObject(held),)

    def _class_attribute(self, path: str, number: int, name: str, of_object: bool) -> Values:
        key = ("attribute", path, number, name, of_object)
        return self._remember(key, lambda: self._own_or_found(path, number, name, of_object))

    def _own_or_found(self, path: str, number: int, name: str, of_object: bool) -> Values:
        own: Values = self._own_entry(path, f"{self.modules[path].classes[number].symbol}.{name}")
        if of_object:
            own = tuple(Method(value.name) for value in own if isinstance(value, External))
        return _union((own, self._find_attribute(path, number, name, of_object)))

    def _find_attribute(self, path: str, number: int, name: str, of_object: bool) -> Values:
        owner = self.modules[path].classes[number]
        members = owner.members.get(name, ())
        attributes = owner.attributes.get(name, ())
        found = [self.binding(path, binding) for binding in members]
        found += [self.value(path, value) for value in attributes]
        own = _union(found)
        if own and all(isinstance(value, ProjectFunction) for value in own):
            return _union(self._as_property(value) for value in own) if of_object else own
        found = [own]  # what a class stores under a name does not undo what its bases store there
        for base in owner.bases:
            for value in self.value(path, base):
                inherited = self._construct(value) if of_object else (value,)
                found += [self.attribute(instance, name, path) for instance in inherited]
        return _union(found)

    def _as_property(self, value: Value) -> Values:
        if isinstance(value, ProjectFunction) and self._decorated_with(value, _PROPERTIES):
            return self._result(value)
        return (value,)

    def _decorated_with(self, function: ProjectFunction, names: frozenset[str]) -> bool:
        decorators = self.modules[function.path].functions[function.number].decorators
        values = (value for decorator in decorators for value in self.value(function.path, decorator))
        return any(isinstance(value, External) and value.name in names for value in values)

    def _item(self, path: str, owner: f.Expression, key: f.Expression) -> Values:
        found: list[Values] = []
        for value in self.value(path, owner):
            if isinstance(value, Names) and isinstance(key, f.Constant) and isinstance(key.value, str):
                found.append(self._named(value, key.value, path))
            elif isinstance(value, External) and value.name == "sys.modules" and isinstance(key, f.Constant):
                found.append(self._imported_module(path, str(key.value)))
            elif isinstance(value, External | ProjectClass):
                found.append((value,))  # ``Popen[bytes]`` is still the class
        return _union(found)

    def _named(self, names: Names, name: str, importer: str) -> Values:
        return self.attribute(names.owner, name, importer)

    # --- calls -------------------------------------------------------------------------------------------------

    def _call(self, path: str, call: f.Call) -> Values:
        found = [self._called(path, value, call) for value in self.value(path, call.function)]
        return _union(found)

    def _called(self, path: str, value: Value, call: f.Call) -> Values:
        match value:
            case External(name):
                accessed = self._accessor(path, self.catalog.canonical(name), call)
                return self._library_result(name, call) if accessed is None else accessed
            case Method(name):
                return self._library_result(name, call)
            case LibraryObject(type_name):
                name = self.catalog.attribute(type_name, "__call__") or ""
                return self._library_result(name, call) if name else ()
            case ProjectClass():
                return self._construct(value)
            case ProjectFunction():
                return self._result(value)
            case Lookup(names):
                text = _constant_argument(call, 0)
                return () if text is None else self._named(names, text, path)
            case Getter(attribute) if call.arguments:
                owners = self.value(path, call.arguments[0].value)
                for part in attribute.split("."):
                    owners = _union(self.attribute(owner, part, path) for owner in owners)
                return owners
            case _:
                return ()

    def _construct(self, value: Value) -> Values:
        """An instance of a class."""
        match value:
            case ProjectClass(path, number):
                return (ProjectObject(path, number),)
            case External(name):
                canonical = self.catalog.canonical(name)
                facts = self.catalog.facts(canonical)
                return (LibraryObject(canonical),) if facts is not None and facts.is_class else ()
            case LibraryObject():
                return (value,)
            case _:
                return ()

    def _library_result(self, name: str, call: f.Call) -> Values:
        canonical = self.catalog.canonical(name)
        facts = self.catalog.facts(canonical)
        if facts is None:
            return ()
        key = _constant_argument(call, 0)
        returned = facts.returns_by_argument.get(key, facts.returns) if key is not None else facts.returns
        if returned is not None:
            return (LibraryObject(returned),)
        return (LibraryObject(canonical),) if facts.is_class else ()

    def _result(self, value: Value) -> Values:
        """What calling a function of the tree gives, by its annotation."""
        if not isinstance(value, ProjectFunction):
            return ()
        function = self.modules[value.path].functions[value.number]
        if self._decorated_with(value, _CONTEXT_MANAGERS):
            return self._streamed(value.path, function.returns)
        return self.value(value.path, function.returns)

    def _streamed(self, path: str, returns: f.Expression) -> Values:
        """``-> Iterator[X]`` of a context manager: what ``with`` gives."""
        if isinstance(returns, f.Instance) and isinstance(returns.annotation, f.Item):
            key = returns.annotation.key
            if isinstance(key, f.Display) and key.elements:
                return self.instances(path, key.elements[0])
        return self.value(path, returns)

    def _function(self, path: str, number: int) -> Values:
        """A function, or what its decorator makes of it."""
        made: list[Values] = []
        for decorator in self.modules[path].functions[number].decorators:
            target = decorator.function if isinstance(decorator, f.Call) else decorator
            for value in self.value(path, target):
                name = value.name if isinstance(value, External | Method) else ""
                facts = self.catalog.facts(self.catalog.canonical(name)) if name else None
                if facts is not None and facts.decorates is not None:
                    made.append((LibraryObject(facts.decorates),))
        return _union(made) or (ProjectFunction(path, number),)

    def _accessor(self, path: str, name: str, call: f.Call) -> Values | None:
        """Access by a constant name; None where ``name`` is no accessor."""
        match name:
            case "builtins.getattr":
                attribute = _constant_argument(call, 1)
                owners = self.value(path, call.arguments[0].value) if attribute else ()
                return _union(self.attribute(owner, attribute or "", path) for owner in owners)
            case "importlib.import_module":
                module = _constant_argument(call, 0, "name")
                return () if module is None else self._import_by_name(path, module, call)
            case "builtins.__import__" | "importlib.__import__":
                return self._dunder_import(path, call)
            case "builtins.globals":
                return (Names(ProjectModule(self.layout.names[path], path)),)
            case "builtins.vars":
                owners = self.value(path, call.arguments[0].value) if call.arguments else self._here(path)
                return tuple(Names(owner) for owner in owners)
            case "builtins.locals":
                return tuple(Names(owner) for owner in self._here(path))
            case "operator.attrgetter":
                attribute = _constant_argument(call, 0)
                return () if attribute is None else (Getter(attribute),)
            case "typing.cast" if len(call.arguments) == 2:
                return self.instances(path, call.arguments[0].value)
            case _:
                return None

    def _here(self, path: str) -> Values:
        return (ProjectModule(self.layout.names[path], path),)

    def _import_by_name(self, path: str, name: str, call: f.Call) -> Values:
        relative = name.lstrip(".")
        level = len(name) - len(relative)
        if not level:
            return self._imported_module(path, name)
        package = _constant_argument(call, 1, "package")
        if package is not None:
            return self._imported_module(path, ".".join([*package.split(".")[: 1 - level or None], relative]))
        module = self.module(path, relative, level)  # ``__package__``, or what else says where the file is
        return () if module is None else (module,)

    def _dunder_import(self, path: str, call: f.Call) -> Values:
        """``__import__("a.b")`` gives ``a``, unless something is asked from ``a.b``."""
        name = _constant_argument(call, 0, "name")
        if name is None:
            return ()
        positional = [argument for argument in call.arguments if argument.keyword is None]
        wants_member = len(positional) > 3 or any(argument.keyword == "fromlist" for argument in call.arguments)
        return self._imported_module(path, name if wants_member else name.partition(".")[0])

    # --- types -------------------------------------------------------------------------------------------------

    def instances(self, path: str, annotation: f.Expression) -> Values:
        """What a name annotated like this holds."""
        match annotation:
            case f.Choice(options):
                return _union(self.instances(path, option) for option in options)
            case f.Item(owner, f.Display(keys)):
                return self._generic(path, owner, keys)
            case f.Item(owner, key):
                return self._generic(path, owner, (key,))
            case f.Name(load) if (alias := self._type_alias(path, load)) is not None:
                return self.instances(path, alias)
            case f.Constant(str(text)):
                return self._quoted(path, text)
            case f.Constant() | f.Opaque():
                return ()
            case _:
                return _union(
                    (value,) if isinstance(value, ProjectObject) else self._construct(value)
                    for value in self.value(path, annotation)
                )

    def _type_alias(self, path: str, load: int) -> f.Item | None:
        """``P`` of ``P = Optional[Pool]``."""
        facts = self.modules[path]
        bindings = [facts.bindings.get(number) for number in facts.loads.get(load, ())]
        found = [binding.value for binding in bindings if binding is not None and isinstance(binding.value, f.Item)]
        return found[0] if len(found) == len(bindings) == 1 else None

    def _quoted(self, path: str, text: str) -> Values:
        """``cast("Executor", x)``: a type named by a string that no annotation holds."""
        values = self._here(path)
        for part in text.split("."):
            values = _union(self.attribute(value, part, path) for value in values)
        return _union(self._construct(value) for value in values)

    def _generic(self, path: str, owner: f.Expression, keys: tuple[f.Expression, ...]) -> Values:
        values = self.value(path, owner)
        names = {value.name for value in values if isinstance(value, External)}
        last = {name.rpartition(".")[2] for name in names}
        if names & _CLASS_OF:
            return _union(self.value(path, key) for key in keys)
        if last & _FIRST_ONLY:
            return self.instances(path, keys[0]) if keys else ()
        if last & _TYPE_WRAPPERS:
            return _union(self.instances(path, key) for key in keys)
        return _union(self._construct(value) for value in values)


def _union(groups: Iterable[Values]) -> Values:
    found: dict[Value, None] = {}
    for group in groups:
        for value in group:
            found[value] = None
    if len(found) > MAX_VALUES:
        raise TooDeepError
    return tuple(found)


def _constant_argument(call: f.Call, position: int, keyword: str = "") -> str | None:
    """The string constant that is positional argument ``position``, or passed as ``keyword``."""
    passed = {argument.keyword: argument.value for argument in reversed(call.arguments)}
    positional = [argument.value for argument in call.arguments if argument.keyword is None]
    value = positional[position] if position < len(positional) else passed.get(keyword) if keyword else None
    return value.value if isinstance(value, f.Constant) and isinstance(value.value, str) else None


def _held(expression: f.Expression, facts: f.ModuleFacts) -> f.Display | None:
    """The display that a name was bound to, if it is that simple."""
    if not isinstance(expression, f.Name):
        return None
    numbers = facts.loads.get(expression.load, ())
    bindings: Iterator[f.Binding | None] = (facts.bindings.get(number) for number in numbers)
    displays = [binding.value for binding in bindings if binding is not None and isinstance(binding.value, f.Display)]
    return displays[0] if len(displays) == 1 else None
