"""One run of a check: manifest, scan, judgement, report. Nothing is printed here and no option is parsed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import msgspec
from msgspec.structs import replace

from checkers import engine, manifests
from checkers.config import Request
from checkers.intake.cache import FOLDER, clear
from checkers.manifests import BypassManifest, Manifest, OwnershipManifest
from checkers.model import Confidence, Finding, Selection, Site, Tree
from checkers.report import ListedSite, Report, UnanalysedFile
from checkers.report.source import ProjectSource
from checkers.rules import Judgement, bypass, ownership
from checkers.targets import is_chain, target_matches
from checkers.warm import Stamp


class Check(msgspec.Struct, frozen=True):
    """One command: its name, its manifest, and who judges."""

    name: str
    summary: str
    manifest: str
    load: Callable[[Path, Path | None, dict[str, Stamp]], Manifest]
    judge: Callable[..., Judgement]

    @property
    def table(self) -> str:
        """Where pyproject.toml may hold the manifest."""
        return f"[tool.spawngate.{self.name.removeprefix('check-')}]"


BYPASS = Check(
    name="check-bypass",
    summary="Check that work starts in the scheduler only.",
    manifest="manifests/scheduler-bypass.toml",
    load=manifests.load_bypass,
    judge=bypass.judge,
)
OWNERSHIP = Check(
    name="check-ownership",
    summary="Check that every place that can start work has exactly one owner.",
    manifest="manifests/execution-ownership.toml",
    load=manifests.load_ownership,
    judge=ownership.judge,
)


class Log(msgspec.Struct):
    """What ``--verbose`` tells: how long each stage took, and what was read."""

    stages: list[tuple[str, float]] = msgspec.field(default_factory=list)
    lines: list[str] = msgspec.field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start = time.perf_counter()
        yield
        self.stages.append((name, time.perf_counter() - start))


def run(
    check: Check,
    request: Request,
    stdin: bytes | None,
    today: date,
    log: Log,
    find: Callable[[engine.Scan], Tree] = engine.scan,
    watched: dict[str, Stamp] | None = None,
) -> Report:
    """Scan, judge and report.

    ``stdin`` is the text that stands for ``request.stdin_filename``; ``find`` makes the scan that the request amounts
    to, and may say how (progress, executor); ``watched`` is given the stamps of what the manifest hangs on. Raises
    ManifestError and LayoutError.
    """
    with log.stage("manifest"):
        manifest = _manifest(check, request, {} if watched is None else watched)
    selection = _selection(request, manifest)
    scan = _scan(request, manifest, selection, stdin)
    with log.stage("scan"):
        tree = find(scan)
    with log.stage("rules"):
        judgement = Judgement() if manifest is None else check.judge(tree, manifest, selection=selection, today=today)
    _tell(log, request, manifest, tree)
    source = ProjectSource(request.root, scan.stdin)
    return _report(check, request, manifest, tree, selection, judgement, source)


def _manifest(check: Check, request: Request, watched: dict[str, Stamp]) -> Manifest | None:
    """The manifest; None where sites are only listed and the project has none."""
    try:
        return check.load(request.root, request.manifest, watched)
    except manifests.ManifestError as error:
        if request.list_sites and request.manifest is None and _is_missing(check, request, error):
            return None
        raise


def _is_missing(check: Check, request: Request, error: manifests.ManifestError) -> bool:
    return error.path == check.manifest and not os.path.lexists(request.root / check.manifest)


def _scan(request: Request, manifest: Manifest | None, selection: Selection, stdin: bytes | None) -> engine.Scan:
    unsaved = (request.stdin_filename, stdin) if request.stdin_filename and stdin is not None else None
    paths = (request.stdin_filename,) if request.stdin_filename else request.paths
    folder = request.cache_dir or request.root / FOLDER
    if request.clear_cache:
        clear(folder)
    scan = engine.Scan(
        root=request.root,
        paths=paths,
        jobs=request.jobs,
        stdin=unsaved,
        by_name=selection.by_name,
        cache=None if request.no_cache else folder,
    )
    if manifest is not None:
        scan = replace(
            scan,
            roots=manifest.roots,
            exclude=manifest.exclude,
            max_file_bytes=manifest.max_file_bytes,
            apis=manifest.apis,
            named=tuple(entry.name for entry in manifest.apis),
        )
    if isinstance(manifest, BypassManifest):
        names = (*scan.named, *manifest.targets, *manifest.watch)
        scan = replace(scan, targets=manifest.targets, watch=manifest.watch, named=names)
    if isinstance(manifest, OwnershipManifest):
        entrypoints = [entry.entrypoint for entry in manifest.site if entry.entrypoint is not None]
        defining = dict.fromkeys(entry.path for entry in manifest.site if entry.symbol is not None)
        scan = replace(scan, named=(*scan.named, *dict.fromkeys(entrypoints)), defining=tuple(defining))
    return scan


def _selection(request: Request, manifest: Manifest | None) -> Selection:
    selection = Selection() if manifest is None else manifest.selection
    return Selection(
        kinds=request.kinds or selection.kinds,
        tiers=request.tiers or selection.tiers,
        by_name=request.by_name or selection.by_name,
    )


def _report(
    check: Check,
    request: Request,
    manifest: Manifest | None,
    tree: Tree,
    selection: Selection,
    judgement: Judgement,
    source: ProjectSource,
) -> Report:
    """What concerns the selected files, and what is wrong with the manifest whichever were selected."""
    reported = tree.selected if manifest is None else tree.selected | {manifest.path}
    findings = [] if request.list_sites else [f for f in judgement.findings if f.path in reported]
    rollout = _rollout(request, manifest)
    failing = set(_failing(judgement, manifest, rollout))
    accepted = {} if manifest is None else {entry.path: entry.reason for entry in manifest.unanalysed}
    files = [file for file in tree.files if file.path in tree.selected]
    return Report.of(
        check.name,
        files=len(files),
        sites=(_listed(site, judgement) for file in files for site in file.sites if _counts(site, manifest, selection)),
        findings=findings,
        unanalysed=(
            UnanalysedFile(file.unanalysed, accepted.get(file.path) or None)
            for file in files
            if file.unanalysed is not None
        ),
        listing=request.list_sites,
        rollout=None if request.list_sites else rollout,
        failing=sum(finding in failing for finding in findings),
        passed_over=tree.passed_over,
        source=source,
    )


def _counts(site: Site, manifest: Manifest | None, selection: Selection) -> bool:
    """Whether a site is reported: it is of a kind that counts, or a rule spells its name out."""
    if selection.counts(site) or not isinstance(manifest, BypassManifest):
        return selection.counts(site)
    seen = selection.by_name or site.confidence is Confidence.CERTAIN
    return any((seen or is_chain(target)) and target_matches(target, site) for target in manifest.targets)


def _listed(site: Site, judgement: Judgement) -> ListedSite:
    owned = judgement.owners.get(site)
    return ListedSite(site) if owned is None else ListedSite(site, owned.owner, owned.source)


def _rollout(request: Request, manifest: Manifest | None) -> str:
    return request.rollout or ("mandatory" if manifest is None else manifest.rollout)


def _failing(judgement: Judgement, manifest: Manifest | None, rollout: str) -> tuple[Finding, ...]:
    active = () if not isinstance(manifest, BypassManifest | OwnershipManifest) else manifest.active
    return judgement.failing(rollout, [declared.value for declared in active])


def _tell(log: Log, request: Request, manifest: Manifest | None, tree: Tree) -> None:
    log.lines.append(f"root: {request.root}")
    log.lines.append(f"manifest: {manifest.path if manifest is not None else 'none'}")
    roots = manifest.roots if manifest is not None else ()
    log.lines.append(f"roots: {', '.join(roots) if roots else 'from the layout'}")
    log.lines.append(f"files: {len(tree.files)} read, {len(tree.selected)} asked for")
    log.lines.extend(f"  {file.path}" for file in tree.files if file.path in tree.selected)
