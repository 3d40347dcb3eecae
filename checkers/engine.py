"""The engine: a project tree in, every place where governed work can start out. It judges nothing.

>>> from pathlib import Path
>>> from checkers.engine import Scan, scan
>>> tree = scan(Scan(Path("/path/to/project")))  # doctest: +SKIP
>>> [(site.path, site.line, site.api) for file in tree.files for site in file.sites]  # doctest: +SKIP
"""

from __future__ import annotations

import os.path
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from checkers import catalog
from checkers.annotations import ANNOTATION_KEYWORDS
from checkers.codes import CODES
from checkers.facts import model as f
from checkers.facts.interest import ACCESSORS, Interest
from checkers.intake.cache import Cache, Kept
from checkers.intake.files import STUB_SUFFIX, Listing, is_excluded, list_files
from checkers.intake.pipeline import Analysed, Job, analyse_files, default_jobs, place_in
from checkers.limits import no_collection, recursion
from checkers.model import Comment, Header, SourceFile, Tree, Unanalysed
from checkers.resolve.evaluate import MAX_DEPTH, MAX_VALUES, Evaluator, TooDeepError
from checkers.resolve.layout import Layout, LayoutError
from checkers.resolve.sites import PROCESS_METHODS, STREAM_READS, SiteFinder, defined_names
from checkers.targets import is_chain

__all__ = ["LayoutError", "Scan", "scan"]

RECURSION_LIMIT = 20_000
"""Following names across modules nests a few Python frames per alias; :data:`MAX_DEPTH` bounds the aliases."""
_TOO_DEEP = f"a name has more than {MAX_DEPTH:,} names behind it, or stands for more than {MAX_VALUES:,} values"

FOLLOWED_MODULES = frozenset(
    {"contextlib", "functools", "importlib", "operator", "shlex", "sys", "typing", "typing_extensions"}
)
"""Modules that govern nothing, but whose functions are understood on the way to what does."""

_HELP = {
    "SRC001": "mend the syntax, or name the file under [[unanalysed]] with a reason",
    "SRC002": "make the file readable, leave it out (exclude), or name it under [[unanalysed]] with a reason",
    "SRC003": "raise max_file_bytes in the manifest, or name the file under [[unanalysed]] with a reason",
    "SRC004": "save the file as UTF-8 or give the right coding cookie",
    "SRC005": "split the expression, or name the file under [[unanalysed]] with a reason",
    "SRC006": "keep links inside the project root, or leave the file out (exclude)",
}


@dataclass(frozen=True, slots=True)
class Scan:
    """What to scan, and what to look for.

    ``root`` is absolute; everything else that is a path is relative to it and written with ``/``.
    """

    root: Path
    paths: tuple[str, ...] = ()
    """What is asked for; empty for the whole tree. The rest is read for what it exports."""
    roots: tuple[str, ...] = ()
    """Import roots; empty to find them from the layout. When given, nothing outside them is asked for by default."""
    exclude: tuple[str, ...] = ()
    max_file_bytes: int = 10 * 1024 * 1024
    jobs: int | None = None
    """Worker processes; None for one per processor."""
    stdin: tuple[str, bytes] | None = None
    """Path and bytes of an unsaved buffer that stands for the file of that path."""
    apis: tuple[catalog.Entry, ...] = ()
    targets: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    by_name: bool = False
    """Whether methods are looked for whose receiver cannot be seen."""
    cache: Path | None = None
    """Folder that keeps the last result until a file changes; None to keep none."""
    executor: Executor | None = None
    """Who reads the files instead of workers of our own; it is used and never shut down. Its workers see ``root`` under
    the same path. They are not bounded: in a thread, a file that kills the parser ends this process."""
    progress: Callable[[int, int], None] | None = None
    """Told, whenever a file has been read, how many have been, and how many there are."""
    reference: bool = False
    """Whether the reference front end reads every file: the same result, later."""


def scan(request: Scan) -> Tree:
    """Find the sites of a project.

    A file that cannot be analysed is told as such in its :class:`~checkers.model.SourceFile`; the others are analysed
    all the same. The result depends on nothing but the request and the bytes of the tree.

    Raises :class:`LayoutError` for a path that is not in the project, and for two import roots with the same module.
    """
    listing = _list(request)
    selected, passed_over = _selected(request, listing)
    cache = _cache(request)
    found = None if cache is None else cache.load(listing.files)
    if found is None:
        stamps = {} if cache is None else cache.stamps(listing.files)
        with no_collection():
            found = _find(request, listing.files)
        if cache is not None and not any(_may_be_passing(file) for file in found.files):
            cache.store(stamps, found)
    unreadable = [
        SourceFile(u.path, unanalysed=_unanalysed(u.path, f.Broken(u.code, u.message, 1, 1)))
        for u in listing.unreadable
    ]
    files = sorted([*found.files, *unreadable], key=lambda file: file.path)
    return Tree(tuple(files), frozenset(selected), found.names, found.calls, tuple(passed_over))


def _find(request: Scan, paths: list[str]) -> Kept:
    layout = Layout(paths, request.roots)
    root, interest = os.fspath(request.root), _interest(request, layout)
    job = Job(root, interest, ANNOTATION_KEYWORDS, request.max_file_bytes, request.reference)
    unsaved = {} if request.stdin is None else dict([request.stdin])
    results = analyse_files(job, paths, request.jobs or default_jobs(), unsaved, request.executor)
    analysed = {result.path: result for result in _counted(results, len(paths), request.progress)}
    modules = {path: result.facts for path, result in sorted(analysed.items()) if result.facts is not None}
    declared = [target for target in request.targets if "*" not in target and not is_chain(target)]
    known = catalog.Catalog.load(_roots(request, modules), request.apis, declared)
    evaluator = Evaluator(modules, layout, known)
    finder = SiteFinder(evaluator, request.targets, request.watch)
    with recursion(max(sys.getrecursionlimit(), RECURSION_LIMIT)):
        files = [_file(finder, analysed[path]) for path in paths]
    return Kept(files, defined_names(modules, layout.names), frozenset(finder.calls))


def _counted(
    results: Iterator[Analysed], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[Analysed]:
    for done, result in enumerate(results, 1):
        yield result
        if progress is not None:
            progress(done, total)


def _may_be_passing(file: SourceFile) -> bool:
    """Whether a file failed for a reason that may lie in the machine, such as a worker that was killed."""
    return file.unanalysed is not None and file.unanalysed.code == "SRC005"


def _cache(request: Scan) -> Cache | None:
    """The cache of what this request asks for; an unsaved buffer is not kept."""
    if request.cache is None or request.stdin is not None:
        return None
    asked = (
        *(os.fspath(request.root), request.roots, request.exclude, request.max_file_bytes),
        *(request.apis, request.targets, request.watch, request.by_name),
    )
    return Cache(request.root, request.cache, [repr(part) for part in asked], request.max_file_bytes)


def _list(request: Scan) -> Listing:
    listing = list_files(request.root, request.exclude, map(os.path.normpath, request.paths))
    path = None if request.stdin is None else request.stdin[0]
    if path is None or path in listing.files or path.endswith(STUB_SUFFIX) or is_excluded(path, request.exclude):
        return listing
    listing.files = sorted([*listing.files, path])
    return listing


def _selected(request: Scan, listing: Listing) -> tuple[set[str], list[str]]:
    """The files that are asked for, and what of the request gives no file."""
    known = [*listing.files, *(unreadable.path for unreadable in listing.unreadable)]
    paths = request.paths or request.roots
    if not paths:
        return set(known), []
    chosen, passed_over = set[str](), []
    for given in paths:
        path = os.path.normpath(given)
        if path == ".." or path.startswith("../") or os.path.isabs(path):
            raise LayoutError(f"{given}: lies outside the project root {request.root}; give --root, or another path")
        is_unsaved = request.stdin is not None and given == request.stdin[0]
        if not is_unsaved and not os.path.lexists(request.root / path) and path not in known:
            raise LayoutError(f"{given}: no such file or folder below {request.root}")
        prefix = "" if path == "." else path + "/"
        found = [name for name in known if name == path or name.startswith(prefix)]
        chosen.update(found)
        passed_over += [] if found or path in listing.stubs else [path]
    return chosen, passed_over


def _interest(request: Scan, layout: Layout) -> Interest:
    qualified = [name for name in (*request.targets, *request.watch) if not is_chain(name)]
    chains = [target for target in request.targets if is_chain(target)]
    own = [entry.name for entry in request.apis]
    leaves = {name.rpartition(".")[2] for name in (*qualified, *own)}
    builtins = catalog.Catalog.load(["builtins"])
    methods = {chain.rpartition(".")[2].removesuffix("()") for chain in chains if "*" not in chain.rpartition(".")[2]}
    methods |= PROCESS_METHODS
    if request.by_name:
        everything = catalog.Catalog.load(catalog.Catalog.known_roots(), request.apis)
        methods |= {entry.name.rpartition(".")[2] for entry in everything.entries if entry.by_name}
    return Interest(
        roots=catalog.Catalog.known_roots()
        | FOLLOWED_MODULES
        | layout.top_level
        | {name.partition(".")[0] for name in (*qualified, *own)},
        builtins=ACCESSORS | {entry.name.partition(".")[2] for entry in builtins.entries} | {"get_ipython"},
        method_names=frozenset(methods),
        chain_ends=STREAM_READS,
        local_names=frozenset(leaf for leaf in leaves if "*" not in leaf),
        local_patterns=tuple(sorted("*" + leaf.rpartition("*")[2] for leaf in leaves if "*" in leaf)),
        chains=tuple(chain for chain in chains if "*" in chain.rpartition(".")[2]),
    )


def _roots(request: Scan, modules: Mapping[str, f.ModuleFacts]) -> frozenset[str]:
    """Top-level names of everything that the tree imports, and of the builtins."""
    if request.by_name:
        return catalog.Catalog.known_roots()
    found = {"builtins"}
    for facts in modules.values():
        values = [use.value for use in facts.uses] + [base for owner in facts.classes for base in owner.bases]
        found.update(name.partition(".")[0] for value in values for name in _strings(value))
        for binding in facts.bindings.values():
            match binding.value:
                case f.Module(name) | f.Member(name, 0, _) | f.Star(name, 0):
                    found.add(name.partition(".")[0])
    return frozenset(found)


def _strings(value: f.Expression) -> Iterator[str]:
    """The strings by which an expression may name a module."""
    while True:
        match value:
            case f.Call(function, arguments):
                for argument in arguments:
                    if isinstance(argument.value, f.Constant) and isinstance(argument.value.value, str):
                        yield argument.value.value
                value = function
            case f.Item(owner, key):
                if isinstance(key, f.Constant) and isinstance(key.value, str):
                    yield key.value
                value = owner
            case f.Attribute(owner, _):
                value = owner
            case _:
                return


def _file(finder: SiteFinder, analysed: Analysed) -> SourceFile:
    path = analysed.path
    if analysed.facts is None:
        assert analysed.broken is not None, "a file without facts says why"
        return SourceFile(path, unanalysed=_unanalysed(path, analysed.broken, analysed))
    try:
        sites, uses = finder.sites(analysed)
    except (TooDeepError, RecursionError):
        broken = f.Broken("SRC005", _TOO_DEEP, 1, 1)
        return SourceFile(path, unanalysed=_unanalysed(path, broken))
    facts = analysed.facts
    return SourceFile(
        path=path,
        sites=sites,
        uses=uses,
        comments=tuple(_comment(analysed, comment) for comment in facts.comments),
        headers=tuple(_header(analysed, header) for header in facts.headers) if facts.comments else (),
        symbols=frozenset(facts.symbols),
    )


def _comment(analysed: Analysed, comment: f.CommentFacts) -> Comment:
    cell, line = place_in(analysed, comment.line)
    last_cell, last = place_in(analysed, comment.block_last_line)
    block_last = last if last_cell == cell else line
    return Comment(line, comment.column, comment.text, comment.own_line, block_last, cell)


def _header(analysed: Analysed, header: f.HeaderFacts) -> Header:
    cell, first = place_in(analysed, header.first_line)
    last, body_last = place_in(analysed, header.last_line)[1], place_in(analysed, header.body_last_line)[1]
    return Header(first, last, body_last, header.is_decorator, cell)


def _unanalysed(path: str, broken: f.Broken, analysed: Analysed | None = None) -> Unanalysed:
    cell, line = (None, broken.line) if analysed is None else place_in(analysed, broken.line)
    return Unanalysed(
        path=path,
        code=broken.code,
        name=CODES[broken.code].name,
        message=broken.message,
        line=line,
        column=broken.column,
        help=_HELP[broken.code],
        cell=cell,
    )
