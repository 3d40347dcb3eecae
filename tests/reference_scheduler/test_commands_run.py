"""``refsched run``: with a service, without one, and beside one that only observes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from service_world import COMMAND, Process, Service, environment, refsched

from reference_scheduler.core.model import AttemptState, JobState
from reference_scheduler.executors.base import AttemptResult

ALONE = "refsched: no scheduler answers at {0}/spawngate/refsched.sock; this job runs in a scheduler of its own, "
JOURNAL = "with the journal {0}/.local/state/spawngate/runs/run-{1}.db\n"


def alone(folder: Path, number: int = 1) -> str:
    """Return what is said of a job that runs without a service."""
    return (ALONE + JOURNAL).format(folder, number)


RECEIVING = {"45", "207"}
"""The system call recvfrom on x86-64 and on ARM."""


class Place(NamedTuple):
    """Where to run commands, and what they say on stderr because of that."""

    folder: Path
    said: str


@pytest.fixture(params=["service", "alone"], scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Give a folder with a service, and one without."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "alone":
        yield Place(folder, alone(folder))
        return
    with Service(folder):
        yield Place(folder, "")


@pytest.mark.parametrize(
    ("arguments", "status", "output", "error"),
    [
        (["true"], 0, "", ""),
        (["--", "sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\n", "err\n"),
        (["sh", "-c", "exit $((126 + 1))"], 127, "", ""),
        (["sh", "-c", "kill -9 $$"], 137, "", "refsched: job 1 is failed: ended by SIGKILL\n"),
        (["--timeout", "0.05", "sleep", "600"], 124, "", "refsched: job 1 is timed_out: stopped: timeout\n"),
        (
            ["no-such-program"],
            127,
            "",
            "refsched: job 1 is failed: could not be started: no-such-program: No such file or directory\n",
        ),
        (["--kind", "shell", "echo $((6 * 7)); pwd"], 0, "42\n{0}\n", ""),
        (["--kind", "python", "--", "-c", "import sys; sys.exit(3)"], 3, "", ""),
        (["--env", "GREETING=hello", "sh", "-c", "echo $GREETING $HOME"], 0, "hello {0}\n", ""),
        (["--cwd", "/usr", "pwd"], 0, "/usr\n", ""),
        (["--retries", "2", "--retry-pause", "0", "sh", "-c", "echo >> tries; exit $(grep -c '' tries)"], 3, "", ""),
        (["--idempotency", "read_only", "--delay", "0", "--preemptible", "true"], 0, "", ""),
        (["--after-ok", "77", "true"], 125, "", "error: there is no job 77"),
        (["--kind", "nope", "true"], 125, "", "error: kind must be one of build, "),
        (["--env", "API_TOKEN=x", "true"], 125, "", "error: payload: env: API_TOKEN looks like a secret; "),
    ],
)
def test_it_ends_as_its_job_did(place: Place, arguments: list[str], status: int, output: str, error: str) -> None:
    code, out, err = refsched(place.folder, "run", *arguments)
    assert (code, out) == (status, output.format(place.folder))
    expected, err = place.said + error, re.sub(r"job \d+ is", "job 1 is", err)
    assert err.startswith(expected) if error.startswith("error") else err == expected


def test_what_a_job_prints_comes_out_byte_by_byte(place: Place) -> None:
    script = "import os; os.write(1, bytes(range(256))); os.write(2, bytes(range(255, -1, -1)))"
    with Process(place.folder, "run", "--kind", "python", "--", "-c", script) as process:
        assert process.wait() == 0
        assert process.process.stdout is not None
        assert process.process.stdout.read() == place.said.encode() + bytes(range(256)) + bytes(range(255, -1, -1))


def test_all_that_comes_no_faster_than_it_is_read_is_printed(place: Place) -> None:
    script = "import os; os.write(1, b'a' * 100_000 + b'b' * 100_000)"
    expected = (0, "a" * 100_000 + "b" * 100_000, place.said)
    assert refsched(place.folder, "run", "--kind", "python", "--", "-c", script) == expected


def test_what_was_too_much_to_keep_is_told(tmp_path: Path) -> None:
    script = "import os; [os.write(1, b'a' * (1 << 20)) for _ in range(100)]"
    with Service(tmp_path):
        code, out, err = refsched(tmp_path, "run", "--kind", "python", "--", "-c", script)
        missed = sum(map(int, re.findall(r"^refsched: (\d+) bytes of stdout were not kept$", err, re.MULTILINE)))
        assert (code, len(out) + missed, missed > 0) == (0, 100 << 20, True)
        assert refsched(tmp_path, "get", "--output", "1") == (
            0,
            "a" * (2 << 16),
            f"\nrefsched: {(100 << 20) - (2 << 16)} bytes of stdout were not kept\n",
        )


def test_wrong_usage_is_one_line(tmp_path: Path) -> None:
    for arguments, message in (
        ([], "say what to run: refsched … -- COMMAND ARGUMENTS"),
        (["--kind", "shell", "echo", "hello"], "a shell job takes one argument, its script: put it in quotes"),
        (["--env", "=x", "true"], "--env: needs NAME=VALUE, got '=x'"),
    ):
        assert refsched(tmp_path, "run", *arguments) == (2, "", f"error: {message}\n")
    code, _, error = refsched(tmp_path, "run", "--key", "k", "true")
    mend = "only a scheduler that stays can know keys: start one with refsched serve"
    assert (code, error) == (125, f"error: --key: {mend}\n")


def test_what_is_no_text_is_told_with_what_it_is(place: Place) -> None:
    folder = os.fsdecode(os.fsencode(place.folder) + b"/\xff")
    Path(folder).mkdir(exist_ok=True)
    code, out, error = refsched(place.folder, "run", "--cwd", folder, "true")
    assert (code, out) == (125, "")
    assert error.endswith("/\\udcff' cannot be written as UTF-8\n")


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    variables = environment(tmp_path, PYTHONSAFEPATH="1")  # without, Python 3.13 itself fails in there
    with Service(tmp_path):
        for command in ("run true", "submit true", "serve --socket s", "record start log.replay"):
            (tmp_path / "gone").mkdir()
            gone = ["/bin/sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", *COMMAND, *command.split()]
            done = subprocess.run(gone, capture_output=True, cwd=tmp_path, env=variables, text=True)
            assert (done.returncode, done.stderr) == (2, "error: the working directory is gone\n")


def test_a_scheduler_that_is_named_must_answer(tmp_path: Path) -> None:
    expected = (
        "error: no scheduler answers at gone.sock (No such file or directory): start one with refsched serve, "
        "or name its socket with --socket\n"
    )
    assert refsched(tmp_path, "run", "--socket", "gone.sock", "true") == (125, "", expected)
    assert refsched(tmp_path, "run", "true", REFSCHED_SOCKET="gone.sock") == (125, "", expected)


def test_a_job_may_run_another_one(tmp_path: Path) -> None:
    inner = [sys.executable, "-c", "from reference_scheduler.cli import main; main()", "run", "echo", "inner"]
    variables = [f"--env={name}={tmp_path}" for name in ("XDG_RUNTIME_DIR",)]
    root = f"--env=PYTHONPATH={Path(__file__).parents[2]}"
    code, out, err = refsched(tmp_path, "run", *variables, root, "--", *inner)
    assert (code, out, err) == (0, "inner\n", alone(tmp_path) + alone(tmp_path, 2))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_job_and_waits_for_its_end(place: Place, tmp_path: Path, number: signal.Signals) -> None:
    script = "trap 'echo bye > bye; exit 1' TERM; mkfifo up; sleep 600 & echo $! > up; wait"
    with Process(place.folder, "run", f"--cwd={tmp_path}", "--kind", "shell", script) as process:
        fifo = tmp_path / "up"
        while not fifo.exists():
            assert process.process.poll() is None
        child = fifo.read_text().strip()
        process.send(number)
        assert process.wait() == 128 + number
    assert (tmp_path / "bye").read_text() == "bye\n"
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize("rollout", ["mandatory", "observe"])
def test_a_signal_while_it_is_submitted_cancels_what_is_submitted(tmp_path: Path, rollout: str) -> None:
    with Service(tmp_path, config=f'[scheduler]\nrollout = "{rollout}"\n') as service, service.client() as client:
        service.send(signal.SIGSTOP)
        with Process(tmp_path, "run", "--kind", "shell", "touch up; sleep 600") as process:
            while not is_waiting_for_an_answer(process.pid):
                assert process.process.poll() is None
            process.send(signal.SIGINT)
            service.send(signal.SIGCONT)
            assert (process.rest(), process.wait()) == ([], 130)
        assert client.wait("1").state is JobState.CANCELLED


def is_waiting_for_an_answer(pid: int) -> bool:
    """Return whether a process sleeps in the kernel on a socket that it reads from: it has sent what it had to."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    if len(call) < 2 or call[0] not in RECEIVING:
        return False
    with suppress(OSError):
        return "socket:" in str(Path(f"/proc/{pid}/fd/{int(call[1], 16)}").readlink())
    return False


def test_a_second_signal_waits_for_nothing(tmp_path: Path) -> None:
    script = "trap 'touch asked' TERM; touch up; while :; do sleep 0.02; done"
    with Process(tmp_path, "run", "--kind", "shell", script) as process:
        for name in ("up", "asked"):
            while not (tmp_path / name).exists():
                assert process.process.poll() is None
            process.send(signal.SIGINT)
        assert process.wait() == 130


def test_a_job_that_was_cut_short_with_its_scheduler_is_not_run_later(tmp_path: Path) -> None:
    script = "echo run >> runs; touch up; sleep 600"
    with Process(tmp_path, "run", "--kind", "shell", script) as process:
        while not (tmp_path / "up").exists():
            assert process.process.poll() is None
        process.send(signal.SIGKILL)
        process.wait()
    assert refsched(tmp_path, "run", "true") == (0, "", alone(tmp_path))
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_job_that_has_to_wait_says_for_what(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client:
        client.pause()
        with Process(tmp_path, "run", "sh", "-c", "exit 3") as process:
            held = "the scheduler is paused: 0 run, and 1 wait for refsched resume"
            assert re.fullmatch(rf"refsched: Job 1 has been waiting for [\d.]+ s: {held}\.", process.line())
            client.resume()
            assert (process.rest(), process.wait()) == ([], 3)


@pytest.mark.parametrize("rollout", ['"observe"', '"active"\nactive_kinds = ["test"]'])
def test_beside_a_scheduler_that_observes_the_caller_runs_it(tmp_path: Path, rollout: str) -> None:
    with Service(tmp_path, config=f"[scheduler]\nrollout = {rollout}\n") as service:
        assert refsched(tmp_path, "run", "sh", "-c", "echo mine; exit 5") == (5, "mine\n", "")
        assert refsched(tmp_path, "run", "--timeout", "0.05", "sleep", "600")[0] == 124
        with service.client() as client:
            first, second = client.wait("1"), client.wait("2")
            assert (first.observed, first.state, first.exit_code) == (True, JobState.FAILED, 5)
            assert second.state is JobState.TIMED_OUT
            result = client.result("1")
            assert result is not None
            assert result.stdout.head == b"mine\n"
            assert client.report("1", AttemptResult(AttemptState.COMPLETED)) is False  # that is known already


def test_what_the_caller_runs_waits_for_no_scheduler(tmp_path: Path) -> None:
    with Service(tmp_path, config='[scheduler]\nrollout = "observe"\n') as service, service.client() as client:
        client.pause()
        assert refsched(tmp_path, "run", "sh", "-c", "exit 5") == (5, "", "")
        client.resume()
        assert client.wait("1").exit_code == 5
        with Process(tmp_path, "run", "--kind", "shell", "touch up; until [ -e go ]; do sleep 0.02; done") as process:
            while not (tmp_path / "up").exists():
                assert process.process.poll() is None
            service.stop(signal.SIGKILL)
            (tmp_path / "go").touch()
            lost = f"the scheduler at {service.path} hung up; what it did not answer may not have happened"
            assert process.rest() == [f"refsched: the scheduler does not know how it ended: {lost}"]
            assert process.wait() == 0


def test_a_signal_ends_what_the_caller_runs_and_the_scheduler_is_told(tmp_path: Path) -> None:
    with Service(tmp_path, config='[scheduler]\nrollout = "observe"\n') as service, service.client() as client:
        with Process(tmp_path, "run", "--kind", "shell", "touch up; sleep 600") as process:
            while not (tmp_path / "up").exists():
                assert process.process.poll() is None
            process.send(signal.SIGTERM)
            assert process.wait() == 143
        assert client.wait("1").state is JobState.CANCELLED


def test_a_scheduler_that_is_lost_is_told_on_one_line(tmp_path: Path) -> None:
    with Service(tmp_path) as service, Process(tmp_path, "run", "--kind", "shell", "touch up; sleep 600") as process:
        while not (tmp_path / "up").exists():
            assert process.process.poll() is None
        service.stop(signal.SIGKILL)
        lost = f"the scheduler at {service.path} hung up; what it did not answer may not have happened"
        assert process.rest() == [f"error: {lost}"]
        assert process.wait() == 125


def test_what_is_disabled_runs_nothing_with_or_without_a_service(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "spawngate" / "scheduler.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[scheduler]\nenabled = false\n")
    refused = "error: the scheduler is disabled: set scheduler.enabled to true, or run nothing\n"
    assert refsched(tmp_path, "run", "touch", "ran") == (125, "", alone(tmp_path) + refused)
    with Service(tmp_path):
        assert refsched(tmp_path, "run", "touch", "ran") == (125, "", refused)
    assert not (tmp_path / "ran").exists()
    config.write_text("[scheduler]\nenable = false\n")
    wrong = f"error: {config}: scheduler.enable: unknown key; did you mean enabled?\n"
    assert refsched(tmp_path, "run", "touch", "ran") == (125, "", wrong)
    assert refsched(tmp_path, "serve") == (2, "", wrong)
