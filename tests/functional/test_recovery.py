"""Runs go on after a kill, a loss of power or damaged records; how long they wait for stores."""

import os
import random
import shlex
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from s3unzip.context import Progress
from s3unzip.errors import S3UnzipError, ServiceFaultError, UnreadableRecordError
from s3unzip.extraction.task import run_task
from s3unzip.local import attempts, runs
from s3unzip.model import (
    RECORDS_FORMAT,
    Location,
    OnConflict,
    Options,
    Report,
    Request,
    Stop,
    TaskKind,
    Verdict,
    decode,
)
from s3unzip.runs.records import RECORD_UNREADABLE, RunRecords
from s3unzip.runs.step import stop_for
from s3unzip.settings import KIB, Tuning, make_tuning
from s3unzip.settling.loop import (
    KnownArchive,
    StepResult,
    begin_run,
    settle,
    settle_failed,
)
from s3unzip.stores import config, folder, ports
from s3unzip.zip import Policy
from tests.support.memory import TINY, WHOLE, ManualClock, MemorySource, Stored, World
from tests.support.processes import Program
from tests.support.zips import DEFLATE, Entry, build, log_lines, mixed_files

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


LOSSES: dict[str, Loss] = {
    "empty": partial(os.truncate, length=0),
    "short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "gone": Path.unlink,
}


@pytest.fixture
def archive(program: Program) -> Path:
    program.variables["S3UNZIP_TUNING"] = repr(TUNING).replace("'", '"')
    return program.add("a.zip", *(Entry(name, data, DEFLATE) for name, data in CONTENTS.items()))


def _extract(program: Program, *options: str) -> Path:
    program.extract("a.zip", "out", "--prefix", "", *options).ends(0)
    return program.home / "runs" / program.runs()[0]


def restart(records: Path) -> None:
    """Let the run's last process have worked before the machine was started anew."""
    (records / runs.BOOT).write_text("another start")


# What is lost: a file, or one and a record of the plan, so that nobody knows what else is lost.
LOST = {name: [f"out/{name}"] for name in CONTENTS} | {
    record: ["out/small.txt", f".runs/runs/*/*/{record}"]
    for record in ("members.jsonl", "rounds/00.jsonl")
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_lost_members_are_done_again(
    program: Program, archive: Path, lost: list[str], loss: Loss, *, restarted: bool
) -> None:
    """A file that is missing or has another size is written again when the run goes on.

    The program was killed before the end, or the machine was started again after a COMPLETED run.
    """
    records = _extract(program)
    for name in lost:
        loss(*program.folder.glob(name))
    if restarted:
        restart(records)
    else:
        (records / "report.json").unlink()
    program.run("resume", "latest", "-w", "1").ends(0, "4 members: 4 extracted")
    assert program.files("out") == CONTENTS


@pytest.mark.parametrize("options", [(), ("--as-gzip", "suffix")], ids=["plain", "gzip"])
@pytest.mark.parametrize("restarted", [False, True])
def test_after_a_start_of_the_machine_contents_are_read(
    program: Program, archive: Path, options: tuple[str, ...], *, restarted: bool
) -> None:
    """A file of zeros is found after a power failure; otherwise the size is proof enough.

    This holds for a COMPLETED run, too: its report tells what was written, not what is on disk.
    """
    records = _extract(program, *options)
    whole = program.files("out")
    _write_zeros(program.folder / "out" / next(name for name in whole if "small" in name))
    if restarted:
        restart(records)
    for _ in range(2):
        ended = program.run("resume", "latest", "-w", "1").ends(0)
        assert (program.files("out") == whole) is restarted
    ended.says("nothing is left to do. The destination was not checked", "s3unzip verify SRC DEST")


@pytest.mark.parametrize("restarted", [False, True])
def test_parts_of_a_split_member_are_written_again(
    program: Program, archive: Path, *, restarted: bool
) -> None:
    """Parts on record that a loss of power took do not make a wrong member."""
    context = attempts.open_context(
        config.StoreConfig(Location("file", "", str(program.home))),
        Policy(),
        make_tuning(TUNING),
        ports.Clock(),
        progress=None,
    )
    request = Request(
        Location("file", "", str(archive)),
        Location("file", "", f"{program.folder}/out/"),
        Options(key_template="{member}"),
    )
    step = begin_run(request, context)
    run = RunRecords.open(context.stores, step.next.run).read_plan().run
    for _ in range(2):  # scans and all others, then slices
        for task in step.next.tasks:
            run_task(run, task, context)
        if any(task.kind is TaskKind.SLICE for task in step.next.tasks):
            break
        step = settle(step.next, context)
    (note,) = (program.folder / "out").glob(f"{folder.OWN}*{folder.NOTE}")
    if restarted:
        _write_zeros(note.with_suffix(""))
    else:
        runs.note_start(str(program.home), run.id)
    program.run("resume", "latest", "-w", "1").ends(0)
    assert program.files("out") == CONTENTS


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("resume latest -w 1", ""),
        ("abort latest", "3 incomplete uploads dropped"),
        ("run a.zip out --prefix '' -w 1", ""),
    ],
)
def test_files_of_a_killed_run_are_removed(
    program: Program, archive: Path, words: str, printed: str
) -> None:
    """Those that the run itself left beside its members, and no others."""
    records = _extract(program)
    (records / "report.json").unlink()
    own = folder.own_prefix(str(records.relative_to(program.home / "runs")))
    others = [f"d/{folder.own_prefix('another')}1", f"other/{folder.OWN}1", "d/mine"]
    for name in (f"{own}1", f"d/{own}2", f"d/e/{own}3", *others):
        program.write(f"out/{name}", b"half")
    program.run(*shlex.split(words)).ends(0).prints(printed)
    assert program.files("out") == CONTENTS | dict.fromkeys(others, b"half")


def test_a_lost_member_whose_archive_is_gone_is_no_success(program: Program, archive: Path) -> None:
    """The report of a run that is not whole any more gives way to the truth."""
    records = _extract(program)
    archive.unlink()
    (program.folder / "out/small.txt").unlink()
    restart(records)
    program.run("resume", "latest", "-w", "1").ends(4)
    assert "SOURCE_CHANGED" in program.run("show", "latest").err + program.run("show", "latest").out


MEMBERS = {f"f{number}": b"%d" % number * 99 for number in range(5)}
HUGE = log_lines(90_000)
DEFLATER = zlib.compressobj(6, zlib.DEFLATED, -15, 1)  # blocks so short that a segment has some
ARCHIVE = build(
    *(Entry(name, body, DEFLATE) for name, body in MEMBERS.items()),
    Entry("huge", HUGE, DEFLATE, data=DEFLATER.compress(HUGE) + DEFLATER.flush()),
    Entry("../refused", b"by the plan"),
)
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "lost": lambda _: None,
    "empty": lambda _: b"",
    "nested": lambda _: b'{"":' + b"[" * 100_000,
    "cut": lambda data: data[: len(data) // 2],
    "cut after a line": lambda data: data[: data.find(b"\n") + 1],
    "flipped": lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
}
DONE = "done"
# Before the tasks of a round, scan or extract, or before it is settled, link or report.
RECORDS = (
    ("run.json", "scan"),
    ("run.json", "report"),
    ("members.jsonl", "scan"),
    ("members.jsonl", "report"),
    ("rounds/00.jsonl", "link"),
    ("rounds/01.jsonl", "report"),
    ("outcomes/plan.jsonl", "link"),
    ("outcomes/batch-", "link"),
    ("outcomes/batch-", "report"),
    ("outcomes/scan-", "link"),
    ("outcomes/slice-", "report"),
    ("split/00000005-0001-scanned.bin", "link"),
    ("split/00000005-0001-linked.bin", "extract"),
)


class Damaged(Progress):
    """Damages one record of the only run of a world when a phase begins."""

    def __init__(self, world: World, record: str, damage: str, phase: str) -> None:
        self.objects = world.buckets.records.objects
        self.record = record
        self.damage = DAMAGES[damage]
        self.at = phase

    def phase(self, name: str) -> None:
        keys = [key for key in self.objects if f"/{self.record}" in key]
        if name == self.at and keys:
            _damage_object(self.objects, keys[0], self.damage)
            self.at = DONE  # once


def _damage_object(
    objects: dict[str, Stored], key: str, damage: Callable[[bytes], bytes | None]
) -> None:
    data = damage(objects[key].body)
    if data is None:
        del objects[key]
    else:
        objects[key].body = data


def go_on_aws(world: World, settled: StepResult, request: Request) -> Report:
    """Do the rounds of a run as the state machine does, whose failure EventBridge tells."""
    run = settled.next.run
    pin = world.buckets.source(request.source).stat(request.source).pin
    tell = (world.progress or Progress()).phase
    try:
        while settled.report is None:
            step = settled.next
            tell("extract" if step.round else "scan")
            for task in step.tasks:
                with suppress(S3UnzipError):
                    run_task(world.records(run).read_plan().run, task, world.context)
            tell("report" if step.round else "link")
            settled = settle(step, world.context)
    except UnreadableRecordError as damage:
        ended = settle_failed(
            run,
            stop_for(damage),
            world.context,
            began=0.0,
            ended=world.clock.now(),
            request=request,
            pin=pin,
        )
        assert ended is not None
        return ended[0]
    assert settled.report is not None
    return settled.report


@pytest.mark.parametrize("place", ["aws", "here"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("record", "phase"), RECORDS)
def test_a_damaged_record_ends_in_a_verdict(
    record: str, damage: str, phase: str, place: str
) -> None:
    """The run is mended, or FAILED by that reason; the next event, or resume, begins it anew."""
    world = World(replace(TINY, split_from=8 * KIB, segment_bytes=8 * KIB))
    request = world.request(ARCHIVE)
    harm = Damaged(world, record, damage, phase)
    world.progress = harm
    if place == "aws":
        report = go_on_aws(world, begin_run(request, world.context), request)
    else:
        report = world.machine.run(request)
    assert harm.at == DONE
    assert not (
        record.startswith(("outcomes/batch", "outcomes/scan", "outcomes/slice", "split/"))
        and report.verdict is Verdict.FAILED
    ), report.message
    if report.verdict is Verdict.FAILED:
        assert report.reason == RECORD_UNREADABLE
        assert record.rstrip("-") in str(report.message) or "in no task" in str(report.message)
    else:
        assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert world.records(report.run).find_report() == report
    world.progress = None
    if place == "aws":
        ended = go_on_aws(
            world, begin_run(request, world.context, KnownArchive(report.run, report.pin)), request
        )
    elif record == "run.json" and report.verdict is Verdict.FAILED:
        with pytest.raises(S3UnzipError, match=r"run\.json"):
            world.machine.resume(report.run)
        ended = world.machine.run(request)
    else:
        ended = world.machine.resume(report.run)
    assert (ended.verdict, ended.failed) == (Verdict.COMPLETED_WITH_ERRORS, 1)
    assert (world.contents(), world.out.pending) == (MEMBERS | {"huge": HUGE}, {})


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("record", ["stop.json", "report.json"])
def test_a_damaged_end_is_followed_by_another(world: World, record: str, damage: str) -> None:
    """What stopped the run, or its report, cannot be read: the run goes on, and has a report."""
    step = begin_run(world.request(build(Entry("a", b"a"))), world.context)
    world.records(step.next.run).write_stop(Stop(Verdict.FAILED, "access-denied", "no right"))
    if record == "report.json":
        assert settle(step.next, world.context).report is not None
    _damage_object(world.buckets.records.objects, f"runs/{step.next.run}/{record}", DAMAGES[damage])
    if record == "stop.json" and damage != "lost":
        report = world.finish(settle(step.next, world.context))
        assert (report.verdict, report.reason) == (Verdict.FAILED, RECORD_UNREADABLE)
        assert record in str(report.message)
    world.assert_clean(world.resume(step.next.run), a=b"a")


def test_records_of_another_version_begin_anew(world: World) -> None:
    """The number is on record; a version that does not read it says so, and has a way out."""
    request = world.request(build(Entry("a", b"a")))
    report = world.machine.run(request)
    stored = world.buckets.records.objects[f"runs/{report.run}/run.json"]
    assert decode(stored.body, dict[str, Any])["format"] == RECORDS_FORMAT
    stored.body = stored.body.replace(b'"format":5', b'"format":99')
    words = "another version of s3unzip wrote its records: they have format 99, but this version"
    with pytest.raises(UnreadableRecordError, match=words):
        world.machine.resume(report.run)
    world.assert_clean(world.machine.run(request), a=b"a")
    stored = world.buckets.records.objects[f"runs/{report.run}/run.json"]
    stored.body = stored.body.replace(b'"format":5', b'"older":5')
    with pytest.raises(UnreadableRecordError, match=words.replace("99", "3")):
        world.records(report.run).read_plan()


FEW_AND_LARGE = build(
    *(Entry(f"small-{n:02}", b"%d" % n * 100, method=8) for n in range(40)),
    *(Entry(f"large-{n}", mixed_files(600_000) + b"%d" % n, method=8) for n in range(4)),
)


def no_answer(*_: object, **__: object) -> NoReturn:
    """Raise what a call of a store that is down ends with."""
    raise ServiceFaultError("no answer")


@pytest.mark.parametrize("tuning", [TINY, WHOLE], ids=["split", "whole"])
@pytest.mark.parametrize(
    "failing",
    [
        ["put"],
        ["head"],
        ["create_upload"],
        ["upload_part"],
        ["complete_upload"],
        ["put", "head", "create_upload", "upload_part", "complete_upload", "abort_upload"],
        [],
    ],
    ids=lambda names: names[0] + "..." * (len(names) > 1) if names else "archive",
)
def test_a_run_waits_for_its_stores_once(
    failing: list[str], tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tasks and rounds do not wait one after the other: one budget, then the report."""
    clock = ManualClock()
    world = World(tuning, clock=clock)
    world.tune(puts_in_flight=1, parts_in_flight=1)
    request = world.request(FEW_AND_LARGE, Options(on_conflict=OnConflict.NEVER))
    for name in failing:
        monkeypatch.setattr(world.out, name, no_answer)
    if not failing:
        monkeypatch.setattr(MemorySource, "stream", no_answer)
    report = world.machine.run(request)
    assert (report.verdict, report.reason) == (Verdict.FAILED, "service-fault")
    # The clock adds the waits of threads that wait at once. Two budgets would be a second round.
    seconds = world.tuning.retry_seconds
    assert seconds / 2 < clock.slept < 2 * seconds
    monkeypatch.undo()
    assert world.machine.resume(report.run).verdict is Verdict.COMPLETED
    assert world.out.pending == {}
