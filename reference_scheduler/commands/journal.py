"""``refsched journal``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reference_scheduler.commands.simulation import Failure
from reference_scheduler.errors import JournalDamaged, JournalError
from reference_scheduler.journal.check import JournalCheck, check_journal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.plugins import PluginError, available_allocators, available_pickers


@click.group(no_args_is_help=False)
def journal() -> None:
    """Look after the file that a scheduler keeps its jobs in."""


@journal.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Read the journal FILE from end to end; a scheduler may be using it, and nothing is changed.

    Pages, marks, every event and decision since the oldest state that is kept, and the tables of jobs and attempts
    are compared with each other.

    Exit status: 0 all is well, 1 it is damaged, 2 it cannot be read.
    """
    try:
        found = check_journal(file, Plugins(available_pickers(), available_allocators()))
    except JournalDamaged as error:
        click.echo(_at(file, error))
        sys.exit(1)
    except (JournalError, PluginError) as error:
        raise Failure(_at(file, error)) from error
    for problem in found.problems:
        click.echo(problem)
    for note in found.notes:
        click.echo(note)
    click.echo(_summary(found))
    sys.exit(1 if found.problems else 0)


def _at(file: Path, error: Exception) -> str:
    return str(error) if str(file) in str(error) else f"{file}: {error}"


def _summary(found: JournalCheck) -> str:
    state = f"damaged: {len(found.problems)} problems" if found.problems else "whole"
    starts = f"{found.generations} start{'' if found.generations == 1 else 's'}"
    return f"{state}; {found.events} events, {found.jobs} jobs, {found.open_jobs} of them open, {starts}"
