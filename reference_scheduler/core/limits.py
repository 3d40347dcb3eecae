"""How many jobs may run at once, per user, queue, workspace, session and array; and how many may wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from reference_scheduler.core.invariants import invariant
from reference_scheduler.core.model import (
    Config,
    Job,
    JobSpec,
    JobState,
    PendReason,
    Priority,
    QueueBounds,
    QueueSettings,
    Scope,
)

_ARRAY = "array"


class Limits:
    """Counts live attempts for the scopes that have a limit, and no others."""

    def __init__(self) -> None:
        self._caps: dict[tuple[str, str | None], int] = {}
        self._scopes: tuple[str, ...] = ()
        self._paused: frozenset[str] = frozenset()
        self._running: Counter[tuple[str, str]] = Counter()
        self.active = False
        """Whether anything has a limit or is paused: if not, nothing is ever held."""
        self.has_caps = False
        """Whether anything has a limit: if not, nothing is counted."""

    def configure(
        self,
        config: Config,
        queues: Mapping[str, QueueSettings],
        arrays: Mapping[str, int],
        live: Iterable[Job],
    ) -> None:
        """Take over new limits; ``arrays`` has the cap of each array that has one."""
        caps: dict[tuple[str, str | None], int] = {}
        for limit in config.limits:
            caps[limit.scope, limit.name] = limit.max_running
        for name, settings in queues.items():
            if settings.max_running is not None:
                caps[Scope.QUEUE, name] = settings.max_running
        for name, most in arrays.items():
            caps[_ARRAY, name] = most
        self._caps = caps
        self._scopes = tuple(sorted({scope for scope, _ in caps}))
        self._paused = frozenset(name for name, settings in queues.items() if settings.paused)
        self.has_caps = bool(caps)
        self.active = bool(caps or self._paused)
        self._running = Counter()
        for job in live:
            self.started(job)

    def blocks(self, job: Job) -> tuple[PendReason, str] | None:
        """Return why ``job`` may not start now, with the numbers; ``None`` if no limit holds it."""
        if self._paused and job.spec.queue in self._paused:
            return PendReason.PAUSED, f"queue {job.spec.queue!r} is paused"
        for scope in self._scopes:
            value = _value(scope, job)
            running = self._running[scope, value]
            for name in (value, None):
                most = self._caps.get((scope, name))
                if value and most is not None and running >= most:
                    return PendReason.LIMIT, f"{running} of at most {most} run for {scope} {value!r}"
        return None

    def started(self, job: Job) -> None:
        """Count a new attempt of ``job``."""
        for scope in self._scopes:
            self._running[scope, _value(scope, job)] += 1

    def ended(self, job: Job) -> None:
        """Count the end of the attempt of ``job``."""
        for scope in self._scopes:
            self._running[scope, _value(scope, job)] -= 1

    def audit(self, live: Iterable[Job]) -> None:
        """Recount from the ``live`` jobs and compare."""
        counted = Counter((scope, _value(scope, job)) for job in live for scope in self._scopes)
        invariant(counted == +self._running, "live attempts per scope are miscounted", counted, self._running)


def _value(scope: str, job: Job) -> str:
    return job.array if scope == _ARRAY else str(getattr(job.spec, scope))


def overflow(bounds: QueueBounds, spec: JobSpec, count: int, waiting: int, jobs: Iterable[Job]) -> str | None:
    """Return which bound on waiting jobs ``count`` more like ``spec`` would break.

    ``waiting`` of the ``jobs`` do not run.
    """
    interactive = spec.priority is Priority.INTERACTIVE and bool(spec.session)
    if waiting + count > bounds.max_total:
        return f"{waiting} of at most {bounds.max_total} jobs wait"
    if not interactive and waiting + count <= bounds.max_per_workspace:
        return None  # all that wait may be many, to be gone through for each submission
    idle = [job.spec for job in jobs if job.state is not JobState.RUNNING]
    here = sum(1 for other in idle if other.workspace == spec.workspace)
    if here + count > bounds.max_per_workspace:
        return f"{here} of at most {bounds.max_per_workspace} jobs wait in workspace {spec.workspace!r}"
    mine = sum(1 for other in idle if (other.session, other.priority) == (spec.session, spec.priority))
    if interactive and mine + count > bounds.max_interactive_per_session:
        most = bounds.max_interactive_per_session
        return f"{mine} of at most {most} interactive jobs wait in session {spec.session!r}"
    return None
