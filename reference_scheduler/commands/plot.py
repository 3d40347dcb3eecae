"""``refsched plot``, and the pictures that ``refsched simulate --plot`` draws."""

from __future__ import annotations

from pathlib import Path

import click

from reference_scheduler.commands.printing import one_line
from reference_scheduler.commands.simulation import (
    Failure,
    Run,
    Setup,
    run_simulation,
    simulation_options,
    write_bytes,
)
from reference_scheduler.drivers.schedule import metrics
from reference_scheduler.drivers.timeline import Timeline, total

SUFFIXES = (".png", ".svg", ".html")


@click.command(context_settings={"show_default": True})
@simulation_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Where to draw; the name says how: .png, .svg, or .html for a self-contained report.",
)
def plot(trace: str, picker: str, allocator: str, tie: str, processors: int | None, out: Path) -> None:
    """Simulate TRACE and draw what happened.

    The picture has a Gantt chart by worker and class, the utilisation, the queue length, and the distribution
    of waits by class; the report has the measures as well. TRACE is what `refsched simulate` takes. Needs
    matplotlib. Exit status: 0 done, 2 bad usage or trace.
    """
    check_target(out)
    setup, timeline = Setup(trace, picker, allocator, tie, processors), Timeline()
    draw_run(setup, run_simulation(setup, timeline), timeline, out)


def check_target(path: Path) -> None:
    """Refuse at once what could not be drawn after a long run.

    Raises:
        Failure: the name of the file does not say how to draw, or matplotlib is missing.
    """
    if path.suffix not in SUFFIXES:
        raise Failure(f"{path}: a plot ends in one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401  # only whether it is there; it takes long to import
    except ModuleNotFoundError as error:
        raise Failure("plots need matplotlib: pip install 'spawngate[plot]'") from error


def draw_run(setup: Setup, run: Run, timeline: Timeline, path: Path) -> None:
    """Draw a finished run to ``path``, as its name says.

    Raises:
        Failure: the file cannot be written.
    """
    trace = one_line(Path(setup.trace).name)  # the bytes of a name need not be text, but a picture has to be
    title = f"{trace}, {setup.picker}"
    if path.suffix == ".html":
        from reference_scheduler.report import render

        settings = {
            "trace": trace,
            "picker": setup.picker,
            "allocator": setup.allocator,
            "tie rule": setup.tie,
            "machine": f"{total(timeline.workers)} process slots on {len(timeline.workers)} worker(s)",
            "skipped rows": str(run.schedule.skipped),
            "refused jobs": str(len(run.schedule.refused)),
        }
        measures = metrics(run.schedule, run.elapsed_s)
        write_bytes(path, render(title, settings, measures, timeline).encode())
        return
    from reference_scheduler.plots import draw

    write_bytes(path, draw(timeline, title, path.suffix[1:]))
