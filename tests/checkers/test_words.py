"""What is passed over holds nothing: every way by which a file may govern without the API's own name in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from checkers import catalog, engine, finding
from checkers.facts import syntax
from checkers.intake import pipeline, words, workers
from checkers.model import ApiKind, Tree
from tests.checkers.trees import write

TREES: dict[str, tuple[dict[str, str], list[str]]] = {
    "an alias": (
        {"a.py": "import subprocess\nlaunch = subprocess.run\n", "b.py": "from a import launch\nlaunch('x')\n"},
        ["a.py:2 subprocess.run", "b.py:2 subprocess.run"],
    ),
    "an alias of an alias, through a file without words of its own": (
        {
            "a.py": "from os import system as go\n",
            "b.py": "import a\nonward = a.go\n",
            "c.py": "import b as other\nother.onward('x')\n",
        },
        ["b.py:2 os.system", "c.py:2 os.system"],
    ),
    "a name imported by a star": (
        {"a.py": "from os import system as go\n", "b.py": "from a import *\ngo('x')\n"},
        ["b.py:2 os.system"],
    ),
    "a module under another name": (
        {"a.py": "import subprocess as sp\n", "b.py": "import a\na.sp.run('x')\n"},
        ["b.py:2 subprocess.run"],
    ),
    "a module that is assigned": (
        {"a.py": "import os\nplatform_os = os\n", "b.py": "from a import platform_os\nplatform_os.system('x')\n"},
        ["b.py:2 os.system"],
    ),
    "a module in an attribute": (
        {
            "a.py": "import os\nclass Box:\n    def __init__(self):\n        self.held = os\nbox = Box()\n",
            "b.py": "from a import box\nbox.held.system('x')\n",
        },
        ["b.py:2 os.system"],
    ),
    "a method of what another file made": (
        {
            "a.py": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor()\n",
            "b.py": "from a import pool\n",
            "c.py": "from b import pool\ndef f():\n    pool.submit(print)\n",
        },
        ["a.py:2 concurrent.futures.ThreadPoolExecutor", "c.py:3 concurrent.futures.Executor.submit"],
    ),
    "a subclass of a subclass": (
        {
            "a.py": "import threading\nclass One(threading.Thread): pass\n",
            "b.py": "from a import One\nclass Two(One): pass\n",
            "c.py": "from b import Two\nTwo()\n",
        },
        ["a.py:2 threading.Thread", "b.py:2 threading.Thread", "c.py:2 threading.Thread"],
    ),
    "a class that a renamed base makes, two files away": (
        {
            "a.py": "import threading\nclass One(threading.Thread): pass\n",
            "b.py": "from a import One as Base\n",
            "c.py": "import b\nclass Two(b.Base): pass\n",
        },
        ["a.py:2 threading.Thread", "c.py:2 threading.Thread"],
    ),
    "a class made by the class of an instance": (
        {
            "a.py": "import threading\nclass One(threading.Thread):\n    def again(me):\n        return type(me)()\n",
            "b.py": "from a import One\ndef f(x: One):\n    kind = type(x)\n    return kind()\n",
        },
        ["a.py:2 threading.Thread", "a.py:4 threading.Thread", "b.py:4 threading.Thread"],
    ),
    "a class method that makes its class": (
        {"a.py": "import threading\nclass A(threading.Thread):\n    @classmethod\n    def f(kind):\n        kind()\n"},
        ["a.py:2 threading.Thread", "a.py:5 threading.Thread"],
    ),
    "a function that returns a class": (
        {
            "a.py": "import threading\ndef kind() -> type[threading.Thread]: ...\n",
            "b.py": "from a import kind\nmade = kind()\nmade()\n",
            "c.py": "import b\nb.made()\n",
        },
        ["b.py:3 threading.Thread", "c.py:2 threading.Thread"],
    ),
    "an attribute that holds a callable": (
        {
            "a.py": "import os\nclass Box:\n    go = os.system\n",
            "b.py": "from a import Box\ndef f():\n    Box.go('x')\n",
        },
        ["a.py:3 os.system", "b.py:3 os.system"],
    ),
    "a global that a function sets": (
        {
            "a.py": "import os\nrun = None\ndef setup():\n    global run\n    run = os.system\n",
            "b.py": "import a\na.run('x')\n",
        },
        ["a.py:5 os.system", "b.py:2 os.system"],
    ),
    "strings": (
        {
            "a.py": "import os\ngo = getattr(os, 'system')\n",
            "b.py": "import a, sys, importlib\ngetattr(a, 'go')('x')\nvars(a)['go']('x')\n",
            "c.py": "import sys\nsys.modules['subprocess'].run('x')\n",
            "d.py": "import importlib\nimportlib.import_module('subprocess').run('x')\n",
            "e.py": "import os\ngetattr(os, 'sys' 'tem')('x')\ngetattr(os, '\\x73ystem')('x')\n",
        },
        [
            *("a.py:2 os.system", "b.py:2 os.system", "b.py:3 os.system", "c.py:2 subprocess.run"),
            *("d.py:2 subprocess.run", "e.py:2 os.system", "e.py:3 os.system"),
        ],
    ),
    "a module under a third name": (
        {
            "a.py": "import subprocess as sp\nimport multiprocessing\nimport concurrent.futures as cf\n",
            "b.py": "from a import sp as q\nimport a\nr = a.multiprocessing\n",
            "c.py": "import b\nb.q.run(1)\nb.r.Pool()\n",
            "d.py": "from a import *\ns = cf\n",
            "e.py": "from d import s\ns.ThreadPoolExecutor()\n",
        },
        ["c.py:2 subprocess.run", "c.py:3 multiprocessing.Pool", "e.py:2 concurrent.futures.ThreadPoolExecutor"],
    ),
    "a module within a module that is assigned": (
        {"a.py": "import multiprocessing.pool\nx = multiprocessing.pool\n", "b.py": "import a\na.x.ThreadPool()\n"},
        ["b.py:2 multiprocessing.pool.ThreadPool"],
    ),
    "a class that is made of a module which another file imports": (
        {
            "a.py": "import boto3\nimport docker as d\n",
            "b.py": "import a\na.boto3.client('batch').submit_job()\nbox = a.d.from_env()\n",
            "c.py": "from b import box\nbox.containers.run('x')\n",
        },
        ["b.py:2 boto3.client:batch.submit_job", "c.py:2 docker.models.containers.ContainerCollection.run"],
    ),
    "a module out of a tuple, a loop, a with, a call": (
        {
            "a.py": "import os, contextlib\nfor m in (os,): pass\npair = (os, 1)\nn, _ = pair\n"
            "with contextlib.closing(os) as o: pass\ndef f(x=os):\n    global p\n    p = x\n",
            "b.py": "import a\na.m.system(1)\na.n.system(2)\na.o.system(3)\na.p.system(4)\n",
        },
        [f"b.py:{line} os.system" for line in (2, 3, 4, 5)],
    ),
    "a module by way of a nonlocal name": (
        {
            "a.py": "import os\nn = os\ndef f():\n    v = None\n    def g():\n        nonlocal v\n        v = n\n"
            "    global m\n    m = v\n",
            "b.py": "import a\na.m.system(1)\n",
        },
        ["b.py:2 os.system"],
    ),
    "names by attrgetter": (
        {
            "a.py": "import subprocess as sp\nimport sh\nfrom operator import attrgetter as ag\n",
            "b.py": "import a\nfrom operator import attrgetter\nrun = attrgetter('sp.run')(a)\nrun(1)\n"
            "attrgetter('sh')(a).ls()\nclass C:\n    get = attrgetter\n    got = get\nC.got('sp.call')(a)(2)\n",
        },
        ["b.py:4 subprocess.run", "b.py:5 sh.Command.__call__", "b.py:9 subprocess.call"],
    ),
    "a function that gives a class, by a string": (
        {
            "a.py": "import threading\ndef kind() -> type[threading.Thread]: ...\nsame = kind.__wrapped__\n",
            "b.py": "import a\ngetattr(a, 'kind')()()\nvars(a)['same']()()\n",
        },
        ["b.py:2 threading.Thread", "b.py:3 threading.Thread"],
    ),
    "the class of an object that another file made": (
        {
            "a.py": "import threading\nx = threading.Thread()\n",
            "b.py": "from a import x\nkind = type(x)\ndef f():\n    return [x.__class__(), type((x))()]\n",
            "c.py": "import b\nb.kind()\n",
        },
        ["a.py:2 threading.Thread", "b.py:4 threading.Thread", "c.py:2 threading.Thread"],
    ),
    "the class of an object that an annotated function gives": (
        {
            "a.py": "import threading\ndef made() -> threading.Thread: ...\nx = made()\nkind = type(x)\n",
            "b.py": "from a import kind as k\nk()\n",
        },
        ["b.py:2 threading.Thread"],
    ),
    "a class derived from the class of an object that another file made": (
        {
            "a.py": "import threading\nx = threading.Thread().__enter__()\n",
            "b.py": "from a import x\nclass Own(dict, type(x)): ...\n",
            "c.py": "from b import x\nclass Own(x.__class__): ...\n",
        },
        [f"{file}:2 threading.Thread" for file in ("a.py", "b.py", "c.py")],
    ),
    "itself by a string": (
        {
            "a.py": "import os\nclass C:\n    go = getattr(os.system, '__call__')\n",
            "b.py": "import a\nfrom operator import attrgetter\nrun = attrgetter('__call__')(a.C.go)\n",
            "c.py": "from b import run\nrun(1)\n",
        },
        ["a.py:3 os.system", "b.py:3 os.system", "c.py:2 os.system"],
    ),
    "a star beside an import": (
        {"a.py": "from threading import Thread as T\n", "b.py": "import os\nfrom a import *\nprint(T)\n"},
        ["b.py:3 threading.Thread"],
    ),
    "super of what is called under any name": (
        {"a.py": "from sh import ls\nclass C(ls):\n    def f(self):\n        super().g()\n"},
        ["a.py:2 sh.Command", "a.py:4 sh.Command.__call__"],
    ),
    "a builtin by a string": ({"a.py": "import builtins\ngetattr(builtins, 'exec')(1)\n"}, ["a.py:2 builtins.exec"]),
    "an attribute that a method of one line stores": (
        {
            "a.py": "import subprocess as sp\n",
            "b.py": "import a\nclass C:\n    def __init__(self): self.x = a\n    def f(self):\n"
            "        self.x.sp.run(1)\n",
        },
        ["b.py:5 subprocess.run"],
    ),
    "what a with statement gives, and is called under any name": (
        {
            "a.py": "import git\nclass C:\n    def __enter__(self) -> git.Repo: ...\n",
            "b.py": "from a import C\nwith C() as x:\n    x.git.log()\n",
        },
        ["b.py:3 git.cmd.Git:command.__call__"],
    ),
    "white space and comments around dots": (
        {
            "a.py": "import os\nos . system(1)\n(os.\n    system(2))\n(os.  # why\n    system(3))\nos.\\\nsystem(4)\n",
            "b.py": "import os\ndef f():\n    (os.  # why\n     system('x'))\ndef g(): os.  \\\n  system('x')\n",
        },
        [*(f"a.py:{line} os.system" for line in (2, 4, 6, 8)), "b.py:4 os.system", "b.py:6 os.system"],
    ),
    "strings under other names": (
        {
            "a.py": "import os\nfrom importlib import import_module as im\nheld = vars(os)\ngive = getattr\n",
            "b.py": "from a import held\nheld['system'](1)\nheld.get('system')(2)\n",
            "c.py": "import a\na.im('subprocess').run(1)\na.give(a.os, 'popen')(2)\n",
            "d.py": "import sys\nmods = sys.modules\n",
            "e.py": "import d\nd.mods['subprocess'].call(1)\n",
            "f.py": "from sys import modules\nmodules['os'].fork()\nmodules['o' 's'].system(1)\n",
            "g.py": "from sys import modules as m\nm['os'].popen(1)\n",
        },
        [
            *("b.py:2 os.system", "b.py:3 os.system", "c.py:2 subprocess.run", "c.py:3 os.popen"),
            *("e.py:2 subprocess.call", "f.py:2 os.fork", "f.py:3 os.system", "g.py:2 os.popen"),
        ],
    ),
    "accessors under other names, inside a function": (
        {"a.py": "import os\ndef f():\n g = getattr\n g(os, 'system')(1)\n v = vars(os)\n w = v\n w['popen'](2)\n"},
        ["a.py:4 os.system", "a.py:7 os.popen"],
    ),
    "a type that is defined by itself": (
        {"a.py": "import os\nwhile os.environ:\n    X = type[X] | X\ndef f() -> X: ...\nos.fork()\n"},
        ["a.py:5 os.fork"],
    ),
    "strings in pieces on several lines": (
        {"a.py": "import os\ndef f():\n    getattr(\n        (os),\n        'sys'\n        'tem',\n    )(1)\n"},
        ["a.py:3 os.system"],
    ),
    "f-strings": (
        {
            "a.py": 'import os, subprocess\nx = f"""{1}\n{os.system(1)}\n\n{[subprocess.run(2)]}"""\n',
            "b.py": "from a import x\ny = f'{x}'\n",
        },
        ["a.py:3 os.system", "a.py:5 subprocess.run"],
    ),
    "an import list with parentheses in its comments": (
        {"a.py": "from os import (  # see (1)\n    system as go,  # and )\n    popen)\ngo(1)\npopen(2)\n"},
        ["a.py:4 os.system", "a.py:5 os.popen"],
    ),
    "imports on one line with other things": (
        {"a.py": "x = 1; import os as o; o.system('x')\nif x: from os import (  # why\n    popen as p,\n)\np('x')\n"},
        ["a.py:1 os.system", "a.py:5 os.popen"],
    ),
    "a continued import": (
        {"a.py": "from \\\n    os \\\n    import system \\\n    as go\n", "b.py": "from a import go\ngo('x')\n"},
        ["b.py:2 os.system"],
    ),
    "letters that Python takes for others": (
        {"a.py": "import os\ndef f():\n    os.ｓｙｓｔｅｍ('x')\n", "b.py": "from os import ｓystem as go\ngo('x')\n"},
        ["a.py:3 os.system", "b.py:2 os.system"],
    ),
    "a walrus, a default, a conditional": (
        {
            "a.py": "import os\ndef f(x, go=os):\n    if (run := go.system) and x:\n        run('x')\n",
            "b.py": "import os, sys\n(os.system if sys.argv else os.popen)('x')\n",
        },
        ["a.py:4 os.system", "b.py:2 os.popen", "b.py:2 os.system"],
    ),
    "a tuple that is only tested against": (
        {"a.py": "import threading\nKINDS = (threading.Thread,)\ndef f(x):\n    isinstance(x, KINDS)\n"},
        [],
    ),
    "a tuple that is not": (
        {"a.py": "import threading\nKINDS = (threading.Thread,)\ndef f(x):\n    for kind in KINDS:\n        kind()\n"},
        ["a.py:2 threading.Thread"],
    ),
    "a library that is called under any name": (
        {
            "a.py": "import sh\nfrom sh import ls\nls()\n",
            "b.py": "import git\nclass Box:\n    def __init__(self):\n        self.repo = git.Repo('.')\n",
            "c.py": "from b import Box\ndef f():\n    Box().repo.git.status()\n",
        },
        ["a.py:3 sh.Command.__call__", "c.py:3 git.cmd.Git:command.__call__"],
    ),
    "a library that is called under any name, by a string": (
        {
            "a.py": "import sys, importlib\n__import__('sh').ls(1)\nx = importlib.import_module('git.repo')\n"
            "x.Repo().git.log()\nmods = sys.modules\n",
            "b.py": "import a\na.mods['sh'].ls()\n",
        },
        ["a.py:2 sh.Command.__call__", "a.py:4 git.cmd.Git:command.__call__", "b.py:2 sh.Command.__call__"],
    ),
    "a library that is called under any name, by a cast and by a getter": (
        {
            "a.py": "import sh\nfrom git import Repo\nfrom operator import attrgetter\nfrom typing import cast\n"
            "one = cast(Repo, 1)\ntwo = cast('Repo', 1)\nget = attrgetter('ls')\nls = get(sh)\n",
            "b.py": "from a import ls as three, one, two\none.git.log()\ntwo.git.log()\nthree()\n",
            "c.py": "import a\nfrom typing import cast\nx = cast('a.Repo', 1)\n",
            "d.py": "from c import x\nx.git.log()\n",
        },
        [
            *("b.py:2 git.cmd.Git:command.__call__", "b.py:3 git.cmd.Git:command.__call__"),
            *("b.py:4 sh.Command.__call__", "d.py:2 git.cmd.Git:command.__call__"),
        ],
    ),
    "a library that is called under any name, by a star": (
        {
            "a.py": "from git import *\nRepo().git.log()\n",
            "b.py": "from a import *\ndef f(x: Repo):\n    x.git.log()\n",
            "c.py": "import a\ndef f(x: a.Repo):\n    x.git.log()\n",
        },
        [f"{file} git.cmd.Git:command.__call__" for file in ("a.py:2", "b.py:3", "c.py:3")],
    ),
    "a class method of a class that a call gives": (
        {
            "a.py": "import threading\ndef made() -> type[threading.Thread]: ...\n",
            "b.py": "import a\nclass T(a.made()):\n    @classmethod\n    def make(cls):\n        return cls()\n",
        },
        ["b.py:2 threading.Thread", "b.py:5 threading.Thread"],
    ),
    "self of a class that is called under any name": (
        {"a.py": "import git\nclass Repo(git.Git):\n    def f(self):\n        self.status()\n"},
        ["a.py:4 git.cmd.Git:command.__call__"],
    ),
    "stored in passing, from names without a word": (
        {
            "a.py": "from concurrent.futures import ThreadPoolExecutor\n"
            "def made() -> ThreadPoolExecutor: ...\n"
            "class A:\n    def __init__(self):\n        with made() as self.first: ...\n"
            "    def f(me):\n        def g():\n            (me.second, x) = made(), 1\n        g()\n"
            "    def h(self):\n        for self.third in [made()]: ...\n"
            "    def k(self):\n        global fourth\n        fourth = made()\n",
            "b.py": "import a\nit = a.A()\nit.first.submit(1)\nit.second.submit(1)\nit.third.submit(1)\n"
            "a.fourth.submit(1)\n",
        },
        [
            "b.py:3 concurrent.futures.Executor.submit",
            "b.py:4 concurrent.futures.Executor.submit",
            "b.py:5 concurrent.futures.Executor.submit",
            "b.py:6 concurrent.futures.Executor.submit",
        ],
    ),
    "bound inside the header of a function": (
        {"a.py": "import os\ndef f(x=(go := os)):\n    return x\ngo.system('x')\n"},
        ["a.py:4 os.system"],
    ),
    "type parameters": (
        {
            "a.py": "from concurrent.futures import Executor\ntype Pool[T] = Executor | T\n"
            "def idle[Executor](x: Executor) -> Executor: return x\n",
            "b.py": "import a\ndef f[T](p: a.Pool, q: T):\n    p.submit(1)\na.idle(1).submit(1)\n",
        },
        ["b.py:3 concurrent.futures.Executor.submit"],
    ),
    "a module that has no other name": (
        {"a.py": "import webbrowser\n", "b.py": "import a\na.webbrowser.open('x')\n"},
        ["b.py:2 webbrowser.open"],
    ),
    "a module that has another name, by import": (
        {"a.py": "import webbrowser as w\n", "b.py": "import a\na.w.open('x')\n"},
        ["b.py:2 webbrowser.open"],
    ),
    "a module that has another name, at the end of a chain": (
        {"a.py": "import webbrowser\n", "b.py": "import a\nw = a.webbrowser\n", "c.py": "import b\nb.w.open('x')\n"},
        ["c.py:2 webbrowser.open"],
    ),
    "a module that has another name, through a star": (
        {
            "a.py": "import webbrowser\n",
            "b.py": "from a import *\nw = webbrowser\n",
            "c.py": "import b\nb.w.open('x')\n",
        },
        ["c.py:2 webbrowser.open"],
    ),
    "a module that has another name, by itself": (
        {"a.py": "import webbrowser\nw = webbrowser.__call__\n", "b.py": "import a\na.w.open('x')\n"},
        ["b.py:2 webbrowser.open"],
    ),
    "a module that has another name, by a string": (
        {
            "a.py": "import webbrowser\n",
            "b.py": "import a\nw = getattr(a, 'webbrowser')\n",
            "c.py": "import b\nb.w.open('x')\n",
        },
        ["c.py:2 webbrowser.open"],
    ),
    "a keyword": (
        {"a.py": "from sklearn.svm import SVC\nmodel = SVC\n", "b.py": "from a import model\nmodel(n_jobs=2)\n"},
        ["b.py:2 sklearn.svm.SVC"],
    ),
}


def told(tree: Tree) -> list[str]:
    found = {f"{site.path}:{site.line} {site.api}" for file in tree.files for site in file.sites}
    return sorted(found, key=lambda place: (place.partition(":")[0], int(place.split()[0].partition(":")[2]), place))


@pytest.mark.parametrize("name", TREES)
def test_no_site_is_lost(name: str, tmp_path: Path) -> None:
    files, places = TREES[name]
    request = engine.Scan(write(tmp_path, files), jobs=1)
    assert told(engine.scan(replace(request, whole=True))) == places, "what every file read in full gives"
    assert told(engine.scan(request)) == places


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that are analysed, in the order in which they are."""
    paths: list[str] = []

    def analyse_files(job: pipeline.Job, sources: Sequence[pipeline.Source], *rest: Any) -> Iterator[pipeline.Answer]:
        paths.extend(source.path for source in sources)
        return workers.analyse_files(job, sources, *rest)

    monkeypatch.setattr(finding, "analyse_files", analyse_files)
    return paths


PLAIN = "class Timer:\n    def start(self): self.run = 1\n\ndef run(x): return x.get('y')\n"


def test_what_holds_no_word_that_counts_is_passed_over(tmp_path: Path, analysed: list[str]) -> None:
    files = {
        "a.py": "import os\nos.system('x')\n",
        "plain.py": PLAIN,
        "start.py": "import logging\nx = logging.getLogger()\nx.start()\nrun()\n",
        "method.py": "from other import car\ncar.start()\n",
    }
    assert told(engine.scan(engine.Scan(write(tmp_path, files), jobs=1))) == ["a.py:2 os.system"]
    assert analysed == ["a.py"]


def test_words_of_a_module_that_has_no_other_name_count_where_it_is_spelled(
    tmp_path: Path, analysed: list[str]
) -> None:
    files = {
        "a.py": "import webbrowser\n",
        "b.py": "import a\na.webbrowser.open('x')\n",
        "plain.py": "def f(x):\n    x.open()\n",
    }
    assert told(engine.scan(engine.Scan(write(tmp_path, files), jobs=1))) == ["b.py:2 webbrowser.open"]
    assert analysed == ["b.py"]


def test_a_method_counts_once_its_class_may_be_made_anywhere(tmp_path: Path, analysed: list[str]) -> None:
    files = {"a.py": "import threading\nx = threading.Thread()\n", "b.py": "from a import x\nx.start()\n"}
    places = ["a.py:2 threading.Thread", "b.py:2 threading.Thread.start"]
    assert told(engine.scan(engine.Scan(write(tmp_path, files), jobs=1))) == places
    assert analysed == ["a.py", "b.py"]


def test_a_learned_name_has_those_read_that_hold_it(tmp_path: Path, analysed: list[str]) -> None:
    files = dict(TREES["a subclass of a subclass"][0].items()) | {"plain.py": PLAIN}
    engine.scan(engine.Scan(write(tmp_path, files), jobs=1))
    assert analysed == ["a.py", "b.py", "c.py"]


@pytest.mark.parametrize("has_native", [True, False])
def test_a_file_that_does_not_parse_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_native: bool
) -> None:
    monkeypatch.setattr(syntax, "HAS_NATIVE", has_native)
    files = {"broken.py": "x = 1\ndef broken(:\n", "deep.py": f"x = {'(' * 300}{')' * 300}\n", "plain.py": PLAIN}
    tree = engine.scan(engine.Scan(write(tmp_path, files), jobs=1))
    found = {file.path: file.unanalysed and (file.unanalysed.code, file.unanalysed.line) for file in tree.files}
    assert found == {"broken.py": ("SRC001", 2), "deep.py": ("SRC005", 1), "plain.py": None}


def test_an_annotation_is_read_wherever_it_stands(tmp_path: Path, analysed: list[str]) -> None:
    files = {"a.py": "x = 1  # execution-ownership: scheduler\n", "b.py": "x = 1  # an audit of ownership\n"}
    tree = engine.scan(engine.Scan(write(tmp_path, files), jobs=1))
    assert analysed == ["a.py"]
    assert [(file.path, [comment.line for comment in file.comments]) for file in tree.files] == [
        ("a.py", [1]),
        ("b.py", []),
    ]


def test_names_and_symbols_that_are_asked_for(tmp_path: Path, analysed: list[str]) -> None:
    root = write(tmp_path, {"plain.py": PLAIN, "other.py": "def f():\n    def h(): ...\n", "c.py": "def g(): ...\n"})
    tree = engine.scan(engine.Scan(root, jobs=1, named=("plain.run",), defining=("other.py",)))
    assert sorted(tree.names) == ["c", "other", "plain", "plain.run"]
    assert [sorted(file.symbols) for file in tree.files] == [[], ["f", "f.h"], ["Timer", "Timer.start", "run"]]
    assert sorted(analysed) == ["other.py", "plain.py"]


def test_where_a_name_is_missing_all_names_are_told(tmp_path: Path) -> None:
    root = write(tmp_path, {"plain.py": PLAIN, "other.py": "def f(): ...\n"})
    tree = engine.scan(engine.Scan(root, jobs=1, named=("plain.runn",)))
    assert tree.names >= {"plain.run", "plain.Timer.start", "other.f"}


def test_a_tree_that_is_a_library_of_the_catalogue_is_read_in_full(tmp_path: Path, analysed: list[str]) -> None:
    files = {
        "celery/__init__.py": "",
        "celery/canvas.py": "class group: ...\n",
        "a.py": "from celery.canvas import group as g\ng()\n",
    }
    assert told(engine.scan(engine.Scan(write(tmp_path, files), jobs=1))) == ["a.py:2 celery.group"]
    assert sorted(analysed) == sorted(files)


def test_a_declared_name_counts_under_any_name_of_its_own(tmp_path: Path) -> None:
    files = {
        "app/__init__.py": "",
        "app/jobs.py": "def submit(): ...\n",
        "a.py": "from app import jobs as j\nj.submit()\n",
        "b.py": "from app.jobs import submit as s\ns()\n",
        "c.py": "import b\nb.s()\n",
    }
    entry = catalog.Entry("app.jobs.submit", ApiKind.DISPATCH)
    found = told(engine.scan(engine.Scan(write(tmp_path, files), jobs=1, apis=(entry,))))
    assert found == ["a.py:2 app.jobs.submit", "b.py:2 app.jobs.submit", "c.py:2 app.jobs.submit"]


def test_what_a_declared_name_is_an_alias_of_counts_under_its_own(tmp_path: Path) -> None:
    files = {
        "app.py": "from jobs import send as submit\nsend_all = [submit]\n",
        "jobs.py": "from deep import put\nsend = put\n",
        "deep.py": "def put(): ...\n",
        "a.py": "from deep import put as p\np()\n",
        "b.py": "import jobs\njobs.send()\n",
    }
    request = engine.Scan(write(tmp_path, files), jobs=1, apis=(catalog.Entry("app.submit", ApiKind.DISPATCH),))
    found = engine.scan(replace(request, watch=("app.submit",)))
    whole = engine.scan(replace(request, watch=("app.submit",), whole=True))
    assert told(found) == told(whole)
    assert {"a.py:2 app.submit", "b.py:2 app.submit"} <= {*told(found)}
    assert found.calls == whole.calls == {"a.py\0app.submit", "b.py\0app.submit"}


def test_the_result_of_a_declared_chain_is_called(tmp_path: Path) -> None:
    files = {"a.py": "from b import x\nmake = x\nmake(1)('y')\n", "b.py": "def x(): ...\n"}
    request = engine.Scan(write(tmp_path, files), jobs=1, targets=("*.make()",))
    assert told(engine.scan(request)) == told(engine.scan(replace(request, whole=True))) == ["a.py:3 *.make()"]


def test_a_change_is_seen_through_a_file_that_is_read_again_and_the_same(tmp_path: Path) -> None:
    """More words count in ``b.py`` then, and none of its own names change."""
    files = {
        "a.py": "import asyncio\n",
        "b.py": "from a import asyncio as n, asyncio\nx = n.get_event_loop()\n",
        "c.py": "import b\nb.x.run_in_executor(print)\n",
    }
    root = write(tmp_path / "tree", files)
    request = engine.Scan(root, jobs=1, cache=tmp_path / "cache")
    assert "c.py:2 asyncio.AbstractEventLoop.run_in_executor" in told(engine.scan(request))
    write(root, {"a.py": "n = 1 or exec\n"})
    assert told(engine.scan(request)) == told(engine.scan(replace(request, cache=None))) == ["a.py:1 builtins.exec"]


def test_every_method_of_the_catalogue_can_come_to_count() -> None:
    catalogue = catalog.Catalog.load(catalog.Catalog.known_roots())
    sought = words.vocabulary(catalogue, (), ())
    signs = {f"class:{root}:{name}" for root, of in sought.makers.items() for made in of.values() for name in made}
    signs |= {f"root:{root}" for root in sought.makers}
    counting = words.Known(sought, signs)
    for method in sought.methods:
        seen = words.Glance((f".{method}",), (), (), False)
        assert counting.hits(seen).plain == {f".{method}"}
