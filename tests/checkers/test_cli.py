"""The commands as a user meets them: every option by an effect, every message whole, on real projects."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from checkers import cli, config, run
from checkers.cli import bypass_main, main, ownership_main
from checkers.report.output import write_file, write_stream
from checkers.schema import report_schema
from tests.checkers.interrupts import INTERRUPTIBLE

ROOT = Path(__file__).parents[2]

OWNERSHIP = "manifests/execution-ownership.toml"
BYPASS = "manifests/scheduler-bypass.toml"

RULES = """\
version = 1
scheduler = ["scheduler/"]
rollout = "{rollout}"
{active}
[[rule]]
id = "direct-process"
targets = ["@process"]
message = "Processes start in the scheduler only."
use = "scheduler.submit"

[[rule]]
id = "direct-exec"
targets = ["@exec"]
message = "Nothing is executed but by the scheduler."
use = "scheduler.submit"
"""

RUN = "import subprocess\n\nsubprocess.run(['true'])\n"


def make(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A project of ``files`` in ``folder``, marked as one by pyproject.toml."""
    for path, content in {"pyproject.toml": "", **files}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a project and goes there."""

    def here(files: Mapping[str, str | bytes]) -> Path:
        folder = make(tmp_path / "project", files)
        monkeypatch.chdir(folder)
        return folder

    return here


@pytest.fixture
def ownership(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs check-ownership in this process: status, standard output, standard error."""
    return lambda *arguments: run_main(ownership_main, capsys, arguments)


@pytest.fixture
def bypass(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs check-bypass in this process: status, standard output, standard error."""
    return lambda *arguments: run_main(bypass_main, capsys, arguments)


def run_main(
    command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> tuple[int, str, str]:
    capsys.readouterr()
    status = command([*arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def spawn(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs ``python -m checkers`` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("environment", {})}
    command = [sys.executable, "-m", "checkers", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, timeout=120, check=False, **{"capture_output": True, **options}
    )


def places(output: str) -> list[str]:
    """``path:line:code`` of each finding line."""
    return [f"{m[1]}:{m[2]}" for m in re.finditer(r"^(\S+:\d+):\d+: ([A-Z]{3}\d{3}) ", output, re.MULTILINE)]


Command = Callable[..., tuple[int, str, str]]
Project = Callable[..., Path]


# Exit status


def test_clean_is_0(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": "print(1)\n"})
    assert ownership() == (0, "no findings, 1 file, 0 sites\n", "")


def test_findings_are_1(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    status, out, err = ownership()
    assert (status, err) == (1, "")
    first, source, marker, *_ = out.splitlines()
    assert first.startswith("a.py:3:12: OWN001 ")
    assert source == "     3 | subprocess.run(['true'])"
    assert marker == "       |            ^^^"
    assert out.endswith("\n1 finding (OWN001 ×1), 1 file, 1 site\n")


def test_2_wins_over_1_and_all_findings_are_printed(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": RUN, "bad.py": "def f(:\n", "z.py": RUN})
    status, out, err = ownership()
    assert (status, err) == (2, "")
    assert places(out) == ["a.py:3:OWN001", "z.py:3:OWN001", "bad.py:1:SRC001"]
    assert out.endswith("\n2 findings (OWN001 ×2), 1 file could not be analysed, 3 files, 2 sites\n")


def test_an_unanalysed_file_that_the_manifest_accepts_is_shown_and_does_not_fail(
    project: Project, ownership: Command
) -> None:
    entry = 'version = 1\n[[unanalysed]]\npath = "bad.py"\nreason = "a template"\n'
    project({OWNERSHIP: entry, "bad.py": "def f(:\n"})
    status, out, _ = ownership()
    assert status == 0
    assert places(out) == ["bad.py:1:SRC001"]
    assert "       = accepted in the manifest: a template\n" in out
    assert out.endswith("\nno findings, 1 unanalysed file accepted in the manifest, 1 file, 0 sites\n")
    _, document, _ = ownership("--output-format", "json")
    assert json.loads(document)["unanalysed"][0]["accepted"] == "a template"


@pytest.mark.parametrize(("tool", "code"), [("ownership", "OWN001"), ("bypass", "BYP001")])
def test_each_command_runs_in_a_process(tmp_path: Path, tool: str, code: str) -> None:
    rules = RULES.format(rollout="mandatory", active="")
    make(
        tmp_path,
        {
            OWNERSHIP: "version = 1\n",
            BYPASS: rules,
            "a.py": RUN,
            "scheduler/__init__.py": "def submit(): 0\n",
        },
    )
    done = spawn(tmp_path, tool)
    assert (done.returncode, done.stderr) == (1, b"")
    assert places(done.stdout.decode()) == [f"a.py:3:{code}"]


# Root, manifest, paths


def test_the_root_is_the_nearest_marked_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (inner := tmp_path / "outer" / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "outer" / "pyproject.toml").touch()
    assert config.find_root(inner) == tmp_path / "outer"
    (tmp_path / "outer" / "inner" / ".git").touch()
    assert config.find_root(inner) == tmp_path / "outer" / "inner"
    (bare := tmp_path / "bare").mkdir()
    if config.find_root(tmp_path) == tmp_path:
        assert config.find_root(bare) == bare
    monkeypatch.chdir(inner)
    assert config.find_root(Path()) == tmp_path / "outer" / "inner"


def test_the_command_finds_the_root_from_below(
    project: Project, ownership: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({OWNERSHIP: "version = 1\n", "pkg/a.py": RUN, "pkg/b.py": RUN})
    monkeypatch.chdir(folder / "pkg")
    assert places(ownership()[1]) == ["pkg/a.py:3:OWN001", "pkg/b.py:3:OWN001"]
    assert places(ownership("b.py")[1]) == ["pkg/b.py:3:OWN001"]


def test_root_option(project: Project, ownership: Command, tmp_path: Path) -> None:
    project({"other/" + OWNERSHIP: "version = 1\n", "other/a.py": RUN, "b.py": RUN})
    assert places(ownership("--root", "other")[1]) == ["a.py:3:OWN001"]
    assert places(ownership("--root", "other", "other/a.py")[1]) == ["a.py:3:OWN001"]
    assert ownership("--root", "none")[2] == (
        "error: Invalid value for '--root': Directory 'none' does not exist; see check-ownership --help\n"
    )
    assert ownership("--root", "b.py")[2] == (
        "error: Invalid value for '--root': Directory 'b.py' is a file; see check-ownership --help\n"
    )


def test_manifest_option(project: Project, ownership: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = 'version = 1\n[[site]]\npath = "a.py"\nowner = "interactive"\nreason = "a shell"\n'
    folder = project({OWNERSHIP: "version = 1\n", "ci/own.toml": owned, "a.py": RUN})
    assert ownership()[0] == 1
    assert ownership("--manifest", "ci/own.toml")[0] == 0
    monkeypatch.chdir(folder / "ci")
    assert ownership("--manifest", "own.toml")[0] == 0
    assert ownership("--manifest", "none.toml") == (
        2,
        "",
        "error: ci/none.toml: cannot be read: No such file or directory\n",
    )


def test_no_manifest_says_how_to_begin(project: Project, ownership: Command, bypass: Command) -> None:
    project({"a.py": RUN})
    for command, name, path, code in (
        (ownership, "check-ownership", OWNERSHIP, "OWN001"),
        (bypass, "check-bypass", BYPASS, "BYP001"),
    ):
        message = (
            f"error: {path}: there is no manifest; begin with a file that holds `version = 1`; `{name} --list-sites` "
            f"shows what it has to speak of, and `{name} --explain {code}` has an example\n"
        )
        assert command() == (2, "", message)
        assert f'```toml title="{path}"\nversion = 1\n' in command("--explain", code)[1]


def test_a_malformed_manifest_is_one_line(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\nroots = [\n", "a.py": RUN})
    message = f"{OWNERSHIP}:2: not valid TOML: Invalid value; here: roots = ["
    assert ownership() == (2, "", f"error: {message}\n")


def test_paths_select_what_is_reported_and_the_manifest_is_always_judged(project: Project, ownership: Command) -> None:
    stale = 'version = 1\n[[site]]\npath = "gone.py"\nowner = "interactive"\nreason = "a shell"\n'
    project({OWNERSHIP: stale, "a.py": RUN, "pkg/b.py": RUN, "pkg/bad.py": "def f(:\n", "c.py": RUN})
    status, out, _ = ownership("a.py", "pkg/b.py")
    assert status == 1
    assert places(out) == ["a.py:3:OWN001", f"{OWNERSHIP}:3:OWN006", "pkg/b.py:3:OWN001"]
    assert out.endswith(" 2 files, 2 sites\n")
    status, out, _ = ownership("pkg")
    assert status == 2
    assert places(out) == [f"{OWNERSHIP}:3:OWN006", "pkg/b.py:3:OWN001", "pkg/bad.py:1:SRC001"]
    assert places(ownership("pkg", ".")[1])[0] == "a.py:3:OWN001"


def test_what_a_selected_file_imports_is_resolved_in_the_others(project: Project, ownership: Command) -> None:
    project(
        {
            OWNERSHIP: "version = 1\n",
            "util.py": "from subprocess import run as launch\n",
            "a.py": "from util import launch\n\nlaunch(['true'])\n",
        }
    )
    assert places(ownership("a.py")[1]) == ["a.py:3:OWN001"]


def test_paths_that_lie_elsewhere(project: Project, ownership: Command, tmp_path: Path) -> None:
    folder = project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    make(tmp_path / "other", {"b.py": RUN})
    advice = "paths count from the working directory: give --root, or another path"
    for given in ("../other/b.py", str(tmp_path / "other" / "b.py"), "..", "../gone/b.py"):
        message = f"error: {given}: lies outside the project root {folder}; {advice}\n"
        assert ownership(given) == (2, "", message)
    assert ownership("none.py") == (2, "", f"error: none.py: no such file or folder below {folder}\n")
    assert places(ownership(str(folder / "a.py"))[1]) == ["a.py:3:OWN001"]
    (tmp_path / "link").symlink_to(folder)
    assert places(ownership(str(tmp_path / "link" / "a.py"))[1]) == ["a.py:3:OWN001"]
    assert places(ownership("--root", str(tmp_path / "link"), str(folder / "a.py"))[1]) == ["a.py:3:OWN001"]


def test_a_path_by_way_of_a_link_is_what_the_link_leads_to(
    project: Project, ownership: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({OWNERSHIP: "version = 1\n", "app/a.py": RUN, "app/deep/b.py": RUN, "c.py": "import app\n"})
    make(tmp_path / "other", {"a.py": RUN})
    for name, target in {"folder": "app", "app/loop": "..", "app/out": "../../other", "app/c.py": "../c.py"}.items():
        (folder / name).symlink_to(target)
    for given, found in {
        "folder": ["app/a.py:3:OWN001", "app/deep/b.py:3:OWN001"],
        "folder/": ["app/a.py:3:OWN001", "app/deep/b.py:3:OWN001"],
        "folder/a.py": ["app/a.py:3:OWN001"],
        "app/loop/folder/deep": ["app/deep/b.py:3:OWN001"],
        "app/loop": ["app/a.py:3:OWN001", "app/deep/b.py:3:OWN001"],
    }.items():
        status, output, errors = ownership(given)
        assert (status, places(output), errors) == (1, found, ""), given
    assert ownership("app/c.py") == (0, "no findings, 1 file, 0 sites\n", "")
    for given in ("app/out", "app/out/a.py", "app/loop/app/out/new.py"):
        status, output, errors = ownership(given)
        assert (status, output) == (2, "")
        assert errors.startswith(f"error: {given}: lies outside the project root {folder}; ")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(RUN.encode())))
    assert places(ownership("--stdin-filename", "folder/a.py")[1]) == ["app/a.py:3:OWN001"]


def test_a_run_over_no_file_says_so(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "README.md": "# Nothing\n", "a.py": RUN})
    warning = "warning: nothing was checked: no Python file among what was asked for\n"
    assert ownership("README.md") == (0, "no findings, 0 files, 0 sites\n", warning)


def test_a_path_that_begins_with_a_dash(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "-a.py": RUN})
    assert places(ownership("--", "-a.py")[1]) == ["-a.py:3:OWN001"]
    assert places(ownership("./-a.py")[1]) == ["-a.py:3:OWN001"]


# Listing


def test_list_sites_needs_no_manifest_and_judges_nothing(project: Project, ownership: Command) -> None:
    source = "import os\n\n\nclass Runner:\n    def start(self):\n        return [os.system]\n\n\nos.fork()\n"
    project({"a.py": source})
    assert ownership("--list-sites") == (
        0,
        "a.py:6:20 reference os.system - Runner.start\na.py:9:4 call os.fork - -\n",
        "",
    )


def test_list_sites_shows_owners(project: Project, ownership: Command) -> None:
    owned = 'version = 1\n[[site]]\npath = "a.py"\nowner = "interactive"\nreason = "a shell"\n'
    annotated = RUN.replace("\n\n", "\n\n# execution-ownership: standalone_compat\n")
    project({OWNERSHIP: owned, "a.py": RUN, "b.py": annotated, "c.py": RUN})
    status, out, err = ownership("--list-sites")
    assert (status, err) == (0, "")
    assert out == (
        "a.py:3:12 call subprocess.run interactive -\n"
        "b.py:4:12 call subprocess.run standalone_compat -\n"
        "c.py:3:12 call subprocess.run - -\n"
    )
    document = json.loads(ownership("--list-sites", "--output-format", "json")[1])
    assert [(site["owner"], site["source"]) for site in document["sites"]] == [
        ("interactive", "manifest"),
        ("standalone_compat", "annotation"),
        (None, None),
    ]
    assert (document["findings"], document["rollout"]) == ([], None)


def test_list_sites_is_2_for_an_unanalysed_file_and_for_a_broken_manifest(project: Project, ownership: Command) -> None:
    folder = project({"a.py": RUN, "bad.py": "def f(:\n"})
    status, out, err = ownership("--list-sites")
    assert (status, err) == (2, "")
    assert out.startswith("a.py:3:12 call subprocess.run - -\nbad.py:1:")
    assert places(out) == ["bad.py:1:SRC001"]
    make(folder, {OWNERSHIP: "version ="})
    message = f"{OWNERSHIP}:1: not valid TOML: Invalid value; here: version ="
    assert ownership("--list-sites") == (2, "", f"error: {message}\n")
    assert ownership("--list-sites", "--manifest", "none.toml") == (
        2,
        "",
        "error: none.toml: cannot be read: No such file or directory\n",
    )


def test_check_bypass_lists_too(project: Project, bypass: Command) -> None:
    project({"a.py": RUN})
    assert bypass("--list-sites") == (0, "a.py:3:12 call subprocess.run - -\n", "")


# Which sites count


def test_kind_replaces_the_kinds_that_count(project: Project, ownership: Command) -> None:
    imports = "import asyncio\nimport os\nimport subprocess\n\n"
    source = imports + "os.execv('a', [])\nsubprocess.run([])\nasyncio.run(0)\n"
    project({OWNERSHIP: "version = 1\n", "a.py": source})
    everything = ["a.py:5:4 call os.execv - -", "a.py:6:12 call subprocess.run - -"]
    assert ownership("--list-sites")[1].splitlines() == everything
    processes = ownership("--list-sites", "--kind", "process")[1].splitlines()
    assert processes == [everything[1]]
    both = ownership("--list-sites", "--kind", "loop", "--kind", "process")[1].splitlines()
    assert both == [everything[1], "a.py:7:9 call asyncio.run - -"]
    assert places(ownership("--kind", "process")[1]) == ["a.py:6:OWN001"]
    assert ownership("--kind", "proces")[2] == (
        "error: Invalid value for '--kind': 'proces' is not one of 'process', 'exec', 'pool', 'thread', "
        "'task', 'loop', 'timer', 'dispatch', 'decorator', 'dynamic'; see check-ownership --help\n"
    )


def test_tier_replaces_the_tiers_that_count(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": "import webbrowser\n\nexec('1')\nwebbrowser.open('x')\n" + RUN})
    core = "a.py:7:12 call subprocess.run - -"
    assert ownership("--list-sites")[1].splitlines() == [core]
    assert ownership("--list-sites", "--tier", "hidden")[1].splitlines() == ["a.py:4:12 call webbrowser.open - -"]
    strict = ownership("--list-sites", "--tier", "core", "--tier", "strict")[1].splitlines()
    assert [line.split()[0] for line in strict] == ["a.py:3:1", "a.py:7:12"]
    assert places(ownership("--tier", "hidden")[1]) == ["a.py:4:OWN001"]


def test_by_name_counts_methods_whose_receiver_is_unseen(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": "from elsewhere import task\n\ntask.delay(1)\n"})
    kinds = ["--kind", "task", "--kind", "dispatch"]
    assert ownership("--list-sites", *kinds) == (0, "", "")
    status, out, _ = ownership("--list-sites", "--by-name", *kinds)
    assert (status, [line.split()[0] for line in out.splitlines()]) == (0, ["a.py:3:6"])
    assert places(ownership("--by-name", *kinds)[1]) == ["a.py:3:OWN001"]


# Rollout


@pytest.mark.parametrize(
    ("declared", "active", "options", "status"),
    [
        ("mandatory", "", [], 1),
        ("observe", "", [], 0),
        ("active", "active = ['direct-exec']", [], 0),
        ("active", "active = ['direct-process']", [], 1),
        ("mandatory", "", ["--rollout", "observe"], 0),
        ("observe", "", ["--rollout", "mandatory"], 1),
        ("mandatory", "active = ['direct-exec']", ["--rollout", "active"], 0),
        ("observe", "active = ['direct-process']", ["--rollout", "active"], 1),
    ],
)
def test_rollout(
    project: Project, bypass: Command, declared: str, active: str, options: list[str], status: int
) -> None:
    rules = RULES.format(rollout=declared, active=active)
    folder = project({BYPASS: rules, "a.py": RUN, "scheduler/__init__.py": "def submit(): 0\n"})
    found, out, err = bypass(*options)
    assert (found, err) == (status, "")
    assert places(out) == ["a.py:3:BYP001"]
    rollout = options[1] if options else declared
    assert ("rollout" in out.splitlines()[-1]) == (status == 0)
    document = json.loads(bypass("--output-format", "json", *options)[1])
    assert document["rollout"] == rollout
    assert document["summary"]["failing"] == status
    make(folder, {"bad.py": "def f(:\n"})
    assert bypass(*options)[0] == 2


def test_rollout_of_check_ownership(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    status, out, _ = ownership("--rollout", "observe")
    assert (status, places(out)) == (0, ["a.py:3:OWN001"])
    assert out.endswith("\n1 finding (OWN001 ×1), 1 file, 1 site (rollout observe: none of them fails)\n")
    assert ownership("--rollout", "mandatory")[0] == 1
    assert ownership("--rollout", "active")[0] == 0
    project({OWNERSHIP: 'version = 1\nrollout = "active"\nactive = ["OWN001"]\n'})
    assert ownership()[0] == 1
    assert ownership("--rollout", "observe")[0] == 0


# Output


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_json_of_a_real_run_matches_the_schema(project: Project, ownership: Command, jobs: str) -> None:
    notebook = {"cells": [{"cell_type": "code", "source": ["!ls\n"], "metadata": {}, "outputs": []}]}
    project(
        {
            OWNERSHIP: "version = 1\n[[site]]\npath = 'gone.py'\nowner = 'x'\n",
            "a.py": RUN,
            "bad.py": "def f(:\n",
            "n.ipynb": json.dumps({**notebook, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
        }
    )
    status, out, err = ownership("--output-format", "json", "--statistics", "--jobs", jobs)
    assert (status, err) == (2, "")
    document = json.loads(out)
    jsonschema.Draft202012Validator(report_schema()).validate(document)
    assert document["files"] == 3
    assert [(site["path"], site["cell"], site["line"], site["api"]) for site in document["sites"]] == [
        ("a.py", None, 3, "subprocess.run"),
        ("n.ipynb", 1, 1, document["sites"][1]["api"]),
    ]
    assert out == ownership("--output-format", "json", "--statistics", "--jobs", "1")[1]


def test_jobs_must_be_positive(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n"})
    assert ownership("--jobs", "0") == (
        2,
        "",
        "error: Invalid value for '--jobs': 0 is not in the range x>=1; see check-ownership --help\n",
    )


def test_a_notebook_place_names_the_cell(project: Project, ownership: Command) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n"], "metadata": {}},
        {"cell_type": "code", "source": ["import os\n", "os.fork()\n"], "metadata": {}, "outputs": []},
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    project({OWNERSHIP: "version = 1\n", "n.ipynb": json.dumps(notebook)})
    lines = ownership()[1].splitlines()
    assert lines[0].startswith("n.ipynb:cell 2:2:4: OWN001 ")
    assert lines[1:3] == ["     2 | os.fork()", "       |    ^^^^"]


def test_statistics(project: Project, ownership: Command) -> None:
    owned = 'version = 1\n[[site]]\npath = "a.py"\nowner = "interactive"\nreason = "a shell"\n'
    project({OWNERSHIP: owned, "a.py": RUN, "b.py": "import os\n\nos.fork()\nos.fork()\n"})
    assert ownership("--quiet", "--statistics")[1].splitlines()[2:] == [
        "findings and unanalysed files by code",
        "     2  OWN001",
        "sites by API",
        "     2  os.fork",
        "     1  subprocess.run",
        "sites by owner",
        "     2  none",
        "     1  interactive",
    ]
    document = json.loads(ownership("--output-format", "json", "--statistics")[1])
    assert document["statistics"] == {
        "by_code": {"OWN001": 2},
        "by_api": {"os.fork": 2, "subprocess.run": 1},
        "by_owner": {"interactive": 1, "none": 2},
    }


def test_statistics_tell_no_owners_where_there_are_none(project: Project, bypass: Command) -> None:
    project({BYPASS: RULES.format(rollout="mandatory", active=""), "a.py": RUN})
    assert bypass("--quiet", "--statistics")[1].splitlines()[1:] == [
        "findings and unanalysed files by code",
        "     1  BYP001",
        "sites by API",
        "     1  subprocess.run",
    ]


def test_quiet(project: Project, ownership: Command) -> None:
    folder = project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    status, out, err = ownership("--quiet")
    assert (status, err, out.count("\n"), places(out)) == (1, "", 1, ["a.py:3:OWN001"])
    (folder / "a.py").write_text("", encoding="utf-8")
    assert ownership("--quiet") == (0, "", "")


def test_verbose_tells_on_standard_error(project: Project, ownership: Command) -> None:
    folder = project({OWNERSHIP: "version = 1\nroots = ['src']\n", "src/a.py": "", "src/b.py": ""})
    status, out, err = ownership("--verbose")
    assert (status, out) == (0, ownership()[1])
    *lines, time = err.splitlines()
    assert lines == [
        f"root: {folder}",
        f"manifest: {OWNERSHIP}",
        "roots: src",
        "files: 2 read, 2 asked for",
        "  src/a.py",
        "  src/b.py",
    ]
    number = r"\d+\.\d\d s"
    assert re.fullmatch(f"time: manifest {number}, scan {number}, rules {number}, report {number}", time)


def test_color(project: Project, ownership: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    plain = ownership()[1]
    assert "\x1b" not in plain
    assert ownership("--color", "never")[1] == plain
    monkeypatch.setenv("NO_COLOR", "1")
    painted = ownership("--color", "always")[1]
    assert painted.startswith("\x1b[1ma.py:3:12\x1b[0m: \x1b[1;31mOWN001\x1b[0m ")
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


@pytest.mark.parametrize(
    ("choice", "is_terminal", "environment", "wanted"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_when_colour_is_wanted(
    choice: str,
    is_terminal: bool,
    environment: dict[str, str],
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert config.wants_color(choice, is_terminal) is wanted


def test_a_terminal_gets_colour(tmp_path: Path) -> None:
    make(tmp_path, {OWNERSHIP: "version = 1\n", "a.py": ""})
    controller, terminal = os.openpty()
    environment = {"NO_COLOR": "", "TERM": "xterm"}
    done = spawn(tmp_path, "ownership", environment=environment, capture_output=False, stdout=terminal, stderr=terminal)
    os.close(terminal)
    assert os.read(controller, 1000).startswith(b"\x1b[1;32mno findings\x1b[0m")
    os.close(controller)
    assert done.returncode == 0


GONE = "error: the working directory is gone; see check-ownership --help\n"


@pytest.mark.parametrize(
    ("arguments", "status", "errors"),
    [
        ((), 2, GONE),
        (("--root", "{root}"), 1, ""),
        (("--root", "{root}", "{root}/a.py"), 1, ""),
        (("--root", "{root}", "a.py"), 2, GONE),
        (("--root", "{root}", "--manifest", "{root}/own.toml"), 1, ""),
        (("--root", "{root}", "--manifest", "own.toml"), 2, GONE),
        (("--root", "{root}", "--stdin-filename", "a.py"), 2, GONE),
        (("--root", "{root}", "--cache-dir", "cache"), 1, ""),
        (
            ("--root", "{root}", "--output-file", "report"),
            2,
            "error: cannot write report: No such file or directory\n",
        ),
    ],
)
def test_a_working_directory_that_is_gone(tmp_path: Path, arguments: tuple[str, ...], status: int, errors: str) -> None:
    root = make(tmp_path / "root", {OWNERSHIP: "version = 1\n", "own.toml": "version = 1\n", "a.py": RUN})
    (tmp_path / "gone").mkdir()
    program = "import os, sys, checkers.cli\nos.rmdir(os.getcwd())\nsys.exit(checkers.cli.ownership_main())"
    asked = [argument.format(root=root) for argument in arguments]
    start = [sys.executable, "-c", program, "--quiet", *asked]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(start, cwd=tmp_path / "gone", env=environment, input="", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, errors)
    assert places(done.stdout) == (["a.py:3:OWN001"] if status == 1 else [])


def test_a_name_too_long_for_any_file_system_is_no_fault_of_standard_output(
    project: Project, ownership: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    project({OWNERSHIP: "version = 1\n"})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x = 1\n")))
    name = "a" * 5000 + ".py"
    assert ownership("--stdin-filename", name) == (0, "no findings, 1 file, 0 sites\n", "")


@pytest.mark.parametrize("options", [(), ("--clear-cache",)])
@pytest.mark.parametrize("folder", [".", "manifests", "../project"])
def test_a_cache_is_kept_in_no_folder_that_holds_other_things(
    project: Project, ownership: Command, folder: str, options: tuple[str, ...]
) -> None:
    """It would be ignored as a whole, and the whole of it cleared."""
    root = project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    before = sorted(root.rglob("*"))
    why = f"--cache-dir: {folder} holds other things: name a new folder, or an empty one"
    told = f"error: {why}; see check-ownership --help\n"
    assert ownership("--cache-dir", folder, *options) == (2, "", told)
    assert sorted(root.rglob("*")) == before
    (root / "empty").mkdir()
    for given in ("empty", "empty", "new/folder"):
        assert ownership("--cache-dir", given, *options)[0] == 1
        assert list((root / given).glob("*.facts"))


def test_output_file(project: Project, ownership: Command) -> None:
    folder = project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    expected = ownership("--output-format", "json")[1]
    (folder / "report.json").write_text("old", encoding="utf-8")
    (folder / "report.json").chmod(0o640)
    assert ownership("--output-format", "json", "--output-file", "report.json") == (1, "", "")
    assert (folder / "report.json").read_text(encoding="utf-8") == expected
    assert stat.S_IMODE((folder / "report.json").stat().st_mode) == 0o640
    assert sorted(path.name for path in folder.iterdir()) == [
        ".spawngate_cache",
        "a.py",
        "manifests",
        "pyproject.toml",
        "report.json",
    ]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("none/report", "No such file or directory"),
        ("a.py/report", "Not a directory"),
        (".", "Is a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("loop/report", "Too many levels of symbolic links"),
        ("a" * 300, "File name too long"),
    ],
)
def test_an_output_file_that_cannot_be_written(project: Project, ownership: Command, file: str, why: str) -> None:
    folder = project({OWNERSHIP: "version = 1\n", "a.py": RUN})
    (folder / "loop").symlink_to("loop")
    assert ownership("--output-file", file) == (2, "", f"error: cannot write {file}: {why}\n")


def test_an_output_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report"
    target.write_text("old", encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left on device"):
        write_file(target, "new")
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_output_file_obeys_the_umask_and_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "link", "one\n")
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "one\n"
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o640


def test_an_output_file_that_is_a_device_stays_one(tmp_path: Path) -> None:
    write_file(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()
    make(tmp_path, {OWNERSHIP: "version = 1\n", "a.py": ""})
    done = spawn(tmp_path, "ownership", "--output-file", "/dev/stdout")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"no findings, 1 file, 0 sites\n", b"")


# Odd names, odd streams


ODD = {
    b"nai\xcc\x88ve \xe6\x97\xa5.py": "nai\u0308ve 日.py",
    b"bytes\xff.py": "bytes\\udcff.py",
    b"two\nlines.py": "two\\nlines.py",
}
"""File names in bytes, and how text shows them."""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A project with odd file names in it."""
    make(tmp_path, {OWNERSHIP: "version = 1\n"})
    for name in ODD:
        (tmp_path / os.fsdecode(name)).write_text(RUN, encoding="utf-8")
    return tmp_path


def test_odd_names_are_one_line_each(odd: Path) -> None:
    done = spawn(odd, "ownership", "--quiet", environment={"PYTHONUTF8": "1"})
    assert (done.returncode, done.stderr) == (1, b"")
    shown = [line.split(":3:12: OWN001 ")[0] for line in done.stdout.decode().splitlines()]
    assert sorted(shown) == sorted(ODD.values())


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_ascii_terminal_gets_ascii(odd: Path, form: str) -> None:
    environment = {"PYTHONIOENCODING": "ascii"}
    done = spawn(odd, "ownership", "--output-format", form, environment=environment)
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.isascii()
    if form == "text":
        assert b"nai\\u0308ve \\u65e5.py:3:12: OWN001" in done.stdout
        assert done.stdout.endswith(b"3 findings (OWN001 x3), 3 files, 3 sites\n")
    else:
        paths = {finding["path"] for finding in json.loads(done.stdout)["findings"]}
        assert paths == {os.fsdecode(name) for name in ODD}


def test_latin_1_keeps_what_it_has(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="latin-1") as stream:
        write_stream(stream, "é × 日 \udcff\n")
    assert (tmp_path / "out").read_bytes() == b"\xe9 \xd7 \\u65e5 \\udcff\n"


def big(folder: Path) -> Path:
    """A project whose report is larger than a pipe holds."""
    return make(folder, {"a.py": "import os\n" + "os.fork()\n" * 3000})


def test_a_reader_that_goes_away_changes_no_verdict(tmp_path: Path) -> None:
    big(tmp_path)
    command = [sys.executable, "-m", "checkers", "ownership", "--list-sites", "--output-format", "json"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_interrupted_is_130(tmp_path: Path) -> None:
    big(tmp_path)
    with subprocess.Popen(
        [*INTERRUPTIBLE, "ownership", "--list-sites", "--output-format", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (130, b"")


def test_a_full_device_is_one_line(tmp_path: Path) -> None:
    make(tmp_path, {OWNERSHIP: "version = 1\n"})
    with Path("/dev/full").open("wb") as full:
        done = spawn(tmp_path, "ownership", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">&-", b"error: cannot write to standard output: it is closed\n"),
        (">&- --help", b"error: cannot write to standard output: it is closed\n"),
        (">&- --version", b"error: cannot write to standard output: it is closed\n"),
        (">&- --explain OWN001", b"error: cannot write to standard output: it is closed\n"),
        ("<&- --stdin-filename a.py", b"error: --stdin-filename: standard input is closed\n"),
        (
            "0>unread --stdin-filename a.py",
            b"error: --stdin-filename: cannot read standard input: Bad file descriptor\n",
        ),
    ],
)
def test_a_closed_stream_is_one_line(tmp_path: Path, redirection: str, message: bytes) -> None:
    make(tmp_path, {OWNERSHIP: "version = 1\n"})
    script = f'"$0" -m checkers ownership {redirection}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", message)


# Standard input


def test_stdin_filename(tmp_path: Path) -> None:
    make(tmp_path, {OWNERSHIP: "version = 1\n", "pkg/a.py": "saved = 1\n", "b.py": RUN})
    done = spawn(tmp_path / "pkg", "ownership", "--stdin-filename", "a.py", input=b"# unsaved\n" + RUN.encode())
    assert (done.returncode, done.stderr) == (1, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("pkg/a.py:4:12: OWN001 ")
    assert lines[1] == "     4 | subprocess.run(['true'])"
    assert lines[-1] == "1 finding (OWN001 ×1), 1 file, 1 site"


def test_stdin_filename_of_a_file_that_is_not_saved_yet(tmp_path: Path) -> None:
    make(tmp_path, {OWNERSHIP: "version = 1\n"})
    done = spawn(tmp_path, "ownership", "--quiet", "--stdin-filename", "new.py", input=RUN.encode())
    assert (done.returncode, places(done.stdout.decode())) == (1, ["new.py:3:OWN001"])
    done = spawn(tmp_path, "ownership", "--quiet", "--stdin-filename", "new.py", input=b"def f(:\n")
    assert (done.returncode, places(done.stdout.decode())) == (2, ["new.py:1:SRC001"])


def test_a_file_named_is_read_as_python_whatever_its_first_line(tmp_path: Path) -> None:
    make(tmp_path, {OWNERSHIP: "version = 1\n", "tool": RUN, "note.txt": RUN, "b.py": ""})
    done = spawn(tmp_path, "ownership", "--quiet", "tool", "note.txt", "b.py")
    assert (done.returncode, places(done.stdout.decode())) == (1, ["tool:3:OWN001"])
    assert done.stderr == b"warning: note.txt: nothing to check there: no Python file, or left out\n"


def test_help_on_a_full_device_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = spawn(tmp_path, "ownership", "--help", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, b"error: cannot write to standard output: No space left on device\n")


@pytest.mark.parametrize("name", ["generated/a.py", "generated/new.py"])
def test_excludes_apply_to_stdin_filename(tmp_path: Path, name: str) -> None:
    make(tmp_path, {OWNERSHIP: 'version = 1\nexclude = ["generated/"]\n', "generated/a.py": RUN})
    done = spawn(tmp_path, "ownership", "--stdin-filename", name, input=RUN.encode())
    warning = b"warning: nothing was checked: no Python file among what was asked for\n"
    assert (done.returncode, done.stderr) == (0, warning)


@pytest.mark.parametrize(("name", "told"), [("", "an empty name"), (".", "."), ("pkg", "pkg")])
def test_stdin_filename_names_a_file(project: Project, ownership: Command, name: str, told: str) -> None:
    project({OWNERSHIP: "version = 1\n", "pkg/a.py": RUN})
    message = f"error: --stdin-filename: {told} is no file: name the file edited; see check-ownership --help\n"
    assert ownership("--stdin-filename", name) == (2, "", message)


def test_stdin_filename_takes_no_paths(project: Project, ownership: Command) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": ""})
    message = "--stdin-filename names the one file to check: give no PATHS beside it"
    assert ownership("--stdin-filename", "a.py", "a.py") == (
        2,
        "",
        f"error: {message}; see check-ownership --help\n",
    )


# Usage, help, version, defects


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frobnicate"], "No such option: --frobnicate"),
        (["--rolout", "observe"], "No such option: --rolout; did you mean --rollout?"),
        (["--manifest"], "Option '--manifest' requires an argument"),
        (["--jobs", "two"], "Invalid value for '--jobs': 'two' is not a valid integer range"),
        (
            ["--output-format", "sarif"],
            "Invalid value for '--output-format': 'sarif' is not one of 'text', 'json'",
        ),
        (["--color", "yes"], "Invalid value for '--color': 'yes' is not one of 'auto', 'always', 'never'"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, bypass: Command) -> None:
    assert bypass(*arguments) == (2, "", f"error: {message}; see check-bypass --help\n")


def test_help_names_every_option_and_no_other(ownership: Command, bypass: Command) -> None:
    options = {
        "--root", "--manifest", "--output-format", "--output-file", "--list-sites", "--rollout",
        "--kind", "--tier", "--by-name", "--jobs", "--no-cache", "--cache-dir", "--clear-cache",
        "--stdin-filename", "--explain",
        "--statistics", "--quiet", "--verbose", "--color", "--version", "--help",
    }  # fmt: skip
    for command, name in ((ownership, "check-ownership"), (bypass, "check-bypass")):
        status, out, err = command("--help")
        assert (status, err) == (0, "")
        assert out.startswith(f"Usage: {name} [OPTIONS] [PATHS]...\n")
        assert set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", out, re.MULTILINE)) == options
        assert "Exit status: 0 clean, 1 findings, 2 " in out
    for check in (run.BYPASS, run.OWNERSHIP):
        undocumented = [
            option.name for option in cli._parameters(check) if isinstance(option, click.Option) and not option.help
        ]
        assert undocumented == []


def test_version(ownership: Command, bypass: Command) -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert declared is not None
    assert ownership("--version") == (0, f"check-ownership {declared[1]}\n", "")
    assert bypass("--version") == (0, f"check-bypass {declared[1]}\n", "")


def test_the_module_as_a_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    usage = "usage: python -m checkers bypass|ownership [OPTIONS] [PATHS]..."
    assert run_main(main, capsys, ("--help",)) == (0, f"{usage}\n", "")
    assert run_main(main, capsys, ()) == (2, "", f"error: no command given; {usage}\n")
    assert run_main(main, capsys, ("owner",)) == (2, "", f"error: there is no command 'owner'; {usage}\n")
    done = spawn(tmp_path, "ownership", "--version")
    assert done.stdout.startswith(b"check-ownership ")


def test_a_defect_of_our_own_is_one_line(project: Project, ownership: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    project({OWNERSHIP: "version = 1\n", "a.py": RUN})

    def broken(*_: object) -> None:
        raise ValueError("odd\nstate")

    monkeypatch.setattr(cli, "run", broken)
    advice = "please report it (SPAWNGATE_DEBUG=1 shows the traceback)"
    line = f"error: internal error: ValueError: odd\\nstate; {advice}\n"
    monkeypatch.delenv("SPAWNGATE_DEBUG", raising=False)
    assert ownership() == (2, "", line)
    monkeypatch.setenv("SPAWNGATE_DEBUG", "1")
    status, out, err = ownership()
    assert (status, out) == (2, "")
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.endswith(f"ValueError: odd\nstate\n{line}")
