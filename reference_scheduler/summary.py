"""What a job runs, on one line: for people, who know their jobs by that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

MAX_COMMAND = 256
"""The longest line, in characters."""


def command_of(payload: Mapping[str, Any]) -> str:
    """Return what ``payload`` runs, at most ``MAX_COMMAND`` characters of it.

    Arguments are quoted as for a shell, ends of lines are shown. Like the list of processes of a system it is for
    everybody; so of a payload that is no command only the names are told, for its values may be nobody's business.
    """
    return shortened(_line(payload).replace("\n", "↵"), MAX_COMMAND)


def shortened(line: str, most: int) -> str:
    """Return ``line``, or what fits of it into ``most`` characters with a mark that there was more."""
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _line(payload: Mapping[str, Any]) -> str:
    match payload:
        case {"script": str(script)}:
            return script
        case {"code": str(code), **rest}:
            return shlex.join(["python", "-c", code, *_texts(rest.get("argv"))])
        case {"argv": list(argv)}:
            return shlex.join(_texts(argv))
        case {"args": list(args)}:
            return shlex.join(["pytest", *_texts(args)])
        case {"callable": str(name), **rest}:
            arguments = rest.get("arguments")
            return f"{name}({_names(arguments if isinstance(arguments, dict) else {})})"
    return _names(payload)


def _texts(values: Any) -> list[str]:
    return list(map(str, values)) if isinstance(values, list) else []


def _names(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}=…" for name in values)
