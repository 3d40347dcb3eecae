"""The environment of a job, built from empty: what is allowed to pass, what the job asks for, and its marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from os import fsencode

INHERITED: tuple[str, ...] = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TERM")
"""What passes from the scheduler's own environment, as patterns."""

SECRET: tuple[str, ...] = (
    *("*TOKEN*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*CREDENTIAL*", "*COOKIE*"),
    *("*KEY", "*_KEY_*", "*_KEYS", "*_AUTH", "*_PAT", "*_DSN", "PGPASS*", "NETRC"),
)
"""What names a secret; such a variable never passes, whoever asks."""

COMMAND: tuple[str, ...] = (
    *("LD_*", "DYLD_*", "GCONV_PATH", "GLIBC_TUNABLES"),
    *("BASH_ENV", "ENV", "BASH_FUNC_*", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS[0-9]", "IFS", "ZDOTDIR"),
    *("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONHOME", "PYTHONEXECUTABLE", "PYTHONWARNINGS"),
    *("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PERL5OPT", "PERL5DB", "RUBYOPT", "NODE_OPTIONS", "LUA_INIT*"),
    *("*JAVA_TOOL_OPTIONS", "*_JAVA_OPTIONS", "MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "RUSTC*WRAPPER"),
    *("GIT_*COMMAND", "GIT_SSH", "GIT_*ASKPASS", "GIT_*EDITOR", "GIT_*PAGER", "GIT_EXTERNAL_DIFF", "GIT_EXEC_PATH"),
    *("GIT_CONFIG*", "GIT_TEMPLATE_DIR", "SSH_ASKPASS*", "SUDO_ASKPASS", "EDITOR", "VISUAL", "*PAGER", "BROWSER"),
    *("LESSOPEN", "LESSCLOSE"),
)
"""What names a command, or code that other programs load; such a variable never passes either."""

MARK = "SPAWNGATE_"
"""How the variables begin that say whose a process is."""


def is_text(text: str) -> bool:
    """Return whether a process can be given ``text``."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in fsencode(text)
    except UnicodeEncodeError:
        return False


def check_text(where: str, text: str) -> None:
    """Raise ValueError, beginning with ``where``, unless a process can be given ``text``."""
    if not is_text(text):
        raise ValueError(f"{where}: no process can be given a NUL or what has no bytes: {text!a:.80}")


def refusal(name: str) -> str:
    """Return why a variable called ``name`` is never given to a job, "" if it may be."""
    upper = name.upper()
    if not name or "=" in name or not is_text(name):
        return "is no name of a variable"
    if upper.startswith(MARK):
        return "is set by the scheduler itself"
    if any(fnmatchcase(upper, pattern) for pattern in SECRET):
        return "looks like a secret; hand it over in a file that only the job may read"
    if any(fnmatchcase(upper, pattern) for pattern in COMMAND):
        return "makes other programs run code; say what to run in argv"
    return ""


def check_environment(extra: Mapping[str, str]) -> None:
    """Check what a job asks for.

    Raises:
        ValueError: a variable is one that no job is given, or its value has a NUL character.
    """
    for name, value in extra.items():
        if reason := refusal(name):
            raise ValueError(f"env: {name} {reason}")
        check_text(f"env: {name}", value)


def inherited_environment(source: Mapping[str, str], patterns: Iterable[str] = INHERITED) -> dict[bytes, bytes]:
    """Return what of ``source`` matches one of ``patterns`` and may be given to jobs."""
    wanted = tuple(patterns)
    return {
        fsencode(name): fsencode(value)
        for name, value in source.items()
        if any(fnmatchcase(name, pattern) for pattern in wanted) and not refusal(name)
    }


def child_environment(
    base: Mapping[bytes, bytes], extra: Mapping[str, str], marks: Mapping[str, str]
) -> dict[bytes, bytes]:
    """Return the environment of a job: ``base``, over it ``extra``, over both ``marks``, named without :data:`MARK`.

    Raises:
        ValueError: see :func:`check_environment`.
    """
    check_environment(extra)
    marked = {MARK + name: value for name, value in marks.items()}
    return {**base, **{fsencode(name): fsencode(value) for name, value in (*extra.items(), *marked.items())}}
