"""Pictures of a run: Gantt chart, utilisation, queue length, and wait per class (extra ``[plot]``).

This module needs matplotlib and is therefore imported only by what draws. Colours are those of Okabe and Ito,
"Color universal design" (2008), which people with any form of colour blindness can tell apart; where lines
cross, classes differ in their strokes as well. Figures are the same for the same run: SVG ids are hashed with
a fixed salt, and no date is written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from reference_scheduler.core.model import SECOND_US, Priority
from reference_scheduler.drivers.timeline import Block, Timeline, binned, stack, total

COLOURS: dict[Priority, str] = {
    Priority.URGENT: "#D55E00",
    Priority.INTERACTIVE: "#E69F00",
    Priority.NORMAL: "#0072B2",
    Priority.BACKGROUND: "#009E73",
    Priority.MAINTENANCE: "#CC79A7",
}
_STROKES: dict[Priority, str | tuple[int, tuple[int, ...]]] = {
    Priority.URGENT: "dashdot",
    Priority.INTERACTIVE: "dashed",
    Priority.NORMAL: "solid",
    Priority.BACKGROUND: "dotted",
    Priority.MAINTENANCE: (0, (6, 1, 1, 1, 1, 1)),
}
_TINTS = (0.0, 0.22, 0.44)
"""How far towards white the blocks of one class go in turn, so that neighbours can be told apart."""
FEW_BLOCKS = 60
"""Up to this many blocks each has an outline and, where there is room, the name of its job."""
FEW_STEPS = 400
"""Up to this many instants curves show each one; above, means over ``BINS`` equal parts of time."""
BINS = 300
MANY_BLOCKS = 2000
"""Above this many blocks the Gantt chart in an SVG is an image, as its shapes would be megabytes."""
MOST_NAMES = 24
"""At most about this many workers are named on the axis."""
LIGHT = 1.5
"""Colours whose parts sum to more carry black text."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_STYLE: Any = {  # matplotlib types the keys as one literal each
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "svg.fonttype": "none",
    "svg.hashsalt": "refsched",
}

Panel: TypeAlias = Callable[[Axes, Timeline], None]
_Box: TypeAlias = tuple[float, float, float, float]
_Colour: TypeAlias = tuple[float, float, float]


def unit_of(span_us: float) -> tuple[float, str]:
    """Return the unit of time for an axis of ``span_us``: its length in microseconds, and its symbol."""
    seconds, symbol = next((unit for unit in _UNITS if span_us >= 3 * unit[0] * SECOND_US), _UNITS[-1])
    return float(seconds * SECOND_US), symbol


def extent_us(timeline: Timeline) -> tuple[int, int]:
    """Return the first submission and the last instant of a run; an empty one lasts a second."""
    if not timeline.steps:
        return 0, SECOND_US
    first = timeline.steps[0].at_us
    return first, max(timeline.steps[-1].at_us, first + 1)


def gantt(axes: Axes, timeline: Timeline) -> None:
    """Draw which job holds which process slots: workers from bottom to top, colour by class."""
    start_us, end_us = extent_us(timeline)
    unit_us, _ = unit_of(end_us - start_us)
    blocks = stack(timeline.workers, timeline.spans)
    few = len(blocks) <= FEW_BLOCKS
    colours = _tinted(blocks)
    boxes = [_box(block, start_us, unit_us) for block in blocks]
    axes.add_collection(
        PolyCollection(
            [[(x0, y0), (x0, y1), (x1, y1), (x1, y0)] for x0, y0, x1, y1 in boxes],
            facecolors=colours,
            edgecolors=[_darker(colour) for colour in colours] if few else "none",
            linewidths=0.6 if few else 0,
            antialiaseds=few,
            rasterized=len(blocks) > MANY_BLOCKS,
        )
    )
    axes.set_ylim(0, max(total(timeline.workers), 1))
    _time_axis(axes, timeline)
    if few:
        _name_blocks(axes, blocks, boxes, colours)
    _name_workers(axes, timeline.workers)
    axes.set_title("Jobs by worker and class")
    classes = [priority for priority in Priority if priority in timeline.waits_us]
    handles = [Patch(color=COLOURS[priority], label=priority.value) for priority in classes]
    if handles:
        axes.legend(handles=handles, ncols=len(handles), loc="lower right", bbox_to_anchor=(1, 1), frameon=False)


def _box(block: Block, start_us: int, unit_us: float) -> _Box:
    span = block.span
    return (span.start_us - start_us) / unit_us, block.low, (span.end_us - start_us) / unit_us, block.high


def _darker(colour: _Colour) -> _Colour:
    red, green, blue = colour
    return red * 0.6, green * 0.6, blue * 0.6


def _tinted(blocks: Sequence[Block]) -> list[_Colour]:
    """Return a colour for each block: that of its class, the tint changing from job to job."""
    number: dict[str, int] = {}
    colours = []
    for block in blocks:
        tint = _TINTS[number.setdefault(block.span.job, len(number)) % len(_TINTS)]
        red, green, blue = (part + (1 - part) * tint for part in to_rgb(COLOURS[block.span.priority]))
        colours.append((red, green, blue))
    return colours


def _name_blocks(axes: Axes, blocks: Sequence[Block], boxes: Sequence[_Box], colours: Sequence[_Colour]) -> None:
    """Write the job into each block that is large enough on the page."""
    to_page = axes.transData.transform
    for block, (x0, y0, x1, y1), colour in zip(blocks, boxes, colours, strict=True):
        (left, bottom), (right, top) = to_page((x0, y0)), to_page((x1, y1))
        points = axes.figure.dpi / 72
        if (right - left) / points >= 6 * len(block.span.job) + 4 and (top - bottom) / points >= 9:
            ink = "black" if sum(colour) > LIGHT else "white"
            axes.text((x0 + x1) / 2, (y0 + y1) / 2, block.span.job, ha="center", va="center", color=ink, fontsize=8)


def _name_workers(axes: Axes, workers: dict[str, int]) -> None:
    """Label the vertical axis: one machine by process slots, several workers by name with lines between."""
    if len(workers) <= 1:
        axes.set_ylabel("process slots")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        return
    axes.set_ylabel("worker (height: process slots)")
    every = -(-len(workers) // MOST_NAMES)
    ticks, names, low = [], [], 0
    for index, (worker, slots) in enumerate(workers.items()):
        if low:
            axes.axhline(low, color="0.25", linewidth=0.6 if len(workers) <= MOST_NAMES else 0.2)
        if index % every == 0:
            ticks.append(low + slots / 2)
            names.append(worker)
        low += slots
    axes.set_yticks(ticks, names)


def _time_axis(axes: Axes, timeline: Timeline) -> None:
    start_us, end_us = extent_us(timeline)
    unit_us, symbol = unit_of(end_us - start_us)
    axes.set_xlim(0, (end_us - start_us) / unit_us)
    axes.set_xlabel(f"time since the first submission ({symbol})")


def _curve(timeline: Timeline) -> tuple[list[float], list[float], list[float], list[int]]:
    """Return times in the unit of the axis, and from each on: held, waiting, and most waiting."""
    start_us, end_us = extent_us(timeline)
    unit_us, _ = unit_of(end_us - start_us)
    if len(timeline.steps) <= FEW_STEPS:
        times = [(step.at_us - start_us) / unit_us for step in timeline.steps]
        held = [float(step.held) for step in timeline.steps]
        waiting = [float(step.waiting) for step in timeline.steps]
        return times, held, waiting, [step.waiting for step in timeline.steps]
    parts = binned(timeline.steps, start_us, end_us, BINS)
    width = (end_us - start_us) / BINS / unit_us
    times = [index * width for index in range(BINS + 1)]
    parts.append(parts[-1])
    return times, [part[0] for part in parts], [part[1] for part in parts], [part[2] for part in parts]


def utilisation(axes: Axes, timeline: Timeline) -> None:
    """Draw the share of process slots that is held, and its mean over the run."""
    start_us, end_us = extent_us(timeline)
    slots = max(total(timeline.workers), 1)
    times, held, *_ = _curve(timeline)
    shares = [100 * value / slots for value in held]
    colour = COLOURS[Priority.NORMAL]
    axes.fill_between(times, shares, step="post", color=colour, alpha=0.35, linewidth=0)
    axes.step(times, shares, where="post", color=colour, linewidth=1)
    work_us = sum(span.processors * (span.end_us - span.start_us) for span in timeline.spans)
    mean = 100 * work_us / (slots * (end_us - start_us))
    axes.axhline(mean, color="black", linewidth=1, linestyle="dashed")
    axes.set_title(f"Utilisation (dashed: mean {mean:.1f} %)")
    axes.set_ylabel("held process slots")
    axes.set_ylim(0, 104)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter())
    _time_axis(axes, timeline)


def queue_length(axes: Axes, timeline: Timeline) -> None:
    """Draw how many jobs wait; over many instants the mean, and as a lighter area the most."""
    times, _, waiting, most = _curve(timeline)
    colour = COLOURS[Priority.URGENT]
    axes.fill_between(times, most, step="post", color=colour, alpha=0.25, linewidth=0)
    axes.step(times, waiting, where="post", color=colour, linewidth=1)
    means = "; line: mean, area: most" if len(timeline.steps) > FEW_STEPS else ""
    axes.set_title(f"Queue length (at most {max(most, default=0)}{means})")
    axes.set_ylabel("waiting jobs")
    axes.set_ylim(0, 1.05 * max(most, default=0) or 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    _time_axis(axes, timeline)


def waits(axes: Axes, timeline: Timeline) -> None:
    """Draw for each class which share of its jobs had started after how long a wait."""
    longest_us = max((max(found) for found in timeline.waits_us.values()), default=0)
    unit_us, symbol = unit_of(longest_us)
    limit = longest_us / unit_us or 1.0
    for priority in Priority:
        found = sorted(timeline.waits_us.get(priority, ()))
        if not found:
            continue
        shares = [100 * (index + 1) / len(found) for index in range(len(found))]
        mean = sum(found) / len(found) / unit_us
        axes.step(
            [0.0, *(wait_us / unit_us for wait_us in found), limit],
            [0.0, *shares, 100.0],
            where="post",
            color=COLOURS[priority],
            linestyle=_STROKES[priority],
            linewidth=1.6,
            label=f"{priority.value}: n = {len(found)}, mean {mean:.3g} {symbol}",
        )
    axes.set_title("Wait by class" if longest_us else "Wait by class (no job waited)")
    axes.set_xlabel(f"wait from submission to first start ({symbol})")
    axes.set_ylabel("jobs started")
    axes.set_xlim(-0.01 * limit, 1.01 * limit)  # so that the first and the last rise are seen
    axes.set_ylim(0, 104)
    axes.yaxis.set_major_formatter(PercentFormatter())
    if timeline.waits_us:
        axes.legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none")


PANELS: tuple[tuple[str, Panel, float], ...] = (
    ("gantt", gantt, 4.2),
    ("utilisation", utilisation, 1.7),
    ("queue", queue_length, 1.7),
    ("waits", waits, 2.2),
)
"""Name, function and height in inches of each panel, from top to bottom."""


def draw(timeline: Timeline, title: str, format_: str) -> bytes:
    """Return all panels as one picture of ``format_`` (``png`` or ``svg``)."""
    heights = [height for *_, height in PANELS]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, sum(heights) + 1.2), dpi=150, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        rows = figure.subplots(len(PANELS), 1, height_ratios=heights)
        for axes, (_, panel, _) in zip(rows, PANELS, strict=True):
            panel(axes, timeline)
        return _rendered(figure, format_)


def draw_panel(timeline: Timeline, panel: Panel, height: float) -> str:
    """Return one panel as SVG, ``height`` inches high."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, height + 0.6), dpi=150, layout="constrained")
        panel(figure.subplots(), timeline)
        return _rendered(figure, "svg").decode()


def _rendered(figure: Figure, format_: str) -> bytes:
    """Return the picture without metadata, which would hold a date, a version and addresses."""
    stream = io.BytesIO()
    keys = ("Creator", "Date", "Format", "Type") if format_ == "svg" else ("Software",)
    figure.savefig(stream, format=format_, metadata=dict.fromkeys(keys))
    return stream.getvalue()
