"""``refsched submit``, ``wait``, ``get``, ``logs``, ``list``, ``attempts``, ``cancel`` and ``update``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import click
import msgspec
from msgspec.structs import replace

from reference_scheduler.commands.exits import EXIT_STATUS, REFUSED, USAGE, Stopped
from reference_scheduler.commands.output import Printer, print_output
from reference_scheduler.commands.printing import duration, one_line, print_fields, print_json, print_table, when
from reference_scheduler.commands.request import SETTINGS, Seconds, choice, request_of, request_options
from reference_scheduler.commands.service import ServiceCommand, json_option, progress_text, status_of, with_client
from reference_scheduler.core.machine import TERMINAL
from reference_scheduler.core.model import MAX_ARRAY, JobState, Priority
from reference_scheduler.errors import SchedulerError
from reference_scheduler.requests import JobRequest
from reference_scheduler.service.client import Client
from reference_scheduler.service.protocol import JobToSubmit, problem_of
from reference_scheduler.views import JobView

MAX_TOLD = 20
"""So many lines of a file are told to be wrong."""


@click.command(
    cls=ServiceCommand,
    context_settings=SETTINGS,
    help=f"""Submit a job that runs COMMAND, and print its id: it is durable then, and runs without this command.

With --array, submit many jobs at once that differ in nothing but the variable SPAWNGATE_ARRAY_INDEX, which counts from
0; all are accepted or none is. The id printed is that of the array, and 'ID[INDEX]' is one of its jobs.

With --from, submit many: each line of FILE is a JSON object with the fields of a job request. If any is wrong, all that
are so are told, and nothing is submitted. Otherwise for each the id is printed, or why it was refused, for the queue is
full, say.

{EXIT_STATUS}""",
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Submit one job for each line of FILE, - for stdin.",
)
@click.option("--array", "array_size", type=click.IntRange(1, MAX_ARRAY), metavar="N", help="N jobs, 0 to N-1.")
@click.option("--array-running", type=click.IntRange(1, MAX_ARRAY), metavar="M", help="At most M of them run at once.")
@json_option
@request_options
@with_client
def submit(
    client: Client,
    source: str | None,
    array_size: int | None,
    array_running: int | None,
    as_json: bool,
    argv: tuple[str, ...],
    **options: Any,
) -> None:
    if array_running and not array_size:
        raise Stopped("--array-running: only has a meaning with --array", USAGE)
    if source is None:
        request = request_of(argv, **options)
        if array_size:  # a bound that is larger is none
            request = replace(request, array_size=array_size, array_running=min(array_running or 0, array_size))
        view = client.submit(request)
        print_json(view) if as_json else click.echo(view.id)
        return
    if argv or array_size:
        raise Stopped("--from: either that, or a command", USAGE)
    requests = _requests(client, source)
    outcomes = client.submit_many(requests.values())
    for (place, _), outcome in zip(requests.items(), outcomes, strict=True):
        if isinstance(outcome, SchedulerError):
            told = f"{place}: {outcome.code}: {one_line(str(outcome))}"
            print_json({"error": problem_of(outcome)}) if as_json else click.echo(told)
        else:
            print_json({"job": outcome}) if as_json else click.echo(outcome)
    refused = sum(1 for outcome in outcomes if isinstance(outcome, SchedulerError))
    if refused:
        raise Stopped(f"{refused} of {len(outcomes)} jobs were refused, the others are submitted", REFUSED)


def _requests(client: Client, source: str) -> dict[str, JobRequest]:
    """Return the requests in ``source`` by their places there, each of them good as far as can be told.

    Raises:
        Stopped: some are not; what is wrong with each was told.
    """
    decode = msgspec.json.Decoder(JobToSubmit).decode
    requests: dict[str, JobRequest] = {}
    wrong: dict[str, str] = {}
    with click.open_file(source, "rb") as stream:
        lines = list(stream)
    for number, line in enumerate(lines, 1):
        place = f"{'<stdin>' if source == '-' else source}:{number}"
        if line.strip():
            try:
                requests[place] = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                wrong[place] = str(error)
    for place, refusal in zip(requests, client.check(requests.values()), strict=True):
        if refusal is not None:
            wrong[place] = str(refusal)
    if wrong:
        _refuse(wrong, len(wrong.keys() | requests.keys()))
    return requests


def _refuse(wrong: dict[str, str], count: int) -> NoReturn:
    for place, message in sorted(wrong.items(), key=lambda item: int(item[0].rpartition(":")[2]))[:MAX_TOLD]:
        click.echo(f"error: {one_line(f'{place}: {message}')}", err=True)
    more = f", of which the first {MAX_TOLD} are told here" if len(wrong) > MAX_TOLD else ""
    raise Stopped(f"{len(wrong)} of {count} jobs are wrong{more}; nothing was submitted", USAGE)


@click.command(
    cls=ServiceCommand,
    help=f"""Wait until the jobs have ended, and print how; an array has with the last of its jobs.

{EXIT_STATUS} 1 also if a job did not complete, 3 if the time was up.""",
)
@click.argument("jobs", nargs=-1, required=True, metavar="ID...")
@click.option("--timeout", "timeout_s", type=Seconds(min=0), metavar="SECONDS", help="Wait no longer in all.")
@json_option
@with_client
def wait(client: Client, jobs: tuple[str, ...], timeout_s: float | None, as_json: bool) -> None:
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    states: list[JobState] = []

    def wait_for(job: str) -> None:
        view = client.wait(job, None if end_s is None else end_s - time.monotonic())
        states.append(view.state)
        print_json(view) if as_json else click.echo(f"{view.id}  {view.state}{_end(view)}")

    _for_each(jobs, wait_for)
    sys.exit(0 if {*states} == {JobState.COMPLETED} else REFUSED)


def _for_each(jobs: Iterable[str], act: Callable[[str], object]) -> None:
    """Do the same to each job. What is refused of one is told, and is no reason not to go on with the others."""
    refused = False
    for job in jobs:
        try:
            act(job)
        except SchedulerError as error:
            if status_of(error) != REFUSED:
                raise
            refused = True
            click.echo(f"error: {one_line(str(error))}", err=True)
    if refused:
        sys.exit(REFUSED)


@click.command(cls=ServiceCommand, help=f"Show a job, and why it is where it is.\n\n{EXIT_STATUS}")
@click.argument("job", metavar="ID")
@click.option("--output", is_flag=True, help="Print what its latest attempt printed instead.")
@json_option
@with_client
def get(client: Client, job: str, output: bool, as_json: bool) -> None:
    if output:
        result = client.result(job)
        if result is None:
            raise Stopped(f"job {job} has no result yet: refsched wait {job}", REFUSED)
        print_json(result) if as_json else print_output(result)
        return
    view = client.get(job)
    if as_json:
        print_json(view)
        return
    print_fields(
        view,
        fit="command",
        submitted_at_us=when(view.submitted_at_us),
        started_at_us=when(view.started_at_us),
        ended_at_us=when(view.ended_at_us),
        took_us="" if view.took_us is None else duration(view.took_us),
        payload="",
        observed="yes, its caller runs it" if view.observed else "",
        progress=progress_text(view.progress),
        array_index="" if view.array_index is None else str(view.array_index),
        array_size=str(view.array_size or ""),
        attempts="" if view.array_size else str(view.attempts),
    )
    click.echo(one_line(client.why(job)))


@click.command(
    cls=ServiceCommand,
    help=f"""Print what the latest attempt of a job has printed, to the same streams and byte by byte.

With --follow go on with what it prints as it does, and with further attempts, until the job has ended. Of what nobody
reads in time some is left out, and a line on stderr says how much.

{EXIT_STATUS}""",
)
@click.argument("job", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@json_option
@with_client
def logs(client: Client, job: str, follow: bool, as_json: bool) -> None:
    chunks = client.logs(job, follow)
    if as_json:
        for chunk in chunks:
            print_json(chunk)
    else:
        Printer().write_all(chunks)


@click.command(
    "list",
    cls=ServiceCommand,
    help=f"""List jobs, newest first; an array is one of them, and runs while one of its jobs does.\n\n{EXIT_STATUS}""",
)
@click.option("--array", default="", metavar="ID", help="The jobs of this array instead.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice([str(state) for state in JobState]), help="Only these."
)
@click.option("--kind", default="", metavar="KIND", help="Only this kind.")
@click.option("--workspace", default="", metavar="PATH", help="Only this workspace.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option(
    "--before", default="", metavar="ID", help="Only jobs older than this one: the last of the previous list."
)
@json_option
@with_client
def list_jobs(
    client: Client,
    states: tuple[str, ...],
    kind: str,
    workspace: str,
    limit: int,
    before: str,
    array: str,
    as_json: bool,
) -> None:
    views = client.jobs([JobState(state) for state in states], kind, workspace, limit, before, array)
    if as_json:
        print_json(views)
        return
    head = (
        "ID",
        "STATE",
        "KIND",
        "PRIORITY",
        "SUBMITTED",
        "TOOK",
        "TRIES",
        "EXIT",
        "WAITS FOR",
        "WORKSPACE",
        "COMMAND",
    )
    print_table(head, map(row_of, views), fit=True)


def row_of(view: JobView) -> tuple[str, ...]:
    """Return the cells of a job in the list."""
    took = "" if view.took_us is None else duration(view.took_us)
    fixed = (view.id, view.state, view.kind, view.priority, when(view.submitted_at_us), took)
    return (*fixed, str(view.attempts), _exit(view), waits_for(view), view.workspace, view.command)


def waits_for(view: JobView) -> str:
    """Return what a job waits for; of an array, how many jobs have ended."""
    if not view.array_size or view.ended_at_us is not None:
        return view.reason
    ended = view.array_size - sum(count for state, count in view.tasks.items() if state not in TERMINAL)
    return f"{view.reason}, {ended} of {view.array_size} ended".removeprefix(", ")


@click.command(cls=ServiceCommand, help=f"List the attempts of a job, oldest first.\n\n{EXIT_STATUS}")
@click.argument("job", metavar="ID")
@json_option
@with_client
def attempts(client: Client, job: str, as_json: bool) -> None:
    views = client.attempts(job)
    if as_json:
        print_json(views)
        return
    head = ("NUMBER", "STATE", "STARTED", "TOOK", "EXIT", "SIGNAL", "FAILURE", "GENERATION", "DETAIL")
    rows = [
        (
            str(view.number),
            view.state,
            when(view.started_at_us),
            "" if view.ended_at_us is None else duration(view.ended_at_us - view.started_at_us),
            "" if view.exit_code is None else str(view.exit_code),
            "" if view.signal is None else str(view.signal),
            view.failure,
            view.generation[:8],
            view.detail,
        )
        for view in views
    ]
    print_table(head, rows)


@click.command(
    cls=ServiceCommand,
    help=f"""Have a job or all of an array end: what waits at once, what runs within its grace.\n\n{EXIT_STATUS}""",
)
@click.argument("jobs", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the record.")
@json_option
@with_client
def cancel(client: Client, jobs: tuple[str, ...], reason: str, as_json: bool) -> None:
    def cancel_one(job: str) -> None:
        view = client.cancel(job, reason)
        print_json(view) if as_json else click.echo(f"{view.id}  {view.state}")

    _for_each(jobs, cancel_one)


@click.command(
    cls=ServiceCommand,
    help=f"""Give jobs, or all of an array, that have not ended another priority; what runs goes on.

{EXIT_STATUS}""",
)
@click.argument("jobs", nargs=-1, required=True, metavar="ID...")
@click.option("--priority", type=choice(Priority), required=True, help="Their class from now on.")
@json_option
@with_client
def update(client: Client, jobs: tuple[str, ...], priority: str, as_json: bool) -> None:
    def update_one(job: str) -> None:
        view = client.update(job, Priority(priority))
        print_json(view) if as_json else click.echo(f"{view.id}  {view.priority}")

    _for_each(jobs, update_one)


def _end(view: JobView) -> str:
    tasks = ", ".join(f"{count} {state}" for state, count in view.tasks.items())
    return f": {tasks}" if tasks else _exit(view, ", exit status ")


def _exit(view: JobView, before: str = "") -> str:
    return "" if view.exit_code is None else f"{before}{view.exit_code}"
