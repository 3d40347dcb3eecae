"""A command on a tree in which nothing has changed prints what it printed, at once; after any change it looks again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from checkers import warm

OLD_NS = time.time_ns() - 60_000_000_000
LATER = """
import time
now_ns = time.time_ns
time.time_ns = lambda: now_ns() + 60_000_000_000
from checkers.warm import main
main()
"""
"""``python -m checkers``, begun a minute after the last change: what is younger is not trusted."""
SOURCE = "import subprocess\n\n\ndef go():\n    subprocess.run(['x'])\n"
MANIFEST = """version = 1
[[owner]]
id = "app"
paths = ["src/"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for path, text in {
        "pyproject.toml": "",
        ".gitignore": "ignored.py\n",
        "src/app.py": SOURCE,
        "src/ignored.py": SOURCE,
        "src/tool": "#!/usr/bin/python3\nimport os\nos.system('x')\n",
        "src/inner/other.py": "x = 1\n",
        "manifests/execution-ownership.toml": MANIFEST,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    run(root)  # makes the cache's folder
    return root


def run(
    root: Path,
    *options: str,
    check: str = "ownership",
    python: tuple[str, ...] = (),
    start: tuple[str, ...] = ("-c", LATER),
    **how: object,
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, *start, check, "--list-sites", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    given = {"cwd": root, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.run(command, text=True, check=False, timeout=120, **given)  # type: ignore[call-overload,no-any-return]


def is_recalled(root: Path, *options: str, check: str = "ownership") -> bool:
    """Whether a run knew its answer; one that does imports no parser of options."""
    return "checkers.cli" not in run(root, *options, check=check, python=("-X", "importtime")).stderr


def test_a_second_run_imports_nothing_and_prints_the_same(project: Path) -> None:
    first = run(project)
    assert (first.returncode, first.stderr) == (0, "")
    assert "src/app.py:5:16 call subprocess.run" in first.stdout
    told = run(project, python=("-X", "importtime")).stderr
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "checkers.warm" in imported
    assert not imported & {
        "checkers.cli",
        "click",
        "json",
        "libcst",
        "msgspec",
        "pathspec",
        "rich",
        "tomlkit",
        "tomllib",
    }
    again = run(project)
    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, "")


def edited(path: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / path).write_text(text, encoding="utf-8")


def folder_added(root: Path) -> None:
    (root / "lib").mkdir()
    (root / "lib/new.py").write_text(SOURCE, encoding="utf-8")


def at_the_same_time(path: str, text: str) -> Callable[[Path], object]:
    """As an archive, ``cp -p``, ``rsync -t`` or ``touch -d`` leave it."""

    def change(root: Path) -> None:
        folder, file = (root / path).parent, root / path
        before = [(one, one.stat().st_mtime_ns) for one in (file, folder) if one.exists()]
        file.write_text(text, encoding="utf-8")
        for one, changed_ns in before:
            os.utime(one, ns=(changed_ns, changed_ns))

    return change


def put_in_its_place(root: Path) -> None:
    changed_ns = (root / "src/app.py").stat().st_mtime_ns
    (root / "src/other.txt").write_text(SOURCE.replace(".run", ".Run"), encoding="utf-8")
    os.utime(root / "src/other.txt", ns=(changed_ns, changed_ns))
    (root / "src/other.txt").replace(root / "src/app.py")


CHANGES: dict[str, Callable[[Path], object]] = {
    "another call": edited("src/app.py", SOURCE.replace("run", "call")),
    "as many bytes": edited("src/app.py", SOURCE.replace(".run", ".Run")),
    "as many bytes at the same time": at_the_same_time("src/app.py", SOURCE.replace(".run", ".Run")),
    "another file in its place": put_in_its_place,
    "a new file in a folder of the same time": at_the_same_time("src/new.py", SOURCE),
    "in the far future": lambda root: os.utime(root / "src/app.py", (2**33, 2**33)),
    "a new file": edited("src/new.py", SOURCE),
    "a new folder": folder_added,
    "a file gone": lambda root: (root / "src/app.py").unlink(),
    "not ignored": edited(".gitignore", "nothing.py\n"),
    "ignored": edited("src/.gitignore", "app.py\n"),
    "to be run": lambda root: (root / "src/tool").chmod(0o755),
    "its manifest": edited("manifests/execution-ownership.toml", MANIFEST + 'exclude = ["src/app.py"]\n'),
    "no manifest": lambda root: (root / "manifests/execution-ownership.toml").unlink(),
    "a manifest broken": edited("manifests/execution-ownership.toml", "["),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_seen(project: Path, change: Callable[[Path], object]) -> None:
    run(project)
    assert is_recalled(project)
    change(project)
    found, right = run(project), run(project, "--no-cache")
    assert (found.returncode, found.stdout, found.stderr) == (right.returncode, right.stdout, right.stderr)


NAMED = {
    "a root is gone": ('roots = ["hidden/inner"]', lambda root: shutil.rmtree(root / "hidden/inner")),
    "a root is a file": ('roots = ["hidden/inner"]', lambda root: replaced_by_a_file(root / "hidden/inner")),
    "tests are a folder": ('tests = ["hidden/tests"]', lambda root: (root / "hidden/tests").mkdir()),
    "a bound is a folder": ('boundaries.finite = ["hidden/a"]', lambda root: (root / "hidden/a").mkdir()),
    "the scheduler is a folder": ('scheduler = ["hidden/a"]', lambda root: (root / "hidden/a").mkdir()),
}


def replaced_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


@pytest.mark.parametrize(("key", "change"), NAMED.values(), ids=NAMED)
def test_what_only_the_manifest_names_is_watched(project: Path, key: str, change: Callable[[Path], object]) -> None:
    """Git ignores it, so that the listing of the tree never looks at it."""
    (project / "hidden/inner").mkdir(parents=True)
    (project / ".gitignore").write_text("hidden/\n", encoding="utf-8")
    check, name = ("bypass", "scheduler-bypass") if "scheduler" in key else ("ownership", "execution-ownership")
    (project / f"manifests/{name}.toml").write_text(f"version = 1\n{key}\n", encoding="utf-8")
    assert run(project, check=check).returncode == 0
    assert is_recalled(project, check=check)
    change(project)
    found, right = run(project, check=check), run(project, "--no-cache", check=check)
    assert (found.returncode, found.stdout, found.stderr) == (right.returncode, right.stdout, right.stderr)
    assert found.returncode == 2
    assert f"manifests/{name}.toml:2" in found.stderr


@pytest.mark.parametrize("options", [(), ("--manifest", "../own.toml")], ids=["pyproject", "option"])
def test_a_manifest_elsewhere_is_watched(project: Path, options: tuple[str, ...]) -> None:
    (project / "manifests/execution-ownership.toml").unlink()
    (project / "pyproject.toml").write_text('[tool.spawngate]\nownership = "hidden/own.toml"\n', encoding="utf-8")
    (project / ".gitignore").write_text("hidden/\n", encoding="utf-8")
    (project / "hidden").mkdir()
    file = project / "../own.toml" if options else project / "hidden/own.toml"
    file.write_text("version = 1\n", encoding="utf-8")
    before = run(project, *options)
    assert is_recalled(project, *options)
    file.write_text('version = 1\nexclude = ["src/app.py"]\n', encoding="utf-8")
    after = run(project, *options)
    assert ("src/app.py" in before.stdout, "src/app.py" in after.stdout) == (True, False)


def test_a_path_that_was_asked_for_and_is_gone_is_missed(project: Path) -> None:
    (project / "hidden/inner").mkdir(parents=True)
    (project / ".gitignore").write_text("hidden/\n", encoding="utf-8")
    assert run(project, "hidden/inner").returncode == 0
    assert is_recalled(project, "hidden/inner")
    (project / "hidden/inner").rmdir()
    gone = run(project, "hidden/inner")
    assert (gone.returncode, gone.stderr) == (2, f"error: hidden/inner: no such file or folder below {project}\n")


@pytest.mark.parametrize("moved", ["hidden/a", "hidden/a/b"])
def test_a_folder_that_a_link_leads_through_and_that_is_moved_out_is_missed(project: Path, moved: str) -> None:
    """Nothing that was listed has changed then, nor has the file that the link leads to."""
    (project / ".gitignore").write_text("hidden/\n", encoding="utf-8")
    (project / "hidden/a/b").mkdir(parents=True)
    (project / "hidden/a/b/real.py").write_text(SOURCE, encoding="utf-8")
    (project / "src/link.py").symlink_to("../hidden/a/b/real.py")
    assert "src/link.py:5:16 call" in run(project).stdout
    assert is_recalled(project)
    (project / moved).replace(project.parent / "out")
    (project / moved).symlink_to(project.parent / "out")
    found, right = run(project), run(project, "--no-cache")
    assert (found.returncode, found.stdout) == (right.returncode, right.stdout)
    assert "src/link.py:1:1: SRC006 the link leads out of the project root" in found.stdout


def test_a_path_by_way_of_a_link_that_leads_elsewhere_now_is_outside(project: Path) -> None:
    link = project.parent / "link"
    link.symlink_to(project)
    asked = str(link / "src/app.py")
    assert run(project, asked).returncode == 0
    assert is_recalled(project, asked)
    link.unlink()
    link.symlink_to(shutil.copytree(project, project.parent / "copy", symlinks=True))
    assert run(project, asked).returncode == 2


def test_a_root_that_appears_nearer_is_the_root(project: Path) -> None:
    inner = project / "src" / "inner"
    run(inner)
    assert is_recalled(inner)
    (inner / "pyproject.toml").write_text("", encoding="utf-8")
    assert run(inner).stdout == run(inner, "--no-cache").stdout != run(project).stdout


def test_what_is_asked_is_part_of_the_question(project: Path) -> None:
    texts = {run(project, *options).stdout for options in ((), ("--output-format", "json"), ("src/inner",))}
    assert len(texts) == 3
    assert is_recalled(project, "--output-format", "json")
    assert is_recalled(project, "src/inner")
    assert not is_recalled(project, "--quiet")
    for option in ("--verbose", "--no-cache", "--clear-cache"):
        run(project, option)
        assert not is_recalled(project, option)


def test_a_file_too_young_to_be_trusted_is_looked_at_again(project: Path) -> None:
    (project / "src/app.py").write_text(SOURCE, encoding="utf-8")
    run(project, start=("-m", "checkers"))
    assert not is_recalled(project)
    assert is_recalled(project)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"spawngate run 2\n", b"0 1 1 1 9999999999\n", b"0 1 -1 1 1 1\nx", b"\xff" * 99]
)
def test_a_memory_that_is_none_of_ours_is_passed_over(project: Path, data: bytes) -> None:
    first = run(project)
    (memory,) = (project / warm.FOLDER).glob("*.run")
    whole = memory.read_bytes()
    told = bytearray(whole)
    told[whole.index(b"src/app.py:5:16")] ^= 1
    for broken in (data, whole[:-8], whole + b"12345678", told, sealed(data), sealed(whole[20:-8])):
        memory.write_bytes(broken)
        assert run(project).stdout == first.stdout
        assert memory.read_bytes() == whole


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(project: Path) -> None:
    first = run(project)
    for name in (*(path.name for path in (project / warm.FOLDER).iterdir()), "../.gitignore"):
        path = project / warm.FOLDER / name
        path.unlink()
        os.mkfifo(path)
        found = run(project)
        assert found.returncode == 0
        assert "src/app.py:5:16 call subprocess.run" in found.stdout
    assert found.stdout == first.stdout + "src/ignored.py:5:16 call subprocess.run - go\n"


def sealed(body: bytes) -> bytes:
    return b"spawngate run 2\n" + zlib.crc32(body).to_bytes(4, "big") + body


def test_a_reader_that_is_gone_changes_nothing_and_a_full_disk_is_told(project: Path) -> None:
    run(project)
    reader, writer = os.pipe()
    os.close(reader)
    assert run(project, stdout=writer).returncode == 0
    os.close(writer)
    with open("/dev/full", "w") as full:  # noqa: PTH123
        lost = run(project, stdout=full)
    assert (lost.returncode, lost.stderr) == (2, "error: cannot write to standard output: No space left on device\n")


def test_what_nobody_asks_for_any_more_is_removed(project: Path) -> None:
    run(project)
    (memory,) = (project / warm.FOLDER).glob("*.run")
    killed = [project / warm.FOLDER / f"{memory.name}.17.1", project / warm.FOLDER / ".tmp-x", memory]
    for path in killed:
        path.touch()
        os.utime(path, (1, 1))
    run(project, "--quiet")
    assert not any(path.exists() for path in killed)
    assert len(list((project / warm.FOLDER).glob("*.run"))) == 1
    assert is_recalled(project, "--quiet")


def test_a_killed_run_keeps_no_later_one_of_its_number_from_being_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every run may have the same number."""
    (tmp_path / warm.FOLDER).mkdir()
    with monkeypatch.context() as killed:
        killed.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError))
        warm.keep("asked", str(tmp_path), warm.Known(0, "told\n", ""), {"": warm.NOTHING}, OLD_NS)
    assert warm.recall("asked", str(tmp_path)) is None
    warm.keep("asked", str(tmp_path), warm.Known(0, "told\n", ""), {"gone": warm.NOTHING}, OLD_NS + 1)
    assert warm.recall("asked", str(tmp_path)) is not None


def test_another_user_may_not_be_allowed_to_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = warm.tool()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert warm.tool() != before


def test_a_copy_of_the_tool_of_the_same_time_is_the_same_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers of one image: what was kept by one of them is of use to the next."""
    package = tmp_path / "checkers"
    package.mkdir()
    source = package / "warm.py"
    source.write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(warm, "__file__", str(source))
    before = warm.tool()
    shutil.copy2(source, package / "copy")
    (package / "copy").replace(source)
    assert warm.tool() == before
    os.utime(source, (1, 1))
    assert warm.tool() != before


@pytest.mark.parametrize("where", ["key", "recall"])
def test_an_interrupt_before_the_command_minds_it_is_no_traceback(project: Path, where: str) -> None:
    interrupt = f"def interrupt(*arguments): raise KeyboardInterrupt\nwarm.{where} = interrupt\n"
    done = run(project, start=("-c", f"from checkers import warm\n{interrupt}warm.ownership_main()"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs to know how many processors there are")
@pytest.mark.parametrize("changed", ["src/app.py", "src/inner/other.py", ".gitignore", "src/tool", "pyproject.toml"])
def test_half_of_many_paths_are_asked_about_in_another_process(project: Path, changed: str) -> None:
    halved = (
        "import os, sys\nos.sched_getaffinity = lambda pid: {0, 1}\n"
        "os.register_at_fork(after_in_parent=lambda: print('forked', file=sys.stderr))\n"
        "from checkers import warm\nwarm._WORTH_A_PROCESS = 1\n"
    )
    start = ("-c", halved + LATER)
    first = run(project)
    again = run(project, start=start)
    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, "forked\n")
    (project / changed).write_text((project / changed).read_text(encoding="utf-8") + "\n", encoding="utf-8")
    command = run(project, start=start, python=("-X", "importtime")).stderr
    assert "forked" in command
    assert "checkers.cli" in command


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    start = ("-c", "import os; os.rmdir(os.getcwd())\n" + LATER)
    done = run(tmp_path / "gone", start=start, python=("-P",))  # a command is not looked for in the working directory
    why = "error: the working directory is gone; see check-ownership --help\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", why)


@pytest.mark.parametrize("young", [(1, 0), (0, 1), (1, 1)])
def test_a_file_that_changed_as_the_run_began_is_not_trusted_however_long_it_took(
    tmp_path: Path, young: tuple[int, int]
) -> None:
    (tmp_path / warm.FOLDER).mkdir()
    began_ns = time.time_ns()
    known = warm.Known(0, "told\n", "")
    for late, kept in (young, 0), ((0, 0), 1):
        content_ns, status_ns = (began_ns - warm.RACY_NS - 1 + one for one in late)
        warm.keep("asked", str(tmp_path), known, {"src/app.py": (1, content_ns, status_ns, 0, 0)}, began_ns)
        assert len(list((tmp_path / warm.FOLDER).iterdir())) == kept


def test_an_inode_of_all_64_bits_is_one_like_any_other(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.stat_result((0o100644, 2**64 - 2, 1, 1, 0, 0, 5, 0, 0, 0), {"st_mtime_ns": 1, "st_ctime_ns": 1})
    began_ns = time.time_ns()
    warm.keep("asked", str(project), warm.Known(0, "told\n", ""), {"src/app.py": warm.stamp_of(status)}, began_ns)
    monkeypatch.setattr(os, "stat", lambda path: status)
    known = warm.recall("asked", str(project))
    assert known is not None
    assert known.out == "told\n"


def test_a_link_that_leads_nowhere_is_not_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "link")
    assert warm.stamp(path) == warm.NOTHING
    (tmp_path / "link").symlink_to("gone")
    assert warm.stamp(path) == warm.stamp_of((tmp_path / "link").lstat()) != warm.NOTHING
    (tmp_path / "gone").touch()
    assert warm.stamp(path) == warm.stamp_of((tmp_path / "gone").stat())
