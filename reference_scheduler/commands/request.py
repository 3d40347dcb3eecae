"""The options that say what job to submit, and the request that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from reference_scheduler.commands.service import USAGE, Stopped
from reference_scheduler.core.model import MAX_TIME_US, SECOND_US, Priority
from reference_scheduler.requests import JobRequest

_Function = TypeVar("_Function", bound=Callable[..., Any])
SETTINGS = {"allow_interspersed_args": False, "show_default": True}
"""Whatever follows the first word of the job's command belongs to that, with or without ``--``."""


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
        click.option(
            "--priority", type=click.Choice([str(priority) for priority in Priority]), default=str(Priority.NORMAL)
        ),
        click.option("--key", default="", metavar="TEXT", help="Submission key: the same key makes no second job."),
        click.option("--queue", default="", metavar="NAME", help="The queue, for limits and pauses."),
        click.option("--workspace", metavar="PATH", help="Its lane in the queue. [default: the current directory]"),
        click.option("--cwd", type=click.Path(path_type=Path), help="Where it runs. [default: the current directory]"),
        click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable besides those that pass anyway."),
        click.option("--timeout", "timeout_s", type=Seconds(min=0.001), metavar="SECONDS", help="For one attempt."),
        click.option("--after-ok", multiple=True, metavar="ID", help="Start only when this job has completed."),
        click.option("--after-any", multiple=True, metavar="ID", help="Start only when this job has ended."),
        click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND..."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def request_of(
    argv: tuple[str, ...],
    kind: str,
    priority: str,
    key: str,
    queue: str,
    workspace: str | None,
    cwd: Path | None,
    env: tuple[str, ...],
    timeout_s: float | None,
    after_ok: tuple[str, ...],
    after_any: tuple[str, ...],
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
        queue=queue,
        timeout_us=None if timeout_s is None else max(1, round(timeout_s * 1e6)),
        after_ok=after_ok,
        after_any=after_any,
    )


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
