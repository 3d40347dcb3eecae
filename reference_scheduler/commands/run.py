"""``refsched run``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from msgspec.structs import replace

from reference_scheduler.commands.exits import Stopped
from reference_scheduler.commands.output import (
    NOT_RUN,
    NOT_STARTED,
    SIGNALLED,
    TIMED_OUT,
    Printer,
    Unwritable,
    exit_status,
    say,
)
from reference_scheduler.commands.printing import one_line
from reference_scheduler.commands.request import SETTINGS, request_of, request_options
from reference_scheduler.commands.service import ServiceCommand, socket_option
from reference_scheduler.config import Settings, load_settings
from reference_scheduler.core.model import DEFAULT_REQUESTS, AttemptState, JobState
from reference_scheduler.errors import SchedulerError
from reference_scheduler.executors.base import AttemptResult
from reference_scheduler.requests import JobRequest
from reference_scheduler.service.client import Client
from reference_scheduler.service.errors import Unreachable
from reference_scheduler.service.places import default_config, default_socket, private_directory, state_directory
from reference_scheduler.views import JobView


class RunCommand(ServiceCommand):
    """Its exit status is the job's, so errors of the scheduler have one that few programs use."""

    refused = NOT_RUN


class Caught(BaseException):
    """A signal that asks this command to stop."""

    def __init__(self, number: int) -> None:
        self.number = number


@click.command(
    cls=RunCommand,
    context_settings=SETTINGS,
    help=f"""Submit a job that runs COMMAND, print what it prints, and exit as it did.

If the job has to wait, a line on stderr says for what. COMMAND reads nothing. What it prints comes as it prints it; if
that is more than can be shown in time, some is left out, and a line on stderr says how much. Ctrl-C or SIGTERM cancels
the job. If no scheduler answers at the default socket, the job runs in one of its own, within this command, and a line
on stderr says so; with --socket, or its variable, that is an error.

Exit status: that of COMMAND; {SIGNALLED} plus the number of the signal that ended it, or this command; {TIMED_OUT} it
timed out; {NOT_RUN} it was refused, cancelled or expired, the scheduler was lost, or what it printed could not be
written, which cancels it; {NOT_STARTED} it could not be started; 2 bad usage.""",
)
@request_options
@socket_option
def run(socket: Path | None, argv: tuple[str, ...], **options: Any) -> None:
    request = request_of(argv, **options)
    try:
        with _signals_raise() as signals:
            try:
                client = Client(socket or default_socket())
            except Unreachable:
                if socket is not None:
                    raise
            else:
                with client:
                    _run_by(client, request, signals)
    except Caught as caught:  # before there was a job
        sys.exit(SIGNALLED + caught.number)
    _run_alone(request)


def _run_by(client: Client, request: JobRequest, signals: _Signals) -> NoReturn:
    """Have a service run the job."""
    job: JobView | None = None
    printer = Printer(NOT_RUN)
    try:
        with signals.held():  # or else nobody would know which job to cancel
            job = client.submit(request)
        if job.observed:
            _run_observed(client, request, job)
        if job.state is not JobState.RUNNING and job.ended_at_us is None:
            say(one_line(client.why(job.id)), NOT_RUN)
        printer.write_all(client.logs(job.id, follow=True))
        view = client.wait(job.id)
    except (Caught, Unwritable) as cut_short:
        if job is None:
            raise
        why = "interrupted" if isinstance(cut_short, Caught) else "nobody reads what it prints"
        view, result = _cancel(client, job, why)
        if isinstance(cut_short, Unwritable):
            raise
        if result is not None:
            printer.finish(view.attempts, result)
        _exit(SIGNALLED + cut_short.number, result)
    result = client.result(job.id)
    _exit(exit_status(view, result), result, view)


def _cancel(client: Client, job: JobView, reason: str) -> tuple[JobView, AttemptResult | None]:
    """Have the job end, and return how it did."""
    with Client(client.path) as other:  # the first connection still waits
        if job.observed:
            other.report(job.id, AttemptResult(AttemptState.CANCELLED, detail=reason))
        other.cancel(job.id, reason)
        view = other.wait(job.id)
        return view, other.result(job.id)


def _run_observed(client: Client, request: JobRequest, job: JobView) -> NoReturn:
    """Run the job here, for the service only records what it would have decided."""
    from reference_scheduler.service.embedded import run_here, run_observed

    ran = run_here(lambda signals: run_observed(signals, request, job.id, Printer(NOT_RUN).write))
    result = ran.result or AttemptResult(AttemptState.CANCELLED, detail="interrupted")
    view = replace(job, state=JobState(result.state), exit_code=result.exit_code)
    status = SIGNALLED + ran.caught if ran.caught else exit_status(view, result)
    try:
        client.report(job.id, result)  # its turn may come much later, and is not waited for
    except SchedulerError as error:
        say(f"the scheduler does not know how it ended: {one_line(str(error))}", status)
    _exit(status, result, view)


def _run_alone(request: JobRequest) -> NoReturn:
    from reference_scheduler.service.embedded import run_alone, run_here

    if request.key:
        raise Stopped("--key: only a scheduler that stays can know keys: start one with refsched serve", NOT_RUN)
    settings = load_settings(default_config(), DEFAULT_REQUESTS) if default_config().exists() else Settings()
    directory = state_directory() / "runs"
    private_directory(directory)

    def say_alone(line: str) -> None:
        say(f"no scheduler answers at {default_socket()}; {line}", NOT_RUN)

    ran = run_here(lambda signals: run_alone(signals, request, settings, directory, say_alone, Printer(NOT_RUN).write))
    status = SIGNALLED + ran.caught if ran.caught or ran.view is None else exit_status(ran.view, ran.result)
    _exit(status, ran.result, ran.view)


def _exit(status: int, result: AttemptResult | None, view: JobView | None = None) -> NoReturn:
    """Say what the exit status does not tell, and exit."""
    if view is not None and (result is None or result.state is not AttemptState.COMPLETED) and view.exit_code is None:
        detail = f": {result.detail}" if result is not None and result.detail else ""
        say(f"job {view.id} is {view.state}{detail}", status)
    sys.exit(status)


class _Signals:
    """The first SIGINT or SIGTERM; while it is held back it is only remembered."""

    def __init__(self) -> None:
        self._caught = 0
        self._is_held = False

    def catch(self, number: int) -> None:
        """Raise :class:`Caught`, or let :meth:`held` do so."""
        self._caught = number
        if not self._is_held:
            raise Caught(number)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal wait until the end of this."""
        self._is_held = True
        yield
        self._is_held = False
        if self._caught:
            raise Caught(self._caught)


@contextmanager
def _signals_raise() -> Iterator[_Signals]:
    """Have SIGINT and SIGTERM raise :class:`Caught`, once; a second one does what it does by itself."""
    numbers, signals = (signal.SIGINT, signal.SIGTERM), _Signals()

    def caught(number: int, frame: FrameType | None) -> None:
        restore()
        signals.catch(number)

    before = {number: signal.signal(number, caught) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield signals
    finally:
        restore()
