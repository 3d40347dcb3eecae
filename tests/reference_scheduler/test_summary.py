"""The one line by which people know a job."""

from __future__ import annotations

from typing import Any

import pytest

from reference_scheduler.summary import MAX_COMMAND, command_of


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        ({"argv": ["make", "-j4"], "cwd": "/x", "env": {"A": "secret"}}, "make -j4"),
        ({"argv": ["echo", "a b", "it's", ""]}, "echo 'a b' 'it'\"'\"'s' ''"),
        ({"script": "cd src\nmake"}, "cd src↵make"),
        ({"code": "print(1)", "argv": ["x y"]}, "python -c 'print(1)' 'x y'"),
        ({"args": ["-q", "tests/unit"], "report": "/r.xml"}, "pytest -q tests/unit"),
        ({"callable": "review", "arguments": {"path": "/private", "depth": 3}}, "review(path=…, depth=…)"),
        ({"callable": "review"}, "review()"),
        ({"source": "/private", "key": 7}, "source=…, key=…"),
        ({}, ""),
    ],
)
def test_it_is_the_command_or_the_names_of_what_is_none(payload: dict[str, Any], line: str) -> None:
    assert command_of(payload) == line


def test_it_is_short() -> None:
    assert command_of({"script": "x" * MAX_COMMAND}) == "x" * MAX_COMMAND
    assert command_of({"script": "x" * (MAX_COMMAND + 1)}) == "x" * (MAX_COMMAND - 1) + "…"
