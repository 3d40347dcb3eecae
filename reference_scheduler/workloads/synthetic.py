"""Generated workloads: the same options and seed give the same jobs on every platform.

Each property of a job has its own stream of random numbers, keyed by seed and name, so that a change in how
one is drawn leaves the others as they were.
"""

from __future__ import annotations

from math import inf
from random import Random

import msgspec

from reference_scheduler.core.amounts import MAX_QUANTITY, Resources
from reference_scheduler.core.model import MAX_TIME_US, SECOND_US, JobSpec, Priority, ResourceRequest, check_bounds
from reference_scheduler.workloads.model import MACHINE, TimedJob, Workload

_MEMORY_FACTOR = 4
"""The machine has so many times the memory that the largest job may want."""
MAX_JOBS = 10_000_000
"""More would not fit into the memory of most machines: a job takes about a kilobyte."""
_MAX_TIME_S = MAX_TIME_US // SECOND_US


class SyntheticOptions(msgspec.Struct, frozen=True):
    """What to generate.

    ``load`` is the work offered over what the machine can do; above 1 the queue grows without end. Run times
    are between 1 s and ``max_run_s`` with a uniform logarithm; an estimate is up to ``max_overestimate``
    times the run time. A third of the jobs has a width that is no power of two.

    Raises:
        ValueError: a number is not positive, or too large.
    """

    jobs: int
    seed: int = 0
    processors: int = 128
    load: float = 0.7
    max_run_s: int = 36_000
    max_overestimate: int = 5
    workspaces: int = 8
    priorities: tuple[Priority, ...] = (Priority.NORMAL,)
    memory_mb: int = 0

    def __post_init__(self) -> None:
        for name in ("jobs", "processors", "load", "max_run_s", "max_overestimate", "workspaces"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        check_bounds("jobs", self.jobs, 1, MAX_JOBS)
        check_bounds("processors", self.processors, 1, MAX_QUANTITY)
        check_bounds("memory_mb", self.memory_mb, 0, MAX_QUANTITY // _MEMORY_FACTOR)
        check_bounds("max_run_s times max_overestimate", self.max_run_s * self.max_overestimate, 1, _MAX_TIME_S)


def generate(options: SyntheticOptions) -> Workload:
    """Return the workload that ``options`` describes; with ``memory_mb`` > 0 jobs ask for memory as well.

    Raises:
        ValueError: the load is so small that jobs would come later than can be counted.
    """
    streams = {
        name: Random(f"{options.seed}:{name}")
        for name in ("arrival", "width", "run", "estimate", "workspace", "priority", "memory")
    }
    shapes = [_draw_shape(options, streams) for _ in range(options.jobs)]
    work_us = sum(width * run_us for width, run_us in shapes)
    if work_us > MAX_TIME_US * options.processors * options.load:
        raise ValueError(f"load must be larger, got {options.load}: jobs would come over more than {_MAX_TIME_S} s")
    horizon_us = int(work_us / (options.processors * options.load))
    arrivals = sorted(streams["arrival"].randrange(horizon_us + 1) // SECOND_US for _ in range(options.jobs))
    jobs = []
    for number, (submit_s, (width, run_us)) in enumerate(zip(arrivals, shapes, strict=True), 1):
        memory_mb = streams["memory"].randint(1, options.memory_mb) if options.memory_mb else 0
        spec = JobSpec(
            id=str(number),
            priority=streams["priority"].choice(options.priorities),
            workspace=f"w{streams['workspace'].randrange(options.workspaces)}",
            request=ResourceRequest(process_slots=width, memory_mb_hint=memory_mb),
            estimate_us=run_us * streams["estimate"].randint(1, options.max_overestimate),
        )
        jobs.append(TimedJob(submit_s * SECOND_US, run_us, spec))
    machine = Resources(process_slots=options.processors, memory_mb_hint=_MEMORY_FACTOR * options.memory_mb)
    return Workload(((MACHINE, machine),), tuple(jobs))


def _draw_shape(options: SyntheticOptions, streams: dict[str, Random]) -> tuple[int, int]:
    """Return processors and run time of one job."""
    width_bits = streams["width"].randrange(options.processors.bit_length())
    width = 1 << width_bits
    if streams["width"].randrange(3) == 0:
        width = streams["width"].randint(1, width)
    run_bits = streams["run"].randrange(options.max_run_s.bit_length())
    run_s = min(streams["run"].randint(1 << run_bits, (2 << run_bits) - 1), options.max_run_s)
    return width, run_s * SECOND_US
