"""What the commands say: generated workloads, and each message on one line with its place."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from reference_scheduler.cli import main
from reference_scheduler.commands.simulation import LONG_RUN
from reference_scheduler.core.model import Priority
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.workloads import SyntheticOptions, WorkloadError, generate, load_workload


def test_a_workload_can_be_generated_on_the_command_line() -> None:
    text = "synthetic:jobs=20,seed=7,load=0.9,priorities=urgent+normal,memory_mb=64"
    options = SyntheticOptions(
        jobs=20, seed=7, load=0.9, priorities=(Priority.URGENT, Priority.NORMAL), memory_mb=64, processors=32
    )
    assert load_workload(text, 32) == generate(options)
    result = CliRunner().invoke(main, ["simulate", text, "--picker", "easy"])
    assert (result.exit_code, json.loads(result.stdout)["jobs"]) == (0, 20)
    assert sorted(json.loads(result.stdout)["classes"]) == ["normal", "urgent"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "say how many jobs, such as synthetic:jobs=1000"),
        ("jobs=0", "jobs must be positive, got 0"),
        ("jobs=x", "Expected `int`, got `str` - at `$.jobs`"),
        ("jobs=1,jobs=2", "'jobs' is given twice; the keys are jobs, seed"),
        ("jobs=1,color=2", "'color' is unknown; the keys are jobs, seed"),
        ("jobs=1,priorities=high", "Invalid enum value 'high' - at `$.priorities[0]`"),
    ],
)
def test_a_malformed_synthetic_workload_is_named(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_workload(f"synthetic:{text}")
    assert str(caught.value).startswith(f"synthetic:{text}: {message}")


def invoke(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run in ``folder``; the output must be one line."""
    result = CliRunner().invoke(main, [*arguments, "--metrics", str(folder / "metrics.json")])
    assert result.stderr.count("\n") == 1
    return result.exit_code, result.stderr.replace(f"{folder}/", "").rstrip()


def test_every_failure_is_one_line_with_its_place(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "twice.swf").write_text("1 0 0 10 1\n1 0 0 10 1\n")
    (folder / "plain.swf.gz").write_text("xx")
    (folder / "torn.swf.gz").write_bytes(gzip.compress(b"1 0 0 10 1\n")[:20])
    (folder / "good.swf").write_text("1 0 0 10 1\n")
    good = str(folder / "good.swf")
    cases = {
        (str(folder / "none.swf"),): "none.swf: No such file or directory",
        (str(folder / "twice.swf"),): "twice.swf: two jobs have the id '1'; ids must be unique",
        (str(folder / "plain.swf.gz"),): "plain.swf.gz: not a whole gzip file: Not a gzipped file (b'xx')",
        (str(folder / "torn.swf.gz"),): "torn.swf.gz: not a whole gzip file: Compressed file ended before "
        "the end-of-stream marker was reached",
        (good, "--starts", str(folder / "no" / "s")): "no/s: No such file or directory",
        (good, "--compare", str(folder / "none.csv")): "none.csv: No such file or directory",
        (good, "--compare", good): "good.swf:1: needs the columns job and start",
    }
    for arguments, message in cases.items():
        assert invoke(folder, "simulate", *arguments) == (2, f"error: {message}")


def shown_on_a_terminal(jobs: int) -> bytes:
    """Return what ``refsched simulate`` writes to a terminal as its standard error."""
    ours, theirs = os.openpty()
    command = "from reference_scheduler.cli import main; main(prog_name='refsched')"
    arguments = ["simulate", f"synthetic:jobs={jobs}", "--picker", "fcfs", "--metrics", os.devnull]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "TERM": "xterm"}
    done = subprocess.run([sys.executable, "-c", command, *arguments], stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:
        pass  # Linux says so when the other end is closed
    os.close(ours)
    assert done.returncode == 0
    return shown


def test_only_long_runs_show_progress_and_only_on_a_terminal() -> None:
    pytest.importorskip("rich")
    assert b"simulating" in shown_on_a_terminal(LONG_RUN)
    assert shown_on_a_terminal(10) == b""
    result = CliRunner().invoke(main, ["simulate", f"synthetic:jobs={LONG_RUN}", "--picker", "fcfs"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_the_documentation_names_every_picker_and_every_key_of_a_generated_workload() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scheduler.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [name for name in PICKERS if not any(row.startswith(f"| `{name}` |") for row in rows)] == []
    generated = next(row for row in rows if row.startswith("| `synthetic:"))
    keys = SyntheticOptions.__struct_fields__
    assert [key for key in keys if f"`{key}`" not in generated] == []


WINDOWS = """
import os, signal, sys
import asyncio, concurrent.futures.process, gzip, json, multiprocessing, shutil, subprocess, tempfile, uuid
import click, msgspec
for name in ("fcntl", "grp", "pwd", "resource"):
    sys.modules[name] = None
for module, name in ((os, "fork"), (os, "posix_spawn"), (signal, "SIGKILL"), (signal, "SIGHUP")):
    delattr(module, name)
sys.platform = "win32"
from reference_scheduler.__main__ import main
main()
"""
"""Starts refsched without what Windows does not have."""


def on_windows(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Return exit status, output and errors of a command as it would run there."""
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


def test_simulation_and_replay_need_nothing_that_windows_does_not_have(tmp_path: Path) -> None:
    simulated = on_windows(tmp_path, "simulate", "synthetic:jobs=20", "--record", "run.replay")
    assert (simulated[0], json.loads(simulated[1])["jobs"], simulated[2]) == (0, 20, "")
    status, verified, _ = on_windows(tmp_path, "verify", "run.replay")
    assert (status, " replay as recorded, " in verified) == (0, True)
    status, dumped, _ = on_windows(tmp_path, "dump", "run.replay", "--format", "jsonl")
    assert (status, all(map(json.loads, dumped.splitlines()))) == (0, True)
    assert on_windows(tmp_path, "fuzz", "--seed", "1", "--events", "100")[0] == 0


def test_what_windows_cannot_do_is_said(tmp_path: Path) -> None:
    assert on_windows(tmp_path, "serve") == (2, "", "error: serve needs Linux or macOS; see refsched --help\n")
    status, listed, _ = on_windows(tmp_path, "--help")
    assert status == 0
    commands = [line.split()[0] for line in listed.partition("Commands:\n")[2].splitlines()]
    assert commands == ["dump", "fuzz", "plot", "simulate", "verify"]
    library = WINDOWS.partition("from reference")[0] + "import reference_scheduler.scheduler"
    done = subprocess.run([sys.executable, "-c", library], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: the live scheduler needs Linux or macOS; see docs/processes.md"
    )


def test_a_misspelt_command_is_told_what_it_resembles() -> None:
    result = CliRunner().invoke(main, ["smulate"])
    assert (result.exit_code, result.stderr) == (
        2,
        "error: No such command 'smulate'. (Did you mean one of: 'simulate', 'update'?); see refsched --help\n",
    )


@pytest.mark.parametrize("name", sorted(main.commands))
def test_each_command_is_where_the_group_looks_for_it(name: str) -> None:
    assert main.commands[name].name == name
