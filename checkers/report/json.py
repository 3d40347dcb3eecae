"""The JSON report: stable, versioned, described by ``checkers/schema/report-v1.json``.

All text is ASCII: what is not is written as ``\\uXXXX``, a file name's undecodable bytes as lone surrogates
(``\\udcXX``, as :func:`os.fsdecode` gives them), so that any output encoding carries it and it reads back
unchanged.
"""

from __future__ import annotations

import json
from typing import Any

from checkers.model import Finding
from checkers.report.model import PLAIN, ListedSite, Look, Report, UnanalysedFile, statistics

VERSION = 1
"""The schema's version; it grows when a field goes or changes its meaning."""


def render(report: Report, look: Look = PLAIN, /) -> str:
    """The report as one JSON document."""
    return json.dumps(document(report, look), indent=2) + "\n"


def document(report: Report, look: Look) -> dict[str, Any]:
    """The report as plain values in the order of the schema; ``--statistics`` adds a table."""
    counts = statistics(report)
    found: dict[str, int] = {}
    for finding in report.findings:
        found[finding.code] = found.get(finding.code, 0) + 1
    values: dict[str, Any] = {
        "version": VERSION,
        "tool": report.tool,
        "root": ".",
        "files": report.files,
        "rollout": report.rollout,
        "sites": [_site(listed) for listed in report.sites],
        "findings": [_finding(finding) for finding in report.findings],
        "unanalysed": [_unanalysed(entry) for entry in report.unanalysed],
        "summary": {
            "findings": len(report.findings),
            "by_code": dict(sorted(found.items())),
            "failing": report.failing,
            "sites": len(report.sites),
            "unanalysed": len(report.unanalysed),
            "status": report.status,
        },
    }
    if look.statistics:
        values["statistics"] = {
            "by_code": counts.by_code,
            "by_api": counts.by_api,
            "by_owner": counts.by_owner,
        }
    return values


def _site(listed: ListedSite) -> dict[str, Any]:
    site = listed.site
    return {
        "path": site.path,
        "cell": site.cell,
        "line": site.line,
        "column": site.column,
        "kind": site.kind.value,
        "api": site.api,
        "candidates": list(site.names),
        "api_kind": site.api_kind.value,
        "tier": site.tier.value,
        "confidence": site.confidence.value,
        "symbol": site.symbol,
        "ordinal": site.ordinal,
        "owner": listed.owner,
        "source": listed.source,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "path": finding.path,
        "cell": finding.cell,
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
        "api": finding.api,
        "symbol": finding.symbol,
        "ordinal": finding.ordinal,
        "help": finding.help,
    }


def _unanalysed(entry: UnanalysedFile) -> dict[str, Any]:
    file = entry.file
    return {
        "code": file.code,
        "name": file.name,
        "path": file.path,
        "cell": file.cell,
        "line": file.line,
        "column": file.column,
        "message": file.message,
        "help": file.help,
        "accepted": entry.accepted,
    }
