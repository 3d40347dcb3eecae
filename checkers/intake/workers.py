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
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from contextlib import suppress
from functools import lru_cache
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import TypeVar

from checkers.intake.pipeline import Answer, Chunk, Job, Sight, Source, analyse_chunk, fatal, look_at_chunk
from checkers.intake.source import Stamp

CHUNK_FILES = 16
LOOK_FILES = 100
"""A look at a file is short work."""
MEMORY_BYTES = 6 * 1024**3

Found = TypeVar("Found", Sight, Answer)
Result = TypeVar("Result")


class Workers:
    """Up to ``jobs`` processes of our own, or a caller's ``executor``, kept from one batch of files to the next.

    Our own end where the ``with`` statement ends; at once, where the scan is interrupted or given up.
    """

    def __init__(self, jobs: int, executor: Executor | None = None) -> None:
        self._jobs = jobs
        self._executor = executor
        self._pool: ProcessPoolExecutor | None = None
        self._size = 0
        self._processes = set[BaseProcess]()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for process in self._processes:
                process.kill()
        self.close()

    def prepare(self, files: int) -> None:
        """Have the processes of our own ready that a look at so many files takes.

        A process is forked the faster, and stays the smaller, the less this one holds.
        """
        if self._executor is None and files:
            with suppress(OSError):  # a scan that needs none does without; one that does is told when it asks again
                self._open(-(-files // LOOK_FILES))
                self._submit(os.getpid)

    def read(
        self, work: Callable[..., list[Found]], size: int, job: Job, sources: Sequence[Source]
    ) -> Iterator[Found | Source]:
        """What ``work`` says of each source, or, if no worker survived it, the source; in chunks of ``size``."""
        waiting = deque(tuple(sources[start : start + size]) for start in range(0, len(sources), size))
        suspects: list[Source] = []
        if self._executor is not None:
            yield from _on_foreign(self._executor, work, job, waiting)
        packed = pickle.dumps(job)
        while waiting:
            yield from self._until_broken(work, packed, waiting, suspects)
        for suspect in suspects:
            yield _read_alone(work, packed, suspect)

    def _until_broken(
        self, work: Callable[..., list[Found]], packed: bytes, waiting: deque[Chunk], suspects: list[Source]
    ) -> Iterator[Found]:
        """Work through ``waiting``; when a worker dies, stop and leave what was under way in ``suspects``."""
        self._open(len(waiting))
        running: dict[Future[list[Found]], Chunk] = {}
        broken = False
        while running or (waiting and not broken):
            while waiting and not broken and len(running) < 2 * self._size:
                chunk = waiting.popleft()
                try:
                    running[self.submit(work, packed, chunk)] = chunk
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
        if broken:
            self.close()

    def submit(self, work: Callable[..., list[Found]], packed: bytes, chunk: Chunk) -> Future[list[Found]]:
        """Have one of our own processes work on a chunk. Raises BrokenExecutor when one has died."""
        return self._submit(_work, work, packed, chunk)

    def _submit(self, function: Callable[..., Result], *arguments: object) -> Future[Result]:
        pool = self._open(1)
        if len(self._processes) == self._size:
            return pool.submit(function, *arguments)
        others = set(multiprocessing.active_children())
        with warnings.catch_warnings():
            # Of threads of the caller's: our child takes no lock of theirs, it only reads files.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
            future = pool.submit(function, *arguments)
        self._processes.update(process for process in multiprocessing.active_children() if process not in others)
        return future

    def _open(self, chunks: int) -> ProcessPoolExecutor:
        """The pool for a number of chunks: one that is there, if it is large enough."""
        size = min(self._jobs, chunks)
        if self._pool is None or self._size < size:
            self.close()
            method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
            context = multiprocessing.get_context(method)
            self._pool = ProcessPoolExecutor(size, mp_context=context, initializer=_prepare_worker)
            self._size = size
        return self._pool

    def close(self) -> None:
        """End our own processes; whoever is asked for after that is a new one."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None
        self._processes.clear()


def _work(work: Callable[..., list[Found]], packed: bytes, chunk: Chunk) -> list[Found]:
    return work(_job(packed), chunk, bounded=True)


@lru_cache(maxsize=1)
def _job(packed: bytes) -> Job:
    """The job is the same for many chunks, and large."""
    job = pickle.loads(packed)  # it comes from our own parent
    assert isinstance(job, Job), "the parent sends nothing else"
    return job


def _prepare_worker() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
        with suppress(ValueError, OSError):  # macOS refuses any limit below all that it has mapped
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        with suppress(ValueError, OSError):
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


def default_jobs() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def analyse_files(job: Job, sources: Sequence[Source], workers: Workers) -> Iterator[Answer]:
    """What became of each of ``sources``, in any order."""
    for found in workers.read(analyse_chunk, CHUNK_FILES, job, sources):
        yield fatal(job, found) if isinstance(found, Source) else found


def look_at_files(job: Job, sources: Sequence[Source], workers: Workers) -> Iterator[Sight]:
    """What a look at each of ``sources`` tells, in any order."""
    for found in workers.read(look_at_chunk, LOOK_FILES, job, sources):
        yield Sight(found.path, Stamp(), None) if isinstance(found, Source) else found


def _on_foreign(
    executor: Executor, work: Callable[..., list[Found]], job: Job, waiting: deque[Chunk]
) -> Iterator[Found]:
    """Have ``executor`` work through ``waiting``; what it does not answer stays there, and a warning tells so."""
    running: dict[Future[list[Found]], Chunk] = {}
    failure: Exception | None = None
    try:
        while waiting and failure is None:
            try:
                running[executor.submit(work, job, waiting[0])] = waiting[0]
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


def _read_alone(work: Callable[..., list[Found]], packed: bytes, source: Source) -> Found | Source:
    try:
        with Workers(1) as alone:
            return alone.submit(work, packed, (source,)).result()[0]
    except BrokenExecutor:
        return source
