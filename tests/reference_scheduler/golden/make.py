"""Records the golden logs, and the bytes that ``docs/replay-format.md`` shows, anew. Run it from the root:

    PYTHONPATH=. python tests/reference_scheduler/golden/make.py

Needed after a change of the core that changes decisions, which then gets a name in ``core/behaviours.py``, or
of the format, which then gets a new version. The tests compare the files with what is recorded now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.events import ConfigLoaded, Event, JobStateChanged, JobSubmitted
from reference_scheduler.core.model import Config, JobSpec, JobState
from reference_scheduler.fuzz.run import run_seed, save
from reference_scheduler.fuzz.world import Item, Restart
from reference_scheduler.replay import FrameReader, Recorder
from reference_scheduler.replay.frames import HEAD_BYTES, PREAMBLE

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "replay-format.md"
SEEDS = (153, 82, 245, 183, 157, 383, 123, 196, 359)
"""One history for each picker, all with several kinds of faults."""
EVENTS = 80
PART = 15

SMALL: tuple[Event, ...] = (
    ConfigLoaded(at=0, config=Config(resources=Resources(1, 128, 1, 1, 0), picker="fcfs")),
    JobSubmitted(at=1_000_000, job=JobSpec(id="a", kind="git_read", user="u")),
    JobStateChanged(at=3_000_000, job="a", attempt=1, old=JobState.RUNNING, new=JobState.COMPLETED),
)
"""The history of ``small.replay``, which ``docs/replay-format.md`` shows byte by byte."""


def record_small(path: Path) -> None:
    """Record ``SMALL``."""
    core = SchedulerCore()
    with Recorder.start(path, core) as recorder:
        for event in SMALL:
            recorder(event, core.handle(event))


def make(directory: Path) -> None:
    """Record all golden logs into ``directory``."""
    record_small(directory / "small.replay")
    for seed in SEEDS:
        outcome = run_seed(seed, EVENTS)
        items = [item for part in batched(outcome.items) for item in (*part, Restart())]
        save(items, directory / f"{outcome.swarm.config.picker}.replay")


def batched(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield ``items`` in parts: between them the state is recorded, with the reservations it has then."""
    for start in range(0, len(items), PART):
        yield items[start : start + PART]


def page_with(text: str, log: Path) -> str:
    """Return ``text`` with the bytes of ``log`` in its blocks: one for the preamble, one for each frame."""
    raw = log.read_bytes()
    with log.open("rb") as stream:
        ends = [len(PREAMBLE), *(frame.end for frame in FrameReader(stream).frames())]
    blocks = [hexdump(raw, 0, ends[0])]
    for start, end in pairwise(ends):
        blocks.append(hexdump(raw, start, start + HEAD_BYTES) + hexdump(raw, start + HEAD_BYTES, end))
    shown = iter(blocks)
    return re.sub(r"(?<=^```text\n)[^`]*?(?=^```$)", lambda found: next(shown), text, flags=re.MULTILINE)


def hexdump(raw: bytes, start: int, end: int) -> str:
    """Return lines of offset, bytes and characters."""
    lines = []
    for offset in range(start, end, 16):
        part = raw[offset : min(offset + 16, end)]
        characters = "".join(chr(byte) if 32 <= byte < 127 and byte != 96 else "." for byte in part)
        lines.append(f"{offset:08x}  {part.hex(' '):<47}  {characters}\n")
    return "".join(lines)


if __name__ == "__main__":
    make(HERE)
    PAGE.write_text(page_with(PAGE.read_text("utf-8"), HERE / "small.replay"), "utf-8")
