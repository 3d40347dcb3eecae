"""This repository's own check sees to it that nothing but the process service starts processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITES = ("subprocess.Popen(['true'])", "os.posix_spawn('/bin/true', ['true'], {})", "os.fork()")


def test_a_process_that_the_scheduler_starts_elsewhere_fails_the_check() -> None:
    argv = [sys.executable, "-m", "checkers", "bypass", "--stdin-filename", "reference_scheduler/drivers/live.py"]
    source = "\n".join(("import os, subprocess", *SITES, ""))
    checked = subprocess.run(argv, input=source, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 1, checked.stderr
    assert checked.stdout.count("reference_scheduler/drivers/live.py:") == len(SITES)
    assert "ManagedProcessService is the one place that starts processes" in checked.stdout
