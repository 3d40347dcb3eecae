"""Speed of the scan: ``check-ownership --list-sites`` cold and warm beside ruff, bandit and LibCST alone.

    python benchmarks/scan.py [--rounds N] [--only PROJECT]... [--sources DIR] [--work DIR]

Projects are the standard library of the running Python and those that ``benchmarks/recall.py`` downloads. In each round
every tool runs once on a project, one after the other; medians count. ruff is given S602 to S607 and TID251 with the
names that check-ownership looks for by default. bandit (B602 to B607, which pip installs into an environment of its
own) and LibCST alone (the reference front end reads every file) take long and run once. Writes a part of
``docs/performance.md``, unless ``--only`` is given.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.recall import CORPORA, HERE, banned_names, fetch, ruff_config, write_between_markers
from checkers.model import DEFAULT_KINDS, DEFAULT_TIERS
from checkers.warm import RACY_NS

STDLIB = "standard library"
MEASURED = (STDLIB, "ansible-core", "salt", "homeassistant")
PROJECTS = (STDLIB, *sorted(CORPORA))
BANDIT = "bandit==1.9.4"
RULES = [f"S60{number}" for number in range(2, 8)]
TESTS = ",".join(f"B60{number}" for number in range(2, 8))
PAGE = HERE / "docs" / "performance.md"
PART = "scan"
SAMPLE_S = 0.02
"""How often the memory of workers is looked at."""

COLD, WARM = "check-ownership, cold", "check-ownership, warm"
CHANGED, ALONE = "check-ownership, one file changed", "check-ownership, that file alone, cold"
RUFF_COLD, RUFF_WARM = "ruff, cold", "ruff, warm"
BANDIT_ONCE, LIBCST_ONCE = "bandit", "LibCST alone"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took: elapsed and processor seconds, children included; peak memory of its largest process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Run:
    """One way of reading a project."""

    name: str
    command: Sequence[str]
    prepare: Callable[[], None] = lambda: None
    statuses: frozenset[int] = frozenset({0})
    """Exit statuses of a run that did its work."""
    once: bool = False


@dataclass(slots=True)
class Result:
    """What was measured on one project; costs by name of the run, in the order of the rounds."""

    project: str
    files: int
    size_bytes: int
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    worker_mib: float = 0.0

    def median(self, name: str) -> Cost | None:
        """Medians of time over the rounds, and the most memory; None where the run was not made."""
        costs = self.costs.get(name)
        if not costs:
            return None
        return Cost(
            statistics.median(cost.wall_s for cost in costs),
            statistics.median(cost.cpu_s for cost in costs),
            max(cost.peak_mib for cost in costs),
        )

    def times(self, name: str, unit: str) -> float | None:
        """How many times the wall time of ``unit`` the run ``name`` takes."""
        run, base = self.median(name), self.median(unit)
        return None if run is None or base is None else run.wall_s / base.wall_s


# --- Measuring --------------------------------------------------------------------------------------------


def cost_of(run: Run, errors: Path) -> Cost:
    """Make one run. Raises RuntimeError when it ends with a status that tells of no result."""
    stub = [sys.executable, "-I", "-S", str(Path(__file__).with_name("cost_of.py")), str(errors)]
    done = subprocess.run([*stub, *run.command], env=environment(), stdout=subprocess.PIPE, check=True)
    wall_s, cpu_s, peak_mib, status = json.loads(done.stdout)
    if status not in run.statuses:
        raise RuntimeError(f"{run.name}: exit status {status}: {errors.read_text(errors='replace')[-500:]}")
    return Cost(wall_s, cpu_s, peak_mib)


def environment() -> dict[str, str]:
    """Variables of what is measured: this checkout is what is imported."""
    return {**os.environ, "PYTHONPATH": str(HERE)}


def alternate(runs: Sequence[Run], rounds: int, measured: Callable[[Run], Cost]) -> dict[str, list[Cost]]:
    """All runs one after the other, ``rounds`` times; those that are made once in the first round only."""
    costs: dict[str, list[Cost]] = {run.name: [] for run in runs}
    for number in range(rounds):
        for run in runs:
            if number and run.once:
                continue
            run.prepare()
            costs[run.name].append(measured(run))
            print(f"  round {number + 1}: {run.name}: {costs[run.name][-1].wall_s:.2f} s", file=sys.stderr, flush=True)
    return costs


def worker_peak_mib(command: Sequence[str]) -> float:
    """The most memory that a direct child of the command has had, in a run of its own that is not timed."""
    peak_kib = 0
    with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak_kib = max([peak_kib, *map(_peak_kib, _children(process.pid))])
            time.sleep(SAMPLE_S)
    return peak_kib / 1024


def _children(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return []


def _peak_kib(pid: str) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/status").read_text(encoding="utf-8").split("VmHWM:")[1].split()[0])
    return 0


# --- What is run ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy of a project, one file of which may be changed."""

    root: Path
    original: Path
    work: Path

    @classmethod
    def copy(cls, original: Path, work: Path) -> Tree:
        """Copy a project below ``work``, once; times of files are kept, so that none is too young for a cache."""
        root = work / "tree"
        if not root.exists():
            partial = work / "tree.partial"
            shutil.rmtree(partial, ignore_errors=True)
            left_out = shutil.ignore_patterns("site-packages", "__pycache__", "lib-dynload", "*.so", "*.a")
            shutil.copytree(original, partial, ignore=left_out, symlinks=True)
            partial.rename(root)
        return cls(root, original, work)

    def sources(self) -> Iterator[Path]:
        """Every Python file."""
        return (path for path in sorted(self.root.rglob("*.py")) if path.is_file() and not path.is_symlink())

    def change(self, path: str) -> None:
        """Add a line to a file, another one each time."""
        data = (self.original / path).read_bytes()
        (self.root / path).write_bytes(data + f"\n# changed at {time.time_ns()}\n".encode())

    def restore(self, path: str) -> None:
        """Give a file the bytes and times that it had."""
        shutil.copy2(self.original / path, self.root / path)


def middle(listing: Mapping[str, object], root: Path) -> str:
    """The file of middle size among those that hold a site: the one that is changed."""
    sites = listing["sites"]
    assert isinstance(sites, list)
    paths: set[str] = {site["path"] for site in sites if site["path"].endswith(".py")}
    return sorted(paths, key=lambda path: ((root / path).stat().st_size, path))[len(paths) // 2]


def ours(root: Path, *options: str) -> list[str]:
    """The command that lists the sites of a tree."""
    command = str(Path(sys.executable).with_name("check-ownership"))
    return [command, "--list-sites", "--root", str(root), "--output-format", "json", *options]


def runs_on(tree: Tree, bandit: Path | None) -> list[Run]:
    """All that is measured on one project, in the order of a round."""
    work, output = tree.work, tree.work / "sites.json"
    checked = frozenset({0, 2})  # 2: some file is no Python that can be read
    cold, warm = ours(tree.root, "--no-cache"), ours(tree.root)
    subprocess.run([*cold, "--output-file", str(output)], env=environment(), stderr=subprocess.DEVNULL, check=False)
    path = middle(json.loads(output.read_text(encoding="utf-8")), tree.root)
    alone = work / "alone"
    shutil.rmtree(alone, ignore_errors=True)
    alone.mkdir()
    shutil.copy2(tree.original / path, alone / Path(path).name)

    config = work / "ruff.toml"
    names = banned_names(DEFAULT_KINDS, DEFAULT_TIERS)
    config.write_text(ruff_config(names, [*RULES, "TID251"]), encoding="utf-8")
    ruff = [str(Path(sysconfig.get_path("scripts"), "ruff")), "check", "--exit-zero", "--quiet"]
    ruff += ["--config", str(config), "--output-format", "json", "--output-file", str(work / "ruff.json")]
    ruff_warm = [*ruff, "--cache-dir", str(work / "ruff_cache"), str(tree.root)]

    def restored_and_warm() -> None:
        tree.restore(path)
        _once(warm)
        time.sleep(RACY_NS / 1e9)  # only what is older than that is known to be what it was
        _once(warm)

    runs = [
        Run(COLD, cold, statuses=checked),
        Run(RUFF_COLD, [*ruff, "--no-cache", str(tree.root)]),
        Run(WARM, warm, restored_and_warm, checked),
        Run(RUFF_WARM, ruff_warm, lambda: _once(ruff_warm)),
        Run(CHANGED, warm, lambda: tree.change(path), checked),
        Run(ALONE, ours(alone, "--no-cache"), lambda: tree.restore(path), checked),
    ]
    if bandit is not None:
        command = [str(bandit), "-r", "-q", "-t", TESTS, "-f", "json", "-o", str(work / "bandit.json"), str(tree.root)]
        runs.append(Run(BANDIT_ONCE, command, statuses=frozenset({0, 1}), once=True))
    script = Path(__file__).with_name("listing.py")
    reference = [sys.executable, str(script), "--reference", str(tree.root), str(work / "reference.json")]
    return [*runs, Run(LIBCST_ONCE, reference, once=True)]


def _once(command: Sequence[str]) -> None:
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def install_bandit(work: Path) -> Path | None:
    """bandit's program in an environment of its own; None, and a word on standard error, where it cannot be had."""
    folder = work / BANDIT.replace("==", "-")
    program = folder / "bin" / "bandit"
    if not program.exists():
        venv.create(folder, clear=True, with_pip=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*install, BANDIT], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{BANDIT}: not installed: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return None
    return program


def source_of(project: str, sources: Path) -> Path | None:
    """Where a project's files are; None where they cannot be had."""
    if project == STDLIB:
        return Path(sysconfig.get_path("stdlib"))
    return fetch(project, CORPORA[project], sources)


def measure(project: str, rounds: int, sources: Path, work: Path, bandit: Path | None) -> Result | None:
    """Everything about one project; None where its source cannot be had."""
    original = source_of(project, sources)
    if original is None:
        return None
    label = f"{STDLIB} {platform.python_version()}" if project == STDLIB else f"{project} {CORPORA[project]}"
    folder = work / label.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    tree = Tree.copy(original, folder)
    sizes = [path.stat().st_size for path in tree.sources()]
    result = Result(label, len(sizes), sum(sizes))
    print(f"{label}: {result.files} files", file=sys.stderr, flush=True)
    runs = runs_on(tree, bandit)
    result.costs = alternate(runs, rounds, lambda run: cost_of(run, folder / "errors.txt"))
    result.worker_mib = worker_peak_mib(runs[0].command)
    return result


# --- Report -----------------------------------------------------------------------------------------------


def report(results: Sequence[Result], rounds: int, load: str) -> str:
    """The measured part of the page."""
    return "\n\n".join(
        (
            f"{_versions()}. {load}. Rounds: {rounds}, medians; bandit and LibCST alone ran once.",
            "Wall time in seconds, and as a multiple of ruff's in the same rounds:",
            _table(_RATIO_HEAD, map(_ratio_row, results)),
            "One file changed, against the warm run; and what takes long, as a multiple of our cold run:",
            _table(_LONG_HEAD, map(_long_row, results)),
            "Each run: wall and processor time in seconds (all processes), peak memory in MiB (the largest process):",
            _table(("project", "run", "wall", "CPU", "MiB"), (row for result in results for row in _run_rows(result))),
        )
    )


_RATIO_HEAD = (
    *("project", "files", "MB", "cold", "ruff cold", "× ruff", "warm", "ruff warm", "× ruff"),
    "a worker's peak MiB",
)
_LONG_HEAD = ("project", "one file changed", "warm", "that file alone", "bandit", "× cold", "LibCST alone", "× cold")


def _ratio_row(result: Result) -> list[str]:
    return [
        *(result.project, str(result.files), f"{result.size_bytes / 1e6:.1f}"),
        *(_seconds(result, COLD), _seconds(result, RUFF_COLD), _times(result, COLD, RUFF_COLD)),
        *(_seconds(result, WARM), _seconds(result, RUFF_WARM), _times(result, WARM, RUFF_WARM)),
        f"{result.worker_mib:.0f}",
    ]


def _long_row(result: Result) -> list[str]:
    return [
        *(result.project, _seconds(result, CHANGED), _seconds(result, WARM), _seconds(result, ALONE)),
        *(_seconds(result, BANDIT_ONCE), _times(result, BANDIT_ONCE, COLD)),
        *(_seconds(result, LIBCST_ONCE), _times(result, LIBCST_ONCE, COLD)),
    ]


def _run_rows(result: Result) -> Iterator[list[str]]:
    for name in result.costs:
        cost = result.median(name)
        if cost is not None:
            yield [result.project, name, f"{cost.wall_s:.2f}", f"{cost.cpu_s:.2f}", f"{cost.peak_mib:.0f}"]


def _seconds(result: Result, name: str) -> str:
    cost = result.median(name)
    return "" if cost is None else f"{cost.wall_s:.2f}"


def _times(result: Result, name: str, unit: str) -> str:
    times = result.times(name, unit)
    return "" if times is None else f"{times:.2f}" if times < 10 else f"{times:.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _versions() -> str:
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    tools = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("ruff", "libcst"))
    return f"Python {platform.python_version()}, {tools}, {BANDIT.replace('==', ' ')}; {system}"


def _load() -> float:
    return os.getloadavg()[0]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the projects and print the tables; 2 where nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=PROJECTS, help="these projects; writes no page")
    parser.add_argument("--sources", type=Path, default=HERE / "build" / "recall", help="default: build/recall")
    parser.add_argument("--work", type=Path, default=HERE / "build" / "scan", help="default: build/scan")
    options = parser.parse_args(argv)
    sources, work = options.sources.absolute(), options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    before = _load()
    bandit = install_bandit(work)
    measured = [measure(name, options.rounds, sources, work, bandit) for name in options.only or MEASURED]
    results = [result for result in measured if result is not None]
    load = f"Load average {before:.1f} before, {_load():.1f} at the end"
    text = report(results, options.rounds, load)
    print(text)
    if len(results) == len(MEASURED) and not options.only:
        write_between_markers(PAGE, text, PART)
    return 0 if results else 2


if __name__ == "__main__":
    sys.exit(main())
