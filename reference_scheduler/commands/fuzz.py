"""``refsched fuzz``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from reference_scheduler.commands.printing import is_terminal
from reference_scheduler.commands.simulation import Failure
from reference_scheduler.fuzz.run import Outcome, run_seed, save, shrink


@click.command(context_settings={"show_default": True})
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="The first seed.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, metavar="K", help="How many seeds, from N on.")
@click.option("--events", type=click.IntRange(min=1), default=1000, metavar="M", help="Length of each history.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where to save what fails, as fuzz-SEED.replay.",
)
def fuzz(seed: int, seeds: int, events: int, out: Path) -> None:
    """Run random histories full of faults through the scheduler and check everything after every event.

    Each seed draws which kinds of events its history has at all, the picker and the machine: lost workers,
    restarts, clocks that step, reports that are lost, late or doubled, storms of cancellations, budgets that
    shrink. Then the faults stop, and every job must come to its end. Equal options give equal histories.

    A history that fails is made as short as possible and saved; refsched verify replays it.

    Exit status: 0 nothing found, 1 a failure was found, 2 bad usage.
    """
    begun = time.perf_counter()
    total, failed = 0, 0
    with _progress(range(seed, seed + seeds)) as numbers:
        for number in numbers:
            outcome = run_seed(number, events)
            total += outcome.events
            if outcome.failure is not None:
                failed += 1
                _report(number, outcome, out)
    rate = total / (time.perf_counter() - begun)
    found = f"{failed} of them failed" if failed else "no violation"
    click.echo(f"{seeds} seeds from {seed} on, {total} events, {rate:.0f} per second: {found}")
    sys.exit(1 if failed else 0)


def _report(seed: int, outcome: Outcome, out: Path) -> None:
    """Save what failed and say so."""
    if outcome.failure is None:
        return
    click.echo(f"seed {seed} ({outcome.swarm.config.picker}) fails; making it small", err=True)
    small = shrink(outcome.failure, outcome.swarm.workers)
    path = out / f"fuzz-{seed}.replay"
    try:
        out.mkdir(parents=True, exist_ok=True)
        save(small.items, path, small)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    click.echo(f"seed {seed}: {small.check}: {small.message}")
    click.echo(f"  {len(outcome.failure.items)} events, of which {len(small.items)} are enough: {path}")


@contextmanager
def _progress(seeds: range) -> Iterator[Iterable[int]]:
    """Give the seeds, with a progress bar where somebody looks."""
    if not is_terminal("stderr"):
        yield seeds
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield progress.track(seeds, description="fuzzing")
