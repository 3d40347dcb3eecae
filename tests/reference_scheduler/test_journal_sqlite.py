"""The SQLite journal on real files: locks, full disks, torn and damaged files, older and newer versions."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from live_world import TIMEOUT_S, HeldExecutor, held, line_of, no_room, settings, start_program, told, wal
from msgspec.structs import replace

from reference_scheduler.cli import main
from reference_scheduler.config import StopMode
from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.events import ConfigLoaded, Tick
from reference_scheduler.core.model import Config, JobState
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.errors import (
    JournalDamaged,
    JournalError,
    JournalLocked,
    JournalTooNew,
    JournalUnavailable,
)
from reference_scheduler.journal import sqlite
from reference_scheduler.journal.base import GENESIS, Batch, JobFilter, JobRow
from reference_scheduler.journal.check import JournalCheck, check_journal
from reference_scheduler.journal.lock import JournalLock, wait_until_free
from reference_scheduler.journal.schema import MIGRATIONS, VERSION, migrate
from reference_scheduler.journal.sqlite import SqliteJournal, connect, next_mark
from reference_scheduler.journal.state import Plugins
from reference_scheduler.observers import Notice
from reference_scheduler.replay.records import CHAIN_BYTES, State
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler

HOLDER = """
import sys
from pathlib import Path
from reference_scheduler.journal.lock import JournalLock
lock = JournalLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Have ``folder`` be a disk of 2 MiB; skip the test if that is not allowed here."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("only who may mount has a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Fill the disk of ``path`` with it, to the last page."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def run_jobs(path: Path, count: int = 3, ended: int = 1) -> None:
    """Make a journal with ``count`` jobs, ``ended`` of which have ended, one running and the rest waiting."""

    async def run() -> None:
        executor = HeldExecutor()
        async with Scheduler(settings(1), path, [executor]) as scheduler:
            jobs = [(await scheduler.submit(held())).id for _ in range(count)]
            for index in range(ended):
                executor.end((await executor.begun(index + 1))[index])
                await scheduler.wait(jobs[index], TIMEOUT_S)
            await executor.begun(ended + 1)
            copy = path.with_name("copy.db")
            for suffix in ("", "-wal"):  # the files of a scheduler that runs are those of one that is killed here
                shutil.copyfile(str(path) + suffix, str(copy) + suffix)
            executor.end(executor.contexts[ended])

    asyncio.run(run())
    for suffix in ("", "-wal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
        Path(f"{path.with_name('copy.db')}{suffix}").rename(f"{path}{suffix}")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a scheduler that was killed with one job of three running."""
    path = tmp_path_factory.mktemp("killed") / "journal.db"
    run_jobs(path)
    return path


@pytest.fixture
def journal(killed: Path, tmp_path: Path) -> Path:
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{killed}{suffix}", f"{tmp_path}/journal.db{suffix}")
    return tmp_path / "journal.db"


def check(path: Path) -> JournalCheck:
    return check_journal(path, Plugins())


# Locks.


def test_a_second_scheduler_is_refused(tmp_path: Path) -> None:
    first = SqliteJournal(tmp_path / "j.db")
    with pytest.raises(JournalLocked, match="another scheduler uses this journal"):
        SqliteJournal(tmp_path / "j.db")
    first.close()
    SqliteJournal(tmp_path / "j.db").close()


@pytest.mark.parametrize("name", ["link.db", "link/j.db"])
def test_a_second_scheduler_that_comes_by_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "link.db").symlink_to("j.db")
    (tmp_path / "link").symlink_to(".")
    first = SqliteJournal(tmp_path / name)
    with pytest.raises(JournalLocked, match=r"/j\.db: another scheduler uses this journal"):
        SqliteJournal(tmp_path / "j.db")
    first.close()
    second = SqliteJournal(tmp_path / "j.db")
    with pytest.raises(JournalLocked, match=r"/j\.db: another scheduler uses this journal"):
        SqliteJournal(tmp_path / name)
    second.close()
    assert not (tmp_path / "link.db.lock").exists()


def test_what_a_scheduler_whose_lock_was_removed_does_not_know_it_does_not_overwrite(tmp_path: Path) -> None:
    core = SchedulerCore()
    entries = told(core, 0, ConfigLoaded(at=0, config=Config()))
    first = SqliteJournal(tmp_path / "j.db")
    (tmp_path / "j.db.lock").unlink()
    second = SqliteJournal(tmp_path / "j.db")
    second.commit(Batch(1, entries))
    with pytest.raises(JournalLocked, match=r"gone on with this journal; was j\.db\.lock removed\?"):
        first.commit(Batch(2, entries))
    first.close()
    second.close()


def test_a_file_that_the_next_start_would_not_find_takes_nothing(tmp_path: Path) -> None:
    core, path = SchedulerCore(), tmp_path / "j.db"
    store = SqliteJournal(path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(JournalUnavailable, match=r"j\.db: No such file or directory; nothing was written"):
        store.commit(Batch(1, told(core, 0, ConfigLoaded(at=0, config=Config()))))
    path.touch()
    with pytest.raises(JournalUnavailable, match=r"j\.db: is another file than was opened; nothing was written"):
        store.commit(Batch(1, told(core, 0, Tick(at=1))))
    (tmp_path / "elsewhere").rename(path)
    store.commit(Batch(1, told(core, 0, Tick(at=2))))
    store.close()


def test_a_file_system_without_locks_is_no_other_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(JournalUnavailable, match=r"j\.db\.lock: cannot be locked: No locks available"):
        SqliteJournal(tmp_path / "j.db")


def test_the_lock_is_free_once_its_holder_is_killed_and_a_standby_then_has_it(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    holder = start_program(HOLDER, path)
    assert line_of(holder) == "held"
    with pytest.raises(JournalLocked):
        JournalLock(path)

    async def take_over() -> None:
        waiting = asyncio.ensure_future(wait_until_free(path))
        await asyncio.sleep(0)
        assert not waiting.done()
        holder.kill()
        async with asyncio.timeout(TIMEOUT_S):
            await waiting

    asyncio.run(take_over())
    JournalLock(path).release()
    holder.communicate()


def test_where_no_locks_are_nobody_is_said_to_hold_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(JournalUnavailable, match=r"j.db.lock: cannot be locked: No locks available"):
        SqliteJournal(tmp_path / "j.db")
    with pytest.raises(JournalUnavailable):  # a standby would wait for ever
        asyncio.run(wait_until_free(tmp_path / "j.db"))


def test_a_child_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = JournalLock(tmp_path / "j.db")
    child = start_program("print('up', flush=True); input()")
    line_of(child)
    lock.release()
    JournalLock(tmp_path / "j.db").release()
    child.communicate("\n")


FORKING = """
import os, signal, sys
from pathlib import Path
from reference_scheduler.journal.lock import JournalLock
lock = JournalLock(Path(sys.argv[1]))
if os.fork() == 0:
    print(os.getpid(), flush=True)  # by now it has given up what it does not hold
signal.pause()
"""


def test_a_fork_that_outlives_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    holder = start_program(FORKING, tmp_path / "j.db")
    child = int(line_of(holder))
    try:
        with pytest.raises(JournalLocked):  # what the fork gave up is not given up by its parent
            JournalLock(tmp_path / "j.db")
        holder.kill()
        holder.wait()
        JournalLock(tmp_path / "j.db").release()
    finally:
        os.kill(child, signal.SIGKILL)
        holder.communicate()


# Others who write, and no room to write.


def test_a_write_lock_held_by_another_process_for_3_s_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    source = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(3)
connection.execute("COMMIT")
print("free", flush=True)
input()
"""

    async def run() -> list[str]:
        async with Scheduler(settings(), path, [HeldExecutor()]) as scheduler:
            await scheduler.pause()
            other = start_program(source, path)
            assert line_of(other) == "locked"
            views = await asyncio.gather(*(scheduler.submit(held()) for _ in range(5)))
            assert line_of(other) == "free"
            other.communicate("\n")
            return [view.id for view in views]

    ids = asyncio.run(run())
    assert check(path).open_jobs == len(set(ids)) == 5


def test_without_room_nothing_is_acknowledged_and_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    executor = HeldExecutor()

    async def run() -> tuple[list[str], int]:
        async with Scheduler(settings(1), path, [executor]) as scheduler:
            news = scheduler.observe()
            before = [(await scheduler.submit(held())).id for _ in range(2)]
            (running,) = await executor.begun(1)
            with no_room(path):
                for _ in range(3):
                    with pytest.raises(JournalUnavailable, match="nothing was written"):
                        await scheduler.submit(held(key="again"))
                executor.end(running)  # its end cannot be written either, and must not be lost
                assert scheduler.snapshot().unavailable
            assert (await scheduler.wait(before[0], TIMEOUT_S)).state is JobState.COMPLETED
            after = await scheduler.submit(held(key="again"))
            executor.end((await executor.begun(2))[1])
            await scheduler.wait(before[1], TIMEOUT_S)
            executor.end((await executor.begun(3))[2])
            await scheduler.wait(after.id, TIMEOUT_S)
            words = []
            while "journal" not in words:
                notice = await anext(news)
                words.append(notice.what if isinstance(notice, Notice) else "")
            return [*before, after.id], len(scheduler.jobs())

    ids, count = asyncio.run(run())
    assert count == len(set(ids)) == 3
    assert (check(path).problems, check(path).open_jobs) == ((), 0)


def test_on_a_full_disk_nothing_is_acknowledged_and_real_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk, go = tmp_path / "disk", tmp_path / "go"
    path, filler = disk / "j.db", disk / "filler"

    def request(script: str, key: str) -> JobRequest:
        return JobRequest(kind="shell", payload={"script": script}, key=key)

    async def run() -> list[str]:
        async with Scheduler(settings(1), path) as scheduler:
            running = (await scheduler.submit(request(f"until [ -e {go} ]; do sleep 0.01; done; exit 7", "1"))).id
            waiting = (await scheduler.submit(request("exit 8", "2"))).id
            fill(filler)
            for _ in range(3):
                with pytest.raises(JournalUnavailable, match="nothing was written"):
                    await scheduler.submit(request("exit 9", "3"))
            go.touch()  # the end of what runs cannot be written either, and must not be lost
            while "database or disk is full" not in scheduler.why(waiting):
                await asyncio.sleep(0.01)
            assert len(scheduler.jobs()) == 2
            filler.unlink()
            ended = [await scheduler.wait(job, TIMEOUT_S) for job in (running, waiting)]
            ended.append(await scheduler.wait((await scheduler.submit(request("exit 9", "3"))).id, TIMEOUT_S))
            assert [view.exit_code for view in ended] == [7, 8, 9]
            return [view.id for view in ended]

    with small_disk(disk):
        assert len(set(asyncio.run(run()))) == 3
        assert (check(path).problems, check(path).open_jobs) == ((), 0)


def test_a_lock_that_is_held_for_too_long_is_an_error_and_work_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)

    async def run() -> None:
        async with Scheduler(settings(), tmp_path / "j.db", [HeldExecutor()]) as scheduler:
            await scheduler.pause()
            other = sqlite3.connect(tmp_path / "j.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalUnavailable, match="database is locked; nothing was written"):
                await scheduler.submit(held())
            with pytest.raises(JournalUnavailable, match="database is locked"):  # at once, without trying
                await scheduler.submit(held())
            other.close()
            while scheduler.snapshot().unavailable:
                await asyncio.sleep(0.01)
            assert len({(await scheduler.submit(held())).id, *(job.id for job in scheduler.jobs())}) == 1

    asyncio.run(run())


def test_of_a_failed_commit_nothing_is_there_and_the_next_one_follows_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    core = SchedulerCore()
    first, second = told(core, 0, ConfigLoaded(at=0, config=Config())), told(core, 1, Tick(at=1))
    store = SqliteJournal(path)
    store.commit(Batch(1, first))
    large = JobRow("1", "held", "normal", "", "", "", "", "", bytes(16), bytes(10**6), 1)
    with no_room(path), pytest.raises(JournalUnavailable, match="nothing was written"):
        store.commit(Batch(2, second, [large]))
    assert store.job("1") is None
    store.commit(Batch(3, second))
    assert store.load().entries == first + second
    store.close()


def test_two_states_are_kept_and_the_log_since_the_older(tmp_path: Path) -> None:
    core, store = SchedulerCore(), SqliteJournal(tmp_path / "j.db")
    number = 0
    for event in (ConfigLoaded(at=0, config=Config()), Tick(at=1), Tick(at=2), Tick(at=3)):
        entries = told(core, number, event)
        number += 1
        store.commit(Batch(number, entries, state=State(number, core.snapshot())))
    store.commit(Batch(5, told(core, number, Tick(at=4))))
    store.close()
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection:
        assert connection.execute("SELECT number FROM states ORDER BY number").fetchall() == [(3,), (4,)]
        assert connection.execute("SELECT number FROM log ORDER BY number").fetchall() == [(4,), (5,)]
    assert (check(tmp_path / "j.db").problems, check(tmp_path / "j.db").events) == ((), 5)


def test_a_plug_in_that_is_not_installed_is_named(tmp_path: Path) -> None:
    core, path = SchedulerCore({**PICKERS, "own": PICKERS["fair"]}), tmp_path / "j.db"
    entries = told(core, 0, ConfigLoaded(at=0, config=Config(picker="own")))
    with closing(SqliteJournal(path)) as store:
        store.commit(Batch(1, entries, state=State(1, core.snapshot())))
    message = "the journal needs the plug-in 'own', which is not installed"
    with pytest.raises(JournalError, match=message):
        check(path)
    with pytest.raises(JournalError, match=message):
        asyncio.run(Scheduler(journal=path).start())
    done = CliRunner().invoke(main, ["journal", "check", str(path)])
    assert (done.exit_code, done.stderr) == (2, f"error: {path}: {message}\n")


def test_the_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    store = SqliteJournal(tmp_path / "j.db")
    store.commit(Batch(1))
    files = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert files == {"j.db": 0o600, "j.db-wal": 0o600, "j.db-shm": 0o600, "j.db.lock": 0o600}
    store.close()


# Torn and damaged files.


def test_what_a_kill_leaves_is_whole(journal: Path) -> None:
    found = check(journal)
    assert (found.problems, found.notes) == ((), ())
    assert (found.jobs, found.open_jobs, found.generations) == (3, 2, 1)


def frames(path: Path) -> list[int]:
    """Return the offsets at which the frames of the write-ahead log begin, and its end."""
    raw = wal(path).read_bytes()
    step = 24 + int.from_bytes(raw[8:12], "big")
    return [*range(32, len(raw), step), len(raw)]


def reopened(path: Path) -> tuple[int, tuple[str, ...]]:
    """Start a scheduler on the journal, let it write, and start another; return events and notes."""

    async def run() -> tuple[str, ...]:
        async with Scheduler(settings(), path, [HeldExecutor()]) as scheduler:
            await scheduler.pause()
            await scheduler.submit(held())
            await scheduler.close(StopMode.INTERRUPT)
            return scheduler.recovery.notes

    notes = asyncio.run(run())
    asyncio.run(run())
    return check(path).events, notes


def test_a_log_cut_at_any_byte_opens_says_so_and_goes_on(journal: Path) -> None:
    raw = wal(journal).read_bytes()
    main_file = journal.read_bytes()
    edges = frames(journal)
    commits = [end for at, end in pairwise(edges) if raw[at + 4 : at + 8] != bytes(4)]
    whole = {32, *commits}
    step = max(1, len(edges) // 8)
    cuts = {0, 1, 31, 32, 33, *(edge + shift for edge in edges[:-1:step] for shift in (-1, 0, 1, 24, 700)), edges[-1]}
    for cut in sorted(cuts):
        for file in journal.parent.iterdir():
            file.unlink()
        journal.write_bytes(main_file)
        wal(journal).write_bytes(raw[:cut])
        notes = check(journal).notes if any(end <= cut for end in commits) else ()
        assert bool(notes) == (cut not in whole and cut > commits[0]), cut
        _, told = reopened(journal)
        assert bool(told) == (cut not in whole and cut > 0), cut
        assert check(journal).problems == ()


@pytest.mark.parametrize("where", [0.02, 0.2, 0.5, 0.8])
def test_damage_in_the_middle_of_the_log_is_refused(journal: Path, where: float) -> None:
    raw = bytearray(wal(journal).read_bytes())
    raw[int(len(raw) * where)] ^= 4
    wal(journal).write_bytes(raw)
    with pytest.raises(JournalDamaged, match="commits follow"):
        SqliteJournal(journal)
    assert wal(journal).read_bytes() == bytes(raw)


def test_damage_in_the_last_commit_is_cut_off_and_told(journal: Path) -> None:
    raw = bytearray(wal(journal).read_bytes())
    raw[-1] ^= 1
    wal(journal).write_bytes(raw)
    store = SqliteJournal(journal)
    assert "the last commit was not written to the end" in store.notes[0]
    store.close()


def edit(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute(statement, values).rowcount == 1
    connection.commit()
    connection.close()


EDITS = {
    "UPDATE log SET body = CAST(replace(CAST(body AS TEXT), 'held', 'help') AS BLOB) WHERE number = 3": "at event 3",
    "DELETE FROM log WHERE number = 5": "event 5 is missing",
    "UPDATE log SET wall_us = wall_us + 1 WHERE number = 6": "at event 6",
    "UPDATE states SET digest = zeroblob(16)": "the state after event 2 fails its check",
    "UPDATE jobs SET state = 'failed' WHERE number = 1": "job 1: the table has it failed, the log leads to",
    "UPDATE jobs SET state = 'running' WHERE number = 3": "job 3: the table has ('running', 0)",
    "DELETE FROM jobs WHERE number = 3": "job 3: it is open by the log, and missing",
    "UPDATE jobs SET request = x'80' WHERE number = 2": "job 2: its request fails its check",
    "UPDATE attempts SET ended_us = 1 WHERE job = 2": "job 2: attempt 1 is live by the log, and missing",
    "UPDATE attempts SET ended_us = NULL WHERE job = 1": "job 1: attempt 1 has no end, and is not live",
}


@pytest.mark.parametrize("statement", EDITS)
def test_check_finds_what_was_changed(journal: Path, statement: str) -> None:
    edit(journal, statement)
    result = CliRunner().invoke(main, ["journal", "check", str(journal)])
    assert EDITS[statement] in result.stdout
    assert result.exit_code == 1


@pytest.mark.parametrize("statement", [edit for edit in EDITS if "log" in edit.split()[:3] or "states" in edit])
def test_a_scheduler_does_not_start_from_a_log_that_was_changed(journal: Path, statement: str) -> None:
    edit(journal, statement)

    async def start() -> None:
        await Scheduler(settings(), journal, [HeldExecutor()]).start()

    with pytest.raises(JournalDamaged):
        asyncio.run(start())


def test_a_request_that_was_changed_is_not_run(journal: Path) -> None:
    edit(journal, "UPDATE jobs SET request = x'80' WHERE number = 3")
    executor = HeldExecutor()

    async def run() -> str:
        async with Scheduler(settings(1), journal, [executor]) as scheduler:
            assert (await scheduler.wait("3", TIMEOUT_S)).state is JobState.FAILED
            return scheduler.attempts("3")[0].detail

    assert asyncio.run(run()) == "the journal holds another request than was submitted"
    assert executor.contexts == []


def test_a_job_of_a_kind_that_nobody_runs_any_more_fails(journal: Path) -> None:
    async def run() -> str:
        async with Scheduler(settings(1), journal, []) as scheduler:
            assert (await scheduler.wait("3", TIMEOUT_S)).state is JobState.FAILED
            return scheduler.attempts("3")[0].detail

    assert asyncio.run(run()) == "no executor is registered for kind 'held'"


def test_check_finds_a_flipped_bit_in_any_page_that_is_used(journal: Path) -> None:
    connection = sqlite3.connect(journal)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    raw = journal.read_bytes()
    found = 0
    for page in range(len(raw) // 4096):
        changed = bytearray(raw)
        changed[4096 * page] ^= 0x40  # the kind of the page, or the magic of the file
        journal.write_bytes(changed)
        try:
            found += bool(check(journal).problems)
        except JournalDamaged:
            found += 1
    assert found == len(raw) // 4096


# Commands.


def run_check(path: Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["journal", "check", str(path)])
    return result.exit_code, result.stdout, result.stderr


def test_check_says_what_is_whole(journal: Path) -> None:
    code, out, err = run_check(journal)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"whole; \d+ events, 3 jobs, 2 of them open, 1 start\n", out)


def test_check_of_no_file_and_of_no_journal(tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.db", tmp_path / "text.db"
    text.write_text("no journal at all\n" * 500)
    assert run_check(missing) == (2, "", f"error: {missing}: there is no such file\n")
    code, out, _ = run_check(text)
    assert (code, out) == (1, f"{text}: file is not a database; refsched journal check says more\n")


def test_check_works_beside_a_running_scheduler(tmp_path: Path) -> None:
    async def run() -> int:
        scheduler = await Scheduler(settings(), tmp_path / "j.db", [HeldExecutor()]).start()
        await scheduler.submit(held())
        found = check(tmp_path / "j.db").open_jobs
        await scheduler.close(StopMode.INTERRUPT)
        return found

    assert asyncio.run(run()) == 1


# Versions.


def test_an_older_version_is_migrated_whole_or_not_at_all(tmp_path: Path) -> None:
    connection = connect(tmp_path / "j.db")
    assert migrate(connection) == 0
    newer = (*MIGRATIONS, "CREATE TABLE more (x); INSERT INTO more VALUES (1);")
    broken = (*MIGRATIONS, "CREATE TABLE more (x); INSERT INTO absent VALUES (1);")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        migrate(connection, broken)
    connection.rollback()
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert migrate(connection, newer) == VERSION
    assert connection.execute("SELECT x FROM more").fetchall() == [(1,)]
    assert migrate(connection, newer) == VERSION + 1
    connection.close()


@pytest.mark.parametrize("is_decided_alike", [True, False])
def test_an_older_version_is_migrated_once_it_can_be_gone_on_from(journal: Path, is_decided_alike: bool) -> None:
    connection = sqlite3.connect(journal, isolation_level=None)
    connection.executescript(
        "ALTER TABLE jobs DROP array; ALTER TABLE jobs DROP array_size; "
        "CREATE INDEX jobs_by_end ON jobs (ended_us) WHERE ended_us IS NOT NULL; PRAGMA user_version = 2"
    )
    if not is_decided_alike:
        connection.execute("DELETE FROM states")
        connection.execute("DELETE FROM log")
        entry = told(SchedulerCore(), 0, ConfigLoaded(at=0, config=Config()))[0]
        body = msgspec.msgpack.encode([replace(entry, chain=bytes(CHAIN_BYTES))])
        mark = next_mark(GENESIS, 1, 1, 0, body)
        connection.execute("INSERT INTO log VALUES (1, 1, 0, ?, ?)", (body, mark))

    async def go_on() -> None:
        async with Scheduler(settings(1), journal, [HeldExecutor()]) as scheduler:
            assert scheduler.jobs()[-1].state == "completed"
            await scheduler.close(StopMode.INTERRUPT)

    with nullcontext() if is_decided_alike else pytest.raises(JournalError, match="stop it cleanly with that release"):
        asyncio.run(go_on())
    # the release that wrote it would refuse a newer one
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION if is_decided_alike else 2,)
    connection.close()


def test_a_newer_version_is_refused_and_left_alone(journal: Path) -> None:
    connection = sqlite3.connect(journal)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(JournalTooNew, match="use a newer release"):
        SqliteJournal(journal)
    code, _, err = run_check(journal)
    assert (code, err) == (2, f"error: {journal}: version {VERSION + 1}, this release checks {VERSION}\n")


def test_a_state_of_another_release_is_said_to_be_one(journal: Path) -> None:
    connection = sqlite3.connect(journal)
    connection.row_factory = sqlite3.Row
    row = connection.execute("SELECT * FROM states").fetchone()
    body = b"\x80"
    digest = next_mark(row["log_mark"], row["number"], 0, row["wall_us"], body)
    connection.execute("UPDATE states SET body = ?, digest = ?", (body, digest))
    connection.commit()
    connection.close()
    store = SqliteJournal(journal)
    with pytest.raises(JournalError, match="drain it with the release that wrote it"):
        store.load()
    store.close()


def test_a_folder_that_cannot_be_written_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(JournalUnavailable, match="No such file or directory"):
        SqliteJournal(tmp_path / "missing" / "j.db")


def test_a_journal_of_the_first_version_keeps_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    assert migrate(connection, MIGRATIONS[:1]) == 0
    columns = "kind, priority, user, workspace, session, queue, key, fingerprint, request, submitted_us, observed"
    for ended_us in (30, None, 10, 20):
        connection.execute(
            f"INSERT INTO jobs ({columns}, state, attempts, ended_us) "
            "VALUES ('shell', 'normal', '', '', '', '', '', x'', x'', 0, 0, 'queued', 0, ?)",
            (ended_us,),
        )
    connection.close()
    journal = SqliteJournal(path)
    journal.upgrade()
    assert [row.ended_us for row in journal.jobs(JobFilter())] == [20, 10, None, 30]
    journal.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'jobs_by_end'").fetchone() == (0,)
    connection.close()
