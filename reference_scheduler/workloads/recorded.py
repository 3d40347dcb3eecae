"""What a scheduler recorded, as a workload: the same jobs at the same times, to be scheduled in another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.decisions import Decision, Dispatch, Reject
from reference_scheduler.core.events import (
    ConfigLoaded,
    Event,
    GenerationStarted,
    JobStateChanged,
    JobSubmitted,
    JobUpdated,
    QueueConfigured,
    ResourcesChanged,
    WorkerLost,
    WorkerUpdated,
)
from reference_scheduler.core.machine import ATTEMPT_ENDS
from reference_scheduler.core.model import LOCAL, MAX_TIME_US, RUNNING, Config, JobSpec, task_id
from reference_scheduler.core.snapshot import Snapshot
from reference_scheduler.replay.frames import Condition, FrameReader, ReplayError
from reference_scheduler.replay.records import Entry, State, unpack_record
from reference_scheduler.workloads.model import TimedArray, TimedJob, Workload, WorkloadError


def read_replay(path: Path, processors: int | None = None) -> Workload:
    """Return the jobs that were submitted while the log ``path`` was recorded and came to an end in it.

    A job runs as long as its last attempt did, and is updated when it was; what was paused is. It depends only on
    jobs that are in the workload too. Others that the log mentions are skipped and counted; if these are part of an
    array, its other jobs stand for themselves, without its bound. The machine is that of the log at its end, with
    ``processors`` process slots if they are given.

    Raises:
        WorkloadError: it is no log, is damaged, or cannot be read by this release.
        OSError: it cannot be read.
    """
    jobs = _RecordedJobs()
    with path.open("rb") as stream:
        try:
            reader = FrameReader(stream)
            for frame in reader.frames():
                record = unpack_record(frame)
                if isinstance(record, State):
                    jobs.begin(record.snapshot)
                elif isinstance(record, Entry):
                    jobs.take(record.event, record.decisions)
            if reader.tail.condition is Condition.DAMAGED:
                raise ReplayError(str(reader.tail))
            return jobs.workload(processors, reader.tail.excess)
        except (ReplayError, ValueError) as error:
            raise WorkloadError(f"{path}: {error}") from error


class _Pauses:
    """Finds the spans in which nothing could start: a driver that is not paused makes a pass at each instant."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self._at_us: int | None = None
        self._passed = True
        self._since_us: int | None = None

    def take(self, event: Event) -> None:
        """Take in the next event."""
        if self._at_us is None or event.at > self._at_us:  # for the core time does not go back
            self._end_instant()
            self._at_us, self._passed = event.at, False
        self._passed = self._passed or event.run_pass

    def _end_instant(self) -> None:
        if self._at_us is None:
            return
        if not self._passed:
            self._since_us = self._at_us if self._since_us is None else self._since_us
        elif self._since_us is not None:
            self.spans.append((self._since_us, self._at_us))
            self._since_us = None

    def end(self) -> None:
        """Take in that the log is over, or the scheduler: of a pause that lasts until then nobody can tell the end."""
        self._end_instant()
        self._at_us = self._since_us = None


class _RecordedJobs:
    """Gathers jobs from events and decisions."""

    def __init__(self) -> None:
        self._workers: dict[str, Resources] = {}
        self._submitted: dict[str, tuple[int, JobSpec]] = {}
        self._live: dict[str, tuple[int, int]] = {}
        self._run_us: dict[str, int] = {}
        self._others: set[str] = set()
        self._arrays: dict[str, TimedArray] = {}
        self._updates: list[JobUpdated | QueueConfigured] = []
        self._pauses = _Pauses()
        self._config: Config | None = None
        self._generation = ""
        self._now_us = -MAX_TIME_US
        self._left_out: Counter[str] = Counter()

    def begin(self, snapshot: Snapshot) -> None:
        """Take over what a state says of machine and queues, and which jobs were there before."""
        if self._config is None:
            self._generation = snapshot.generation
            self._left_out["limits of the configuration"] += len(snapshot.config.limits)
            self._updates += [
                QueueConfigured(at=snapshot.now_us, queue=name, paused=queue.paused, max_running=queue.max_running)
                for name, queue in snapshot.queues
            ]
        self._now_us = snapshot.now_us
        self._config = snapshot.config
        self._in_generation(snapshot.generation)
        self._workers.update((worker.name, worker.capacity) for worker in snapshot.workers)
        self._others.update(job.spec.id for job in snapshot.jobs if job.spec.id not in self._submitted)
        live = [(job.spec.id, job.attempt) for job in snapshot.jobs if job.attempt is not None]
        self._live.update((job, (at.number, at.started_us)) for job, at in live if job in self._submitted)

    def _in_generation(self, generation: str) -> None:
        if generation != self._generation:
            self._pauses.end()
            self._generation = generation
            self._left_out["restarts"] += 1

    def take(self, event: Event, decisions: Iterable[Decision]) -> None:
        """Take in an event and what it led to."""
        self._pauses.take(event)
        self._now_us = now_us = max(self._now_us, event.at)  # for the core time does not go back
        refused = any(isinstance(decision, Reject) for decision in decisions)
        if isinstance(event, JobSubmitted):
            if not refused:
                self._submit(event, now_us)
        elif isinstance(event, (JobUpdated, QueueConfigured)):
            if not refused:
                self._updates.append(replace(event, at=now_us))
        elif isinstance(event, JobStateChanged):
            self._changed(event, now_us)
        else:
            self._surroundings(event)
        for decision in decisions:
            if isinstance(decision, Dispatch):
                self._left_out["attempts before the last of a job"] += decision.attempt > 1
                self._live[decision.job] = decision.attempt, now_us
                self._run_us.pop(decision.job, None)

    def _changed(self, event: JobStateChanged, now_us: int) -> None:
        """Take in the end of an attempt; what is told of one that is over counts for nothing."""
        number, started_us = self._live.get(event.job, (0, 0))
        if event.attempt == number and event.old is RUNNING and event.new in ATTEMPT_ENDS:
            self._run_us[event.job] = now_us - started_us
            del self._live[event.job]

    def _submit(self, event: JobSubmitted, now_us: int) -> None:
        """Take in what was accepted."""
        if event.array_size:
            self._arrays[event.job.id] = array = TimedArray(event.job, event.array_size, event.array_running)
            self._submitted.update((name, (now_us, replace(event.job, id=name))) for name in _tasks(array))
        else:
            self._submitted[event.job.id] = now_us, event.job

    def _surroundings(self, event: Event) -> None:
        """Take in what changes the scheduler or its machine; before it is configured that is how it begins."""
        if isinstance(event, WorkerUpdated | ResourcesChanged):
            known = self._workers.setdefault(event.worker, event.capacity)
            self._left_out["changes of the machine"] += known != event.capacity
            self._workers[event.worker] = event.capacity
        elif isinstance(event, WorkerLost):
            self._left_out["changes of the machine"] += 1
        elif isinstance(event, GenerationStarted):
            self._in_generation(event.generation)
        elif isinstance(event, ConfigLoaded):
            configured = self._config is not None and self._config.enabled
            self._left_out["changes of the configuration"] += configured and event.config != self._config
            self._config = event.config
            if event.config.resources is not None:
                self._workers[LOCAL] = event.config.resources

    def workload(self, processors: int | None, unreadable: int) -> Workload:
        """Return what was gathered; after it so many bytes of the log were ``unreadable``."""
        ran = {job for job in self._submitted if job in self._run_us}
        whole = {name: array for name, array in self._arrays.items() if ran.issuperset(_tasks(array))}
        known = ran | whole.keys()
        jobs = [
            TimedJob(at_us, self._run_us[job], _depending_on(known, spec))
            for job, (at_us, spec) in self._submitted.items()
            if job in ran
        ]
        arrays = {name: replace(array, job=_depending_on(known, array.job)) for name, array in whole.items()}
        workers = dict(self._workers)
        if processors is not None and workers:
            first = next(iter(workers))
            workers = {first: workers[first]._replace(process_slots=processors)}
        skipped = len(self._submitted) - len(ran) + len(self._others)
        self._pauses.end()
        self._left_out["jobs that did not run to an end"] += skipped
        self._left_out["bytes of a record that was not written to its end"] += unreadable
        return Workload(
            tuple(workers.items()),
            tuple(jobs),
            skipped,
            tuple(self._updates_of(known)),
            arrays,
            tuple(self._pauses.spans),
            {what: count for what, count in self._left_out.items() if count},
        )

    def _updates_of(self, known: set[str]) -> Iterator[JobUpdated | QueueConfigured]:
        """Yield the updates of queues, and of ``known`` jobs and arrays; of other arrays those of their jobs."""
        specs = {job: spec for job, (_, spec) in self._submitted.items()}
        queues = dict[str, QueueConfigured]()
        for event in self._updates:
            if isinstance(event, QueueConfigured):
                queues[event.queue] = event
                yield event
                continue
            name, values = event.job.id, {field: getattr(event.job, field, None) for field in event.changed}
            if unknown := values.keys() - JobSpec.__struct_fields__:
                raise ValueError(f"an update changes {min(unknown)!r} of job {name!r}, which no job has")
            tasks = [task for task in _tasks(self._arrays[name]) if task in known] if name in self._arrays else []
            specs |= {task: replace(specs[task], **values) for task in tasks} or {name: event.job}
            if name in known:
                yield replace(event, job=_depending_on(known, event.job))
            else:
                yield from (replace(event, job=_depending_on(known, specs[task])) for task in tasks)
        for event in queues.values():
            if (
                event.paused or event.max_running == 0
            ):  # until when nobody can tell, and in another order jobs wait for it
                yield QueueConfigured(at=self._now_us, queue=event.queue, max_running=event.max_running or None)


def _tasks(array: TimedArray) -> list[str]:
    return [task_id(array.job.id, index) for index in range(array.size)]


def _depending_on(known: set[str], spec: JobSpec) -> JobSpec:
    after_ok, after_any = (tuple(job for job in jobs if job in known) for jobs in (spec.after_ok, spec.after_any))
    return replace(spec, after_ok=after_ok, after_any=after_any)
