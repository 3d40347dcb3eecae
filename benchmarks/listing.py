"""What ``check-ownership --list-sites --output-format json`` prints, made in ways that the command has no option for.

    python benchmarks/listing.py [--reference] [--jobs N] ROOT FILE

``--reference`` has the reference front end, LibCST, read every file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import date
from pathlib import Path

from msgspec.structs import replace

from checkers import engine
from checkers.config import Request
from checkers.model import ApiKind, Tier, Tree
from checkers.report import FORMATS, Look
from checkers.run import OWNERSHIP, Log, run


def listing(
    root: Path,
    find: Callable[[engine.Scan], Tree] = engine.scan,
    *,
    jobs: int | None = None,
    cache_dir: Path | None = None,
    kinds: frozenset[ApiKind] = frozenset(),
    tiers: frozenset[Tier] = frozenset(),
) -> str:
    """The JSON report of all sites of a tree, found by ``find``; no cache is used unless it is named."""
    request = Request(
        root, list_sites=True, jobs=jobs, no_cache=cache_dir is None, cache_dir=cache_dir, kinds=kinds, tiers=tiers
    )
    report = run(OWNERSHIP, request, None, date.today(), Log(), find)  # noqa: DTZ011 - nothing listed depends on it
    return FORMATS["json"](report, Look())


def by_reference(scan: engine.Scan) -> Tree:
    """Scan with the reference front end alone."""
    return engine.scan(replace(scan, reference=True))


def main() -> None:
    """Write one listing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    find = by_reference if options.reference else engine.scan
    options.file.write_text(listing(options.root.absolute(), find, jobs=options.jobs), encoding="utf-8")


if __name__ == "__main__":
    main()
