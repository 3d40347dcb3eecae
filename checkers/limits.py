"""What the interpreter is told about its own limits, for the time of one piece of work."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage while a large heap without any is built: the collector would walk it over and over."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def recursion(limit: int) -> Iterator[None]:
    """Let calls nest ``limit`` deep: much for Python's own, whose frames lie on the heap; little before C code.

    Raises RecursionError where they nest deeper already.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
