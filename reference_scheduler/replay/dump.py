"""Prints logs for people and for programs.

It needs no more than MessagePack, the order of fields and the few that are shown in a way of their own, so it also
prints logs of other schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from reference_scheduler.core.model import SECOND_US
from reference_scheduler.replay.frames import Frame, FrameReader, Kind, ReplayError, Tail

Line = dict[str, Any]

_FIELDS: dict[Kind, tuple[str, ...]] = {
    Kind.START: ("number", "state"),
    Kind.CHECKPOINT: ("number", "state"),
    Kind.EVENT: ("number", "chain", "event", "decisions"),
    Kind.FAILURE: ("number", "event", "check", "message"),
    Kind.END: ("number",),
}


class _Job(msgspec.Struct):
    id: str


class _Victim(msgspec.Struct):
    job: str


class _Part(msgspec.Struct):
    """An event or a decision."""

    type: str
    job: str | _Job | None = None
    victims: list[_Victim] = []


class _Event(_Part, kw_only=True):
    at: int


class _Worker(msgspec.Struct):
    name: str


class _State(msgspec.Struct):
    now_us: int
    workers: list[_Worker]
    jobs: list[Any]
    outcomes: list[Any]


class _Header(msgspec.Struct):
    schema: str
    behaviours: list[str]
    config: dict[str, Any]


_SHAPES: dict[Kind, Any] = {
    Kind.HEADER: _Header,
    Kind.START: tuple[int, _State],
    Kind.CHECKPOINT: tuple[int, _State],
    Kind.EVENT: tuple[int, bytes, _Event, list[_Part]],
    Kind.FAILURE: tuple[int, _Event, str, str],
    Kind.END: tuple[int],
}
"""All that is relied on here: a frame that passes its checks may still be one of another program."""
_DECODERS = {kind: msgspec.msgpack.Decoder(shape) for kind, shape in _SHAPES.items()}


class Filter(msgspec.Struct, frozen=True):
    """Which events to print: those that satisfy all that is given. Given anything, only events count.

    ``job`` is the id of a job, or of an array whose jobs then count too; ``kind`` the name of an event or a
    decision; times are those of the events, in microseconds, both ends included.
    """

    job: str | None = None
    kind: str | None = None
    from_us: int | None = None
    until_us: int | None = None

    def accepts(self, line: Line) -> bool:
        """Return whether ``line`` is to be printed."""
        if self == Filter():
            return True
        if line["record"] not in ("event", "failure"):
            return False
        event, parts = line["event"], [line["event"], *line.get("decisions", ())]
        return (
            (self.from_us is None or event["at"] >= self.from_us)
            and (self.until_us is None or event["at"] <= self.until_us)
            and (self.kind is None or any(part["type"] == self.kind for part in parts))
            and (self.job is None or any(self._concerns(name) for part in parts for name in _jobs(part)))
        )

    def _concerns(self, name: str) -> bool:
        return name == self.job or name.startswith(f"{self.job}[")


def lines_of(reader: FrameReader, wanted: Filter) -> Iterator[Line]:
    """Yield what ``reader`` has not read yet as plain data with the keys ``record`` and those of its record.

    Raises:
        ReplayError: the file is no log.
    """
    for frame in reader.frames():
        line = _line(frame)
        if wanted.accepts(line):
            yield line


def follow(reader: FrameReader, wanted: Filter, wait: Callable[[], None]) -> Iterator[Line]:
    """Yield what is in the log and what is still written to it, until it is ended.

    ``wait`` is called whenever there is nothing more for now.

    Raises:
        ReplayError: the file is no log, or is damaged.
    """
    while True:
        ended = False
        for frame in reader.frames():
            line = _line(frame)
            ended = line["record"] == "end"
            if wanted.accepts(line):
                yield line
        if ended:
            return
        _refuse_damage(reader.tail)
        wait()


def _refuse_damage(tail: Tail) -> None:
    if tail.condition == "damaged":
        raise ReplayError(str(tail))


def _line(frame: Frame) -> Line:
    try:
        kind = Kind(frame.kind)
        _DECODERS[kind].decode(frame.payload)
        content = msgspec.msgpack.decode(frame.payload)
        fields = content if kind is Kind.HEADER else dict(zip(_FIELDS[kind], content, strict=True))
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise ReplayError(f"the frame that ends at byte {frame.end} cannot be decoded: {error}") from error
    for key, value in fields.items():
        if isinstance(value, bytes):
            fields[key] = value.hex()
    return {"record": kind.name.lower(), **fields}


def as_json(line: Line) -> str:
    """Return ``line`` as one line of JSON; bytes inside a state are in base64."""
    return msgspec.json.encode(line).decode()


def as_text(line: Line) -> str:
    """Return ``line`` for people: an event with its time in seconds, its decisions indented below."""
    match line["record"]:
        case "header":
            config = line["config"]
            behaviours = ", ".join(line["behaviours"]) or "none"
            return f"log of schema {line['schema']}, behaviours {behaviours}\n  config {_fields(config)}"
        case "start" | "checkpoint":
            state = line["state"]
            jobs, ended = len(state["jobs"]), len(state["outcomes"])
            workers = ", ".join(worker["name"] for worker in state["workers"]) or "none"
            time = _seconds(state["now_us"])
            counts = f"{jobs} jobs open, {ended} ended, workers {workers}"
            return f"{line['record']} after event {line['number']}: {time}, {counts}"
        case "end":
            return f"end after event {line['number']}"
        case "failure":
            text = event_text(line["number"], line["event"])
            return f"{text}\n    FAILURE {line['check']}: {line['message']}"
    decisions = (f"    {value_text(decision)}" for decision in line["decisions"])
    return "\n".join([event_text(line["number"], line["event"]), *decisions])


def event_text(number: int, event: Line) -> str:
    """Return one event, as plain data, for people."""
    rest = {key: value for key, value in event.items() if key not in ("at", "run_pass")}
    quiet = "" if event.get("run_pass", True) else " (no pass)"
    return f"#{number} {_seconds(event['at'])} {value_text(rest)}{quiet}"


def value_text(value: Line) -> str:
    """Return what has a type, as plain data, for people: the type, then the fields."""
    rest = _fields({key: inner for key, inner in value.items() if key != "type"})
    return f"{value['type']} {rest}".rstrip()


def _fields(value: Line) -> str:
    return " ".join(f"{key}={_value(inner)}" for key, inner in value.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + _fields(value) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value) if isinstance(value, str) and value.isprintable() and " " not in value and value else repr(value)


def _seconds(time_us: int) -> str:
    return f"{time_us / SECOND_US:.6f} s"


def _jobs(part: Line) -> Iterator[str]:
    """Yield the ids of all jobs that an event or decision names."""
    job = part.get("job")
    if isinstance(job, str):
        yield job
    elif job is not None:
        yield job["id"]
    for victim in part.get("victims", ()):
        yield victim["job"]
