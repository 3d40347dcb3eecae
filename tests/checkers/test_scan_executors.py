"""Whoever reads the files, the result is the same: our own workers, or any executor that a caller hands in."""

from __future__ import annotations

import gc
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context, resource_tracker
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from msgspec.structs import replace

import checkers
from checkers import limits
from checkers.engine import Scan, scan
from checkers.limits import no_collection, recursion
from checkers.model import Tree

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sites" / "names"
KILLER = f"x = {'not ' * 100_000}a\n"
"""Of this the parser overflows its stack, and the process dies."""
SITE = "import os\nos.system('x')\n"


@pytest.fixture(scope="module", autouse=True)
def no_tracker_left() -> Iterator[None]:
    """What spawned the workers keeps a process of its own, which other tests would take for one of theirs."""
    yield
    gc.collect()
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def own() -> Tree:
    """What our own workers find."""
    tree = scan(Scan(FIXTURES, jobs=2))
    assert sum(len(file.sites) for file in tree.files) > 50
    return tree


@pytest.fixture
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def apis(tree: Tree) -> dict[str, list[str]]:
    """The APIs of each file, or the code of the reason why there are none."""
    return {
        file.path: [site.api for site in file.sites] if file.unanalysed is None else [file.unanalysed.code]
        for file in tree.files
    }


def test_workers_of_ours_work_where_no_limit_can_be_set(own: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:  # as macOS does, where more is mapped than the limit allows
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert scan(Scan(FIXTURES, jobs=2)) == own


def test_threads(own: Tree) -> None:
    before = sys.getrecursionlimit(), gc.isenabled(), signal.getitimer(signal.ITIMER_VIRTUAL)
    with ThreadPoolExecutor(3) as pool:
        assert scan(Scan(FIXTURES, executor=pool)) == own
        assert pool.submit(int, "7").result() == 7, "it is not shut down"
    assert (sys.getrecursionlimit(), gc.isenabled(), signal.getitimer(signal.ITIMER_VIRTUAL)) == before


def test_scans_side_by_side_in_threads(own: Tree) -> None:
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(2) as readers:
        scans = [pool.submit(scan, Scan(FIXTURES, executor=readers)) for _ in range(4)]
        assert [running.result() == own for running in scans] == [True] * 4
    assert gc.isenabled()


def test_spawned_processes_are_left_as_they_are(own: Tree, processes: Executor) -> None:
    def settings() -> list[object]:
        return [
            processes.submit(signal.getitimer, signal.ITIMER_VIRTUAL).result(),
            processes.submit(signal.getsignal, signal.SIGINT).result(),
            processes.submit(resource.getrlimit, resource.RLIMIT_AS).result(),
            processes.submit(gc.isenabled).result(),
        ]

    before = settings()
    assert scan(Scan(FIXTURES, executor=processes)) == own
    assert settings() == before


def test_a_cluster(own: Tree) -> None:
    with (
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        assert checkers.scan(root=FIXTURES, executor=client.get_executor()) == own


def test_an_unsaved_buffer_goes_to_the_executor_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    with ThreadPoolExecutor(1) as pool:
        assert apis(scan(Scan(tmp_path, executor=pool, stdin=("a.py", SITE.encode())))) == {"a.py": ["os.system"]}


def test_a_file_that_kills_the_executors_process_is_told_and_the_rest_is_read(
    tmp_path: Path, processes: Executor
) -> None:
    for number in range(40):
        (tmp_path / f"plain{number:02}.py").write_text(SITE)
    (tmp_path / "plain07x.py").write_text(KILLER)
    with pytest.warns(RuntimeWarning, match="^the executor gave no answer for [0-9]+ files.*: BrokenProcessPool: "):
        found = apis(scan(Scan(tmp_path, jobs=1, executor=processes)))
    assert found.pop("plain07x.py") == ["SRC005"]
    assert found == {f"plain{number:02}.py": ["os.system"] for number in range(40)}


def test_an_executor_that_takes_no_work_is_told(own: Tree) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    count = len(own.files)
    told = (
        f"^the executor gave no answer for {count} files, .*: RuntimeError: cannot schedule new futures after shutdown$"
    )
    with pytest.warns(RuntimeWarning, match=told):
        assert scan(Scan(FIXTURES, jobs=2, executor=pool)) == own


class Manual(Executor):
    """Work is done when it is asked for; what has been cancelled is remembered."""

    def __init__(self) -> None:
        self.futures: list[Future[object]] = []

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[object]:  # type: ignore[override]
        future = Future[object]()
        if len(self.futures) < 2:  # a look at all files, and the first that are analysed
            future.set_result(fn(*args, **kwargs))
        self.futures.append(future)
        return future


def test_a_scan_that_is_given_up_takes_its_work_back(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"plain{number:02}.py").write_text(SITE)
    executor = Manual()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan(Scan(tmp_path, executor=executor, progress=interrupt))
    assert [future.cancelled() for future in executor.futures] == [False, False, True, True]


@pytest.mark.parametrize("in_threads", [False, True])
def test_progress_counts_every_file_once(tmp_path: Path, in_threads: bool) -> None:
    for number in range(40):
        (tmp_path / f"plain{number:02}.py").write_text(SITE)
    told: list[tuple[int, int]] = []
    request = Scan(tmp_path, jobs=1, progress=lambda done, total: told.append((done, total)))
    with ThreadPoolExecutor(2) as pool:
        scan(replace(request, executor=pool) if in_threads else request)
    assert told == [(number, 40) for number in range(1, 41)]


def test_threads_take_turns_under_a_recursion_limit() -> None:
    with ThreadPoolExecutor(1) as other:
        with recursion(5000):
            assert not other.submit(limits._LOCK.acquire, blocking=False).result()
        assert other.submit(limits._LOCK.acquire, blocking=False).result()
        other.submit(limits._LOCK.release).result()


def test_the_collector_comes_back_with_the_last_that_held_it() -> None:
    first, second = no_collection(), no_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
