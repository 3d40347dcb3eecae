"""``refsched serve``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from reference_scheduler.commands.exits import EXIT_STATUS, INTERRUPTED, USAGE, Stopped
from reference_scheduler.commands.service import ServiceCommand, socket_option
from reference_scheduler.journal.lock import real_path
from reference_scheduler.service.places import default_config, default_journal, default_socket


@click.command(
    cls=ServiceCommand,
    help=f"""Run the scheduler as a service, until it is told to stop.

It answers on a Unix socket that only its owner may use, unless the configuration gives others a role. SIGTERM or
Ctrl-C stops it as the configuration says (drain or interrupt); a second one interrupts what runs, a third leaves that
no grace. SIGHUP reads the configuration again. Jobs that wait are there at the next start.

{EXIT_STATUS}""",
)
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where jobs are kept.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML; default: spawngate/scheduler.toml in the user's configuration, if it is there.",
)
@click.option("--standby", is_flag=True, help="If another one has the journal, wait for its end and take over.")
@click.option("--traces", is_flag=True, help="Send spans of jobs to an OpenTelemetry collector; needs the extra otel.")
@socket_option
def serve(journal: Path | None, config: Path | None, standby: bool, traces: bool, socket: Path | None) -> None:
    from reference_scheduler.service.daemon import Daemon, Place

    if config is None and default_config().exists():
        config = default_config()
    if traces and find_spec("opentelemetry") is None:
        raise Stopped("--traces: needs the extra otel: pip install 'spawngate[otel]'", USAGE)
    where = (socket or default_socket()).absolute(), real_path(journal or default_journal())
    place = Place(*where, config, traces=traces)

    def say(line: str) -> None:
        try:
            click.echo(line)
        except OSError:  # nobody reads it any more, and so will not what is buffered
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    async def run() -> int:
        daemon = Daemon(place, say)
        await daemon.run(standby)
        return daemon.stopped_by

    if asyncio.run(run()) == signal.SIGINT:
        sys.exit(INTERRUPTED)
