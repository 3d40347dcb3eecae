"""Every page of ``docs/checks`` is run: its files make a project, and the command must find what it marks.

A page's *Example* is one project, its *Use instead* another: the example's files with those of the section
laid over them, in which nothing may be found. Fenced blocks make the files, in mdtest style:

- ``toml title="manifests/execution-ownership.toml"`` and the like: a file of that name. A line that ends in
  ``# error: [OWN001]`` is marked as a finding. Markers are taken out before the file is written.
- ``sh``: run in the project's folder, for what text cannot show. A line ``# error: [SRC004] src/app.py:1`` in
  it marks a finding.
- any other fenced block is prose.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkers import codes
from checkers.cli import bypass_main, ownership_main

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "checks"
SECTIONS = ["What it does", "Why is this bad?", "Example", "Use instead", "Options", "References"]

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="(?P<path>[^"]+)"')
MARKERS = re.compile(r"[ \t]*(?P<markers>(?:# error: \[[A-Z]{3}[0-9]{3}\][ \t]*)+)$", re.MULTILINE)
MARKED_PLACE = re.compile(r"^# error: \[(?P<code>[A-Z]{3}[0-9]{3})\] (?P<path>\S+):(?P<line>[0-9]+)$", re.MULTILINE)

Place = tuple[str, int, str]


@dataclass
class Project:
    """The files, set-up commands and marked findings of a page's section."""

    files: dict[str, str] = field(default_factory=dict)
    scripts: list[str] = field(default_factory=list)
    expected: Counter[Place] = field(default_factory=Counter)

    def add(self, section: str) -> None:
        """Lay the files of ``section`` over those there are."""
        for fence in FENCE.finditer(section):
            title = TITLE.search(fence["info"])
            if title is not None:
                self._add_file(title["path"], fence["body"])
            elif fence["info"].strip() == "sh":
                self.scripts.append(fence["body"])
                for mark in MARKED_PLACE.finditer(fence["body"]):
                    self.expected[mark["path"], int(mark["line"]), mark["code"]] += 1

    def _add_file(self, path: str, body: str) -> None:
        for number, line in enumerate(body.split("\n"), start=1):
            for markers in MARKERS.finditer(line):
                for code in re.findall(r"\[([A-Z0-9]+)\]", markers["markers"]):
                    self.expected[path, number, code] += 1
        self.files[path] = MARKERS.sub("", body)

    def write(self, folder: Path) -> None:
        """Make the project in ``folder``."""
        for path, text in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        for script in self.scripts:
            subprocess.run(["sh", "-euc", script], cwd=folder, check=True, timeout=60)


def sections(page: Path) -> dict[str, str]:
    """The page's title line (under ``""``) and its sections."""
    parts = re.split(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def pages() -> list[Path]:
    return sorted(PAGES.glob("*.md"))


def found(code: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Counter[Place], str]:
    """Exit status, places of findings and unanalysed files, and their messages, of the real command."""
    main = bypass_main if code.startswith("BYP") else ownership_main
    capsys.readouterr()
    status = main(["--root", str(folder), "--output-format", "json", "--jobs", "1"])
    captured = capsys.readouterr()
    assert captured.err == ""
    report = json.loads(captured.out)
    told = [*report["findings"], *report["unanalysed"]]
    messages = "\n".join(f"{one['path']}:{one['line']}: {one['code']} {one['message']}" for one in told)
    return status, Counter((one["path"], one["line"], one["code"]) for one in told), messages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_page_finds_what_it_marks(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = sections(page)
    example, instead = Project(), Project()
    example.add(parts["Example"])
    assert any(code == page.stem for _, _, code in example.expected), "the example does not show its code"
    (folder := tmp_path / "example").mkdir()
    example.write(folder)
    status, places, output = found(page.stem, folder, capsys)
    assert places == example.expected, output
    assert status == (2 if any(code in UNANALYSED for _, _, code in places) else 1)

    instead.add(parts["Example"])
    instead.expected.clear()
    instead.add(parts["Use instead"])
    (folder := tmp_path / "instead" / "project").mkdir(parents=True)
    instead.write(folder)
    assert not instead.expected
    assert found(page.stem, folder, capsys)[:2] == (0, Counter())


UNANALYSED = frozenset(code for code in codes.CODES if code.startswith("SRC") and code != "SRC007")


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert [page.stem for page in pages()] == sorted(codes.CODES)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_page_has_the_shape_of_all_pages(page: Path) -> None:
    parts = sections(page)
    code = codes.CODES[page.stem]
    assert parts.pop("").strip() == f"# {code.name} ({code.code})"
    assert [name for name in SECTIONS if name in parts or name != "Options"] == list(parts)
    assert all(text.strip() for text in parts.values())
    for line in page.read_text(encoding="utf-8").splitlines():
        assert len(line) <= 120
        assert line == line.rstrip()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).is_file(), target


def test_codes_are_well_formed_and_in_order() -> None:
    prefixes = ["SRC", "BYP", "OWN"]
    spelled = list(codes.CODES)
    assert spelled == sorted(spelled, key=lambda code: (prefixes.index(code[:3]), code))
    for code in codes.CODES.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code.name)
        assert code.title
        assert not code.title.endswith(".")


@pytest.mark.parametrize("code", sorted(codes.CODES))
def test_explain_prints_the_page(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    for main in (bypass_main, ownership_main):
        assert main(["--explain", code]) == 0
        assert capsys.readouterr().out == (PAGES / f"{code}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("asked", "code"), [("own001", "OWN001"), ("unclassified-site", "OWN001"), ("Scheduler-Bypass", "BYP001")]
)
def test_explain_takes_any_case_and_a_name(asked: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ownership_main(["--explain", asked]) == 0
    assert capsys.readouterr().out == (PAGES / f"{code}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("OWN01", "error: there is no code 'OWN01'; did you mean OWN001 or OWN010 or OWN011?\n"),
        ("missing-field", "error: there is no code 'missing-field'; did you mean BYP007 or OWN009?\n"),
        ("unclasified-site", "error: there is no code 'unclasified-site'; did you mean OWN001?\n"),
        ("F401", f"error: there is no code 'F401'; codes are {', '.join(codes.CODES)}\n"),
    ],
)
def test_explain_of_an_unknown_code(asked: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ownership_main(["--explain", asked]) == 2
    captured = capsys.readouterr()
    assert captured.err == message
    assert captured.out == ""


def test_explain_works_from_an_installed_copy(tmp_path: Path) -> None:
    """A wheel has the pages inside the package (the build puts them there) and nothing beside it."""
    subprocess.run(["cp", "-R", str(ROOT / "checkers"), str(tmp_path / "checkers")], check=True, timeout=60)
    subprocess.run(["cp", "-R", str(PAGES), str(tmp_path / "checkers" / "docs")], check=True, timeout=60)
    command = [sys.executable, "-m", "checkers", "ownership", "--explain", "OWN001"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == (PAGES / "OWN001.md").read_text(encoding="utf-8")


def test_an_installation_without_pages_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(codes, "__file__", str(tmp_path / "checkers" / "codes.py"))
    with pytest.raises(FileNotFoundError, match=r"^this installation lacks the page of OWN001 \(OWN001\.md\)$"):
        codes.page("OWN001")
