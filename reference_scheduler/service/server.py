"""Answers peers over a Unix socket: who may connect, how much, and one answer after the other."""

from __future__ import annotations

import asyncio
import socket
import sys
import traceback
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from reference_scheduler.errors import SchedulerError, SchedulerStopping
from reference_scheduler.service.bounds import Bounds, Places, Rate
from reference_scheduler.service.errors import BadRequest, Denied, InternalError, WaitedLongEnough
from reference_scheduler.service.lines import LineConnection, LineTooLongError
from reference_scheduler.service.protocol import (
    MAX_REQUEST_BYTES,
    Answer,
    AnyRequest,
    Drain,
    Events,
    Logs,
    Streamed,
    Wait,
    id_of,
    line_of,
    problem_of,
    read_request,
)
from reference_scheduler.service.roles import Peer, Role, Roles, peer_uid

BACKLOG = 128
PATIENT = (Wait, Drain, Events, Logs)
"""Requests that may take for ever: who is gone must not hold a place so long, and half gone looks the same."""
Operation = Callable[[Peer, AnyRequest], Awaitable[object]]


class Server:
    """Answers with what ``operation`` returns or raises; that may be set anew at any time."""

    def __init__(self, operation: Operation, roles: Roles, bounds: Bounds) -> None:
        self.operation = operation
        self.roles = roles
        self._places = Places(bounds.connections, bounds.connections_per_user)
        self._rates: defaultdict[int, Rate] = defaultdict(lambda: Rate(bounds.requests_per_s, bounds.burst))
        self._connections: set[LineConnection] = set()
        self._listening: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Begin to answer on a socket that listens."""
        loop = asyncio.get_running_loop()
        self._clock = loop.time
        connect = partial(LineConnection, self._serve, MAX_REQUEST_BYTES)
        self._listening = await loop.create_unix_server(connect, sock=listening, backlog=BACKLOG)

    async def close(self) -> None:
        """Answer nobody any more, and tell those who wait for an answer; again, it does nothing."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.close()
        while self._connections:
            await asyncio.sleep(0)

    async def _serve(self, connection: LineConnection) -> None:
        uid = peer_uid(connection.socket)
        try:
            if (peer := self.roles.peer(uid)).role is Role.NONE:
                raise Denied(f"{peer.user} has no role here: see [scheduler.service] in the configuration")
            with self._places.place(uid):
                await self._answer_all(connection, uid)
        except SchedulerError as error:  # ends the connection, whatever was asked
            await connection.write(line_of(Answer(0, error=problem_of(error))))

    async def _answer_all(self, connection: LineConnection, uid: int) -> None:
        self._connections.add(connection)
        try:
            while (line := await connection.next_line()) is not None:
                await asyncio.sleep(self._rates[uid].take(self._clock()))
                await self._answer(connection, self.roles.peer(uid), line)
        except LineTooLongError:
            raise BadRequest(f"a request has at most {MAX_REQUEST_BYTES} bytes and ends with its line") from None
        except asyncio.CancelledError:
            raise SchedulerStopping("the scheduler has stopped; what is not answered may not have happened") from None
        finally:
            self._connections.discard(connection)

    async def _answer(self, connection: LineConnection, peer: Peer, line: bytes) -> None:
        try:
            request = read_request(line)
            work = self._carry_out(connection, peer, request)
            found = await (unless_ended(connection, work) if isinstance(request, PATIENT) else work)
            answer = Answer(request.id, found)
        except SchedulerError as error:
            answer = Answer(id_of(line), error=problem_of(error))
        except Exception as error:  # a defect must not end the service, nor be silent
            traceback.print_exc(file=sys.stderr)
            defect = InternalError(f"{type(error).__name__}: {error}; the scheduler's log has the details")
            answer = Answer(id_of(line), error=problem_of(defect))
        await connection.write(line_of(answer))

    async def _carry_out(self, connection: LineConnection, peer: Peer, request: AnyRequest) -> object:
        found = await self.operation(peer, request)
        if not isinstance(found, AsyncGenerator):
            return found
        await self._stream(connection, request.id, found)
        return None

    async def _stream(self, connection: LineConnection, request: int, found: AsyncGenerator[Streamed, None]) -> None:
        async with aclosing(found) as events:
            async for event in events:
                await connection.write(line_of(Answer(request, event=event)))


async def unless_ended(connection: LineConnection, work: Coroutine[Any, Any, object]) -> object:
    """Return what ``work`` gives, if that is before the peer will send nothing more.

    Raises:
        WaitedLongEnough: it was not, and ``work`` is given up.
    """
    working, ended = asyncio.ensure_future(work), asyncio.ensure_future(connection.ended.wait())
    try:
        await asyncio.wait((working, ended), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise WaitedLongEnough("nobody is waited for who has closed the connection, even if only for sending")
        return working.result()
    finally:
        working.cancel()
        ended.cancel()
