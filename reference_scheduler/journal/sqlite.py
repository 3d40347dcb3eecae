"""The journal in one SQLite file: write-ahead log, every commit forced to disk."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec

from reference_scheduler.core.model import AttemptState, JobState
from reference_scheduler.errors import (
    JournalDamaged,
    JournalError,
    JournalLocked,
    JournalUnavailable,
    SchedulerStopping,
)
from reference_scheduler.journal.base import (
    GENESIS,
    MAX_LISTED_BYTES,
    AttemptRow,
    Batch,
    GenerationRow,
    JobFilter,
    JobRow,
    Saved,
    id_of,
    number_of,
)
from reference_scheduler.journal.lock import JournalLock, real_path
from reference_scheduler.journal.schema import VERSION, migrate, version_of
from reference_scheduler.journal.wal import inspect_wal
from reference_scheduler.replay.fingerprint import schema_fingerprint
from reference_scheduler.replay.records import Entry, State

BUSY_TIMEOUT_S = 30.0
"""So long a commit waits for another process that holds the write lock, a backup say."""
_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
)
_JOB_COLUMNS = (
    "number, kind, priority, user, workspace, session, queue, key, fingerprint, request, submitted_us, observed, "
    "state, attempts, exit_code, ended_us, array, array_size"
)
_INSERT_JOB = f"INSERT INTO jobs ({_JOB_COLUMNS}) VALUES ({', '.join('?' * len(_JOB_COLUMNS.split(', ')))})"
_INSERT_TASKS = (
    "WITH RECURSIVE task(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM task WHERE n < ?) "
    f"INSERT INTO jobs ({_JOB_COLUMNS}) SELECT n, kind, priority, user, workspace, session, queue, '', fingerprint, "
    "x'', submitted_us, observed, 'queued', 0, NULL, NULL, whole.number, 0 FROM task, jobs AS whole "
    "WHERE whole.number = ?"
)
REQUEST = (
    "CASE WHEN array THEN coalesce((SELECT whole.request FROM jobs AS whole WHERE whole.number = jobs.array), x'') "
    "ELSE request END"
)
"""The request of a job; those of an array share one."""
_STATE = (
    "CASE WHEN array_size AND ended_us IS NULL AND EXISTS (SELECT 1 FROM jobs AS task WHERE task.state = 'running' "
    "AND task.number > jobs.number AND task.number <= jobs.number + jobs.array_size) THEN 'running' ELSE state END"
)
_READ_COLUMNS = _JOB_COLUMNS.replace("request,", f"{REQUEST},").replace("state,", f"{_STATE},")
_LISTED_COLUMNS = _READ_COLUMNS.replace(
    f"{REQUEST},", f"CASE WHEN length({REQUEST}) <= {MAX_LISTED_BYTES} THEN {REQUEST} ELSE x'' END,"
)
_SELECT_JOB = f"SELECT {_READ_COLUMNS} FROM jobs WHERE number = ?"
_SELECT_LATEST = (
    "SELECT job, number, state, generation, started_us, ended_us, exit_code FROM attempts WHERE job = ? "
    "ORDER BY number DESC LIMIT 1"
)
_COUNT_TASKS = "SELECT state, count(*) FROM jobs WHERE number > ? AND number <= ? GROUP BY state"
# A member of an enumeration is bound as itself by way of an error that is raised and forgotten: its value is not.
_job_fields = attrgetter(*("state.value" if name == "state" else name for name in JobRow.__struct_fields__[1:-2]))
_attempt_fields = attrgetter(*("state.value" if name == "state" else name for name in AttemptRow.__struct_fields__[1:]))
_HEAD = Struct("<QIq")
_encode = msgspec.msgpack.Encoder().encode
_decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode
_decode_state = msgspec.msgpack.Decoder(State).decode


class SqliteJournal:
    """A journal in the file ``path``, made if it is not there, and locked against other schedulers.

    Raises:
        JournalLocked: another scheduler uses it.
        JournalTooNew: a newer release wrote it.
        JournalDamaged: it is no journal, or damaged; see ``refsched journal check``.
        JournalUnavailable: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        path = real_path(path)
        with ExitStack() as opened:
            lock = JournalLock(path)
            opened.callback(lock.release)
            self.notes = inspect_wal(path)
            self._writer = opened.enter_context(closing(connect(path)))
            with mapped_errors(path):
                self._writer.execute("PRAGMA journal_mode = WAL")
                self._writer.execute("PRAGMA synchronous = FULL")
                self._writer.execute("PRAGMA fullfsync = ON")  # on macOS a plain fsync stops at the cache of the disk
                self._writer.execute("PRAGMA foreign_keys = ON")
                self._is_older = 0 < version_of(self._writer) < VERSION
                if not self._is_older:
                    migrate(self._writer)
                self.owner = _owner(self._writer)
                self._mark = _last_mark(self._writer)
            self._reader = opened.enter_context(closing(connect(path)))
            self._opened = opened.pop_all()
        self._path = path
        self._file = path.stat()
        self._is_closed = False

    def upgrade(self) -> None:
        """See :meth:`Journal.upgrade`."""
        if self._is_older:
            with mapped_errors(self._path):
                migrate(self._writer)
            self._is_older = False

    def commit(self, batch: Batch) -> list[JobRow]:
        """See :meth:`Journal.commit`."""
        writer = self._writer
        try:
            with mapped_errors(self._path):
                writer.execute("BEGIN IMMEDIATE")
                self._check_place()
                mark = self._write(writer, batch)
                begun = [writer.execute(_SELECT_JOB, (number_of(job),)).fetchone() for job in batch.begun]
                writer.execute("COMMIT")
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise
        self._mark = mark
        return [_job_row(row) for row in begun]

    def _check_place(self) -> None:
        """Accept nothing into a file that the next start would not find."""
        try:
            found = self._path.stat()
        except OSError as error:
            raise JournalUnavailable(f"{self._path}: {error.strerror}; nothing was written") from error
        if not os.path.samestat(found, self._file):
            raise JournalUnavailable(f"{self._path}: is another file than was opened; nothing was written")

    def _write(self, writer: sqlite3.Connection, batch: Batch) -> bytes:
        """Write all of ``batch``, and return the mark of the log after it."""
        mark = self._mark
        if batch.generation is not None:
            row = batch.generation
            writer.execute(
                "INSERT INTO generations (generation, started_us, boot, offset_us) VALUES (?, ?, ?, ?)",
                (row.generation, row.started_us, row.boot, row.offset_us),
            )
        if batch.entries:
            body, count = _encode(batch.entries), len(batch.entries)
            number = batch.entries[0].number
            mark = next_mark(mark, number, count, batch.wall_us, body)
            writer.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", (number, count, batch.wall_us, body, mark))
        if batch.jobs:
            writer.executemany(_INSERT_JOB, map(_job_values, batch.jobs))
            keys = [(row.key, row.fingerprint, row.job) for row in batch.jobs if row.key]
            writer.executemany("INSERT INTO submission_keys VALUES (?, ?, ?)", keys)
            for array in (row for row in batch.jobs if row.is_array):
                number = number_of(array.job)
                writer.execute(_INSERT_TASKS, (number + 1, array.last_number, number))
        writer.executemany(
            "UPDATE jobs SET state = ?, attempts = coalesce(?, attempts), exit_code = ?, ended_us = ?, "
            "priority = coalesce(?, priority) WHERE number = ?",
            [
                (row.state.value, row.attempts, row.exit_code, row.ended_us, row.priority, number_of(row.job))
                for row in batch.changes
            ],
        )
        writer.executemany(
            "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "(state, ended_us, exit_code, result) = "
            "(excluded.state, excluded.ended_us, excluded.exit_code, excluded.result)",
            map(_attempt_values, batch.attempts),
        )
        if batch.paused is not None:
            writer.execute("INSERT OR REPLACE INTO meta VALUES ('paused', ?)", (str(int(batch.paused)),))
        if batch.state is not None:
            self._write_state(writer, batch, batch.state, mark)
        return mark

    def _write_state(self, writer: sqlite3.Connection, batch: Batch, state: State, mark: bytes) -> None:
        """Write the state and let go of all that only an earlier one than the one before it needs."""
        body = _encode(state)
        digest = next_mark(mark, state.number, 0, batch.wall_us, body)
        oldest = writer.execute("SELECT max(number) FROM states WHERE number < ?", (state.number,)).fetchone()[0] or 0
        writer.execute(
            "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?)", (state.number, batch.wall_us, body, mark, digest)
        )
        writer.execute("DELETE FROM states WHERE number < ?", (oldest,))
        writer.execute("DELETE FROM log WHERE number <= ?", (oldest,))
        writer.executemany("DELETE FROM jobs WHERE number = ?", [(number_of(job),) for job in batch.forget])
        writer.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (schema_fingerprint(),))

    def load(self) -> Saved:
        """See :meth:`Journal.load`."""
        with mapped_errors(self._path):
            return load(self._reader)

    def job(self, job: str) -> JobRow | None:
        """See :meth:`Journal.job`."""
        rows = self._rows(_SELECT_JOB, (number_of(job),))
        row = _job_row(rows[0]) if rows else None
        return row if row and row.job == job else None  # a job of an array has no second name

    def tasks(self, array: JobRow) -> dict[JobState, int]:
        """See :meth:`Journal.tasks`."""
        number = number_of(array.job)
        return {JobState(state): n for state, n in self._rows(_COUNT_TASKS, (number, number + array.array_size))}

    def job_of_key(self, key: str) -> tuple[str, bytes] | None:
        """See :meth:`Journal.job_of_key`."""
        rows = self._rows("SELECT job, fingerprint FROM submission_keys WHERE key = ?", (key,))
        return (str(rows[0][0]), rows[0][1]) if rows else None

    def jobs(self, wanted: JobFilter) -> list[JobRow]:
        """See :meth:`Journal.jobs`."""
        conditions, values = ["array = ?"], list[Any]([number_of(wanted.array)])
        if wanted.states:
            conditions.append(f"{_STATE} IN ({', '.join('?' * len(wanted.states))})")
            values += wanted.states
        for column in ("kind", "workspace"):
            if getattr(wanted, column):
                conditions.append(f"{column} = ?")
                values.append(getattr(wanted, column))
        if wanted.before:
            conditions.append("number < ?")
            values.append(number_of(wanted.before))
        query = f"SELECT {_LISTED_COLUMNS} FROM jobs WHERE {' AND '.join(conditions)} ORDER BY number DESC LIMIT ?"
        return [_job_row(row) for row in self._rows(query, (*values, wanted.limit))]

    def attempts(self, job: str) -> list[AttemptRow]:
        """See :meth:`Journal.attempts`."""
        rows = self._rows("SELECT * FROM attempts WHERE job = ? ORDER BY number", (number_of(job),))
        return [_attempt_row(job, row) for row in rows]

    def latest(self, job: str) -> AttemptRow | None:
        """See :meth:`Journal.latest`."""
        rows = self._rows(_SELECT_LATEST, (number_of(job),))
        return _attempt_row(job, rows[0]) if rows else None

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        if self._is_closed:
            raise SchedulerStopping(f"the scheduler has stopped, and {self._path} is closed")
        with mapped_errors(self._path):
            return self._reader.execute(query, values).fetchall()

    def close(self) -> None:
        """See :meth:`Journal.close`."""
        self._is_closed = True
        self._opened.close()


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Return a connection to the journal ``path`` that no one thread owns.

    Raises:
        JournalUnavailable: it cannot be opened.
    """
    mode = "ro" if read_only else "rw"
    try:
        if not read_only:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # what jobs are given is nobody else's business
    except OSError as error:
        raise JournalUnavailable(f"{path}: {error.strerror}") from error
    with mapped_errors(path):
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )


@contextmanager
def mapped_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into what a journal may raise."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _UNAVAILABLE:
            raise JournalUnavailable(f"{path}: {error}; nothing was written") from error
        if "log.number" in str(error):
            raise JournalLocked(
                f"{path}: another scheduler has gone on with this journal; was {path.name}.lock removed?"
            ) from error
        raise JournalDamaged(f"{path}: {error}; refsched journal check says more") from error


def next_mark(mark: bytes, number: int, count: int, wall_us: int, body: bytes) -> bytes:
    """Return the mark of a row that follows the row with ``mark``."""
    digest = blake2b(mark, digest_size=16)
    digest.update(_HEAD.pack(number, count, wall_us))
    digest.update(body)
    return digest.digest()


def _owner(writer: sqlite3.Connection) -> str:
    writer.execute("INSERT OR IGNORE INTO meta VALUES ('owner', ?)", (secrets.token_hex(16),))
    owner: str = writer.execute("SELECT value FROM meta WHERE name = 'owner'").fetchone()[0]
    return owner


def _last_mark(writer: sqlite3.Connection) -> bytes:
    """Return the mark of the last row of the log."""
    row = writer.execute("SELECT mark FROM log ORDER BY number DESC LIMIT 1").fetchone()
    row = row or writer.execute("SELECT log_mark FROM states ORDER BY number DESC LIMIT 1").fetchone()
    return row[0] if row else GENESIS


def read_states(connection: sqlite3.Connection, order: str = "ASC") -> Iterator[tuple[State, bytes, int]]:
    """Yield the states, each with the mark of the log there and when it was written; ``DESC``: newest first.

    Raises:
        JournalDamaged: one fails its check.
    """
    for number, wall_us, body, mark, digest in connection.execute(f"SELECT * FROM states ORDER BY number {order}"):
        if next_mark(mark, number, 0, wall_us, body) != digest:
            raise JournalDamaged(f"the state after event {number} fails its check")
        yield decoded(connection, _decode_state, body), mark, wall_us


def read_log(connection: sqlite3.Connection, number: int, mark: bytes) -> Iterator[tuple[list[Entry], int]]:
    """Yield the commits after event ``number``, where the log has ``mark``, and when each was made.

    Raises:
        JournalDamaged: a row is missing or fails its check.
    """
    for first, count, wall_us, body, kept in connection.execute(
        "SELECT * FROM log WHERE number > ? ORDER BY number", (number,)
    ):
        if first != number + 1:
            raise JournalDamaged(f"event {number + 1} is missing from the log: event {first} follows")
        mark = next_mark(mark, first, count, wall_us, body)
        if mark != kept:
            raise JournalDamaged(f"the log fails its check at event {first}")
        entries: list[Entry] = decoded(connection, _decode_entries, body)
        yield entries, wall_us
        number += count


def decoded(connection: sqlite3.Connection, decode: Any, body: bytes) -> Any:
    """Return what ``body``, which passed its check, holds.

    Raises:
        JournalError: another release, with other shapes, wrote it.
    """
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        row = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
        raise JournalError(
            f"written with schema {row[0] if row else 'unknown'}, this release has {schema_fingerprint()}: "
            f"drain it with the release that wrote it ({error})"
        ) from error


def load(connection: sqlite3.Connection) -> Saved:
    """Return what a scheduler goes on from; see :meth:`Journal.load`."""
    state, mark, wall_us = next(read_states(connection, "DESC"), (None, GENESIS, 0))
    entries: list[Entry] = []
    for more, at_us in read_log(connection, state.number if state else 0, mark):
        entries += more
        wall_us = at_us
    row = connection.execute(
        "SELECT generation, started_us, boot, offset_us FROM generations ORDER BY number DESC LIMIT 1"
    ).fetchone()
    last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
    paused = connection.execute("SELECT value = '1' FROM meta WHERE name = 'paused'").fetchone()
    generation = GenerationRow(*row) if row else None
    return Saved(state, entries, generation, wall_us, last[0] if last else 0, bool(paused and paused[0]))


def _attempt_row(job: str, row: Any) -> AttemptRow:
    return AttemptRow(job, row[1], AttemptState(row[2]), *row[3:])


def _attempt_values(row: AttemptRow) -> tuple[Any, ...]:
    return (number_of(row.job), *_attempt_fields(row))


def _job_row(row: Any) -> JobRow:
    number, array = row[0], row[16]
    fields = (id_of(number, array), *row[1:11], bool(row[11]), JobState(row[12]), *row[13:16])
    return JobRow(*(*fields, str(array) if array else "", row[17]))


def _job_values(row: JobRow) -> tuple[Any, ...]:
    return (number_of(row.job), *_job_fields(row), number_of(row.array), row.array_size)
