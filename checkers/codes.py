"""Every code a check can print: what it is called, what it means in one line, and the page that explains it.

A code never changes its meaning and is never given to another finding. The page of a code is documentation
and test at once: ``tests/checkers/test_docs.py`` runs its examples.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec


class Code(msgspec.Struct, frozen=True):
    """A code as users meet it: ``OWN001``, ``unclassified-site`` and the line that says what it reports."""

    code: str
    name: str
    title: str


_ALL = (
    Code("SRC001", "unparsable-source", "a file is no Python that the parser can read"),
    Code("SRC002", "unreadable-source", "a file could not be opened or read"),
    Code("SRC003", "source-too-large", "a file is larger than the size limit"),
    Code("SRC004", "undecodable-source", "a file's bytes do not match its declared encoding"),
    Code("SRC005", "parser-failed", "the parser crashed, ran out of depth or took too long on a file"),
    Code("SRC006", "path-outside-root", "a link leads out of the project"),
    Code("SRC007", "stale-unanalysed-entry", "an `[[unanalysed]]` entry excuses a file that needs no excuse"),
    Code("BYP001", "scheduler-bypass", "work starts outside the scheduler"),
    Code("BYP002", "mixed-file-allow", "a whole file is allowed that also holds judged work"),
    Code("BYP003", "stale-allow", "an `allow` entry covers nothing"),
    Code("BYP004", "stale-target", "a rule's target names nothing"),
    Code("BYP005", "expired-allow", "an `allow` entry is past its `until` date"),
    Code("BYP006", "unknown-key", "an entry of the bypass manifest has a key that means nothing"),
    Code("BYP007", "missing-field", "an entry of the bypass manifest lacks a field it needs"),
    Code("BYP008", "duplicate-rule", "two rules have the same id"),
    Code("BYP010", "unknown-reason", "a `scheduler-audit` annotation gives a reason that does not exist"),
    Code("BYP011", "malformed-annotation", "a `scheduler-audit` annotation cannot be read"),
    Code("BYP012", "misplaced-annotation", "a `scheduler-audit` annotation stands where it blesses nothing"),
    Code("BYP013", "unused-annotation", "a `scheduler-audit` annotation has no site to speak of"),
    Code("BYP014", "expired-annotation", "a `scheduler-audit` annotation is past its `until` date"),
    Code("BYP015", "test-only-outside-tests", "`scheduler-audit: test-only` stands outside the test paths"),
    Code(
        "BYP016",
        "scheduler-owned-outside-scheduler",
        "`scheduler-audit: scheduler-owned` stands outside the scheduler's paths",
    ),
    Code("OWN001", "unclassified-site", "a place that can start work has no owner"),
    Code("OWN002", "forbidden-bypass", "a place that can start work is declared forbidden"),
    Code("OWN003", "unknown-owner", "an entry of the ownership manifest names an owner that does not exist"),
    Code("OWN004", "unknown-key", "an entry of the ownership manifest has a key that means nothing"),
    Code("OWN005", "duplicate-entry", "two entries of the ownership manifest speak of the same thing"),
    Code("OWN006", "stale-entry", "an entry of the ownership manifest covers nothing"),
    Code("OWN007", "expired-entry", "an entry of the ownership manifest is past its `until` date"),
    Code("OWN008", "max-sites-exceeded", "an entry covers more sites than its `max_sites` allows"),
    Code("OWN009", "missing-field", "an entry of the ownership manifest lacks a field it needs"),
    Code("OWN010", "unresolved-entrypoint", "an entry's `entrypoint` names nothing in the project"),
    Code("OWN011", "test-only-outside-tests", "an entry gives `test_only` to code outside the test paths"),
    Code("OWN020", "unknown-annotation-owner", "an `execution-ownership` annotation names no known owner"),
    Code("OWN021", "malformed-annotation", "an `execution-ownership` annotation cannot be read"),
    Code(
        "OWN022",
        "misplaced-annotation",
        "an `execution-ownership` annotation stands where it blesses nothing",
    ),
    Code("OWN023", "unused-annotation", "an `execution-ownership` annotation has no site to speak of"),
    Code("OWN024", "expired-annotation", "an `execution-ownership` annotation is past its `until` date"),
    Code(
        "OWN025",
        "annotated-test-only-outside-tests",
        "`execution-ownership: test_only` stands outside the test paths",
    ),
    Code("OWN026", "annotated-forbidden-bypass", "a site is annotated as `forbidden_bypass`"),
    Code("OWN030", "unbounded-output", "a finite path collects a process's output without bound"),
    Code("OWN031", "shell-command", "a finite path runs a command through the shell"),
    Code("OWN032", "missing-timeout", "a finite path waits for a process without a timeout"),
    Code("OWN033", "split-argv", "a typed-argv path builds an argument list with `str.split`"),
    Code("OWN034", "stale-boundary", "a path under `[boundaries]` covers no file"),
)

CODES: Mapping[str, Code] = MappingProxyType({code.code: code for code in _ALL})
"""Every code by its spelling, in the order of the documentation."""


def find(text: str) -> Code | None:
    """The code that ``text`` means: ``OWN001`` in any case, or its name where only one code has that name."""
    if (code := CODES.get(text.upper())) is not None:
        return code
    named = [code for code in _ALL if code.name == text.lower()]
    return named[0] if len(named) == 1 else None


def similar(text: str) -> tuple[str, ...]:
    """Codes that ``text`` may have been meant for, best first: those of that name, else of like spelling."""
    named = [code.code for code in _ALL if code.name == text.lower()]
    if named:
        return tuple(named)
    if codes := _close(text.upper(), CODES):
        return codes
    names = _close(text.lower(), {code.name for code in _ALL})[:1]
    return tuple(code.code for code in _ALL if code.name in names)


def _close(text: str, spellings: Iterable[str]) -> tuple[str, ...]:
    """The three spellings most like ``text``, of equals the first in the alphabet."""
    scored = ((difflib.SequenceMatcher(None, text, spelling).ratio(), spelling) for spelling in spellings)
    near = sorted((-ratio, spelling) for ratio, spelling in scored if ratio >= 0.7)
    return tuple(spelling for _, spelling in near[:3])


def page(code: str) -> str:
    """The documentation page of ``code`` as Markdown.

    A wheel carries the pages inside the package, a source checkout beside it. Raises KeyError for an unknown
    code and FileNotFoundError for an installation without pages.
    """
    name = f"{CODES[code].code}.md"
    package = Path(__file__).parent
    places = (package / "docs" / name, package.parent / "docs" / "checks" / name)
    held = next((place for place in places if place.is_file()), None)
    if held is None:
        raise FileNotFoundError(f"this installation lacks the page of {code} ({name})")
    return held.read_text(encoding="utf-8")
