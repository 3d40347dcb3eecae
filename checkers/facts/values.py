"""LibCST expressions → the small values of :mod:`checkers.facts.model`, names resolved where they are read."""

from __future__ import annotations

import unicodedata

import libcst as cst

from checkers.facts import model as f
from checkers.facts.builder import Builder
from checkers.facts.hot import ENTER
from checkers.facts.interest import ACCESSORS
from checkers.facts.walk import ENTERS, MAX_CHAIN, MAX_ELEMENTS, MAX_QUOTED, SPLIT, names_attribute


def dotted(node: cst.CSTNode) -> str:
    """``a.b.c`` of names and attributes; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(identifier(node.attr))
        node = node.value
    if not isinstance(node, cst.Name):
        return ""
    return ".".join([identifier(node), *reversed(parts)])


def identifier(name: cst.Name) -> str:
    """A name as Python compares it (PEP 3131): ``ﬁ`` is ``fi``."""
    return name.value if name.value.isascii() else unicodedata.normalize("NFKC", name.value)


def last_name(node: cst.BaseExpression) -> cst.Name | None:
    """The name that a reader sees called or handed on: ``run`` of ``subprocess.run``, ``getattr`` of its call."""
    while True:
        match node:
            case cst.Name():
                return node
            case cst.Attribute():
                return node.attr
            case cst.Call():
                node = node.func
            case cst.Subscript() | cst.NamedExpr():
                node = node.value
            case _:
                return None


def callee_name(node: cst.BaseExpression) -> str | None:
    """Last name of what a call calls, or of a bare name."""
    name = last_name(node)
    return None if name is None else identifier(name)


def string_of(node: cst.BaseExpression) -> str | None:
    """The value of a string constant."""
    if isinstance(node, cst.SimpleString | cst.ConcatenatedString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None


class Values:
    """Builds each expression of a statement once."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._built: dict[int, f.Expression] = {}
        self._quoted_trees: list[cst.BaseExpression] = []  # kept alive, since values are filed under the nodes' ids

    def forget(self) -> None:
        """A new statement begins: names are read anew."""
        self._built.clear()
        self._quoted_trees.clear()

    def of(self, node: cst.BaseExpression) -> f.Expression:
        """The value of an expression; OPAQUE where no governed name can come of it."""
        links: list[cst.BaseExpression] = []
        root = node
        while id(root) not in self._built and isinstance(root, cst.Attribute | cst.Call | cst.Subscript | cst.Await):
            links.append(root)
            match root:
                case cst.Call():
                    root = root.func
                case cst.Await():
                    root = root.expression
                case _:
                    root = root.value
        value = self._built.get(id(root))
        if value is None:
            value = self._built[id(root)] = self._root(root)
        for depth, link in enumerate(reversed(links)):
            value = f.OPAQUE if depth >= MAX_CHAIN else self._link(link, value)
            self._built[id(link)] = value
        return value

    def _link(self, link: cst.BaseExpression, value: f.Expression) -> f.Expression:
        match link:
            case cst.Attribute():
                return f.Attribute(value, identifier(link.attr))
            case cst.Call(func=cst.Name(value="super")) if (number := self._builder.method_class()) is not None:
                return f.SuperValue(number)
            case cst.Call(args=[]) if isinstance(value, f.Attribute) and value.name in ENTER:
                return f.Entered(value.value)
            case cst.Call(func=cst.Name(value="type"), args=[cst.Arg() as only]):
                return f.Attribute(self._shallow(only.value), "__class__")
            case cst.Call(args=[entered, *_]) if callee_name(link) in ENTERS:
                return f.Entered(self._shallow(entered.value, calls=True))
            case cst.Call():
                return f.Call(value, self.arguments(link))
            case cst.Subscript():
                return f.Item(value, self._key(link))
            case _:
                return f.Awaited(value)

    def _key(self, node: cst.Subscript) -> f.Expression:
        if len(node.slice) != 1 or not isinstance(index := node.slice[0].slice, cst.Index):
            return f.OPAQUE
        return self._shallow(index.value)

    def _root(self, node: cst.BaseExpression) -> f.Expression:
        match node:
            case cst.Name(value="None" | "True" | "False"):
                return f.Constant({"None": None, "True": True, "False": False}[node.value])
            case cst.Name():
                return self._builder.read(identifier(node))
            case cst.SimpleString() | cst.ConcatenatedString():
                string = string_of(node)
                return f.OPAQUE if string is None else f.constant(string)
            case cst.Integer():
                return f.constant(node.evaluated_value)
            case cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer() as number):
                return f.constant(-number.evaluated_value)
            case cst.BinaryOperation(operator=cst.Add()):
                return self._joined(node)
            case cst.IfExp() | cst.BooleanOperation():
                return self._choice(node)
            case cst.BinaryOperation(operator=cst.BitOr()):
                return self._choice(node)
            case cst.NamedExpr():
                return self.of(node.value)
            case cst.Tuple() | cst.List() | cst.Set():
                return self._display(node)
            case _:
                return f.OPAQUE

    def _choice(self, node: cst.BaseExpression) -> f.Expression:
        options: list[f.Expression] = []
        todo: list[cst.BaseExpression] = [node]
        while todo:
            option = todo.pop()
            match option:
                case cst.IfExp():
                    todo += [option.orelse, option.body]
                case cst.BooleanOperation() | cst.BinaryOperation(operator=cst.BitOr()):
                    todo += [option.right, option.left]
                case _:
                    options.append(self.of(option))
        options = [option for option in options if option != f.OPAQUE and not isinstance(option, f.Constant)]
        return f.Choice(tuple(options)) if options else f.OPAQUE

    def _joined(self, node: cst.BaseExpression) -> f.Expression:
        """Where the elements of a sequence come from: what was split, and names of what may have been."""
        sources: list[f.Expression] = []
        todo = [node]
        while todo and len(sources) < MAX_ELEMENTS:
            part = todo.pop()
            match part:
                case cst.BinaryOperation(operator=cst.Add()) | cst.BooleanOperation():
                    todo += [part.right, part.left]
                case cst.IfExp():
                    todo += [part.orelse, part.body]
                case cst.NamedExpr():
                    todo.append(part.value)
                case cst.List() | cst.Tuple():
                    todo += [e.value for e in reversed(part.elements) if isinstance(e, cst.StarredElement)]
                case cst.Call(func=cst.Name(value="list" | "tuple"), args=[cst.Arg() as only]):
                    todo.append(only.value)
                case cst.Name() | cst.Attribute():
                    sources.append(self.of(part))
                case cst.Call() if callee_name(part) in SPLIT:
                    sources.append(self.of(part))
        sources = [source for source in sources if source != f.OPAQUE and not isinstance(source, f.Constant)]
        return f.Joined(tuple(sources)) if sources else f.OPAQUE

    def _display(self, node: cst.Tuple | cst.List | cst.Set) -> f.Expression:
        elements = tuple(
            f.OPAQUE if isinstance(element, cst.StarredElement) else self._shallow(element.value, calls=True)
            for element in node.elements[:MAX_ELEMENTS]
        )
        holds = any(element != f.OPAQUE and not isinstance(element, f.Constant) for element in elements)
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return f.Choice((f.Display(elements), self._joined(node))) if holds else self._joined(node)
        return f.Display(elements) if holds else f.OPAQUE

    def _shallow(self, node: cst.BaseExpression, *, calls: bool = False) -> f.Expression:
        """A value inside another: names, constants and calls that matter, nothing larger."""
        match node:
            case cst.Name() | cst.Attribute() | cst.SimpleString() | cst.ConcatenatedString() | cst.Integer():
                return self.of(node)
            case cst.Call() if calls or callee_name(node) in ACCESSORS | SPLIT:
                return self.of(node)
            case _:
                return f.OPAQUE

    def arguments(self, call: cst.Call) -> tuple[f.CallArgument, ...]:
        """The arguments of a call, each no deeper than the rules look."""
        passed = [
            f.CallArgument(
                identifier(argument.keyword) if argument.keyword is not None else argument.star or None,
                self._passed(argument.value),
            )
            for argument in call.args
        ]
        if passed and passed[0].value == f.OPAQUE and names_attribute(passed):
            passed[0] = f.CallArgument(None, self.of(call.args[0].value))
        return tuple(passed)

    def _passed(self, node: cst.BaseExpression) -> f.Expression:
        match node:
            case cst.UnaryOperation():
                return self.of(node)
            case (
                cst.BinaryOperation()
                | cst.BooleanOperation()
                | cst.IfExp()
                | cst.NamedExpr()
                | cst.List()
                | cst.Tuple()
            ):
                return self._joined(node)
            case cst.Call(func=cst.Name(value="list" | "tuple")):
                return self._joined(node)
            case _:
                return self._shallow(node)

    def annotation(self, node: cst.BaseExpression) -> f.Expression:
        """The type that an annotation names; strings are read as the expressions they hold."""
        match node:
            case cst.SimpleString() | cst.ConcatenatedString():
                return self._quoted(string_of(node))
            case cst.BinaryOperation(operator=cst.BitOr()):
                options, left = [node.right], node.left
                while isinstance(left, cst.BinaryOperation):
                    options.append(left.right)
                    left = left.left
                options.append(left)
                return f.Choice(tuple(self.annotation(option) for option in reversed(options[-MAX_ELEMENTS:])))
            case cst.Subscript():
                keys = [
                    self.annotation(element.slice.value)
                    for element in node.slice[:MAX_ELEMENTS]
                    if isinstance(element.slice, cst.Index)
                ]
                return f.Item(self.of(node.value), f.Display(tuple(keys)))
            case cst.Name() | cst.Attribute() | cst.Call():
                return self.of(node)
            case _:
                return f.OPAQUE

    def _quoted(self, text: str | None) -> f.Expression:
        if text is None or len(text) > MAX_QUOTED:
            return f.OPAQUE
        try:
            inner = cst.parse_expression(text.strip())
        except (cst.ParserSyntaxError, ValueError):
            return f.OPAQUE
        if isinstance(inner, cst.SimpleString | cst.ConcatenatedString):
            return f.OPAQUE
        self._quoted_trees.append(inner)
        return self.annotation(inner)

    def chain(self, node: cst.BaseExpression) -> str:
        """The callee as written, arguments left out: ``self.spawner().send``; ``()`` alone for a computed root."""
        parts: list[str] = []
        while True:
            match node:
                case cst.Attribute():
                    parts.append("." + identifier(node.attr))
                    node = node.value
                case cst.Call():
                    parts.append("()")
                    node = node.func
                case cst.Subscript():
                    parts.append("[]")
                    node = node.value
                case cst.Name():
                    parts.append(identifier(node))
                    return "".join(reversed(parts[-MAX_CHAIN:]))
                case _:
                    return "".join(reversed(parts[-MAX_CHAIN:]))
