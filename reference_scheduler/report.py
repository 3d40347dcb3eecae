"""One self-contained HTML page about a simulation: measures as tables, panels as inline SVG.

It loads nothing from anywhere: no script, no style sheet, no font, no image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from reference_scheduler.drivers.schedule import Metrics
from reference_scheduler.drivers.timeline import Timeline
from reference_scheduler.plots import PANELS, draw_panel

MOST_LANES = 50
"""Lanes beyond this many, by number of jobs, are left out of the page and counted."""
_COLUMNS = (
    ("jobs", "jobs", "{:d}"),
    ("mean_wait", "mean wait (s)", "{:.1f}"),
    ("max_wait", "longest wait (s)", "{:.1f}"),
    ("mean_bounded_slowdown", "mean bounded slowdown", "{:.2f}"),
    ("utilisation", "utilisation", "{:.1%}"),
    ("makespan", "makespan (s)", "{:.0f}"),
)
_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a }
body { max-width: 66rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .8rem; border-bottom: 1px solid #d0d0d0 }
th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem } dd { margin: 0 }
"""


def render(title: str, settings: Mapping[str, str], measures: Metrics, timeline: Timeline) -> str:
    """Return the page. ``settings`` says how the run was made, ``measures`` what it came to."""
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>',
        f"<style>\n{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n<dl>",
        *(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in settings.items()),
        "</dl>",
        _table("All jobs", "", [("all", measures)]),
        *(_inline(draw_panel(timeline, panel, height), name) for name, panel, height in PANELS),
        _table("Classes", "class", _groups(measures, "classes")),
        _lanes(measures),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _inline(svg: str, name: str) -> str:
    """Return the element alone, without the declaration, and with ids that no other panel has."""
    element = svg[svg.index("<svg") :]
    for before in (' id="', '"#', "url(#"):
        element = element.replace(before, f"{before}{name}-")
    return element


def _groups(measures: Metrics, name: str) -> list[tuple[str, Metrics]]:
    groups = measures[name]
    return list(groups.items()) if isinstance(groups, dict) else []


def _lanes(measures: Metrics) -> str:
    lanes = sorted(_groups(measures, "lanes"), key=lambda lane: (-_jobs(lane[1]), lane[0]))
    left_out = len(lanes) - MOST_LANES
    note = f"<p>{left_out} lanes with fewer jobs are left out.</p>" if left_out > 0 else ""
    return _table("Lanes", "lane", lanes[:MOST_LANES]) + note


def _jobs(measures: Metrics) -> int:
    jobs = measures["jobs"]
    return jobs if isinstance(jobs, int) else 0


def _table(heading: str, first: str, rows: Iterable[tuple[str, Metrics]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in (first, *(title for _, title, _ in _COLUMNS)))
    body = "\n".join(
        f"<tr><td>{escape(name or '(none)')}</td>"
        + "".join(f"<td>{_number(row.get(key), form)}</td>" for key, _, form in _COLUMNS)
        + "</tr>"
        for name, row in rows
    )
    return f"<h2>{heading}</h2>\n<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _number(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else "–"
