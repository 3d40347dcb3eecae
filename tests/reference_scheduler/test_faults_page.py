"""The table of faults in ``docs/live.md``: complete, and each test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "live.md"


def test_every_fault_of_a_live_scheduler_names_tests_that_exist() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Faults\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \|[^|]+\| (.*) \|$", section, re.MULTILINE)
    assert [int(number) for number, _ in rows] == [*range(1, 25), *range(31, 35)]
    for number, shown in rows:
        named = re.findall(r"`(\w+)::(\w+)`", shown)
        assert named, number
        for file, name in named:
            tree = ast.parse((FOLDER / f"test_{file}.py").read_text(encoding="utf-8"))
            tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert f"test_{name}" in tests, (number, file, name)
