"""What plots are drawn from, the pictures themselves, the report, and the commands that make them."""

from __future__ import annotations

import struct
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from reference_scheduler.cli import main
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.events import JobUpdated
from reference_scheduler.core.model import JobSpec, Priority, ResourceRequest
from reference_scheduler.drivers.schedule import metrics
from reference_scheduler.drivers.simulation import simulate, simulation_config
from reference_scheduler.drivers.timeline import Span, Step, Timeline, binned, stack
from reference_scheduler.workloads import SyntheticOptions, TimedJob, Workload, generate, write_jsonl
from reference_scheduler.workloads.model import TimedArray

pytest.importorskip("matplotlib")

from reference_scheduler import plots
from reference_scheduler.report import MOST_LANES, render

S = 1_000_000


def two_workers() -> Workload:
    """``wide`` fills n0, ``late`` has to wait for it, ``small`` goes to n1."""
    rows = [
        ("wide", 5, 10, 4, Priority.NORMAL),
        ("small", 5, 2, 1, Priority.URGENT),
        ("late", 6, 5, 4, Priority.NORMAL),
    ]
    jobs = tuple(
        TimedJob(
            submit * S,
            run * S,
            JobSpec(name, priority=priority, request=ResourceRequest(process_slots=n), estimate_us=run * S),
        )
        for name, submit, run, n, priority in rows
    )
    return Workload((("n0", Resources(process_slots=4)), ("n1", Resources(process_slots=2))), jobs)


def timeline_of(workload: Workload, picker: str = "fcfs") -> Timeline:
    timeline = Timeline()
    simulate(workload, simulation_config(picker), observer=timeline)
    return timeline


def test_a_timeline_has_what_ran_where_and_what_waited() -> None:
    timeline = timeline_of(two_workers())
    assert timeline.workers == {"n0": 4, "n1": 2}
    assert timeline.spans == [
        Span("small", "n1", 1, 5 * S, 7 * S, Priority.URGENT),
        Span("wide", "n0", 4, 5 * S, 15 * S, Priority.NORMAL),
        Span("late", "n0", 4, 15 * S, 20 * S, Priority.NORMAL),
    ]
    assert timeline.steps == [
        Step(5 * S, 0, 5),
        Step(6 * S, 1, 5),
        Step(7 * S, 1, 4),
        Step(15 * S, 0, 4),
        Step(20 * S, 0, 0),
    ]
    assert timeline.waits_us == {Priority.NORMAL: [0, 9 * S], Priority.URGENT: [0]}


def test_bins_keep_the_means_and_the_most() -> None:
    steps = [Step(0, 0, 4), Step(4, 3, 2), Step(5, 1, 0)]
    assert binned(steps, 0, 10, 2) == [(pytest.approx(3.6), pytest.approx(0.6), 3), (0, 1, 1)]


def test_blocks_take_the_lowest_gap_that_is_wide_enough_or_else_several() -> None:
    rows = [("a", 2, 0, 9), ("b", 1, 0, 3), ("c", 2, 0, 9), ("d", 1, 0, 4), ("e", 2, 5, 9), ("f", 0, 5, 9)]
    spans = [Span(name, "n", width, start, end, Priority.NORMAL) for name, width, start, end in rows]
    drawn = [(block.span.job, block.low, block.high) for block in stack({"n": 6}, spans)]
    assert drawn == [("b", 0, 1), ("d", 1, 2), ("a", 2, 4), ("c", 4, 6), ("e", 0, 2)]
    split = [Span("a", "n", 1, 0, 2, Priority.NORMAL), Span("b", "n", 1, 0, 9, Priority.NORMAL)]
    split += [Span("c", "n", 1, 0, 3, Priority.NORMAL), Span("d", "n", 2, 4, 5, Priority.NORMAL)]
    drawn = [(block.span.job, block.low, block.high) for block in stack({"n": 3}, split)]
    assert drawn == [("a", 0, 1), ("c", 1, 2), ("b", 2, 3), ("d", 0, 2)]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 20), processors=st.sampled_from([3, 16]))
def test_no_two_blocks_overlap_and_all_is_drawn(seed: int, processors: int) -> None:
    options = SyntheticOptions(jobs=30, seed=seed, processors=processors, load=2.0, max_run_s=60)
    timeline = timeline_of(generate(options), "easy")
    blocks = stack(timeline.workers, timeline.spans)
    assert sum(block.high - block.low for block in blocks) == sum(s.processors for s in timeline.spans)
    for index, one in enumerate(blocks):
        assert 0 <= one.low < one.high <= processors
        for other in blocks[:index]:
            apart = one.span.start_us >= other.span.end_us or other.span.start_us >= one.span.end_us
            assert apart or one.low >= other.high or other.low >= one.high


@pytest.mark.parametrize(
    ("span_us", "expected"),
    [(0, (S, "s")), (179 * S, (S, "s")), (180 * S, (60 * S, "min")), (3 * 86400 * S, (86400 * S, "d"))],
)
def test_the_unit_of_an_axis_fits_its_length(span_us: int, expected: tuple[float, str]) -> None:
    assert plots.unit_of(span_us) == expected


def svg_texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_picture_names_jobs_workers_classes_units_and_the_mean() -> None:
    timeline = timeline_of(two_workers())
    texts = svg_texts(plots.draw(timeline, "title", "svg"))
    mean = 100 * (40 + 2 + 20) / (6 * 15)
    wanted = {
        "title",
        *("wide", "late", "n0", "n1", "urgent", "normal"),
        *("time since the first submission (s)", "wait from submission to first start (s)"),
        f"Utilisation (dashed: mean {mean:.1f} %)",
        "Queue length (at most 1)",
        "normal: n = 2, mean 4.5 s",
    }
    assert wanted <= set(texts)
    assert plots.draw(timeline, "title", "svg") == plots.draw(timeline, "title", "svg")


def test_a_picture_of_many_jobs_stays_small_and_one_of_none_is_drawn() -> None:
    many = timeline_of(generate(SyntheticOptions(jobs=2500, priorities=tuple(Priority))))
    svg = plots.draw(many, "many", "svg")
    assert len(svg) < 1_000_000
    assert b"data:image/png;base64" in svg
    assert any(text.endswith("line: mean, area: most)") for text in svg_texts(svg))
    nothing = timeline_of(Workload(two_workers().workers, ()))
    assert "Wait by class (no job waited)" in svg_texts(plots.draw(nothing, "nothing", "svg"))


def test_a_timeline_follows_arrays_with_another_priority_and_those_that_are_refused() -> None:
    workers = (("n", Resources(process_slots=1)),)
    spec = JobSpec("a", estimate_us=S, request=ResourceRequest(process_slots=1))
    wide = replace(spec, id="w", request=ResourceRequest(process_slots=2))
    jobs = tuple(TimedJob(0, S, replace(one, id=f"{one.id}[{index}]")) for one in (spec, wide) for index in range(2))
    arrays = {one.id: TimedArray(one, 2, 0) for one in (spec, wide)}
    urgent = JobUpdated(at=S // 2, job=replace(spec, priority=Priority.URGENT), changed=("priority",))
    timeline = timeline_of(Workload(workers, jobs, updates=(urgent,), arrays=arrays))
    assert [(span.job, span.start_us, span.priority) for span in timeline.spans] == [
        ("a[0]", 0, Priority.URGENT),
        ("a[1]", S, Priority.URGENT),
    ]
    assert timeline.steps == [Step(0, 1, 1), Step(S // 2, 1, 1), Step(S, 0, 1), Step(2 * S, 0, 0)]


class Page(HTMLParser):
    """Collects cells of tables, ids, and whatever would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_cell = tag == "td"
        self.loads += [tag] if tag in ("script", "link", "img", "iframe") else []
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:")):
                self.loads.append(value or "")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells.append(data)
            self._in_cell = False


def test_the_report_is_one_page_that_loads_nothing() -> None:
    timeline = Timeline()
    schedule = simulate(two_workers(), simulation_config("fcfs"), observer=timeline)
    text = render("<t>", {"trace": "a & b"}, metrics(schedule, 1.0), timeline)
    page = Page()
    page.feed(text)
    assert page.loads == []
    assert len(page.ids) == len(set(page.ids)) > 0
    assert text.count("<svg") == len(plots.PANELS)
    assert "<title>&lt;t&gt;</title>" in text
    assert "<dd>a &amp; b</dd>" in text
    assert page.cells[:7] == ["all", "3", "3.0", "9.0", "1.13", "68.9%", "15"]
    assert page.cells[7:10] == ["normal", "2", "4.5"]
    assert page.cells[-7:-4] == ["(none)", "3", "3.0"]


def test_the_report_leaves_out_the_smallest_lanes_and_says_so() -> None:
    workload = generate(SyntheticOptions(jobs=300, workspaces=MOST_LANES + 2))
    timeline = Timeline()
    schedule = simulate(workload, simulation_config("fcfs"), observer=timeline)
    assert "<p>2 lanes with fewer jobs are left out.</p>" in render("", {}, metrics(schedule, 1.0), timeline)


@pytest.mark.parametrize("command", ["plot", "simulate"])
def test_the_commands_draw_what_the_name_says(tmp_path: Path, command: str) -> None:
    trace = tmp_path / "two.jsonl"
    write_jsonl(two_workers(), trace)
    option = {"plot": "--out", "simulate": "--plot"}[command]
    for suffix, begins in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!DOCTYPE html>")):
        out = tmp_path / f"picture{suffix}"
        result = CliRunner().invoke(main, [command, str(trace), "--picker", "fcfs", option, str(out)])
        assert (result.exit_code, result.stderr) == (0, "")
        assert out.read_bytes().startswith(begins)
    width, height = struct.unpack(">II", (tmp_path / "picture.png").read_bytes()[16:24])
    assert (width, height) == (1500, 1650)
    assert "two.jsonl, fcfs" in (tmp_path / "picture.html").read_text()


def test_what_cannot_be_drawn_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(main, ["plot", "no such trace", "--out", "a.pdf"])
    assert (result.exit_code, result.stderr) == (2, "error: a.pdf: a plot ends in one of .png, .svg, .html\n")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(main, ["plot", "no such trace", "--out", str(tmp_path / "a.png")])
    assert result.exit_code == 2
    assert result.stderr == "error: plots need matplotlib: pip install 'spawngate[plot]'\n"
