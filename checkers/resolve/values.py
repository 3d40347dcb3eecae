"""What an expression may stand for, once names are followed across modules."""

from __future__ import annotations

from typing import NamedTuple


class External(NamedTuple):
    """Something of a library, or of the catalogue: a module, class, function or attribute, by qualified name."""

    name: str


class LibraryObject(NamedTuple):
    """An instance of a library's class."""

    type_name: str


class Method(NamedTuple):
    """A method got from an instance, under the class that documents it."""

    name: str


class ProjectModule(NamedTuple):
    """A module or package of the tree; ``path`` is None for a folder without ``__init__.py``."""

    name: str
    path: str | None


class ProjectClass(NamedTuple):
    """Class ``number`` of the file ``path``."""

    path: str
    number: int


class ProjectObject(NamedTuple):
    """An instance of a class of the tree."""

    path: str
    number: int


class ProjectFunction(NamedTuple):
    """Function ``number`` of the file ``path``."""

    path: str
    number: int


class Text(NamedTuple):
    """A string constant."""

    value: str


class Names(NamedTuple):
    """The names of a module as a mapping: ``globals()``, ``vars(module)``, ``module.__dict__``."""

    owner: Value


class Getter(NamedTuple):
    """``operator.attrgetter(name)``."""

    attribute: str


class Lookup(NamedTuple):
    """``names.get``, waiting for its key."""

    names: Names


Value = (
    External
    | LibraryObject
    | Method
    | ProjectModule
    | ProjectClass
    | ProjectObject
    | ProjectFunction
    | Text
    | Names
    | Getter
    | Lookup
)
Values = tuple[Value, ...]
