"""A fingerprint of the shapes that a log is made of."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cache
from hashlib import blake2b
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from reference_scheduler.core.decisions import Decision
from reference_scheduler.core.events import Event
from reference_scheduler.core.snapshot import Snapshot


@cache
def schema_fingerprint() -> str:
    """Return 16 hexadecimal digits that change when a field or type of an event, decision or state does.

    Comments and defaults do not count. The same on every platform and version of Python.
    """
    described: dict[str, str] = {}
    for root in (Event, Decision, Snapshot):
        _describe(root, described)
    text = "\n".join(described[name] for name in sorted(described))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _describe(kind: Any, described: dict[str, str]) -> None:
    """Add a line for each class that ``kind`` mentions."""
    for part in _parts(kind):
        name = part.__name__
        if name in described:
            continue
        if issubclass(part, Enum):
            described[name] = f"{name}: {' '.join(str(member.value) for member in part)}"
        elif issubclass(part, msgspec.Struct) or hasattr(part, "_fields"):
            hints = get_type_hints(part)
            fields = part.__struct_fields__ if issubclass(part, msgspec.Struct) else part._fields
            described[name] = f"{name}: {' '.join(f'{field}={_spell(hints[field])}' for field in fields)}"
            for field in fields:
                _describe(hints[field], described)


def _parts(kind: Any) -> Iterator[type]:
    arguments = get_args(kind)
    if not arguments and isinstance(kind, type):
        yield kind
    for argument in arguments:
        yield from _parts(argument)


def _spell(kind: Any) -> str:
    if kind is Ellipsis:
        return "..."
    arguments = [_spell(argument) for argument in get_args(kind)]
    if get_origin(kind) in (Union, UnionType):
        return "|".join(arguments)
    if arguments:
        return f"{get_origin(kind).__name__}[{','.join(arguments)}]"
    return "None" if kind is NoneType else str(kind.__name__)
