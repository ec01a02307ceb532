"""Runs that never began, were killed or are at work: what `latest` means, and how `watch` ends."""

import os
import subprocess
from pathlib import Path

import pytest

from s3unzip.local.locking import LOCK, is_at_work, lock_run
from tests.processes import Program
from tests.servers import nobody
from tests.zips import Entry, build

BEGUN = "2026-11-23/201532-a-01234567"  # a run that has no plan


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in a folder with an archive."""
    (tmp_path / "a.zip").write_bytes(build(Entry("a.txt", b"a" * 100), Entry("b.txt", b"b")))
    return Program(tmp_path)


def runs_of(program: Program) -> list[str]:
    """Return the ids of the runs that have a folder."""
    folder = program.folder / ".runs" / "runs"
    return [str(run.relative_to(folder)) for run in folder.glob("*/*")]


def test_latest_is_the_first_run_of_the_list(program: Program) -> None:
    """A run that has only its lock is no run: `latest` is the one before it."""
    home = str(program.folder / ".runs")
    lock_run(home, BEGUN).close()
    for command in ("show", "watch"):
        ended = program.run(command, "latest")
        assert (ended.code, ended.err) == (
            6,
            "s3unzip: there are no runs yet: s3unzip run SRC DEST begins one\n",
        )
    assert program.run("run", "a.zip", "out", "-w", "1").code == 0
    lock_run(home, BEGUN.replace("a-", "b-")).close()
    for command in ("show", "watch"):
        ended = program.run(command, "latest")
        assert ended.code == 0, ended.err
        assert "COMPLETED" in ended.out + ended.err
    begun = program.run("show", "a-")
    assert begun.code == 0, "the folders left behind do not make the beginning of an id ambiguous"


def test_a_destination_that_cannot_be_reached_leaves_nothing(program: Program) -> None:
    """It is asked before the plan: one line, and no folder of a run."""
    with nobody() as url:
        ended = program.run("run", "a.zip", "s3://bucket/to", "-w", "1", "--endpoint-url", url)
    assert ended.code == 6
    assert f"cannot reach {url}" in ended.err.splitlines()[-1]
    assert runs_of(program) == []


def test_watch_of_a_run_that_was_killed_while_it_planned_ends(program: Program) -> None:
    """The lock is held from before the plan: whoever watches learns that nobody makes it."""
    home = str(program.folder / ".runs")
    with lock_run(home, BEGUN):
        shown = program.run("show", "latest")
        assert shown.code == 6
        assert f"{BEGUN}: has no report yet; s3unzip watch {BEGUN} follows it" in shown.err
    assert not is_at_work(home, BEGUN)
    ended = program.run("watch", BEGUN)
    assert ended.code == 6
    assert "has no plan and no report" in ended.err
    assert "start again with s3unzip run" in ended.err


def test_watch_of_a_killed_run_ends(program: Program) -> None:
    """A run without a report at which no process works is continued by `resume`, which it says."""
    assert program.run("run", "a.zip", "out", "-w", "1").code == 0
    (run,) = runs_of(program)
    (program.folder / ".runs" / "runs" / run / "report.json").unlink()  # as a killed run has none
    ended = program.run("watch", run)
    assert ended.code == 6
    assert f"{run}: has no report yet; s3unzip resume {run} continues it" in ended.err


def test_a_plan_at_work_is_not_replaced(program: Program) -> None:
    """The same command a second time, while the first one is at work, writes nothing."""
    words = ("run", "a.zip", "out", "-w", "1")
    assert program.run(*words).code == 0
    (run,) = runs_of(program)
    home = program.folder / ".runs"

    def written() -> dict[str, int]:
        files = (home / "runs" / run).rglob("*")
        return {path.name: path.stat().st_mtime_ns for path in files if path.name != LOCK}

    before = written()
    with lock_run(str(home), run):
        ended = program.run(*words)
    assert ended.code == 2
    assert f"{run}: another process is working on this run" in ended.err
    assert written() == before


def test_show_of_a_run_at_work_offers_watch(program: Program) -> None:
    """While a process holds the run's lock, `resume` is not what helps."""
    assert program.run("run", "a.zip", "out", "-w", "1").code == 0
    (run,) = runs_of(program)
    home = program.folder / ".runs"
    (home / "runs" / run / "report.json").unlink()
    assert not is_at_work(str(home), run)
    with lock_run(str(home), run):
        assert is_at_work(str(home), run)
        ended = program.run("show", run)
    assert ended.code == 6
    assert f"{run}: has no report yet; s3unzip watch {run} follows it" in ended.err


def test_watch_follows_a_run_until_its_process_ends(program: Program) -> None:
    """A report of an earlier pass is not the end while a process works on the run."""
    assert program.run("run", "a.zip", "out", "-w", "1").code == 0
    (run,) = runs_of(program)
    home = str(program.folder / ".runs")
    words = [*program.command, "watch", run, "--every", "0.1", "--json"]
    variables = os.environ | program.variables
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as watching:
        with lock_run(home, run):
            assert watching.stdout is not None
            assert '"state":"RUNNING"' in watching.stdout.readline()
            assert watching.poll() is None
        assert watching.wait() == 0


def test_abort_names_the_run(program: Program) -> None:
    """`latest` may be another run than the one that is meant."""
    assert program.run("run", "a.zip", "out", "-w", "1").code == 0
    (run,) = runs_of(program)
    assert program.run("abort", "latest").out == f"{run}: 0 incomplete uploads dropped\n"


def test_watch_tells_a_member_that_failed_twice_once(program: Program) -> None:
    """A retry that fails again is another record of the same failed member."""
    wrong = {"crc32": 1}
    damaged = build(Entry("a.txt", b"a"), Entry("bad.txt", b"b", local=wrong, central=wrong))
    (program.folder / "damaged.zip").write_bytes(damaged)
    assert program.run("run", "damaged.zip", "out", "-w", "1").code == 1
    assert program.run("resume", "latest", "--failed", "-w", "1").code == 1
    ended = program.run("watch", "latest")
    assert ended.code == 1
    assert [line[:7] for line in ended.err.splitlines()].count("failed:") == 1


def test_verify_counts_one_member_in_words(program: Program) -> None:
    """One member, not 1 members."""
    assert program.run("run", "a.zip", "out", "-w", "1", "-i", "a.txt").code == 0
    verified = program.run("verify", "a.zip", "out", "-i", "a.txt")
    assert (verified.code, "1 member: 1 equal" in verified.out) == (0, True)
