"""The server by itself, with operations made for the test, on a real socket."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from live_world import on_loop
from service_world import PATIENCE_S, Raw

from reference_scheduler.config import ServiceSettings
from reference_scheduler.observers import Gap
from reference_scheduler.service.bounds import Bounds, Places
from reference_scheduler.service.daemon import listen
from reference_scheduler.service.errors import Busy
from reference_scheduler.service.lines import LineConnection
from reference_scheduler.service.protocol import MAX_REQUEST_BYTES, AnyRequest, Get, Streamed
from reference_scheduler.service.roles import Peer, Roles
from reference_scheduler.service.server import Operation, Server

Value = TypeVar("Value")


def served(
    folder: Path, operation: Operation, talk: Callable[[Raw], Value], bounds: Bounds | None = None
) -> tuple[Value, float]:
    """Return what ``talk`` gives, in a thread, and how long it took."""

    async def main() -> tuple[Value, float]:
        roles = Roles(ServiceSettings())
        server = Server(operation, roles, bounds or Bounds())
        await server.start(listen(folder / "s", roles))
        raw = Raw(folder / "s")
        try:
            begun_s = time.monotonic()
            value = await asyncio.wait_for(asyncio.to_thread(talk, raw), PATIENCE_S)
            return value, time.monotonic() - begun_s
        finally:
            raw.close()
            await server.close()

    return asyncio.run(main())


async def echo(peer: Peer, request: AnyRequest) -> object:
    """Give back which job was asked for."""
    assert isinstance(request, Get)
    if request.job == "defect":
        raise ValueError("made up")
    return len(request.job)


def get(job: str) -> bytes:
    return b'{"op":"get","job":"%s"}' % job.encode()


class Reading(asyncio.Transport):
    """A transport that notes whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def pause_reading(self) -> None:
        """Read no more."""
        self.reads = False

    def resume_reading(self) -> None:
        """Read on."""
        self.reads = True

    def is_closing(self) -> bool:
        """Return that it is open."""
        return False

    def close(self) -> None:
        """Do nothing."""


@on_loop
async def test_a_peer_who_asks_faster_than_is_answered_is_not_read_from_meanwhile() -> None:
    async def serve(connection: LineConnection) -> None:
        await asyncio.Event().wait()

    transport, connection = Reading(), LineConnection(serve, 10)
    connection.connection_made(transport)
    read: list[bool | bytes | None] = []
    for data in (b"1234\n678\n0", b"1\n"):
        connection.data_received(data)
        read.append(transport.reads)
    for _ in range(3):
        read += [await connection.next_line(), transport.reads]
    assert read == [True, False, b"1234", True, b"678", True, b"01", True]
    connection.close()


def test_a_line_may_have_so_many_bytes_and_no_more(tmp_path: Path) -> None:
    longest = "x" * (MAX_REQUEST_BYTES - len(get("")))
    assert served(tmp_path, echo, lambda raw: raw.ask(get(longest)))[0] == {"id": 0, "ok": len(longest)}
    answer = served(tmp_path, echo, lambda raw: raw.ask(get(longest + "x")))[0]
    assert answer["error"]["code"] == "bad_request"


def test_what_follows_a_long_line_is_read_too(tmp_path: Path) -> None:
    longest = "x" * (MAX_REQUEST_BYTES - len(get("")))

    def talk(raw: Raw) -> list[int]:
        raw.send((get(longest) + b"\n") * 3 + get("ab") + b"\n")
        return [raw.answer()["ok"] for _ in range(4)]

    assert served(tmp_path, echo, talk)[0] == [len(longest)] * 3 + [2]


def test_a_defect_is_answered_and_logged_and_the_next_request_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, _ = served(tmp_path, echo, lambda raw: (raw.ask(get("defect")), raw.ask(get("abc"))))
    message = "ValueError: made up; the scheduler's log has the details"
    assert answers == ({"id": 0, "error": {"code": "internal", "message": message}}, {"id": 0, "ok": 3})
    assert "in echo\n    raise ValueError" in capsys.readouterr().err


def test_requests_that_come_too_fast_are_answered_later(tmp_path: Path) -> None:
    def talk(raw: Raw) -> list[int]:
        raw.send((get("a") + b"\n") * 6)
        return [raw.answer()["ok"] for _ in range(6)]

    answers, took_s = served(tmp_path, echo, talk, Bounds(requests_per_s=20, burst=2))
    assert answers == [1] * 6
    assert took_s > 4 / 20 - 0.01  # less what a clock may be off


def test_a_stream_is_closed_when_its_reader_hangs_up(tmp_path: Path) -> None:
    closed = threading.Event()

    async def endless() -> AsyncGenerator[Streamed, None]:
        try:
            while True:
                yield Gap(1)
                await asyncio.sleep(0)
        finally:
            closed.set()

    async def operation(peer: Peer, request: AnyRequest) -> object:
        return endless()

    def talk(raw: Raw) -> None:
        for _ in range(3):
            assert raw.ask(b'{"op":"events"}')["event"] == {"type": "Gap", "missed": 1}
        raw.close()
        assert closed.wait(PATIENCE_S)

    served(tmp_path, operation, talk)


def test_places_are_bounded_for_each_and_for_all_and_given_back() -> None:
    places = Places(total=3, per_user=2)
    with places.place(1), places.place(1):
        with pytest.raises(Busy), places.place(1):
            pass
        with places.place(2):
            with pytest.raises(Busy) as caught, places.place(3):
                pass
            assert str(caught.value) == "server busy, try again"
        with places.place(3):
            assert places.taken == 3
    assert places.taken == 0
