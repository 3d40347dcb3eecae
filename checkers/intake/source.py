"""Bytes of a file → text that the parser may be given, or the reason why it gets none."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import tokenize

import msgspec

from checkers import warm
from checkers.facts.model import Broken
from checkers.lines import line_at, split_lines

MAX_NESTING = 200
"""Open brackets at one place: CPython's own limit (``MAXLEVEL`` of its tokenizer). LibCST's parser dies of more."""

_LEXEME = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'(?:[^\\]|\\.)*?(?:\'\'\'|\Z)'''
    r"""|"(?:[^"\\\r\n]|\\(?:\r\n|.))*"?|'(?:[^'\\\r\n]|\\(?:\r\n|.))*'?"""
    r"""|\#[^\r\n]*|[(\[{]+|[)\]}]+""",
    re.DOTALL,
)


_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""A pipe is not waited for; on Windows no end of a line is changed."""


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """By what a file is known again: its status, and a digest of what was read of it."""

    status: warm.Stamp = warm.NOTHING
    digest: bytes = b""


def read(root: str, path: str, limit: int) -> tuple[bytes | Broken, Stamp]:
    """The bytes of ``path`` below ``root``, or why it is no readable file of at most ``limit`` bytes; and its stamp."""
    try:
        descriptor = os.open(os.path.join(root, path), _FLAGS)
    except (OSError, ValueError) as error:
        return Broken("SRC002", f"cannot read the file: {getattr(error, 'strerror', None) or error}", 1, 1), Stamp()
    with io.FileIO(descriptor) as stream:
        status = os.fstat(descriptor)
        data = _content(stream, status, limit)
    return data, stamp_of(data, status)


def _content(stream: io.FileIO, status: os.stat_result, limit: int) -> bytes | Broken:
    if not stat.S_ISREG(status.st_mode):
        return Broken("SRC002", "not a regular file", 1, 1)
    if status.st_size > limit:
        return too_large(status.st_size, limit)
    try:
        data = stream.read(limit + 1) or b""
        while len(data) <= limit and (more := stream.read(limit + 1 - len(data))):
            data += more
    except OSError as error:
        return Broken("SRC002", f"cannot read the file: {error.strerror}", 1, 1)
    return data if len(data) <= limit else too_large(len(data), limit)


def stamp_of(data: bytes | Broken, status: os.stat_result | None = None) -> Stamp:
    """The stamp of what was read; without ``status`` for bytes that come from no file."""
    content = repr(data).encode() if isinstance(data, Broken) else data
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return Stamp(warm.NOTHING if status is None else warm.stamp_of(status), digest)


def too_large(size: int, limit: int) -> Broken:
    """A file over the limit."""
    return Broken("SRC003", f"{size:,} bytes are over the limit of {limit:,} bytes", 1, 1)


def decode(data: bytes) -> str | Broken:
    """The text of a Python source: byte order mark and coding cookie are honoured (PEP 263)."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        if b"coding" in b"".join(data.splitlines()[:2]):
            return Broken("SRC004", f"cannot tell the encoding: {error.msg}", 1, 1)
        encoding = "utf-8"  # the bytes themselves are wrong; decoding them says where
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        before = split_lines(data[: error.start].decode("latin-1"))  # one character a byte
        line, column = len(before), len(before[-1]) + 1
        return Broken("SRC004", f"byte 0x{data[error.start]:02x} is not {encoding}: {error.reason}", line, column)
    except (LookupError, ValueError, TypeError) as error:
        return Broken("SRC004", f"cannot decode as {encoding}: {error}", 1, 1)
    return text


def with_nul(text: str) -> Broken | None:
    """Whether the text holds a NUL, which LibCST takes in a string and Python nowhere."""
    found = text.find("\0")
    if found < 0:
        return None
    before = split_lines(text[:found])
    return Broken("SRC001", "a NUL character, which no Python source may hold", len(before), len(before[-1]) + 1)


def too_deep(text: str) -> Broken | None:
    """Whether brackets nest so deep that the parser must not be given the text."""
    depth = 0
    for lexeme in _LEXEME.finditer(text):
        first = text[lexeme.start()]
        if first in "([{":
            depth += lexeme.end() - lexeme.start()
            if depth > MAX_NESTING:
                line = line_at(text, lexeme.start())
                message = f"brackets nest {depth} deep; Python itself allows {MAX_NESTING}"
                return Broken("SRC005", message, line, 1)
        elif first in ")]}":
            depth = max(0, depth - (lexeme.end() - lexeme.start()))
    return None
