"""check-ownership's rules on hand-made trees: who owns a site, and every finding with its place."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.manifests import OWNERS, SiteEntry, ownership_from_text
from checkers.model import ApiKind, Confidence, Selection, Site, Tier, Tree
from checkers.rules import Judgement, Owned
from checkers.rules.ownership import covers, judge, specificity
from checkers.targets import name_matches
from tests.checkers.trees import brief, make_site, make_tree, places

TODAY = date(2026, 6, 1)


def check(tree: Tree, text: str, selection: Selection | None = None) -> Judgement:
    manifest = ownership_from_text("version = 1\n" + text, "m.toml")
    return judge(tree, manifest, selection=selection or manifest.selection, today=TODAY)


def entry(path: str, owner: str = "scheduler", **keys: str | int) -> str:
    more = {"path": path, "owner": owner, "reason": "r", **keys}
    return "[[site]]\n" + "".join(
        f"{key} = {value}\n" if isinstance(value, int) else f'{key} = "{value}"\n' for key, value in more.items()
    )


GIT = make_site("src/git.py", 3, symbol="Runner.run")


# Owners


def test_a_site_without_owner() -> None:
    judgement = check(make_tree(GIT), "")
    (finding,) = judgement.findings
    assert brief([finding]) == ["src/git.py:3:5 OWN001 `subprocess.run` can start work here and has no owner"]
    assert (finding.name, finding.api, finding.symbol, finding.ordinal) == (
        "unclassified-site",
        "subprocess.run",
        "Runner.run",
        3,
    )
    assert finding.help == (
        "hand the work to the scheduler; or annotate the line with `# execution-ownership: <owner>` "
        "(scheduler, interactive, standalone_compat, definition_or_adapter, deferred_domain_executor, "
        "test_only); "
        "or add a `[[site]]` with owner and reason to m.toml"
    )
    assert judgement.owners == {}


def test_an_entry_owns() -> None:
    judgement = check(make_tree(GIT), entry("src/git.py", "interactive"))
    assert judgement.findings == ()
    assert judgement.owners == {GIT: Owned("interactive", "manifest")}


def test_an_annotation_beats_the_manifest() -> None:
    tree = make_tree(GIT, comments={"src/git.py": {3: "# execution-ownership: interactive"}})
    judgement = check(tree, entry("src/git.py", "forbidden_bypass"))
    assert judgement.findings == ()
    assert judgement.owners == {GIT: Owned("interactive", "annotation")}


def test_findings_of_annotations_are_passed_on() -> None:
    tree = make_tree(GIT, comments={"src/git.py": {3: "# execution-ownership: interactiv"}})
    assert places(check(tree, "").findings) == ["src/git.py:3 OWN001", "src/git.py:3 OWN020"]


def test_test_paths_need_no_owner_unless_listed() -> None:
    first, second = make_site("tests/a.py"), make_site("tests/b.py")
    judgement = check(make_tree(first, second), 'tests = ["tests/"]\n' + entry("tests/b.py", "test_only"))
    assert judgement.findings == ()
    assert judgement.owners == {second: Owned("test_only", "manifest")}


def test_files_outside_the_roots_need_no_owner() -> None:
    tree = make_tree(make_site("src/a.py"), make_site("src2/a.py"), make_site("a.py"))
    assert places(check(tree, 'roots = ["src"]\n').findings) == ["src/a.py:1 OWN001"]
    assert len(check(tree, 'roots = ["."]\n').findings) == 3


def test_what_does_not_count_needs_no_owner() -> None:
    tree = make_tree(
        make_site("a.py", 1, api_kind=ApiKind.TASK),
        make_site("a.py", 2, tier=Tier.HIDDEN),
        make_site("a.py", 3, confidence=Confidence.BY_NAME),
    )
    assert check(tree, "").findings == ()
    wide = '[catalog]\nkinds = ["task", "process"]\ntiers = ["core", "hidden"]\nby_name = true\n'
    assert places(check(tree, wide).findings) == ["a.py:1 OWN001", "a.py:2 OWN001", "a.py:3 OWN001"]


def test_a_narrower_selection_makes_no_entry_or_annotation_stale() -> None:
    thread = make_site("a.py", 1, "threading.Thread", api_kind=ApiKind.THREAD)
    other = make_site("b.py", 1, "threading.Thread", api_kind=ApiKind.THREAD)
    tree = make_tree(thread, other, comments={"b.py": {1: "# execution-ownership: scheduler"}})
    narrow = Selection(kinds=frozenset({ApiKind.PROCESS}))
    judgement = check(tree, entry("a.py"), narrow)
    assert judgement.findings == ()
    assert judgement.owners == {}


def test_forbidden_bypass_is_a_finding_at_the_site() -> None:
    judgement = check(make_tree(GIT), "\n" + entry("src/", "forbidden_bypass"))
    assert brief(judgement.findings) == [
        ("src/git.py:3:5 OWN002 `subprocess.run` must not start work here: m.toml:3 declares it `forbidden_bypass`")
    ]
    assert judgement.owners == {GIT: Owned("forbidden_bypass", "manifest")}


def test_an_entry_with_an_unknown_owner_gives_one_finding() -> None:
    judgement = check(make_tree(GIT), entry("src/git.py", "scheduller"))
    assert places(judgement.findings) == ["m.toml:4 OWN003"]
    assert judgement.owners == {}


# Specificity


def test_specificity_as_documented() -> None:
    ordered = [
        entry("src/", "scheduler"),
        entry("src/", "scheduler", api="subprocess.*"),
        entry("src/", "scheduler", api="subprocess.run"),
        entry("src/app/", "scheduler"),
        entry("src/app/git.py", "scheduler"),
        entry("src/app/git.py", "scheduler", api="sub*"),
        entry("src/app/git.py", "scheduler", api="subprocess.*"),
        entry("src/app/git.py", "scheduler", api="subprocess.run"),
        entry("src/app/git.py", "scheduler", symbol="Runner"),
        entry("src/app/git.py", "scheduler", symbol="Runner.run"),
        entry("src/app/git.py", "scheduler", symbol="Runner", api="subprocess.*"),
        entry("src/app/git.py", "scheduler", symbol="Runner", api="subprocess.run"),
        entry("src/app/git.py", "scheduler", symbol="Runner.run", api="subprocess.*"),
    ]
    sites = ownership_from_text("version = 1\n" + "".join(ordered), "m.toml").site
    ranks = [specificity(site) for site in sites]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


def test_a_symbol_includes_nested_ones_but_not_longer_names() -> None:
    tree = make_tree(
        make_site("a.py", 1, symbol="run"),
        make_site("a.py", 2, symbol="run.inner"),
        make_site("a.py", 3, symbol="runner"),
        make_site("a.py", 4),
    )
    assert places(check(tree, entry("a.py", symbol="run")).findings) == ["a.py:3 OWN001", "a.py:4 OWN001"]


def test_a_folder_ends_at_its_slash() -> None:
    tree = make_tree(make_site("src/a.py"), make_site("src2/a.py"), make_site("src/b/c.py"))
    assert places(check(tree, entry("src/")).findings) == ["src2/a.py:1 OWN001"]


def test_any_candidate_may_be_the_listed_api() -> None:
    site = make_site("a.py", api="subprocess.run", candidates=("subprocess.run", "proj.run"))
    assert check(make_tree(site), entry("a.py", api="proj.run")).findings == ()


_PATHS = ["a.py", "p/a.py", "p/q/a.py", "p/", "p/q/"]
_SYMBOLS = ["C", "C.f", "C.f.g", "Cf"]
_APIS = ["os.system", "os.*", "o*", "subprocess.run"]


@st.composite
def entries(draw: st.DrawFn) -> str:
    keys = {"owner": draw(st.sampled_from(OWNERS[:3]))}
    if symbol := draw(st.none() | st.sampled_from(_SYMBOLS)):
        keys["symbol"] = symbol
    if api := draw(st.none() | st.sampled_from(_APIS)):
        keys["api"] = api
    return entry(draw(st.sampled_from(_PATHS)), **keys)


SITES = st.builds(
    make_site,
    st.sampled_from([path for path in _PATHS if path.endswith(".py")]),
    st.integers(1, 99),
    st.sampled_from(["os.system", "subprocess.run", "os.fork"]),
    symbol=st.sampled_from(["", *_SYMBOLS]),
)


def wins(entry: SiteEntry, site: Site) -> tuple[object, ...] | None:
    """The documentation, word for word: None if the entry does not cover the site, else what is compared."""
    folder = entry.path.endswith("/")
    in_path = site.path.startswith(entry.path) if folder else site.path == entry.path
    parts, outer = site.symbol.split("."), (entry.symbol or "").split(".")
    in_symbol = entry.symbol is None or (not folder and parts[: len(outer)] == outer)
    pattern = entry.api
    in_api = pattern is None or (site.api.startswith(pattern[:-1]) if pattern.endswith("*") else site.api == pattern)
    if not (in_path and in_symbol and in_api):
        return None
    order = ["folder", "file", "file+api", "symbol", "symbol+api"]
    level = "folder" if folder else "symbol" if entry.symbol else "file"
    if pattern and not folder:
        level += "+api"
    exact = pattern is not None and not pattern.endswith("*")
    length = len(entry.path) if folder else 0
    return order.index(level), length, len(entry.symbol or ""), exact, len(pattern or "")


@given(st.lists(entries(), max_size=8), SITES)
def test_the_owner_is_that_of_a_brute_force_search(written: list[str], site: Site) -> None:
    text = "".join(written)
    manifest = ownership_from_text("version = 1\n" + text, "m.toml")
    best: tuple[object, ...] | None = None
    owner = None
    for candidate in manifest.site:
        rank = wins(candidate, site)
        assert covers(candidate, site) == (rank is not None)
        if rank is not None and (best is None or rank > best):
            best, owner = rank, candidate.owner
    owned = check(make_tree(site), text).owners.get(site)
    assert (owned and owned.owner) == owner


@given(st.text("a.*b", max_size=8), st.text("a.b", max_size=8))
def test_a_star_stands_for_any_run(pattern: str, name: str) -> None:
    def slow(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return slow(pattern[1:], name) or (bool(name) and slow(pattern, name[1:]))
        return name[:1] == pattern[0] and slow(pattern[1:], name[1:])

    assert name_matches(pattern, name) == slow(pattern, name)


# Entries


def test_duplicate_and_contradictory_entries() -> None:
    text = entry("src/git.py") + entry("src/git.py") + entry("src/git.py", "interactive")
    assert brief(check(make_tree(GIT), text).findings) == [
        "m.toml:6:1 OWN005 duplicate entry for `src/git.py`: the one on line 2 says the same",
        ("m.toml:10:1 OWN005 contradictory entries for `src/git.py`: `interactive` here, `scheduler` on line 2"),
    ]


@pytest.mark.parametrize(
    ("path", "keys", "message", "help"),
    [
        (
            "src/gti.py",
            {},
            "m.toml:3:1 OWN006 stale entry: no analysed file at `src/gti.py`",
            "did you mean `src/git.py`? correct or remove the entry",
        ),
        (
            "srcs/",
            {},
            "m.toml:3:1 OWN006 stale entry: no analysed file at `srcs/`",
            "did you mean `src/`? correct or remove the entry",
        ),
        (
            "src",
            {},
            "m.toml:3:1 OWN006 stale entry: no analysed file at `src`",
            "did you mean the folder `src/`? correct or remove the entry",
        ),
        (
            "src/git.py/",
            {},
            "m.toml:3:1 OWN006 stale entry: no analysed file at `src/git.py/`",
            "did you mean the file `src/git.py`? correct or remove the entry",
        ),
        (
            "src/git.py",
            {"symbol": "Runer.run"},
            "m.toml:6:1 OWN006 stale entry: no symbol `Runer.run` in `src/git.py`",
            "did you mean `Runner.run`? correct or remove the entry",
        ),
        (
            "src/",
            {"symbol": "Runner.run"},
            "m.toml:6:1 OWN006 stale entry: a folder has no symbol `Runner.run`",
            "name the file that defines it",
        ),
        (
            "src/git.py",
            {"symbol": "Runner.stop"},
            "m.toml:2:1 OWN006 stale entry: no site under `src/git.py, symbol Runner.stop`",
            "correct or remove the entry",
        ),
        (
            "src/",
            {"api": "asyncio.*"},
            "m.toml:2:1 OWN006 stale entry: no site under `src/, api asyncio.*`",
            (
                "there are sites of kind/tier task/core, which does not count unless `[catalog]` says so; "
                "correct or remove the entry"
            ),
        ),
    ],
)
def test_stale_entries(path: str, keys: dict[str, str], message: str, help: str) -> None:
    task = make_site("src/git.py", 9, "asyncio.create_task", api_kind=ApiKind.TASK)
    tree = make_tree(GIT, task, symbols={"src/git.py": {"Runner", "Runner.run", "Runner.stop"}})
    stale = [f for f in check(tree, entry(path, **keys)).findings if f.path == "m.toml"]
    assert brief(stale) == [message]
    assert stale[0].help == help


def test_nothing_is_stale_in_a_file_that_was_not_analysed() -> None:
    tree = make_tree(broken=["src/a.py"])
    text = entry("src/a.py") + entry("src/a.py", symbol="f") + entry("src/")
    assert check(tree, text).findings == ()


def test_a_less_specific_entry_that_never_wins_is_not_stale() -> None:
    assert check(make_tree(GIT), entry("src/") + entry("src/git.py")).findings == ()


def test_until_is_the_last_day() -> None:
    assert check(make_tree(GIT), entry("src/", until="2026-06-01")).findings == ()
    judgement = check(make_tree(GIT), entry("src/", until="2026-05-31"))
    assert brief(judgement.findings) == ["m.toml:6:1 OWN007 entry for `src/` expired: its last day was 2026-05-31"]
    assert judgement.owners == {GIT: Owned("scheduler", "manifest")}


def test_max_sites_counts_what_the_entry_owns() -> None:
    sites = [make_site("src/a.py", line) for line in (1, 2, 3)] + [GIT]
    tree = make_tree(*sites, comments={"src/a.py": {1: "# execution-ownership: interactive"}})
    text = entry("src/", max_sites=2) + entry("src/git.py")
    assert check(tree, text).findings == ()
    (finding,) = check(tree, text.replace("max_sites = 2", "max_sites = 1")).findings
    assert brief([finding]) == ["m.toml:6:1 OWN008 `src/` owns 2 sites, more than `max_sites = 1`"]
    assert "(see src/a.py:3)" in finding.help


def test_entrypoints_have_to_resolve() -> None:
    tree = make_tree(GIT, names=["app.jobs", "app.jobs.submit"])
    assert check(tree, entry("src/", entrypoint="app.jobs.submit")).findings == ()
    (finding,) = check(tree, entry("src/", entrypoint="app.job.submit")).findings
    assert brief([finding]) == ["m.toml:6:1 OWN010 entrypoint `app.job.submit` names nothing in this project"]
    assert finding.help == "did you mean `app.jobs.submit`? give the qualified name of what takes the work"


@pytest.mark.parametrize(
    ("broken", "codes"),
    [("src/app/jobs.py", []), ("app/__init__.py", []), ("src/jobs.py", ["OWN010"]), ("xapp.py", ["OWN010"])],
)
def test_an_entrypoint_may_be_in_a_file_that_was_not_analysed(broken: str, codes: list[str]) -> None:
    tree = make_tree(GIT, broken=[broken])
    findings = check(tree, entry("src/git.py", entrypoint="app.jobs.submit")).findings
    assert [finding.code for finding in findings] == codes


def test_test_only_outside_tests() -> None:
    tree = make_tree(make_site("src/tests/a.py"), make_site("src/b.py", 7))
    text = 'tests = ["src/tests/"]\n' + entry("src/", "test_only")
    assert brief(check(tree, text).findings) == [
        "m.toml:5:1 OWN011 `test_only` for `src/`, but src/b.py:7 is not in `tests`"
    ]


API = '[[catalog.api]]\nname = "{}"\nkind = "{}"\nwhy = "w"\n'


def test_own_apis_that_are_there_twice_or_name_nothing() -> None:
    text = "".join(API.format(*api) for api in (("app.run", "process"), ("app.rnu", "process"), ("app.run", "timer")))
    text += API.format("lib.run", "process")
    assert brief(check(make_tree(files=["app.py"], names={"app", "app.run"}), text).findings) == [
        "m.toml:7:1 OWN006 stale API: `app.rnu` names nothing in this project",
        "m.toml:11:1 OWN005 `app.run` is already described on line 2",
    ]


def test_unanalysed_entries_that_excuse_nothing() -> None:
    tree = make_tree(files=["a.py"], broken=["b.py"])
    text = "".join(f'[[unanalysed]]\npath = "{path}"\nreason = "r"\n' for path in ("a.py", "b.py", "c.py"))
    assert brief(check(tree, text).findings) == [
        "m.toml:3:1 SRC007 `a.py` is analysed well and needs no excuse",
        "m.toml:9:1 SRC007 no file `c.py` to excuse",
    ]


def test_faults_of_the_manifest_are_among_the_findings() -> None:
    assert places(check(make_tree(), 'x = 1\n[[site]]\nowner = "scheduler"\n').findings) == [
        "m.toml:2 OWN004",
        "m.toml:3 OWN009",
        "m.toml:3 OWN009",
    ]


@given(st.permutations([make_site("b.py", 2), make_site("b.py", 11), make_site("a.py", 3)]))
def test_the_order_of_findings_is_that_of_reports(sites: list[Site]) -> None:
    assert places(check(make_tree(*sites), "").findings) == [
        "a.py:3 OWN001",
        "b.py:2 OWN001",
        "b.py:11 OWN001",
    ]
