"""The engine: a project tree in, every place where governed work can start out. It judges nothing.

>>> from pathlib import Path
>>> from checkers.engine import Scan, scan
>>> tree = scan(Scan(Path("/path/to/project")))  # doctest: +SKIP
>>> [(site.path, site.line, site.api) for file in tree.files for site in file.sites]  # doctest: +SKIP
"""

from __future__ import annotations

import os.path
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import astuple, replace

from checkers import catalog
from checkers.facts import model as f
from checkers.facts.interest import ACCESSORS, Interest
from checkers.finding import Finding, unanalysed
from checkers.intake.cache import NOTHING, Cache, Document, prepare
from checkers.intake.files import STUB_SUFFIX, Listing, Seen, is_excluded, list_files
from checkers.intake.pipeline import Job
from checkers.intake.words import Vocabulary, vocabulary
from checkers.intake.workers import Workers, default_jobs
from checkers.limits import no_collection
from checkers.model import SourceFile, Tree
from checkers.resolve.layout import Layout, LayoutError
from checkers.resolve.sites import PROCESS_METHODS, STREAM_READS
from checkers.targets import chain_end, is_chain, is_named

__all__ = ["LayoutError", "Scan", "scan"]

FOLLOWED_MODULES = frozenset(
    {"contextlib", "functools", "importlib", "operator", "shlex", "sys", "typing", "typing_extensions"}
)
"""Modules that govern nothing, but whose functions are understood on the way to what does."""


class Scan(msgspec.Struct, frozen=True):
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
    """Folder that keeps what is known of each file until it changes; None to keep nothing."""
    executor: Executor | None = None
    """Who reads the files instead of workers of our own; it is used and never shut down. Its workers see ``root`` under
    the same path. They are not bounded: in a thread, a file that kills the parser ends this process."""
    progress: Callable[[int, int], None] | None = None
    """Told, whenever a file has been read, how many have been, and how many there are."""
    whole: bool = False
    """Whether every file is analysed, rather than those in which something may be found: the same result, later."""
    reference: bool = False
    """Whether the reference front end reads every file: the same result, later."""
    defining: tuple[str, ...] = ()
    """Files whose symbols are asked for."""
    named: tuple[str, ...] = ()
    """Names of which it is asked whether the project has them."""

    @property
    def asks_names(self) -> bool:
        """Whether the names are asked for that modules define."""
        return self.whole or bool(self.named)


def scan(request: Scan) -> Tree:
    """Find the sites of a project.

    A file that cannot be analysed is told as such in its :class:`~checkers.model.SourceFile`; the others are analysed
    all the same. The result depends on nothing but the request and the bytes of the tree.

    Raises :class:`LayoutError` for a path that is not in the project, and for two import roots with the same module;
    ValueError for a target or an API that ends in no name.
    """
    for target in (*request.targets, *request.watch, *(api.keyword or api.name for api in request.apis)):
        if not is_named(target):
            raise ValueError(f"{target!r} ends in no name that could be looked for")
    with Workers(request.jobs or default_jobs(), request.executor) as workers:
        return _scan(request, workers)


def _scan(request: Scan, workers: Workers) -> Tree:
    cache = _cache(request)
    if cache is not None and cache.exists():
        workers.prepare(1)
    document = NOTHING if cache is None else cache.load()
    listing = _list(request, document)
    if document is NOTHING:
        workers.prepare(len(listing.files))
    selected, passed_over = _selected(request, listing)
    layout = Layout(listing.files, request.roots)
    with no_collection():
        finding = _find(request, workers, listing, layout, cache, document)
        modules = frozenset(layout.names.values())
        names = _names(finding, layout) if request.asks_names else modules
        packages = {name.partition(".")[0] for name in modules}
        if any(name not in names and name.partition(".")[0] in packages for name in request.named):
            # What the project has instead is told from all its names.
            finding = _find(replace(request, whole=True), workers, listing, layout)
            names = _names(finding, layout)
        elif not request.whole:
            names = modules.union(names.intersection(request.named))
    unreadable = [
        SourceFile(u.path, unanalysed=unanalysed(u.path, f.Broken(u.code, u.message, 1, 1))) for u in listing.unreadable
    ]
    found = [record.file for record in finding.records.values() if record.file is not None]
    files = sorted([*found, *unreadable], key=lambda file: file.path)
    calls = frozenset(f"{path}\0{name}" for path, record in finding.records.items() for name in record.calls)
    return Tree(tuple(files), frozenset(selected), names, calls, tuple(passed_over), listing.watched)


def _names(finding: Finding, layout: Layout) -> frozenset[str]:
    found = {*layout.names.values(), *finding.named}
    for path, record in finding.records.items():
        prefix = f"{layout.names[path]}." if layout.names[path] else ""
        found.update(prefix + name for name in record.names)
    return frozenset(found)


def _find(
    request: Scan,
    workers: Workers,
    listing: Listing,
    layout: Layout,
    cache: Cache | None = None,
    document: Document = NOTHING,
) -> Finding:
    """What is found in each file, from the cache as far as it knows."""
    root, paths = os.fspath(request.root), listing.files
    declared = [target for target in request.targets if "*" not in target and not is_chain(target)]
    known = catalog.read(catalog.Catalog.known_roots()) if cache is None else cache.catalogue()
    catalogue = catalog.Catalog(known.values(), request.apis, declared)
    interest = _interest(request, layout, catalogue)
    in_full = request.whole or request.reference or _any_word(request) or _is_library(layout, catalogue)
    question = _question(interest, in_full)
    sought = None if in_full else _sought(interest, catalogue)
    if sought is not None:
        interest = replace(interest, contagious=sought.contagious, keywords=sought.keywords)
    defining = frozenset({*request.defining, *(_home(layout, name) for name in request.named)})
    job = Job(root, interest, request.max_file_bytes, request.reference, sought, defining=defining)
    if cache is None:
        return Finding(request, layout, catalogue, job, paths, workers)
    unchanged = cache.unchanged(document, question, listing.watched)
    if request.stdin is not None:
        unchanged.pop(request.stdin[0], None)
    try:
        finding = Finding(request, layout, catalogue, job, paths, workers, document, unchanged)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError, MemoryError):  # no front end's facts
        finding = Finding(request, layout, catalogue, job, paths, workers)
    if request.stdin is None and (finding.is_new or cache.looked_again):
        found = finding.lasting(), listing.folders, finding.common, tuple(sorted(finding.signs))
        cache.store(question, Document(*found))
    return finding


def _any_word(request: Scan) -> bool:
    """Whether the last component of something declared may be any word."""
    return any("*" in (chain_end(target) if is_chain(target) else target) for target in request.targets)


def _is_library(layout: Layout, catalogue: catalog.Catalog) -> bool:
    """Whether the tree itself defines names of the catalogue."""
    owners = {entry.name.rpartition(".")[0] for entry in catalogue.entries if not catalogue.is_own(entry.name)}
    top_level = layout.top_level
    return any(layout.find(owner, "") is not None for owner in owners if owner.partition(".")[0] in top_level)


def _sought(interest: Interest, catalogue: catalog.Catalog) -> Vocabulary:
    methods = {f".{name}" for name in interest.method_names} | (interest.method_names - PROCESS_METHODS)
    streams = {f".{part}" for end in interest.chain_ends for part in end.split(".")[1:-1]}
    return vocabulary(catalogue, interest.local_names, {*methods, *streams})


def _home(layout: Layout, name: str) -> str:
    """The file that may define a name; empty if there is none."""
    while name and (path := layout.find(name, "")) is None:
        name = name.rpartition(".")[0]
    return path or "" if name else ""


def _cache(request: Scan) -> Cache | None:
    """The cache of what this request asks for."""
    if request.cache is None:
        return None
    with suppress(OSError):
        prepare(request.cache)  # now, so that the scan sees the folder around it as it will be
    asked = (
        *(os.fspath(request.root), request.roots, request.exclude, request.max_file_bytes),
        *(request.apis, request.targets, request.watch, request.by_name, request.whole),
        *(request.defining, request.named),
    )
    return Cache(request.root, request.cache, list(map(repr, asked)), request.max_file_bytes)


def _question(interest: Interest, in_full: bool) -> str:
    """What is looked for in each file; ``in_full``: every file is analysed."""
    parts = (*astuple(interest), in_full)
    return repr([sorted(part) if isinstance(part, frozenset) else part for part in parts])


def _list(request: Scan, document: Document) -> Listing:
    seen = Seen(document.folders, document.written)
    listing = list_files(request.root, request.exclude, map(os.path.normpath, request.paths), seen)
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


def _interest(request: Scan, layout: Layout, catalogue: catalog.Catalog) -> Interest:
    qualified = [name for name in (*request.targets, *request.watch) if not is_chain(name)]
    chains = [target for target in request.targets if is_chain(target)]
    own = [entry.name for entry in request.apis]
    leaves = {name.rpartition(".")[2] for name in (*qualified, *own)}
    builtins = [entry.name for entry in catalogue.entries if entry.name.startswith("builtins.")]
    methods = {chain_end(chain) for chain in chains if "*" not in chain_end(chain)}
    methods |= PROCESS_METHODS
    if request.by_name:
        methods |= {entry.name.rpartition(".")[2] for entry in catalogue.entries if entry.by_name}
    return Interest(
        roots=catalog.Catalog.known_roots()
        | FOLLOWED_MODULES
        | layout.top_level
        | {name.partition(".")[0] for name in (*qualified, *own)},
        builtins=ACCESSORS | {name.partition(".")[2] for name in builtins} | {"get_ipython"},
        method_names=frozenset(methods),
        chain_ends=STREAM_READS,
        local_names=frozenset(leaf for leaf in leaves if "*" not in leaf),
        local_patterns=tuple(sorted("*" + leaf.rpartition("*")[2] for leaf in leaves if "*" in leaf)),
        chains=tuple(chain for chain in chains if "*" in chain_end(chain)),
    )
