"""The life of the service: real processes, real signals, and a second one that wants the same journal."""

from __future__ import annotations

import asyncio
import configparser
import os
import signal
import socket
import sqlite3
import stat
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from live_world import on_loop
from service_world import PATIENCE_S, ROOT, Service, refsched

from reference_scheduler.cli import main
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import JobState
from reference_scheduler.errors import SchedulerDisabled, SchedulerError, SchedulerStopping
from reference_scheduler.requests import JobRequest
from reference_scheduler.scheduler import Scheduler
from reference_scheduler.service import daemon
from reference_scheduler.service.client import Client
from reference_scheduler.service.daemon import Place
from reference_scheduler.service.errors import NotPrimary, ServiceError, Unreachable
from reference_scheduler.service.roles import user_name

INTERRUPT = '[scheduler]\non_stop = "interrupt"\n'
ONE_AT_A_TIME = "[scheduler.resources]\nmax_process_slots = 1\n"


def shell(script: str, **more: object) -> JobRequest:
    """Return a job that runs a script."""
    return JobRequest(kind="shell", payload={"script": script}, **more)  # type: ignore[arg-type]


def test_it_tells_systemd_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE_S)
        manager.bind(str(tmp_path / "notify"))
        with Service(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify")) as service:
            assert manager.recv(100) == b"READY=1\nSTATUS=primary"
            assert service.stop() == 0
            assert manager.recv(100) == b"STOPPING=1"


def test_the_unit_for_systemd_starts_a_command_that_exists() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(Path(ROOT) / "docs" / "refsched.service")
    program, command = unit["Service"]["ExecStart"].split(" ", 1)
    assert (Path(program).name, command) == ("refsched", "serve")
    assert command in main.commands
    assert (unit["Service"]["Type"], unit["Service"]["Delegate"]) == ("notify", "yes")


def test_a_second_service_is_told_where_the_first_one_answers(tmp_path: Path) -> None:
    with Service(tmp_path) as first:
        code, _, error = refsched(tmp_path, "serve")
        mend = "give this one another --socket, or let it wait with --standby"
        assert (code, error) == (3, f"error: {first.path}: another scheduler answers there; {mend}\n")
        code, _, error = refsched(tmp_path, "serve", "--socket", "other.sock")
        assert code == 3
        assert error.endswith(
            f"another scheduler uses this journal: the primary, process {first.pid}, answers at {first.path}; "
            "or wait for its end with --standby\n"
        )
        (tmp_path / "link.db").symlink_to(tmp_path / ".local/state/spawngate/journal.db")
        assert refsched(tmp_path, "serve", "--socket", "other.sock", "--journal", "link.db") == (3, "", error)
        with first.client() as client:
            assert client.hello().pid == first.pid


def test_a_standby_says_where_the_primary_is_and_takes_over_its_jobs_and_its_place(tmp_path: Path) -> None:
    with (
        Service(tmp_path, config=ONE_AT_A_TIME) as primary,
        Service(tmp_path, "--standby", config=ONE_AT_A_TIME, ready="standby at ") as standby,
    ):
        where = f"the primary, process {primary.pid}, answers at {primary.path}"
        assert standby.said == f"standby at {primary.path}.standby: {where}"
        with Client(primary.path.with_name("refsched.sock.standby")) as client, pytest.raises(NotPrimary) as caught:
            client.hello()
        assert str(caught.value) == f"this is a standby; {where}"
        with primary.client() as client:
            first, second = client.submit(shell("sleep 600")).id, client.submit(shell("echo done")).id
            while client.get(first).state is not JobState.RUNNING:
                pass
            primary.send(signal.SIGKILL)
        primary.wait()
        assert standby.until("recovered: ").startswith("recovered: 1 attempts had been interrupted")
        assert standby.until("ready: ").startswith(f"ready: {primary.path} serves ")
        with Client(primary.path) as client:
            assert client.hello().pid == standby.pid
            assert client.wait(second).state is JobState.COMPLETED
            assert client.get(first).state in (JobState.FAILED, JobState.DEAD_LETTER)
        assert not primary.path.with_name("refsched.sock.standby").exists()
        assert standby.stop() == 0
        assert not primary.path.exists()


def test_a_standby_goes_by_what_was_configured_while_it_waited(tmp_path: Path) -> None:
    with (
        Service(tmp_path) as primary,
        Service(tmp_path, "--standby", config=ONE_AT_A_TIME, ready="standby at ") as other,
    ):
        waiting = primary.path.with_name("refsched.sock.standby")
        assert stat.S_IMODE(waiting.stat().st_mode) == 0o600
        (tmp_path / "scheduler.toml").write_text('[scheduler.service]\nreaders = ["1"]\n')
        other.send(signal.SIGHUP)
        other.until("reloaded")
        assert stat.S_IMODE(waiting.stat().st_mode) == 0o666
        assert primary.stop() == 0
        other.until("ready: ")
        assert stat.S_IMODE(primary.path.stat().st_mode) == 0o666


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ('picker = "nope"', "scheduler.picker: must be one of fair, "),
        ('service = {readers = ["nobody-of-that-name"]}', "scheduler.service.readers: the system knows no user "),
    ],
)
def test_what_is_wrong_with_a_configuration_names_the_file(tmp_path: Path, config: str, problem: str) -> None:
    (tmp_path / "scheduler.toml").write_text(f"[scheduler]\n{config}\n")
    status, out, err = refsched(tmp_path, "serve", "--config", "scheduler.toml")
    assert (status, out, err.startswith(f"error: scheduler.toml: {problem}")) == (2, "", True)


@on_loop
async def test_a_configuration_that_is_read_again_during_the_start_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"reloaded": asyncio.Event(), "ready": asyncio.Event()}
    place = Place(tmp_path / "s", tmp_path / "j.db", tmp_path / "scheduler.toml")

    class Starting(Scheduler):
        async def start(self) -> Starting:
            (tmp_path / "scheduler.toml").write_text(ONE_AT_A_TIME.replace("1", "2"))
            os.kill(os.getpid(), signal.SIGHUP)
            await said["reloaded"].wait()
            return await super().start()

    def capacity() -> Resources:
        with Client(place.socket) as client:
            return client.snapshot().budget.capacity

    (tmp_path / "scheduler.toml").write_text(ONE_AT_A_TIME)
    monkeypatch.setattr(daemon, "Scheduler", Starting)
    service = daemon.Daemon(place, lambda line: said.get(line.partition(":")[0], asyncio.Event()).set())
    running = asyncio.ensure_future(service.run(standby=False))
    await said["ready"].wait()
    assert (await asyncio.to_thread(capacity)).process_slots == 2
    os.kill(os.getpid(), signal.SIGTERM)
    await running


def test_a_standby_without_a_primary_becomes_one(tmp_path: Path) -> None:
    with Service(tmp_path, "--standby") as service, service.client() as client:
        assert client.hello().pid == service.pid
        service.send(signal.SIGHUP)
        service.until("reloaded")


def test_a_standby_can_be_stopped_while_it_waits(tmp_path: Path) -> None:
    with Service(tmp_path) as primary, Service(tmp_path, "--standby", ready="standby at ") as standby:
        standby.send(signal.SIGHUP)
        assert standby.line() == "reloaded"
        assert standby.stop() == 0
        with primary.client() as client:
            assert client.hello().pid == primary.pid


def test_a_standby_whose_place_the_scheduler_of_another_journal_has_can_be_stopped(tmp_path: Path) -> None:
    other = ("--standby", "--journal", "other.db")
    with Service(tmp_path) as primary, Service(tmp_path, *other, ready="standby at ") as standby:
        waiting = primary.path.with_name("refsched.sock.standby")
        with Client(waiting) as client, pytest.raises(NotPrimary):
            client.hello()
        while not starts(tmp_path / "other.db"):
            pass  # then it has begun, and waits for its place
        assert standby.stop() == 0
        with primary.client() as client:
            assert client.hello().pid == primary.pid


def starts(journal: Path) -> int:
    """Return how many schedulers have begun on ``journal``."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as found:
        return int(found.execute("SELECT count(*) FROM generations").fetchone()[0])
    return 0


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    with Service(tmp_path) as first:
        first.stop(signal.SIGKILL)
        with pytest.raises(Unreachable) as caught:
            first.client()
        mend = "start one with refsched serve, or name its socket with --socket"
        assert str(caught.value) == f"no scheduler answers at {first.path} (Connection refused): {mend}"
    with Service(tmp_path) as second, second.client() as client:
        assert client.hello().pid == second.pid


def test_a_service_whose_output_nobody_reads_goes_on(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client:
        assert service.process.stdout is not None
        service.process.stdout.close()
        service.send(signal.SIGHUP)
        assert client.wait(client.submit(shell("true")).id).state is JobState.COMPLETED
        assert service.stop() == 0


def test_a_stop_drains_and_what_waits_runs_after_the_next_start(tmp_path: Path) -> None:
    with Service(tmp_path, config=ONE_AT_A_TIME) as service, service.client() as client:
        slow = client.submit(shell("until [ -e go ]; do sleep 0.02; done; echo drained", workspace=str(tmp_path))).id
        waiting = client.submit(shell("echo later", workspace=str(tmp_path))).id
        service.send(signal.SIGTERM)
        assert service.until("stopping") == "stopping: drain"
        with pytest.raises(SchedulerStopping):
            client.submit(shell("true"))
        assert client.get(slow).state is JobState.RUNNING
        (tmp_path / "go").touch()
        assert service.wait() == 0
    with Service(tmp_path, config=ONE_AT_A_TIME) as service, service.client() as client:
        assert client.wait(waiting).state is JobState.COMPLETED
        result = client.result(slow)
        assert result is not None
        assert (client.get(slow).state, result.stdout.head) == (JobState.COMPLETED, b"drained\n")
        assert [attempt.state for attempt in client.attempts(slow)] == ["completed"]


@pytest.mark.parametrize(("config", "signals"), [("", 3), (INTERRUPT, 2)])
def test_further_signals_interrupt_and_then_take_the_grace(tmp_path: Path, config: str, signals: int) -> None:
    with Service(tmp_path, config=config) as service, service.client() as client:
        stubborn = shell(
            "trap 'echo asked >> asked' TERM; touch mark; while :; do sleep 0.02; done",
            workspace=str(tmp_path),
            grace_us=3_600_000_000,
        )
        job = client.submit(stubborn).id
        until_there(tmp_path / "mark")
        for number in range(signals):
            service.send(signal.SIGTERM)
            service.until("stopping: ")
            if number == signals - 2:
                until_there(tmp_path / "asked")
        assert service.wait() == 0
    with Service(tmp_path) as service, service.client() as client:
        assert client.get(job).state in (JobState.FAILED, JobState.DEAD_LETTER)
        assert [attempt.state for attempt in client.attempts(job)] == ["interrupted"]


def test_ctrl_c_ends_it_with_its_own_exit_status(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        assert service.stop(signal.SIGINT) == 130


def test_who_waits_when_it_stops_is_told(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client, service.raw() as raw:
        client.pause()
        job = client.submit(shell("true")).id
        raw.send(b'{"op":"hello"}\n{"op":"wait","job":"%s"}\n' % job.encode())
        assert "ok" in raw.answer()
        assert service.stop() == 0
        error = raw.answer()["error"]
        assert (error["code"], error["message"][:25]) == ("stopping", "the scheduler has stopped")
        with pytest.raises(SchedulerStopping):
            client.get(job)


def test_a_scheduler_that_is_disabled_says_so(tmp_path: Path) -> None:
    with Service(tmp_path, config="[scheduler]\nenabled = false\n") as service, service.client() as client:
        assert client.snapshot().enabled is False
        with pytest.raises(SchedulerDisabled):
            client.submit(shell("true"))


def test_only_so_many_admins_at_a_time_and_the_next_is_told_at_once(tmp_path: Path) -> None:
    """While the journal is held by another program, commands take long."""
    with Service(tmp_path) as service, service.client() as client:
        client.hello()
        journal = next(tmp_path.glob("**/journal.db"))
        outside = sqlite3.connect(journal, isolation_level=None)
        outside.execute("BEGIN IMMEDIATE")
        admins = [service.raw() for _ in range(4)]
        for raw in admins:
            raw.send(b'{"op":"pause","queue":"q"}\n')
        with service.raw() as fifth:
            while "ok" in (answer := fifth.ask(b'{"op":"record_stop"}')):
                pass  # the others have not yet been read
            assert answer["error"] == {"code": "busy", "message": "server busy, try again"}
        assert client.hello().role == "admin"
        outside.execute("ROLLBACK")
        outside.close()
        for raw in admins:
            assert raw.answer() == {"id": 0, "ok": None}
            raw.close()


def test_drained_it_takes_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client, service.client() as admin:
        job = client.submit(shell("until [ -e go ]; do sleep 0.02; done", workspace=str(tmp_path))).id
        drained = threading.Thread(target=admin.drain)
        drained.start()
        while client.snapshot().accepting:
            pass
        with pytest.raises(SchedulerStopping):
            client.submit(shell("true"))
        (tmp_path / "go").touch()
        drained.join(PATIENCE_S)
        assert not drained.is_alive()
        assert client.get(job).state is JobState.COMPLETED
        service.send(signal.SIGHUP)
        service.until("reloaded")
        assert client.snapshot().accepting is False
        client.resume()
        assert client.wait(client.submit(shell("true")).id).state is JobState.COMPLETED


def test_without_descriptors_for_more_connections_it_says_so_once_and_goes_on(tmp_path: Path) -> None:
    prelude = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
    with Service(tmp_path, prelude=prelude) as service, service.client() as client:
        many = [service.raw() for _ in range(60)]
        told = service.until("no more connections can be taken: ")
        assert told.endswith("Too many open files; raise ulimit -n, or the unit's LimitNOFILE")
        assert client.hello().user == user_name(os.geteuid())
        for connection in many:
            connection.close()
        with service.client() as other:  # which is taken when the loop tries again
            assert other.wait(other.submit(shell("true")).id).state is JobState.COMPLETED
        assert service.stop() == 0
        assert service.rest() == ["stopping: drain"]


def test_what_was_recorded_live_verifies(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client:
        log = tmp_path / "live.replay"
        assert client.record_status().active is False
        assert client.record_start(log).active is True
        for _ in range(3):
            client.wait(client.submit(shell("true")).id)
        status = client.record_stop()
        assert (status.active, status.path, status.error) == (False, str(log), "")
        assert status.events >= 6
        with pytest.raises(ServiceError) as caught:
            client.record_start(tmp_path / "none" / "x.replay")
        assert str(caught.value) == f"{tmp_path}/none/x.replay: No such file or directory"
    code, output, _ = refsched(tmp_path, "verify", str(log))
    assert (code, output.split(" in ")[0]) == (0, f"{status.events} events")


def until_there(path: Path) -> None:
    """Wait until a job has made a file."""
    done = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if path.exists():
            return
        done.wait(0.01)
    raise AssertionError(f"{path} did not appear")


def test_a_scheduler_that_breaks_off_ends_so_that_it_is_started_again(tmp_path: Path) -> None:
    broken = """
from reference_scheduler.drivers.live import LiveDriver
from reference_scheduler.core.invariants import InvariantViolation
def take(self):
    if self._inbox:
        raise InvariantViolation("made up")
LiveDriver._take = take
"""
    with Service(tmp_path, prelude=broken) as service, service.client() as client:
        with pytest.raises(SchedulerError) as caught:
            client.submit(shell("true"))
        assert isinstance(caught.value, SchedulerStopping | Unreachable)
        assert service.wait() == 1
        assert service.rest()[-1] == "error: the scheduler broke off by a defect, InvariantViolation: made up"


def test_a_stopping_scheduler_is_not_resumed(tmp_path: Path) -> None:
    with Service(tmp_path) as service, service.client() as client:
        client.submit(shell("until [ -e go ]; do sleep 0.02; done", workspace=str(tmp_path)))
        service.send(signal.SIGTERM)
        service.until("stopping")
        with pytest.raises(SchedulerStopping) as caught:
            client.resume()
        assert str(caught.value) == "the scheduler is stopping, and starts nothing any more"
        (tmp_path / "go").touch()
        assert service.wait() == 0
