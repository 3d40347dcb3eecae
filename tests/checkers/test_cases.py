"""The shared cases, where they are beside the checkout: every tree gives exactly the sites it must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[3] / "shared" / "cases" / "run.py"


@pytest.mark.skipif(not CASES.is_file(), reason="no shared cases beside this checkout")
def test_all_shared_cases_are_right() -> None:
    command = f"{sys.executable} -m checkers ownership"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(
        [sys.executable, CASES, "--command", command],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    right, _, total = run.stdout.splitlines()[-1].split()[:3]
    assert (right, run.returncode) == (total, 0), run.stdout
