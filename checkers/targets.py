"""What a rule's target and an entry's ``api`` match."""

from __future__ import annotations

import re

from checkers.model import Site

NAMED = r"(?!(?:.*\.)?(?:\(\))?$)\S+"
"""A target whose last component says something: what ends in a dot would be looked for under no word."""


def name_matches(pattern: str, name: str) -> bool:
    """Whether ``name`` is ``pattern``, in which ``*`` stands for any run of characters, dots included."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    last = rest.pop()
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    cursor, end = len(first), len(name) - len(last)
    for part in rest:  # the earliest place leaves most for the others
        cursor = name.find(part, cursor, end)
        if cursor < 0:
            return False
        cursor += len(part)
    return True


def chain_matches(pattern: str, chain: str) -> bool:
    """Whether a callee as written, calls as ``()``, is of the form ``pattern``.

    ``*`` stands for any run of characters. A leading ``*.`` is any receiver or none: ``*.spawner().send``
    matches ``self.app.spawner().send`` and ``spawner().send``. Everything else is literal, and the whole
    chain has to match.
    """
    if pattern.startswith("*.") and name_matches(pattern[2:], chain):
        return True
    return name_matches(pattern, chain)


def is_named(target: str) -> bool:
    """Whether something can be looked for by ``target``."""
    return re.fullmatch(NAMED, target) is not None


def is_chain(target: str) -> bool:
    """Whether a target is a method chain."""
    return "()" in target


def chain_end(chain: str) -> str:
    """The last name of a method chain."""
    return chain.rpartition(".")[2].removesuffix("()")


def target_matches(target: str, site: Site) -> bool:
    """Whether a target other than ``@kind`` governs ``site``: by a name it may reach, or its callee."""
    if is_chain(target):
        return target in site.names or chain_matches(target, site.chain)
    return any(name_matches(target, name) for name in site.names)
