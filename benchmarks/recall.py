"""Measures on real projects what ``check-ownership`` finds, against a second opinion: ruff's TID251.

    python benchmarks/recall.py [--cache DIR] [--only NAME]...

Downloads the projects of ``CORPORA`` as source archives with pip, lists their sites once with ``--jobs 1``
and once with ``--jobs 2``, has ruff report every use of the same catalogue names (banned-api), and looks up
each of ruff's places among the sites. Where there is no site, the syntax tree says what the place is: an
import, an annotation, the test of an ``isinstance``. A place of which it cannot say why it is no site is
*missed*. The tree is that of the running Python: use the newest, an older one cannot parse every file.

ruff reports ``module.name`` where it is used, and ``from module import name`` where it is imported, but no
use of the name so imported. So calls through such a name are looked up too, found by their spelling.

Writes the tables between the markers of ``docs/accuracy.md`` and ``docs/performance.md``. Exit status 1 if
anything was missed, a listing differs between the two runs, or a run printed a traceback; 2 if nothing could
be measured.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from checkers.catalog import Catalog, Form
from checkers.model import DEFAULT_KINDS, DEFAULT_TIERS, ApiKind, SiteKind, Tier

HERE = Path(__file__).resolve().parent.parent
# Fixed, so that two people who measure speak of the same code.
CORPORA = {
    "ansible-core": "2.21.5",
    "celery": "5.7.0",
    "homeassistant": "2025.4.4",
    "salt": "3008.5",
}
# Dynamic code is left out: there is no name that ruff could look for.
KINDS = tuple(kind for kind in ApiKind if kind is not ApiKind.DECLARED)
TIERS = tuple(tier for tier in Tier if tier is not Tier.STRICT)
THROUGH_IMPORT = "call through import"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_IDENTIFIER_AT_END = re.compile(r"\w+\Z")


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """Where a name stands: 1-based, columns count characters, at the first character of the last name."""

    path: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Report:
    """One diagnostic of ruff: the banned ``name`` and the expression or import that means it."""

    name: str
    path: str
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Miss:
    """A place without a site, and ``why`` it is none; empty where nothing explains it."""

    place: Place
    name: str
    shape: str
    why: str


@dataclass(slots=True)
class Result:
    """What was measured on one project."""

    corpus: str
    files: int = 0
    lines: int = 0
    seconds: dict[int, float] = field(default_factory=dict)
    same_bytes: bool = True
    traceback: bool = False
    sites: list[dict[str, Any]] = field(default_factory=list)
    unanalysed: list[dict[str, Any]] = field(default_factory=list)
    ruff_unparsable: list[str] = field(default_factory=list)
    reported: int = 0
    found: int = 0
    other_api: list[Miss] = field(default_factory=list)
    through_imports: int = 0
    through_imports_found: int = 0
    not_sites: list[Miss] = field(default_factory=list)
    only_ours: Counter[str] = field(default_factory=Counter)

    @property
    def missed(self) -> list[Miss]:
        return [miss for miss in self.not_sites if not miss.why]

    @property
    def by_default(self) -> int:
        """Sites of the kinds and tiers that count where nothing else is asked for."""
        return sum(s["api_kind"] in DEFAULT_KINDS and s["tier"] in DEFAULT_TIERS for s in self.sites)


class Source:
    """One file of a project: its lines and its syntax tree, read when first asked for."""

    def __init__(self, file: Path, path: str) -> None:
        self.path = path
        self._bytes = file.read_bytes()
        self._bindings: dict[ast.AST, dict[str, list[ast.AST]]] = {}

    @cached_property
    def lines(self) -> list[str]:
        return re.split(r"\r\n|\r|\n", self._bytes.decode("utf-8-sig", errors="replace"))

    @cached_property
    def tree(self) -> ast.Module | None:
        """None where the running Python cannot parse the file."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return ast.parse(self._bytes)
            except (SyntaxError, ValueError, RecursionError):
                return None

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        if self.tree is None:
            return {}
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def column(self, line: int, offset: int) -> int:
        """The 1-based column in characters of a 0-based offset in UTF-8 bytes."""
        return len(self.lines[line - 1].encode()[:offset].decode(errors="replace")) + 1

    def ends(self, node: ast.AST) -> tuple[int, int]:
        line, offset = getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
        return (line, self.column(line, offset)) if line else (0, 0)

    def starts(self, node: ast.AST) -> tuple[int, int]:
        line, offset = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return (line, self.column(line, offset)) if line else (0, 0)

    def last_name(self, end: tuple[int, int]) -> Place:
        """Where the identifier that ends at ``end`` begins."""
        line, column = end
        match = _IDENTIFIER_AT_END.search(self.lines[line - 1][: column - 1])
        return Place(self.path, line, match.start() + 1 if match else column)

    def node_at(self, report: Report) -> ast.AST | None:
        """The node whose first and last character ruff gives; else the smallest expression around them."""
        around: ast.AST | None = None
        for node in self.parents:
            if not isinstance(node, ast.expr | ast.alias):
                continue
            first, last = self.starts(node), self.ends(node)
            if (first, last) == (report.first, report.last) and not isinstance(node, ast.Expr):
                return node
            if first <= report.first and report.last <= last and isinstance(node, ast.Constant | ast.JoinedStr):
                around = node
        return around

    def bindings(self, scope: ast.AST) -> Mapping[str, Sequence[ast.AST]]:
        """Every node below ``scope`` that binds a name, by that name."""
        if scope not in self._bindings:
            names: dict[str, list[ast.AST]] = {}
            for node in ast.walk(scope):
                if node is not scope and (bound := _bound_name(node)):
                    names.setdefault(bound, []).append(node)
            self._bindings[scope] = names
        return self._bindings[scope]

    def above(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """(child, parent) from ``node`` up to the module."""
        while (parent := self.parents.get(node)) is not None:
            yield node, parent
            node = parent


_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _bound_name(node: ast.AST) -> str:
    match node:
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.alias(name=name, asname=asname):
            return asname or name
    return ""


# --- What a place is --------------------------------------------------------------------------------------


def shape_of(source: Source, node: ast.AST | None) -> str:
    """Import, call, subclass, decorator, annotation, store or reference."""
    if node is None:
        return "unknown"
    if isinstance(node, ast.alias):
        return "import"
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return "store"
    if _in_annotation(source, node):
        return "annotation"
    parent = source.parents.get(node)
    if isinstance(parent, ast.Call) and parent.func is node:
        return "call"
    if isinstance(parent, ast.ClassDef) and node in parent.bases:
        return "subclass"
    return "reference"


def why_no_site(source: Source, node: ast.AST | None, shape: str, sites: Mapping[Place, Any], is_class: bool) -> str:
    """Why the design calls a place no site; empty if it does not. ``is_class``: it names a governed class."""
    if shape in _NEVER:
        return _NEVER[shape]
    if node is None:
        return ""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Attribute):
        if source.last_name(source.ends(parent)) in sites:
            return "reached through its own dunder: the site is at that name"
        if is_class:
            return "an attribute of the class that is not governed itself"
    for child, parent in source.above(node):
        if isinstance(parent, ast.stmt):
            return _why_of_statement(source, child, parent, sites)
        if why := _why_of_expression(child, parent):
            return why
    return ""


def _why_of_expression(child: ast.AST, parent: ast.AST) -> str:
    if isinstance(parent, ast.ExceptHandler) and child is parent.type:
        return "caught exception"
    if isinstance(parent, ast.Compare):
        return "compared, not called or passed on"
    if isinstance(parent, ast.Call) and child in parent.args:
        name = _callee(parent)
        if name in ("isinstance", "issubclass"):
            return "tested with isinstance or issubclass"
        if name == "cast" and parent.args[0] is child:
            return "typing.cast"
    return ""


_NEVER = {
    "import": "import: the uses of the name are the sites",
    "annotation": "annotation",
    "store": "assigned or deleted, not called",
}


def _why_of_statement(source: Source, child: ast.AST, statement: ast.stmt, sites: Mapping[Place, Any]) -> str:
    lines = {place.line for place in sites if place.path == source.path}
    if isinstance(statement, ast.ClassDef) and child in statement.bases and statement.lineno in lines:
        return "subclass: the site is at the class line"
    if isinstance(statement, ast.Assign) and isinstance(child, ast.Attribute | ast.IfExp | ast.BoolOp):
        aliases = {target.id for target in statement.targets if isinstance(target, ast.Name)}
        uses = (node for node in source.parents if isinstance(node, ast.Name) and node.id in aliases)
        if any(Place(source.path, *source.starts(use)) in sites for use in uses):
            return "plain alias: the sites are where it is used"
    return ""


def _in_annotation(source: Source, node: ast.AST) -> bool:
    for child, parent in source.above(node):
        if isinstance(parent, ast.AnnAssign | ast.arg) and child is parent.annotation:
            return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and child is parent.returns:
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False


def _calls(source: Source) -> Iterator[ast.Call]:
    return (node for node in source.parents if isinstance(node, ast.Call))


def _callee(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else _callee_name(call)


def _callee_name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _bound_elsewhere(source: Source, name: ast.Name, imported: Sequence[ast.alias]) -> bool:
    """Whether a function around ``name``, or the module, binds it to something else as well."""
    scopes = (parent for _, parent in source.above(name) if isinstance(parent, _SCOPES))
    return any(binding not in imported for scope in scopes for binding in source.bindings(scope).get(name.id, ()))


# --- Comparison -------------------------------------------------------------------------------------------


def compare(result: Result, root: Path, reports: Sequence[Report], catalog: Catalog) -> None:
    """Looks up each of ruff's places, and each call through an import that ruff reports, among the sites."""
    sites = {Place(s["path"], s["line"], s["column"]): s for s in result.sites if s.get("cell") is None}
    seen: set[Place] = set()
    by_path: dict[str, list[Report]] = {}
    for report in reports:
        by_path.setdefault(report.path, []).append(report)
    for path, in_file in sorted(by_path.items()):
        source = Source(root / path, path)
        missing = []
        for report in in_file:
            place = source.last_name(report.last)
            if place in sites:
                seen.add(place)
                _check_api(result, sites[place], place, report.name, catalog)
            else:
                missing.append((report, source.node_at(report)))
        for report, node in missing:
            entry = catalog.entry(catalog.canonical(report.name))
            is_class = entry is not None and entry.form is Form.CLASS
            shape = shape_of(source, node)
            why = why_no_site(source, node, shape, sites, is_class)
            result.not_sites.append(Miss(source.last_name(report.last), report.name, shape, why))
        result.found += len(in_file) - len(missing)
        seen |= _look_up_calls(result, source, missing, sites)
    result.reported = len(reports)
    result.only_ours = Counter(site["kind"] for place, site in sites.items() if place not in seen)


def _look_up_calls(
    result: Result,
    source: Source,
    missing: Iterable[tuple[Report, ast.AST | None]],
    sites: Mapping[Place, dict[str, Any]],
) -> set[Place]:
    """The sites found among the calls of the names that the imports in ``missing`` bind."""
    imports: dict[str, list[tuple[ast.alias, str]]] = {}
    for report, node in missing:
        if isinstance(node, ast.alias):
            imports.setdefault(node.asname or node.name, []).append((node, report.name))
    found: set[Place] = set()
    for call in _calls(source) if imports else ():
        name = call.func
        if not isinstance(name, ast.Name) or name.id not in imports:
            continue
        place = Place(source.path, *source.starts(name))
        result.through_imports += 1
        if place in sites:
            found.add(place)
            continue
        aliases = [alias for alias, _ in imports[name.id]]
        why = "the name is bound to something else too" if _bound_elsewhere(source, name, aliases) else ""
        result.not_sites.append(Miss(place, imports[name.id][0][1], THROUGH_IMPORT, why))
    result.through_imports_found += len(found)
    return found


def _check_api(result: Result, site: dict[str, Any], place: Place, name: str, catalog: Catalog) -> None:
    apis = {site["api"], *site.get("candidates", ())}
    if catalog.canonical(name) not in apis:
        result.other_api.append(Miss(place, name, site["kind"], f"found as {site['api']}"))


# --- Running the two tools --------------------------------------------------------------------------------


def banned_names(kinds: Container[str] = KINDS, tiers: Container[str] = TIERS) -> dict[str, str]:
    """Every spelling of every name in the catalogue of these kinds and tiers → the documented name.

    By default all but dynamic code.
    """
    names: dict[str, str] = {}
    for file in sorted((HERE / "checkers" / "catalog").glob("*/*.toml")):
        for table in tomllib.loads(file.read_text(encoding="utf-8")).get("api", ()):
            if table["kind"] not in kinds or table.get("tier", Tier.CORE) not in tiers or table["form"] == "keyword":
                continue
            for name in (table["name"], *table.get("also", ())):
                if _DOTTED.fullmatch(name):
                    names[name] = table["name"]
    return names


def ruff_config(names: Iterable[str], rules: Sequence[str]) -> str:
    """A ruff.toml that selects ``rules`` and bans ``names``."""
    lines = [
        "# every file, whatever the project excludes",
        "exclude = []",
        "respect-gitignore = false",
        'target-version = "py313"',
        f"[lint]\nselect = {json.dumps([*rules])}",
        "[lint.flake8-tidy-imports.banned-api]",
        *(f'"{name}".msg = "governed"' for name in sorted(names)),
    ]
    return "\n".join(lines) + "\n"


def run_ruff(root: Path, work: Path, names: Iterable[str]) -> tuple[list[Report], list[str]]:
    """ruff's reports for ``names`` in every file below ``root``, and the files that it cannot parse."""
    config = work / "ruff.toml"
    config.write_text(ruff_config(names, ["TID251"]), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--ignore-noqa", "--exit-zero", "--quiet"]
    command += ["--config", str(config), "--output-format", "json", "."]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, encoding="utf-8", check=True)
    reports, unparsable = [], set()
    for item in json.loads(done.stdout):
        path = Path(item["filename"]).relative_to(root).as_posix()
        if item["code"] != "TID251":
            unparsable.add(path)
            continue
        first, last = item["location"], item["end_location"]
        name = item["message"].split("`")[1]
        reports.append(Report(name, path, (first["row"], first["column"]), (last["row"], last["column"])))
    return reports, sorted(unparsable)


def list_sites(result: Result, root: Path, work: Path) -> None:
    """Lists the sites twice, with one worker and with two; keeps the listing, the times, what differed."""
    written: list[bytes] = []
    for jobs in (1, 2):
        output = work / f"{result.corpus}-jobs{jobs}.json"
        output.unlink(missing_ok=True)
        command = [sys.executable, "-m", "checkers", "ownership", "--list-sites", "--no-cache", "--root", str(root)]
        command += ["--output-format", "json", "--output-file", str(output), "--jobs", str(jobs)]
        command += [word for kind in KINDS for word in ("--kind", kind)]
        command += [word for tier in TIERS for word in ("--tier", tier)]
        started = time.perf_counter()
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        result.seconds[jobs] = time.perf_counter() - started
        result.traceback |= "Traceback" in done.stderr or done.returncode not in (0, 2)
        sys.stderr.write(done.stderr)
        written.append(output.read_bytes() if output.exists() else b"{}")
    result.same_bytes = written[0] == written[1]
    listing = json.loads(written[0])
    result.files = listing.get("files", 0)
    result.sites = listing.get("sites", [])
    result.unanalysed = listing.get("unanalysed", [])


def fetch(name: str, version: str, cache: Path) -> Path | None:
    """The unpacked source of a project; None where the index cannot be reached and the cache lacks it."""
    folder = cache / "source" / f"{name}-{version}"
    if folder.is_dir():
        return folder
    archives = cache / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    archive = archives / f"{stem}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-binary", ":all:", "--no-deps", "--ignore-requires-python", "--dest", str(archives)]
        done = subprocess.run([*command, f"{name}=={version}"], capture_output=True, text=True, check=False)
        if not archive.exists():
            print(f"{name} {version}: not downloaded: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return None
    _unpack(archive, folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    """Regular files only, without the archive's top folder; a name that leads out of it is refused."""
    partial = folder.with_name(folder.name + ".partial")
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is None:
                continue
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{archive.name}: {member.name} leads out of the archive")
            target = partial / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(stream.read())
    partial.rename(folder)


def measure(name: str, version: str, cache: Path, catalog: Catalog) -> Result | None:
    """Everything about one project; None where its source cannot be had."""
    root = fetch(name, version, cache)
    if root is None:
        return None
    result = Result(f"{name} {version}")
    work = cache / "work" / name
    work.mkdir(parents=True, exist_ok=True)
    result.lines = sum(file.read_bytes().count(b"\n") for file in root.rglob("*.py") if file.is_file())
    list_sites(result, root, work)
    reports, result.ruff_unparsable = run_ruff(root, work, banned_names())
    compare(result, root, reports, catalog)
    return result


# --- Report -----------------------------------------------------------------------------------------------


def accuracy_tables(results: Sequence[Result]) -> str:
    """The measured part of docs/accuracy.md."""
    return "\n\n".join((*_counts(results), *_listings(results)))


def _counts(results: Sequence[Result]) -> Iterator[str]:
    yield _table(
        ("project", "files", "sites", "of these by default", "ruff reports", "found", "no site", "missed"),
        (_row_of_reports(r) for r in results),
    )
    yield "Calls through a name that ruff reports where it is imported (it does not report the calls):"
    yield _table(
        ("project", "calls", "found", "another binding", "missed"),
        (_row_of_imports(r) for r in results),
    )
    yield "Places that ruff reports and that are no sites, by what they are:"
    yield _by_reason(results)
    yield (
        "Sites that only `check-ownership` finds, by kind (names followed across files, receivers,"
        " first-party subclasses, constant dynamic access):"
    )
    yield _table(
        ("project", *SiteKind),
        ((r.corpus, *(r.only_ours[kind] for kind in SiteKind)) for r in results),
    )


def _row_of_reports(result: Result) -> tuple[object, ...]:
    misses = [miss for miss in result.not_sites if miss.shape != THROUGH_IMPORT]
    explained = sum(bool(miss.why) for miss in misses)
    sizes = (result.files, len(result.sites), result.by_default, result.reported, result.found)
    return (result.corpus, *sizes, explained, len(misses) - explained)


def _row_of_imports(result: Result) -> tuple[object, ...]:
    misses = [miss for miss in result.not_sites if miss.shape == THROUGH_IMPORT]
    explained = sum(bool(miss.why) for miss in misses)
    found = result.through_imports_found
    return (result.corpus, result.through_imports, found, explained, len(misses) - explained)


def _by_reason(results: Sequence[Result]) -> str:
    counts = [Counter(m.why for m in r.not_sites if m.why and m.shape != THROUGH_IMPORT) for r in results]
    reasons = sorted({reason for count in counts for reason in count})
    return _table(
        ("what it is", *(r.corpus for r in results)),
        ((reason, *(count[reason] for count in counts)) for reason in reasons),
    )


def _listings(results: Sequence[Result]) -> Iterator[str]:
    yield "### Calls that are no sites, and why"
    yield _listing(
        f"{r.corpus}: `{m.place.path}:{m.place.line}` {m.name}: {m.why}"
        for r in results
        for m in sorted(r.not_sites, key=lambda miss: miss.place)
        if m.why and m.shape in ("call", THROUGH_IMPORT, "unknown")
    )
    yield "### Missed"
    yield _listing(
        f"{r.corpus}: `{m.place.path}:{m.place.line}:{m.place.column}` {m.name} ({m.shape})"
        for r in results
        for m in sorted(r.missed, key=lambda miss: miss.place)
    )
    yield "### Found under another name than ruff's"
    yield _listing(
        f"{r.corpus}: `{m.place.path}:{m.place.line}` {m.name}: {m.why}"
        for r in results
        for m in sorted(r.other_api, key=lambda miss: miss.place)
    )
    yield "### Files that could not be analysed"
    yield _listing(
        f"{r.corpus}: `{u['path']}:{u.get('line', 1)}` {u['code']} {u['message']}"
        + ("" if u["path"] in r.ruff_unparsable else " (ruff parses it)")
        for r in results
        for u in r.unanalysed
    )
    yield "### Runs"
    yield _listing(
        f"{r.corpus}: `--jobs 1` and `--jobs 2` gave {'the same' if r.same_bytes else 'DIFFERENT'} bytes;"
        f" {'A TRACEBACK or an unknown exit status' if r.traceback else 'no traceback'}"
        for r in results
    )


def performance_table(results: Sequence[Result]) -> str:
    """The measured part of docs/performance.md."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    head = ("project", "files", "lines", "`--jobs 1`", "`--jobs 2`", "lines a second, `--jobs 2`")
    return f"Python {platform.python_version()}, {system}.\n\n" + _table(head, map(_row_of_times, results))


def _row_of_times(result: Result) -> tuple[object, ...]:
    one, two = result.seconds[1], result.seconds[2]
    return (
        result.corpus,
        result.files,
        result.lines,
        f"{one:.1f} s",
        f"{two:.1f} s",
        f"{result.lines / two:,.0f}",
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _listing(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None."


def write_between_markers(page: Path, text: str, part: str = "measured") -> None:
    """Replaces what stands between the two marker comments of a part of ``page``."""
    head, begin, rest = page.read_text(encoding="utf-8").partition(f"<!-- {part}: begin -->\n")
    _, end, tail = rest.partition(f"<!-- {part}: end -->")
    page.write_text(f"{head}{begin}\n{text}\n\n{end}{tail}", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, default=HERE / "build" / "recall", help="default: build/recall")
    parser.add_argument("--only", action="append", choices=sorted(CORPORA), help="these projects; writes no page")
    options = parser.parse_args(argv)
    cache = options.cache.resolve()
    catalog = Catalog.load(Catalog.known_roots())
    chosen = options.only or sorted(CORPORA)
    results = [r for name in chosen if (r := measure(name, CORPORA[name], cache, catalog)) is not None]
    print(accuracy_tables(results), performance_table(results), sep="\n\n")
    if len(results) == len(CORPORA):
        write_between_markers(HERE / "docs" / "accuracy.md", accuracy_tables(results))
        write_between_markers(HERE / "docs" / "performance.md", performance_table(results))
    if not results:
        return 2
    return int(any(r.missed or r.traceback or not r.same_bytes for r in results))


if __name__ == "__main__":
    sys.exit(main())
