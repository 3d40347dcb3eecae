"""Finds where a Python project starts work, and checks that each such place is allowed and owned.

The commands are thin; everything they do can be imported, and the scan is one call:

>>> import checkers
>>> tree = checkers.scan(["fixtures/sites/layout"], root="fixtures/sites/layout", jobs=1)
>>> [(site.path, site.line, site.api) for file in tree.files for site in file.sites]
[('script.py', 4, 'os.system'), ('script.py', 5, 'os.popen'), ('src/app/tools.py', 3, 'os.system')]

``checkers.manifests`` loads what a project declares and ``checkers.rules`` judges a tree by it; ``checkers.report``
writes what came of it. ``docs/architecture.md`` shows the whole way.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # a run whose answer is known imports this, and should not pay for ``typing``

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor
    from typing import TypeAlias

    from checkers.catalog import Entry
    from checkers.model import Tree

    StrPath: TypeAlias = str | os.PathLike[str]

__all__ = ["scan"]


def scan(
    paths: StrPath | Iterable[StrPath] = (),
    *,
    root: StrPath | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    cache: StrPath | None = None,
    progress: Callable[[int, int], None] | None = None,
    roots: Iterable[str] = (),
    exclude: Iterable[str] = (),
    apis: Iterable[Entry] = (),
    targets: Iterable[str] = (),
    by_name: bool = False,
) -> Tree:
    """Find the sites of a project.

    ``paths``: files and folders that are asked for (``tree.selected``), from the working directory; none for the whole
    project, which is read all the same. ``root``: the project; by default the nearest folder above all paths, or the
    working directory, that holds a ``pyproject.toml`` or ``.git``.

    ``executor`` reads the files, such as a pool of processes or a Dask client's ``get_executor()``. It is not shut
    down. Its workers have to see the project under the same path and to be able to import this package. What it cannot
    do, worker processes of our own do, and a RuntimeWarning tells so. It is not bounded in time and memory, as our own
    workers are (``jobs`` of them, one for each processor by default): a file may kill one of its processes, or with
    threads this one.

    ``cache``: a folder that keeps what is known of each file until it changes. ``progress`` is told how many files have
    been read, and how many there are. ``roots``, ``exclude``, ``apis`` and ``targets`` are what a manifest declares
    under these names; ``by_name``: also methods whose receiver cannot be seen.

    A file that cannot be analysed is told as such (``file.unanalysed``); the others are analysed all the same.

    Raises :class:`checkers.engine.LayoutError` for a path that is not in the project, and for two import roots with the
    same module; ValueError for a target or an API that ends in no name.
    """
    from pathlib import Path

    from checkers import config, engine

    given = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    project = config.root_of(given) if root is None else config.absolute(Path(root))
    request = engine.Scan(
        root=project,
        paths=config.select(project, tuple(given)),
        roots=tuple(roots),
        exclude=tuple(exclude),
        jobs=jobs,
        apis=tuple(apis),
        targets=tuple(targets),
        by_name=by_name,
        cache=None if cache is None else Path(cache),
        executor=executor,
        progress=progress,
    )
    return engine.scan(request)
