"""The options that say what job to submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from service_world import refsched_here as refsched

from reference_scheduler.commands.request import RETRIED, request_of, request_options
from reference_scheduler.core.model import Idempotency, Priority, ResourceRequest, RetryPolicy
from reference_scheduler.requests import JobRequest


def request(*arguments: str) -> JobRequest:
    """Return the request that the arguments make."""

    @click.command(context_settings={"allow_interspersed_args": False})
    @request_options
    def command(argv: tuple[str, ...], **options: Any) -> JobRequest:
        return request_of(argv, **options)

    found: JobRequest = command.main(list(arguments), standalone_mode=False)
    return found


def test_there_is_an_option_for_all_that_a_user_may_want_and_no_job_can_be_given_by_accident() -> None:
    options = (
        "--kind build --priority urgent --key k --queue q --session s --workspace w --cwd /c --env A=1 --timeout 1.5 "
        "--grace 0 --delay 2 --start-within 3 --estimate 4 --after-ok 1 --after-any 2 --idempotency destructive "
        "--retries 2 --retry-pause 400 --preemptible --need cpu_weight=7 --need io_weight=0 --exclusive disk "
        "-- make -j4"
    )
    found = request(*options.split())
    expected = JobRequest(
        kind="build",
        payload={"argv": ("make", "-j4"), "cwd": "/c", "env": {"A": "1"}},
        key="k",
        priority=Priority.URGENT,
        workspace="w",
        session="s",
        queue="q",
        request=ResourceRequest(7, 2048, 1, 0, 0, ("exclusive:workspace-mutation", "disk")),
        estimate_us=4_000_000,
        delay_us=2_000_000,
        start_within_us=3_000_000,
        timeout_us=1_500_000,
        grace_us=0,
        after_ok=("1",),
        after_any=("2",),
        preemptible=True,
        idempotency=Idempotency.DESTRUCTIVE,
        retry=RetryPolicy(max_attempts=3, base_us=400_000_000, cap_us=400_000_000, retry_on=RETRIED),
    )
    assert found == expected
    without = {name for name in JobRequest.__struct_fields__ if getattr(found, name) == getattr(request("x"), name)}
    by_others = {"user", "lease_us"}  # for admins by the protocol, and for programs that send heartbeats
    assert without == by_others | {"array_size", "array_running"}  # options of submit alone


def test_what_is_not_said_is_left_to_the_kind() -> None:
    found = request("--kind", "lint", "ruff")
    assert (found.request, found.retry, found.idempotency, found.estimate_us) == (None, None, None, None)
    assert found.workspace == found.payload["cwd"] == str(Path.cwd())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--need", "cpu=1", "x"], "--need: needs NAME=N, with a name of cpu_weight, "),
        (["--need", "cpu_weight=-1", "x"], "--need: needs NAME=N, with a name of cpu_weight, "),
        (["--need", "cpu_weight=" + "9" * 5000, "x"], "--need: needs NAME=N, with a name of cpu_weight, "),
        (["--retry-pause", "1", "x"], "--retry-pause: only has a meaning with --retries\n"),
        (["--retries", "1000", "x"], "Invalid value for '--retries': 1000 is not in the range 0<=x<=999"),
        (
            ["--idempotency", "sometimes", "x"],
            "Invalid value for '--idempotency': 'sometimes' is not one of 'read_only'",
        ),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    status, out, err = refsched(tmp_path, "run", *arguments)
    assert (status, out, err.startswith(f"error: {message}")) == (2, "", True)
