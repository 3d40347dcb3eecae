"""check-bypass: work starts in the scheduler only.

A site that a rule's target matches is a finding unless it lies in the scheduler's paths or in test paths,
carries a valid annotation, or the rule allows its file. A site gives one finding, for the first rule in
manifest order that excuses it not; the others are named in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

import msgspec

from checkers.annotations import SCHEDULER_AUDIT, bless
from checkers.codes import CODES
from checkers.manifests import Allow, BypassManifest, Rule
from checkers.model import ApiKind, Confidence, Finding, Selection, Site, SourceFile, Tree
from checkers.rules import Judgement, in_order
from checkers.rules.paths import Paths, may_be_unseen, stale_unanalysed, wrong_apis
from checkers.targets import is_chain, name_matches, target_matches
from checkers.toml_fields import joined, printable, sentence, suggestion


def judge(tree: Tree, manifest: BypassManifest, *, selection: Selection, today: date) -> Judgement:
    """What starts work outside the scheduler, and what is wrong with annotations and the manifest.

    ``selection`` counts for ``@kind`` targets; a name that a rule spells out is governed whatever its kind
    and tier.
    """
    rules = [_Judged(rule, manifest) for rule in manifest.rule]
    found = _Found(manifest)
    for file in tree.files:
        _judge_file(file, tree, manifest, rules, selection, today, found)
    paths = Paths(tree)
    for rule in rules:
        for finding in (*rule.stale_targets(paths, tree), *rule.allow_findings(paths, today)):
            found.add(finding, rule.id)
    for keys, finding in manifest.at.document.problems:
        of = manifest.rule_of(keys)
        found.add(finding, *(() if of is None else (of,)))
    broken = any(keys[0] == "rule" for keys, _ in manifest.at.document.problems)
    if not manifest.rule and not broken:
        message = "no `[[rule]]`: nothing is forbidden"
        found.add(manifest.at.finding("BYP007", message, "say what must not start outside the scheduler"))
    for finding in (*_duplicate_rules(manifest), *_stale_submission(paths, tree, manifest)):
        found.add(finding)
    for finding in (
        *stale_unanalysed(paths, tree, manifest),
        *wrong_apis(paths, tree, manifest, duplicate="BYP008", stale="BYP004"),
    ):
        found.add(finding)
    return Judgement(in_order(found.findings), rules=found.rules, manifest=manifest.path)


class _Found:
    """Findings, and the rules that they are of."""

    def __init__(self, manifest: BypassManifest) -> None:
        self.findings: list[Finding] = []
        self.rules: dict[Finding, tuple[str, ...]] = {}

    def add(self, finding: Finding, *rules: str) -> None:
        self.findings.append(finding)
        if rules:
            self.rules[finding] = tuple(dict.fromkeys((*self.rules.get(finding, ()), *rules)))


class _AllowUse(msgspec.Struct):
    """What an ``allow`` entry is used for: how many sites it covers, and the mixed files among its files."""

    sites: int = 0
    mixed: dict[str, str] = msgspec.field(default_factory=dict)
    """Why each mixed file is one, by its path."""


class _Judged:
    """A rule, and what was seen of its targets and ``allow`` entries."""

    def __init__(self, rule: Rule, manifest: BypassManifest) -> None:
        self.rule = rule
        self.id = rule.id
        self.uses = [_AllowUse() for _ in rule.allow]
        self._manifest = manifest
        self._reached: set[str] = set()

    def governs(self, site: Site, selection: Selection) -> bool:
        """Whether a target matches. By-name sites match a name only where ``selection`` asks for them."""
        governed = False
        for value in self.rule.targets:
            if self._matches(self._manifest.meanings[value.value].name, site, selection):
                self._reached.add(value.value)
                governed = True
        return governed

    @staticmethod
    def _matches(target: str, site: Site, selection: Selection) -> bool:
        if target.startswith("@"):
            return site.api_kind == target[1:] and selection.counts(site)
        if not target_matches(target, site):
            return False
        seen = site.confidence is Confidence.CERTAIN or site.api_kind is ApiKind.DECLARED
        return seen or selection.by_name or is_chain(target)

    def allows(self, path: str) -> Iterator[_AllowUse]:
        """Uses of the entries that cover ``path``."""
        return (use for allow, use in zip(self.rule.allow, self.uses, strict=True) if _covers(allow, path))

    def excuses(self, path: str) -> bool:
        """Whether an entry covers the file, and the file is not mixed."""
        return any(path not in use.mixed for use in self.allows(path))

    def stale_targets(self, paths: Paths, tree: Tree) -> Iterator[Finding]:
        """BYP004: targets that resolve to nothing in tree or catalogue."""
        for value in self.rule.targets:
            target = self._manifest.meanings[value.value]
            if target.catalogued or value.value in self._reached or _is_named(target.name, tree.names):
                continue
            if may_be_unseen(target.name, tree, self._manifest):
                continue
            if is_chain(target.name):
                message = f"stale target: no call is of the form `{printable(value.value, 120)}`"
                help = "correct or remove it; `*` stands for any run of characters"
            elif target.name.startswith("@"):
                kinds = [f"@{kind}" for kind in ApiKind if kind is not ApiKind.DECLARED]
                message = f"stale target: there is no kind `{printable(value.value, 120)}`"
                help = sentence(suggestion(value.value, kinds), f"allowed: {', '.join(kinds)}")
            else:
                message = f"stale target: `{printable(value.value, 120)}` names nothing in catalogue or project"
                help = sentence(paths.names_like(value.value), "correct or remove it")
            yield value.at.finding("BYP004", message, help)

    def allow_findings(self, paths: Paths, today: date) -> Iterator[Finding]:
        """What is wrong with the ``allow`` entries: twice there, mixed, stale, expired."""
        seen = set[str]()
        for allow, use in zip(self.rule.allow, self.uses, strict=True):
            if allow.path in seen:
                message = f"`{printable(allow.path, 200)}` is allowed twice in rule `{self.id}`"
                yield allow.at.finding("BYP008", message, "remove one of the entries")
            seen.add(allow.path)
            yield from self._stale(allow, use, paths)
            if allow.until is not None and allow.until < today:
                message = f"allow of `{printable(allow.path, 200)}` expired: its last day was {allow.until}"
                help = "hand the work to the scheduler and remove the entry, or decide anew and set a later date"
                yield allow.at.child("until").finding("BYP005", message, help)
            for path, why in use.mixed.items():
                message = f"`{printable(path, 200)}` is allowed as a whole, but {why}"
                help = f"remove the entry and annotate each site with `# {SCHEDULER_AUDIT.keyword}: <reason>`"
                yield allow.at.finding("BYP002", message, help)

    def _stale(self, allow: Allow, use: _AllowUse, paths: Paths) -> Iterator[Finding]:
        files = paths.under(allow.path)
        shown = printable(allow.path, 200)
        remove = "correct or remove the entry"
        if not files:
            help = sentence(paths.like(allow.path), remove)
            yield allow.at.child("path").finding("BYP003", f"stale allow: no analysed file at `{shown}`", help)
        elif not use.sites and not any(file.unanalysed for file in files):
            message = f"stale allow: no site of rule `{self.id}` needs it in `{shown}`"
            yield allow.at.finding("BYP003", message, "remove the entry")


def _covers(allow: Allow, path: str) -> bool:
    return path.startswith(allow.path) if allow.path.endswith("/") else path == allow.path


def _is_named(name: str, names: Iterable[str]) -> bool:
    return name in names if "*" not in name else any(name_matches(name, held) for held in names)


# Sites


def _judge_file(
    file: SourceFile,
    tree: Tree,
    manifest: BypassManifest,
    rules: Sequence[_Judged],
    selection: Selection,
    today: date,
    found: _Found,
) -> None:
    wide = manifest.selection
    governed = {site: [rule for rule in rules if rule.governs(site, wide)] for site in file.sites}
    judged = governed
    if selection != wide:
        judged = {site: [rule for rule in rules if rule.governs(site, selection)] for site in file.sites}
    counting = [s for s in file.sites if governed[s] or judged[s] or wide.counts(s) or selection.counts(s)]
    blessings = bless(file, counting, SCHEDULER_AUDIT, today=today, tests=manifest.tests, authority=manifest.scheduler)
    for finding in blessings.findings:
        found.add(finding)
    free = manifest.scheduler.matches(file.path) or manifest.tests.matches(file.path)
    if free or not manifest.in_roots(file.path):
        return
    why_mixed = _why_mixed(file, tree, manifest, bool(blessings.by_site))
    for site in counting:
        for rule in dict.fromkeys((*governed[site], *judged[site])):
            _use_allows(rule, file.path, why_mixed)
    for site, matching in judged.items():
        if site in blessings.by_site:
            continue
        broken = [rule for rule in matching if not rule.excuses(file.path)]
        if broken:
            found.add(_finding(site, broken, manifest), *(rule.id for rule in broken))


def _use_allows(rule: _Judged, path: str, why_mixed: str | None) -> None:
    for use in rule.allows(path):
        use.sites += 1
        if why_mixed is not None:
            use.mixed[path] = why_mixed


def _why_mixed(file: SourceFile, tree: Tree, manifest: BypassManifest, annotated: bool) -> str | None:
    """Why a file cannot be allowed as a whole, if it cannot."""
    if annotated:
        return "it holds annotated sites"
    called = next((name for name in manifest.watch if f"{file.path}\0{name}" in tree.calls), None)
    return called and f"it calls the submission API `{printable(called, 120)}`"


def _finding(site: Site, broken: Sequence[_Judged], manifest: BypassManifest) -> Finding:
    first, *others = (rule.rule for rule in broken)
    also = f"; also of {', '.join(f'`{rule.id}`' for rule in others)}" if others else ""
    says = f": {printable(first.message.strip(), 300)}" if first.message.strip() else ""
    return Finding(
        "BYP001",
        CODES["BYP001"].name,
        site.path,
        site.line,
        site.column,
        f"`{site.api}` starts work outside the scheduler{says} (rule `{first.id}`{also})",
        _ways_out(first, manifest),
        api=site.api,
        symbol=site.symbol,
        ordinal=site.ordinal,
        cell=site.cell,
    )


def _ways_out(rule: Rule, manifest: BypassManifest) -> str:
    use = f"submit it through `{printable(rule.use, 120)}`" if rule.use else "hand it to the scheduler"
    return (
        f"{use}; or annotate the line with `# {SCHEDULER_AUDIT.keyword}: <reason>` "
        f"({joined(SCHEDULER_AUDIT.values)}); or except the file in rule `{rule.id}` of {manifest.path}: "
        '`allow = [{ path = "…", reason = "…" }]`'
    )


# The manifest


def _duplicate_rules(manifest: BypassManifest) -> Iterator[Finding]:
    by_id: Mapping[str, list[Rule]] = defaultdict(list)
    for rule in manifest.rule:
        if rule.id:
            by_id[rule.id].append(rule)
    for name, (first, *others) in by_id.items():
        for rule in others:
            message = f"rule `{name}` is already on line {first.at.place.line}"
            yield rule.at.child("id").finding("BYP008", message, "give each rule an id of its own")


def _stale_submission(paths: Paths, tree: Tree, manifest: BypassManifest) -> Iterator[Finding]:
    """Submission APIs of this project that are not there: no call of them could make a file mixed.

    One whose top-level package is not of this project is taken for a library's.
    """
    packages = {name.partition(".")[0] for name in tree.names}
    for value in manifest.submission or ():
        name = value.value
        if name in tree.names or name.partition(".")[0] not in packages:
            continue
        if not may_be_unseen(name, tree, manifest):
            message = f"submission API `{printable(value.value, 120)}` names nothing in this project"
            yield value.at.finding("BYP004", message, sentence(paths.names_like(value.value), "correct it"))
