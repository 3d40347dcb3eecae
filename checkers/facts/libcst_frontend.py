"""The reference front end: a LibCST tree → what :class:`~checkers.facts.builder.Builder` wants to be told.

The tree is walked with an explicit stack of steps, so that a deep tree costs memory and no recursion; a step may put
further steps in front of what waits. Statements are told in order of execution. Values are built where they are read
(:mod:`checkers.facts.values`), uses are told on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import libcst as cst
from msgspec.structs import replace

from checkers.facts import model as f
from checkers.facts.builder import Builder
from checkers.facts.flow import ArmKind, GroupKind
from checkers.facts.hot import Hits
from checkers.facts.interest import ACCESSORS, Interest
from checkers.facts.positions import Positions, Spot
from checkers.facts.values import Values, callee_name, dotted, identifier, last_name, string_of
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
from checkers.limits import recursion
from checkers.lines import NEWLINE, split_lines


def parse(text: str, interest: Interest, hits: Hits | None = None, *, annotated: bool) -> f.ModuleFacts:
    """The facts of one module; of sites only those that ``hits`` allow, None for all.

    ``annotated``: keep comments and headers too, for annotations.

    Raises :class:`libcst.ParserSyntaxError`, and ``RecursionError`` for a tree too deep to be written out again.
    """
    with recursion(max(sys.getrecursionlimit(), RECURSION_LIMIT)):
        module = cst.parse_module(text)
        walk = _Walk(Positions(module), interest, hits)
        walk.run(module)
        if not annotated:
            return walk.builder.finish()
        return walk.builder.finish(comment_facts(walk.positions.comments, text), tuple(walk.headers))


def comment_facts(comments: Sequence[tuple[Spot, str]], text: str) -> tuple[f.CommentFacts, ...]:
    """Comments with the run of own-line comments that each stands in."""
    lines = split_lines(text)
    own = {spot.line for spot, _ in comments if not lines[spot.line - 1][: spot.column - 1].strip(" \t\f\ufeff")}
    last: dict[int, int] = {}
    for line in sorted(own, reverse=True):
        last[line] = last.get(line + 1, line)
    return tuple(
        f.CommentFacts(spot.line, spot.column, value, spot.line in own, last.get(spot.line, spot.line))
        for spot, value in comments
    )


class _Walk(Walk):
    """One walk over one tree."""

    def __init__(self, positions: Positions, interest: Interest, hits: Hits | None) -> None:
        super().__init__(Builder(interest, hits=hits))
        self.positions = positions
        self.values = Values(self.builder)
        self.headers: list[f.HeaderFacts] = []

    def run(self, module: cst.Module) -> None:
        """Tell the whole module."""
        self._work((self._body, module.body))

    # --- statements ---------------------------------------------------------------------------------------------

    def _body(self, body: Sequence[cst.CSTNode]) -> None:
        self._then(*((self._statement_node, node) for node in body))

    def _statement_node(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.SimpleStatementLine):
            self._body(node.body)
            return
        handler = _STATEMENTS.get(type(node))
        if handler is None:
            raise TypeError(f"statement {type(node).__name__} is not known")
        if isinstance(node, cst.BaseSmallStatement):
            self._begin(self.positions.inner[id(node)].line, self.positions.ends[id(node)])
        self._certain = True
        handler(self, node)

    def _begin(self, first_line: int, last_line: int) -> None:
        self._open_statement(f.Statement(first_line, last_line))
        self.values.forget()

    def _header(self, node: cst.CSTNode, behind: cst.CSTNode) -> None:
        """A compound statement begins; its header ends where ``behind`` begins."""
        first_line = self.positions.inner[id(node)].line
        last_line = self.positions.starts[id(behind)].line
        self._begin(first_line, last_line)
        self.headers.append(f.HeaderFacts(first_line, last_line, self._last_line(node), False))

    def _last_line(self, node: cst.CSTNode) -> int:
        """Last line of a compound statement; a block ends behind its last newline."""
        return max(self.positions.ends[id(node)] - 1, self.positions.inner[id(node)].line)

    def _suite(self, suite: cst.BaseSuite) -> None:
        self._then((self._body, suite.body))

    def _arm(self, group: int, suite: cst.BaseSuite, kind: ArmKind = ArmKind.BODY) -> tuple[Step, ...]:
        return ((self.builder.open_arm, group, kind), (self._suite, suite), (self.builder.close_arm,))

    def _nothing(self, node: cst.CSTNode) -> None:
        """``pass``, ``break``, ``continue``: no name is read."""

    def _expression_statement(self, node: cst.Expr) -> None:
        call = node.value
        if isinstance(call, cst.Call):
            self._export_call(call)
        self._then((self._visit, node.value, IGNORED))

    def _export_call(self, call: cst.Call) -> None:
        """``__all__.extend([...])`` and its kin."""
        if not (isinstance(call.func, cst.Attribute) and dotted(call.func.value) == "__all__"):
            return
        argument = call.args[0].value if len(call.args) == 1 and self.builder.at_module_level else None
        if call.func.attr.value == "append" and argument is not None and (name := string_of(argument)) is not None:
            self.builder.export([name], add=True)
        else:
            names = _strings(argument) if call.func.attr.value == "extend" else None
            self.builder.export(names, add=True)

    def _assign(self, node: cst.Assign) -> None:
        targets = [target.target for target in node.targets]
        if self.builder.at_module_level and any(dotted(target) == "__all__" for target in targets):
            self.builder.export(_strings(node.value), add=False)
        self._assign_to(targets, node.value, self.values.of(node.value))

    def _assign_to(self, targets: Sequence[cst.BaseExpression], node: cst.BaseExpression, value: f.Expression) -> None:
        pairs = _pairs(targets, node)
        if pairs is not None:
            plain = [(target, element, self.values.of(element)) for target, element in pairs]
            self._then(*((self._assign_to, [target], element, of) for target, element, of in plain))
            return
        aliases: list[int] = []
        only_names = all(isinstance(target, cst.Name) for target in targets)
        context = Context(f.Role.ALIAS, aliases) if only_names else STORED
        self._then((self._visit, node, context), *((self._bind_target, target, value, aliases) for target in targets))

    def _bind_target(
        self, target: cst.BaseExpression, value: f.Expression, aliases: list[int], may: bool = False
    ) -> None:
        """Give ``value`` to an assignment target; the bindings made are added to ``aliases``."""
        if isinstance(target, cst.Name):
            aliases.append(self.builder.bind(identifier(target), value, may=may))
        elif isinstance(target, cst.Tuple | cst.List):
            for position, element in enumerate(target.elements):
                starred = isinstance(element, cst.StarredElement)
                part = f.OPAQUE if starred else f.Part(value, position)
                self._bind_target(element.value, part, aliases, may)
        elif isinstance(target, cst.Attribute):
            if isinstance(target.value, cst.Name):
                self.builder.store_attribute(identifier(target.value), identifier(target.attr), value)
            self._then((self._visit, target.value, IGNORED))
        elif isinstance(target, cst.Subscript):
            self._then((self._visit, target.value, IGNORED), *self._slices(target))

    def _annotated_assign(self, node: cst.AnnAssign) -> None:
        instance = f.Instance(self.values.annotation(node.annotation.annotation))
        target = node.target
        if node.value is not None and callee_name(node.annotation.annotation) == "TypeAlias":
            self._bind_target(target, self.values.annotation(node.value), [])
        elif node.value is not None:
            if self.builder.at_module_level and dotted(target) == "__all__":
                self.builder.export(_strings(node.value), add=False)
            value = f.Choice((self.values.of(node.value), instance))
            self._assign_to([target], node.value, value)
        elif isinstance(target, cst.Name) and self.builder.here.is_class:
            self.builder.declare_attribute(identifier(target), instance)
        elif isinstance(target, cst.Name):
            self.builder.bind(identifier(target), instance, may=True)
        else:
            self._bind_target(target, instance, [])

    def _augmented_assign(self, node: cst.AugAssign) -> None:
        target = node.target
        if self.builder.at_module_level and dotted(target) == "__all__":
            self.builder.export(_strings(node.value), add=True)
        steps: list[Step] = [(self._visit, node.value, STORED)]
        if isinstance(target, cst.Name):
            steps.append((self.builder.bind, identifier(target), f.OPAQUE))
        else:
            steps.append((self._visit, target, IGNORED))
        self._then(*steps)

    def _import(self, node: cst.Import | cst.LazyImport) -> None:
        for alias in node.names:
            name = dotted(alias.name)
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                self.builder.bind(identifier(alias.asname.name), f.Module(name))
            else:
                top = name.partition(".")[0]
                self.builder.bind(top, f.Module(top))

    def _import_from(self, node: cst.ImportFrom | cst.LazyImportFrom) -> None:
        module = "" if node.module is None else dotted(node.module)
        level = len(node.relative)
        if isinstance(node.names, cst.ImportStar):
            self.builder.star(module, level)
            return
        for alias in node.names:
            name = dotted(alias.name)
            asname = alias.asname.name if alias.asname is not None else None
            bound = identifier(asname) if isinstance(asname, cst.Name) else name
            if bound == "__all__":
                self.builder.export(None, add=True)
            self.builder.bind(bound, f.Member(module, level, name))

    def _delete(self, node: cst.Del) -> None:
        targets: list[cst.BaseExpression] = [node.target]
        while targets:
            target = targets.pop()
            if isinstance(target, cst.Name):
                self.builder.unbind(identifier(target))
            elif isinstance(target, cst.Tuple | cst.List):
                targets += [element.value for element in target.elements]
            else:
                self._then((self._visit, target, IGNORED))

    def _return(self, node: cst.Return) -> None:
        self._then(*([] if node.value is None else [(self._visit, node.value, STORED)]), (self.builder.leave,))

    def _raise(self, node: cst.Raise) -> None:
        values = [node.exc, node.cause.item if node.cause is not None else None]
        self._then(*((self._visit, value, IGNORED) for value in values if value is not None), (self.builder.leave,))

    def _assert(self, node: cst.Assert) -> None:
        self._then(*((self._visit, value, IGNORED) for value in (node.test, node.msg) if value is not None))

    def _global(self, node: cst.Global) -> None:
        self.builder.declare((identifier(item.name) for item in node.names), is_global=True)

    def _nonlocal(self, node: cst.Nonlocal) -> None:
        self.builder.declare((identifier(item.name) for item in node.names), is_global=False)

    def _type_alias(self, node: cst.TypeAlias) -> None:
        if node.type_parameters is not None:
            self._open_type_parameters(node.type_parameters)
        value = self.values.annotation(node.value)
        if node.type_parameters is not None:
            self.builder.close()
        self.builder.bind(identifier(node.name), value)

    def _if(self, node: cst.If) -> None:
        group = self.builder.open_group(GroupKind.BRANCH)
        self._if_arm(node, group)

    def _if_arm(self, node: cst.If, group: int) -> None:
        self._header(node, node.body)
        steps: list[Step] = [(self._visit, node.test, IGNORED), *self._arm(group, node.body)]
        match node.orelse:
            case cst.If():
                steps.append((self._if_arm, node.orelse, group))
            case cst.Else():
                steps += [(self.builder.exhaust, group), *self._else(group, node.orelse)]
        self._then(*steps)

    def _else(self, group: int, node: cst.Else | cst.Finally, kind: ArmKind = ArmKind.BODY) -> tuple[Step, ...]:
        return ((self._header, node, node.body), *self._arm(group, node.body, kind))

    def _while(self, node: cst.While) -> None:
        group = self.builder.open_group(GroupKind.LOOP)
        self.builder.open_arm(group)
        self._header(node, node.body)
        steps: list[Step] = [(self._visit, node.test, IGNORED), (self._suite, node.body), (self.builder.close_arm,)]
        if node.orelse is not None:
            steps += self._else(group, node.orelse, ArmKind.ORELSE)
        self._then(*steps)

    def _for(self, node: cst.For) -> None:
        self._header(node, node.body)
        value = self.values.of(node.iter)
        group = self.builder.open_group(GroupKind.LOOP)
        steps: list[Step] = [
            (self._visit, node.iter, IGNORED),
            (self.builder.open_arm, group),
            (self._bind_target, node.target, f.Element(value), []),
            (self._suite, node.body),
            (self.builder.close_arm,),
        ]
        if node.orelse is not None:
            steps += self._else(group, node.orelse, ArmKind.ORELSE)
        self._then(*steps)

    def _with(self, node: cst.With) -> None:
        self._header(node, node.body)
        steps: list[Step] = [(self._with_item, item) for item in node.items]
        if any(callee_name(item.item) == "suppress" for item in node.items):
            # The body may stop anywhere and the program goes on behind it: a try with an empty handler.
            group = self.builder.open_group(GroupKind.TRY)
            steps += self._arm(group, node.body)
            steps += [(self.builder.open_arm, group, ArmKind.HANDLER), (self.builder.close_arm,)]
        else:
            steps.append((self._suite, node.body))
        self._then(*steps)

    def _with_item(self, item: cst.WithItem) -> None:
        value = self.values.of(item.item)
        steps: list[Step] = [(self._visit, item.item, IGNORED)]
        if item.asname is not None:
            steps.append((self._bind_target, item.asname.name, f.Entered(value), []))
        self._then(*steps)

    def _try(self, node: cst.Try | cst.TryStar) -> None:
        self._header(node, node.body)
        group = self.builder.open_group(GroupKind.TRY)
        steps: list[Step] = [*self._arm(group, node.body)]
        steps += [(self._handler, handler, group) for handler in node.handlers]
        if node.orelse is not None:
            steps += self._else(group, node.orelse, ArmKind.ORELSE)
        if node.finalbody is not None:
            steps += self._else(group, node.finalbody, ArmKind.FINALLY)
        self._then(*steps)

    def _handler(self, node: cst.ExceptHandler | cst.ExceptStarHandler, group: int) -> None:
        self.builder.open_arm(group, ArmKind.HANDLER)
        self._header(node, node.body)
        steps: list[Step] = []
        if node.type is not None:
            self._check_types(node.type)
            steps.append((self._visit, node.type, TYPE))
        name = node.name.name if node.name is not None else None
        if isinstance(name, cst.Name):
            steps += [(self.builder.bind, identifier(name), f.OPAQUE), (self._suite, node.body)]
            steps.append((self.builder.unbind, identifier(name)))
        else:
            steps.append((self._suite, node.body))
        self._then(*steps, (self.builder.close_arm,))

    def _match(self, node: cst.Match) -> None:
        self._header(node, node.whitespace_after_colon)
        group = self.builder.open_group(GroupKind.BRANCH)
        subject = self.values.of(node.subject)
        self._then((self._visit, node.subject, IGNORED), *((self._case, case, group, subject) for case in node.cases))

    def _case(self, case: cst.MatchCase, group: int, subject: f.Expression) -> None:
        self.builder.open_arm(group)
        first, last = self.positions.starts[id(case.pattern)].line, self.positions.starts[id(case.body)].line
        self._begin(first, last)
        self.headers.append(f.HeaderFacts(first, last, max(self.positions.ends[id(case)] - 1, first), False))
        if isinstance(case.pattern, cst.MatchAs) and case.pattern.pattern is None and case.guard is None:
            self.builder.exhaust(group)
        self._bind_pattern(case.pattern, subject)
        guard = [] if case.guard is None else [(self._visit, case.guard, IGNORED)]
        self._then(*guard, (self._suite, case.body), (self.builder.close_arm,))

    def _bind_pattern(self, pattern: cst.CSTNode, subject: f.Expression) -> None:
        """Bind the captures of a pattern. Classes and values in it are compared, never handed on."""
        todo: list[cst.CSTNode] = [pattern]
        while todo:
            node = todo.pop()
            match node:
                case cst.MatchAs() if node.name is not None:
                    inner = node.pattern
                    is_class = isinstance(inner, cst.MatchClass)
                    whole = subject if node is pattern else f.OPAQUE
                    value = f.Instance(self.values.annotation(inner.cls)) if is_class else whole  # type: ignore[union-attr]
                    self.builder.bind(identifier(node.name), value)
                case cst.MatchStar() if node.name is not None:
                    self.builder.bind(identifier(node.name), f.OPAQUE)
                case cst.MatchMapping() if node.rest is not None:
                    self.builder.bind(identifier(node.rest), f.OPAQUE)
                case cst.MatchValue():
                    continue
            todo += [child for child in node.children if isinstance(child, _PATTERNS)]

    # --- definitions --------------------------------------------------------------------------------------------

    def _decorators(self, node: cst.FunctionDef | cst.ClassDef) -> tuple[list[Step], tuple[f.Expression, ...]]:
        """What tells the decorators, each a statement of its own, and their values."""
        steps: list[Step] = []
        for decorator in node.decorators:
            first, last = self.positions.inner[id(decorator)].line, self.positions.ends[id(decorator.decorator)]
            self.headers.append(f.HeaderFacts(first, last, self._last_line(node), True))
            steps += [(self._begin, first, last), (self._visit, decorator.decorator, STORED)]
        return steps, tuple(self.values.of(decorator.decorator) for decorator in node.decorators)

    def _function(self, node: cst.FunctionDef) -> None:
        self._symbol = self.builder.qualify(identifier(node.name))
        steps, decorators = self._decorators(node)
        self._then(*steps, (self._function_header, node, decorators))

    def _function_header(self, node: cst.FunctionDef, decorators: tuple[f.Expression, ...]) -> None:
        self._header(node, node.body)
        if node.type_parameters is not None:
            self._open_type_parameters(node.type_parameters)
        returns = self._returns(node)
        annotations = {
            id(parameter): f.OPAQUE
            if parameter.annotation is None
            else f.Instance(self.values.annotation(parameter.annotation.annotation))
            for parameter in _parameters(node.params)
        }
        outside = 0 if node.type_parameters is None else 1
        defaults = {
            id(parameter): self.values.of(parameter.default)
            for parameter in _parameters(node.params)
            if parameter.default is not None
        }
        self._then(
            *self._defaults(node.params),
            (self._function_body, node, returns, decorators, annotations, defaults, outside),
        )

    def _returns(self, node: cst.FunctionDef) -> f.Expression:
        if node.returns is None:
            return f.OPAQUE
        number = self.builder.here.class_number
        if number is not None and dotted(node.returns.annotation).rpartition(".")[2] == "Self":
            return f.SelfValue(number, False)
        return f.Instance(self.values.annotation(node.returns.annotation))

    def _function_body(
        self,
        node: cst.FunctionDef,
        returns: f.Expression,
        decorators: tuple[f.Expression, ...],
        annotations: dict[int, f.Expression],
        defaults: dict[int, f.Expression],
        outside: int,
    ) -> None:
        self._symbol = None
        value = self.builder.define(identifier(node.name), returns, decorators)
        around = self.builder.here
        while around.sees_class and around.parent is not None:
            around = self.builder.scopes[around.parent]
        names = {callee_name(decorator.decorator) for decorator in node.decorators}
        in_class = around.is_class and "staticmethod" not in names
        first = next(iter(_parameters(node.params)), None) if in_class else None
        self.builder.open_function(identifier(node.name))
        scope = self.builder.here
        for parameter in _parameters(node.params):
            bound = annotations[id(parameter)]
            if parameter is first and scope.class_number is not None and parameter.star == "":
                scope.self_name = identifier(parameter.name)
                is_class = bool(CLASS_METHODS & {*names, identifier(node.name)})
                bound = f.SelfValue(scope.class_number, is_class)
            elif parameter.star:
                bound = f.OPAQUE
            elif parameter.default is not None:
                # A default is reported where it stands if it is callable; a module or an object is followed from it.
                default = f.Part(f.Display((defaults[id(parameter)],)), 0)
                bound = default if bound == f.OPAQUE else f.Choice((bound, default))
            self.builder.bind(identifier(parameter.name), bound)
        steps: list[Step] = [(self._suite, node.body), (self.builder.close,)]
        steps += [(self.builder.close,)] * outside
        self._then(*steps, (self.builder.bind, identifier(node.name), value))

    def _class(self, node: cst.ClassDef) -> None:
        self._symbol = self.builder.qualify(identifier(node.name))
        steps, _ = self._decorators(node)
        self._then(*steps, (self._class_header, node))

    def _class_header(self, node: cst.ClassDef) -> None:
        self._header(node, node.body)
        outside = 0 if node.type_parameters is None else 1
        if node.type_parameters is not None:
            self._open_type_parameters(node.type_parameters)
        bases = tuple(self.values.of(base.value) for base in node.bases if base.star == "")
        self._then(
            *((self._visit, base.value, TYPE) for base in node.bases),
            *((self._visit, keyword.value, STORED) for keyword in node.keywords),
            (self._class_body, node, bases, outside),
        )

    def _class_body(self, node: cst.ClassDef, bases: tuple[f.Expression, ...], outside: int) -> None:
        self._symbol = None
        name = self.positions.starts[id(node.name)]
        first = self.positions.inner[id(node)].line
        last = self.positions.starts[id(node.body)].line
        place = f.Place(first, name.column, first, name.line, last, self._statement)
        value = self.builder.open_class(identifier(node.name), bases, place)
        steps: list[Step] = [(self._suite, node.body), (self.builder.close,)]
        steps += [(self.builder.close,)] * outside
        self._then(*steps, (self.builder.bind, identifier(node.name), value))

    def _open_type_parameters(self, parameters: cst.TypeParameters) -> None:
        self.builder.open_inner(comprehension=False)
        for parameter in parameters.params:
            self.builder.bind(identifier(parameter.param.name), f.OPAQUE)

    def _defaults(self, parameters: cst.Parameters) -> list[Step]:
        return [
            (self._visit, parameter.default, STORED)
            for parameter in _parameters(parameters)
            if parameter.default is not None
        ]

    # --- expressions --------------------------------------------------------------------------------------------

    def _visit(self, node: cst.CSTNode, context: Context) -> None:
        """Tell the uses in an expression whose value goes where ``context`` says."""
        handler = _EXPRESSIONS.get(type(node))
        if handler is not None:
            handler(self, node, context)
        else:
            inner = TYPE if context.is_type else IGNORED
            children = (child for child in node.children if isinstance(child, _CARRIERS))
            self._then(*((self._visit, child, inner) for child in children))

    def _chain(self, node: cst.BaseExpression, context: Context) -> None:
        """A name with what follows it: attributes, calls, subscripts. Told from the root outward."""
        links: list[cst.Attribute | cst.Call | cst.Subscript] = []
        root: cst.BaseExpression = node
        while isinstance(root, cst.Attribute | cst.Call | cst.Subscript):
            links.append(root)
            root = root.func if isinstance(root, cst.Call) else root.value
        self.values.of(node)  # all names of the chain are read before anything in its arguments is told
        steps: list[Step] = []
        if not isinstance(root, cst.Name):
            calls = [link for link in links[-1:] if isinstance(link, cst.Call)]
            steps.append((self._visit, root, Context(call=calls[0]) if calls else IGNORED))
        for link in reversed(links):
            if isinstance(link, cst.Call):
                if isinstance(link.func, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
                    steps.append((self._use_call, link, link.func))
                steps += self._arguments(link)
            elif isinstance(link, cst.Subscript):
                steps += self._slices(link)
        if context.call is not None:
            steps.append((self._use_call, context.call, node))
        elif context.role is not None and (not isinstance(node, cst.Call) or callee_name(node) in ACCESSORS):
            steps.append((self._use_value, node, context))
        self._then(*steps)

    def _use_call(self, call: cst.Call, callee: cst.BaseExpression) -> None:
        name = last_name(callee)
        if name is None:
            return
        spot = self.positions.inner[id(name)]
        paren = self.positions.ends[id(call.func)] + _newlines(call.whitespace_after_func)
        first = self.positions.inner[id(call)].line
        place = f.Place(spot.line, spot.column, first, paren, self.positions.inner_end(call), self._statement)
        value = self.values.of(callee)
        arguments = self.values.arguments(call)
        self.builder.use(f.Use(f.Role.CALL, value, place, self._use_symbol(), self.values.chain(callee), arguments, ()))

    def _use_value(self, node: cst.BaseExpression, context: Context) -> None:
        name = last_name(node)
        if name is None or context.role is None:
            return
        spot = self.positions.inner[id(name)]
        first, last = self.positions.inner[id(node)].line, self.positions.inner_end(node)
        place = f.Place(spot.line, spot.column, first, spot.line, last, self._statement)
        use = f.Use(context.role, self.values.of(node), place, self._use_symbol(), self.values.chain(node), None, ())
        self.builder.use(use, aliases=context.aliases, container=context.container)

    def _arguments(self, call: cst.Call) -> list[Step]:
        """The arguments of a call are handed on, unless the callee is known only to look at them."""
        builtin = identifier(call.func) if isinstance(call.func, cst.Name) else None
        maker = self._type_maker(dotted(call.func))
        steps: list[Step] = []
        for position, argument in enumerate(call.args):
            if builtin in TYPE_TESTS and position == 1:
                self._check_types(argument.value)
            steps.append((self._visit, argument.value, argument_context(builtin, maker, position)))
        return steps

    def _check_types(self, node: cst.BaseExpression) -> None:
        nodes = [element.value for element in node.elements] if isinstance(node, cst.Tuple) else [node]
        for tested in nodes:
            if isinstance(tested, cst.Name):
                self.builder.check_type(self.values.of(tested))

    def _slices(self, node: cst.Subscript) -> list[Step]:
        return [(self._visit, element.slice, TYPE) for element in node.slice]

    def _conditional(self, node: cst.IfExp, context: Context) -> None:
        self._certain = False
        self._then(
            (self._visit, node.test, IGNORED), (self._visit, node.body, context), (self._visit, node.orelse, context)
        )

    def _boolean(self, node: cst.BooleanOperation, context: Context) -> None:
        self._certain = False
        self._then((self._visit, node.left, context), (self._visit, node.right, context))

    def _walrus(self, node: cst.NamedExpr, context: Context) -> None:
        value = self.values.of(node.value)
        target = node.target
        assert isinstance(target, cst.Name), "the grammar allows a name only"
        numbers = self.builder.bind_walrus(identifier(target), value, order=self._started, certain=self._certain)
        alias = Context(f.Role.ALIAS, numbers) if context.role is None and context.call is None else context
        self._then((self._visit, node.value, alias))

    def _display(self, node: cst.Tuple | cst.List | cst.Set, context: Context) -> None:
        inner = context.stored()
        self._then(*((self._visit, element.value, inner) for element in node.elements))

    def _dict(self, node: cst.Dict, context: Context) -> None:
        inner = replace(context.stored(), container=None) if not context.is_type else context
        steps: list[Step] = []
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                steps.append((self._visit, element.key, inner))
            steps.append((self._visit, element.value, inner))
        self._then(*steps)

    def _lambda(self, node: cst.Lambda, context: Context) -> None:
        self._then(*self._defaults(node.params), (self._lambda_body, node))

    def _lambda_body(self, node: cst.Lambda) -> None:
        self.builder.open_function(None)
        for parameter in _parameters(node.params):
            self.builder.bind(identifier(parameter.name), f.OPAQUE)
        self._then((self._visit, node.body, STORED), (self.builder.close,))

    def _comprehension(self, node: Any, context: Context) -> None:
        inner = context.stored()
        if not context.is_type:
            inner = replace(inner, container=None)
        if isinstance(node, cst.DictComp):
            elements = [node.key, node.value]
        else:
            elements = [node.value if isinstance(node, cst.StarredDictComp) else node.elt]
        loop = node.for_in
        self._certain = False
        self._then(
            (self._visit, loop.iter, IGNORED),
            (self._comprehension_loop, loop, [(self._visit, element, inner) for element in elements], True),
            (self.builder.close,),
        )

    def _comprehension_loop(self, loop: cst.CompFor, inside: list[Step], first: bool) -> None:
        value = self.values.of(loop.iter)
        if first:
            self.builder.open_inner(comprehension=True)
        steps: list[Step] = [] if first else [(self._visit, loop.iter, IGNORED)]
        steps.append((self._bind_target, loop.target, f.Element(value), []))
        steps += [(self._visit, condition.test, IGNORED) for condition in loop.ifs]
        if loop.inner_for_in is None:
            steps += inside
        else:
            steps.append((self._comprehension_loop, loop.inner_for_in, inside, False))
        self._then(*steps)

    def _yield(self, node: cst.Yield, context: Context) -> None:
        if isinstance(node.value, cst.From):
            self._then((self._visit, node.value.item, IGNORED))
        elif node.value is not None:
            self._then((self._visit, node.value, STORED))

    def _starred(self, node: cst.CSTNode, context: Context) -> None:
        self._then(*((self._visit, child, context) for child in node.children if isinstance(child, _CARRIERS)))


def _newlines(whitespace: cst.BaseParenthesizableWhitespace) -> int:
    if isinstance(whitespace, cst.ParenthesizedWhitespace):
        return 1 + len(whitespace.empty_lines)
    return len(NEWLINE.findall(whitespace.value)) if isinstance(whitespace, cst.SimpleWhitespace) else 0


def _parameters(parameters: cst.Parameters) -> Iterable[cst.Param]:
    """All parameters that have a name, positional ones first."""
    yield from parameters.posonly_params
    yield from parameters.params
    if isinstance(parameters.star_arg, cst.Param):
        yield parameters.star_arg
    yield from parameters.kwonly_params
    if parameters.star_kwarg is not None:
        yield parameters.star_kwarg


def _pairs(
    targets: Sequence[cst.BaseExpression], value: cst.BaseExpression
) -> list[tuple[cst.BaseExpression, cst.BaseExpression]] | None:
    """``a, b = x, y`` as two assignments; None where the shapes do not fit."""
    sequence = cst.Tuple | cst.List
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, sequence) or not isinstance(value, sequence):
        return None
    elements = [*target.elements, *value.elements]
    if len(target.elements) != len(value.elements) or any(isinstance(e, cst.StarredElement) for e in elements):
        return None
    return [(left.value, right.value) for left, right in zip(target.elements, value.elements, strict=True)]


def _strings(node: cst.BaseExpression | None) -> list[str] | None:
    """The strings of a list or tuple of constants; None for anything else."""
    if not isinstance(node, cst.List | cst.Tuple):
        return None
    strings = [string_of(element.value) for element in node.elements]
    return None if None in strings else [string for string in strings if string is not None]


_PATTERNS = (
    cst.MatchPattern,
    cst.MatchMappingElement,
    cst.MatchOrElement,
    cst.MatchKeywordElement,
    cst.MatchSequenceElement,
    cst.MatchStar,
)

_CARRIERS = (
    cst.BaseExpression,
    cst.BaseElement,
    cst.BaseDictElement,
    cst.BaseSlice,
    cst.ComparisonTarget,
    cst.BaseFormattedStringContent,
    cst.BaseTemplatedStringContent,
    cst.Arg,
)
"""Nodes below an expression that may hold further expressions."""

_STATEMENTS: dict[type[cst.CSTNode], Callable[[_Walk, Any], None]] = {
    cst.Expr: _Walk._expression_statement,
    cst.Assign: _Walk._assign,
    cst.AnnAssign: _Walk._annotated_assign,
    cst.AugAssign: _Walk._augmented_assign,
    cst.Import: _Walk._import,
    cst.LazyImport: _Walk._import,
    cst.ImportFrom: _Walk._import_from,
    cst.LazyImportFrom: _Walk._import_from,
    cst.Del: _Walk._delete,
    cst.Return: _Walk._return,
    cst.Raise: _Walk._raise,
    cst.Assert: _Walk._assert,
    cst.Global: _Walk._global,
    cst.Nonlocal: _Walk._nonlocal,
    cst.TypeAlias: _Walk._type_alias,
    cst.Pass: _Walk._nothing,
    cst.Break: _Walk._nothing,
    cst.Continue: _Walk._nothing,
    cst.If: _Walk._if,
    cst.While: _Walk._while,
    cst.For: _Walk._for,
    cst.With: _Walk._with,
    cst.Try: _Walk._try,
    cst.TryStar: _Walk._try,
    cst.Match: _Walk._match,
    cst.FunctionDef: _Walk._function,
    cst.ClassDef: _Walk._class,
}

_EXPRESSIONS: dict[type[cst.CSTNode], Callable[[_Walk, Any, Context], None]] = {
    cst.Name: _Walk._chain,
    cst.Attribute: _Walk._chain,
    cst.Call: _Walk._chain,
    cst.Subscript: _Walk._chain,
    cst.IfExp: _Walk._conditional,
    cst.BooleanOperation: _Walk._boolean,
    cst.NamedExpr: _Walk._walrus,
    cst.Tuple: _Walk._display,
    cst.List: _Walk._display,
    cst.Set: _Walk._display,
    cst.Dict: _Walk._dict,
    cst.Lambda: _Walk._lambda,
    cst.ListComp: _Walk._comprehension,
    cst.SetComp: _Walk._comprehension,
    cst.GeneratorExp: _Walk._comprehension,
    cst.DictComp: _Walk._comprehension,
    cst.StarredDictComp: _Walk._comprehension,
    cst.Yield: _Walk._yield,
    cst.StarredElement: _Walk._starred,
}
