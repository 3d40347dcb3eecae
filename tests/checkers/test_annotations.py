"""Annotations: what a comment's text means, which sites a comment speaks of, and what is reported.

The placement table is ``fixtures/annotations``: each source file has a sidecar that lists its sites and
findings, and runs before and after ``ruff format`` and ``black``. The unit and property tests build sites and
comments by hand.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from checkers.annotations import (
    ANNOTATION_KEYWORDS,
    EXECUTION_OWNERSHIP,
    SCHEDULER_AUDIT,
    Annotation,
    Blessings,
    Defect,
    Marker,
    bless,
    read,
)
from checkers.codes import CODES
from checkers.engine import Scan, scan
from checkers.model import (
    ApiKind,
    Comment,
    Extent,
    Finding,
    Header,
    PathSet,
    Selection,
    Site,
    SiteKind,
    SourceFile,
    Tier,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "annotations"
TODAY = date(2026, 6, 1)
MARKERS = (SCHEDULER_AUDIT, EXECUTION_OWNERSHIP)
AUDIT = "# scheduler-audit: standalone-compat"


# Builders


def site(
    name: int,
    *,
    first: int | None = None,
    paren: int | None = None,
    last: int | None = None,
    statement: tuple[int, int, int] | None = None,
    column: int = 1,
    cell: int | None = None,
) -> Site:
    """A site whose name stands on line ``name``; ``statement`` is its number and its first and last line."""
    first, last = first or name, last or paren or name
    number, begin, end = statement or (first, first, last)
    return Site(
        path="src/app.py",
        line=name,
        column=column,
        kind=SiteKind.CALL,
        api="subprocess.run",
        api_kind=ApiKind.PROCESS,
        tier=Tier.CORE,
        symbol="start",
        ordinal=name,
        extent=Extent(first, name, paren or name, last, number, begin, end),
        cell=cell,
    )


def trailing(line: int, text: str = AUDIT, cell: int | None = None) -> Comment:
    return Comment(line, 30, text, own_line=False, block_last_line=line, cell=cell)


def own_line(line: int, text: str = AUDIT, block_last: int | None = None, cell: int | None = None) -> Comment:
    return Comment(line, 1, text, own_line=True, block_last_line=block_last or line, cell=cell)


def judge(
    comments: Sequence[Comment],
    sites: Sequence[Site],
    *,
    headers: Iterable[Header] = (),
    marker: Marker = SCHEDULER_AUDIT,
    tests: Iterable[str] = (),
    authority: Iterable[str] | None = None,
) -> Blessings:
    file = SourceFile("src/app.py", sites=tuple(sites), comments=tuple(comments), headers=tuple(headers))
    scheduler = None if authority is None else PathSet(authority)
    return bless(file, sites, marker, today=TODAY, tests=PathSet(tests), authority=scheduler)


def only(blessings: Blessings) -> Finding:
    (finding,) = blessings.findings
    return finding


# Text


@pytest.mark.parametrize(
    ("text", "value", "until", "note"),
    [
        ("# scheduler-audit: test-only", "test-only", None, ""),
        ("#scheduler-audit:test-only", "test-only", None, ""),
        ("#  scheduler-audit  :   test-only  ", "test-only", None, ""),
        ("# scheduler-audit:\ttest-only", "test-only", None, ""),
        ("# scheduler-audit: test-only -- a reason", "test-only", None, "a reason"),
        ("# scheduler-audit: test-only --a reason", "test-only", None, "a reason"),
        ("# scheduler-audit: test-only--a reason", "test-only", None, "a reason"),
        ("# scheduler-audit: test-only -- a -- b", "test-only", None, "a -- b"),
        ("# scheduler-audit: test-only --", "test-only", None, ""),
        ("# scheduler-audit: test-only -- see issue #12 first", "test-only", None, "see issue #12 first"),
        ("# scheduler-audit: test-only until=2027-01-31", "test-only", date(2027, 1, 31), ""),
        ("# scheduler-audit: test-only until = 2027-01-31 -- why", "test-only", date(2027, 1, 31), "why"),
        ("# scheduler-audit: test-only -- why until=2027-01-31", "test-only", date(2027, 1, 31), "why"),
        ("# scheduler-audit: test-only until=2027-01-31--why", "test-only", date(2027, 1, 31), "why"),
        ("# scheduler-audit: test-only -- kept until then", "test-only", None, "kept until then"),
        ("# by hand. scheduler-audit: test-only", "test-only", None, ""),
        ("# noqa: S603  # scheduler-audit: test-only", "test-only", None, ""),
        ("# scheduler-audit: test-only  # noqa: S603", "test-only", None, ""),
        ("# scheduler-audit: test-only -- why  #noqa", "test-only", None, "why"),
        ("# scheduler-audit: test-only #", "test-only", None, ""),
        ("# scheduler-audit: test-only # execution-ownership: scheduler", "test-only", None, ""),
        ("# scheduler-audit: test-only -- why execution-ownership: x", "test-only", None, "why"),
        ("# execution-ownership: scheduler -- x  scheduler-audit: test-only", "test-only", None, ""),
    ],
)
def test_reads(text: str, value: str, until: date | None, note: str) -> None:
    comment = trailing(1, text)
    assert read(comment, SCHEDULER_AUDIT) == Annotation(comment, value, until, note)


@pytest.mark.parametrize(
    "text",
    [
        "#",
        "# run the scheduler audit before a release",
        "# the scheduler audit: every night, see the wiki",
        "# the scheduler audit: tests only on Mondays",
        "# the scheduler audit: tests-only on Mondays",
        "# scheduler_audit = load()",
        "# calls scheduler_audit() first",
        "# reads the scheduler-audit comments of a file",
        "# my-scheduler-audit: test-only",
        "# scheduler-auditor: test-only",
        "# scheduler-audit-log: test-only",
        "# scheduler.audit: test-only",
        "# Execution ownership: who owns what",
        "# execution-ownership: scheduler",
        "# audit: test-only",
    ],
)
def test_leaves_other_comments_alone(text: str) -> None:
    assert read(trailing(1, text), SCHEDULER_AUDIT) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# scheduler_audit: test-only", "`scheduler_audit:` is not how an annotation is spelled"),
        ("# Scheduler-Audit: test-only", "`Scheduler-Audit:` is not how an annotation is spelled"),
        ("# SCHEDULER-AUDIT: test-only", "`SCHEDULER-AUDIT:` is not how an annotation is spelled"),
        ("# scheduler audit: test-only", "`scheduler audit:` is not how an annotation is spelled"),
        ("# scheduleraudit: test-only", "`scheduleraudit:` is not how an annotation is spelled"),
        ("# scheduler\u2011audit: test-only", "`scheduler\u2011audit:` is not how an annotation is spelled"),
        ("# scheduler-audit test-only", "`scheduler-audit` is not how an annotation is spelled"),
        ("# scheduler-audit tests-only", "`scheduler-audit` is not how an annotation is spelled"),
        ("# by hand: scheduler-audit test-only", "`scheduler-audit` is not how an annotation is spelled"),
        ("# scheduler-audit = test-only", "`scheduler-audit =` is not how an annotation is spelled"),
        ("# scheduler-audit\uff1a test-only", "`scheduler-audit\uff1a` is not how an annotation is spelled"),
        ("# scheduler-audit", "`scheduler-audit` is not how an annotation is spelled"),
        ("# scheduler-audit:", "`scheduler-audit` gives no reason"),
        ("# scheduler-audit: # noqa", "`scheduler-audit` gives no reason"),
        ("# scheduler-audit: -- why", "`scheduler-audit` gives no reason"),
        ("# scheduler-audit: until=2027-01-01", "`scheduler-audit` gives no reason"),
        ("# scheduler-audit: until=2027-01-01 test-only", "`scheduler-audit` gives no reason"),
        (
            "# scheduler-audit: test-only by hand",
            "`by hand` follows the reason `test-only` without ` -- ` before it",
        ),
        (
            "# scheduler-audit: test-only \u2014 by hand",
            "`\u2014 by hand` follows the reason `test-only` without ` -- ` before it",
        ),
        ("# scheduler-audit: test-only until=soon", "`until=soon` is no date"),
        ("# scheduler-audit: test-only until=2026-02-30", "`until=2026-02-30` is no date"),
        ("# scheduler-audit: test-only until=20270101", "`until=20270101` is no date"),
        ("# scheduler-audit: test-only until=2027-W01-1", "`until=2027-W01-1` is no date"),
        ("# scheduler-audit: test-only until=2027-01-01.", "`until=2027-01-01.` is no date"),
        ("# scheduler-audit: test-only until=\u0662027-01-01", "`until=\u0662027-01-01` is no date"),
        ("# scheduler-audit: test-only until=", "`until=` is no date"),
        ("# scheduler-audit: test-only until= -- why", "`until=` is no date"),
        ("# scheduler-audit: test-only until=2027-01-01 until=2027-01-01", "two `until=` dates"),
        ("# scheduler-audit: test-only until=2027-01-01 -- x until=2028-01-01", "two `until=` dates"),
        ("# scheduler-audit: test-only until: 2027-01-01", "`until:` is not how a date is given"),
        ("# scheduler-audit: test-only -- (until=2027-01-01)", "`until=` is not how a date is given"),
        ("# scheduler-audit: test-only -- UNTIL=2027-01-01", "`UNTIL=` is not how a date is given"),
        ("# scheduler-audit: test-only -- until 2027-01-01", "`until` is not how a date is given"),
        (
            "# scheduler-audit: test-only scheduler-audit: test-only",
            "two `scheduler-audit` annotations in one comment",
        ),
        ("# scheduler-audit: test-only -- " + "x" * 10_000, "the comment has more than 10000 characters"),
        (
            "# scheduler-audit: test-only  # scheduler_audit: test-only",
            "two `scheduler-audit` annotations in one comment",
        ),
    ],
)
def test_malformed(text: str, message: str) -> None:
    defect = read(trailing(1, text), SCHEDULER_AUDIT)
    assert isinstance(defect, Defect)
    assert (defect.code, defect.message) == ("BYP011", f"malformed annotation: {message}")
    assert defect.help == (
        "write `# scheduler-audit: <reason>`, then if needed ` -- free text` and `until=YYYY-MM-DD`; "
        "reasons are `scheduler-owned`, `standalone-compat`, `definition-site`, `test-only`"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# scheduler-audit: tests-only", "unknown reason `tests-only`; did you mean `test-only`?"),
        ("# scheduler-audit: test_only", "unknown reason `test_only`; did you mean `test-only`?"),
        ("# scheduler-audit: Test-Only", "unknown reason `Test-Only`; did you mean `test-only`?"),
        ("# scheduler-audit: test-only, old", "unknown reason `test-only,`; did you mean `test-only`?"),
        ("# scheduler-audit: because", "unknown reason `because`"),
        ("# scheduler-audit: because it is old until=soon", "unknown reason `because`"),
        ("# scheduler-audit: a\x0cb", "unknown reason `a`"),
        ("# scheduler-audit: a\ud800b", "unknown reason `a\\ud800b`"),
        ("# scheduler-audit: " + "a" * 100, f"unknown reason `{'a' * 57}...`"),
    ],
)
def test_unknown_reason(text: str, message: str) -> None:
    defect = read(trailing(1, text), SCHEDULER_AUDIT)
    assert isinstance(defect, Defect)
    assert (defect.code, defect.message) == ("BYP010", message)
    assert defect.help == ("reasons are `scheduler-owned`, `standalone-compat`, `definition-site`, `test-only`")


def test_owners() -> None:
    owners = {
        value: read(trailing(1, f"# execution-ownership: {value} -- issue 7"), EXECUTION_OWNERSHIP)
        for value in EXECUTION_OWNERSHIP.values
    }
    assert {value: type(result) for value, result in owners.items()} == dict.fromkeys(owners, Annotation)
    unknown = read(trailing(1, "# execution-ownership: test-only"), EXECUTION_OWNERSHIP)
    assert isinstance(unknown, Defect)
    assert (unknown.code, unknown.message) == (
        "OWN020",
        "unknown owner `test-only`; did you mean `test_only`?",
    )
    assert unknown.help == (
        "owners are `scheduler`, `interactive`, `standalone_compat`, `definition_or_adapter`, "
        "`deferred_domain_executor`, `test_only`"
    )


@pytest.mark.parametrize(
    "rest", ["", " --", " until=2027-01-01", " -- until=2027-01-01", " -- \u200b", " -- \u2060\u00a0 \ufeff"]
)
def test_deferred_work_needs_a_followup(rest: str) -> None:
    comment = trailing(1, f"# execution-ownership: deferred_domain_executor{rest}")
    defect = read(comment, EXECUTION_OWNERSHIP)
    assert isinstance(defect, Defect)
    assert (defect.code, defect.message) == (
        "OWN021",
        "malformed annotation: `deferred_domain_executor` needs its followup as free text after ` -- `",
    )


_WORDS = st.lists(st.text(st.characters(exclude_categories=("Z", "C", "P", "S")), min_size=1, max_size=8), max_size=5)
_SPACE = st.sampled_from(["", " ", "  ", "\t"])


@st.composite
def rendered_annotations(draw: st.DrawFn) -> tuple[Marker, str, str, date | None, str]:
    """A marker, the text of a comment for it, and the value, date and free text that it was rendered from."""
    marker = draw(st.sampled_from(MARKERS))
    value = draw(st.sampled_from(marker.values))
    note = " ".join(draw(_WORDS))
    assume("until" not in note.lower())
    assume(note or value not in marker.explained)
    until = draw(st.none() | st.dates())
    term = f" until{draw(_SPACE)}={draw(_SPACE)}{until}" if until else ""
    text = f"{draw(_SPACE)}--{draw(_SPACE)}{note}" if note else ""
    rest = draw(st.sampled_from([term + text, text + term]))
    before = draw(st.sampled_from(["", "noqa: S603 ", "by hand. ", "type: ignore  # "]))
    rendered = f"#{draw(_SPACE)}{before}{marker.keyword}{draw(_SPACE)}:{draw(_SPACE)}{value}{rest}"
    return marker, rendered + draw(st.sampled_from(["", " ", "  # noqa: S603"])), value, until, note


@given(rendered_annotations())
def test_round_trip(rendered: tuple[Marker, str, str, date | None, str]) -> None:
    marker, text, value, until, note = rendered
    comment = trailing(1, text)
    assert read(comment, marker) == Annotation(comment, value, until, note)


_FRAGMENTS = st.sampled_from(
    [marker.keyword for marker in MARKERS]
    + [value for marker in MARKERS for value in marker.values]
    + ["scheduler_audit", "Execution Ownership", ":", " -- ", "until=", "2027-01-01", "#", "=", " "]
    + ["noqa: E501", "\u2028", "\x0c", "\ud800"]
)


@given(st.lists(_FRAGMENTS | st.text(max_size=5), max_size=12).map("".join))
def test_any_text_is_read_without_error(text: str) -> None:
    for marker in MARKERS:
        result = read(trailing(1, "#" + text), marker)
        if result is not None:
            assert any(keyword in text for keyword in ANNOTATION_KEYWORDS)
        if isinstance(result, Defect):
            assert result.code in CODES
            for line in (result.message, result.help):
                assert line.isprintable()
                assert len(line) < 250


# Placement


@pytest.mark.parametrize(
    ("comment", "blessed"),
    [
        (trailing(9), False),
        (trailing(10), True),
        (trailing(11), False),
        (trailing(12), True),
        (trailing(13), False),
        (trailing(14), True),
        (trailing(15), False),
        (trailing(16), True),
        (trailing(17), False),
        (own_line(9), True),
        (own_line(7, block_last=9), True),
        (own_line(8), False),
        (own_line(10), False),
        (own_line(11), True),
        (own_line(12), False),
        (own_line(13), False),
        (own_line(15), False),
        (own_line(16), False),
    ],
)
def test_lines_of_the_call_expression(comment: Comment, blessed: bool) -> None:
    call = site(12, first=10, paren=14, last=16, statement=(1, 5, 20))
    other = site(18, statement=(1, 5, 20))
    assert (call in judge([comment], [call, other]).by_site) is blessed


@pytest.mark.parametrize("comment", [trailing(5), trailing(20), own_line(4), own_line(2, block_last=4)])
def test_the_statement_speaks_only_for_a_single_site(comment: Comment) -> None:
    call = site(12, statement=(1, 5, 20))
    assert list(judge([comment], [call]).by_site) == [call]
    crowded = judge([comment], [call, site(13, statement=(1, 5, 20))])
    assert not crowded.by_site
    where = "above" if comment.own_line else "on"
    assert only(crowded).code == "BYP012"
    assert f"it stands {where} a statement that holds 2 sites" in only(crowded).message


def test_sites_that_do_not_count_do_not_crowd_a_statement() -> None:
    counted, other = site(12, statement=(1, 5, 20)), site(13, statement=(1, 5, 20))
    file = SourceFile("src/app.py", sites=(counted, other), comments=(own_line(4),))
    blessings = bless(file, [counted], SCHEDULER_AUDIT, today=TODAY, tests=PathSet(), authority=None)
    assert list(blessings.by_site) == [counted]
    assert blessings.findings == ()


def test_one_annotation_on_a_line_speaks_of_every_site_reported_on_it() -> None:
    pair = [site(3, column=1, statement=(1, 3, 3)), site(3, column=20, statement=(2, 3, 3))]
    assert list(judge([trailing(3)], pair).by_site) == pair
    assert list(judge([own_line(2)], pair).by_site) == pair


def test_a_comment_that_blesses_one_site_is_not_misplaced_for_another() -> None:
    outer, inner = site(3, last=6, statement=(1, 3, 6)), site(4, statement=(1, 3, 6))
    blessings = judge([trailing(4)], [outer, inner])
    assert list(blessings.by_site) == [inner]
    assert blessings.findings == ()


def test_cells_are_worlds_of_their_own() -> None:
    first, second = site(3, cell=1), site(3, cell=2)
    assert list(judge([trailing(3, cell=2)], [first, second]).by_site) == [second]
    finding = only(judge([own_line(1, cell=3)], [first, second]))
    assert (finding.code, finding.cell) == ("BYP013", 3)
    header = Header(1, 1, 5, cell=1)
    assert only(judge([trailing(1, cell=2)], [site(4, cell=2)], headers=[header])).code == "BYP013"


@pytest.mark.parametrize(
    ("comment", "where"),
    [
        (trailing(11), "on an argument line"),
        (own_line(11), "on an argument line"),
        (trailing(13), "on another line of the statement"),
        (own_line(13), "on another line of the statement"),
        (trailing(8), "at the end of the line before"),
        (own_line(7), "above, but not directly above"),
        (own_line(6), "above, but not directly above"),
        (own_line(15), "below"),
        (trailing(3), "at the header of a block and so not for what follows it"),
        (trailing(4), "at the header of a block and so not for what follows it"),
        (own_line(2), "at a decorator and so not for what follows it"),
        (trailing(2), "at a decorator and so not for what follows it"),
        (own_line(1), "at a decorator and so not for what follows it"),
    ],
)
def test_misplaced_says_where_to_put_it(comment: Comment, where: str) -> None:
    call = site(10, last=12, statement=(1, 9, 14))
    headers = [Header(2, 2, 20, is_decorator=True), Header(3, 4, 20)]
    finding = only(judge([comment], [call], headers=headers))
    assert finding == Finding(
        code="BYP012",
        name="misplaced-annotation",
        path="src/app.py",
        line=comment.line,
        column=comment.column,
        message="misplaced annotation `scheduler-audit: standalone-compat`: it stands "
        f"{where}; for `subprocess.run` it belongs on line 10",
        help="move it to the end of line 10, or onto a line of its own directly above line 10",
        api="subprocess.run",
        symbol="start",
        ordinal=10,
    )


@pytest.mark.parametrize("comment", [own_line(6), trailing(7), trailing(8), trailing(15), own_line(16), trailing(40)])
def test_unused_where_no_site_is_near(comment: Comment) -> None:
    finding = only(judge([comment], [site(10, last=14)], headers=[Header(1, 1, 20)]))
    assert (finding.code, finding.name, finding.line) == ("BYP013", "unused-annotation", comment.line)
    assert finding.message == "unused annotation `scheduler-audit: standalone-compat`: no site that needs it is near"
    assert finding.help == "remove it"


def test_a_header_speaks_of_the_first_site_below_it_that_has_no_annotation() -> None:
    sites = [site(5), site(7), site(9)]
    header = Header(3, 3, 9)
    blessings = judge([trailing(3), trailing(5)], sites, headers=[header])
    assert list(blessings.by_site) == [sites[0]]
    assert (only(blessings).code, only(blessings).ordinal) == ("BYP012", 7)
    beyond = judge([trailing(3)], [site(12)], headers=[header])
    assert only(beyond).code == "BYP013"


@pytest.mark.parametrize("comment", [trailing(3), own_line(2)])
def test_a_header_directly_above_its_site_is_named_as_one(comment: Comment) -> None:
    finding = only(judge([comment], [site(4)], headers=[Header(3, 3, 4)]))
    assert "it stands at the header of a block and so not for what follows it" in finding.message


def test_the_nearest_call_of_a_statement_is_named() -> None:
    sites = [site(2, last=5, statement=(1, 1, 11)), site(6, last=10, statement=(1, 1, 11))]
    findings = judge([trailing(3), trailing(8)], sites).findings
    assert [finding.ordinal for finding in findings] == [2, 6]


# Values against dates, paths and one another


def test_until_is_the_last_day() -> None:
    call = site(3)
    for day, code in ((TODAY, None), (TODAY - timedelta(days=1), "BYP014")):
        blessings = judge([trailing(3, f"{AUDIT} until={day}")], [call])
        assert [finding.code for finding in blessings.findings] == ([code] if code else [])
        assert (call in blessings.by_site) is (code is None)
    finding = only(judge([trailing(3, f"{AUDIT} -- old until=2026-05-31")], [call]))
    assert finding.message == ("annotation `scheduler-audit: standalone-compat` expired: its last day was 2026-05-31")
    assert (finding.api, finding.symbol, finding.ordinal) == ("subprocess.run", "start", 3)


def test_an_expired_annotation_does_not_hide_one_that_holds() -> None:
    call = site(3)
    blessings = judge([own_line(2, f"{AUDIT} until=2020-01-01"), trailing(3)], [call])
    assert blessings.by_site[call].comment.line == 3
    assert (only(blessings).code, only(blessings).line) == ("BYP014", 2)


@pytest.mark.parametrize(
    ("marker", "text", "tests", "authority", "code", "blessed"),
    [
        (SCHEDULER_AUDIT, "# scheduler-audit: test-only", ["src/"], None, None, True),
        (SCHEDULER_AUDIT, "# scheduler-audit: test-only", ["tests/"], None, "BYP015", False),
        (SCHEDULER_AUDIT, "# scheduler-audit: scheduler-owned", [], ["src/"], None, True),
        (SCHEDULER_AUDIT, "# scheduler-audit: scheduler-owned", ["src/"], ["lib/"], "BYP016", False),
        (SCHEDULER_AUDIT, "# scheduler-audit: scheduler-owned", [], None, "BYP016", False),
        (EXECUTION_OWNERSHIP, "# execution-ownership: test_only", ["src/app.py"], None, None, True),
        (EXECUTION_OWNERSHIP, "# execution-ownership: test_only", [], None, "OWN025", False),
        (EXECUTION_OWNERSHIP, "# execution-ownership: forbidden_bypass", [], None, "OWN026", True),
    ],
)
def test_values_hold_in_their_paths(
    marker: Marker, text: str, tests: list[str], authority: list[str] | None, code: str | None, blessed: bool
) -> None:
    call = site(3)
    blessings = judge([trailing(3, text)], [call], marker=marker, tests=tests, authority=authority)
    assert [finding.code for finding in blessings.findings] == ([code] if code else [])
    assert (call in blessings.by_site) is blessed


def test_contradicting_annotations_bless_nothing() -> None:
    call = site(3)
    blessings = judge([own_line(2), trailing(3, "# scheduler-audit: definition-site")], [call])
    assert not blessings.by_site
    assert (only(blessings).code, only(blessings).line) == ("BYP011", 3)
    assert only(blessings).message == (
        "malformed annotation: `definition-site` contradicts `standalone-compat` on line 2; "
        "both speak of `subprocess.run` on line 3"
    )
    agreeing = judge([own_line(2), trailing(3)], [call])
    assert list(agreeing.by_site) == [call]
    assert agreeing.findings == ()


def test_a_comment_that_contradicts_for_several_sites_is_reported_once() -> None:
    pair = [site(3, column=1), site(3, column=20)]
    blessings = judge([own_line(2), trailing(3, "# scheduler-audit: definition-site")], pair)
    assert not blessings.by_site
    assert (only(blessings).code, only(blessings).line) == ("BYP011", 3)


def test_every_finding_has_the_name_of_its_code() -> None:
    for marker in MARKERS:
        codes = [marker.unknown, marker.malformed, marker.misplaced, marker.unused, marker.expired]
        codes += [pair[1] for pair in (marker.test_only, marker.authority_only, marker.forbidden) if pair]
        assert len(set(codes)) == len(codes)
        assert set(codes) <= set(CODES)


# Properties of placement


@st.composite
def layouts(draw: st.DrawFn, base: int = 0) -> list[Site]:
    """Sites in statements that share no line with one another, from line ``base`` + 1 on."""
    sites: list[Site] = []
    line = base
    for number in range(draw(st.integers(1, 4))):
        begin = line + draw(st.integers(1, 4))
        end = begin + draw(st.integers(0, 6))
        for column in range(draw(st.integers(1, 3))):
            first, name, paren, last = sorted(draw(st.tuples(*[st.integers(begin, end)] * 4)))
            held = (base + number, begin, end)
            sites.append(site(name, first=first, paren=paren, last=last, statement=held, column=column + 1))
        line = end
    return sites


@st.composite
def standing_comments(draw: st.DrawFn) -> list[Comment]:
    lines = sorted(draw(st.sets(st.integers(1, 45), max_size=6)))
    return [draw(st.sampled_from([trailing(line), own_line(line)])) for line in lines]


def _touches(comment: Comment, held: Site) -> bool:
    line = comment.block_last_line + 1 if comment.own_line else comment.line
    return held.extent.statement_first_line <= line <= held.extent.statement_last_line


@given(layouts(), standing_comments())
def test_never_blesses_a_site_in_another_statement(sites: list[Site], comments: list[Comment]) -> None:
    for held, annotation in judge(comments, sites).by_site.items():
        assert _touches(annotation.comment, held)


@given(layouts(), standing_comments())
def test_every_annotation_blesses_or_is_reported(sites: list[Site], comments: list[Comment]) -> None:
    for comment in comments:
        blessings = judge([comment], sites)
        codes = [finding.code for finding in blessings.findings]
        assert codes == [] if blessings.by_site else codes in (["BYP012"], ["BYP013"])


@given(layouts(), layouts(base=100), standing_comments())
def test_unrelated_sites_change_nothing(sites: list[Site], elsewhere: list[Site], comments: list[Comment]) -> None:
    alone = judge(comments, sites)
    in_cell = [replace(other, cell=7) for other in sites]
    assert judge(comments, [*elsewhere, *sites, *in_cell]) == alone


@given(layouts(), standing_comments(), st.randoms())
def test_order_of_sites_and_comments_does_not_matter(
    sites: list[Site], comments: list[Comment], random: Random
) -> None:
    expected = judge(comments, sites)
    shuffled = sorted(sites, key=lambda _: random.random())
    got = judge(comments[::-1], shuffled)
    assert got.by_site == expected.by_site
    assert [(f.code, f.line) for f in got.findings] == [(f.code, f.line) for f in expected.findings]


# The placement table, with the real front end, before and after the formatters


@dataclass(frozen=True)
class Expected:
    """A fixture's sidecar."""

    marker: Marker
    tests: PathSet
    authority: PathSet
    sites: list[tuple[int, str, bool]]
    findings: list[tuple[int, str]]

    @property
    def blesses(self) -> bool:
        return any(blessed for _, _, blessed in self.sites)


def load(name: str) -> Expected:
    data = tomllib.loads((FIXTURES / f"{name}.toml").read_text(encoding="utf-8"))
    (marker,) = (marker for marker in MARKERS if marker.keyword == data["marker"])
    return Expected(
        marker=marker,
        tests=PathSet(data.get("tests", ())),
        authority=PathSet(data.get("authority", ())),
        sites=[(entry["line"], entry["api"], entry["blessed"]) for entry in data.get("site", ())],
        findings=[(entry["line"], entry["code"]) for entry in data.get("finding", ())],
    )


NAMES = sorted(path.stem for path in FIXTURES.glob("*.py"))
BLESSING = [name for name in NAMES if load(name).blesses]
FORMATTERS = {
    "ruff-88": ["ruff", "format", "--isolated", "--quiet", "--line-length", "88"],
    "ruff-110": ["ruff", "format", "--isolated", "--quiet", "--line-length", "110"],
    "black-88": ["black", "--config", "black.toml", "--quiet", "--line-length", "88"],
    "black-110": ["black", "--config", "black.toml", "--quiet", "--line-length", "110"],
}


def scan_folder(root: Path) -> dict[str, SourceFile]:
    return {file.path.removesuffix(".py"): file for file in scan(Scan(root=root, jobs=1)).files}


def verdict(file: SourceFile, expected: Expected) -> tuple[list[tuple[int, str, bool]], list[tuple[int, str]]]:
    counts = Selection().counts
    sites = sorted(filter(counts, file.sites), key=lambda held: (held.line, held.column))
    marker, tests, authority = expected.marker, expected.tests, expected.authority
    result = bless(file, sites, marker, today=TODAY, tests=tests, authority=authority)
    return (
        [(held.line, held.api, held in result.by_site) for held in sites],
        [(finding.line, finding.code) for finding in result.findings],
    )


@pytest.fixture(scope="module")
def table() -> dict[str, SourceFile]:
    return scan_folder(FIXTURES)


@pytest.fixture(scope="module", params=FORMATTERS)
def formatted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SourceFile]:
    root = tmp_path_factory.mktemp("formatted")
    for path in FIXTURES.glob("*.py"):
        shutil.copy(path, root)
    (root / "black.toml").write_text("", encoding="utf-8")
    command = [sys.executable, "-m", *FORMATTERS[request.param], "."]
    subprocess.run(command, cwd=root, check=True, timeout=120)
    return scan_folder(root)


def test_every_fixture_has_a_sidecar() -> None:
    assert sorted(path.stem for path in FIXTURES.glob("*.toml")) == NAMES
    assert len(BLESSING) > 30


@pytest.mark.parametrize("name", NAMES)
def test_placement(table: dict[str, SourceFile], name: str) -> None:
    expected = load(name)
    assert verdict(table[name], expected) == (expected.sites, expected.findings)


@pytest.mark.parametrize("name", BLESSING)
def test_placement_survives_formatting(formatted: dict[str, SourceFile], name: str) -> None:
    """Lines move; which sites are blessed, in source order, and what is reported do not."""
    expected = load(name)
    sites, findings = verdict(formatted[name], expected)
    assert [(api, blessed) for _, api, blessed in sites] == [(api, blessed) for _, api, blessed in expected.sites]
    assert [code for _, code in findings] == [code for _, code in expected.findings]
