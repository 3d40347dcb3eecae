"""The published hooks, run by pre-commit from this checkout against a second, real repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkers.checkout import copy_checkout, git

OWNED = """\
version = 1
tests = ["tests/"]

[[site]]
path = "app.py"
owner = "interactive"
reason = "a person waits for it"
"""
ALLOWED = """\
version = 1
scheduler = ["scheduler/"]
tests = ["tests/"]
rollout = "mandatory"

[[rule]]
id = "direct-process"
targets = ["@process", "@exec"]
message = "Processes start in the scheduler only."
use = "scheduler.submit"
allow = [{ path = "app.py", reason = "a person waits for it" }]
"""


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that publishes the hooks: this checkout, whatever of it is committed."""
    return copy_checkout(tmp_path_factory.mktemp("hooks"))


@pytest.fixture(scope="module", autouse=True)
def _index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """pre-commit installs the hooks with pip, which needs a package index. In CI this never skips."""
    folder = tmp_path_factory.mktemp("index")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        "click",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"pip reaches no package index: {done.stderr.strip().splitlines()[-1]}")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's repository with one site, which both manifests account for."""
    root = tmp_path / "project"
    (root / "manifests").mkdir(parents=True)
    (root / "scheduler").mkdir()
    (root / "scheduler" / "__init__.py").write_text("def submit(job: object) -> None: ...\n")
    (root / "manifests" / "execution-ownership.toml").write_text(OWNED)
    (root / "manifests" / "scheduler-bypass.toml").write_text(ALLOWED)
    (root / "app.py").write_text("import subprocess\n\nsubprocess.run(['true'], check=True)\n")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    return root


def try_repo(hooks: Path, project: Path, home: Path, *hook: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"PRE_COMMIT_HOME": str(home), "PRE_COMMIT_COLOR": "never", "PYTHONWARNINGS": ""}
    command = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), *hook, "--all-files", "--verbose"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_green_where_every_site_is_accounted_for(hooks: Path, project: Path, tmp_path: Path) -> None:
    done = try_repo(hooks, project, tmp_path / "home")

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split(".")[0] for line in done.stdout.splitlines() if line.endswith("Passed")]
    assert lines == ["check-bypass", "check-ownership"]


@pytest.mark.parametrize(("hook", "code"), [("check-bypass", "BYP001"), ("check-ownership", "OWN001")])
def test_red_at_the_line_of_a_stray_site(hooks: Path, project: Path, tmp_path: Path, hook: str, code: str) -> None:
    (project / "stray.py").write_text("from subprocess import run as go\n\n\ngo(['true'])\n")
    git(project, "add", "stray.py")

    done = try_repo(hooks, project, tmp_path / "home", hook)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"stray.py:4:1: {code}" in done.stdout
    assert f"{hook}..." in done.stdout
    assert "app.py" not in done.stdout
