"""``refsched pause``, ``resume``, ``drain``, ``record``, ``snapshot`` and ``metrics``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from reference_scheduler.commands.exits import EXIT_STATUS, REFUSED
from reference_scheduler.commands.printing import duration, print_fields, print_json
from reference_scheduler.commands.service import ServiceCommand, json_option, with_client
from reference_scheduler.service.client import Client
from reference_scheduler.views import RecordStatus

_queue_option = click.option("--queue", default="", metavar="NAME", help="Only the jobs of this queue.")


@click.command(
    cls=ServiceCommand, help=f"Have no more jobs started, also after a restart; what runs goes on.\n\n{EXIT_STATUS}"
)
@_queue_option
@with_client
def pause(client: Client, queue: str) -> None:
    client.pause(queue)


@click.command(cls=ServiceCommand, help=f"Have jobs started again, after pause or drain.\n\n{EXIT_STATUS}")
@_queue_option
@with_client
def resume(client: Client, queue: str) -> None:
    client.resume(queue)


@click.command(
    cls=ServiceCommand,
    help=f"""Have no more jobs taken or started, and wait until none runs any more.

Jobs that wait stay in the journal. Interrupting this command does not undo it; refsched resume does.

{EXIT_STATUS}""",
)
@with_client
def drain(client: Client) -> None:
    client.drain()


@click.group(no_args_is_help=False)
def record() -> None:
    """Record what the scheduler is told and decides, for refsched verify, dump and simulate."""


@record.command(
    cls=ServiceCommand,
    help=f"Record into FILE from now on, until it is stopped; a log that is there is continued.\n\n{EXIT_STATUS}",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
@with_client
def start(client: Client, file: Path, as_json: bool) -> None:
    _show(client.record_start(file.absolute()), as_json)


@record.command(cls=ServiceCommand, help=f"End the recording.\n\n{EXIT_STATUS} 1 also if it could not be written.")
@json_option
@with_client
def stop(client: Client, as_json: bool) -> None:
    _show(client.record_stop(), as_json)


@record.command(cls=ServiceCommand, help=f"Say whether a recording is under way.\n\n{EXIT_STATUS}")
@json_option
@with_client
def status(client: Client, as_json: bool) -> None:
    _show(client.record_status(), as_json)


def _show(found: RecordStatus, as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif not found.path:
        click.echo("not recording")
    else:
        click.echo(f"{'recording' if found.active else 'recorded'} {found.path}, up to event {found.events}")
    if found.error:
        click.echo(f"error: the recording broke off: {found.error}", err=True)
        sys.exit(REFUSED)


@click.command(cls=ServiceCommand, help=f"Show the scheduler at this moment.\n\n{EXIT_STATUS}")
@json_option
@with_client
def snapshot(client: Client, as_json: bool) -> None:
    found = client.snapshot()
    if as_json:
        print_json(found)
        return
    used = zip(found.budget.used._asdict().items(), found.budget.capacity, strict=True)
    print_fields(
        found,
        budget=" ".join(f"{name}={held}/{most}" for (name, held), most in used),
        oldest_queued_us=duration(found.oldest_queued_us),
        executors=" ".join(f"{kind}={count}" for kind, count in found.executors.items() if count),
        unhealthy="; ".join(f"{', '.join(kinds)}: {problem}" for problem, kinds in _by_problem(found.unhealthy)),
    )


def _by_problem(unhealthy: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    for problem in dict.fromkeys(unhealthy.values()):
        yield problem, [kind for kind, said in unhealthy.items() if said == problem]


@click.command(
    cls=ServiceCommand, help=f"Print the scheduler's measures in the text format of Prometheus.\n\n{EXIT_STATUS}"
)
@with_client
def metrics(client: Client) -> None:
    click.echo(client.metrics(), nl=False)
