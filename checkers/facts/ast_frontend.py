"""The fast front end: the interpreter's own parser → what :class:`~checkers.facts.builder.Builder` wants to be told.

It tells the same events in the same order as :mod:`checkers.facts.libcst_frontend`, the reference, and so gives the
same facts; a differential test holds it to that. Whatever its tree does not tell (comments, newer syntax than the
running interpreter's, places inside f-strings before Python 3.12) is left to the reference.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from checkers.facts import model as f
from checkers.facts.ast_places import Places, Spot
from checkers.facts.ast_values import (
    AstValues,
    NeedsReferenceError,
    arguments_of,
    callee_name,
    dotted,
    last_name,
    slices_of,
    string_of,
)
from checkers.facts.backport import ALIAS, Backported, backport
from checkers.facts.builder import Builder
from checkers.facts.flow import ArmKind, GroupKind
from checkers.facts.hot import Hits
from checkers.facts.idle import Function, reaches_out
from checkers.facts.interest import ACCESSORS, Interest
from checkers.facts.sieve import Sieve, words_for
from checkers.facts.syntax import is_newer
from checkers.facts.walk import (
    CLASS_METHODS,
    IGNORED,
    RECURSION_LIMIT,
    STORED,
    TYPE,
    TYPE_TESTS,
    Context,
    Step,
    Walk,
    argument_context,
)
from checkers.limits import no_collection, recursion

PARSER_RECURSION = 1500
"""Depth of the trees that are accepted: converting a deeper one could overflow the C stack."""

_FORMATS_ARE_MISPLACED = sys.version_info < (3, 12)
"""Before Python 3.12 (PEP 701) the tree's places inside f-strings are guesses."""

_LINKS = (ast.Attribute, ast.Call, ast.Subscript)
_CHAINS = (ast.Name, *_LINKS)
_SEQUENCES = (ast.Tuple, ast.List)

__all__ = ["NeedsReferenceError", "parse"]


def parse(text: str, interest: Interest, hits: Hits | None = None, *, defining: bool = False) -> f.ModuleFacts:
    """The facts of one module, without comments and headers; of sites only those that ``hits`` allow, None for all.

    ``defining``: all that it defines is wanted, also inside functions in which nothing is governed.
    Raises :class:`NeedsReferenceError` for what the reference has to read or to judge, invalid syntax included.
    """
    with no_collection():
        tree, (text, parameters) = _tree(text)
        places = Places(text)
        with recursion(max(sys.getrecursionlimit(), RECURSION_LIMIT)):
            while True:
                walk = _Walk(places, interest, hits, parameters, defining=defining)
                walk.run(tree)
                facts = walk.builder.finish()
                if hits is None or hits.plain.issuperset(facts.given_names):
                    return facts
                hits = hits.with_names(frozenset(facts.given_names))  # they count in the module, too


def _tree(text: str) -> tuple[ast.Module, Backported]:
    """The tree of a source, and what was parsed in its place."""
    try:
        return _compiled(text), Backported(text, {})
    except NeedsReferenceError:
        older = backport(text) if is_newer(text) else None  # what is wrong must not be left out
        if older is None:
            raise
        return _compiled(older.text), older


def _compiled(text: str) -> ast.Module:
    try:
        with recursion(PARSER_RECURSION), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(text, "module", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)  # type: ignore[return-value]
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise NeedsReferenceError from error


class _Walk(Walk):
    """One walk over one tree."""

    def __init__(
        self,
        places: Places,
        interest: Interest,
        hits: Hits | None,
        parameters: Mapping[int, Sequence[str]],
        *,
        defining: bool,
    ) -> None:
        super().__init__(Builder(interest, _locate, _locate, hits))
        self.places = places
        self.values = AstValues(self.builder, places.lines)
        self._formatted: ast.JoinedStr | None = None
        self._sieve = None if hits is None else Sieve(places.lines, words_for(hits))
        self._parameters = parameters
        self._defining = defining
        self._deriving = set[int]()
        """Classes that may be governed: then ``self`` and ``cls`` are, which no method spells out."""

    def run(self, module: ast.Module) -> None:
        """Tell the whole module."""
        self._work((self._body, module.body))

    # --- statements ---------------------------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> None:
        self._todo.extend([(self._statement_node, node) for node in reversed(body)])

    def _statement_node(self, node: ast.stmt) -> None:
        handler = _SIMPLE.get(type(node))
        if handler is not None:
            self._begin((_whole, node))
        else:
            handler = _COMPOUND.get(type(node))
            if handler is None:
                raise NeedsReferenceError
        self._certain = True
        handler(self, node)

    def _begin(self, lines: Step) -> None:
        """A statement begins; ``lines`` finds its extent, should it be wanted."""
        self._open_statement(lines)
        self.values.forget()

    def _header(self, node: ast.AST, *behind: ast.AST | None) -> None:
        """A compound statement begins; its header's colon follows the last of ``behind`` that there is."""
        self._begin((self._header_lines, node, behind))

    def _header_lines(self, node: Any, behind: tuple[ast.AST | None, ...]) -> f.Statement:
        return f.Statement(node.lineno, self._colon_line(node, behind))

    def _colon_line(self, node: Any, behind: tuple[ast.AST | None, ...]) -> int:
        ends = [self.places.end(part) for part in behind if part is not None]
        return self.places.colon_line(max(ends, default=self.places.start(node)))

    def _arm(self, group: int, body: Sequence[ast.stmt], kind: ArmKind = ArmKind.BODY) -> tuple[Step, ...]:
        return ((self.builder.open_arm, group, kind), (self._body, body), (self.builder.close_arm,))

    def _nothing(self, node: ast.stmt) -> None:
        """``pass``, ``break``, ``continue``: no name is read."""

    def _expression_statement(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self._export_call(node.value)
        self._visit(node.value, IGNORED)

    def _export_call(self, call: ast.Call) -> None:
        """``__all__.extend([...])`` and its kin."""
        if not (isinstance(call.func, ast.Attribute) and dotted(call.func.value) == "__all__"):
            return
        arguments = arguments_of(call)
        argument = arguments[0][1] if len(arguments) == 1 and self.builder.at_module_level else None
        if call.func.attr == "append" and argument is not None and (name := string_of(argument)) is not None:
            self.builder.export([name], add=True)
        else:
            self.builder.export(_strings(argument) if call.func.attr == "extend" else None, add=True)

    def _assign(self, node: ast.Assign) -> None:
        if self.builder.at_module_level and any(dotted(target) == "__all__" for target in node.targets):
            self.builder.export(_strings(node.value), add=False)
        self._assign_to(node.targets, node.value, self.values.of(node.value))

    def _assign_to(self, targets: Sequence[ast.expr], node: ast.expr, value: f.Expression) -> None:
        pairs = _pairs(targets, node)
        if pairs is not None:
            plain = [(target, element, self.values.of(element)) for target, element in pairs]
            self._then(*((self._assign_to, [target], element, of) for target, element, of in plain))
            return
        aliases: list[int] = []
        only_names = all(type(target) is ast.Name for target in targets)
        context = Context(f.Role.ALIAS, aliases) if only_names else STORED
        self._then((self._visit, node, context), *((self._bind_target, target, value, aliases) for target in targets))

    def _bind_target(self, target: ast.expr, value: f.Expression, aliases: list[int], may: bool = False) -> None:
        """Give ``value`` to an assignment target; the bindings made are added to ``aliases``."""
        if isinstance(target, ast.Name):
            aliases.append(self.builder.bind(target.id, value, may=may))
        elif isinstance(target, _SEQUENCES):
            for position, element in enumerate(target.elts):
                if isinstance(element, ast.Starred):
                    self._bind_target(element.value, f.OPAQUE, aliases, may)
                else:
                    self._bind_target(element, f.Part(value, position), aliases, may)
        elif isinstance(target, ast.Attribute):
            if isinstance(target.value, ast.Name):
                self.builder.store_attribute(target.value.id, target.attr, value)
            self._then((self._visit, target.value, IGNORED))
        elif isinstance(target, ast.Subscript):
            self._then((self._visit, target.value, IGNORED), *self._slices(target))

    def _annotated_assign(self, node: ast.AnnAssign) -> None:
        if callee_name(node.annotation) == ALIAS and isinstance(node.target, ast.Name):
            self._type_alias(node, node.target.id)
            return
        instance = f.Instance(self.values.annotation(node.annotation))
        target = node.target
        if node.value is not None and callee_name(node.annotation) == "TypeAlias":
            self._bind_target(target, self.values.annotation(node.value), [])
        elif node.value is not None:
            if self.builder.at_module_level and dotted(target) == "__all__":
                self.builder.export(_strings(node.value), add=False)
            self._assign_to([target], node.value, f.Choice((self.values.of(node.value), instance)))
        elif isinstance(target, ast.Name) and self.builder.here.is_class:
            self.builder.declare_attribute(target.id, instance)
        elif isinstance(target, ast.Name):
            self.builder.bind(target.id, instance, may=True)
        else:
            self._bind_target(target, instance, [])

    def _augmented_assign(self, node: ast.AugAssign) -> None:
        target = node.target
        if self.builder.at_module_level and dotted(target) == "__all__":
            self.builder.export(_strings(node.value), add=True)
        steps: list[Step] = [(self._visit, node.value, STORED)]
        if isinstance(target, ast.Name):
            steps.append((self.builder.bind, target.id, f.OPAQUE))
        else:
            steps.append((self._visit, target, IGNORED))
        self._then(*steps)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname is not None:
                self.builder.bind(alias.asname, f.Module(alias.name))
            else:
                top = alias.name.partition(".")[0]
                self.builder.bind(top, f.Module(top))

    def _import_from(self, node: ast.ImportFrom) -> None:
        module, level = node.module or "", node.level
        if node.names[0].name == "*":
            self.builder.star(module, level)
            return
        for alias in node.names:
            if (alias.asname or alias.name) == "__all__":
                self.builder.export(None, add=True)
            self.builder.bind(alias.asname or alias.name, f.Member(module, level, alias.name))

    def _delete(self, node: ast.Delete) -> None:
        targets = [*node.targets]
        while targets:
            target = targets.pop()
            if isinstance(target, ast.Name):
                self.builder.unbind(target.id)
            elif isinstance(target, _SEQUENCES):
                targets += target.elts
            else:
                self._then((self._visit, target, IGNORED))

    def _return(self, node: ast.Return) -> None:
        self._then(*([] if node.value is None else [(self._visit, node.value, STORED)]), (self.builder.leave,))

    def _raise(self, node: ast.Raise) -> None:
        self._then(*self._ignored(node.exc, node.cause), (self.builder.leave,))

    def _assert(self, node: ast.Assert) -> None:
        self._then(*self._ignored(node.test, node.msg))

    def _ignored(self, *values: ast.expr | None) -> list[Step]:
        return [(self._visit, value, IGNORED) for value in values if value is not None]

    def _global(self, node: ast.Global) -> None:
        self.builder.declare(node.names, is_global=True)

    def _nonlocal(self, node: ast.Nonlocal) -> None:
        self.builder.declare(node.names, is_global=False)

    def _type_statement(self, node: Any) -> None:
        self._type_alias(node, node.name.id)

    def _type_alias(self, node: Any, name: str) -> None:
        inner = self._open_type_parameters(node)
        value = self.values.annotation(node.value)
        for _ in range(inner):
            self.builder.close()
        self.builder.bind(name, value)

    def _if(self, node: ast.If) -> None:
        self._if_arm(node, self.builder.open_group(GroupKind.BRANCH))

    def _if_arm(self, node: ast.If, group: int) -> None:
        self._header(node, node.test)
        steps: list[Step] = [(self._visit, node.test, IGNORED), *self._arm(group, node.body)]
        match node.orelse:
            case [ast.If() as other] if other.col_offset == node.col_offset:  # else: if would be indented further
                steps.append((self._if_arm, other, group))
            case [_, *_]:
                steps += [(self.builder.exhaust, group), *self._else(group, node.orelse, "else")]
        self._then(*steps)

    def _else(self, group: int, body: list[ast.stmt], word: str, kind: ArmKind = ArmKind.BODY) -> tuple[Step, ...]:
        return ((self._begin, (self._else_lines, body[0], word)), *self._arm(group, body, kind))

    def _else_lines(self, first: ast.stmt, word: str) -> f.Statement:
        """Lines of ``else:``, for which the tree has no node."""
        decorators = getattr(first, "decorator_list", None)
        line, column = self.places.start(decorators[0] if decorators else first)
        word_line = self.places.keyword_before(line, column, word)
        return f.Statement(word_line, self.places.colon_line(Spot(word_line, 0)))

    def _while(self, node: ast.While) -> None:
        group = self.builder.open_group(GroupKind.LOOP)
        self.builder.open_arm(group)
        self._header(node, node.test)
        steps: list[Step] = [(self._visit, node.test, IGNORED), (self._body, node.body), (self.builder.close_arm,)]
        if node.orelse:
            steps += self._else(group, node.orelse, "else", ArmKind.ORELSE)
        self._then(*steps)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._header(node, node.iter)
        value = self.values.of(node.iter)
        group = self.builder.open_group(GroupKind.LOOP)
        steps: list[Step] = [
            (self._visit, node.iter, IGNORED),
            (self.builder.open_arm, group),
            (self._bind_target, node.target, f.Element(value), []),
            (self._body, node.body),
            (self.builder.close_arm,),
        ]
        if node.orelse:
            steps += self._else(group, node.orelse, "else", ArmKind.ORELSE)
        self._then(*steps)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        last = node.items[-1]
        self._header(node, last.optional_vars or last.context_expr)
        steps: list[Step] = [(self._with_item, item) for item in node.items]
        if any(callee_name(item.context_expr) == "suppress" for item in node.items):
            # The body may stop anywhere and the program goes on behind it: a try with an empty handler.
            group = self.builder.open_group(GroupKind.TRY)
            steps += self._arm(group, node.body)
            steps += [(self.builder.open_arm, group, ArmKind.HANDLER), (self.builder.close_arm,)]
        else:
            steps.append((self._body, node.body))
        self._then(*steps)

    def _with_item(self, item: ast.withitem) -> None:
        value = self.values.of(item.context_expr)
        steps: list[Step] = [(self._visit, item.context_expr, IGNORED)]
        if item.optional_vars is not None:
            steps.append((self._bind_target, item.optional_vars, f.Entered(value), []))
        self._then(*steps)

    def _try(self, node: Any) -> None:
        self._header(node)
        group = self.builder.open_group(GroupKind.TRY)
        steps: list[Step] = [*self._arm(group, node.body)]
        steps += [(self._handler, handler, group) for handler in node.handlers]
        if node.orelse:
            steps += self._else(group, node.orelse, "else", ArmKind.ORELSE)
        if node.finalbody:
            steps += self._else(group, node.finalbody, "finally", ArmKind.FINALLY)
        self._then(*steps)

    def _handler(self, node: ast.ExceptHandler, group: int) -> None:
        self.builder.open_arm(group, ArmKind.HANDLER)
        self._header(node, node.type)
        steps: list[Step] = []
        if node.type is not None:
            self._check_types(node.type)
            steps.append((self._visit, node.type, TYPE))
        if node.name is not None:
            steps += [(self.builder.bind, node.name, f.OPAQUE), (self._body, node.body)]
            steps.append((self.builder.unbind, node.name))
        else:
            steps.append((self._body, node.body))
        self._then(*steps, (self.builder.close_arm,))

    def _match(self, node: ast.Match) -> None:
        self._header(node, node.subject)
        group = self.builder.open_group(GroupKind.BRANCH)
        subject = self.values.of(node.subject)
        self._then((self._visit, node.subject, IGNORED), *((self._case, case, group, subject) for case in node.cases))

    def _case(self, case: ast.match_case, group: int, subject: f.Expression) -> None:
        self.builder.open_arm(group)
        self._begin((self._case_lines, case))
        if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None:
            self.builder.exhaust(group)
        self._bind_pattern(case.pattern, subject)
        self._then(*self._ignored(case.guard), (self._body, case.body), (self.builder.close_arm,))

    def _case_lines(self, case: ast.match_case) -> f.Statement:
        pattern: Any = case.pattern
        word = self.places.keyword_before(pattern.lineno, self.places.start(pattern).column, "case")
        first = self.places.token_line(Spot(word, self.places.lines[word - 1].index("case") + len("case")))
        return f.Statement(first, self.places.colon_line(self.places.end(case.guard or pattern)))

    def _bind_pattern(self, pattern: ast.pattern, subject: f.Expression) -> None:
        """Bind the captures of a pattern. Classes and values in it are compared, never handed on."""
        todo: list[ast.pattern] = [pattern]
        while todo:
            node = todo.pop()
            match node:
                case ast.MatchAs():
                    if node.name is not None:
                        inner = node.pattern
                        is_class = isinstance(inner, ast.MatchClass)
                        whole = subject if node is pattern else f.OPAQUE
                        value = f.Instance(self.values.annotation(inner.cls)) if is_class else whole  # type: ignore[union-attr]
                        self.builder.bind(node.name, value)
                    todo += [] if node.pattern is None else [node.pattern]
                case ast.MatchStar() if node.name is not None:
                    self.builder.bind(node.name, f.OPAQUE)
                case ast.MatchMapping():
                    if node.rest is not None:
                        self.builder.bind(node.rest, f.OPAQUE)
                    todo += node.patterns
                case ast.MatchClass():
                    todo += [*node.patterns, *node.kwd_patterns]
                case ast.MatchOr() | ast.MatchSequence():
                    todo += node.patterns

    # --- definitions --------------------------------------------------------------------------------------------

    def _decorators(self, node: Any) -> tuple[list[Step], tuple[f.Expression, ...]]:
        """What tells the decorators, each a statement of its own, and their values."""
        steps: list[Step] = []
        for decorator in node.decorator_list:
            steps += [(self._begin, (self._decorator_lines, decorator)), (self._visit, decorator, STORED)]
        return steps, tuple([self.values.of(decorator) for decorator in node.decorator_list])

    def _decorator_lines(self, node: ast.expr) -> f.Statement:
        line, column = self.places.start(node)
        first = self.places.keyword_before(line, column, "@")
        before = "".join([*self.places.lines[first - 1 : line - 1], self.places.lines[line - 1][:column]])
        end = self.places.end(node)
        for _ in range(before.count("(")):
            end = self.places.ahead(end, ")")
            end = Spot(end.line, end.column + 1)
        return f.Statement(first, end.line)

    def _function(self, node: Function) -> None:
        if self._sieve is not None and self._is_idle(node, self._sieve):
            self._outline(node)
            return
        self._symbol = self.builder.qualify(node.name)
        steps, decorators = self._decorators(node)
        self._then(*steps, (self._function_header, node, decorators))

    def _is_idle(self, node: Function, sieve: Sieve) -> bool:
        """Whether nothing can be governed in a function, and nothing outside depends on its body."""
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if self._defining or sieve.counts(first, node.end_lineno or node.lineno):
            return False
        if self._names_of_type_parameters(node):  # they hide what its annotations would name otherwise
            return False
        if sieve.has_walrus(first, max(node.lineno, node.body[0].lineno)):  # in its header, it binds outside
            return False
        owners = self.builder.owners()
        if self._is_method(node):
            if self.builder.here.class_number in self._deriving:
                return False
            owners = owners.union(parameter.arg for parameter in _parameters(node.args)[:1])
        return not reaches_out(node, owners)

    def _outline(self, node: Function) -> None:
        """An idle function: what it gives, without its parameters and body."""
        self.values.forget()
        decorators = tuple([self.values.of(decorator) for decorator in node.decorator_list])
        value = self.builder.define(node.name, self._returns(node), decorators)
        self.builder.bind(node.name, value)

    def _is_method(self, node: Function) -> bool:
        around = self.builder.here
        while around.sees_class and around.parent is not None:
            around = self.builder.scopes[around.parent]
        return around.is_class and all(callee_name(decorator) != "staticmethod" for decorator in node.decorator_list)

    def _function_header(self, node: Function, decorators: tuple[f.Expression, ...]) -> None:
        parameters = _parameters(node.args)
        last = [*parameters, *node.args.defaults, *node.args.kw_defaults, node.returns, *_type_parameters(node)]
        self._header(node, *last)
        outside = self._open_type_parameters(node)
        returns = self._returns(node)
        annotations = [
            f.OPAQUE if parameter.annotation is None else f.Instance(self.values.annotation(parameter.annotation))
            for parameter in parameters
        ]
        defaults = _defaults(node.args)
        values = [None if default is None else self.values.of(default) for default in defaults]
        told = [*zip(parameters, annotations, values, strict=True)]
        self._then(*self._visits(defaults), (self._function_body, node, returns, decorators, told, outside))

    def _returns(self, node: Function) -> f.Expression:
        if node.returns is None:
            return f.OPAQUE
        number = self.builder.here.class_number
        if number is not None and dotted(node.returns).rpartition(".")[2] == "Self":
            return f.SelfValue(number, False)
        return f.Instance(self.values.annotation(node.returns))

    def _function_body(
        self,
        node: Function,
        returns: f.Expression,
        decorators: tuple[f.Expression, ...],
        parameters: list[tuple[ast.arg, f.Expression, f.Expression | None]],
        outside: int,
    ) -> None:
        self._symbol = None
        value = self.builder.define(node.name, returns, decorators)
        is_method = self._is_method(node)
        names = {node.name, *(callee_name(decorator) for decorator in node.decorator_list)}
        self.builder.open_function(node.name)
        scope = self.builder.here
        starred = (node.args.vararg, node.args.kwarg)
        for position, (parameter, annotation, default) in enumerate(parameters):
            bound = annotation
            if parameter in starred:
                bound = f.OPAQUE
            elif position == 0 and is_method and scope.class_number is not None:
                scope.self_name = parameter.arg
                bound = f.SelfValue(scope.class_number, bool(CLASS_METHODS & names))
            elif default is not None:
                # A default is reported where it stands if it is callable; a module or an object is followed from it.
                followed = f.Part(f.Display((default,)), 0)
                bound = followed if bound == f.OPAQUE else f.Choice((bound, followed))
            self.builder.bind(parameter.arg, bound)
        steps: list[Step] = [(self._body, node.body), *[(self.builder.close,)] * (1 + outside)]
        self._then(*steps, (self.builder.bind, node.name, value))

    def _class(self, node: ast.ClassDef) -> None:
        self._symbol = self.builder.qualify(node.name)
        steps, _ = self._decorators(node)
        self._then(*steps, (self._class_header, node))

    def _class_header(self, node: ast.ClassDef) -> None:
        self._header(node, *node.bases, *node.keywords, *_type_parameters(node))
        outside = self._open_type_parameters(node)
        bases = tuple([self.values.of(base) for base in node.bases if not isinstance(base, ast.Starred)])
        self._then(
            *((self._visit, _unstarred(base), TYPE) for base in node.bases),
            *((self._visit, keyword.value, STORED) for keyword in node.keywords),
            (self._class_body, node, bases, outside),
        )

    def _class_body(self, node: ast.ClassDef, bases: tuple[f.Expression, ...], outside: int) -> None:
        self._symbol = None
        value = self.builder.open_class(node.name, bases, (self._class_place, node, self._statement))
        header = node.lineno, max(node.lineno, node.body[0].lineno)
        if self._sieve is not None and (self._sieve.holds(*header) or any(type(base) is f.Call for base in bases)):
            self._deriving.add(value.number)
        steps: list[Step] = [(self._body, node.body), (self.builder.close,)]
        steps += [(self.builder.close,)] * outside
        self._then(*steps, (self.builder.bind, node.name, value))

    def _class_place(self, node: ast.ClassDef, statement: int) -> f.Place:
        name = self.places.defined_name(node)
        last = self._colon_line(node, (*node.bases, *node.keywords, *_type_parameters(node)))
        return f.Place(node.lineno, name.column + 1, node.lineno, name.line, last, statement)

    def _open_type_parameters(self, node: Any) -> int:
        """Enter the scope of a list of type parameters; how many scopes there are to leave."""
        names = self._names_of_type_parameters(node)
        if not names:
            return 0
        self.builder.open_inner(comprehension=False)
        for name in names:
            self.builder.bind(name, f.OPAQUE)
        return 1

    def _names_of_type_parameters(self, node: Any) -> Sequence[str]:
        return [parameter.name for parameter in _type_parameters(node)] or self._parameters.get(node.lineno, ())

    def _visits(self, defaults: Sequence[ast.expr | None]) -> list[Step]:
        return [(self._visit, default, STORED) for default in defaults if default is not None]

    # --- expressions --------------------------------------------------------------------------------------------

    def _visit(self, node: ast.expr, context: Context) -> None:
        """Tell the uses in an expression whose value goes where ``context`` says."""
        kind = type(node)
        if kind is ast.Constant:
            return
        if self._sieve is not None and not self._is_misplaced and not self._sieve.holds(*_lines(node)):
            return
        handler = _EXPRESSIONS.get(kind)
        if handler is not None:
            handler(self, node, context)
            return
        if kind not in _PLAIN:
            raise NeedsReferenceError
        inner = TYPE if context.is_type else IGNORED
        self._then(
            *((self._visit, child, inner) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        )

    @property
    def _is_misplaced(self) -> bool:
        """Whether the tree does not tell where the nodes stand."""
        return self._formatted is not None and _FORMATS_ARE_MISPLACED

    def _format(self, node: ast.JoinedStr, context: Context) -> None:
        inner = TYPE if context.is_type else IGNORED
        parts = [part for part in node.values if not isinstance(part, ast.Constant)]
        outer = self._formatted
        if parts:
            self._in_format(outer or node)
            self._then(*((self._visit, part, inner) for part in parts), (self._in_format, outer))

    def _in_format(self, outermost: ast.JoinedStr | None) -> None:
        self._formatted = outermost

    def _chain(self, node: ast.expr, context: Context) -> None:
        """A name with what follows it: attributes, calls, subscripts. Told from the root outward."""
        links: list[Any] = []
        root: Any = node
        while isinstance(root, _LINKS):
            links.append(root)
            root = root.func if isinstance(root, ast.Call) else root.value
        self.values.of(node)  # all names of the chain are read before anything in its arguments is told
        steps: list[Step] = []
        if type(root) is not ast.Name:
            calls = [link for link in links[-1:] if type(link) is ast.Call]
            steps.append((self._visit, root, Context(call=calls[0]) if calls else IGNORED))
        for link in reversed(links):
            if type(link) is ast.Call:
                if isinstance(link.func, _CHAINS):
                    steps.append((self._use_call, link, link.func))
                steps += self._arguments(link)
            elif type(link) is ast.Subscript:
                steps += self._slices(link)
        if context.call is not None:
            steps.append((self._use_call, context.call, node))
        elif context.role is not None and (type(node) is not ast.Call or callee_name(node) in ACCESSORS):
            steps.append((self._use_value, node, context))
        self._todo.extend(reversed(steps))

    def _use_call(self, call: ast.Call, callee: ast.expr) -> None:
        if last_name(callee) is None:
            return
        place: Any = (self._call_place, call, callee, self._statement, self._formatted)
        value = self.values.of(callee)
        arguments = self.values.arguments(call)
        self.builder.use(f.Use(f.Role.CALL, value, place, self._use_symbol(), self.values.chain(callee), arguments, ()))

    def _call_place(self, call: ast.Call, callee: ast.expr, statement: int, formatted: ast.JoinedStr | None) -> f.Place:
        if formatted is not None and _FORMATS_ARE_MISPLACED:
            return self._formatted_place(callee, statement, formatted)
        line, column = self._name_spot(callee)
        paren = self.places.ahead(self.places.end(call.func), "(").line
        return f.Place(line, column + 1, call.lineno, paren, call.end_lineno or call.lineno, statement)

    def _use_value(self, node: ast.expr, context: Context) -> None:
        if last_name(node) is None or context.role is None:
            return
        place: Any = (self._value_place, node, self._statement, self._formatted)
        use = f.Use(context.role, self.values.of(node), place, self._use_symbol(), self.values.chain(node), None, ())
        self.builder.use(use, aliases=context.aliases, container=context.container)

    def _value_place(self, node: ast.expr, statement: int, formatted: ast.JoinedStr | None) -> f.Place:
        if formatted is not None and _FORMATS_ARE_MISPLACED:
            return self._formatted_place(node, statement, formatted)
        line, column = self._name_spot(node)
        return f.Place(line, column + 1, node.lineno, line, node.end_lineno or node.lineno, statement)

    def _formatted_place(self, node: ast.expr, statement: int, formatted: ast.JoinedStr) -> f.Place:
        line, column = self.places.only_word(formatted, _named(node))
        return f.Place(line, column + 1, line, line, line, statement)

    def _name_spot(self, node: ast.expr) -> Spot:
        name = last_name(node)
        assert name is not None, "a use has a name"
        return self.places.name(name)

    def _arguments(self, call: ast.Call) -> list[Step]:
        """The arguments of a call are handed on, unless the callee is known only to look at them."""
        if not call.args and not call.keywords:
            return []
        builtin = call.func.id if isinstance(call.func, ast.Name) else None
        maker = self._type_maker(dotted(call.func))
        steps: list[Step] = []
        for position, (_, argument) in enumerate(arguments_of(call)):
            if position == 1 and builtin in TYPE_TESTS:
                self._check_types(argument)
            if type(argument) is not ast.Constant:
                steps.append((self._visit, argument, argument_context(builtin, maker, position)))
        return steps

    def _check_types(self, node: ast.expr) -> None:
        nodes = [_unstarred(element) for element in node.elts] if isinstance(node, ast.Tuple) else [node]
        for tested in nodes:
            if isinstance(tested, ast.Name):
                self.builder.check_type(self.values.of(tested))

    def _slices(self, node: ast.Subscript) -> list[Step]:
        return [(self._visit, element, TYPE) for element in slices_of(node)]

    def _conditional(self, node: ast.IfExp, context: Context) -> None:
        self._certain = False
        self._then(
            (self._visit, node.test, IGNORED), (self._visit, node.body, context), (self._visit, node.orelse, context)
        )

    def _boolean(self, node: ast.BoolOp, context: Context) -> None:
        self._certain = False
        self._then(*((self._visit, value, context) for value in node.values))

    def _walrus(self, node: ast.NamedExpr, context: Context) -> None:
        value = self.values.of(node.value)
        numbers = self.builder.bind_walrus(node.target.id, value, order=self._started, certain=self._certain)
        alias = Context(f.Role.ALIAS, numbers) if context.role is None and context.call is None else context
        self._then((self._visit, node.value, alias))

    def _display(self, node: ast.Tuple | ast.List | ast.Set, context: Context) -> None:
        elements = [_unstarred(element) for element in node.elts if type(element) is not ast.Constant]
        if elements:
            inner = context.stored()
            self._then(*((self._visit, element, inner) for element in elements))

    def _dict(self, node: ast.Dict, context: Context) -> None:
        inner = replace(context.stored(), container=None) if not context.is_type else context
        steps: list[Step] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and type(key) is not ast.Constant:
                steps.append((self._visit, key, inner))
            if type(value) is not ast.Constant:
                steps.append((self._visit, value, inner))
        self._then(*steps)

    def _lambda(self, node: ast.Lambda, context: Context) -> None:
        self._then(*self._visits(_defaults(node.args)), (self._lambda_body, node))

    def _lambda_body(self, node: ast.Lambda) -> None:
        self.builder.open_function(None)
        for parameter in _parameters(node.args):
            self.builder.bind(parameter.arg, f.OPAQUE)
        self._then((self._visit, node.body, STORED), (self.builder.close,))

    def _comprehension(self, node: Any, context: Context) -> None:
        inner = context.stored()
        if not context.is_type:
            inner = replace(inner, container=None)
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._certain = False
        self._then(
            (self._visit, node.generators[0].iter, IGNORED),
            (self._comprehension_loop, node.generators, 0, [(self._visit, element, inner) for element in elements]),
            (self.builder.close,),
        )

    def _comprehension_loop(self, loops: list[ast.comprehension], number: int, inside: list[Step]) -> None:
        loop = loops[number]
        value = self.values.of(loop.iter)
        if not number:
            self.builder.open_inner(comprehension=True)
        steps: list[Step] = [(self._visit, loop.iter, IGNORED)] if number else []
        steps.append((self._bind_target, loop.target, f.Element(value), []))
        steps += [(self._visit, condition, IGNORED) for condition in loop.ifs]
        if number + 1 == len(loops):
            steps += inside
        else:
            steps.append((self._comprehension_loop, loops, number + 1, inside))
        self._then(*steps)

    def _yield(self, node: ast.Yield, context: Context) -> None:
        if node.value is not None:
            self._then((self._visit, node.value, STORED))

    def _starred(self, node: ast.Starred, context: Context) -> None:
        self._then((self._visit, node.value, context))


def _lines(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _whole(node: ast.stmt) -> f.Statement:
    return f.Statement(node.lineno, node.end_lineno or node.lineno)


def _locate(found_by: Step) -> Any:
    """The place or extent that a step was put off for."""
    find, *arguments = found_by
    return find(*arguments)


def _named(node: ast.expr) -> str:
    name = callee_name(node)
    assert name is not None, "a use has a name"
    return name


def _unstarred(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def _type_parameters(node: Any) -> list[Any]:
    return getattr(node, "type_params", None) or []


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters, positional ones first."""
    star = [] if arguments.vararg is None else [arguments.vararg]
    double_star = [] if arguments.kwarg is None else [arguments.kwarg]
    return [*arguments.posonlyargs, *arguments.args, *star, *arguments.kwonlyargs, *double_star]


def _defaults(arguments: ast.arguments) -> list[ast.expr | None]:
    """The default of each parameter, in their order."""
    plain = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    star: list[None] = [] if arguments.vararg is None else [None]
    double_star: list[None] = [] if arguments.kwarg is None else [None]
    return [*[None] * plain, *arguments.defaults, *star, *arguments.kw_defaults, *double_star]


def _pairs(targets: Sequence[ast.expr], value: ast.expr) -> list[tuple[ast.expr, ast.expr]] | None:
    """``a, b = x, y`` as two assignments; None where the shapes do not fit."""
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, _SEQUENCES) or not isinstance(value, _SEQUENCES):
        return None
    elements = [*target.elts, *value.elts]
    if len(target.elts) != len(value.elts) or any(isinstance(element, ast.Starred) for element in elements):
        return None
    return [*zip(target.elts, value.elts, strict=True)]


def _strings(node: ast.expr | None) -> list[str] | None:
    """The strings of a list or tuple of constants; None for anything else."""
    if not isinstance(node, _SEQUENCES):
        return None
    strings = [string_of(_unstarred(element)) for element in node.elts]
    return None if None in strings else [string for string in strings if string is not None]


_SIMPLE: dict[type[ast.AST], Callable[[_Walk, Any], None]] = {
    ast.Expr: _Walk._expression_statement,
    ast.Assign: _Walk._assign,
    ast.AnnAssign: _Walk._annotated_assign,
    ast.AugAssign: _Walk._augmented_assign,
    ast.Import: _Walk._import,
    ast.ImportFrom: _Walk._import_from,
    ast.Delete: _Walk._delete,
    ast.Return: _Walk._return,
    ast.Raise: _Walk._raise,
    ast.Assert: _Walk._assert,
    ast.Global: _Walk._global,
    ast.Nonlocal: _Walk._nonlocal,
    ast.Pass: _Walk._nothing,
    ast.Break: _Walk._nothing,
    ast.Continue: _Walk._nothing,
}

_COMPOUND: dict[type[ast.AST], Callable[[_Walk, Any], None]] = {
    ast.If: _Walk._if,
    ast.While: _Walk._while,
    ast.For: _Walk._for,
    ast.AsyncFor: _Walk._for,
    ast.With: _Walk._with,
    ast.AsyncWith: _Walk._with,
    ast.Try: _Walk._try,
    ast.TryStar: _Walk._try,
    ast.Match: _Walk._match,
    ast.FunctionDef: _Walk._function,
    ast.AsyncFunctionDef: _Walk._function,
    ast.ClassDef: _Walk._class,
}

_EXPRESSIONS: dict[type[ast.AST], Callable[[_Walk, Any, Context], None]] = {
    ast.Name: _Walk._chain,
    ast.Attribute: _Walk._chain,
    ast.Call: _Walk._chain,
    ast.Subscript: _Walk._chain,
    ast.IfExp: _Walk._conditional,
    ast.BoolOp: _Walk._boolean,
    ast.NamedExpr: _Walk._walrus,
    ast.Tuple: _Walk._display,
    ast.List: _Walk._display,
    ast.Set: _Walk._display,
    ast.Dict: _Walk._dict,
    ast.Lambda: _Walk._lambda,
    ast.ListComp: _Walk._comprehension,
    ast.SetComp: _Walk._comprehension,
    ast.GeneratorExp: _Walk._comprehension,
    ast.DictComp: _Walk._comprehension,
    ast.Yield: _Walk._yield,
    ast.Starred: _Walk._starred,
    ast.JoinedStr: _Walk._format,
}

_PLAIN = frozenset({ast.Await, ast.BinOp, ast.Compare, ast.FormattedValue, ast.Slice, ast.UnaryOp, ast.YieldFrom})
"""Expressions whose parts are told in order, none of them handed on."""

if sys.version_info >= (3, 12):
    _SIMPLE[ast.TypeAlias] = _Walk._type_statement
if sys.version_info >= (3, 14):
    _EXPRESSIONS[ast.TemplateStr] = _Walk._format
    _PLAIN |= {ast.Interpolation}
