"""What a process printed, bounded: the beginning, the end, and how much there was."""

from __future__ import annotations

from collections import deque


class Drain:
    """Takes any amount of bytes and keeps the first ``head_bytes`` and the last ``tail_bytes`` of them."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self.total_bytes = 0
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._held = 0

    def feed(self, data: bytes) -> None:
        """Take in what was printed next."""
        self.total_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data and self._tail_bytes:
            self._tail.append(data)
            self._held += len(data)
            while self._held - len(self._tail[0]) >= self._tail_bytes:
                self._held -= len(self._tail.popleft())

    def kept(self) -> tuple[bytes, bytes, int]:
        """Return head, tail and total; if nothing was left out, everything is in the head."""
        head, tail = bytes(self._head), b"".join(self._tail)[-self._tail_bytes :] if self._tail_bytes else b""
        if len(head) + len(tail) == self.total_bytes:
            return head + tail, b"", self.total_bytes
        return head, tail, self.total_bytes
