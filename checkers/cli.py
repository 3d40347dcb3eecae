"""The commands ``check-bypass`` and ``check-ownership``: parse options, run, print, exit.

Exit status: 0 clean, 1 findings, 2 where something could not be analysed or the check could not be made. 2
wins over 1, and all findings are printed all the same. An error is one line on standard error, never a
traceback (unless SPAWNGATE_DEBUG is set).
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import tomllib
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import click
from msgspec.structs import replace

from checkers import codes, config, engine, warm
from checkers.config import Request
from checkers.engine import LayoutError
from checkers.intake.cache import is_foreign
from checkers.manifests import ROLLOUTS, ManifestError
from checkers.model import ApiKind, Tier, Tree
from checkers.progress import Bar, is_watched
from checkers.report import FORMATS, Look, Report
from checkers.report.output import fitted, write_file, write_stream
from checkers.report.text import escape
from checkers.run import BYPASS, OWNERSHIP, Check, Log, run

ERROR = 2
DEBUG = "SPAWNGATE_DEBUG"
"""Environment variable that lets an internal error show its traceback."""

_KINDS = [kind.value for kind in ApiKind if kind is not ApiKind.DECLARED]
_TIERS = [tier.value for tier in Tier]


class RunError(Exception):
    """The check could not be made; ``str()`` is the line that says why."""


def bypass_main(argv: Sequence[str] | None = None) -> int:
    """Run ``check-bypass`` with ``argv`` (default: the process's arguments); the exit status."""
    return _main(BYPASS, argv)


def ownership_main(argv: Sequence[str] | None = None) -> int:
    """Run ``check-ownership`` with ``argv`` (default: the process's arguments); the exit status."""
    return _main(OWNERSHIP, argv)


CHECKS = {"bypass": BYPASS, "ownership": OWNERSHIP}
_CLOSED = "cannot write to standard output: it is closed"
_LASTING = frozenset({"SRC001", "SRC003", "SRC004"})
"""Failures that lie in a file itself, and not perhaps in the machine."""


def run_command(command: str, arguments: list[str], asked: str | None, began_ns: int) -> int:
    """Run a command of :data:`CHECKS` whose answer is not known; remember it under ``asked``. The exit status."""
    if command not in CHECKS:
        return main([command, *arguments] if command else [])
    return _main(CHECKS[command], arguments, asked, began_ns)


def lost_output(error: OSError, status: int) -> int:
    """The exit status where standard output could not be written, and ``status`` was to be told."""
    try:
        _lose(error)
    except RunError as lost:
        return _fail(str(lost))
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m checkers bypass|ownership …``; the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    usage = f"usage: python -m checkers {'|'.join(CHECKS)} [OPTIONS] [PATHS]..."
    if not arguments:
        return _fail(f"no command given; {usage}")
    if arguments[0] in ("--help", "-h"):
        _print(f"{usage}\n")
        return 0
    if arguments[0] not in CHECKS:
        return _fail(f"there is no command {arguments[0]!r}; {usage}")
    return _main(CHECKS[arguments[0]], arguments[1:])


def _main(check: Check, argv: Sequence[str] | None, asked: str | None = None, began_ns: int = 0) -> int:
    """Parse, run, print. Every way in which that can go wrong has its status and its one line."""
    arguments = None if argv is None else list(argv)
    try:
        parsed = _parse(check, arguments)
        return parsed if isinstance(parsed, int) else _serve(check, parsed, asked, began_ns)
    except click.ClickException as error:
        return _fail(f"{_usage(error)}; see {check.name} --help")
    except (ManifestError, LayoutError, RunError) as error:
        return _fail(str(error))
    except (KeyboardInterrupt, click.Abort):
        return warm.INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        advice = f"please report it ({DEBUG}=1 shows the traceback)"
        return _fail(f"internal error: {type(error).__name__}: {error}; {advice}")


def _parse(check: Check, arguments: list[str] | None) -> Request | int:
    """The request, or the status where ``--help`` or ``--version`` was all that was asked for."""
    try:
        parsed: Request | int = _command(check).main(arguments, prog_name=check.name, standalone_mode=False)
    except OSError as error:
        _silence(sys.stdout)
        raise RunError(f"cannot write to standard output: {error.strerror}") from error
    if isinstance(parsed, int) and sys.stdout is None:
        raise RunError(_CLOSED)
    return parsed


def _serve(check: Check, request: Request, asked: str | None, began_ns: int) -> int:
    if request.explain is not None:
        _deliver(_explanation(request.explain), request)
        return 0
    log = Log()
    today = datetime.now().astimezone().date()
    watched = {os.path.abspath(path): warm.stamp(path) for path in request.given}  # noqa: PTH100 - follows no links
    trees: list[Tree] = []

    def find(scan: engine.Scan) -> Tree:
        trees.append(engine.scan(replace(scan, progress=progress)))
        return trees[-1]

    with Bar() as bar:
        progress = bar if is_watched() and not request.quiet else None
        report = run(check, request, _standard_input(request), today, log, find, watched)
    with log.stage("report"):
        text = FORMATS[request.output_format](report, _look(request))
    _deliver(text, request)
    warnings = _warnings(report)
    _print_error(warnings)
    if request.verbose:
        _tell(log)
    (tree,) = trees
    if asked is not None and _is_lasting(tree):
        known = warm.Known(report.status, fitted(text, sys.stdout.encoding), warnings)
        warm.keep(asked, os.fspath(request.root), known, {**tree.watched, **watched}, began_ns)
    return report.status


def _is_lasting(tree: Tree) -> bool:
    return all(file.unanalysed is None or file.unanalysed.code in _LASTING for file in tree.files)


def _warnings(report: Report) -> str:
    if not report.files:
        return "warning: nothing was checked: no Python file among what was asked for\n"
    lines = (f"{escape(path)}: nothing to check there: no Python file, or left out" for path in report.passed_over)
    return "".join(f"warning: {line}\n" for line in lines)


def _explanation(asked: str) -> str:
    code = codes.find(asked)
    if code is None:
        meant = codes.similar(asked)
        hint = f"did you mean {' or '.join(meant)}?" if meant else f"codes are {', '.join(codes.CODES)}"
        raise RunError(f"there is no code {asked!r}; {hint}")
    return codes.page(code.code)


def _look(request: Request) -> Look:
    is_terminal = request.output_file is None and sys.stdout is not None and sys.stdout.isatty()
    color = config.wants_color(request.color, is_terminal)
    return Look(color=color, quiet=request.quiet, statistics=request.statistics)


def _standard_input(request: Request) -> bytes | None:
    if request.stdin_filename is None:
        return None
    if sys.stdin is None:
        raise RunError("--stdin-filename: standard input is closed")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise RunError(f"--stdin-filename: cannot read standard input: {error.strerror}") from error


def _deliver(text: str, request: Request) -> None:
    if request.output_file is None:
        return _print(text)
    try:
        write_file(request.output_file, text)
    except OSError as error:
        raise RunError(f"cannot write {request.output_file}: {error.strerror}") from error


def _print(text: str) -> None:
    """Write to standard output. A reader that has gone away (``| head``) changes no verdict."""
    if sys.stdout is None:
        raise RunError(_CLOSED)
    try:
        write_stream(sys.stdout, text)
    except OSError as error:
        _lose(error)


def _lose(error: OSError) -> None:
    """Give standard output up. Raises RunError, but not for a reader that has gone away."""
    _silence(sys.stdout)
    if not isinstance(error, BrokenPipeError):
        raise RunError(f"cannot write to standard output: {error.strerror}") from error


def _silence(stream: TextIO) -> None:
    """Send what is left in the stream's buffer nowhere: it is flushed once more as the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _tell(log: Log) -> None:
    stages = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in log.stages)
    _print_error("".join(f"{escape(line)}\n" for line in [*log.lines, f"time: {stages}"]))


def _usage(error: click.ClickException) -> str:
    """What is wrong with the options. An unknown one is worded here: click's words differ by its version."""
    if not isinstance(error, click.NoSuchOption):
        return error.format_message().rstrip(".")
    meant = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1)
    return f"No such option: {error.option_name}" + "".join(f"; did you mean {option}?" for option in meant)


def _fail(message: str) -> int:
    _print_error(f"error: {escape(message)}\n")
    return ERROR


def _print_error(text: str) -> None:
    # Where standard error is closed or full there is nobody left to tell; the exit status still speaks.
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            write_stream(sys.stderr, text)


def _command(check: Check) -> click.Command:
    """The parser of one command: its value is the Request."""
    return click.Command(
        check.name,
        callback=_request,
        params=_parameters(check),
        help=f"{check.summary}\n\nPATHS select what is reported; the whole tree is read all the same.",
        epilog="Exit status: 0 clean, 1 findings, 2 not everything could be analysed or checked.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def _parameters(check: Check) -> list[click.Parameter]:
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    file = click.Path(path_type=Path)
    return [
        click.Argument(["paths"], nargs=-1),
        click.Option(
            ["--root"],
            type=folder,
            metavar="DIR",
            help="Project root. [default: nearest parent with pyproject.toml or .git, else the working directory]",
        ),
        click.Option(
            ["--manifest"],
            type=file,
            metavar="FILE",
            help=f"Manifest. [default: {check.manifest}, or {check.table} in pyproject.toml]",
        ),
        click.Option(
            ["--output-format"],
            type=click.Choice(list(FORMATS)),
            default="text",
            show_default=True,
            help="How to write the report.",
        ),
        click.Option(["--output-file"], type=file, metavar="FILE", help="Write the report here, whole or not at all."),
        click.Option(["--list-sites"], is_flag=True, help="List every site and its owner; judge nothing."),
        click.Option(
            ["--rollout"],
            type=click.Choice(ROLLOUTS),
            help="How findings count. [default: the manifest's]",
        ),
        click.Option(["--kind"], type=click.Choice(_KINDS), multiple=True, help="Kind of API that counts; repeatable."),
        click.Option(["--tier"], type=click.Choice(_TIERS), multiple=True, help="Tier of API that counts; repeatable."),
        click.Option(["--by-name"], is_flag=True, help="Count methods known by name only, their receiver unseen."),
        click.Option(
            ["--jobs"],
            type=click.IntRange(min=1),
            metavar="N",
            help="Worker processes. [default: one for each CPU]",
        ),
        click.Option(["--no-cache"], is_flag=True, help="Neither use nor keep the result of a run."),
        click.Option(
            ["--cache-dir"],
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Where results are kept. [default: .spawngate_cache in the root]",
        ),
        click.Option(["--clear-cache"], is_flag=True, help="Forget what was kept, then check."),
        click.Option(["--stdin-filename"], metavar="PATH", help="Check this one file; its text is on stdin."),
        click.Option(["--explain"], metavar="CODE", help="Print what a code means, and how to mend it."),
        click.Option(["--statistics"], is_flag=True, help="Add counts by code, API and owner."),
        click.Option(["--quiet"], is_flag=True, help="Print findings only, one line each."),
        click.Option(["--verbose"], is_flag=True, help="Tell on stderr what was read, and how long it took."),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            help="Colour; auto: on a terminal, and obeying NO_COLOR.",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Print the version.",
        ),
    ]


def _show_version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"{context.info_name} {_version()}")
        context.exit()


def _version() -> str:
    """The installed version; in a source checkout that is not installed, the one it declares."""
    from importlib import metadata  # takes as long to import as the command itself

    try:
        return metadata.version("spawngate")
    except metadata.PackageNotFoundError:
        declared = Path(__file__).parent.parent / "pyproject.toml"
        return str(tomllib.loads(declared.read_text(encoding="utf-8"))["project"]["version"])


def _request(
    *,
    paths: tuple[str, ...],
    root: Path | None,
    manifest: Path | None,
    cache_dir: Path | None,
    stdin_filename: str | None,
    kind: Any,
    tier: Any,
    **options: Any,
) -> Request:
    """The parsed options as a Request. Raises click.UsageError for options that exclude each other."""
    if stdin_filename is not None and paths:
        raise click.UsageError("--stdin-filename names the one file to check: give no PATHS beside it")
    if stdin_filename is not None and (not stdin_filename or os.path.isdir(stdin_filename)):  # noqa: PTH112 - never raises
        raise click.UsageError(
            f"--stdin-filename: {stdin_filename or 'an empty name'} is no file: name the file edited"
        )
    if cache_dir is not None and is_foreign(cache_dir):
        raise click.UsageError(f"--cache-dir: {cache_dir} holds other things: name a new folder, or an empty one")
    try:
        found = config.find_root(Path.cwd()) if root is None else config.absolute(root)
        return Request(
            root=found,
            given=paths,
            paths=config.select(found, paths),
            manifest=None if manifest is None else config.absolute(manifest),
            cache_dir=cache_dir,
            stdin_filename=None if stdin_filename is None else config.below_root(found, stdin_filename),
            kinds=frozenset(map(ApiKind, kind)),
            tiers=frozenset(map(Tier, tier)),
            **options,
        )
    except FileNotFoundError:  # of what is relative; the files themselves are not looked at here
        raise click.UsageError("the working directory is gone") from None
