"""Waiting that a cancellation does not cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def outlast(over: asyncio.Event, end: Callable[[], object]) -> None:
    """Wait until ``over`` is set; whoever is cancelled meanwhile calls ``end``, and still waits, first."""
    cancelled = False
    while not over.is_set():
        try:
            await over.wait()
        except asyncio.CancelledError:
            cancelled = True
            end()
    if cancelled:
        raise asyncio.CancelledError
