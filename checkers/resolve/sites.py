"""Uses and classes of all modules → sites."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from checkers.catalog import Catalog, Entry, Form
from checkers.facts import model as f
from checkers.intake.pipeline import Analysed, place_in
from checkers.model import (
    DEFAULT_KINDS,
    ApiKind,
    Argument,
    Confidence,
    Extent,
    Site,
    SiteKind,
    Tier,
    Use,
)
from checkers.resolve.evaluate import Evaluator
from checkers.resolve.values import (
    External,
    LibraryObject,
    Method,
    ProjectClass,
    ProjectFunction,
    ProjectObject,
    Value,
    Values,
)
from checkers.targets import chain_matches, is_chain, name_matches

_ACCESSORS = frozenset(
    {
        "builtins.__import__",
        "importlib.__import__",
        "builtins.getattr",
        "builtins.globals",
        "builtins.locals",
        "builtins.vars",
        "importlib.import_module",
        "operator.attrgetter",
    }
)
_FOLLOWED_WHEN_CONSTANT = {"builtins.__import__": 0, "builtins.getattr": 1, "importlib.import_module": 0}
"""Accessors, and the argument that makes the access a computed one when it is no constant."""

_SPLITTERS = frozenset({External("re"), External("shlex")})
"""Modules with a ``split`` of their own."""
STREAM_READS = (".stderr.read", ".stderr.readlines", ".stdout.read", ".stdout.readlines")
PROCESS_METHODS = frozenset({"communicate", "wait"})
_TIERS = list(Tier)


class _Api(NamedTuple):
    """A governed API that a value may be."""

    entry: Entry
    by_receiver: bool


class SiteFinder:
    """Finds the sites of one file after the other."""

    def __init__(
        self, evaluator: Evaluator, targets: Sequence[str] = (), watch: Iterable[str] = (), *, by_name: bool = False
    ) -> None:
        self.evaluator = evaluator
        self.catalog: Catalog = evaluator.catalog
        self.patterns = [target for target in targets if "*" in target and not is_chain(target)]
        self._by_name = by_name
        self.chains = [target for target in targets if is_chain(target)]
        self._watched = self._watched_names(watch)
        self.calls: dict[str, set[str]] = defaultdict(set)
        """The watched names that a file calls, by its path."""
        self._governed: dict[ProjectClass, list[Entry]] = {}
        self._public = self._public_names()
        self._owners = {entry.name.rpartition(".")[0] for entry in self.catalog.entries}

    def sites(self, analysed: Analysed) -> tuple[tuple[Site, ...], tuple[Use, ...]]:
        """Sites and judged uses of one file, in source order.

        Raises :class:`~checkers.resolve.evaluate.TooDeepError`.
        """
        facts = self.evaluator.modules[analysed.path]
        called = self._called_bindings(analysed.path, facts)
        sites = [*self._subclasses(analysed, facts)]
        uses: list[Use] = []
        for use in facts.uses:
            values = self.evaluator.value(analysed.path, use.value)
            if use.role == f.Role.CALL:
                self._note_watched(analysed.path, values)
                uses += self._judged(analysed, facts, use, values)
            if use.role == f.Role.ALIAS and not self._escapes(facts, use, called):
                continue
            site = self._site(analysed, facts, use, values)
            if site is not None:
                sites.append(site)
        return number(sites), tuple(sorted(uses, key=lambda use: (use.cell or 0, use.line, use.column)))

    # --- which API ---------------------------------------------------------------------------------------------

    def _site(self, analysed: Analysed, facts: f.ModuleFacts, use: f.Use, values: Values) -> Site | None:
        is_call = use.role == f.Role.CALL
        if is_call and self._starts_what_it_made(analysed.path, use):
            return None
        if is_call and self._kept_on_object(analysed.path, use.value):
            values = tuple(value for value in values if isinstance(value, LibraryObject))
        apis = [api for value in values for api in self._apis(analysed.path, value, use, is_call)]
        confidence = Confidence.CERTAIN
        if not apis and is_call:
            apis = self._declared_chain(use)
        if not apis and is_call and self._by_name and self._unseen(values) and isinstance(use.value, f.Attribute):
            apis = [_Api(entry, True) for entry in self.catalog.by_name(use.value.name)]
            confidence = Confidence.BY_NAME
        if not apis:
            return None
        return self._make(analysed, facts, use, apis, self._site_kind(analysed.path, use, apis), confidence)

    def _apis(self, path: str, value: Value, use: f.Use, is_call: bool) -> Iterator[_Api]:
        match value:
            case External(name):
                yield from self._library_apis(path, self.catalog.canonical(name), use, is_call)
            case Method(name):
                entry = self.catalog.entry(name)
                if entry is not None:
                    yield _Api(entry, True)
            case LibraryObject(type_name) if is_call:
                entry = self.catalog.method(type_name, "__call__")
                if entry is not None:
                    yield _Api(entry, True)
            case ProjectClass(owner, number):
                own = list(self._named(self._defined_name(value)))
                yield from own or (_Api(entry, False) for entry in self.governed_bases(owner, number))
            case ProjectFunction():
                yield from self._named(self._defined_name(value))

    def _library_apis(self, path: str, name: str, use: f.Use, is_call: bool) -> Iterator[_Api]:
        if name in _FOLLOWED_WHEN_CONSTANT and (not is_call or not self._is_computed(path, name, use)):
            return
        yield from self._named(name)
        if is_call:
            passed = {argument.keyword for argument in use.arguments or ()}
            for entry in self.catalog.keyword_entries(name):
                if entry.keyword in passed:
                    yield _Api(entry, False)

    def _named(self, name: str) -> Iterator[_Api]:
        """The entry of a qualified name, else what a pattern declares; and the entries of its public names."""
        entry = self.catalog.entry(name)
        if entry is not None:
            yield _Api(entry, False)
        elif any(name_matches(pattern, name) for pattern in self.patterns):
            yield _Api(Entry(name, ApiKind.DECLARED), False)
        yield from (_Api(entry, False) for entry in self._public.get(name, ()))

    def _public_names(self) -> dict[str, list[Entry]]:
        """Own entries that name a function or class by a re-export, under the name by which it is defined."""
        found: dict[str, list[Entry]] = {}
        for entry in self.catalog.entries:
            values = self.evaluator.named(entry.name) if self.catalog.is_own(entry.name) else ()
            for value in values:
                if isinstance(value, ProjectClass | ProjectFunction) and self._defined_name(value) != entry.name:
                    found.setdefault(self._defined_name(value), []).append(entry)
        return found

    def _defined_name(self, value: ProjectClass | ProjectFunction) -> str:
        facts = self.evaluator.modules[value.path]
        defined = facts.classes if isinstance(value, ProjectClass) else facts.functions
        return self.qualified(value.path, defined[value.number].symbol)

    def _declared_chain(self, use: f.Use) -> list[_Api]:
        matching = [target for target in self.chains if chain_matches(target, use.chain)]
        return [_Api(Entry(target, ApiKind.DECLARED), True) for target in matching]

    def _is_computed(self, path: str, name: str, use: f.Use) -> bool:
        position = _FOLLOWED_WHEN_CONSTANT[name]
        arguments = [argument.value for argument in use.arguments or () if argument.keyword is None]
        named = [argument.value for argument in use.arguments or () if argument.keyword == "name"]
        if any(isinstance(value, f.Constant) for value in (*arguments[position : position + 1], *named)):
            return False
        if name != "builtins.getattr":
            return True
        owners = self.evaluator.value(path, arguments[0]) if arguments else ()
        return any(isinstance(o, External) and self.catalog.canonical(o.name) in self._owners for o in owners)

    def governed_bases(self, path: str, number: int) -> list[Entry]:
        """Governed classes that a class of the tree derives from, through classes of the tree."""
        start = ProjectClass(path, number)
        if start in self._governed:
            return self._governed[start]
        found: list[Entry] = []
        todo, seen = [start], {start}
        while todo:
            owner = todo.pop()
            for base in self.evaluator.modules[owner.path].classes[owner.number].bases:
                for value in self.evaluator.value(owner.path, base):
                    if isinstance(value, ProjectClass) and value not in seen:
                        seen.add(value)
                        todo.append(value)
                        found += [api.entry for api in self._named(self._defined_name(value))]
                    elif isinstance(value, External | Method):
                        found += self._governed_class(self.catalog.canonical(value.name))
                    elif isinstance(value, LibraryObject):  # Python calls its class then, with name, bases and body
                        found += self._governed_class(value.type_name)
        self._governed[start] = list(dict.fromkeys(found))
        return self._governed[start]

    def _governed_class(self, name: str) -> list[Entry]:
        todo, seen = [name], set[str]()
        while todo:
            name = todo.pop()
            facts = self.catalog.facts(name)
            for entry, _ in self._named(name):  # of a declared name only its use says that it is a class
                if entry.form is Form.CLASS or entry.kind is ApiKind.DECLARED:
                    return [entry]
            seen.add(name)
            todo += [base for base in reversed(facts.bases if facts is not None else ()) if base not in seen]
        return []

    # --- which kind of site ------------------------------------------------------------------------------------

    def _site_kind(self, path: str, use: f.Use, apis: list[_Api]) -> SiteKind:
        if any(api.entry.kind is ApiKind.DYNAMIC for api in apis) or self._by_constant_name(path, use.value):
            return SiteKind.DYNAMIC
        if use.role != f.Role.CALL:
            return SiteKind.REFERENCE
        return SiteKind.METHOD if any(api.by_receiver for api in apis) else SiteKind.CALL

    def _by_constant_name(self, path: str, value: f.Expression) -> bool:
        """Whether the expression itself reaches its value by a string."""
        while True:
            match value:
                case f.Call(function, _):
                    functions = self.evaluator.value(path, function)
                    if any(isinstance(v, External) and self.catalog.canonical(v.name) in _ACCESSORS for v in functions):
                        return True
                    value = function
                case f.Attribute(_, "__dict__") | f.Item(f.Attribute(_, "modules"), _):
                    return True
                case f.Attribute(owner, _) | f.Item(owner, _) | f.Awaited(owner):
                    value = owner
                case _:
                    return False

    def _starts_what_it_made(self, path: str, use: f.Use) -> bool:
        """``Thread(…).start()`` is one site, the constructor."""
        match use.value:
            case f.Attribute(f.Call(function, _), "start"):
                for value in self.evaluator.value(path, function):
                    if isinstance(value, ProjectClass) and self.governed_bases(value.path, value.number):
                        return True
                    if isinstance(value, External | Method) and self._governed_class(
                        self.catalog.canonical(value.name)
                    ):
                        return True
        return False

    def _kept_on_object(self, path: str, value: f.Expression) -> bool:
        """Whether a callable is taken from an attribute of ``self``: putting it there was the site."""
        if not isinstance(value, f.Attribute):
            return False
        todo = [v for v in self.evaluator.value(path, value.value) if isinstance(v, ProjectObject | ProjectClass)]
        seen: set[Value] = set()
        while todo:
            owner = todo.pop()
            facts = self.evaluator.modules[owner.path].classes[owner.number]
            if value.name in facts.members or owner in seen:
                continue
            if any(not isinstance(stored, f.Instance) for stored in facts.attributes.get(value.name, ())):
                return True
            seen.add(owner)
            bases = [base for expression in facts.bases for base in self.evaluator.value(owner.path, expression)]
            todo += [base for base in bases if isinstance(base, ProjectClass)]
        return False

    @staticmethod
    def _unseen(values: Values) -> bool:
        """Whether nothing is known of the method that is called."""
        return all(isinstance(value, External) for value in values)

    # --- aliases -----------------------------------------------------------------------------------------------

    def _called_bindings(self, path: str, facts: f.ModuleFacts) -> set[int]:
        """Bindings through which the module calls something, or derives a class."""
        called: set[int] = set()
        todo: list[f.Expression] = [use.value for use in facts.uses if use.role == f.Role.CALL]
        todo += [base for owner in facts.classes for base in owner.bases]
        while todo:
            match todo.pop():
                case f.Name(load):
                    new = [number for number in facts.loads.get(load, ()) if number not in called]
                    called.update(new)
                    todo += [facts.bindings[number].value for number in new if number in facts.bindings]
                case f.Choice(options):
                    todo += options
                case f.Attribute(owner, name):
                    new = [number for number in self._members(path, owner, name) if number not in called]
                    called.update(new)
                    todo += [facts.bindings[number].value for number in new if number in facts.bindings]
        return called

    def _members(self, path: str, owner: f.Expression, name: str) -> Iterator[int]:
        """Bindings of class members of this file that ``owner.name`` may be."""
        for value in self.evaluator.value(path, owner):
            if isinstance(value, ProjectClass | ProjectObject) and value.path == path:
                yield from self.evaluator.modules[path].classes[value.number].members.get(name, ())

    @staticmethod
    def _escapes(facts: f.ModuleFacts, use: f.Use, called: set[int]) -> bool:
        """An alias is reported where it is made only if other code can take it and this module never calls it."""
        if called.intersection(use.aliases):
            return False
        return any(number in facts.bindings and facts.bindings[number].escapes for number in use.aliases)

    # --- other things ------------------------------------------------------------------------------------------

    def _subclasses(self, analysed: Analysed, facts: f.ModuleFacts) -> Iterator[Site]:
        for number_, owner in enumerate(facts.classes):
            if facts.derived is not None and number_ not in facts.derived:
                continue
            apis = [_Api(entry, False) for entry in self.governed_bases(analysed.path, number_)]
            if apis:
                use = f.Use(f.Role.REFERENCE, f.OPAQUE, owner.place, owner.symbol, "", None, ())
                yield self._make(analysed, facts, use, apis, SiteKind.SUBCLASS, Confidence.CERTAIN)

    def _note_watched(self, path: str, values: Values) -> None:
        for value in values if self._watched else ():
            self.calls[path].update(self._watched.get(self._name_of(value), ()))

    def _watched_names(self, watch: Iterable[str]) -> dict[str, set[str]]:
        """The names to watch for, by each name under which they are met."""
        found: dict[str, set[str]] = {}
        for name in watch:
            for met in (name, *(self._name_of(value) for value in self.evaluator.named(name))):
                found.setdefault(met, set()).add(name)
        found.pop("", None)
        return found

    def _name_of(self, value: Value) -> str:
        """The name of a function, class or method; empty for anything else."""
        match value:
            case External(name) | Method(name):
                return self.catalog.canonical(name)
            case ProjectFunction() | ProjectClass():
                return self._defined_name(value)
            case _:
                return ""

    def _judged(self, analysed: Analysed, facts: f.ModuleFacts, use: f.Use, values: Values) -> Iterator[Use]:
        if not isinstance(use.value, f.Attribute):
            return
        name = use.value.name
        if name == "wait":
            receivers = self.evaluator.value(analysed.path, use.value.value)
            judged = any(self._is_process(receiver) for receiver in receivers)
        else:
            judged = name == "communicate" or use.chain.endswith(STREAM_READS)
        if judged:
            cell, line = place_in(analysed, use.place.line)
            yield Use(
                path=analysed.path,
                line=line,
                column=use.place.column,
                symbol=use.symbol,
                chain=use.chain,
                arguments=self._arguments(analysed.path, facts, use.arguments or ()),
                extent=_extent(analysed, facts, use.place),
                cell=cell,
            )

    def _is_process(self, value: Value) -> bool:
        if isinstance(value, ProjectObject):
            return any(entry.name == "subprocess.Popen" for entry in self.governed_bases(value.path, value.number))
        return value == LibraryObject("subprocess.Popen")

    def _make(
        self,
        analysed: Analysed,
        facts: f.ModuleFacts,
        use: f.Use,
        apis: list[_Api],
        kind: SiteKind,
        confidence: Confidence,
    ) -> Site:
        entries = sorted({api.entry for api in apis}, key=_order)
        names = tuple(dict.fromkeys(entry.name for entry in entries))
        cell, line = place_in(analysed, use.place.line)
        moved = dict(analysed.columns).get(use.place.line, 0)
        column = moved if moved > 0 else use.place.column - moved
        arguments = use.arguments
        return Site(
            path=analysed.path,
            line=line,
            column=column,
            kind=kind,
            api=names[0],
            api_kind=entries[0].kind,
            tier=entries[0].tier,
            symbol=use.symbol,
            ordinal=0,
            extent=_extent(analysed, facts, use.place),
            confidence=confidence,
            candidates=names if len(names) > 1 else (),
            chain=use.chain,
            arguments=None if arguments is None else self._arguments(analysed.path, facts, arguments),
            cell=cell,
        )

    def _arguments(self, path: str, facts: f.ModuleFacts, arguments: Sequence[f.CallArgument]) -> tuple[Argument, ...]:
        return tuple(
            Argument(
                argument.keyword,
                isinstance(argument.value, f.Constant),
                argument.value.value if isinstance(argument.value, f.Constant) else None,
                self._is_split(path, facts, argument.value),
            )
            for argument in arguments
        )

    def _is_split(self, path: str, facts: f.ModuleFacts, value: f.Expression) -> bool:
        """Whether ``value`` is made by ``str.split``, directly or through variables, attributes and other lists."""
        todo, seen = [value], set[f.Expression]()
        while todo:
            candidate = todo.pop()
            if candidate in seen:
                continue
            seen.add(candidate)
            match candidate:
                case f.Call(f.Attribute(owner, "split" | "rsplit" | "splitlines"), _):
                    if not _SPLITTERS.intersection(self.evaluator.value(path, owner)):
                        return True
                case f.Name(load):
                    bindings = [facts.bindings.get(number) for number in facts.loads.get(load, ())]
                    todo += [binding.value for binding in bindings if binding is not None]
                case f.Attribute(owner, name):
                    todo += self._stored(path, owner, name)
                case f.Choice(values) | f.Joined(values):
                    todo += values
        return False

    def _stored(self, path: str, owner: f.Expression, name: str) -> Iterator[f.Expression]:
        """What this file stores in an attribute of its own class."""
        for value in self.evaluator.value(path, owner):
            if isinstance(value, ProjectClass | ProjectObject) and value.path == path:
                yield from self.evaluator.modules[path].classes[value.number].attributes.get(name, ())

    def qualified(self, path: str, symbol: str) -> str:
        """Fully qualified name of something that the file ``path`` defines."""
        module = self.evaluator.layout.names[path]
        return f"{module}.{symbol}" if module else symbol


def _order(entry: Entry) -> tuple[int, bool, bool, str]:
    """Of several candidates the plainest comes first: by tier, kinds on by default, no platform's own, name."""
    return _TIERS.index(entry.tier), entry.kind not in DEFAULT_KINDS, entry.platform is not None, entry.name


def _extent(analysed: Analysed, facts: f.ModuleFacts, place: f.Place) -> Extent:
    statement = facts.statements[place.statement]
    lines = (
        place.first_line,
        place.line,
        place.paren_line,
        place.last_line,
        statement.first_line,
        statement.last_line,
    )
    first, name, paren, last, statement_first, statement_last = (place_in(analysed, line)[1] for line in lines)
    return Extent(first, name, paren, last, place.statement, statement_first, statement_last)


def number(sites: Iterable[Site]) -> tuple[Site, ...]:
    """The sites in source order, numbered within symbol and API."""
    counts: Counter[tuple[str, str]] = Counter()
    ordered = []
    for site in sorted(sites, key=lambda site: (site.cell or 0, site.line, site.column, site.api)):
        counts[site.symbol, site.api] += 1
        ordered.append(replace(site, ordinal=counts[site.symbol, site.api]))
    return tuple(ordered)
