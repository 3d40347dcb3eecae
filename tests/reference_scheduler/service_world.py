"""A scheduler that runs as a service, for tests: the real command in a process of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner

from reference_scheduler.cli import main
from reference_scheduler.service.client import Client

PATIENCE_S = 60
SCREEN_COLUMNS = 160
ROOT = str(Path(__file__).parents[2])
COMMAND = (sys.executable, "-c", "from reference_scheduler.__main__ import main; main()")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return variables under which a command has all of its files in ``folder``."""
    own = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": ROOT, "PYTHONWARNINGS": "error"}
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONHASHSEED") if name in os.environ}
    return {**kept, **own, **more}


def refsched(folder: Path, *arguments: str, stdin: bytes = b"", **more: str) -> tuple[int, str, str]:
    """Run a command to its end; return exit status, output and errors."""
    done = subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, cwd=folder, env=environment(folder, **more)
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refsched_here(folder: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run a command in this process, which is quick; return the same as :func:`refsched`."""
    with chdir(folder):
        result = CliRunner().invoke(main, arguments, input=stdin, env=environment(folder), prog_name="refsched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


class Process:
    """A command that runs; its output is read line by line."""

    def __init__(self, folder: Path, *arguments: str, prelude: str = "", **more: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*COMMAND[:2], prelude + COMMAND[2], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment(folder, **more),
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        self._unread = b""

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    def line(self) -> str:
        """Return the next line of output or error, "" at their end."""
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            assert self._selector.select(PATIENCE_S), f"no line, only {self._unread!r}"
            data = self.process.stdout.read(65536)
            if not data:
                break
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def has_more(self) -> bool:
        """Return whether there is output that was not read."""
        return bool(self._unread or self._selector.select(0))

    def has_socket(self) -> bool:
        """Return whether it has connected to something."""
        with suppress(OSError):  # what is open changes while one looks
            return any("socket:" in str(fd.readlink()) for fd in Path(f"/proc/{self.pid}/fd").iterdir())
        return False

    def until(self, beginning: str) -> str:
        """Return the next line that begins so."""
        while not (line := self.line()).startswith(beginning):
            assert line, f"it ended with {self.process.wait(PATIENCE_S)} before it said {beginning!r}"
        return line

    def rest(self) -> list[str]:
        """Return the lines up to the end of the output."""
        return list(iter(self.line, ""))

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Return the exit status."""
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._selector.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Service(Process):
    """``refsched serve``, ready to answer."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        config: str = "",
        ready: str = "ready: ",
        prelude: str = "",
        **more: str,
    ) -> None:
        if config:
            (folder / "scheduler.toml").write_text(config)
            arguments = (*arguments, "--config", "scheduler.toml")
        super().__init__(folder, "serve", *arguments, prelude=prelude, **more)
        self.path = folder / "spawngate" / "refsched.sock"
        try:
            self.said = self.until(ready)
        except BaseException:
            self.__exit__()
            raise

    def client(self) -> Client:
        """Return a client of the service."""
        return Client(self.path)

    def raw(self) -> Raw:
        """Return a connection on which anything can be sent."""
        return Raw(self.path)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Have it end, and return its exit status."""
        self.send(number)
        return self.wait()


class Screen:
    """A command on a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, SCREEN_COLUMNS, 0, 0))
        variables = environment(folder, TERM="xterm")
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=variables
        )
        os.close(theirs)
        self.shown = b""

    def until(self, text: bytes) -> None:
        """Read until ``text`` has been shown since the last call."""
        begin = len(self.shown)
        while text not in self.shown[begin:]:
            assert select.select([self._ours], [], [], PATIENCE_S)[0], self.shown[begin:]
            self.shown += os.read(self._ours, 65536)

    def close(self) -> int:
        """Send what Ctrl-C sends, and return the exit status."""
        self.process.send_signal(signal.SIGINT)
        self.rest()
        return self.process.wait(PATIENCE_S)

    def rest(self) -> str:
        """Return all that it has shown when it has ended."""
        try:
            while data := os.read(self._ours, 65536):
                self.shown += data
        except OSError:
            pass  # Linux says so when the other end is closed
        os.close(self._ours)
        self.process.wait(PATIENCE_S)
        return self.shown.decode()


class Raw:
    """A connection without manners."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(str(path))  # with a time limit, it would not wait for a place in the queue
        except OSError:
            self.socket.close()
            raise
        self.socket.settimeout(PATIENCE_S)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def answer(self) -> dict[str, Any]:
        """Return the next answer, {} if the service has hung up."""
        line = self._file.readline()
        return json.loads(line) if line else {}

    def ask(self, data: bytes) -> dict[str, Any]:
        """Send a line and return the answer, which a service that refuses everything gives before it is asked."""
        with contextlib.suppress(BrokenPipeError):
            self.send(data + b"\n")
        return self.answer()

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
