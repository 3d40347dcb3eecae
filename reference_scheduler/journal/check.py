"""Reads a journal from end to end and says what in it cannot be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.model import JobState
from reference_scheduler.core.snapshot import Outcome
from reference_scheduler.errors import JournalDamaged, JournalError, JournalLocked, JournalUnavailable
from reference_scheduler.journal.base import GENESIS, id_of, number_of
from reference_scheduler.journal.lock import JournalLock, real_path
from reference_scheduler.journal.schema import VERSION
from reference_scheduler.journal.sqlite import REQUEST, connect, mapped_errors, read_log, read_states
from reference_scheduler.journal.state import Plugins, missing_plugins_told
from reference_scheduler.journal.wal import inspect_wal
from reference_scheduler.replay.records import CHAIN_BYTES, Entry
from reference_scheduler.requests import fingerprint

_COUNTS = (
    "SELECT count(*), count(*) - count(ended_us), (SELECT count(*) FROM generations) FROM jobs WHERE NOT array_size"
)

_OPEN_ATTEMPTS = (
    "SELECT job, attempts.number, array FROM attempts JOIN jobs ON jobs.number = job WHERE attempts.ended_us IS NULL"
)


class JournalCheck(msgspec.Struct, frozen=True):
    """What a check found: ``problems`` make the journal unfit for use, ``notes`` do not."""

    events: int
    jobs: int
    open_jobs: int
    generations: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def check_journal(path: Path, plugins: Plugins) -> JournalCheck:
    """Read the journal ``path``, which may be in use, and change nothing.

    All pages are read; every mark is computed anew; every event since the oldest state that is kept is decided
    anew; and each row of the tables is compared with what the core has come to.

    Raises:
        JournalUnavailable: it cannot be read.
        JournalDamaged: it is no journal, or so damaged that there is nothing to compare.
        JournalError: another release wrote it.
    """
    path = real_path(path)
    if not path.is_file():
        raise JournalUnavailable(f"{path}: there is no such file")
    notes = _torn(path)
    connection = connect(path, read_only=True)
    try:
        with mapped_errors(path):
            connection.execute("BEGIN")  # all that follows is of one moment
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != VERSION:
                raise JournalError(f"{path}: version {version}, this release checks {VERSION}")
            problems = list(_pages(connection))
            replay = _Replay(connection, plugins)
            with missing_plugins_told():
                problems += replay.problems()
            if replay.core is not None:
                problems += _tables(connection, replay.core)
            jobs, open_jobs, generations = connection.execute(_COUNTS).fetchone()
    finally:
        connection.close()
    return JournalCheck(replay.number, jobs, open_jobs, generations, tuple(problems), notes)


def _torn(path: Path) -> tuple[str, ...]:
    """Return what is torn at the end of the write-ahead log; of one that is written to it cannot be told."""
    try:
        lock = JournalLock(path)
    except (JournalLocked, JournalUnavailable):
        return ()
    try:
        return inspect_wal(path)
    finally:
        lock.release()


def _pages(connection: sqlite3.Connection) -> Iterator[str]:
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"{table}: row {row} belongs to no row of {parent}"


class _Replay:
    """Decides anew what is in the log, from the oldest state on."""

    def __init__(self, connection: sqlite3.Connection, plugins: Plugins) -> None:
        self._connection = connection
        self._plugins = plugins
        self.core: SchedulerCore | None = None
        self.number = 0

    def problems(self) -> Iterator[str]:
        """Yield what does not follow; ``core`` is ``None`` afterwards if the end could not be reached."""
        try:
            states = list(read_states(self._connection))
            core, mark = SchedulerCore(*self._plugins), GENESIS
            if states:
                state, mark, _ = states.pop(0)
                core, self.number = SchedulerCore.restore(state.snapshot, *self._plugins), state.number
            for entries, _ in read_log(self._connection, self.number, mark):
                for entry in entries:
                    problem = _decide(core, entry)
                    if problem:
                        yield problem
                        return
                    self.number = entry.number
                if states and states[0][0].number == self.number:
                    later = SchedulerCore.restore(states.pop(0)[0].snapshot, *self._plugins)
                    yield from _compare(core, later, self.number)
                    core = later
            for state, _, _ in states:
                yield f"there is a state after event {state.number}, which the log does not reach"
            self.core = core
        except JournalDamaged as error:
            yield str(error)


def _decide(core: SchedulerCore, entry: Entry) -> str:
    try:
        decisions = core.handle(entry.event)
    except ValueError as error:
        return f"event {entry.number} cannot be: {error}"
    if decisions == entry.decisions and core.chain[:CHAIN_BYTES] == entry.chain:
        return ""
    return f"event {entry.number} is decided differently by this release"


def _compare(replayed: SchedulerCore, kept: SchedulerCore, number: int) -> Iterator[str]:
    """Compare with the state that was kept, which may have forgotten jobs that had ended."""
    wanted, found = replayed.snapshot(), kept.snapshot()
    outcomes = dict(wanted.outcomes)
    if any(outcomes.get(job) != outcome for job, outcome in found.outcomes):
        yield f"the state after event {number} has jobs that ended otherwise in the log"
    if msgspec.structs.replace(wanted, outcomes=()) != msgspec.structs.replace(found, outcomes=()):
        yield f"the state after event {number} is not what the log leads to"


def _tables(connection: sqlite3.Connection, core: SchedulerCore) -> Iterator[str]:
    open_jobs = {job.spec.id: (str(job.state), job.attempts) for job in core.open_jobs()}
    open_jobs |= {array: (str(JobState.QUEUED), 0) for array in core.open_arrays()}
    query = f"SELECT number, array, state, attempts, exit_code, ended_us, {REQUEST}, fingerprint FROM jobs"
    for number, array, state, attempts, exit_code, ended_us, request, print_ in connection.execute(query):
        job = id_of(number, array)
        if fingerprint(request) != print_:
            yield f"job {job}: its request fails its check"
        if ended_us is None:
            known = open_jobs.pop(job, None)
            if known != (state, attempts):
                yield f"job {job}: the table has {(state, attempts)}, the log leads to {known}"
        elif core.outcome(job) not in (None, Outcome(state, exit_code)):
            yield f"job {job}: the table has it {state}, the log leads to {core.outcome(job)}"
    for job in open_jobs:
        yield f"job {job}: it is open by the log, and missing from the table"
    live = {(number_of(job.spec.id), job.attempts): job.spec.id for job in core.running()}
    for number, attempt, array in connection.execute(_OPEN_ATTEMPTS):
        if live.pop((number, attempt), None) is None:
            yield f"job {id_of(number, array)}: attempt {attempt} has no end, and is not live"
    for (_, number), job in sorted(live.items()):
        yield f"job {job}: attempt {number} is live by the log, and missing from the table"
