"""The configuration file: what it can say, and what is said of what it cannot."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import pytest
from live_world import HeldExecutor, start_program

from reference_scheduler.config import ConfigError, Rollout, Settings, StopMode, load_settings, settings_of
from reference_scheduler.core.amounts import Resources
from reference_scheduler.core.model import (
    DEFAULT_REQUESTS,
    Config,
    Fairness,
    Idempotency,
    Limit,
    QueueBounds,
    ResourceRequest,
    RetryPolicy,
    Scope,
)
from reference_scheduler.requests import DEFAULT_PROFILES, Profile
from reference_scheduler.sync import SyncScheduler

DESIGN = """
[scheduler]
enabled = true
rollout = "mandatory"            # observe · active · mandatory
reconcile_interval_ms = 1000

[scheduler.resources]
max_process_slots = 4
max_cpu_weight = 8
max_memory_mb_hint = 8192
max_io_weight = 8
max_network_slots = 4

[scheduler.queue]
max_total = 256
max_per_workspace = 64
max_interactive_per_session = 8
claim_batch = 32

[scheduler.fairness]
interactive_weight = 8
normal_weight = 4
background_weight = 2
maintenance_weight = 1
max_high_priority_burst = 8
aging_secs = 300
"""

EVERYTHING = """
[scheduler]
rollout = "active"
active_kinds = ["test", "mine"]
reconcile_interval_ms = 250
on_stop = "interrupt"
keep_ended = 5
picker = "easy"
preemption = true

[scheduler.resources]
max_process_slots = 2
max_cpu_weight = 3
max_memory_mb_hint = 5
max_io_weight = 6
max_network_slots = 7

[scheduler.queue]
max_total = 20
max_per_workspace = 20
max_interactive_per_session = 1
claim_batch = 9

[scheduler.fairness]
interactive_weight = 10
normal_weight = 9
background_weight = 7
maintenance_weight = 6
max_high_priority_burst = 5
aging_secs = 4

[scheduler.limits]
max_running_per_user = 3
max_running_per_workspace = 2

[scheduler.kinds.test]
timeout_ms = 60_000

[scheduler.kinds.mine]
idempotency = "read_only"
request = { cpu_weight = 1, process_slots = 1, exclusivity_keys = ["disk"] }

[tool.other]
"is not" = "ours"
"""


def parsed(text: str) -> Settings:
    return settings_of(tomllib.loads(text))


def test_the_defaults_are_those_of_the_design() -> None:
    assert parsed(DESIGN) == parsed("") == Settings()


def test_everything_that_can_be_said_is_taken_over() -> None:
    assert parsed(EVERYTHING) == Settings(
        core=Config(
            resources=Resources(3, 5, 2, 6, 7),
            queue=QueueBounds(20, 20, 1, 9),
            fairness=Fairness(10, 9, 7, 6, 5, 4_000_000),
            limits=(Limit(Scope.USER, 3), Limit(Scope.WORKSPACE, 2)),
            picker="easy",
            preemption=True,
        ),
        rollout=Rollout.ACTIVE,
        active_kinds=("test", "mine"),
        reconcile_interval_us=250_000,
        on_stop=StopMode.INTERRUPT,
        keep_ended=5,
        profiles={
            **DEFAULT_PROFILES,
            "test": Profile(Idempotency.SAFE_REPEAT, 60_000_000),
            "mine": Profile(
                Idempotency.READ_ONLY, None, ResourceRequest(1, 0, 1, exclusivity_keys=("disk",)), RetryPolicy()
            ),
        },
    )


WRONG = {
    "scheduler = 3": "scheduler: must be a table, got 3",
    "[scheduler]\nenabled = 1": "scheduler.enabled: must be true or false, got 1",
    "[scheduler]\nnew = 1": "scheduler.new: unknown key",
    "[scheduler]\nroll_out = 'observe'": "scheduler.roll_out: unknown key; did you mean rollout?",
    "[scheduler.ressources]\nmax_io_weight = 1": "scheduler.ressources: unknown key; did you mean resources?",
    "[scheduler.queue]\nmaximum = 1": "scheduler.queue.maximum: unknown key",
    '[scheduler]\nrollout = "all"': "scheduler.rollout: must be one of observe, active, mandatory, got 'all'",
    '[scheduler]\non_stop = "kill"': "scheduler.on_stop: must be one of drain, interrupt, got 'kill'",
    '[scheduler]\nactive_kinds = ["x"]': 'scheduler.active_kinds: only has a meaning with rollout = "active"',
    "[scheduler]\nactive_kinds = 'x'": "scheduler.active_kinds: must be an array of texts, got 'x'",
    "[scheduler]\nreconcile_interval_ms = 0": "scheduler.reconcile_interval_ms: must be a whole number between 1 and",
    "[scheduler]\nkeep_ended = true": "scheduler.keep_ended: must be a whole number between 1 and",
    "[scheduler]\npicker = ''": "scheduler.picker: must be a text of 1 to 100 characters, got ''",
    "[scheduler.resources]\nmax_cpu_weight = 0": "scheduler.resources.max_cpu_weight: must be a whole number between 1",
    "[scheduler.resources]\nmax_io_weight = 1.5": "scheduler.resources.max_io_weight: must be a whole number between",
    "[scheduler.queue]\nmax_total = -1": "scheduler.queue.max_total: must be a whole number between 1 and",
    "[scheduler.queue]\nmax_total = 10\nmax_per_workspace = 11": (
        "scheduler.queue.max_per_workspace: must be a whole number between 1 and 10 (max_total), got 11"
    ),
    "[scheduler.queue]\nclaim_batch = 257": (
        "scheduler.queue.claim_batch: must be a whole number between 1 and 256 (max_total), got 257"
    ),
    "[scheduler.fairness]\nnormal_weight = 0": "scheduler.fairness.normal_weight: must be a whole number between 1",
    "[scheduler.limits]\nmax_running_per_user = 0": "scheduler.limits.max_running_per_user: must be a whole number",
    "[scheduler.limits]\nmax_running_per_host = 1": "scheduler.limits.max_running_per_host: unknown key",
    '[scheduler.kinds.test]\nidempotency = "no"': "scheduler.kinds.test.idempotency: must be one of read_only, safe",
    "[scheduler.kinds.test]\ntimeout = 1": "scheduler.kinds.test.timeout: unknown key",
    "[scheduler.kinds.test.request]\ncpu = 1": "scheduler.kinds.test.request.cpu: unknown key",
    "[scheduler.kinds]\ntest = 1": "scheduler.kinds.test: must be a table, got 1",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_with_its_bounds(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert str(caught.value).startswith(WRONG[text])


def test_a_small_queue_makes_the_defaults_within_it_smaller() -> None:
    queue = parsed("[scheduler.queue]\nmax_total = 10").core.queue
    assert (queue.max_per_workspace, queue.claim_batch) == (10, 10)


def test_of_a_disabled_scheduler_nothing_else_is_checked() -> None:
    settings = parsed("[scheduler]\nenabled = false\nnew = 1\n[scheduler.queue]\nmax_total = -1")
    assert settings == Settings(core=Config(enabled=False))


def test_a_file_is_named_in_what_is_said_of_it(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.toml"
    with pytest.raises(ConfigError, match=r"scheduler\.toml: No such file or directory"):
        load_settings(file)
    file.write_text("[scheduler")
    with pytest.raises(ConfigError, match=r"scheduler\.toml: Expected ']'"):
        load_settings(file)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"scheduler\.toml: 'utf-8' codec"):
        load_settings(file)
    file.write_text(f"x = {'[' * 5000}{']' * 5000}")
    with pytest.raises(ConfigError, match=r"scheduler\.toml: tables or arrays are nested too deeply"):
        load_settings(file)
    file.write_text(f"x = {'9' * 5000}")
    with pytest.raises(ConfigError, match=r"scheduler\.toml: Exceeds the limit \(4300 digits\)"):
        load_settings(file)
    file.write_text("[scheduler]\nnew = 1")
    with pytest.raises(ConfigError, match=r"scheduler\.toml: scheduler\.new: unknown key"):
        load_settings(file)
    for text, meant in (
        ("[schedular]\nenabled = false", "; did you mean scheduler?"),
        ("[scheduler]\n[resource]\nmax_io_weight = 1", "; did you mean scheduler.resources?"),
        ("rollout = 'observe'", ""),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_settings(file)
        name = text.splitlines()[-2].strip("[]") if "[" in text else "rollout"
        assert str(caught.value) == f"{file}: {name}: unknown, all keys belong to [scheduler]{meant}"
    file.write_text(EVERYTHING.partition("[tool.")[0])
    assert load_settings(file) == parsed(EVERYTHING)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[scheduler.kinds.tets]\ntimeout_ms = 1",
            "scheduler.kinds.tets: there is no kind 'tets', only {}; did you mean",
        ),
        (
            '[scheduler]\nrollout = "active"\nactive_kinds = ["lint", "x"]',
            "scheduler.active_kinds: there is no kind 'x', ",
        ),
    ],
)
def test_a_kind_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "scheduler.toml"
    file.write_text(text)
    kinds = ", ".join(sorted(DEFAULT_REQUESTS))
    with pytest.raises(ConfigError) as caught:
        load_settings(file, DEFAULT_REQUESTS)
    assert str(caught.value).startswith(f"{file}: {told.format(kinds)}")
    load_settings(file)  # for a program that has executors of its own
    with pytest.raises(ConfigError, match="there is no kind"):
        SyncScheduler(load_settings(file)).start()


def test_a_kind_of_its_own_may_be_configured() -> None:
    settings = parsed("[scheduler.kinds.held]\ntimeout_ms = 1")
    with SyncScheduler(settings, executors=[HeldExecutor()]):
        pass


@pytest.mark.parametrize(
    ("rollout", "runs"), [(Rollout.OBSERVE, "--"), (Rollout.ACTIVE, "t-"), (Rollout.MANDATORY, "tl")]
)
def test_which_kinds_are_run_here(rollout: Rollout, runs: str) -> None:
    settings = Settings(rollout=rollout, active_kinds=("test",))
    assert "".join(kind[0] if settings.executes(kind) else "-" for kind in ("test", "lint")) == runs


def test_the_configuration_in_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    settings = parsed(block)
    assert settings.core.limits == (Limit(Scope.USER, 4),)
    assert settings.profile("test").timeout_us == 600_000_000


def test_the_program_in_the_documentation_runs(tmp_path: Path) -> None:
    program, _ = programs_on_the_page(tmp_path / "jobs.db")
    for _ in range(2):  # the second run is shown the job of the first
        assert start_program(program).communicate()[0] == "completed 0 b'hello\\n'\n"


def test_the_array_in_the_documentation_runs(tmp_path: Path) -> None:
    _, program = programs_on_the_page(tmp_path / "jobs.db")
    imports = (
        "from pathlib import Path",
        "from reference_scheduler.requests import JobRequest",
        "from reference_scheduler.sync import SyncScheduler",
    )
    told = start_program("\n".join((*imports, program))).communicate()[0]
    assert told == "stdout b'2\\n'\n{'completed': 3}\n"


def programs_on_the_page(journal: Path) -> list[str]:
    """The programs of ``docs/live.md``, with ``journal`` for theirs."""
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block).replace('Path("jobs.db")', f"Path({str(journal)!r})") for block in blocks]
