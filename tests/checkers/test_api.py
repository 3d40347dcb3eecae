"""The importable API does what the package's own documentation shows."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import checkers


def test_the_example_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert doctest.testmod(checkers) == (0, 4)
