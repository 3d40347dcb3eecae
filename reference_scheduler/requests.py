"""What a caller asks for: one job of a kind, and how to treat it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from reference_scheduler.core.model import (
    MAX_ARRAY,
    MAX_TIME_US,
    SECOND_US,
    Idempotency,
    JobSpec,
    Priority,
    ResourceRequest,
    RetryPolicy,
    check_bounds,
)
from reference_scheduler.errors import InvalidSubmission, PayloadTooLarge

MAX_PAYLOAD_BYTES = 256 * 1024
MAX_KEY_BYTES = 256
MAX_LABEL_BYTES = 4096
"""Workspaces are paths, so labels may be as long as one."""
MAX_DEPENDENCIES = 256
_AROUND = 40
"""So many characters are shown on each side of one that cannot be written."""
DEFAULT_GRACE_US = 5 * SECOND_US
_TIMES = tuple(
    (name, 0 if name in ("delay_us", "grace_us") else 1, MAX_TIME_US)
    for name in ("delay_us", "start_within_us", "timeout_us", "grace_us", "lease_us")
)
_TEXTS = (
    ("user", MAX_LABEL_BYTES),
    ("workspace", MAX_LABEL_BYTES),
    ("session", MAX_LABEL_BYTES),
    ("queue", MAX_LABEL_BYTES),
    ("key", MAX_KEY_BYTES),
)

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to be run.

    ``payload`` holds JSON values; its shape belongs to the executor of ``kind``. Of two requests with the same
    ``key`` only the first makes a job. The job starts ``delay_us`` after its submission at the earliest, and
    expires unless it has started within ``start_within_us``. One attempt may take ``timeout_us``; it then has
    ``grace_us`` to stop by itself. It is given up if it does not report within each ``lease_us``. What is
    ``None`` is taken from the profile of the kind.

    With ``array_size`` it is an array: so many jobs, equal but for their index from 0 up, of which at most
    ``array_running`` run at once (0: no such limit). They are accepted or refused together.
    """

    kind: str
    payload: dict[str, Any] = {}
    key: str = ""
    priority: Priority = Priority.NORMAL
    user: str = ""
    workspace: str = ""
    session: str = ""
    queue: str = ""
    request: ResourceRequest | None = None
    estimate_us: int | None = None
    delay_us: int = 0
    start_within_us: int | None = None
    timeout_us: int | None = None
    grace_us: int | None = None
    lease_us: int | None = None
    after_ok: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    preemptible: bool = False
    idempotency: Idempotency | None = None
    retry: RetryPolicy | None = None
    array_size: int = 0
    array_running: int = 0


class Profile(msgspec.Struct, frozen=True):
    """What a kind of job is unless its request says otherwise; ``request`` ``None``: as for ``shell``."""

    idempotency: Idempotency = Idempotency.CONDITIONAL
    timeout_us: int | None = None
    request: ResourceRequest | None = None
    retry: RetryPolicy = RetryPolicy()


DEFAULT_PROFILES: dict[str, Profile] = {
    "test": Profile(Idempotency.SAFE_REPEAT),
    "build": Profile(Idempotency.SAFE_REPEAT),
    "lint": Profile(Idempotency.READ_ONLY),
    "format": Profile(Idempotency.SAFE_REPEAT),
    "git_read": Profile(Idempotency.READ_ONLY),
    "git_mutation": Profile(Idempotency.NON_IDEMPOTENT),
    "maintenance": Profile(Idempotency.SAFE_REPEAT),
}


decode_request = msgspec.msgpack.Decoder(JobRequest).decode
"""Return the request that :func:`encoded` gave the bytes of."""


def encoded(request: JobRequest) -> tuple[bytes, JobRequest]:
    """Return the bytes a request is kept as, and what they are read as, after checking its types and sizes.

    Raises:
        InvalidSubmission: a field is of another type or out of bounds, or cannot be written; the message names it.
        PayloadTooLarge: the payload exceeds ``MAX_PAYLOAD_BYTES``.
    """
    try:
        raw = _encode(request)
        request = decode_request(raw)
        for name, low, high in _TIMES:
            value = getattr(request, name)
            if value is not None:
                check_bounds(name, value, low, high)
        check_bounds("array_size", request.array_size, 0, MAX_ARRAY)
        check_bounds("array_running", request.array_running, 0, request.array_size)
        if len(raw) > MAX_KEY_BYTES:  # in fewer bytes nothing is too long
            _check_lengths(request)
        payload_bytes = len(raw) if len(raw) <= MAX_PAYLOAD_BYTES else len(_encode(request.payload))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidSubmission(what_is_wrong(error)) from error
    if payload_bytes > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the payload has {payload_bytes} bytes, at most {MAX_PAYLOAD_BYTES} are taken: pass a path to the data"
        )
    return raw, request


def what_is_wrong(error: Exception) -> str:
    """Return why a request cannot be written; of text that is none, such as the name of a file may be, that text."""
    if not isinstance(error, UnicodeEncodeError):
        return str(error)
    around = error.object[max(0, error.start - _AROUND) : error.end + _AROUND]
    return f"{around!r} cannot be written as UTF-8"


def _check_lengths(request: JobRequest) -> None:
    for name, most in _TEXTS:
        check_bounds(f"bytes of {name}", len(getattr(request, name).encode()), 0, most)
    count = len(request.after_ok) + len(request.after_any)
    check_bounds("number of dependencies", count, 0, MAX_DEPENDENCIES)


def fingerprint(encoded_request: bytes) -> bytes:
    """Return 16 bytes that tell a request from others with the same key."""
    return blake2b(encoded_request, digest_size=16).digest()


def spec_of(request: JobRequest, job: str, profile: Profile, now_us: int) -> JobSpec:
    """Return what the core is told of ``request``, submitted at ``now_us`` as ``job``.

    Raises:
        ValueError: a field is out of bounds; the message names it.
    """
    deadline_us = None if request.start_within_us is None else now_us + request.start_within_us
    return JobSpec(
        job,
        request.kind,
        request.priority,
        request.user,
        request.workspace,
        request.session,
        request.queue,
        request.request or profile.request,
        1,
        request.estimate_us,
        now_us + request.delay_us if request.delay_us else 0,
        deadline_us,
        request.after_ok,
        request.after_any,
        request.preemptible,
        request.idempotency or profile.idempotency,
        request.retry or profile.retry,
    )
