"""Copies of stored members by the store, and uploads that runs of one machine leave open."""

import random
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pytest
from msgspec.structs import replace

from s3unzip.errors import (
    AccessDeniedError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    ThrottledError,
    UnconfirmedError,
)
from s3unzip.extraction.copies import COPY_TRIES
from s3unzip.local.machine import drop_leftovers
from s3unzip.local.runs import OpenUploads, lock_run
from s3unzip.model import Location, Part, Pin, Report, Task, Verdict
from s3unzip.runs.step import Step
from s3unzip.settings import Tuning
from s3unzip.settling.loop import begin
from s3unzip.stores.ports import ObjectFacts, Upload
from s3unzip.zip import ByteRange
from tests.support import zips
from tests.support.memory import MemoryBucket, MemoryStores
from tests.support.runs import KEY, WHOLE, World

CONTENT = random.Random(3).randbytes(200_000)
ARCHIVE = zips.build(zips.Entry("s.bin", CONTENT), zips.Entry("next", b"n"))
SPLIT = replace(WHOLE, copy_task_bytes=50_000)
each_way = pytest.mark.parametrize("tuning", [WHOLE, SPLIT], ids=["one-task", "four-tasks"])


class OddCopies(MemoryBucket):
    """Says checksums of its own of copied parts, as emulators do."""

    crc32: int | None = 0x12345678
    checksum: str | None = None

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        part = super().copy_part(upload, number, offset, source, pin, span)
        return Part(part.number, part.etag, part.size, self.crc32, self.checksum)


class CompositeChecksums(OddCopies):
    """Gives the checksum of the whole source as that of the part, as VersityGW does."""

    checksum = "YuR7oA==-3"


class FailingCopies(MemoryBucket):
    """Answers UploadPartCopy with an error, as long as there is one; None: it copies the part."""

    def __init__(self, *errors: S3UnzipError | None, last: S3UnzipError | None = None) -> None:
        super().__init__()
        self._errors = chain(errors, repeat(last))

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        error = next(self._errors)
        if error is not None:
            raise error
        return super().copy_part(upload, number, offset, source, pin, span)


class WrongCopies(MemoryBucket):
    """Copies other bytes, and says their checksums truly."""

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        part = super().copy_part(upload, number, offset, source, pin, span)
        _, body = self.pending[upload.upload_id].parts[number]
        wrong = bytes([body[0] ^ 1]) + body[1:]
        part = replace(part, crc32=zlib.crc32(wrong))
        self.pending[upload.upload_id].parts[number] = (part, wrong)
        return part


class SilentCompletes(MemoryBucket):
    """Answers Complete without an ETag: at first `lost` times without doing it."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost = lost

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        self.lost -= 1
        if self.lost < 0:
            super().complete_upload(upload, parts, if_absent=if_absent)
        raise UnconfirmedError("no ETag")


class PlainBucket(MemoryBucket):
    """Has no UploadPartCopy."""

    copy_part = None  # type: ignore[assignment]  # so it is no `CopiesParts`


class ForgetfulBucket(MemoryBucket):
    """Copies when a run is planned, and has no UploadPartCopy for its workers."""

    def copies_from(self, source: Location, pin: Pin) -> bool:
        self.__class__ = PlainBucket  # type: ignore[assignment]  # it becomes another kind
        return True


class RefusingCompletes(MemoryBucket):
    """Will not have an object made of parts, or of those that were copied."""

    error: S3UnzipError | None = StorageError("InvalidArgument: multiple checksums in request")

    def __init__(self, *, streamed: bool = False) -> None:
        super().__init__()
        self._streamed = streamed
        self._copied: set[str] = set()

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        self._copied.add(upload.upload_id)
        return super().copy_part(upload, number, offset, source, pin, span)

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        if self.error is not None and (self._streamed or upload.upload_id in self._copied):
            raise self.error
        return super().complete_upload(upload, parts, if_absent=if_absent)


def extract(out: MemoryBucket, tuning: Tuning) -> tuple[World, Report]:
    """Extract the archive to that destination; every byte arrives."""
    world = World(tuning, MemoryStores(out=out))
    report = world.run(ARCHIVE)
    world.assert_clean(report, **{"s.bin": CONTENT})
    return world, report


def _read_by_tasks(world: World, report: Report) -> int:
    records = world.records(report.run)
    ended = records.read_outcomes(records.list_outcomes())
    return sum(found.report.bytes_read for _, found in ended if found is not None)


@each_way
def test_part_checksums_that_are_right_save_the_reading(tuning: Tuning) -> None:
    """With the parts' checksums from the store, no byte of the member is read or uploaded."""
    world, report = extract(MemoryBucket(part_checksums=True), tuning)
    assert report.requests.part == 0
    assert report.requests.copy >= 13
    assert _read_by_tasks(world, report) < len(CONTENT) // 10
    assert report.bytes_out >= len(CONTENT)
    stored = world.out.head(KEY + "s.bin")
    assert stored is not None
    assert stored.crc32 == zlib.crc32(CONTENT)


@each_way
def test_absent_part_checksums_are_computed_from_the_pinned_range(tuning: Tuning) -> None:
    """Where the store gives no checksum the member is read once, and still not uploaded."""
    world, report = extract(MemoryBucket(part_checksums=False), tuning)
    assert report.requests.part == 0
    assert len(CONTENT) <= _read_by_tasks(world, report) < 1.1 * len(CONTENT)


@each_way
def test_wrong_part_checksums_never_fail_a_right_member(tuning: Tuning) -> None:
    """Where they do not combine to the directory's, the member is streamed."""
    _, report = extract(OddCopies(), tuning)
    assert report.requests.part > 0


@each_way
@pytest.mark.parametrize(
    "make_bucket",
    [partial(FailingCopies, last=ServiceFaultError("200 with InternalError in it")), WrongCopies],
)
def test_copies_that_always_fail_or_are_wrong_are_streamed(
    make_bucket: Callable[[], MemoryBucket], tuning: Tuning
) -> None:
    """A store that cannot copy, or says that it copied other bytes, gets the bytes uploaded."""
    _, report = extract(make_bucket(), tuning)
    assert report.requests.part > 0
    assert report.rounds <= 3


def test_throttling_is_no_refusal_to_copy() -> None:
    """A throttled try does not count among the faults of a part, after which it is uploaded."""
    bucket = FailingCopies(*[ThrottledError("503")] * COPY_TRIES, ServiceFaultError("500"))
    _, report = extract(bucket, replace(WHOLE, parts_in_flight=1))
    assert (report.requests.throttled, report.requests.part) == (COPY_TRIES, 0)


@each_way
@pytest.mark.parametrize("lost", [0, 2])
def test_a_complete_without_an_etag_is_looked_at(tuning: Tuning, lost: int) -> None:
    """The object tells whether it is there; where it is not, Complete is sent again."""
    bucket = SilentCompletes(lost)
    extract(bucket, tuning)
    assert not bucket.pending


@each_way
@pytest.mark.parametrize("after", [0, 2, 7])
def test_a_refused_copy_is_streamed(tuning: Tuning, after: int) -> None:
    """A store that will not copy, from the first part or a later one, gets the bytes uploaded."""
    bucket = FailingCopies(*[None] * after, last=StorageError("NotImplemented: UploadPartCopy"))
    _, report = extract(bucket, tuning)
    assert report.requests.part > 0


@each_way
def test_a_store_that_copies_no_longer_is_streamed_to(tuning: Tuning) -> None:
    """As one that refuses each copy, or to which nothing can be copied."""
    for out in (ForgetfulBucket(), MemoryBucket(copies=False)):
        _, report = extract(out, tuning)
        assert (report.requests.copy, report.requests.part > 0) == (0, True)


@each_way
@pytest.mark.parametrize("bucket", [RefusingCompletes, CompositeChecksums])
def test_a_copy_that_cannot_be_completed_is_streamed(
    bucket: type[MemoryBucket], tuning: Tuning
) -> None:
    """A store that copies parts and does not take them gets the bytes uploaded."""
    _, report = extract(bucket(), tuning)
    assert report.requests.part > 0


@each_way
@pytest.mark.parametrize("checksums", [True, False])
def test_a_flipped_bit_in_stored_data_fails_by_name(tuning: Tuning, *, checksums: bool) -> None:
    """A stored member whose bytes are wrong fails; no object and no upload is left."""
    data = bytearray(CONTENT)
    data[123_456] ^= 1
    world = World(tuning, MemoryStores(out=MemoryBucket(part_checksums=checksums)))
    report = world.run(zips.build(zips.Entry("s.bin", CONTENT, data=bytes(data))))
    assert report.reasons == {"crc-mismatch": 1}
    assert [failure.key for failure in report.failures] == [KEY + "s.bin"]
    world.assert_absent("s.bin")


def test_a_right_that_is_missing_while_settling_is_in_the_report() -> None:
    """The run ends with a report that names the right, and a resume completes the member."""
    bucket = RefusingCompletes(streamed=True)
    bucket.error = AccessDeniedError("CompleteMultipartUpload: s3:PutObject is missing")
    world = World(SPLIT, MemoryStores(out=bucket))
    report = world.run(ARCHIVE)
    assert (report.verdict, report.reason) == ("FAILED", "access-denied")
    assert "s3:PutObject" in (report.message or "")
    bucket.error = None
    world.assert_clean(world.resume(report.run), **{"s.bin": CONTENT})


def test_an_overwritten_source_leaves_no_upload() -> None:
    """The upload of a copy over four tasks is aborted when the archive changes between two."""
    world = World(SPLIT)
    request = world.request(ARCHIVE)
    ingest = world.buckets.bucket("ingest")
    copied: list[Task] = []

    def overwrite_after_one(task: Task) -> None:
        if task.slice is not None:
            copied.append(task)
        if len(copied) == 2:
            ingest.put(request.source.key, b"newer", ObjectFacts("x", {}), if_absent=False)

    report = world.finish(begin(request, world.context), overwrite_after_one)
    assert len(copied) >= 2
    assert report.verdict is Verdict.SOURCE_CHANGED
    assert not world.out.pending


@pytest.mark.parametrize("copies", [True, False])
def test_uploads_of_a_run_that_is_at_work_stay(tmp_path: Path, *, copies: bool) -> None:
    """They go with the others once nobody works on their run; a run's own always go."""
    notes, home = OpenUploads(str(tmp_path)), str(tmp_path)
    world = World(WHOLE, MemoryStores(out=MemoryBucket(copies=copies)), uploads=notes)
    report = world.run(ARCHIVE)
    world.assert_clean(report, **{"s.bin": CONTENT})
    assert not list(Path(tmp_path, "uploads").iterdir())  # it has none open
    run = world.records(report.run).read_plan().run
    step = Step(run, "test", world.context, world.context.calls())
    theirs, ours, _ = (
        world.out.create_upload(KEY + "s.bin", ObjectFacts("text/plain", {})) for _ in range(3)
    )
    notes.note(theirs, "2026-11-25/000000-other-run")
    notes.note(ours, run.id)
    with lock_run(home, "2026-11-25/000000-other-run"), lock_run(home, run.id):
        assert drop_leftovers(step) == 2
        assert list(world.out.pending) == [theirs]
    assert drop_leftovers(step) == 1
    assert not world.out.pending
    assert not list(Path(tmp_path, "uploads").iterdir())
