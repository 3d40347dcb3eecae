"""What modules are called, and which file an import means."""

from __future__ import annotations

import itertools
from importlib.util import resolve_name
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.engine import Scan, scan
from checkers.resolve.layout import Layout, LayoutError

CALLS = "from {} import launch\nlaunch('true')\n"
LAUNCHES = "from os import system as launch\n"


def sites(root: Path, files: dict[str, str], roots: tuple[str, ...] = ()) -> list[str]:
    """``path:line`` of the calls in files that import one another."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    tree = scan(Scan(root, roots=roots, jobs=1))
    return [f"{file.path}:{site.line}" for file in tree.files for site in file.sites if site.kind == "call"]


@pytest.mark.parametrize(
    ("path", "roots", "name"),
    [
        ("app/__init__.py", (), "app"),
        ("app/jobs.py", (), "app.jobs"),
        ("src/app/jobs.py", (), "app.jobs"),
        ("src/space/part/jobs.py", (), "space.part.jobs"),
        ("lib/app/jobs.py", (), "lib.app.jobs"),
        ("lib/app/jobs.py", ("lib",), "app.jobs"),
        ("lib/app/jobs.py", ("lib/",), "app.jobs"),
        ("lib/app/jobs.py", ("./lib",), "app.jobs"),
        ("libs/one/src/app/jobs.py", ("libs/one/src",), "app.jobs"),
        ("tools/release.py", ("src",), "tools.release"),
        ("__init__.py", (), ""),
        ("app/__main__.py", (), "app.__main__"),
        ("app/win.pyw", (), "app.win"),
    ],
)
def test_names(path: str, roots: tuple[str, ...], name: str) -> None:
    assert Layout([path], roots).names[path] == name


def test_src_that_is_a_package_is_no_root() -> None:
    assert Layout(["src/__init__.py", "src/app.py"]).names["src/app.py"] == "src.app"


def test_a_package_given_as_root_keeps_its_name() -> None:
    files = ["reference/__init__.py", "reference/core.py", "tools/run.py"]
    layout = Layout(files, ["reference/", "tools/"])
    assert layout.names["reference/core.py"] == "reference.core"
    assert layout.names["tools/run.py"] == "run"


@pytest.mark.parametrize(
    ("importer", "module", "level", "name"),
    [
        ("a/b/c/__init__.py", "", 1, "a.b.c"),
        ("a/b/c/__init__.py", "x", 1, "a.b.c.x"),
        ("a/b/c/__init__.py", "x", 2, "a.b.x"),
        ("a/b/c/__init__.py", "", 3, "a"),
        ("a/b/c/m.py", "", 1, "a.b.c"),
        ("a/b/c/m.py", "x.y", 1, "a.b.c.x.y"),
        ("a/b/c/m.py", "x", 2, "a.b.x"),
        ("a/b/c/m.py", "x", 3, "a.x"),
    ],
)
def test_relative_names(importer: str, module: str, level: int, name: str) -> None:
    assert Layout([importer]).relative(importer, module, level) == name


@pytest.mark.parametrize("prefix", ["", "src/", "lib/", "one/two/"])
@pytest.mark.parametrize(
    ("importer", "module"),
    [
        ("app/sub/m.py", ".n"),
        ("app/sub/m.py", "..n"),
        ("app/sub/deep/m.py", "...n"),
        ("app/sub/__init__.py", ".n"),
        ("app/sub/__init__.py", "..n"),
        ("app/sub/m.py", "."),
        ("app/sub/m.py", ".."),
        ("app/sub/m.py", "app.n"),
    ],
)
def test_imports_are_followed_at_every_level(tmp_path: Path, prefix: str, importer: str, module: str) -> None:
    folder = importer.rpartition("/")[0].split("/")
    if module.startswith("."):
        level = len(module) - len(module.lstrip("."))
        target = [*folder[: len(folder) - level + 1], module.lstrip(".") or "__init__"]
    else:
        target = module.split(".")
    packages = {"/".join(folder[:n]) + "/__init__.py": "" for n in range(1, len(folder) + 1)}
    files = {**packages, "/".join(target) + ".py": LAUNCHES, importer: CALLS.format(module)}
    assert sites(tmp_path, {prefix + path: text for path, text in files.items()}) == [f"{prefix}{importer}:2"]


def test_a_relative_import_past_the_top_means_nothing(tmp_path: Path) -> None:
    files = {"n.py": LAUNCHES, "app/__init__.py": "", "app/m.py": CALLS.format("....n")}
    assert sites(tmp_path, files) == []


def test_namespace_packages(tmp_path: Path) -> None:
    files = {"src/space/one/n.py": LAUNCHES, "src/space/two/m.py": CALLS.format("space.one.n")}
    assert sites(tmp_path, files) == ["src/space/two/m.py:2"]


def test_one_namespace_in_two_roots(tmp_path: Path) -> None:
    files = {"one/space/n.py": LAUNCHES, "two/space/m.py": CALLS.format("space.n")}
    assert sites(tmp_path, files, ("one", "two")) == ["two/space/m.py:2"]


def test_scripts_find_what_lies_beside_them(tmp_path: Path) -> None:
    files = {"tools/n.py": LAUNCHES, "tools/m.py": CALLS.format("n"), "other/m.py": CALLS.format("n")}
    assert sites(tmp_path, files) == ["tools/m.py:2"]


def test_of_two_packages_of_one_name_the_nearer_is_meant(tmp_path: Path) -> None:
    files = {
        "one/app/__init__.py": LAUNCHES,
        "one/app/m.py": CALLS.format("app"),
        "two/app/__init__.py": "def launch(command): ...\n",
        "two/app/m.py": CALLS.format("app"),
    }
    assert sites(tmp_path, files) == ["one/app/m.py:2"]


def test_a_module_in_two_roots_is_an_error_of_one_line(tmp_path: Path) -> None:
    files = {"one/app.py": "", "two/app.py": ""}
    with pytest.raises(LayoutError) as error:
        sites(tmp_path, files, ("one", "two"))
    message = str(error.value)
    assert message.startswith("module app is in two roots: one/app.py and two/app.py")
    assert "\n" not in message


def test_src_and_flat_may_not_hold_the_same_module() -> None:
    with pytest.raises(LayoutError, match=r"module app\.jobs is in two roots: app/jobs\.py and src/app/jobs\.py"):
        Layout(["app/jobs.py", "src/app/jobs.py"])


def test_a_script_and_a_notebook_of_one_name_are_no_two_modules() -> None:
    layout = Layout(["a.ipynb", "a.py"])
    assert layout.find("a", "b.py") == "a.py"


parts = st.sampled_from(["a", "b", "c"])
module_paths = st.lists(parts, min_size=1, max_size=3).map("/".join)


@given(st.sets(module_paths, min_size=1, max_size=6))
def test_every_module_is_found_by_its_name(modules: set[str]) -> None:
    files = sorted(f"{module}.py" for module in modules)
    layout = Layout(files)
    for path, importer in itertools.product(files, files):
        assert layout.find(layout.names[path], importer) == path


@given(st.lists(parts, min_size=1, max_size=4), st.integers(1, 4), st.sampled_from(["", "x", "x.y"]))
def test_relative_names_are_those_of_python(folders: list[str], level: int, module: str) -> None:
    package = ".".join(folders)
    importer = "/".join(folders) + "/m.py"
    try:
        expected: str | None = resolve_name("." * level + module, package).rstrip(".")
    except ImportError:
        expected = module if level == len(folders) + 1 else None  # a module of the root itself, started as a script
    assert Layout([importer]).relative(importer, module, level) == expected
