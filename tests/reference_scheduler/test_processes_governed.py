"""This repository's own check sees to it that nothing but the process service starts processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITES = ("subprocess.Popen(['true'])", "os.posix_spawn('/bin/true', ['true'], {})", "os.fork()")


def test_a_process_that_the_scheduler_starts_elsewhere_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    shutil.copy(ROOT / "manifests" / "scheduler-bypass.toml", tmp_path / "manifests")
    shutil.copytree(ROOT / "reference_scheduler" / "processes", tmp_path / "reference_scheduler" / "processes")
    (tmp_path / "reference_scheduler" / "new.py").write_text("\n".join(("import os, subprocess", *SITES)))
    argv = [sys.executable, "-m", "checkers", "bypass", "--root", str(tmp_path), "--jobs", "1"]
    checked = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 1, checked.stderr
    found = [line for line in checked.stdout.splitlines() if ": BYP001 " in line]
    assert [line.split(":")[:2] for line in found] == [["reference_scheduler/new.py", str(line)] for line in (2, 3, 4)]
    assert "ManagedProcessService is the one place that starts processes" in checked.stdout
