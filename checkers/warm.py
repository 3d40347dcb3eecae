"""A run whose answer is known: the same command on a tree in which nothing has changed prints what it printed before.

Everything that could change the answer is in the key (command, options, working directory, day, terminal, this package,
what is installed beside it) or among the stamps (every folder that was listed, every file that was looked at). Nothing
is imported here but what starts with the interpreter or is as small, because that is what such a run costs.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import zlib

FOLDER = ".spawngate_cache"
RACY_NS = 2_000_000_000
"""Coarsest tick of the file systems in use (FAT): a file changed so shortly before may change once more unseen."""
INTERRUPTED = 130
"""Exit status of a run that was interrupted, as a shell has it."""
ROOT_MARKERS = ("pyproject.toml", ".git")
"""What makes a folder a project's root."""
_DAY_S = 24 * 60 * 60
_DAYS_KEPT = {".run": 1, ".tmp-": 1, ".facts": 30, ".catalogue": 30}
"""How long a file with this in its name is kept after its last use."""
_FORMAT = b"spawngate run 3\n"
_SUM_BYTES = 4
_UNKNOWABLE = ("--cache-dir", "--clear-cache", "--no-cache", "--output-file", "--stdin-filename", "--verbose")
"""Options under which a run does more, or other, than print what the tree gives."""
_ENVIRONMENT = ("NO_COLOR", "TERM", "PYTHONIOENCODING")

_63_BITS = 2**63 - 1
_STAMP_NUMBERS = 5
_WORTH_A_PROCESS = 1000
"""So many paths take longer to be asked about than a process to be forked."""
_SIGKILL = 9
"""The module ``signal`` imports more than all of this run needs."""

Stamp = tuple[int, int, int, int, int]
"""Size in bytes, times of change of the content and of anything at all in ns, inode, mode.

Of the two times only the first can be set: copies, archives and ``touch`` do, and give another content an old time.
"""
NOTHING: Stamp = (-1, 0, 0, 0, 0)
"""The stamp of a path where nothing is."""


class Known:
    """What a run printed, and its exit status."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err


def stamp(path: str) -> Stamp:
    """The stamp of a file or folder, links followed as far as they lead somewhere."""
    try:
        return stamp_of(os.stat(path))
    except (OSError, ValueError):
        pass
    try:
        return stamp_of(os.lstat(path))
    except (OSError, ValueError):
        return NOTHING


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp that a status gives."""
    inode = status.st_ino & _63_BITS  # there are file systems that use all 64
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode, status.st_mode


def is_settled(one: Stamp, began_ns: int) -> bool:
    """Whether what has this stamp in a run that began then cannot change any more without getting another one."""
    return max(one[1], one[2]) < began_ns - RACY_NS


def find_root(start: str) -> str:
    """The nearest folder from ``start``, an absolute path, upwards that holds a root marker; else ``start`` itself."""
    folder = start
    while True:
        if any(os.path.exists(os.path.join(folder, marker)) for marker in ROOT_MARKERS):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return start
        folder = above


def tool() -> str:
    """What runs: Python, what is installed beside this package, its own code and catalogue, and a user with rights.

    Of these files only size and time of change count: each container that starts from an image gives them other inodes.
    """
    user = getattr(os, "geteuid", int)()
    beside = (f"{path} {stamp(path)[:2]}" for path in sys.path if path.endswith("-packages"))
    parts = [sys.version, f"user {user}", *beside]
    folders = [os.path.dirname(__file__)]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.name.endswith((".py", ".toml")):
                    parts.append(f"{entry.path} {stamp(entry.path)[:2]}")
    return "\n".join(parts)


def key(command: str, arguments: list[str]) -> str | None:
    """What is asked, and where; None for a run that is not to be answered from memory."""
    if sys.stdout is None or any(argument.partition("=")[0] in _UNKNOWABLE for argument in arguments):
        return None
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        return None
    terminal = f"{sys.stdout.isatty()} {sys.stdout.encoding}"
    environment = [f"{name}={os.environ.get(name)}" for name in _ENVIRONMENT]
    day = time.strftime("%Y-%m-%d")
    return "\0".join([command, *arguments, here, terminal, *environment, day, tool()])


def root_of(arguments: list[str]) -> str:
    """The root that the options name; else the one that the working directory has."""
    root = None
    for position, argument in enumerate(arguments):
        if argument == "--root":
            root = arguments[position + 1 : position + 2]
        elif argument.startswith("--root="):
            root = [argument[len("--root=") :]]
    return os.path.abspath(root[0]) if root else find_root(os.getcwd())


def recall(asked: str, root: str) -> Known | None:
    """What is known of a run, if nothing has changed since; None where there is no such memory, or not one of ours."""
    path = _path(asked, root)
    if not os.path.isfile(path):  # opening a pipe would wait for its writer
        return None
    try:
        with open(path, "rb", buffering=0) as stream:
            data = stream.read()
        body = data[len(_FORMAT) + _SUM_BYTES :]
        if data[: len(_FORMAT) + _SUM_BYTES] != _head(body):
            return None
        line, _, rest = body.partition(b"\n")
        status, *lengths = map(int, line.split())
        texts = []
        for length in lengths:
            texts.append(rest[:length].decode("utf-8", "surrogateescape"))
            rest = rest[length:]
        known, out, err, within, outside = texts
        inside = os.path.join(root, "")
        paths = [*(inside + path for path in _split(within)), *_split(outside)]
        if known != asked or not _hold(paths, memoryview(rest).cast("q").tolist()):
            return None
    except (OSError, ValueError, TypeError, OverflowError):
        return None
    return Known(status, out, err)


def _joined(paths: list[str]) -> str:
    return "".join(f"\0{path}" for path in paths)


def _split(paths: str) -> list[str]:
    return paths.split("\0")[1:]


def _hold(paths: list[str], numbers: list[int]) -> bool:
    """Whether each path still has its stamp; ``numbers`` are the stamps that were kept, one after the other.

    A second process takes half of many paths, since nearly all of such a run is spent on asking for their stamps.
    """
    middle = len(paths) // 2
    child = _fork() if middle >= _WORTH_A_PROCESS else None
    if child is None:
        return _hold_alone(paths, numbers)
    if child == 0:
        try:
            os._exit(not _hold_alone(paths[middle:], numbers[middle * _STAMP_NUMBERS :]))
        finally:
            os._exit(1)
    hold = False
    try:
        hold = _hold_alone(paths[:middle], numbers[: middle * _STAMP_NUMBERS])
    finally:
        if not hold:
            os.kill(child, _SIGKILL)
        status = os.waitpid(child, 0)[1]
    return hold and status == 0


def _hold_alone(paths: list[str], numbers: list[int]) -> bool:
    rest = iter(numbers)
    stamps = zip(rest, rest, rest, rest, rest, strict=True)
    return all(stamp(path) == one for path, one in zip(paths, stamps, strict=True))


def _fork() -> int | None:
    """What ``os.fork`` returns; None where there is none to be had, or no processor for another process."""
    try:
        if len(os.sched_getaffinity(0)) < 2:
            return None
        # execution-ownership: standalone_compat -- the checks run as a command of their own
        # scheduler-audit: standalone-compat -- on machines without a scheduler, too
        return os.fork()
    except (AttributeError, OSError):
        return None


def keep(asked: str, root: str, known: Known, stamps: dict[str, Stamp], began_ns: int) -> None:
    """Remember a run that began at ``began_ns``. ``stamps`` are of paths relative to the root, each taken before the
    path was looked at; absolute paths stand for themselves.

    Nothing is kept where a stamp is too young to tell a later change, and where the folder cannot be written.
    """
    if not all(is_settled(one, began_ns) for one in stamps.values()) or os.path.islink(os.path.join(root, FOLDER)):
        return  # a link may lead to a folder of other things
    outside = [path for path in stamps if os.path.isabs(path)]
    within = [path for path in stamps if not os.path.isabs(path)]
    told = asked, known.out, known.err, _joined(within), _joined(outside)
    texts = [text.encode("utf-8", "surrogateescape") for text in told]
    numbers = " ".join(map(str, (known.status, *map(len, texts))))
    flat = b"".join(
        number.to_bytes(8, sys.byteorder, signed=True) for path in within + outside for number in stamps[path]
    )
    body = b"".join([numbers.encode(), b"\n", *texts, flat])
    path = _path(asked, root)
    temporary = f"{path}.{os.getpid()}.{began_ns}"
    try:
        with open(temporary, "xb") as stream:
            stream.write(_head(body) + body)
        os.replace(temporary, path)
        forget_old(os.path.dirname(path))
    except OSError:
        return


def _head(body: bytes) -> bytes:
    """What stands before ``body`` if it is whole."""
    return _FORMAT + zlib.crc32(body).to_bytes(_SUM_BYTES, "big")


def forget_old(folder: str) -> None:
    """Remove what no run asks for any more: the day is part of what is asked, and a killed run leaves what it began.

    Raises OSError.
    """
    now = time.time()
    with os.scandir(folder) as entries:
        for entry in entries:
            days = next((days for part, days in _DAYS_KEPT.items() if part in entry.name), None)
            if days is not None and entry.stat().st_mtime < now - days * _DAY_S:
                os.unlink(entry.path)


def _path(asked: str, root: str) -> str:
    return os.path.join(root, FOLDER, f"{zlib.crc32(asked.encode('utf-8', 'surrogateescape')):08x}.run")


def bypass_main() -> None:
    """Run ``check-bypass`` with the process's arguments, and end the process."""
    _leave(_main("bypass", sys.argv[1:]))


def ownership_main() -> None:
    """Run ``check-ownership`` with the process's arguments, and end the process."""
    _leave(_main("ownership", sys.argv[1:]))


def main() -> None:
    """Run ``python -m checkers bypass|ownership …``, and end the process."""
    _leave(_main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))


def _main(command: str, arguments: list[str]) -> int:
    gc.disable()  # a run makes hardly any garbage in cycles, and the collector would walk all that it keeps
    try:
        return _answer(command, arguments)
    except KeyboardInterrupt:  # before the command itself minds it
        return INTERRUPTED


def _leave(status: int) -> None:
    """End the process at once.

    The interpreter would first free piece by piece what was found; the system takes it back as a whole.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # it was told, or nobody is left to be told
            pass
    os._exit(status)


def _answer(command: str, arguments: list[str]) -> int:
    began_ns = time.time_ns()
    asked = key(command, arguments)
    known = None if asked is None else recall(asked, root_of(arguments))
    if known is None:
        from checkers import cli

        return cli.run_command(command, arguments, asked, began_ns)
    try:
        sys.stdout.write(known.out)
        sys.stdout.flush()
    except OSError as error:
        from checkers import cli

        return cli.lost_output(error, known.status)
    try:
        if sys.stderr is not None:
            sys.stderr.write(known.err)
    except OSError:
        return known.status  # nobody is left to be warned
    return known.status
