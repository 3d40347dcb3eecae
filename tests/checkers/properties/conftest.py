"""What the properties share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from checkers.facts.walk import RECURSION_LIMIT


@pytest.fixture(autouse=True, scope="module")
def _deep_recursion() -> Iterator[None]:
    """The front end raises the limit; Hypothesis warns of a limit that changes while a property runs."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    yield
    sys.setrecursionlimit(before)
