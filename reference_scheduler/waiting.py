"""Waiting that a cancellation does not cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any


async def outlast(future: asyncio.Future[Any], end: Callable[[], object]) -> None:
    """Wait until ``future`` is done; whoever is cancelled meanwhile calls ``end``, and still waits, first."""
    cancelled = False
    while not future.done():
        turn = future.get_loop().create_future()
        wake = partial(_wake, turn)
        future.add_done_callback(wake)
        try:
            await turn
        except asyncio.CancelledError:
            future.remove_done_callback(wake)
            cancelled = True
            end()
    if cancelled:
        raise asyncio.CancelledError


def _wake(turn: asyncio.Future[None], _: object) -> None:
    if not turn.done():
        turn.set_result(None)
