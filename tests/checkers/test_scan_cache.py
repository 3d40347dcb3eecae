"""A kept result is given again while nothing has changed, and never otherwise."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from checkers import engine
from checkers.intake import cache
from checkers.model import SourceFile, Tree, Unanalysed

OLD = time.time_ns() - 60_000_000_000
FILES = {
    "a.py": "import subprocess\n\ndef go():\n    subprocess.run(['x'])\n",
    "b.py": "from a import go\ngo()\n",
    "c.py": "x = 1  # execution-ownership: scheduler\n",
    "broken.py": "def broken(:\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path / name, text)
    return tmp_path


def write(path: Path, text: str, changed: int = OLD) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(changed, changed))


def scan(root: Path) -> Tree:
    return engine.scan(engine.Scan(root, jobs=1, cache=root / cache.FOLDER))


def told(tree: Tree) -> object:
    return tree.files, tree.selected, sorted(tree.names), tree.calls


@pytest.fixture
def no_analysis(kept: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("nothing has changed, and files were analysed")

    monkeypatch.setattr(engine, "analyse_files", refuse)


@pytest.fixture
def kept(project: Path) -> Tree:
    return scan(project)


@pytest.mark.usefixtures("no_analysis")
def test_nothing_is_analysed_when_nothing_has_changed(kept: Tree, project: Path) -> None:
    assert told(scan(project)) == told(kept)


def test_a_failure_that_may_be_the_machines_is_not_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = SourceFile("a.py", unanalysed=Unanalysed("a.py", "SRC005", "parser-failed", "a worker was killed"))
    with monkeypatch.context() as once:
        once.setattr(engine, "_find", lambda request, paths: cache.Kept([lost], frozenset(), frozenset()))
        assert scan(project).files == (lost,)
    assert told(scan(project)) == told(engine.scan(engine.Scan(project, jobs=1)))


@pytest.mark.usefixtures("no_analysis")
def test_content_decides_where_only_the_time_has_changed(kept: Tree, project: Path) -> None:
    write(project / "a.py", FILES["a.py"], OLD + 5)
    assert told(scan(project)) == told(kept)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.py", "import os\n\nos.fork()\n"), ("new.py", "import os\nos.fork()\n"), ("broken.py", "def mended(): 1\n")],
)
def test_a_change_is_seen(kept: Tree, project: Path, name: str, text: str) -> None:
    write(project / name, text, OLD + 5)
    assert told(scan(project)) == told(engine.scan(engine.Scan(project, jobs=1))) != told(kept)


def test_a_change_within_the_tick_of_the_cache_is_seen(project: Path) -> None:
    now = time.time_ns()
    write(project / "a.py", "import os\nos.fork()\n", now)
    scan(project)
    write(project / "a.py", "import os\nos.wait()\n", now)  # as long, and no later
    assert not [site for file in scan(project).files for site in file.sites if site.path == "a.py"]


def test_a_file_that_is_gone_is_gone(kept: Tree, project: Path) -> None:
    (project / "b.py").unlink()
    assert "b.py" not in [file.path for file in scan(project).files]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"written": 1}', '{"stamps": {}, "written": 1, "files": [], "calls": []}', "[" * 100_000, "\0"],
)
def test_a_corrupt_cache_is_passed_over_and_written_anew(kept: Tree, project: Path, text: str) -> None:
    (file,) = (project / cache.FOLDER).glob("*.json")
    file.write_text(text, encoding="utf-8")
    assert told(scan(project)) == told(kept)
    assert json.loads(file.read_bytes())["stamps"].keys() == FILES.keys()


@pytest.mark.parametrize(
    "value", [["os.system", "x"], ["Site"], ["tuple", ["Path", "/"]], ["SourceFile", 3], {"a": 1}, 1.5]
)
def test_a_hostile_value_makes_nothing(kept: Tree, project: Path, value: object) -> None:
    (file,) = (project / cache.FOLDER).glob("*.json")
    document = json.loads(file.read_bytes())
    document["files"] = [value]
    file.write_text(json.dumps(document), encoding="utf-8")
    assert told(scan(project)) == told(kept)


def test_another_way_of_asking_is_another_cache(kept: Tree, project: Path) -> None:
    engine.scan(engine.Scan(project, jobs=1, cache=project / cache.FOLDER, by_name=True))
    assert len(list((project / cache.FOLDER).glob("*.json"))) == 2


def test_the_folder_ignores_itself_and_is_cleared(kept: Tree, project: Path) -> None:
    folder = project / cache.FOLDER
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    cache.clear(folder)
    assert not folder.exists()
    cache.clear(project)
    assert (project / "a.py").exists()


def test_a_folder_that_cannot_be_written_costs_nothing(project: Path) -> None:
    (project / cache.FOLDER).write_text("in the way", encoding="utf-8")
    assert scan(project).files
