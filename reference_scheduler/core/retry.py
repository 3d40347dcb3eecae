"""When a job whose attempt failed may run again."""

from __future__ import annotations

from hashlib import blake2b

from reference_scheduler.core.model import Backoff, RetryPolicy


def delay_us(policy: RetryPolicy, job: str, failures: int) -> int:
    """Return the pause after the ``failures``-th failure of ``job`` (1 is the first).

    The pause grows as ``policy.backoff`` says up to ``cap_us``; the jitter on top is a fixed function of job
    and failure, so every replay has it too.
    """
    growth = {
        Backoff.NONE: 0,
        Backoff.FIXED: 1,
        Backoff.LINEAR: failures,
        Backoff.EXPONENTIAL: 1 << min(failures - 1, 62),
    }[policy.backoff]
    pause = min(policy.base_us * growth, policy.cap_us)
    draw = int.from_bytes(blake2b(f"{failures}:{job}".encode(), digest_size=4).digest(), "big")
    return pause + pause * policy.jitter_permille * draw // (1000 << 32)
