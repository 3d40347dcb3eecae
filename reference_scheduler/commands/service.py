"""What the commands that talk to a scheduler have in common: how they reach it, fail, and print."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from reference_scheduler.commands.exits import INTERRUPTED, REFUSED, TRY_AGAIN, USAGE, Stopped
from reference_scheduler.errors import SchedulerError
from reference_scheduler.executors.base import Progress
from reference_scheduler.service.client import Client
from reference_scheduler.service.places import SOCKET_VARIABLE, default_socket

_STATUSES = {
    **dict.fromkeys(("config", "plugin", "bad_request", "unsupported_version", "invalid", "unknown_kind"), USAGE),
    **dict.fromkeys(("unreachable", "busy", "standby", "stopping", "timeout"), TRY_AGAIN),
    **dict.fromkeys(("queue_full", "journal_locked", "journal_unavailable"), TRY_AGAIN),
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


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


def progress_text(progress: Progress | None) -> str:
    """Return a progress on one line, "" if there is none."""
    if progress is None:
        return ""
    parts = [] if progress.fraction is None else [f"{progress.fraction:.0%}"]
    parts += [f"{name}={count}" for name, count in progress.counts.items()]
    return " ".join([*parts, progress.message]).strip()
