"""``refsched verify``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from reference_scheduler.commands.printing import is_terminal
from reference_scheduler.commands.simulation import Failure
from reference_scheduler.core.decisions import Decision
from reference_scheduler.plugins import PluginError, available_allocators, available_pickers
from reference_scheduler.replay.dump import event_text, value_text
from reference_scheduler.replay.frames import Condition, ReplayError
from reference_scheduler.replay.verify import Divergence, Progress, Verification
from reference_scheduler.replay.verify import verify as verify_log

_PROGRESS_EVERY = 1000
_LABEL = "  {:9} {}"


@click.command()
@click.argument("log", type=click.Path(dir_okay=False, path_type=Path))
def verify(log: Path) -> None:
    """Replay LOG and compare every decision, and every state that was recorded.

    LOG is a .replay file, as simulate --record and fuzz write them; one that is still written to, or was cut
    off, is compared as far as it goes. The first divergence is shown with the event, the decisions expected
    and got, and the difference of the states. A log of a failure found by fuzz must fail no more.

    Exit status: 0 all is as recorded, 1 it is not, or the file is damaged, 2 the file cannot be read.
    """
    try:
        with log.open("rb") as stream, _progress() as progress:
            found = verify_log(stream, available_pickers(), available_allocators(), progress)
    except OSError as error:
        raise Failure(f"{log}: {error.strerror or error}") from error
    except (ReplayError, PluginError) as error:
        raise Failure(f"{log}: {error}") from error
    for line in _report(found):
        click.echo(line)
    if not found.same or found.tail.condition is Condition.DAMAGED:
        sys.exit(1)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Give what shows the number of the event that replay has come to, where somebody looks."""
    if not is_terminal("stderr"):
        yield lambda number: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status("verifying", console=Console(stderr=True)) as status:

        def show(number: int) -> None:
            if number % _PROGRESS_EVERY == 0:
                status.update(f"verifying event {number}")

        yield show


def _report(found: Verification) -> Iterator[str]:
    if found.divergence is not None:
        yield from _differs(found.divergence)
        if found.other_behaviours:
            names = ", ".join(found.other_behaviours)
            yield f"the log was recorded by a core that differs in: {names}; that may be why"
    else:
        recordings = "1 recording" if found.sessions == 1 else f"{found.sessions} recordings"
        yield f"{found.events} events in {recordings} replay as recorded, chain {found.chain.hex()}"
    if found.failure is not None:
        yield f"the log records a failure: {found.failure}"
        yield f"it fails still: {found.failure_now}" if found.failure_now else "it fails no more"
    if found.tail.condition is not Condition.WHOLE:
        yield f"the file is {found.tail}"
    elif not found.closed and found.failure is None:
        yield "the recording was not ended: it is still running, or broke off"


def _differs(found: Divergence) -> Iterator[str]:
    if found.event is None:
        yield f"the state after event {found.number} differs, all decisions before are as recorded"
    else:
        yield f"event {found.number} differs"
        yield _LABEL.format("event", event_text(found.number, msgspec.to_builtins(found.event)))
        yield from _decisions("expected", found.expected)
        yield from _decisions("got", found.got, found.error)
        yield from (f"  {line}" for line in found.effects)
    if found.state_number is not None:
        yield f"  state recorded after event {found.state_number}:"
        yield from (f"    {line}" for line in found.state or ("no difference",))


def _decisions(label: str, decisions: tuple[Decision, ...], error: str = "") -> Iterator[str]:
    texts = [value_text(msgspec.to_builtins(decision)) for decision in decisions]
    for text in [error] if error else texts or ["no decision"]:
        yield _LABEL.format(label, text)
        label = ""
