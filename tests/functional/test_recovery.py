"""What a killed program or a loss of power leaves of a run into a folder, and how it goes on."""

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from s3unzip.extraction.task import run_task
from s3unzip.local.run_folders import BOOT, note_start
from s3unzip.local.worker_process import open_context
from s3unzip.model import Location, Options, Request, TaskKind
from s3unzip.runs.records import RunRecords
from s3unzip.settings import make_tuning
from s3unzip.settling.loop import begin, settle
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.folder import NOTE, OWN, own_prefix
from s3unzip.zip import Policy
from tests.support.contents import log_lines
from tests.support.processes import Program
from tests.support.zips import DEFLATE, Entry

TUNING = {"small_member": 4_000, "split_from": 50_000, "segment_bytes": 50_000}
CONTENTS = {
    "small.txt": b"small\n" * 100,
    "d/small.txt": b"another\n" * 100,
    "d/large.bin": random.Random(1).randbytes(20_000),
    "d/e/split.log": log_lines(1_000_000),
}
Loss = Callable[[Path], object]


def _write_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


LOSSES: dict[str, Loss] = {
    "empty": partial(os.truncate, length=0),
    "short": _truncate,
    "gone": Path.unlink,
}


@pytest.fixture
def archive(program: Program) -> Path:
    program.variables["S3UNZIP_TUNING"] = repr(TUNING).replace("'", '"')
    return program.add("a.zip", *(Entry(name, data, DEFLATE) for name, data in CONTENTS.items()))


def _extract(program: Program) -> Path:
    program.extract("a.zip", "out", "--prefix", "").ends(0)
    return program.home / "runs" / program.runs()[0]


def restart(records: Path) -> None:
    """Let the run's last process have worked before the machine was started anew."""
    (records / BOOT).write_text("another start")


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("name", CONTENTS)
def test_lost_members_are_done_again(
    program: Program, archive: Path, name: str, loss: Loss
) -> None:
    """A file that is missing or has another size is written again when the run goes on."""
    records = _extract(program)
    loss(program.folder / "out" / name)
    (records / "report.json").unlink()  # the program was killed before the end
    ended = program.run("resume", "latest", "-w", "1").ends(0)
    assert program.files("out") == CONTENTS
    assert "4 members: 4 extracted" in ended.err


@pytest.mark.parametrize("options", [(), ("--as-gzip", "suffix")], ids=["plain", "gzip"])
@pytest.mark.parametrize("restarted", [False, True])
def test_after_a_start_of_the_machine_contents_are_read(
    program: Program, archive: Path, options: tuple[str, ...], *, restarted: bool
) -> None:
    """A file of zeros is found after a loss of power; else the size is proof enough.

    Also of a run that is COMPLETED: its report says what was written, not what is on the disk.
    """
    assert program.extract("a.zip", "out", "--prefix", "", *options).code == 0
    records = program.home / "runs" / program.runs()[0]
    whole = program.files("out")
    _write_zeros(program.folder / "out" / next(name for name in whole if "small" in name))
    if restarted:
        restart(records)
    for _ in range(2):
        ended = program.run("resume", "latest", "-w", "1").ends(0)
        assert (program.files("out") == whole) is restarted
    assert "nothing is left to do" in ended.err


@pytest.mark.parametrize("restarted", [False, True])
def test_parts_of_a_split_member_are_written_again(
    program: Program, archive: Path, *, restarted: bool
) -> None:
    """Parts on record that a loss of power took do not make a wrong member."""
    work = Location("file", "", str(program.home))
    source = Location("file", "", str(archive))
    target = Location("file", "", f"{program.folder}/out/")
    context = open_context(
        StoreConfig(work), Policy(), make_tuning(TUNING), LocalClock(), progress=None
    )
    step = begin(Request(source, target, Options(key_template="{member}")), context)
    run = RunRecords.open(context.stores, step.next.run).read_plan().run
    for _ in range(2):  # scans and all others, then slices
        for task in step.next.tasks:
            run_task(run, task, context)
        if any(task.kind is TaskKind.SLICE for task in step.next.tasks):
            break
        step = settle(step.next, context)
    notes = list((program.folder / "out").glob(f"{OWN}*{NOTE}"))
    assert len(notes) == 1
    if restarted:
        _write_zeros(notes[0].with_suffix(""))
    else:
        note_start(str(program.home), run.id)
    program.run("resume", "latest", "-w", "1").ends(0)
    assert program.files("out") == CONTENTS


@pytest.mark.parametrize("words", [("resume", "latest"), ("abort", "latest"), ("run", "a.zip")])
def test_files_of_a_killed_run_are_removed(
    program: Program, archive: Path, words: tuple[str, ...]
) -> None:
    """Those that the run itself left beside its members, and no others."""
    records = _extract(program)
    run = str(records.relative_to(program.home / "runs"))
    (records / "report.json").unlink()
    left = [f"out/{own_prefix(run)}1", f"out/d/{own_prefix(run)}2", f"out/d/e/{own_prefix(run)}3"]
    others = [f"out/d/{own_prefix('another')}1", f"out/other/{OWN}1", "out/d/mine"]
    for name in (*left, *others):
        (program.folder / name).parent.mkdir(exist_ok=True)
        (program.folder / name).write_bytes(b"half")
    target = ("out", "--prefix", "") if words[0] == "run" else ()
    workers = () if words[0] == "abort" else ("-w", "1")
    ended = program.run(*words, *target, *workers).ends(0)
    assert program.files("out") == CONTENTS | {
        name.removeprefix("out/"): b"half" for name in others
    }
    if words[0] == "abort":
        assert "3 incomplete uploads dropped" in ended.out


def test_a_lost_member_whose_archive_is_gone_is_no_success(program: Program, archive: Path) -> None:
    """The report of a run that is not whole any more gives way to the truth."""
    records = _extract(program)
    archive.unlink()
    (program.folder / "out/small.txt").unlink()
    restart(records)
    program.run("resume", "latest", "-w", "1").ends(4)
    assert "SOURCE_CHANGED" in program.run("show", "latest").err + program.run("show", "latest").out
