"""Checks that stay on in production.

They are calls, not ``assert`` statements, so ``python -O`` keeps them.
"""

from __future__ import annotations

from typing import NoReturn


class InvariantViolation(AssertionError):  # noqa: N818 - the term of the field
    """The core's state contradicts itself: a defect in the core, never bad input."""


def invariant(condition: bool, message: str, *facts: object) -> None:
    """Raise :class:`InvariantViolation` with ``message`` and ``facts`` unless ``condition`` holds."""
    if not condition:
        violated(message, *facts)


def violated(message: str, *facts: object) -> NoReturn:
    """Raise :class:`InvariantViolation`: for a place that runs so often that it tests its condition itself."""
    raise InvariantViolation(": ".join([message, *map(repr, facts)]))
