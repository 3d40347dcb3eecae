"""What the scheduler wants done. A driver carries these out and answers with events."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from reference_scheduler.core.model import Allocation, PendReason


class RejectCode(StrEnum):
    """Why a submission was refused."""

    DISABLED = "disabled"
    INVALID = "invalid"
    DUPLICATE = "duplicate"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    IMPOSSIBLE = "impossible"
    QUEUE_FULL = "queue_full"
    TERMINAL = "terminal"


class _Decision(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    job: str


class Dispatch(_Decision, frozen=True):
    """Start attempt ``attempt`` on what ``allocation`` names; it holds that until its end is reported."""

    attempt: int
    allocation: Allocation


class Pend(_Decision, frozen=True):
    """The job waits for a new reason; ``detail`` has the numbers at this moment."""

    reason: PendReason
    detail: str = ""


class Victim(msgspec.Struct, frozen=True):
    """An attempt to be stopped, and the workers it is on."""

    job: str
    attempt: int
    workers: tuple[str, ...]


class Preempt(_Decision, frozen=True):
    """Stop ``victims`` for the sake of ``job``; each end is reported as interrupted."""

    victims: tuple[Victim, ...]
    reason: str


class Reject(_Decision, frozen=True):
    """The submission or update is refused and leaves no trace."""

    code: RejectCode
    reason: str


class Expire(_Decision, frozen=True):
    """The job did not start before its deadline and never will."""

    reason: str


class Requeue(_Decision, frozen=True):
    """Attempt ``attempt`` is over and the job waits again, at least until ``not_before_us``."""

    attempt: int
    not_before_us: int
    reason: str


class Cancel(_Decision, frozen=True):
    """Stop attempt ``attempt``, or, if that is 0, the job had no attempt and is cancelled already."""

    attempt: int
    reason: str


Decision: TypeAlias = Dispatch | Pend | Preempt | Reject | Expire | Requeue | Cancel
