"""Which module each file is, and which file a module name means to the file that imports it.

A file's *primary* name counts from the longest import root that holds it: the roots of the manifest, else ``src`` (when
it is no package itself) and the project root. Besides that it may be known by shorter names: packages that lie in a
folder which is no root (``lib/ansible``) are named from the folder above the outermost ``__init__.py``, as pytest and
mypy name them, and a script finds the modules beside it.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence


class LayoutError(Exception):
    """The tree cannot be read as a Python project; the message is one line with the mend."""


class Layout:
    """Names of the modules of a tree.

    ``files`` are paths relative to the project root, ``roots`` folders likewise. Raises :class:`LayoutError` when two
    roots hold the same module.
    """

    def __init__(self, files: Sequence[str], roots: Sequence[str] = ()) -> None:
        packages = {folder_of(path) for path in files if base_of(path) == "__init__.py"} - {""}
        self._roots = _roots(files, roots, packages)
        self.names: dict[str, str] = {}
        """Primary module name by path."""
        self.paths: dict[str, str] = {}
        """Path by primary module name."""
        self.packages: set[str] = set()
        """Names that have modules below them."""
        self._others: dict[str, list[str]] = {}
        self._scripts: dict[tuple[str, str], str] = {}
        for path in files:
            self._add(path, packages)

    def _add(self, path: str, packages: set[str]) -> None:
        root = next(root for root in self._roots if path.startswith(root))
        name = _module_name(path[len(root) :])
        other = self.paths.get(name)
        if other is not None and _is_module(path) and _is_module(other):
            self._conflict(name, other, path)
        if other is None or not _is_module(other) or base_of(path) == "__init__.py":
            self.paths[name] = path  # of a module and a package of one name Python takes the package
        self.names[path] = name
        self._note_packages(name)
        base = folder_of(path)
        if base not in packages:
            self._scripts[base, _module_name(base_of(path))] = path
            return
        while base in packages:
            base = folder_of(base.rstrip("/"))
        if base != root:
            self._others.setdefault(_module_name(path[len(base) :]), []).append(path)

    def _conflict(self, name: str, one: str, other: str) -> None:
        roots = {next(root for root in self._roots if path.startswith(root)) for path in (one, other)}
        if len(roots) > 1:
            raise LayoutError(
                f"module {name} is in two roots: {one} and {other}; name the import roots in the manifest "
                f"(roots = [...]) or leave one of the two out (exclude = [...])"
            )

    def _note_packages(self, name: str) -> None:
        while (name := name.rpartition(".")[0]) and name not in self.packages:
            self.packages.add(name)

    @property
    def top_level(self) -> frozenset[str]:
        """First components of all names that an import may use."""
        scripts = {name for _, name in self._scripts}
        return frozenset(name.partition(".")[0] for name in (*self.paths, *self._others, *scripts))

    def find(self, name: str, importer: str) -> str | None:
        """Path of module ``name`` as ``importer`` sees it; None where the tree has none.

        Of several packages of one name the one that shares most folders with the importer is meant.
        """
        path = self.paths.get(name) or self._scripts.get((folder_of(importer), name))
        if path is not None or not (candidates := self._others.get(name)):
            return path
        return max(candidates, key=lambda path: (len(os.path.commonpath(["/" + path, "/" + importer])), path))

    def is_package(self, name: str) -> bool:
        """Whether ``name`` is a folder of modules, with or without an ``__init__.py``."""
        return name in self.packages

    def relative(self, importer: str, module: str, level: int) -> str | None:
        """Absolute name of ``module`` with ``level`` leading dots, seen from ``importer``.

        None where the dots lead past the outermost package, which Python refuses.
        """
        name = self.names[importer]
        parts = name.split(".") if name else []
        kept = len(parts) - level + (base_of(importer) == "__init__.py")
        return None if kept < 0 else ".".join([*parts[:kept], *([module] if module else [])])


def folder_of(path: str) -> str:
    """The folder a path lies in, with a trailing slash; empty for the project root."""
    head, slash, _ = path.rpartition("/")
    return head + slash


def base_of(path: str) -> str:
    """Last component of a path."""
    return path.rpartition("/")[2]


def _roots(files: Iterable[str], roots: Sequence[str], packages: set[str]) -> list[str]:
    found = {""}
    for root in roots:
        normal = os.path.normpath(root).strip("/")
        folder = "" if normal == "." else normal + "/"
        while folder in packages:  # a package given as a root is imported by its own name, from the folder above
            folder = folder_of(folder.rstrip("/"))
        found.add(folder)
    if not roots and "src/" not in packages and any(path.startswith("src/") for path in files):
        found.add("src/")
    return sorted(found, key=len, reverse=True)


def _module_name(path: str) -> str:
    folder, slash, base = path.rpartition("/")
    name = folder if base == "__init__.py" else folder + slash + (base.rpartition(".")[0] or base)
    return name.replace("/", ".")


def _is_module(path: str) -> bool:
    return path.endswith((".py", ".pyw"))
