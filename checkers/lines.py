"""Physical lines, as Python counts them: LF, CR LF and a lone CR end one, form feeds and Unicode separators do not."""

from __future__ import annotations

import re

NEWLINE = re.compile(r"\r\n|\r|\n")


def split_lines(text: str) -> list[str]:
    """The lines of ``text`` without their ends; one more than it has line ends."""
    return NEWLINE.split(text)


def line_at(text: str, offset: int) -> int:
    """1-based line of the character at ``offset``."""
    return len(NEWLINE.findall(text, 0, offset)) + 1
