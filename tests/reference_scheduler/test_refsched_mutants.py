"""Defects put into a copy of the core on purpose: fuzzing, or replaying the golden logs, notices each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"

PROGRAM = """
import sys
from pathlib import Path
from reference_scheduler.fuzz.run import run_seed
from reference_scheduler.replay.verify import verify

for log in sorted(Path(sys.argv[1]).glob("*.replay")):
    with log.open("rb") as stream:
        if not verify(stream).same:
            print("verify")
            break
for seed in range(27):
    failure = run_seed(seed, 150).failure
    if failure is not None:
        print("fuzz")
        break
"""


class Mutant(NamedTuple):
    """In ``file``, ``before`` becomes ``after``; ``caught`` are those that must notice."""

    name: str
    file: str
    before: str
    after: str
    caught: str = "verify fuzz"


MUTANTS = (
    Mutant("lost release", "ledger.py", "self.used[worker] = used = used - amount", "self.used[worker] = used"),
    Mutant(
        "skipped exclusivity key",
        "passes.py",
        "and job.keys and self.ledger.held_key(job.keys):",
        "and job.keys and self.ledger.held_key(job.keys[1:]):",
    ),
    Mutant(
        "off-by-one reservation",
        "passes.py",
        "return Reservation(job, max(end_us, self.now_us), free, shares)",
        "return Reservation(job, max(end_us, self.now_us) + 1, free, shares)",
        "verify",
    ),
    Mutant(
        "set iteration",
        "core.py",
        "for job in list(self._jobs.open.values()):",
        "for job in [self._jobs.open[name] for name in set(self._jobs.open)]:",
        "verify",
    ),
    Mutant(
        "wrong class weight",
        "model.py",
        "self.background_weight, self.maintenance_weight)",
        "self.maintenance_weight, self.background_weight)",
        "verify",
    ),
    Mutant("stale token accepted", "core.py", "job.attempt.number != number", "job.attempt.number < 0"),
    Mutant(
        "double dispatch",
        "pickers/base.py",
        "                index = self._take_out(index)\n",
        "                index += 1\n",
    ),
    Mutant(
        "deadline ignored",
        "jobs.py",
        "if job.spec.deadline_us is not None and job.attempts == 0:",
        "if job.spec.deadline_us is not None and job.attempts < 0:",
    ),
    Mutant(
        "aging stored",
        "fair_queue.py",
        "        return max(INTERACTIVE_RANK, lane.rank -",
        "        lane.rank = max(INTERACTIVE_RANK, lane.rank -",
    ),
    Mutant("retry not counted", "jobs.py", "        job.failures += 1\n", ""),
    Mutant("limit not released", "limits.py", "_value(scope, job)] -= 1", "_value(scope, job)] -= 0"),
    Mutant(
        "reservation ignored",
        "passes.py",
        "if not all(fits(amount, extra[worker]) for worker, amount in shares):",
        "if not shares:",
    ),
    Mutant(
        "restart forgets a pass that was cut short",
        "core.py",
        "snapshot.beneficiary, snapshot.unfinished",
        "snapshot.beneficiary, False",
        "fuzz",
    ),
    Mutant("overdrawn budget gives", "amounts.py", "max(a - b, 0)", "abs(a - b)"),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("mutants")
    shutil.copytree(
        ROOT / "reference_scheduler",
        target / "reference_scheduler",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return target


def noticed(copy: Path) -> list[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONHASHSEED": "3",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", PROGRAM, str(GOLDEN)]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_without_a_defect_nothing_is_noticed(copy: Path) -> None:
    assert noticed(copy) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_defect_is_noticed(mutant: Mutant, copy: Path) -> None:
    path = copy / "reference_scheduler" / "core" / mutant.file
    source = path.read_text("utf-8")
    changed = source.replace(mutant.before, mutant.after)
    assert changed != source, "the source has changed: adapt the mutant"
    path.write_text(changed, "utf-8")
    try:
        assert set(mutant.caught.split()) <= set(noticed(copy))
    finally:
        path.write_text(source, "utf-8")
