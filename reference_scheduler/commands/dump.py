"""``refsched dump``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from reference_scheduler.commands.simulation import Failure
from reference_scheduler.core.model import SECOND_US
from reference_scheduler.replay.dump import Filter, as_json, as_text, follow, lines_of
from reference_scheduler.replay.frames import Condition, FrameReader, ReplayError

POLL_S = 0.2


@click.command(context_settings={"show_default": True})
@click.argument("log", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", help="How to print.")
@click.option("--job", metavar="ID", help="Only events about this job, or the jobs of this array.")
@click.option("--type", "kind", metavar="NAME", help="Only events that are, or gave, a NAME: Dispatch, Tick, …")
@click.option("--from", "from_s", type=float, metavar="SECONDS", help="Only events from this time on.")
@click.option("--until", "until_s", type=float, metavar="SECONDS", help="Only events up to this time.")
@click.option("--follow", "following", is_flag=True, help="Go on as the log grows, until it is ended.")
def dump(
    log: Path,
    form: str,
    job: str | None,
    kind: str | None,
    from_s: float | None,
    until_s: float | None,
    following: bool,
) -> None:
    """Print LOG, a .replay file: events with their decisions, and where recordings start and end.

    The log may still be written to, and may end torn: all of it that is whole is printed. Options that
    choose events can be combined; they leave out everything that is no event.

    Exit status: 0 done, 1 the file is damaged, 2 it cannot be read.
    """
    wanted = Filter(job, kind, _us(from_s), _us(until_s))
    show = as_json if form == "jsonl" else as_text
    try:
        with log.open("rb") as stream:
            reader = FrameReader(stream)
            found = follow(reader, wanted, _pause) if following else lines_of(reader, wanted)
            for line in found:
                click.echo(show(line))
    except OSError as error:
        raise Failure(f"{log}: {error.strerror}") from error
    except ReplayError as error:
        raise Failure(f"{log}: {error}") from error
    except KeyboardInterrupt:
        return  # the way to end --follow
    if reader.tail.condition is not Condition.WHOLE:
        click.echo(f"{log}: {reader.tail}", err=True)
    if reader.tail.condition is Condition.DAMAGED:
        sys.exit(1)


def _us(time_s: float | None) -> int | None:
    return None if time_s is None else round(time_s * SECOND_US)


def _pause() -> None:
    sys.stdout.flush()
    time.sleep(POLL_S)
