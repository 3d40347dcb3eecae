"""One attempt at a time: start its process, drain its output, end its whole tree, tell how it ended.

A supervisor adopts every orphan below it, so whatever an attempt starts stays its descendant: in another
session, in another group, or after its parent has gone. An attempt has ended when the supervisor has no child
left. Direct children need no pidfd: until it has reaped one, its pid names nothing else. What is done where orphans
cannot be adopted is in :mod:`~reference_scheduler.processes.lineage`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from reference_scheduler.processes import tree, wire
from reference_scheduler.processes.lineage import Lineage, Traces
from reference_scheduler.processes.output import Drain

PAUSE_S, MAX_PAUSE_S = 0.001, 1.0
"""Between two rounds of killing; each pause is twice as long as the one before."""
MAX_WAIT_MS = 1 << 30
RSS_UNITS_PER_KB = 1024 if sys.platform == "darwin" else 1
CHUNK_BYTES = 1 << 16
PIPE_BYTES = 1 << 20
RESET_SIGNALS = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
"""What is as the system has it when a process starts; to ask for them takes longer than to start one."""


class Ending(StrEnum):
    """How an attempt ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"
    OUTPUT_LIMIT = "output_limit"
    SPAWN_FAILED = "spawn_failed"
    SUPERVISOR_LOST = "supervisor_lost"


class Order(NamedTuple):
    """What the scheduler asks for; see :class:`reference_scheduler.processes.model.ProcessSpec`."""

    argv: tuple[bytes, ...]
    env: Mapping[bytes, bytes]
    cwd: bytes
    timeout_us: int | None
    grace_us: int
    head_bytes: int
    tail_bytes: int
    max_output_bytes: int | None


class Report(NamedTuple):
    """How an order ended, in plain values; an output is head, tail and total bytes."""

    ending: str
    exit_code: int | None = None
    signal: int | None = None
    error: int = 0
    detail: str = ""
    stdout: tuple[bytes, bytes, int] = (b"", b"", 0)
    stderr: tuple[bytes, bytes, int] = (b"", b"", 0)
    left_behind: int = 0
    peak_rss_kb: int = 0


class PeerGoneError(Exception):
    """The scheduler or the guardian is gone: nothing may go on."""


class Supervisor:
    """The loop of one supervisor process; ``life`` is at its end when the guardian is gone."""

    def __init__(self, control: socket.socket, life: int) -> None:
        self.control = control
        self.life = life
        self.wake = wake_on_child()
        self.adopts = tree.adopt_orphans()
        self.lineage = Lineage()
        """Of the attempt that is under way."""
        self._poll, self._room = select.poll(), select.poll()
        for fd in (control.fileno(), life, self.wake):
            self._poll.register(fd, select.POLLIN)
        self._room.register(control.fileno(), select.POLLOUT)

    def serve(self) -> None:
        """Carry out orders until the scheduler closes the connection or is gone."""
        with contextlib.suppress(PeerGoneError, ConnectionError):
            self.tell("ready", os.getpid())
            while True:
                if self.control.fileno() in self.ready(None) and isinstance(order := self.message(), tuple):
                    report = Attempt(self, Order(*order)).run()
                    self.lineage = Lineage()  # what was a name for its processes may soon be one for others
                    self.tell("ended", *report)
                    os.chdir("/")
        end(self.lineage)

    def tell(self, *message: Any) -> None:
        """Send ``message`` to the scheduler."""
        self.control.sendall(wire.frame(message))

    def message(self) -> Any:
        """Return what the scheduler says: an order, to stop within so many microseconds, or who reads along.

        Raises:
            PeerGoneError: it says nothing more.
        """
        message = wire.receive(self.control)
        if message is None:
            raise PeerGoneError
        return message

    def ready(self, wait_ms: int | None) -> list[int]:
        """Wait, and return the descriptors that have something.

        Raises:
            PeerGoneError: the guardian is gone.
        """
        found = self._poll.poll(wait_ms)
        if any(events & select.POLLOUT for _, events in found):
            self._poll.modify(self.control.fileno(), select.POLLIN)
        ready = [fd for fd, events in found if events != select.POLLOUT]
        if self.life in ready:
            raise PeerGoneError
        if self.wake in ready:
            os.read(self.wake, CHUNK_BYTES)
        return ready

    def has_room(self) -> bool:
        """Return whether a message to the scheduler is taken at once; :meth:`ready` returns again when it would be."""
        has_room = bool(self._room.poll(0))
        if not has_room:
            self._poll.modify(self.control.fileno(), select.POLLIN | select.POLLOUT)
        return has_room

    def watch(self, fd: int) -> None:
        """Wait for ``fd`` as well."""
        os.set_blocking(fd, False)
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        """Wait for ``fd`` no longer, and close it."""
        self._poll.unregister(fd)
        os.close(fd)


class Attempt:
    """One order from start to end."""

    def __init__(self, supervisor: Supervisor, order: Order) -> None:
        self._supervisor = supervisor
        self._lineage = supervisor.lineage = Lineage() if supervisor.adopts else Traces()
        self._order = order
        self._drains: dict[int, Drain] = {}
        self._outputs: list[Drain] = []
        self._status: int | None = None
        self._has_reaped = False
        self._stopped: Ending | None = None
        self._deadline: float | None = None
        self._kill_at: float | None = None
        self._pause_s = PAUSE_S
        self._asked: set[tuple[int, int]] = set()
        self._refused: set[tuple[int, int]] = set()
        self._left_behind = 0
        self._peak_rss_kb = 0
        self._readers: dict[int, tuple[int, int, bool]] = {}

    def run(self) -> Report:
        """Carry it out, and return how it ended."""
        try:
            self._pid = self._spawn()
        except OSError as error:
            return Report(Ending.SPAWN_FAILED.value, error=error.errno or 0, detail=_explain(error))
        if self._order.timeout_us is not None:
            self._deadline = time.monotonic() + self._order.timeout_us / 1e6
        while True:
            self._take(self._supervisor.ready(self._patience_ms()))
            if self._readers:
                self._answer_readers()
            if not self._reap():
                break
            self._escalate()
        for fd in list(self._drains):
            self._read(fd, PIPE_BYTES)
        for fd in list(self._drains):  # held open by a process that is none of the attempt's
            self._close(fd)
        if any(drain.has_omitted for drain in self._outputs):  # who reads along is not to miss it for a sudden end
            self._supervisor.tell("left", *(drain.window() for drain in self._outputs))
        return self._report()

    def _spawn(self) -> int:
        order = self._order
        ends: list[int] = []
        try:
            os.chdir(order.cwd)
            for _ in range(2):
                ends += os.pipe()
            pid = spawn(order.argv, self._lineage.marked(order.env), ends[1], ends[3])
        except OSError:
            for fd in ends:
                os.close(fd)
            raise
        self._lineage.begin(pid)
        for read, write in (ends[:2], ends[2:]):
            os.close(write)
            self._supervisor.watch(read)
            self._drains[read] = Drain(order.head_bytes, order.tail_bytes)
            self._outputs.append(self._drains[read])
        return pid

    def _reap(self) -> bool:
        """Collect the children that ended; return whether anything of the attempt is left."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self._has_reaped = True
                self._peak_rss_kb = max(self._peak_rss_kb, usage.ru_maxrss // RSS_UNITS_PER_KB)
                if pid == self._pid:
                    self._status = status
        except ChildProcessError:
            return not self._lineage.is_over()

    def _escalate(self) -> None:
        now = time.monotonic()
        if self._status is not None and self._stopped is None and self._kill_at is None:
            self._left_behind = len(self._lineage.members())
            self._kill_at = now
        elif self._status is None and self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self._stop(Ending.TIMED_OUT, self._order.grace_us)
        if self._kill_at is not None and now >= self._kill_at:
            self._signal(signal.SIGKILL, self._lineage.members())
            self._kill_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        elif self._kill_at is not None and self._has_reaped:
            self._ask_orphans()
        self._has_reaped = False

    def _stop(self, why: Ending, grace_us: int) -> None:
        """Ask everything to end, and see to it after the grace; the first reason stays, the shortest grace holds."""
        kill_at = time.monotonic() + grace_us / 1e6
        if self._stopped is None and (self._status is None or why is Ending.OUTPUT_LIMIT):
            self._stopped = why
        if self._kill_at is None:
            self._kill_at = kill_at
            self._signal(signal.SIGTERM, self._lineage.members())
        self._kill_at = min(self._kill_at, kill_at)

    def _ask_orphans(self) -> None:
        """Ask those too that were forked just when their parents were asked, and did not hear of it."""
        members = self._lineage.members()
        parents = {process.pid for process in members}
        orphans = [process for process in members if process.parent not in parents]
        self._signal(signal.SIGTERM, [process for process in orphans if process.identity not in self._asked])

    def _signal(self, number: signal.Signals, processes: list[tree.Process]) -> None:
        for process in processes:
            self._asked.add(process.identity)
            try:
                tree.send_signal(process, number)
            except PermissionError:
                if process.identity not in self._refused:
                    self._refused.add(process.identity)
                    self._supervisor.tell("refused", process.pid, number.name)

    def _patience_ms(self) -> int | None:
        deadline = self._deadline if self._status is None else None
        due = [at for at in (deadline, self._kill_at, self._lineage.due_at) if at is not None]
        return min(max(0, int(1000 * (min(due) - time.monotonic())) + 1), MAX_WAIT_MS) if due else None

    def _take(self, ready: list[int]) -> None:
        for fd in ready:
            if fd == self._supervisor.control.fileno():
                self._obey(self._supervisor.message())
            elif fd in self._drains:
                self._read(fd)

    def _obey(self, message: int | list[int]) -> None:
        """Stop within so many microseconds, or take note of somebody who reads along, or does no more."""
        if isinstance(message, int):
            self._stop(Ending.STOPPED, message)
        elif len(message) == 1:
            self._readers.pop(message[0], None)
        else:
            reader, stdout, stderr, waits = message
            self._readers[reader] = stdout, stderr, bool(waits)

    def _answer_readers(self) -> None:
        """Tell each reader what there is after what it has; it asks again when it wants more.

        So who is slow holds up nothing, and costs no memory: what it was not there for is gone. Nor is the scheduler
        waited for when it is busy.
        """
        for reader, (*offsets, waits) in list(self._readers.items()):
            pairs = list(zip(self._outputs, offsets, strict=True))
            if not waits or any(drain.total_bytes > offset for drain, offset in pairs):
                if not self._supervisor.has_room():
                    return
                del self._readers[reader]
                self._supervisor.tell("printed", reader, *(drain.read(offset) for drain, offset in pairs))

    def _read(self, fd: int, at_most_bytes: int = CHUNK_BYTES) -> None:
        """Read what is there, but not for ever: who writes may be faster."""
        drain = self._drains[fd]
        with contextlib.suppress(BlockingIOError):
            for _ in range(0, at_most_bytes, CHUNK_BYTES):
                data = os.read(fd, CHUNK_BYTES)
                if not data:
                    self._close(fd)
                    break
                drain.feed(data)
        if self._stopped is None and self._is_over_limit():
            self._stop(Ending.OUTPUT_LIMIT, self._order.grace_us)

    def _is_over_limit(self) -> bool:
        limit = self._order.max_output_bytes
        return limit is not None and sum(drain.total_bytes for drain in self._outputs) > limit

    def _close(self, fd: int) -> None:
        del self._drains[fd]
        self._supervisor.forget(fd)

    def _report(self) -> Report:
        code = os.waitstatus_to_exitcode(self._status or 0)
        return Report(
            (self._stopped or (Ending.SIGNALLED if code < 0 else Ending.EXITED)).value,
            code if code >= 0 else None,
            -code if code < 0 else None,
            stdout=self._outputs[0].kept(),
            stderr=self._outputs[1].kept(),
            left_behind=self._left_behind,
            peak_rss_kb=self._peak_rss_kb,
        )


def spawn(argv: tuple[bytes, ...], env: Mapping[bytes, bytes], stdout: int, stderr: int) -> int:
    """Start ``argv`` in a session of its own with nothing but its three standard streams; return the pid.

    A program without a slash is looked for in the PATH of ``env``, from the working directory of this process.

    Raises:
        OSError: it cannot be started.
    """
    refused: OSError | None = None
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, stdout, 1),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
    ]
    for program in _candidates(argv[0], env):
        try:
            return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=RESET_SIGNALS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])


def _candidates(program: bytes, env: Mapping[bytes, bytes]) -> Iterator[bytes]:
    if b"/" in program:
        yield program
    else:
        for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
            yield os.path.join(folder, program)  # noqa: PTH118 - paths are what the system gives


def _explain(error: OSError) -> str:
    name = os.fsencode(error.filename or b"").decode(errors="backslashreplace")
    return f"{name}: {error.strerror}" if name else f"{error.strerror}"


def wake_on_child() -> int:
    """Return a descriptor that can be read whenever a child has ended."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def end(lineage: Lineage) -> None:
    """Kill whatever is of ``lineage``, and reap it."""
    pause_s = PAUSE_S
    while True:
        for process in lineage.members():
            with contextlib.suppress(PermissionError):
                tree.send_signal(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if lineage.is_over():
                return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, MAX_PAUSE_S)
