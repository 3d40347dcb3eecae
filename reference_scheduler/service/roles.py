"""Who asks, as the kernel says, and what they may do."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from enum import IntEnum
from functools import lru_cache

import msgspec

from reference_scheduler.config import ConfigError, ServiceSettings

_UCRED = struct.Struct("3i")
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
_XUCRED = struct.Struct("=IIh2x16I")
"""``struct xucred`` of macOS: version, user, number of groups, groups."""


class Role(IntEnum):
    """What a peer may do; each role may do what those before it may."""

    NONE = 0
    READER = 1
    SUBMITTER = 2
    ADMIN = 3


class Peer(msgspec.Struct, frozen=True):
    """The user on the other side of a connection."""

    uid: int
    user: str
    role: Role


class Roles:
    """The roles of all users: the owner is whoever runs the scheduler, and may do everything.

    Raises:
        ConfigError: the settings name a user that the system does not know.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._roles: dict[int, Role] = {}
        for role, key in ((Role.READER, "readers"), (Role.SUBMITTER, "submitters"), (Role.ADMIN, "admins")):
            for name in getattr(settings, key):
                self._roles[_uid(name, f"scheduler.service.{key}")] = role
        self.only_owner = not self._roles
        self._roles[os.geteuid()] = Role.ADMIN
        for uid in self._roles:
            user_name(uid)  # while there are descriptors to look it up with: whose a job is goes by it

    def peer(self, uid: int) -> Peer:
        """Return the user as a peer, with the role that it has now."""
        return Peer(uid, user_name(uid), self._roles.get(uid, Role.NONE))


def peer_uid(connection: socket.socket) -> int:
    """Return the user that was at the other end of ``connection`` when it was made."""
    if hasattr(socket, "SO_PEERCRED"):
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    else:
        _, uid, *_ = _XUCRED.unpack(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))
    return int(uid)


def user_name(uid: int) -> str:
    """Return the name of a user, the number itself if there is none."""
    try:
        return _known_name(uid)
    except KeyError:  # which is also raised if nothing can be looked up just now, so it is not remembered
        return str(uid)


@lru_cache(1024)
def _known_name(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name


def _uid(name: str, key: str) -> int:
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ConfigError(f"{key}: the system knows no user {name!r}; names or numbers are taken") from None
