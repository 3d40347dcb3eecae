"""The benchmark of the scan: what it runs, what it computes, and where it writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import scan as benchmark
from benchmarks.recall import banned_names, ruff_config, write_between_markers
from benchmarks.scan import CHANGED, COLD, RUFF_COLD, WARM, Cost, Result, Run, Tree, alternate, cost_of, middle
from checkers.model import DEFAULT_KINDS, DEFAULT_TIERS


def test_a_run_is_measured_with_its_children_and_its_largest_process(tmp_path: Path) -> None:
    work = "x = b'x' * (80 << 20); sum(range(2_000_000))"
    nested = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"]
    cost = cost_of(Run("nested", nested), tmp_path / "errors")
    assert cost.peak_mib > 80
    small = cost_of(Run("small", [sys.executable, "-I", "-S", "-c", ""]), tmp_path / "errors")
    assert small.peak_mib < 40, "what the benchmark itself holds is not counted"
    assert small.cpu_s < cost.cpu_s


def test_the_memory_of_a_worker_is_that_of_a_child_and_not_of_the_command() -> None:
    work = "x = b'x' * (50 << 20); sum(range(10_000_000))"
    start = f"child = subprocess.Popen([sys.executable, '-c', {work!r}])"
    command = f"import subprocess, sys; {start}; x = b'x' * (100 << 20); child.wait()"
    assert 50 < benchmark.worker_peak_mib([sys.executable, "-c", command]) < 100


def test_a_run_that_fails_is_no_measurement(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with pytest.raises(RuntimeError, match=r"^broken: exit status 1: no such thing"):
        cost_of(Run("broken", command), tmp_path / "errors")
    assert cost_of(Run("fine", command, statuses=frozenset({1})), tmp_path / "errors").wall_s > 0


def test_runs_alternate_and_slow_ones_are_made_once() -> None:
    order: list[str] = []
    runs = [
        Run("a", [], lambda: order.append("before a")),
        Run("b", [], once=True),
        Run("c", []),
    ]

    def measured(run: Run) -> Cost:
        order.append(run.name)
        return Cost(len(order), 0, 0)

    costs = alternate(runs, 2, measured)
    assert order == ["before a", "a", "b", "c", "before a", "a", "c"]
    assert {name: [cost.wall_s for cost in found] for name, found in costs.items()} == {
        "a": [2, 6],
        "b": [3],
        "c": [4, 7],
    }


RESULT = Result(
    "project 1.0",
    files=7,
    size_bytes=1_250_000,
    costs={
        COLD: [Cost(2.0, 3.0, 30.2), Cost(9.0, 4.0, 20.0), Cost(3.0, 8.0, 20.0)],
        RUFF_COLD: [Cost(4.0, 5.0, 10.0)],
        WARM: [],
    },
    worker_mib=48.6,
)


def test_medians_of_time_the_most_of_memory_and_ratios() -> None:
    assert RESULT.median(COLD) == Cost(3.0, 4.0, 30.2)
    assert RESULT.times(COLD, RUFF_COLD) == 0.75
    assert (RESULT.median(WARM), RESULT.times(WARM, COLD), RESULT.median(CHANGED)) == (None, None, None)


def test_the_report_says_what_was_measured_and_leaves_the_rest_empty() -> None:
    text = benchmark.report([RESULT], 3, "Load average 0.1 before, 2.0 at the end")
    assert "Load average 0.1 before, 2.0 at the end. Rounds: 3, medians;" in text
    rows = [line for line in text.splitlines() if line.startswith("| project 1.0")]
    assert rows == [
        "| project 1.0 | 7 | 1.2 | 3.00 | 4.00 | 0.75 |  |  |  | 49 |",
        "| project 1.0 |  |  |  |  |  |  |  |",
        f"| project 1.0 | {COLD} | 3.00 | 4.00 | 30 |",
        f"| project 1.0 | {RUFF_COLD} | 4.00 | 5.00 | 10 |",
    ]


def test_a_part_of_a_page_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    other = "<!-- measured: begin -->\n\nother\n\n<!-- measured: end -->\n"
    page.write_text(f"above\n{other}<!-- scan: begin -->\nold\n<!-- scan: end -->\nbelow\n")
    write_between_markers(page, "new", "scan")
    assert page.read_text() == f"above\n{other}<!-- scan: begin -->\n\nnew\n\n<!-- scan: end -->\nbelow\n"
    text = benchmark.PAGE.read_text(encoding="utf-8")
    marks = [f"<!-- {part}: {end} -->" for part in (benchmark.PART, "measured") for end in ("begin", "end")]
    assert [text.count(mark) for mark in marks] == [1, 1, 1, 1]


def test_ruff_is_given_the_names_that_count_by_default() -> None:
    names = banned_names(DEFAULT_KINDS, DEFAULT_TIERS)
    assert {"subprocess.run", "os.system", "threading.Thread"} < set(names) < set(banned_names())
    assert "webbrowser.open" in set(banned_names()) - set(names), "it is of tier hidden"
    assert '[lint]\nselect = ["S602", "TID251"]\n' in ruff_config(["a.b"], ["S602", "TID251"])
    assert ruff_config(["a.b"], []).splitlines()[-1] == '"a.b".msg = "governed"'


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    project = tmp_path / "project"
    for path, text in {"a.py": "", "b.py": "import os\nos.fork()\n", "pkg/c.py": "import os\nos.popen(1)\n"}.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    (project / "site-packages").mkdir()
    (project / "site-packages" / "d.py").touch()
    work = tmp_path / "work"
    work.mkdir()
    return Tree.copy(project, work)


def test_a_file_of_the_copy_is_changed_and_restored(tree: Tree) -> None:
    assert [path.name for path in tree.sources()] == ["a.py", "b.py", "c.py"]
    copied = tree.root / "b.py"
    before = copied.read_bytes(), copied.stat().st_mtime_ns
    tree.change("b.py")
    changed = copied.read_bytes()
    assert changed.startswith(before[0] + b"\n# changed at ")
    tree.change("b.py")
    assert copied.read_bytes() != changed
    tree.restore("b.py")
    assert (copied.read_bytes(), copied.stat().st_mtime_ns) == before


def test_the_file_that_is_changed_is_the_middle_one_of_those_with_sites(tree: Tree) -> None:
    sites = {"sites": [{"path": path} for path in ("pkg/c.py", "b.py", "pkg/c.py", "n.ipynb")]}
    assert middle(sites, tree.root) == "pkg/c.py"


def test_every_run_can_be_made(tree: Tree) -> None:
    runs = benchmark.runs_on(tree, None)
    costs = alternate(runs, 1, lambda run: cost_of(run, tree.work / "errors"))
    assert [name for name, found in costs.items() if len(found) == 1] == [run.name for run in runs]
    listed, reference = (json.loads((tree.work / name).read_bytes()) for name in ("sites.json", "reference.json"))
    assert [site["api"] for site in reference["sites"]] == ["os.fork", "os.popen"]
    assert listed["sites"] == reference["sites"]
