"""Says where two states, or what two lists of decisions make of the jobs, differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Cancel, Decision, Dispatch, Expire, Pend, Preempt, Requeue
from reference_scheduler.core.snapshot import Snapshot

MOST_LINES = 20


def compare_states(expected: Snapshot, got: Snapshot) -> tuple[str, ...]:
    """Return a line ``path: expected …, got …`` for what differs, at most ``MOST_LINES`` of them."""
    return _limited(_differences("", _named(expected), _named(got)))


def compare_effects(core: SchedulerCore, expected: tuple[Decision, ...], got: tuple[Decision, ...]) -> tuple[str, ...]:
    """Return where the jobs that ``core`` has after ``got`` are not what ``expected`` makes of them."""
    wanted, made = _effects(expected), _effects(got)
    lines = []
    for name in dict.fromkeys((*wanted, *made)):
        found = _facts(core, name)
        if name not in wanted:
            lines.append(f"job {name}: expected no change, got {_shown(made[name])}")
            continue
        lines += [
            f"job {name}.{key}: expected {value!r}, got {found.get(key)!r}"
            for key, value in wanted[name].items()
            if found.get(key) != value
        ]
    return _limited(iter(lines))


def _limited(lines: Iterator[str]) -> tuple[str, ...]:
    first = list(islice(lines, MOST_LINES))
    more = sum(1 for _ in lines)
    return (*first, f"and {more} more") if more else tuple(first)


def _named(snapshot: Snapshot) -> dict[str, Any]:
    """Return ``snapshot`` with its lists as maps, so that what is missing is told from what moved."""
    plain: dict[str, Any] = msgspec.to_builtins(snapshot)
    plain["workers"] = {worker["name"]: worker for worker in plain["workers"]}
    plain["jobs"] = {job["spec"]["id"]: job for job in plain["jobs"]}
    for key in ("queues", "arrays", "outcomes"):
        plain[key] = dict(plain[key])
    return plain


def _differences(path: str, expected: object, got: object) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in dict.fromkeys((*expected, *got)):
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(inner, expected.get(key), got.get(key))
        if list(expected) != list(got) and set(expected) == set(got):
            yield f"{path}: expected the order {_shown(list(expected))}, got {_shown(list(got))}"
    elif expected != got:
        yield f"{path}: expected {_shown(expected)}, got {_shown(got)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _effects(decisions: tuple[Decision, ...]) -> dict[str, dict[str, object]]:
    """Return what the decisions, carried out in their order, say about each job."""
    facts: dict[str, dict[str, object]] = {}
    for decision in decisions:
        for name, changes in _effect(decision):
            facts.setdefault(name, {}).update(changes)
    return facts


def _effect(decision: Decision) -> list[tuple[str, Mapping[str, object]]]:
    match decision:
        case Dispatch():
            allocation = decision.allocation
            change = {
                "state": "running",
                "attempt": decision.attempt,
                "allocation": allocation,
                "reason": None,
            }
        case Pend():
            change = {"reason": decision.reason}
        case Requeue():
            change = {"attempt": None, "allocation": None, "not_before_us": decision.not_before_us}
        case Expire():
            change = {"state": "expired"}
        case Cancel():
            change = {"stopping": True} if decision.attempt else {"state": "cancelled"}
        case Preempt():
            return [(victim.job, {"stopping": True}) for victim in decision.victims]
        case _:
            return []
    return [(decision.job, change)]


def _facts(core: SchedulerCore, name: str) -> dict[str, object]:
    job, outcome = core.job(name), core.outcome(name)
    if job is None:
        return {"state": outcome.state.value} if outcome else {"state": "unknown"}
    facts: dict[str, object] = {"state": job.state.value, "reason": job.reason}
    facts |= {"not_before_us": job.not_before_us, "attempt": None, "allocation": None}
    if job.attempt is not None:
        attempt = job.attempt
        facts |= {"attempt": attempt.number, "allocation": attempt.allocation, "stopping": attempt.stopping}
    return facts
