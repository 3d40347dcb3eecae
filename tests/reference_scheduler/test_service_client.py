"""The client: the same calls and the same errors as on a scheduler in the same process."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from service_world import ROOT, Service, environment

from reference_scheduler.core.model import JobState, ResourceRequest
from reference_scheduler.errors import (
    ImpossibleRequest,
    InvalidSubmission,
    NoSuchJob,
    PayloadTooLarge,
    SubmissionKeyConflict,
    UnknownKind,
)
from reference_scheduler.executors.base import Progress
from reference_scheduler.observers import Notice
from reference_scheduler.requests import MAX_PAYLOAD_BYTES, JobRequest
from reference_scheduler.service.client import Client
from reference_scheduler.service.errors import Unreachable, WaitedLongEnough
from reference_scheduler.service.protocol import Began

MANY = "[scheduler.queue]\nmax_total = 100000\nmax_per_workspace = 100000\n"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Service(tmp_path_factory.mktemp("service")) as running, running.client() as connected:
        yield connected
        assert connected.hello().role == "admin"


def shell(script: str, **more: object) -> JobRequest:
    """Return a job that runs a script."""
    return JobRequest(kind="shell", payload={"script": script}, **more)  # type: ignore[arg-type]


def test_errors_have_the_types_that_the_scheduler_raises(client: Client) -> None:
    client.submit(shell("true", key="one"))
    for request, error in (
        (shell("false", key="one"), SubmissionKeyConflict),
        (shell("x" * (MAX_PAYLOAD_BYTES + 1)), PayloadTooLarge),
        (JobRequest(kind="nope"), UnknownKind),
        (JobRequest(kind="shell", payload={"scripts": "true"}), InvalidSubmission),
        (JobRequest(kind="shell", payload={"script": object()}), InvalidSubmission),
        (shell("\ud800"), InvalidSubmission),
        (shell("true", request=ResourceRequest(cpu_weight=1000)), ImpossibleRequest),
    ):
        with pytest.raises(error) as caught:
            client.submit(request)
        with suppress(InvalidSubmission):  # together with others too
            assert [type(outcome) for outcome in client.submit_many([request])] == [error]
        assert type(caught.value) is error
    for ask in (client.get, client.attempts, client.result, client.why, client.cancel, client.wait):
        with pytest.raises(NoSuchJob):
            ask("999999")


def test_the_largest_payload_arrives_whole_in_its_longest_spelling(client: Client) -> None:
    half = "\x01" * ((MAX_PAYLOAD_BYTES - 200) // 2)  # one argument alone must not be that long
    code = "import sys; print(sum(map(len, sys.argv[1:])))"
    job = client.submit(JobRequest(kind="python", payload={"code": code, "argv": [half, half]})).id
    assert client.wait(job).state is JobState.COMPLETED
    result = client.result(job)
    assert result is not None
    assert result.stdout.head == f"{2 * len(half)}\n".encode()


def test_any_number_of_jobs_go_in_requests_that_are_not_too_long(tmp_path: Path) -> None:
    many = [shell(f"true {number}", workspace="/many") for number in range(2500)]
    large = [shell("true # " + "\x01" * 100_000, workspace="/large") for _ in range(5)]
    with Service(tmp_path, config=MANY) as service, service.client() as client:
        client.pause()
        outcomes = client.submit_many([*many, JobRequest(kind="nope"), *large])
        ids = [outcome for outcome in outcomes if isinstance(outcome, str)]
        assert (len(ids), len(set(ids)), type(outcomes[2500])) == (2505, 2505, UnknownKind)
        assert [int(job) for job in ids] == sorted(map(int, ids))
        found: list[str] = []
        while page := client.jobs(workspace="/many", limit=1000, before=found[-1] if found else ""):
            found += [job.id for job in page]
        assert found == ids[:2500][::-1]
        assert client.submit_many([]) == []


def test_a_wait_may_be_bounded(client: Client) -> None:
    job = client.submit(shell("sleep 600")).id
    with pytest.raises(WaitedLongEnough) as caught:
        client.wait(job, timeout_s=0.01)
    assert str(caught.value) == f"job {job} has not ended yet"
    assert client.cancel(job, "enough").id == job
    assert client.wait(job, timeout_s=60).state is JobState.CANCELLED
    assert client.result(job) is not None


def test_sixty_four_threads_with_one_key_make_one_job(client: Client) -> None:
    found: list[str] = []

    def submit() -> None:
        with Client(client.path) as own:
            found.append(own.submit(shell("true", key="same")).id)

    threads = [threading.Thread(target=submit) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (64, 1)


def test_progress_by_token_reaches_observers_and_a_stale_token_nothing(client: Client, tmp_path: Path) -> None:
    with Client(client.path) as observer, Client(client.path) as other:
        job = client.submit(shell("until [ -e go ]; do sleep 0.02; done", workspace=str(tmp_path))).id
        events = observer.events(job)
        assert next(events) == Began()
        while client.get(job).state is not JobState.RUNNING or not client.attempts(job):
            pass
        token = f"{client.attempts(job)[0].generation}:{job}:1"
        progress = Progress(0.5, "half", {"done": 1})
        while not client.progress(token, progress):
            pass  # the job is running, but its work has not begun
        assert client.heartbeat(token) is True
        assert client.get(job).progress == progress
        assert other.heartbeat(f"{'0' * 32}:{job}:1") is False
        assert other.progress(token[:-1] + "2", progress) is False
        (tmp_path / "go").touch()
        client.wait(job)
        assert other.heartbeat(token) is False
        seen: dict[str, list[Notice]] = {}
        for event in events:
            if isinstance(event, Notice):
                assert event.job == job
                seen.setdefault(event.what, []).append(event)
                if event.what == "completed":
                    break
        assert [notice.progress for notice in seen["progress"]] == [progress]
        assert {("heartbeat", 1), ("progress", 2)} <= {(notice.detail, notice.attempt) for notice in seen["stale"]}


def test_a_service_that_hangs_up_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        client = Client(path)
        listening.accept()[0].close()
        with client, pytest.raises(Unreachable) as caught:
            client.hello()
    assert str(caught.value) == f"the scheduler at {path} hung up; what it did not answer may not have happened"


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    text = (Path(ROOT) / "docs" / "service.md").read_text(encoding="utf-8")
    example = text.split("```python\n")[1].split("```")[0]
    with Service(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path)
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "completed\n", "")
