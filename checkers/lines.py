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


def is_blank(text: str) -> bool:
    """Whether ``text`` holds nothing that can be seen: only spaces, line ends and characters that do not print."""
    return not any(character.isprintable() and not character.isspace() for character in text)
