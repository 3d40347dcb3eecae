"""``refsched dump``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from reference_scheduler.commands.simulation import Failure
from reference_scheduler.core.model import MAX_TIME_US, SECOND_US
from reference_scheduler.replay.dump import Filter, Line, as_json, as_text, follow, lines_of
from reference_scheduler.replay.frames import Condition, FrameReader, ReplayError

POLL_S = 0.2


def _us(context: click.Context, parameter: click.Parameter, time_s: float | None) -> int | None:
    if time_s is None:
        return None
    if not abs(time_s) * SECOND_US <= MAX_TIME_US:  # nor is NaN
        raise click.BadParameter(f"{time_s} is not a time that an event can have")
    return round(time_s * SECOND_US)


@click.command(context_settings={"show_default": True})
@click.argument("log", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="How to print.")
@click.option("--job", metavar="ID", help="Only events about this job, or the jobs of this array.")
@click.option("--type", "kind", metavar="NAME", help="Only events that are, or gave, a NAME: Dispatch, Tick, …")
@click.option("--from", "from_us", type=float, callback=_us, metavar="SECONDS", help="Only events from this time on.")
@click.option("--until", "until_us", type=float, callback=_us, metavar="SECONDS", help="Only events up to this time.")
@click.option("--follow", "following", is_flag=True, help="Go on as the log grows, until it is ended.")
def dump(
    log: Path,
    form: str,
    job: str | None,
    kind: str | None,
    from_us: int | None,
    until_us: int | None,
    following: bool,
) -> None:
    """Print LOG, a .replay file: events with their decisions, and where recordings start and end.

    The log may still be written to, and may end torn: all of it that is whole is printed. Options that
    choose events can be combined; they leave out everything that is no event.

    Exit status: 0 done, 1 the file is damaged, 2 it cannot be read.
    """
    wanted = Filter(job, kind, from_us, until_us)
    show = as_json if form == "jsonl" else as_text
    try:
        with _opened(log) as stream:
            reader = FrameReader(stream)
            found = follow(reader, wanted, _pause) if following else lines_of(reader, wanted)
            for line in _read(log, found):
                click.echo(show(line))
    except KeyboardInterrupt:
        return  # the way to end --follow
    if reader.tail.condition is not Condition.WHOLE:
        click.echo(f"{log}: {reader.tail}", err=True)
    if reader.tail.condition is Condition.DAMAGED:
        sys.exit(1)


def _opened(log: Path) -> BinaryIO:
    try:
        return log.open("rb")
    except OSError as error:
        raise Failure(f"{log}: {error.strerror}") from error


def _read(log: Path, lines: Iterator[Line]) -> Iterator[Line]:
    """Yield ``lines``; name the file in what is wrong with it, which a broken output has nothing to do with."""
    try:
        yield from lines
    except OSError as error:
        raise Failure(f"{log}: {error.strerror or error}") from error
    except ReplayError as error:
        raise Failure(f"{log}: {error}") from error


def _pause() -> None:
    sys.stdout.flush()
    time.sleep(POLL_S)
