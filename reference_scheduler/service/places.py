"""Where a user's scheduler is: its socket, its files, and that nobody else can put them there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from reference_scheduler.service.errors import ServiceError

MAX_SOCKET_PATH_BYTES = 107
"""Longer paths of sockets the kernel does not take."""
SOCKET_VARIABLE = "REFSCHED_SOCKET"


def state_directory() -> Path:
    """Return where a user's journals are by default."""
    return _base("XDG_STATE_HOME", ".local/state")


def default_socket() -> Path:
    """Return where a user's scheduler answers by default."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return (Path(runtime) / "spawngate" if runtime else state_directory()) / "refsched.sock"


def default_journal() -> Path:
    """Return the journal of a user's scheduler by default."""
    return state_directory() / "journal.db"


def default_config() -> Path:
    """Return the configuration file that is read if it is there."""
    return _base("XDG_CONFIG_HOME", ".config") / "scheduler.toml"


def private_directory(path: Path, make: bool = True) -> None:
    """Check that nobody else can write in the directory ``path``; with ``make``, make it if it is not there.

    Raises:
        ServiceError: it is not there or cannot be made, or somebody else could replace what is in it.
    """
    try:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror}") from error
    use = "use a directory of yours, made with mkdir -m 700"
    if found.st_uid not in (os.geteuid(), 0):
        raise ServiceError(f"{path}: belongs to another user, who could replace the socket or journal: {use}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ServiceError(f"{path}: others may write there and could replace the socket or journal: {use}")


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return (Path(value) if value else Path.home() / default) / "spawngate"
