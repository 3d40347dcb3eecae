"""Whether every way of reading a tree gives the same bytes: both front ends, workers, order of files, cache.

    python benchmarks/differential.py [--only PROJECT]... [--sources DIR] [--work DIR] [PATH]...

Without arguments over the standard library of the running Python and the projects of ``benchmarks/recall.py``; with
PATHs over these folders. The JSON listing of all sites when the reference front end (LibCST) reads every file is held
against all others, once with the kinds of API that count by default and once with all kinds. Exit status 1 if any
differ: then both listings are left in the work folder, and the first line that differs is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.listing import by_reference, listing
from benchmarks.recall import HERE, KINDS, TIERS
from benchmarks.scan import PROJECTS, source_of
from checkers import engine
from checkers.model import ApiKind, Tier, Tree

SEED = 20
SITE = '"api": '
"""What each site has once in a listing."""
CHOICES: dict[str, tuple[frozenset[ApiKind], frozenset[Tier]]] = {
    "default kinds": (frozenset(), frozenset()),
    "all kinds": (frozenset(KINDS), frozenset(TIERS)),
}
"""What is looked for; none stands for the defaults."""


class Shuffled(Executor):
    """One thread that takes what was submitted in an order of its own."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        self._waiting: list[Callable[[], None]] = []
        self._thread = ThreadPoolExecutor(1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Put work among what waits."""
        future = Future[Any]()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        self._waiting.append(work)
        self._thread.submit(self._take_any)
        return future

    def _take_any(self) -> None:
        self._waiting.pop(self._random.randrange(len(self._waiting)))()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the thread."""
        self._thread.shutdown(wait, cancel_futures=cancel_futures)


def in_any_order(scan: engine.Scan) -> Tree:
    """Scan with the files read in a random order."""
    with Shuffled() as executor:
        return engine.scan(replace(scan, executor=executor))


def ways(root: Path, kinds: frozenset[ApiKind], tiers: frozenset[Tier]) -> Iterator[tuple[str, str]]:
    """Each way of listing the sites of a tree, and the listing; the reference first."""

    def listed(find: Callable[[engine.Scan], Tree] = engine.scan, jobs: int = 2, cache: Path | None = None) -> str:
        return listing(root, find, jobs=jobs, cache_dir=cache, kinds=kinds, tiers=tiers)

    reference, first = listed(by_reference), listed(jobs=1)
    refused = unanalysed(reference) - unanalysed(first)
    yield f"the reference alone{''.join(f', but for {path}' for path in sorted(refused))}", without(refused, reference)
    yield "--jobs 1", without(refused, first)
    for jobs in (2, 3):
        yield f"--jobs {jobs}", without(refused, listed(jobs=jobs))
    yield "another order of files", without(refused, listed(in_any_order))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("an empty cache", "a full cache"):
            yield name, without(refused, listed(cache=Path(folder)))


def unanalysed(text: str) -> frozenset[str]:
    """The files that a listing says could not be analysed."""
    return frozenset(told["path"] for told in json.loads(text)["unanalysed"])


def without(refused: frozenset[str], text: str) -> str:
    """A listing without files which LibCST does not take and Python does: a target of an annotation in parentheses."""
    if not refused:
        return text
    document = json.loads(text)
    for key in ("sites", "unanalysed"):
        document[key] = [told for told in document[key] if told["path"] not in refused]
    return json.dumps(document | {"summary": None}, indent=2)


def differences(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """The ways whose listing is not that of the first: name, listing of the first, its own."""
    first: str | None = None
    for name, text in found:
        if first is None:
            first = text
        elif text != first:
            yield name, first, text


def first_difference(before: str, after: str) -> str:
    """The first line in which two listings differ."""
    lines = zip_longest(before.splitlines(), after.splitlines(), fillvalue="(end)")
    for number, (one, other) in enumerate(lines, 1):
        if one != other:
            return f"line {number}: {one.strip()} / {other.strip()}"
    return "line ends"


def compare(name: str, root: Path, work: Path) -> bool:
    """Whether all ways agree on one tree; what does not is written below ``work``."""
    same = True
    for choice, (kinds, tiers) in CHOICES.items():
        found = [*ways(root, kinds, tiers)]
        print(f"{name}, {choice}: {found[0][1].count(SITE)} sites, {len(found)} ways, {found[0][0]}", flush=True)
        for number, (way, before, after) in enumerate(differences(found), 1):
            same = False
            folder = work / f"{name}-{choice}-{number}".replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "reference.json").write_text(before, encoding="utf-8")
            (folder / "other.json").write_text(after, encoding="utf-8")
            print(f"  DIFFERENT: {way}: {first_difference(before, after)}; see {folder}", flush=True)
    return same


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all trees that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--only", action="append", choices=PROJECTS)
    parser.add_argument("--sources", type=Path, default=HERE / "build" / "recall", help="default: build/recall")
    parser.add_argument(
        "--work", type=Path, default=HERE / "build" / "differential", help="default: build/differential"
    )
    options = parser.parse_args(argv)
    trees = {path.name: path.absolute() for path in options.paths}
    for project in options.only or (() if options.paths else PROJECTS):
        source = source_of(project, options.sources.absolute())
        if source is None:
            return 2
        trees[project] = source
    shutil.rmtree(options.work, ignore_errors=True)
    differing = [name for name, root in trees.items() if not compare(name, root, options.work)]
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
