"""``refsched events`` and ``top``: what happens, as lines and as a live view on a real terminal."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from service_world import PATIENCE_S, Process, Screen, Service, refsched

from reference_scheduler.executors.base import Progress
from reference_scheduler.requests import JobRequest


def shell(script: str, **more: object) -> JobRequest:
    """Return a job that runs a script."""
    return JobRequest(kind="shell", payload={"script": script}, **more)  # type: ignore[arg-type]


def test_events_as_json_begin_with_began_and_end_with_the_scheduler(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client, Process(tmp_path, "events", "--json") as events:
        assert json.loads(events.line()) == {"type": "Began"}
        job = client.submit(shell("true")).id
        client.wait(job)
        service.stop()
        found = [json.loads(line) for line in events.rest()]
        assert [event["what"] for event in found][-1] == "completed"
        assert {event["job"] for event in found} == {job}
        assert [event["number"] for event in found] == sorted(event["number"] for event in found)
        assert events.wait() == 0


def test_events_of_one_job_as_text_until_ctrl_c(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client:
        client.submit(shell("true"))
        job = client.submit(shell("until [ -e go ]; do sleep 0.02; done", workspace=str(tmp_path))).id
        with Process(tmp_path, "events", "--job", job) as events:
            while not client.attempts(job):
                pass
            token = f"{client.attempts(job)[0].generation}:{job}:1"
            while not events.has_more():
                client.progress(token, Progress(0.25, "a quarter", {"done": 1}))
            client.submit(shell("true"))
            (tmp_path / "go").touch()
            lines = iter(events.line, "")
            shown = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  job 2 attempt 1  (.*)", next(lines))
            assert shown
            assert shown[1] in ("progress  25% done=1 a quarter", "stale  progress")
            for line in lines:
                assert "  job 2 " in line
                if line.endswith("completed"):
                    break
            events.send(signal.SIGINT)
            assert (events.rest(), events.wait()) == ([], 130)


def test_top_follows_what_happens_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client:
        screen = Screen(tmp_path, "top")
        screen.until(b"0 running, 0 waiting")
        job = client.submit(shell("until [ -e go ]; do sleep 0.02; done", workspace=str(tmp_path), priority="urgent"))
        screen.until(b"1 running, 0 waiting")
        client.pause()
        client.submit(shell("true", workspace="/\x1b[2J"))
        screen.until("/\ufffd[2J".encode())
        (tmp_path / "go").touch()
        screen.until(b"0 running, 1 waiting, the oldest for ")
        assert client.get(job.id).state == "completed"
        assert b"urgent" in screen.shown
        assert screen.close() == 130
        assert screen.shown.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?1049l" in screen.shown[-60:]
        assert b"Traceback" not in screen.shown


def test_top_ends_with_the_scheduler(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        screen = Screen(tmp_path, "top")
        screen.until(b"0 running, 0 waiting")
        service.stop()
        assert screen.process.wait(PATIENCE_S) == 0
        screen.close()


def test_top_is_for_terminals(tmp_path: Path) -> None:
    with Service(tmp_path):
        message = "error: top needs a terminal; refsched snapshot prints the same once\n"
        assert refsched(tmp_path, "top") == (1, "", message)
