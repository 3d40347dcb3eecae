"""The life of ``refsched serve``: become the primary of a journal, answer, stop when asked."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from reference_scheduler.config import ConfigError, Settings, StopMode, load_settings
from reference_scheduler.core.model import DEFAULT_REQUESTS
from reference_scheduler.errors import JournalLocked, SchedulerError
from reference_scheduler.journal.lock import STANDBY_INTERVAL_S, JournalLock, real_path, wait_until_free
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.service.bounds import Bounds, Places
from reference_scheduler.service.errors import InternalError, NotPrimary, ServiceError
from reference_scheduler.service.operations import Operations, allow
from reference_scheduler.service.places import MAX_SOCKET_PATH_BYTES, default_journal, default_socket, private_directory
from reference_scheduler.service.protocol import AnyRequest
from reference_scheduler.service.roles import Peer, Roles
from reference_scheduler.service.server import BACKLOG, Server
from reference_scheduler.status import Hold
from reference_scheduler.views import RecoveryReport

Say = Callable[[str], None]
QUIET_S = 60.0
"""So long what is said again and again is not."""


class Place(msgspec.Struct, frozen=True):
    """Where a service is, and what it goes by; without a ``config`` everything is as by default.

    With ``traces`` it tells an OpenTelemetry collector about its jobs.
    """

    socket: Path
    journal: Path
    config: Path | None = None
    bounds: Bounds = Bounds()
    traces: bool = False

    def settings(self) -> Settings:
        """Return what the configuration says now.

        Raises:
            ConfigError: it is wrong.
        """
        return load_settings(self.config, DEFAULT_REQUESTS) if self.config else Settings()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the configuration in what is found to be wrong with it only later."""
        try:
            yield
        except ConfigError as error:
            raise (ConfigError(f"{self.config}: {error}") if self.config else error) from None


class Daemon:
    """One service; ``say`` is given lines for the operator.

    The first SIGTERM or SIGINT stops it as the configuration says; each further one interrupts what runs, and then
    takes its grace. SIGHUP has the configuration read again.
    """

    def __init__(self, place: Place, say: Say) -> None:
        self._place = place
        self._say = say
        self._settings = place.settings()
        self._path = place.socket
        with place.named():
            roles = Roles(self._settings.service)
        self._server = Server(self._refer, roles, place.bounds)
        self._answers_at: Path | None = None
        self._scheduler: Scheduler | None = None
        self._closings: list[asyncio.Task[None]] = []
        self._asked = asyncio.Event()
        self._quiet_until_s = 0.0
        self.stopped_by = 0

    async def run(self, standby: bool) -> None:
        """Serve until a signal asks to stop; a ``standby`` first waits until the journal is free.

        Raises:
            SchedulerError: the service cannot begin; with JournalLocked, because another one has the journal.
        """
        loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.set_exception_handler(self._trouble)
        # Where somebody named another place, a directory that is missing is a mistake.
        private_directory(self._path.parent, make=self._path == default_socket().absolute())
        private_directory(self._place.journal.parent, make=self._place.journal == real_path(default_journal()))
        try:
            await (self._run_standby() if standby else self._run_primary())
        except asyncio.CancelledError:
            if not self.stopped_by:
                raise
        finally:
            await self._server.close()

    async def _run_primary(self) -> None:
        lock = lock_socket(self._path)
        try:
            scheduler = await self._begin()
            try:
                await self._listen(self._path)
            except BaseException:
                await scheduler.close(StopMode.INTERRUPT)
                raise
            await self._serve(scheduler)
        finally:
            lock.release()

    async def _run_standby(self) -> None:
        """Tell where the primary is until it has ended; then take its place, and its socket."""
        waiting = self._path.with_name(f"{self._path.name}.standby")
        lock = lock_socket(waiting)
        try:
            await self._listen(waiting)
            self._say(f"standby at {waiting}: {primary_of(self._place.journal)}")
            notify("READY=1\nSTATUS=standby")
            scheduler = await self._begin_when_free()
            try:
                socket_lock = await self._take_socket(waiting)
            except BaseException:
                await scheduler.close(StopMode.INTERRUPT)
                raise
        finally:
            lock.release()
        if socket_lock is None:
            await asyncio.gather(*self._closings)
            return
        try:
            await self._serve(scheduler)
        finally:
            socket_lock.release()

    async def _take_socket(self, waiting: Path) -> JournalLock | None:
        """Answer at the socket's own place, not at ``waiting``, once nobody else does, and return the right to it.

        ``None`` if a signal asks to stop before: the scheduler of another journal may have that place for ever.
        """
        while not self._asked.is_set():
            with suppress(NotPrimary):
                lock = lock_socket(self._path)
                waiting.rename(self._path)
                self._answers_at = self._path
                return lock
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), STANDBY_INTERVAL_S)
        return None

    async def _listen(self, path: Path) -> None:
        await self._server.start(listen(path, self._server.roles))
        self._answers_at = path

    async def _begin_when_free(self) -> Scheduler:
        while True:
            await wait_until_free(self._place.journal)
            with suppress(JournalLocked):
                return await self._begin()

    async def _begin(self) -> Scheduler:
        scheduler = Scheduler(self._settings, self._place.journal)
        try:
            with self._place.named():
                await scheduler.start()
        except JournalLocked as error:
            raise JournalLocked(
                f"{error}: {primary_of(self._place.journal)}; or wait for its end with --standby"
            ) from None
        self._scheduler = scheduler
        if scheduler.settings is not self._settings:  # read again while it started
            await scheduler.reload(self._settings)
        return scheduler

    async def _serve(self, scheduler: Scheduler) -> None:
        """Be the primary until a signal asks to stop."""
        place = self._place
        most = place.bounds.admin_operations
        self._server.operation = Operations(scheduler, place.journal, Places(most, most))
        with suppress(OSError):  # only others would miss it
            address_of(place.journal).write_bytes(msgspec.json.encode(Address(str(self._path), os.getpid())))
        for line in recovered(scheduler.recovery):
            self._say(line)
        if scheduler.snapshot().hold == Hold.PAUSED:
            self._say("paused before this start: nothing starts until refsched resume")
        self._say(f"ready: {self._path} serves {place.journal}, generation {scheduler.recovery.generation}")
        notify("READY=1\nSTATUS=primary")
        async with self._tracing(scheduler):
            await self._until_asked(scheduler)
            notify("STOPPING=1")
            await asyncio.gather(*self._closings)
            self._path.unlink(missing_ok=True)
            await self._server.close()

    @asynccontextmanager
    async def _tracing(self, scheduler: Scheduler) -> AsyncIterator[None]:
        """Tell a collector about all jobs that end meanwhile, if that is wanted."""
        if not self._place.traces:
            yield
            return
        from reference_scheduler.service.tracing import Tracing

        tracing = Tracing(scheduler, self._say)
        following = asyncio.ensure_future(tracing.run())
        try:
            yield
        finally:  # also of jobs that ended before the scheduler broke off
            tracing.end()
            await following
            await asyncio.to_thread(tracing.close)

    async def _until_asked(self, scheduler: Scheduler) -> None:
        """Wait for a signal; if the scheduler breaks off before, nothing is left but to end, and be started again."""
        asked, finished = asyncio.ensure_future(self._asked.wait()), asyncio.ensure_future(scheduler.finished())
        await asyncio.wait((asked, finished), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not self._asked.is_set() and (error := finished.exception()) is not None:
            with suppress(type(error)):  # the same again
                await scheduler.close(StopMode.INTERRUPT)
            raise InternalError(f"the scheduler broke off by a defect, {type(error).__name__}: {error}") from error
        finished.cancel()

    def _trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say what the loop could not do; that it can take no more connections it would say for each, each second."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until_s:
            self._quiet_until_s = loop.time() + QUIET_S
            self._say(f"no more connections can be taken: {error.strerror}; raise ulimit -n, or the unit's LimitNOFILE")

    def _stop(self, number: int) -> None:
        self.stopped_by = self.stopped_by or number
        if self._scheduler is None:
            if self._main is not None:
                self._main.cancel()
            return
        mode = StopMode.INTERRUPT if self._closings else self._settings.on_stop
        self._say(f"stopping: {mode}")
        if mode is StopMode.DRAIN and (problem := self._scheduler.snapshot().unavailable):
            self._say(f"{problem}: the ends of jobs wait for that; interrupt to give them up")
        self._closings.append(asyncio.ensure_future(self._scheduler.close(mode)))
        self._asked.set()

    def _reload(self) -> None:
        self._reloading = asyncio.ensure_future(self._reload_all())

    async def _reload_all(self) -> None:
        """Go by what the configuration says now; if anything in it is wrong, by nothing of it."""
        try:
            settings = self._place.settings()
            with self._place.named():
                roles = Roles(settings.service)
                if self._scheduler is not None:
                    await self._scheduler.reload(settings)
            if self._answers_at is not None:
                self._answers_at.chmod(socket_mode(roles))
        except (SchedulerError, OSError) as error:
            self._say(f"not reloaded: {error}")
            return
        self._settings, self._server.roles = settings, roles
        self._say("reloaded")

    async def _refer(self, peer: Peer, request: AnyRequest) -> object:
        """Answer as a standby."""
        allow(peer, type(request))
        raise NotPrimary(f"this is a standby; {primary_of(self._place.journal)}")


def lock_socket(path: Path) -> JournalLock:
    """Return the right to answer at ``path``.

    Raises:
        NotPrimary: another one does.
    """
    try:
        return JournalLock(path)
    except JournalLocked:
        raise NotPrimary(
            f"{path}: another scheduler answers there; give this one another --socket, or let it wait with --standby"
        ) from None


def listen(path: Path, roles: Roles) -> socket.socket:
    """Return a socket that listens at ``path``, in the place of one that nobody listens at any more.

    Raises:
        ServiceError: it cannot be made.
    """
    new = path.with_name(f".{path.name}.new")
    if len(os.fsencode(new)) > MAX_SOCKET_PATH_BYTES:
        most = MAX_SOCKET_PATH_BYTES - len(os.fsencode(new)) + len(os.fsencode(path))
        raise ServiceError(f"{path}: a socket's path has at most {most} bytes: name a shorter one with --socket")
    listening = socket.socket(socket.AF_UNIX)
    try:
        new.unlink(missing_ok=True)
        listening.bind(str(new))
        new.chmod(socket_mode(roles))
        listening.listen(BACKLOG)
        new.rename(path)  # so that nobody ever finds it half made
    except OSError as error:
        listening.close()
        raise ServiceError(f"{path}: {error.strerror}") from error
    return listening


def socket_mode(roles: Roles) -> int:
    """Return the permissions of the socket: others may connect at all only if one of them has a role."""
    return 0o600 if roles.only_owner else 0o666


class Address(msgspec.Struct, frozen=True):
    """Where the primary of a journal answers; kept beside the journal, for others to say so."""

    socket: str
    pid: int


def address_of(journal: Path) -> Path:
    """Return the file with the address of the journal's primary."""
    return journal.with_name(f"{journal.name}.address")


def primary_of(journal: Path) -> str:
    """Say where the primary of ``journal`` answers, as far as it has said so itself."""
    try:
        address = msgspec.json.decode(address_of(journal).read_bytes(), type=Address)
    except (OSError, msgspec.DecodeError):
        return "the primary has not said where it answers"
    return f"the primary, process {address.pid}, answers at {address.socket}"


def recovered(report: RecoveryReport) -> list[str]:
    """Return what the operator should know of a start."""
    lines = [f"journal: {note}" for note in report.notes]
    if report.interrupted or report.strays:
        lines.append(
            f"recovered: {report.interrupted} attempts had been interrupted; "
            f"{report.requeued} jobs are queued again, {report.terminal} have ended; {report.strays} processes ended"
        )
    return lines


def notify(state: str) -> None:
    """Tell systemd, if it started this process and wants to know."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), f"\0{where[1:]}" if where.startswith("@") else where)
