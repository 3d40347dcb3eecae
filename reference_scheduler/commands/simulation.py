"""What the commands that run a simulation have in common: their options, the run, the progress bar."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from reference_scheduler.__main__ import DEBUG
from reference_scheduler.commands.printing import is_terminal
from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.allocators import ALLOCATORS
from reference_scheduler.core.amounts import MAX_QUANTITY
from reference_scheduler.core.decisions import Decision
from reference_scheduler.core.events import Event
from reference_scheduler.core.model import Config
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.drivers.schedule import Schedule
from reference_scheduler.drivers.simulation import Observer, SimulationDriver, Tie, simulation_config
from reference_scheduler.plugins import PluginError, available_allocators, available_pickers
from reference_scheduler.replay import Recorder
from reference_scheduler.workloads import Workload, WorkloadError, load_workload

LONG_RUN = 5_000
"""Runs of at least this many jobs show a progress bar on a terminal."""
_PROGRESS_EVERY = 500
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Failure(click.ClickException):
    """Something the user can mend, said in one line; exit status 2, as for bad usage."""

    exit_code = 2


class Setup(msgspec.Struct, frozen=True):
    """What to run and how: the values of :func:`simulation_options`."""

    trace: str
    picker: str
    allocator: str
    tie: str
    processors: int | None


class Run(msgspec.Struct, frozen=True):
    """A finished simulation; computing it took ``elapsed_s``."""

    workload: Workload
    schedule: Schedule
    elapsed_s: float


def simulation_options(command: _Function) -> _Function:
    """Add the argument TRACE and the options that choose how it is scheduled."""
    options: tuple[Callable[[_Function], _Function], ...] = (
        click.argument("trace"),
        click.option(
            "--picker",
            default="fair",
            metavar="NAME",
            help=f"Policy that chooses which queued job starts next: {', '.join(PICKERS)}, or a plug-in's.",
        ),
        click.option(
            "--allocator",
            default="sequential",
            metavar="NAME",
            help=f"Policy that chooses the workers of a job: {', '.join(ALLOCATORS)}, or a plug-in's.",
        ),
        click.option(
            "--tie",
            type=click.Choice([tie.value for tie in Tie]),
            default=Tie.EVENT.value,
            help="What happens first at one instant. event: ends on their estimate, submissions, early ends, "
            "a pass after each of the latter two; batch: all ends, all submissions, one pass.",
        ),
        click.option(
            "--processors",
            type=click.IntRange(1, MAX_QUANTITY),
            metavar="N",
            help="Size of the machine; wider jobs are cut to it.  [default: the trace's]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_simulation(setup: Setup, *observers: Observer, log: Path | None = None) -> Run:
    """Run to the end, showing progress; ``log`` is where to record it.

    Raises:
        Failure: the trace cannot be read or is malformed, there is no such picker or allocator or it is a plug-in
            that fails, or the log cannot be written.
    """
    try:
        core = SchedulerCore(available_pickers(), available_allocators())
        config = simulation_config(setup.picker, setup.allocator)
        workload = load_workload(setup.trace, setup.processors)
        if workload.left_out:
            counted = ", ".join(f"{what} ({count})" for what, count in workload.left_out.items())
            click.echo(f"note: {setup.trace}: not repeated: {counted}", err=True)
        with _recording(log, core) as recorder, _progress(len(workload.jobs)) as bar:
            observer = _together([*observers, *recorder, *bar])
            begun = time.perf_counter()
            schedule = _simulate(core, workload, setup, config, observer)
            return Run(workload, schedule, time.perf_counter() - begun)
    except BrokenPipeError:  # of what is said on stderr
        raise
    except OSError as error:
        raise Failure(f"{setup.trace}: {error.strerror or error}") from error
    except (WorkloadError, PluginError) as error:
        raise Failure(str(error)) from error


def _simulate(
    core: SchedulerCore, workload: Workload, setup: Setup, config: Config, observer: Observer | None
) -> Schedule:
    """Run to the end; what a plug-in raises is not taken for a defect of the scheduler."""
    try:
        return SimulationDriver(core, workload, Tie(setup.tie), observer).run(config)
    except WorkloadError as error:
        raise Failure(f"{setup.trace}: {error}") from error
    except Exception as error:
        foreign = {setup.picker} & available_pickers().keys() - PICKERS.keys()
        foreign |= {setup.allocator} & available_allocators().keys() - ALLOCATORS.keys()
        if foreign and not os.environ.get(DEBUG):
            what = f"a run with the plug-in {' and '.join(sorted(foreign))} failed: {type(error).__name__}: {error}"
            advice = f"mend it, or use one that is built in ({DEBUG}=1 shows the traceback)"
            raise Failure(f"{what}; {advice}") from error
        if isinstance(error, ValueError) and not foreign:  # there is no such picker or allocator
            raise Failure(str(error)) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write ``text``.

    Raises:
        Failure: the file cannot be written.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content``.

    Raises:
        Failure: the file cannot be written.
    """
    try:
        path.write_bytes(content)
    except BrokenPipeError:  # it is a pipe, such as /dev/stdout, like any other output
        raise
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error


def _together(observers: list[Observer]) -> Observer | None:
    if len(observers) <= 1:
        return observers[0] if observers else None

    def observe(event: Event, decisions: tuple[Decision, ...]) -> None:
        for observer in observers:
            observer(event, decisions)

    return observe


@contextmanager
def _recording(log: Path | None, core: SchedulerCore) -> Iterator[Iterable[Observer]]:
    """Give an observer that records ``core``, if there is a log."""
    if log is None:
        yield ()
        return
    try:
        recorder = Recorder.start(log, core)
    except OSError as error:
        raise Failure(f"{log}: {error.strerror}") from error
    with recorder:
        yield (recorder,)
        try:
            recorder.close()
        except OSError as error:
            raise Failure(f"{log}: {error.strerror}") from error


@contextmanager
def _progress(jobs: int) -> Iterator[Iterable[Observer]]:
    """Give an observer that moves a progress bar, or none for short runs and where nobody looks."""
    if jobs < LONG_RUN or not is_terminal("stderr"):
        yield ()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=2 * jobs)
        seen = 0

        def advance(event: Event, decisions: tuple[Decision, ...]) -> None:
            nonlocal seen
            seen += 1
            if seen % _PROGRESS_EVERY == 0:
                progress.update(task, completed=seen)

        yield (advance,)
