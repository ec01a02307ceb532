"""What can be seen of a run while it goes on, and how `watch`, `show` and `verify` end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from s3unzip.cli.main import main
from s3unzip.extraction.task import run_task
from s3unzip.model import Report, TaskReport, decode
from s3unzip.runs.records import RunWatcher
from s3unzip.settling.loop import Settled, begin
from tests.runs import World
from tests.zips import Entry, build

MEMBERS = [Entry(f"f{n:03}.txt", b"#%03d" % n * (n + 1)) for n in range(100)]


def planned(archive: bytes) -> tuple[World, Settled]:
    """Return a run of several tasks that is planned and not begun."""
    world = World()
    world.tune(batch_members=20)
    step = begin(world.request(archive), world.context)
    assert len(step.next.tasks) == 5
    return world, step


def test_before_the_plan_nothing_is_known() -> None:
    """A run without a summary is still being planned."""
    seen = RunWatcher(World().records("r")).read()
    assert (seen.summary, seen.tasks) == (None, 0)


def test_tasks_add_up_as_they_end() -> None:
    """Each look counts the tasks that ended, once."""
    world, step = planned(build(*MEMBERS))
    records = world.records(step.next.run)
    run, watcher = records.read_plan().run, RunWatcher(records)
    assert watcher.read().tasks == 0
    for done, task in enumerate(step.next.tasks, 1):
        run_task(run, task, world.context)
        seen = watcher.read()
        assert (seen.tasks, seen.counts["extracted"]) == (done, 20 * done)
        assert watcher.read().counts == seen.counts
    assert seen.counts["bytes_written"] == sum(len(member.content) for member in MEMBERS)
    assert seen.first_object is not None


def test_unfinished_tasks_are_looked_at_again() -> None:
    """A task that ran out of time counts when it is done."""
    world, step = planned(build(*MEMBERS))
    records, task = world.records(step.next.run), step.next.tasks[0]
    half = TaskReport(task.id, task.kind, task.members, extracted=7, unfinished=13)
    records.write_outcomes(half, [])
    watcher = RunWatcher(records)
    assert watcher.read().tasks == 0
    run_task(records.read_plan().run, task, world.context)
    assert watcher.read().counts["extracted"] == 20


def test_failures_are_told_once_and_bounded() -> None:
    """A failed member is shown once, after its task, with a limit for each update."""
    archive = bytearray(build(*MEMBERS))
    for number in range(40):
        archive[archive.index(b"#%03d" % number)] ^= 1
    world, step = planned(bytes(archive))
    watcher = RunWatcher(world.records(step.next.run), listed=3)
    world.finish(step)
    seen = watcher.read()
    assert len(seen.failures) == 3
    assert all("crc" in str(outcome.reason) for _, outcome in seen.failures)
    assert seen.counts["failed"] == 40
    assert watcher.read().failures == []


class Ended(NamedTuple):
    """How a command ended."""

    code: object
    out: str
    err: str


@pytest.fixture
def s3unzip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Return a function that runs a command in a folder with an archive, extracted to out."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("a.zip").write_bytes(build(*MEMBERS))

    def run(*words: str) -> Ended:
        with pytest.raises(SystemExit) as end:
            main(list(words))
        return Ended(end.value.code, *capfd.readouterr())

    assert run("run", "a.zip", "out", "--workers", "1").code == 0
    return run


def test_watch_of_a_run_that_ended(s3unzip: Callable[..., Ended]) -> None:
    """It prints the report at once and exits with the verdict's exit code."""
    ended = s3unzip("watch", "latest", "--json")
    assert ended.code == 0
    assert decode(ended.out.splitlines()[-1], Report).extracted == 100


def test_show_html_prints_the_page(s3unzip: Callable[..., Ended]) -> None:
    """It prints the path of an existing page."""
    ended = s3unzip("show", "latest", "--html")
    page = Path(ended.out.strip())
    assert (ended.code, page.name) == (0, "report.html")
    assert "COMPLETED" in page.read_text(encoding="utf-8")


def test_verify_says_what_differs(s3unzip: Callable[..., Ended]) -> None:
    """Equal is 0; a difference is 1, and is named."""
    ended = s3unzip("verify", "a.zip", "out")
    assert ended.code == 0
    assert ended.out.startswith("EQUAL")
    Path("out/a/f003.txt").unlink()
    Path("out/a/f004.txt").write_bytes(b"#004" * 4 + b"wxyz")
    ended = s3unzip("verify", "a.zip", "out")
    assert ended.code == 1
    assert "98 equal, 1 missing, 1 of other content" in ended.out
    assert "missing" in ended.out
    found = json.loads(s3unzip("verify", "a.zip", "out", "--deep", "--json").out)
    assert found["counts"] == {"missing": 1, "crc": 1}


def test_verify_lists_as_many_as_asked(s3unzip: Callable[..., Ended]) -> None:
    """The rest is counted."""
    for path in Path("out/a").iterdir():
        path.unlink()
    ended = s3unzip("verify", "a.zip", "out", "--list", "2")
    assert ended.code == 1
    assert ended.out.count("missing  ") == 2
    assert "and 98 more: --list 100 lists them all" in ended.out
