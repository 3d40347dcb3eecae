"""Expressions of Python's own syntax tree → the small values of :mod:`checkers.facts.model`.

The counterpart of :mod:`checkers.facts.values`: the same names are read in the same order, so that both front ends
give the same facts.
"""

from __future__ import annotations

import ast
import warnings

from checkers.facts import model as f
from checkers.facts.builder import Builder
from checkers.facts.hot import ENTER
from checkers.facts.interest import ACCESSORS
from checkers.facts.walk import ENTERS, MAX_CHAIN, MAX_ELEMENTS, MAX_QUOTED, SPLIT, names_attribute

ATOMS = (ast.Name, ast.Attribute, ast.Constant)


class NeedsReferenceError(Exception):
    """This tree does not tell something that the facts need: the reference front end has to read the file."""


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of names and attributes; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """The node whose name a reader sees called or handed on: ``run`` of ``subprocess.run``."""
    while True:
        kind = type(node)
        if kind is ast.Name or kind is ast.Attribute:
            return node  # type: ignore[return-value]
        if kind is ast.Call:
            node = node.func  # type: ignore[attr-defined]
        elif kind is ast.Subscript or kind is ast.NamedExpr:
            node = node.value  # type: ignore[attr-defined]
        else:
            return None


def callee_name(node: ast.AST) -> str | None:
    """Last name of what a call calls, or of a bare name."""
    name = last_name(node)
    return None if name is None else name.id if isinstance(name, ast.Name) else name.attr


def string_of(node: ast.AST) -> str | None:
    """The value of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def arguments_of(call: ast.Call) -> list[tuple[str | None, ast.expr]]:
    """Keyword (``*`` and ``**`` for unpacked ones, None for a positional one) and value, in source order."""
    found: list[tuple[str | None, ast.expr]] = []
    for argument in call.args:
        if type(argument) is ast.Starred:
            found.append(("*", argument.value))
        else:
            found.append((None, argument))
    keywords = call.keywords
    if not keywords:
        return found
    found += [(keyword.arg or "**", keyword.value) for keyword in keywords]
    if call.args and _place(keywords[0]) < _place(call.args[-1]):
        found.sort(key=lambda pair: _place(pair[1]))
    return found


def _place(node: ast.expr | ast.keyword) -> tuple[int, int]:
    return node.lineno, node.col_offset


def slices_of(node: ast.Subscript) -> list[ast.expr]:
    """What stands between the brackets, commas apart."""
    key = node.slice
    if type(key) is ast.Tuple and key.elts:
        return [element.value if isinstance(element, ast.Starred) else element for element in key.elts]
    return [key]


class AstValues:
    """Builds each expression of a statement once."""

    def __init__(self, builder: Builder, lines: list[str]) -> None:
        self._builder = builder
        self._lines = lines
        self._built: dict[int, f.Expression] = {}
        self._quoted_trees: list[ast.AST] = []  # kept alive, since values are filed under the nodes' ids

    def forget(self) -> None:
        """A new statement begins: names are read anew."""
        self._built.clear()
        self._quoted_trees.clear()

    def of(self, node: ast.expr) -> f.Expression:
        """The value of an expression; OPAQUE where no governed name can come of it."""
        built = self._built
        links: list[ast.expr] = []
        root = node
        while id(root) not in built:
            kind = type(root)
            if kind is ast.Attribute or kind is ast.Subscript or kind is ast.Await:
                links.append(root)
                root = root.value  # type: ignore[attr-defined]
            elif kind is ast.Call:
                links.append(root)
                root = root.func  # type: ignore[attr-defined]
            else:
                break
        value = built.get(id(root))
        if value is None:
            value = built[id(root)] = self._root(root)
        for depth, link in enumerate(reversed(links)):
            value = f.OPAQUE if depth >= MAX_CHAIN else self._link(link, value)
            built[id(link)] = value
        return value

    def _link(self, link: ast.expr, value: f.Expression) -> f.Expression:
        match link:
            case ast.Attribute():
                return f.Attribute(value, link.attr)
            case ast.Call(func=ast.Name(id="super")) if (number := self._builder.method_class()) is not None:
                return f.SuperValue(number)
            case ast.Call(args=[], keywords=[]) if isinstance(value, f.Attribute) and value.name in ENTER:
                return f.Entered(value.value)
            case ast.Call(func=ast.Name(id="type")) if len(link.args) + len(link.keywords) == 1:
                return f.Attribute(self._shallow(arguments_of(link)[0][1]), "__class__")
            case ast.Call() if (link.args or link.keywords) and callee_name(link) in ENTERS:
                return f.Entered(self._shallow(arguments_of(link)[0][1], calls=True))
            case ast.Call():
                return f.Call(value, self.arguments(link))
            case ast.Subscript():
                return f.Item(value, self._key(link))
            case _:
                return f.Awaited(value)

    def _key(self, node: ast.Subscript) -> f.Expression:
        key = node.slice
        if isinstance(key, ast.Tuple) and len(key.elts) == 1 and not self._in_parentheses(key):
            return self._shallow(slices_of(node)[0])
        return self._shallow(key)

    def _in_parentheses(self, node: ast.Tuple) -> bool:
        """Whether a tuple between brackets has parentheses of its own."""
        first = node.elts[0]
        if (node.lineno, node.col_offset) == (first.lineno, first.col_offset):
            return False
        if not self._lines[node.lineno - 1].isascii() or self._lines[node.lineno - 1][node.col_offset] != "(":
            raise NeedsReferenceError
        if len(node.elts) > 1:
            raise NeedsReferenceError  # ``x[(a), b]`` or ``x[(a, b)]``
        return True

    def _root(self, node: ast.expr) -> f.Expression:
        kind = type(node)
        if kind is ast.Name:
            return self._builder.read(node.id)  # type: ignore[attr-defined]
        if kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined]
            return f.constant(value) if value is None or isinstance(value, str | int) else f.OPAQUE
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=number)) if type(number) is int:
                return f.constant(-number)
            case ast.BinOp(op=ast.Add()):
                return self._joined(node)
            case ast.IfExp() | ast.BoolOp() | ast.BinOp(op=ast.BitOr()):
                return self._choice(node)
            case ast.NamedExpr():
                return self.of(node.value)
            case ast.Tuple() | ast.List() | ast.Set():
                return self._display(node)
            case _:
                return f.OPAQUE

    def _choice(self, node: ast.expr) -> f.Expression:
        options: list[f.Expression] = []
        todo: list[ast.expr] = [node]
        while todo:
            option = todo.pop()
            match option:
                case ast.IfExp():
                    todo += [option.orelse, option.body]
                case ast.BoolOp():
                    todo += reversed(option.values)
                case ast.BinOp(op=ast.BitOr()):
                    todo += [option.right, option.left]
                case _:
                    options.append(self.of(option))
        options = [option for option in options if option != f.OPAQUE and not isinstance(option, f.Constant)]
        return f.Choice(tuple(options)) if options else f.OPAQUE

    def _joined(self, node: ast.expr) -> f.Expression:
        """Where the elements of a sequence come from: what was split, and names of what may have been."""
        sources: list[f.Expression] = []
        todo = [node]
        while todo and len(sources) < MAX_ELEMENTS:
            part = todo.pop()
            match part:
                case ast.BinOp(op=ast.Add()):
                    todo += [part.right, part.left]
                case ast.BoolOp():
                    todo += reversed(part.values)
                case ast.IfExp():
                    todo += [part.orelse, part.body]
                case ast.NamedExpr():
                    todo.append(part.value)
                case ast.List() | ast.Tuple():
                    todo += [element.value for element in reversed(part.elts) if isinstance(element, ast.Starred)]
                case ast.Call(func=ast.Name(id="list" | "tuple")) if len(part.args) + len(part.keywords) == 1:
                    todo.append(arguments_of(part)[0][1])
                case ast.Name() | ast.Attribute():
                    sources.append(self.of(part))
                case ast.Call() if callee_name(part) in SPLIT:
                    sources.append(self.of(part))
        sources = [source for source in sources if source != f.OPAQUE and not isinstance(source, f.Constant)]
        return f.Joined(tuple(sources)) if sources else f.OPAQUE

    def _display(self, node: ast.Tuple | ast.List | ast.Set) -> f.Expression:
        elements = tuple(
            f.OPAQUE if isinstance(element, ast.Starred) else self._shallow(element, calls=True)
            for element in node.elts[:MAX_ELEMENTS]
        )
        holds = any(element != f.OPAQUE and not isinstance(element, f.Constant) for element in elements)
        if any(isinstance(element, ast.Starred) for element in node.elts):
            return f.Choice((f.Display(elements), self._joined(node))) if holds else self._joined(node)
        return f.Display(elements) if holds else f.OPAQUE

    def _shallow(self, node: ast.expr, *, calls: bool = False) -> f.Expression:
        """A value inside another: names, constants and calls that matter, nothing larger."""
        if isinstance(node, ATOMS):
            return self.of(node)
        if isinstance(node, ast.Call) and (calls or callee_name(node) in ACCESSORS | SPLIT):
            return self.of(node)
        return f.OPAQUE

    def arguments(self, call: ast.Call) -> tuple[f.CallArgument, ...]:
        """The arguments of a call, each no deeper than the rules look."""
        if not call.args and not call.keywords:
            return ()
        found = arguments_of(call)
        passed = [f.CallArgument(keyword, self._passed(value)) for keyword, value in found]
        if passed[0].value == f.OPAQUE and names_attribute(passed):
            passed[0] = f.CallArgument(None, self.of(found[0][1]))
        return tuple(passed)

    def _passed(self, node: ast.expr) -> f.Expression:
        match node:
            case ast.UnaryOp():
                return self.of(node)
            case ast.BinOp() | ast.BoolOp() | ast.IfExp() | ast.NamedExpr() | ast.List() | ast.Tuple():
                return self._joined(node)
            case ast.Call(func=ast.Name(id="list" | "tuple")):
                return self._joined(node)
            case _:
                return self._shallow(node)

    def annotation(self, node: ast.expr) -> f.Expression:
        """The type that an annotation names; strings are read as the expressions they hold."""
        match node:
            case ast.Name() | ast.Attribute() | ast.Call():
                return self.of(node)
            case ast.Constant(value=str(text)):
                return self._quoted(text)
            case ast.Constant(value=bool() | None):
                return self.of(node)
            case ast.BinOp(op=ast.BitOr()):
                options, left = [node.right], node.left
                while isinstance(left, ast.BinOp):
                    options.append(left.right)
                    left = left.left
                options.append(left)
                return f.Choice(tuple(self.annotation(option) for option in reversed(options[-MAX_ELEMENTS:])))
            case ast.Subscript():
                keys = [
                    self.annotation(element)
                    for element in self._types_in(node)[:MAX_ELEMENTS]
                    if not isinstance(element, ast.Slice)
                ]
                return f.Item(self.of(node.value), f.Display(tuple(keys)))
            case _:
                return f.OPAQUE

    def _types_in(self, node: ast.Subscript) -> list[ast.expr]:
        key = node.slice
        if isinstance(key, ast.Tuple) and key.elts and self._in_parentheses(key):
            return [key]
        return slices_of(node)

    def _quoted(self, text: str) -> f.Expression:
        if len(text) > MAX_QUOTED:
            return f.OPAQUE
        text = text.strip()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = compile(text, "annotation", "eval", ast.PyCF_ONLY_AST, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return f.OPAQUE
        inner = tree.body  # type: ignore[attr-defined]
        if isinstance(inner, ast.JoinedStr) or (
            isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes)
        ):
            return f.OPAQUE
        self._quoted_trees.append(inner)
        lines, self._lines = self._lines, text.split("\n")
        try:
            return self.annotation(inner)
        finally:
            self._lines = lines

    def chain(self, node: ast.expr) -> str:
        """The callee as written, arguments left out: ``self.spawner().send``; ``()`` alone for a computed root."""
        parts: list[str] = []
        while True:
            kind = type(node)
            if kind is ast.Attribute:
                parts.append("." + node.attr)  # type: ignore[attr-defined]
                node = node.value  # type: ignore[attr-defined]
            elif kind is ast.Call:
                parts.append("()")
                node = node.func  # type: ignore[attr-defined]
            elif kind is ast.Subscript:
                parts.append("[]")
                node = node.value  # type: ignore[attr-defined]
            else:
                if kind is ast.Name:
                    parts.append(node.id)  # type: ignore[attr-defined]
                return "".join(reversed(parts[-MAX_CHAIN:]))
