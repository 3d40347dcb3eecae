"""A journal that lives as long as its object: for tests, and for work that need not survive its process."""

from __future__ import annotations

import secrets
from collections import Counter

from msgspec.structs import replace

from reference_scheduler.core.model import JobState, task_id
from reference_scheduler.journal.base import (
    MAX_LISTED_BYTES,
    AttemptRow,
    Batch,
    GenerationRow,
    JobFilter,
    JobRow,
    Saved,
    number_of,
)
from reference_scheduler.replay.records import Entry, State


class MemoryJournal:
    """Keeps all in dictionaries. A scheduler started on it after another goes on from there."""

    def __init__(self) -> None:
        self.owner = secrets.token_hex(16)
        self.notes: tuple[str, ...] = ()
        self._state: State | None = None
        self._entries: list[Entry] = []
        self._generation: GenerationRow | None = None
        self._wall_us = 0
        self._last_job = 0
        self._paused = False
        self._jobs: dict[str, JobRow] = {}
        self._keys: dict[str, tuple[str, bytes]] = {}
        self._attempts: dict[str, dict[int, AttemptRow]] = {}

    def commit(self, batch: Batch) -> list[JobRow]:
        """See :meth:`Journal.commit`."""
        self._wall_us = batch.wall_us
        self._generation = batch.generation or self._generation
        self._entries += batch.entries
        self._paused = self._paused if batch.paused is None else batch.paused
        for row in batch.jobs:
            self._jobs[row.job] = row
            self._last_job = max(self._last_job, row.last_number)
            task = replace(row, key="", request=b"", array=row.job, array_size=0, state=JobState.QUEUED, ended_us=None)
            for name in (task_id(row.job, index) for index in range(row.array_size)):
                self._jobs[name] = replace(task, job=name)
            if row.key:
                self._keys[row.key] = (row.job, row.fingerprint)
        for change in batch.changes:
            row = self._jobs[change.job]
            attempts = row.attempts if change.attempts is None else change.attempts
            priority = row.priority if change.priority is None else change.priority
            ended = {"exit_code": change.exit_code, "ended_us": change.ended_us}
            self._jobs[change.job] = replace(row, state=change.state, attempts=attempts, priority=priority, **ended)
        for attempt in batch.attempts:
            rows = self._attempts.setdefault(attempt.job, {})
            first = rows.get(attempt.number, attempt)
            rows[attempt.number] = replace(attempt, generation=first.generation, started_us=first.started_us)
        if batch.state is not None:
            self._state, self._entries = batch.state, []
        for job in batch.forget:
            self._keys.pop(self._jobs.pop(job).key, None)
            self._attempts.pop(job, None)
        return [self._whole(self._jobs[job]) for job in batch.begun]

    def load(self) -> Saved:
        """See :meth:`Journal.load`."""
        return Saved(self._state, list(self._entries), self._generation, self._wall_us, self._last_job, self._paused)

    def upgrade(self) -> None:
        """See :meth:`Journal.upgrade`; it is of this release."""

    def _whole(self, row: JobRow) -> JobRow:
        """Return a row with what it shares with its array, or what an array is by its jobs."""
        if row.array and row.array in self._jobs:
            return replace(row, request=self._jobs[row.array].request)
        if row.array_size and row.ended_us is None and JobState.RUNNING in self.tasks(row):
            return replace(row, state=JobState.RUNNING)
        return row

    def job(self, job: str) -> JobRow | None:
        """See :meth:`Journal.job`."""
        row = self._jobs.get(job)
        return row and self._whole(row)

    def tasks(self, array: JobRow) -> dict[JobState, int]:
        """See :meth:`Journal.tasks`."""
        names = (task_id(array.job, index) for index in range(array.array_size))
        return dict(Counter(self._jobs[name].state for name in names if name in self._jobs))

    def job_of_key(self, key: str) -> tuple[str, bytes] | None:
        """See :meth:`Journal.job_of_key`."""
        return self._keys.get(key)

    def jobs(self, wanted: JobFilter) -> list[JobRow]:
        """See :meth:`Journal.jobs`."""
        found = [
            row if len(row.request) <= MAX_LISTED_BYTES else replace(row, request=b"")
            for row in map(self._whole, reversed(self._jobs.values()))
            if row.array == wanted.array
            and (not wanted.states or row.state in wanted.states)
            and wanted.kind in ("", row.kind)
            and wanted.workspace in ("", row.workspace)
            and (not wanted.before or number_of(row.job) < number_of(wanted.before))
        ]
        return found[: wanted.limit]

    def attempts(self, job: str) -> list[AttemptRow]:
        """See :meth:`Journal.attempts`."""
        return list(self._attempts.get(job, {}).values())

    def latest(self, job: str) -> AttemptRow | None:
        """See :meth:`Journal.latest`."""
        rows = self._attempts.get(job)
        return replace(next(reversed(rows.values())), result=b"") if rows else None

    def close(self) -> None:
        """See :meth:`Journal.close`."""
