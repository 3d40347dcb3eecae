"""The tables of the SQLite journal, and how older ones become these."""

from __future__ import annotations

import sqlite3

from reference_scheduler.errors import JournalTooNew

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE generations (
    number INTEGER PRIMARY KEY, generation TEXT NOT NULL UNIQUE, started_us INTEGER NOT NULL,
    boot TEXT NOT NULL, offset_us INTEGER NOT NULL
);
-- One row per commit: events number .. number + count - 1, with what they decided.
-- mark = BLAKE2b-128 of the mark before, number, count, wall_us and body: a chain.
CREATE TABLE log (
    number INTEGER PRIMARY KEY, count INTEGER NOT NULL, wall_us INTEGER NOT NULL,
    body BLOB NOT NULL, mark BLOB NOT NULL
);
-- The whole state after event number; log_mark is the mark of the log there.
CREATE TABLE states (
    number INTEGER PRIMARY KEY, wall_us INTEGER NOT NULL, body BLOB NOT NULL,
    log_mark BLOB NOT NULL, digest BLOB NOT NULL
);
-- AUTOINCREMENT: a number is not used again, even after its job was forgotten. Ids are these numbers as text.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, priority TEXT NOT NULL, user TEXT NOT NULL,
    workspace TEXT NOT NULL, session TEXT NOT NULL, queue TEXT NOT NULL, key TEXT NOT NULL,
    fingerprint BLOB NOT NULL, request BLOB NOT NULL, submitted_us INTEGER NOT NULL, observed INTEGER NOT NULL,
    state TEXT NOT NULL, attempts INTEGER NOT NULL, exit_code INTEGER, ended_us INTEGER
);
CREATE INDEX jobs_by_end ON jobs (ended_us);
CREATE TABLE attempts (
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE, number INTEGER NOT NULL, state TEXT NOT NULL,
    generation TEXT NOT NULL, started_us INTEGER NOT NULL, ended_us INTEGER, exit_code INTEGER, result BLOB NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE TABLE submission_keys (
    key TEXT PRIMARY KEY, fingerprint BLOB NOT NULL,
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX keys_by_job ON submission_keys (job);
"""

ONLY_ENDED = """
DROP INDEX jobs_by_end;
CREATE INDEX jobs_by_end ON jobs (ended_us) WHERE ended_us IS NOT NULL;
"""
"""A job that waits needs no place in the order of ends."""

ARRAYS = """
ALTER TABLE jobs ADD COLUMN array INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN array_size INTEGER NOT NULL DEFAULT 0;
"""
"""An array is a row with a size. Its jobs have the numbers that follow, name it in ``array``, and share its request."""

NO_ORDER_OF_ENDS = """
DROP INDEX jobs_by_end;
"""
"""The state of the core has that, and goes by no clock that may be set back."""

MIGRATIONS: tuple[str, ...] = (TABLES, ONLY_ENDED, ARRAYS, NO_ORDER_OF_ENDS)
"""Script ``n`` makes version ``n + 1`` out of version ``n``; version 0 is an empty file."""
VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the tables, 0 if there are none yet."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def migrate(connection: sqlite3.Connection, migrations: tuple[str, ...] = MIGRATIONS) -> int:
    """Bring the tables to the newest version, all of it or nothing, and return the version found.

    Raises:
        JournalTooNew: a newer release made them.
    """
    found = version_of(connection)
    if found > len(migrations):
        raise JournalTooNew(
            f"the journal has version {found}, this release knows up to {len(migrations)}: use a newer release"
        )
    if found < len(migrations):
        script = "".join(migrations[found:])
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {len(migrations)}; COMMIT;")
    return found
