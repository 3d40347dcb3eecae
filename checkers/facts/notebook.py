"""Notebooks: the code cells of an ``.ipynb`` file as one Python text, with the way back to cells and lines.

IPython's own syntax is rewritten as IPython does it (``TransformerManager``): ``!cmd``, ``%pip`` and ``%%bash``
become calls of ``get_ipython().system``, other magics and help become nothing. A line stays a line.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any

import msgspec

from checkers.facts.model import Broken
from checkers.lines import split_lines

_CELLS = ("code", "heading", "markdown", "raw")
_SHELL = "get_ipython().system({command!r})"
_SHELL_CELLS = frozenset(
    {"!", "bash", "cmd", "perl", "powershell", "pypy", "python", "python2", "python3", "ruby", "script", "sh"}
    | {"sx", "system", "zsh"}
)
"""Cell magics that hand the cell to a program."""
_OTHER_CELLS = frozenset(
    {"HTML", "Javascript", "Latex", "R", "SVG", "cython", "file", "html", "javascript", "js", "latex", "markdown"}
    | {"mermaid", "sql", "svg", "writefile"}
)
"""Cell magics whose cell is no Python; a cell under any other magic is read as Python."""
_SHELL_LINES = frozenset({"conda", "mamba", "micromamba", "pip", "sc", "sx", "system", "uv"})
"""Line magics that start a program: IPython's own, and those for package managers."""
_CODE_MAGICS = frozenset({"prun", "time", "timeit"})
_OPTIONS = re.compile(r"(?:-\w+(?:[ \t]*\d+)?[ \t]+)*")
"""Options of ``%timeit`` and its kin, before the code."""
_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<assigned>[\w.\[\]\"', ]+=[ \t]*)?(?P<mark>!!?|%)(?P<rest>.*)", re.DOTALL)


class Cell(msgspec.Struct, frozen=True):
    """``first_line`` is the line of the joined text on which cell ``number`` (1-based, all cells counted) begins."""

    first_line: int
    number: int


class Notebook(msgspec.Struct, frozen=True):
    """The joined text, and where its lines come from."""

    text: str
    cells: tuple[Cell, ...]
    columns: dict[int, int]
    """For a rewritten line the column of the shell command's mark; below zero by how much its code moved left."""

    def place(self, line: int) -> tuple[int, int]:
        """Cell and line in it, for a line of the joined text."""
        return cell_of(self.cells, line)


def cell_of(cells: tuple[Cell, ...], line: int) -> tuple[int, int]:
    """Cell number and line in that cell."""
    cell = cells[max(0, bisect_right([cell.first_line for cell in cells], line) - 1)]
    return cell.number, line - cell.first_line + 1


def read_notebook(data: bytes) -> Notebook | Broken:
    """The Python of a notebook; Broken when it is none. A notebook in another language gives an empty text."""
    try:
        document = json.loads(data.decode("utf-8-sig"))
        if not isinstance(document, dict):
            raise ValueError("the top level is no object")
        cells = document.get("cells")
        if cells is None and isinstance(document.get("worksheets"), list):
            cells = [cell for sheet in document["worksheets"] for cell in sheet["cells"]]
        if not isinstance(cells, list):
            raise ValueError("it has no cells")
        sources = [_source(cell, number) for number, cell in enumerate(cells, start=1)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        return Broken("SRC001", f"not a notebook: {reason}", getattr(error, "lineno", 1), getattr(error, "colno", 1))
    if not _is_python(document):
        return Notebook("", (Cell(1, 1),), {})
    return _join(sources)


def _source(cell: Any, number: int) -> str | None:
    """The text of a code cell; None for other cells. Raises ValueError for what is no cell."""
    kind = cell.get("cell_type") if isinstance(cell, dict) else None
    if kind not in _CELLS:
        raise ValueError(f"cell {number} has none of the types {', '.join(_CELLS)}")
    if kind != "code":
        return None
    source = cell.get("source", cell.get("input", ""))
    lines = source if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        raise ValueError(f"the source of cell {number} is no text")
    return "".join(lines)


def _is_python(document: dict[str, Any]) -> bool:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    info, kernel = metadata.get("language_info"), metadata.get("kernelspec")
    names = [
        info.get("name") if isinstance(info, dict) else None,
        kernel.get("language") if isinstance(kernel, dict) else None,
    ]
    named = [name for name in names if isinstance(name, str)]
    return not named or any("python" in name.lower() for name in named)


def _join(sources: list[str | None]) -> Notebook:
    lines: list[str] = []
    cells: list[Cell] = []
    columns: dict[int, int] = {}
    for number, source in enumerate(sources, start=1):
        if source is None:
            continue
        cells.append(Cell(len(lines) + 1, number))
        for line, column in _rewrite(split_lines(source)):
            lines.append(line)
            if column:
                columns[len(lines)] = column
    return Notebook("\n".join([*lines, ""]), tuple(cells) or (Cell(1, 1),), columns)


def _rewrite(lines: list[str]) -> list[tuple[str, int]]:
    """The lines of a cell as Python, with what ``Notebook.columns`` says of them."""
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is not None and lines[first].lstrip().startswith("%%"):
        magic, argument = _split(lines[first].lstrip()[2:])
        blank = [("", 0)] * first
        if magic in _SHELL_CELLS:
            return [*blank, (_SHELL.format(command=magic), 1), *[("", 0)] * (len(lines) - first - 1)]
        if magic in _OTHER_CELLS:
            return [("", 0)] * len(lines)
        code = _OPTIONS.sub("", argument) if magic in _CODE_MAGICS else ""
        lines = [*lines[:first], code, *lines[first + 1 :]]
    result: list[tuple[str, int]] = []
    continued = in_string = False
    for line in lines:
        if continued:
            result.append(("", 0))
            continued = line.endswith("\\")
            continue
        new, column = (line, 0) if in_string else _rewrite_line(line)
        continued = new is not line and line.endswith("\\")
        if new is line and (line.count('"""') + line.count("'''")) % 2:
            in_string = not in_string
        result.append((new, column))
    return result


def _split(text: str) -> tuple[str, str]:
    """A magic's name and what follows it."""
    name, *rest = text.split(None, 1) or [""]
    return name, rest[0] if rest else ""


def _rewrite_line(line: str) -> tuple[str, int]:
    match = _LINE.fullmatch(line)
    if match is None:
        stripped = line.strip()
        is_help = stripped.endswith("?") and "#" not in stripped and not stripped.endswith(("'?", '"?'))
        return ("", 0) if is_help or stripped.startswith("?") else (line, 0)
    indent, assigned, rest = match["indent"], match["assigned"] or "", match["rest"]
    column = len(indent) + len(assigned) + 1
    shell = indent + assigned + _SHELL.format(command=rest.strip())
    if match["mark"].startswith("!"):
        return shell, column
    magic, argument = _split(rest)
    if magic in _SHELL_LINES:
        return shell, column
    if magic in _CODE_MAGICS:
        code = _OPTIONS.sub("", argument)
        return indent + assigned + code, len(indent) + len(assigned) + len(code) - len(line)
    if not magic.isidentifier():
        return line, 0  # a remainder or a format that goes on from the line above
    return indent + (f"{assigned}None" if assigned else "pass"), 0
