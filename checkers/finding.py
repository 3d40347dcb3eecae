"""What is found in each file of a tree: analysed and resolved anew only where it may have changed.

A file is read again when its content changed. Its sites depend on the interfaces of the files that were looked at for
its sake and, in turn, for theirs: so it is resolved again when it was read again, or when such an interface changed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from checkers.catalog import Catalog
from checkers.codes import CODES
from checkers.facts import model as f
from checkers.facts.hot import Hits
from checkers.intake.cache import NOTHING, Document, Record
from checkers.intake.pipeline import Analysed, Job, Sight, Source, analyse_here, place_in, unpack
from checkers.intake.words import MUST, Glance, Known, wanted_words
from checkers.intake.workers import Workers, analyse_files, look_at_files
from checkers.limits import recursion
from checkers.model import Comment, Header, SourceFile, Unanalysed
from checkers.resolve.evaluate import MAX_DEPTH, MAX_VALUES, Evaluator, TooDeepError
from checkers.resolve.layout import Layout, LayoutError
from checkers.resolve.sites import SiteFinder

if TYPE_CHECKING:
    from checkers.engine import Scan

RECURSION_LIMIT = 20_000
"""Following names across modules nests a few Python frames per alias; :data:`MAX_DEPTH` bounds the aliases."""
_TOO_DEEP = f"a name has more than {MAX_DEPTH:,} names behind it, or stands for more than {MAX_VALUES:,} values"
_ALL = ""
"""Stands for the request, where it is said which files something was looked at for."""
NOTHING_COUNTS = Hits(frozenset())
_UNPACKED = memoryview(b"")
"""Facts that cannot be packed are known to this run only."""

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
        catalogue: Catalog,
        job: Job,
        paths: Sequence[str],
        workers: Workers,
        document: Document = NOTHING,
        unchanged: Mapping[str, Record] | None = None,
    ) -> None:
        self._request = request
        self._layout = layout
        self._catalogue = catalogue
        known = unchanged or {}
        stale = [path for path in paths if path not in known]
        self._job = job
        self._unpackable: dict[str, Analysed] = {}
        self._found = dict(known)
        self._glances: dict[str, Glance | None] = {}
        self.signs = self._signs_before = frozenset(document.signs) if known else frozenset()
        """What is known of the tree, see :class:`checkers.intake.words.Known`."""
        self._waiting, self._total = set(stale), len(stale)
        self._workers = workers
        again = self._gather(stale) if stale else set()
        workers.close()  # what follows is for one process, and needs the memory
        self.records = {path: self._found[path] for path in paths}
        self.is_new = bool(stale) or document.records.keys() != self.records.keys()
        """Whether there is something to tell that ``document`` does not hold."""
        self._modules = _Modules(self.records, self._unpackable, self._analyse_after_all)
        self.common = document.common
        todo = self._affected(document, again.union(stale)) if self.is_new else []
        if todo:
            self._resolve(todo)
        evaluator = Evaluator(self._modules, self._layout, self._catalogue)
        self.named = frozenset(name for name in request.named if self._leads_somewhere(evaluator, name))
        """Of the names that are asked for, those that the project has, be they inherited or brought by a star."""

    @staticmethod
    def _leads_somewhere(evaluator: Evaluator, name: str) -> bool:
        with recursion(max(sys.getrecursionlimit(), RECURSION_LIMIT)):
            try:
                return bool(evaluator.named(name))
            except (TooDeepError, RecursionError):
                return True  # nobody can tell, and nothing hangs on it but whether the name is called stale

    def lasting(self) -> dict[str, Record]:
        """The records without those that cannot be packed, or failed for a reason that may lie in the machine."""
        return {
            path: record
            for path, record in self.records.items()
            if (record.packed or record.is_passed_over)
            and not (record.interface is None and _may_be_passing(record.file))
        }

    def _gather(self, stale: list[str]) -> set[str]:
        """Read ``stale`` files as far as anything in them may be governed; the paths of all that were analysed.

        What one file teaches may make others worth reading, whose words did not count so far.
        """
        job = self._job
        if job.sought is None:
            self._analyse([Source(path, self._unsaved(path)) for path in stale])
            return set(stale)
        wanted = wanted_words(job.sought, Known(job.sought, self.signs).learned)
        for sight in self._look(stale, job._replace(wanted=wanted)):
            self._pass_over(sight)
            self._learn(() if sight.seen is None else sight.seen.signs)
        analysed = set[str]()
        while True:
            known = Known(job.sought, self.signs)
            learned = wanted_words(job.sought, known.learned) - wanted
            if learned:
                wanted |= learned
                for sight in self._look([*self._found], job._replace(learned=learned)):
                    if sight.seen is None:  # it was read before, and is no more: all of it counts
                        self._pass_over(sight)
                        analysed.discard(sight.path)
                    else:
                        self._see_more(sight.path, sight.seen)
            # What was found in the others holds while no more is known than when that was written.
            paths = stale if self.signs == self._signs_before else [*self._found]
            made = known.makes(word for seen in (self._seen(path) for path in paths) if seen for word in seen.words)
            if not self.signs.issuperset(made):
                self._learn(made)
                continue
            sources = [*self._worth_reading(paths, known, analysed)]
            for path in self._waiting.difference(source.path for source in sources):
                self._tell_done(path)
            if not sources:
                return analysed
            self._analyse(sources)
            analysed.update(source.path for source in sources)

    def _worth_reading(self, paths: Iterable[str], known: Known, analysed: Container[str]) -> Iterator[Source]:
        """Those of ``paths`` in which more words count than did so far."""
        for path in paths:
            record, seen = self._found[path], self._seen(path)
            if seen is None:
                if record.file is None and path not in analysed:
                    yield Source(path, self._unsaved(path))
                continue
            hits = known.hits(seen)
            must = MUST in seen.signs or path in self._job.defining
            if (must or hits) if record.hits is None else hits.exceed(record.hits):
                yield Source(path, self._unsaved(path), hits)

    def _seen(self, path: str) -> Glance | None:
        if path not in self._glances:
            self._glances[path] = self._found[path].glance()
        return self._glances[path]

    def _see_more(self, path: str, more: Glance) -> None:
        """Note further words that were looked for."""
        seen = self._seen(path)
        if seen is not None and more.words:
            words = tuple(sorted({*seen.words, *more.words}))
            self._glances[path] = seen = msgspec.structs.replace(seen, words=words)
            self._found[path].see(seen)

    def _pass_over(self, sight: Sight) -> None:
        """Note a file of which nothing more is asked."""
        record = Record(sight.stamp, _UNPACKED, None)
        if sight.seen is not None:
            record.interface, record.file = sight.stamp.digest, SourceFile(sight.path)
            record.see(sight.seen)
        self._found[sight.path], self._glances[sight.path] = record, sight.seen

    def _look(self, paths: Sequence[str], job: Job) -> Iterator[Sight]:
        sources = [Source(path, self._unsaved(path)) for path in paths]
        return look_at_files(job, sources, self._workers)

    def _analyse(self, sources: list[Source]) -> None:
        for answer in analyse_files(self._job, sources, self._workers):
            packed = answer.packed
            if isinstance(packed, Analysed):
                self._unpackable[answer.path] = packed
            view = memoryview(packed) if isinstance(packed, bytes) else _UNPACKED
            before = self._found.get(answer.path)
            record = Record(answer.stamp, view, None, hits=answer.hits)
            if before is not None:  # if it has changed since it was looked at, the next run shall see that
                record.stamp, record.packed_glance = before.stamp, before.packed_glance
            self._found[answer.path] = record
            if answer.summary is not None:
                record.interface = answer.summary.interface
                if self._request.asks_names:
                    record.names = answer.summary.names
                self._learn(answer.summary.signs)
            self._tell_done(answer.path)

    def _tell_done(self, path: str) -> None:
        """A file needs no more reading, as far as is known now."""
        if path in self._waiting:
            self._waiting.remove(path)
            if self._request.progress is not None:
                self._request.progress(self._total - len(self._waiting), self._total)

    def _analyse_after_all(self, path: str) -> Analysed:
        """The facts of a file that was passed over, which is asked for what it makes of others' names."""
        source = Source(path, self._unsaved(path), NOTHING_COUNTS)
        analysed = analyse_here(self._job, source)
        if analysed is None:
            with Workers(1) as alone:
                (answer,) = analyse_files(self._job, [source], alone)
            analysed = answer.packed if isinstance(answer.packed, Analysed) else unpack(answer.packed)
        return analysed

    def _learn(self, signs: Iterable[str]) -> None:
        self.signs = self.signs.union(signs)

    def _unsaved(self, path: str) -> bytes | None:
        stdin = self._request.stdin
        return stdin[1] if stdin is not None and stdin[0] == path else None

    def _affected(self, document: Document, stale: set[str]) -> Iterable[str]:
        """The files to be resolved again."""
        before = document.records
        if before.keys() != self.records.keys():
            return self.records
        seen_by = defaultdict(list)
        for path, reached in (*((path, record.reaches) for path, record in before.items()), (_ALL, document.common)):
            for other in reached:
                seen_by[other].append(path)
        affected = set(stale)
        todo = [path for path in stale if before[path].interface != self.records[path].interface]
        for path in affected.difference(todo):
            # Who looked through it is not resolved again, and what they found there still hangs on the files behind it.
            self.records[path].reaches = before[path].reaches
        spread = set(todo)  # not what is affected: of that some is read again and the same, and yet passes names on
        while todo:
            new = [path for path in seen_by[todo.pop()] if path not in spread]
            spread.update(new)
            todo += new
        affected |= spread
        return self.records if _ALL in affected else sorted(affected)

    def _resolve(self, paths: Iterable[str]) -> None:
        request = self._request
        evaluator = Evaluator(self._modules, self._layout, self._catalogue)
        with recursion(max(sys.getrecursionlimit(), RECURSION_LIMIT)):
            try:
                finder = SiteFinder(evaluator, request.targets, request.watch, by_name=request.by_name)
            except (TooDeepError, RecursionError):
                raise LayoutError(f"of what the manifest names, {_TOO_DEEP}: name it as it is defined") from None
            for path in paths:
                record = self.records[path]
                if record.is_passed_over:
                    continue
                record.file = _file(finder, self._modules.analysed(path))
                if self._job.sought is not None and path not in self._job.defining:
                    record.file = replace(record.file, symbols=frozenset())  # complete, or none
                record.calls = tuple(sorted(finder.calls[path]))
        for path, reached in evaluator.reached.items():
            if path != _ALL:
                self.records[path].reaches = tuple(sorted(reached.union(self.records[path].reaches)))
        self.common = tuple(sorted(evaluator.reached.get(_ALL, ())))


class _Modules(dict[str, f.ModuleFacts]):
    """The facts of each file that has any, made or unpacked when they are asked for."""

    def __init__(
        self, records: Mapping[str, Record], known: Mapping[str, Analysed], analyse: Callable[[str], Analysed]
    ) -> None:
        super().__init__()
        self._records = records
        self._analysed = dict(known)
        self._analyse = analyse

    def analysed(self, path: str) -> Analysed:
        """All that is known of a file."""
        if path not in self._analysed:
            record = self._records[path]
            self._analysed[path] = self._analyse(path) if record.is_passed_over else unpack(record.packed)
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
        return default if record is None or record.interface is None else self[path]


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
