"""What the interpreter is told about its own limits, for the time of one piece of work.

Both limits are the interpreter's and not a thread's, and whoever imports the scan may run it in threads.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # a child must not inherit a lock that a thread holds which it does not have
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class _Collector:
    """Whether garbage is collected, and how many pieces of work are under way for which it is not."""

    def __init__(self) -> None:
        self._holders = 0
        self._was_enabled = False

    def hold(self) -> None:
        with _LOCK:
            if not self._holders:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._holders += 1

    def release(self) -> None:
        with _LOCK:
            self._holders -= 1
            if not self._holders and self._was_enabled:
                gc.enable()


_COLLECTOR = _Collector()


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage while a large heap without any is built: the collector would walk it over and over."""
    _COLLECTOR.hold()
    try:
        yield
    finally:
        _COLLECTOR.release()


@contextmanager
def recursion(limit: int) -> Iterator[None]:
    """Let calls nest ``limit`` deep: much for Python's own, whose frames lie on the heap; little before C code.

    Threads take turns, so that none works under another's limit: nothing may be waited for inside.

    Raises RecursionError where they nest deeper already.
    """
    with _LOCK:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(limit)
        try:
            yield
        finally:
            sys.setrecursionlimit(before)
