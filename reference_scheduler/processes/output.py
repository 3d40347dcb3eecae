"""What a process printed, bounded: the beginning, the end, and how much there was."""

from __future__ import annotations

from collections import deque

WINDOW_BYTES = 1 << 20
"""So much of what was printed last is there for who reads along."""
MAX_READ_BYTES = 1 << 15
"""A message with as much of both streams fits into a socket that has room at all."""
SMALL_BYTES = 1 << 12
"""Parts below this are put together: a byte has a place of its own in the window, not an object."""


class Drain:
    """Takes any amount of bytes and keeps the first ``head_bytes`` and the last ``tail_bytes`` of them.

    Until its end the last ``window_bytes`` are there too, for who reads along.
    """

    def __init__(self, head_bytes: int, tail_bytes: int, window_bytes: int = WINDOW_BYTES) -> None:
        self.total_bytes = 0
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._held_bytes = max(tail_bytes, window_bytes)
        self._head = bytearray()
        self._tail: deque[bytes | bytearray] = deque()
        self._held = 0

    def feed(self, data: bytes) -> None:
        """Take in what was printed next."""
        self.total_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._hold(data)
            self._held += len(data)
            while self._held - len(self._tail[0]) >= self._held_bytes:
                self._held -= len(self._tail.popleft())

    def _hold(self, data: bytes) -> None:
        last = self._tail[-1] if self._tail else b""
        if len(data) >= SMALL_BYTES:
            self._tail.append(data)
        elif isinstance(last, bytearray) and len(last) < SMALL_BYTES:
            last += data
        else:
            self._tail.append(bytearray(data))

    def read(self, offset: int) -> tuple[int, bytes, int]:
        """Return where what was printed from ``offset`` on begins, for some may be gone, some of it, and the total.

        At most ``MAX_READ_BYTES`` are returned. Who has missed something goes on in the middle of the window, so that
        the next gap is not at once.
        """
        if offset < len(self._head):
            return offset, bytes(self._head[offset : offset + MAX_READ_BYTES]), self.total_bytes
        begin = offset
        if begin < self.total_bytes - self._held:  # at its edge what comes next would be gone again by then
            begin = self.total_bytes - self._held // 2
        parts, end = deque[bytes | bytearray](), self.total_bytes
        for part in reversed(self._tail):
            if end <= begin:
                break
            parts.appendleft(part)
            end -= len(part)
        data = b"".join(parts)[max(0, begin - end) :]
        return begin, data[:MAX_READ_BYTES], self.total_bytes

    @property
    def has_omitted(self) -> bool:
        """Whether something is left out of what is kept."""
        return self.total_bytes > self._head_bytes + self._tail_bytes

    def window(self) -> tuple[int, bytes, int]:
        """Return the same of all that is held besides the beginning."""
        return self.total_bytes - self._held, b"".join(self._tail), self.total_bytes

    def kept(self) -> tuple[bytes, bytes, int]:
        """Return head, tail and total; if nothing was left out, everything is in the head."""
        head, tail = bytes(self._head), b"".join(self._tail)[-self._tail_bytes :] if self._tail_bytes else b""
        if len(head) + len(tail) == self.total_bytes:
            return head + tail, b"", self.total_bytes
        return head, tail, self.total_bytes
