"""What the commands that talk to a scheduler have in common: how they reach it, fail, and print."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO, TypeVar

import click
import msgspec

from reference_scheduler.errors import SchedulerError
from reference_scheduler.executors.base import Progress
from reference_scheduler.service.client import Client
from reference_scheduler.service.places import SOCKET_VARIABLE, default_socket
from reference_scheduler.summary import shortened

REFUSED = 1
USAGE = 2
TRY_AGAIN = 3
INTERRUPTED = 130
READER_LEFT = 141
"""What shells make of SIGPIPE, which ends other programs whose output nobody reads any more (``| head``)."""
_STATUSES = {
    **dict.fromkeys(("config", "bad_request", "unsupported_version", "invalid", "unknown_kind"), USAGE),
    **dict.fromkeys(("unreachable", "busy", "standby", "stopping", "timeout"), TRY_AGAIN),
    **dict.fromkeys(("queue_full", "journal_locked", "journal_unavailable"), TRY_AGAIN),
}
EXIT_STATUS = (
    "Exit status: 0 done, 1 refused, 2 bad usage or configuration, 3 not now (nobody answers, busy, stopping, full), "
    "130 interrupted, 141 nobody reads the output any more."
)
MIN_FITTED = 24
"""So much is shown in the narrowest terminal."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Stopped(click.ClickException):
    """The command cannot go on: why, in one line, and its exit status."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code  # type: ignore[misc] # click declares it for the class


def status_of(error: SchedulerError) -> int:
    """Return the exit status that tells of ``error``."""
    return _STATUSES.get(error.code, REFUSED)


class ServiceCommand(click.Command):
    """A command whose errors are one line, with the exit status that belongs to them."""

    refused: ClassVar[int | None] = None

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(context)
        except SchedulerError as error:
            status = status_of(error) if self.refused is None else self.refused
            raise Stopped(str(error), status) from error
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def socket_option(function: _Function) -> _Function:
    """Add the option that says where the scheduler answers."""
    option = click.option(
        "--socket",
        type=click.Path(path_type=Path),
        envvar=SOCKET_VARIABLE,
        metavar="PATH",
        help=f"Where the scheduler answers; default: ${SOCKET_VARIABLE}, or in the user's runtime directory.",
    )
    return option(function)


def with_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that says where the scheduler answers, and give the function a client first."""

    @wraps(function)
    def connected(socket: Path | None, *arguments: Any, **options: Any) -> Any:
        with Client(socket or default_socket()) as client:
            return function(client, *arguments, **options)

    return socket_option(connected)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(msgspec.json.encode(value).decode())


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], fit: bool = False) -> None:
    """Print rows in aligned columns; without rows, nothing. To ``fit`` a terminal the last column is cut."""
    lines = [list(map(one_line, row)) for row in rows]
    if not lines:
        return
    lines.insert(0, list(head))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if fit:
        taken = sum(widths[:-1]) + 2 * len(widths[:-1])
        lines = [[*line[:-1], fitted(line[-1], taken)] for line in lines]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_fields(value: msgspec.Struct, fit: str = "", **shown: str) -> None:
    """Print the fields of a struct that are not empty, one on each line; those ``shown`` otherwise in that way.

    On a terminal the field ``fit`` is cut to its line.
    """
    fields = {name: shown.get(name, text(getattr(value, name))) for name in value.__struct_fields__}
    width = max(map(len, fields))
    for name, cell in fields.items():
        if cell:
            line = fitted(one_line(cell), width + 2) if name == fit else one_line(cell)
            click.echo(f"{name.removesuffix('_us').replace('_', ' '):{width}}  {line}")


def fitted(line: str, taken: int) -> str:
    """Return what of ``line`` fits on a line of the terminal, ``taken`` of which are taken; all if there is none."""
    if not is_terminal("stdout"):
        return line
    return shortened(line, max(MIN_FITTED, shutil.get_terminal_size().columns - taken))


def is_terminal(name: Literal["stdout", "stderr"]) -> bool:
    """Return whether a stream of this command is a terminal; one that was closed before the command began is none."""
    stream: TextIO | None = getattr(sys, name)
    return stream is not None and stream.isatty()


def text(value: object) -> str:
    """Return a value for people."""
    if value is None or value == "":
        return ""
    if isinstance(value, dict):
        return " ".join(f"{name}={count}" for name, count in value.items())
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value)


def when(wall_us: int | None) -> str:
    """Return a time of the wall clock in this machine's zone."""
    return "" if wall_us is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_us / 1e6))


def duration(span_us: int) -> str:
    """Return a span of time in its two largest units."""
    seconds = span_us // 1_000_000
    if seconds < 60:
        return f"{span_us / 1e6:.1f}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"


def progress_text(progress: Progress | None) -> str:
    """Return a progress on one line, "" if there is none."""
    if progress is None:
        return ""
    parts = [] if progress.fraction is None else [f"{progress.fraction:.0%}"]
    parts += [f"{name}={count}" for name, count in progress.counts.items()]
    return " ".join([*parts, progress.message]).strip()


def one_line(value: str) -> str:
    """Return ``value`` without what could move the cursor of a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in value)
