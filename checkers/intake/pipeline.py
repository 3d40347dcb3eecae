"""Who reads the files: worker processes, so that a parser that dies takes one file with it and not the run.

The seam is :class:`concurrent.futures.Executor`: work is handed out in chunks of paths, answers are facts. LibCST's
parser can be killed by what it is given (stack overflow on nesting, quadratic time on long chains, memory). Each
worker bounds its own processor time and memory; when one dies, the chunks that were under way are read again, one
file in one worker, and the file that kills that one too is reported as unanalysed.

An executor that a caller hands in is given the same chunks, and its processes are left as they are: limits, signals and
the collector are its owner's. What it does not answer, our own workers read.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from checkers.facts import ast_frontend
from checkers.facts.interest import Interest
from checkers.facts.model import Broken, ModuleFacts
from checkers.facts.notebook import Cell, Notebook, cell_of, read_notebook
from checkers.intake.source import decode, read, too_deep, too_large
from checkers.lines import split_lines

if TYPE_CHECKING:
    from libcst import ParserSyntaxError

CHUNK_FILES = 16
CPU_SECONDS = 20
CPU_SECONDS_PER_MIB = 10
MEMORY_BYTES = 6 * 1024**3
MAX_MESSAGE = 80

_PARSER_PLACE = re.compile(r"error at (\d+):(\d+)")
_PARSER_PREFIX = re.compile(r"^(?:parser error: |tokenizer error: |error at \d+:\d+: )+")


Chunk = tuple[tuple[str, bytes | None], ...]
"""Paths, and for an unsaved buffer the bytes that stand for the file."""


class Job(NamedTuple):
    """What a worker needs to know besides the paths."""

    root: str
    interest: Interest
    keywords: tuple[str, ...]
    """A file that holds none of these words holds no annotation, and its comments are not kept."""
    max_file_bytes: int
    reference: bool = False
    """Whether the reference front end reads every file."""


class Analysed(NamedTuple):
    """What became of one file; ``cells`` and ``columns`` are a notebook's."""

    path: str
    facts: ModuleFacts | None
    broken: Broken | None = None
    cells: tuple[Cell, ...] = ()
    columns: tuple[tuple[int, int], ...] = ()


def analyse(job: Job, path: str, data: bytes | Broken) -> Analysed:
    """The facts of one file."""
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
    analysed = _facts(job, path, text, notebook)
    if notebook is None:
        return analysed
    columns = tuple(notebook.columns.items()) if analysed.facts is not None else ()
    return analysed._replace(cells=notebook.cells, columns=columns)


def _facts(job: Job, path: str, text: str, notebook: Notebook | None) -> Analysed:
    """By the fast front end where it can tell all that is wanted, else by the reference."""
    annotated = _is_annotated(text, job.keywords)
    if not annotated and not job.reference:
        try:
            return Analysed(path, ast_frontend.parse(text, job.interest))
        except ast_frontend.NeedsReferenceError:
            pass
    return _reference(job, path, text, notebook, annotated)


def _is_annotated(text: str, keywords: tuple[str, ...]) -> bool:
    """Whether a comment may hold one of the words."""
    return any(word in text and re.search(rf"#[^\r\n]*{word}", text) for word in keywords)


def _reference(job: Job, path: str, text: str, notebook: Notebook | None, annotated: bool) -> Analysed:
    # Imported only where it is needed: that takes as long as reading a hundred files.
    from libcst import ParserSyntaxError

    from checkers.facts import libcst_frontend

    deep = too_deep(text)
    if deep is not None:
        return Analysed(path, None, deep)
    try:
        return Analysed(path, libcst_frontend.parse(text, job.interest, annotated=annotated))
    except ParserSyntaxError as error:
        return _unparsable(path, text, notebook, error)
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        return Analysed(path, None, Broken("SRC004", "half of a surrogate pair is no character", line, 1))
    except (RecursionError, MemoryError) as error:
        return Analysed(path, None, Broken("SRC005", f"too large for the parser: {type(error).__name__}", 1, 1))


def _unparsable(path: str, text: str, notebook: Notebook | None, error: ParserSyntaxError) -> Analysed:
    message = _PARSER_PREFIX.sub("", error.message.partition("\n")[0])
    if message.startswith("expected"):
        message = f"invalid syntax, {message if len(message) <= MAX_MESSAGE else 'which no rule of the grammar fits'}"
    place = _PARSER_PLACE.search(error.message)
    line, column = error.raw_line, error.raw_column + 1
    if place is not None:
        line, column = _token_before(text, int(place[1]), int(place[2]))
    return Analysed(path, None, Broken("SRC001", message, line, column), () if notebook is None else notebook.cells)


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


def _read_chunk(job: Job, chunk: Chunk, *, bounded: bool = False) -> list[Analysed]:
    """What a worker does; its answer is facts or reasons, never an exception.

    ``bounded``: this process is one of our own, which may be ended when a file takes it too long.
    """
    results = []
    for path, given in chunk:
        data = read(job.root, path, job.max_file_bytes) if given is None else given
        if bounded:
            _limit_time(0 if isinstance(data, Broken) else len(data))
        try:
            results.append(analyse(job, path, data))
        except Exception as error:  # a fault of ours must not cost the other files their verdict
            message = f"the analysis failed, please report it: {type(error).__name__}: {error}"
            results.append(Analysed(path, None, Broken("SRC005", message, 1, 1)))
    return results


def _limit_time(size: int) -> None:
    """The kernel ends this process when the file takes it longer; the parser cannot be interrupted otherwise."""
    if hasattr(signal, "setitimer"):
        seconds = CPU_SECONDS + CPU_SECONDS_PER_MIB * size / 1024**2
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)


def _prepare_worker() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer: it ends the workers
    gc.disable()  # facts hold no cycles, and pickling them would walk the heap again and again
    faulthandler.disable()  # that a parser may die here is expected, and told as a finding


def _end_with_parent() -> None:
    """A worker waits for work on a pipe that its siblings hold open too: it has to watch the parent itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _workers(count: int) -> Iterator[Executor]:
    """A pool whose processes are ended at once when the scan is interrupted or given up."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    others = {process.pid for process in multiprocessing.active_children()}
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_prepare_worker)
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            if process.pid not in others:
                process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def default_jobs() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def analyse_files(
    job: Job,
    paths: Sequence[str],
    jobs: int,
    unsaved: Mapping[str, bytes] | None = None,
    executor: Executor | None = None,
) -> Iterator[Analysed]:
    """What became of each of ``paths``, in any order, read on ``executor``, or else by ``jobs`` workers of our own.

    ``unsaved``: bytes that stand for what the file of a path holds.
    """
    files = [(path, (unsaved or {}).get(path)) for path in paths]
    waiting = deque(tuple(files[start : start + CHUNK_FILES]) for start in range(0, len(files), CHUNK_FILES))
    suspects: list[tuple[str, bytes | None]] = []
    if executor is not None:
        yield from _on_foreign(executor, job, waiting)
    while waiting:
        with _workers(min(jobs, len(waiting))) as pool:
            yield from _until_broken(pool, job, waiting, suspects, 2 * jobs)
    for suspect in suspects:
        yield _analyse_alone(job, suspect)


def _on_foreign(executor: Executor, job: Job, waiting: deque[Chunk]) -> Iterator[Analysed]:
    """Have ``executor`` work through ``waiting``; what it does not answer stays there, and a warning tells so."""
    running: dict[Future[list[Analysed]], Chunk] = {}
    failure: Exception | None = None
    try:
        while waiting and failure is None:
            try:
                running[executor.submit(_read_chunk, job, waiting[0])] = waiting[0]
                waiting.popleft()
            except Exception as error:  # broken, shut down: each executor has its own
                failure = error
        for future in as_completed(running):
            try:
                results = future.result()
            except Exception as error:
                failure = failure or error
                waiting.append(running[future])
            else:
                yield from results
    finally:
        for future in running:
            future.cancel()
    if failure is not None:
        count = sum(map(len, waiting))
        told = f"{type(failure).__name__}: {failure}"
        message = f"the executor gave no answer for {count} files, which workers of this process now read: {told}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _until_broken(
    pool: Executor, job: Job, waiting: deque[Chunk], suspects: list[tuple[str, bytes | None]], window: int
) -> Iterator[Analysed]:
    """Work through ``waiting``; when a worker dies, stop and leave what was under way in ``suspects``."""
    running: dict[Future[list[Analysed]], Chunk] = {}
    broken = False
    while running or (waiting and not broken):
        while waiting and not broken and len(running) < window:
            chunk = waiting.popleft()
            try:
                running[pool.submit(_read_chunk, job, chunk, bounded=True)] = chunk
            except BrokenExecutor:
                waiting.appendleft(chunk)
                broken = True
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            chunk = running.pop(future)
            try:
                yield from future.result()
            except BrokenExecutor:
                broken = True
                suspects += chunk


def _analyse_alone(job: Job, file: tuple[str, bytes | None]) -> Analysed:
    try:
        with _workers(1) as pool:
            return pool.submit(_read_chunk, job, (file,), bounded=True).result()[0]
    except BrokenExecutor:
        message = "the parser did not survive this file, or took too long: an expression in it is too long or too deep"
        return Analysed(file[0], None, Broken("SRC005", message, 1, 1))
