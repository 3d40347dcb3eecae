"""Small trees for tests: on disk, or as sites, files and findings in few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from checkers.model import (
    ApiKind,
    Argument,
    Comment,
    Confidence,
    Extent,
    Finding,
    Site,
    SiteKind,
    SourceFile,
    Tier,
    Tree,
    Unanalysed,
    Use,
)


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by their path below ``root``, which is given back."""
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def make_site(
    path: str,
    line: int = 1,
    api: str = "subprocess.run",
    *,
    symbol: str = "",
    kind: SiteKind = SiteKind.CALL,
    api_kind: ApiKind = ApiKind.PROCESS,
    tier: Tier = Tier.CORE,
    confidence: Confidence = Confidence.CERTAIN,
    candidates: tuple[str, ...] = (),
    chain: str = "",
    arguments: tuple[Argument, ...] | None = (),
) -> Site:
    """A site in column 5 of a line of its own."""
    extent = Extent(line, line, line, line, line, line, line)
    return Site(
        path,
        line,
        5,
        kind,
        api,
        api_kind,
        tier,
        symbol,
        line,
        extent,
        confidence,
        candidates,
        chain or api,
        arguments,
    )


def make_use(path: str, line: int, chain: str, *arguments: Argument) -> Use:
    """A use of a started process in column 5."""
    extent = Extent(line, line, line, line, line, line, line)
    return Use(path, line, 5, "", chain, arguments, extent)


def make_tree(
    *sites: Site,
    uses: Iterable[Use] = (),
    files: Iterable[str] = (),
    broken: Iterable[str] = (),
    symbols: dict[str, set[str]] | None = None,
    comments: dict[str, dict[int, str]] | None = None,
    names: Iterable[str] = (),
    calls: Iterable[tuple[str, str]] = (),
) -> Tree:
    """A tree of the files that anything is said of. ``comments`` trail the code of their lines."""
    uses, broken, symbols, comments = list(uses), set(broken), symbols or {}, comments or {}
    paths = {site.path for site in sites} | {use.path for use in uses} | {*files, *broken, *symbols, *comments}
    found = []
    for path in sorted(paths):
        file = SourceFile(
            path,
            sites=tuple(site for site in sites if site.path == path),
            uses=tuple(use for use in uses if use.path == path),
            comments=tuple(
                Comment(line, 40, text, own_line=False, block_last_line=line)
                for line, text in comments.get(path, {}).items()
            ),
            symbols=frozenset(symbols.get(path, ())),
        )
        if path in broken:
            unanalysed = Unanalysed(path, "SRC001", "unparsable-source", "invalid syntax")
            file = replace(file, unanalysed=unanalysed)
        found.append(file)
    watched = frozenset(f"{path}\0{name}" for path, name in calls)
    return Tree(tuple(found), frozenset(paths), frozenset(names), watched)


def brief(findings: Iterable[Finding]) -> list[str]:
    """``path:line:column CODE message`` of each finding."""
    return [f"{f.path}:{f.line}:{f.column} {f.code} {f.message}" for f in findings]


def places(findings: Iterable[Finding]) -> list[str]:
    """``path:line CODE`` of each finding."""
    return [f"{f.path}:{f.line} {f.code}" for f in findings]
