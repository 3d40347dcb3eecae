"""Report formats: one conformance suite for all that are registered, then what is particular to each."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.model import ApiKind, Confidence, Extent, Finding, Site, SiteKind, Tier, Unanalysed
from checkers.report import FORMATS, Format, ListedSite, Look, Report, UnanalysedFile, statistics
from checkers.report import json as json_format
from checkers.report import text as text_format
from checkers.report.source import MAX_EXCERPT_BYTES, ProjectSource
from checkers.report.text import EXCERPT_WIDTH, Excerpt, escape, excerpt
from checkers.schema import report_schema

EXTENT = Extent(1, 1, 1, 1, 1, 1, 1)
THREE_WAYS = "submit it as a job\ngive it an owner\nannotate it"


def site(path: str, line: int, column: int = 1, api: str = "subprocess.run", **more: object) -> Site:
    values: dict[str, object] = {
        "kind": SiteKind.CALL,
        "api_kind": ApiKind.PROCESS,
        "tier": Tier.CORE,
        "symbol": "",
        "ordinal": 1,
        "extent": EXTENT,
    }
    return Site(path=path, line=line, column=column, api=api, **(values | more))  # type: ignore[arg-type]


def finding(path: str, line: int, column: int = 1, code: str = "OWN001", **more: object) -> Finding:
    values: dict[str, object] = {
        "name": "unclassified-site",
        "message": "`subprocess.run` has no owner",
        "help": THREE_WAYS,
    }
    return Finding(code=code, path=path, line=line, column=column, **(values | more))  # type: ignore[arg-type]


def unanalysed(path: str, accepted: str | None = None, **more: object) -> UnanalysedFile:
    values: dict[str, object] = {
        "code": "SRC001",
        "name": "unparsable-source",
        "message": "expected an indented block",
        "line": 7,
        "column": 3,
    }
    return UnanalysedFile(Unanalysed(path=path, **(values | more)), accepted)  # type: ignore[arg-type]


class Lines:
    """Source lines from a table."""

    def __init__(self, lines: dict[tuple[str, int, int | None], str]) -> None:
        self._lines = lines

    def line(self, path: str, line: int, cell: int | None = None) -> str | None:
        return self._lines.get((path, line, cell))


def rich(shuffled: int = 0) -> Report:
    """A report with everything in it; its parts are given in the order that ``shuffled`` seeds."""
    sites = [
        ListedSite(site("b.py", 2, 9, symbol="Runner.start"), "scheduler", "manifest"),
        ListedSite(site("a.py", 10, candidates=("subprocess.run", "os.system"))),
        ListedSite(site("a.py", 9, 4, "os.fork", kind=SiteKind.REFERENCE, api_kind=ApiKind.EXEC)),
        ListedSite(site("n.ipynb", 1, 5, cell=3, confidence=Confidence.BY_NAME), "test_only", "annotation"),
        ListedSite(site("n.ipynb", 4, 5, cell=2, kind=SiteKind.DYNAMIC, tier=Tier.STRICT)),
    ]
    findings = [
        finding("b.py", 2, 9, symbol="Runner.start", api="subprocess.run", ordinal=2),
        finding("a.py", 10, 1, "OWN030", name="unbounded-output", help=""),
        finding("a.py", 10),
        finding("a.py", 9, 4),
        finding("n.ipynb", 1, 5, cell=3),
        finding("n.ipynb", 4, 5, cell=2),
        finding("odd\nname \udc80.py", 1, message="two\nlines \x1b[31m"),
    ]
    files = [
        unanalysed("z.py", help="mend it"),
        unanalysed("c.py", "vendored, Python 2"),
        unanalysed("\udcff.py"),
    ]
    chance = random.Random(shuffled)
    for things in (sites, findings, files):
        chance.shuffle(things)
    return Report.of("check-ownership", files=12, sites=sites, findings=findings, unanalysed=files)


# Conformance: what every format owes.


@pytest.fixture(params=sorted(FORMATS))
def render(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


LOOKS = [Look(*flags) for flags in itertools.product([False, True], repeat=3)]


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_every_finding_and_unanalysed_file_is_in_every_format(render: Format, look: Look) -> None:
    for report in (rich(), Report.of("check-bypass", files=1, findings=[finding("only.py", 3)])):
        whole = render(report, look)
        for found in report.findings:
            without = Report.of(
                report.tool,
                files=report.files,
                sites=report.sites,
                findings=[other for other in report.findings if other is not found],
                unanalysed=report.unanalysed,
            )
            assert render(without, look) != whole
            assert found.code in whole
        for entry in report.unaccepted:
            assert escape(entry.file.path) in whole
            assert entry.file.message in whole


def test_the_order_in_which_things_were_found_does_not_show(render: Format) -> None:
    expected = render(rich(0), Look(statistics=True))
    for seed in range(1, 12):
        assert render(rich(seed), Look(statistics=True)) == expected


def test_the_output_can_be_encoded_and_ends_in_a_newline(render: Format) -> None:
    rendered = render(rich())
    assert rendered.encode("utf-8").endswith(b"\n")
    assert rendered.count("\udc80") == 0


def test_an_empty_report_and_a_quiet_one_render(render: Format) -> None:
    empty = Report.of("check-ownership", files=0)
    assert render(empty).endswith("\n")
    render(empty, Look(quiet=True))


def test_a_listing_shows_each_site_and_unanalysed_file(render: Format) -> None:
    full = rich()
    listing = Report.of(full.tool, files=12, sites=full.sites, unanalysed=full.unanalysed, listing=True)
    rendered = render(listing)
    for listed in listing.sites:
        assert listed.site.api in rendered
        assert listed.site.path in rendered
    for entry in listing.unanalysed:
        assert entry.file.message in rendered


# The report itself.


def test_order_is_path_cell_line_column_code() -> None:
    places = [(f.path, f.cell, f.line, f.column, f.code) for f in rich(5).findings]
    assert places == [
        ("a.py", None, 9, 4, "OWN001"),
        ("a.py", None, 10, 1, "OWN001"),
        ("a.py", None, 10, 1, "OWN030"),
        ("b.py", None, 2, 9, "OWN001"),
        ("n.ipynb", 2, 4, 5, "OWN001"),
        ("n.ipynb", 3, 1, 5, "OWN001"),
        ("odd\nname \udc80.py", None, 1, 1, "OWN001"),
    ]
    assert [(s.site.path, s.site.line) for s in rich(5).sites] == [
        ("a.py", 9),
        ("a.py", 10),
        ("b.py", 2),
        ("n.ipynb", 4),
        ("n.ipynb", 1),
    ]
    assert [entry.file.path for entry in rich(5).unanalysed] == ["c.py", "z.py", "\udcff.py"]


@pytest.mark.parametrize(
    ("findings", "failing", "files", "status"),
    [
        (0, None, [], 0),
        (2, None, [], 1),
        (2, 0, [], 0),
        (2, 1, [], 1),
        (0, None, [unanalysed("a.py", "vendored")], 0),
        (1, None, [unanalysed("a.py", "vendored")], 1),
        (0, None, [unanalysed("a.py")], 2),
        (2, 0, [unanalysed("a.py", "vendored"), unanalysed("b.py")], 2),
        (2, None, [unanalysed("a.py")], 2),
    ],
)
def test_status(findings: int, failing: int | None, files: list[UnanalysedFile], status: int) -> None:
    found = [finding("a.py", line) for line in range(1, findings + 1)]
    report = Report.of("check-bypass", files=3, findings=found, unanalysed=files, failing=failing)
    assert report.status == status
    assert json.loads(json_format.render(report))["summary"]["status"] == status


def test_statistics_count_findings_sites_and_owners() -> None:
    counts = statistics(rich())
    assert counts.by_code == {"OWN001": 6, "OWN030": 1, "SRC001": 3}
    assert counts.by_api == {"os.fork": 1, "subprocess.run": 4}
    assert counts.by_owner == {"none": 3, "scheduler": 1, "test_only": 1}


# Text.


def test_text_of_one_finding() -> None:
    report = Report.of(
        "check-ownership",
        files=2,
        sites=[ListedSite(site("src/app.py", 3, 12))],
        findings=[finding("src/app.py", 3, 12)],
        source=Lines({("src/app.py", 3, None): "    return run(cmd)"}),
    )
    assert text_format.render(report) == (
        "src/app.py:3:12: OWN001 `subprocess.run` has no owner\n"
        "     3 |     return run(cmd)\n"
        "       |            ^^^\n"
        "       = submit it as a job\n"
        "         give it an owner\n"
        "         annotate it\n"
        "\n"
        "check-ownership --explain CODE tells what a code means and how to mend it\n"
        "1 finding (OWN001 ×1), 2 files, 1 site\n"
    )


def test_help_that_findings_share_is_said_once_at_the_end() -> None:
    report = Report.of(
        "check-ownership",
        files=1,
        findings=[
            finding("a.py", 1),
            finding("a.py", 2),
            finding("a.py", 3, code="OWN032", message="no timeout", help="pass `timeout=`"),
        ],
        source=Lines({("a.py", 1, None): "run(a)"}),
    )
    assert text_format.render(report) == (
        "a.py:1:1: OWN001 `subprocess.run` has no owner\n"
        "     1 | run(a)\n"
        "       | ^^^\n"
        "\n"
        "a.py:2:1: OWN001 `subprocess.run` has no owner\n"
        "\n"
        "a.py:3:1: OWN032 no timeout\n"
        "       = pass `timeout=`\n"
        "\n"
        "OWN001 unclassified-site ×2\n"
        "  submit it as a job\n"
        "  give it an owner\n"
        "  annotate it\n"
        "\n"
        "check-ownership --explain CODE tells what a code means and how to mend it\n"
        "3 findings (OWN001 ×2, OWN032 ×1), 1 file, 0 sites\n"
    )


def test_each_way_out_is_a_line_and_a_long_one_is_wrapped() -> None:
    owners = ["owner_of_twenty_chars"] * 4
    ways = f"submit it; or annotate it ({', '.join(owners)}); or allow it"
    report = Report.of("check-bypass", files=1, findings=[finding("a.py", 1, help=ways)])
    assert text_format.render(report).splitlines()[1:5] == [
        "       = submit it",
        f"         or annotate it ({', '.join(owners[:3])},",
        f"           {owners[3]})",
        "         or allow it",
    ]


def test_unanalysed_files_stand_in_the_text_with_their_place_and_in_the_summary() -> None:
    report = Report.of(
        "check-bypass",
        files=240,
        unanalysed=[
            unanalysed("bad.py", help="mend the syntax"),
            unanalysed("old.py", "vendored,\nPython 2"),
        ],
        source=Lines({("bad.py", 7, None): "  if x:"}),
    )
    assert text_format.render(report) == (
        "bad.py:7:3: SRC001 expected an indented block\n"
        "     7 |   if x:\n"
        "       |   ^^\n"
        "       = mend the syntax\n"
        "\n"
        "old.py:7:3: SRC001 expected an indented block\n"
        "       = accepted in the manifest: vendored,\\nPython 2\n"
        "\n"
        "check-bypass --explain CODE tells what a code means and how to mend it\n"
        "no findings, 1 file could not be analysed, 1 unanalysed file accepted in the manifest, "
        "240 files, 0 sites\n"
    )


def test_quiet_text_is_one_line_a_finding_and_nothing_when_clean() -> None:
    report = Report.of(
        "check-bypass",
        files=9,
        findings=[finding("n.ipynb", 1, 5, cell=3), finding("b.py", 2)],
        unanalysed=[unanalysed("z.py"), unanalysed("ok.py", "vendored")],
    )
    assert text_format.render(report, Look(quiet=True)) == (
        "b.py:2:1: OWN001 `subprocess.run` has no owner\n"
        "n.ipynb:cell 3:1:5: OWN001 `subprocess.run` has no owner\n"
        "z.py:7:3: SRC001 expected an indented block\n"
    )
    assert text_format.render(Report.of("check-bypass", files=9), Look(quiet=True)) == ""


def test_a_listing_is_one_line_a_site() -> None:
    full = rich()
    listing = Report.of(full.tool, files=9, sites=full.sites, unanalysed=[unanalysed("z.py")], listing=True)
    assert text_format.render(listing) == (
        "a.py:9:4 reference os.fork - -\n"
        "a.py:10:1 call subprocess.run - -\n"
        "b.py:2:9 call subprocess.run scheduler Runner.start\n"
        "n.ipynb:cell 2:4:5 dynamic subprocess.run - -\n"
        "n.ipynb:cell 3:1:5 call subprocess.run test_only -\n"
        "z.py:7:3: SRC001 expected an indented block\n"
    )


def test_statistics_in_text_are_sorted_by_count_then_name() -> None:
    full = rich()
    report = Report.of(full.tool, files=9, sites=full.sites, findings=full.findings)
    assert text_format.render(report, Look(quiet=True, statistics=True)).split("findings and ")[1] == (
        "unanalysed files by code\n"
        "     6  OWN001\n"
        "     1  OWN030\n"
        "sites by API\n"
        "     4  subprocess.run\n"
        "     1  os.fork\n"
        "sites by owner\n"
        "     3  none\n"
        "     1  scheduler\n"
        "     1  test_only\n"
    )


@pytest.mark.parametrize(
    ("failing", "end"),
    [
        (2, "2 findings (OWN001 ×2), 1 file, 0 sites\n"),
        (1, "2 findings (OWN001 ×2), 1 file, 0 sites (rollout active: 1 of them fail)\n"),
        (0, "2 findings (OWN001 ×2), 1 file, 0 sites (rollout active: none of them fails)\n"),
    ],
)
def test_the_summary_says_when_findings_do_not_fail(failing: int, end: str) -> None:
    found = [finding("a.py", 1), finding("a.py", 2)]
    report = Report.of("check-bypass", files=1, findings=found, rollout="active", failing=failing)
    assert text_format.render(report).endswith(end)


def test_colour_adds_only_escape_sequences() -> None:
    report = rich()
    painted = text_format.render(report, Look(color=True))
    plain = painted
    for style in ("1", "2", "1;31", "1;32", "1;33", "0"):
        plain = plain.replace(f"\x1b[{style}m", "")
    assert painted != plain
    assert plain == text_format.render(report)
    assert "\x1b" not in text_format.render(report)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain path.py", "plain path.py"),
        ("naïve/日本.py", "naïve/日本.py"),
        ("a\nb\r.py", "a\\nb\\r.py"),
        ("\udc80.py", "\\udc80.py"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\u202eb\u2028\x85", "a\\u202eb\\u2028\\x85"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text())
def test_escaped_text_is_one_printable_line(text: str) -> None:
    shown = escape(text)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("line", "column", "shown"),
    [
        ("os.system(c)", 4, Excerpt("os.system(c)", 3, 6)),
        ("\tos.fork()", 5, Excerpt("    os.fork()", 7, 4)),
        ("a\tb = fork()", 7, Excerpt("a   b = fork()", 8, 4)),
        ('x = "日本", run()', 11, Excerpt('x = "日本", run()', 12, 3)),
        ("x\u0301 = run()", 6, Excerpt("x\u0301 = run()", 4, 3)),
        ("변수.시작()", 4, Excerpt("변수.시작()", 5, 4)),
        ("\x0cfork()", 2, Excerpt("\\x0cfork()", 4, 4)),
        ("!ls -l", 1, Excerpt("!ls -l", 0, 1)),
        ("%%bash", 1, Excerpt("%%bash", 0, 6)),
        ("[[site]]", 1, Excerpt("[[site]]", 0, 1)),
        ("run()   ", 1, Excerpt("run()", 0, 3)),
        ("short", 40, Excerpt("short", 5, 1)),
    ],
)
def test_excerpt(line: str, column: int, shown: Excerpt) -> None:
    assert excerpt(line, column) == shown


def test_a_long_line_is_cut_to_a_window_around_the_marker() -> None:
    line = "a" * 500 + " + run() + " + "b" * 500
    shown = excerpt(line, 504)
    assert shown.text.startswith("...aaa")
    assert shown.text.endswith("bbb...")
    assert len(shown.text) == EXCERPT_WIDTH + 6
    assert shown.text[shown.indent : shown.indent + shown.width] == "run"

    begin = excerpt("run(" + "a" * 500 + ")", 1)
    assert begin.text == "run(" + "a" * (EXCERPT_WIDTH - 4) + "..."
    assert (begin.indent, begin.width) == (0, 3)

    end = excerpt("a" * 500 + ".run()", 502)
    assert end.text == "..." + "a" * (EXCERPT_WIDTH // 3 - 1) + ".run()"
    assert end.text[end.indent : end.indent + end.width] == "run"


@pytest.mark.parametrize("call", ["run('b'); ", "run('日'); "])
def test_all_of_a_generated_line_takes_no_longer_than_many_lines(tmp_path: Path, call: str) -> None:
    (tmp_path / "a.py").write_text(call * 20_000, encoding="utf-8")
    findings = [finding("a.py", 1, len(call) * number + 1) for number in range(20_000)]
    report = Report.of("check-ownership", findings=findings, files=1, source=ProjectSource(tmp_path))
    blocks = text_format.render(report).split("\n\n")
    wide = sum(1 + (character == "日") for character in call)
    for number in (0, 1, 10_000, 19_999):
        place, shown, marker = blocks[number].split("\n")
        assert place.startswith(f"a.py:1:{len(call) * number + 1}: OWN001 ")
        cells = "".join(character + ("\0" if character == "日" else "") for character in shown)
        assert cells[marker.index("^") : marker.rindex("^") + 1] == "run"
        assert len(cells) <= len("     1 | ") + EXCERPT_WIDTH + 6
        assert wide * number < EXCERPT_WIDTH // 3 or shown.startswith("     1 | ...")


@given(st.text(max_size=400), st.integers(1, 500))
def test_a_marker_lies_under_the_shown_line(line: str, column: int) -> None:
    shown = excerpt(line, column)
    assert "\n" not in shown.text
    assert shown.width >= 1
    assert 0 <= shown.indent <= EXCERPT_WIDTH + 3
    assert shown.indent + shown.width <= EXCERPT_WIDTH + 12


@given(
    st.text(alphabet="ab \t日é", max_size=300),
    st.integers(0, 300),
    st.text(alphabet="ab \t日é", max_size=300),
)
def test_the_marker_covers_the_name(before: str, spaces: int, after: str) -> None:
    line = f"{before}{' ' * spaces}.launch({after})"
    shown = excerpt(line, line.index(".launch(") + 2)
    cells = "".join(c + ("\0" if c == "日" else "") for c in shown.text)
    assert cells[shown.indent : shown.indent + shown.width] == "launch"


# Source lines.


def test_source_lines_are_numbered_as_python_numbers_them(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x = 1\r\ny = '\x0c\xe2\x80\xa8'\rz = 2\n\xc2\x85 = 3")
    source = ProjectSource(tmp_path)
    assert [source.line("a.py", line) for line in range(6)] == [
        None,
        "x = 1",
        "y = '\x0c\u2028'",
        "z = 2",
        "\x85 = 3",
        None,
    ]


def test_source_lines_obey_cookie_and_bom_and_survive_what_cannot_be_decoded(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nn = '\xe9'\n")
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfrun()\n")
    (tmp_path / "wrong.py").write_bytes(b"# coding: no-such\nn = '\xe9'\n")
    source = ProjectSource(tmp_path)
    assert source.line("latin.py", 2) == "n = 'é'"
    assert source.line("bom.py", 1) == "run()"
    assert source.line("wrong.py", 2) == "n = '\ufffd'"


def test_source_lines_of_a_notebook_cell(tmp_path: Path) -> None:
    cells = [{"source": ["import os\n", "os.fork()"]}, {"source": "!ls\n"}, {}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (tmp_path / "broken.ipynb").write_text("{", encoding="utf-8")
    source = ProjectSource(tmp_path)
    assert source.line("n.ipynb", 2, 1) == "os.fork()"
    assert source.line("n.ipynb", 1, 2) == "!ls"
    assert source.line("n.ipynb", 2, 3) is None
    assert source.line("n.ipynb", 1, 4) == ""
    assert source.line("broken.ipynb", 2, 1) is None


def test_source_lines_come_from_standard_input_where_it_stands_for_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("saved\n", encoding="utf-8")
    assert ProjectSource(tmp_path, ("a.py", b"unsaved\n")).line("a.py", 1) == "unsaved"


def test_what_is_no_regular_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "gone.py").symlink_to("nowhere")
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(MAX_EXCERPT_BYTES + 1)
    source = ProjectSource(tmp_path)
    for name in ("folder.py", "pipe.py", "gone.py", "large.py", "nul\0.py"):
        assert source.line(name, 2) is None


# JSON.


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_json_matches_the_schema(look: Look) -> None:
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    full = rich()
    listing = Report.of("check-bypass", files=1, sites=full.sites, listing=True)
    for report in (full, listing, Report.of("check-bypass", files=0, rollout="observe")):
        validator.validate(json.loads(json_format.render(report, look)))


def test_the_schema_refuses_an_undocumented_field_and_documents_each() -> None:
    schema = report_schema()
    validator = jsonschema.Draft202012Validator(schema)
    document = json.loads(json_format.render(rich(), Look(statistics=True)))
    for holder in (document, document["sites"][0], document["findings"][0], document["summary"]):
        holder["surprise"] = 1
        assert not validator.is_valid(document)
        del holder["surprise"]
    assert validator.is_valid(document)
    for name in ("site", "finding", "unanalysed", "summary", "statistics"):
        definition = schema["$defs"][name]
        assert definition["additionalProperties"] is False
        assert sorted(definition["required"]) == sorted(definition["properties"])
        for field, value in definition["properties"].items():
            documented = value.get("description") or schema["$defs"][value["$ref"].split("/")[-1]]["description"]
            assert documented, field


def test_json_values() -> None:
    document = json.loads(json_format.render(rich(3)))
    assert document["sites"][1] == {
        "path": "a.py",
        "cell": None,
        "line": 10,
        "column": 1,
        "kind": "call",
        "api": "subprocess.run",
        "candidates": ["subprocess.run", "os.system"],
        "api_kind": "process",
        "tier": "core",
        "confidence": "certain",
        "symbol": "",
        "ordinal": 1,
        "owner": None,
        "source": None,
    }
    assert document["findings"][3] == {
        "code": "OWN001",
        "name": "unclassified-site",
        "path": "b.py",
        "cell": None,
        "line": 2,
        "column": 9,
        "message": "`subprocess.run` has no owner",
        "api": "subprocess.run",
        "symbol": "Runner.start",
        "ordinal": 2,
        "help": THREE_WAYS,
    }
    assert document["unanalysed"][0] == {
        "code": "SRC001",
        "name": "unparsable-source",
        "path": "c.py",
        "cell": None,
        "line": 7,
        "column": 3,
        "message": "expected an indented block",
        "help": "",
        "accepted": "vendored, Python 2",
    }
    assert document["summary"] == {
        "findings": 7,
        "by_code": {"OWN001": 6, "OWN030": 1},
        "failing": 7,
        "sites": 5,
        "unanalysed": 3,
        "status": 2,
    }
    assert "statistics" not in document


def test_json_is_ascii_and_keeps_undecodable_names() -> None:
    rendered = json_format.render(rich())
    assert rendered.isascii()
    assert '"odd\\nname \\udc80.py"' in rendered
    assert json.loads(rendered)["unanalysed"][2]["path"] == "\udcff.py"
