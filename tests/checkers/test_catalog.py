"""The catalogue: its files keep their format, its facts are true of real Pythons, its lookups are right."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import checkers
from checkers.catalog import Catalog, Entry, Form, NameFacts
from checkers.model import ApiKind, Tier

PACKAGE = Path(checkers.__file__).parent
FILES = sorted((PACKAGE / "catalog").glob("*/*.toml"))
STDLIB = [path for path in FILES if path.parent.name == "stdlib"]
SOURCE_OF_FACTS = PACKAGE.parents[1] / "shared" / "data" / "catalogue.toml"

API_KEYS: Mapping[str, type] = {
    "name": str,
    "also": list,
    "kind": str,
    "form": str,
    "keyword": str,
    "tier": str,
    "why": str,
    "since": str,
    "until": str,
    "platform": str,
    "by_name": bool,
    "distribution": str,
}
NAME_KEYS: Mapping[str, type] = {
    "name": str,
    "also": list,
    "bases": list,
    "class": bool,
    "returns": str,
    "returns_by_argument": dict,
    "decorates": str,
    "members": dict,
}


@cache
def tables(path: Path) -> Mapping[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def rows(path: Path, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables(path).get(kind, [])
    return found


def root(name: str) -> str:
    return re.split(r"[.:]", name, maxsplit=1)[0]


@pytest.fixture(scope="module")
def everything() -> Catalog:
    return Catalog.load(Catalog.known_roots())


# --- the files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_file_keeps_the_format(path: Path) -> None:
    assert tables(path).keys() <= {"api", "name"}
    for row in rows(path, "api"):
        check_types(row, API_KEYS)
        check_api(row, path)
    for row in rows(path, "name"):
        check_types(row, NAME_KEYS)
        assert root(row["name"]) == path.stem or row.keys() == {"name", "also"}, row
    for row in (*rows(path, "api"), *rows(path, "name")):
        also = row.get("also", [])
        assert also == sorted(set(also)), row
        assert {root(spelling) for spelling in also} <= {path.stem}, row


def check_types(row: Mapping[str, Any], keys: Mapping[str, type]) -> None:
    assert row.keys() <= keys.keys(), row
    assert all(isinstance(value, keys[key]) for key, value in row.items()), row
    assert not any(value in ("", [], {}, False) for value in row.values()), row


def check_api(row: Mapping[str, Any], path: Path) -> None:
    assert root(row["name"]) == path.stem
    assert {"name", "kind", "form", "why"} <= row.keys(), row
    assert ApiKind(row["kind"]) is not ApiKind.DECLARED, row
    assert (Tier(row.get("tier", "core")) is Tier.STRICT) == (row["kind"] == ApiKind.DYNAMIC), row
    assert (Form(row["form"]) is Form.KEYWORD) == ("keyword" in row), row
    assert "*" not in row["name"] or (Form(row["form"]) is Form.KEYWORD and row["name"].endswith(".*")), row
    assert not row.get("by_name") or row["form"] == Form.METHOD, row
    assert (row["form"] == Form.DECORATOR) == (row["kind"] == ApiKind.DECORATOR) or row["kind"] == "timer", row
    assert "\n" not in row["why"], row
    assert re.fullmatch(r"3\.\d+", row.get("since", "3.0")), row
    assert re.fullmatch(r"3\.\d+", row.get("until", "3.0")), row
    assert row.get("platform", "win32") in ("win32", "posix"), row
    assert ("distribution" in row) == (path.parent.name == "third_party"), row
    assert row.get("tier") != Tier.CORE, f"{row['name']}: core is the default, leave it out"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_tables_are_sorted_and_unique(path: Path) -> None:
    for kind in ("api", "name"):
        names = [(row["name"], row.get("keyword", "")) for row in rows(path, kind)]
        assert names == sorted(set(names))


def test_each_root_has_one_file() -> None:
    assert len({path.stem for path in FILES}) == len(FILES) == len(Catalog.known_roots())


def test_each_spelling_stands_for_one_documented_name(everything: Catalog) -> None:
    stands = [row for path in FILES for kind in ("api", "name") for row in rows(path, kind)]
    spelled = [(spelling, row["name"]) for row in stands for spelling in row.get("also", [])]
    assert [spelling for spelling, count in Counter(s for s, _ in spelled).items() if count > 1] == []
    for spelling, name in spelled:
        assert everything.canonical(spelling) == name
        assert everything.entry(spelling) is None
        assert everything.facts(spelling) is None


def test_facts_refer_to_known_classes(everything: Catalog) -> None:
    for path in FILES:
        for row in rows(path, "name"):
            referred = [*row.get("bases", []), *row.get("members", {}).values()]
            referred += [*row.get("returns_by_argument", {}).values()]
            referred += [row[key] for key in ("returns", "decorates") if key in row]
            for name in referred:
                facts = everything.facts(name)
                assert facts is not None, (row, name)
                assert facts.is_class, (row, name)


def test_each_method_belongs_to_a_known_class(everything: Catalog) -> None:
    for entry in everything.entries:
        if entry.form is Form.METHOD:
            owner = everything.facts(entry.name.rpartition(".")[0])
            assert owner is not None, entry
            assert owner.is_class, entry
            assert everything.method(owner.name, entry.name.rpartition(".")[2]) == entry


# --- true of real Pythons -----------------------------------------------------------------------------------

PROBE = """
import importlib, json, site, sys, warnings
warnings.simplefilter("ignore")
site.sethelper()
MISSING = object()

def find(name):
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, MISSING)
            if found is MISSING:
                return MISSING
        return getattr(found, "__func__", found)
    return MISSING

answers = {}
for row in json.load(sys.stdin):
    found = find(row["name"])
    answers[row["name"]] = {
        "exists": found is not MISSING,
        "class": isinstance(found, type),
        "differs": [s for s in row["also"] if find(s) is not MISSING and find(s) is not found],
        "foreign": [b for b in row["bases"] if isinstance(found, type) and find(b) not in found.__mro__],
    }
json.dump(answers, sys.stdout)
"""
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
OPTIONAL = {"distutils", "ensurepip", "lib2to3", "test", "tkinter", "turtle", "venv"}
"""Parts of the standard library that distributors leave out."""


@cache
def interpreter(version: str) -> str | None:
    """A Python of ``version``: this one, one on PATH, or one that pyenv built."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    built = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    named = shutil.which(f"python{version}")
    for candidate in (*([named] if named else []), *map(str, built)):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run([candidate, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


@cache
def probe(version: str) -> dict[str, dict[str, Any]] | None:
    """What a Python of ``version`` finds under the names of the standard library; None if it is missing."""
    python = interpreter(version)
    if python is None:
        return None
    bases = {row["name"]: row.get("bases", []) for path in STDLIB for row in rows(path, "name")}
    asked: dict[str, dict[str, Any]] = {}
    for path in STDLIB:
        for row in (*rows(path, "api"), *rows(path, "name")):
            wanted = asked.setdefault(row["name"], {"name": row["name"], "also": [], "bases": []})
            wanted["also"] += row.get("also", [])
            wanted["bases"] = bases.get(row["name"], [])
    # -S: without site-packages, where setuptools lends out its own distutils.
    command = [python, "-I", "-S", "-c", PROBE]
    text = json.dumps(list(asked.values()))
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=120)
    answers: dict[str, dict[str, Any]] = json.loads(run.stdout)
    return answers


def answers_of(version: str) -> dict[str, dict[str, Any]]:
    answers = probe(version)
    if answers is None:
        pytest.skip(f"no Python {version} on this machine")
    return answers


def belongs(row: Mapping[str, Any], version: str) -> bool:
    """Whether the catalogue says that this platform's Python of ``version`` has the API."""
    here = as_pair(version)
    platform = {"win32": sys.platform == "win32", "posix": os.name == "posix"}.get(row.get("platform", ""), True)
    return platform and as_pair(row.get("since", "3.0")) <= here < as_pair(row.get("until", "4.0"))


def as_pair(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("version", VERSIONS)
def test_standard_library_entries_exist_where_the_catalogue_says(version: str) -> None:
    answers = answers_of(version)
    wrong = [
        row["name"]
        for path in STDLIB
        for row in rows(path, "api")
        if answers[row["name"]]["exists"] != belongs(row, version)
        and not (path.stem in OPTIONAL and not answers[row["name"]]["exists"])
    ]
    assert wrong == []


@pytest.mark.parametrize("version", VERSIONS)
def test_standard_library_spellings_are_the_same_object(version: str) -> None:
    answers = answers_of(version)
    assert {name: answer["differs"] for name, answer in answers.items() if answer["differs"]} == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_standard_library_classes_and_bases(version: str) -> None:
    answers = answers_of(version)
    assert {name: answer["foreign"] for name, answer in answers.items() if answer["foreign"]} == {}
    for path in STDLIB:
        for row in rows(path, "api"):
            answer = answers[row["name"]]
            if answer["exists"]:
                assert answer["class"] == (row["form"] == Form.CLASS), row


def test_each_standard_library_name_of_the_facts_exists_in_some_python() -> None:
    found = [answers for answers in map(probe, VERSIONS) if answers is not None]
    dated = {row["name"] for path in STDLIB for row in rows(path, "api") if row.keys() & {"since", "until", "platform"}}
    elsewhere = {  # on Windows, from 3.14, or of a library that adds a builtin
        "IPython.get_ipython",
        "asyncio.WindowsProactorEventLoopPolicy",
        "asyncio.WindowsSelectorEventLoopPolicy",
        "http.server.HTTPSServer",
    }
    for path in STDLIB:
        for row in rows(path, "name"):
            name: str = row["name"]
            later = name.startswith("concurrent.interpreters.")
            if later or root(name) in OPTIONAL or name in dated or name in elsewhere:
                continue
            assert any(answers[name]["exists"] for answers in found), name


# --- the source of the facts --------------------------------------------------------------------------------

NO_ENTRY = {
    "concurrent_log_handler": "a package: its entry is concurrent_log_handler.queue.setup_logging_queues",
    "docker.DockerClient.containers": "an attribute, which starts nothing: its methods are entries",
    "docker.from_env": "connects and starts nothing: facts give its client's class",
    "sklearn:n_jobs": "written as the name sklearn.* with the keyword n_jobs",
    "torch.utils.data.DataLoader:num_workers": "written with the keyword num_workers",
}
OTHER_KIND = {
    "asyncore's event loop runs, no process starts": (
        "asynchat.async_chat",
        "asyncore.loop",
        "smtpd.SMTPServer",
    ),
    "runs code in this process": (
        "builtins.__import__",
        "builtins.compile",
        "builtins.eval",
        "builtins.exec",
        "code.InteractiveInterpreter",
        "code.interact",
        "ctypes.CDLL",
        "ctypes.PyDLL",
        "importlib.import_module",
        "pdb.Pdb",
        "pdb.run",
        "runpy.run_module",
        "runpy.run_path",
    ),
    "a pool, as multiprocessing.Pool and the other pools are": (
        "apscheduler.executors.pool.ProcessPoolExecutor",
        "apscheduler.executors.pool.ThreadPoolExecutor",
        "multiprocessing.context.BaseContext.Pool",
        "parsl.load",
        "ray.util.multiprocessing.Pool",
        "submitit.AutoExecutor",
        "submitit.SlurmExecutor",
    ),
    "work is sent to a cluster, queue or command": (
        "django.core.management.call_command",
        "django.tasks.base.Task.enqueue",
        "kubernetes.client.AppsV1Api.create_namespaced_deployment",
        "kubernetes.client.BatchV1Api.create_namespaced_cron_job",
        "kubernetes.client.BatchV1Api.create_namespaced_job",
        "kubernetes.client.CoreV1Api.connect_get_namespaced_pod_exec",
        "kubernetes.client.CoreV1Api.create_namespaced_pod",
        "kubernetes.stream.stream",
    ),
    "the worker's own side, which starts processes or runs a loop": (
        "celery.app.base.Celery.worker_main",
        "rq.Worker.work",
        "temporalio.worker.Worker.run",
    ),
    "starts processes": ("torch.distributed.run.main", "torch.multiprocessing.spawn"),
    "what the method does, not the class it belongs to": (
        "tornado.ioloop.IOLoop.call_later",
        "tornado.ioloop.IOLoop.run_in_executor",
        "tornado.ioloop.IOLoop.spawn_callback",
    ),
    "a task serves the connection, commands start later": ("asyncssh.connect", "asyncssh.create_connection"),
}


def source_of_facts() -> list[dict[str, Any]]:
    if not SOURCE_OF_FACTS.exists():
        pytest.skip("the catalogue's source of facts is not beside this checkout")
    facts = tomllib.loads(SOURCE_OF_FACTS.read_text(encoding="utf-8"))
    return [*facts["api"], *facts["third_party"]]


def test_each_source_fact_is_an_entry_or_a_spelling(everything: Catalog) -> None:
    lost = {row["name"] for row in source_of_facts() if everything.entry(everything.canonical(row["name"])) is None}
    assert lost == NO_ENTRY.keys()


def test_kinds_follow_the_source_of_facts(everything: Catalog) -> None:
    entries = [(row, everything.entry(row["name"])) for row in source_of_facts()]
    other = {entry.name for row, entry in entries if entry is not None and entry.kind != row["kind"]}
    assert other == {name for names in OTHER_KIND.values() for name in names}


def test_private_homes_of_the_source_are_known(everything: Catalog) -> None:
    for row in source_of_facts():
        home = row.get("runtime_qualname")
        entry = everything.entry(everything.canonical(row["name"]))
        if home is None or entry is None:
            continue
        owner, _, attribute = home.rpartition(".")
        reached = everything.attribute(owner, attribute) or everything.canonical(home)
        target = everything.entry(reached)
        assert target is not None, row
        assert target.kind == entry.kind, row


# --- lookups ------------------------------------------------------------------------------------------------


def opened_by(roots: list[str]) -> list[str]:
    """Catalogue files that a fresh interpreter opens to load ``roots``."""
    code = (
        "import json, os, sys\n"
        "opened = []\n"
        "def hook(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith('.toml'):\n"
        "        opened.append(os.path.basename(args[0]))\n"
        "sys.addaudithook(hook)\n"
        "from checkers.catalog import Catalog\n"
        "Catalog.known_roots()\n"
        "assert not opened\n"
        f"Catalog.load({roots!r}); Catalog.load({roots!r})\n"
        "json.dump(opened, sys.stdout)\n"
    )
    path = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True, timeout=60)
    opened: list[str] = json.loads(run.stdout)
    return sorted(opened)


@pytest.mark.parametrize(
    ("roots", "files"),
    [
        (["subprocess"], ["subprocess.toml"]),
        (["posix"], ["os.toml", "posix.toml"]),
        (["loky"], ["concurrent.toml", "loky.toml"]),
        (["numpy", "proj"], []),
        ([], []),
    ],
)
def test_only_the_files_that_are_needed_are_opened(roots: list[str], files: list[str]) -> None:
    assert opened_by(roots) == files


def test_known_roots_are_import_names() -> None:
    roots = Catalog.known_roots()
    assert {"os", "posix", "concurrent", "celery", "IPython", "_thread", "builtins"} <= roots
    assert all(name.isidentifier() for name in roots)


@pytest.mark.parametrize(
    ("name", "documented"),
    [
        ("concurrent.futures.thread.ThreadPoolExecutor", "concurrent.futures.ThreadPoolExecutor"),
        (
            "concurrent.futures.thread.ThreadPoolExecutor.submit",
            "concurrent.futures.ThreadPoolExecutor.submit",
        ),
        ("asyncio.subprocess.create_subprocess_exec", "asyncio.create_subprocess_exec"),
        ("asyncio.events.AbstractEventLoop.run_in_executor", "asyncio.AbstractEventLoop.run_in_executor"),
        ("posix.fork", "os.fork"),
        ("nt.startfile", "os.startfile"),
        ("multiprocessing.context.Process", "multiprocessing.Process"),
        ("threading._start_new_thread", "_thread.start_new_thread"),
        ("_thread.start_new_thread", "_thread.start_new_thread"),
        ("celery.Task.delay", "celery.app.task.Task.delay"),
        ("celery.Celery", "celery.app.base.Celery"),
        ("dask.distributed.Client.submit", "distributed.Client.submit"),
        ("torch.multiprocessing.Process", "multiprocessing.Process"),
        ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn"),
        ("eventlet.green.subprocess.Popen", "subprocess.Popen"),
        ("six.moves.getoutput", "subprocess.getoutput"),
        ("joblib.externals.loky.get_reusable_executor", "loky.get_reusable_executor"),
        ("multiprocess.context.Process", "multiprocess.Process"),
        ("json.loads", "json.loads"),
        ("", ""),
    ],
)
def test_canonical(everything: Catalog, name: str, documented: str) -> None:
    assert everything.canonical(name) == documented


def known_names() -> Iterator[str]:
    for path in FILES:
        for row in (*rows(path, "api"), *rows(path, "name")):
            yield row["name"]
            yield from row.get("also", [])


WORDS = st.sampled_from(["submit", "delay", "x", "run", "Process", "spawn", "process", "Popen"])
NAMES = st.one_of(
    st.builds(
        lambda name, tail: ".".join([name, *tail]),
        st.sampled_from(sorted(set(known_names()))),
        st.lists(WORDS, max_size=3),
    ),
    st.builds(".".join, st.lists(WORDS, max_size=5)),
)


@given(NAMES)
def test_canonical_is_idempotent(name: str) -> None:
    catalog = Catalog.load(Catalog.known_roots())
    documented = catalog.canonical(name)
    assert catalog.canonical(documented) == documented


@given(NAMES, WORDS)
def test_canonical_of_a_prefix_carries_over(name: str, attribute: str) -> None:
    catalog = Catalog.load(Catalog.known_roots())
    whole = catalog.canonical(f"{name}.{attribute}")
    by_prefix = catalog.canonical(f"{catalog.canonical(name)}.{attribute}")
    own_spelling = any(f"{name}.{attribute}" == known for known in known_names())
    assert whole == by_prefix or own_spelling


@given(st.sets(st.sampled_from(sorted(Catalog.known_roots())), max_size=4))
def test_a_part_of_the_catalogue_says_what_the_whole_says(roots: set[str]) -> None:
    part, whole = Catalog.load(roots), Catalog.load(Catalog.known_roots())
    for entry in part.entries:
        assert entry in whole.entries
        assert part.canonical(entry.name) == whole.canonical(entry.name) == entry.name


def api_of(catalog: Catalog, type_name: str, attribute: str) -> str | None:
    entry = catalog.method(type_name, attribute)
    return None if entry is None else entry.name


@pytest.mark.parametrize(
    ("type_name", "attribute", "api"),
    [
        ("concurrent.futures.ThreadPoolExecutor", "submit", "concurrent.futures.Executor.submit"),
        ("concurrent.futures.process.ProcessPoolExecutor", "map", "concurrent.futures.Executor.map"),
        ("concurrent.futures.ThreadPoolExecutor", "shutdown", None),
        ("loky.ProcessPoolExecutor", "submit", "concurrent.futures.Executor.submit"),
        ("threading.Timer", "start", "threading.Thread.start"),
        ("multiprocessing.pool.ThreadPool", "imap", "multiprocessing.pool.Pool.imap"),
        ("multiprocessing.Process", "start", "multiprocessing.process.BaseProcess.start"),
        ("multiprocessing.context.SpawnContext", "Process", "multiprocessing.context.SpawnContext.Process"),
        ("multiprocessing.context.SpawnContext", "Pool", "multiprocessing.context.BaseContext.Pool"),
        ("multiprocessing.context.SpawnContext", "Queue", "multiprocessing.Queue"),
        ("asyncio.SelectorEventLoop", "run_in_executor", "asyncio.AbstractEventLoop.run_in_executor"),
        ("celery.group", "apply_async", "celery.canvas.Signature.apply_async"),
        ("celery.Task", "delay", "celery.app.task.Task.delay"),
        ("fabric.Connection", "run", "fabric.Connection.run"),
        ("boto3.client:batch", "submit_job", "boto3.client:batch.submit_job"),
        ("mypy_boto3_batch.BatchClient", "submit_job", "boto3.client:batch.submit_job"),
        (
            "twisted.internet.posixbase.PosixReactorBase",
            "callLater",
            "twisted.internet.interfaces.IReactorTime.callLater",
        ),
        ("proj.Unknown", "submit", None),
    ],
)
def test_method(everything: Catalog, type_name: str, attribute: str, api: str | None) -> None:
    assert api_of(everything, type_name, attribute) == api


def test_attribute_names_facts_of_methods_too(everything: Catalog) -> None:
    assert everything.attribute("subprocess.Popen", "communicate") == "subprocess.Popen.communicate"
    assert everything.attribute("multiprocessing.context.ForkContext", "get_context") == (
        "multiprocessing.context.BaseContext.get_context"
    )
    assert everything.attribute("celery.Celery", "task") == "celery.app.base.Celery.task"
    assert everything.attribute("subprocess.Popen", "pid") is None


def test_facts_lead_from_a_factory_to_the_receiver(everything: Catalog) -> None:
    get_context = everything.facts("multiprocessing.get_context")
    assert get_context is not None
    assert get_context.returns == "multiprocessing.context.DefaultContext"
    assert get_context.returns_by_argument["spawn"] == "multiprocessing.context.SpawnContext"
    pool = everything.facts("multiprocessing.context.BaseContext.Pool")
    assert pool is not None
    assert pool.returns == "multiprocessing.pool.Pool"
    task = everything.facts("celery.app.base.Celery.task")
    assert task is not None
    assert task.decorates == "celery.app.task.Task"
    assert everything.facts("asyncio.get_running_loop") == NameFacts(
        "asyncio.get_running_loop", returns="asyncio.AbstractEventLoop"
    )
    assert everything.facts("subprocess.Popen") == NameFacts("subprocess.Popen", is_class=True)
    assert everything.facts("subprocess.run") is None


def test_members_hold_instances(everything: Catalog) -> None:
    assert (
        everything.member("docker.client.DockerClient", "containers") == "docker.models.containers.ContainerCollection"
    )
    assert everything.member("sh", "git") == "sh.Command"
    assert everything.member("sh.Command", "log") == "sh.Command"
    assert everything.member("git.Repo", "git") == "git.cmd.Git"
    assert everything.member("git.cmd.Git", "status") == "git.cmd.Git:command"
    assert everything.method("git.cmd.Git", "status") is None
    assert api_of(everything, "git.cmd.Git:command", "__call__") == "git.cmd.Git:command.__call__"
    assert everything.member("twisted.internet", "reactor") == "twisted.internet.posixbase.PosixReactorBase"
    assert everything.member("twisted.internet", "task") is None
    assert everything.member("subprocess", "git") is None


def test_by_name_finds_telling_methods_of_loaded_files_only(everything: Catalog) -> None:
    assert [entry.name for entry in everything.by_name("delay")] == ["celery.app.task.Task.delay"]
    assert everything.by_name("submit") == ()
    assert Catalog.load(["subprocess"]).by_name("delay") == ()


def test_keyword_entries_go_by_name_or_package(everything: Catalog) -> None:
    (loader,) = everything.keyword_entries(everything.canonical("torch.utils.data.dataloader.DataLoader"))
    assert (loader.name, loader.keyword, loader.kind) == (
        "torch.utils.data.DataLoader",
        "num_workers",
        ApiKind.POOL,
    )
    (forest,) = everything.keyword_entries("sklearn.ensemble.RandomForestClassifier")
    assert (forest.name, forest.keyword) == ("sklearn.ensemble.RandomForestClassifier", "n_jobs")
    assert everything.keyword_entries("sklearn") == ()
    assert everything.keyword_entries("sklearnx.ensemble") == ()
    assert everything.entry("torch.utils.data.DataLoader") is None


def test_strict_entries_are_dynamic_code(everything: Catalog) -> None:
    strict = {entry.name for entry in everything.entries if entry.tier is Tier.STRICT}
    assert {
        "builtins.exec",
        "builtins.getattr",
        "importlib.import_module",
        "runpy.run_path",
        "ctypes.CDLL",
    } <= strict
    getattr_entry = everything.entry("builtins.getattr")
    assert getattr_entry is not None
    assert getattr_entry.form is Form.DYNAMIC


def test_extra_entries_of_a_project_come_first() -> None:
    own = Entry("proj.jobs.Queue.push", ApiKind.DISPATCH, Form.METHOD, why="our queue")
    own_class = Entry("proj.jobs.Queue", ApiKind.POOL, Form.CLASS)
    milder = Entry("subprocess.run", ApiKind.PROCESS, tier=Tier.POLICY)
    keyword = Entry("proj.load", ApiKind.POOL, Form.KEYWORD, keyword="workers")
    catalog = Catalog.load(["subprocess"], [own, own_class, milder, keyword])
    assert catalog.method("proj.jobs.Queue", "push") is own
    assert catalog.entry("subprocess.run") is milder
    facts = catalog.facts("proj.jobs.Queue")
    assert facts is not None
    assert facts.is_class
    assert catalog.keyword_entries("proj.load") == (keyword,)
    assert catalog.entries[-1] is keyword
    assert {own, own_class, milder} <= set(catalog.entries)
