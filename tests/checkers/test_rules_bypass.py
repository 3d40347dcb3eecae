"""check-bypass's rules on hand-made trees: what matches, what excuses, every finding with its place."""

from __future__ import annotations

from datetime import date

import pytest

from checkers.manifests import bypass_from_text
from checkers.model import ApiKind, Confidence, Selection, Site, Tier, Tree
from checkers.rules import Judgement
from checkers.rules.bypass import judge
from checkers.targets import chain_matches, target_matches
from tests.checkers.trees import brief, make_site, make_tree, places

TODAY = date(2026, 6, 1)
RUN = make_site("src/a.py", 3, symbol="go")
THREAD = make_site("src/a.py", 5, "threading.Thread", api_kind=ApiKind.THREAD)


def check(tree: Tree, text: str, selection: Selection | None = None) -> Judgement:
    manifest = bypass_from_text("version = 1\n" + text, "m.toml")
    return judge(tree, manifest, selection=selection or manifest.selection, today=TODAY)


def rule(id: str, *targets: str, allow: str = "", use: str = "sched.submit") -> str:
    listed = ", ".join(f'"{target}"' for target in targets)
    text = f'[[rule]]\nid = "{id}"\ntargets = [{listed}]\nmessage = "not here"\nuse = "{use}"\n'
    return text + (f"allow = [\n{allow}\n]\n" if allow else "")


def allow(path: str, until: str = "") -> str:
    return f'{{ path = "{path}", reason = "r"{until and f", until = {until}"} }},'


# Sites


def test_a_bypass() -> None:
    judgement = check(make_tree(RUN), rule("procs", "@process"))
    (finding,) = judgement.findings
    assert brief([finding]) == [
        "src/a.py:3:5 BYP001 `subprocess.run` starts work outside the scheduler: not here (rule `procs`)"
    ]
    assert (finding.name, finding.api, finding.symbol) == ("scheduler-bypass", "subprocess.run", "go")
    assert finding.help == (
        "submit it through `sched.submit`; or annotate the line with `# scheduler-audit: <reason>` "
        "(scheduler-owned, standalone-compat, definition-site or test-only); "
        'or except the file in rule `procs` of m.toml: `allow = [{ path = "…", reason = "…" }]`'
    )
    assert judgement.rules == {finding: ("procs",)}
    assert judgement.owners == {}


def test_what_no_rule_targets_is_no_bypass() -> None:
    assert check(make_tree(RUN, THREAD), rule("t", "@pool", "os.system")).findings == ()


def test_scheduler_and_test_paths_are_free() -> None:
    tree = make_tree(make_site("sched/a.py"), make_site("tests/a.py"), make_site("schedule.py"))
    text = 'scheduler = ["sched/"]\ntests = ["tests/"]\n' + rule("procs", "@process")
    assert places(check(tree, text).findings) == ["schedule.py:1 BYP001"]


def test_files_outside_the_roots_are_not_judged() -> None:
    tree = make_tree(make_site("src/a.py"), make_site("a.py"))
    text = 'roots = ["src"]\n' + rule("procs", "@process")
    assert places(check(tree, text).findings) == ["src/a.py:1 BYP001"]


def test_a_valid_annotation_excuses() -> None:
    comments = {"src/a.py": {3: "# scheduler-audit: standalone-compat", 5: "# scheduler-audit: nonsense"}}
    tree = make_tree(RUN, THREAD, comments=comments)
    assert places(check(tree, rule("all", "@process", "@thread")).findings) == [
        "src/a.py:5 BYP001",
        "src/a.py:5 BYP010",
    ]


def test_scheduler_owned_holds_in_the_scheduler() -> None:
    sites = make_site("sched/a.py"), make_site("src/a.py")
    comments = {site.path: {1: "# scheduler-audit: scheduler-owned"} for site in sites}
    judgement = check(make_tree(*sites, comments=comments), 'scheduler = ["sched/"]\n' + rule("p", "@process"))
    assert places(judgement.findings) == ["src/a.py:1 BYP001", "src/a.py:1 BYP016"]


def test_one_finding_for_a_site_of_several_rules() -> None:
    text = rule("first", "@process") + rule("second", "subprocess.*") + rule("third", "@thread")
    judgement = check(make_tree(RUN), text)
    assert brief(judgement.findings) == [
        (
            "src/a.py:3:5 BYP001 `subprocess.run` starts work outside the scheduler: not here "
            "(rule `first`; also of `second`)"
        )
    ]
    assert list(judgement.rules.values()) == [("first", "second")]


def test_a_rule_that_allows_the_file_gives_way_to_one_that_does_not() -> None:
    text = rule("first", "@process", allow=allow("src/a.py")) + rule("second", "subprocess.run")
    (finding,) = check(make_tree(RUN), text).findings
    assert finding.message.endswith("(rule `second`)")


# Targets


@pytest.mark.parametrize(
    ("target", "matches"),
    [
        ("subprocess.run", True),
        ("subprocess.ru", False),
        ("subprocess.*", True),
        ("*.run", True),
        ("sub*.r*n", True),
        ("*", True),
        ("proj.launch", True),
        ("other.*", False),
    ],
)
def test_names(target: str, matches: bool) -> None:
    assert target_matches(target, make_site("a.py", candidates=("subprocess.run", "proj.launch"))) == matches


@pytest.mark.parametrize(
    ("pattern", "chain", "matches"),
    [
        ("*.spawner().send", "self.spawner().send", True),
        ("*.spawner().send", "self.app.spawner().send", True),
        ("*.spawner().send", "get().spawner().send", True),
        ("*.spawner().send", "spawner().send", True),
        ("*.spawner().send", "myspawner().send", False),
        ("*.spawner().send", "self.spawner.send", False),
        ("*.spawner().send", "self.spawner().send_all", False),
        ("*.spawner().send", "self.spawner().send().now", False),
        ("self.*().send", "self.spawner().send", True),
        ("self.*().send", "app.spawner().send", False),
        ("spawner().*", "spawner().send", True),
        ("*spawner().send", "myspawner().send", True),
        ("a()", "a()", True),
    ],
)
def test_method_chains(pattern: str, chain: str, matches: bool) -> None:
    assert chain_matches(pattern, chain) == matches
    assert target_matches(pattern, make_site("a.py", chain=chain)) == matches


def declared(api: str, chain: str = "", confidence: Confidence = Confidence.CERTAIN) -> Site:
    return make_site("a.py", api=api, api_kind=ApiKind.DECLARED, chain=chain, confidence=confidence)


def test_what_a_rule_spells_out_counts_whatever_its_kind() -> None:
    tree = make_tree(
        make_site("b.py", 1, "asyncio.create_task", api_kind=ApiKind.TASK),
        make_site("b.py", 2, "webbrowser.open", tier=Tier.HIDDEN),
        declared("proj.launch"),
    )
    text = rule("r", "asyncio.create_task", "webbrowser.*", "proj.launch")
    assert places(check(tree, text).findings) == ["a.py:1 BYP001", "b.py:1 BYP001", "b.py:2 BYP001"]


def test_a_kind_that_a_rule_targets_counts() -> None:
    task = make_site("b.py", 1, "asyncio.create_task", api_kind=ApiKind.TASK)
    hidden = make_site("b.py", 2, "webbrowser.open", tier=Tier.HIDDEN)
    assert places(check(make_tree(task, hidden), rule("r", "@task", "@process")).findings) == ["b.py:1 BYP001"]


def test_by_name_sites_count_where_they_are_asked_for() -> None:
    delay = make_site("b.py", 1, "celery.app.task.Task.delay", api_kind=ApiKind.DISPATCH, confidence=Confidence.BY_NAME)
    text = rule("r", "@dispatch", "celery.app.task.Task.delay")
    assert check(make_tree(delay), text).findings == ()
    assert places(check(make_tree(delay), "catalog.by_name = true\n" + text).findings) == ["b.py:1 BYP001"]
    chain = declared("*.spawner().send", "x.spawner().send", Confidence.BY_NAME)
    assert places(check(make_tree(chain), rule("r", "*.spawner().send")).findings) == ["a.py:1 BYP001"]


def test_a_narrower_selection_makes_nothing_stale() -> None:
    tree = make_tree(RUN, THREAD, make_site("b.py", 1, "threading.Thread", api_kind=ApiKind.THREAD))
    text = rule("t", "@thread", allow=allow("b.py")) + rule("p", "@process")
    narrow = Selection(kinds=frozenset({ApiKind.PROCESS}))
    assert places(check(tree, text, narrow).findings) == ["src/a.py:3 BYP001"]


def test_stale_targets() -> None:
    tree = make_tree(RUN, names=["proj", "proj.launch"])
    judgement = check(
        tree,
        rule(
            "r",
            "@proces",
            "subprocess.runn",
            "subprocess.Popen",
            "proj.launch",
            "proj.lunch",
            "proj.*",
            "nil.*",
        )
        + rule("s", "*.spawner().send"),
    )
    stale = [finding for finding in judgement.findings if finding.code == "BYP004"]
    assert brief(stale) == [
        "m.toml:4:12 BYP004 stale target: there is no kind `@proces`",
        "m.toml:4:23 BYP004 stale target: `subprocess.runn` names nothing in catalogue or project",
        "m.toml:4:77 BYP004 stale target: `proj.lunch` names nothing in catalogue or project",
        "m.toml:4:101 BYP004 stale target: `nil.*` names nothing in catalogue or project",
        "m.toml:9:12 BYP004 stale target: no call is of the form `*.spawner().send`",
    ]
    assert stale[0].help.startswith("did you mean `@process`? allowed: @process, @exec, ")
    assert stale[2].help == "did you mean `proj.launch`? correct or remove it"
    assert [judgement.rules[finding] for finding in stale] == [("r",)] * 4 + [("s",)]


def test_nothing_is_stale_that_a_broken_file_may_hold() -> None:
    text = rule("r", "proj.launch", "proj.*", "*.go().send", "other.launch")
    assert places(check(make_tree(broken=["src/proj/__init__.py"]), text).findings) == ["m.toml:4 BYP004"]
    accepted = '[[unanalysed]]\npath = "x.py"\nreason = "r"\n'
    found = check(make_tree(broken=["x.py"]), rule("r", "proj.*", "@proces") + accepted).findings
    assert places(found) == ["m.toml:4 BYP004", "m.toml:4 BYP004"]


# allow


def test_an_allowed_file_or_folder() -> None:
    tree = make_tree(RUN, make_site("tools/x.py"), make_site("tools2/x.py"))
    text = rule("p", "@process", allow=allow("tools/") + allow("src/a.py"))
    assert places(check(tree, text).findings) == ["tools2/x.py:1 BYP001"]


def test_stale_allow() -> None:
    tree = make_tree(RUN, make_site("tests/x.py"), files=["b.py"], broken=["c.py"])
    listed = "\n".join(allow(path) for path in ("src/b.py", "b.py", "c.py", "tests/x.py", "src"))
    judgement = check(tree, 'tests = ["tests/"]\n' + rule("p", "@process", allow=listed))
    assert brief(judgement.findings) == [
        "m.toml:9:3 BYP003 stale allow: no analysed file at `src/b.py`",
        "m.toml:10:1 BYP003 stale allow: no site of rule `p` needs it in `b.py`",
        "m.toml:12:1 BYP003 stale allow: no site of rule `p` needs it in `tests/x.py`",
        "m.toml:13:3 BYP003 stale allow: no analysed file at `src`",
        "src/a.py:3:5 BYP001 `subprocess.run` starts work outside the scheduler: not here (rule `p`)",
    ]
    assert judgement.findings[3].help == "did you mean the folder `src/`? correct or remove the entry"


def test_an_allow_of_another_rule_is_stale() -> None:
    text = rule("t", "@thread", allow=allow("src/a.py")) + rule("p", "@process")
    assert places(check(make_tree(RUN), text).findings) == ["m.toml:8 BYP003", "src/a.py:3 BYP001"]


def test_expired_allow() -> None:
    listed = allow("src/a.py", "2026-05-31")
    judgement = check(make_tree(RUN), rule("p", "@process", allow=listed))
    assert brief(judgement.findings) == ["m.toml:8:36 BYP005 allow of `src/a.py` expired: its last day was 2026-05-31"]
    assert list(judgement.rules.values()) == [("p",)]
    assert check(make_tree(RUN), rule("p", "@process", allow=allow("src/a.py", "2026-06-01"))).findings == ()


def test_a_file_with_annotated_sites_cannot_be_allowed_as_a_whole() -> None:
    tree = make_tree(RUN, THREAD, comments={"src/a.py": {5: "# scheduler-audit: definition-site"}})
    judgement = check(tree, rule("p", "@process", "@thread", allow=allow("src/")))
    assert brief(judgement.findings) == [
        "m.toml:8:1 BYP002 `src/a.py` is allowed as a whole, but it holds annotated sites",
        "src/a.py:3:5 BYP001 `subprocess.run` starts work outside the scheduler: not here (rule `p`)",
    ]
    assert judgement.findings[0].help == ("remove the entry and annotate each site with `# scheduler-audit: <reason>`")


def test_a_file_that_submits_cannot_be_allowed_as_a_whole() -> None:
    tree = make_tree(RUN, make_site("src/b.py"), calls=[("src/a.py", "sched.submit")])
    judgement = check(tree, rule("p", "@process", allow=allow("src/")))
    assert brief(judgement.findings) == [
        "m.toml:8:1 BYP002 `src/a.py` is allowed as a whole, but it calls the submission API `sched.submit`",
        "src/a.py:3:5 BYP001 `subprocess.run` starts work outside the scheduler: not here (rule `p`)",
    ]


# The manifest


def test_duplicates() -> None:
    text = rule("p", "@process", allow=allow("src/a.py") + "\n" + allow("src/a.py")) + rule("p", "@thread")
    assert brief(check(make_tree(RUN), text).findings) == [
        "m.toml:9:1 BYP008 `src/a.py` is allowed twice in rule `p`",
        "m.toml:12:1 BYP008 rule `p` is already on line 2",
    ]


def test_a_submission_api_of_this_project_has_to_be_there() -> None:
    tree = make_tree(names=["sched", "sched.submit"])
    text = 'submission = ["sched.submit", "sched.sumbit", "library.submit"]\n'
    (finding,) = check(tree, text + rule("p", "@process")).findings
    assert brief([finding]) == ["m.toml:2:31 BYP004 submission API `sched.sumbit` names nothing in this project"]
    assert finding.help == "did you mean `sched.submit`? correct it"


def test_own_apis_that_are_there_twice_or_name_nothing() -> None:
    api = '[[catalog.api]]\nname = "{}"\nkind = "process"\nwhy = "w"\n'
    text = api.format("app.run") + api.format("app.rnu") + api.format("app.run") + rule("p", "@process")
    tree = make_tree(files=["app.py"], names={"app", "app.run"})
    assert places(check(tree, text).findings) == ["m.toml:7 BYP004", "m.toml:11 BYP008"]


def test_unanalysed_entries_that_excuse_nothing() -> None:
    text = '[[unanalysed]]\npath = "a.py"\nreason = "r"\n'
    assert places(check(make_tree(files=["a.py"]), text + rule("p", "@process")).findings) == ["m.toml:3 SRC007"]


def test_a_manifest_without_a_rule_forbids_nothing_and_says_so() -> None:
    (finding,) = check(make_tree(RUN), "").findings
    assert (finding.code, finding.message) == ("BYP007", "no `[[rule]]`: nothing is forbidden")


def test_a_rule_that_lacks_its_targets_is_told_once() -> None:
    (finding,) = check(make_tree(RUN), '[[rule]]\nid = "a"\nmessage = "m"\n').findings
    assert (finding.line, finding.code, finding.message) == (2, "BYP007", "missing `targets` in `rule`")


# Rollout


def rolled_out(judgement: Judgement, rollout: str, *active: str) -> list[str]:
    return places(judgement.failing(rollout, active))


def test_rollout() -> None:
    tree = make_tree(RUN, THREAD, comments={"src/a.py": {9: "# scheduler-audit: test-only"}})
    judgement = check(tree, "x = 1\n" + rule("p", "@process", allow=allow("b.py")) + rule("t", "@thread"))
    everything = [
        "m.toml:2 BYP006",
        "m.toml:9 BYP003",
        "src/a.py:3 BYP001",
        "src/a.py:5 BYP001",
        "src/a.py:9 BYP013",
    ]
    assert places(judgement.findings) == everything
    assert rolled_out(judgement, "observe", "p") == []
    assert rolled_out(judgement, "mandatory") == everything
    assert rolled_out(judgement, "active", "p") == ["m.toml:2 BYP006", "m.toml:9 BYP003", "src/a.py:3 BYP001"]
    assert rolled_out(judgement, "active", "t") == ["m.toml:2 BYP006", "src/a.py:5 BYP001"]
    assert rolled_out(judgement, "active") == ["m.toml:2 BYP006"]


def test_a_fault_of_a_rule_fails_with_the_rule() -> None:
    text = rule("p", "@process") + 'mesage = "m"\n' + rule("t", "@thread")
    judgement = check(make_tree(), text)
    assert rolled_out(judgement, "active", "p") == ["m.toml:7 BYP006"]
    assert rolled_out(judgement, "active", "t") == []


def test_a_site_fails_with_any_of_its_rules() -> None:
    judgement = check(make_tree(RUN), rule("first", "@process") + rule("second", "subprocess.run"))
    assert rolled_out(judgement, "active", "second") == ["src/a.py:3 BYP001"]
