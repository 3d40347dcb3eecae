"""Small random projects that can really be run: what they call can be compared with what the engine reports.

Every program is made of a few names that are bound, rebound, hidden, passed through modules and called. What it calls
is the module ``governed``, which only writes down from which line it was called. A statement stands on one line, so
that a line says which call is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

GOVERNED = '''\
"""Stand-ins for what starts work: each call is written down with the place it came from."""

import sys

SEEN = []


def _note(name):
    frame = sys._getframe(2)
    SEEN.append((frame.f_code.co_filename, frame.f_lineno, name))


class Decoy:
    """Can be used like anything else, and starts nothing."""

    def __new__(cls, *arguments, **keywords):
        return object.__new__(cls)

    def __call__(self, *arguments, **keywords):
        return decoy

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return decoy

    def __enter__(self):
        return decoy

    def __exit__(self, *error):
        return None


decoy = Decoy()


class Function:
    """A governed function; its attributes are nothing."""

    def __new__(cls, *arguments):
        return object.__new__(cls) if len(arguments) == 1 else decoy

    def __init__(self, name):
        self._name = "governed." + name

    def __call__(self, *arguments, **keywords):
        _note(self._name)
        return arguments[0] if arguments else decoy

    def __getattr__(self, name):
        return Decoy.__getattr__(decoy, name)


class _Meta(type):
    def __getattr__(cls, name):
        return Decoy.__getattr__(decoy, name)


class Pool(metaclass=_Meta):
    def __init__(self, *arguments):
        if len(arguments) == 3:
            raise TypeError("an object is no base class")
        _note("governed.Pool")

    def __init_subclass__(cls):
        _note("governed.Pool")

    def submit(*arguments):
        _note("governed.Pool.submit")
        return decoy

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def __getattr__(self, name):
        return Decoy.__getattr__(decoy, name)


run = Function("run")
call = Function("call")


def _governed_name(value):
    if isinstance(value, Function):
        return value._name
    if isinstance(value, type) and issubclass(value, Pool):
        return "governed.Pool"
    if getattr(value, "__func__", value) is Pool.submit:
        return "governed.Pool.submit"
    return None


def __getattr__(name):
    return Decoy.__getattr__(decoy, name)


__all__ = ["run", "call", "Pool"]
'''

PROBES = """\
from contextlib import suppress

import governed as _g

decoy = _g.decoy
yes, no, one = True, False, (1,)


def probe(value):
    name = _g._governed_name(value)
    if name is not None:
        _g._note(name)
    return value
"""

RUNNER = '''\
"""Runs one project after the other: a folder a line in, what was called as JSON a line out."""

import ast, builtins, importlib, importlib.machinery, json, sys

sys.dont_write_bytecode = True


class Guard(ast.NodeTransformer):
    """A probe that fails says that nothing governed was there; what stands behind it still runs."""

    def visit_Expr(self, node):
        told = ast.parse("__failed__()").body
        handler = ast.ExceptHandler(type=ast.Name(id="Exception", ctx=ast.Load()), name=None, body=told)
        return ast.copy_location(ast.Try(body=[node], handlers=[handler], orelse=[], finalbody=[]), node)


def failed():
    """Note a function or class body that was left before its end: what it would have called is not known."""
    _, error, trace = sys.exc_info()
    while trace.tb_next is not None:
        trace = trace.tb_next
        own = trace.tb_frame.f_code
        if not own.co_name.startswith("<") and not own.co_filename.endswith(STAND_INS):
            crashes.append(repr(error))


builtins.__failed__ = failed
STAND_INS = ("/governed.py", "/probes.py")


class Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimize=-1):
        tree = ast.parse(data, path)
        if not path.endswith(STAND_INS):
            tree = ast.fix_missing_locations(Guard().visit(tree))
        return compile(tree, path, "exec")


sys.path_hooks.insert(0, importlib.machinery.FileFinder.path_hook((Loader, [".py"])))
known = set(sys.modules)
for line in sys.stdin:
    root = line.rstrip("\\n")
    sys.path.insert(0, root)
    crashes = []
    try:
        importlib.import_module("main")
    except Exception as error:
        crashes.append(repr(error))
    seen = sys.modules["governed"].SEEN if "governed" in sys.modules else []
    answer = {"calls": [(p[len(root) + 1:], n, api) for p, n, api in seen if p.startswith(root)], "crashes": crashes}
    print(json.dumps(answer), flush=True)
    sys.path.remove(root)
    for name in set(sys.modules) - known:
        del sys.modules[name]
'''

HEADER = "from probes import decoy, no, one, probe, suppress, yes"

NAMES = ("a", "b", "run", "governed")
LEAVES = ("run", "call", "Pool", "submit", "a", "b")


# --- statements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A simple statement; ``alias`` when it only gives a value another name."""

    text: str
    alias: bool = False


@dataclass(frozen=True)
class Block:
    """A compound statement: headers with their bodies, then ``after`` behind it. ``$F`` is a name of its own."""

    parts: tuple[tuple[str, tuple[Node, ...]], ...]
    after: tuple[Line, ...] = ()


Node = Line | Block
Body = tuple[Node, ...]


@dataclass
class Text:
    """A module written out; ``aliases`` are the lines that only give a value another name."""

    lines: list[str] = field(default_factory=list)
    aliases: set[int] = field(default_factory=set)
    functions: int = 0

    def write(self, body: Sequence[Node], depth: int = 0) -> None:
        for node in body:
            if isinstance(node, Line):
                self._line(node, node.text, depth)
                continue
            self.functions += 1
            own = f"f{self.functions}"
            for header, inner in node.parts:
                for text in header.splitlines():
                    self.lines.append("    " * depth + text.replace("$F", own))
                self.write(inner or (Line("pass"),), depth + 1)
            for line in node.after:
                self._line(line, line.text.replace("$F", own), depth)

    def _line(self, line: Line, text: str, depth: int) -> None:
        self.lines.append("    " * depth + text)
        if line.alias:
            self.aliases.add(len(self.lines))


class Project(NamedTuple):
    """The modules of a program by path, and the lines of each that only make aliases."""

    files: Mapping[str, str]
    aliases: frozenset[tuple[str, int]]

    def __str__(self) -> str:
        return "\n".join(f"# --- {path}\n{text}" for path, text in self.files.items())


def project(bodies: Mapping[str, Sequence[Node]]) -> Project:
    """Write out a program; the stand-ins are added."""
    files: dict[str, str] = {}
    aliases: set[tuple[str, int]] = set()
    for path, body in bodies.items():
        text = Text([HEADER])
        text.write(body)
        files[path] = "\n".join(text.lines) + "\n"
        aliases |= {(path, line) for line in text.aliases}
    return Project(files, frozenset(aliases))


def compiles(program: Project) -> bool:
    """Whether Python accepts every module: the generators do not know all rules of ``global`` and ``:=``."""
    try:
        for path, text in program.files.items():
            compile(text, path, "exec")
    except SyntaxError:
        return False
    return True


# --- expressions ----------------------------------------------------------------------------------------------------

names = st.sampled_from(NAMES)


@cache
def values(sources: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Expressions for something that may be governed; ``sources`` are more of them."""
    leaf = st.one_of(
        names,
        st.builds("{}.{}".format, names, st.sampled_from(LEAVES)),
        st.sampled_from(["decoy", *sources]),
    )
    return st.one_of(
        leaf,
        leaf,
        st.builds("({} if {} else {})".format, leaf, st.sampled_from(["yes", "no"]), leaf),
        st.builds("({} or {})".format, leaf, leaf),
        st.builds("({} := {})".format, names, leaf),
        st.builds('getattr({}, "{}")'.format, names, st.sampled_from(LEAVES)),
        st.builds("{}.{}.{}".format, names, names, st.sampled_from(LEAVES)),
    )


PLAIN_PROBES = (
    "{}()",
    "{}(decoy)",
    "{}().submit(decoy)",
    "{}.submit(decoy)",
    "probe({})",
    "[{}() for _ in one]",
    'f"{{{}()}}"',
    "probe({}.run)",
)
LATER_PROBE = "(lambda: {}())()"
"""A function body sees what its names are bound to later, too."""
HIDING_PROBES = (
    "[{name}() for {name} in (decoy,)]",
    "(lambda {name}: {name}())(decoy)",
    "{{{name}: 0 for {name} in one}}",
)


def probes(value: st.SearchStrategy[str], *more: str) -> st.SearchStrategy[Line]:
    """Statements that call what an expression gives, or hand it on; ``more`` forms of them."""
    forms = st.sampled_from([*PLAIN_PROBES, *more])
    plain = st.builds(lambda form, value: Line(form.format(value)), forms, value)
    hiding = st.builds(lambda form, name: Line(form.format(name=name)), st.sampled_from(HIDING_PROBES), names)
    return st.one_of(plain, plain, plain, hiding)


def assignments(value: st.SearchStrategy[str], targets: st.SearchStrategy[str]) -> st.SearchStrategy[Line]:
    """Statements that give values to names."""
    alias = st.sampled_from(["{0} = {2}", "{0} = {1} = {2}", "{0}: object = {2}", "({0} := {2})"])
    pairs = st.sampled_from(["{0}, {1} = {2}, {3}", "({0}, {1}) = [{2}, {3}]", "{0}, ({1}, _) = {2}, ({3}, decoy)"])
    made = st.sampled_from(["{0} = {2}()", "{0} = {1} = {2}(decoy)"])
    line = st.one_of(
        alias.map(lambda form: (form, True)), pairs.map(lambda form: (form, True)), made.map(lambda form: (form, False))
    )
    return st.builds(
        lambda form, one, two, left, right: Line(form[0].format(one, two, left, right), form[1]),
        line, targets, targets, value, value,
    )  # fmt: skip


def governed_imports(targets: st.SearchStrategy[str]) -> st.SearchStrategy[Line]:
    """The forms of import of the governed module itself."""
    forms = ["import governed as {0}", "import governed", "from governed import run"]
    forms += [f"from governed import {name} as {{0}}" for name in ("run", "call", "Pool")]
    forms += ["from governed import call as a, Pool as {0}"]
    return st.builds(lambda form, name: Line(form.format(name)), st.sampled_from(forms), targets)


def module_imports(modules: Sequence[str], targets: st.SearchStrategy[str], star: bool) -> st.SearchStrategy[Line]:
    """Imports from other modules of the program; a relative one is written with its dots."""
    if not modules:
        return st.nothing()
    forms = ["from {1} import {2} as {0}", "from {1} import {2}"] + ["from {1} import *"] * (2 * star)

    def line(form: str, target: str, module: str, name: str) -> Line:
        return Line(form.format(target, module, name))

    whole = st.builds(_whole_module, st.sampled_from(modules), targets)
    return st.one_of(st.builds(line, st.sampled_from(forms), targets, st.sampled_from(modules), names), whole)


def _whole_module(module: str, target: str) -> Line:
    head, _, last = module.rpartition(".")
    if not module.startswith("."):
        return Line(f"import {module} as {target}")
    if not last:
        return Line(f"from {module} import m1 as {target}")
    return Line(f"from {head or '.'}{'.' if head and not head.strip('.') else ''} import {last} as {target}")


# --- bodies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What a generated body may hold."""

    modules: tuple[str, ...] = ()
    """Modules that it may import from, as it writes them."""
    at_module: bool = True
    in_function: bool = False
    in_loop: bool = False

    def inside(self, *, function: bool = False, loop: bool = False) -> Kind:
        """What a body inside may hold."""
        return Kind(self.modules, False, function or self.in_function, loop or (self.in_loop and not function))


def _absolute(modules: Sequence[str]) -> list[str]:
    return [f"{module}.{leaf}" for module in modules if not module.startswith(".") for leaf in ("a", "run")]


@st.composite
def bodies(draw: st.DrawFn, kind: Kind, depth: int) -> Body:
    """Any statements, nested ``depth`` deep."""
    return draw(_bodies(kind, depth))


@cache
def _bodies(kind: Kind, depth: int) -> st.SearchStrategy[Body]:
    value = values(())
    simple = st.one_of(
        probes(value, LATER_PROBE),
        probes(value, LATER_PROBE),
        governed_imports(names),
        assignments(value, names),
        module_imports(kind.modules, names, kind.at_module),
        _special(kind),
    )
    if depth == 0:
        return st.lists(simple, min_size=1, max_size=4).map(tuple)
    return st.lists(simple | compounds(kind, depth - 1), min_size=1, max_size=6).map(tuple)


def _special(kind: Kind) -> st.SearchStrategy[Line]:
    forms = ["del {}", "{} = decoy", "[({} := decoy) for _ in one]"]
    forms += ["from governed import *", '__all__ = ["run", "{}"]', '__all__ += ["{}"]'] if kind.at_module else []
    forms += ["return"] if kind.in_function else []
    forms += ["break", "continue"] if kind.in_loop else []
    return st.builds(lambda form, name: Line(form.format(name)), st.sampled_from(forms), names)


def compounds(kind: Kind, depth: int) -> st.SearchStrategy[Block]:
    """Compound statements: branches, loops, exceptions, functions and classes, which are called where they end."""
    same, in_loop = bodies(kind.inside(), depth), bodies(kind.inside(loop=True), depth)
    if kind.at_module:
        same = bodies(kind, depth)
        in_loop = bodies(Kind(kind.modules, True, False, True), depth)
    condition = st.sampled_from(["yes", "no"])
    return st.one_of(
        st.builds(lambda c, one, two: Block(((f"if {c}:", one), ("else:", two))), condition, same, same),
        st.builds(lambda c, one: Block(((f"if {c}:", one),)), condition, same),
        st.builds(lambda n, one: Block(((f"for {n} in (decoy, decoy):", one),)), names, in_loop),
        st.builds(lambda one: Block((("for _ in (1, 2):", one),)), in_loop),
        st.builds(lambda one, two: Block((("try:", one), ("except Exception:", two))), same, same),
        st.builds(_try_finally, names, same, same),
        st.builds(_import_or, names, same),
        st.builds(lambda one: Block((("with suppress(Exception):", one),)), same),
        st.builds(lambda v, n, one: Block(((f"with {v}() as {n}:", one),)), values(()), names, same),
        st.builds(_match, names, same, same),
        functions(kind, depth),
        classes(kind, depth),
    )


def _try_finally(name: str, body: Body, handler: Body) -> Block:
    return Block((("try:", body), (f"except Exception as {name}:", handler), ("finally:", body[:1])))


def _import_or(name: str, handler: Body) -> Block:
    return Block((("try:", (Line(f"import missing as {name}"),)), ("except ImportError:", handler)))


def _match(name: str, one: Body, two: Body) -> Block:
    return Block((("match decoy:", (Block((("case 1:", one), (f"case {name}:", two))),)),))


def functions(kind: Kind, depth: int) -> st.SearchStrategy[Block]:
    """A function that is called once, with parameters that hide names, with ``global`` and ``nonlocal``."""
    body = bodies(kind.inside(function=True), depth)
    declared = st.sampled_from(["", "", "global {}", "nonlocal {}"])

    def build(parameter: str | None, declaration: str, name: str, inner: Body, decorator: str | None) -> Block:
        lines = (Line(declaration.format(name)),) if declaration else ()
        header = f"def $F({parameter or ''}):"
        if decorator is not None:
            header = f"@{decorator}\n{header}"
        return Block(((header, (*lines, *inner)),), (Line(f"$F({'decoy' if parameter else ''})"),))

    return st.builds(build, st.none() | names, declared, names, body, st.none() | names)


def classes(kind: Kind, depth: int) -> st.SearchStrategy[Block]:
    """A class body with a method, and uses of both; or a class that derives from something."""
    body = bodies(Kind(kind.modules, False, False, False), depth)
    method = bodies(Kind(kind.modules, False, True, False), depth)

    def build(inner: Body, of_method: Body, name: str, value: str) -> Block:
        stored = (Line(f"self.{name} = {value}()"), Line(f"self.{name}.submit(decoy)"))
        members: Body = (*inner, Block((("def method(self):", (*of_method, *stored)),)))
        return Block((("class $F:", members),), (Line(f"$F.{name}()"), Line("$F().method()")))

    derived = st.builds(
        lambda value, inner: Block(((f"class $F({value}):", inner),), (Line("$F()"), Line("$F().submit(decoy)"))),
        # Never a bare name: it may hold an object, and ``class X(object_of_a_class)`` calls that class instead.
        st.sampled_from([f"{name}.Pool" for name in NAMES]),
        body,
    )
    return st.one_of(st.builds(build, body, method, names, values(())), derived)


# --- programs -------------------------------------------------------------------------------------------------------

SEEN_FROM = {
    "main.py": ("pkg", "pkg.m1", "pkg.m2", "pkg.sub.m3", "pkg.sub"),
    "pkg/__init__.py": (".m1", ".m2", ".sub.m3", "pkg.m1"),
    "pkg/m1.py": (".m2", ".sub.m3", "pkg.m2", ".sub"),
    "pkg/m2.py": (".sub.m3", "pkg.sub.m3"),
    "pkg/sub/m3.py": (),
}
"""What each module may import from so that no imports go around in a circle."""

IN_CIRCLES = {
    "main.py": ("pkg", "pkg.m1", "pkg.m2", "pkg.sub.m3"),
    "pkg/__init__.py": (".m1", ".m2", ".sub.m3", "pkg.m1"),
    "pkg/m1.py": (".", ".m2", ".sub.m3", "pkg.m2"),
    "pkg/m2.py": (".m1", ".", ".sub.m3", "pkg.m1"),
    "pkg/sub/m3.py": ("..m1", "..m2", "..", "pkg", "pkg.m2"),
}


@cache
def _prelude() -> st.SearchStrategy[Body]:
    """Every name is bound to something to begin with."""

    def bound(name: str) -> st.SearchStrategy[Line]:
        forms = [
            "from governed import run as {}",
            "from governed import Pool as {}",
            "{} = decoy",
            "import governed as {}",
        ]
        return st.sampled_from(forms).map(lambda form: Line(form.format(name)))

    return st.tuples(*(bound(name) for name in NAMES))


@st.composite
def single_modules(draw: st.DrawFn) -> Project:
    """One module with anything in it."""
    return project({"main.py": (*draw(_prelude()), *draw(bodies(Kind(), 2)))})


@st.composite
def packages(draw: st.DrawFn) -> Project:
    """A package whose modules pass names on, and a program that uses it."""
    files: dict[str, Body] = {"pkg/sub/__init__.py": draw(_prelude())}
    for path, modules in SEEN_FROM.items():
        files[path] = (*draw(_prelude()), *draw(bodies(Kind(modules), 1 if path == "main.py" else 0)))
    return project(files)


@st.composite
def circles(draw: st.DrawFn) -> Project:
    """Modules that import from each other, each name bound once in each module: what is first is what stays."""
    files: dict[str, Body] = {"pkg/sub/__init__.py": ()}
    for path, modules in IN_CIRCLES.items():
        own = draw(st.permutations(NAMES))
        lines: list[Node] = []
        for name in own:
            form = draw(st.sampled_from(["here", "imported", "imported", "none"]))
            if form == "here":
                line = draw(st.sampled_from(["from governed import run as {}", "{} = decoy", "import governed as {}"]))
                lines.append(Line(line.format(name)))
            elif form == "imported":
                module, other = draw(st.sampled_from(modules)), draw(names)
                imported = draw(
                    st.sampled_from([Line(f"from {module} import {other} as {name}"), _whole_module(module, name)])
                )
                lines.append(Block((("with suppress(ImportError):", (imported,)),)))
        if draw(st.booleans()):
            lines.append(Line(f"from {draw(st.sampled_from(modules))} import *"))
        lines += draw(st.lists(probes(names | st.builds("{}.{}".format, names, names)), min_size=2, max_size=4))
        files[path] = tuple(lines)
    return project(files)


# --- the subset in which everything is certain ----------------------------------------------------------------------


@cache
def straight_values(read: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Expressions without a choice."""
    name = st.sampled_from(read)
    leaf = st.one_of(name, st.builds("{}.{}".format, name, st.sampled_from(LEAVES)), st.just("decoy"))
    return st.one_of(leaf, st.builds('getattr({}, "{}")'.format, name, st.sampled_from(LEAVES)))


@cache
def straight_bodies(read: tuple[str, ...], bound: tuple[str, ...], depth: int) -> st.SearchStrategy[Body]:
    """Statements that all run, once; functions read only names that are not bound again."""
    value, targets = straight_values(read), st.sampled_from(bound)
    bindings = ["import governed as {0}", "from governed import Pool as {0}", "{0} = decoy", "del {0}; {0} = decoy"]
    simple = st.one_of(
        probes(value),
        probes(value),
        assignments(value, targets),
        st.builds(lambda form, name: Line(form.format(name)), st.sampled_from(bindings), targets),
    )
    if depth == 0:
        return st.lists(simple, min_size=1, max_size=5).map(tuple)
    kept = ("run", "governed")
    local = st.tuples(*(straight_values(kept).map(lambda v, n=n: Line(f"{n} = {v}", alias=True)) for n in ("a", "b")))  # type: ignore[misc]
    inner = straight_bodies(("a", "b", *kept), ("a", "b"), 0)
    function = st.builds(lambda first, body: Block((("def $F():", (*first, *body)),), (Line("$F()"),)), local, inner)
    of_class = st.builds(
        lambda first, body, n: Block((("class $F:", (*first, *body)),), (Line(f"$F.{n}()"),)),
        local,
        inner,
        st.sampled_from(["a", "b"]),
    )
    derived = st.builds(lambda v: Block(((f"class $F({v}):", ()),), (Line("$F()"), Line("$F().submit(decoy)"))), value)
    return st.lists(st.one_of(simple, simple, simple, function, of_class, derived), min_size=1, max_size=8).map(tuple)


@st.composite
def straight_programs(draw: st.DrawFn) -> Project:
    """Two modules in which every statement runs once."""
    first: Body = (*draw(_prelude()), *draw(straight_bodies(NAMES, ("a", "b"), 1)))
    form = draw(st.sampled_from(["from helper import {0} as {0}", "from helper import {0}", "*"]))
    if form == "*":  # before everything else: what a name was before a star import always stays possible
        imports: Body = (Line("from helper import *"),)
    else:
        taken = draw(st.lists(names, min_size=1, max_size=3, unique=True))
        imports = (*draw(_prelude()), *(Line(form.format(name)) for name in taken))
    second: Body = (*imports, *draw(straight_bodies(NAMES, ("a", "b"), 1)))
    return project({"helper.py": first, "main.py": second})


def lines_of(program: Project) -> Iterator[tuple[str, int, str]]:
    """Path, line and text of every line."""
    for path, text in program.files.items():
        yield from ((path, number, line) for number, line in enumerate(text.splitlines(), 1))
