"""docs/processes.md says what is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reference_scheduler.executors import default_registry
from reference_scheduler.processes.environment import INHERITED, MARK
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.processes.supervisor import Ending

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "processes.md").read_text(encoding="utf-8")
PROGRAMS = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import" in block]


@pytest.mark.parametrize(("number", "printed"), [(0, "spawn_failed None b'' 0\n"), (1, "")])
def test_the_examples_run(number: int, printed: str) -> None:
    argv = [sys.executable, "-W", "error", "-c", PROGRAMS[number].replace("/src/app", "/no/such/folder")]
    run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, printed, "")


def test_the_page_names_every_ending_variable_and_kind() -> None:
    for word in (*Ending, *INHERITED, f"{MARK}OWNER"):
        assert f"`{word}`" in PAGE, word
    registry = default_registry(ManagedProcessService())
    rows = re.findall(r"^\| ([\w, ]+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    shown = {kind: executor for kinds, executor in rows for kind in kinds.split(", ")}
    own = {"managed_argv", "test_run"}
    assert shown == {kind: registry.executor_kind_for_job(kind) for kind in registry.kinds if kind not in own}
