"""Logs: what is recorded is read back and replays; what is torn, damaged or different is said so."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from scheduler_world import World, simple

from reference_scheduler.cli import main
from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.decisions import Dispatch, Pend
from reference_scheduler.core.events import Event, Tick
from reference_scheduler.core.model import PendReason
from reference_scheduler.replay import Condition, FrameReader, Recorder, ReplayError
from reference_scheduler.replay.dump import Filter, as_json, as_text, follow, lines_of
from reference_scheduler.replay.fingerprint import schema_fingerprint
from reference_scheduler.replay.frames import HEAD_BYTES, MAGIC, PREAMBLE, Frame, Kind, pack_frame
from reference_scheduler.replay.records import (
    Entry,
    FailureRecord,
    Header,
    Record,
    State,
    pack_record,
    unpack_record,
)
from reference_scheduler.replay.verify import Verification, verify

GOLDEN = Path(__file__).parent / "golden"
SMALL = GOLDEN / "small.replay"
LOGS = sorted(GOLDEN.glob("*.replay"))
PAGE = Path(__file__).parents[2] / "docs" / "replay-format.md"


def load_make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frames_of(raw: bytes) -> list[Frame]:
    return list(FrameReader(io.BytesIO(raw)).frames())


def records_of(raw: bytes) -> list[tuple[Kind, Record]]:
    return [(Kind(frame.kind), unpack_record(frame)) for frame in frames_of(raw)]


def log_of(records: list[tuple[Kind, Record]]) -> bytes:
    return PREAMBLE + b"".join(pack_record(kind, record) for kind, record in records)


def verify_bytes(raw: bytes) -> Verification:
    return verify(io.BytesIO(raw))


def read_all(raw: bytes) -> tuple[int, Condition]:
    reader = FrameReader(io.BytesIO(raw))
    count = sum(1 for _ in reader.frames())
    return count, reader.tail.condition


# Golden files.


def test_there_is_a_golden_log_for_each_picker() -> None:
    names = {log.stem for log in LOGS}
    assert names == {
        "small", "fair", "fcfs", "sjf", "f1", "wfp3", "unicep", "easy", "easy-sjf", "conservative"
    }  # fmt: skip


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_golden_log_replays_decision_by_decision(log: Path) -> None:
    found = verify_bytes(log.read_bytes())
    assert found.same
    assert found.closed
    assert found.tail.condition is Condition.WHOLE
    assert found.other_behaviours == ()
    assert found.events >= (3 if log == SMALL else 80)


def test_the_golden_bytes_are_what_is_recorded_today(tmp_path: Path) -> None:
    load_make().make(tmp_path)
    for log in LOGS:
        assert (tmp_path / log.name).read_bytes() == log.read_bytes(), log.name


def test_the_page_about_the_format_shows_the_golden_file_byte_by_byte() -> None:
    text, shown = PAGE.read_text("utf-8"), b""
    for offset, digits in re.findall(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} ?)+?)  ", text, re.MULTILINE):
        assert int(offset, 16) == len(shown)
        shown += bytes.fromhex(digits)
    assert shown == SMALL.read_bytes()
    assert load_make().page_with(text, SMALL) == text
    assert schema_fingerprint() in text


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, "format version 0 is older than 1, the oldest that can be read: read it with the release that"),
        (2, "format version 2 is newer than 1: read it with a newer release"),
    ],
)
def test_another_version_of_the_format_is_refused_plainly(version: int, message: str) -> None:
    raw = MAGIC + version.to_bytes(4, "little") + SMALL.read_bytes()[len(PREAMBLE) :]
    with pytest.raises(ReplayError, match=re.escape(message)):
        verify_bytes(raw)


@pytest.mark.parametrize("raw", [b"PK\3\4", b"\x89SGR\n\x1a\n and so on", b"x"])
def test_what_is_no_log_is_refused(raw: bytes) -> None:
    with pytest.raises(ReplayError, match=r"not a \.replay file"):
        list(FrameReader(io.BytesIO(raw)).frames())


# Damage.


def test_a_log_cut_at_every_byte_opens_reports_appends_and_opens_again(tmp_path: Path) -> None:
    whole, log = SMALL.read_bytes(), tmp_path / "cut.replay"
    ends = [frame.end for frame in frames_of(whole)]
    begun = ends[1]  # header and first state
    for cut in range(len(whole)):
        log.write_bytes(whole[:cut])
        kept = sum(1 for end in ends if end <= cut)
        assert read_all(whole[:cut]) == (
            kept,
            Condition.WHOLE if cut in ends or cut == 12 else Condition.TORN,
        )
        assert not verify_bytes(whole[:cut]).closed
        world = World(simple(), {"n": 1})
        recorder, tail = Recorder.resume(log, world.core)
        assert tail.excess == cut - max([end for end in (len(PREAMBLE), *ends) if end <= cut], default=0)
        world.send(Tick)
        recorder(*world.log[-1])
        recorder.close()
        raw = log.read_bytes()
        if cut >= begun:
            assert raw.startswith(whole[: ends[kept - 1]])
        found = verify_bytes(raw)
        assert (found.same, found.closed, found.tail.condition) == (True, True, Condition.WHOLE)


def test_one_bit_flipped_anywhere_is_noticed() -> None:
    whole = SMALL.read_bytes()
    count = len(frames_of(whole))
    for index in range(len(whole)):
        for bit in range(8):
            raw = bytearray(whole)
            raw[index] ^= 1 << bit
            try:
                found, condition = read_all(bytes(raw))
            except ReplayError:
                assert index < len(PREAMBLE)
            else:
                assert found < count
                assert condition is not Condition.WHOLE


def test_zeros_after_a_crash_are_torn_and_anything_else_is_damaged(tmp_path: Path) -> None:
    whole, log = SMALL.read_bytes(), tmp_path / "log.replay"
    count = len(frames_of(whole))
    assert read_all(whole + bytes(4096)) == (count, Condition.TORN)
    assert read_all(whole + b"\1" + bytes(4096)) == (count, Condition.DAMAGED)
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 1
    assert read_all(bytes(middle))[1] is Condition.DAMAGED
    log.write_bytes(middle)
    with pytest.raises(ReplayError, match="nothing is appended to a damaged log"):
        Recorder.resume(log, SchedulerCore())
    assert log.read_bytes() == middle


def test_a_missing_frame_is_noticed() -> None:
    records = records_of(SMALL.read_bytes())
    del records[3]
    with pytest.raises(ReplayError, match="event 2 is missing: event 3 follows"):
        verify_bytes(log_of(records))


def test_events_without_a_state_are_refused() -> None:
    records = records_of(SMALL.read_bytes())
    del records[1]
    with pytest.raises(ReplayError, match="events before its first state"):
        verify_bytes(log_of(records))


# Recording.


def test_recording_starts_and_stops_at_any_time_and_goes_on_in_the_same_file(tmp_path: Path) -> None:
    log, world = tmp_path / "log.replay", World(simple("easy"), {"n": 2})
    world.submit("before", 2, estimate_us=9)
    with Recorder.start(log, world.core) as recorder:
        for name in ("a", "b"):
            world.submit(name, 2, estimate_us=9)
            recorder(*world.log[-1])
    world.submit("unseen", estimate_us=9)
    recorder, tail = Recorder.resume(log, world.core)
    assert (tail.condition, tail.excess) == (Condition.WHOLE, 0)
    with recorder:
        world.end("before")
        recorder(*world.log[-1])
    found = verify_bytes(log.read_bytes())
    assert (found.same, found.events, found.sessions, found.closed) == (True, 3, 2, True)
    assert found.chain == world.core.chain


def test_what_is_flushed_can_be_read_while_the_recording_goes_on(tmp_path: Path) -> None:
    log, world = tmp_path / "log.replay", World(simple(), {"n": 1})
    with Recorder.start(log, world.core) as recorder:
        world.submit("a")
        recorder(*world.log[-1])
        recorder.flush()
        found = verify_bytes(log.read_bytes())
        assert (found.same, found.events, found.closed) == (True, 1, False)


def test_checkpoints_come_on_the_way_and_stay_a_small_part(tmp_path: Path) -> None:
    log, world = tmp_path / "log.replay", World(simple(), {"n": 4})
    with Recorder.start(log, world.core) as recorder:
        for index in range(600):
            world.submit(f"job{index}")
            recorder(*world.log[-1])
            world.end(f"job{index}")
            recorder(*world.log[-1])
    frames = frames_of(log.read_bytes())
    states = [frame for frame in frames if frame.kind == Kind.CHECKPOINT]
    assert len(states) >= 2
    on_the_way = sum(len(frame.payload) for frame in states[:-1])
    assert on_the_way * 4 < sum(len(frame.payload) for frame in frames)
    assert verify_bytes(log.read_bytes()).same


def test_the_memory_of_a_recorder_does_not_grow_with_its_log(tmp_path: Path) -> None:
    core = SchedulerCore()
    with Recorder.start(tmp_path / "log.replay", core) as recorder:
        tracemalloc.start()
        for at in range(20_000):
            event = Tick(at=at, run_pass=False)
            recorder(event, core.handle(event))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1_000_000
    assert (tmp_path / "log.replay").stat().st_size > 1_000_000


class FullDisk(io.BytesIO):
    """Takes ``room`` bytes."""

    room = 3000

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        if self.tell() + len(data) > self.room:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_ends_the_recording_and_not_the_scheduler() -> None:
    world, disk = World(simple(), {"n": 1}), FullDisk()
    recorder = Recorder(disk, world.core)
    for index in range(40):
        world.submit(f"job{index}")
        recorder(*world.log[-1])
    assert recorder.error is not None
    with pytest.raises(OSError, match="No space left"):
        recorder.close()
    recorder.close()
    assert world.state("job39") == "queued"


def test_a_log_of_another_core_is_not_continued(tmp_path: Path) -> None:
    log = tmp_path / "log.replay"
    log.write_bytes(with_behaviours("an-old-habit"))
    with pytest.raises(ReplayError, match="another version of the core"):
        Recorder.resume(log, SchedulerCore())


# Verifying.


def with_behaviours(*names: str) -> bytes:
    (kind, header), *rest = records_of(SMALL.read_bytes())
    assert isinstance(header, Header)
    return log_of([(kind, replace(header, behaviours=names)), *rest])


def altered(change: Callable[[Record], Record]) -> bytes:
    return log_of([(kind, change(record)) for kind, record in records_of(SMALL.read_bytes())])


def test_the_first_divergence_is_told_with_event_decisions_and_state() -> None:
    def change(record: Record) -> Record:
        if isinstance(record, Entry) and record.number == 2:
            return replace(record, decisions=(Pend("a", PendReason.BEHIND),))
        return record

    divergence = verify_bytes(altered(change)).divergence
    assert divergence is not None
    assert divergence.number == 2
    assert divergence.expected == (Pend("a", PendReason.BEHIND),)
    (got,) = divergence.got
    assert isinstance(got, Dispatch)
    assert divergence.effects == ("job a.reason: expected <PendReason.BEHIND: 'behind'>, got None",)
    assert (divergence.state_number, divergence.state) == (3, ())


def test_a_decision_that_is_missing_is_told() -> None:
    def change(record: Record) -> Record:
        if isinstance(record, Entry) and record.number == 2:
            return replace(record, decisions=())
        return record

    divergence = verify_bytes(altered(change)).divergence
    assert divergence is not None
    (line,) = divergence.effects
    assert line.startswith("job a: expected no change, got {'state': 'running', 'attempt': 1,")


def test_a_state_that_differs_though_no_decision_does_is_told() -> None:
    def change(record: Record) -> Record:
        if isinstance(record, State) and record.number == 3:
            return replace(record, snapshot=replace(record.snapshot, beneficiary="b", outcomes=()))
        return record

    divergence = verify_bytes(altered(change)).divergence
    assert divergence is not None
    assert (divergence.number, divergence.event, divergence.state_number) == (3, None, 3)
    assert divergence.state == (
        "outcomes.a: expected None, got {'state': 'completed'}",
        "beneficiary: expected 'b', got ''",
    )


def test_a_hash_that_differs_is_a_divergence() -> None:
    def change(record: Record) -> Record:
        return replace(record, chain=bytes(8)) if isinstance(record, Entry) else record

    divergence = verify_bytes(altered(change)).divergence
    assert divergence is not None
    assert (divergence.number, divergence.expected) == (1, divergence.got)


def test_a_log_of_other_behaviours_says_which() -> None:
    found = verify_bytes(with_behaviours("an-old-habit"))
    assert found.same
    assert found.other_behaviours[0] == "an-old-habit"
    assert "endless-estimates" in found.other_behaviours


def test_a_log_of_another_schema_is_refused_with_both_fingerprints() -> None:
    (kind, header), start, *_ = records_of(SMALL.read_bytes())
    assert isinstance(header, Header)
    foreign = pack_frame(Kind.EVENT, msgspec.msgpack.encode([1, b"", {"type": "JobTeleported", "at": 0}, []]))
    raw = log_of([(kind, replace(header, schema="0123456789abcdef")), start]) + foreign
    with pytest.raises(ReplayError, match=f"schema 0123456789abcdef, this core has {schema_fingerprint()}"):
        verify_bytes(raw)
    lines = list(lines_of(FrameReader(io.BytesIO(raw)), Filter(kind="JobTeleported")))
    assert [as_text(line) for line in lines] == ["#1 0.000000 s JobTeleported"]


def test_a_plug_in_that_is_not_installed_is_named() -> None:
    def change(record: Record) -> Record:
        if isinstance(record, State) and record.number == 3:
            config = replace(record.snapshot.config, picker="missing")
            return replace(record, snapshot=replace(record.snapshot, config=config))
        return record

    kind, state = records_of(altered(change))[-2]
    header = records_of(SMALL.read_bytes())[0]
    assert kind is Kind.CHECKPOINT
    with pytest.raises(ReplayError, match="needs the plug-in 'missing', which is not installed"):
        verify_bytes(log_of([header, (Kind.START, state)]))


def test_a_recorded_failure_that_is_mended_is_told() -> None:
    records = records_of(SMALL.read_bytes())[:-3]
    failing = FailureRecord(2, records_of(SMALL.read_bytes())[3][1].event, "core", "it broke")  # type: ignore[union-attr]
    found = verify_bytes(log_of([*records, (Kind.FAILURE, failing)]))
    assert (found.same, found.failure, found.failure_now) == (True, "event 2: core: it broke", None)


# Printing.

SMALL_TEXT = """\
start after event 0: 0.000000 s, 0 jobs open, 0 ended, workers none
#1 0.000000 s ConfigLoaded config={config}
#2 1.000000 s JobSubmitted job={id=a kind=git_read user=u}
    Dispatch job=a attempt=1 allocation=[[local, [1, 128, 1, 1, 0]]]
#3 3.000000 s JobStateChanged job=a attempt=1 old=running new=completed
checkpoint after event 3: 3.000000 s, 0 jobs open, 1 ended, workers local
end after event 3
"""


def dumped(*arguments: str) -> list[str]:
    done = CliRunner().invoke(main, ["dump", str(SMALL), *arguments])
    assert done.exit_code == 0
    return done.output.splitlines()


def test_a_log_is_printed_for_people() -> None:
    lines = [re.sub(r"(?<=#1 0.000000 s ConfigLoaded config=).*", "{config}", line) for line in dumped()]
    assert lines[2:] == SMALL_TEXT.splitlines()
    assert lines[0].startswith(f"log of schema {schema_fingerprint()}, behaviours endless-estimates, ")


def test_a_log_is_printed_as_json_lines() -> None:
    lines = [json.loads(line) for line in dumped("--format", "jsonl")]
    kinds = ["header", "start", "event", "event", "event", "checkpoint", "end"]
    assert [line["record"] for line in lines] == kinds
    assert lines[3]["event"] == {
        "type": "JobSubmitted", "at": 1_000_000, "job": {"id": "a", "kind": "git_read", "user": "u"}
    }  # fmt: skip
    assert lines[3]["decisions"][0]["type"] == "Dispatch"
    assert len(lines[3]["chain"]) == 16


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["--job", "a"], [2, 3]),
        (["--job", "b"], []),
        (["--type", "Dispatch"], [2]),
        (["--type", "ConfigLoaded"], [1]),
        (["--from", "1", "--until", "2.5"], [2]),
        (["--from", "3", "--job", "a"], [3]),
    ],
)
def test_filters_choose_events(arguments: list[str], numbers: list[int]) -> None:
    lines = dumped("--format", "jsonl", *arguments)
    assert [json.loads(line)["number"] for line in lines] == numbers


def test_the_jobs_of_an_array_and_victims_count_for_the_filter() -> None:
    preempt = {"type": "Preempt", "job": "x", "victims": [{"job": "v", "attempt": 1, "workers": []}]}
    line = {"record": "event", "number": 1, "event": {"type": "Tick", "at": 0}, "decisions": [preempt]}
    assert Filter(job="v").accepts(line)
    preempt["job"] = "array[3]"
    assert Filter(job="array").accepts(line)
    assert not Filter(job="arr").accepts(line)


def test_a_growing_log_is_followed_to_its_end(tmp_path: Path) -> None:
    whole, log = SMALL.read_bytes(), tmp_path / "log.replay"
    log.write_bytes(b"")
    lengths = iter([5, 12, 100, 700, 701, 1500, 2000, len(whole)])
    waits = 0

    def grow() -> None:
        nonlocal waits
        waits += 1
        log.write_bytes(whole[: next(lengths)])

    with log.open("rb") as stream:
        lines = [as_json(line) for line in follow(FrameReader(stream), Filter(), grow)]
    assert lines == dumped("--format", "jsonl")
    assert waits == 8


def test_following_ends_at_damage(tmp_path: Path) -> None:
    raw = bytearray(SMALL.read_bytes())
    raw[200] ^= 1
    with pytest.raises(ReplayError, match="damaged at byte 12: the content of a frame fails its check"):
        list(follow(FrameReader(io.BytesIO(raw)), Filter(), pytest.fail))


# Commands.


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def test_a_simulation_is_recorded_and_verified(tmp_path: Path) -> None:
    log = tmp_path / "log.replay"
    assert run("simulate", "synthetic:jobs=50,seed=3", "--picker", "easy", "--record", log)[0] == 0
    status, text = run("verify", log)
    assert (status, text[:36]) == (0, "102 events in 1 recording replay as ")
    torn = tmp_path / "torn.replay"
    torn.write_bytes(log.read_bytes()[:-60])
    status, text = run("verify", torn)
    assert status == 0
    assert "the file is torn at byte" in text
    status, text = run("dump", torn)
    assert status == 0
    assert "torn at byte" in text


def test_verify_shows_a_divergence_and_fails(tmp_path: Path) -> None:
    log, (kind, header) = tmp_path / "log.replay", records_of(with_behaviours("an-old-habit"))[0]

    def change(record: Record) -> Record:
        return replace(record, decisions=()) if isinstance(record, Entry) and record.number == 2 else record

    log.write_bytes(log_of([(kind, header), *records_of(altered(change))[1:]]))
    status, text = run("verify", log)
    assert status == 1
    assert text.splitlines()[:4] == [
        "event 2 differs",
        "  event     #2 1.000000 s JobSubmitted job={id=a kind=git_read user=u}",
        "  expected  no decision",
        "  got       Dispatch job=a attempt=1 allocation=[[local, [1, 128, 1, 1, 0]]]",
    ]
    assert "state recorded after event 3:\n    no difference" in text
    assert "differs in: an-old-habit, endless-estimates" in text


def test_damage_makes_the_commands_fail(tmp_path: Path) -> None:
    log, raw = tmp_path / "log.replay", bytearray(SMALL.read_bytes())
    raw[-40] ^= 1
    log.write_bytes(raw)
    for command in ("verify", "dump"):
        status, text = run(command, log)
        assert status == 1
        assert "damaged at byte" in text


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_files_that_cannot_be_read_are_bad_usage(command: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, this is no log")
    assert run(command, tmp_path / "text")[0] == 2
    status, text = run(command, tmp_path / "missing")
    assert status == 2
    assert "No such file" in text


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    status, text = run("simulate", "synthetic:jobs=5", "--record", tmp_path / "no" / "log.replay")
    assert status == 2
    assert "log.replay: No such file" in text


def test_the_bytes_of_a_frame_are_as_documented() -> None:
    raw = pack_frame(Kind.END, b"\x91\x03")
    assert len(raw) == HEAD_BYTES + 2
    assert raw[:5] == b"\6\2\0\0\0"


def test_events_of_a_log_are_those_that_were_recorded() -> None:
    events: tuple[Event, ...] = load_make().SMALL
    recorded = [record.event for _, record in records_of(SMALL.read_bytes()) if isinstance(record, Entry)]
    assert tuple(recorded) == events
