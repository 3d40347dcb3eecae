"""The ``refsched`` command."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click
import msgspec

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Decision
from reference_scheduler.core.events import Event
from reference_scheduler.drivers.schedule import Schedule, first_difference, metrics, starts
from reference_scheduler.drivers.simulation import Observer, SimulationDriver, Tie, simulation_config
from reference_scheduler.plugins import available_allocators, available_pickers
from reference_scheduler.workloads import Workload, WorkloadError, read_workload

_PROGRESS_EVERY = 1000
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def main() -> None:
    """The reference scheduler."""


@main.command(context_settings={"show_default": True})
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--picker", default="fair", help="Policy that chooses which queued job starts next.")
@click.option("--allocator", default="sequential", help="Policy that chooses the workers of a job.")
@click.option(
    "--tie",
    type=click.Choice([tie.value for tie in Tie]),
    default=Tie.EVENT.value,
    help="Order of what happens at one instant: a pass after each submission and early end, or one for all.",
)
@click.option("--processors", type=click.IntRange(min=1), help="Size of the machine.  [default: the trace's]")
@click.option("--starts", "starts_file", type=_FILE, help="Write job,start (seconds) as CSV, in job order.")
@click.option(
    "--metrics",
    "metrics_file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    help="Write the measures as one JSON object; - is standard output.",
)
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV job,start to compare with: prints the first job that differs and exits with 1.",
)
def simulate(
    trace: Path,
    picker: str,
    allocator: str,
    tie: str,
    processors: int | None,
    starts_file: Path | None,
    metrics_file: Path,
    compare: Path | None,
) -> None:
    """Run TRACE through the scheduler in virtual time.

    TRACE is in the Standard Workload Format, CSV with the header job,submit,run,procs,estimate (.csv), or
    JSON Lines (.jsonl), each also gzipped (.gz). Exit status: 0 done, 1 the comparison differs, 2 bad usage
    or trace.
    """
    try:
        workload = read_workload(trace, processors)
        begun = time.perf_counter()
        schedule = _run(workload, picker, allocator, Tie(tie))
        elapsed_s = time.perf_counter() - begun
        if starts_file is not None:
            _write_starts(schedule, starts_file)
        text = (
            msgspec.json.format(msgspec.json.encode(metrics(schedule, elapsed_s)), indent=2).decode() + "\n"
        )
        if str(metrics_file) == "-":
            click.echo(text, nl=False)
        else:
            metrics_file.write_text(text, encoding="utf-8")
        difference = None if compare is None else first_difference(schedule, compare)
    except (WorkloadError, OSError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    if difference is not None:
        click.echo(difference, err=True)
        sys.exit(1)


def _run(workload: Workload, picker: str, allocator: str, tie: Tie) -> Schedule:
    core = SchedulerCore(available_pickers(), available_allocators())
    with _progress(2 * len(workload.jobs)) as observer:
        return SimulationDriver(core, workload, tie, observer).run(simulation_config(picker, allocator))


def _progress(events: int) -> AbstractContextManager[Observer | None]:
    """Return an observer that moves a progress bar, or none where nobody looks."""
    if not sys.stderr.isatty():
        return nullcontext()
    return _Bar(events)


class _Bar(AbstractContextManager[Observer]):
    def __init__(self, events: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("simulating", total=events)
        self._seen = 0

    def __enter__(self) -> Callable[[Event, tuple[Decision, ...]], None]:
        self._progress.start()
        return self._advance

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def _advance(self, event: Event, decisions: tuple[Decision, ...]) -> None:
        self._seen += 1
        if self._seen % _PROGRESS_EVERY == 0:
            self._progress.update(self._task, completed=self._seen)


def _write_starts(schedule: Schedule, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["job", "start"])
        writer.writerows(starts(schedule))
