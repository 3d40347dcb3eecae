"""A distribution of its own is installed with pip and used by the command, as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from service_world import ROOT, refsched

from reference_scheduler import plugins
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import JobSpec, ResourceRequest
from reference_scheduler.workloads import TimedJob, Workload, write_jsonl

EXAMPLE = Path(__file__).with_name("plugin_example")
COMMAND = "from reference_scheduler.cli import main; main(prog_name='refsched')"
S = 1_000_000


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the example is installed in; nothing is fetched from anywhere."""
    folder = tmp_path_factory.mktemp("plugin")
    source, target = shutil.copytree(EXAMPLE, folder / "source"), folder / "target"
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--quiet", "install"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *offline, "--target", str(target), str(source)], check=True)
    return target


def workload() -> Workload:
    """``a`` fits on either worker, ``b`` only on n0; then ``narrow`` and ``wide`` wait for it together."""
    rows = [("a", 0, 2), ("b", 0, 4), ("narrow", 1, 3), ("wide", 2, 4)]
    jobs = tuple(
        TimedJob(at * S, 10 * S, JobSpec(name, request=ResourceRequest(process_slots=n), estimate_us=10 * S))
        for name, at, n in rows
    )
    return Workload((("n0", Resources(process_slots=4)), ("n1", Resources(process_slots=2))), jobs)


@pytest.mark.parametrize(
    "arguments", [["serve"], ["run", "true"], ["simulate", "synthetic:jobs=1"], ["journal", "check", "j"]], ids=" ".join
)
def test_a_plugin_that_breaks_as_it_is_imported_is_one_line_whatever_is_asked(
    tmp_path: Path, arguments: list[str]
) -> None:
    folder = tmp_path / "broken-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[spawngate.pickers]\nodd = broken:Odd\n")
    (tmp_path / "broken.py").write_text("print(1 // 0)\n")
    path = os.pathsep.join([ROOT, str(tmp_path)])
    status, out, err = refsched(tmp_path, *arguments, PYTHONPATH=path)
    problem = "ZeroDivisionError: integer division or modulo by zero; mend or uninstall its distribution"
    what = f"spawngate.pickers: 'odd' from broken:Odd cannot be loaded: {problem}"
    assert (status, out) == (125 if arguments[0] == "run" else 2, "")
    assert err.splitlines()[-1].removeprefix("error: ").removeprefix("j: ") == what


@pytest.mark.parametrize(
    ("picker", "allocator", "expected"),
    [
        ("fcfs", "sequential", ["a,0", "b,10", "narrow,20", "wide,30"]),
        ("fcfs", "best-fit", ["a,0", "b,0", "narrow,10", "wide,20"]),
        ("widest", "best-fit", ["a,0", "b,0", "narrow,20", "wide,10"]),
    ],
)
def test_what_is_installed_is_used_by_its_name(
    installed: Path, tmp_path: Path, picker: str, allocator: str, expected: list[str]
) -> None:
    trace, out = tmp_path / "trace.jsonl", tmp_path / "starts.csv"
    write_jsonl(workload(), trace)
    arguments = ["simulate", str(trace), "--picker", picker, "--allocator", allocator, "--starts", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, str(installed)])}
    subprocess.run([sys.executable, "-c", COMMAND, *arguments], check=True, env=environment)
    assert sorted(out.read_text().splitlines()[1:]) == expected


def test_the_documentation_shows_this_example() -> None:
    page = (Path(ROOT) / "docs" / "scheduler.md").read_text(encoding="utf-8")
    groups = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8").partition('[project.entry-points."')[2]
    shown = groups.partition("\n\n[tool")[0]
    assert f'```toml\n[project.entry-points."{shown}\n```' in page
    source = (EXAMPLE / "src" / "spawngate_plugin_example.py").read_text(encoding="utf-8")
    formula = "return -unpack(job.total).process_slots\n"
    assert formula in source
    assert formula in page


def test_a_plugin_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("widest", "no_such_module:WidestPicker", plugins.PICKER_GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    with pytest.raises(plugins.PluginError) as caught:
        plugins.available_pickers()
    assert str(caught.value) == (
        "spawngate.pickers: 'widest' from no_such_module:WidestPicker cannot be loaded: "
        "No module named 'no_such_module'; mend or uninstall its distribution"
    )
