"""What an expression may stand for, once names are followed across modules.

Dataclasses and no named tuples: a class and an instance of it must never compare equal.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class External:
    """Something of a library, or of the catalogue: a module, class, function or attribute, by qualified name."""

    name: str


@dataclass(frozen=True, slots=True)
class LibraryObject:
    """An instance of a library's class."""

    type_name: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method got from an instance, under the class that documents it."""

    name: str


@dataclass(frozen=True, slots=True)
class ProjectModule:
    """A module or package of the tree; ``path`` is None for a folder without ``__init__.py``."""

    name: str
    path: str | None


@dataclass(frozen=True, slots=True)
class ProjectClass:
    """Class ``number`` of the file ``path``."""

    path: str
    number: int


@dataclass(frozen=True, slots=True)
class ProjectObject:
    """An instance of a class of the tree."""

    path: str
    number: int


@dataclass(frozen=True, slots=True)
class ProjectFunction:
    """Function ``number`` of the file ``path``."""

    path: str
    number: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string constant."""

    value: str


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a module as a mapping: ``globals()``, ``vars(module)``, ``module.__dict__``."""

    owner: Value


@dataclass(frozen=True, slots=True)
class Getter:
    """``operator.attrgetter(name)``."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Lookup:
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
