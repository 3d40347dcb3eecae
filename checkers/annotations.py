"""Annotations: comments that speak for single sites, where they may stand, and what they bless.

``# scheduler-audit: <reason>`` and ``# execution-ownership: <owner>`` may be followed by `` -- free text``
and by ``until=YYYY-MM-DD``, in either order; other text may stand before them in the comment. :func:`read`
turns a comment's text into an :class:`Annotation` or a :class:`Defect`; :func:`bless` decides which sites of
a file each annotation speaks of and reports every annotation that is wrong, stands wrong, or speaks of
nothing. ``docs/annotations.md`` holds the rules in prose, ``fixtures/annotations/`` one small source file for
each placement. Comments come from the front end; no source text is read here.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache

import msgspec

from checkers.codes import CODES
from checkers.lines import is_blank
from checkers.model import Comment, Finding, Header, PathSet, Site, SourceFile

ANNOTATION_KEYWORDS: tuple[str, ...] = ("audit", "Audit", "AUDIT", "ownership", "Ownership", "OWNERSHIP")
"""A comment that holds none of these (plain ``in``) is no annotation, not even a misspelled one."""

_LONGEST_COMMENT = 10_000
"""Characters of a comment that are read, so that no comment can hold up a run; a longer one is malformed."""
_MOST_BLANK_LINES = 2
"""Formatters keep no more than these, so an own-line annotation further above a site is not near it."""


class Marker(msgspec.Struct, frozen=True):
    """One kind of annotation: its keyword, the values it takes and the codes of its findings."""

    keyword: str
    noun: str
    """What its value is called in messages."""
    values: tuple[str, ...]
    unknown: str
    malformed: str
    misplaced: str
    unused: str
    expired: str
    test_only: tuple[str, str]
    """The value that holds in test paths only, and the code for it elsewhere."""
    authority_only: tuple[str, str] | None = None
    """The value that holds in the scheduler's own paths only, and the code for it elsewhere."""
    forbidden: tuple[str, str] | None = None
    """The value that declares a site wrong, and its code."""
    explained: frozenset[str] = frozenset()
    """Values that need free text, which says what follows."""


SCHEDULER_AUDIT = Marker(
    keyword="scheduler-audit",
    noun="reason",
    values=("scheduler-owned", "standalone-compat", "definition-site", "test-only"),
    unknown="BYP010",
    malformed="BYP011",
    misplaced="BYP012",
    unused="BYP013",
    expired="BYP014",
    test_only=("test-only", "BYP015"),
    authority_only=("scheduler-owned", "BYP016"),
)
EXECUTION_OWNERSHIP = Marker(
    keyword="execution-ownership",
    noun="owner",
    values=(
        "scheduler",
        "interactive",
        "standalone_compat",
        "definition_or_adapter",
        "deferred_domain_executor",
        "test_only",
        "forbidden_bypass",
    ),
    unknown="OWN020",
    malformed="OWN021",
    misplaced="OWN022",
    unused="OWN023",
    expired="OWN024",
    test_only=("test_only", "OWN025"),
    forbidden=("forbidden_bypass", "OWN026"),
    explained=frozenset({"deferred_domain_executor"}),
)
_MARKERS = (SCHEDULER_AUDIT, EXECUTION_OWNERSHIP)


class Annotation(msgspec.Struct, frozen=True):
    """A well-formed annotation with a known value. ``note`` is its free text, empty where it has none."""

    comment: Comment
    value: str
    until: date | None
    note: str


class Defect(msgspec.Struct, frozen=True):
    """Why a comment that tries to be an annotation is none."""

    code: str
    message: str
    help: str


class Blessings(msgspec.Struct, frozen=True):
    """Which sites of a file carry a valid annotation, and what is wrong with the file's annotations."""

    by_site: Mapping[Site, Annotation]
    findings: tuple[Finding, ...]


def bless(
    file: SourceFile,
    sites: Sequence[Site],
    marker: Marker,
    *,
    today: date,
    tests: PathSet,
    authority: PathSet | None,
) -> Blessings:
    """Judge the annotations of ``marker`` in ``file`` against ``sites``, those of its sites that count.

    ``tests`` and ``authority`` are the test paths and the scheduler's own paths; None stands for no paths.
    A site is in ``by_site`` if an annotation speaks of it that is not expired and whose value holds in this
    path, and if no other annotation of the site has another value. ``forbidden_bypass`` does name the site's
    owner, so it is in ``by_site`` and is a finding of its own. Findings are in source order.
    """
    validity = _Validity(marker, file.path, today, tests, authority)
    annotations, findings = _read_all(file, marker)
    places = _Places(sites)
    claims: dict[Site, list[Annotation]] = defaultdict(list)
    idle: list[Annotation] = []
    for annotation in annotations:
        held = places.held(annotation.comment)
        for site in held:
            claims[site].append(annotation)
        if held:
            findings += validity.findings(annotation, held[0])
        else:
            idle.append(annotation)
    findings += _contradictions(claims, marker)
    if idle:
        vicinity = _Vicinity([site for site in sites if site not in claims], file.headers, places)
        findings += [_idle_finding(annotation, marker, file.path, vicinity) for annotation in idle]
    by_site = {site: valid for site, claimed in claims.items() if (valid := validity.first(claimed)) is not None}
    findings.sort(key=lambda finding: (finding.cell or 0, finding.line, finding.column, finding.code))
    return Blessings(by_site, tuple(findings))


# What a comment says


def read(comment: Comment, marker: Marker) -> Annotation | Defect | None:
    """What ``comment`` says in terms of ``marker``; None if it does not try to be such an annotation."""
    text = comment.text[:_LONGEST_COMMENT]
    attempts = list(_attempts(text))
    mine = [index for index, attempt in enumerate(attempts) if attempt.marker is marker]
    if not mine:
        return None
    if len(mine) > 1:
        return _malformed(marker, f"two `{marker.keyword}` annotations in one comment")
    if len(comment.text) > len(text):
        return _malformed(marker, f"the comment has more than {_LONGEST_COMMENT} characters")
    attempt = attempts[mine[0]]
    if not attempt.exact:
        return _malformed(marker, f"`{_shown(attempt.written)}` is not how an annotation is spelled")
    following = attempts[mine[0] + 1 :]
    end = following[0].start if following else len(text)
    return _read_body(comment, marker, _OTHER_COMMENT.split(text[attempt.end : end], maxsplit=1)[0])


def is_attempt(text: str) -> bool:
    """Whether a comment tries to be an annotation, well or badly."""
    return next(_attempts(text), None) is not None


class _Attempt(msgspec.Struct, frozen=True):
    marker: Marker
    start: int
    end: int
    written: str
    exact: bool


_OTHER_COMMENT = re.compile(r"\s#(?![0-9])|#\s*\Z")
"""Where another comment begins in the same one (``# noqa``); ``#12`` is an issue's number in free text."""
_UNTIL = re.compile(r"(?<!\S)until\s*=\s*(?P<date>\S*)")
_LIKE_UNTIL = re.compile(r"\buntil\s*(?:=|(?::\s*)?(?=[0-9]{4}-))", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@cache
def _pattern(keyword: str) -> re.Pattern[str]:
    """Matches ``keyword`` in any case, with any joint between its two words, and the colon after it."""
    first, second = keyword.split("-")
    joint = r"(?P<joint>[-_ \u2010-\u2015\u2212]?)"
    return re.compile(rf"(?<![\w-]){first}{joint}{second}(?![\w-])\s*(?P<colon>[:=\uff1a]?)", re.IGNORECASE)


def _attempts(text: str) -> Iterator[_Attempt]:
    """Every annotation or near miss in ``text``, of all markers, from left to right."""
    found = [(match, marker) for marker in _MARKERS for match in _pattern(marker.keyword).finditer(text)]
    for match, marker in sorted(found, key=lambda pair: pair[0].start()):
        exact = match[0].startswith(marker.keyword) and match["colon"] == ":"
        if exact or _is_near_miss(match, marker):
            yield _Attempt(marker, match.start(), match.end(), match[0].strip(), exact)


def _is_near_miss(match: re.Match[str], marker: Marker) -> bool:
    """Whether a misspelled keyword tries to annotate, rather than being prose or commented-out code.

    Two joined words do where a colon or (nearly) a value follows, or where they are all that the comment
    says; two words apart do where a colon and a value follow.
    """
    colon = match["colon"] not in ("", "=")
    words = match.string[match.end() :].split(maxsplit=1)
    following = words[0] if words else ""
    if match["joint"] in ("", " "):
        return colon and _similar(following, marker, likeness=1.0) is not None
    alone = not words and not match.string[: match.start()].strip(" \t#")
    return colon or alone or _similar(following, marker, likeness=0.85) is not None


def _read_body(comment: Comment, marker: Marker, body: str) -> Annotation | Defect:
    head, _, note = body.partition("--")
    words = _UNTIL.sub(" ", head).split()
    if not words or _LIKE_UNTIL.match(head.lstrip()):
        return _malformed(marker, f"`{marker.keyword}` gives no {marker.noun}")
    value, *rest = words
    if value not in marker.values:
        return _unknown(marker, value)
    until = _read_until(marker, (head, note))
    if isinstance(until, Defect):
        return until
    if rest:
        text = _shown(" ".join(rest))
        return _malformed(marker, f"`{text}` follows the {marker.noun} `{value}` without ` -- ` before it")
    note = " ".join(_UNTIL.sub(" ", note).split())
    if value in marker.explained and is_blank(note):
        return _malformed(marker, f"`{value}` needs its followup as free text after ` -- `")
    return Annotation(comment, value, until, note)


def _read_until(marker: Marker, parts: tuple[str, str]) -> date | Defect | None:
    """The date that an annotation gives before or in its free text."""
    found = [match for part in parts for match in _UNTIL.finditer(part)]
    if len(found) > 1:
        return _malformed(marker, "two `until=` dates")
    misspelled = (like for part in parts for like in _LIKE_UNTIL.finditer(_UNTIL.sub(" ", part)))
    if (like := next(misspelled, None)) is not None:
        return _malformed(marker, f"`{_shown(like[0].strip())}` is not how a date is given")
    if not found:
        return None
    text = found[0]["date"]
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    return _malformed(marker, f"`until={_shown(text)}` is no date")


def _malformed(marker: Marker, what: str) -> Defect:
    form = f"`# {marker.keyword}: <{marker.noun}>`, then if needed ` -- free text` and `until=YYYY-MM-DD`"
    return Defect(marker.malformed, f"malformed annotation: {what}", f"write {form}; {_choices(marker)}")


def _unknown(marker: Marker, value: str) -> Defect:
    meant = _similar(value, marker)
    hint = f"; did you mean `{meant}`?" if meant else ""
    return Defect(marker.unknown, f"unknown {marker.noun} `{_shown(value)}`{hint}", _choices(marker))


def _similar(word: str, marker: Marker, likeness: float = 0.7) -> str | None:
    """The value that ``word`` may stand for: the same but for case, joints and punctuation, or nearly so."""
    plain = {value.replace("_", "-"): value for value in marker.values}
    wanted = word[:80].lower().replace("_", "-").strip(".,;:!()`'\"")
    near = difflib.get_close_matches(wanted, plain, n=1, cutoff=likeness)
    return plain[near[0]] if near else None


def _choices(marker: Marker) -> str:
    allowed = [value for value in marker.values if marker.forbidden is None or value != marker.forbidden[0]]
    return f"{marker.noun}s are {', '.join(f'`{value}`' for value in allowed)}"


def _shown(text: str) -> str:
    """``text`` for one line of a message: short, control characters escaped."""
    short = text if len(text) <= 60 else text[:57] + "..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)


def _read_all(file: SourceFile, marker: Marker) -> tuple[list[Annotation], list[Finding]]:
    annotations: list[Annotation] = []
    findings: list[Finding] = []
    for comment in sorted(file.comments, key=lambda comment: (comment.cell or 0, comment.line, comment.column)):
        match read(comment, marker):
            case Annotation() as annotation:
                annotations.append(annotation)
            case Defect() as defect:
                findings.append(_finding(defect.code, file.path, comment, defect.message, defect.help))
    return annotations, findings


# Where it stands


class _Places:
    """For each line, the sites that a comment there speaks of: the placement table."""

    def __init__(self, sites: Iterable[Site]) -> None:
        sites = tuple(sites)
        self.sharing = Counter((site.cell, site.extent.statement) for site in sites)
        self._trailing: dict[tuple[int | None, int], list[Site]] = defaultdict(list)
        self._above: dict[tuple[int | None, int], list[Site]] = defaultdict(list)
        for site in sites:
            extent = site.extent
            trailing = {extent.first_line, extent.name_line, extent.paren_line, extent.last_line}
            above = {extent.first_line, extent.name_line}
            if self.sharing[site.cell, extent.statement] == 1:
                trailing |= {extent.statement_first_line, extent.statement_last_line}
                above |= {extent.statement_first_line}
            for line in trailing:
                self._trailing[site.cell, line].append(site)
            for line in above:
                self._above[site.cell, line].append(site)

    def held(self, comment: Comment) -> Sequence[Site]:
        """The sites that an annotation in ``comment`` speaks of, in the order given."""
        if comment.own_line:
            return self._above.get((comment.cell, comment.block_last_line + 1), ())
        return self._trailing.get((comment.cell, comment.line), ())


class _Near(msgspec.Struct, frozen=True):
    site: Site
    where: str


class _Vicinity:
    """Finds the site that an idle annotation was probably meant for, among the sites that carry none."""

    def __init__(self, sites: Iterable[Site], headers: Iterable[Header], places: _Places) -> None:
        self._sharing = places.sharing
        self._sites: dict[int | None, list[Site]] = defaultdict(list)
        for site in sorted(sites, key=_source_order):
            self._sites[site.cell].append(site)
        self._starts = {cell: [site.extent.statement_first_line for site in held] for cell, held in self._sites.items()}
        self._headers: dict[tuple[int | None, int], list[Header]] = defaultdict(list)
        for header in headers:
            for line in range(header.first_line, header.last_line + 1):
                self._headers[header.cell, line].append(header)

    def near(self, comment: Comment) -> _Near | None:
        """The site near ``comment`` and where the comment stands; None if there is none."""
        return (
            self._inside(comment)
            or self._above_crowd(comment)
            or self._at_header(comment)
            or self._line_before(comment)
            or self._below(comment)
        )

    def _starting(self, cell: int | None, first: int, last: int) -> Site | None:
        """The first site whose statement begins on one of the lines ``first`` to ``last``."""
        starts = self._starts.get(cell, [])
        index = bisect_left(starts, first)
        return self._sites[cell][index] if index < len(starts) and starts[index] <= last else None

    def _latest(self, cell: int | None, line: int) -> Site | None:
        """Of the last statement that begins before or on ``line``, the last such site, else its first one."""
        starts = self._starts.get(cell, [])
        end = bisect_right(starts, line)
        if not end:
            return None
        sites = self._sites[cell]
        begin = bisect_left(starts, starts[end - 1])
        place = bisect_right(sites, line, lo=begin, hi=end, key=lambda site: site.line)
        return sites[max(place - 1, begin)]

    def _inside(self, comment: Comment) -> _Near | None:
        site = self._latest(comment.cell, comment.line)
        if site is None or comment.line > site.extent.statement_last_line:
            return None
        extent = site.extent
        if not comment.own_line and comment.line in (extent.statement_first_line, extent.statement_last_line):
            return _Near(site, f"on a statement that holds {self._count(site)} sites, at none of them")
        if extent.first_line <= comment.line <= extent.last_line:
            return _Near(site, "on an argument line")
        return _Near(site, "on another line of the statement")

    def _above_crowd(self, comment: Comment) -> _Near | None:
        below = comment.block_last_line + 1
        site = self._starting(comment.cell, below, below) if comment.own_line else None
        return _Near(site, f"above a statement that holds {self._count(site)} sites") if site else None

    def _count(self, site: Site) -> int:
        return self._sharing[site.cell, site.extent.statement]

    def _at_header(self, comment: Comment) -> _Near | None:
        headers = list(self._headers.get((comment.cell, comment.line), ()))
        if comment.own_line:
            headers += self._headers.get((comment.cell, comment.block_last_line + 1), ())
        for header in headers:
            if site := self._starting(comment.cell, header.last_line + 1, header.body_last_line):
                owner = "a decorator" if header.is_decorator else "the header of a block"
                return _Near(site, f"at {owner} and so not for what follows it")
        return None

    def _line_before(self, comment: Comment) -> _Near | None:
        below = comment.block_last_line + 1
        if comment.own_line:
            site = self._starting(comment.cell, below, below + _MOST_BLANK_LINES)
            return _Near(site, "above, but not directly above") if site else None
        site = self._starting(comment.cell, below, below)
        return _Near(site, "at the end of the line before") if site else None

    def _below(self, comment: Comment) -> _Near | None:
        site = self._latest(comment.cell, comment.line - 1) if comment.own_line else None
        if site is None or site.extent.statement_last_line != comment.line - 1:
            return None
        return _Near(site, "below")


def _source_order(site: Site) -> tuple[int, int, int]:
    return site.extent.statement_first_line, site.line, site.column


# What is wrong with it


class _Validity(msgspec.Struct, frozen=True):
    """What an annotation that speaks of a site must satisfy: its date and the path it stands in."""

    marker: Marker
    path: str
    today: date
    tests: PathSet
    authority: PathSet | None

    def first(self, claimed: Sequence[Annotation]) -> Annotation | None:
        """The first annotation of a site that holds; None if none does or if they contradict one another."""
        if any(annotation.value != claimed[0].value for annotation in claimed):
            return None
        if self._misses_paths(claimed[0].value) is not None:
            return None
        return next((annotation for annotation in claimed if not self._is_expired(annotation)), None)

    def findings(self, annotation: Annotation, site: Site) -> Iterator[Finding]:
        """What is wrong with an annotation that speaks of ``site``, whatever other sites it speaks of."""
        marker, value, comment = self.marker, annotation.value, annotation.comment
        if self._is_expired(annotation):
            message = f"annotation `{marker.keyword}: {value}` expired: its last day was {annotation.until}"
            mend = "hand the work to the scheduler and remove the annotation, or set a later date"
            yield _finding(marker.expired, self.path, comment, message, mend, site)
        if (missed := self._misses_paths(value)) is not None:
            code, where = missed
            message = f"{marker.noun} `{value}` holds only in {where}"
            mend = f"hand the work to the scheduler, give another {marker.noun}, or mend the manifest's paths"
            yield _finding(code, self.path, comment, message, mend, site)
        if marker.forbidden is not None and value == marker.forbidden[0]:
            message = f"`{site.api}` is annotated `{value}`: this work must not start here"
            mend = "hand the work to the scheduler and remove the annotation"
            yield _finding(marker.forbidden[1], self.path, comment, message, mend, site)

    def _is_expired(self, annotation: Annotation) -> bool:
        """``until`` is the last day on which the annotation holds."""
        return annotation.until is not None and annotation.until < self.today

    def _misses_paths(self, value: str) -> tuple[str, str] | None:
        """The code for a ``value`` that does not hold in this path, and the paths where it would."""
        marker = self.marker
        if value == marker.test_only[0] and not self.tests.matches(self.path):
            return marker.test_only[1], "the manifest's test paths"
        if marker.authority_only is not None and value == marker.authority_only[0]:
            inside = self.authority is not None and self.authority.matches(self.path)
            return None if inside else (marker.authority_only[1], "the scheduler's own paths")
        return None


def _idle_finding(annotation: Annotation, marker: Marker, path: str, vicinity: _Vicinity) -> Finding:
    comment, said = annotation.comment, f"{marker.keyword}: {annotation.value}"
    near = vicinity.near(comment)
    if near is None:
        message = f"unused annotation `{said}`: no site that needs it is near"
        return _finding(marker.unused, path, comment, message, "remove it")
    line, first = near.site.line, near.site.extent.first_line
    where = f"it stands {near.where}; for `{near.site.api}` it belongs on line {line}"
    message = f"misplaced annotation `{said}`: {where}"
    mend = f"move it to the end of line {line}, or onto a line of its own directly above line {first}"
    return _finding(marker.misplaced, path, comment, message, mend, near.site)


def _contradictions(claims: Mapping[Site, Sequence[Annotation]], marker: Marker) -> Iterator[Finding]:
    """One finding for each comment whose value is not that of the first annotation of a site it speaks of."""
    told: set[Comment] = set()
    for site, (first, *others) in claims.items():
        for other in others:
            if other.value == first.value or other.comment in told:
                continue
            told.add(other.comment)
            message = (
                f"malformed annotation: `{other.value}` contradicts `{first.value}` "
                f"on line {first.comment.line}; both speak of `{site.api}` on line {site.line}"
            )
            mend = f"keep the one {marker.noun} that is true and remove the other"
            yield _finding(marker.malformed, site.path, other.comment, message, mend, site)


def _finding(code: str, path: str, comment: Comment, message: str, mend: str, site: Site | None = None) -> Finding:
    return Finding(
        code=code,
        name=CODES[code].name,
        path=path,
        line=comment.line,
        column=comment.column,
        message=message,
        help=mend,
        api=site.api if site else None,
        symbol=site.symbol if site else None,
        ordinal=site.ordinal if site else None,
        cell=comment.cell,
    )
