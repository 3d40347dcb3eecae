"""Boundaries on hand-made trees: each API and argument that breaks one, and those that do not."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.catalog import Catalog
from checkers.manifests import ownership_from_text
from checkers.model import ApiKind, Argument, Confidence, Finding, Selection, Site, SiteKind, Tier, Tree, Use
from checkers.rules import ownership
from checkers.rules.boundaries import COLLECTING, SHELLS, TIMED, WITH_SHELL, judge
from tests.checkers.trees import brief, make_site, make_tree, make_use

TODAY = date(2026, 6, 1)
FINITE = '[boundaries]\nfinite = ["fin/", "one.py"]\n'
TYPED = '[boundaries]\ntyped_argv = ["arg/"]\n'

COMMAND = Argument(None)
STARS, MORE = Argument("*"), Argument("**")
TIMEOUT = Argument("timeout", constant=True, value=5)
NO_TIMEOUT = Argument("timeout", constant=True, value=None)


def keyword(name: str, value: str | int | bool | None) -> Argument:
    return Argument(name, constant=True, value=value)


def check(tree: Tree, text: str = FINITE) -> tuple[Finding, ...]:
    manifest = ownership_from_text("version = 1\n" + text, "m.toml")
    return judge(tree, manifest, selection=Selection(), today=TODAY).findings


def in_finite(*found: Site | Use) -> list[str]:
    """Code and message of each finding in a tree whose boundaries hold files."""
    sites = [site for site in found if isinstance(site, Site)]
    uses = [use for use in found if isinstance(use, Use)]
    return [
        f"{finding.code} {finding.message}"
        for finding in check(make_tree(*sites, uses=uses, files=["fin/x.py", "one.py"]))
    ]


def call(api: str, *arguments: Argument) -> list[str]:
    return in_finite(make_site("fin/a.py", 1, api, arguments=arguments))


def use(chain: str, *arguments: Argument) -> list[str]:
    return in_finite(make_use("fin/a.py", 1, chain, *arguments))


WAITS = "OWN032 `subprocess.run` waits without a timeout that can be seen"


def test_a_bounded_call() -> None:
    assert call("subprocess.run", COMMAND, TIMEOUT, keyword("shell", False), keyword("capture_output", False)) == []
    assert call("subprocess.Popen", COMMAND, keyword("shell", None)) == []
    assert call("os.fork") == []


def test_every_breach_of_one_call() -> None:
    site = make_site(
        "one.py", 4, symbol="f", arguments=(COMMAND, keyword("shell", True), keyword("capture_output", True))
    )
    findings = check(make_tree(site, files=["fin/x.py"]))
    assert brief(findings) == [
        "one.py:4:5 OWN030 `subprocess.run` with `capture_output` collects all output of the process",
        "one.py:4:5 OWN031 `subprocess.run` runs a command through the shell",
        "one.py:4:5 OWN032 `subprocess.run` waits without a timeout that can be seen",
    ]
    assert [(f.name, f.api, f.symbol, f.ordinal, f.help) for f in findings] == [
        (
            "unbounded-output",
            "subprocess.run",
            "f",
            4,
            "send the output to a file, or read it in pieces up to a bound",
        ),
        (
            "shell-command",
            "subprocess.run",
            "f",
            4,
            "run the program itself with a list of arguments and `shell=False`",
        ),
        ("missing-timeout", "subprocess.run", "f", 4, "pass `timeout=` and handle its expiry"),
    ]


@pytest.mark.parametrize("api", sorted(TIMED))
def test_timeouts(api: str) -> None:
    waits = f"OWN032 `{api}` waits without a timeout"
    always = [f"OWN030 `{api}` collects all output of the process"] if api in COLLECTING else []
    assert call(api, COMMAND, TIMEOUT) == always
    assert call(api, COMMAND, Argument("timeout")) == always
    assert call(api, COMMAND, NO_TIMEOUT) == [*always, f"{waits}: it is None"]
    assert call(api, COMMAND) == [*always, f"{waits} that can be seen"]
    assert call(api, COMMAND, *[COMMAND] * 6) == [*always, f"{waits} that can be seen"]
    assert call(api, COMMAND, TIMEOUT, MORE, keyword("shell", False), keyword("capture_output", False)) == always


def test_popen_has_no_timeout_of_its_own() -> None:
    assert call("subprocess.Popen", COMMAND) == []


@pytest.mark.parametrize("api", sorted(WITH_SHELL))
def test_shell(api: str) -> None:
    def shell(*arguments: Argument) -> list[str]:
        return [line for line in call(api, *arguments, TIMEOUT) if "OWN031" in line]

    runs = f"OWN031 `{api}` runs a command through the shell"
    assert shell(COMMAND) == []
    assert shell(COMMAND, keyword("shell", True)) == [runs]
    assert shell(COMMAND, keyword("shell", 1)) == [runs]
    assert shell(COMMAND, keyword("shell", 0)) == []
    assert shell(COMMAND, Argument("shell")) == [
        f"OWN031 `{api}` may run a command through the shell: `shell` is not a constant"
    ]
    assert shell(*[COMMAND] * 8, keyword_less(True)) == [runs]
    assert shell(*[COMMAND] * 8, keyword_less(False)) == []
    assert shell(COMMAND, MORE) == [f"OWN031 `**` of `{api}` may hide `shell=True`"]
    assert shell(STARS) == [f"OWN031 `*` of `{api}` may hide `shell=True`"]
    assert shell(STARS, keyword("shell", False)) == []


def keyword_less(value: bool) -> Argument:
    return Argument(None, constant=True, value=value)


@pytest.mark.parametrize("api", sorted(SHELLS))
def test_shells_by_nature(api: str) -> None:
    runs = f"OWN031 `{api}` runs a command through the shell"
    collects = [f"OWN030 `{api}` collects all output of the process"] if api in COLLECTING else []
    assert call(api, COMMAND) == [*collects, runs]
    reference = make_site("fin/a.py", 1, api, kind=SiteKind.REFERENCE, arguments=None)
    assert in_finite(reference) == [*collects, runs]


def test_the_catalogue_holds_every_api_that_is_judged() -> None:
    judged = SHELLS | COLLECTING | TIMED | WITH_SHELL.keys()
    known = {entry.name for entry in Catalog.load(Catalog.known_roots()).entries}
    assert judged <= known


def test_gevent_is_judged_like_the_standard_library() -> None:
    assert call("gevent.subprocess.run", COMMAND, TIMEOUT, keyword("shell", True)) == [
        "OWN031 `subprocess.run` runs a command through the shell"
    ]


def test_unpacked_keywords_hide_everything() -> None:
    assert call("subprocess.run", COMMAND, MORE) == [
        "OWN030 `**` of `subprocess.run` may hide `capture_output=True`",
        "OWN031 `**` of `subprocess.run` may hide `shell=True`",
        f"{WAITS}: `**` hides whether one is passed",
    ]


def test_a_constant_that_cannot_be_seen() -> None:
    assert call("subprocess.run", COMMAND, TIMEOUT, Argument("capture_output")) == [
        "OWN030 `subprocess.run` may collect all output: `capture_output` is not a constant"
    ]


@pytest.mark.parametrize(("api", "code"), [("subprocess.run", "OWN032"), ("subprocess.Popen", "OWN031")])
def test_a_call_that_is_passed_on(api: str, code: str) -> None:
    site = make_site("fin/a.py", 1, api, kind=SiteKind.REFERENCE, arguments=None)
    assert in_finite(site) == [
        f"{code} `{api}` is passed on as a value, so the arguments that would bound it cannot be seen"
    ]


def test_a_subclass_breaks_nothing_before_it_is_constructed() -> None:
    site = make_site("fin/a.py", 1, "subprocess.Popen", kind=SiteKind.SUBCLASS, arguments=None)
    assert in_finite(site) == []


def test_any_candidate_counts() -> None:
    site = make_site("fin/a.py", 1, "proj.run", candidates=("proj.run", "os.system"))
    assert in_finite(site) == ["OWN031 `os.system` runs a command through the shell"]


def test_kinds_and_tiers_do_not_narrow_boundaries_but_guesses_do_not_count() -> None:
    assert in_finite(make_site("fin/a.py", 1, "os.system", tier=Tier.POLICY, api_kind=ApiKind.TASK)) != []
    assert in_finite(make_site("fin/a.py", 1, "os.system", confidence=Confidence.BY_NAME)) == []


# Uses of a process


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), " that can be seen"),
        ((NO_TIMEOUT,), ": it is None"),
        ((keyword_less(False),), None),
        ((TIMEOUT,), None),
        ((Argument(None),), None),
        ((Argument(None, constant=True, value=None),), ": it is None"),
        ((STARS,), " that can be seen: `*` hides whether one is passed"),
        ((MORE,), " that can be seen: `**` hides whether one is passed"),
    ],
)
def test_wait(arguments: tuple[Argument, ...], message: str | None) -> None:
    expected = [] if message is None else [f"OWN032 `self.proc.wait` waits without a timeout{message}"]
    assert use("self.proc.wait", *arguments) == expected


def test_communicate() -> None:
    collects = "OWN030 `p.communicate` collects all output of the process"
    waits = "OWN032 `p.communicate` waits without a timeout that can be seen"
    assert use("p.communicate") == [collects, waits]
    assert use("p.communicate", COMMAND) == [collects, waits]
    assert use("p.communicate", COMMAND, COMMAND) == [collects]
    assert use("p.communicate", TIMEOUT) == [collects]


@pytest.mark.parametrize("chain", ["p.stdout.read", "p.stderr.read", "Popen().stdout.readlines", "stdout.readall"])
def test_unsized_reads(chain: str) -> None:
    reads = [f"OWN030 `{chain}` reads all output of the process"]
    assert use(chain) == reads
    assert use(chain, keyword_less(False)) == []
    assert use(chain, Argument(None, constant=True, value=4096)) == []
    assert use(chain, Argument(None)) == []
    assert use(chain, Argument(None, constant=True, value=-1)) == reads
    assert use(chain, Argument(None, constant=True, value=None)) == reads
    assert use(chain, STARS) == reads


@pytest.mark.parametrize("chain", ["p.stdin.read", "p.stdout.readline", "file.read", "read", "p.poll", "p.kill"])
def test_other_uses(chain: str) -> None:
    assert use(chain) == []


# Paths


def test_boundaries_hold_in_their_paths_only() -> None:
    tree = make_tree(
        *(make_site(path, 1, "os.system") for path in ("fin/a.py", "one.py", "fine.py", "two.py")),
        uses=[make_use("two.py", 2, "p.wait")],
    )
    assert brief(check(tree)) == [
        "fin/a.py:1:5 OWN031 `os.system` runs a command through the shell",
        "one.py:1:5 OWN031 `os.system` runs a command through the shell",
    ]


def test_stale_boundaries() -> None:
    findings = check(
        make_tree(files=["src/a.py"]), '[boundaries]\nfinite = ["src/b.py",\n "src"]\ntyped_argv = ["*.py"]\n'
    )
    assert brief(findings) == [
        "m.toml:3:11 OWN034 boundary `src/b.py` holds no analysed file",
        "m.toml:4:2 OWN034 boundary `src` holds no analysed file",
        "m.toml:5:15 OWN034 boundary `*.py` holds no analysed file",
    ]
    assert findings[0].help == "did you mean `src/a.py`? correct or remove the path"
    assert findings[1].help == "did you mean the folder `src/`? correct or remove the path"


def test_no_entry_and_no_annotation_lifts_a_boundary() -> None:
    manifest = ownership_from_text(
        "version = 1\n" + FINITE + '[[site]]\npath = "fin/"\nowner = "scheduler"\nreason = "r"\n', "m.toml"
    )
    tree = make_tree(
        make_site("fin/a.py", 1, "os.system"),
        make_site("fin/a.py", 2, "os.system"),
        files=["one.py"],
        comments={"fin/a.py": {2: "# execution-ownership: interactive"}},
    )
    findings = ownership.judge(tree, manifest, selection=manifest.selection, today=TODAY).findings
    assert brief(findings) == [
        "fin/a.py:1:5 OWN031 `os.system` runs a command through the shell",
        "fin/a.py:2:5 OWN031 `os.system` runs a command through the shell",
    ]


# typed_argv

SPLIT = Argument(None, split=True)


@pytest.mark.parametrize(
    ("api", "arguments", "found"),
    [
        ("subprocess.run", (SPLIT,), True),
        ("subprocess.run", (COMMAND,), False),
        ("subprocess.run", (Argument("args", split=True),), True),
        ("subprocess.run", (COMMAND, Argument("input", split=True)), False),
        ("subprocess.run", (COMMAND, Argument("env", split=True)), False),
        ("asyncio.create_subprocess_exec", (Argument("*", split=True),), True),
        ("os.execvp", (COMMAND, SPLIT), True),
        ("multiprocessing.Process", (Argument("args", split=True),), False),
    ],
)
def test_split_argv(api: str, arguments: tuple[Argument, ...], found: bool) -> None:
    findings = check(make_tree(make_site("arg/a.py", 2, api, arguments=arguments)), TYPED)
    message = f"arg/a.py:2:5 OWN033 `{api}` gets an argument list made by `str.split`, which knows no quoting"
    assert brief(findings) == ([message] if found else [])


def test_split_argv_of_threads_and_outside_the_paths() -> None:
    thread = make_site("arg/a.py", 2, "threading.Thread", api_kind=ApiKind.THREAD, arguments=(SPLIT,))
    assert check(make_tree(thread, make_site("b.py", arguments=(SPLIT,))), TYPED) == ()


_ARGUMENTS = st.builds(
    Argument,
    st.sampled_from([None, "*", "**", "timeout", "shell", "capture_output", "args"]),
    st.booleans(),
    st.sampled_from([None, True, False, 0, 5, "x"]),
    st.booleans(),
)


@given(st.sampled_from(sorted(WITH_SHELL)), st.lists(_ARGUMENTS, max_size=10))
def test_what_is_hidden_is_never_taken_for_bounded(api: str, arguments: list[Argument]) -> None:
    found = " ".join(call(api, *arguments))
    names = {argument.name for argument in arguments}
    if "**" in names and "shell" not in names and len(arguments) <= 8:
        assert "OWN031" in found
    if api in TIMED and "timeout" not in names:
        assert "OWN032" in found
