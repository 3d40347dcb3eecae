"""A snapshot in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reference_scheduler.core.machine import TERMINAL
from reference_scheduler.views import SchedulerSnapshot

Sample = tuple[Mapping[str, str], float]
Measure = tuple[str, str, str, list[Sample]]


def exposition(snapshot: SchedulerSnapshot) -> str:
    """Return the text; all names begin with ``refsched_``."""
    lines: list[str] = []
    info = {"generation": snapshot.generation, "rollout": snapshot.rollout}
    budget = snapshot.budget
    ended = {str(state): snapshot.ended.get(state, 0) for state in TERMINAL}
    measures: list[Measure] = [
        ("info", "gauge", "Which start of the scheduler this is.", [(info, 1)]),
        ("enabled", "gauge", "1 unless the configuration disables it.", [({}, snapshot.enabled)]),
        ("accepting", "gauge", "1 if it takes jobs.", [({}, snapshot.accepting)]),
        ("starting", "gauge", "1 unless a pause, say, keeps all jobs from starting.", [({}, not snapshot.hold)]),
        ("journal_available", "gauge", "1 if the journal can be written.", [({}, not snapshot.unavailable)]),
        *_counted("queued", "Jobs that wait", snapshot.queued),
        *_counted("running", "Jobs that run", snapshot.running),
        ("ended_total", "counter", "Jobs that have ended, by state.", _by("state", ended)),
        (
            "executor_healthy",
            "gauge",
            "1 unless the executor of a kind says what is wrong with it.",
            _by("kind", {kind: kind not in snapshot.unhealthy for kind in snapshot.executors}),
        ),
        ("blocked", "gauge", "Jobs that wait, by reason.", _by("reason", snapshot.blocked)),
        ("uncounted", "gauge", "Jobs whose label is one too many.", _by("label", snapshot.overflow)),
        ("capacity", "gauge", "What there is of a resource.", _by("resource", budget.capacity._asdict())),
        ("used", "gauge", "What attempts hold of it.", _by("resource", budget.used._asdict())),
        ("oldest_queued_seconds", "gauge", "Age of the oldest waiting job.", [({}, snapshot.oldest_queued_us / 1e6)]),
        ("stale_writes_total", "counter", "Writes with a stale token.", [({}, snapshot.stale_writes)]),
        ("clock_clamped_total", "counter", "Events whose time lay in the past.", [({}, snapshot.clamped)]),
        ("wakes_total", "counter", "What woke the scheduler.", _by("reason", snapshot.wakes)),
    ]
    for name, kind, text, samples in measures:
        lines += [f"# HELP refsched_{name} {text}", f"# TYPE refsched_{name} {kind}"]
        lines += [f"refsched_{name}{_labels(labels)} {value:.10g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _counted(name: str, text: str, counts: Mapping[str, int]) -> Iterable[Measure]:
    """Yield one measure for each label: ``counts`` has keys such as ``priority:normal``."""
    for label in ("priority", "kind", "workspace"):
        found = {key.partition(":")[2]: count for key, count in counts.items() if key.startswith(f"{label}:")}
        yield f"{name}_by_{label}", "gauge", f"{text}, by {label}.", _by(label, found)


def _by(label: str, counts: Mapping[str, float]) -> list[Sample]:
    return [({label: value}, count) for value, count in sorted(counts.items())]


def _labels(labels: Mapping[str, str]) -> str:
    texts = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return "{" + ",".join(texts) + "}" if texts else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
