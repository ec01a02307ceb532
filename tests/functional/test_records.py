"""Runs on record: lists of them, and one that goes on, has ended or was killed."""

import fcntl
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import ANY

import pytest

from s3unzip.errors import ServiceFaultError
from s3unzip.extraction.task import run_task
from s3unzip.local.runs import BOOT, ENDED, LOCK, LocalRuns, is_at_work, known_runs, lock_run
from s3unzip.model import Report, TaskReport, decode
from s3unzip.runs.run_list import ListedRun, read_snapshot
from s3unzip.settling.loop import begin_run
from s3unzip.stores.config import StoreConfig, parse_destination
from tests.functional.test_recovery import no_answer
from tests.support import memory, memory_server, servers
from tests.support.processes import Program
from tests.support.zips import Entry, build, seal_aes, with_wrong_crc

MEMBERS = [Entry(f"f{n:03}.txt", b"#%03d" % n * (n + 1)) for n in range(100)]
SECRET = "X-Signature=very-secret"


@pytest.fixture
def program(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return the command line, in a folder with archives; `watch` soon takes a run for dead."""
    monkeypatch.setattr("s3unzip.cli.runs.BEGIN_SECONDS", 0.1)
    program.add("a.zip", *MEMBERS)
    program.add("damaged.zip", Entry("a.txt", b"a"), with_wrong_crc("bad.txt", b"b"))
    return program


@pytest.fixture
def run(program: Program) -> str:
    assert program.extract("a.zip", "out", "-q").code == 0
    return program.runs()[0]


def test_runs_are_a_table(program: Program) -> None:
    """A header, then state, counts and places of each run; none took less than no time."""
    for source in ("a.zip", "damaged.zip"):
        program.extract(source, "out", "-q")
    header, *lines = program.run("runs").out.splitlines()
    assert header.split()[2:6] == ["STATE", "TOOK", "MEMBERS", "FAILED"]
    assert len({line.index("  /") for line in lines}) == 1
    assert {(line.split()[2], " -> " in line) for line in lines} == {
        ("COMPLETED", True),
        ("COMPLETED_WITH_ERRORS", True),
    }
    assert {run.get("failed", 0) for run in program.run("runs", "--json").lines} == {0, 1}
    for path in program.home.rglob("report.json"):  # the clock was set back in mid-run
        path.write_bytes(path.read_bytes().replace(b'"started":1', b'"started":2'))
    assert {run["seconds"] for run in program.run("runs", "--json").lines} == {0}
    assert "/s" not in program.run("show", "damaged").prints("COMPLETED_WITH_ERRORS").out


def test_old_records_of_ended_runs_are_removed(program: Program, run: str) -> None:
    """Old records are removed; those of runs at work, or that `resume` can continue, stay."""
    program.extract("damaged.zip", "out", "-q")
    next(program.home.glob("runs/*/*-damaged-*/run.json")).write_bytes(b"[")  # its report is whole
    assert program.run("runs", "--prune", "1").out == "0 runs removed\n"
    (program.home / "runs" / run / "report.json").unlink()
    with lock_run(str(program.home), run):  # a process works on it
        assert program.run("runs", "--prune", "0") == (0, "1 run removed\n", "")
    program.run("runs", "--prune", "0").prints("0 runs removed").says("1 older run stays")
    assert program.run("runs", "--prune", "0", "--json").says("0 runs removed\n").out == ""
    (line,) = program.run("runs", "--json").lines
    assert (line["run"], line["state"]) == (run, "UNFINISHED")
    program.run("runs", "--prune", "1", "--env", "dev").ends(2, "work.expire_days")


def test_a_run_that_goes_on_while_others_are_removed(program: Program, run: str) -> None:
    """Another process changes a run after the list of runs is read; its records stay."""
    program.extract("damaged.zip", "out", "-q")
    begun = time.time()
    folder = program.home / "runs" / run
    os.utime(folder, (0, 0))  # the last one of the list

    class Busy(LocalRuns):
        def state(self, run: str) -> str:
            os.utime(folder, (begun + 9, begun + 9))
            return super().state(run)

    assert Busy(StoreConfig(parse_destination(str(program.home)))).prune(begun + 5) == (1, 0)
    assert folder.is_dir()


def test_a_run_that_waits_for_its_lock_while_it_is_removed(tmp_path: Path) -> None:
    """The lock is on the new file: nobody would see a lock on the removed one."""
    home = str(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        for _ in servers.looks():
            with lock_run(home, "2026-01-01/000000-a-0"):  # `prune` has it
                open_files = len([*Path("/dev/fd").iterdir()])
                waiting = pool.submit(lock_run, home, "2026-01-01/000000-a-0")
                assert any(
                    waiting.done() or len([*Path("/dev/fd").iterdir()]) > open_files
                    for _ in servers.looks()
                )
                shutil.rmtree(tmp_path / "runs")
            if waiting.exception() is None:  # otherwise it has waited too long
                break
        with waiting.result():
            assert is_at_work(home, "2026-01-01/000000-a-0")


def test_a_full_disk_is_named_with_the_file(program: Program, run: str) -> None:
    """Whether a record of runs or what the user asked for is written."""
    program.run("verify", "a.zip", "out", "--objects", "/dev/full").ends(
        6, "s3unzip: --objects /dev/full: no space left"
    )
    boot = program.home / "runs" / run / BOOT
    boot.unlink()
    boot.symlink_to("/dev/full")
    program.extract("a.zip", "out").ends(6, f"s3unzip: {boot}: no space left")


def test_a_run_that_is_pruned_does_not_end_the_list(program: Program, run: str) -> None:
    """Another process removes a run while this one goes through its list."""
    program.extract("damaged.zip", "out", "-q")
    listed = LocalRuns(StoreConfig(parse_destination(str(program.home)))).recent(9)
    assert next(listed).run != run
    shutil.rmtree(program.home / "runs" / run)
    assert list(listed) == [ListedRun(run, ENDED, ANY)]


@pytest.mark.usefixtures("run")
def test_an_unreadable_record_does_not_end_the_list(program: Program) -> None:
    """The run is listed as UNREADABLE, a message has its place, and the others are as they are."""
    foreign = program.home / "runs/2026-11-23/201532-foreign-00000000"
    foreign.mkdir(parents=True)
    for content in (b'{"run": "x"', b"[]", b'{"options": {"on_conflict": "nver"}}'):
        (foreign / "report.json").write_bytes(content)
        ended = program.run("runs").ends(0, str(foreign)).prints("COMPLETED", "UNREADABLE")
    assert "--limit" not in ended.err
    assert {(row["state"], "source" in row) for row in program.run("runs", "--json").lines} == {
        ("COMPLETED", True),
        ("UNREADABLE", False),
    }
    assert program.run("runs", "--limit", "1").err.endswith("the latest 1; --limit N lists more\n")


def test_the_report_of_an_ended_run_is_shown(program: Program, run: str) -> None:
    """Its report, also by `watch`, and its page; nothing is left to resume or to abort."""
    assert program.run("show", "latest").out.startswith("COMPLETED")
    failures = f"{run}: COMPLETED, no member failed\n"
    assert program.run("show", "--failures") == (0, failures, "")
    assert program.run("show", "--failures", "--json") == (0, "", failures)
    assert program.run("watch").out == f"{run}: COMPLETED\n"
    watched = program.run("watch", "latest", "--json").ends(0)
    assert decode(watched.out.splitlines()[-1], Report).extracted == 100
    page = Path(program.run("show", "latest", "--html").out.strip())
    assert page.name == "report.html"
    assert "Completed." in page.read_text(encoding="utf-8")
    for words in ((), ("--failed",)):
        program.run("resume", "latest", *words).ends(0, "already COMPLETED; nothing is left to do")
    assert program.run("abort", "latest").out == (
        f"{run}: it has ended with verdict COMPLETED; 0 incomplete uploads dropped\n"
    )


def test_a_page_that_was_not_written_is_made(program: Program, s3: memory_server.MemoryS3) -> None:
    """As after a kill; its next command reaches the stores as the run did."""
    program.add("sealed.zip", seal_aes(Entry("a.txt", b"a"), b"secret"))
    program.extract("sealed.zip", "s3://out/to", "--endpoint-url", s3.url).ends(1)
    Path(program.run("show", "latest", "--html").out.strip()).unlink()
    made = Path(program.run("show", "latest", "--html").out.strip())
    assert f"--endpoint-url {s3.url}" in made.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "record", "code", "says"),
    [
        ("show --failures", "outcomes/batch-0000000.jsonl", 1, "1 failed member is in a record th"),
        ("watch", "run.json", 1, "COMPLETED_WITH_ERRORS"),
        (
            "abort latest",
            "run.json",
            6,
            "it has ended with verdict COMPLETED_WITH_ERRORS, but its incomplete up",
        ),
        (
            "abort latest",
            "rounds/00.jsonl",
            6,
            "it has ended with verdict COMPLETED_WITH_ERRORS, but its i",
        ),
    ],
)
def test_a_damaged_record_hides_no_verdict(
    program: Program, command: str, record: str, code: int, says: str
) -> None:
    """What cannot be read is named, and what is known is told."""
    program.extract("damaged.zip", "out", "-q").ends(1)
    (program.home / "runs" / program.runs()[0] / record).write_bytes(b"[")
    program.run(*command.split()).ends(code, says)
    # `resume --failed` forgets the outcomes of failures.
    with lock_run(str(program.home), program.runs()[0]):
        program.run("show", "--failures").ends(1).hides("damaged or lost")


def test_latest_is_the_first_run_of_the_list(program: Program) -> None:
    """It is no archive inside the archive of the latest run."""
    program.add("a-z.zip", *(Entry(f"{number}.zip", build(Entry("f"))) for number in range(9)))
    for command in ("show", "watch"):
        assert program.run(command, "latest") == (6, "", f"s3unzip: {LocalRuns.nothing_yet}\n")
    program.extract("a-z.zip", "out", "--nested", "1").ends(0)
    times = list(known_runs(parse_destination(str(program.home))).values())
    assert times[0] > times[1], "file systems give runs that end in the same moment one time"
    for command in ("show", "watch"):
        assert "a-z.zip -> " in repr(program.run(command, "latest").ends(0))
    program.run("show", "a-").ends(0)


def test_a_destination_that_cannot_be_reached_leaves_nothing(program: Program) -> None:
    """It is asked before the plan: one line, and no folder of a run."""
    with servers.nobody() as url:
        ended = program.extract("a.zip", "s3://bucket/to", "--endpoint-url", url).ends(6)
    assert f"cannot reach {url}" in ended.err.splitlines()[-1]
    assert program.runs() == []


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        (["report.json"], ["has no report yet; continue it: s3unzip resume {}"]),
        # It was killed while it planned.
        (
            ["report.json", "run.json"],
            ["has no plan and no report", "start again with s3unzip run"],
        ),
    ],
    ids=["planned", "not planned"],
)
def test_a_run_without_a_report(
    program: Program, run: str, lost: list[str], says: list[str]
) -> None:
    """`watch` follows it while a process works on it, and later says how to go on.

    The lock is held from before the plan: whoever watches learns that nobody makes it.
    """
    for name in lost:
        (program.home / "runs" / run / name).unlink()
    with lock_run(str(program.home), run):
        program.run("show", "latest").ends(
            6, f"{run} has no report yet; follow it: s3unzip watch {run}"
        )
    assert not is_at_work(str(program.home), run)
    program.run("watch", run, "--every", "0.1").ends(6, *(text.format(run) for text in says))


def test_one_process_at_a_time_does_a_run(program: Program, run: str) -> None:
    """The second one gets a message and writes neither plan nor members; it may run after it."""
    member = program.folder / "out/a/f003.txt"
    member.unlink()
    (program.home / "runs" / run / "report.json").unlink()

    def written() -> dict[str, int]:
        return {
            path.name: path.stat().st_mtime_ns for path in (program.home / "runs" / run).rglob("*")
        } | {LOCK: 0}

    before = written()
    with lock_run(str(program.home), run):
        for words in (("run", "a.zip", "out", "-w", "1"), ("resume", "latest")):
            program.run(*words).ends(2, f"{run}: another process is working on this run")
    with (program.home / "runs" / run / LOCK).open() as begun:  # it begins while abort looks
        fcntl.flock(begun, fcntl.LOCK_SH)
        program.run("abort", run).ends(2, f"{run}: another process is working on this run")
    assert (written(), member.exists()) == (before, False)
    program.extract("a.zip", "out", "-q").ends(0)
    assert member.exists()


def test_watch_follows_a_run_until_its_process_ends(program: Program, run: str) -> None:
    """A report of an earlier pass is not the end while a process works on the run."""
    words = [*program.command, "watch", run, "--every", "0.1", "--json"]
    with subprocess.Popen(
        words, env=os.environ | program.variables, stdout=subprocess.PIPE, text=True
    ) as watching:
        with lock_run(str(program.home), run):
            assert watching.stdout is not None
            assert '"state":"RUNNING"' in watching.stdout.readline()
            assert watching.poll() is None
            program.run("runs").ends(0).prints(" RUNNING ")
        assert watching.wait() == 0


def test_watch_tells_a_member_that_failed_twice_once(program: Program) -> None:
    """A retry that fails again is another record of the same failed member."""
    program.extract("damaged.zip", "out").ends(1)
    program.run("resume", "latest", "--failed", "-w", "1").ends(1)
    assert [line[:7] for line in program.run("watch", "latest").ends(1).err.splitlines()].count(
        "failed:"
    ) == 1


def test_tasks_add_up_as_they_end(world: memory.World) -> None:
    """Each look counts the tasks that ended, once; their failures are told once and bounded."""
    assert read_snapshot(memory.World().records("r")).plan is None  # before the plan
    archive = bytearray(build(*MEMBERS))
    for number in range(10):
        archive[archive.index(b"#%03d" % number)] ^= 1
    world.tune(batch_members=20)
    step = begin_run(world.request(bytes(archive)), world.context)
    records = world.records(step.next.run)
    run = records.read_plan().run
    task = step.next.tasks[0]
    half = TaskReport(task.id, task.kind, task.members, extracted=7, unfinished=13)
    records.write_outcomes(half, [])
    seen = read_snapshot(records, max_failures=3)
    assert not seen.progress.tasks_done, "a task counts when none of it is left"
    for done, task in enumerate(step.next.tasks, 1):
        run_task(run, task, world.context)
        seen = read_snapshot(records, seen, max_failures=3)
        assert seen.progress.extracted == seen.counts["extracted"] == 20 * done - 10
        assert (seen.progress.tasks_done, seen.counts["failed"]) == (done, 10)
        assert (len(seen.failures), read_snapshot(records, seen).failures) == (3 * (done == 1), ())
    assert seen.counts["bytes_written"] == sum(len(one.content) for one in MEMBERS[10:])
    assert seen.progress.first_object is not None


def test_a_fault_costs_no_failure_of_a_watched_run(
    world: memory.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look after the one that met the fault tells the failures of all tasks."""
    step = begin_run(world.request(build(with_wrong_crc("bad", b"x"))), world.context)
    records = world.records(step.next.run)
    before = read_snapshot(records)
    run_task(records.read_plan().run, step.next.tasks[0], world.context)
    with monkeypatch.context() as patch:
        patch.setattr(world.buckets.records, "read", no_answer)
        with pytest.raises(ServiceFaultError):
            read_snapshot(records, before)
    after = read_snapshot(records, before)
    assert [failure.key for failure in (*before.failures, *after.failures)] == ["archive/bad"]


@pytest.mark.usefixtures("run")
def test_verify_names_the_differences(program: Program) -> None:
    """Equal is 0; a difference is 1, and is named; as many as asked for, the rest is counted."""
    assert program.run("verify", "a.zip", "out").ends(0).out.startswith("EQUAL")
    program.run("verify", "a.zip", "out", "-i", "f001.txt", "--prefix", "a").prints(
        "1 member: 1 equal"
    )
    out = program.folder / "out/a"
    (out / "f003.txt").unlink()
    (out / "f004.txt").write_bytes(b"#004" * 4 + b"wxyz")
    program.run("verify", "a.zip", "out").ends(1).prints(
        "98 equal, 1 missing, 1 with different content"
    )
    (deep,) = program.run("verify", "a.zip", "out", "--deep", "--json").lines
    assert deep["counts"] == {"missing": 1, "crc": 1}
    shutil.rmtree(out)
    ended = program.run("verify", "a.zip", "out", "--list", "2").ends(1)
    assert ended.out.count("missing  ") == 2
    ended.prints("and 98 more: --list 100 lists them all")


def test_only_one_file_of_a_run_has_the_secrets_of_a_url(program: Program) -> None:
    """`run.json` has the query, because a resume reads by it; nothing else has or shows it."""
    with servers.HttpServer(servers.WebFiles({"a.zip": build(Entry("x", b"1"))})) as server:
        ended = program.extract(f"{server.url}/a.zip?{SECRET}", "out").ends(0)
        again = program.run("resume", "latest").ends(0)
    assert all(SECRET in asked.path for asked in server.asked)
    assert program.records_with(b"very-secret") == ["run.json"]
    assert "very-secret" not in repr((ended, again))
