"""Logs of what a core was told and what it decided: recorded, verified, printed."""

from reference_scheduler.replay.frames import Condition, FrameReader, ReplayError, Tail
from reference_scheduler.replay.recorder import Recorder

__all__ = ["Condition", "FrameReader", "Recorder", "ReplayError", "Tail"]
