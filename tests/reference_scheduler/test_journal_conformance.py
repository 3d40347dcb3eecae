"""What every journal must hold, run against each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_world import told
from msgspec.structs import replace

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.events import CancelRequested, ConfigLoaded, JobSubmitted, Tick
from reference_scheduler.core.model import AttemptState, Config, JobSpec, JobState
from reference_scheduler.journal.base import (
    MAX_LISTED_BYTES,
    AttemptRow,
    Batch,
    GenerationRow,
    JobChange,
    JobFilter,
    JobRow,
    Journal,
)
from reference_scheduler.journal.memory import MemoryJournal
from reference_scheduler.journal.sqlite import SqliteJournal
from reference_scheduler.journal.state import Plugins, core_of, without
from reference_scheduler.replay.records import State

PRINT = bytes(16)


class Store:
    """A journal, and how to open it again as after a restart."""

    def __init__(self, open_journal: Callable[[], Journal]) -> None:
        self._open = open_journal
        self.journal = open_journal()

    def reopen(self) -> Journal:
        self.journal.close()
        self.journal = self._open()
        return self.journal


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    memory = MemoryJournal()
    store = Store((lambda: memory) if request.param == "memory" else lambda: SqliteJournal(tmp_path / "journal.db"))
    yield store
    store.journal.close()


def row(job: int, **fields: object) -> JobRow:
    base = JobRow(str(job), "shell", "normal", "u", "/w", "s", "q", "", PRINT, b"request", 100 + job)
    return replace(base, **fields)


FIRST = (ConfigLoaded(at=1, config=Config()), JobSubmitted(at=2, job=JobSpec("1")), Tick(at=3))


def test_a_new_journal_is_empty(store: Store) -> None:
    saved = store.journal.load()
    assert (saved.state, saved.entries, saved.generation, saved.number, saved.last_job) == (None, [], None, 0, 0)
    assert store.journal.jobs(JobFilter()) == []


def test_owner_is_kept_for_life_and_differs_between_journals(store: Store, tmp_path: Path) -> None:
    owner = store.journal.owner
    other = SqliteJournal(tmp_path / "other.db")
    assert store.reopen().owner == owner != other.owner
    other.close()


def test_entries_come_back_in_order_and_lead_to_the_same_core(store: Store) -> None:
    core = SchedulerCore()
    entries = told(core, 0, *FIRST)
    store.journal.commit(Batch(10, entries[:1]))
    store.journal.commit(Batch(11, entries[1:]))
    saved = store.reopen().load()
    assert (saved.entries, saved.number, saved.wall_us) == (entries, 3, 11)
    assert core_of(saved, Plugins()).snapshot() == core.snapshot()


def test_a_state_takes_the_place_of_the_entries_before_it(store: Store) -> None:
    core = SchedulerCore()
    store.journal.commit(Batch(10, told(core, 0, *FIRST), state=State(3, core.snapshot())))
    later = told(core, 3, Tick(at=4))
    store.journal.commit(Batch(11, later))
    saved = store.reopen().load()
    assert saved.state is not None
    assert (saved.state.number, saved.entries, saved.number) == (3, later, 4)
    assert core_of(saved, Plugins()).chain == core.chain


def test_a_job_comes_back_as_it_was_written(store: Store) -> None:
    kept = row(7, observed=True, state=JobState.SCHEDULED, key="k")
    store.journal.commit(Batch(10, jobs=[kept]))
    assert store.reopen().job("7") == kept


@pytest.mark.parametrize("job", ["8", "", "x", "07", "-7", "7.0", "９", "9" * 30, "'; DROP TABLE jobs"])
def test_what_is_no_id_of_a_job_finds_none(store: Store, job: str) -> None:
    store.journal.commit(Batch(10, jobs=[row(7)]))
    assert store.journal.job(job) is None
    assert store.journal.attempts(job) == []


def test_changes_alter_state_and_end_and_nothing_else(store: Store) -> None:
    store.journal.commit(Batch(10, jobs=[row(1), row(2)]))
    store.journal.commit(Batch(11, changes=[JobChange("1", JobState.RUNNING, 1)]))
    store.journal.commit(Batch(12, changes=[JobChange("1", JobState.FAILED, None, 3, 12)]))
    assert store.journal.job("1") == row(1, state=JobState.FAILED, attempts=1, exit_code=3, ended_us=12)
    assert store.journal.job("2") == row(2)


def test_a_change_of_priority_lasts_and_other_changes_keep_it(store: Store) -> None:
    store.journal.commit(Batch(10, jobs=[row(1), row(2)]))
    store.journal.commit(Batch(11, changes=[JobChange("1", JobState.QUEUED, 0, priority="urgent")]))
    store.journal.commit(Batch(12, changes=[JobChange(job, JobState.RUNNING, 1) for job in ("1", "2")]))
    found = {view.job: view.priority for view in store.reopen().jobs(JobFilter())}
    assert found == {"1": "urgent", "2": row(2).priority}


def test_the_jobs_of_an_array_are_made_with_it_and_then_changed(store: Store) -> None:
    whole = row(3, key="k", array_size=3, state=JobState.FAILED, ended_us=11)
    changes = [JobChange("3[0]", JobState.RUNNING, 1), JobChange("3[2]", JobState.CANCELLED, None, None, 11)]
    running = AttemptRow("3[0]", 1, AttemptState.RUNNING, "g", 10)
    begun = store.journal.commit(Batch(10, jobs=[whole], changes=changes, attempts=[running]))
    task = replace(row(3), array="3")
    expected = [
        replace(task, job="3[2]", state=JobState.CANCELLED, ended_us=11),
        replace(task, job="3[1]"),
        replace(task, job="3[0]", state=JobState.RUNNING, attempts=1),
    ]
    assert begun == expected[2:]
    journal = store.reopen()
    assert journal.jobs(JobFilter(array="3")) == expected
    assert journal.jobs(JobFilter()) == [whole]
    assert journal.job_of_key("k") == ("3", PRINT)
    assert journal.load().last_job == 6


def test_an_attempt_keeps_its_start_and_generation(store: Store) -> None:
    first = AttemptRow("1", 1, AttemptState.ADMITTED, "g1", 10)
    store.journal.commit(Batch(10, jobs=[row(1)], attempts=[first]))
    store.journal.commit(Batch(11, attempts=[AttemptRow("1", 1, AttemptState.FAILED, "g2", 11, 11, 4, b"r")]))
    store.journal.commit(Batch(12, attempts=[AttemptRow("1", 2, AttemptState.ADMITTED, "g2", 12)]))
    ended = replace(first, state=AttemptState.FAILED, ended_us=11, exit_code=4, result=b"r")
    assert store.reopen().attempts("1") == [ended, AttemptRow("1", 2, AttemptState.ADMITTED, "g2", 12)]


def test_who_commits_is_told_which_jobs_begin(store: Store) -> None:
    batch = Batch(
        10,
        jobs=[row(1), row(2), row(3)],
        changes=[JobChange("3", JobState.RUNNING, 1)],
        attempts=[
            AttemptRow("1", 1, AttemptState.COMPLETED, "g1", 10, 10),
            AttemptRow("3", 1, AttemptState.RUNNING, "g1", 10),
        ],
    )
    assert store.journal.commit(batch) == [row(3, state=JobState.RUNNING, attempts=1)]


def test_a_key_is_written_with_its_job(store: Store) -> None:
    store.journal.commit(Batch(10, jobs=[row(1, key="ключ", fingerprint=b"f" * 16), row(2)]))
    journal = store.reopen()
    assert journal.job_of_key("ключ") == ("1", b"f" * 16)
    assert journal.job_of_key("") is None
    assert journal.job_of_key("other") is None


def test_jobs_are_listed_newest_first_by_what_is_wanted_without_large_requests(store: Store) -> None:
    rows = [row(1), row(2, kind="test"), row(3, workspace="/v"), row(10, state=JobState.RUNNING)]
    store.journal.commit(Batch(10, jobs=rows))

    def ids(wanted: JobFilter) -> list[str]:
        return [found.job for found in store.journal.jobs(wanted)]

    assert ids(JobFilter()) == ["10", "3", "2", "1"]
    assert ids(JobFilter(limit=2)) == ["10", "3"]
    assert ids(JobFilter(before="3")) == ["2", "1"]
    assert ids(JobFilter(before="x")) == []
    assert ids(JobFilter(kind="test")) == ["2"]
    assert ids(JobFilter(workspace="/v")) == ["3"]
    assert ids(JobFilter(states=[JobState.RUNNING, JobState.FAILED])) == ["10"]
    largest = b"r" * MAX_LISTED_BYTES
    store.journal.commit(Batch(11, jobs=[row(11, request=largest), row(12, request=largest + b"r")]))
    assert [found.request for found in store.journal.jobs(JobFilter(limit=3))] == [b"", largest, rows[-1].request]


def test_the_latest_attempt_comes_without_its_result(store: Store) -> None:
    attempts = [AttemptRow("1", number, AttemptState.FAILED, "g", number, 20, 3, b"r") for number in range(1, 12)]
    store.journal.commit(Batch(10, jobs=[row(1), row(2)], attempts=attempts))
    assert store.journal.latest("1") == replace(attempts[-1], result=b"")
    assert (store.journal.latest("2"), store.journal.latest("x")) == (None, None)


def test_what_ended_last_is_kept_and_the_rest_forgotten_with_keys_and_attempts(store: Store) -> None:
    rows = [row(job, key=f"k{job}") for job in range(1, 6)]
    attempts = [AttemptRow(str(job), 1, AttemptState.ADMITTED, "g", 10) for job in range(1, 6)]
    store.journal.commit(Batch(10, jobs=rows, attempts=attempts))
    ends = [JobChange(job, JobState.COMPLETED, None, 0, 20 - int(job)) for job in ("1", "2", "4")]
    store.journal.commit(Batch(11, changes=ends))
    core = SchedulerCore()
    store.journal.commit(Batch(12, state=State(0, core.snapshot()), forget=["2", "4"]))
    journal = store.reopen()
    assert [found.job for found in journal.jobs(JobFilter())] == ["5", "3", "1"]
    assert (journal.job_of_key("k2"), journal.job_of_key("k5")) == (None, ("5", PRINT))
    assert (journal.attempts("4"), len(journal.attempts("5"))) == ([], 1)


def test_numbers_of_forgotten_jobs_are_not_given_again(store: Store) -> None:
    change = JobChange("9", JobState.COMPLETED, None, 0, 1)
    store.journal.commit(Batch(10, jobs=[row(9)]))
    store.journal.commit(Batch(11, changes=[change], state=State(0, SchedulerCore().snapshot()), forget=["9"]))
    assert store.reopen().load().last_job == 9


def test_the_latest_generation_comes_back(store: Store) -> None:
    for name in ("b", "a"):
        store.journal.commit(Batch(10, generation=GenerationRow(name, 5, "boot", -7)))
    assert store.reopen().load().generation == GenerationRow("a", 5, "boot", -7)


def test_a_core_forgets_what_no_open_job_depends_on() -> None:
    core = SchedulerCore()
    told(core, 0, ConfigLoaded(at=0, config=Config(resources=None)))
    for job in (JobSpec("1"), JobSpec("2"), JobSpec("3", after_any=("1", "2")), JobSpec("4")):
        core.handle(JobSubmitted(at=1, job=job))
    for ended in ("1", "4"):
        core.handle(CancelRequested(at=2, job=ended))
    smaller, forgotten = without(core, ["1", "4"], Plugins())
    smaller.audit()
    assert forgotten == ["4"]
    assert smaller.outcome("4") is None
    assert smaller.outcome("1") == core.outcome("1")
    assert smaller.snapshot().jobs == core.snapshot().jobs
