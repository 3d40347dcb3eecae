"""The importable API does what the package's own documentation shows, and what the commands do."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import checkers
from checkers import engine
from checkers.model import Tree

SITE = "import os\nos.system('x')\n"


def test_the_example_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert doctest.testmod(checkers) == (0, 3)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for path in ("pyproject.toml", "a.py", "pkg/b.py", "pkg/sub/c.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("" if path.endswith("toml") else SITE)
    return tmp_path


def selected(tree: Tree) -> list[str]:
    assert [file.path for file in tree.files if file.sites] == ["a.py", "pkg/b.py", "pkg/sub/c.py"]
    return sorted(tree.selected)


def test_paths_select_and_lead_to_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert selected(checkers.scan([project], jobs=1)) == ["a.py", "pkg/b.py", "pkg/sub/c.py"]
    assert selected(checkers.scan([project / "pkg", str(project / "a.py")], jobs=1)) == [
        "a.py",
        "pkg/b.py",
        "pkg/sub/c.py",
    ]
    assert selected(checkers.scan(project / "pkg" / "sub" / "c.py", jobs=1)) == ["pkg/sub/c.py"]
    monkeypatch.chdir(project / "pkg")
    assert selected(checkers.scan(jobs=1)) == ["a.py", "pkg/b.py", "pkg/sub/c.py"]
    assert selected(checkers.scan("sub", jobs=1)) == ["pkg/sub/c.py"]
    (below,) = checkers.scan(root="sub", jobs=1).files
    assert below.path == "c.py"
    with pytest.raises(engine.LayoutError, match=r"^\.\./a\.py: lies outside the project root"):
        checkers.scan(["../a.py"], root=".", jobs=1)


def test_every_option_reaches_the_scan(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[engine.Scan] = []

    def scan(request: engine.Scan) -> Tree:
        asked.append(request)
        return Tree((), frozenset())

    monkeypatch.setattr(engine, "scan", scan)
    told: list[tuple[int, int]] = []
    with ThreadPoolExecutor(1) as pool:
        checkers.scan(
            [project / "a.py"],
            executor=pool,
            jobs=3,
            cache=project / "kept",
            progress=lambda done, total: told.append((done, total)),
            roots=["src"],
            exclude=["x"],
            targets=["a.b"],
            by_name=True,
        )
    (request,) = asked
    assert (request.root, request.paths, request.roots, request.exclude) == (project, ("a.py",), ("src",), ("x",))
    assert (request.executor, request.jobs, request.cache) == (pool, 3, project / "kept")
    assert (request.targets, request.by_name) == (("a.b",), True)
    assert request.progress is not None
    request.progress(1, 2)
    assert told == [(1, 2)]


def test_importing_the_package_loads_no_analysis_and_its_modules_do_not_hide_the_scan() -> None:
    program = (
        "import sys, checkers; assert not [m for m in sys.modules if m.startswith('checkers.')]; "
        "import checkers.intake.pipeline, checkers.engine; print(checkers.scan.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout == "scan\n"
    assert inspect.isfunction(checkers.scan)
