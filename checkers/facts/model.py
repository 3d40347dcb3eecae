"""The intermediate form of one module: what it binds, calls, passes on, defines and exports.

A front end reads syntax and a :class:`~checkers.facts.builder.Builder` turns it into these values; the resolver reads
nothing else. Expressions are kept as small immutable trees of what can carry a governed name, everything else is
:data:`OPAQUE`. Names are resolved to *loads*: which bindings of the module reach this very use, by Python's scoping
rules and the flow of control. So the resolver needs no scopes, only values.
"""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What facts are made of: compact in memory, and to be written and read as MessagePack arrays of checked types."""


class Name(Value, frozen=True, tag=True):
    """A name that is read; ``ModuleFacts.loads[load]`` are the bindings that may reach it."""

    load: int


class Attribute(Value, frozen=True, tag=True):
    """``value.name``."""

    value: Expression
    name: str


class CallArgument(Value, frozen=True):
    """``keyword`` is None for a positional argument, ``*`` and ``**`` for unpacked ones."""

    keyword: str | None
    value: Expression


class Call(Value, frozen=True, tag=True):
    """``function(arguments)``."""

    function: Expression
    arguments: tuple[CallArgument, ...]


class Item(Value, frozen=True, tag=True):
    """``value[key]``."""

    value: Expression
    key: Expression


class Constant(Value, frozen=True, tag=True):
    """A constant of the source."""

    value: str | int | bool | None


def constant(value: str | int | bool | None) -> Constant:
    """A constant that MessagePack takes: ints end at 64 bits, half of a surrogate pair is spelled as its escape."""
    if isinstance(value, str):
        return Constant(value if value.isascii() else value.encode("utf-8", "backslashreplace").decode())
    if isinstance(value, int) and not isinstance(value, bool):
        return Constant(max(-(2**63), min(value, 2**63 - 1)))
    return Constant(value)


class Choice(Value, frozen=True, tag=True):
    """One of several values: a conditional expression, ``or``, a type union."""

    options: tuple[Expression, ...]


class Display(Value, frozen=True, tag=True):
    """A tuple, list or set display."""

    elements: tuple[Expression, ...]


class Joined(Value, frozen=True, tag=True):
    """A sequence made of others (``a + b``, ``[*a]``, ``list(a)``): where its elements may come from."""

    sources: tuple[Expression, ...]


class Element(Value, frozen=True, tag=True):
    """What iterating over ``iterable`` gives."""

    iterable: Expression


class Part(Value, frozen=True, tag=True):
    """Element ``position`` of an unpacked value."""

    value: Expression
    position: int


class Entered(Value, frozen=True, tag=True):
    """What ``with value as …`` binds."""

    value: Expression


class Awaited(Value, frozen=True, tag=True):
    """``await value``."""

    value: Expression


class Instance(Value, frozen=True, tag=True):
    """An object of the type that an annotation names."""

    annotation: Expression


class Module(Value, frozen=True, tag=True):
    """The module that ``import`` binds: the first component, or with ``as`` the whole name."""

    name: str


class Member(Value, frozen=True, tag=True):
    """What ``from module import name`` binds; ``level`` counts the leading dots."""

    module: str
    level: int
    name: str


class Star(Value, frozen=True, tag=True):
    """Whatever name was asked for, if ``from module import *`` brings it."""

    module: str
    level: int


class FunctionValue(Value, frozen=True, tag=True):
    """The function ``ModuleFacts.functions[number]``."""

    number: int


class ClassValue(Value, frozen=True, tag=True):
    """The class ``ModuleFacts.classes[number]``."""

    number: int


class SelfValue(Value, frozen=True, tag=True):
    """The first parameter of a method: an instance of the class, or the class itself."""

    number: int
    is_class: bool


class SuperValue(Value, frozen=True, tag=True):
    """``super()`` in a method of the class."""

    number: int


class Opaque(Value, frozen=True, tag=True):
    """Anything that carries no name we follow."""


OPAQUE = Opaque()

Expression = (
    Name
    | Attribute
    | Call
    | Item
    | Constant
    | Choice
    | Display
    | Joined
    | Element
    | Part
    | Entered
    | Awaited
    | Instance
    | Module
    | Member
    | Star
    | FunctionValue
    | ClassValue
    | SelfValue
    | SuperValue
    | Opaque
)


class Binding(Value, frozen=True):
    """One place that binds a name, and to what."""

    name: str
    value: Expression
    escapes: bool
    """Bound at module or class level, where other code can take it."""


class Place(Value, frozen=True):
    """Where a use stands: its reported name, and the lines an annotation may refer to (see ``model.Extent``)."""

    line: int
    column: int
    first_line: int
    paren_line: int
    last_line: int
    statement: int


class Role:
    """How a use takes its value."""

    CALL = "call"
    REFERENCE = "reference"
    ALIAS = "alias"


class Use(Value, frozen=True):
    """A value that is called, handed on, or given another name."""

    role: str
    value: Expression
    place: Place
    symbol: str
    chain: str
    arguments: tuple[CallArgument, ...] | None
    aliases: tuple[int, ...]
    """For an alias, the bindings it makes."""


class Function(Value, frozen=True):
    """A function or method; ``symbol`` is its qualified name inside the module."""

    symbol: str
    returns: Expression
    decorators: tuple[Expression, ...]


class Class(Value, frozen=True):
    """A class: ``members`` bind in its body, ``attributes`` are what its methods store on ``self``."""

    symbol: str
    bases: tuple[Expression, ...]
    members: dict[str, tuple[int, ...]]
    attributes: dict[str, tuple[Expression, ...]]
    place: Place


class Statement(Value, frozen=True):
    """First and last line of a simple statement, a compound statement's header, or a decorator."""

    first_line: int
    last_line: int


class CommentFacts(Value, frozen=True):
    """See ``model.Comment``."""

    line: int
    column: int
    text: str
    own_line: bool
    block_last_line: int


class HeaderFacts(Value, frozen=True):
    """See ``model.Header``."""

    first_line: int
    last_line: int
    body_last_line: int
    is_decorator: bool


class ModuleFacts(Value, frozen=True):
    """All that the resolver needs to know of one module."""

    uses: tuple[Use, ...]
    loads: dict[int, tuple[int, ...]]
    """Bindings that reach a load; ``-1`` stands for the builtin of that name."""
    names: dict[int, str]
    """Names of the loads that a builtin or a star import may give."""
    bindings: dict[int, Binding]
    exports: dict[str, tuple[int, ...]]
    """Bindings of a module-level name that are alive when the module has run."""
    stars: tuple[int, ...]
    """Bindings that are star imports at module level, in order."""
    all_names: tuple[str, ...] | None
    """``__all__`` where the module states it in full; None where it has none or computes it."""
    all_computed: bool
    """``__all__`` exists and holds more than constants: then any name may be in it."""
    functions: tuple[Function, ...]
    classes: tuple[Class, ...]
    statements: dict[int, Statement]
    """Those that hold a use or the header of a class, by number."""
    comments: tuple[CommentFacts, ...]
    headers: tuple[HeaderFacts, ...]
    symbols: tuple[str, ...]
    signs: tuple[str, ...] = ()
    """What it tells of the tree, see :class:`checkers.intake.words.Known`."""
    given_names: tuple[str, ...] = ()
    """Names that it gives to something governed, and attributes with their dot."""
    derived: tuple[int, ...] | None = None
    """Classes that may be governed by a base; None for all."""


class Broken(Value, frozen=True):
    """A source that gave no facts, and why."""

    code: str
    message: str
    line: int
    column: int


BUILTIN = -1
"""In ``ModuleFacts.loads``: the name may be unbound in the module, so it may be the builtin."""
