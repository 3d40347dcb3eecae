"""Paths and names of a manifest, looked up in the tree."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property

from checkers.manifests import CatalogApi, Manifest
from checkers.model import Finding, PathSet, SourceFile, Tree
from checkers.targets import is_chain
from checkers.toml_fields import Vocabulary, printable, sentence


class Paths:
    """The files of a tree by path."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._files = sorted(tree.files, key=lambda file: file.path)
        self._paths = [file.path for file in self._files]

    def under(self, path: str) -> list[SourceFile]:
        """The file at ``path``, or the files in that folder, or those that a pattern matches."""
        if "*" in path:
            pattern = PathSet((path,))
            return [file for file in self._files if pattern.matches(file.path)]
        start = bisect_left(self._paths, path)
        end = start
        while end < len(self._paths) and self._holds(path, self._paths[end]):
            end += 1
        return self._files[start:end]

    def like(self, path: str) -> str:
        """``did you mean …?`` for a path that is not there: the folder of that name, else a similar one."""
        if not path.endswith("/") and self.under(f"{path}/"):
            return f"did you mean the folder `{printable(path, 200)}/`?"
        if path.endswith("/") and self.under(path[:-1]):
            return f"did you mean the file `{printable(path[:-1], 200)}`?"
        return (self._folders if path.endswith("/") else self._spelled).suggestion(path)

    def names_like(self, name: str) -> str:
        """``did you mean …?`` for a qualified name that is not there."""
        return self._names.suggestion(name)

    @cached_property
    def _names(self) -> Vocabulary:
        return Vocabulary(self._tree.names, ".")

    @cached_property
    def _spelled(self) -> Vocabulary:
        return Vocabulary(self._paths, "/")

    @cached_property
    def _folders(self) -> Vocabulary:
        folders = {held[: end + 1] for held in self._paths for end, char in enumerate(held) if char == "/"}
        return Vocabulary(folders, "/")

    @staticmethod
    def _holds(path: str, file: str) -> bool:
        return file.startswith(path) if path.endswith("/") else file == path


def may_be_unseen(name: str, tree: Tree, manifest: Manifest) -> bool:
    """Whether a file that could not be analysed may hold what ``name`` stands for.

    A pattern or method chain may be in any such file that the manifest does not accept; a qualified name
    only in the module or package of that name.
    """
    broken = [file.path for file in tree.files if file.unanalysed is not None]
    if "*" in name or is_chain(name):
        return not {entry.path for entry in manifest.unanalysed}.issuperset(broken)
    parts = name.split(".")
    modules = tuple("/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return any(f"/{path.removesuffix('.py').removesuffix('/__init__')}".endswith(modules) for path in broken)


def wrong_apis(paths: Paths, tree: Tree, manifest: Manifest, *, duplicate: str, stale: str) -> Iterator[Finding]:
    """``[[catalog.api]]`` entries that are there twice, or name nothing in this project; under the codes given.

    A name whose top-level package is not of this project is taken for a library's.
    """
    packages = {name.partition(".")[0] for name in tree.names}
    first: dict[str, CatalogApi] = {}
    for api in () if manifest.catalog is None else manifest.catalog.api:
        earlier = first.setdefault(api.name, api)
        if earlier is not api:
            message = f"`{printable(api.name, 120)}` is already described on line {earlier.at.place.line}"
            yield api.at.child("name").finding(duplicate, message, "keep the one that is true and remove the other")
        elif api.name in tree.names or api.name.partition(".")[0] not in packages:
            continue
        elif not may_be_unseen(api.name, tree, manifest):
            message = f"stale API: `{printable(api.name, 120)}` names nothing in this project"
            help = sentence(paths.names_like(api.name), "correct or remove it")
            yield api.at.child("name").finding(stale, message, help)


def stale_unanalysed(paths: Paths, tree: Tree, manifest: Manifest) -> Iterator[Finding]:
    """SRC007: ``[[unanalysed]]`` entries whose file is analysed well, or is gone."""
    files = {file.path: file for file in tree.files}
    for entry in manifest.unanalysed:
        file = files.get(entry.path)
        if file is not None and file.unanalysed is not None:
            continue
        shown = printable(entry.path, 200)
        if file is None:
            message, help = f"no file `{shown}` to excuse", paths.like(entry.path)
        else:
            message, help = f"`{shown}` is analysed well and needs no excuse", ""
        yield entry.at.child("path").finding("SRC007", message, sentence(help, "remove the entry"))
