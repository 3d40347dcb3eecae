"""Generated workloads: the same options and seed give the same jobs on every platform.

Each property of a job has its own stream of random numbers, keyed by seed and name, so that a change in how
one is drawn leaves the others as they were.
"""

from __future__ import annotations

from random import Random

import msgspec

from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import SECOND_US, JobSpec, Priority, ResourceRequest
from reference_scheduler.workloads.model import MACHINE, TimedJob, Workload


class SyntheticOptions(msgspec.Struct, frozen=True):
    """What to generate.

    ``load`` is the work offered over what the machine can do; above 1 the queue grows without end. Run times
    are between 1 s and ``max_run_s`` with a uniform logarithm; an estimate is up to ``max_overestimate``
    times the run time. A third of the jobs has a width that is no power of two.

    Raises:
        ValueError: a number is not positive.
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
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


def generate(options: SyntheticOptions) -> Workload:
    """Return the workload that ``options`` describes; with ``memory_mb`` > 0 jobs ask for memory as well."""
    streams = {
        name: Random(f"{options.seed}:{name}")
        for name in ("arrival", "width", "run", "estimate", "workspace", "priority", "memory")
    }
    shapes = [_draw_shape(options, streams) for _ in range(options.jobs)]
    work_us = sum(width * run_us for width, run_us in shapes)
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
    machine = Resources(process_slots=options.processors, memory_mb_hint=4 * options.memory_mb)
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
