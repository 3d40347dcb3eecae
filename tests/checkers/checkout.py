"""A copy of this checkout, as it would be committed now, for tests that break it or install from it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def git(folder: Path, *words: str) -> str:
    """Runs git in ``folder``, deaf to the user's settings and to a git that runs this test; its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def copy_checkout(destination: Path) -> Path:
    """Copies every file that git tracks or would add, with what is not committed yet, into a new repository.

    That is what pre-commit's own shadow commit does for a changed checkout, but for files not yet added, too.
    """
    for name in git(CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        source, target = CHECKOUT / name, destination / name
        if name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    git(destination, "init", "--quiet", "--initial-branch", "main")
    git(destination, "add", "--all")
    git(destination, "commit", "--quiet", "--message", "copy")
    return destination
