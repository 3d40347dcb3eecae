"""What this core does differently from earlier ones, given the same events.

A change of the core that changes decisions, or the chain of hashes, gets a name here, which is recorded with
every log. A log that lacks a name was made before that change: where it differs on replay, that is why.
"""

from __future__ import annotations

BEHAVIOURS: dict[str, str] = {
    "endless-estimates": "a job without an estimate is expected to end later than any reservation",
    "lanes-pass-over": "a job that a limit, a pause or its size holds does not hold up its lane",
    "held-jobs-reserve-nothing": "conservative keeps no place for a job that a limit or a pause holds",
    "displaced-once": "a job that was asked to make way is not asked again, however its attempt ended",
    "passers-stay": "jobs without an estimate that pass a blocked one share what is left over beside it",
    "heads-are-held": "a limit or key that a job took when passing the head of EASY holds the head at once",
    "victims-suffice": "attempts are displaced only if that is enough, also where a budget is overdrawn",
    "stopped-unasked": "what was stopped for others, or with a lost worker, is interrupted, also if it ends cancelled",
    "cheapest-victims": "of equally few victims those are displaced that hold the least together, as of now",
    "held-jobs-displace-nothing": "who is held by a limit, a pause or its size keeps nobody from displacing attempts",
    "one-room": "the chain of hashes takes what is free as one sum over the workers",
}
