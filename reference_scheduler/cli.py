"""The ``refsched`` command: a group; each command has a module in :mod:`reference_scheduler.commands`.

An error is one line on standard error, as those of the checks are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn, TextIO

import click
from click.exceptions import Exit

from reference_scheduler.commands.exits import INTERRUPTED, READER_LEFT, USAGE
from reference_scheduler.commands.printing import one_line

MODULES = {
    **dict.fromkeys(("attempts", "cancel", "get", "list", "logs", "submit", "update", "wait"), "jobs"),
    **dict.fromkeys(("drain", "metrics", "pause", "record", "resume", "snapshot"), "operate"),
    **dict.fromkeys(("events", "top"), "watch"),
    **{name: name for name in ("dump", "fuzz", "journal", "plot", "run", "serve", "simulate", "verify")},
}
"""The module of each command."""
ON_WINDOWS = ("dump", "fuzz", "plot", "simulate", "verify")
HERE = ON_WINDOWS if sys.platform == "win32" else tuple(MODULES)


class Commands(Mapping[str, click.Command]):
    """All commands; each is imported when it is asked for, as most need nothing of what the others do."""

    def __getitem__(self, name: str) -> click.Command:
        if name in MODULES and name not in HERE:
            raise click.UsageError(f"{name} needs Linux or macOS")
        module = import_module(f"reference_scheduler.commands.{MODULES[name]}")
        command: click.Command = getattr(module, "list_jobs" if name == "list" else name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(HERE)

    def __len__(self) -> int:
        return len(HERE)


class Refsched(click.Group):
    """The group of all commands, which says in one line what was wrong."""

    def main(self, *arguments: Any, **options: Any) -> NoReturn:
        """Run the command that the arguments name, and exit with its status."""
        try:
            sys.exit(super().main(*arguments, **{**options, "standalone_mode": False}))
        except click.UsageError as error:
            asked = error.ctx.command_path if error.ctx else self.name
            _fail(f"{error.format_message().rstrip('.')}; see {asked} --help", error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except FileNotFoundError:  # so is the path of this one, which is asked for in many places
            _fail("the working directory is gone", USAGE)
        except OSError as error:  # the files that commands name have errors of their own, so it is the output
            _silence(sys.stdout)
            _fail(f"cannot write the output: {error.strerror}", USAGE)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Read the arguments; to ask for help prints it."""
        with _reader_may_leave():
            return super().make_context(*arguments, **options)

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(context)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Let the command end as by SIGPIPE when its reader has read enough; click's status for that means "refused"."""
    try:
        yield
    except BrokenPipeError:
        _silence(sys.stdout, sys.stderr)
        raise Exit(READER_LEFT) from None


def _silence(*streams: TextIO | None) -> None:
    """Have what is left in the buffers go nowhere: the interpreter tries to write it once more as it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, streams):
        with suppress(OSError):
            os.dup2(nowhere, stream.fileno())


def _fail(message: str, status: int) -> NoReturn:
    try:
        click.echo(f"error: {one_line(' '.join(message.split()))}", err=True)
    except OSError:  # nobody can be told
        _silence(sys.stderr)
    sys.exit(status)


@click.group("refsched", cls=Refsched, commands=Commands(), no_args_is_help=False)
def main() -> None:
    """The reference scheduler: run jobs on this machine, or simulate how they would be run.

    serve is the scheduler as a service; submit, run, wait, get, list and so on talk to it. simulate runs a workload
    under a policy and measures it. What a scheduler was told and decided can be recorded, printed (dump) and
    replayed (verify); fuzz looks for histories that it does not survive.
    """
