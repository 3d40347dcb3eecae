"""What a job prints, as it prints it, and what is kept of it afterwards, as one stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from enum import StrEnum

import msgspec

from reference_scheduler.executors.base import AttemptResult, OutputSource
from reference_scheduler.processes.model import Output, Printed


class Stream(StrEnum):
    """The streams that a process prints to."""

    STDOUT = "stdout"
    STDERR = "stderr"


class OutputChunk(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Bytes that an attempt printed to a stream; before them come ``missed`` others, which were not kept."""

    attempt: int
    stream: Stream
    data: bytes = b""
    missed: int = 0


class Position:
    """How much of the output of one attempt somebody has got."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self._bytes = dict.fromkeys(Stream, 0)

    def advance(self, stream: Stream, count: int) -> None:
        """Go on by ``count`` bytes of a stream."""
        self._bytes[stream] += count

    def rest(self, result: AttemptResult) -> Iterator[OutputChunk]:
        """Yield what of the kept output comes after this position."""
        yield from self._after(Stream.STDOUT, _parts(result.stdout))
        yield from self._after(Stream.STDERR, _parts(result.stderr))

    async def live(self, source: OutputSource, follow: bool) -> AsyncGenerator[OutputChunk, None]:
        """Yield what ``source`` gives from this position on: to its end, or unless ``follow`` what is there by now."""
        wanted: list[int] | None = None
        while True:
            printed = await source.read(self._bytes[Stream.STDOUT], self._bytes[Stream.STDERR], follow)
            if printed is None:
                return
            for stream, part in zip(Stream, printed, strict=True):
                for chunk in self._after(stream, (part,)):
                    yield chunk
            wanted = wanted or [part.total_bytes for part in printed]
            if not follow and all(got >= total for got, total in zip(self._bytes.values(), wanted, strict=True)):
                return

    def _after(self, stream: Stream, parts: Sequence[Printed]) -> Iterator[OutputChunk]:
        for part in parts:
            got = self._bytes[stream]
            begin = max(part.begin, got)
            data = part.data[begin - part.begin :]
            if data or begin > got:
                self._bytes[stream] = begin + len(data)
                yield OutputChunk(self.attempt, stream, data, begin - got)


def _parts(output: Output) -> tuple[Printed, Printed]:
    tail = len(output.head) + output.omitted_bytes
    total = tail + len(output.tail)
    return Printed(0, output.head, total), Printed(tail, output.tail, total)
