"""``refsched simulate``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from reference_scheduler.commands.plot import check_target, draw_run
from reference_scheduler.commands.simulation import (
    Failure,
    Setup,
    run_simulation,
    simulation_options,
    write_text,
)
from reference_scheduler.drivers.schedule import Schedule, first_difference, metrics, starts_csv
from reference_scheduler.drivers.timeline import Timeline
from reference_scheduler.workloads import WorkloadError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@simulation_options
@click.option(
    "--starts",
    "starts_file",
    type=_FILE,
    metavar="FILE",
    help="Write job,start (seconds) as CSV, in job order.",
)
@click.option(
    "--metrics",
    "metrics_file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    metavar="FILE",
    help="Write the measures as one JSON object, times in seconds; - is standard output.",
)
@click.option(
    "--compare",
    type=_FILE,
    metavar="FILE",
    help="Compare with the job,start of this CSV: print the first job that differs and exit with 1.",
)
@click.option(
    "--plot",
    "plot_file",
    type=_FILE,
    metavar="FILE",
    help="Draw Gantt chart, utilisation, queue length and waits: .png, .svg, or .html for a report.",
)
@click.option(
    "--record",
    "log",
    type=_FILE,
    metavar="FILE",
    help="Record events and decisions into a .replay file, for verify and dump.",
)
def simulate(
    trace: str,
    picker: str,
    allocator: str,
    tie: str,
    processors: int | None,
    starts_file: Path | None,
    metrics_file: Path,
    compare: Path | None,
    plot_file: Path | None,
    log: Path | None,
) -> None:
    """Run TRACE through the scheduler in virtual time and measure the schedule.

    TRACE is a file in the Standard Workload Format (.swf or any other name), in CSV with the header
    job,submit,run,procs,estimate (.csv), or in JSON Lines (.jsonl), each also gzipped (.gz); a recording
    (.replay), whose jobs come and run, and whose pauses are, as they were; or a workload to generate, such as
    synthetic:jobs=1000,seed=7,load=0.9.

    Reported are wait, bounded slowdown (bound 10 s), utilisation and makespan, over all jobs and for each
    class and lane (a lane is a workspace, or else a user).

    Exit status: 0 done, 1 the comparison differs, 2 bad usage or trace.
    """
    setup = Setup(trace, picker, allocator, tie, processors)
    if plot_file is None:
        run = run_simulation(setup, log=log)
    else:
        check_target(plot_file)
        timeline = Timeline()
        run = run_simulation(setup, timeline, log=log)
        draw_run(setup, run, timeline, plot_file)
    if starts_file is not None:
        write_text(starts_file, starts_csv(run.schedule))
    measures = msgspec.json.format(msgspec.json.encode(metrics(run.schedule, run.elapsed_s)), indent=2)
    if str(metrics_file) == "-":
        click.echo(measures)
    else:
        write_text(metrics_file, measures.decode() + "\n")
    if compare is not None:
        _compare(run.schedule, compare)


def _compare(schedule: Schedule, reference: Path) -> None:
    """Say what differs, and exit."""
    try:
        difference = first_difference(schedule, reference)
    except OSError as error:
        raise Failure(f"{reference}: {error.strerror}") from error
    except WorkloadError as error:
        raise Failure(str(error)) from error
    if difference is not None:
        click.echo(difference, err=True)
        sys.exit(1)
