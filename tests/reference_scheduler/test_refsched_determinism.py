"""The same events give the same chain of hashes, whatever the interpreter was told."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "reference_scheduler" / "core"

PROGRAM = """
import random
from scheduler_world import KINDS, PICKER_NAMES, play
for index, picker in enumerate(PICKER_NAMES):
    draw = random.Random(index)
    history = [(draw.choice(KINDS), *(draw.randrange(64) for _ in "abc")) for _ in range(120)]
    print(picker, play(index * 5, history, picker).core.chain.hex())
"""

IMPURE = {
    "asyncio", "datetime", "io", "multiprocessing", "os", "pathlib", "random", "secrets", "socket",
    "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip


def chains(interpreter: str, seed: str, *flags: str) -> str:
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    command = [interpreter, *flags, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def expected() -> str:
    return chains(sys.executable, "0")


@pytest.mark.parametrize("seed", ["1", "2", "3", "4294967295"])
def test_the_seed_of_hashes_does_not_matter(seed: str, expected: str) -> None:
    assert chains(sys.executable, seed) == expected
    assert len(set(expected.split())) == 18


def test_invariants_and_hashes_are_the_same_when_optimised(expected: str) -> None:
    assert chains(sys.executable, "0", "-O") == expected
    program = "from reference_scheduler.core.invariants import invariant; invariant(False, 'still on')"
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.endswith("InvariantViolation: still on\n")


def other_pythons() -> list[str]:
    """Return the interpreters named in SPAWNGATE_PYTHONS or found on the path that can run the core."""
    named = os.environ.get("SPAWNGATE_PYTHONS", "").split(os.pathsep)
    found = [path for name in ("python3.11", "python3.12", "python3.13") if (path := shutil.which(name))]
    return [path for path in dict.fromkeys([*named, *found]) if path and can_run(path)]


def can_run(interpreter: str) -> bool:
    if shutil.which(interpreter) is None:
        return False
    check = [interpreter, "-c", "import hypothesis, msgspec"]
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


def test_every_version_of_python_gives_the_same_hashes(expected: str) -> None:
    others = other_pythons()
    if not others:
        pytest.skip("no other interpreter with the dependencies")
    for interpreter in others:
        assert chains(interpreter, "7") == expected


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_the_core_imports_nothing_that_has_a_clock_io_randomness_or_threads(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] not in IMPURE
            assert not name.startswith("reference_scheduler.") or name.startswith("reference_scheduler.core")
        assert not isinstance(node, ast.Assert), "a bare assert is off under -O; use invariant"
