"""Which files belong to a project: ``.gitignore`` as git reads it, links, special files, odd names."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from checkers.engine import Scan, scan
from checkers.intake.files import NEVER_ENTERED, Listing, Seen, is_pattern, list_files
from tests.checkers.trees import write

CALL = "import os\nos.system('true')\n"


# --- .gitignore -----------------------------------------------------------------------------------------------------


def git_files(root: Path) -> list[str]:
    """What git would take into the repository, in path order."""
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
    if not (root / ".git").exists():
        _git(root, quiet, "init", "--quiet")
    listed = _git(root, quiet, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted(name for name in listed.split("\0") if name.endswith(".py"))


def _git(root: Path, environment: dict[str, str], *arguments: str) -> str:
    command = ["git", *arguments]
    # execution-ownership: test_only -- git is the oracle
    done = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


NAMES = ("a", "b", "ab", "build")
segments = st.sampled_from(NAMES)
paths = st.lists(segments, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + ".py")
pieces = st.sampled_from([*NAMES, "*", "**", "a*", "?", "[ab]", "[!a]", "*.py", "a.py", "b.py", "\\a", "a b"])
patterns = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(pieces, min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "/", "/**", "/*"]),
    st.sampled_from(["", " ", "\\ "]),
)
lines = st.lists(
    st.one_of(patterns, st.sampled_from(["", "# note", "\\#a", "\\!a.py", "!", "/", "[z-a]"])), min_size=1, max_size=4
)
ignores = st.dictionaries(st.sampled_from(["", "a/", "a/b/"]), lines, min_size=1, max_size=2)


@settings(max_examples=50)
@given(st.sets(paths, min_size=1, max_size=8), ignores)
@example({"a/b.py", "a/a.py"}, {"": ["a/*", "!a/b.py"]})
@example({"a/b.py"}, {"": ["a/", "!a/b.py"]})
@example({"a/b.py", "b.py"}, {"": ["b.py"], "a/": ["!b.py"]})
def test_what_git_ignores_is_left_out(files: set[str], ignored: dict[str, list[str]]) -> None:
    folders = {path.rpartition("/")[0] for path in files}
    assume(not any(name.removesuffix(".py") == folder for name in files for folder in folders if name == folder))
    with TemporaryDirectory() as folder:
        root = write(Path(folder), dict.fromkeys(files, ""))
        write(root, {f"{place}.gitignore": "\n".join(found) + "\n" for place, found in ignored.items()})
        assert list_files(root).files == git_files(root), ignored


def test_patterns_of_the_manifest_count_from_the_root(tmp_path: Path) -> None:
    root = write(tmp_path, dict.fromkeys(["a/x.py", "b/a/x.py", "b/y.py", "gen_pb2.py", "b/gen_pb2.py"], ""))
    assert list_files(root, ["/a/", "*_pb2.py"]).files == ["b/a/x.py", "b/y.py"]


def test_a_pattern_that_would_take_hours_to_match_is_none(tmp_path: Path) -> None:
    long = "a" * 250 + ".py"
    root = write(tmp_path, {long: "", "x.py": "", ".gitignore": "*a*a*a*a*a*b\n*x*.**py\n"})
    assert list_files(root, ["*a*a*a*a*a*a*b"]).files == [long]
    assert [is_pattern(line) for line in ("*a*b*c*d", "*a*b*c*d*", "*/**/*a*/*b*c*")] == [True, False, True]


# --- folders that are never entered ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(NEVER_ENTERED))
def test_folders_that_hold_no_source_of_the_project(tmp_path: Path, name: str) -> None:
    root = write(tmp_path, {f"{name}/x.py": CALL, f"a/{name}/x.py": CALL, "a/x.py": ""})
    assert list_files(root).files == ["a/x.py"]


def test_a_virtual_environment_of_any_name(tmp_path: Path) -> None:
    root = write(tmp_path, {"env/pyvenv.cfg": "", "env/lib/x.py": CALL, "envs/x.py": ""})
    assert list_files(root).files == ["envs/x.py"]


def test_a_project_that_is_itself_in_a_virtual_environment(tmp_path: Path) -> None:
    root = write(tmp_path, {"pyvenv.cfg": "", "x.py": ""})
    assert list_files(root).files == ["x.py"]


# --- what an earlier listing saw ------------------------------------------------------------------------------------

LATER_NS = 60_000_000_000


def again(root: Path, before: Listing) -> Listing:
    """A listing that knows another one, begun so long after all changes that their times can be trusted."""
    return list_files(root, seen=Seen(before.folders, time.time_ns() + LATER_NS))


def await_tick(folder: Path) -> None:
    """Return when a change gets another time than any change before it."""
    probe = folder / "probe"
    probe.touch()
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        probe.touch()


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)

    return change


def make_script(path: Path) -> None:
    path.write_text("#!/usr/bin/python3\n", encoding="utf-8")
    path.chmod(0o755)


CHANGES = {
    "file": replace_by(lambda path: path.write_text("x = 1\n", encoding="utf-8")),
    "script": replace_by(make_script),
    "folder": replace_by(lambda path: path.mkdir()),
    "link": replace_by(lambda path: path.symlink_to("a.py")),
    "link outside": replace_by(lambda path: path.symlink_to("/usr")),
    "pipe": replace_by(os.mkfifo),
    "ignore": replace_by(lambda path: path.write_text("b*\n!bb.py\n", encoding="utf-8")),
    "ignore otherwise": replace_by(lambda path: path.write_text("a.py\nab/\n", encoding="utf-8")),
    "gone": remove,
}
PLACES = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=2).map(
    lambda parts: "".join(f"{part}/" for part in parts)
)
FILE_NAMES = st.sampled_from(["a.py", "bb.py", "a.pyi", "a", "b", "ab", "a.txt", ".gitignore", "pyvenv.cfg"])
STEPS = st.lists(st.tuples(PLACES, FILE_NAMES, st.sampled_from(sorted(CHANGES))), min_size=1, max_size=12)


@settings(max_examples=60)
@given(STEPS)
@example([("a/", "a.py", "file"), ("", ".gitignore", "ignore otherwise"), ("", ".gitignore", "gone")])
@example([("a/b/", "bb.py", "file"), ("a/", ".gitignore", "ignore"), ("a/b/", "bb.py", "link"), ("", "a", "gone")])
def test_a_listing_that_knows_an_earlier_one_is_as_one_that_does_not(steps: list[tuple[str, str, str]]) -> None:
    with TemporaryDirectory() as folder:
        root = write(Path(folder), {"root/a/a.py": "", "root/b/ab/bb.py": "", "root/a.py": ""}) / "root"
        before = list_files(root)
        for place, name, change in steps:
            await_tick(Path(folder))
            try:
                CHANGES[change](root / place / name)
            except (NotADirectoryError, FileExistsError):
                continue
            before, expected = again(root, before), list_files(root)
            assert before == expected, (place, name, change)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (lambda root: (root / "a/x.py").write_text("y", encoding="utf-8"), []),
        (lambda root: (root / "a/new.py").touch(), ["a"]),
        (lambda root: (root / "a/b/x.py").unlink(), ["a/b"]),
        (lambda root: (root / ".gitignore").touch(), [".", "a", "a/b", "c"]),
        (lambda root: (root / "a/.gitignore").touch(), ["a", "a/b"]),
    ],
    ids=["content", "new file", "gone file", "ignored", "ignored below"],
)
def test_only_what_may_have_changed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], read: list[str]
) -> None:
    root = write(tmp_path, dict.fromkeys(["root/a/x.py", "root/a/b/x.py", "root/c/x.py"], "")) / "root"
    before = list_files(root)
    await_tick(tmp_path)
    change(root)
    seen: list[str] = []
    scandir = os.scandir

    def watched(path: str) -> object:
        seen.append(os.path.relpath(path, root))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", watched)
    again(root, before)
    assert sorted(seen) == read


def test_a_folder_that_changed_as_it_was_listed_is_read_again(tmp_path: Path) -> None:
    root = write(tmp_path, {"x.py": ""})
    before = list_files(root)
    forged = {"": msgspec.structs.replace(before.folders[""], sources=())}
    assert list_files(root, seen=Seen(forged, time.time_ns())).files == ["x.py"]
    assert list_files(root, seen=Seen(forged, time.time_ns() + LATER_NS)).files == []


# --- links and special files ----------------------------------------------------------------------------------------


def unanalysed(root: Path) -> dict[str, str]:
    """Codes of the files that could not be read."""
    files = scan(Scan(root, jobs=1)).files
    return {file.path: file.unanalysed.code for file in files if file.unanalysed is not None}


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    root = write(tmp_path, {"real/x.py": ""})
    (root / "linked").symlink_to("real", target_is_directory=True)
    (root / "up").symlink_to(".", target_is_directory=True)
    listing = list_files(root)
    assert (listing.files, listing.unreadable) == (["real/x.py"], [])


def test_a_linked_file_is_read_under_its_own_name(tmp_path: Path) -> None:
    root = write(tmp_path, {"real/x.py": CALL})
    (root / "y.py").symlink_to("real/x.py")
    sites = [(file.path, site.line) for file in scan(Scan(root, jobs=1)).files for site in file.sites]
    assert sites == [("real/x.py", 2), ("y.py", 2)]


def test_a_link_out_of_the_root_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"outside.py": CALL, "project/x.py": "", "project-2/y.py": CALL})
    root = tmp_path / "project"
    (root / "z.py").symlink_to("../outside.py")
    (root / "beside.py").symlink_to("../project-2/y.py")  # shares the first letters of the root's name
    assert unanalysed(root) == {"beside.py": "SRC006", "z.py": "SRC006"}


def test_a_dangling_link_is_told(tmp_path: Path) -> None:
    (tmp_path / "gone.py").symlink_to("nothing.py")
    (tmp_path / "self.py").symlink_to("self.py")
    assert unanalysed(tmp_path) == {"gone.py": "SRC002", "self.py": "SRC002"}


def test_a_fifo_named_like_a_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "link.py").symlink_to("pipe.py")
    assert unanalysed(tmp_path) == {"link.py": "SRC002", "pipe.py": "SRC002"}


def test_a_folder_named_like_a_source(tmp_path: Path) -> None:
    root = write(tmp_path, {"folder.py/x.py": ""})
    listing = list_files(root)
    assert (listing.files, listing.unreadable) == (["folder.py/x.py"], [])


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "cookie.py").write_bytes(b"# coding: nonsense\n")
    (tmp_path / "nul.py").write_bytes(b"x = 1\0\n")
    assert unanalysed(tmp_path) == {"bytes.py": "SRC004", "cookie.py": "SRC004", "nul.py": "SRC001"}


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"new\nline.py", b"latin-\xe9.py", "名.py".encode(), b"tab\t .py", b" .py"])
def test_odd_names(tmp_path: Path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).write_text(CALL, encoding="utf-8")
    (found,) = scan(Scan(tmp_path, jobs=1)).files
    assert found.path == os.fsdecode(name)
    assert [site.line for site in found.sites] == [2]


def test_suffixes(tmp_path: Path) -> None:
    root = write(tmp_path, dict.fromkeys(["a.py", "b.pyw", "c.ipynb", "d.pyi", "e.txt", "f.pyc", ".hidden.py"], ""))
    listing = list_files(root)
    assert listing.files == [".hidden.py", "a.py", "b.pyw", "c.ipynb"]
    assert listing.stubs == ["d.pyi"]


@pytest.mark.parametrize(
    ("first", "mode", "taken"),
    [
        ("#!/usr/bin/env python3", 0o755, True),
        ("#!/usr/bin/python3.12 -u", 0o755, True),
        ("#!/bin/sh", 0o755, False),
        ("#!/usr/bin/env python3", 0o644, False),
        ("import os", 0o755, False),
    ],
)
def test_scripts_without_a_suffix(tmp_path: Path, first: str, mode: int, taken: bool) -> None:
    (tmp_path / "tool").write_text(f"{first}\n{CALL}", encoding="utf-8")
    (tmp_path / "tool").chmod(mode)
    assert list_files(tmp_path).files == (["tool"] if taken else [])


@given(st.permutations(["b.py", "a/b.py", "a.py", "a/a.py", "A.py"]))
def test_the_order_is_that_of_the_paths(names: list[str]) -> None:
    with TemporaryDirectory() as folder:
        root = write(Path(folder), dict.fromkeys(names, ""))
        assert list_files(root).files == ["A.py", "a.py", "a/a.py", "a/b.py", "b.py"]
