"""Where a report goes: a stream in whatever encoding it has, or a file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TextIO

_PLAIN = str.maketrans({"×": "x"})


def write_stream(stream: TextIO, text: str) -> None:
    """Write ``text`` and flush; characters that the stream's encoding lacks are written as escapes.

    Raises OSError where the stream cannot be written to (BrokenPipeError where its reader is gone).
    """
    stream.write(fitted(text, stream.encoding or "utf-8"))
    stream.flush()


def fitted(text: str, encoding: str) -> str:
    """``text`` with escapes for the characters that ``encoding`` lacks."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.translate(_PLAIN) if not _carries("×", encoding) else text
        return plain.encode(encoding, "backslashreplace").decode(encoding)
    return text


def write_file(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 so that a reader of ``path`` sees the old file or the new one, never a part.

    A symbolic link is followed; what is no regular file (a device, a pipe) is written to, not replaced.
    Raises OSError.
    """
    data = text.encode("utf-8", "backslashreplace")
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            device.write(data)
        return
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # what links to itself leads nowhere
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".spawngate-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _carries(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _umask() -> int:
    # It can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
