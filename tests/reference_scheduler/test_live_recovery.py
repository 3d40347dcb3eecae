"""Starts after the scheduler was killed: nothing acknowledged is lost, nothing runs twice that may not."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from live_world import TIMEOUT_S, HeldExecutor, held, on_loop, settings, start_program
from msgspec.structs import replace
from torture import torture

from reference_scheduler import scheduler as module
from reference_scheduler.config import StopMode
from reference_scheduler.core.allocators import ALLOCATORS
from reference_scheduler.core.model import AttemptState, Idempotency, JobState, ResourceRequest
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.errors import JournalError
from reference_scheduler.journal.check import check_journal
from reference_scheduler.journal.memory import MemoryJournal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.processes.tree import look_up
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler

KILLED_AT_A_COMMIT = """
import asyncio, os, signal, sys
from pathlib import Path
from live_world import settings
from reference_scheduler.core.model import Idempotency
from reference_scheduler.executors.base import AttemptResult
from reference_scheduler.core.model import AttemptState
from reference_scheduler.journal.sqlite import SqliteJournal
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler

folder, at, when = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

class Killed(SqliteJournal):
    count = 0

    def commit(self, batch):
        self.count += 1
        if (self.count, when) == (at, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        begun = super().commit(batch)
        if (self.count, when) == (at, "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        return begun

class Tracing:
    kind = "held"

    def check(self, payload):
        pass

    async def run(self, context):
        with (folder / "traces").open("a") as traces:
            traces.write(f"{context.job}\\n")
        return AttemptResult(AttemptState.COMPLETED, 0)

async def main():
    async with Scheduler(settings(1), Killed(folder / "j.db"), [Tracing()]) as scheduler:
        for idempotency in (Idempotency.SAFE_REPEAT, Idempotency.DESTRUCTIVE):
            job = await scheduler.submit(JobRequest(kind="held", idempotency=idempotency))
            print(job.id, flush=True)
            await scheduler.wait(job.id)
    print("end", flush=True)

asyncio.run(main())
"""


def killed_at(folder: Path, at: int, when: str) -> tuple[list[str], list[str]]:
    """Return which jobs were acknowledged and which ran when the scheduler was killed around a commit."""
    program = start_program(KILLED_AT_A_COMMIT, folder, at, when)
    acknowledged = program.communicate()[0].split()
    assert (program.returncode == -signal.SIGKILL) == ("end" not in acknowledged)
    traces = folder / "traces"
    return acknowledged, traces.read_text().split() if traces.exists() else []


@pytest.mark.parametrize("setting", ["picker", "allocator"])
@pytest.mark.parametrize("kept_in", ["log", "state"])
def test_a_journal_that_needs_a_plug_in_which_is_gone_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_in: str, setting: str
) -> None:
    path, copy, plain = tmp_path / "j.db", tmp_path / "copy.db", settings(1)
    odd = replace(plain, core=replace(plain.core, **{setting: "odd"}))

    async def use_it() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(module, "available_pickers", lambda: {**PICKERS, "odd": PICKERS["fcfs"]})
            patch.setattr(module, "available_allocators", lambda: {**ALLOCATORS, "odd": ALLOCATORS["sequential"]})
            async with Scheduler(odd if kept_in == "state" else plain, path, [HeldExecutor()]) as scheduler:
                await scheduler.reload(odd)
                for suffix in ("", "-wal"):  # as if it was killed now
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")

    asyncio.run(use_it())
    message = "the journal needs the plug-in 'odd', which is not installed"
    with pytest.raises(JournalError, match=message):
        check_journal(copy, Plugins())
    with pytest.raises(JournalError, match=message):
        asyncio.run(Scheduler(plain, copy, [HeldExecutor()]).start())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_killed_around_any_commit_it_goes_on_where_that_left_it(tmp_path: Path, at: int, when: str) -> None:
    acknowledged, ran = killed_at(tmp_path, at, when)
    durable = at if when == "after" else at - 1
    executor = HeldExecutor()

    async def go_on() -> None:
        async with Scheduler(settings(1), tmp_path / "j.db", [executor]) as scheduler:
            views = {view.id: view for view in reversed(scheduler.jobs())}
            assert set(acknowledged) <= set(views)
            assert (bool(scheduler.recovery.previous), len(views)) == (durable >= 1, (durable >= 2) + (durable >= 4))
            for view in views.values():
                if view.state is JobState.QUEUED or view.state is JobState.RUNNING:
                    contexts = await executor.begun(1)
                    assert contexts[-1].job == view.id
                    executor.end(contexts[-1])
                    await scheduler.wait(view.id, TIMEOUT_S)
            # Commits: 1 start; 2 job 1, and that it runs; 3 it ended; 4 job 2, and that it runs; 5 it ended.
            assert scheduler.recovery.interrupted == (durable in (2, 4))
            again = {"1": durable == 2, "2": False}
            for job in views:
                ended = scheduler.get(job)
                rerun = [context.job for context in executor.contexts].count(job)
                assert rerun == again[job]
                assert ran.count(job) + rerun <= (2 if job == "1" else 1)
                assert ended.state is (JobState.FAILED if (job, durable) == ("2", 4) else JobState.COMPLETED)
                assert scheduler.snapshot().budget.used.process_slots == 0

    asyncio.run(go_on())
    assert check_journal(tmp_path / "j.db", Plugins()).problems == ()


def test_a_claim_that_is_not_durable_is_no_attempt(tmp_path: Path) -> None:
    """The commit of a dispatch is the one that says that the attempt runs: killed before, it was never claimed."""
    executor = HeldExecutor()

    async def paused() -> None:
        async with Scheduler(settings(1), tmp_path / "j.db", [executor]) as scheduler:
            await scheduler._driver.set_paused(True)  # until the next start, which no operator can ask for
            for idempotency in (Idempotency.DESTRUCTIVE, Idempotency.SAFE_REPEAT):
                await scheduler.submit(held(idempotency=idempotency))

    async def go_on() -> None:
        async with Scheduler(settings(2), tmp_path / "j.db", [executor]):
            contexts = await executor.begun(2)
            assert [(context.job, context.attempt) for context in contexts] == [("1", 1), ("2", 1)]
            for context in contexts:
                executor.end(context)

    asyncio.run(paused())
    for _ in range(3):  # each is killed when it is about to commit its start, which dispatches both
        acknowledged, ran = killed_at(tmp_path, 1, "before")
        assert (acknowledged, ran) == ([], [])
    asyncio.run(go_on())


def test_a_short_torture_breaks_nothing() -> None:
    report = torture(seconds=3, seed=1)
    assert report.broken == ()
    assert report.kills >= 2
    assert report.acknowledged > 0


@on_loop
async def test_a_job_that_brings_its_scheduler_down_is_not_run_for_ever() -> None:
    journal, executor = MemoryJournal(), HeldExecutor()
    started = [await Scheduler(settings(1), journal, [executor]).start()]
    await started[0].submit(held(idempotency=Idempotency.SAFE_REPEAT))
    while started[-1].get("1").state is JobState.RUNNING:
        await executor.begun(len(started))
        started.append(await Scheduler(settings(1), journal, [executor]).start())  # as if the last had been killed
    view = started[-1].get("1")
    assert (view.state, view.attempts, len(started)) == (JobState.DEAD_LETTER, 4, 5)
    for scheduler in started:
        await scheduler.close(StopMode.INTERRUPT)


@on_loop
async def test_generations_are_random_and_attempts_of_dead_ones_marked_as_cut_short() -> None:
    journal, executor = MemoryJournal(), HeldExecutor()
    first = await Scheduler(settings(1), journal, [executor]).start()
    job = await first.submit(held(request=ResourceRequest(1, 1, 1, exclusivity_keys=("only",))))
    (context,) = await executor.begun(1)
    waits = await first.submit(held(request=ResourceRequest(1, 1, 1, exclusivity_keys=("only",))))
    second = await Scheduler(settings(1), journal, [executor]).start()  # as if the first had been killed
    assert second.recovery.previous == context.generation != second.recovery.generation
    assert len({context.generation, second.recovery.generation, journal.owner}) == 3
    assert (second.recovery.interrupted, second.recovery.terminal, second.recovery.requeued) == (1, 1, 0)
    assert second.attempts(job.id)[0].state is AttemptState.INTERRUPTED
    assert second.get(job.id).state is JobState.FAILED
    assert (await executor.begun(2))[1].job == waits.id  # the key of the dead attempt is free
    assert not second.heartbeat(context.token)
    executor.end(executor.contexts[1])
    assert (await second.wait(waits.id, TIMEOUT_S)).state is JobState.COMPLETED
    await second.close()
    await first.close(StopMode.INTERRUPT)


PARENT = """
import asyncio, sys
from pathlib import Path
from live_world import settings
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler

async def main():
    async with Scheduler(settings(1), Path(sys.argv[1])) as scheduler:
        script = "echo $$ > " + sys.argv[2] + "; sleep 1000"
        job = await scheduler.submit(JobRequest(kind="shell", payload={"script": script}))
        await scheduler.wait(job.id)

asyncio.run(main())
"""


def test_what_a_killed_scheduler_ran_is_gone_before_anything_else_starts(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    program = start_program(PARENT, tmp_path / "j.db", fifo)
    pid = int(fifo.read_text())
    program.kill()
    program.communicate()

    async def go_on() -> None:
        async with Scheduler(settings(1), tmp_path / "j.db") as scheduler:
            assert look_up(pid) is None
            assert (scheduler.recovery.interrupted, scheduler.recovery.terminal) == (1, 1)
            job = await scheduler.submit(JobRequest(kind="shell", payload={"script": "exit 0"}))
            assert (await scheduler.wait(job.id, TIMEOUT_S)).state is JobState.COMPLETED

    asyncio.run(go_on())
