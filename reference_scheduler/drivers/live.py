"""Drives the core in real time: what comes in is handled, made durable, and only then acted upon.

One coroutine does all of it, so the order of events is the order in the journal:

    mailbox → core.handle → journal.commit (one thread, many events at once) → act → sleep until there is more

An attempt is told to the core as running in the commit that dispatches it: before that is durable there is no
attempt, and after it the work may have begun, whenever the scheduler is killed.

If a commit fails nothing of it happened: the core is made anew from the journal, whoever can be told is told,
and what must not be lost (the ends of attempts) is tried again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from reference_scheduler.clock import Clock, wall_us
from reference_scheduler.config import Settings
from reference_scheduler.core.decisions import Cancel, Decision, Dispatch, Preempt
from reference_scheduler.core.events import ConfigLoaded, Event, GenerationStarted, Tick
from reference_scheduler.core.invariants import InvariantViolation, invariant
from reference_scheduler.core.model import JobState, ResourceRequest, task_id
from reference_scheduler.drivers.attempts import Attempts, LiveAttempt
from reference_scheduler.drivers.intents import Command, Ended, Intent, WakeReason, Wanted
from reference_scheduler.drivers.writer import Begun, Writer
from reference_scheduler.errors import JournalUnavailable, SchedulerError, SchedulerStopping
from reference_scheduler.executors.base import AttemptResult, StopReason
from reference_scheduler.journal.base import Batch, GenerationRow, JobChange, JobRow, Journal, number_of
from reference_scheduler.journal.rows import (
    arrays_ended,
    attempt_begun,
    attempts_interrupted,
    beginnings,
    change_of,
    concerned,
    is_as_new,
)
from reference_scheduler.journal.state import Plugins, core_of, without
from reference_scheduler.observers import Observers
from reference_scheduler.replay import Recorder
from reference_scheduler.replay.records import CHAIN_BYTES, Entry, State
from reference_scheduler.waiting import Waiters

MAX_BATCH = 1000
"""So many intents are handled before the loop turns to others."""
MIN_EVENTS_PER_STATE = 4096
TICK_PAUSE_US = 10_000
"""So long after a tick that led to nothing no other comes: a picker may find something due again at once."""

Step = tuple[Intent | None, tuple[Decision, ...]]
_Item = TypeVar("_Item")


class _Pending(msgspec.Struct):
    """What the core has handled and is not yet durable; it may have changed the jobs of these ``names``."""

    batch: Batch
    steps: list[Step]
    names: list[str]


class LiveDriver:
    """Moves a core, which goes on from what is in ``journal``, through real time.

    While ``paused`` it lets no passes follow, so nothing starts; which events a pass follows is part of what is
    recorded. Call it from the thread of its event loop only.

    Raises:
        JournalError: the journal cannot be gone on from.
    """

    def __init__(
        self, journal: Journal, attempts: Attempts, observers: Observers, settings: Settings, plugins: Plugins
    ) -> None:
        saved = journal.load()
        self.core = core_of(saved, plugins)
        journal.upgrade()
        self.last_job = saved.last_job
        """The number of the newest job that is durable."""
        self.generation = secrets.token_hex(16)
        self.settings = settings
        self.unavailable = ""
        self.wanted_paused = saved.paused
        """Whether an operator paused it under an earlier generation."""
        self.paused = saved.paused or not settings.core.enabled
        self.recorder: Recorder | None = None
        self.wakes: Counter[WakeReason] = Counter()
        self.ended_jobs: Counter[JobState] = Counter()
        self.broken = asyncio.Event()
        self.in_a_hurry = False
        self.gave_up = asyncio.Event()
        """In a hurry, nothing runs any more, and that cannot be written."""
        self._number = saved.number
        self._clock = Clock.resumed(saved, self.core.now_us)
        self._journal = journal
        self._attempts = attempts
        self._observers = observers
        self._plugins = plugins
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(journal)
        self._inbox: deque[Intent] = deque()
        self._held: list[Intent] = []
        self._handled: list[Intent] = []
        self._retry_us = 0
        self._no_tick_before_us = 0
        self._core_is_ahead = False
        self._since_state = 0
        self._waiters = Waiters[None]()
        self._news = asyncio.Event()
        self._stopping = False
        self._over = ""
        self._task: asyncio.Task[None] | None = None

    # From outside.

    def now_us(self) -> int:
        """The scheduler's time."""
        return self._clock.now_us()

    def set_paused(self, paused: bool, wanted: bool | None = None) -> asyncio.Future[None]:
        """Start nothing more, or go on; once the future is done, what was decided before has been started.

        If it is what an operator ``wanted``, that is then durable.
        """
        self.paused = paused
        self._no_tick_before_us = 0
        command = Command(lambda at_us: None if paused else Tick(at=at_us)) if wanted is None else Wanted(wanted)
        self.post(command)
        return command.done

    def post(self, intent: Intent) -> None:
        """Have ``intent`` handled, after all that was posted before; when the driver has ended it is refused."""
        if self._over:
            intent.refused(SchedulerStopping(self._over))
            return
        self._inbox.append(intent)
        self._wake(intent.wake)

    def post_end(self, live: LiveAttempt, result: AttemptResult) -> None:
        """Have the end of an attempt handled."""
        self.post(Ended(live, result, self._attempts.gone))

    def is_open(self, job: str) -> bool:
        """Return whether ``job`` is durable and has not ended; if not, what is durable is known to the journal only."""
        return self.core.job(job) is not None and number_of(job) <= self.last_job

    def ended(self, job: str) -> asyncio.Future[None]:
        """Return a future that is done when ``job``, which has not ended, has durably ended."""
        future = self._waiters.wait_for(job)
        if self._over:
            future.set_exception(SchedulerStopping(self._over))
        return future

    async def start(self) -> None:
        """Make a new generation durable, start what waits, and go on by itself.

        Raises:
            JournalUnavailable: it could not be written.
        """
        now_us = self.now_us()
        loaded = ConfigLoaded(at=now_us, run_pass=False, config=self.settings.core)
        started = GenerationStarted(at=now_us, run_pass=False, generation=self.generation)
        pending = self._handle([(None, loaded), (None, started)])
        await self._add_changes(pending)
        pending.batch.generation = GenerationRow(
            self.generation, pending.batch.wall_us, self._clock.boot, self._clock.offset_us
        )
        pending.batch.state = State(self._number, self.core.snapshot())
        self._writer.start()
        try:
            begun = await self._writer.commit(pending.batch)
        except BaseException:
            self._writer.close()
            raise
        await self._act(pending, begun)
        self._task = self._loop.create_task(self._run(), name="scheduler")
        self._task.add_done_callback(self._end)

    async def stop(self) -> None:
        """Handle what was posted, write the last state, and end.

        Raises:
            Exception: what the loop broke off with.
        """
        self._stopping = True
        self._wake(WakeReason.MANUAL)
        try:
            if self._task is not None:
                await self._task
        finally:
            self._writer.close()

    async def finished(self) -> None:
        """Return once it has stopped, or raise what made it break off."""
        if self._task is not None:
            await asyncio.shield(self._task)

    # The loop.

    async def _run(self) -> None:
        while True:
            pending = self._take()
            if pending is not None:
                await self._add_changes(pending)
                await self._commit(pending)
                await asyncio.sleep(0)  # what came in meanwhile is to be in the next commit, and not the one after
            elif self._stopping:
                await self._write_last_state()
                return
            else:
                await self._sleep()

    def _take(self) -> _Pending | None:
        """Let the core handle what has come in, or what is due."""
        now_us = self._clock.now_us()
        if self.unavailable and now_us < self._retry_us and not self._stopping:
            return None
        if self._core_is_ahead and not self._rebuild():
            return None
        self.unavailable = ""
        intents, self._held = self._held, []
        while self._inbox and len(intents) < MAX_BATCH:
            intents.append(self._inbox.popleft())
        self._handled = intents
        chosen: list[tuple[Intent | None, Event]] = []
        for intent in intents:
            try:
                event = intent.event(now_us)
            except SchedulerError as error:
                intent.refused(error)
                continue
            if event is not None:
                chosen.append((intent, event))
        if not chosen and self._is_due(now_us):
            chosen.append((None, Tick(at=now_us)))
            if self.paused:  # what is due may stay so without a pass
                self._no_tick_before_us = now_us + self.settings.reconcile_interval_us
        return self._handle(chosen) if chosen else None

    def _is_due(self, now_us: int) -> bool:
        due_us = self.core.next_due()
        return due_us is not None and max(due_us, self._no_tick_before_us) <= now_us

    def _handle(self, chosen: list[tuple[Intent | None, Event]]) -> _Pending:
        """Let the core handle the ``chosen`` events, with one pass after the last unless nothing is to start."""
        core, batch, steps = self.core, Batch(wall_us()), list[Step]()
        names: list[str] = []
        chosen[-1] = (chosen[-1][0], replace(chosen[-1][1], run_pass=not self.paused))
        for intent, event in chosen:
            cut_short = attempts_interrupted(core, event, batch.wall_us)
            names += concerned(core, event)
            decisions = self._tell_core(event, batch)
            names += core.released
            if intent is not None:
                intent.add_rows(batch, decisions)
            if cut_short:
                batch.attempts += cut_short
                names += [row.job for row in cut_short]
            if decisions:
                names += [decision.job for decision in decisions]
                for begun in beginnings(event.at, decisions):
                    self._tell_core(begun, batch)
                    batch.attempts.append(attempt_begun(begun, self.generation, batch.wall_us))
            steps.append((intent, decisions))
        if isinstance(chosen[0][1], Tick) and not names and not self.paused:
            self._no_tick_before_us = chosen[0][1].at + TICK_PAUSE_US
        return _Pending(batch, steps, list(dict.fromkeys(names)))

    async def _add_changes(self, pending: _Pending) -> None:
        """Add to the batch what the jobs that may have changed, and arrays with them, have come to."""
        core, batch = self.core, pending.batch
        new = {row.job: index for index, row in enumerate(batch.jobs)}
        arrays = {row.job for row in batch.jobs if row.is_array}
        ended = dict[str, JobChange]()
        async for names in _in_parts(pending.names):
            found = (change_of(core, name, batch.wall_us) for name in names)
            changes = [change for change in found if change is not None and not is_as_new(change, arrays)]
            self._add(batch, new, changes)
            ended |= {change.job: change for change in arrays_ended(core, names, batch.wall_us)}
        self._add(batch, new, ended.values())
        self._since_state += len(batch.entries)
        if self._since_state >= max(MIN_EVENTS_PER_STATE, core.size):
            self._add_state(batch)

    def _add(self, batch: Batch, new: Mapping[str, int], changes: Iterable[JobChange]) -> None:
        """Add ``changes`` to ``batch``, in which the rows of ``new`` jobs have these places."""
        for change in changes:
            if change.job in new:
                index, attempts = new[change.job], change.attempts or 0
                row = batch.jobs[index]
                batch.jobs[index] = replace(row, state=change.state, attempts=attempts, ended_us=change.ended_us)
            else:
                batch.changes.append(change)

    def _tell_core(self, event: Event, batch: Batch) -> tuple[Decision, ...]:
        core = self.core
        decisions = core.handle(event)
        self._number += 1
        batch.entries.append(Entry(self._number, core.chain[:CHAIN_BYTES], event, decisions))
        if self.recorder is not None:
            self.recorder(event, decisions)
        return decisions

    def _add_state(self, batch: Batch) -> None:
        """Have the whole state written with ``batch``, without most of what ended long ago."""
        rows: list[JobRow | JobChange] = [*batch.jobs, *batch.changes]
        just_now = {row.job for row in rows if row.ended_us is not None}
        ended = [job for job in self.core.ended() if job not in just_now]
        ended = ended[: max(0, len(ended) - self.settings.keep_ended)]
        if len(ended) > self.settings.keep_ended // 4:
            self.core, batch.forget = without(self.core, ended, self._plugins)
            if self.recorder is not None:
                self.recorder.follow(self.core)
        batch.state = State(self._number, self.core.snapshot())
        self._since_state = 0

    async def _commit(self, pending: _Pending) -> None:
        try:
            begun = await self._writer.commit(pending.batch)
        except JournalUnavailable as error:
            self._undo(pending, error)
        else:
            await self._act(pending, begun)
        self._handled = []

    async def _write_last_state(self) -> None:
        if self._core_is_ahead:
            return  # the log is all there is
        batch = Batch(wall_us(), state=State(self._number, self.core.snapshot()))
        try:
            await self._writer.commit(batch)
        except JournalUnavailable:
            return  # the next start reads the log instead, which has the same

    # When nothing can be written.

    def _undo(self, pending: _Pending, error: JournalUnavailable) -> None:
        """Let nothing of ``pending`` have happened."""
        if not self.unavailable:
            self._observers.tell(wall_us(), "journal", detail=str(error))
        self._try_later(error)
        self._core_is_ahead = True
        for intent, _ in pending.steps:
            if intent is not None and intent.refused(error) and not self._stopping:
                self._held.append(intent)

    def _try_later(self, error: JournalUnavailable) -> None:
        self.unavailable = str(error)
        self._retry_us = self._clock.now_us() + self.settings.reconcile_interval_us
        if self.in_a_hurry and self._attempts.all_over:
            self.gave_up.set()

    def _rebuild(self) -> bool:
        """Make the core anew from what is durable; return whether that could be read."""
        try:
            saved = self._journal.load()
        except JournalUnavailable as error:
            self._try_later(error)
            return False
        self.core, self._number = core_of(saved, self._plugins), saved.number
        self._core_is_ahead = False
        if self.recorder is not None:
            self.recorder.follow(self.core)
        return True

    # Acting on what is durable.

    async def _act(self, pending: _Pending, begun: Begun) -> None:
        batch = pending.batch
        for intent, decisions in pending.steps:
            if intent is None and any(isinstance(decision, Dispatch) for decision in decisions):
                self.wakes[WakeReason.SCHEDULE_CLAIMED] += 1
            async for part in _in_parts(decisions):
                for decision in part:
                    self._carry_out(decision, begun)
        for intent, decisions in pending.steps:
            if intent is not None:
                intent.durable(decisions)
        if batch.jobs:
            self.last_job = batch.jobs[-1].last_number
        for row in batch.jobs:
            self._tell(row, batch.wall_us)
            if row.is_array and self._observers:
                async for indices in _in_parts(range(row.array_size)):
                    for index in indices:
                        self._observers.tell(batch.wall_us, JobState.QUEUED, task_id(row.job, index))
        async for changes in _in_parts(batch.changes):
            for change in changes:
                self._tell(change, batch.wall_us)

    def _tell(self, row: JobRow | JobChange, wall_us: int) -> None:
        """Tell everybody what is durable about a job."""
        if row.ended_us is not None:
            self.ended_jobs[row.state] += not row.is_array
            self._attempts.forget_caller(row.job)
            self._waiters.tell(row.job, None)
        if self._observers:
            self._observers.tell(wall_us, row.state, row.job, row.attempts or 0)

    def _carry_out(self, decision: Decision, begun: Begun) -> None:
        if isinstance(decision, Dispatch):
            live = LiveAttempt(decision.job, decision.attempt, self.generation, self._request(decision.job))
            self._attempts.launch(live, begun[decision.job])
        elif isinstance(decision, Cancel):
            self._attempts.stop(decision.job, decision.attempt, StopReason.CANCELLED)
        elif isinstance(decision, Preempt):
            for victim in decision.victims:
                self._attempts.stop(victim.job, victim.attempt, StopReason.PREEMPTED)

    def _request(self, name: str) -> ResourceRequest:
        job = self.core.job(name)
        if job is None:
            raise InvariantViolation(f"a job that was dispatched is gone: {name!r}")
        return job.spec.effective_request

    # Sleeping.

    async def _sleep(self) -> None:
        """Wait until something is posted, due, or to be looked at again; an idle scheduler is not woken."""
        self._news.clear()
        if self._inbox and not self.unavailable:
            return
        now_us = self._clock.now_us()
        wakes = []
        due_us = self.core.next_due()
        if self.unavailable:
            wakes.append((self._retry_us, WakeReason.RETRY_REQUESTED))
        elif due_us is not None:
            wakes.append((max(due_us, self._no_tick_before_us), WakeReason.SCHEDULE_TICK))
        if not self._attempts.none_left.is_set():
            wakes.append((now_us + self.settings.reconcile_interval_us, WakeReason.RECONCILED))
        timer = None
        if wakes:
            at_us, reason = min(wakes)
            timer = self._loop.call_later(max(0, at_us - now_us) / 1e6, self._wake, reason)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._reconcile()

    def _wake(self, reason: WakeReason) -> None:
        self.wakes[reason] += 1
        self._news.set()

    def _reconcile(self) -> None:
        """Compare what runs with what the core holds to be running, and look after leases."""
        self._attempts.expire_leases()
        if self._core_is_ahead or self._inbox:
            return
        held, live = {(job.spec.id, job.attempts) for job in self.core.running()}, self._attempts.tokens()
        invariant(held == live, "attempts and permits differ", held, live)

    def _end(self, task: asyncio.Task[None]) -> None:
        """Tell all who wait that nothing more will come, and whoever runs to stop if this was not wanted."""
        error = None if task.cancelled() else task.exception()
        self._over = "the scheduler has stopped"
        if error is not None:
            self._over = f"the scheduler broke off: {type(error).__name__}: {error}"
            self.broken.set()
            self._attempts.stop_all()
        for intent in (*self._handled, *self._held, *self._inbox):
            intent.refused(SchedulerStopping(self._over))
        self._waiters.refuse(SchedulerStopping(self._over))


async def _in_parts(items: Sequence[_Item]) -> AsyncGenerator[Sequence[_Item], None]:
    """Yield ``items`` in parts, between which others have their turn: those of an array may be very many."""
    for begin in range(0, len(items), MAX_BATCH):
        if begin:
            await asyncio.sleep(0)
        yield items[begin : begin + MAX_BATCH]
