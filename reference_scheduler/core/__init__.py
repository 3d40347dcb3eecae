"""The pure core: events in, decisions out; no clock, no I/O, no randomness, no threads."""

from reference_scheduler.core.core import SchedulerCore
from reference_scheduler.core.invariants import InvariantViolation

__all__ = ["InvariantViolation", "SchedulerCore"]
