"""The text report, for a person at a terminal and for whatever reads ``path:line:col: CODE message`` lines.

A finding is one line whatever its path or message holds: characters that do not print are shown as escapes.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from checkers.model import Finding, Unanalysed
from checkers.report.model import PLAIN, ListedSite, Look, Report, Source, UnanalysedFile, statistics

EXCERPT_WIDTH = 100
"""Terminal cells given to a source line; a longer one is cut to a window around the marked name."""

TAB_WIDTH = 4

_NAME = re.compile(r"\w+|%+\w*|!+")
_RESET = "\x1b[0m"


class Excerpt(NamedTuple):
    """A source line as shown, and where the marker stands under it, in terminal cells from 0."""

    text: str
    indent: int
    width: int


class _Paint:
    """Terminal colours, or none."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def bad(self, text: str) -> str:
        return self._paint("1;31", text)

    def good(self, text: str) -> str:
        return self._paint("1;32", text)

    def marker(self, text: str) -> str:
        return self._paint("1;33", text)

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}{_RESET}" if self._color and text else text


def render(report: Report, look: Look = PLAIN, /) -> str:
    """The report as lines of text."""
    paint = _Paint(look.color)
    blocks: list[list[str]] = []
    if report.listing:
        blocks.append([_site_line(listed) for listed in report.sites])
        blocks.append([_place_line(entry.file, paint) for entry in _shown(report, look)])
    elif look.quiet:
        blocks.append([_place_line(finding, paint) for finding in report.findings])
        blocks.append([_place_line(entry.file, paint) for entry in _shown(report, look)])
    else:
        blocks.extend(_blocks(report, paint))
    if look.statistics:
        blocks.extend(_statistics(report, paint))
    if not report.listing and not look.quiet:
        blocks.append([*_hint(report, paint), _summary(report, paint)])
    between = "\n" if not report.listing and not look.quiet else ""
    return between.join("".join(f"{line}\n" for line in block) for block in blocks if block)


def escape(text: str) -> str:
    """``text`` on one line: line ends, bidirectional marks, lone surrogates and the like are escaped."""
    return text if text.isprintable() else "".join(map(_shown_character, text))


def excerpt(line: str, column: int) -> Excerpt:
    """``line`` as a terminal shows it, and the cells under the name that begins at ``column`` (1-based).

    Tabs become spaces, wide characters take two cells, combining ones none; what does not print is escaped.
    Of a line longer than ``EXCERPT_WIDTH`` cells a window around the marker is shown, ``...`` for the rest.
    """
    start = min(max(column - 1, 0), len(line))
    name = _NAME.match(line, start)
    end = name.end() if name is not None else min(start + 1, len(line))
    drawn = _draw(line)
    before = drawn.edges[start]
    marked = drawn.edges[end] - before or 1
    if drawn.edges[-1] <= EXCERPT_WIDTH:
        return Excerpt("".join(drawn.texts).rstrip(), before, marked)
    return _window(drawn, before, marked)


class _Drawn(NamedTuple):
    """A line as a terminal shows it."""

    texts: Sequence[str]
    """Of each character."""
    edges: Sequence[int]
    """The terminal cell at which each character begins, and behind the last the one at which the line ends."""


@lru_cache(maxsize=1)
def _draw(line: str) -> _Drawn:
    # Findings come in the order of lines: of a generated file of one line all are shown from one drawing.
    if line.isascii() and line.isprintable():
        return _Drawn(line, range(len(line) + 1))
    texts: list[str] = []
    edges = [0]
    for character in line:
        if character == "\t":
            width = TAB_WIDTH - edges[-1] % TAB_WIDTH
            texts.append(" " * width)
        else:
            shown = _shown_character(character)
            width = len(shown) if shown != character else _width(character)
            texts.append(shown)
        edges.append(edges[-1] + width)
    return _Drawn(texts, edges)


def _window(drawn: _Drawn, before: int, marked: int) -> Excerpt:
    """The part of a long line that has its marker about a third from the left."""
    first = max(0, before - EXCERPT_WIDTH // 3)
    start = bisect_left(drawn.edges, first)
    end = bisect_right(drawn.edges, first + EXCERPT_WIDTH) - 1
    lead = "..." if start else ""
    text = lead + "".join(drawn.texts[start:end]).rstrip() + ("..." if end < len(drawn.texts) else "")
    indent = before - drawn.edges[start] + len(lead)
    return Excerpt(text, indent, min(marked, EXCERPT_WIDTH + len(lead) - indent))


def _shown_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _place(thing: Finding | Unanalysed) -> str:
    cell = f"cell {thing.cell}:" if thing.cell is not None else ""
    return f"{escape(thing.path)}:{cell}{thing.line}:{thing.column}"


def _place_line(thing: Finding | Unanalysed, paint: _Paint) -> str:
    return f"{paint.bold(_place(thing))}: {paint.bad(thing.code)} {escape(thing.message)}"


def _site_line(listed: ListedSite) -> str:
    site = listed.site
    cell = f"cell {site.cell}:" if site.cell is not None else ""
    place = f"{escape(site.path)}:{cell}{site.line}:{site.column}"
    return f"{place} {site.kind} {escape(site.api)} {listed.owner or '-'} {escape(site.symbol) or '-'}"


def _shown(report: Report, look: Look) -> tuple[UnanalysedFile, ...]:
    return report.unaccepted if look.quiet else report.unanalysed


def _blocks(report: Report, paint: _Paint) -> Iterator[list[str]]:
    shared = _shared_help(report)
    for finding in report.findings:
        yield _block(finding, report.source, paint, "" if finding.help in shared else finding.help)
    for entry in report.unanalysed:
        file = entry.file
        lines = _block(file, report.source, paint, "" if entry.accepted or file.help in shared else file.help)
        if entry.accepted is not None:
            lines.append(paint.dim(f"       = accepted in the manifest: {escape(entry.accepted)}"))
        yield lines
    for help_text, codes in shared.items():
        title = ", ".join(f"{code} ×{count}" for code, count in codes.items())
        yield [paint.bold(title), *(f"  {line}" for line in _help_lines(help_text))]


def _block(thing: Finding | Unanalysed, source: Source, paint: _Paint, help_text: str) -> list[str]:
    lines = [_place_line(thing, paint)]
    text = source.line(thing.path, thing.line, thing.cell)
    if text is not None and text.strip():
        shown = excerpt(text, thing.column)
        lines.append(f"{paint.dim(f'{thing.line:6} |')} {shown.text}")
        lines.append(f"{paint.dim('       |')} {' ' * shown.indent}{paint.marker('^' * shown.width)}")
    if help_text:
        first, *rest = _help_lines(help_text)
        lines.append(f"{paint.dim('       =')} {first}")
        lines.extend(f"         {line}" for line in rest)
    return lines


def _help_lines(help_text: str) -> list[str]:
    """Each way out on a line of its own: rules join them with ``; or``. Long ones are wrapped."""
    ways = help_text.replace("; or ", "\nor ").split("\n")
    return [line for way in ways for line in _wrapped(escape(way))]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, EXCERPT_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _shared_help(report: Report) -> Mapping[str, Mapping[str, int]]:
    """Help that several findings share, with how many of each code do: it is said once, at the end."""
    codes: dict[str, Counter[str]] = {}
    told: list[Finding | Unanalysed] = [*report.findings, *(entry.file for entry in report.unaccepted)]
    for thing in told:
        if thing.help:
            codes.setdefault(thing.help, Counter())[f"{thing.code} {thing.name}"] += 1
    shared = {text: dict(sorted(count.items())) for text, count in codes.items() if count.total() > 1}
    return dict(sorted(shared.items(), key=lambda item: next(iter(item[1]))))


def _statistics(report: Report, paint: _Paint) -> Iterator[list[str]]:
    counts = statistics(report)
    owners = {} if counts.by_owner.keys() <= {"none"} else counts.by_owner
    for title, table in (
        ("findings and unanalysed files by code", counts.by_code),
        ("sites by API", counts.by_api),
        ("sites by owner", owners),
    ):
        rows = sorted(table.items(), key=lambda row: (-row[1], row[0]))
        if rows:
            yield [paint.bold(title), *(f"{count:6}  {escape(key)}" for key, count in rows)]


def _hint(report: Report, paint: _Paint) -> list[str]:
    told = report.findings or report.unanalysed
    return [paint.dim(f"{report.tool} --explain CODE tells what a code means and how to mend it")] if told else []


def _summary(report: Report, paint: _Paint) -> str:
    parts = [_found(report, paint)]
    if report.unaccepted:
        count = _counted(len(report.unaccepted), "file")
        parts.append(paint.bad(f"{count} could not be analysed"))
    if accepted := len(report.unanalysed) - len(report.unaccepted):
        parts.append(f"{_counted(accepted, 'unanalysed file')} accepted in the manifest")
    parts.append(_counted(report.files, "file"))
    parts.append(_counted(len(report.sites), "site"))
    return ", ".join(parts) + _rollout(report)


def _found(report: Report, paint: _Paint) -> str:
    if not report.findings:
        return paint.good("no findings")
    codes = Counter(finding.code for finding in report.findings)
    by_code = ", ".join(f"{code} ×{count}" for code, count in sorted(codes.items()))
    return f"{paint.bad(_counted(len(report.findings), 'finding'))} ({by_code})"


def _rollout(report: Report) -> str:
    if report.failing == len(report.findings):
        return ""
    which = f"{report.failing} of them fail" if report.failing else "none of them fails"
    return f" (rollout {report.rollout}: {which})"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
