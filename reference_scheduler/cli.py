"""The ``refsched`` command: a group; each command has a module in :mod:`reference_scheduler.commands`."""

from __future__ import annotations

import click

from reference_scheduler.commands.dump import dump
from reference_scheduler.commands.fuzz import fuzz
from reference_scheduler.commands.plot import plot
from reference_scheduler.commands.simulate import simulate
from reference_scheduler.commands.verify import verify


@click.group()
def main() -> None:
    """The reference scheduler: simulate workloads under a scheduling policy, measure, compare and draw.

    What a scheduler was told and decided can be recorded, printed and replayed; fuzz looks for histories that
    it does not survive.
    """


for command in (dump, fuzz, plot, simulate, verify):
    main.add_command(command)
