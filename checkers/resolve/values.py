"""What an expression may stand for, once names are followed across modules.

Structs and no named tuples: a class and an instance of it must never compare equal.
"""

from __future__ import annotations

import msgspec


class External(msgspec.Struct, frozen=True):
    """Something of a library, or of the catalogue: a module, class, function or attribute, by qualified name."""

    name: str


class LibraryObject(msgspec.Struct, frozen=True):
    """An instance of a library's class."""

    type_name: str


class Method(msgspec.Struct, frozen=True):
    """A method got from an instance, under the class that documents it."""

    name: str


class ProjectModule(msgspec.Struct, frozen=True):
    """A module or package of the tree; ``path`` is None for a folder without ``__init__.py``."""

    name: str
    path: str | None


class ProjectClass(msgspec.Struct, frozen=True):
    """Class ``number`` of the file ``path``."""

    path: str
    number: int


class ProjectObject(msgspec.Struct, frozen=True):
    """An instance of a class of the tree."""

    path: str
    number: int


class ProjectFunction(msgspec.Struct, frozen=True):
    """Function ``number`` of the file ``path``."""

    path: str
    number: int


class Text(msgspec.Struct, frozen=True):
    """A string constant."""

    value: str


class Names(msgspec.Struct, frozen=True):
    """The names of a module as a mapping: ``globals()``, ``vars(module)``, ``module.__dict__``."""

    owner: Value


class Getter(msgspec.Struct, frozen=True):
    """``operator.attrgetter(name)``."""

    attribute: str


class Lookup(msgspec.Struct, frozen=True):
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
