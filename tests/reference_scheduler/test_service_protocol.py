"""The socket in the hands of clients that are clumsy, slow, hostile or gone."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from service_world import ROOT, Raw, Service

from reference_scheduler.errors import SchedulerError
from reference_scheduler.executors.base import Progress
from reference_scheduler.requests import JobRequest
from reference_scheduler.service import protocol
from reference_scheduler.service.bounds import Bounds, Rate
from reference_scheduler.service.errors import BadRequest, ServiceError

FORGOTTEN = ", or it ended long ago and was forgotten"
OTHER_VERSION = "version 2 of the protocol is not spoken here, only 1"
HELLO = b'{"op":"hello"}'


LONG_QUEUES = "[scheduler.queue]\nmax_total = 1000000\nmax_per_workspace = 1000000\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), config=LONG_QUEUES) as running:
        yield running
        with running.raw() as raw:  # whatever was done to it, it answers, and has said nothing about itself
            assert raw.ask(HELLO)["ok"]["versions"] == [1]
        assert running.stop() == 0
        assert running.rest() == ["stopping: drain"]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b"", "bad_request", "no request: Input data was truncated"),
        (b"[]", "bad_request", "no request: Expected `object`, got `array`"),
        (b"{}", "bad_request", "no request: Object missing required field `op`"),
        (b'{"op":"nope"}', "bad_request", "no request: Invalid value 'nope' - at `$.op`"),
        (b'{"op":"get"}', "bad_request", "no request: Object missing required field `job`"),
        (b'{"op":"get","job":"\xff"}', "bad_request", "no request: Invalid UTF-8 encoded string"),
        (b'{"op":"get","job":"\\ud800"}', "bad_request", "no request: Input data was truncated"),
        (b'{"op":"get","job":"1","jobs":2}', "bad_request", "no request: Object contains unknown field `jobs`"),
        (b'{"op":"get","job":"1","v":2}', "unsupported_version", OTHER_VERSION),
        (b'{"op":"new","v":2}', "unsupported_version", OTHER_VERSION),
        (b'{"op":"get","job":"1\\u0000"}', "no_such_job", "there is no job '1\\x00'" + FORGOTTEN),
        (b'{"op":"list","limit":1001}', "bad_request", "limit must be between 1 and 1000, got 1001"),
        (b'{"op":"check","jobs":[]}', "bad_request", "number of jobs must be between 1 and 1000, got 0"),
        (b'{"op":"submit_many","jobs":[]}', "bad_request", "number of jobs must be between 1 and 1000, got 0"),
        (
            b'{"op":"submit","job":{"kind":"shell","prority":"high"}}',
            "bad_request",
            "no request: Object contains unknown field `prority` - at `$.job`",
        ),
        (
            b'{"op":"submit","job":{"kind":"shell","request":{"cpu_wieght":9}}}',
            "bad_request",
            "no request: Object contains unknown field `cpu_wieght` - at `$.job.request`",
        ),
        (
            b'{"op":"submit_many","jobs":[{"kind":"shell","retry":{"max_atempts":9}}]}',
            "bad_request",
            "no request: Object contains unknown field `max_atempts` - at `$.jobs[0].retry`",
        ),
        (
            b'{"op":"wait","job":"","timeout_us":-1}',
            "bad_request",
            "no request: Expected `int` >= 0 - at `$.timeout_us`",
        ),
        (b'{"op":"record_start","path":"here.replay"}', "bad_request", "path: must be absolute, got 'here.replay'"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_told_so_and_the_next_one_is_served(
    service: Service, line: bytes, code: str, message: str
) -> None:
    with service.raw() as raw:
        assert raw.ask(line) == {"id": 0, "error": {"code": code, "message": message}}
        assert raw.ask(HELLO)["ok"]["role"] == "admin"


def test_nesting_without_end_is_refused(service: Service) -> None:
    nested = b'{"op":"submit","id":5,"job":{"kind":"shell","payload":{"a":' + b"[" * 400_000 + b"]" * 400_000 + b"}}}"
    with service.raw() as raw:
        assert raw.ask(nested)["error"]["code"] == "bad_request"
        assert raw.ask(HELLO)["ok"]["role"] == "admin"


def test_an_answer_has_the_id_of_its_request_even_if_that_was_bad(service: Service) -> None:
    with service.raw() as raw:
        assert raw.ask(b'{"id":7,"op":"get","job":"none"}')["id"] == 7
        assert raw.ask(b'{"id":8,"op":"nope"}')["id"] == 8
        assert raw.ask(b'{"id":18446744073709551616,"op":"hello"}')["id"] == 0


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
@example(b'{"id":18446744073709551616,"op":"hello"}')
def test_any_bytes_are_a_request_or_a_bad_one(line: bytes) -> None:
    with pytest.raises(BadRequest):
        protocol.read_request(line)
    assert 0 <= protocol.id_of(line) <= 2**53


ODD_TEXTS = ("", "0", "-1", "1", "2", "3", "\x00", "\u202e", "'; drop table jobs;--", "/", "x" * 900, "1" * 40)
ODD_NUMBERS = (0, 1, -1, 1000, 2**31, 2**53, 2**63, 2**64, 10**30, 0.5, 1e300)


def odd_request(random: Random, log: Path) -> dict[str, Any]:
    """Return a request of which most is right and the rest is not."""

    def odd() -> Any:
        return random.choice((*ODD_TEXTS, *ODD_NUMBERS, None, True, [], [ODD_TEXTS[0]], {}, {"a": [1]}))

    request = random.choice(protocol.AnyRequest.__args__)
    fields: dict[str, Any] = {"op": request.__struct_config__.tag}
    likely: dict[str, Callable[[], Any]] = {
        "job": lambda: random.choice(ODD_TEXTS),
        "states": lambda: ["queued"],
        "limit": lambda: random.choice((1, 1000)),
        "timeout_us": lambda: 1000,
        "result": lambda: {"state": "failed", "exit_code": random.choice(ODD_NUMBERS), "values": {"a": odd()}},
        "progress": lambda: {"message": random.choice(ODD_TEXTS), "counts": {"a": random.choice(ODD_NUMBERS)}},
        "path": lambda: random.choice((str(log), str(log.parent), f"{log}\0", "/dev/null", "/none/x")),
    }
    for name in request.__struct_fields__:
        if name not in ("v", "id"):
            fields[name] = likely.get(name, odd)() if random.random() < 0.8 else odd()
    if request is protocol.Submit:
        job = {"kind": "shell", "payload": random.choice(({"script": "true"}, odd()))}
        names = random.sample(protocol.JobToSubmit.__struct_fields__, 3)
        fields["job"] = job | {name: odd() for name in names if name not in job}
    if request is protocol.Wait:
        fields["timeout_us"] = random.choice((0, 1000))
    return fields


@pytest.mark.parametrize("seed", range(3))
def test_no_request_however_odd_finds_a_defect(service: Service, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with service.raw() as raw:
        for _ in range(300):
            request = odd_request(random, tmp_path / "log.replay")
            if request["op"] in ("drain", "events"):
                continue  # they do not end
            answer = raw.ask(json.dumps(request).encode())
            assert answer, request
            assert answer.get("error", {}).get("code") not in ("internal", "stopping"), request
        assert "ok" in raw.ask(b'{"op":"resume"}')
        assert "ok" in raw.ask(b'{"op":"record_stop"}')


def test_a_pipe_is_not_recorded_into(service: Service, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with service.client() as client, pytest.raises(ServiceError) as caught:
        client.record_start(tmp_path / "pipe")
    assert str(caught.value) == f"{tmp_path}/pipe: is no file"


def test_requests_may_come_byte_by_byte_or_all_at_once(service: Service) -> None:
    with service.raw() as raw:
        for byte in b'{"id":1,"op":"hello"}\n{"id":2,"op":"hello"}':
            raw.send(bytes([byte]))
        raw.send(b'\n{"id":3,"op":"hello"}\n')
        assert [raw.answer()["id"] for _ in range(3)] == [1, 2, 3]


def test_half_a_line_does_nothing_and_a_closed_direction_is_still_answered(service: Service) -> None:
    with service.client() as client:
        before = client.jobs()
    with service.raw() as raw:
        raw.send(HELLO + b'\n{"op":"submit","job":{"kind":"shell","payload":{"script":"true"}}}')
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.answer()["ok"]["role"] == "admin"
        assert raw.answer() == {}
    with service.client() as client:
        assert client.jobs() == before


def test_who_closes_the_sending_direction_keeps_no_place_by_waiting(service: Service) -> None:
    gone = "nobody is waited for who has closed the connection, even if only for sending"
    with service.client() as client:
        client.pause()
        job = client.submit(JobRequest(kind="shell", payload={"script": "true"})).id
        for request in (b'{"op":"wait","job":"%s"}' % job.encode(), b'{"op":"events"}'):
            with service.raw() as raw:
                raw.send(request + b"\n" + HELLO + b"\n")
                raw.socket.shutdown(socket.SHUT_WR)
                answers = [raw.answer() for _ in range(3)]
            assert {"id": 0, "error": {"code": "timeout", "message": gone}} in answers
            assert any(answer.get("ok", {}).get("role") == "admin" for answer in answers)
        client.resume()
        client.wait(job)
        with service.raw() as raw:
            raw.send(b'{"op":"wait","job":"%s"}\n' % job.encode())
            raw.socket.shutdown(socket.SHUT_WR)
            assert raw.answer()["ok"]["state"] == "completed"


def test_a_line_without_end_is_refused_and_costs_no_memory(service: Service) -> None:
    before_kb = peak_kb(service.pid)
    mebibyte = b"x" * (1 << 20)
    sent = 0
    with service.raw() as raw:
        with suppress(OSError):  # it hangs up
            while sent < 1 << 30:
                sent += raw.socket.send(mebibyte)
        message = f"a request has at most {protocol.MAX_REQUEST_BYTES} bytes and ends with its line"
        assert raw.answer() == {"id": 0, "error": {"code": "bad_request", "message": message}}
    assert sent < 8 << 20
    assert peak_kb(service.pid) - before_kb < 20_000


def test_a_slow_reader_loses_events_and_is_told_how_many(tmp_path: Path) -> None:
    jobs, rounds = 1000, 20
    with (
        Service(tmp_path, config=LONG_QUEUES) as service,  # no job of another test ends meanwhile
        service.client() as client,
        service.raw() as slow,
        service.client() as patient,
    ):
        client.pause()
        assert slow.ask(b'{"id":3,"op":"events"}') == {"id": 3, "event": {"type": "Began"}}
        request = protocol.JobToSubmit(kind="shell", payload={"script": "true"}, workspace="x" * 100)
        ids = [job for _ in range(rounds) for job in client.submit_many([request] * jobs)]
        assert len(set(ids)) == jobs * rounds
        for found in ids:
            assert isinstance(found, str)
        growth_kb = peak_kb(service.pid)
        counts = {"Notice": 0, "Gap": 0}
        while counts["Notice"] + counts["Gap"] < jobs * rounds:
            event = slow.answer()["event"]
            counts[event["type"]] += event.get("missed", 1)
        assert counts["Gap"] > 0
        assert counts["Notice"] + counts["Gap"] == jobs * rounds
        assert growth_kb < 400_000
        assert patient.get(str(ids[0])).state == "queued"


def test_a_thousand_connections_leave_room_for_others_once_they_are_gone(service: Service) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with service.client() as client:
        client.hello()  # its place is taken before the crowd comes
        idle_fds = open_fds(service.pid)
        crowd = [Raw(service.path) for _ in range(1000)]
        for raw in crowd:
            with suppress(BrokenPipeError):  # those for whom there is no place
                raw.send(HELLO + b"\n")
        answers = [raw.answer() for raw in crowd]
        busy = {"id": 0, "error": {"code": "busy", "message": "server busy, try again"}}
        served = [answer for answer in answers if answer != busy]
        assert len(served) == Bounds().connections_per_user - 1
        assert all(answer["ok"]["role"] == "admin" for answer in served)
        assert client.hello().role == "admin"
        for raw in crowd:
            raw.close()
    wait_for_room(service)
    for _ in range(1000):  # it closes what was hung up on in its own time
        with service.client() as client:
            client.hello()
        if open_fds(service.pid) <= idle_fds:
            break
    assert open_fds(service.pid) <= idle_fds


def test_clients_that_vanish_while_they_wait_give_their_places_back(service: Service) -> None:
    with service.client() as client:
        client.pause()
        job = client.submit(protocol.JobToSubmit(kind="shell", payload={"script": "true"})).id
    for _ in range(2):
        waiting = [Raw(service.path) for _ in range(Bounds().connections_per_user - 1)]
        for raw in waiting:
            with suppress(BrokenPipeError):  # refused, for those who have gone are not yet noticed
                raw.send(b'{"op":"wait","job":"%s"}\n' % job.encode())
            raw.close()
    wait_for_room(service)


def wait_for_room(service: Service) -> None:
    """Wait until the service answers new connections again: it notices the end of others in its own time."""
    while True:
        crowd = [Raw(service.path) for _ in range(Bounds().connections_per_user)]
        try:
            if all("ok" in raw.ask(HELLO) for raw in crowd):
                return
        except OSError:
            pass
        finally:
            for raw in crowd:
                raw.close()


def peak_kb(pid: int) -> int:
    """Return the most memory that a process ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


def open_fds(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def test_a_user_who_asks_too_fast_waits_and_an_idle_one_gets_the_burst_again() -> None:
    rate = Rate(per_s=10, burst=2)
    assert [rate.take(100.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert rate.take(100.2) == pytest.approx(0.1)
    assert [rate.take(200.0) for _ in range(3)] == pytest.approx([0.0, 0.0, 0.1])


def test_progress_that_everybody_would_have_to_keep_is_bounded(service: Service) -> None:
    with service.client() as client, pytest.raises(BadRequest) as caught:
        client.progress("a:1:1", Progress(message="x" * 5000))
    assert str(caught.value) == "progress: has 5014 bytes, at most 4096 are taken"


def test_the_documentation_names_every_operation_field_and_error() -> None:
    text = (Path(ROOT) / "docs" / "service.md").read_text(encoding="utf-8")
    text = text[text.index("## The protocol") :]
    for request in protocol.AnyRequest.__args__:
        row = next(
            (line for line in text.splitlines() if line.startswith(f"| `{request.__struct_config__.tag}` |")), None
        )
        assert row is not None, request
        missing = [name for name in request.__struct_fields__ if name not in ("v", "id") and f"`{name}`" not in row]
        assert (request.__name__, missing) == (request.__name__, [])
        assert request.needs.name.lower() in row
    codes = {kind.code for kind in protocol._kinds(SchedulerError).values()}
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []
