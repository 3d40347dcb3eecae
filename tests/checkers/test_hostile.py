"""Sources made to break the scan: each is analysed, or told as unanalysed; the others keep their verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from checkers.engine import Scan, scan
from checkers.facts.interest import Interest
from checkers.intake import pipeline, workers
from checkers.model import SourceFile
from tests.checkers.interrupts import INTERRUPTIBLE

SITE = "import os\nos.system('x')\n"
SLOW = f"x = a{'.b()' * 4000}  # execution-ownership: scheduler\n"
"""LibCST, which reads comments, takes a time that grows with the square of such a chain; later Pythons do not."""


def analyse(
    root: Path, files: Mapping[str, str | bytes], max_file_bytes: int = 10 * 1024 * 1024
) -> dict[str, SourceFile]:
    for path, text in files.items():
        (root / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    return {file.path: file for file in scan(Scan(root, jobs=1, max_file_bytes=max_file_bytes)).files}


def verdict(file: SourceFile) -> str:
    """The API of the only site, or the code of the reason why there is none."""
    if file.unanalysed is not None:
        return file.unanalysed.code
    (site,) = file.sites
    return site.api


@pytest.mark.parametrize(
    ("name", "before", "expected"),
    [
        ("brackets", "x = " + "[" * 3000 + "]" * 3000, "SRC005"),
        ("brackets in an f-string", "x = f'{" + "[" * 3000 + "]" * 3000 + "}'", "SRC005"),
        ("brackets at Python's own limit", "x = " + "[" * 200 + "]" * 200, "os.system"),
        ("a sum", "x = " + "1 + " * 1500 + "1", "os.system"),
        ("and", "x = " + "a and " * 5000 + "a", "os.system"),
        ("attributes", "x = a" + ".b" * 1500, "os.system"),
        ("not", "x = " + "not " * 3000 + "a", "os.system"),
        ("minus", "x = " + "-" * 3000 + "1", "os.system"),
        ("conditionals", "x = " + "a if b else " * 1000 + "c", "os.system"),
        ("lambdas", "x = " + "lambda: " * 1000 + "1", "os.system"),
        ("elif", "if a: pass\n" + "elif b: pass\n" * 3000, "os.system"),
        (
            "indentation",
            "\n".join(" " * n + "if a:" for n in range(95)) + "\n" + " " * 95 + "pass",
            "os.system",
        ),
        ("targets", "(" * 150 + "a" + ",)" * 150 + " = x", "os.system"),
        ("rebinding", "x = 1\n" * 5000, "os.system"),
        ("branches", "if x:\n    x = 1\nelse:\n    x = 2\n" * 1000, "os.system"),
        ("aliases of aliases", "a0 = 1\n" + "".join(f"a{n + 1} = a{n}\n" for n in range(2000)), "os.system"),
    ],
)
def test_size_and_depth(tmp_path: Path, name: str, before: str, expected: str) -> None:
    files = analyse(tmp_path, {"hostile.py": f"{before}\n{SITE}", "plain.py": SITE})
    assert verdict(files["hostile.py"]) == expected
    assert verdict(files["plain.py"]) == "os.system"


@pytest.mark.parametrize(
    ("data", "code", "line", "column", "message"),
    [
        (b"x = 1\0\n", "SRC001", 1, 6, "a NUL character, which no Python source may hold"),
        (b"x = 1\n# \0", "SRC001", 2, 3, "a NUL character, which no Python source may hold"),
        (b"x = [\n\n  '\0']", "SRC001", 3, 4, "a NUL character, which no Python source may hold"),
        (
            b"import os\n\ndef broken(:\n    pass\n",
            "SRC001",
            3,
            12,
            "invalid syntax, expected one of ), *, **, NAME",
        ),
        (b"x = 1\ny = '\xff'\n", "SRC004", 2, 6, "byte 0xff is not utf-8: invalid start byte"),
        (b"# coding: nonsense\n", "SRC004", 1, 1, "cannot tell the encoding: unknown encoding: nonsense"),
        (
            b"# coding: ascii\r\nx = '\xc3'\r\n",
            "SRC004",
            2,
            6,
            "byte 0xc3 is not ascii: ordinal not in range(128)",
        ),
    ],
)
def test_bytes_that_are_no_python(tmp_path: Path, data: bytes, code: str, line: int, column: int, message: str) -> None:
    files = analyse(tmp_path, {"hostile.py": data, "plain.py": SITE})
    told = files["hostile.py"].unanalysed
    assert told is not None
    assert (told.code, told.line, told.column, told.message) == (code, line, column, message)
    assert verdict(files["plain.py"]) == "os.system"


def test_what_only_libcst_refuses_is_not_called_invalid(tmp_path: Path) -> None:
    text = "import os\n(x): int = 1\nos.system('a')"
    files = analyse(tmp_path, {"hostile.py": f"{text}  # execution-ownership: scheduler\n", "plain.py": f"{text}\n"})
    told = files["hostile.py"].unanalysed
    assert told is not None
    assert (told.code, told.line, told.column) == ("SRC001", 2, 4)
    assert told.message == ("valid Python that LibCST, which has to read this file, does not take: write it otherwise")
    assert verdict(files["plain.py"]) == "os.system"


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.py").open("wb") as stream:
        stream.truncate(50 * 1024 * 1024)
    told = analyse(tmp_path, {"plain.py": SITE})["large.py"].unanalysed
    assert told is not None
    assert (told.code, told.message) == ("SRC003", "52,428,800 bytes are over the limit of 10,485,760 bytes")
    (tmp_path / "large.py").unlink()
    small = analyse(tmp_path, {"plain.py": SITE}, max_file_bytes=10)["plain.py"].unanalysed
    assert small is not None
    assert small.message == "25 bytes are over the limit of 10 bytes"


def test_a_worker_that_is_killed_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "CPU_SECONDS", 1)  # the workers are forked, so they take it over
    files: dict[str, str | bytes] = {f"plain{n:02}.py": SITE for n in range(40)}
    found = analyse(tmp_path, {**files, "plain07x.py": SLOW + SITE})
    told = found.pop("plain07x.py").unanalysed
    assert told is not None
    assert (told.code, told.line) == ("SRC005", 1)
    assert {path: verdict(file) for path, file in found.items()} == dict.fromkeys(files, "os.system")


def test_names_with_newlines_and_surrogates(tmp_path: Path) -> None:
    names = [b"new\nline.py", b"sur\xff.py", "naïve 漢.py".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(SITE)
    found = analyse(tmp_path, {})
    assert {path: verdict(file) for path, file in found.items()} == {os.fsdecode(n): "os.system" for n in names}


def test_things_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "dangling.py").symlink_to("nowhere")
    (tmp_path / "out.py").symlink_to("/etc/hostname")
    (tmp_path / "loop.py").symlink_to("loop.py")
    os.mkfifo(tmp_path / "fifo.py")
    found = analyse(tmp_path, {"folder.py/inside.py": SITE})
    assert {path: verdict(file) for path, file in found.items()} == {
        "dangling.py": "SRC002",
        "fifo.py": "SRC002",
        "folder.py/inside.py": "os.system",
        "loop.py": "SRC002",
        "out.py": "SRC006",
    }


def test_a_file_that_vanishes_between_listing_and_reading(tmp_path: Path) -> None:
    job = pipeline.Job(str(tmp_path), Interest(), 1000)
    with workers.Workers(1) as alone:
        (answer,) = workers.analyse_files(job, [pipeline.Source("gone.py")], alone)
    assert isinstance(answer.packed, bytes)
    result = pipeline.unpack(answer.packed)
    assert result.broken is not None
    assert (result.broken.code, result.broken.message) == (
        "SRC002",
        "cannot read the file: No such file or directory",
    )


def test_a_chain_of_a_thousand_modules_is_followed(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"m{n}.py": f"from m{n - 1} import go\n" for n in range(1, 1000)}
    files |= {"m0.py": "from os import system as go\n", "use.py": "from m999 import go\ngo('')\n"}
    assert verdict(analyse(tmp_path, files)["use.py"]) == "os.system"


def test_star_imports_in_a_circle_end(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"m{n}.py": "".join(f"from m{other} import *\n" for other in range(25) if other != n) + "system('x')\n"
        for n in range(25)
    }
    files["m7.py"] = "from os import system\n" + str(files["m7.py"])
    found = analyse(tmp_path, files)
    assert {path: verdict(file) for path, file in found.items()} == dict.fromkeys(files, "os.system")


def test_an_interrupted_run_leaves_no_worker(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SITE + SLOW)
    (tmp_path / "other.py").write_text(SITE)
    run = subprocess.Popen(
        [*INTERRUPTIBLE, "ownership", "--list-sites", "--root", tmp_path],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not [child for child in _children(run.pid) if _ticks(child) > 20]:
        assert run.poll() is None
        time.sleep(0.01)  # no event tells when a process that is not ours has begun to work
    children = _children(run.pid)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (130, b"")
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _ticks(pid: int) -> int:
    """Processor time that a process has used, in clock ticks."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
    except OSError:
        return 0


def test_time_does_not_double_with_each_level(tmp_path: Path) -> None:
    lattice = "import threading\nclass A0(threading.Thread): pass\nclass B0(threading.Thread): pass\n" + "".join(
        f"class A{n}(A{n - 1}, B{n - 1}): pass\nclass B{n}(A{n - 1}, B{n - 1}): pass\n" for n in range(1, 60)
    )
    loops = (
        "import os\n" + "".join(" " * n + f"for x{n} in y:\n" for n in range(60)) + " " * 60 + "os = os\nos.fork()\n"
    )
    found = analyse(tmp_path, {"lattice.py": lattice, "loops.py": loops})
    assert [site.api for site in found["lattice.py"].sites] == ["threading.Thread"] * 120
    assert [site.api for site in found["loops.py"].sites] == ["os.fork"]
