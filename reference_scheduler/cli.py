"""The ``refsched`` command: a group; each command has a module in :mod:`reference_scheduler.commands`."""

from __future__ import annotations

import click

from reference_scheduler.commands.plot import plot
from reference_scheduler.commands.simulate import simulate


@click.group()
def main() -> None:
    """The reference scheduler: simulate workloads under a scheduling policy, measure, compare and draw."""


main.add_command(plot)
main.add_command(simulate)
