"""The commands about jobs and about the scheduler: what they print, and how they fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from service_world import COMMAND, ROOT, SCREEN_COLUMNS, Process, Screen, Service, environment
from service_world import refsched_here as refsched

from reference_scheduler.cli import main
from reference_scheduler.core.model import ResourceRequest
from reference_scheduler.executors.base import Progress
from reference_scheduler.journal.check import check_journal
from reference_scheduler.journal.state import Plugins
from reference_scheduler.requests import JobRequest

CONFIG = "[scheduler.resources]\nmax_process_slots = 1\n[scheduler.queue]\nmax_total = 3\nclaim_batch = 1\n"
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, config=CONFIG) as running:
        yield running


def test_the_life_of_a_job_as_text(service: Service, tmp_path: Path) -> None:
    assert refsched(tmp_path, "submit", "--", "sh", "-c", "echo hello; exit 4") == (0, "1\n", "")
    assert refsched(tmp_path, "wait", "1") == (1, "1  failed, exit status 4\n", "")
    code, out, _ = refsched(tmp_path, "get", "1")
    fields = dict(re.split(r"  +", line) for line in out.splitlines()[:-1])
    assert (code, fields["state"], fields["exit code"], fields["workspace"]) == (0, "failed", "4", str(tmp_path))
    assert TIME.fullmatch(fields["submitted at"])
    assert out.splitlines()[-1] == "Job 1 is failed; attempt 1: exit status 4."
    assert refsched(tmp_path, "get", "1", "--output") == (0, "hello\n", "")
    code, out, _ = refsched(tmp_path, "list")
    head, row = (re.split(r"  +", line) for line in out.splitlines())
    names = "ID,STATE,KIND,PRIORITY,SUBMITTED,TOOK,TRIES,EXIT,WAITS FOR,WORKSPACE,COMMAND"
    assert head == names.split(",")
    command = "sh -c 'echo hello; exit 4'"
    assert (row[:4], row[7:]) == (["1", "failed", "managed_process", "normal"], ["4", str(tmp_path), command])
    assert fields["command"] == command
    code, out, _ = refsched(tmp_path, "attempts", "1")
    head, row = (re.split(r"  +", line) for line in out.splitlines())
    assert head[:2] == ["NUMBER", "STATE"]
    assert (row[:2], row[-1]) == (["1", "failed"], "exit status 4")


def test_a_running_job_shows_its_progress(service: Service, tmp_path: Path) -> None:
    with service.client() as client:
        job = client.submit(JobRequest(kind="shell", payload={"script": "sleep 600"})).id
        while not (attempts := client.attempts(job)):
            pass
        while not client.progress(f"{attempts[0].generation}:{job}:1", Progress(0.5, "half", {"done": 1})):
            pass  # its work has not begun
        out = refsched(tmp_path, "get", job)[1]
        assert re.search(r"^progress +50% done=1 half$", out, re.MULTILINE)
        assert "observed" not in out
        client.cancel(job)


def test_the_life_of_a_job_as_json(service: Service, tmp_path: Path) -> None:
    code, out, _ = refsched(tmp_path, "submit", "--json", "--priority", "urgent", "--key", "k", "true")
    assert (code, json.loads(out)["id"], json.loads(out)["priority"]) == (0, "1", "urgent")
    assert refsched(tmp_path, "submit", "--priority", "urgent", "--key", "k", "true") == (0, "1\n", "")
    assert json.loads(refsched(tmp_path, "wait", "--json", "1")[1])["state"] == "completed"
    assert json.loads(refsched(tmp_path, "get", "1", "--json")[1])["key"] == "k"
    assert json.loads(refsched(tmp_path, "get", "1", "--json", "--output")[1])["exit_code"] == 0
    assert [job["id"] for job in json.loads(refsched(tmp_path, "list", "--json")[1])] == ["1"]
    assert [attempt["number"] for attempt in json.loads(refsched(tmp_path, "attempts", "--json", "1")[1])] == [1]
    assert json.loads(refsched(tmp_path, "snapshot", "--json")[1])["budget"]["capacity"][2] == 1
    assert json.loads(refsched(tmp_path, "record", "status", "--json")[1])["active"] is False


def test_a_job_is_shown_with_what_it_runs_and_whole_to_programs(service: Service, tmp_path: Path) -> None:
    assert refsched(tmp_path, "submit", "--env", "A=1", "printf", "%s", "a b")[0] == 0
    payload = {"argv": ["printf", "%s", "a b"], "cwd": str(tmp_path), "env": {"A": "1"}}
    found = json.loads(refsched(tmp_path, "get", "--json", "1")[1])
    assert (found["command"], found["payload"]) == ("printf %s 'a b'", payload)
    (listed,) = json.loads(refsched(tmp_path, "list", "--json")[1])
    assert (listed["command"], "payload" in listed) == ("printf %s 'a b'", False)
    large = {"argv": ["echo", "x" * 20_000]}
    with service.client() as client:
        job = client.submit(JobRequest(kind="managed_process", payload=large)).id
        assert (client.jobs()[0].command, client.get(job).payload) == ("…", large)  # a thousand of these are too many
        assert client.get(job).command == f"echo {'x' * 250}…"


def test_on_a_terminal_the_command_is_cut_to_its_line(service: Service, tmp_path: Path) -> None:
    assert refsched(tmp_path, "submit", "--workspace", "/w", "echo", "x" * 240)[0] == 0
    for arguments in (("list",), ("get", "1")):
        screen = Screen(tmp_path, *arguments)
        line = next(line for line in screen.rest().splitlines() if "echo xxx" in line)
        assert (len(line), line[-2:]) == (SCREEN_COLUMNS, "x…")


def test_a_job_took_as_long_as_its_latest_attempt(service: Service, tmp_path: Path) -> None:
    with service.client() as client:
        client.pause()
        job = client.submit(JobRequest(kind="shell", payload={"script": "true"})).id
        assert client.get(job).started_at_us is None
        client.resume()
        client.wait(job)
        (attempt,), view, (listed,) = client.attempts(job), client.get(job), client.jobs()
        assert attempt.ended_at_us is not None
        assert view.took_us == listed.took_us == attempt.ended_at_us - attempt.started_at_us
        assert view.started_at_us == listed.started_at_us == attempt.started_at_us > view.submitted_at_us


def test_many_jobs_from_a_file_each_accepted_or_refused(service: Service, tmp_path: Path) -> None:
    line = json.dumps({"kind": "shell", "payload": {"script": "sleep 600"}}).encode()
    code, out, error = refsched(tmp_path, "submit", "--from", "-", stdin=b"\n\n".join([line] * 3))
    assert (code, out, error) == (0, "1\n2\n3\n", "")
    (tmp_path / "jobs").write_bytes(b"\n".join([line] * 2))
    code, out, error = refsched(tmp_path, "submit", "--from", "jobs")
    assert (code, out.splitlines()[0]) == (1, "4")
    assert re.fullmatch("jobs:2: queue_full: .*3.*", out.splitlines()[1])
    assert error == "error: 1 of 2 jobs were refused, the others are submitted\n"
    code, out, _ = refsched(tmp_path, "submit", "--json", "--from", "jobs")
    assert (code, [json.loads(line)["error"]["code"] for line in out.splitlines()]) == (1, ["queue_full"] * 2)
    assert refsched(tmp_path, "submit", "--from", "jobs", "true")[0] == 2
    assert refsched(tmp_path, "cancel", "--reason", "enough", "4", "3", "2", "1")[0] == 0
    assert refsched(tmp_path, "wait", "1", "2", "3") == (1, "1  cancelled\n2  cancelled\n3  cancelled\n", "")


def test_a_file_with_wrong_jobs_submits_none_and_all_that_are_wrong_are_told(service: Service, tmp_path: Path) -> None:
    lines = [
        b'{"kind":"shell","payload":{"script":"true"}}',
        b'{"kind":',
        b'{"kind":"nope"}',
        b"",
        b'{"kind":"shell","prio":"normal"}',
        b'{"kind":"shell","payload":{"scrip":"true"}}',
        b"\xff",
    ]
    (tmp_path / "jobs").write_bytes(b"\n".join(lines))
    code, out, error = refsched(tmp_path, "submit", "--from", "jobs")
    *told, last = error.splitlines()
    assert (code, out, last) == (2, "", "error: 5 of 6 jobs are wrong; nothing was submitted")
    for found, expected in zip(
        told,
        (
            "error: jobs:2: Input data was truncated",
            "error: jobs:3: kind must be one of build, ",
            "error: jobs:5: Object contains unknown field `prio`",
            "error: jobs:6: payload: Object ",
            "error: jobs:7: ",
        ),
        strict=True,
    ):
        assert found.startswith(expected)
    many = b'{"kind":"nope"}\n' * 1500
    code, out, error = refsched(tmp_path, "submit", "--from", "-", stdin=lines[0] + b"\n" + many)
    last = "error: 1500 of 1501 jobs are wrong, of which the first 20 are told here; nothing was submitted"
    assert (code, out, len(error.splitlines()), error.splitlines()[-1]) == (2, "", 21, last)
    assert refsched(tmp_path, "list") == (0, "", "")


def test_a_job_with_another_priority_starts_before_those_it_was_behind(service: Service, tmp_path: Path) -> None:
    with service.client() as client:
        client.pause()
        for _ in range(3):
            assert refsched(tmp_path, "submit", "--key", "", "--", "sh", "-c", "echo $SPAWNGATE_JOB >> order")[0] == 0
        assert refsched(tmp_path, "update", "3", "2", "--priority", "urgent") == (0, "3  urgent\n2  urgent\n", "")
        assert json.loads(refsched(tmp_path, "update", "2", "--json", "--priority", "maintenance")[1])["id"] == "2"
        assert [job.priority for job in client.jobs()] == ["urgent", "maintenance", "normal"]
        service.stop()
    with Service(tmp_path, "--config", "scheduler.toml") as again, again.client() as client:
        client.resume()
        for job in ("1", "2", "3"):
            client.wait(job)
        assert (tmp_path / "order").read_text().split() == ["3", "1", "2"]
    assert check_journal(tmp_path / ".local/state/spawngate/journal.db", Plugins()).problems == ()


def test_of_a_job_that_has_ended_the_priority_stays(service: Service, tmp_path: Path) -> None:
    assert refsched(tmp_path, "run", "true")[0] == 0
    ended = "error: job 1 has ended, and keeps its priority\n"
    assert refsched(tmp_path, "update", "1", "--priority", "urgent") == (1, "", ended)
    assert refsched(tmp_path, "update", "9", "--priority", "urgent")[0] == 1
    assert refsched(tmp_path, "update", "1")[0] == 2


def test_what_is_refused_of_one_job_does_not_keep_a_command_from_the_others(service: Service, tmp_path: Path) -> None:
    missing = "error: there is no job '{0}', or it ended long ago and was forgotten\n"
    assert refsched(tmp_path, "pause") == (0, "", "")
    for number in ("1", "2", "3"):
        assert refsched(tmp_path, "submit", "true") == (0, f"{number}\n", "")
    assert refsched(tmp_path, "cancel", "8", "1", "9") == (1, "1  cancelled\n", missing.format(8) + missing.format(9))
    ended = "error: job 1 has ended, and keeps its priority\n"
    assert refsched(tmp_path, "update", "--priority", "urgent", "1", "2") == (1, "2  urgent\n", ended)
    assert refsched(tmp_path, "resume") == (0, "", "")
    told = "2  completed, exit status 0\n3  completed, exit status 0\n"
    assert refsched(tmp_path, "wait", "2", "9", "3") == (1, told, missing.format(9))
    assert refsched(tmp_path, "wait", "2", "3") == (0, told, "")


def test_lists_are_chosen_and_continued(service: Service, tmp_path: Path) -> None:
    with service.client() as client:
        client.pause()
        for kind in ("shell", "python", "shell"):
            payload = {"script": "true"} if kind == "shell" else {"code": "1"}
            client.submit(JobRequest(kind=kind, payload=payload, workspace=f"/{kind}"))
    for arguments, expected in (
        ([], ["3", "2", "1"]),
        (["--kind", "shell"], ["3", "1"]),
        (["--workspace", "/python"], ["2"]),
        (["--limit", "1"], ["3"]),
        (["--before", "3"], ["2", "1"]),
        (["--state", "queued", "--state", "running"], ["3", "2", "1"]),
        (["--state", "completed"], []),
    ):
        found = json.loads(refsched(tmp_path, "list", "--json", *arguments)[1])
        assert ([job["id"] for job in found], arguments) == (expected, arguments)
    assert refsched(tmp_path, "list", "--state", "completed") == (0, "", "")


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e30", "-1"])
def test_a_length_of_time_is_one(tmp_path: Path, seconds: str) -> None:
    for arguments in (("submit", "--timeout", seconds, "true"), ("wait", "--timeout", seconds, "1")):
        status, out, err = refsched(tmp_path, *arguments)
        assert (status, out, err.startswith("error: Invalid value for '--timeout': ")) == (2, "", True)
        assert err.endswith(f"; see refsched {arguments[0]} --help\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command; see refsched --help"),
        (["record"], "Missing command; see refsched record --help"),
        (["journal", "check"], "Missing argument 'FILE'; see refsched journal check --help"),
        (["wait"], "Missing argument 'ID...'; see refsched wait --help"),
        (["submit", "--priority", "\x1b[2J\n", "true"], None),
        (["simulate", "--seed", "1"], None),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_the_usage_is(
    tmp_path: Path, arguments: list[str], message: str | None
) -> None:
    status, out, err = refsched(tmp_path, *arguments)
    assert (status, out, err.count("\n"), "\x1b" in err) == (2, "", 1, False)
    assert message is None or err == f"error: {message}\n"


def test_ctrl_c_during_the_imports_and_a_full_output_end_it_without_a_traceback(tmp_path: Path) -> None:
    find = "lambda name, *_: os.kill(os.getpid(), signal.SIGINT) if name == 'click' else None"
    prelude = f"import os, signal, sys; sys.meta_path.insert(0, type('F', (), dict(find_spec=staticmethod({find}))));"
    with Process(tmp_path, "list", prelude=prelude) as process:
        assert (process.rest(), process.wait()) == ([], 130)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "simulate", "synthetic:jobs=3"], stdout=full, stderr=subprocess.PIPE, env=environment(tmp_path)
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == b"error: cannot write the output: No space left on device"


def unread(folder: Path, *arguments: str, stderr: int = subprocess.PIPE) -> tuple[int, bytes]:
    """Run a command whose output, or with ``STDOUT`` errors too, nobody reads; return exit status and errors."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, *arguments], stdout=writing, stderr=stderr, cwd=folder, env=environment(folder))
    os.close(writing)
    return done.returncode, done.stderr or b""


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "get 1",
        "get --output 1",
        "get --json 1",
        "logs 1",
        "logs --follow 1",
        "logs --json 1",
        "attempts 1",
        "wait 1",
        "submit true",
        "cancel 1",
        "snapshot",
        "metrics",
        "events --json",
        "record status",
        "journal check .local/state/spawngate/journal.db",
        "fuzz --events 1",
        "--help",
        "list --help",
    ],
)
def test_a_command_whose_reader_has_read_enough_ends_as_by_a_broken_pipe(unread_service: Path, command: str) -> None:
    assert unread(unread_service, *command.split()) == (141, b"")
    assert unread(unread_service, *command.split(), stderr=subprocess.STDOUT) == (141, b"")


@pytest.fixture(scope="module")
def unread_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the folder of a service that has run a job."""
    folder = tmp_path_factory.mktemp("unread")
    with Service(folder) as service, service.client() as client:
        client.wait(client.submit(JobRequest(kind="shell", payload={"script": "echo text"})).id)
        yield folder


def test_an_error_that_nobody_reads_keeps_its_exit_status(tmp_path: Path) -> None:
    assert unread(tmp_path, "list", stderr=subprocess.STDOUT) == (3, b"")
    assert unread(tmp_path, "list", "--wrong", stderr=subprocess.STDOUT) == (2, b"")


def test_a_defect_is_one_line_and_a_traceback_for_who_wants_it(tmp_path: Path) -> None:
    prelude = "import reference_scheduler.cli as cli; cli.main.commands['list'].callback = lambda **_: 1 // 0;"
    told = "error: internal error: ZeroDivisionError: integer division or modulo by zero; please report it "
    with Process(tmp_path, "list", prelude=prelude) as process:
        assert (process.rest(), process.wait()) == ([told + "(SPAWNGATE_DEBUG=1 shows the traceback)"], 2)
    with Process(tmp_path, "list", prelude=prelude, SPAWNGATE_DEBUG="1") as process:
        assert process.rest()[-1] == "ZeroDivisionError: integer division or modulo by zero"


def test_operating_the_scheduler(service: Service, tmp_path: Path) -> None:
    assert refsched(tmp_path, "pause") == (0, "", "")
    assert refsched(tmp_path, "submit", "true") == (0, "1\n", "")
    assert refsched(tmp_path, "wait", "--timeout", "0", "1") == (3, "", "error: job 1 has not ended yet\n")
    assert refsched(tmp_path, "get", "--output", "1") == (1, "", "error: job 1 has no result yet: refsched wait 1\n")
    out = refsched(tmp_path, "snapshot")[1]
    assert re.search(r"^accepting +True$", out, re.MULTILINE)
    assert re.search(r"^hold +paused$", out, re.MULTILINE)
    assert re.search(r"^queued +priority:normal=1 kind:managed_process=1 workspace:", out, re.MULTILINE)
    assert "process_slots=0/1" in out
    assert refsched(tmp_path, "record", "start", "log.replay")[1] == f"recording {tmp_path}/log.replay, up to event 0\n"
    assert refsched(tmp_path, "resume") == (0, "", "")
    assert refsched(tmp_path, "wait", "1")[0] == 0
    assert refsched(tmp_path, "record", "status")[1].startswith(f"recording {tmp_path}/log.replay, up to event ")
    assert refsched(tmp_path, "record", "stop")[1].startswith(f"recorded {tmp_path}/log.replay, up to event ")
    assert refsched(tmp_path, "record", "status")[1] == "not recording\n"
    assert refsched(tmp_path, "drain") == (0, "", "")
    assert refsched(tmp_path, "submit", "true")[0] == 3
    assert refsched(tmp_path, "resume") == (0, "", "")
    assert refsched(tmp_path, "pause", "--queue", "slow") == (0, "", "")
    assert refsched(tmp_path, "submit", "--queue", "slow", "true") == (0, "2\n", "")
    assert refsched(tmp_path, "submit", "true") == (0, "3\n", "")
    assert refsched(tmp_path, "wait", "3")[0] == 0
    assert json.loads(refsched(tmp_path, "get", "--json", "2")[1])["state"] == "queued"


def test_measures_for_prometheus(service: Service, tmp_path: Path) -> None:
    with service.client() as client:
        client.wait(client.submit(JobRequest(kind="shell", payload={"script": "exit 1"})).id)
        client.pause()
        client.submit(JobRequest(kind="shell", payload={"script": "true"}, workspace='/a "b"\\c\n'))
    code, out, _ = refsched(tmp_path, "metrics")
    assert code == 0
    for line in (
        "refsched_accepting 1",
        "refsched_starting 0",
        "refsched_journal_available 1",
        'refsched_queued_by_priority{priority="normal"} 1',
        r'refsched_queued_by_workspace{workspace="/a \"b\"\\c\n"} 1',
        'refsched_capacity{resource="process_slots"} 1',
        'refsched_used{resource="process_slots"} 0',
        'refsched_wakes_total{reason="job_enqueued"} 2',
        'refsched_ended_total{state="failed"} 1',
        'refsched_ended_total{state="completed"} 0',
    ):
        assert line in out.splitlines()
    names = re.findall(r"^refsched_\w+", out, re.MULTILINE)
    typed = set(re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", out, re.MULTILINE))
    assert set(names) <= typed
    assert len(re.findall(r"^# HELP", out, re.MULTILINE)) == len(typed)


def test_what_a_job_says_of_itself_cannot_move_the_cursor(service: Service, tmp_path: Path) -> None:
    with service.client() as client:
        client.pause()
        client.submit(JobRequest(kind="shell", payload={"script": "true"}, workspace="/\x1b[2J\n\u202e"))
        keys = ResourceRequest(exclusivity_keys=("\x1b[2J",))
        client.resume()
        for _ in range(2):
            client.submit(JobRequest(kind="shell", payload={"script": "sleep 600"}, request=keys))
    assert "exclusive:\ufffd[2J is held by job '2'" in refsched(tmp_path, "get", "3")[1]
    for command in (["list"], ["get", "1"]):
        out = refsched(tmp_path, *command)[1]
        assert "/\ufffd[2J\ufffd\ufffd" in out
        assert "\x1b" not in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "1"],
        ["list"],
        ["submit", "true"],
        ["wait", "1"],
        ["snapshot"],
        ["events"],
        ["drain"],
        ["record", "stop"],
    ],
)
def test_without_a_scheduler_they_say_so_on_one_line(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "spawngate" / "refsched.sock"
    mend = "start one with refsched serve, or name its socket with --socket"
    expected = f"error: no scheduler answers at {path} (No such file or directory): {mend}\n"
    assert refsched(tmp_path, *arguments) == (3, "", expected)


def test_a_job_that_is_not_there(service: Service, tmp_path: Path) -> None:
    for command in ("get", "wait", "attempts", "cancel"):
        code, out, error = refsched(tmp_path, command, "99")
        assert (code, out) == (1, "")
        assert error == "error: there is no job '99', or it ended long ago and was forgotten\n"


@pytest.mark.parametrize("command", [["wait", "1"], ["run", "sleep", "600"], ["events", "--job", "1"], ["drain"]])
def test_ctrl_c_ends_whatever_waits_and_no_other_job(service: Service, tmp_path: Path, command: list[str]) -> None:
    with service.client() as client:
        job = client.submit(JobRequest(kind="shell", payload={"script": "sleep 600"})).id
        # Between two lines anything may be left open; Python would warn of that.
        with Process(tmp_path, *command, PYTHONWARNINGS="ignore") as waiting:
            if command[0] == "run":  # it has to wait, and says so once it is submitted
                waiting.until("refsched: Job 2 has been waiting")
            while not waiting.has_socket():
                assert waiting.process.poll() is None
            waiting.send(signal.SIGINT)
            assert (waiting.rest(), waiting.wait()) == ([], 130)
        assert client.get(job).state == "running"
        assert [view.state for view in client.jobs()] == (
            ["cancelled", "running"] if command[0] == "run" else ["running"]
        )


def test_every_command_tells_its_exit_statuses_and_is_in_the_documentation() -> None:
    text = (Path(ROOT) / "docs" / "service.md").read_text(encoding="utf-8")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        if type(command).__name__ in ("ServiceCommand", "RunCommand"):
            assert "Exit status: " in (command.help or ""), name
            assert f"`{name}`" in text, name
