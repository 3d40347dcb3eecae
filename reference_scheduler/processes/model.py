"""What is asked of a process, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from reference_scheduler.core.model import MAX_TIME_US, SECOND_US, Failure, check_bounds
from reference_scheduler.processes.environment import check_text
from reference_scheduler.processes.supervisor import Ending as Ending

MAX_KEPT_BYTES = 1 << 26


class ProcessSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A process as it was asked for: ``argv`` is handed over as it is, no shell reads it.

    ``env`` is added to the rebuilt environment. ``timeout_us`` bounds the run time; then, and when it is stopped, it
    has ``grace_us`` from TERM to KILL. Of each output stream the first ``head_bytes`` and the last ``tail_bytes`` are
    kept; a process that prints more than ``max_output_bytes`` in all is ended.

    Raises:
        ValueError: a field is out of bounds; the message names both.
    """

    argv: tuple[str, ...]
    cwd: str = "/"
    env: Mapping[str, str] = {}
    timeout_us: int | None = None
    grace_us: int = 5 * SECOND_US
    head_bytes: int = 1 << 16
    tail_bytes: int = 1 << 16
    max_output_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("argv: needs a program, got nothing")
        for text in self.argv:
            check_text("argv", text)
        check_text("cwd", self.cwd)
        check_bounds("timeout_us", self.timeout_us or 0, 0, MAX_TIME_US)
        check_bounds("grace_us", self.grace_us, 0, MAX_TIME_US)
        check_bounds("max_output_bytes", self.max_output_bytes or 0, 0, MAX_TIME_US)
        check_bounds("head_bytes", self.head_bytes, 0, MAX_KEPT_BYTES)
        check_bounds("tail_bytes", self.tail_bytes, 0, MAX_KEPT_BYTES)


class Output(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a stream carried: all of it in ``head``, or its two ends with ``omitted_bytes`` left out between them."""

    head: bytes = b""
    tail: bytes = b""
    omitted_bytes: int = 0

    @classmethod
    def kept(cls, head: bytes, tail: bytes, total_bytes: int) -> Output:
        """Return what a drain kept of ``total_bytes``."""
        return cls(head, tail, total_bytes - len(head) - len(tail))


class Printed(NamedTuple):
    """What a stream has carried so far, or a part of it: ``data`` from byte ``begin`` on, of ``total_bytes``."""

    begin: int
    data: bytes
    total_bytes: int


class ProcessResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a process ended; by then nothing that it started lives.

    ``exit_code`` or ``signal`` is what became of the process itself, whatever it was that ended it. ``failure`` and
    ``detail`` say why one could not be started, or was lost. ``left_behind`` counts the processes that were still
    alive when the first one exited by itself, and were killed.
    """

    ending: Ending
    exit_code: int | None = None
    signal: int | None = None
    failure: Failure = Failure.UNKNOWN
    detail: str = ""
    stdout: Output = Output()
    stderr: Output = Output()
    left_behind: int = 0
    peak_rss_kb: int = 0
