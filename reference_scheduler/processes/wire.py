"""Messages between the scheduler and its own helper processes: a length, then a marshalled value.

Both ends are the same interpreter and the same release of this package, and nothing else ever holds the socket.
"""

from __future__ import annotations

import marshal
import socket
import struct
from typing import Any

HEADER = struct.Struct("!I")


def frame(message: Any) -> bytes:
    """Return the bytes of ``message``, built of plain values only."""
    body = marshal.dumps(message)
    return HEADER.pack(len(body)) + body


def receive(sock: socket.socket) -> Any | None:
    """Return the next message of a blocking socket, ``None`` if the other end is gone."""
    header = _exactly(sock, HEADER.size)
    body = header and _exactly(sock, HEADER.unpack(header)[0])
    return marshal.loads(body) if body else None


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    try:
        data = sock.recv(size, socket.MSG_WAITALL)
    except ConnectionError:
        return None
    return data if len(data) == size else None


class Splitter:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Any]:
        """Take in ``data`` and return the messages that are now complete."""
        pending = self._pending
        pending += data
        messages = []
        while len(pending) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(pending)[0]
            if len(pending) < end:
                break
            messages.append(marshal.loads(pending[HEADER.size : end]))
            del pending[:end]
        return messages
