"""What no trace, log or plug-in may do to the commands: each ends with one line, its place, and status 2."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from reference_scheduler.cli import main
from reference_scheduler.core import SchedulerCore
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.events import (
    ConfigLoaded,
    Event,
    JobStateChanged,
    JobSubmitted,
    JobUpdated,
    ResourcesChanged,
    WorkerUpdated,
)
from reference_scheduler.core.model import COMPLETED, RUNNING, SECOND_US, JobSpec, ResourceRequest
from reference_scheduler.core.pickers import PICKERS
from reference_scheduler.drivers.simulation import simulation_config
from reference_scheduler.replay import Recorder
from reference_scheduler.replay.frames import PREAMBLE, FrameReader, Kind, pack_frame
from reference_scheduler.workloads import read_workload
from reference_scheduler.workloads.model import MAX_LINE

COMMAND = (sys.executable, "-m", "reference_scheduler")
HEADER = "job,submit,run,procs,estimate\n"
MACHINE = '{"format":"spawngate-workload","version":1,"workers":[["m",[0,0,4,0,0]]]}\n'
JOB = '{"submit_us":%s,"run_us":%s,"job":{"id":"a","request":{"process_slots":1}}}\n'
LATEST_US = 1 << 61
TOO_LONG = "more than the 2305843009213 seconds that can be counted"
SMALL = Path(__file__).parent / "golden" / "small.replay"


def refused(*arguments: str | Path) -> str:
    """Return what the command says, without ``error:``; it must be one line, with status 2."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    return done.stderr.removeprefix("error: ").rstrip()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.swf", "1 0 0 nan 1\n", "t.swf:1: not a number of seconds: 'nan'"),
        ("t.swf", "1 inf 0 1 1\n", "t.swf:1: not a number of seconds: 'inf'"),
        ("t.swf", "1 0 0 1e999999 1\n", "t.swf:1: not a number of seconds: '1e999999'"),
        ("t.swf", "1 0 0 1e99999 1\n", f"t.swf:1: {TOO_LONG}: '1e99999'"),
        ("t.swf", f";\n1 {'9' * 5000} 0 1 1\n", f"t.swf:2: {TOO_LONG}: '{'9' * 40}'"),
        ("t.swf", "1 -9999999999999 0 1 1\n", f"t.swf:1: {TOO_LONG}: '-9999999999999'"),
        ("t.swf", "1 0 0 1 1.5\n", "t.swf:1: not a whole number: '1.5'"),
        ("t.swf", "; MaxProcs: 9999999999\n", "t.swf:1: MaxProcs must be between 0 and 2147483647, got 9999999999"),
        ("t.swf", "1 0 0 1 1\n1 0 0 1 1\n", "t.swf: two jobs have the id '1'; ids must be unique"),
        ("t.swf", "1 2305843009213 0 9 1\n", f"t.swf: job '1' ends later than the {LATEST_US} µs that can be counted"),
        ("t.csv", "", "t.csv:1: column 'job' is missing"),
        ("t.csv", f"{HEADER}a,0,1\n", "t.csv:2: not a whole number: a missing field"),
        ("t.csv", f'{HEADER}"a,0,1,1,1\n', "t.csv:2: not a number of seconds: a missing field"),
        ("t.csv", f'{HEADER[:-1]},user\na,0,1,1,1,"x\ny"\nb,z,1,1,1,\n', "t.csv:4: not a number of seconds: 'z'"),
        ("t.csv", f"{HEADER}{'x' * 140_000},0,1,1,1\n", "t.csv:2: field larger than field limit (131072)"),
        ("t.jsonl", "", "t.jsonl:1: Object missing required field `format`"),
        ("t.jsonl", MACHINE.replace("4", "-4"), "t.jsonl:1: process_slots must be between 0 and 2147483647, got -4"),
        ("t.jsonl", MACHINE + JOB % (0, -5), f"t.jsonl:2: run_us must be between 0 and {LATEST_US}, got -5"),
        (
            "t.jsonl",
            MACHINE + JOB % (1 << 70, 5),
            f"t.jsonl:2: submit_us must be between -{LATEST_US} and {LATEST_US}, got {1 << 70}",
        ),
        ("t.jsonl", MACHINE.replace("{", '{"name": "m", ', 1), "t.jsonl:1: Object contains unknown field `name`"),
        (
            "t.jsonl",
            MACHINE + JOB.replace("run_us", "runs_us") % (0, 5),
            "t.jsonl:2: Object contains unknown field `runs_us`",
        ),
        (
            "t.jsonl",
            MACHINE + JOB.replace('"id"', '"priorty": "urgent", "id"') % (0, 5),
            "t.jsonl:2: Object contains unknown field `priorty` - at `$.job`",
        ),
        (
            "t.jsonl",
            MACHINE + JOB.replace('"id"', '"retry": {"max_atempts": 2}, "id"') % (0, 5),
            "t.jsonl:2: Object contains unknown field `max_atempts` - at `$.job.retry`",
        ),
        ("t.replay", "hello, this is no log", "t.replay: not a .replay file: it does not begin with the magic bytes"),
    ],
)
def test_a_trace_that_cannot_be_run_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    assert refused("simulate", tmp_path / name) == f"{tmp_path}/{message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("jobs=100000000000000000000", "jobs must be between 1 and 10000000, got 100000000000000000000"),
        ("load=nan", "load must be positive, got nan"),
        ("load=inf", "load must be positive, got inf"),
        ("load=1e-300", "load must be larger, got 1e-300: jobs would come over more than 2305843009213 s"),
        ("memory_mb=-5", "memory_mb must be between 0 and 536870911, got -5"),
        ("processors=4294967296", "processors must be between 1 and 2147483647, got 4294967296"),
        (
            "max_run_s=2305843009213",
            "max_run_s times max_overestimate must be between 1 and 2305843009213, got 11529215046065",
        ),
    ],
)
def test_a_workload_that_cannot_be_generated_is_refused_with_its_key(options: str, message: str) -> None:
    trace = f"synthetic:{options}" if options.startswith("jobs") else f"synthetic:jobs=10,{options}"
    assert refused("simulate", trace) == f"{trace}: {message}"


@pytest.mark.parametrize("name", ["t.swf", "t.csv", "t.jsonl"])
def test_the_mark_that_some_programs_put_before_utf8_is_passed_over(tmp_path: Path, name: str) -> None:
    rows = {"t.swf": "1 0 0 5 2\n", "t.csv": f"{HEADER}1,0,5,2,5\n", "t.jsonl": MACHINE + JOB % (0, 5)}
    (tmp_path / name).write_text(rows[name], encoding="utf-8-sig")
    assert len(read_workload(tmp_path / name).jobs) == 1


@pytest.mark.parametrize("name", ["bomb.swf.gz", "bomb.csv.gz", "bomb.jsonl.gz"])
def test_a_line_that_would_fill_the_memory_is_not_read(tmp_path: Path, name: str) -> None:
    with gzip.open(tmp_path / name, "wb") as stream:
        for _ in range(512):
            stream.write(bytes(1 << 20))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    done = subprocess.run(
        [*COMMAND, "simulate", name], cwd=tmp_path, preexec_fn=limit, capture_output=True, text=True, check=False
    )
    what = f"the line has {MAX_LINE} characters or more; a line tells of one job"
    assert (done.returncode, done.stderr) == (2, f"error: {name}:1: {what}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "r.csv:1: needs the columns job and start"),
        (b"a,b\n", "r.csv:1: needs the columns job and start"),
        (b"\x89\xff\0", "r.csv:1: needs the columns job and start"),
        (b"job,start\n1,0\n2\n", "r.csv:3: the row has no start"),
        (b"job,start\n" + b"x" * 140_000 + b",0\n", "r.csv:2: field larger than field limit (131072)"),
    ],
)
def test_a_reference_of_the_wrong_shape_is_refused_with_its_place(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "r.csv").write_bytes(text)
    measures = tmp_path / "m.json"
    arguments = ("simulate", "synthetic:jobs=2", "--metrics", measures, "--compare", tmp_path / "r.csv")
    assert refused(*arguments) == f"{tmp_path}/{message}"


def test_a_damaged_log_is_not_simulated_and_of_a_torn_one_the_rest_is_counted(tmp_path: Path) -> None:
    raw, log = SMALL.read_bytes(), tmp_path / "log.replay"
    log.write_bytes(raw[:-40])
    done = CliRunner().invoke(main, ["simulate", str(log)])
    assert (done.exit_code, json.loads(done.stdout)["jobs"]) == (0, len(read_workload(SMALL).jobs))
    assert "bytes of a record that was not written to its end (" in done.stderr
    log.write_bytes(raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:])
    assert refused("simulate", log).startswith(f"{log}: damaged at byte ")


@pytest.mark.parametrize("command", [("simulate",), ("verify",), ("dump",), ("dump", "--follow")])
def test_a_log_from_a_pipe_is_refused_with_what_to_do(tmp_path: Path, command: tuple[str, ...]) -> None:
    pipe = tmp_path / "log.replay"
    os.mkfifo(pipe)
    holder = os.open(pipe, os.O_RDWR)
    try:
        message = "a log is read back and forth, which a pipe cannot be: save it to a file first"
        assert refused(*command, pipe) == f"{pipe}: {message}"
    finally:
        os.close(holder)


@pytest.mark.parametrize("time", ["nan", "inf", "-inf", "1e300"])
def test_a_time_that_no_event_can_have_is_bad_usage(time: str) -> None:
    for option in ("--from", "--until"):
        shown = float(time)
        message = (
            f"Invalid value for '{option}': {shown} is not a time that an event can have; see refsched dump --help"
        )
        assert refused("dump", SMALL, option, time) == message


@pytest.mark.parametrize("command", [("simulate", "synthetic:jobs=9"), ("verify", str(SMALL)), ("dump", str(SMALL))])
def test_an_output_that_cannot_be_written_is_not_blamed_on_the_input(command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: cannot write the output: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*COMMAND, *command], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")  # whoever reads it has read enough


def test_a_machine_without_processors_has_no_utilisation(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(MACHINE.replace("4", "0") + JOB.replace("1}", "0}") % (0, 5))
    done = CliRunner().invoke(main, ["simulate", str(tmp_path / "t.jsonl")])
    measures = json.loads(done.stdout)
    assert (done.exit_code, measures["jobs"], measures["utilisation"], measures["makespan"]) == (0, 1, None, 5e-6)


@pytest.mark.parametrize("name", ["out.png", "out.svg", "out.html"])
def test_a_trace_whose_name_is_no_text_can_be_drawn(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    trace = os.fsencode(tmp_path) + b"/b\xffd.csv"
    Path(os.fsdecode(trace)).write_text(f"{HEADER}1,0,5,2,5\n")
    done = subprocess.run(
        [*COMMAND, "plot", trace, "--out", tmp_path / name], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    if name == "out.html":
        assert "b\N{REPLACEMENT CHARACTER}d.csv" in (tmp_path / name).read_text(encoding="utf-8")


# Logs of drivers that are not ours.


def job(name: str, processors: int) -> JobSpec:
    return JobSpec(name, request=ResourceRequest(process_slots=processors), estimate_us=10 * SECOND_US)


def machine(processors: int) -> Resources:
    return Resources(process_slots=processors)


def ended(at_s: int, name: str) -> Event:
    return JobStateChanged(at=at_s * SECOND_US, job=name, attempt=1, old=RUNNING, new=COMPLETED)


def recorded(path: Path, *events: Event) -> Path:
    """Return a log of ``events`` on a machine that has 4 processors at first."""
    core = SchedulerCore()
    with Recorder.start(path, core) as recorder:
        for event in (
            ConfigLoaded(at=0, config=simulation_config()),
            WorkerUpdated(at=0, worker="m", capacity=machine(4)),
            *events,
        ):
            recorder(event, core.handle(event))
    return path


@pytest.mark.parametrize("picker", PICKERS)
def test_an_update_that_makes_a_job_larger_than_the_machine_is_named(tmp_path: Path, picker: str) -> None:
    log = recorded(
        tmp_path / "log.replay",
        JobSubmitted(at=0, job=job("a", 4)),
        JobSubmitted(at=1, job=job("b", 2)),
        ResourcesChanged(at=5, worker="m", capacity=machine(16)),
        JobSubmitted(at=6, job=replace(job("c", 1), after_any=("b",))),
        JobUpdated(at=7, job=job("b", 8), changed=("request",)),
        ended(10, "a"),
        ended(16, "b"),
        ended(17, "c"),
        ResourcesChanged(at=18 * SECOND_US, worker="m", capacity=machine(4)),
    )
    told = CliRunner().invoke(main, ["simulate", str(log), "--picker", picker])
    assert (told.exit_code, told.stdout) == (2, "")
    last = told.stderr.splitlines()[-1]
    assert last.startswith(
        f"error: {log}: an update makes job 'b' larger than the machine: Job b has been waiting for "
    )
    assert "needs 8 process_slots with 4 free" in last


def test_a_job_that_was_submitted_twice_is_still_the_first_one(tmp_path: Path) -> None:
    log = recorded(
        tmp_path / "log.replay",
        JobSubmitted(at=0, job=job("a", 4)),
        JobSubmitted(at=3 * SECOND_US, job=job("a", 1)),
        ended(10, "a"),
    )
    found = [(timed.submit_us, timed.run_us, timed.job) for timed in read_workload(log).jobs]
    assert found == [(0, 10 * SECOND_US, job("a", 4))]


def test_a_clock_that_was_set_back_gives_no_job_a_negative_time(tmp_path: Path) -> None:
    log = recorded(
        tmp_path / "log.replay",
        JobSubmitted(at=50 * SECOND_US, job=job("a", 4)),
        ended(20, "a"),
        JobSubmitted(at=30 * SECOND_US, job=job("b", 4)),
        ended(60, "b"),
    )
    found = [(timed.job.id, timed.submit_us, timed.run_us) for timed in read_workload(log).jobs]
    assert found == [("a", 50 * SECOND_US, 0), ("b", 50 * SECOND_US, 10 * SECOND_US)]


def test_an_update_of_what_no_job_has_is_refused(tmp_path: Path) -> None:
    log, core = tmp_path / "log.replay", SchedulerCore()
    with Recorder.start(log, core) as recorder:
        recorder(JobUpdated(at=0, job=job("a", 1), changed=("color",)), ())
    assert refused("simulate", log) == f"{log}: an update changes 'color' of job 'a', which no job has"


EVENT = {"type": "Tick", "at": 0}
STATE = {"now_us": 0, "workers": [], "jobs": [], "outcomes": []}


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        (Kind.HEADER, [], "Expected `object`, got `array`"),
        (
            Kind.HEADER,
            {"schema": "s", "behaviours": [], "config": []},
            "Expected `object`, got `array` - at `$.config`",
        ),
        (Kind.START, [0, {**STATE, "workers": [1]}], "Expected `object`, got `int` - at `$[1].workers[0]`"),
        (Kind.CHECKPOINT, [0, {"now_us": 0}], "Object missing required field `workers` - at `$[1]`"),
        (Kind.EVENT, [1, b"", {"at": 0}, []], "Object missing required field `type` - at `$[2]`"),
        (Kind.EVENT, [1, b"", EVENT, [3]], "Expected `object`, got `int` - at `$[3][0]`"),
        (Kind.EVENT, [1, b"", {**EVENT, "job": 5}, []], "Expected `str | object | null`, got `int` - at `$[2].job`"),
        (Kind.FAILURE, [1, "", "", ""], "Expected `object`, got `str` - at `$[1]`"),
        (Kind.END, {}, "Expected `array`, got `object`"),
        (9, [], "9 is not a valid Kind"),
    ],
)
def test_a_frame_of_another_program_is_told_from_a_defect(
    tmp_path: Path, kind: Kind, content: object, problem: str
) -> None:
    log, frame = tmp_path / "log.replay", pack_frame(kind, msgspec.msgpack.encode(content))
    log.write_bytes(PREAMBLE + frame)
    for arguments in (("dump",), ("dump", "--format", "jsonl"), ("dump", "--job", "a")):
        end = len(PREAMBLE + frame)
        assert refused(*arguments, log) == f"{log}: the frame that ends at byte {end} cannot be decoded: {problem}"


def test_no_log_is_taken_for_a_defect_of_the_program(tmp_path: Path) -> None:
    draw, log = Random(7), tmp_path / "log.replay"
    frames = list(FrameReader(io.BytesIO(SMALL.read_bytes())).frames())
    for _ in range(150):
        payloads = [bytearray(frame.payload) for frame in frames]
        for _ in range(draw.randint(1, 3)):
            payload = draw.choice(payloads)
            payload[draw.randrange(len(payload))] = draw.choice((0x00, 0xC0, 0xFF, draw.choice(payload)))
        whole = (pack_frame(Kind(frame.kind), bytes(new)) for frame, new in zip(frames, payloads, strict=True))
        log.write_bytes(PREAMBLE + b"".join(whole))
        for arguments in (("verify",), ("dump",), ("dump", "--job", "a"), ("simulate", "--metrics", os.devnull)):
            done = CliRunner().invoke(main, [*arguments, str(log)])
            assert isinstance(done.exception, SystemExit | None), done.exception
            assert (done.exit_code == 2) == done.stderr.startswith("error: ")


# Plug-ins.

PICKER = """
from reference_scheduler.core.pickers import OrderedPicker


class Odd(OrderedPicker):
    name = "odd"

    def score(self, job):
        raise ValueError("no score for " + job.spec.id)
"""


@pytest.fixture
def odd_picker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a picker that raises."""
    packages = tmp_path / "packages"
    (packages / "odd-1.dist-info").mkdir(parents=True)
    (packages / "odd-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (packages / "odd-1.dist-info" / "entry_points.txt").write_text("[spawngate.pickers]\nodd = odd_picker:Odd\n")
    (packages / "odd_picker.py").write_text(PICKER)
    monkeypatch.syspath_prepend(str(packages))


@pytest.mark.usefixtures("odd_picker")
def test_a_plug_in_that_raises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPAWNGATE_DEBUG", raising=False)
    assert refused("simulate", "synthetic:jobs=3", "--picker", "odd") == (
        "a run with the plug-in odd failed: ValueError: no score for 1; "
        "mend it, or use one that is built in (SPAWNGATE_DEBUG=1 shows the traceback)"
    )
    monkeypatch.setenv("SPAWNGATE_DEBUG", "1")
    done = CliRunner().invoke(main, ["simulate", "synthetic:jobs=3", "--picker", "odd"])
    assert (type(done.exception), str(done.exception)) == (ValueError, "no score for 1")


# The same everywhere.


def test_no_output_depends_on_the_seed_of_hashes(tmp_path: Path) -> None:
    trace = "synthetic:jobs=200,seed=3,load=1.2,priorities=urgent+normal+background"
    found = set()
    for seed in ("0", "1", "4242"):

        def told(*arguments: str, seed: str = seed) -> bytes:
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            done = subprocess.run(
                [*COMMAND, *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True
            )
            return done.stdout

        told("simulate", trace, "--starts", "starts.csv", "--record", "log.replay")
        files = [(tmp_path / name).read_bytes() for name in ("starts.csv", "log.replay")]
        printed = [
            told("dump", "log.replay"),
            told("dump", "--format", "jsonl", "log.replay"),
            told("verify", "log.replay"),
        ]
        measures = json.loads(told("simulate", "log.replay", "--picker", "easy"))
        measures.pop("jobs_per_second")
        found.add((*files, *printed, json.dumps(measures)))
    assert len(found) == 1
