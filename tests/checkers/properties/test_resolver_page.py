"""The examples of ``docs/resolver.md``: every line gives the sites written at its end, and no line gives others."""

from __future__ import annotations

import re
from pathlib import Path

from checkers.engine import Scan, scan
from checkers.model import Selection

PAGE = Path(__file__).parents[3] / "docs" / "resolver.md"
BLOCK = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_examples_give_the_sites_they_name(tmp_path: Path) -> None:
    files = dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    assert len(files) >= 5
    expected: list[str] = []
    for path, text in sorted(files.items()):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            _, _, mark = line.partition("#! ")
            expected += [f"{path}:{number} {site.strip()}" for site in mark.split(";") if site]
    found = [
        f"{file.path}:{site.line} {site.kind} {site.api}"
        for file in scan(Scan(tmp_path, jobs=1)).files
        for site in file.sites
        if Selection().counts(site)
    ]
    assert found == expected
