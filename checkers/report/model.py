"""What a report holds, and what a report format is. Nothing is judged here or in a format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from checkers.model import Finding, Site, Unanalysed


class ListedSite(msgspec.Struct, frozen=True):
    """A site with the owner it has, if any, and where that is said: ``manifest`` or ``annotation``."""

    site: Site
    owner: str | None = None
    source: str | None = None


class UnanalysedFile(msgspec.Struct, frozen=True):
    """A file that was not analysed, and the manifest's reason for going on without it, if it gives one."""

    file: Unanalysed
    accepted: str | None = None


class Source(Protocol):
    """Where a format finds the source line that a finding points at."""

    def line(self, path: str, line: int, cell: int | None = None) -> str | None:
        """The text of a line without its end, or None where it cannot be had."""


class NoSource:
    """No source at hand: excerpts are left out."""

    def line(self, path: str, line: int, cell: int | None = None) -> str | None:
        """Always None."""
        return None


class Look(msgspec.Struct, frozen=True):
    """How a person asked to see a report; it changes no verdict."""

    color: bool = False
    quiet: bool = False
    statistics: bool = False


PLAIN = Look()
"""No colour, nothing left out and nothing added."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one run, in the order in which every format prints it (see :meth:`of`)."""

    tool: str
    files: int
    """How many files were asked for, those that could not be analysed among them."""
    sites: tuple[ListedSite, ...] = ()
    findings: tuple[Finding, ...] = ()
    unanalysed: tuple[UnanalysedFile, ...] = ()
    listing: bool = False
    """Whether sites were only listed, and nothing was judged."""
    rollout: str | None = None
    failing: int = 0
    """How many of the findings fail the run; the rollout decides."""
    passed_over: tuple[str, ...] = ()
    """Paths that were asked for and hold nothing to analyse."""
    source: Source = field(default_factory=NoSource, compare=False)

    @classmethod
    def of(
        cls,
        tool: str,
        *,
        files: int,
        sites: Iterable[ListedSite] = (),
        findings: Iterable[Finding] = (),
        unanalysed: Iterable[UnanalysedFile] = (),
        listing: bool = False,
        rollout: str | None = None,
        failing: int | None = None,
        passed_over: Iterable[str] = (),
        source: Source | None = None,
    ) -> Report:
        """A report in the contract's order: path, cell, line, column, code. All findings fail unless told."""
        found = tuple(sorted(findings, key=_finding_order))
        return cls(
            tool=tool,
            files=files,
            sites=tuple(sorted(sites, key=_site_order)),
            findings=found,
            unanalysed=tuple(sorted(unanalysed, key=_unanalysed_order)),
            listing=listing,
            rollout=rollout,
            failing=len(found) if failing is None else failing,
            passed_over=tuple(passed_over),
            source=source or NoSource(),
        )

    @property
    def status(self) -> int:
        """The exit status: 2 for an unaccepted unanalysed file, else 1 for failing findings, else 0."""
        if self.unaccepted:
            return 2
        return 1 if self.failing else 0

    @property
    def unaccepted(self) -> tuple[UnanalysedFile, ...]:
        """The unanalysed files that no manifest entry accepts."""
        return tuple(entry for entry in self.unanalysed if entry.accepted is None)


class Statistics(msgspec.Struct, frozen=True):
    """Counts of a report, each in the order of its keys. The owner of a site that has none is ``none``."""

    by_code: Mapping[str, int]
    by_api: Mapping[str, int]
    by_owner: Mapping[str, int]


def statistics(report: Report) -> Statistics:
    """Count findings and unanalysed files by code, sites by API and by owner."""
    return Statistics(
        by_code=_count([*(f.code for f in report.findings), *(u.file.code for u in report.unanalysed)]),
        by_api=_count(listed.site.api for listed in report.sites),
        by_owner=_count(listed.owner or "none" for listed in report.sites),
    )


class Format(Protocol):
    """A report format: a report in, text out, ending in a newline unless it is empty.

    The same report and look give the same text. Every finding and every unanalysed file is in it, whatever
    the look; ``tests/checkers/test_report.py`` holds every registered format to that.
    """

    def __call__(self, report: Report, look: Look = PLAIN, /) -> str:
        """Render ``report``."""


def _count(values: Iterable[str]) -> Mapping[str, int]:
    return dict(sorted(Counter(values).items()))


def _finding_order(finding: Finding) -> tuple[object, ...]:
    place = (finding.path, finding.cell or 0, finding.line, finding.column, finding.code)
    return (*place, finding.message, finding.api or "", finding.help)


def _site_order(listed: ListedSite) -> tuple[object, ...]:
    site = listed.site
    return (site.path, site.cell or 0, site.line, site.column, site.api, site.kind, site.ordinal)


def _unanalysed_order(entry: UnanalysedFile) -> tuple[object, ...]:
    file = entry.file
    return (file.path, file.cell or 0, file.line, file.column, file.code, file.message)
