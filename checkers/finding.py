"""What is found in each file of a tree: analysed and resolved anew only where it may have changed.

A file is read again when its content changed. Its sites depend on the interfaces of the files that were looked at for
its sake and, in turn, for theirs: so it is resolved again when it was read again, or when such an interface changed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from checkers import catalog
from checkers.codes import CODES
from checkers.facts import model as f
from checkers.intake.cache import NOTHING, Document, Record
from checkers.intake.pipeline import Analysed, Job, analyse_files, default_jobs, place_in, unpack
from checkers.limits import recursion
from checkers.model import Comment, Header, SourceFile, Unanalysed
from checkers.resolve.evaluate import MAX_DEPTH, MAX_VALUES, Evaluator, TooDeepError
from checkers.resolve.layout import Layout, LayoutError
from checkers.resolve.sites import SiteFinder
from checkers.targets import is_chain

if TYPE_CHECKING:
    from checkers.engine import Scan

RECURSION_LIMIT = 20_000
"""Following names across modules nests a few Python frames per alias; :data:`MAX_DEPTH` bounds the aliases."""
_TOO_DEEP = f"a name has more than {MAX_DEPTH:,} names behind it, or stands for more than {MAX_VALUES:,} values"
_ALL = ""
"""Stands for the request, where it is said which files something was looked at for."""
_UNPACKED = msgspec.Raw(b"\xc0")
"""MessagePack's nil: facts that cannot be packed are known to this run only."""

_HELP = {
    "SRC001": "mend the syntax, or name the file under [[unanalysed]] with a reason",
    "SRC002": "make the file readable, leave it out (exclude), or name it under [[unanalysed]] with a reason",
    "SRC003": "raise max_file_bytes in the manifest, or name the file under [[unanalysed]] with a reason",
    "SRC004": "save the file as UTF-8 or give the right coding cookie",
    "SRC005": "split the expression, or name the file under [[unanalysed]] with a reason",
    "SRC006": "keep links inside the project root, or leave the file out (exclude)",
}


class Finding:
    """One scan: ``records`` by path, in path order, from what is ``unchanged`` since ``document`` was written.

    Raises LayoutError for a request that names what is too deep to be followed, and LookupError, TypeError, ValueError,
    AttributeError or AssertionError where a record was not written by this program.
    """

    def __init__(
        self,
        request: Scan,
        layout: Layout,
        job: Job,
        paths: Sequence[str],
        document: Document = NOTHING,
        unchanged: Mapping[str, Record] | None = None,
    ) -> None:
        self._request = request
        self._layout = layout
        known = unchanged or {}
        stale = [path for path in paths if path not in known]
        self._unpackable: dict[str, Analysed] = {}
        answers = dict(self._read(job, stale)) if stale else {}
        self.records = {path: known.get(path) or answers[path] for path in paths}
        self.is_new = bool(stale) or document.records.keys() != self.records.keys()
        """Whether there is something to tell that ``document`` does not hold."""
        self._modules = _Modules(self.records, self._unpackable)
        self.common = document.common
        todo = self._affected(document, stale) if self.is_new else []
        if todo:
            self._resolve(todo)

    def lasting(self) -> dict[str, Record]:
        """The records without those that cannot be packed, or failed for a reason that may lie in the machine."""
        return {
            path: record
            for path, record in self.records.items()
            if record.packed != _UNPACKED and not (record.summary is None and _may_be_passing(record.file))
        }

    def _read(self, job: Job, paths: list[str]) -> Iterator[tuple[str, Record]]:
        request = self._request
        unsaved = {} if request.stdin is None else dict([request.stdin])
        answers = analyse_files(job, paths, request.jobs or default_jobs(), unsaved, request.executor)
        for done, answer in enumerate(answers, 1):
            packed = answer.packed
            if isinstance(packed, Analysed):
                self._unpackable[answer.path] = packed
            raw = msgspec.Raw(packed) if isinstance(packed, bytes) else _UNPACKED
            yield answer.path, Record(answer.stamp, raw, answer.summary)
            if request.progress is not None:
                request.progress(done, len(paths))

    def _affected(self, document: Document, stale: list[str]) -> Iterable[str]:
        """The files to be resolved again."""
        before = document.records
        if before.keys() != self.records.keys() or _roots(before) != _roots(self.records):
            return self.records
        seen_by = defaultdict(list)
        for path, reached in (*((path, record.reaches) for path, record in before.items()), (_ALL, document.common)):
            for other in reached:
                seen_by[other].append(path)
        affected = set(stale)
        todo = [path for path in stale if _interface(before[path]) != _interface(self.records[path])]
        for path in affected.difference(todo):
            # Who looked through it is not resolved again, and what they found there still hangs on the files behind it.
            self.records[path].reaches = before[path].reaches
        while todo:
            new = [path for path in seen_by[todo.pop()] if path not in affected]
            affected.update(new)
            todo += new
        return self.records if _ALL in affected else sorted(affected)

    def _resolve(self, paths: Iterable[str]) -> None:
        request = self._request
        declared = [target for target in request.targets if "*" not in target and not is_chain(target)]
        roots = catalog.Catalog.known_roots() if request.by_name else _roots(self.records)
        known = catalog.Catalog.load(roots, request.apis, declared)
        evaluator = Evaluator(self._modules, self._layout, known)
        with recursion(max(sys.getrecursionlimit(), RECURSION_LIMIT)):
            try:
                finder = SiteFinder(evaluator, request.targets, request.watch)
            except (TooDeepError, RecursionError):
                raise LayoutError(f"of what the manifest names, {_TOO_DEEP}: name it as it is defined") from None
            for path in paths:
                record = self.records[path]
                record.file = _file(finder, self._modules.analysed(path))
                record.calls = tuple(sorted(finder.calls[path]))
        for path, reached in evaluator.reached.items():
            if path != _ALL:
                self.records[path].reaches = tuple(sorted(reached.union(self.records[path].reaches)))
        self.common = tuple(sorted(evaluator.reached.get(_ALL, ())))


class _Modules(dict[str, f.ModuleFacts]):
    """The facts of each file that has any, unpacked when they are asked for."""

    def __init__(self, records: Mapping[str, Record], unpackable: Mapping[str, Analysed]) -> None:
        super().__init__()
        self._records = records
        self._analysed = dict(unpackable)

    def analysed(self, path: str) -> Analysed:
        """All that is known of a file."""
        if path not in self._analysed:
            self._analysed[path] = unpack(self._records[path].packed)
        return self._analysed[path]

    def __missing__(self, path: str) -> f.ModuleFacts:
        facts = self.analysed(path).facts
        if facts is None:
            raise KeyError(path)
        self[path] = facts
        return facts

    def get(self, path: str, default: Any = None) -> Any:
        """The facts of a file; ``default`` where it has none."""
        record = self._records.get(path)
        return default if record is None or record.summary is None else self[path]


def _roots(records: Mapping[str, Record]) -> set[str]:
    """Top-level names of the libraries that the tree may reach and that the catalogue has; and of the builtins."""
    summaries = [record.summary for record in records.values() if record.summary is not None]
    found = {"builtins"}.union(*(summary.roots for summary in summaries))
    return found & catalog.Catalog.known_roots()


def _interface(record: Record) -> bytes:
    return b"" if record.summary is None else record.summary.interface


def _may_be_passing(file: SourceFile | None) -> bool:
    return file is not None and file.unanalysed is not None and file.unanalysed.code == "SRC005"


def _file(finder: SiteFinder, analysed: Analysed) -> SourceFile:
    path = analysed.path
    if analysed.facts is None:
        assert analysed.broken is not None, "a file without facts says why"
        return SourceFile(path, unanalysed=unanalysed(path, analysed.broken, analysed))
    try:
        sites, uses = finder.sites(analysed)
    except (TooDeepError, RecursionError):
        broken = f.Broken("SRC005", _TOO_DEEP, 1, 1)
        return SourceFile(path, unanalysed=unanalysed(path, broken))
    facts = analysed.facts
    return SourceFile(
        path=path,
        sites=sites,
        uses=uses,
        comments=tuple(_comment(analysed, comment) for comment in facts.comments),
        headers=tuple(_header(analysed, header) for header in facts.headers) if facts.comments else (),
        symbols=frozenset(facts.symbols),
    )


def _comment(analysed: Analysed, comment: f.CommentFacts) -> Comment:
    cell, line = place_in(analysed, comment.line)
    last_cell, last = place_in(analysed, comment.block_last_line)
    block_last = last if last_cell == cell else line
    return Comment(line, comment.column, comment.text, comment.own_line, block_last, cell)


def _header(analysed: Analysed, header: f.HeaderFacts) -> Header:
    cell, first = place_in(analysed, header.first_line)
    last, body_last = place_in(analysed, header.last_line)[1], place_in(analysed, header.body_last_line)[1]
    return Header(first, last, body_last, header.is_decorator, cell)


def unanalysed(path: str, broken: f.Broken, analysed: Analysed | None = None) -> Unanalysed:
    cell, line = (None, broken.line) if analysed is None else place_in(analysed, broken.line)
    return Unanalysed(
        path=path,
        code=broken.code,
        name=CODES[broken.code].name,
        message=broken.message,
        line=line,
        column=broken.column,
        help=_HELP[broken.code],
        cell=cell,
    )
