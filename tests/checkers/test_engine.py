"""The engine's contract: places, symbols, extents, candidates, selection, targets, layout, determinism."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkers import catalog
from checkers.engine import LayoutError, Scan, scan
from checkers.model import ApiKind, Argument, Confidence, Extent, Selection, Site, SiteKind, Tier, Tree
from tests.checkers.trees import write


def sites(tree: Tree) -> list[Site]:
    return [site for file in tree.files for site in file.sites]


def one(root: Path, text: str) -> list[Site]:
    return sites(scan(Scan(write(root, {"a.py": text}), jobs=1)))


def test_place_symbol_and_extent_of_a_call_over_lines(tmp_path: Path) -> None:
    text = """\
import subprocess
class Runner:
    def start(self):
        x = (1,
            subprocess
            .run
            (
                ["ls"],
            ), 2)
"""
    (site,) = one(tmp_path, text)
    assert (site.path, site.line, site.column, site.symbol) == ("a.py", 6, 14, "Runner.start")
    assert site.extent == Extent(
        first_line=5,
        name_line=6,
        paren_line=7,
        last_line=9,
        statement=site.extent.statement,
        statement_first_line=4,
        statement_last_line=9,
    )


def test_parentheses_around_a_call_are_not_part_of_it(tmp_path: Path) -> None:
    (site,) = one(tmp_path, "import os\nx = (\n    os.system('a')\n)\n")
    assert (site.extent.first_line, site.extent.last_line) == (3, 3)
    assert (site.extent.statement_first_line, site.extent.statement_last_line) == (2, 4)


def test_a_name_in_parentheses_of_its_own_is_where_the_name_is(tmp_path: Path) -> None:
    (site,) = one(tmp_path, "from os import system\n(  # why\n  system\n)('a')\n")
    assert (site.line, site.column) == (3, 3)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_backslash_joins_lines_that_end_in_any_way(tmp_path: Path, end: str) -> None:
    (site,) = one(tmp_path, f"import os{end}x = os.system \\{end}\\{end}  ('a'){end}")
    assert (site.line, site.extent.paren_line, site.extent.last_line) == (2, 4, 4)


def test_columns_count_characters(tmp_path: Path) -> None:
    (site,) = one(tmp_path, "import os\nx = 'é漢😀'; \tos.system('a')\n")
    assert (site.line, site.column) == (2, 16)


def test_a_subclass_is_placed_at_its_class_line_and_name(tmp_path: Path) -> None:
    (site,) = one(tmp_path, "import threading\n@deco\nclass  W(\n    threading.Thread,\n):\n    pass\n")
    assert (site.line, site.column, site.kind, site.symbol) == (3, 8, SiteKind.SUBCLASS, "W")
    assert (site.extent.statement_first_line, site.extent.statement_last_line) == (3, 5)


def test_the_header_of_a_compound_statement_is_the_statement(tmp_path: Path) -> None:
    header, body = one(tmp_path, "import os\nif os.system(\n    'a'\n):\n    os.popen('b')\n")
    assert (header.extent.statement_first_line, header.extent.statement_last_line) == (2, 4)
    assert (body.extent.statement_first_line, body.extent.statement_last_line) == (5, 5)
    assert header.extent.statement != body.extent.statement


def test_a_decorator_is_a_statement_of_its_own(tmp_path: Path) -> None:
    first, default = one(tmp_path, "import os\n@d(os.system)\n@e\ndef f(x=os.popen):\n    pass\n")
    assert (first.extent.statement_first_line, first.symbol) == (2, "f")
    assert (default.extent.statement_first_line, default.symbol) == (4, "f")


def test_several_candidates_are_one_site(tmp_path: Path) -> None:
    text = "try:\n    from os import system as go\nexcept ImportError:\n    from os import popen as go\ngo('x')\n"
    (site,) = one(tmp_path, text)
    assert (site.api, site.candidates) == ("os.popen", ("os.popen", "os.system"))


def test_ordinals_count_within_symbol_and_api(tmp_path: Path) -> None:
    text = "import os\nos.system(1)\ndef f():\n    os.system(2); os.system(3)\n    os.popen(4)\nos.system(5)\n"
    found = [(site.line, site.symbol, site.api, site.ordinal) for site in one(tmp_path, text)]
    assert found == [
        (2, "", "os.system", 1),
        (4, "f", "os.system", 1),
        (4, "f", "os.system", 2),
        (5, "f", "os.popen", 1),
        (6, "", "os.system", 2),
    ]


def test_arguments_as_the_boundary_rules_see_them(tmp_path: Path) -> None:
    text = """\
import shlex, subprocess
argv = command.split()
subprocess.run(argv, shell=True, timeout=5, **more)
subprocess.run(shlex.split(command), *rest)
subprocess.run(command.split(" "))
"""
    first, second, third = one(tmp_path, text)
    assert first.arguments == (
        Argument(None, split=True),
        Argument("shell", constant=True, value=True),
        Argument("timeout", constant=True, value=5),
        Argument("**"),
    )
    assert second.arguments == (Argument(None), Argument("*"))
    assert third.arguments == (Argument(None, split=True),)


@pytest.mark.parametrize(
    ("argument", "split"),
    [
        ("['x'] + cmd.split()", True),
        ("('x',) + tuple(cmd.split())", True),
        ("[*cmd.split(), 'x']", True),
        ("list(cmd.split())", True),
        ("(w := cmd.split())", True),
        ("['x'] if q else cmd.split()", True),
        ("known", True),
        ("again", True),
        ("more", True),
        ("known + ['x']", True),
        ("self.argv", True),
        ("self.plain", False),
        ("['x', cmd]", False),
        ("['x', *rest]", False),
        ("['x'] + rest", False),
        ("re.split(' ', cmd)", False),
        ("shlex.split(cmd) + ['x']", False),
        ("'a b' + cmd", False),
    ],
)
def test_where_an_argument_list_comes_from(tmp_path: Path, argument: str, split: bool) -> None:
    text = f"""\
import re, shlex, subprocess
class Runner:
    def __init__(self, cmd):
        self.argv = cmd.split()
        self.plain = ["x"]
    def go(self, cmd, rest, q):
        known: list[str] = cmd.rsplit(" ")
        again = known
        more = ["x", *again]
        subprocess.run({argument}, timeout=1)
"""
    (site,) = one(tmp_path, text)
    assert site.arguments == (Argument(None, split=split), Argument("timeout", constant=True, value=1))


def test_uses_of_processes_that_the_boundary_rules_judge(tmp_path: Path) -> None:
    text = """\
import subprocess, threading
p = subprocess.Popen(["x"])
p.communicate(timeout=3)
p.stdout.read()
p.wait()
threading.Event().wait()
open("f").read()
"""
    tree = scan(Scan(write(tmp_path, {"a.py": text}), jobs=1))
    assert [(use.line, use.column, use.chain) for use in tree.files[0].uses] == [
        (3, 3, "p.communicate"),
        (4, 10, "p.stdout.read"),
        (5, 3, "p.wait"),
    ]


def test_by_name_methods_are_found_only_when_asked_for(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.py": "from elsewhere import task\ntask.delay(1)\n"})
    assert sites(scan(Scan(root, jobs=1))) == []
    (site,) = sites(scan(Scan(root, jobs=1, by_name=True)))
    assert (site.line, site.api, site.confidence) == (2, "celery.app.task.Task.delay", Confidence.BY_NAME)
    assert not Selection().counts(site)
    assert Selection(by_name=True).counts(site)


def test_strict_tier_finds_dynamic_code(tmp_path: Path) -> None:
    text = "import os, importlib\nexec(c)\neval(c)\ngetattr(os, n)('x')\ngetattr(c, n)\nimportlib.import_module(n)\n"
    strict = Selection(tiers=frozenset({Tier.STRICT}))
    found = [(s.line, s.kind, s.api) for s in one(tmp_path, text) if strict.counts(s)]
    assert found == [
        (2, SiteKind.DYNAMIC, "builtins.exec"),
        (3, SiteKind.DYNAMIC, "builtins.eval"),
        (4, SiteKind.DYNAMIC, "builtins.getattr"),
        (6, SiteKind.DYNAMIC, "importlib.import_module"),
    ]


def test_subclasses_of_a_process_are_processes(tmp_path: Path) -> None:
    text = """\
import subprocess
class Own(subprocess.Popen):
    def end(self): self.wait()
class Other:
    def end(self): self.wait()
Own([]).wait()
Other().wait()
"""
    tree = scan(Scan(write(tmp_path, {"a.py": text}), jobs=1))
    assert [(use.line, use.chain) for use in tree.files[0].uses] == [(3, "self.wait"), (6, "Own().wait")]


@pytest.mark.parametrize(("size", "value"), [("-1", -1), ("7", 7)])
def test_a_negative_constant_is_one(tmp_path: Path, size: str, value: int) -> None:
    text = f"import subprocess\np = subprocess.Popen([])\np.stdout.read({size})\n"
    tree = scan(Scan(write(tmp_path, {"a.py": text}), jobs=1))
    assert [use.arguments for use in tree.files[0].uses] == [(Argument(None, constant=True, value=value),)]


def test_declared_targets_and_apis(tmp_path: Path) -> None:
    text = """\
import requests
from tools import launch as go
from tools import Engine
requests.post("x")
go()
self.app.spawner().send(1)
spawner().sent(1)
Engine().start()
"""
    root = write(tmp_path, {"a.py": text, "tools.py": "def launch(): ...\nclass Engine:\n    def start(self): ...\n"})
    entry = catalog.Entry("tools.Engine.start", ApiKind.POOL)
    targets = ("requests.*", "tools.launch", "*.spawner().send")
    found = sites(scan(Scan(root, jobs=1, targets=targets, apis=(entry,))))
    assert [(site.line, site.api, site.api_kind) for site in found] == [
        (4, "requests.post", ApiKind.DECLARED),
        (5, "tools.launch", ApiKind.DECLARED),
        (6, "*.spawner().send", ApiKind.DECLARED),
        (8, "tools.Engine.start", ApiKind.POOL),
    ]


def test_a_class_of_the_project_that_is_declared_governs_its_subclasses(tmp_path: Path) -> None:
    text = "class K: pass\nclass L(K): pass\nclass M(L): pass\nK()\nM()\n"
    root = write(tmp_path, {"a.py": text})
    entry = catalog.Entry("a.K", ApiKind.PROCESS, catalog.Form.CLASS)
    for request in (Scan(root, jobs=1, apis=(entry,)), Scan(root, jobs=1, targets=("a.K",))):
        found = [(site.line, site.kind, site.api) for site in sites(scan(request))]
        assert found == [
            (2, SiteKind.SUBCLASS, "a.K"),
            (3, SiteKind.SUBCLASS, "a.K"),
            (4, SiteKind.CALL, "a.K"),
            (5, SiteKind.CALL, "a.K"),
        ]


def test_a_declared_method_makes_its_owner_known_as_a_class(tmp_path: Path) -> None:
    text = """\
import lib
lib.K().m()
x = lib.K()
x.m()
def f(k: "lib.K"): k.m()
class L(lib.K):
    def n(self): self.m()
"""
    root = write(tmp_path, {"a.py": text})
    entry = catalog.Entry("lib.K.m", ApiKind.PROCESS, catalog.Form.METHOD)
    found = [(site.line, site.kind, site.api) for site in sites(scan(Scan(root, jobs=1, apis=(entry,))))]
    assert found == [(line, SiteKind.METHOD, "lib.K.m") for line in (2, 4, 5, 7)]


PUBLIC = {
    "pkg/__init__.py": """\
from subprocess import run
from lib import given
from pkg._x import f, K, Own
made = make()
small = lambda: 1
small()
alias = made
alias()
class Box:
    held = make()
""",
    "pkg/_x.py": """\
import celery
def f(): pass
class K:
    def m(self): pass
@celery.shared_task
def task(): pass
class Own(K): pass
f()
""",
    "use.py": """\
import pkg
from pkg import Box, given as g, made
from pkg import *
from pkg._x import f as inner, K as Inner, task
pkg.f()
inner()
f()
pkg.run([])
g()
made()
pkg.small()
Inner()
pkg.Own()
pkg.K().m()
Box().held()
task()
keep = pkg.f
""",
}


@pytest.mark.parametrize(
    ("target", "places"),
    [
        ("pkg.f", ["pkg/_x.py:8", "use.py:5", "use.py:6", "use.py:7", "use.py:17"]),
        ("pkg._x.f", ["pkg/_x.py:8", "use.py:5", "use.py:6", "use.py:7", "use.py:17"]),
        ("pkg.run", ["use.py:8"]),
        ("pkg.given", ["use.py:9"]),
        ("pkg.made", ["pkg/__init__.py:8", "use.py:10"]),
        ("pkg.small", ["pkg/__init__.py:6", "use.py:11"]),
        ("pkg.K", ["pkg/_x.py:7", "use.py:12", "use.py:13", "use.py:14"]),
        ("pkg.K.m", ["use.py:14"]),
        ("pkg.Box.held", ["use.py:15"]),
        ("pkg._x.task", ["use.py:16"]),
        ("pkg._x.*", ["pkg/_x.py:7", "pkg/_x.py:8", *(f"use.py:{n}" for n in (5, 6, 7, 12, 13, 14, 14, 17))]),
    ],
)
def test_a_declared_name_governs_what_it_stands_for(tmp_path: Path, target: str, places: list[str]) -> None:
    found = sites(scan(Scan(write(tmp_path, PUBLIC), jobs=1, targets=(target,))))
    named = [s for s in found if target in s.names or (target.endswith("*") and s.api_kind is ApiKind.DECLARED)]
    assert [f"{s.path}:{s.line}" for s in named] == places
    (use,) = [s for s in found if (s.path, s.line) == ("use.py", 8)]
    assert "subprocess.run" in use.names, "what a name stands for stays governed for the other rules"


def test_a_declared_name_of_a_library(tmp_path: Path) -> None:
    text = """\
import lib
from lib import *
class L(lib.K): pass
L()
g()
lib.K().m()
def f(k: lib.K): k.m()
"""
    root = write(tmp_path, {"a.py": text})
    found = sites(scan(Scan(root, jobs=1, targets=("lib.K", "lib.g", "lib.K.m"))))
    assert [(site.line, site.kind, site.api) for site in found] == [
        (3, SiteKind.SUBCLASS, "lib.K"),
        (4, SiteKind.CALL, "lib.K"),
        (5, SiteKind.CALL, "lib.g"),
        (6, SiteKind.CALL, "lib.K"),
        (6, SiteKind.METHOD, "lib.K.m"),
        (7, SiteKind.METHOD, "lib.K.m"),
    ]


@pytest.mark.parametrize(
    ("target", "columns"),
    [("*.spawner().*", [13, 13]), ("*.spawner().s*", [13]), ("a.spawner().*d", [13]), ("*.spawner().*()", [])],
)
def test_a_chain_may_end_in_a_pattern(tmp_path: Path, target: str, columns: list[int]) -> None:
    root = write(tmp_path, {"a.py": "a.spawner().send(x)\na.spawner().post(x)\n"})
    found = sites(scan(Scan(root, jobs=1, targets=(target,))))
    assert [site.column for site in found] == columns


@pytest.mark.parametrize("target", ["*.launch", "*un*", "*.l*", "*.pkg.*"])
def test_a_pattern_governs_a_library_of_any_name(tmp_path: Path, target: str) -> None:
    root = write(tmp_path, {"a.py": "from lib.pkg import launch as go\ngo()\n"})
    found = sites(scan(Scan(root, jobs=1, targets=(target,))))
    assert [(site.line, site.api) for site in found] == [(2, "lib.pkg.launch")]


def test_watched_calls_are_seen_through_re_exports(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from pkg._x import submit\nfrom lib import hand_in\n",
        "pkg/_x.py": "def submit(): ...\n",
        "a.py": "from pkg._x import submit\nsubmit()\n",
        "b.py": "import pkg\npkg.hand_in()\n",
        "c.py": "import pkg\npkg.submit()\n",
    }
    tree = scan(Scan(write(tmp_path, files), jobs=1, watch=("pkg.submit", "pkg.hand_in")))
    assert tree.calls == {"a.py\0pkg.submit", "b.py\0pkg.hand_in", "c.py\0pkg.submit"}


@pytest.mark.parametrize("given", ["targets", "watch"])
def test_what_is_named_is_followed_as_far_as_what_is_used(tmp_path: Path, given: str) -> None:
    """Through more re-exports than the interpreter's own limit of nested calls lets pass."""
    files = {f"m{n:03}.py": f"from m{n - 1:03} import go\n" for n in range(1, 400)}
    write(tmp_path, {**files, "m000.py": "def go(): ...\n", "use.py": "import m399\nm399.go()\n"})
    asked: dict[str, Any] = {given: ("m399.go",)}
    tree = scan(Scan(tmp_path, jobs=1, **asked))
    found = (
        {site.path for site in sites(tree)} if given == "targets" else {call.partition("\0")[0] for call in tree.calls}
    )
    assert found == {"use.py"}


@pytest.mark.parametrize("given", ["targets", "watch"])
def test_what_is_named_and_too_deep_to_be_followed_is_told(tmp_path: Path, given: str) -> None:
    text = "def a0(): ...\n" + "".join(f"a{n} = a{n - 1}\n" for n in range(1, 12_000))
    write(tmp_path, {"m.py": text})
    asked: dict[str, Any] = {given: ("m.a11999",)}
    with pytest.raises(LayoutError, match="of what the manifest names, a name has more than 10,000 names behind it"):
        scan(Scan(tmp_path, jobs=1, **asked))
    assert (
        "m.a11999" in scan(Scan(tmp_path, jobs=1, named=("m.a11999",))).names
    )  # whether it is there is all that is asked


def test_watched_calls_and_defined_names(tmp_path: Path) -> None:
    files = {
        "src/app/jobs.py": "class Service:\n    def submit(self): ...\ndef submit(): ...\n",
        "src/app/a.py": "from app.jobs import Service\nService().submit()\n",
        "src/app/b.py": "from app import jobs\njobs.submit()\n",
    }
    watch = ("app.jobs.Service.submit", "app.jobs.submit")
    tree = scan(Scan(write(tmp_path, files), jobs=1, watch=watch))
    assert tree.calls == {"src/app/a.py\0app.jobs.Service.submit", "src/app/b.py\0app.jobs.submit"}
    names = {"app.jobs", "app.jobs.submit", "app.jobs.Service", "app.jobs.Service.submit", "app.a"}
    assert names <= scan(Scan(tmp_path, jobs=1, whole=True)).names


def test_given_paths_select_and_the_rest_is_still_read(tmp_path: Path) -> None:
    files = {
        "a.py": "from b.c import go\ngo()\n",
        "b/c.py": "from os import fork as go\n",
        "b/d.py": "import os\nos.fork()\n",
    }
    root = write(tmp_path, files)
    tree = scan(Scan(root, paths=("./b/",), jobs=1))
    assert tree.selected == {"b/c.py", "b/d.py"}
    assert [(site.path, site.line) for site in sites(tree)] == [("a.py", 2), ("b/d.py", 2)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing.py", "nothing.py: no such file or folder below {root}"),
        ("../x.py", "../x.py: lies outside the project root {root}; give --root, or another path"),
        ("/etc/passwd", "/etc/passwd: lies outside the project root {root}; give --root, or another path"),
    ],
)
def test_a_path_that_is_not_in_the_project_is_an_error(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        scan(Scan(tmp_path, paths=(path,), jobs=1))
    assert str(caught.value) == message.format(root=tmp_path)


def test_an_unsaved_buffer_stands_for_its_file(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.py": "import os\n", "b.py": "from a import go\ngo()\n"})
    tree = scan(Scan(root, jobs=1, stdin=("a.py", b"from os import system as go\ngo()\n")))
    assert [(site.path, site.line, site.api) for site in sites(tree)] == [
        ("a.py", 2, "os.system"),
        ("b.py", 2, "os.system"),
    ]
    new = scan(Scan(root, jobs=1, stdin=("new.py", b"import os\nos.fork()\n")))
    assert [(site.path, site.line) for site in sites(new)] == [("new.py", 2)]


def test_two_roots_with_one_module_are_an_error_that_names_both(tmp_path: Path) -> None:
    root = write(tmp_path, {"src/tool.py": "", "tool.py": ""})
    with pytest.raises(LayoutError) as caught:
        scan(Scan(root, jobs=1))
    assert str(caught.value) == (
        "module tool is in two roots: src/tool.py and tool.py; name the import roots in the manifest "
        "(roots = [...]) or leave one of the two out (exclude = [...])"
    )


def test_the_same_result_for_any_number_of_workers(tmp_path: Path) -> None:
    files = {f"m{n}.py": f"import os\nfrom m{(n + 1) % 40} import *\ngo = os.system\ngo({n})\n" for n in range(40)}
    root = write(tmp_path, files)
    assert scan(Scan(root, jobs=1)) == scan(Scan(root, jobs=2)) == scan(Scan(root, jobs=3))


def notebook(*cells: tuple[str, str], language: str = "python") -> str:
    return json.dumps(
        {
            "cells": [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells],
            "metadata": {"language_info": {"name": language}},
        }
    )


SHELL = "IPython.core.interactiveshell.InteractiveShell.system"


def test_notebooks_are_read_cell_by_cell(tmp_path: Path) -> None:
    text = notebook(
        ("markdown", "os.system"),
        (
            "code",
            "import os\nif x:\n    !ls \\\n       -l\nfiles = !ls\n%system ls\n%matplotlib inline\nos.system?",
        ),
        ("code", "%%bash\nos.system('no python')"),
        ("code", "%%time\n%timeit os.popen('x')\n10 \\\n  % 3\n"),
        ("code", "%%html\nos.system()"),
        ("code", "# execution-ownership: scheduler\nos.fork()"),
        ("code", "%pip install x\n%cd y"),
    )
    tree = scan(Scan(write(tmp_path, {"n.ipynb": text, "r.ipynb": notebook(("code", "<-"), language="R")}), jobs=1))
    assert [(site.cell, site.line, site.column, site.api) for site in sites(tree)] == [
        (2, 3, 5, SHELL),
        (2, 5, 9, SHELL),
        (2, 6, 1, SHELL),
        (3, 1, 1, SHELL),
        (4, 2, 12, "os.popen"),
        (6, 2, 4, "os.fork"),
        (7, 1, 1, SHELL),
    ]
    (comment,) = tree.files[0].comments
    assert (comment.cell, comment.line, comment.block_last_line, comment.own_line) == (6, 1, 1, True)
    assert [file.unanalysed for file in tree.files] == [None, None]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([3], "cell 1 has none of the types code, heading, markdown, raw"),
        ([{"source": "import os"}], "cell 1 has none of the types code, heading, markdown, raw"),
        ([{"cell_type": "raw"}, {"cell_type": "Code"}], "cell 2 has none of the types code, heading, markdown, raw"),
        ([{"cell_type": ["code"]}], "cell 1 has none of the types code, heading, markdown, raw"),
        ([{"cell_type": "code", "source": 3}], "the source of cell 1 is no text"),
        ([{"cell_type": "code", "source": ["import os\n", None]}], "the source of cell 1 is no text"),
    ],
)
def test_a_cell_that_is_none_is_not_passed_over(tmp_path: Path, cells: list[object], message: str) -> None:
    (file,) = scan(Scan(write(tmp_path, {"n.ipynb": json.dumps({"cells": cells})}), jobs=1)).files
    assert file.unanalysed is not None
    assert (file.unanalysed.code, file.unanalysed.message) == ("SRC001", f"not a notebook: {message}")


@pytest.mark.parametrize(("source", "code", "column"), [("a = '\0'", "SRC001", 6), ("a = '\ud800'", "SRC004", 1)])
def test_what_json_can_spell_and_python_cannot_names_its_cell(
    tmp_path: Path, source: str, code: str, column: int
) -> None:
    text = notebook(("markdown", "x"), ("code", f"x = 1\n{source}"))
    (file,) = scan(Scan(write(tmp_path, {"n.ipynb": text}), jobs=1)).files
    assert file.unanalysed is not None
    told = file.unanalysed
    assert (told.code, told.cell, told.line, told.column) == (code, 2, 2, column)


@pytest.mark.parametrize("target", ["subprocess.", "", "*.()", "a."])
def test_a_target_that_ends_in_no_name_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ValueError, match="ends in no name that could be looked for"):
        scan(Scan(tmp_path, targets=(target,)))


def test_a_notebook_with_a_syntax_error_names_cell_and_line(tmp_path: Path) -> None:
    text = notebook(("code", "x = 1"), ("markdown", ""), ("code", "y = 2\ndef broken(:\n    pass"))
    (file,) = scan(Scan(write(tmp_path, {"n.ipynb": text}), jobs=1)).files
    assert file.unanalysed is not None
    assert (file.unanalysed.code, file.unanalysed.cell, file.unanalysed.line) == ("SRC001", 3, 2)


def test_comments_with_the_block_they_stand_in(tmp_path: Path) -> None:
    text = "import os\n# one\n# execution-ownership: scheduler\n# three\n\nx = f(  # audit\n    # inner\n)\n"
    (file,) = scan(Scan(write(tmp_path, {"a.py": text}), jobs=1)).files
    assert [(c.line, c.column, c.own_line, c.block_last_line) for c in file.comments] == [
        (2, 1, True, 4),
        (3, 1, True, 4),
        (4, 1, True, 4),
        (6, 9, False, 6),
        (7, 5, True, 7),
    ]
