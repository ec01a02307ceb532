"""Worker processes: jobs done once, a killed worker costs one attempt, a stopped one writes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from s3unzip.errors import InterruptedRunError
from s3unzip.local.contexts import open_context
from s3unzip.local.pool import LOST_ATTEMPTS, WorkerPool
from s3unzip.local.processes.processors import available_processors
from s3unzip.local.runner import redrive, run_archive
from s3unzip.model import Request, Task, TaskKind, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.settings import make_tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.factory import StoreConfig
from s3unzip.stores.locations import parse_destination, parse_source
from s3unzip.zip import Policy
from tests.zips import Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s3unzip.context import Context
    from s3unzip.local.worker import PipeProgress
    from s3unzip.model import Outcome, PlanSummary, Report, Run

MEMBERS = 300
LINUX = sys.platform == "linux"


class Setup:
    """An archive in a folder, extracted into another by worker processes."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.workers = workers
        self.archive = folder / "a.zip"
        entries = [Entry(f"f{n}", b"%d" % n * 100, method=8) for n in range(MEMBERS)]
        self.archive.write_bytes(build(*entries))
        config = StoreConfig(parse_destination(str(folder / "home")))
        tuning = make_tuning({"batch_members": 10, "max_workers": 2})
        self.make = partial(open_context, config, Policy(), tuning)
        self.pools: list[WorkerPool] = []
        self.seen = threading.Event()
        self.pids: set[int] = set()  # of all workers that there ever were
        self.places: dict[int, set[int]] = {}  # the processors where each may run
        self.summary: PlanSummary | None = None
        self.counts: Counter[str] = Counter()

    def finished(self, counts: Mapping[str, int]) -> None:
        """Note that members are being done."""
        self.pids.update(self.pools[0].jobs)
        if LINUX:
            self.places |= {pid: os.sched_getaffinity(pid) for pid in self.pools[0].jobs}
        self.counts.update(counts)
        if counts.get("extracted"):
            self.seen.set()

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Take no notice."""

    def trouble(self, message: str) -> None:
        """Do nothing: no store fails here."""

    def phase(self, name: str) -> None:
        """Take no notice."""

    def context(self) -> Context:
        """The parent's context."""
        return self.make(LocalClock(), self)

    def pool(self, run: Run) -> WorkerPool:
        """Start workers."""
        self.pools.append(WorkerPool(run, self.workers, self.make, self))
        return self.pools[-1]

    def planned(self, summary: PlanSummary) -> None:
        """Keep the plan."""
        self.summary = summary

    def run(self) -> Report:
        """Extract."""
        request = Request(
            parse_source(str(self.archive)), parse_destination(str(self.folder / "out"))
        )
        return run_archive(request, self.context(), self.pool, self.planned)

    def written(self) -> int:
        """Count the files that are there, whole."""
        return sum(1 for path in (self.folder / "out" / "a").iterdir() if path.stat().st_size)


def test_processes_extract_an_archive(tmp_path: Path) -> None:
    """Two workers, many tasks, every member."""
    setup = Setup(tmp_path)
    report = setup.run()
    assert report.verdict is Verdict.COMPLETED
    assert setup.written() == report.extracted == MEMBERS


@pytest.mark.skipif(not LINUX, reason="only Linux places threads as it is told")
def test_each_worker_has_a_processor(tmp_path: Path) -> None:
    """As many workers as processors: each keeps to its own while it has small members."""
    before = os.sched_getaffinity(0)
    some = available_processors()[:2]
    os.sched_setaffinity(0, some)
    try:
        setup = Setup(tmp_path, workers=len(some))
        setup.run()
    finally:
        os.sched_setaffinity(0, before)
    places = sorted(sorted(place) for place in setup.places.values())
    assert places == [[processor] for processor in some]


@pytest.mark.skipif(
    not LINUX or len(available_processors()) == 1, reason="there are never fewer workers"
)
def test_fewer_workers_than_processors_run_anywhere(tmp_path: Path) -> None:
    """Which processors the machine has left, the system knows best."""
    setup = Setup(tmp_path, workers=1)
    setup.run()
    assert list(setup.places.values()) == [set(available_processors())]


def test_workers_retire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many jobs another worker takes the place, and what a library leaked is gone."""
    monkeypatch.setattr("s3unzip.local.pool.JOBS_A_WORKER", 3)
    setup = Setup(tmp_path)
    report = setup.run()
    assert report.verdict is Verdict.COMPLETED
    assert setup.written() == MEMBERS
    assert len(setup.pids) >= report.tasks // 3


def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    """A worker that is killed costs an attempt of one task; the run completes."""
    setup = Setup(tmp_path)

    def kill() -> None:
        setup.seen.wait(60)
        for pid in setup.pools[0].jobs:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    report = setup.run()
    killer.join()
    assert report.verdict is Verdict.COMPLETED
    assert setup.written() == MEMBERS
    assert setup.summary is not None
    done = setup.counts["extracted"], setup.counts["bytes_done"]
    assert done == (MEMBERS, setup.summary.work)  # each member counts once, done twice or not


def test_a_job_found_done_counts_though_its_worker_died(tmp_path: Path) -> None:
    """A worker may die after its outcomes are on record, before it says so."""
    setup = Setup(tmp_path, workers=1)
    report = setup.run()
    assert setup.summary is not None
    setup.counts.clear()
    flag = tmp_path / "died"
    target = partial(tell_and_die_once, str(flag), setup.make)
    pool = WorkerPool(setup.summary.run, 1, target, setup, retry_delay=0.01)
    setup.pools.insert(0, pool)
    records = RunRecords.open(setup.context().stores, report.run)
    pool.work(list(records.tasks())[:1])
    pool.close()
    assert flag.exists()
    assert (setup.counts["extracted"], setup.counts["bytes_done"]) == (7, 700)


def test_a_job_that_kills_its_workers_is_given_up(tmp_path: Path) -> None:
    """What takes every worker with it costs so many of them, and then it is a failed job."""
    setup = Setup(tmp_path)
    setup.run()
    assert setup.summary is not None
    run = setup.summary.run
    pool = WorkerPool(run, 1, die, None, retry_delay=0.01)
    result = pool.work([Task("batch-0", TaskKind.BATCH, (0, 1), 1, (0, 1), 1, 1.0)])
    pool.close()
    assert result.lost_workers == LOST_ATTEMPTS
    assert [failed.job for failed in result.failed] == ["batch-0"]
    assert "its worker process died" in str(result.failed[0].error)


def tell_and_die_once(
    flag: str,
    make: Callable[[LocalClock, PipeProgress], Context],
    clock: LocalClock,
    progress: PipeProgress,
) -> Context:
    """Be a worker that tells of members and dies; the next one is as any other."""
    if not Path(flag).exists():
        Path(flag).touch()
        progress.finished({"extracted": 7, "bytes_done": 700})
        os._exit(137)
    return make(clock, progress)


def die(clock: LocalClock, progress: PipeProgress) -> NoReturn:
    """Be a worker that is out of memory before it begins."""
    del clock, progress
    os._exit(137)


def test_ctrl_c_stops_cleanly_and_redrive_continues(tmp_path: Path) -> None:
    """Finished work is on record; a redrive does the rest."""
    setup = Setup(tmp_path)

    def interrupt() -> None:
        setup.seen.wait(60)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    stopper = threading.Thread(target=interrupt)
    stopper.start()
    try:
        setup.run()
        stopper.join()  # the run was faster, and the signal arrives here
    except InterruptedRunError as stopped:
        assert "redrive" in str(stopped)  # noqa: PT017 - the run may also have been faster
    except KeyboardInterrupt:
        stopper.join()
    assert setup.summary is not None
    report = redrive(setup.summary, setup.context(), setup.pool)
    assert report.verdict is Verdict.COMPLETED
    assert setup.written() == MEMBERS
