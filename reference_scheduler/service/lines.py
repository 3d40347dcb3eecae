"""A connection as lines in, bytes out, both bounded, whatever the peer does or leaves undone."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Coroutine
from typing import cast


class LineTooLongError(Exception):
    """The peer sent more than the limit without an end of line."""


class LineConnection(asyncio.Protocol):
    """Runs ``serve`` for one peer, until it returns or the peer is gone.

    ``ended`` is set when the peer will send nothing more. At most ``limit`` bytes, and what one read of the socket
    gives, wait to be taken by :meth:`next_line`; then the peer is no longer read from.
    """

    def __init__(self, serve: Callable[[LineConnection], Coroutine[None, None, None]], limit: int) -> None:
        self._serve = serve
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0
        self.ended = asyncio.Event()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve the peer."""
        self._transport = cast(asyncio.Transport, transport)
        self.socket = cast(socket.socket, transport.get_extra_info("socket"))
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        """Take in what the peer sent."""
        self._buffer += data
        if len(self._buffer) > self._limit:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        """Go on answering a peer who only has nothing more to ask; one who is gone gets nothing."""
        self.ended.set()
        self._news.set()
        return not _hung_up(self.socket)

    def connection_lost(self, error: Exception | None) -> None:
        """End what was done for the peer."""
        self._writable.set()
        self._task.cancel()

    def pause_writing(self) -> None:
        """Have :meth:`write` wait: the peer does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let :meth:`write` go on."""
        self._writable.set()

    # What the server calls.

    async def next_line(self) -> bytes | None:
        """Return the next line without its end, ``None`` after the last; a last line without an end is dropped.

        Raises:
            LineTooLongError: it exceeds the limit.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if max(end, len(self._buffer) if end < 0 else 0) > self._limit:
                raise LineTooLongError
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                if len(self._buffer) <= self._limit and not self._transport.is_closing():
                    self._transport.resume_reading()
                return line
            self._searched = len(self._buffer)
            if self.ended.is_set():
                return None
            self._news.clear()
            await self._news.wait()

    async def write(self, data: bytes) -> None:
        """Send ``data``, and return when the peer has read most of it; one who is gone is sent nothing."""
        if not self._transport.is_closing():
            self._transport.write(data)
            await self._writable.wait()

    def close(self) -> None:
        """End the connection once what was written is sent, or the peer is gone."""
        self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._serve(self)
        finally:
            self._transport.close()


def _hung_up(connection: socket.socket) -> bool:
    """Return whether the peer has closed both directions, not only its own."""
    poll = select.poll()
    poll.register(connection.fileno(), 0)
    return bool(poll.poll(0))
