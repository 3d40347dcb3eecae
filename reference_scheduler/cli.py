"""The ``refsched`` command: a group; each command has a module in :mod:`reference_scheduler.commands`."""

from __future__ import annotations

import click

from reference_scheduler.commands.dump import dump
from reference_scheduler.commands.fuzz import fuzz
from reference_scheduler.commands.jobs import attempts, cancel, get, list_jobs, submit, wait
from reference_scheduler.commands.journal import journal
from reference_scheduler.commands.operate import drain, metrics, pause, record, resume, snapshot
from reference_scheduler.commands.plot import plot
from reference_scheduler.commands.run import run
from reference_scheduler.commands.serve import serve
from reference_scheduler.commands.simulate import simulate
from reference_scheduler.commands.verify import verify
from reference_scheduler.commands.watch import events, top


@click.group()
def main() -> None:
    """The reference scheduler: run jobs on this machine, or simulate how they would be run.

    serve is the scheduler as a service; submit, run, wait, get, list and so on talk to it. simulate runs a workload
    under a policy and measures it. What a scheduler was told and decided can be recorded, printed (dump) and
    replayed (verify); fuzz looks for histories that it does not survive.
    """


for command in (
    attempts,
    cancel,
    drain,
    dump,
    events,
    fuzz,
    get,
    journal,
    list_jobs,
    metrics,
    pause,
    plot,
    record,
    resume,
    run,
    serve,
    simulate,
    snapshot,
    submit,
    top,
    verify,
    wait,
):
    main.add_command(command)
