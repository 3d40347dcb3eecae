"""What a job prints, as it prints it: embedded, over the socket and on the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from live_world import DONE, FAILED, TIMEOUT_S, HeldExecutor, held, on_loop, settings
from msgspec.structs import replace
from service_world import COMMAND, Process, Service, environment, refsched

from reference_scheduler.config import StopMode
from reference_scheduler.core.model import Failure, RetryPolicy
from reference_scheduler.drivers import attempts
from reference_scheduler.drivers.attempts import MAX_RECENT
from reference_scheduler.errors import NoSuchJob, SchedulerStopping
from reference_scheduler.logs import OutputChunk, Stream
from reference_scheduler.processes.model import Output, ProcessSpec
from reference_scheduler.processes.output import WINDOW_BYTES
from reference_scheduler.processes.service import ManagedProcessService
from reference_scheduler.processes.tree import look_up
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.sync import SyncScheduler


def shell(script: str, **fields: Any) -> JobRequest:
    return JobRequest(kind="shell", payload={"script": script}, **fields)


def gate(folder: Path) -> Path:
    """Make a pipe: who reads it waits until the test has opened and closed it."""
    path = folder / "gate"
    os.mkfifo(path)
    return path


def joined(chunks: Iterable[OutputChunk], stream: Stream = Stream.STDOUT) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.stream is stream)


def missed(chunks: Iterable[OutputChunk]) -> int:
    return sum(chunk.missed for chunk in chunks)


@on_loop
async def test_a_process_is_read_while_it_runs(tmp_path: Path) -> None:
    path = gate(tmp_path)
    async with ManagedProcessService() as service:
        running = await service.start(ProcessSpec(argv=("/bin/sh", "-c", f"printf a; cat {path} >&2; printf b")))
        printed = await running.read(0, 0)
        assert printed == ((0, b"a", 1), (0, b"", 0))
        assert await running.read(1, 0, wait=False) == ((1, b"", 1), (0, b"", 0))
        waiting = asyncio.ensure_future(running.read(1, 0))
        given_up = asyncio.ensure_future(running.read(1, 0))
        await running.read(0, 0)  # answered after both are there
        given_up.cancel()
        await asyncio.to_thread(path.write_bytes, b"error")
        printed = await waiting
        assert printed is not None
        result = await running.wait()
        assert (result.stdout.head, result.stderr.head) == (b"ab", b"error")
        assert await running.read(2, 5) is None
        assert await running.read(1, 4) == ((1, b"b", 2), (4, b"r", 5))  # what it did not read in time is still there


@on_loop
async def test_who_does_not_read_holds_up_no_process_and_finds_what_came_last() -> None:
    size = 3 * WINDOW_BYTES
    async with ManagedProcessService() as service:
        running = await service.start(ProcessSpec(argv=("/bin/sh", "-c", f"echo; head -c {size} /dev/zero; echo end")))
        assert await running.read(0, 0) is not None
        result = await running.wait()
        assert result.exit_code == 0
        at, data = 1, b""
        first = await running.read(len(result.stdout.head), 0)
        assert first is not None
        assert first[0].begin > len(result.stdout.head)  # the middle is gone
        at = first[0].begin
        while printed := await running.read(at, 0):
            assert printed[0].begin == at
            data += printed[0].data
            at += len(printed[0].data)
        assert (at, data[-4:]) == (size + 5, b"end\n")
        assert WINDOW_BYTES <= len(data) < 2 * WINDOW_BYTES


@on_loop
async def test_a_job_is_followed_from_before_it_starts_through_all_its_attempts(tmp_path: Path) -> None:
    path = gate(tmp_path)
    retry = RetryPolicy(max_attempts=2, base_us=0, retry_on=(Failure.EXECUTION,))
    script = f"echo try $SPAWNGATE_ATTEMPT; printf '\\377' >&2; test $SPAWNGATE_ATTEMPT = 2 && cat {path}; exit 3"
    async with Scheduler() as scheduler:
        await scheduler.pause()
        job = (await scheduler.submit(shell(script, retry=retry))).id
        assert [chunk async for chunk in scheduler.logs(job)] == []
        chunks: list[OutputChunk] = []
        async with aclosing(scheduler.logs(job, follow=True)) as following:
            begun = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0)
            await scheduler.resume()
            chunks.append(await begun)
            while b"try 2" not in joined(chunks):
                chunks.append(await anext(following))
            now = [chunk async for chunk in scheduler.logs(job)]  # what is there by now
            assert (joined(now), {chunk.attempt for chunk in now}) == (b"try 2\n", {2})
            await asyncio.to_thread(path.write_bytes, b"through\n")
            chunks += [chunk async for chunk in following]
        assert joined(chunks) == b"try 1\ntry 2\nthrough\n"
        assert joined(chunks, Stream.STDERR) == b"\377\377"
        assert [chunk.attempt for chunk in chunks] == sorted(chunk.attempt for chunk in chunks)
        assert missed(chunks) == 0
        for follow in (False, True):
            after = [chunk async for chunk in scheduler.logs(job, follow)]
            assert (joined(after), joined(after, Stream.STDERR)) == (b"try 2\nthrough\n", b"\377")
        with pytest.raises(NoSuchJob):
            await anext(scheduler.logs("99"))


@on_loop
async def test_who_is_slow_finds_the_attempts_that_came_and_went_meanwhile() -> None:
    executor = HeldExecutor()
    retry = RetryPolicy(max_attempts=4, base_us=0, retry_on=(Failure.EXECUTION,))
    async with Scheduler(settings(1), None, [executor]) as scheduler:
        job = (await scheduler.submit(held(retry=retry))).id

        async def end(number: int) -> None:
            context = (await executor.begun(number))[number - 1]
            executor.end(context, replace(FAILED, stdout=Output(b"%d" % number)))

        async with aclosing(scheduler.logs(job, follow=True)) as following:
            first = asyncio.ensure_future(anext(following))
            await end(1)
            chunks = [await first]
            await end(2)
            await end(3)
            await executor.begun(4)
            second = await anext(following)
            await end(4)
            chunks += [second, *[chunk async for chunk in following]]
        assert [(chunk.attempt, chunk.data) for chunk in chunks] == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]
        assert joined([chunk async for chunk in scheduler.logs(job, follow=True)]) == b"4"


@on_loop
async def test_who_comes_just_after_the_end_has_what_came_last_too() -> None:
    async with Scheduler() as scheduler:
        for _ in range(2):
            job = (await scheduler.submit(shell("seq 100000"))).id
            await scheduler.wait(job, TIMEOUT_S)
            for follow in (False, True):
                chunks = [chunk async for chunk in scheduler.logs(job, follow)]
                assert (joined(chunks), missed(chunks)) == ("".join(f"{n}\n" for n in range(1, 100_001)).encode(), 0)
        for _ in range(MAX_RECENT):
            await scheduler.wait((await scheduler.submit(shell("seq 100000"))).id, TIMEOUT_S)
        chunks = [chunk async for chunk in scheduler.logs(job)]
        assert (len(joined(chunks)), missed(chunks)) == (2 << 16, 588_895 - (2 << 16))


class Nothing:
    """A source of output that has no more."""

    async def read(self, stdout: int, stderr: int, wait: bool = True) -> None:
        """Return that there is no more."""

    def forget(self) -> None:
        """Keep nothing, as before."""


@on_loop
async def test_of_those_that_ended_just_now_each_is_let_go_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MAX_RECENT", 1)
    monkeypatch.setattr(attempts, "LINGER_S", 0)
    wrong = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: wrong.append(context))
    executor = HeldExecutor()
    async with Scheduler(settings(), executors=[executor]) as scheduler:
        jobs = [(await scheduler.submit(held())).id for _ in range(3)]
        for context in await executor.begun(3):
            context.offer_output(Nothing())
            executor.end(context, replace(DONE, stdout=Output(b"a", b"b", 5)))
        await asyncio.gather(*(scheduler.wait(job, TIMEOUT_S) for job in jobs))
        for _ in range(5):
            await asyncio.sleep(0)
    assert wrong == []


@on_loop
async def test_an_executor_that_offers_no_output_shows_it_at_the_end() -> None:
    executor = HeldExecutor()
    async with Scheduler(settings(), executors=[executor]) as scheduler:
        job = (await scheduler.submit(held())).id
        context = (await executor.begun(1))[0]
        following = asyncio.ensure_future(anext(scheduler.logs(job, follow=True)))
        executor.end(context, replace(DONE, stdout=Output(b"head", b"tail", 5)))
        assert await following == OutputChunk(1, Stream.STDOUT, b"head")
        chunks = [chunk async for chunk in scheduler.logs(job)]
        assert chunks[1:] == [OutputChunk(1, Stream.STDOUT, b"tail", 5)]


@on_loop
async def test_who_follows_is_told_when_the_scheduler_stops(tmp_path: Path) -> None:
    executor = HeldExecutor()
    async with Scheduler(settings(1), tmp_path / "j.db", [executor]) as scheduler:
        for _ in range(2):
            await scheduler.submit(held(idempotency="safe_repeat"))
        await executor.begun(1)
        following = [asyncio.ensure_future(anext(scheduler.logs(job, follow=True))) for job in ("1", "2")]
        await asyncio.sleep(0)
        await scheduler.close(StopMode.INTERRUPT)
        for one in following:
            with pytest.raises(SchedulerStopping):
                await one


def test_from_a_thread() -> None:
    with SyncScheduler() as scheduler:
        job = scheduler.submit(shell("seq 100000")).id
        chunks = list(scheduler.logs(job, follow=True))
        assert (joined(chunks), missed(chunks)) == ("".join(f"{n}\n" for n in range(1, 100_001)).encode(), 0)
        scheduler.wait(job, TIMEOUT_S)


def resident_kb(pid: int) -> int:
    return int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


def test_a_slow_reader_holds_up_nothing_and_finds_a_gap(tmp_path: Path) -> None:
    size = 200_000_000
    with Service(tmp_path) as service, service.client() as slow, service.client() as client:
        job = client.submit(shell(f"head -c {size} /dev/zero")).id
        following = slow.logs(job, follow=True)
        first = next(following)
        before_kb = resident_kb(service.pid)
        assert client.wait(job, TIMEOUT_S).state == "completed"  # though nobody reads
        assert client.submit(shell("true")).id == "2"
        rest = [first, *following]
        assert missed(rest) > size // 2
        assert missed(rest) + len(joined(rest)) == size
        assert resident_kb(service.pid) - before_kb < 30_000


def test_what_many_jobs_printed_last_takes_little_room_when_nobody_reads(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client:

        def chat(count: int) -> None:
            for _ in range(count):
                job = client.submit(shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"))
                assert client.wait(job.id, TIMEOUT_S).state == "completed"

        chat(40)  # the room of those that are gone is used again, and not at once
        before_kb = resident_kb(service.pid)
        chat(80)
        assert (
            resident_kb(service.pid) - before_kb < 80 * 1024
        )  # a window of 1 MiB for each stream of each would be twice


@on_loop
async def test_who_stops_reading_keeps_no_room_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MAX_UNREAD", MAX_RECENT)
    size = 2 * WINDOW_BYTES
    async with Scheduler() as scheduler, AsyncExitStack() as stack:
        following = []
        for _ in range(MAX_RECENT + 1):
            job = (await scheduler.submit(shell(f"echo; head -c {size} /dev/zero"))).id
            chunks = await stack.enter_async_context(aclosing(scheduler.logs(job, follow=True)))
            following.append((chunks, [await anext(chunks)]))
            await scheduler.wait(job, TIMEOUT_S)
        for chunks, read in following:
            read += [chunk async for chunk in chunks]
            assert missed(read) + len(joined(read)) == size + 1
        kept = [len(joined(read)) for _, read in following]
        assert kept[0] < WINDOW_BYTES // 2
        assert min(kept[1:]) > WINDOW_BYTES


@pytest.mark.parametrize("alone", [True, False])
def test_run_prints_as_its_job_does(tmp_path: Path, alone: bool) -> None:
    path = gate(tmp_path)
    script = f"echo first; cat {path}; echo last >&2; exit 4"
    if alone:
        with Process(tmp_path, "run", "--kind", "shell", script) as command:
            command.until("refsched: no scheduler answers")
            assert command.line() == "first"
            path.write_bytes(b"middle\n")
            assert (command.rest(), command.wait()) == (["middle", "last"], 4)
        return
    with Service(tmp_path), Process(tmp_path, "run", "--kind", "shell", script) as command:
        assert command.line() == "first"
        with Process(tmp_path, "logs", "-f", "1") as follower:
            assert follower.line() == "first"
            assert refsched(tmp_path, "logs", "1") == (0, "first\n", "")
            path.write_bytes(b"middle\n")
            assert (command.rest(), command.wait()) == (["middle", "last"], 4)
            assert (follower.rest(), follower.wait()) == (["middle", "last"], 0)
        assert refsched(tmp_path, "logs", "1") == (0, "first\nmiddle\n", "last\n")
        out = refsched(tmp_path, "logs", "--json", "1")[1].splitlines()
        assert json.loads(out[0]) == {
            "type": "OutputChunk",
            "attempt": 1,
            "stream": "stdout",
            "data": "Zmlyc3QKbWlkZGxlCg==",
        }


@pytest.mark.parametrize("place", ["alone", "service", "observed"])
def test_a_job_whose_output_nobody_reads_any_more_is_cancelled(tmp_path: Path, place: str) -> None:
    with ExitStack() as stack:
        service = None
        if place != "alone":
            config = '[scheduler]\nrollout = "observe"' if place == "observed" else ""
            service = stack.enter_context(Service(tmp_path, config=config))
        with (tmp_path / "told").open("w") as told:
            running = subprocess.Popen(
                [*COMMAND, "run", "--kind", "shell", "echo $$; exec yes"],
                stdout=subprocess.PIPE,
                stderr=told,
                cwd=tmp_path,
                env=environment(tmp_path),
            )
        assert running.stdout is not None
        pid = running.stdout.readline().decode().strip()
        running.stdout.close()
        assert running.wait(TIMEOUT_S) == 125
        assert look_up(int(pid)) is None
        line = (tmp_path / "told").read_text().splitlines()[-1]
        assert line == "error: cannot write the output: Broken pipe"
        if service is not None:
            with service.client() as client:
                assert client.wait("1", TIMEOUT_S).state == "cancelled"


def test_a_job_of_which_nothing_can_be_said_is_cancelled(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with Service(tmp_path) as service, service.client() as client:
        client.pause()  # so that there is something to say
        run = [*COMMAND, "run", "true"]
        done = subprocess.run(run, stderr=writing, cwd=tmp_path, env=environment(tmp_path), timeout=TIMEOUT_S)
        os.close(writing)
        assert (done.returncode, client.get("1").state) == (125, "cancelled")


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_command_whose_streams_are_closed_says_so_and_cancels_what_it_runs(tmp_path: Path, closed: str) -> None:
    fd = {"stdout": 1, "stderr": 2}[closed]
    with Service(tmp_path), (tmp_path / "told").open("wb") as told:

        def without(*arguments: str) -> int:
            """Run a command without the stream, as `refsched … >&-` does, and return its status."""
            shell = ["/bin/sh", "-c", f'exec "$@" {fd}>&-', "sh"]
            return subprocess.run(
                [*shell, *COMMAND, *arguments],
                stdout=None if fd == 1 else told,
                stderr=None if fd == 2 else told,
                cwd=tmp_path,
                env=environment(tmp_path),
                timeout=TIMEOUT_S,
            ).returncode

        assert without("run", "--kind", "shell", f"echo something >&{fd}; exec sleep 600") == 125
        assert refsched(tmp_path, "wait", "1") == (1, "1  cancelled\n", "")
        for command in (("logs", "1"), ("get", "--output", "1")):
            assert without(*command) == 2
        assert without("get", "1") == 0
        said = (tmp_path / "told").read_text()
        assert "Traceback" not in said
        assert said.count("cannot write the output: stdout is closed") == (3 if closed == "stdout" else 0)


def test_what_comes_after_a_signal_is_printed_too(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 600 & wait; done"
    with Service(tmp_path), Process(tmp_path, "run", "--kind", "shell", script) as command:
        assert command.line() == "hello"
        command.send(signal.SIGINT)
        assert (command.rest(), command.wait()) == (["bye"], 130)


def test_the_attempts_of_a_job_are_told_apart(tmp_path: Path) -> None:
    with Service(tmp_path):
        retries = ("--retries", "1", "--retry-pause", "0", "--kind", "shell")
        done = refsched(tmp_path, "run", *retries, "echo $SPAWNGATE_ATTEMPT; exit 5")
        assert done == (5, "1\n2\n", "refsched: attempt 2 begins\n")


def test_logs_of_a_job_that_is_not_there(tmp_path: Path) -> None:
    with Service(tmp_path):
        assert refsched(tmp_path, "logs", "7") == (
            1,
            "",
            "error: there is no job '7', or it ended long ago and was forgotten\n",
        )
