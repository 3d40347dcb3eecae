"""What carries out attempts: the seam, the executors that come with the scheduler, and their registry."""

from reference_scheduler.executors.base import (
    AttemptContext,
    AttemptResult,
    Executor,
    Output,
    PermitRequiredError,
    Progress,
    StopReason,
    StopSignal,
    stopped_state,
)
from reference_scheduler.executors.managed_argv import ManagedArgvExecutor
from reference_scheduler.executors.registry import ExecutorRegistry, default_registry
from reference_scheduler.executors.subagent import Call, SubagentExecutor
from reference_scheduler.executors.test_run import TestRunExecutor

__all__ = [
    "AttemptContext",
    "AttemptResult",
    "Call",
    "Executor",
    "ExecutorRegistry",
    "ManagedArgvExecutor",
    "Output",
    "PermitRequiredError",
    "Progress",
    "StopReason",
    "StopSignal",
    "SubagentExecutor",
    "TestRunExecutor",
    "default_registry",
    "stopped_state",
]
