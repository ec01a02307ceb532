"""Records of a run that are damaged, cut or lost while it is at work: each ends in a verdict."""

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from s3unzip.context import Progress
from s3unzip.errors import S3UnzipError, UnreadableRecordError
from s3unzip.extraction.task import run_task
from s3unzip.model import RECORDS_FORMAT, Report, Request, Stop, Verdict, decode
from s3unzip.runs.records import RECORD_UNREADABLE
from s3unzip.runs.step import stop_for
from s3unzip.settings import KIB
from s3unzip.settling.loop import (
    FailedExecution,
    KnownArchive,
    Settled,
    begin,
    settle,
    settle_failed,
)
from tests.support.contents import log_lines
from tests.support.memory import Stored
from tests.support.runs import TINY, World
from tests.support.zips import DEFLATE, Entry, build

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


def go_on_aws(world: World, settled: Settled, request: Request) -> Report:
    """Do the rounds of a run as the state machine does, whose failure EventBridge tells."""
    run = settled.next.run
    pin = world.buckets.source(request.source).head(request.source)
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
        failed = FailedExecution(run, stop_for(damage), 0.0, world.clock.now(), request, pin)
        ended = settle_failed(failed, world.context)
        assert ended is not None
        settled = ended
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
        report = go_on_aws(world, begin(request, world.context), request)
    else:
        report = world.run_here(request)
    assert harm.at == DONE
    is_done_again = record.startswith(
        ("outcomes/batch", "outcomes/scan", "outcomes/slice", "split/")
    )
    assert not (is_done_again and report.verdict is Verdict.FAILED), report.message
    if report.verdict is Verdict.FAILED:
        assert report.reason == RECORD_UNREADABLE
        assert record.rstrip("-") in str(report.message) or "in no task" in str(report.message)
    else:
        assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert world.records(report.run).find_report() == report
    world.progress = None
    if place == "aws":
        known = KnownArchive(report.run, report.pin)
        ended = go_on_aws(world, begin(request, world.context, known), request)
    elif record == "run.json" and report.verdict is Verdict.FAILED:
        with pytest.raises(S3UnzipError, match=r"run\.json"):
            world.resume_here(report.run)
        ended = world.run_here(request)
    else:
        ended = world.resume_here(report.run)
    assert (ended.verdict, ended.failed) == (Verdict.COMPLETED_WITH_ERRORS, 1)
    assert world.contents() == MEMBERS | {"huge": HUGE}
    assert world.out.pending == {}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("record", ["stop.json", "report.json"])
def test_a_damaged_end_is_followed_by_another(world: World, record: str, damage: str) -> None:
    """What stopped the run, or its report, cannot be read: the run goes on, and has a report."""
    step = begin(world.request(build(Entry("a", b"a"))), world.context)
    world.records(step.next.run).write_stop(Stop(Verdict.FAILED, "access-denied", "no right"))
    if record == "report.json":
        assert settle(step.next, world.context).report is not None
    _damage_object(world.buckets.records.objects, f"runs/{step.next.run}/{record}", DAMAGES[damage])
    if record == "stop.json" and damage != "lost":
        report = settle(step.next, world.context).report
        assert report is not None
        assert (report.verdict, report.reason) == (Verdict.FAILED, RECORD_UNREADABLE)
        assert record in str(report.message)
    world.assert_clean(world.resume(step.next.run), a=b"a")


def test_records_of_another_version_begin_anew(world: World) -> None:
    """The number is on record; a version that does not read it says so, and has a way out."""
    request = world.request(build(Entry("a", b"a")))
    report = world.run_here(request)
    stored = world.buckets.records.objects[f"runs/{report.run}/run.json"]
    assert decode(stored.body, dict[str, Any])["format"] == RECORDS_FORMAT
    stored.body = stored.body.replace(b'"format":5', b'"format":99')
    words = "another version of s3unzip wrote its records: they have format 99, this version reads"
    with pytest.raises(UnreadableRecordError, match=words):
        world.resume_here(report.run)
    world.assert_clean(world.run_here(request), a=b"a")
    stored = world.buckets.records.objects[f"runs/{report.run}/run.json"]
    stored.body = stored.body.replace(b'"format":5', b'"older":5')
    with pytest.raises(UnreadableRecordError, match=words.replace("99", "3")):
        world.records(report.run).read_plan()
