"""Both front ends give the same facts of the same text."""

from __future__ import annotations

import ast
import gc
import random
import sys
import sysconfig
from pathlib import Path

import pytest

from checkers import engine
from checkers.catalog import Catalog
from checkers.facts import ast_frontend, libcst_frontend
from checkers.facts.builder import Builder
from checkers.facts.interest import Interest
from checkers.facts.walk import Walk
from checkers.intake.files import list_files
from checkers.intake.source import decode
from checkers.resolve.layout import Layout

REPOSITORY = Path(__file__).parent.parent.parent
STDLIB = Path(sysconfig.get_path("stdlib"))
SAMPLE = sorted(path.name for path in STDLIB.glob("[a-d]*.py"))

TEXTS = {
    "places of headers": """\
import subprocess
class A( # : a comment
    subprocess.Popen
) : x = subprocess.run
if (subprocess.run([":"])
    ): pass
elif subprocess.call(1): pass
else :
    subprocess.check_call(2)
try : subprocess.run(3)
except (
    OSError): subprocess.run(4)
finally: subprocess.run(5)
""",
    "decorators": """\
import subprocess, functools
@functools.partial(subprocess.run)
@(
    subprocess.run
)
def f(a=subprocess.run, *, b: "subprocess.Popen" = subprocess.call) -> subprocess.Popen: return subprocess.run
""",
    "parentheses": """\
from subprocess import run
x = (run)(1)
y = (
  run
)(
  2)
z = run \\
  (3)
""",
    "characters": """\
import os
s = "äöü"; os.system("ß")
t = ("é", os.popen("日本"), os.fork)
""",
    "spelled otherwise": """\
import os as ｏ
def ｆ(ﬁ=o.fork, *, ｂ: "ｏ.popen" = 1): return o.popen(ﬁ.x)
class A: ｘ = o.system; y = ｏ.popen(1)
f(); A.x(ﬁ=o.fork)
""",
    "makers of types": """\
import typing as t, subprocess
from typing_extensions import cast as c
x = c(subprocess.Popen, subprocess.run), t.cast(subprocess.Popen, subprocess.call), t.NewType("N", subprocess.Popen)
isinstance(x, subprocess.Popen), t.isinstance(x, subprocess.run), getattr(x, "y", subprocess.run)
""",
    "entered": """\
from concurrent.futures import ThreadPoolExecutor as Pool
from typing import Self
class C(Pool):
    def me(self) -> Self: return self
with stack() as s, C() as c, c.me() as d, s.enter_context(Pool()) as e, s.enter_context() as g:
    s.enter_context(cm=Pool()).submit(e.submit, d.submit)
""",
    "formatted": """\
import os
a = f"{os.system('a')} {os.fork()!r:>{os.getpid()}}"
b = f"x" f"{os.popen('b')}"
""",
    "patterns": """\
import subprocess
match subprocess.run(1):
    case subprocess.Popen(args=a) as p if subprocess.call(p): p.wait()
    case [first, *rest] | {"k": first, **rest}: first()
    case other: subprocess.run(other)
""",
    "order of arguments": "import os\nos.spawnv(1, *a, k=os.fork, *b, **c)\nx[os.fork, 1:2](os.system)\n",
    "deletions": "import os, subprocess as s\ndel s, (os), x[os.fork()]\ns.run(1)\n",
    "walrus and comprehensions": """\
import os
if (run := os.system) and [y := os.fork for x in (os.popen, run) if x(1)]: run(2)
z = {k: v for k in os.listdir() for v in k}
w = lambda a=os.fork, *b: os.system(a)
""",
}

TYPE_PARAMETERS = """\
import subprocess as s
from concurrent.futures import Executor
T = s.Popen
class A[T: (int, list[str]) = int,
    *Ts, **P](dict[str, T], Executor):
    def run[R](self, value: R, made: T = s.run) -> R: return self.submit(s.call)
    if T : s.run(1)
async  def g [Q: Executor](q: Q, t: "T", *, T: T = T): q.submit(t, T.wait())
type Pool[T] = Executor | T
type  Several[
    A, B,
] = s.Popen | A
type Plain = s.Popen
def h(p: Pool, q: Plain, r: Several): p.submit(1); q.wait(); r.wait()
def k[X: "quoted"](p: X): s.run(p)
"""


def facts_of(text: str, interest: Interest) -> tuple[object, object]:
    return ast_frontend.parse(text, interest), libcst_frontend.parse(text, interest, annotated=False)


@pytest.fixture(scope="module")
def interest() -> Interest:
    everything = Catalog.load(Catalog.known_roots())
    return engine._interest(engine.Scan(REPOSITORY), Layout([*list_files(REPOSITORY).files]), everything)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_small_texts(name: str, newline: str, interest: Interest) -> None:
    fast, reference = facts_of(TEXTS[name].replace("\n", newline), interest)
    assert fast == reference


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("text", [TYPE_PARAMETERS.partition("def k[")[0], "class A[T]: x: int = 1; y = T\n"])
def test_type_parameters_that_the_interpreter_does_not_know(text: str, newline: str, interest: Interest) -> None:
    fast, reference = facts_of(text.replace("\n", newline), interest)
    assert fast == reference


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="they are known")
@pytest.mark.parametrize(
    "text", [TYPE_PARAMETERS, TYPE_PARAMETERS.replace("\n", "\r"), "def f[T # of it\n](x): pass\n"]
)
def test_odd_type_parameters_are_left_to_the_reference(text: str, interest: Interest) -> None:
    with pytest.raises(ast_frontend.NeedsReferenceError):
        ast_frontend.parse(text, interest)


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_of_a_front_end_outlives_its_facts(name: str, interest: Interest) -> None:
    before = trees_and_walks()
    facts = facts_of(TEXTS[name], interest)
    assert [type(one) for one in trees_and_walks() if not any(one is other for other in before)] == []
    assert facts[0] == facts[1]


def trees_and_walks() -> list[object]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Walk | Builder | ast.Module)]


def compare(text: str, interest: Interest) -> None:
    try:
        fast = ast_frontend.parse(text, interest)
    except ast_frontend.NeedsReferenceError:
        pytest.skip("left to the reference")
    assert fast == libcst_frontend.parse(text, interest, annotated=False)


@pytest.mark.parametrize("path", random.Random(20).sample(SAMPLE, 20))
def test_standard_library(path: str, interest: Interest) -> None:
    text = decode((STDLIB / path).read_bytes())
    assert isinstance(text, str)
    compare(text, interest)


@pytest.mark.parametrize("path", sorted(path.name for path in (REPOSITORY / "checkers" / "rules").glob("*.py")))
def test_this_repository(path: str, interest: Interest) -> None:
    compare((REPOSITORY / "checkers" / "rules" / path).read_text(encoding="utf-8"), interest)


@pytest.mark.parametrize(
    "text", ["x = (", "\0", "from os import fork\nｆork()", "a" + "+ a" * 30_000, "(" * 300 + ")" * 300]
)
def test_what_it_cannot_tell_is_left_to_the_reference(text: str, interest: Interest) -> None:
    with pytest.raises(ast_frontend.NeedsReferenceError):
        ast_frontend.parse(text, interest)
