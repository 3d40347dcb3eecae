"""Which executor carries out which kind of job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reference_scheduler.executors.base import Executor, HasHealth, told
from reference_scheduler.executors.managed_argv import ManagedArgvExecutor, PythonPayload, ShellPayload
from reference_scheduler.executors.subagent import SubagentExecutor
from reference_scheduler.executors.test_run import TestRunExecutor
from reference_scheduler.processes.service import ManagedProcessService

EXECUTOR_KINDS: dict[str, str] = {
    "test": "test_run",
    **dict.fromkeys(
        ("build", "lint", "format", "git_read", "git_mutation", "managed_process", "maintenance"), "managed_argv"
    ),
}
"""Kinds of jobs whose executor has another name than they have."""


class ExecutorRegistry:
    """One executor for each kind."""

    def __init__(self, executors: Iterable[Executor] = ()) -> None:
        self._executors: dict[str, Executor] = {}
        for executor in executors:
            self.register(executor)

    def register(self, executor: Executor) -> None:
        """Add an executor; one whose ``kind`` is that of a job takes these jobs over.

        Raises:
            ValueError: there is one of that kind.
        """
        if executor.kind in self._executors:
            raise ValueError(f"an executor of kind {executor.kind!r} is registered already")
        self._executors[executor.kind] = executor

    def executor_kind_for_job(self, kind: str) -> str:
        """Return the kind of the executor for jobs of ``kind``: the only such mapping."""
        return kind if kind in self._executors else EXECUTOR_KINDS.get(kind, kind)

    def of(self, kind: str) -> Executor:
        """Return the executor for jobs of ``kind``.

        Raises:
            KeyError: there is none.
        """
        return self._executors[self.executor_kind_for_job(kind)]

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str) and self.executor_kind_for_job(kind) in self._executors

    def unhealthy(self) -> dict[str, str]:
        """Return, by kind of job, what is wrong with executors that say so."""
        found = {}
        for kind in self.kinds:
            executor = self.of(kind)
            if isinstance(executor, HasHealth) and (problem := _problem(executor)):
                found[kind] = problem
        return found

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of jobs that can be run, sorted."""
        return tuple(sorted(kind for kind in {*self._executors, *EXECUTOR_KINDS} if kind in self))


def _problem(executor: HasHealth) -> str:
    try:
        return executor.health()
    except Exception as error:  # the snapshot has more to tell than this
        return told(error)


def default_registry(
    processes: ManagedProcessService, callables: Mapping[str, Callable[..., Any]] | None = None
) -> ExecutorRegistry:
    """Return executors for all built-in kinds of jobs; that of ``subagent`` calls ``callables``."""
    return ExecutorRegistry(
        (
            ManagedArgvExecutor(processes),
            ManagedArgvExecutor(processes, "shell", ShellPayload),
            ManagedArgvExecutor(processes, "python", PythonPayload),
            TestRunExecutor(processes),
            SubagentExecutor(callables),
        )
    )
