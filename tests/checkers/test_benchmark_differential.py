"""A sample of what ``benchmarks/differential.py`` does with whole projects: every way gives the same bytes."""

from __future__ import annotations

import random
import shutil
import sysconfig
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks import differential
from benchmarks.differential import CHOICES, SEED, SITE, Shuffled, differences, first_difference, ways

REPOSITORY = Path(__file__).parents[2]
STDLIB = Path(sysconfig.get_path("stdlib"))
SAMPLE = random.Random(SEED).sample(sorted(path.name for path in STDLIB.glob("*.py")), 20)
"""Modules of the standard library, beside those that start work and are small."""
STARTERS = ("pty.py", "sched.py", "webbrowser.py", "socketserver.py", "timeit.py")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    for name in {*SAMPLE, *STARTERS}:
        shutil.copy2(STDLIB / name, folder / name)
    return folder


def check(root: Path, choice: str, sites: int) -> None:
    found = [*ways(root, *CHOICES[choice])]
    assert len(found) == 7
    assert found[0][1].count(SITE) >= sites
    assert [f"{way}: {first_difference(before, after)}" for way, before, after in differences(found)] == []


@pytest.mark.parametrize("choice", CHOICES)
def test_the_standard_library(sample: Path, choice: str) -> None:
    check(sample, choice, 5)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(
    "tree", sorted(path.name for path in (REPOSITORY / "fixtures" / "sites").iterdir() if path.is_dir())
)
def test_fixtures(tree: str, choice: str) -> None:
    check(REPOSITORY / "fixtures" / "sites" / tree, choice, 0)


def test_what_only_the_references_parser_refuses_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\n\n(x): int = 1\nos.system('a')\n", encoding="utf-8")
    (tmp_path / "b.py").write_text("import os\n\nos.system('b')\n", encoding="utf-8")
    found = [*ways(tmp_path, *CHOICES["default kinds"])]
    assert found[0][0] == "the reference alone, but for a.py"
    assert found[0][1].count(SITE) == 1
    assert [*differences(found)] == []


def test_what_differs_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def made_up(root: Path, kinds: object, tiers: object) -> Iterable[tuple[str, str]]:
        return [("first", f"{SITE}1\n 2\n"), ("same", f"{SITE}1\n 2\n"), ("other", f"{SITE}1\n 3\n")]

    monkeypatch.setattr(differential, "ways", made_up)
    assert differential.main([str(tmp_path / "p"), "--work", str(tmp_path / "kept")]) == 1
    kept = tmp_path / "kept" / "p-all-kinds-1"
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        "reference.json": f"{SITE}1\n 2\n",
        "other.json": f"{SITE}1\n 3\n",
    }
    assert (
        f"p, all kinds: 1 sites, 3 ways, first\n  DIFFERENT: other: line 2: 2 / 3; see {kept}\n"
        in capsys.readouterr().out
    )
    assert first_difference("a\n", "a\nb\n") == "line 2: (end) / b"


def test_work_is_done_in_another_order_and_its_failure_is_the_futures() -> None:
    begun, all_there = threading.Event(), threading.Event()

    def wait_for_all() -> bool:
        begun.set()
        return all_there.wait(60)

    done: list[int] = []
    with Shuffled() as executor:
        first = executor.submit(wait_for_all)
        assert begun.wait(60)
        futures = [executor.submit(done.append, number) for number in range(9)]
        failing = executor.submit(int, "x")
        all_there.set()
        assert first.result()
        assert isinstance(failing.exception(60), ValueError)
    assert [future.done() for future in futures] == [True] * 9
    assert sorted(done) == [*range(9)]
    assert done != [*range(9)]
