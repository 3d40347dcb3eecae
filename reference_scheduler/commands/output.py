"""What a job printed, and the exit status that tells how it ended."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from reference_scheduler.commands.exits import USAGE, Stopped
from reference_scheduler.core.model import AttemptState, JobState
from reference_scheduler.executors.base import AttemptResult, Output
from reference_scheduler.logs import OutputChunk, Position, Stream
from reference_scheduler.views import JobView

TIMED_OUT = 124
NOT_RUN = 125
NOT_STARTED = 127
SIGNALLED = 128


def print_output(result: AttemptResult) -> None:
    """Write what an attempt printed to the same streams, byte by byte."""
    for name, output in ((Stream.STDOUT, result.stdout), (Stream.STDERR, result.stderr)):
        if output != Output():
            _print(output, name, own_stream(name))


def _print(output: Output, name: Stream, stream: TextIO) -> None:
    stream.flush()
    stream.buffer.write(output.head)
    stream.flush()
    if output.omitted_bytes:
        click.echo(f"\nrefsched: {output.omitted_bytes} bytes of {name} were not kept", err=True)
    stream.buffer.write(output.tail)
    stream.flush()


class Unwritable(Stopped):
    """What a job printed, or is to be said of it, cannot be written."""

    def __init__(self, why: str | None, status: int) -> None:
        super().__init__(f"cannot write the output: {why}", status)


def own_stream(name: Stream, status: int = USAGE) -> TextIO:
    """Return the stream of that name of this command itself.

    Raises:
        Unwritable: it was closed before the command began.
    """
    stream: TextIO | None = getattr(sys, name)
    if stream is None:
        raise Unwritable(f"{name} is closed", status)
    return stream


class Printer:
    """Writes what a job prints to the same streams, byte by byte and at once.

    It goes past the buffers of these streams: a thread that waits in there, for a reader who is slow, would keep the
    interpreter from its end. ``unwritable`` is the exit status if that cannot be done, by default that of other output.
    """

    def __init__(self, unwritable: int | None = None) -> None:
        self.position = Position(0)
        self._unwritable = unwritable

    def write(self, chunk: OutputChunk) -> None:
        """Write a chunk, and say on stderr what comes between it and the one before.

        Raises:
            Unwritable: nobody reads it any more, or there is no room.
        """
        if chunk.attempt != self.position.attempt:
            if self.position.attempt:
                say(f"attempt {chunk.attempt} begins", self._unwritable)
            self.position = Position(chunk.attempt)
        if chunk.missed:
            say(f"{chunk.missed} bytes of {chunk.stream} were not kept", self._unwritable)
            self.position.advance(chunk.stream, chunk.missed)
        stream = own_stream(chunk.stream, self._unwritable or USAGE)
        stream.flush()
        left = memoryview(chunk.data)
        with _writing(self._unwritable):
            while left:
                written = self._write_some(stream.fileno(), chunk.stream, left)
                left = left[written:]

    def _write_some(self, fd: int, stream: Stream, data: memoryview) -> int:
        """Write some bytes and take note of it; a signal comes before or after that, also if the reader is slow."""
        select.select([], [fd], [])
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            written = os.write(fd, data[: select.PIPE_BUF])
            self.position.advance(stream, written)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return written

    def write_all(self, chunks: Iterable[OutputChunk]) -> None:
        """Write chunks as they come."""
        for chunk in chunks:
            self.write(chunk)

    def finish(self, attempt: int, result: AttemptResult) -> None:
        """Write what is not yet written of the output of an attempt that has ended."""
        position = self.position if attempt == self.position.attempt else Position(attempt)
        self.write_all(list(position.rest(result)))


def say(text: str, unwritable: int | None = None) -> None:
    """Say something about a job on stderr; ``unwritable`` is the exit status if that cannot be done."""
    with _writing(unwritable):
        click.echo(f"refsched: {text}", err=True)


@contextmanager
def _writing(unwritable: int | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if unwritable is None:
            raise
        raise Unwritable(error.strerror, unwritable) from error


def exit_status(view: JobView, result: AttemptResult | None) -> int:
    """Return the exit status of ``refsched run`` for a job that has ended, as shells count."""
    if view.state is JobState.TIMED_OUT:
        return TIMED_OUT
    if result is None or view.state is JobState.EXPIRED:
        return NOT_RUN
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return SIGNALLED + result.signal
    return NOT_STARTED if result.state is AttemptState.FAILED else NOT_RUN
