"""``refsched events`` and ``top``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from reference_scheduler.clock import wall_us
from reference_scheduler.commands.exits import EXIT_STATUS, REFUSED, Stopped
from reference_scheduler.commands.jobs import waits_for
from reference_scheduler.commands.printing import duration, is_terminal, one_line, when
from reference_scheduler.commands.service import ServiceCommand, json_option, progress_text, with_client
from reference_scheduler.core.model import JobState
from reference_scheduler.observers import Gap, Notice
from reference_scheduler.service.client import Client
from reference_scheduler.views import JobView

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

REDRAW_S = 1.0
SHOWN = 30
WAITING = (JobState.QUEUED, JobState.BLOCKED, JobState.SCHEDULED)


@click.command(
    cls=ServiceCommand,
    help=f"""Print what happens, from now on, until the scheduler stops or Ctrl-C.

Who reads too slowly misses some of it, and is told how much. With --json each line is one object; the first, Began,
says that nothing that follows is missed.

{EXIT_STATUS}""",
)
@click.option("--job", default="", metavar="ID", help="Only what happens to this job.")
@json_option
@with_client
def events(client: Client, job: str, as_json: bool) -> None:
    encode = msgspec.json.Encoder().encode
    for event in client.events(job):
        if as_json:
            click.echo(encode(event).decode())
        elif isinstance(event, Gap):
            click.echo(f"… {event.missed} events were missed …")
        elif isinstance(event, Notice):
            click.echo(event_line(event))


def event_line(notice: Notice) -> str:
    """Return a notice for people."""
    subject = f"job {notice.job}" if notice.job else "scheduler"
    attempt = f" attempt {notice.attempt}" if notice.attempt else ""
    detail = progress_text(notice.progress) or notice.detail
    return f"{when(notice.at_us)}  {subject}{attempt}  {notice.what}{f'  {detail}' if detail else ''}"


@click.command(
    cls=ServiceCommand,
    help=f"""Show the scheduler and its jobs live, until Ctrl-C.

It is drawn anew when something happens, at most once a second.

{EXIT_STATUS}""",
)
@with_client
def top(client: Client) -> None:
    if not is_terminal("stdout"):
        raise Stopped("top needs a terminal; refsched snapshot prints the same once", REFUSED)
    from rich.live import Live

    screen = _Screen(client)
    with Live(get_renderable=screen.draw, screen=True, refresh_per_second=1 / REDRAW_S) as live:
        while True:
            # Watched from before it is looked at, so that whatever happens meanwhile is seen.
            with Client(client.path) as watching:
                happenings = watching.events()
                next(happenings, None)
                screen.look()
                live.refresh()
                drawn_s = time.monotonic()
                if next(happenings, None) is None:
                    return  # the scheduler has stopped
            time.sleep(max(0.0, drawn_s + REDRAW_S - time.monotonic()))


class _Screen:
    """What is shown; the times in it go on by themselves between two looks."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.look()

    def look(self) -> None:
        """Ask the scheduler how it is."""
        self._snapshot = self._client.snapshot()
        self._running = self._client.jobs((JobState.RUNNING,), limit=SHOWN)
        self._waiting = self._client.jobs(WAITING, limit=SHOWN)

    def draw(self) -> RenderableType:
        """Return the screen as it is now."""
        from rich.console import Group

        return Group(
            self._head(),
            _table("running", self._running, "PROGRESS", _progress),
            _table("waiting, newest first", self._waiting, "WAITS FOR", waits_for),
        )

    def _head(self) -> Text:
        from rich.text import Text

        found, budget = self._snapshot, self._snapshot.budget
        state = found.unavailable or found.hold or "accepting"
        counts = [
            sum(n for name, n in jobs.items() if name.startswith("priority:")) for jobs in (found.running, found.queued)
        ]
        used = zip(budget.used._asdict().items(), budget.capacity, strict=True)
        resources = "   ".join(f"{name} {held}/{most}" for (name, held), most in used)
        oldest = f", the oldest for {duration(found.oldest_queued_us)}" if counts[1] else ""
        return Text(
            f"{time.strftime('%H:%M:%S')}  {state}, {found.rollout}, generation {found.generation[:8]}\n"
            f"{counts[0]} running, {counts[1]} waiting{oldest}\n{resources}"
        )


def _progress(job: JobView) -> str:
    return waits_for(job) if job.array_size else progress_text(job.progress)


def _table(title: str, jobs: Sequence[JobView], last: str, cell: Callable[[JobView], str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, expand=True)
    for name in ("ID", "KIND", "PRIORITY", "SINCE", "COMMAND", "WORKSPACE", last):
        table.add_column(name, no_wrap=True)
    for job in jobs:
        since = duration(wall_us() - job.submitted_at_us)
        cells = (job.id, job.kind, job.priority, since, job.command, job.workspace, cell(job))
        table.add_row(*map(Text, map(one_line, cells)))
    return table
