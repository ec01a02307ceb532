"""Runs on one machine: how they go on, what is extra at a destination, and the worker processes."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import AccessDeniedError, InterruptedRunError, ServiceFaultError, UsageError
from s3unzip.local.attempts import AttemptEnd, OpenContext, do_attempt, open_context
from s3unzip.local.destination_objects import check_safe_to_delete, clear_extra
from s3unzip.local.machine import Machine
from s3unzip.local.process_setup import yield_to_others
from s3unzip.local.workers import Workers, WorkerTally, _PendingTasks, _ThreadWorker
from s3unzip.model import Location, Options, Report, Request, Run, Task, TaskKind, Verdict
from s3unzip.settings import Tuning, make_tuning
from s3unzip.stores.config import StoreConfig, parse_destination, parse_source
from s3unzip.stores.folder import own_prefix
from s3unzip.stores.ports import Clock, ObjectFacts
from s3unzip.zip import Policy
from tests.support.memory import OUT, MemoryBucket, MemoryStores, Told, World
from tests.support.processes import descendants, is_running
from tests.support.servers import HANG_SECONDS, looks
from tests.support.zips import Entry, build

TWO_MEMBERS = build(Entry("a", b"1"), Entry("d/b", b"2"))


def test_a_second_run_of_an_archive_begins_anew(world: World) -> None:
    """What the first run left is forgotten, its objects are written again, in the same phases."""
    world.progress = told = Told()
    first = world.machine.run(world.request(TWO_MEMBERS))
    world.out.objects.clear()
    again = world.machine.run(world.request(TWO_MEMBERS))
    assert (first.verdict, again.verdict, again.run) == (*[Verdict.COMPLETED] * 2, first.run)
    assert (again.extracted, len(world.out.objects), told.phases) == (
        2,
        2,
        ["plan", "extract", "report"] * 2,
    )


class UnlistedUploads(MemoryBucket):
    """A bucket that this user may write, but whose uploads they may not list."""

    def uploads(self, prefix: str) -> NoReturn:
        raise AccessDeniedError(f"{prefix}: s3:ListBucketMultipartUploads")


def test_leftovers_that_cannot_be_removed_cost_no_verdict() -> None:
    """A run whose members are complete says so, whatever a killed worker left."""
    world = World(Tuning(small_member=10), MemoryStores(out=UnlistedUploads()))
    with world.machine.open() as machine:
        machine._workers.has_lost_process = True
        report = machine.run(world.request(build(Entry("large", bytes(99)))))
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 1)


@pytest.mark.parametrize(
    ("destination", "options", "said"),
    [
        # What is not selected would be deleted, and so would the members of archives inside.
        (OUT, Options(include=("*.txt",)), "leave out --include, because"),
        (OUT, Options(exclude=("*.txt",)), "leave out --exclude, because"),
        (OUT, Options(names=("a",)), "leave out --member, because"),
        (OUT, Options(limit=1), "leave out --limit, because"),
        (OUT, Options(nested_depth=1), "leave out --nested"),
        # Neither everything nor a beginning of names.
        (OUT, Options(key_template="{member}"), "in the whole bucket s3://out/"),
        (
            Location("file", "", "/srv/"),
            Options(key_template="{member}"),
            "in the whole folder /srv/",
        ),
        (
            Location("s3", "out", "site/"),
            Options(key_template="v1-{member}"),
            "the keys begin with 'site/v1-'",
        ),
        (OUT, Options(key_template="{archive_stem}/{member}"), ""),
        (Location("s3", "out", "site/"), Options(key_template="{member}"), ""),
        (Location("s3", "other", "x/"), Options(key_template="{member}"), ""),
        (Location("file", "", "/srv/"), Options(key_template="site/{member}"), ""),
    ],
)
def test_the_whole_archive_clears_a_prefix_of_its_own(
    destination: Location, options: Options, said: str, tmp_path: Path
) -> None:
    """No selection, and neither everything nor a beginning of names; no plan has no say."""
    (tmp_path / "runs/2026-11-23/101112-archive-01234567").mkdir(parents=True)
    request = Request(Location("s3", "in", "x/archive.zip"), destination, options)
    with pytest.raises(UsageError, match=said) if said else nullcontext():
        check_safe_to_delete(request, Location("file", "", f"{tmp_path}/"), MemoryStores())


def test_nothing_is_asked_where_nothing_is_extra(world: World) -> None:
    """The caller hears only of what is there."""
    report = world.run(TWO_MEMBERS)
    world.out.put("elsewhere/x", b"", ObjectFacts("text/plain", {}), if_absent=False)
    cleared = clear_extra(report, world.context, lambda extra: pytest.fail(str(extra)))
    assert cleared.requests.list > report.requests.list  # the second report counts the LIST
    assert (cleared.requests.delete, cleared.verdict) == (
        report.requests.delete,
        Verdict.COMPLETED,
    )
    assert world.contents("archive/").keys() == {"a", "d/b", "elsewhere/x"}


def test_records_that_lack_a_member_delete_nothing(world: World) -> None:
    """Lost outcomes must not make a member extra."""
    report = world.run(TWO_MEMBERS)
    with pytest.raises(ServiceFaultError, match="lack some of its members"):
        clear_extra(
            replace(report, extracted=report.extracted + 1),
            world.context,
            lambda extra: pytest.fail(str(extra)),
        )
    assert len(world.out.objects) == 2


MEMBERS = 300


class Shown(Told):
    """The progress of a program, which calls a function when the first members are extracted."""

    on_extracted: Callable[[], None] | None = None

    def finished(self, counts: Mapping[str, int]) -> None:
        """Add up, and call the function: the worker's next message waits for it."""
        super().finished(counts)
        if self.counts["extracted"] and self.on_extracted is not None:
            call = self.on_extracted
            self.on_extracted = None
            call()


class Folder:
    """An archive in a folder, extracted into another by worker processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        archive = folder / "a.zip"
        archive.write_bytes(
            build(*(Entry(f"f{n}", b"%d" % n * 100, method=8) for n in range(MEMBERS)))
        )
        self.config = StoreConfig(parse_destination(str(folder / "home")))
        tuning = make_tuning({"batch_members": 10, "max_workers": 3})
        self.open_context = partial(open_context, self.config, Policy(), tuning)
        self.shown = Shown()
        self.request = Request(parse_source(str(archive)), parse_destination(str(folder / "out")))

    def machine(self, opening: OpenContext | None = None) -> Machine:
        context = self.open_context(Clock(), self.shown)
        return Machine(context, self.config, Workers(3, context, opening or self.open_context))

    def run(self, opening: OpenContext | None = None) -> Report:
        with self.machine(opening) as machine:
            return machine.run(self.request)

    def run_elsewhere(self, opening: OpenContext, until: Path) -> Report:
        """Run; the worker that is the program waits for a file, so that processes have tasks."""
        do_attempt = _ThreadWorker.do_attempt

        def wait(worker: _ThreadWorker, *arguments: Any) -> AttemptEnd:
            for _ in looks():
                if until.exists() or not worker._clock.remaining():
                    break
            return do_attempt(worker, *arguments)

        with patch.object(_ThreadWorker, "do_attempt", wait):
            return self.run(opening)

    def written(self) -> int:
        return sum(1 for path in (self.folder / "out" / "a").iterdir() if path.stat().st_size)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def _pids() -> list[int]:
    return [
        pid
        for pid in filter(is_running, descendants(os.getpid()))
        if b"worker_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_killed_workers_are_replaced(folder: Folder, tmp_path: Path) -> None:
    """A killed worker costs an attempt; each member counts once, and no process is left."""
    killed = tmp_path / "killed"

    def kill() -> None:
        os.kill(_pids()[0], signal.SIGKILL)
        killed.touch()

    folder.shown.on_extracted = kill
    report = folder.run_elsewhere(folder.open_context, killed)
    assert report.verdict is Verdict.COMPLETED
    assert folder.written() == report.extracted == folder.shown.counts["extracted"] == MEMBERS
    assert _pids() == []


def test_the_progress_has_what_a_killed_worker_recorded(folder: Folder, tmp_path: Path) -> None:
    """A worker that is killed between its record and its last message costs no count.

    Of what it was writing nothing is left when the run has ended.
    """
    killed = tmp_path / "killed"
    report = folder.run_elsewhere(partial(open_and_die, str(killed), folder.open_context), killed)
    assert (
        report.verdict,
        killed.exists(),
        folder.shown.counts["extracted"],
        sum(path.is_file() for path in (tmp_path / "out").rglob("*")),
    ) == (Verdict.COMPLETED, True, MEMBERS, MEMBERS)


def open_and_die(killed: str, opening: OpenContext, *arguments: Any) -> Context:
    """Be a worker that is killed when it has recorded its first task; a later one is not."""

    def die(run: Run, task: Task, context: Context) -> AttemptEnd:
        end = do_attempt(run, task, context)
        with suppress(FileExistsError):
            Path(killed).touch(exist_ok=False)
            Path(run.key_prefix, f"{own_prefix(run.id)}1").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return end

    patch("s3unzip.local.worker_process.do_attempt", die).start()
    return opening(*arguments)


def note_and_die(started: str, *_: object) -> NoReturn:
    """Be a worker that is out of memory before it begins."""
    with Path(started).open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit


class OlderTask(Struct, frozen=True):
    """What a task was in an earlier version."""

    id: str


def note_and_change(started: str, *arguments: Any) -> Context:
    """Be a worker whose program was replaced during the run: it cannot read its task."""
    patch("s3unzip.model.Task", OlderTask).start()
    with Path(started).open("a") as file:
        file.write("x")
    return open_context(StoreConfig(), Policy(), Tuning(), *arguments)


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (note_and_die, r"\(killed by SIGKILL\).*memory"),
        (note_and_change, r"\(it could not read its task\): another version of s3unzip"),
    ],
)
def test_workers_that_die_at_once_end_the_run(
    opening: Callable[..., Context], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many workers in a row are tried, and the report says why."""
    monkeypatch.setattr("s3unzip.local.workers.MAX_DEATHS", 1)
    report = Folder(tmp_path).run_elsewhere(
        partial(opening, str(tmp_path / "started")), tmp_path / "never"
    )
    assert report.verdict is Verdict.FAILED
    assert re.search(rf"its worker process died {reason}", report.message or "")
    assert len((tmp_path / "started").read_text()) >= 2


@pytest.mark.parametrize(
    "errors",
    [
        [None, ServiceFaultError("no memory left")],
        [ServiceFaultError("no memory left"), None],
        [ServiceFaultError("no memory left")],
    ],
)
def test_a_lack_of_memory_ends_a_run_only_if_no_task_ends(
    errors: list[ServiceFaultError | None],
) -> None:
    """It may be brief: the next round does the task, unless this one did none."""
    pending = _PendingTasks([], max_faults=2)
    for error in errors:
        pending.note_end(
            Task("batch-0", TaskKind.BATCH, (0, 1), 1, span=(0, 1), size=1, seconds=1.0),
            AttemptEnd(error, lost=error is not None),
        )
    assert (pending.memory_fault is None) is (None in errors)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which processes are left")
def test_a_worker_that_holds_the_interpreters_lock_ends_with_its_program(tmp_path: Path) -> None:
    """The kernel ends it: a worker on a loaded machine may not get the lock for seconds."""
    program = f"""
from functools import partial
from pathlib import Path
from tests.unit.local.test_machine import Folder, note_and_hang
path = Path({str(tmp_path)!r})
hanging = partial(note_and_hang, str(path / "started"))
Folder(path).run_elsewhere(hanging, path / "never")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        assert any(len(list(tmp_path.glob("started*"))) == 2 for _ in looks())
    finally:
        process.kill()
        process.wait()
    workers = [int(path.suffix[1:]) for path in tmp_path.glob("started*")]
    assert any(not any(map(is_running, workers)) for _ in looks())


def note_and_hang(started: str, *_: object) -> NoReturn:
    """Be a worker that keeps the interpreter's lock for ever."""
    Path(f"{started}.{os.getpid()}").touch()
    re.match("(a|aa)*b", "a" * 200)
    raise AssertionError


def test_ctrl_c_stops_cleanly_and_resume_continues(folder: Folder) -> None:
    """Finished work is on record; `resume` checks that it is there, and does the rest."""
    folder.shown.on_extracted = partial(os.kill, os.getpid(), signal.SIGINT)
    with pytest.raises(
        InterruptedRunError,
        match=r"stopped: \d+ of 300 members are in .*; continue with: s3unzip resume ",
    ) as stopped:
        folder.run()
    with folder.machine() as machine:
        report = machine.resume(str(stopped.value).rpartition(" ")[2])
    assert (report.verdict, folder.written(), folder.shown.phases[-3:]) == (
        Verdict.COMPLETED,
        MEMBERS,
        ["check", "extract", "report"],
    )


SCRIPT = """
import subprocess
import s3unzip
from s3unzip.stores.config import parse_destination
stores = s3unzip.StoreConfig(parse_destination(sys.argv[3]))
tuning = s3unzip.Tuning(batch_members=10, small_member=1_000_000)
print(s3unzip.extract(sys.argv[1], sys.argv[2], workers=2, stores=stores, tuning=tuning).extracted)
"""


@pytest.mark.parametrize(
    "beginning",
    [
        "import sys",
        "import sys, pathlib; sys.path.insert(0, pathlib.Path())",
        # The package is in a ZIP archive, as in a zipapp.
        (
            f"package = {str(Path(__file__).parents[3] / 'functions')!r}\n"
            "import shutil, sys\n"
            "sys.path.insert(0, shutil.make_archive(sys.argv[3], 'zip', package))"
        ),
        "import sys; sys.executable = None",  # a program that embeds Python
        "import sys; sys.executable = '/bin/false'",  # as uWSGI sets it
        "import sys; sys.executable, sys.frozen = '/bin/false', True",  # as PyInstaller makes it
    ],
)
def test_a_script_needs_no_guard(beginning: str, folder: Folder, tmp_path: Path) -> None:
    """Workers do not import the program's main module, so a script may call `extract` at once."""
    (tmp_path / "script.py").write_text(beginning + SCRIPT)
    done = subprocess.run(
        [sys.executable, *(tmp_path / name for name in ("script.py", "a.zip", "out", "home"))],
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.stdout, done.stderr, folder.written()) == (b"%d\n" % MEMBERS, b"", MEMBERS)


def test_attempts_that_are_on_record_add_up() -> None:
    """A fault ends an attempt: the next one counts only what it adds, and messages count once."""
    shown = Told()
    tally, first, second = WorkerTally(shown), Counter[str](), Counter[str]()
    tally.take(first, Counter(extracted=4, bytes_done=50))
    tally.take(first, Counter(bytes_done=-10))  # a large member begins again
    for seconds in (58, 57):  # two workers meet the same dead store: one line
        tally.take(second, f"no answer from http://s3, retrying for {seconds} s")
        tally.take(second, Counter(extracted=1))
    tally.take(second, Counter(extracted=1, bytes_done=20))
    assert (shown.counts, shown.troubles) == (
        {"extracted": 7, "bytes_done": 60},
        ["no answer from http://s3, retrying for 58 s"],
    )


def _schedule_threads() -> tuple[int, int]:
    yield_to_others()
    with ThreadPoolExecutor(1) as pool:
        return os.sched_getscheduler(0), pool.submit(os.sched_getscheduler, 0).result()


def schedule_the_idle() -> tuple[int, int]:
    """Return the same of a process that was begun with ``chrt --idle``."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return _schedule_threads()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these policies")
@pytest.mark.parametrize(
    ("question", "policy"), [(_schedule_threads, "SCHED_BATCH"), (schedule_the_idle, "SCHED_IDLE")]
)
def test_threads_preempt_no_other_process(
    question: Callable[[], tuple[int, int]], policy: str
) -> None:
    """A process and its threads preempt no other; a policy that somebody chose stays."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(question).result() == (getattr(os, policy), getattr(os, policy))
