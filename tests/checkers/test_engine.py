"""The engine's contract: places, symbols, extents, candidates, selection, targets, layout, determinism."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from checkers import catalog
from checkers.engine import LayoutError, Scan, scan
from checkers.model import ApiKind, Argument, Confidence, Extent, Selection, Site, SiteKind, Tier, Tree


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


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


def test_watched_calls_and_defined_names(tmp_path: Path) -> None:
    files = {
        "src/app/jobs.py": "class Service:\n    def submit(self): ...\ndef submit(): ...\n",
        "src/app/a.py": "from app.jobs import Service\nService().submit()\n",
        "src/app/b.py": "from app import jobs\njobs.submit()\n",
    }
    watch = ("app.jobs.Service.submit", "app.jobs.submit")
    tree = scan(Scan(write(tmp_path, files), jobs=1, watch=watch))
    assert tree.calls == {"src/app/a.py\0app.jobs.Service.submit", "src/app/b.py\0app.jobs.submit"}
    assert {
        "app.jobs",
        "app.jobs.submit",
        "app.jobs.Service",
        "app.jobs.Service.submit",
        "app.a",
    } <= tree.names


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
    )
    tree = scan(Scan(write(tmp_path, {"n.ipynb": text, "r.ipynb": notebook(("code", "<-"), language="R")}), jobs=1))
    assert [(site.cell, site.line, site.column, site.api) for site in sites(tree)] == [
        (2, 3, 5, SHELL),
        (2, 5, 9, SHELL),
        (2, 6, 1, SHELL),
        (3, 1, 1, SHELL),
        (4, 2, 12, "os.popen"),
        (6, 2, 4, "os.fork"),
    ]
    (comment,) = tree.files[0].comments
    assert (comment.cell, comment.line, comment.block_last_line, comment.own_line) == (6, 1, 1, True)
    assert [file.unanalysed for file in tree.files] == [None, None]


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
