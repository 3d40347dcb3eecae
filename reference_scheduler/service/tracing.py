"""Tells an OpenTelemetry collector about jobs that have ended: a span for each, and one for each attempt in it.

Needs the extra ``otel``. Where the collector is, and all else, is set by the standard variables ``OTEL_…``.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from reference_scheduler.core.machine import TERMINAL
from reference_scheduler.errors import IsArray, NoSuchJob
from reference_scheduler.observers import Gap
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.views import AttemptView, JobView

UNREAD = 10_000


class Tracing:
    """Follows ``scheduler`` from now on; it loses spans, and says how many, rather than hold anything up."""

    def __init__(self, scheduler: Scheduler, say: Callable[[str], None]) -> None:
        name = os.environ.get("OTEL_SERVICE_NAME", "refsched")
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("reference_scheduler")
        self._scheduler = scheduler
        self._say = say
        self._events = scheduler.observe(UNREAD)

    async def run(self) -> None:
        """Make spans until the scheduler stops."""
        async for event in self._events:
            if isinstance(event, Gap):
                self._say(f"tracing: {event.missed} events came too fast; jobs that ended with them have no spans")
            elif event.what in TERMINAL:
                try:
                    job, attempts = self._scheduler.get(event.job), self._scheduler.attempts(event.job)
                except (NoSuchJob, IsArray):  # the jobs of an array have spans of their own
                    continue
                self._trace(job, attempts)

    def end(self) -> None:
        """Follow no longer; of what has happened by now :meth:`run` still makes spans."""
        self._events.close()

    def close(self) -> None:
        """Send what was not sent yet; that takes as long as a collector that is not there is waited for."""
        self._provider.shutdown()

    def _trace(self, job: JobView, attempts: list[AttemptView]) -> None:
        names = ("id", "kind", "state", "priority", "user", "workspace", "session", "queue", "exit_code")
        attributes: dict[str, str | int] = {}
        for name in names:
            value = getattr(job, name)
            if value is not None and value != "":
                attributes[f"refsched.job.{name}"] = value
        whole = self._tracer.start_span(f"job {job.kind}", attributes=attributes, start_time=1000 * job.submitted_at_us)
        inside = set_span_in_context(whole)
        for attempt in attempts:
            numbers: dict[str, str | int] = {
                "refsched.attempt.number": attempt.number,
                "refsched.attempt.state": str(attempt.state),
            }
            part = self._tracer.start_span(
                f"attempt {job.kind}", inside, attributes=numbers, start_time=1000 * attempt.started_at_us
            )
            part.set_status(_status(attempt.state, attempt.detail))
            part.end(1000 * (attempt.ended_at_us or attempt.started_at_us))
        whole.set_status(_status(job.state, job.state))
        whole.end(1000 * (job.ended_at_us or job.submitted_at_us))


def _status(state: str, detail: str) -> Status:
    return Status(StatusCode.OK) if state == "completed" else Status(StatusCode.ERROR, detail)
