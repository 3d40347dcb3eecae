"""Waiting that a cancellation does not cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def outlast(future: asyncio.Future[Any], end: Callable[[], object]) -> None:
    """Wait until ``future`` is done; whoever is cancelled meanwhile calls ``end``, and still waits, first."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancelled = True
            end()
    if cancelled:
        raise asyncio.CancelledError
