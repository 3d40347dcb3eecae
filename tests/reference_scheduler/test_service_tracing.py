"""Spans for OpenTelemetry, as they arrive at a collector."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from service_world import PATIENCE_S, Process, Service

from reference_scheduler.requests import JobRequest

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
OK, ERROR = 1, 2


@pytest.fixture
def collector() -> Iterator[tuple[str, queue.Queue[bytes]]]:
    """Give the address of a collector, and what is sent there."""
    received: queue.Queue[bytes] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf":
                received.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_each_job_that_ended_is_a_span_with_its_attempts_inside(
    tmp_path: Path, collector: tuple[str, queue.Queue[bytes]]
) -> None:
    address, received = collector
    with Service(tmp_path, "--traces", OTEL_EXPORTER_OTLP_ENDPOINT=address) as service, service.client() as client:
        good = client.wait(client.submit(JobRequest(kind="shell", payload={"script": "true"}, queue="q")).id)
        bad = client.wait(client.submit(JobRequest(kind="python", payload={"code": "exit(3)"})).id)
        assert service.stop() == 0
    spans: dict[str, Any] = {}
    resources = set()
    while len(spans) < 4:
        request = trace_service.ExportTraceServiceRequest.FromString(received.get(timeout=PATIENCE_S))
        for group in request.resource_spans:
            resources |= {item.value.string_value for item in group.resource.attributes if item.key == "service.name"}
            for span in group.scope_spans[0].spans:
                spans[span.name] = span
    assert resources == {"refsched"}
    for job, state, status in ((good, "completed", OK), (bad, "failed", ERROR)):
        whole, part = spans[f"job {job.kind}"], spans[f"attempt {job.kind}"]
        attributes = {item.key: item.value.string_value or item.value.int_value for item in whole.attributes}
        assert attributes["refsched.job.id"] == job.id
        assert attributes["refsched.job.state"] == state
        assert attributes.get("refsched.job.queue", "") == job.queue
        assert attributes["refsched.job.exit_code"] == job.exit_code
        assert (whole.status.code, part.status.code) == (status, status)
        assert (part.parent_span_id, part.trace_id) == (whole.span_id, whole.trace_id)
        assert job.ended_at_us is not None
        times = (whole.start_time_unix_nano, whole.end_time_unix_nano)
        assert times == (1000 * job.submitted_at_us, 1000 * job.ended_at_us)
        assert times[0] <= part.start_time_unix_nano <= part.end_time_unix_nano <= times[1]
    assert spans["attempt python"].status.message == "exit status 3"


def test_without_a_collector_jobs_run_and_the_service_stops_all_the_same(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        with Service(tmp_path, "--traces", **variables) as service, service.client() as client:
            job = client.submit(JobRequest(kind="shell", payload={"script": "true"}))
            assert client.wait(job.id).state == "completed"
            assert service.stop() == 0
            assert not [line for line in service.rest() if "Traceback" in line]


def test_without_the_extra_the_option_says_what_to_install(tmp_path: Path) -> None:
    prelude = "import sys; sys.modules['opentelemetry'] = None; "
    with Process(tmp_path, "serve", "--traces", prelude=prelude) as process:
        assert process.rest() == ["error: --traces: needs the extra otel: pip install 'spawngate[otel]'"]
        assert process.wait() == 2
