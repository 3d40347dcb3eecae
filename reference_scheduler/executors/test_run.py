"""Attempts that are a run of pytest, with counts and failures from its own report."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any
from xml.etree import ElementTree

import msgspec
from msgspec.structs import replace

from reference_scheduler.core.model import AttemptState, Failure
from reference_scheduler.executors.base import AttemptContext, AttemptResult, Progress
from reference_scheduler.executors.managed_argv import ProcessPayload, attempt_result, read_payload, run_process
from reference_scheduler.processes.service import ManagedProcessService

MAX_REPORT_BYTES = 1 << 26
_CHUNK_BYTES = 1 << 16
MAX_FAILURES = 100
MAX_MESSAGE = 500
USAGE_ERROR = 4
COUNTED = ("tests", "passed", "failed", "errors", "skipped")
OUTCOMES = {"failure": "failed", "error": "errors", "skipped": "skipped"}


class TestPayload(ProcessPayload, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of pytest with ``args``, by the interpreter ``python`` or else the one that runs the scheduler.

    The JUnit report stays at the absolute path ``report``; without one it is deleted when it has been read.
    """

    args: tuple[str, ...] = ()
    python: str = sys.executable
    report: str | None = None

    def __post_init__(self) -> None:
        if self.report is not None and not Path(self.report).is_absolute():
            raise ValueError(f"report: {self.report!r} is not an absolute path")
        super().__post_init__()

    def command(self) -> tuple[str, ...]:
        """Return the argument list."""
        return (self.python, "-m", "pytest", *self.args, f"--junitxml={self.report}")


class Counts(msgspec.Struct, frozen=True):
    """What a report says; ``failures`` has the first few, by name and message."""

    tests: int
    passed: int
    failed: int
    errors: int
    skipped: int
    failures: list[dict[str, str]]


class TestRunExecutor:
    """Runs pytest as a managed process."""

    __test__ = False  # its name is the design's, and no test

    def __init__(self, processes: ManagedProcessService) -> None:
        self.kind = "test_run"
        self._processes = processes

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse what could never run.

        Raises:
            ValueError: the payload is wrong; the message names the key.
        """
        read_payload(TestPayload, payload)

    def health(self) -> str:
        """See :meth:`HasHealth.health`."""
        return self._processes.health()

    async def run(self, context: AttemptContext) -> AttemptResult:
        """Run the tests, then read the report."""
        payload = read_payload(TestPayload, context.payload)
        with tempfile.TemporaryDirectory(prefix="spawngate-") as folder:
            report = Path(payload.report or Path(folder, "report.xml"))
            report.unlink(missing_ok=True)  # what an earlier run left would be taken for this one's
            spec = replace(payload, report=str(report)).spec(context.workspace, context.grace_us)
            result = attempt_result(await run_process(self._processes, spec, context), context.stop.reason)
            if result.exit_code is None or result.state not in (AttemptState.COMPLETED, AttemptState.FAILED):
                return result
            try:
                counts = await asyncio.to_thread(read_report, report)
            except ValueError as error:
                return _without_report(result, str(error))
        context.progress(Progress(1.0, counts={name: getattr(counts, name) for name in COUNTED}))
        values = result.values | msgspec.to_builtins(counts) | ({"report": payload.report} if payload.report else {})
        bad = counts.failed + counts.errors
        detail = f"{bad} of {counts.tests} tests failed" if bad else result.detail
        return replace(result, detail=detail, values=values)


def _without_report(result: AttemptResult, reason: str) -> AttemptResult:
    """A run that reports nothing has shown nothing, whatever its exit status."""
    failure = Failure.VALIDATION if result.exit_code in (0, USAGE_ERROR) else Failure.EXECUTION
    detail = ", ".join(filter(None, (result.detail, reason)))
    return replace(result, state=AttemptState.FAILED, failure=failure, detail=detail)


class _Tally:
    """A target of a parser that keeps no tree: what counts of a report is little, and the rest may be much."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTED, 0)
        self.failures: list[dict[str, str]] = []
        self._depth = 0
        self._case: dict[str, str] = {}
        self._case_depth = -1
        self._outcome: tuple[str, str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Take in the beginning of an element: the first in a test that is an outcome is that of the test."""
        self._depth += 1
        if tag == "testcase":
            self._case, self._case_depth, self._outcome = attributes, self._depth, None
        elif tag in OUTCOMES and self._depth == self._case_depth + 1 and self._outcome is None:
            self._outcome = tag, attributes.get("message", "")[:MAX_MESSAGE]

    def end(self, tag: str) -> None:
        """Take in the end of an element."""
        if self._depth == self._case_depth:
            self._count()
            self._case_depth = -1
        self._depth -= 1

    def _count(self) -> None:
        tag, message = self._outcome or ("", "")
        self.counts["tests"] += 1
        self.counts[OUTCOMES.get(tag, "passed")] += 1
        if tag not in ("", "skipped") and len(self.failures) < MAX_FAILURES:
            name = f"{self._case.get('classname')}::{self._case.get('name')}"
            self.failures.append({"test": name, "message": message})


def read_report(path: Path) -> Counts:
    """Read a JUnit report of any length with bounded memory.

    Raises:
        ValueError: there is none, it is too large, or it is not a report.
    """
    tally = _Tally()
    parser = ElementTree.XMLParser(target=tally)
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):  # a pipe, say, would be waited for without an end
            raise ValueError("the report is no regular file")
        if status.st_size > MAX_REPORT_BYTES:
            raise ValueError(f"the report is larger than {MAX_REPORT_BYTES} bytes")
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                parser.feed(chunk)
        parser.close()
    except OSError as error:
        raise ValueError(f"no report: {error.strerror}") from None
    except ElementTree.ParseError as error:
        raise ValueError(f"the report is not XML: {error}") from None
    return Counts(**tally.counts, failures=tally.failures)
