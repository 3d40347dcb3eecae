"""ManagedProcessService: the one place that starts processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import reference_scheduler
from reference_scheduler.core.model import Failure
from reference_scheduler.processes import cgroup, strays, tree, wire
from reference_scheduler.processes.environment import INHERITED, child_environment, inherited_environment
from reference_scheduler.processes.guardian import REQUEST, SETTLE, SUPERVISE
from reference_scheduler.processes.model import Output, Printed, ProcessResult, ProcessSpec
from reference_scheduler.processes.output import MAX_READ_BYTES
from reference_scheduler.processes.supervisor import CHUNK_BYTES, Ending, Order, Report
from reference_scheduler.waiting import outlast

MAX_IDLE = 16
IMPORT_ROOT = str(Path(reference_scheduler.__file__).parent.parent)
BOOT = "import sys; sys.path += sys.argv[4:]; from reference_scheduler.processes.guardian import main; main()"
PASSING = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ETXTBSY),
    *(errno.EPIPE, errno.ECONNRESET),  # the guardian is just ending
)
SPAWN_FAILURES: dict[int, Failure] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), Failure.PERMISSION),
    **dict.fromkeys(PASSING, Failure.TRANSIENT),
}
"""What a failed start means; whatever is not here is a fault of the request."""


class ServiceClosedError(RuntimeError):
    """The service has been closed and starts nothing more."""


class RunningProcess:
    """A process from start to end: it is ``over`` when nothing of it lives any more."""

    def __init__(self, marks: Mapping[str, str], on_refused: strays.Refused | None) -> None:
        self.over = asyncio.Event()
        self.marks = marks
        self.on_refused = on_refused
        self._supervisor: _Supervisor | None = None
        self._result: ProcessResult | None = None
        self._readers: dict[int, asyncio.Future[tuple[Printed, Printed] | None]] = {}
        self._last_reader = 0
        self._left: list[Printed] = []

    def stop(self, grace_us: int) -> None:
        """Let it end: TERM now, KILL after ``grace_us``; a later call can only shorten the grace."""
        if self._supervisor:
            self._supervisor.send(grace_us)

    async def wait(self) -> ProcessResult:
        """Wait for the result; if the caller is cancelled, the process is ended at once, and waited for, first."""
        await outlast(self.over, lambda: self.stop(0))
        assert self._result is not None
        return self._result

    async def read(self, stdout: int, stderr: int, wait: bool = True) -> tuple[Printed, Printed] | None:
        """Return something of what was printed after so many bytes of each stream, ``None`` when there is no more.

        With ``wait``, once there is something. What nobody has read in time is gone, but for what the result has.
        """
        if self._supervisor is None:
            return self._read_left(stdout, stderr)
        self._last_reader = reader = self._last_reader + 1
        printed: asyncio.Future[tuple[Printed, Printed] | None] = asyncio.get_running_loop().create_future()
        self._readers[reader] = printed
        self._supervisor.send([reader, stdout, stderr, int(wait)])
        try:
            found = await printed
        except asyncio.CancelledError:
            self._forget_reader(reader)
            raise
        finally:
            del self._readers[reader]
        return found or self._read_left(stdout, stderr)

    def _forget_reader(self, reader: int) -> None:
        if self._supervisor:
            self._supervisor.send([reader])

    def _read_left(self, stdout: int, stderr: int) -> tuple[Printed, Printed] | None:
        """Return something of what was not read before the end, ``None`` if all was."""
        if self._result is None:
            return None
        outputs = self._result.stdout, self._result.stderr
        left = self._left or [Printed(len(output.head), b"", len(output.head)) for output in outputs]
        found = _after(stdout, outputs[0], left[0]), _after(stderr, outputs[1], left[1])
        return found if found[0].data or found[1].data else None

    def forget(self) -> None:
        """Keep no more of what it printed than the result does."""
        self._left = []

    def begin(self, supervisor: _Supervisor, order: Order) -> None:
        """Have ``supervisor`` carry out ``order``."""
        self._supervisor = supervisor
        supervisor.running = self
        supervisor.send(tuple(order))

    def told(self, what: str, *message: Any) -> None:
        """Take in what the supervisor says."""
        if what == "ended":
            self.end(_result(Report(*message)))
        elif what == "printed":
            self._printed(*message)
        elif what == "left":
            self._left = [Printed(*left) for left in message]
        elif self.on_refused:
            self.on_refused(*message)

    def _printed(self, reader: int, stdout: tuple[int, bytes, int], stderr: tuple[int, bytes, int]) -> None:
        waiting = self._readers.get(reader)
        if waiting is not None and not waiting.done():
            waiting.set_result((Printed(*stdout), Printed(*stderr)))

    def end(self, result: ProcessResult) -> None:
        """Settle the result."""
        self._supervisor = None
        self._result = self._result or result
        self.over.set()
        for waiting in self._readers.values():
            if not waiting.done():
                waiting.set_result(None)


def _after(offset: int, output: Output, left: Printed) -> Printed:
    """Return what comes after ``offset``: of the beginning that the result has, or else of what is ``left``."""
    part = Printed(0, output.head, left.total_bytes) if offset < len(output.head) else left
    begin = max(offset, part.begin)
    return Printed(begin, part.data[begin - part.begin :][:MAX_READ_BYTES], left.total_bytes)


class ManagedProcessService:
    """Starts processes and is certain of their end; to be used on one event loop, and closed.

    ``inherited`` are patterns of the variables that pass from the environment, as it is now, into that of jobs.
    """

    def __init__(self, inherited: Iterable[str] = INHERITED) -> None:
        self._environment = inherited_environment(os.environ, inherited)
        self._guardian: _Guardian | None = None
        self._supervisors: set[_Supervisor] = set()
        self._idle: list[_Supervisor] = []
        self._lost: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(
        self, spec: ProcessSpec, marks: Mapping[str, str] | None = None, on_refused: strays.Refused | None = None
    ) -> RunningProcess:
        """Start a process; that it cannot be started is one of its results.

        ``marks`` (``{"JOB": …}``) are put into the environment of everything it starts, as ``SPAWNGATE_JOB`` and so on.

        Raises:
            ServiceClosedError: the service has been closed.
            ValueError: ``spec.env`` has a variable that no job is given.
        """
        self._check_open()
        marks = marks or {}
        env = child_environment(self._environment, spec.env, marks)
        order = Order(
            *(tuple(map(os.fsencode, spec.argv)), env, os.fsencode(spec.cwd), spec.timeout_us, spec.grace_us),
            *(spec.head_bytes, spec.tail_bytes, spec.max_output_bytes),
        )
        running = RunningProcess(marks, on_refused)
        if self._guardian and self._guardian.ended:
            self._idle.clear()  # they end with it, and would take the process with them
        try:
            supervisor = self._idle.pop() if self._idle else await self._supervise()
        except OSError as error:
            running.end(_spawn_failed(error.errno or 0, f"no supervisor: {error.strerror}"))
        else:
            running.begin(supervisor, order)
            if supervisor.is_lost:
                self.lost(supervisor)
        return running

    async def run(self, spec: ProcessSpec, marks: Mapping[str, str] | None = None) -> ProcessResult:
        """Run a process to its end. Raises as :meth:`start` does."""
        return await (await self.start(spec, marks)).wait()

    def health(self) -> str:
        """Return why no process could be started now, or what was lost since the latest one; "" if all is well."""
        if self._closed:
            return "the process service is closed"
        if self._guardian and self._guardian.ended:
            return "its guardian was lost, and all its processes with it; the next process gets another"
        return ""

    async def close(self) -> None:
        """End every process at once, and wait until nothing is left."""
        self._closed = True
        under_way = [supervisor.running for supervisor in self._supervisors if supervisor.running]
        for running in under_way:
            running.stop(0)
        await asyncio.gather(*(running.over.wait() for running in under_way), *self._lost)
        for supervisor in self._supervisors:
            supervisor.close()
        if self._guardian:
            await self._guardian.close()

    async def _supervise(self) -> _Supervisor:
        guardian = await self._live_guardian()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                guardian.request(SUPERVISE, 0, theirs)
            loop = asyncio.get_running_loop()
            _, supervisor = await loop.create_connection(lambda: _Supervisor(self), sock=ours)
        except BaseException:
            ours.close()
            raise
        if self._closed:
            supervisor.close()
            self._check_open()
        self._supervisors.add(supervisor)
        return supervisor

    async def _live_guardian(self) -> _Guardian:
        former = self._guardian
        if former and former.ended:
            await former.gone
            self._check_open()
        if self._guardian is None or self._guardian.ended:
            self._guardian = _Guardian()
        return self._guardian

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceClosedError("the process service is closed")

    def free(self, supervisor: _Supervisor) -> None:
        """Take back a supervisor whose process has ended."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(supervisor)
        else:
            supervisor.close()

    def lost(self, supervisor: _Supervisor) -> None:
        """Take note that a supervisor is gone."""
        self._supervisors.discard(supervisor)
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        if supervisor.running:
            task = asyncio.get_running_loop().create_task(self._bury(supervisor.running, supervisor.pid))
            self._lost.add(task)
            task.add_done_callback(self._lost.discard)

    async def _bury(self, running: RunningProcess, supervisor_pid: int) -> None:
        """Report the end of a process that lost its supervisor, once everything it started is gone."""
        if self._guardian:
            await self._guardian.settle(supervisor_pid)
        if not supervisor_pid:
            running.end(_spawn_failed(errno.EAGAIN, "no supervisor: the guardian could not make one"))
            return
        while running.marks and (await strays.end(lambda marks: marks == running.marks, running.on_refused)).refused:
            await asyncio.sleep(strays.MAX_PAUSE_S)
        detail = "its supervisor is gone: killed, or ended with the guardian"
        running.end(ProcessResult(Ending.SUPERVISOR_LOST, failure=Failure.TRANSIENT, detail=detail))


class _Supervisor(asyncio.BufferedProtocol):
    """The scheduler's end of one supervisor process.

    It lends the event loop a buffer: one of the loop's own is mapped and unmapped for each message.
    """

    def __init__(self, service: ManagedProcessService) -> None:
        self.running: RunningProcess | None = None
        self.pid = 0
        self.is_lost = False
        self._service = service
        self._splitter = wire.Splitter()
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        for message in self._splitter.feed(self._buffer[:nbytes]):
            if message[0] == "ready":
                self.pid = message[1]
            elif self.running:
                running = self.running
                if message[0] == "ended":
                    self.running = None
                    self._service.free(self)
                running.told(*message)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._service.lost(self)

    def send(self, message: Any) -> None:
        """Send an order, or a grace."""
        if self._transport:
            self._transport.write(wire.frame(message))

    def close(self) -> None:
        """Let the process end."""
        if self._transport:
            self._transport.close()


class _Guardian:
    """The scheduler's end of the guardian process; ``gone`` is settled when it has ``ended`` with all it stood for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.ended = False
        self._group = cgroup.make()
        self._settling: dict[int, asyncio.Future[None]] = {}
        self._socket, theirs = socket.socketpair()
        with theirs:
            argv = [
                sys.executable,
                "-ISB",
                "-c",
                BOOT,
                str(theirs.fileno()),
                str(os.getpid()),
                str(self._group or ""),
                *_import_roots(),
            ]
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
            except OSError:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)

    def request(self, what: bytes, pid: int, sock: socket.socket | None = None) -> None:
        """Send a request, with a socket if it needs one."""
        socket.send_fds(self._socket, [REQUEST.pack(what, pid)], [sock.fileno()] if sock else [])

    async def settle(self, supervisor_pid: int) -> None:
        """Wait until the supervisor is gone with everything below it, or the guardian itself."""
        settled = self._settling.setdefault(supervisor_pid, self._loop.create_future())
        with contextlib.suppress(OSError):
            self.request(SETTLE, supervisor_pid)
        await asyncio.wait([settled, self.gone], return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Let it end everything and itself."""
        if not self.ended:
            self._socket.shutdown(socket.SHUT_WR)
        await self.gone

    def _read(self) -> None:
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self._socket.recv(REQUEST.size)
        if data:
            self._settling.pop(REQUEST.unpack(data)[1]).set_result(None)
            return
        self.ended = True
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._process.wait()
        self._burial = self._loop.create_task(self._bury())

    async def _bury(self) -> None:
        if self._group:
            await cgroup.end(self._group)
        self.gone.set_result(None)


def _import_roots() -> list[str]:
    """Return where the guardian, which sees no installed packages, finds what it needs."""
    if tree.IS_LINUX:
        return [IMPORT_ROOT]
    import psutil

    return [IMPORT_ROOT, str(Path(psutil.__file__).parent.parent)]


def _result(report: Report) -> ProcessResult:
    if report.ending == Ending.SPAWN_FAILED:
        return _spawn_failed(report.error, report.detail)
    return ProcessResult(
        Ending(report.ending),
        report.exit_code,
        report.signal,
        stdout=Output.kept(*report.stdout),
        stderr=Output.kept(*report.stderr),
        left_behind=report.left_behind,
        peak_rss_kb=report.peak_rss_kb,
    )


def _spawn_failed(error: int, detail: str) -> ProcessResult:
    failure = SPAWN_FAILURES.get(error, Failure.VALIDATION)
    return ProcessResult(Ending.SPAWN_FAILED, failure=failure, detail=detail)
