"""The trees of ``fixtures/sites``: every line gives the sites written at its end, and no line gives others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkers.engine import Scan, scan
from checkers.model import Selection

TREES = Path(__file__).parents[2] / "fixtures" / "sites"


def expected(path: Path) -> list[tuple[int, str, str]]:
    """``(line, kind, api)`` of each mark of a fixture."""
    text = path.read_bytes().decode("latin-1")
    found = []
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        mark = re.search(r"#! (.*)$", line)
        if mark is not None:
            found += [(number, *site.split()) for site in mark[1].split(";")]
    return [(line, kind, api) for line, kind, api in found]


@pytest.mark.parametrize("tree", sorted(p.name for p in TREES.iterdir() if p.is_dir()))
def test_each_line_gives_the_sites_written_at_its_end(tree: str) -> None:
    result = scan(Scan(TREES / tree, jobs=1))
    selection = Selection()
    assert [file.unanalysed for file in result.files if file.unanalysed is not None] == []
    for file in result.files:
        sites = [(s.line, s.kind.value, s.api) for s in file.sites if selection.counts(s)]
        assert sites == expected(TREES / tree / file.path), file.path
