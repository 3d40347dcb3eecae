"""The README's tutorial, run: its files are written in order, its commands run, their output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.checkers.checkout import CHECKOUT, copy_checkout, git

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the file that it is, its text."""

    language: str
    title: str
    text: str


def blocks() -> list[Block]:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    return [Block(*match.groups(default="")) for match in FENCE.finditer(text)]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """(command, expected output) of a ``console`` block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    status, ran = 0, []
    for block in blocks():
        if block.language in ("python", "toml") and block.title:
            (tmp_path / block.title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        for command, expected in commands(block.text) if block.language == "console" else ():
            done = subprocess.run(
                ["bash", "-c", f"(exit {status}); {command}"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout + done.stderr == expected, command
            status = done.returncode
            ran.append(command)
    assert ran[0] == "check-ownership --list-sites"
    assert any(command.startswith("check-bypass") for command in ran)


def test_the_annotations_shown_are_valid(tmp_path: Path) -> None:
    [shown] = [b.text for b in blocks() if b.language == "python" and not b.title]
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "execution-ownership.toml").write_text("version = 1\n")
    (tmp_path / "app.py").write_text("import subprocess\n\nname = 'v1'\n" + shown)

    done = subprocess.run(
        [sys.executable, "-m", "checkers", "ownership", "--root", str(tmp_path), "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )

    # The first line has its owner; the second speaks to check-bypass only.
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == ["app.py:6:12"]
    assert "OWN001" in done.stdout


def test_the_pre_commit_configuration_uses_the_published_hooks() -> None:
    [shown] = [yaml.safe_load(b.text) for b in blocks() if b.title == ".pre-commit-config.yaml"]
    published = yaml.safe_load((CHECKOUT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    ids = [hook["id"] for hook in shown["repos"][0]["hooks"]]
    assert sorted(ids) == sorted(hook["id"] for hook in published)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_named_exists(name: str, tmp_path: Path) -> None:
    copy = copy_checkout(tmp_path)
    targets = re.findall(r"^make(?: [A-Z]+=\S+)* (\w+)", (copy / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert {"check", "test"} <= set(targets)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    for target in targets:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=copy, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, target
