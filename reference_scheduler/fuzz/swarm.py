"""What exists in one run: swarm testing.

Each seed draws which kinds of events happen at all. Runs in which everything happens hide what only shows
when something never does. Source: Groce et al., "Swarm testing", ISSTA 2012.
"""

from __future__ import annotations

from random import Random

import msgspec

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import (
    SECOND_US,
    Backoff,
    Config,
    Failure,
    Fairness,
    Idempotency,
    JobSpec,
    Limit,
    Priority,
    QueueBounds,
    ResourceRequest,
    RetryPolicy,
    Scope,
)
from reference_scheduler.core.pickers import PICKERS

FAULTS = (
    "budget",  # the capacity of a worker or the whole configuration changes, also below what is in use
    "cancel",
    "clock",  # the wall clock steps by up to an hour, either way
    "duplicate",  # a report arrives twice
    "fail",
    "late",  # a report arrives long after
    "leave",  # a worker is lost or stops taking work
    "lost",  # a report never arrives
    "pause",  # a queue is paused or limited
    "picker",  # the configuration names another picker or allocator
    "quiet",  # events that no pass follows
    "restart",  # the core is restored from its snapshot and a new generation starts
    "slow_tick",  # ticks come later than they are due
    "stale",  # reports about attempts that are not live, or never were
    "storm",  # many cancellations at one instant
    "update",  # jobs are changed after submission
)
TRAITS = (
    "array",
    "burst",  # many submissions at one instant
    "classes",
    "deadline",
    "delay",  # jobs that may not start before some time
    "dependency",
    "estimate",  # jobs have estimates; what runs longer is not killed
    "gang",
    "keys",
    "limit",
    "preemption",
    "retry",
    "workers",  # more than one
)
NO_ESTIMATE = 0.2


class Swarm(msgspec.Struct, frozen=True):
    """The kinds of events of one run, its configuration and its machine."""

    seed: int
    kinds: frozenset[str]
    config: Config
    workers: tuple[str, ...]

    def has(self, kind: str) -> bool:
        """Return whether ``kind``, one of ``FAULTS`` and ``TRAITS``, exists in this run."""
        return kind in self.kinds


def stream(seed: int, name: str) -> Random:
    """Return the random numbers for one purpose: another purpose never changes them."""
    return Random(f"{seed}:{name}")


def draw_swarm(seed: int) -> Swarm:
    """Return what exists in the run of ``seed``; consecutive seeds take the pickers in turn."""
    draw = stream(seed, "swarm")
    kinds = frozenset(kind for kind in (*FAULTS, *TRAITS) if draw.random() < 0.5)
    workers = ("n0", "n1", "n2")[: draw.randint(2, 3) if "workers" in kinds else 1]
    return Swarm(seed, kinds, draw_config(draw, kinds, list(PICKERS)[seed % len(PICKERS)]), workers)


def draw_config(draw: Random, kinds: frozenset[str], picker: str) -> Config:
    """Return a configuration with ``picker``; small bounds, so that they are met."""
    limits = (Limit(Scope.USER, draw.randint(1, 3), "u1"), Limit(Scope.SESSION, draw.randint(1, 4)))
    return Config(
        resources=Resources(8, 64, 4, 8, 2) if draw.random() < 0.3 else None,
        queue=QueueBounds(60, draw.randint(20, 60), 20, draw.choice((1, 2, 20))),
        fairness=Fairness(8, 4, 2, 1, draw.randint(1, 4), 20 * SECOND_US),
        limits=limits if "limit" in kinds else (),
        picker=picker,
        allocator=draw.choice(("sequential", "parallel")),
        preemption="preemption" in kinds,
    )


def draw_capacity(draw: Random) -> Resources:
    """Return what a worker has; at times nothing of something."""
    return Resources(draw.randint(0, 8), 64, draw.randint(1, 8), 8, draw.randint(0, 2))


def draw_job(draw: Random, swarm: Swarm, name: str, now_us: int) -> JobSpec:
    """Return a job with the traits that exist in ``swarm``."""
    has = swarm.has
    keys = tuple(draw.sample(("a", "b"), draw.randint(0, 2))) if has("keys") else ()
    request = ResourceRequest(draw.randint(0, 2), draw.randint(0, 20), draw.randint(1, 3), 1, 0, keys)
    estimated = has("estimate") and draw.random() > NO_ESTIMATE
    return JobSpec(
        id=name,
        kind=draw.choice(("shell", "build", "subagent")),
        priority=draw.choice(list(Priority)) if has("classes") else Priority.NORMAL,
        user=f"u{draw.randrange(3)}",
        workspace=f"w{draw.randrange(4)}",
        session=f"s{draw.randrange(2)}",
        queue=f"q{draw.randrange(2)}",
        request=None if draw.random() < 0.1 else request,
        tasks=draw.randint(1, 3) if has("gang") else 1,
        estimate_us=draw.choice((0, 1, 2, 5, 30, 60)) * SECOND_US if estimated else None,
        not_before_us=_later(draw, now_us) if has("delay") and draw.random() < 0.2 else 0,
        deadline_us=_later(draw, now_us) if has("deadline") and draw.random() < 0.3 else None,
        preemptible=draw.random() < 0.5,
        idempotency=draw.choice(list(Idempotency)),
        retry=_retry(draw) if has("retry") else RetryPolicy(),
    )


def _later(draw: Random, now_us: int) -> int:
    return max(now_us + draw.randint(-5, 60) * SECOND_US, 0)


def _retry(draw: Random) -> RetryPolicy:
    causes = tuple(draw.sample(list(Failure), draw.randint(0, 4)))
    pause_us = draw.choice((0, 1, SECOND_US))
    return RetryPolicy(
        draw.randint(1, 3),
        draw.randint(0, 2),
        draw.choice(list(Backoff)),
        pause_us,
        10 * SECOND_US,
        100,
        causes,
    )
