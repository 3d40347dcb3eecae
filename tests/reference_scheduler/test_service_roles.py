"""Who may do what, as the kernel says who asks; other users need a test that runs as root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from service_world import Raw, Service, refsched

from reference_scheduler.service import protocol
from reference_scheduler.service.errors import Denied, ServiceError
from reference_scheduler.service.operations import allow
from reference_scheduler.service.places import default_journal, default_socket, private_directory
from reference_scheduler.service.roles import Peer, Role, peer_uid, user_name

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
READER, SUBMITTER, ADMIN, NOBODY = 20001, 20002, 20003, 20004
ROLES = f'[scheduler.service]\nreaders = ["{READER}"]\nsubmitters = ["{SUBMITTER}"]\nadmins = ["{ADMIN}"]\n'
JOB = b'{"op":"submit","job":{"kind":"shell","payload":{"script":"sleep 600"}}}'


@contextmanager
def user(uid: int) -> Iterator[None]:
    """Be another user, for whatever connects meanwhile."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that other users may enter, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="refsched-"))
    folder.chmod(0o755)
    (folder / "spawngate").mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def ask(path: Path, uid: int, line: bytes) -> tuple[str, str]:
    """Return the code and message of the error that a user gets, or that it was done."""
    with user(uid):
        raw = Raw(path)
    with raw:
        answer = raw.ask(line)
    return (answer["error"]["code"], answer["error"]["message"]) if "error" in answer else ("ok", "")


@as_root
def test_nobody_but_the_owner_may_even_connect(open_folder: Path) -> None:
    with Service(open_folder) as service:
        assert service.path.stat().st_mode & 0o777 == 0o600
        with user(NOBODY), pytest.raises(PermissionError):
            Raw(service.path)
        with service.client() as client:
            assert client.hello().role == "admin"
            assert client.hello().user == pwd.getpwuid(0).pw_name


@as_root
def test_each_role_may_do_what_it_is_for(open_folder: Path) -> None:
    with Service(open_folder, config=ROLES) as service:
        path = service.path
        denied = "takes the role {}, {} has {}: see [scheduler.service] in the configuration"
        assert ask(path, READER, b'{"op":"snapshot"}') == ("ok", "")
        assert ask(path, READER, JOB) == ("denied", "submit " + denied.format("submitter", READER, "reader"))
        assert ask(path, SUBMITTER, JOB) == ("ok", "")
        assert ask(path, SUBMITTER, b'{"op":"pause"}') == (
            "denied",
            "pause " + denied.format("admin", SUBMITTER, "submitter"),
        )
        assert ask(path, ADMIN, b'{"op":"pause"}') == ("ok", "")
        message = f"{NOBODY} has no role here: see [scheduler.service] in the configuration"
        assert ask(path, NOBODY, b'{"op":"hello"}') == ("denied", message)


@as_root
def test_a_submitter_has_jobs_of_its_own_and_touches_no_others(open_folder: Path) -> None:
    with Service(open_folder, config=ROLES) as service, service.client() as owner:
        path = service.path
        foreign = owner.submit(protocol.JobToSubmit(kind="shell", payload={"script": "sleep 600"}))
        assert foreign.user == "root"
        assert ask(path, SUBMITTER, JOB) == ("ok", "")
        assert [job.user for job in owner.jobs()] == [str(SUBMITTER), "root"]
        as_owner = JOB.replace(b'{"kind"', b'{"user":"root","kind"')
        message = f"user: {SUBMITTER} cannot submit jobs of 'root'; that takes the admin role"
        assert ask(path, SUBMITTER, as_owner) == ("denied", message)
        assert ask(path, ADMIN, as_owner) == ("ok", "")
        theirs, takes_admin = b'","job":"1"}', "job 1 is another user's; that takes the admin role"
        for op in (b"cancel", b"result", b"logs"):
            assert ask(path, SUBMITTER, b'{"op":"' + op + theirs) == ("denied", takes_admin)
        assert owner.get("1").state == "running"
        generation = owner.hello().recovery.generation
        not_its = "the attempt is of another user's job; that takes the admin role"
        for said, rest in (("heartbeat", "}"), ("progress", ',"progress":{"message":"not mine"}}')):
            for token, answer in (("1:1", ("denied", not_its)), ("2:1", ("ok", "")), ("1:2", ("ok", ""))):
                line = f'{{"op":"{said}","token":"{generation}:{token}"{rest}'.encode()
                assert ask(path, SUBMITTER, line) == answer  # of attempts that are not there the answer is false
            assert ask(path, ADMIN, f'{{"op":"{said}","token":"{generation}:1:1"{rest}'.encode()) == ("ok", "")
        assert ask(path, SUBMITTER, b'{"op":"cancel","job":"2"}') == ("ok", "")
        assert ask(path, ADMIN, b'{"op":"cancel","job":"1"}') == ("ok", "")
        assert {owner.wait("1").state, owner.wait("2").state} == {"cancelled"}


@as_root
def test_a_reader_sees_what_a_job_runs_and_only_who_may_act_for_it_the_rest(open_folder: Path) -> None:
    with Service(open_folder, config=ROLES) as service:
        assert ask(service.path, SUBMITTER, JOB) == ("ok", "")
        for uid, payload in ((READER, None), (SUBMITTER, {"script": "sleep 600"}), (ADMIN, {"script": "sleep 600"})):
            with user(uid):
                raw = Raw(service.path)
            with raw:
                found = raw.ask(b'{"op":"get","job":"1"}')["ok"]
            assert (found["command"], found.get("payload")) == ("sleep 600", payload)


@as_root
def test_roles_are_read_again_on_hangup_and_a_wrong_file_changes_nothing(open_folder: Path) -> None:
    with Service(open_folder, config=ROLES) as service:
        file = open_folder / "scheduler.toml"
        file.write_text("[scheduler.service]\nreaders = 7\n")
        service.send(signal.SIGHUP)
        refused = "not reloaded: scheduler.toml: scheduler.service.readers: must be an array of texts, got 7"
        assert service.line() == refused
        with user(READER):
            reader = Raw(service.path)
        assert "ok" in reader.ask(b'{"op":"hello"}')
        file.write_text("")
        service.send(signal.SIGHUP)
        assert service.line() == "reloaded"
        assert reader.ask(b'{"op":"hello"}')["error"]["code"] == "denied"
        reader.close()
        assert service.path.stat().st_mode & 0o777 == 0o600
        with user(READER), pytest.raises(PermissionError):
            Raw(service.path)


def test_what_each_operation_needs() -> None:
    reading = {request.__struct_config__.tag for request in protocol.Reading.__args__}
    submitting = {request.__struct_config__.tag for request in protocol.Submitting.__args__}
    operating = {request.__struct_config__.tag for request in protocol.Operating.__args__}
    for role, allowed in (
        (Role.NONE, set()),
        (Role.READER, reading),
        (Role.SUBMITTER, reading | submitting),
        (Role.ADMIN, reading | submitting | operating),
    ):
        found = set()
        for request in protocol.AnyRequest.__args__:
            try:
                allow(Peer(1, "one", role), request)
            except Denied:
                continue
            found.add(request.__struct_config__.tag)
        assert found == allowed


def test_a_user_without_a_name_goes_by_the_number() -> None:
    assert (user_name(0), user_name(NOBODY)) == ("root", str(NOBODY))


def test_a_user_that_is_not_there_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[scheduler.service]\nadmins = ["no-such-user"]\n')
    message = "s.toml: scheduler.service.admins: the system knows no user 'no-such-user'; names or numbers are taken"
    assert refsched(tmp_path, "serve", "--config", "s.toml") == (2, "", f"error: {message}\n")


def test_a_socket_is_only_put_where_nobody_else_can_replace_it(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    mend = "others may write there and could replace the socket or journal: use a directory of yours, made with mkdir"
    for option in ("--socket", "--journal"):
        code, _, error = refsched(tmp_path, "serve", option, str(shared / "s"))
        assert (code, error) == (1, f"error: {shared}: {mend} -m 700\n")
        missing = tmp_path / "mistyped"
        code, _, error = refsched(tmp_path, "serve", option, str(missing / "x"))
        assert (code, error, missing.exists()) == (1, f"error: {missing}: No such file or directory\n", False)
    new = tmp_path / "new" / "deep"
    private_directory(new)
    assert new.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        os.chown(new, NOBODY, NOBODY)
        with pytest.raises(ServiceError) as caught:
            private_directory(new)
        assert str(caught.value).startswith(f"{new}: belongs to another user, who could replace the socket or journal")


def test_a_path_that_is_too_long_for_a_socket_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 100)
    code, _, error = refsched(tmp_path, "serve", "--socket", str(path))
    assert (code, error) == (
        1,
        f"error: {path}: a socket's path has at most 102 bytes: name a shorter one with --socket\n",
    )


def test_where_things_are_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_socket() == Path("/home/ada/.local/state/spawngate/refsched.sock")
    assert default_journal() == Path("/home/ada/.local/state/spawngate/journal.db")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert default_socket() == Path("/run/user/1/spawngate/refsched.sock")


def test_who_asks_is_known_on_macos_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option, size) == (0, 1, 76)  # SOL_LOCAL, LOCAL_PEERCRED, sizeof(struct xucred)
            return struct.pack("=IIh2x16I", 0, 501, 2, 20, 12, *[0] * 14)

    monkeypatch.delattr(socket, "SO_PEERCRED")
    assert peer_uid(Connection()) == 501  # type: ignore[arg-type]
