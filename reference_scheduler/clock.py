"""The scheduler's time: it goes on over restarts, and no step of the wall clock touches it while it runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from reference_scheduler.journal.base import Saved

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return what names this boot of the machine, empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Clock:
    """Microseconds of the monotonic clock plus ``offset_us``, which is kept as long as the machine is not booted."""

    def __init__(self, offset_us: int = 0, boot: str = "") -> None:
        self.offset_us = offset_us
        self.boot = boot

    @classmethod
    def resumed(cls, saved: Saved, last_us: int) -> Self:
        """Return the clock that goes on from ``saved``, whose latest event was at ``last_us``.

        After another boot only the wall clock knows how long the machine was off; time does not go back by it.
        """
        boot = boot_id()
        if saved.generation is not None and boot and saved.generation.boot == boot:
            return cls(saved.generation.offset_us, boot)
        off_us = max(0, wall_us() - saved.wall_us) if saved.wall_us else 0
        return cls(last_us + off_us - _monotonic_us(), boot)

    def now_us(self) -> int:
        """Return the scheduler's time."""
        return _monotonic_us() + self.offset_us


def wall_us() -> int:
    """Return the time of day in microseconds since 1970: for people, nothing is decided by it."""
    return time.time_ns() // 1000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
