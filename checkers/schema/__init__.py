"""The published JSON Schemas of what the commands write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of ``--output-format json``, version 1."""
    text = (Path(__file__).parent / "report-v1.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
