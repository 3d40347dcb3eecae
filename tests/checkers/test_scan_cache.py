"""What was found is given again while nothing has changed, and never otherwise."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from checkers import catalog, engine, finding
from checkers.facts.model import Broken
from checkers.intake import cache, pipeline, workers
from checkers.model import Tree
from checkers.resolve.sites import SiteFinder

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

    monkeypatch.setattr(finding, "analyse_files", refuse)
    monkeypatch.setattr(finding, "look_at_files", refuse)


@pytest.fixture
def kept(project: Path) -> Tree:
    return scan(project)


@pytest.mark.usefixtures("no_analysis")
def test_nothing_is_analysed_when_nothing_has_changed(kept: Tree, project: Path) -> None:
    assert told(scan(project)) == told(kept)


REFUSING = """
import sys
from pathlib import Path
from checkers import engine, finding
from checkers.intake import cache
root = Path(sys.argv[1])
if sys.argv[2] == "refuse":
    del finding.analyse_files, finding.look_at_files
tree = engine.scan(engine.Scan(root, cache=root / cache.FOLDER))
print([(site.path, site.line, site.api) for file in tree.files for site in file.sites])
"""


def test_what_one_process_kept_another_finds_whatever_its_hashes(project: Path) -> None:
    told = []
    for seed, what in (("1", "scan"), ("2", "refuse"), ("3", "refuse")):
        command = [sys.executable, "-c", REFUSING, str(project), what]
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        told.append(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    assert told == ["[('a.py', 4, 'subprocess.run')]\n"] * 3


def test_a_failure_that_may_be_the_machines_is_not_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def analyse_files(job: pipeline.Job, sources: Sequence[pipeline.Source], *rest: Any) -> Iterator[pipeline.Answer]:
        for answer in workers.analyse_files(job, sources, *rest):
            if answer.path == "a.py":
                killed = pipeline.Analysed("a.py", None, Broken("SRC005", "a worker was killed", 1, 1))
                answer = answer._replace(packed=pipeline.pack(killed), summary=None)
            yield answer

    with monkeypatch.context() as once:
        once.setattr(finding, "analyse_files", analyse_files)
        broken = [(file.path, file.unanalysed.code) for file in scan(project).files if file.unanalysed]
        assert broken == [("a.py", "SRC005"), ("broken.py", "SRC001")]
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


def test_a_change_that_keeps_size_and_time_is_seen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an archive, ``cp -p``, ``rsync -t`` or ``touch -d`` leave it."""
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 60_000_000_000)
    kept = scan(project)
    write(project / "a.py", FILES["a.py"].replace(".run", ".Run"))
    assert told(scan(project)) == told(engine.scan(engine.Scan(project, jobs=1))) != told(kept)


def test_a_file_that_is_gone_is_gone(kept: Tree, project: Path) -> None:
    (project / "b.py").unlink()
    assert "b.py" not in [file.path for file in scan(project).files]


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", b"{}", b"\x94\xa0\x00\x80\x90", b"\x91" * 100_000, b"\x93\xa1x\x00\x80"]
)
@pytest.mark.parametrize("is_summed", [False, True])
def test_a_corrupt_cache_is_passed_over_and_written_anew(
    kept: Tree, project: Path, data: bytes, is_summed: bool
) -> None:
    (file,) = (project / cache.FOLDER).glob("*.facts")
    file.write_bytes(sealed(data) if is_summed else data)
    assert told(scan(project)) == told(kept)
    assert cache.unpack(file.read_bytes()).records.keys() == FILES.keys()


def sealed(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big") + data


def test_a_cache_that_was_cut_short_is_passed_over(kept: Tree, project: Path) -> None:
    (file,) = (project / cache.FOLDER).glob("*.facts")
    whole = file.read_bytes()
    for end in range(4, len(whole), len(whole) // 12):
        for broken in (whole[:end], sealed(whole[4:end])):
            file.write_bytes(broken)
            assert told(scan(project)) == told(kept)


def test_a_single_bit_that_has_changed_spoils_a_cache(kept: Tree, project: Path) -> None:
    """It could be that of a line, or turn one name into another."""
    (file,) = (project / cache.FOLDER).glob("*.facts")
    whole = file.read_bytes()
    for bit in range(0, 8 * len(whole), 5):
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="the checksum is another one"):
            cache.unpack(bytes(spoilt))
    file.write_bytes(spoilt)
    assert told(scan(project)) == told(kept)
    assert cache.unpack(file.read_bytes()).records.keys() == FILES.keys()


def test_facts_that_no_front_end_wrote_are_passed_over(project: Path) -> None:
    """Numbers that lead nowhere are met only when they are used: when a new file has all resolved again."""
    whole = scan(project)
    (file,) = (project / cache.FOLDER).glob("*.facts")
    document = cache.unpack(file.read_bytes())
    analysed = pipeline.unpack(document.records["a.py"].packed)
    assert analysed.facts is not None
    hostile = msgspec.structs.replace(analysed.facts, functions=(), classes=())
    packed = pipeline.pack(analysed._replace(facts=hostile))
    document.records["a.py"].packed = memoryview(packed)
    file.write_bytes(b"".join(cache.pack(document)))
    write(project / "new.py", FILES["b.py"])
    assert told(scan(project)) == told(engine.scan(engine.Scan(project, jobs=1)))
    assert {file.path for file in whole.files} == FILES.keys()


@pytest.mark.parametrize(
    "packed", [b"", b"x", zlib.compress(b""), zlib.compress(b"\xc0"), zlib.compress(b"\xc0" * 99)[:-4]]
)
def test_facts_that_cannot_be_unpacked_are_passed_over(project: Path, packed: bytes) -> None:
    scan(project)
    (file,) = (project / cache.FOLDER).glob("*.facts")
    document = cache.unpack(file.read_bytes())
    document.records["a.py"].packed = memoryview(packed)
    file.write_bytes(b"".join(cache.pack(document)))
    write(project / "new.py", FILES["b.py"])
    assert told(scan(project)) == told(engine.scan(engine.Scan(project, jobs=1)))


@pytest.mark.parametrize("name", ["../elsewhere.py", "..", "", "."])
@pytest.mark.parametrize("kind", ["folders", "sources"])
def test_a_folder_that_holds_what_lies_elsewhere_is_passed_over(
    kept: Tree, project: Path, name: str, kind: str
) -> None:
    (project.parent / "elsewhere.py").write_text("import os\nos.fork()\n", encoding="utf-8")
    (file,) = (project / cache.FOLDER).glob("*.facts")
    document = cache.unpack(file.read_bytes())
    folders = msgspec.to_builtins(document.folders)
    folders[""][2 if kind == "folders" else 3] = [name]
    document.folders = folders
    file.write_bytes(b"".join(cache.pack(document)))
    with pytest.raises(ValueError, match="does not lie in the folder"):
        cache.unpack(file.read_bytes())
    assert told(scan(project)) == told(kept)


def test_facts_too_large_to_be_kept_are_known_to_one_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of a cache is bounded, and so is what is written."""
    with monkeypatch.context() as small:
        small.setattr(pipeline, "_MOST_BYTES", 100)
        assert told(scan(project)) == told(engine.scan(engine.Scan(project, jobs=1)))
    (file,) = (project / cache.FOLDER).glob("*.facts")
    assert "a.py" not in cache.unpack(file.read_bytes()).records
    scan(project)
    document = cache.unpack(file.read_bytes())
    monkeypatch.setattr(pipeline, "_MOST_BYTES", 100)
    with pytest.raises(ValueError, match="too many"):
        pipeline.unpack(document.records["a.py"].packed)


def test_a_record_of_which_nothing_was_found_is_passed_over(kept: Tree, project: Path) -> None:
    """A file that would be in no report would pass in silence."""
    (file,) = (project / cache.FOLDER).glob("*.facts")
    document = cache.unpack(file.read_bytes())
    document.records["a.py"].file = None
    file.write_bytes(b"".join(cache.pack(document)))
    assert told(scan(project)) == told(kept)


def test_a_record_that_speaks_of_another_file_is_passed_over(kept: Tree, project: Path) -> None:
    """A report shows lines of the files that it names."""
    (file,) = (project / cache.FOLDER).glob("*.facts")
    document = cache.unpack(file.read_bytes())
    honest = document.records["a.py"].file
    assert honest is not None
    (site,) = honest.sites
    document.records["a.py"].file = replace(honest, sites=(replace(site, path="../elsewhere.py"),))
    file.write_bytes(b"".join(cache.pack(document)))
    assert told(scan(project)) == told(kept)


def test_what_was_written_while_the_scan_went_on_is_looked_at_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_ns: list[int] = []

    def analyse_files(job: pipeline.Job, sources: Sequence[pipeline.Source], *rest: Any) -> Iterator[pipeline.Answer]:
        read_ns.append(time.time_ns())
        return workers.analyse_files(job, sources, *rest)

    monkeypatch.setattr(finding, "analyse_files", analyse_files)
    scan(project)
    (file,) = (project / cache.FOLDER).glob("*.facts")
    assert cache.unpack(file.read_bytes()).written <= read_ns[0]


def test_another_way_of_asking_is_another_cache(kept: Tree, project: Path) -> None:
    engine.scan(engine.Scan(project, jobs=1, cache=project / cache.FOLDER, by_name=True))
    assert len(list((project / cache.FOLDER).glob("*.facts"))) == 2


def test_what_nobody_asks_for_any_more_is_removed(kept: Tree, project: Path) -> None:
    """Each edit of a manifest's targets, say, is another way of asking."""
    (in_use,) = (project / cache.FOLDER).glob("*.facts")
    old = [project / cache.FOLDER / name for name in ("0.facts", "0.catalogue", ".tmp-0", "0.run")]
    (catalogue,) = (project / cache.FOLDER).glob("*.catalogue")
    days = time.time() - 31 * 24 * 60 * 60
    for path in (*old, project / cache.FOLDER / "1.facts"):
        path.touch()
    for path in (*old, in_use):
        os.utime(path, (days, days))
    scan(project)
    assert in_use.stat().st_mtime > days
    write(project / "a.py", "import os\n", OLD + 5)
    scan(project)
    left = {path.name for path in (project / cache.FOLDER).iterdir()}
    assert left == {in_use.name, catalogue.name, "1.facts", "CACHEDIR.TAG", ".gitignore"}


def test_the_folder_ignores_itself_and_is_cleared(kept: Tree, project: Path) -> None:
    folder = project / cache.FOLDER
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in (".gitignore", "CACHEDIR.TAG")} == {0o644}
    cache.clear(folder)
    assert not folder.exists()
    cache.clear(project)
    assert (project / "a.py").exists()


@pytest.mark.parametrize("held", ["a.py", "inner/a.py", ".git/HEAD"])
def test_a_folder_that_holds_other_things_is_neither_hidden_nor_cleared(tmp_path: Path, held: str) -> None:
    (tmp_path / held).parent.mkdir(exist_ok=True)
    write(tmp_path / held, FILES["a.py"])
    before = sorted(tmp_path.rglob("*"))
    found = engine.scan(engine.Scan(tmp_path, jobs=1, cache=tmp_path))
    assert told(found) == told(engine.scan(engine.Scan(tmp_path, jobs=1)))
    cache.clear(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_only_what_is_of_the_cache_is_cleared(project: Path) -> None:
    folder = project / "own"
    engine.scan(engine.Scan(project, jobs=1, cache=folder))
    for name in ("0.run", "0.run.17", ".tmp-0", "notes"):
        (folder / name).touch()
    (folder / ".gitignore").write_text("notes\n", encoding="utf-8")
    cache.clear(folder)
    assert {path.name for path in folder.iterdir()} == {"notes", ".gitignore"}
    assert cache.is_foreign(folder)
    (folder / "notes").unlink()
    assert not cache.is_foreign(folder)


def test_a_link_in_the_place_of_the_cache_leads_to_nothing_of_ours(project: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    (other / "notes").touch()
    (project / cache.FOLDER).symlink_to(other)
    engine.scan(engine.Scan(project, jobs=1, cache=project / cache.FOLDER))
    cache.clear(project / cache.FOLDER)
    assert [path.name for path in other.iterdir()] == ["notes"]


def test_a_cache_folder_of_an_impossible_name_is_none(project: Path) -> None:
    folder = project / ("x" * 300)
    cache.clear(folder)
    assert not cache.is_foreign(folder)
    assert engine.scan(engine.Scan(project, jobs=1, cache=folder)).files


def test_another_tools_cache_is_not_cleared(project: Path) -> None:
    folder = project / "target"
    folder.mkdir()
    tag = "Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag created by cargo.\n"
    (folder / "CACHEDIR.TAG").write_text(tag, encoding="utf-8")
    (folder / "0.run").touch()
    cache.clear(folder)
    assert {path.name for path in folder.iterdir()} == {"CACHEDIR.TAG", "0.run"}


def test_a_folder_that_cannot_be_written_costs_nothing(project: Path) -> None:
    (project / cache.FOLDER).write_text("in the way", encoding="utf-8")
    assert scan(project).files


# --- what is resolved again ----------------------------------------------------------------------------------------

CHAIN = {
    "base.py": "import subprocess\n\nlaunch = subprocess.run\n\ndef plain():\n    return 1\n",
    "middle.py": "from base import launch, plain\n",
    "use.py": "import middle\n\nmiddle.launch('x')\n",
    "apart.py": "import os\n\nos.system('x')\n",
}


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    for name, text in CHAIN.items():
        write(tmp_path / name, text)
    scan(tmp_path)
    return tmp_path


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    find = SiteFinder.sites

    def sites(self: SiteFinder, analysed: pipeline.Analysed) -> Any:
        paths.append(analysed.path)
        return find(self, analysed)

    monkeypatch.setattr(SiteFinder, "sites", sites)
    return paths


@pytest.mark.parametrize(
    ("name", "text", "again"),
    [
        ("base.py", CHAIN["base.py"].replace("return 1", "x = len('x')\n    subprocess.call('x')"), ["base.py"]),
        ("base.py", "\n\n" + CHAIN["base.py"], ["base.py"]),
        ("base.py", CHAIN["base.py"].replace(".run", ".call"), ["base.py", "middle.py", "use.py"]),
        ("use.py", CHAIN["use.py"] + "x = 1\n", ["use.py"]),
        ("apart.py", "import sys\n", []),
    ],
)
def test_only_what_a_change_can_concern_is_resolved_again(
    chain: Path, resolved: list[str], name: str, text: str, again: list[str]
) -> None:
    write(chain / name, text, OLD + 5)
    found = told(scan(chain))
    assert sorted(resolved) == sorted(again)
    assert found == told(engine.scan(engine.Scan(chain, jobs=1)))


@pytest.mark.parametrize(
    ("between", "use"),
    [
        ("from base import launch\n", "import middle\nmiddle.launch('x')\n"),
        ("from base import *\n", "from middle import *\nlaunch('x')\n"),
        ("import base\n", "import middle\nmiddle.base.launch('x')\n"),
        ("import base\n\ndef given() -> base.Held: ...\n", "import middle\nmiddle.given().launch('x')\n"),
        ("import base\n\nclass Made(base.Held):\n    pass\n", "import middle\nmiddle.Made().launch('x')\n"),
    ],
)
def test_what_is_behind_a_file_is_remembered_when_the_file_itself_is_read_again(
    chain: Path, between: str, use: str
) -> None:
    """It uses nothing of what it passes on, so that resolving it alone looks behind nothing."""
    base = "import subprocess\n\nlaunch = subprocess.run\n\nclass Held:\n    launch = subprocess.run\n"
    for name, text in {"base.py": base, "middle.py": between, "use.py": use}.items():
        write(chain / name, text, OLD + 5)
    scan(chain)
    for later in (6, 7):
        write(chain / "middle.py", "\n" * later + between, OLD + later)
        scan(chain)
    write(chain / "base.py", base.replace(".run", ".call"), OLD + 8)
    found = scan(chain)
    assert [site.api for file in found.files for site in file.sites if site.path == "use.py"] == ["subprocess.call"]
    assert told(found) == told(engine.scan(engine.Scan(chain, jobs=1)))


def test_an_unsaved_buffer_is_resolved_alone_and_not_kept(chain: Path, resolved: list[str]) -> None:
    buffer = ("use.py", b"import middle\nmiddle.launch('x')\nmiddle.plain()\n")
    asked = engine.Scan(chain, paths=("use.py",), jobs=1, stdin=buffer, cache=chain / cache.FOLDER)
    (site,) = [site for file in engine.scan(asked).files for site in file.sites if site.path == "use.py"]
    assert (site.line, site.api) == (2, "subprocess.run")
    assert resolved == ["use.py"]
    (site,) = [site for file in scan(chain).files for site in file.sites if site.path == "use.py"]
    assert site.line == 3
    assert resolved == ["use.py"]


def test_a_new_file_reads_no_other(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (chain / "package").mkdir()
    write(chain / "package/__init__.py", "")
    scan(chain)
    read: list[str] = []

    def analyse_files(job: pipeline.Job, sources: Sequence[pipeline.Source], *rest: Any) -> Iterator[pipeline.Answer]:
        read.extend(source.path for source in sources)
        return workers.analyse_files(job, sources, *rest)

    monkeypatch.setattr(finding, "analyse_files", analyse_files)
    write(chain / "package/inner.py", "from base import launch\nlaunch('x')\n")
    found = told(scan(chain))
    assert read == ["package/inner.py"]
    assert found == told(engine.scan(engine.Scan(chain, jobs=1)))


def test_constants_that_no_file_could_hold_are_kept_all_the_same(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os\n\nos.system('\\ud800')\nos.nice(0x" + "f" * 5000 + ")\nos.system(-10**30)\n"
    write(project / "a.py", text)
    once = told(scan(project))
    refuse: list[str] = []
    monkeypatch.setattr(finding, "analyse_files", lambda job, paths, *rest: refuse.extend(paths))
    assert told(scan(project)) == once
    assert not refuse


@pytest.mark.parametrize("name", ["fork", "pipe"])
def test_what_needs_no_process_does_without(
    kept: Tree, project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where no more processes, or no more open files, are to be had."""

    def refuse() -> None:
        raise BlockingIOError

    monkeypatch.setattr(os, name, refuse)
    assert told(scan(project)) == told(kept)


def test_the_catalogue_is_kept_as_it_was_read(kept: Tree, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = (project / cache.FOLDER).glob("*.catalogue")
    monkeypatch.setattr(catalog, "read", lambda roots: pytest.fail("the catalogue was read again"))
    write(project / "a.py", "import os\n\nos.fork()\n", OLD + 5)
    seen = scan(project)
    monkeypatch.undo()
    assert told(seen) == told(engine.scan(engine.Scan(project, jobs=1))) != told(kept)
    empty, less = (b"".join(cache._sealed(data)) for data in (b"\xc0", b"\x80"))
    for data in (b"", b"\xc0", file.read_bytes()[:-1], empty, less):
        file.write_bytes(data)
        write(project / "a.py", "import os\n\n\nos.fork()\n", OLD + 6)
        assert told(scan(project)) == told(engine.scan(engine.Scan(project, jobs=1)))


def test_what_is_kept_of_the_catalogue_is_all_of_it(tmp_path: Path) -> None:
    wanted = catalog.read(catalog.Catalog.known_roots())
    one = cache.Cache(tmp_path, tmp_path / cache.FOLDER, [], 1)
    cache.prepare(tmp_path / cache.FOLDER)
    assert [one.catalogue(), one.catalogue()] == [wanted, wanted]
    assert list(one.catalogue()) == list(wanted)
