"""What a job printed, and the exit status that tells how it ended."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click

from reference_scheduler.core.model import AttemptState, JobState
from reference_scheduler.executors.base import AttemptResult, Output
from reference_scheduler.views import JobView

TIMED_OUT = 124
NOT_RUN = 125
NOT_STARTED = 127
SIGNALLED = 128


def print_output(result: AttemptResult) -> None:
    """Write what an attempt printed to the same streams, byte by byte."""
    sys.stdout.flush()
    _print(result.stdout, sys.stdout.buffer, "stdout")
    _print(result.stderr, sys.stderr.buffer, "stderr")


def _print(output: Output, stream: BinaryIO, name: str) -> None:
    stream.write(output.head)
    stream.flush()
    if output.omitted_bytes:
        click.echo(f"\nrefsched: {output.omitted_bytes} bytes of {name} were not kept", err=True)
    stream.write(output.tail)
    stream.flush()


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
