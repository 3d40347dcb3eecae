"""Whether code outside a function can see what its body does to names: if not, and no word stands in it, it is idle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
_INNER = ("body", "orelse", "handlers", "finalbody", "cases")


def reaches_out(function: Function, owners: frozenset[str]) -> bool:
    """Whether a function stores a global, an outer function's name, or an attribute of one of ``owners``.

    ``owners``: names whose attributes are seen outside, such as ``self``.
    """
    todo: list[tuple[Any, frozenset[str]]] = [(node, owners) for node in function.body]
    while todo:
        node, seen = todo.pop()
        kind = type(node)
        if kind is ast.Global or kind is ast.Nonlocal:
            return True
        if kind in _TARGETS and any(_is_stored(target, seen) for target in _TARGETS[kind](node)):
            return True
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            seen = seen.union(parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)[:1])
        if kind in _COMPOUND:
            todo += [(inner, seen) for field in _INNER for inner in getattr(node, field, ())]
    return False


def _is_stored(target: ast.expr, owners: frozenset[str]) -> bool:
    todo = [target]
    while todo:
        match todo.pop():
            case ast.Attribute(value=ast.Name(id=owner)) if owner in owners:
                return True
            case ast.Tuple(elts) | ast.List(elts):
                todo += elts
            case ast.Starred(inner):
                todo.append(inner)
    return False


def _entered(node: ast.With | ast.AsyncWith) -> Iterator[ast.expr]:
    return (item.optional_vars for item in node.items if item.optional_vars is not None)


_TARGETS: dict[type[ast.AST], Any] = {
    ast.Assign: lambda node: node.targets,
    ast.AnnAssign: lambda node: (node.target,),
    ast.For: lambda node: (node.target,),
    ast.AsyncFor: lambda node: (node.target,),
    ast.With: _entered,
    ast.AsyncWith: _entered,
}
"""What a statement assigns to."""
_COMPOUND = frozenset(
    {
        *(ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.ExceptHandler),
        *(ast.Match, ast.match_case, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    }
)
"""What holds statements."""
