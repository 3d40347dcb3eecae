"""A bounded picture of a running scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from hashlib import blake2b
from operator import attrgetter
from typing import assert_never

from reference_scheduler.config import Settings
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import Job
from reference_scheduler.drivers.attempts import Attempts
from reference_scheduler.drivers.live import LiveDriver
from reference_scheduler.executors import ExecutorRegistry
from reference_scheduler.views import Budget, SchedulerSnapshot

MAX_NAMES = 100
_LABELS = ("priority", "kind", "workspace")
_values = attrgetter(*_LABELS)


class Hold(StrEnum):
    """What keeps all jobs from starting, whatever they are."""

    JOURNAL = "journal"
    DISABLED = "disabled"
    DRAINING = "draining"
    PAUSED = "paused"


def hold_of(driver: LiveDriver, settings: Settings, draining: bool) -> Hold | None:
    """Return what keeps all jobs from starting, ``None`` if nothing does."""
    if driver.unavailable:
        return Hold.JOURNAL
    if not settings.core.enabled:
        return Hold.DISABLED
    if draining:
        return Hold.DRAINING
    return Hold.PAUSED if driver.paused else None


def explained(hold: Hold, driver: LiveDriver) -> str:
    """Return ``hold`` for people, with the numbers of this moment."""
    running = len(driver.core.running())
    waiting = len(driver.core.open_jobs()) - running
    match hold:
        case Hold.JOURNAL:
            return f"the journal cannot be used, so nothing starts ({driver.unavailable})"
        case Hold.DISABLED:
            return "the scheduler is disabled by its configuration"
        case Hold.DRAINING:
            return f"the scheduler drains: {running} run, and {waiting} wait for its next start or refsched resume"
        case Hold.PAUSED:
            return f"the scheduler is paused: {running} run, and {waiting} wait for refsched resume"
    assert_never(hold)


def take_snapshot(
    driver: LiveDriver, attempts: Attempts, settings: Settings, executors: ExecutorRegistry, hold: Hold | None
) -> SchedulerSnapshot:
    """Return the picture of this moment, in which ``hold`` keeps all jobs from starting."""
    core, overflow = driver.core, Counter[str]()
    running = core.running()
    waiting = [job for job in core.open_jobs() if job.attempt is None]
    counts: Counter[str] = Counter(job.spec.kind for job in running)
    reasons = Counter(job.reason for job in waiting)
    return SchedulerSnapshot(
        core.generation,
        settings.rollout,
        settings.core.enabled,
        hold in (None, Hold.PAUSED),
        driver.unavailable,
        Budget(settings.core.resources or Resources(), used(running)),
        _counted(waiting, "queued", overflow),
        _counted(running, "running", overflow),
        dict(overflow),
        {str(reason): count for reason, count in reasons.items() if reason is not None},
        tuple(sorted(hashed(key) for job in running for key in job.keys)),
        {kind: counts[kind] for kind in executors.kinds},
        driver.now_us() - waiting[0].submitted_us if waiting else 0,
        attempts.stale,
        core.counters.clamped,
        {str(reason): count for reason, count in driver.wakes.items()},
        {str(state): count for state, count in driver.ended_jobs.items()},
        executors.unhealthy(),
        hold or "",
    )


def used(running: Iterable[Job]) -> Resources:
    """Return what live attempts hold; it is always counted from them."""
    shares = [share for job in running if job.attempt is not None for _, share in job.attempt.allocation]
    return Resources(*map(sum, zip(*shares, strict=True))) if shares else Resources()


def hashed(key: str) -> str:
    """Return a label for an exclusivity key that does not show it."""
    return blake2b(key.encode(), digest_size=6).hexdigest()


def _counted(jobs: Iterable[Job], what: str, overflow: Counter[str]) -> dict[str, int]:
    """Count ``jobs`` by each label; names beyond the first ``MAX_NAMES`` of a label go to ``overflow``."""
    found: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for values, count in Counter(_values(job.spec) for job in jobs).items():  # of which there are few
        for label, value in zip(_LABELS, values, strict=True):
            name = f"{label}:{value}"
            if name not in found and names[label] >= MAX_NAMES:
                overflow[f"{what}:{label}"] += count
                continue
            if name not in found:
                names[label] += 1
            found[name] += count
    return dict(found)
