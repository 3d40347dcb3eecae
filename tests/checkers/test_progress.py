"""The bar: late, on a terminal only, gone at the end, and never part of what is printed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from checkers import progress
from checkers.progress import Bar

CHECKOUT = Path(__file__).parents[2]
COMMAND = "from checkers import cli, progress; progress.DELAY_S = 0; raise SystemExit(cli.ownership_main())"
"""The command, with a bar that does not wait."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    for number in range(40):
        (tmp_path / f"plain{number:02}.py").write_text("import os\nos.system('x')\n")
    return tmp_path


def run_on_a_terminal(project: Path, *options: str, **variables: str) -> tuple[str, bytes]:
    """Standard output, and what was written to a terminal as standard error."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "NO_COLOR")}
    command = [sys.executable, "-c", COMMAND, "--list-sites", "--jobs", "1", *options]
    with subprocess.Popen(
        command,
        cwd=project,
        env={**environment, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm", "COLUMNS": "80", **variables},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass  # Linux says so when the other end is closed
        os.close(ours)
        assert process.stdout is not None
        printed = process.stdout.read()
    assert process.returncode == 0, shown
    return printed, shown


def test_a_long_cold_run_shows_how_far_it_is_and_leaves_nothing(project: Path) -> None:
    printed, shown = run_on_a_terminal(project)
    assert b"reading files" in shown
    assert b"/40" in shown
    assert shown.endswith(b"\x1b[?25h\r\x1b[1A\x1b[2K"), "the cursor is back, and the line is blank"
    assert (printed.count("os.system"), printed.count("reading")) == (40, 0)


def test_a_warm_run_has_nothing_to_show(project: Path) -> None:
    cold, _ = run_on_a_terminal(project)
    assert run_on_a_terminal(project) == (cold, b"")


@pytest.mark.parametrize(("options", "variables"), [(["--quiet"], {}), ([], {"CI": "true"})])
def test_nobody_looks(project: Path, options: list[str], variables: dict[str, str]) -> None:
    assert run_on_a_terminal(project, *options, **variables)[1] == b""


def test_a_standard_error_that_is_no_terminal_shows_nothing(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "--list-sites", "--jobs", "1"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""


def test_it_waits_and_then_moves_ten_times_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([10.0, 10.9, 11.0, 11.05, 11.1])
    told = []
    with Bar(lambda: next(times)) as bar:
        for done in (1, 2, 3, 4):
            bar(done, 9)
            told.append(None if bar._shown is None else bar._shown[0].tasks[0].completed)
    assert told == [None, 2, 2, 4]
    assert progress.DELAY_S == 1
    capsys.readouterr()
