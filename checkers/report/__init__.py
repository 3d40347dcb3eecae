"""Findings in, text out: the :class:`Report` value, the :class:`Format` protocol, and the formats there are.

A format is one module with a ``render`` function that satisfies :class:`Format`; adding it to ``FORMATS``
makes it an ``--output-format`` and puts it under the conformance suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from checkers.report import json, text
from checkers.report.model import (
    Format,
    ListedSite,
    Look,
    NoSource,
    Report,
    Source,
    Statistics,
    UnanalysedFile,
    statistics,
)

FORMATS: Mapping[str, Format] = MappingProxyType({"text": text.render, "json": json.render})
"""Every format by the name that ``--output-format`` takes; the first is the default."""

__all__ = [
    "FORMATS",
    "Format",
    "ListedSite",
    "Look",
    "NoSource",
    "Report",
    "Source",
    "Statistics",
    "UnanalysedFile",
    "statistics",
]
