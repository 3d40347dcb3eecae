"""The parts that can be seen without a process: what is kept of an output, and how messages travel."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_scheduler.processes import wire
from reference_scheduler.processes.output import MAX_READ_BYTES, SMALL_BYTES, Drain
from reference_scheduler.processes.service import IMPORT_ROOT

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary() | st.text(st.characters()),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_ten_thousand_random_outputs_are_kept_at_both_ends() -> None:
    draw = random.Random(5)
    for _ in range(10_000):
        chunks = [draw.randbytes(draw.choice((1, 2, 3, 40))) for _ in range(draw.randrange(12))]
        head_bytes, tail_bytes = draw.randrange(30), draw.randrange(30)
        drain = Drain(head_bytes, tail_bytes)
        for chunk in chunks:
            drain.feed(chunk)
        whole = b"".join(chunks)
        head, tail, total = drain.kept()
        assert total == len(whole)
        if len(whole) <= head_bytes + tail_bytes:
            assert (head, tail) == (whole, b"")
        else:
            assert (head, tail) == (whole[:head_bytes], whole[len(whole) - tail_bytes :])


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30), st.integers(0, 30), st.integers(1, 60), st.integers(1, 5))
def test_who_reads_along_gets_all_that_is_not_too_long_ago(
    chunks: list[bytes], head_bytes: int, tail_bytes: int, window_bytes: int, every: int
) -> None:
    drain, whole, offset = Drain(head_bytes, tail_bytes, window_bytes), b"", 0
    for number, chunk in enumerate(chunks):
        drain.feed(chunk)
        whole += chunk
        while number % every == 0 and offset < len(whole):
            begin, data, total = drain.read(offset)
            assert (data, total) == (whole[begin : begin + len(data)], len(whole))
            assert data
            assert begin == offset or (
                offset >= head_bytes and 2 * (len(whole) - begin) >= min(window_bytes, len(whole))
            )
            offset = begin + len(data)
    begin, data, total = drain.window()
    assert (whole[begin:], len(whole)) == (data, total)
    assert drain.read(total) == (total, b"", total)


def test_the_next_gap_is_not_at_once() -> None:
    drain, offset, gaps = Drain(0, 0, window_bytes=1 << 20), 0, 0
    for _ in range(1000):  # twice as fast as it is read
        drain.feed(bytes(2 * MAX_READ_BYTES))
        begin, data, _ = drain.read(offset)
        gaps += begin > offset
        offset = begin + len(data)
    assert 10 < gaps < 100


@given(st.binary(max_size=3 * SMALL_BYTES))
def test_single_bytes_take_little_room(data: bytes) -> None:
    drain = Drain(0, 0)
    for byte in data:
        drain.feed(bytes((byte,)))
    assert drain.window() == (0, data, len(data))
    assert len(drain._tail) <= 1 + len(data) // SMALL_BYTES


@given(st.lists(PLAIN, max_size=5), st.integers(1, 9))
def test_messages_arrive_whole_however_the_stream_is_cut(messages: list[Any], step: int) -> None:
    stream = b"".join(map(wire.frame, messages))
    splitter = wire.Splitter()
    arrived = [message for at in range(0, len(stream), step) for message in splitter.feed(stream[at : at + step])]
    assert arrived == messages


@given(PLAIN)
def test_a_message_crosses_a_socket(message: Any) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(wire.frame(("it", message)))
        assert wire.receive(far) == ("it", message)


@pytest.mark.parametrize("sent", [b"", b"\0\0", wire.frame((1, 2))[:-1]])
def test_a_message_that_breaks_off_is_none(sent: bytes) -> None:
    near, far = socket.socketpair()
    with far:
        with near:
            near.sendall(sent)
        assert wire.receive(far) is None


def test_a_message_from_one_that_was_killed_is_none() -> None:
    near, far = socket.socketpair()
    with far:
        with near:
            far.sendall(b"unread")  # closing with something unread resets the connection
        assert wire.receive(far) is None


def test_the_guardian_needs_nothing_that_is_installed() -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1]); before = set(sys.modules);"
        "import reference_scheduler.processes.guardian;"
        "print(sorted(n for n in set(sys.modules) - before if n.split('.')[0] not in sys.stdlib_module_names))"
    )
    run = subprocess.run([sys.executable, "-IS", "-c", code, IMPORT_ROOT], capture_output=True, text=True, check=True)
    names = ("guardian", "lineage", "output", "supervisor", "tree", "wire")
    modules = ["reference_scheduler", "reference_scheduler.processes"]
    assert run.stdout == f"{modules + [f'reference_scheduler.processes.{name}' for name in names]}\n"
