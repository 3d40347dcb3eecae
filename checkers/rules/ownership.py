"""check-ownership: every place that can start work has exactly one owner.

An annotation beats the manifest; in the manifest the most specific entry wins: symbol with API, symbol,
file with API, file, longest folder. Among equals the longer symbol wins, then a whole API name, then the
longer pattern.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date

import msgspec

from checkers.annotations import EXECUTION_OWNERSHIP, Blessings, bless
from checkers.codes import CODES
from checkers.manifests import OWNERS, OwnershipManifest, SiteEntry
from checkers.model import Finding, Selection, Site, SourceFile, Tree
from checkers.rules import Judgement, Owned, boundaries, in_order
from checkers.rules.paths import Paths, may_be_unseen, stale_unanalysed, wrong_apis
from checkers.targets import name_matches
from checkers.toml_fields import Vocabulary, printable, sentence

FORBIDDEN = "forbidden_bypass"
TEST_ONLY = "test_only"

_SCHEDULED = "hand the work to the scheduler"


def judge(tree: Tree, manifest: OwnershipManifest, *, selection: Selection, today: date) -> Judgement:
    """Owners of the sites that ``selection`` counts, and what is wrong with them, the manifest and its
    boundaries.

    Whether an entry is stale is judged by the manifest's own selection too, so that a narrower one makes
    none stale.
    """
    register = _Register(manifest.site)
    owners: dict[Site, Owned] = {}
    findings = list(manifest.problems)
    for file in tree.files:
        sites = [s for s in file.sites if selection.counts(s) or manifest.selection.counts(s)]
        blessings = bless(file, sites, EXECUTION_OWNERSHIP, today=today, tests=manifest.tests, authority=None)
        findings += blessings.findings
        for site in sites:
            entry = register.cover(site)
            if selection.counts(site):
                findings += _judge_site(site, entry, blessings, manifest, register, owners)
    paths = Paths(tree)
    findings += _judge_entries(register, paths, tree, manifest, today)
    findings += stale_unanalysed(paths, tree, manifest)
    findings += wrong_apis(paths, tree, manifest, duplicate="OWN005", stale="OWN006")
    findings += boundaries.judge(tree, manifest, selection=selection, today=today).findings
    found = in_order(findings)
    return Judgement(found, owners, {finding: (finding.code,) for finding in found}, manifest.path)


def specificity(entry: SiteEntry) -> tuple[int, int, int, int, int]:
    """How specific an entry is; of those that cover a site the greatest wins."""
    api = entry.api or ""
    whole = int(bool(api) and not api.endswith("*"))
    if entry.is_folder:
        return 0, len(entry.path), 0, whole, len(api)
    rank = 1 + bool(api) + 2 * bool(entry.symbol)
    return rank, 0, len(entry.symbol or ""), whole, len(api)


def covers(entry: SiteEntry, site: Site) -> bool:
    """Whether an entry speaks of a site. A symbol includes what is nested in it; a folder has no symbols."""
    if entry.is_folder:
        if entry.symbol is not None or not site.path.startswith(entry.path):
            return False
    elif site.path != entry.path:
        return False
    if entry.symbol is not None and not f"{site.symbol}.".startswith(f"{entry.symbol}."):
        return False
    return entry.api is None or any(name_matches(entry.api, name) for name in site.names)


class _Use(msgspec.Struct):
    """The sites that an entry covers, and those of them that it owns."""

    covered: int = 0
    owned: list[Site] = msgspec.field(default_factory=list)


class _Register:
    """The entries by path, and what each is used for."""

    def __init__(self, entries: Iterable[SiteEntry]) -> None:
        self.entries = tuple(entries)
        self.uses = {id(entry): _Use() for entry in self.entries}
        self._by_path: dict[str, list[SiteEntry]] = defaultdict(list)
        for entry in self.entries:
            self._by_path[entry.path].append(entry)

    def cover(self, site: Site) -> SiteEntry | None:
        """The entry that wins ``site``, the first of equals; every one that covers it is marked as used."""
        found = [entry for entry in self._around(site.path) if covers(entry, site)]
        for entry in found:
            self.uses[id(entry)].covered += 1
        return max(found, key=specificity, default=None)

    def _around(self, path: str) -> Iterator[SiteEntry]:
        yield from self._by_path.get(path, ())
        end = path.rfind("/")
        while end >= 0:
            yield from self._by_path.get(path[: end + 1], ())
            end = path.rfind("/", 0, end)


# Sites


def _judge_site(
    site: Site,
    entry: SiteEntry | None,
    blessings: Blessings,
    manifest: OwnershipManifest,
    register: _Register,
    owners: dict[Site, Owned],
) -> Iterator[Finding]:
    annotation = blessings.by_site.get(site)
    if annotation is not None:
        owners[site] = Owned(annotation.value, "annotation")
    elif entry is not None:
        register.uses[id(entry)].owned.append(site)
        if entry.owner in OWNERS:
            owners[site] = Owned(entry.owner, "manifest")
        if entry.owner == FORBIDDEN:
            place = f"{manifest.path}:{entry.at.place.line}"
            message = f"`{site.api}` must not start work here: {place} declares it `{FORBIDDEN}`"
            yield _at_site("OWN002", site, message, f"{_SCHEDULED}, then remove the entry")
    elif manifest.in_roots(site.path) and not manifest.tests.matches(site.path):
        yield _at_site("OWN001", site, f"`{site.api}` can start work here and has no owner", _ways_out(manifest))


def _ways_out(manifest: OwnershipManifest) -> str:
    values = ", ".join(owner for owner in OWNERS if owner != FORBIDDEN)
    return (
        f"{_SCHEDULED}; or annotate the line with `# {EXECUTION_OWNERSHIP.keyword}: <owner>` ({values}); "
        f"or add a `[[site]]` with owner and reason to {manifest.path}"
    )


def _at_site(code: str, site: Site, message: str, help: str) -> Finding:
    return Finding(
        code,
        CODES[code].name,
        site.path,
        site.line,
        site.column,
        message,
        help,
        api=site.api,
        symbol=site.symbol,
        ordinal=site.ordinal,
        cell=site.cell,
    )


# Entries


def _judge_entries(
    register: _Register, paths: Paths, tree: Tree, manifest: OwnershipManifest, today: date
) -> Iterator[Finding]:
    yield from _duplicates(register.entries)
    for entry in register.entries:
        use = register.uses[id(entry)]
        yield from _stale(entry, use, paths)
        yield from _expired(entry, today)
        yield from _over_limit(entry, use)
        yield from _outside_tests(entry, use, manifest)
        yield from _unresolved(entry, paths, tree, manifest)


def _duplicates(entries: Iterable[SiteEntry]) -> Iterator[Finding]:
    first: dict[tuple[str, str | None, str | None], SiteEntry] = {}
    for entry in entries:
        earlier = first.setdefault((entry.path, entry.symbol, entry.api), entry)
        if earlier is entry:
            continue
        line = earlier.at.place.line
        if earlier.owner == entry.owner:
            message = f"duplicate entry for {_of(entry)}: the one on line {line} says the same"
        else:
            owners = f"`{printable(entry.owner)}` here, `{printable(earlier.owner)}` on line {line}"
            message = f"contradictory entries for {_of(entry)}: {owners}"
        yield entry.at.finding("OWN005", message, "keep the one that is true and remove the other")


def _of(entry: SiteEntry) -> str:
    parts = (entry.path, entry.symbol and f"symbol {entry.symbol}", entry.api and f"api {entry.api}")
    return "`" + printable(", ".join(part for part in parts if part), 200) + "`"


def _stale(entry: SiteEntry, use: _Use, paths: Paths) -> Iterator[Finding]:
    """One finding for the first thing that is not there: the path, the symbol in it, a site under it."""
    files = paths.under(entry.path)
    remove = "correct or remove the entry"
    if not files:
        message = f"stale entry: no analysed file at `{printable(entry.path, 200)}`"
        yield entry.at.child("path").finding("OWN006", message, sentence(paths.like(entry.path), remove))
    elif use.covered or any(file.unanalysed for file in files):
        return
    elif entry.symbol is not None and entry.is_folder:
        message = f"stale entry: a folder has no symbol `{printable(entry.symbol)}`"
        yield entry.at.child("symbol").finding("OWN006", message, "name the file that defines it")
    elif entry.symbol is not None and entry.symbol not in files[0].symbols:
        message = f"stale entry: no symbol `{printable(entry.symbol, 120)}` in `{printable(entry.path, 200)}`"
        help = sentence(Vocabulary(files[0].symbols, ".").suggestion(entry.symbol), remove)
        yield entry.at.child("symbol").finding("OWN006", message, help)
    else:
        message = f"stale entry: no site under {_of(entry)}"
        yield entry.at.finding("OWN006", message, sentence(_uncounted(entry, files), remove))


def _uncounted(entry: SiteEntry, files: Iterable[SourceFile]) -> str:
    """What stands there of kinds or tiers that do not count."""
    there = [site for file in files for site in file.sites if covers(entry, site)]
    if not there:
        return ""
    kinds = ", ".join(sorted({f"{site.api_kind}/{site.tier}" for site in there}))
    return f"there are sites of kind/tier {kinds}, which does not count unless `[catalog]` says so"


def _expired(entry: SiteEntry, today: date) -> Iterator[Finding]:
    if entry.until is not None and entry.until < today:
        message = f"entry for {_of(entry)} expired: its last day was {entry.until}"
        help = f"{_SCHEDULED} and remove the entry, or decide anew and set a later date"
        yield entry.at.child("until").finding("OWN007", message, help)


def _over_limit(entry: SiteEntry, use: _Use) -> Iterator[Finding]:
    if entry.max_sites is not None and len(use.owned) > entry.max_sites:
        sites = ", ".join(f"{site.path}:{site.line}" for site in use.owned[entry.max_sites :][:3])
        message = f"{_of(entry)} owns {len(use.owned)} sites, more than `max_sites = {entry.max_sites}`"
        help = f"{_SCHEDULED} for what was added (see {printable(sites, 200)}), or give it an entry of its own"
        yield entry.at.child("max_sites").finding("OWN008", message, help)


def _outside_tests(entry: SiteEntry, use: _Use, manifest: OwnershipManifest) -> Iterator[Finding]:
    if entry.owner != TEST_ONLY:
        return
    outside = [site for site in use.owned if not manifest.tests.matches(site.path)]
    if outside:
        where = f"{outside[0].path}:{outside[0].line}"
        message = f"`{TEST_ONLY}` for {_of(entry)}, but {printable(where, 200)} is not in `tests`"
        yield entry.at.child("owner").finding("OWN011", message, "give another owner, or list the path in `tests`")


def _unresolved(entry: SiteEntry, paths: Paths, tree: Tree, manifest: OwnershipManifest) -> Iterator[Finding]:
    if entry.entrypoint is None or entry.entrypoint in tree.names:
        return
    if may_be_unseen(entry.entrypoint, tree, manifest):
        return
    message = f"entrypoint `{printable(entry.entrypoint, 120)}` names nothing in this project"
    help = sentence(paths.names_like(entry.entrypoint), "give the qualified name of what takes the work")
    yield entry.at.child("entrypoint").finding("OWN010", message, help)
