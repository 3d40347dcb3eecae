"""``[boundaries]``: what processes may not do in certain paths.

``finite`` paths: a process must end and its output must have a bound.

* Unbounded output (OWN030): ``check_output``, ``getoutput`` and ``getstatusoutput``; ``capture_output``
  that is not ``False``; ``.communicate()``; ``.stdout.read()`` and its like without a size.
* Shell (OWN031): what is a shell by nature (:data:`SHELLS`), and ``shell`` that is not ``False``.
* Timeout (OWN032): ``subprocess.run``, ``call``, ``check_call`` and ``check_output`` take it by keyword
  alone, ``wait`` first and ``communicate`` second by position too. ``timeout=None`` is none. A variable is
  trusted to hold one.

``typed_argv`` paths: no argument list comes from ``str.split`` (OWN033).

Fail closed: a constant that cannot be seen may be true, ``*args`` and ``**kwargs`` may hide ``shell=True``
and do hide a timeout, and of a governed call that is passed on as a value nothing can be seen. No
annotation and no ``[[site]]`` entry lifts a boundary: a path is in the list because the project chose so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType

import msgspec

from checkers.codes import CODES
from checkers.manifests import OwnershipManifest
from checkers.model import (
    ApiKind,
    Argument,
    Confidence,
    Finding,
    PathSet,
    Selection,
    Site,
    SiteKind,
    SourceFile,
    Tree,
    Use,
)
from checkers.rules import Judgement, in_order
from checkers.rules.paths import Paths
from checkers.toml_fields import printable, sentence

SHELLS = frozenset(
    {
        "os.system",
        "os.popen",
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
        "asyncio.create_subprocess_shell",
        "asyncio.AbstractEventLoop.subprocess_shell",
        "os.popen2",
        "os.popen3",
        "os.popen4",
        "commands.getoutput",
        "commands.getstatusoutput",
        "IPython.core.interactiveshell.InteractiveShell.getoutput",
        "IPython.core.interactiveshell.InteractiveShell.system",
        "IPython.core.interactiveshell.InteractiveShell.system_raw",
        "IPython.utils.process.getoutput",
        "IPython.utils.process.getoutputerror",
        "IPython.utils.process.system",
    }
)
"""APIs that hand their command to a shell whatever their arguments; a notebook's ``!command`` is one."""

WITH_SHELL: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(
        (
            "subprocess.Popen",
            "subprocess.run",
            "subprocess.call",
            "subprocess.check_call",
            "subprocess.check_output",
        ),
        8,
    )
)
"""APIs with a ``shell`` argument, and its position (the others pass theirs on to Popen)."""

TIMED = frozenset({"subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output"})
"""APIs that wait for the process and take ``timeout``, by keyword alone."""

COLLECTING = frozenset(
    {
        "subprocess.check_output",
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
        "commands.getoutput",
        "commands.getstatusoutput",
        "IPython.core.interactiveshell.InteractiveShell.getoutput",
        "IPython.utils.process.getoutput",
        "IPython.utils.process.getoutputerror",
    }
)
"""APIs that hold all output in memory whatever their arguments."""

TIMEOUT_POSITION: Mapping[str, int] = MappingProxyType({"wait": 0, "communicate": 1})
"""Methods of a process that wait for it, and the position of their ``timeout``."""

_STREAMS = frozenset({"stdout", "stderr"})
_READS = frozenset({"read", "readlines", "readall"})
_ARGV_KEYWORDS = frozenset({None, "*", "args", "argv", "cmd", "command", "popenargs"})


class _Breach(msgspec.Struct, frozen=True):
    """What breaks a boundary, before it is placed."""

    code: str
    message: str
    help: str


def judge(tree: Tree, manifest: OwnershipManifest, *, selection: Selection, today: date) -> Judgement:
    """Breaches of the boundaries, and boundaries that hold no file.

    A boundary speaks of APIs by name, so kinds and tiers of ``selection`` do not narrow it; by-name sites
    are judged where ``selection`` counts them. ``today`` is of no account.
    """
    if manifest.boundaries is None:
        return Judgement(manifest=manifest.path)
    finite = PathSet(entry.value for entry in manifest.boundaries.finite)
    typed = PathSet(entry.value for entry in manifest.boundaries.typed_argv)
    findings = list(_stale(tree, manifest))
    for file in tree.files:
        sites = [s for s in file.sites if s.confidence is Confidence.CERTAIN or selection.by_name]
        if finite.matches(file.path):
            findings += _finite(file, sites)
        if typed.matches(file.path):
            findings += (_placed(site, breach) for site in sites for breach in _split_argv(site))
    return Judgement(in_order(findings), manifest=manifest.path)


def _stale(tree: Tree, manifest: OwnershipManifest) -> Iterator[Finding]:
    paths = Paths(tree)
    assert manifest.boundaries is not None
    for entry in (*manifest.boundaries.finite, *manifest.boundaries.typed_argv):
        if not paths.under(entry.value):
            message = f"boundary `{printable(entry.value, 200)}` holds no analysed file"
            help = sentence(paths.like(entry.value), "correct or remove the path")
            yield entry.at.finding("OWN034", message, help)


def _placed(where: Site | Use, breach: _Breach) -> Finding:
    return Finding(
        breach.code,
        CODES[breach.code].name,
        where.path,
        where.line,
        where.column,
        breach.message,
        breach.help,
        api=where.api if isinstance(where, Site) else None,
        symbol=where.symbol,
        ordinal=where.ordinal if isinstance(where, Site) else None,
        cell=where.cell,
    )


# finite


def _finite(file: SourceFile, sites: Sequence[Site]) -> Iterator[Finding]:
    for site in sites:
        if site.kind is not SiteKind.SUBCLASS:
            for breach in _finite_site(site):
                yield _placed(site, breach)
    for use in file.uses:
        for breach in _finite_use(use):
            yield _placed(use, breach)


def _finite_site(site: Site) -> Iterator[_Breach]:
    names = site.names
    if api := _first(names, COLLECTING):
        yield _unbounded(f"`{api}` collects all output of the process")
    if api := _first(names, SHELLS):
        yield _shell(f"`{api}` runs a command through the shell")
    if (api := _first(names, WITH_SHELL)) is None:
        return
    if site.arguments is None:
        code = "OWN032" if api in TIMED else "OWN031"
        message = f"`{api}` is passed on as a value, so the arguments that would bound it cannot be seen"
        yield _Breach(code, message, "pass on a function that calls it with all of its arguments")
        return
    yield from _flagged_shell(api, site.arguments)
    if api in TIMED:
        yield from _untimed(api, site.arguments, None)
        yield from _captured(api, site.arguments)


def _first(names: Sequence[str], governed: frozenset[str] | Mapping[str, int]) -> str | None:
    """The first of the names that is governed; gevent's ``subprocess`` is like the standard library's."""
    plain = (name.removeprefix("gevent.") for name in names)
    return next((name for name in plain if name in governed), None)


def _flagged_shell(api: str, arguments: Sequence[Argument]) -> Iterator[_Breach]:
    shell = _argument(arguments, "shell", WITH_SHELL[api])
    if shell is not None:
        if not shell.constant:
            yield _shell(f"`{api}` may run a command through the shell: `shell` is not a constant")
        elif shell.value:
            yield _shell(f"`{api}` runs a command through the shell")
    elif hidden := _unpacked(arguments, positional=True):
        yield _shell(f"`{hidden}` of `{api}` may hide `shell=True`")


def _captured(api: str, arguments: Sequence[Argument]) -> Iterator[_Breach]:
    capture = _argument(arguments, "capture_output", None)
    if capture is not None:
        if not capture.constant:
            yield _unbounded(f"`{api}` may collect all output: `capture_output` is not a constant")
        elif capture.value:
            yield _unbounded(f"`{api}` with `capture_output` collects all output of the process")
    elif api == "subprocess.run" and _unpacked(arguments, positional=False):
        yield _unbounded(f"`**` of `{api}` may hide `capture_output=True`")


def _untimed(callee: str, arguments: Sequence[Argument], position: int | None) -> Iterator[_Breach]:
    timeout = _argument(arguments, "timeout", position)
    help = "pass `timeout=` and handle its expiry"
    if timeout is None:
        hidden = _unpacked(arguments, positional=position is not None)
        seen = f": `{hidden}` hides whether one is passed" if hidden else ""
        yield _Breach("OWN032", f"`{callee}` waits without a timeout that can be seen{seen}", help)
    elif timeout.constant and timeout.value is None:
        yield _Breach("OWN032", f"`{callee}` waits without a timeout: it is None", help)


def _finite_use(use: Use) -> Iterator[_Breach]:
    *before, method = use.chain.split(".")
    shown = printable(use.chain, 80)
    if method == "communicate":
        yield _unbounded(f"`{shown}` collects all output of the process")
    if method in TIMEOUT_POSITION:
        yield from _untimed(shown, use.arguments, TIMEOUT_POSITION[method])
    elif method in _READS and before and before[-1] in _STREAMS and not _is_sized(use.arguments):
        yield _unbounded(f"`{shown}` reads all output of the process")


def _is_sized(arguments: Sequence[Argument]) -> bool:
    """Whether a read is bounded: a size that is not known to be negative or None."""
    size = next((a for a in arguments if a.name not in ("*", "**")), None)
    if size is None:
        return False
    return not size.constant or (isinstance(size.value, int) and size.value >= 0)


def _argument(arguments: Sequence[Argument], name: str, position: int | None) -> Argument | None:
    """The argument of that name, or at that position where no ``*`` stands before it."""
    if (named := next((a for a in arguments if a.name == name), None)) is not None:
        return named
    if position is None or len(arguments) <= position:
        return None
    before = arguments[: position + 1]
    return before[-1] if all(argument.name is None for argument in before) else None


def _unpacked(arguments: Sequence[Argument], *, positional: bool) -> str | None:
    """``**`` or (where an argument may be positional) ``*``, whichever could hide one."""
    names = {argument.name for argument in arguments}
    return "**" if "**" in names else "*" if positional and "*" in names else None


def _unbounded(message: str) -> _Breach:
    return _Breach("OWN030", message, "send the output to a file, or read it in pieces up to a bound")


def _shell(message: str) -> _Breach:
    return _Breach("OWN031", message, "run the program itself with a list of arguments and `shell=False`")


# typed_argv


def _split_argv(site: Site) -> Iterator[_Breach]:
    """A ``multiprocessing.Process`` has arguments, but they are no command."""
    if site.api_kind not in (ApiKind.PROCESS, ApiKind.EXEC) or site.api.rpartition(".")[2] == "Process":
        return
    if any(argument.split and argument.name in _ARGV_KEYWORDS for argument in site.arguments or ()):
        message = f"`{site.api}` gets an argument list made by `str.split`, which knows no quoting"
        yield _Breach("OWN033", message, "write the list out, or use `shlex.split`")
