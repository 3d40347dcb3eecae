"""The rules on real source: manifests and files on disk, through the engine."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from checkers.catalog import Form
from checkers.engine import Scan, scan
from checkers.manifests import ManifestError, bypass_from_text, load_bypass, load_ownership
from checkers.model import ApiKind
from checkers.rules import Judgement, bypass, ownership
from tests.checkers.trees import places

TODAY = date(2026, 6, 1)
START = "`{}` starts work outside the scheduler: processes start in the scheduler (rule `processes`)"

GIT = """\
import os
import shlex
import subprocess
import threading

from app.jobs import submit


class Runner:
    def run(self, command, **options):
        process = subprocess.Popen(command.split(), stdout=subprocess.PIPE)
        process.communicate()
        process.wait()
        process.stdout.read()
        return subprocess.run(command, **options)

    def shell(self, command):
        argv = command.split()
        subprocess.run(argv, timeout=5, capture_output=True)
        subprocess.run(shlex.split(command), timeout=5, shell=False)
        subprocess.Popen(*argv)


os.system("true")


def later(app):
    submit(later)
    app.spawner().send("x")
    # scheduler-audit: standalone-compat
    threading.Thread(target=later)
"""

OWNERSHIP = """\
version = 1
tests = ["tests/"]

[[site]]
path = "src/app/git.py"
symbol = "Runner"
owner = "scheduler"
reason = "git work is a job"
entrypoint = "app.jobs.submit"

[[site]]
path = "src/app/git.py"
symbol = "Runner.shell"
api = "subprocess.*"
owner = "interactive"
reason = "typed by hand"
entrypoint = "app.jobs.sumbit"

[[site]]
path = "src/app/jobs.py"
owner = "scheduler"
reason = "nothing there"

[boundaries]
finite = ["src/"]
typed_argv = ["src/app/git.py"]
"""

BYPASS = """\
version = 1
tests = ["tests/"]

[[rule]]
id = "processes"
targets = ["@process", "*.spawner().send"]
message = "processes start in the scheduler"
use = "app.jobs.submit"
allow = [
    { path = "src/app/git.py", reason = "to be moved" },
    { path = "tools/", reason = "run by hand" },
]

[[rule]]
id = "threads"
targets = ["threading.Thread"]
message = "no threads"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for path, text in {
        "src/app/__init__.py": "",
        "src/app/git.py": GIT,
        "src/app/jobs.py": "def submit(job): ...\n",
        "tools/release.py": "import os\nos.system('true')\n",
        "tests/test_git.py": "import os\nos.system('true')\n",
        "manifests/execution-ownership.toml": OWNERSHIP,
        "manifests/scheduler-bypass.toml": BYPASS,
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
    return tmp_path


def check_ownership(root: Path) -> Judgement:
    manifest = load_ownership(root, None)
    tree = scan(Scan(root, roots=manifest.roots, exclude=manifest.exclude, apis=manifest.apis, jobs=1, whole=True))
    return ownership.judge(tree, manifest, selection=manifest.selection, today=TODAY)


def check_bypass(root: Path) -> Judgement:
    manifest = load_bypass(root, None)
    tree = scan(Scan(root, targets=manifest.targets, watch=manifest.watch, jobs=1, whole=True))
    return bypass.judge(tree, manifest, selection=manifest.selection, today=TODAY)


def test_ownership(project: Path) -> None:
    judgement = check_ownership(project)
    assert places(judgement.findings) == [
        "manifests/execution-ownership.toml:17 OWN010",
        "manifests/execution-ownership.toml:19 OWN006",
        "src/app/git.py:11 OWN033",
        "src/app/git.py:12 OWN030",
        "src/app/git.py:12 OWN032",
        "src/app/git.py:13 OWN032",
        "src/app/git.py:14 OWN030",
        "src/app/git.py:15 OWN030",
        "src/app/git.py:15 OWN031",
        "src/app/git.py:15 OWN032",
        "src/app/git.py:19 OWN030",
        "src/app/git.py:19 OWN033",
        "src/app/git.py:21 OWN031",
        "src/app/git.py:21 OWN033",
        "src/app/git.py:24 OWN001",
        "src/app/git.py:24 OWN031",
        "src/app/git.py:31 OWN001",
        "tools/release.py:2 OWN001",
    ]
    owners = {(site.line, site.symbol): owned.owner for site, owned in judgement.owners.items()}
    assert owners == {
        (11, "Runner.run"): "scheduler",
        (15, "Runner.run"): "scheduler",
        (19, "Runner.shell"): "interactive",
        (20, "Runner.shell"): "interactive",
        (21, "Runner.shell"): "interactive",
    }


def test_bypass(project: Path) -> None:
    judgement = check_bypass(project)
    assert places(judgement.findings) == [
        "manifests/scheduler-bypass.toml:10 BYP002",
        "src/app/git.py:11 BYP001",
        "src/app/git.py:15 BYP001",
        "src/app/git.py:19 BYP001",
        "src/app/git.py:20 BYP001",
        "src/app/git.py:21 BYP001",
        "src/app/git.py:24 BYP001",
        "src/app/git.py:29 BYP001",
    ]
    assert places(judgement.failing("active", ["threads"])) == []
    assert judgement.failing("active", ["processes"]) == judgement.findings


def test_a_call_of_the_submission_api_makes_a_file_mixed(project: Path) -> None:
    git = project / "src/app/git.py"
    git.write_text(GIT.replace("# scheduler-audit: standalone-compat", ""), encoding="utf-8")
    mixed = [finding for finding in check_bypass(project).findings if finding.code == "BYP002"]
    assert [finding.message for finding in mixed] == [
        "`src/app/git.py` is allowed as a whole, but it calls the submission API `app.jobs.submit`"
    ]


def test_a_file_that_cannot_be_parsed_makes_nothing_stale(project: Path) -> None:
    (project / "src/app/git.py").write_text("def (\n", encoding="utf-8")
    assert places(check_ownership(project).findings) == [
        "manifests/execution-ownership.toml:17 OWN010",
        "manifests/execution-ownership.toml:19 OWN006",
        "tools/release.py:2 OWN001",
    ]
    assert places(check_bypass(project).findings) == []


def test_what_is_inherited_kept_or_brought_by_a_star_is_no_stale_name(tmp_path: Path) -> None:
    for path, text in {
        "app/base.py": "class Base:\n    def submit(self, job): ...\n\n\ndef start(job): ...\n",
        "app/jobs.py": "from app.base import *\n\n\nclass Queue(Base): ...\n",
        "app/run.py": "import os\nfrom app.jobs import Queue, start\n\nQueue().submit(1)\nstart(1)\nos.system('x')\n",
        "app/kept.py": "from app.jobs import Queue\n\nQUEUE = Queue()\n",
        "manifests/scheduler-bypass.toml": """\
            version = 1
            submission = [
              "app.jobs.Queue.submit", "app.jobs.Base", "app.kept.QUEUE.submit",
              "app.jobs.Queue.sumbit", "app.kept.QUEUE.sumbit",
            ]

            [[catalog.api]]
            name = "app.jobs.start"
            kind = "process"
            why = "starts a job"

            [[catalog.api]]
            name = "app.jobs.strat"
            kind = "process"
            why = "starts a job"

            [[rule]]
            id = "processes"
            targets = ["@process"]
            message = "processes start in the scheduler"
            allow = [{ path = "app/run.py", reason = "to be moved" }]
            """,
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
    manifest = load_bypass(tmp_path, None)
    named = ("app.jobs.start", "app.jobs.strat", *manifest.watch)
    found = scan(Scan(tmp_path, jobs=1, apis=manifest.apis, watch=manifest.watch, named=named))
    assert found.names.issuperset({"app.jobs.Queue.submit", "app.jobs.Base", "app.kept.QUEUE.submit"})
    judged = bypass.judge(found, manifest, selection=manifest.selection, today=TODAY)
    assert [(finding.path[-9:], finding.line, finding.code, finding.message) for finding in judged.findings] == [
        ("pp/run.py", 5, "BYP001", START.format("app.jobs.start")),
        ("pp/run.py", 6, "BYP001", START.format("os.system")),
        ("pass.toml", 4, "BYP004", "submission API `app.jobs.Queue.sumbit` names nothing in this project"),
        ("pass.toml", 4, "BYP004", "submission API `app.kept.QUEUE.sumbit` names nothing in this project"),
        ("pass.toml", 13, "BYP004", "stale API: `app.jobs.strat` names nothing in this project"),
        (
            "pass.toml",
            21,
            "BYP002",
            "`app/run.py` is allowed as a whole, but it calls the submission API `app.jobs.Queue.submit`",
        ),
    ]


WORDS = st.sampled_from(["app", "jobs", "submit", "subprocess", "run", "*", "()", "[]", ".", ".", "@process", "é", "-"])


# The project is only read.
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(target="subprocess.")
@example(target="*.spawner().")
@given(target=st.lists(WORDS, min_size=1, max_size=6).map("".join))
def test_a_target_is_refused_or_looked_for(project: Path, target: str) -> None:
    text = f'version = 1\n[[rule]]\nid = "any"\ntargets = ["{target}"]\nmessage = "m"\n'
    try:
        manifest = bypass_from_text(text, "m.toml")
    except ManifestError:
        return  # tests/checkers/test_manifests.py tells which
    found = scan(Scan(project, jobs=1, targets=manifest.targets, named=manifest.targets))
    judged = bypass.judge(found, manifest, selection=manifest.selection, today=TODAY)
    # A rule governs something, or is told to be stale.
    assert {finding.code for finding in judged.findings} <= {"BYP001", "BYP004"}


@pytest.mark.parametrize("kind", [kind for kind in ApiKind if kind is not ApiKind.DECLARED])
@pytest.mark.parametrize("form", Form)
def test_an_api_of_ones_own_is_refused_or_looked_for(project: Path, form: Form, kind: ApiKind) -> None:
    text = f"""\
version = 1

[catalog]
kinds = ["{kind}"]

[[catalog.api]]
name = "app.jobs.submit"
kind = "{kind}"
form = "{form}"
why = "starts a job"
"""
    (project / "m.toml").write_text(text, encoding="utf-8")
    if form is Form.KEYWORD:
        with pytest.raises(
            ManifestError, match=r'^m\.toml:9: catalog\.api\.form: the string "keyword" is not allowed; '
        ):
            load_ownership(project, project / "m.toml")
        return
    manifest = load_ownership(project, project / "m.toml")
    tree = scan(Scan(project, jobs=1, apis=manifest.apis, named=("app.jobs.submit",)))
    found = [(site.line, site.column) for file in tree.files for site in file.sites if site.api == "app.jobs.submit"]
    assert found == [(28, 5)]
