"""The options that say what job to submit, and the request that they make."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from reference_scheduler.commands.exits import USAGE, Stopped
from reference_scheduler.core.amounts import MAX_QUANTITY, Resources
from reference_scheduler.core.model import (
    DEFAULT_REQUESTS,
    MAX_ATTEMPTS,
    MAX_TIME_US,
    SECOND_US,
    Failure,
    Idempotency,
    Priority,
    ResourceRequest,
    RetryPolicy,
)
from reference_scheduler.requests import JobRequest

_Function = TypeVar("_Function", bound=Callable[..., Any])
SETTINGS = {"allow_interspersed_args": False, "show_default": True}
"""Whatever follows the first word of the job's command belongs to that, with or without ``--``."""
RETRIED = (Failure.TRANSIENT, Failure.TIMEOUT, Failure.EXECUTION, Failure.UNKNOWN)
"""Who asks for retries on a command line means those of a command that fails; what can never run is not tried again."""


class Seconds(click.FloatRange):
    """A length of time that the scheduler can count in microseconds."""

    def __init__(self, min: float) -> None:
        super().__init__(min=min, max=MAX_TIME_US // SECOND_US)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; what is no number is outside of every range, though it compares as inside."""
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value} is no length of time.", param, ctx)
        return seconds


def request_options(function: _Function) -> _Function:
    """Add the options, and the job's command as ``argv``; :func:`request_of` takes all of them."""
    options: tuple[Callable[[_Function], _Function], ...] = (
        click.option("--kind", default="managed_process", metavar="KIND", help="test, build, lint, shell, python, …"),
        click.option("--priority", type=choice(Priority), default=str(Priority.NORMAL)),
        click.option("--key", default="", metavar="TEXT", help="Submission key: the same key makes no second job."),
        click.option("--queue", default="", metavar="NAME", help="The queue, for limits and pauses."),
        click.option("--session", default="", metavar="NAME", help="The session, for limits on interactive jobs."),
        click.option("--workspace", metavar="PATH", help="Its lane in the queue. [default: the current directory]"),
        click.option("--cwd", type=click.Path(path_type=Path), help="Where it runs. [default: the current directory]"),
        click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable besides those that pass anyway."),
        click.option("--timeout", "timeout_s", type=Seconds(min=0.001), metavar="SECONDS", help="For one attempt."),
        click.option("--grace", "grace_s", type=Seconds(min=0), metavar="SECONDS", help="TERM to KILL. [default: 5]"),
        click.option("--delay", "delay_s", type=Seconds(min=0), metavar="SECONDS", help="Start no earlier than then."),
        click.option(
            "--start-within",
            "within_s",
            type=Seconds(min=0.001),
            metavar="SECONDS",
            help="Expire unless begun by then.",
        ),
        click.option(
            "--estimate",
            "estimate_s",
            type=Seconds(min=0),
            metavar="SECONDS",
            help="Its longest run, for pickers.",
        ),
        click.option("--after-ok", multiple=True, metavar="ID", help="Start only when this job has completed."),
        click.option("--after-any", multiple=True, metavar="ID", help="Start only when this job has ended."),
        click.option(
            "--idempotency",
            type=choice(Idempotency),
            help="May it run again once it was cut short? read_only and safe_repeat may. [default: by its kind]",
        ),
        click.option(
            "--retries",
            type=click.IntRange(0, MAX_ATTEMPTS - 1),
            metavar="N",
            help="Run it up to N times more while it fails or times out. [default: 0]",
        ),
        click.option(
            "--retry-pause",
            "pause_s",
            type=Seconds(min=0),
            metavar="SECONDS",
            help="Before the first of these; each is twice the one before. [default: 1]",
        ),
        click.option("--preemptible", is_flag=True, help="It may be stopped, and run again, for higher classes."),
        click.option("--need", multiple=True, metavar="NAME=N", help=f"What it holds: {', '.join(Resources._fields)}."),
        click.option("--exclusive", multiple=True, metavar="KEY", help="Nothing else with this key runs meanwhile."),
        click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND..."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def choice(values: type[StrEnum]) -> click.Choice[str]:
    """Return the parameter type that takes one of ``values``."""
    return click.Choice([str(value) for value in values])


def request_of(
    argv: tuple[str, ...],
    kind: str,
    priority: str,
    key: str,
    queue: str,
    session: str,
    workspace: str | None,
    cwd: Path | None,
    env: tuple[str, ...],
    timeout_s: float | None,
    grace_s: float | None,
    delay_s: float | None,
    within_s: float | None,
    estimate_s: float | None,
    after_ok: tuple[str, ...],
    after_any: tuple[str, ...],
    idempotency: str | None,
    retries: int | None,
    pause_s: float | None,
    preemptible: bool,
    need: tuple[str, ...],
    exclusive: tuple[str, ...],
) -> JobRequest:
    """Return the request.

    Raises:
        Stopped: the command is missing, or an option is wrong.
    """
    here = Path.cwd()
    payload: dict[str, Any] = {**_command(kind, argv), "cwd": str(here / (cwd or ""))}
    if env:
        payload["env"] = dict(_variable(text) for text in env)
    return JobRequest(
        kind=kind,
        payload=payload,
        key=key,
        priority=Priority(priority),
        workspace=str(here) if workspace is None else workspace,
        session=session,
        queue=queue,
        request=_needs(kind, need, exclusive),
        estimate_us=_us(estimate_s),
        delay_us=_us(delay_s) or 0,
        start_within_us=_us(within_s),
        timeout_us=_us(timeout_s),
        grace_us=_us(grace_s),
        after_ok=after_ok,
        after_any=after_any,
        preemptible=preemptible,
        idempotency=Idempotency(idempotency) if idempotency else None,
        retry=_retry(retries, pause_s),
    )


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND_US)


def _retry(retries: int | None, pause_s: float | None) -> RetryPolicy | None:
    if retries is None:
        if pause_s is not None:
            raise Stopped("--retry-pause: only has a meaning with --retries", USAGE)
        return None
    pause_us = SECOND_US if pause_s is None else round(pause_s * SECOND_US)
    policy = RetryPolicy(max_attempts=retries + 1, base_us=pause_us, retry_on=RETRIED)
    return replace(policy, cap_us=max(policy.cap_us, pause_us))


def _needs(kind: str, need: tuple[str, ...], exclusive: tuple[str, ...]) -> ResourceRequest | None:
    """Return what the job holds, ``None`` for what its kind does; amounts that are not named are those of its kind."""
    if not need and not exclusive:
        return None
    request = DEFAULT_REQUESTS.get(kind) or DEFAULT_REQUESTS["shell"]
    return replace(request, **dict(map(_amount, need)), exclusivity_keys=(*request.exclusivity_keys, *exclusive))


def _amount(text: str) -> tuple[str, int]:
    name, _, amount = text.partition("=")
    is_number = amount.isascii() and amount.isdigit() and len(amount) <= len(str(MAX_QUANTITY))
    if name not in Resources._fields or not is_number or int(amount) > MAX_QUANTITY:
        names = ", ".join(Resources._fields)
        raise Stopped(f"--need: needs NAME=N, with a name of {names} and N up to {MAX_QUANTITY}, got {text!r}", USAGE)
    return name, int(amount)


def _command(kind: str, argv: tuple[str, ...]) -> dict[str, Any]:
    if not argv:
        raise Stopped("say what to run: refsched … -- COMMAND ARGUMENTS", USAGE)
    if kind == "test":
        return {"args": argv}
    if kind != "shell":
        return {"argv": argv}
    if len(argv) > 1:
        raise Stopped("a shell job takes one argument, its script: put it in quotes", USAGE)
    return {"script": argv[0]}


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Stopped(f"--env: needs NAME=VALUE, got {text!r}", USAGE)
    return name, value
