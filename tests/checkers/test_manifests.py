"""Manifests: values, places, messages, hostile files, and where a manifest is found."""

from __future__ import annotations

import datetime
import os
import re
import string
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkers.catalog import Entry
from checkers.manifests import (
    MAX_MANIFEST_BYTES,
    OWNERS,
    Allow,
    Boundaries,
    BypassManifest,
    CatalogApi,
    CatalogTable,
    ManifestError,
    OwnershipManifest,
    Rule,
    SiteEntry,
    bypass_from_text,
    load_bypass,
    load_ownership,
    ownership_from_text,
)
from checkers.model import DEFAULT_KINDS, ApiKind, Selection, Tier
from checkers.toml_fields import Vocabulary
from checkers.toml_places import Place, Places
from tests.checkers.trees import brief

OWNERSHIP = "manifests/execution-ownership.toml"
BYPASS = "manifests/scheduler-bypass.toml"


def ownership(text: str) -> OwnershipManifest:
    return ownership_from_text(text, "m.toml")


def bypass(text: str) -> BypassManifest:
    return bypass_from_text(text, "m.toml")


def write(root: Path, path: str, text: str | bytes) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


# Values


def test_ownership_values() -> None:
    manifest = ownership(
        """\
version = 1
roots = ["src/", "tools"]
tests = ["tests/", "**/test_*.py"]
exclude = ["build/"]
max_file_bytes = 1000

[catalog]
kinds = ["process"]
tiers = ["core", "hidden"]
by_name = true

[[catalog.api]]
name = "proj.spawn"
kind = "process"
why = "starts a child"

[[unanalysed]]
path = "src/py2.py"
reason = "Python 2"

[[site]]
path = "src/app/git.py"
symbol = "GitRunner.run"
api = "subprocess.*"
owner = "scheduler"
reason = "all git work is a job"
entrypoint = "app.jobs.submit"
until = 2027-06-30
max_sites = 3

[boundaries]
finite = ["src/app/"]
typed_argv = ["src/app/git.py"]
"""
    )
    assert manifest.problems == ()
    assert manifest.roots == ("src", "tools")
    assert manifest.tests.entries == ("tests/", "**/test_*.py")
    assert manifest.exclude == ("build/",)
    assert manifest.max_file_bytes == 1000
    assert manifest.selection == Selection(
        frozenset({ApiKind.PROCESS}), frozenset({Tier.CORE, Tier.HIDDEN}), by_name=True
    )
    assert manifest.apis == (Entry("proj.spawn", ApiKind.PROCESS, why="starts a child"),)
    assert [(entry.path, entry.reason) for entry in manifest.unanalysed] == [("src/py2.py", "Python 2")]
    (site,) = manifest.site
    assert (site.path, site.symbol, site.api, site.owner) == (
        "src/app/git.py",
        "GitRunner.run",
        "subprocess.*",
        "scheduler",
    )
    assert (site.entrypoint, site.until, site.max_sites, site.followup) == (
        "app.jobs.submit",
        date(2027, 6, 30),
        3,
        None,
    )
    assert site.at.place == Place(21, 1)
    assert site.at.child("until").place == Place(28, 1)
    assert site.at.child("followup").place == Place(21, 1)
    assert manifest.boundaries is not None
    assert [value.value for value in manifest.boundaries.finite] == ["src/app/"]
    assert [value.at.place for value in manifest.boundaries.typed_argv] == [Place(33, 15)]


def test_defaults() -> None:
    manifest = ownership("version = 1\n")
    assert (manifest.roots, manifest.exclude, manifest.apis) == ((), (), ())
    assert manifest.max_file_bytes == 10 * 1024 * 1024
    assert manifest.selection == Selection()
    assert not manifest.tests


def test_bypass_values() -> None:
    manifest = bypass(
        """\
version = 1
scheduler = ["sched/"]
rollout = "active"
active = ["procs"]

[[rule]]
id = "procs"
targets = ["@task", "subprocess.run", "concurrent.futures.thread.ThreadPoolExecutor",
           "*.spawner().send", "os.sp*"]
message = "no processes"
use = "sched.submit"
allow = [
    { path = "tools/release.py", reason = "by hand", until = "2027-06-30" },
]
"""
    )
    assert manifest.problems == ()
    (rule,) = manifest.rule
    (allow,) = rule.allow
    assert (allow.path, allow.until, allow.at.place) == ("tools/release.py", date(2027, 6, 30), Place(13, 5))
    assert manifest.targets == (
        "subprocess.run",
        "concurrent.futures.ThreadPoolExecutor",
        "*.spawner().send",
        "os.sp*",
    )
    assert [t.catalogued for t in manifest.meanings.values()] == [True, True, True, False, True]
    assert manifest.watch == ("sched.submit",)
    assert manifest.selection.kinds == DEFAULT_KINDS | {ApiKind.TASK}


def test_submission_replaces_what_rules_say_to_use() -> None:
    rule = '[[rule]]\nid = "a"\ntargets = ["@pool"]\nmessage = "m"\nuse = "the scheduler, please"\n'
    assert bypass("version = 1\n" + rule).watch == ()
    assert bypass('version = 1\nsubmission = ["a.submit", "b.submit"]\n' + rule).watch == (
        "a.submit",
        "b.submit",
    )


@pytest.mark.parametrize("written", ["2027-06-30", '"2027-06-30"'])
def test_dates(written: str) -> None:
    (site,) = ownership(f'version = 1\n[[site]]\npath = "a.py"\nuntil = {written}\n').site
    assert type(site.until) is date
    assert site.until == date(2027, 6, 30)


# Errors: the whole line


def of_site(line: str) -> str:
    return f'version = 1\n\n[[site]]\npath = "a.py"\nowner = "scheduler"\nreason = "r"\n{line}\n'


PATTERN = "a file, or a folder with a trailing /, or a pattern with *, relative to the root and written with /"
KINDS = "`process`, `exec`, `pool`, `thread`, `task`, `loop`, `timer`, `dispatch`, `decorator` or `dynamic`"
RELATIVE = "allowed: a file, or a folder with a trailing /, relative to the root and written with /"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.toml:1: version: missing `version`; allowed: 1"),
        ("# c\nversion = 2\n", "m.toml:2: version: the integer 2 is not allowed; allowed: 1"),
        (
            "version = 1\nexclude = ['*a*b*c*d*']\n",
            (
                'm.toml:2: exclude: the string "*a*b*c*d*" is not allowed; '
                "allowed: a pattern as in .gitignore, with at most 4 `*` between two `/`"
            ),
        ),
        ("version = true\n", "m.toml:1: version: the boolean true is not allowed; allowed: 1"),
        ("version = 1.0\n", "m.toml:1: version: the float 1.0 is not allowed; allowed: 1"),
        (
            "version = 1\nversion = 1\n",
            "m.toml:2: not valid TOML: Cannot overwrite a value; here: version = 1",
        ),
        (
            "version = 1\n[catalog]\n[catalog]\n",
            "m.toml:3: not valid TOML: Cannot declare ('catalog',) twice; here: [catalog]",
        ),
        ('version = 1\nroots = ["a"', 'm.toml:2: not valid TOML: Unclosed array; here: roots = ["a"'),
        ("version = 1\x00\n", None),
        (
            "version = 1\ntests = 0x" + "f" * 5000,
            (
                f"m.toml:2: tests: an integer of more than 64 bits is not allowed; allowed: an array; "
                f"each element: {PATTERN}"
            ),
        ),
        (
            f"version = 1\nx = [1,\n 2, {'9' * 5000}]",
            "m.toml:3: not valid TOML: an integer of thousands of digits; here: 2, " + "9" * 56 + "…",
        ),
        ("x = " + "[" * 5000, "m.toml: nested too deeply"),
        ("x = " + "{a=" * 5000, "m.toml: nested too deeply"),
        (
            of_site('until = "2027-02-30"'),
            'm.toml:7: site.until: the string "2027-02-30" is not allowed; allowed: a date, YYYY-MM-DD',
        ),
        (
            of_site("until = 2027-02-03T00:00:00"),
            ("m.toml:7: site.until: the date-time 2027-02-03 00:00:00 is not allowed; allowed: a date, YYYY-MM-DD"),
        ),
        (
            of_site("until = 07:32:00"),
            "m.toml:7: site.until: the time 07:32:00 is not allowed; allowed: a date, YYYY-MM-DD",
        ),
        (
            of_site("max_sites = 0"),
            "m.toml:7: site.max_sites: the integer 0 is not allowed; allowed: a whole number of at least 1",
        ),
        (
            of_site("max_sites = true"),
            ("m.toml:7: site.max_sites: the boolean true is not allowed; allowed: a whole number of at least 1"),
        ),
        (
            of_site('entrypoint = "app.jobs:submit"'),
            (
                'm.toml:7: site.entrypoint: the string "app.jobs:submit" is not allowed; '
                "allowed: a qualified name such as `app.jobs.submit`"
            ),
        ),
        (
            of_site('api = "*.run"'),
            ('m.toml:7: site.api: the string "*.run" is not allowed; allowed: an API\'s name, which may end in `*`'),
        ),
        (
            of_site('symbol = ""'),
            (
                "m.toml:7: site.symbol: an empty string is not allowed; "
                "allowed: a function, class or method such as `Runner.run`; or leave the key out"
            ),
        ),
        (
            "version = 1\nsite = 3\n",
            "m.toml:2: site: the integer 3 is not allowed; allowed: an array of tables",
        ),
        ("version = 1\nsite = [\n 3]\n", "m.toml:3: site: the integer 3 is not allowed; allowed: a table"),
        (
            'version = 1\n[catalog]\nkinds = ["pool",\n "proces"]\n',
            (f'm.toml:4: catalog.kinds: the string "proces" is not allowed; did you mean `process`? allowed: {KINDS}'),
        ),
        (
            'version = 1\n[catalog]\nkinds = ["declared"]\n',
            (f'm.toml:3: catalog.kinds: the string "declared" is not allowed; allowed: {KINDS}'),
        ),
        (
            'version = 1\n[[catalog.api]]\nname = "a.b"\nkind = "pool"\nwhy = "w"\nform = "keyword"\n',
            (
                'm.toml:6: catalog.api.form: the string "keyword" is not allowed; '
                "allowed: `call`, `class`, `method`, `decorator` or `dynamic`"
            ),
        ),
        (
            'version = 1\nroots = ["../x"]\n',
            f'm.toml:2: roots: the string "../x" leads up with `..`; {RELATIVE}',
        ),
        (
            'version = 1\nroots = ["/x"]\n',
            f'm.toml:2: roots: the string "/x" is an absolute path; {RELATIVE}',
        ),
        (
            'version = 1\nroots = ["C:/x"]\n',
            f'm.toml:2: roots: the string "C:/x" is an absolute path; {RELATIVE}',
        ),
        (
            "version = 1\nroots = ['a\\b']\n",
            f'm.toml:2: roots: the string "a\\b" holds a backslash; {RELATIVE}',
        ),
        (
            'version = 1\nroots = ["./a"]\n',
            f'm.toml:2: roots: the string "./a" holds a `.` component; {RELATIVE}',
        ),
        (
            'version = 1\nroots = ["a//b"]\n',
            f'm.toml:2: roots: the string "a//b" holds an empty component; {RELATIVE}',
        ),
        ('version = 1\nroots = ["a*"]\n', f'm.toml:2: roots: the string "a*" is a pattern; {RELATIVE}'),
        (
            'version = 1\nroots = ["a\\nb"]\n',
            f'm.toml:2: roots: the string "a\\nb" holds an unprintable character; {RELATIVE}',
        ),
    ],
)
def test_unusable_manifest(text: str, message: str | None) -> None:
    with pytest.raises(ManifestError) as caught:
        ownership(text)
    line = str(caught.value)
    assert message is None or line == message
    assert line.startswith("m.toml")
    assert "\n" not in line
    assert line.isprintable()
    assert len(line) < 500


RULE = '[[rule]]\nid = "procs"\ntargets = ["@process"]\nmessage = "m"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'rollout = "obsrve"\n',
            (
                'm.toml:2: rollout: the string "obsrve" is not allowed; did you mean `observe`? '
                "allowed: `observe`, `active` or `mandatory`"
            ),
        ),
        (
            f'active = [\n  "proc"]\n{RULE}',
            "m.toml:3: active: no rule has the id `proc`; did you mean `procs`?",
        ),
        (
            RULE.replace('"@process"', ""),
            (
                "m.toml:4: rule.targets: an empty array is not allowed; allowed: an array; each element: "
                "`@kind`, a qualified name, a name with `*`, or a method chain"
            ),
        ),
        (
            RULE + 'allow = [\n  { path = "x/*.py", reason = "r" }]\n',
            f'm.toml:7: rule.allow.path: the string "x/*.py" is a pattern; {RELATIVE}',
        ),
    ],
)
def test_unusable_bypass_manifest(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        bypass("version = 1\n" + text)
    assert str(caught.value) == message


@pytest.mark.parametrize("target", [".", "subprocess.", "app.Runner..", "*.spawner().", "*.()", "()", "a b"])
def test_a_target_ends_in_a_name(target: str) -> None:
    with pytest.raises(ManifestError) as caught:
        bypass("version = 1\n" + RULE.replace("@process", target))
    assert str(caught.value) == (
        f'm.toml:4: rule.targets: the string "{target}" is not allowed; '
        "allowed: `@kind`, a qualified name, a name with `*`, or a method chain"
    )


# Faults of single entries


def test_faults_of_entries_are_findings() -> None:
    manifest = ownership(
        """\
version = 1
rots = ["src"]

[[site]]
path = "a.py"
owner = "schedular"
reasn = "typo"

[[site]]
owner = "deferred_domain_executor"
reason = "  "

[[site]]
path = "b.py"
reason = "r"
owner = "deferred_domain_executor"
followup = "issue 3"
"""
    )
    allowed = "version, roots, tests, exclude, max_file_bytes, catalog, unanalysed, rollout, active, site, boundaries"
    keys = "path, symbol, api, owner, reason, entrypoint, followup, until, max_sites"
    owners = f"{', '.join(f'`{owner}`' for owner in OWNERS[:-1])} or `{OWNERS[-1]}`"
    assert [(*b.split(" ", 2), f.help) for b, f in zip(brief(manifest.problems), manifest.problems, strict=True)] == [
        ("m.toml:2:1", "OWN004", "unknown key `rots`", f"did you mean `roots`? allowed: {allowed}"),
        ("m.toml:7:1", "OWN004", "unknown key `reasn` in `site`", f"did you mean `reason`? allowed: {keys}"),
        ("m.toml:4:1", "OWN009", "missing `reason` in `site`", "allowed: some words that say why"),
        (
            "m.toml:6:1",
            "OWN003",
            "unknown owner `schedular`",
            f"did you mean `scheduler`? allowed: {owners}",
        ),
        (
            "m.toml:9:1",
            "OWN009",
            "missing `path` in `site`",
            RELATIVE,
        ),
        ("m.toml:11:1", "OWN009", "empty `reason` in `site`", "allowed: some words that say why"),
        (
            "m.toml:9:1",
            "OWN009",
            'missing `followup` in `site`, which `owner = "deferred_domain_executor"` needs',
            "allowed: where the move to the scheduler is tracked",
        ),
    ]
    assert [site.path for site in manifest.site] == ["a.py", "b.py"]


@pytest.mark.parametrize("reason", ["", " \\t", "\\u00a0", "\\u200b\\ufeff", "\\u001b\\u0000"])
def test_a_reason_that_cannot_be_seen_is_none(reason: str) -> None:
    manifest = ownership(f'version = 1\n[[site]]\npath = "a.py"\nowner = "interactive"\nreason = "{reason}"\n')
    assert brief(manifest.problems) == ["m.toml:5:1 OWN009 empty `reason` in `site`"]


def test_faults_of_rules_are_findings() -> None:
    manifest = bypass(
        """\
version = 1
[[rule]]
id = "a"
target = ["@process"]
message = "m"
[[rule]]
targets = ["@process"]
allow = [
  { path = "x.py", resaon = "r" },
]
"""
    )
    assert brief(manifest.problems) == [
        "m.toml:4:1 BYP006 unknown key `target` in `rule`",
        "m.toml:2:1 BYP007 missing `targets` in `rule`",
        "m.toml:6:1 BYP007 missing `id` in `rule`",
        "m.toml:6:1 BYP007 missing `message` in `rule`",
        "m.toml:9:20 BYP006 unknown key `resaon` in `rule.allow`",
        "m.toml:9:3 BYP007 missing `reason` in `rule.allow`",
    ]
    assert [rule.id for rule in manifest.rule] == [""]


# Places

LINES = """\
# comment
version = 1
catalog.kinds = ["process", # "thread"
   "thread"]
a . "b.c" = 3

  [[site]] # [[site]]
path = "x"
allow = [
  # path = "a"
  { path = "a", until = 2027-01-01 },
  {path="b", a.b=2, "q"='r'},
]

[ b ]
[[site]]
  path = "y"
[site.sub]
d.e.g = \"\"\"
[[site]]
\"\"\"
[[tool.mypy.overrides]]
k=1
[tool.ruff]
[[tool.mypy.overrides]]
k=2
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_places(end: str) -> None:
    places = Places(LINES.replace("\n", end))
    assert places.of(("version",)) == Place(2, 1)
    assert places.of(("catalog",)) == Place(3, 1)
    assert places.of(("catalog", "kinds", 0)) == Place(3, 18)
    assert places.of(("catalog", "kinds", 1)) == Place(4, 4)
    assert places.of(("a", "b.c")) == Place(5, 1)
    assert places.of(("site", 0)) == Place(7, 3)
    assert places.of(("site", 0, "nope")) == Place(7, 3)
    assert places.of(("site", 0, "allow", 0, "until")) == Place(11, 17)
    assert places.of(("site", 0, "allow", 1, "a", "b")) == Place(12, 14)
    assert places.of(("site", 0, "allow", 1, "q")) == Place(12, 21)
    assert places.of(("b",)) == Place(15, 1)
    assert places.of(("site", 1, "path")) == Place(17, 3)
    assert places.of(("site", 1, "sub", "d", "e", "g")) == Place(19, 1)
    assert places.of(("tool", "mypy", "overrides", 0, "k")) == Place(23, 1)
    assert places.of(("tool", "ruff")) == Place(24, 1)
    assert places.of(("tool", "mypy", "overrides", 1, "k")) == Place(26, 1)
    assert places.of(("nowhere",)) == Place(1, 1)


@dataclass
class Written:
    """A manifest as generated, and the line on which each thing was written."""

    text: str
    lines: dict[tuple[str | int, ...], int]


_FILLER = st.sampled_from(["", "# path = 3", "  # [[site]]", "\t"])
_NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=6)


@st.composite
def written_manifests(draw: st.DrawFn) -> Written:
    lines = ["version = 1"]
    at: dict[tuple[str | int, ...], int] = {("version",): 1}
    counts = {"site": 0, "unanalysed": 0}

    def add(line: str, *keys: str | int) -> None:
        lines.extend(draw(st.lists(_FILLER, max_size=2)))
        lines.append(draw(st.sampled_from(["", "  "])) + line + draw(st.sampled_from(["", " # x = 1", "  "])))
        if keys:
            at[keys] = len(lines)

    for table in draw(st.lists(st.sampled_from(sorted(counts)), max_size=8)):
        index = counts[table]
        counts[table] += 1
        add(f"[[{table}]]", table, index)
        keys = ["path", "reason"] if table == "unanalysed" else ["path", "reason", "owner", "until", "note"]
        for key in draw(st.lists(st.sampled_from(keys), unique=True)):
            value = draw(
                st.sampled_from(
                    [
                        '"x"',
                        "'''\n[[site]]\n'''",
                        '[\n  "a", # ]\n  2027-01-01 ,\n]',
                        "{ a = 2027-01-01 , b.c = 1 }",
                    ]
                )
            )
            add(f"{key} = {value}", table, index, key)
            extra = value.count("\n")
            lines.extend(lines.pop().split("\n"))
            assert at[table, index, key] == len(lines) - extra
    text = draw(st.sampled_from(["\n", "\r\n"])).join(lines)
    return Written(text, at)


@given(written_manifests())
def test_places_are_where_things_were_written(written: Written) -> None:
    places = Places(written.text)
    assert {keys: places.of(keys).line for keys in written.lines} == written.lines


@given(st.lists(_FILLER, min_size=1, max_size=3), st.integers(0, 4))
def test_comments_change_nothing_but_lines(filler: list[str], where: int) -> None:
    lines = ["version = 1", "[[site]]", 'path = "a.py"', 'owner = "schedular"', 'reason = "r"']
    commented = [*lines[:where], *filler, *lines[where:]]
    plain, other = ownership("\n".join(lines)), ownership("\n".join(commented))
    assert [vars(entry) | {"at": None} for entry in other.site] == [vars(entry) | {"at": None} for entry in plain.site]
    shift = len(filler) if where <= 3 else 0
    assert [(f.code, f.message, f.line - shift) for f in other.problems] == [
        (f.code, f.message, f.line) for f in plain.problems
    ]


# Anything at all

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.datetimes()
    | st.times(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    [
        "version",
        "roots",
        "tests",
        "exclude",
        "max_file_bytes",
        "catalog",
        "unanalysed",
        "site",
        "boundaries",
        "scheduler",
        "submission",
        "rollout",
        "active",
        "rule",
        "path",
        "symbol",
        "api",
        "owner",
        "reason",
        "until",
        "max_sites",
        "kinds",
        "id",
        "targets",
        "allow",
        "finite",
        "followup",
    ]
)


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(held) for key, held in value.items() if held is not None}
    if isinstance(value, list):
        return [without_none(held) for held in value if held is not None]
    return value


_TABLES = st.dictionaries(
    _KEYS, _VALUES | st.lists(st.dictionaries(_KEYS, _VALUES, max_size=4), max_size=3), max_size=6
)


@settings(max_examples=200)
@given(_TABLES, st.booleans())
def test_any_toml_is_read_or_refused(data: dict[str, Any], versioned: bool) -> None:
    if versioned:
        data["version"] = 1
    try:
        text = tomlkit.dumps(without_none(data))
    except Exception:  # tomlkit writes not every value; what it writes is of interest
        return
    for read in (ownership, bypass):
        try:
            read(text)
        except ManifestError as error:
            assert "\n" not in str(error)  # noqa: PT017
            assert str(error).isprintable()  # noqa: PT017


@settings(max_examples=200)
@example("'\r0")
@given(st.text(max_size=80) | st.text("[]{}=.\"'\n\r #a1_,-:T\x00\ufeff", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for prefix in ("", "version = 1\n", "version = 1\n[[site]]\n"):
        try:
            ownership(prefix + text)
        except ManifestError as error:
            assert str(error).isprintable()  # noqa: PT017


# Files


def test_default_file(tmp_path: Path) -> None:
    write(tmp_path, OWNERSHIP, "version = 1\nmax_file_bytes = 7\n")
    manifest = load_ownership(tmp_path, None)
    assert (manifest.path, manifest.max_file_bytes) == (OWNERSHIP, 7)


def test_missing_manifest_says_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        load_bypass(tmp_path, None)
    assert str(caught.value) == (
        "manifests/scheduler-bypass.toml: there is no manifest; begin with a file that holds "
        "`version = 1`; `check-bypass --list-sites` shows what it has to speak of, and "
        "`check-bypass --explain BYP001` has an example"
    )


def test_given_file(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    file = write(tmp_path, "root/own.toml", "version = 1\n[[site]]\nowner = 'scheduler'\n")
    assert brief(load_ownership(tmp_path / "root", file).problems)[0].startswith("own.toml:2:1 OWN009")
    outside = write(tmp_path, "shared.toml", "version = 1\n")
    assert load_ownership(tmp_path / "root", outside).path == "../shared.toml"


PYPROJECT = """\
[project]
name = "x"

[tool.spawngate.ownership]
version = 1
max_file_bytes = 9

[[tool.spawngate.ownership.site]]
path = "a.py"
owner = "schedular"
reason = "r"
"""


def test_table_in_pyproject(tmp_path: Path) -> None:
    file = write(tmp_path, "pyproject.toml", PYPROJECT)
    for manifest in (load_ownership(tmp_path, None), load_ownership(tmp_path, file)):
        assert (manifest.path, manifest.max_file_bytes) == ("pyproject.toml", 9)
        assert brief(manifest.problems) == ["pyproject.toml:10:1 OWN003 unknown owner `schedular`"]
    with pytest.raises(ManifestError, match="there is no manifest"):
        load_bypass(tmp_path, None)


def test_string_in_pyproject_names_a_file(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", '[tool.spawngate]\nbypass = "ci/bypass.toml"\nownership = "../x.toml"\n')
    write(tmp_path, "ci/bypass.toml", 'version = 1\nscheduler = ["s/"]\n')
    manifest = load_bypass(tmp_path, None)
    assert (manifest.path, manifest.scheduler.entries) == ("ci/bypass.toml", ("s/",))
    with pytest.raises(ManifestError) as caught:
        load_ownership(tmp_path, None)
    assert str(caught.value) == (
        f'pyproject.toml:3: tool.spawngate.ownership: the string "../x.toml" leads up with `..`; {RELATIVE}'
    )


def test_two_manifests_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", PYPROJECT)
    write(tmp_path, OWNERSHIP, "version = 1\n")
    with pytest.raises(ManifestError) as caught:
        load_ownership(tmp_path, None)
    assert str(caught.value) == (
        "pyproject.toml: tool.spawngate.ownership: a second manifest beside "
        "manifests/execution-ownership.toml; keep one of the two"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool]\nspawngate = 3\n", "2: tool.spawngate: the integer 3 is not allowed; allowed: a table of {checks}"),
        (
            "[[tool.spawngate]]\nownership = 'a.toml'\n",
            "1: tool.spawngate: an array is not allowed; allowed: a table of {checks}",
        ),
        (
            "[tool.spawngate]\nownership = ['a.toml']\n",
            "2: tool.spawngate.ownership: an array is not allowed; allowed: {manifest}",
        ),
        (
            "[tool.spawngate]\nownership = true\n",
            "2: tool.spawngate.ownership: the boolean true is not allowed; allowed: {manifest}",
        ),
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_pyproject_of_wrong_types(tmp_path: Path, text: str, message: str, beside: bool) -> None:
    write(tmp_path, "pyproject.toml", text)
    if beside:
        write(tmp_path, OWNERSHIP, "version = 1\n")
    manifest = "a table, or a string that names the manifest's file"
    assert refused(tmp_path) == "pyproject.toml:" + message.format(checks="ownership or bypass", manifest=manifest)


def test_pyproject_that_is_no_toml(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", "[[[")
    with pytest.raises(ManifestError, match=r"^pyproject\.toml:1: not valid TOML"):
        load_ownership(tmp_path, None)
    write(tmp_path, OWNERSHIP, "version = 1\n")
    assert load_ownership(tmp_path, None).path == OWNERSHIP


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    write(tmp_path, OWNERSHIP, b"\xef\xbb\xbfversion = 1\r\n\r\n[[site]]\r\npath = 'a.py'\r\nowner = 'x'\r\n")
    assert brief(load_ownership(tmp_path, None).problems) == [
        f"{OWNERSHIP}:3:1 OWN009 missing `reason` in `site`",
        f"{OWNERSHIP}:5:1 OWN003 unknown owner `x`",
    ]


def refused(root: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        load_ownership(root, None)
    return str(caught.value)


def test_not_utf8(tmp_path: Path) -> None:
    write(tmp_path, OWNERSHIP, b"version = 1\n# caf\xe9\n")
    assert refused(tmp_path) == f"{OWNERSHIP}:2: not UTF-8, which TOML has to be"


def test_too_large(tmp_path: Path) -> None:
    write(tmp_path, OWNERSHIP, b"#" * (MAX_MANIFEST_BYTES + 1))
    assert refused(tmp_path) == (
        f"{OWNERSHIP}: the manifest is too large; allowed: 4 MiB; list folders instead of files"
    )


def test_folder(tmp_path: Path) -> None:
    (tmp_path / OWNERSHIP).mkdir(parents=True)
    assert refused(tmp_path) == f"{OWNERSHIP}: a folder, not a manifest"


def test_named_pipe(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    os.mkfifo(tmp_path / OWNERSHIP)
    assert refused(tmp_path) == f"{OWNERSHIP}: not a regular file, not a manifest"


def test_link_loop(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / OWNERSHIP).symlink_to(tmp_path / OWNERSHIP)
    assert refused(tmp_path) == f"{OWNERSHIP}: cannot be read: Too many levels of symbolic links"


def test_hostile_names(tmp_path: Path) -> None:
    for name in ("a\nb.toml", "a\udcff.toml", "a\0.toml"):
        with pytest.raises(ManifestError) as caught:
            load_ownership(tmp_path, tmp_path / name)
        assert str(caught.value).isprintable()


def test_hundred_thousand_entries() -> None:
    entry = '[[site]]\npath="f{}"\nowner="scheduler"\nreason="r"\n'
    manifest = ownership("version = 1\n" + "".join(map(entry.format, range(100_000))))
    assert (len(manifest.site), manifest.problems) == (100_000, ())


def test_a_dotted_key_without_end_takes_no_time() -> None:
    with pytest.raises(ManifestError) as caught:
        ownership("version = 1\n" + "a." * 100_000 + "a = 1\n")
    assert str(caught.value) == "m.toml:2: more than 2000 dots in a line; break it"


def test_similar_words_are_found_among_many() -> None:
    many = Vocabulary((f"src/pkg{i}/module{i}.py" for i in range(50_000)), "/")
    assert many.suggestion("src/pkg7/modul7.py") == "did you mean `src/pkg7/module7.py`?"
    assert many.suggestion("source/pkg7/module7.py") == "did you mean `src/pkg7/module7.py`?"
    assert many.suggestion("source/pkg7/modul7.py") == ""


def test_roots_have_to_exist(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    write(tmp_path, OWNERSHIP, 'version = 1\nroots = ["source",\n "sourec"]\n')
    assert refused(tmp_path) == f"{OWNERSHIP}:3: roots: there is no folder `sourec`; did you mean `source`?"


@pytest.mark.parametrize("key", ["tests", "boundaries.finite", "boundaries.typed_argv"])
def test_a_folder_ends_in_a_slash(tmp_path: Path, key: str) -> None:
    (tmp_path / "src").mkdir()
    write(tmp_path, OWNERSHIP, f'version = 1\n{key} = ["src"]\n')
    assert refused(tmp_path) == f"{OWNERSHIP}:2: {key}: `src` is a folder; write `src/`"


def test_a_path_too_long_for_any_file_system_holds_nothing(tmp_path: Path) -> None:
    name = "a" * 300
    write(tmp_path, OWNERSHIP, f'version = 1\ntests = ["{name}"]\n[boundaries]\nfinite = ["{name}"]\n')
    assert load_ownership(tmp_path, None).tests.entries == (name,)
    write(tmp_path, BYPASS, f'version = 1\nscheduler = ["{name}/{name}"]\n')
    assert load_bypass(tmp_path, None).scheduler.entries == (f"{name}/{name}",)
    write(tmp_path, OWNERSHIP, f'version = 1\nroots = ["{name}"]\n')
    assert refused(tmp_path) == f"{OWNERSHIP}:2: roots: there is no folder `{'a' * 59}…`"


def test_a_manifest_cannot_be_changed() -> None:
    manifest = ownership("version = 1\n")
    with pytest.raises(AttributeError, match="cannot be changed: rollout"):
        manifest.rollout = "observe"
    assert manifest.rollout == "mandatory"


def test_today_is_no_part_of_a_manifest() -> None:
    site = ownership(of_site("until = 1999-01-01")).site[0]
    assert site.until == datetime.date(1999, 1, 1)


# Documentation

PAGE = (Path(__file__).parents[2] / "docs" / "manifests.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def test_every_key_is_documented() -> None:
    tables = (OwnershipManifest, BypassManifest, SiteEntry, Boundaries, Rule, Allow, CatalogTable, CatalogApi)
    names = {name for table in tables for name in table.declared}
    missing = {name for name in names if not re.search(rf"`(\[+)?{name}(\]+)?`", PAGE)}
    assert missing - {"site", "catalog", "api"} == set()
    assert all(owner in PAGE for owner in OWNERS)


def test_documented_manifests_are_right() -> None:
    for kind, text in BLOCKS:
        if kind == "toml" and text.startswith("# manifests/"):
            read = ownership if OWNERSHIP in text else bypass
            assert read(text).problems == ()


def test_documented_messages_are_true() -> None:
    pairs = [(text, said) for (_, text), (kind, said) in pairwise(BLOCKS) if kind == "text"]
    assert len(pairs) == 5
    for text, said in pairs:
        try:
            printed = sorted(brief(ownership(text).problems))
        except ManifestError as error:
            printed = [str(error)]
        told = sorted(said.splitlines())
        assert [line[: len(start)] for line, start in zip(printed, (t.rstrip("…") for t in told), strict=True)] == [
            t.rstrip("…") for t in told
        ]


def test_an_unknown_check_in_pyproject_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.spawngate.bypas]\nversion = 1\n")
    with pytest.raises(ManifestError) as caught:
        load_bypass(tmp_path, None)
    assert str(caught.value) == (
        "pyproject.toml:1: tool.spawngate.bypas: unknown key; did you mean `bypass`? allowed: ownership, bypass"
    )
