"""Source lines for excerpts, numbered as Python numbers them."""

from __future__ import annotations

import io
import json
import tokenize
from functools import lru_cache
from pathlib import Path

from checkers.lines import split_lines

MAX_EXCERPT_BYTES = 10 * 1024 * 1024
"""A file larger than this is not read again for an excerpt."""


class ProjectSource:
    """The lines of a project's files, read when a report wants them; a file that is gone by then gives none.

    ``stdin`` stands for the file of that path: an editor's unsaved text.
    """

    def __init__(self, root: Path, stdin: tuple[str, bytes] | None = None) -> None:
        self._root = root
        self._stdin = stdin
        # Reports come in path order, so that one file's lines are enough to keep.
        self._lines = lru_cache(maxsize=1)(self._read_lines)

    def line(self, path: str, line: int, cell: int | None = None) -> str | None:
        """The text of ``line`` (inside ``cell`` for a notebook), or None where there is no such line."""
        lines = self._lines(path, cell)
        return lines[line - 1] if 0 < line <= len(lines) else None

    def _read_lines(self, path: str, cell: int | None) -> list[str]:
        data = self._read(path)
        text = _decode(data) if cell is None else _cell(data, cell)
        return split_lines(text)

    def _read(self, path: str) -> bytes:
        if self._stdin is not None and self._stdin[0] == path:
            return self._stdin[1]
        file = self._root / path
        try:
            # Only a regular file: opening a pipe would wait for its writer.
            if not file.is_file() or file.stat().st_size > MAX_EXCERPT_BYTES:
                return b""
            return file.read_bytes()
        except (OSError, ValueError):
            return b""


def _decode(data: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        encoding = "utf-8"
    return data.decode(encoding, "replace")


def _cell(data: bytes, number: int) -> str:
    try:
        source = json.loads(data)["cells"][number - 1]["source"]
    except (ValueError, LookupError, TypeError):
        return ""
    return source if isinstance(source, str) else "".join(map(str, source))
