"""The same events give the same chain of hashes, whatever the interpreter was told."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERSIONS = ("3.11", "3.12", "3.13")
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

REPLAY = """
import sys
from pathlib import Path
from reference_scheduler.replay.verify import verify
for log in sorted(Path(sys.argv[1]).glob("*.replay")):
    with log.open("rb") as stream:
        found = verify(stream)
    print(log.stem, found.same, found.events, found.chain.hex())
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


def replayed(interpreter: str, seed: str, *flags: str) -> str:
    """Return what replaying the recorded logs, hash by hash, gives."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [interpreter, *flags, "-c", REPLAY, str(Path(__file__).parent / "golden")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("seed", "flags"),
    [("0", ()), ("1", ()), ("2", ()), ("3", ("-O",)), ("4294967295", ())],
    ids=lambda value: "".join(value),
)
def test_a_recorded_log_gives_the_same_hashes_under_any_seed_and_optimised(seed: str, flags: tuple[str, ...]) -> None:
    lines = [line.split() for line in replayed(sys.executable, seed, *flags).splitlines()]
    assert len(lines) == 10
    assert all(same == "True" for _, same, _, _ in lines)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_log_gives_the_same_hashes_under_every_version_of_python(version: str) -> None:
    assert replayed(interpreter_of(version, "msgspec"), "7") == replayed(sys.executable, "0")


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
    done = subprocess.run([sys.executable, "-O", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("InvariantViolation: still on\n")


def interpreter_of(version: str, modules: str) -> str:
    """Return a Python ``version`` that can import ``modules``: this one, or one named in SPAWNGATE_PYTHONS, or of PATH.

    Skips the test if there is none.
    """
    named = os.environ.get("SPAWNGATE_PYTHONS", "").split(os.pathsep)
    for path in (sys.executable, *filter(None, named), shutil.which(f"python{version}")):
        check = f"import sys, {modules}; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
        if path is not None and subprocess.run([path, "-c", check], capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip(f"no Python {version} that has {modules}")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_python_gives_the_same_hashes(version: str, expected: str) -> None:
    assert chains(interpreter_of(version, "hypothesis, msgspec"), "7") == expected


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
