"""Whether a source is Python at all."""

from __future__ import annotations

import ast
import importlib.util
import warnings

from checkers.limits import recursion

HAS_NATIVE = importlib.util.find_spec("ast_serialize") is not None
"""Without a wheel for this machine it takes longer, and newer syntax than the interpreter's is analysed in full."""
_RECURSION = 1500


def is_valid(source: str | bytes) -> bool:
    """Whether ``source`` parses; when in doubt False, and who analyses it will tell what is wrong with it."""
    return _is_valid_natively(source) if HAS_NATIVE else _is_valid_here(source)


def is_newer(source: str) -> bool:
    """Whether ``source``, which this interpreter does not take, is valid for a newer one."""
    return HAS_NATIVE and _is_valid_natively(source)


def _is_valid_natively(source: str | bytes) -> bool:
    from ast_serialize import parse

    has_nul = "\0" in source if isinstance(source, str) else b"\0" in source
    if has_nul:
        return False  # no Python takes it, and this parser does
    try:
        return not parse("", source, skip_function_bodies=True)[1]
    except TypeError:  # half of a surrogate pair is no text to it
        return False


def _is_valid_here(source: str | bytes) -> bool:
    try:
        with recursion(_RECURSION), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "module", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True
