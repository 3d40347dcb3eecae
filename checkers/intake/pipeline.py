"""From the bytes of one file to its facts, or to the reason why there are none; what a worker is given, and answers."""

from __future__ import annotations

import re
import signal
import zlib
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from checkers.annotations import ANNOTATION_KEYWORDS, is_attempt
from checkers.facts import ast_frontend
from checkers.facts.hot import Hits
from checkers.facts.interest import Interest
from checkers.facts.model import Broken, ModuleFacts
from checkers.facts.notebook import Cell, Notebook, cell_of, read_notebook
from checkers.facts.summary import Summary, summarise
from checkers.facts.syntax import is_valid
from checkers.intake.source import Stamp, decode, read, stamp_of, too_deep, too_large, with_nul
from checkers.intake.words import Glance, Vocabulary, glance, look_for, plain
from checkers.limits import recursion
from checkers.lines import split_lines

if TYPE_CHECKING:
    from libcst import ParserSyntaxError

CPU_SECONDS = 20
CPU_SECONDS_PER_MIB = 10
MAX_MESSAGE = 80

_PACKED_DEPTH = 1000
"""Nesting of calls within which values are packed, in C code that a deep one would bring down."""
_ENCODER = msgspec.msgpack.Encoder()

_COOKIE = re.compile(rb"coding[=:]")
_COOKIE_BYTES = 1000

_PARSER_PLACE = re.compile(r"error at (\d+):(\d+)")
_PARSER_PREFIX = re.compile(r"^(?:parser error: |tokenizer error: |error at \d+:\d+: )+")


class Source(NamedTuple):
    """A file to be read."""

    path: str
    unsaved: bytes | None = None
    """What stands for the file, for an unsaved buffer."""
    hits: Hits | None = None
    """The words that count in it; None for all."""


Chunk = tuple[Source, ...]


class Job(NamedTuple):
    """What a worker needs to know besides the files."""

    root: str
    interest: Interest
    max_file_bytes: int
    reference: bool = False
    """Whether the reference front end reads every file."""
    sought: Vocabulary | None = None
    """What is looked for; None where every file is read in full."""
    wanted: frozenset[bytes] = frozenset()
    """The words of that, and those that were learned."""
    learned: frozenset[bytes] = frozenset()
    """Words that are looked for in files which were looked at before."""
    defining: frozenset[str] = frozenset()
    """Files that are read in full for what they define."""


class Analysed(NamedTuple):
    """What became of one file; ``cells`` and ``columns`` are a notebook's."""

    path: str
    facts: ModuleFacts | None
    broken: Broken | None = None
    cells: tuple[Cell, ...] = ()
    columns: tuple[tuple[int, int], ...] = ()


_DECODER = msgspec.msgpack.Decoder(Analysed)
_MOST_BYTES = 2**26
"""Larger facts are not packed: what a few bytes of a cache could claim to hold has no bound otherwise."""


class Sight(NamedTuple):
    """What a look at one file told; None where only its analysis can tell."""

    path: str
    stamp: Stamp
    seen: Glance | None


class Answer(NamedTuple):
    """What a worker says of one file: a summary, if there are facts, and the whole, packed."""

    path: str
    packed: bytes | Analysed
    """Not packed where that cannot be: values nest too deep, or are no Unicode."""
    summary: Summary | None
    stamp: Stamp
    hits: Hits | None = None
    """The words that counted, with those that the file itself gave."""


def pack(analysed: Analysed) -> bytes:
    """MessagePack, compressed: a third of its size, and what is kept is read and written anew for one changed file.

    Raises OverflowError, UnicodeEncodeError and RecursionError.
    """
    data = _ENCODER.encode(analysed)
    if len(data) > _MOST_BYTES:
        raise OverflowError(f"{len(data)} bytes of facts")
    return zlib.compress(data, 1)


def unpack(packed: bytes | memoryview) -> Analysed:
    """What a worker packed. Raises ValueError for anything else."""
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(packed, _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"no facts: {error}") from None
    if not reader.eof:
        raise ValueError("no facts: cut short, or too many")
    return _DECODER.decode(data)


def look(job: Job, path: str, data: bytes | Broken) -> Glance | None:
    """What the bytes of one file tell; None where it cannot be read."""
    assert job.sought is not None, "there is something to look for"
    if isinstance(data, Broken) or len(data) > job.max_file_bytes:
        return None
    told = _plainly(path, data)
    if told is None:
        return None
    text, data = told
    if job.learned:
        return Glance(look_for(data, job.learned), (), (), False)
    must = not is_valid(text) or _is_annotated(text if isinstance(text, str) else text.decode())
    return glance(data, job.sought, job.wanted, must=must)


def _plainly(path: str, data: bytes) -> tuple[str | bytes, bytes] | None:
    """A source that may be parsed, and bytes to look for words in."""
    if not path.endswith(".ipynb") and data.isascii() and _COOKIE.search(data, 0, _COOKIE_BYTES) is None:
        return data, data
    notebook = read_notebook(data) if path.endswith(".ipynb") else None
    text = notebook.text if isinstance(notebook, Notebook) else notebook or decode(data)
    return None if isinstance(text, Broken) else (text, plain(text))


def analyse_here(job: Job, source: Source) -> Analysed | None:
    """The facts of one file, made in this process; None where that is left to a worker."""
    data, _ = _read(job, source, bounded=False)
    text = data if isinstance(data, Broken) or source.path.endswith(".ipynb") else decode(data)
    if not isinstance(text, str):
        return None
    try:
        return Analysed(source.path, ast_frontend.parse(text, job.interest, source.hits))
    except ast_frontend.NeedsReferenceError:
        return None


def analyse(job: Job, path: str, data: bytes | Broken, hits: Hits | None = None) -> Analysed:
    """The facts of one file; of sites only those that ``hits`` allow, None for all."""
    if isinstance(data, Broken):
        return Analysed(path, None, data)
    if len(data) > job.max_file_bytes:
        return Analysed(path, None, too_large(len(data), job.max_file_bytes))
    notebook = read_notebook(data) if path.endswith(".ipynb") else None
    if isinstance(notebook, Broken):
        return Analysed(path, None, notebook)
    text = decode(data) if notebook is None else notebook.text
    if isinstance(text, Broken):
        return Analysed(path, None, text)
    analysed = _facts(job, path, text, notebook, hits)
    if notebook is None:
        return analysed
    columns = tuple(notebook.columns.items()) if analysed.facts is not None else ()
    return analysed._replace(cells=notebook.cells, columns=columns)


def _facts(job: Job, path: str, text: str, notebook: Notebook | None, hits: Hits | None) -> Analysed:
    """By the fast front end where it can tell all that is wanted, else by the reference."""
    annotated = _is_annotated(text)
    if not annotated and not job.reference:
        try:
            return Analysed(path, ast_frontend.parse(text, job.interest, hits, defining=path in job.defining))
        except ast_frontend.NeedsReferenceError:
            pass
    return _reference(job, path, text, notebook, hits, annotated)


def _is_annotated(text: str) -> bool:
    """Whether a comment may be an annotation; what looks like a comment inside a string counts, too."""
    lines = (match[0] for word in ANNOTATION_KEYWORDS if word in text for match in _comments(word).finditer(text))
    return any(is_attempt(line[start.start() :]) for line in lines for start in re.finditer("#", line))


@cache
def _comments(word: str) -> re.Pattern[str]:
    return re.compile(rf"#[^\r\n]*{word}[^\r\n]*")


def _reference(
    job: Job, path: str, text: str, notebook: Notebook | None, hits: Hits | None, annotated: bool
) -> Analysed:
    # Imported only where it is needed: that takes as long as reading a hundred files.
    from libcst import ParserSyntaxError

    from checkers.facts import libcst_frontend

    cells = () if notebook is None else notebook.cells
    broken = with_nul(text) or too_deep(text)
    if broken is not None:
        return Analysed(path, None, broken, cells)
    try:
        return Analysed(path, libcst_frontend.parse(text, job.interest, hits, annotated=annotated))
    except ParserSyntaxError as error:
        return Analysed(path, None, _unparsable(text, error), cells)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        return Analysed(path, None, Broken("SRC004", "half of a surrogate pair is no character", line, 1), cells)
    except (RecursionError, MemoryError) as error:
        message = f"too large for the parser: {type(error).__name__}"
        return Analysed(path, None, Broken("SRC005", message, 1, 1), cells)


def _unparsable(text: str, error: ParserSyntaxError) -> Broken:
    message = _PARSER_PREFIX.sub("", error.message.partition("\n")[0])
    if message.startswith("expected"):
        message = f"invalid syntax, {message if len(message) <= MAX_MESSAGE else 'which no rule of the grammar fits'}"
    if is_valid(text):
        message = "valid Python that LibCST, which has to read this file, does not take: write it otherwise"
    place = _PARSER_PLACE.search(error.message)
    line, column = error.raw_line, error.raw_column + 1
    if place is not None:
        line, column = _token_before(text, int(place[1]), int(place[2]))
    return Broken("SRC001", message, line, column)


def _token_before(text: str, line: int, column: int) -> tuple[int, int]:
    """Where the token before a place ends: LibCST names the place behind the token that it could not take."""
    lines = split_lines(text)
    before = [*lines[: line - 1], lines[line - 1][:column] if line <= len(lines) else ""]
    while before:
        code = before[-1].rstrip()
        if code and not code.lstrip().startswith("#"):
            return len(before), len(code)
        before.pop()
    return 1, 1


def place_in(analysed: Analysed, line: int) -> tuple[int | None, int]:
    """Cell (None outside notebooks) and line, for a line of the text that was parsed."""
    if not analysed.cells:
        return None, line
    return cell_of(analysed.cells, line)


def look_at_chunk(job: Job, chunk: Chunk, *, bounded: bool = False) -> list[Sight]:
    """What a worker does at first; see :func:`analyse_chunk`."""
    sights = []
    for source in chunk:
        data, stamp = _read(job, source, bounded=bounded)
        try:
            seen = look(job, source.path, data)
        except Exception:  # its analysis will tell
            seen = None
        sights.append(Sight(source.path, stamp, seen))
    return sights


def analyse_chunk(job: Job, chunk: Chunk, *, bounded: bool = False) -> list[Answer]:
    """What a worker does; its answer is facts or reasons, never an exception.

    ``bounded``: this process is one of our own, which may be ended when a file takes it too long.
    """
    results = []
    for source in chunk:
        path, _, hits = source
        data, stamp = _read(job, source, bounded=bounded)
        try:
            analysed = analyse(job, path, data, hits)
            results.append(_answer(job, analysed, stamp, hits))
        except Exception as error:  # a fault of ours must not cost the other files their verdict
            message = f"the analysis failed, please report it: {type(error).__name__}: {error}"
            results.append(_answer(job, Analysed(path, None, Broken("SRC005", message, 1, 1)), stamp, hits))
    return results


def _read(job: Job, source: Source, *, bounded: bool) -> tuple[bytes | Broken, Stamp]:
    path, unsaved, _ = source
    data, stamp = read(job.root, path, job.max_file_bytes) if unsaved is None else (unsaved, stamp_of(unsaved))
    if bounded:
        _limit_time(0 if isinstance(data, Broken) else len(data))
    return data, stamp


def _answer(job: Job, analysed: Analysed, stamp: Stamp, hits: Hits | None) -> Answer:
    summary = None if analysed.facts is None else summarise(analysed.facts)
    packed: bytes | Analysed = analysed
    with suppress(OverflowError, UnicodeEncodeError, RecursionError), recursion(_PACKED_DEPTH):
        packed = pack(analysed)
    if hits is not None and analysed.facts is not None:
        hits = hits.with_names(frozenset(analysed.facts.given_names))
    return Answer(analysed.path, packed, summary, stamp, hits)


def _limit_time(size: int) -> None:
    """The kernel ends this process when the file takes it longer; the parser cannot be interrupted otherwise."""
    if hasattr(signal, "setitimer"):
        seconds = CPU_SECONDS + CPU_SECONDS_PER_MIB * size / 1024**2
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)


def fatal(job: Job, source: Source) -> Answer:
    """The answer for a file that no worker survived."""
    message = "the parser did not survive this file, or took too long: an expression in it is too long or too deep"
    return _answer(job, Analysed(source.path, None, Broken("SRC005", message, 1, 1)), Stamp(), source.hits)
