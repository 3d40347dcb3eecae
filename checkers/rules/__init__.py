"""Rules: what the engine found and what the manifest declares in, findings out. No rule reads a file.

Findings come for the whole tree, whatever paths were asked for: the caller leaves out those of files that
were not selected, and keeps every finding at the manifest itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from checkers.model import Finding, Site

Source = Literal["manifest", "annotation"]


class Owned(msgspec.Struct, frozen=True):
    """Who owns a site, and where that is said."""

    owner: str
    source: Source


class Judgement(msgspec.Struct, frozen=True):
    """What a rule found, in the order of reports, and what it knows of single sites."""

    findings: tuple[Finding, ...] = ()
    owners: Mapping[Site, Owned] = msgspec.field(default_factory=dict)
    """Owners of the sites that have one; empty for check-bypass, which asks for none."""
    rules: Mapping[Finding, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """What may be active and a finding is of: rules of the manifest in its order, or, for check-ownership, the code."""
    manifest: str = ""
    """Path of the manifest that was judged by."""

    def failing(self, rollout: str, active: Collection[str] = ()) -> tuple[Finding, ...]:
        """The findings that fail the run under a rollout.

        ``observe``: none. ``mandatory``: all. ``active``: those of the rules in ``active``, and those at
        the manifest that are of no rule, for it is the manifest that says what is active.
        """
        if rollout == "observe":
            return ()
        if rollout == "mandatory":
            return self.findings
        return tuple(finding for finding in self.findings if self._is_active(finding, active))

    def _is_active(self, finding: Finding, active: Collection[str]) -> bool:
        of = self.rules.get(finding)
        return finding.path == self.manifest if of is None else not set(of).isdisjoint(active)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of reports, each once."""
    return tuple(sorted(dict.fromkeys(findings), key=_order))


def _order(finding: Finding) -> tuple[str, int, int, int, str, str]:
    return finding.path, finding.cell or 0, finding.line, finding.column, finding.code, finding.message
