"""Large members that are streamed, or copied by the store, and uploads that stay open."""

import random
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from s3unzip.errors import (
    AccessDeniedError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    ThrottledError,
    UnconfirmedError,
)
from s3unzip.extraction import large_members, uploads
from s3unzip.local import recovery, runs
from s3unzip.model import Location, Part, Pin, Report, Task, TaskKind, Verdict
from s3unzip.runs.step import Step
from s3unzip.settings import MIB, Tuning
from s3unzip.settling.loop import begin_run, resume
from s3unzip.stores.ports import Buffer, ObjectFacts, PartLimits, Upload
from s3unzip.zip import ByteRange
from tests.support import zips
from tests.support.memory import (
    KEY,
    WHOLE,
    MemoryBucket,
    MemoryStores,
    World,
    put_archive,
)

CONTENT = random.Random(3).randbytes(200_000)
ARCHIVE = zips.build(zips.Entry("s.bin", CONTENT), zips.Entry("next", b"n"))
SPLIT = replace(WHOLE, copy_task_bytes=50_000)
each_way = pytest.mark.parametrize("tuning", [WHOLE, SPLIT], ids=["one-task", "four-tasks"])


@dataclass(eq=False)
class OddCopies(MemoryBucket):
    """Says checksums of its own of copied parts, as emulators do."""

    checksum: str | None = None

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        part = super().copy_part(upload, number, offset, source, pin, span)
        return Part(part.number, part.etag, part.size, 0x12345678, self.checksum)


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
    """Copies the bytes from one place earlier, and says their checksums truly."""

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        earlier = span._replace(start=span.start - 1, stop=span.stop - 1)
        return super().copy_part(upload, number, offset, source, pin, earlier)


@dataclass(eq=False)
class SilentCompletes(MemoryBucket):
    """Answers Complete without an ETag: at first `lost` times without doing it."""

    lost: int

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        self.lost -= 1
        if self.lost < 0:
            super().complete_upload(upload, parts, if_absent=if_absent)
        raise UnconfirmedError("no ETag")


class ForgetfulBucket(MemoryBucket):
    """Copies when a run is planned, and has no UploadPartCopy for its workers."""

    def copies_from(self, source: Location, pin: Pin) -> bool:
        could_copy = self.copies
        self.copies = False
        return could_copy


class RefusingCompletes(MemoryBucket):
    """Will not have an object made of parts that were copied, which have no checksum here."""

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        if any(part.crc32 is None for part, _ in self.pending[upload.upload_id].parts.values()):
            raise StorageError("InvalidArgument: multiple checksums in request")
        return super().complete_upload(upload, parts, if_absent=if_absent)


def extract(out: MemoryBucket, tuning: Tuning) -> tuple[World, Report]:
    """Extract the archive to that destination; every byte arrives."""
    world = World(tuning, MemoryStores(out=out))
    report = world.run(ARCHIVE)
    world.assert_clean(report, **{"s.bin": CONTENT})
    return world, report


def _read_by_tasks(world: World, report: Report) -> int:
    records = world.records(report.run)
    return sum(
        found.report.bytes_read
        for _, found in records.read_outcomes(records.recorded_task_ids())
        if found is not None
    )


@each_way
@pytest.mark.parametrize(("checksums", "least", "most"), [(True, 0.0, 0.1), (False, 1.0, 1.1)])
def test_a_copied_member_is_read_at_most_for_its_checksum(
    tuning: Tuning, least: float, most: float, *, checksums: bool
) -> None:
    """No byte of it is uploaded, nor read where the store gives the parts' checksums; else once."""
    world, report = extract(MemoryBucket(part_checksums=checksums), tuning)
    assert report.requests.part == 0
    assert report.requests.copy >= 13
    assert least <= _read_by_tasks(world, report) / len(CONTENT) < most
    assert report.bytes_out >= len(CONTENT)
    assert (
        world.out.objects[KEY + "s.bin"].facts.metadata["zip-crc32"] == f"{zlib.crc32(CONTENT):08x}"
    )


REFUSED = StorageError("NotImplemented: UploadPartCopy")
# Stores that do not copy, or whose copies cannot be used; the last two are asked for none.
NOT_COPYING: dict[str, Callable[[], MemoryBucket]] = {
    "checksums that do not combine": OddCopies,
    "copies of other bytes": partial(WrongCopies, part_checksums=True),
    "each copy fails for a moment": partial(FailingCopies, last=ServiceFaultError("200, error")),
    "the first copy is refused": partial(FailingCopies, last=REFUSED),
    "copies are denied": partial(FailingCopies, last=AccessDeniedError("s3:GetObject")),
    "a condition of copies is misread": partial(FailingCopies, last=SourceChangedError("412")),
    "the third copy is refused": partial(FailingCopies, *[None] * 2, last=REFUSED),
    "the eighth copy is refused": partial(FailingCopies, *[None] * 7, last=REFUSED),
    "copied parts are not completed": RefusingCompletes,
    # As VersityGW gives it for a part.
    "the checksum of the whole source": partial(OddCopies, checksum="YuR7oA==-3"),
    "no copies any more": ForgetfulBucket,
    "no copies": partial(MemoryBucket, copies=False),
}


@each_way
@pytest.mark.parametrize("case", NOT_COPYING)
def test_what_cannot_be_copied_is_streamed(tuning: Tuning, case: str) -> None:
    """A store that will not copy, cannot, or says wrong things of it gets the bytes uploaded."""
    _, report = extract(NOT_COPYING[case](), tuning)
    assert report.requests.part > 0
    assert (report.requests.copy == 0) is case.startswith("no copies")
    assert report.rounds <= 3


@pytest.mark.parametrize(
    "bucket", [FailingCopies(last=REFUSED), FailingCopies(ThrottledError("503"))]
)
def test_a_member_that_is_read_again_has_its_warnings_once(bucket: MemoryBucket) -> None:
    """What its descriptor lacks is found by a copy, and by the stream or copy that follows it."""
    World(replace(WHOLE, retry_seconds=0), MemoryStores(out=bucket)).run(
        zips.build(zips.Entry("s.bin", CONTENT, descriptor="bare32")),
        warnings={"dd-missing-signature": 1},
    )


def test_throttling_is_no_refusal_to_copy() -> None:
    """A throttled try does not count among the faults of a part, after which it is uploaded."""
    bucket = FailingCopies(
        *[ThrottledError("503")] * large_members.COPY_TRIES, ServiceFaultError("500")
    )
    _, report = extract(bucket, replace(WHOLE, parts_in_flight=1))
    assert (report.requests.throttled, report.requests.part) == (large_members.COPY_TRIES, 0)


@each_way
@pytest.mark.parametrize("lost", [0, 2])
def test_a_complete_without_an_etag_is_looked_at(tuning: Tuning, lost: int) -> None:
    """The object tells whether it is there; where it is not, Complete is sent again.

    So it is with the object of a member and with a record in parts.
    """
    world, _ = extract(SilentCompletes(lost), tuning)
    world.buckets.records = SilentCompletes(lost)
    work = world.buckets.run_store("run", world.context.calls())
    assert work.write("members.jsonl", [bytes(16 * MIB)]) == len(work.read("members.jsonl"))


@pytest.mark.parametrize("method", ["create_upload", "upload_part", "complete_upload"])
def test_a_right_that_is_missing_is_in_the_report(method: str) -> None:
    """The run's report names the right; a resume counts each member once, and splits it again.

    Before each resume, the uploads were aborted. Only if all slices had ended, one task streams
    the member.
    """
    world = World(replace(SPLIT, split_from=1_000, segment_bytes=20_000))
    with patch.object(MemoryBucket, method, side_effect=AccessDeniedError("no s3:PutObject")):
        report = world.run(
            zips.build(
                zips.Entry("broken", CONTENT, local={"method": zips.DEFLATE}),
                zips.Entry("s.bin", CONTENT),
                zips.Entry("deflated", MIXED, zips.DEFLATE),
            ),
            verdict="FAILED",
            reason="access-denied",
            message="no s3:PutObject",
        )
    world.out.pending.clear()
    resume(report.run, world.context)  # its execution is stopped before a task begins
    world.out.pending.clear()
    world.resume(
        report.run, verdict="COMPLETED_WITH_ERRORS", extracted=2, reasons={"lfh-method-mismatch": 1}
    )
    assert (
        world.contents(KEY),
        TaskKind.STREAM in {task.kind for task in world.records(report.run).tasks()},
    ) == ({"s.bin": CONTENT, "deflated": MIXED}, method == "complete_upload")


def test_copies_by_several_tasks_have_no_more_parts_than_an_upload_may() -> None:
    """Each task rounds up its number of parts; their sum is within the store's limit."""
    world = World(
        replace(WHOLE, copy_task_bytes=5_200_000, copy_part_bytes=1_000),
        MemoryStores(out=MemoryBucket(part_limits=MemoryBucket.part_limits._replace(max_parts=10))),
    )
    report = world.run(zips.build(zips.Entry("s.bin", CONTENT * 104)))
    world.assert_clean(report, **{"s.bin": CONTENT * 104})
    assert 4 < report.requests.copy <= 10


def test_an_overwritten_source_leaves_no_upload() -> None:
    """The upload of a copy over four tasks is aborted when the archive changes between two."""
    world = World(SPLIT)
    copied: list[Task] = []

    def overwrite_after_one(task: Task) -> None:
        if task.slice is not None:
            copied.append(task)
        if len(copied) == 2:
            put_archive(world.buckets, b"newer")

    report = world.finish(begin_run(world.request(ARCHIVE), world.context), overwrite_after_one)
    assert len(copied) >= 2
    assert (report.verdict, world.out.pending) == (Verdict.SOURCE_CHANGED, {})


def test_an_overwritten_source_leaves_no_upload_of_another_member() -> None:
    """An upload that settling has begun is aborted when it finds the change at another member."""
    world = World(replace(SPLIT, split_from=1_000, segment_bytes=20_000))
    with patch.object(MemoryBucket, "complete_upload", side_effect=SourceChangedError("newer")):
        report = world.run(
            zips.build(zips.Entry("s.bin", CONTENT), zips.Entry("deflated", MIXED, zips.DEFLATE)),
            verdict="SOURCE_CHANGED",
        )
    assert (world.out.pending, report.tasks_failed <= report.tasks) == ({}, True)


@pytest.mark.parametrize("copies", [True, False])
def test_uploads_of_a_run_that_is_at_work_stay(tmp_path: Path, *, copies: bool) -> None:
    """They go with the others once nobody works on their run; a run's own always go."""
    notes, home = runs.OpenUploads(str(tmp_path)), str(tmp_path)
    world = World(WHOLE, MemoryStores(out=MemoryBucket(copies=copies)), uploads=notes)
    report = world.run(ARCHIVE)
    world.assert_clean(report, **{"s.bin": CONTENT})
    assert not list(Path(tmp_path, "uploads").iterdir())  # it has none open
    run = world.records(report.run).read_plan().run
    step = Step(run, world.context, world.context.calls())
    theirs, ours, _ = (
        world.out.create_upload(KEY + "s.bin", ObjectFacts("text/plain", {})) for _ in range(3)
    )
    another = "2026-11-25/000000-other-run"
    notes.note(theirs, another)
    notes.note(ours, run.id)
    with runs.lock_run(home, another), runs.lock_run(home, run.id):
        assert (recovery.drop_leftovers(step), list(world.out.pending)) == (2, [theirs])
    assert (recovery.drop_leftovers(step), list(world.out.pending)) == (1, [])
    assert not list(Path(tmp_path, "uploads").iterdir())


MIXED = zips.mixed_files(300_000)
LIMITS = PartLimits()
SIZES = st.one_of(
    st.integers(1, LIMITS.object_bytes),
    st.integers(1, 1 << 30),
    st.integers(0, 20).map(lambda less: LIMITS.object_bytes - less),
)


@pytest.mark.parametrize("place", [0.01, 0.5, 0.999])
@pytest.mark.parametrize(
    ("method", "tuning", "checksums"),
    [
        *((method, WHOLE, False) for method in (zips.DEFLATE, zips.BZIP2)),
        *((method, WHOLE, False) for method in (zips.LZMA, zips.ZSTD, zips.XZ)),
        *((zips.STORED, tuning, sums) for tuning in (WHOLE, SPLIT) for sums in (True, False)),
    ],
)
def test_a_flipped_bit_fails_the_member_by_name(
    method: int, tuning: Tuning, place: float, *, checksums: bool
) -> None:
    """A damaged member is named with a reason; no object and no upload is left of it.

    A stored one is copied by one task or by several, with the store's checksums or without.
    """
    data = bytearray(zips.compress(method, MIXED))
    data[int(place * len(data))] ^= 0x10
    big = zips.Entry("big", MIXED, method, data=bytes(data))
    world = World(tuning, MemoryStores(out=MemoryBucket(part_checksums=checksums)))
    (failure,) = world.run(
        zips.build(big, zips.Entry("ok", b"ok")), verdict="COMPLETED_WITH_ERRORS"
    ).failures
    assert failure.key == KEY + "big"
    assert failure.offset is not None
    assert method != zips.STORED or failure.reason == "crc-mismatch"
    assert (world.contents(), world.out.pending) == ({"ok": b"ok"}, {})


@pytest.mark.parametrize(
    ("method", "data", "reason"),
    [
        (zips.DEFLATE, zips.compress(zips.DEFLATE, MIXED)[:-500], "stream-truncated"),
        (6, MIXED, "unsupported-method"),
    ],
)
def test_a_stream_that_cannot_be_decoded_fails(method: int, data: bytes, reason: str) -> None:
    """A stream that ends early, and a method that is not known, before its upload begins."""
    world = World(WHOLE)
    report = world.run(zips.build(zips.Entry("big", MIXED, method, data=data)), reasons={reason: 1})
    assert (report.requests.create == 0) is (method == 6)
    world.assert_absent("big")


@dataclass(eq=False)
class CountingBucket(MemoryBucket):
    """Knows how many bytes of parts were on the wire at once."""

    most: int = 0
    _now: int = 0
    _gate: threading.Lock = field(default_factory=threading.Lock)

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        with self._gate:
            self._now += len(body)
            self.most = max(self.most, self._now)
        threading.Event().wait(0.002)
        part = super().upload_part(upload, number, offset, body, crc32)
        with self._gate:
            self._now -= len(body)
        return part


@pytest.mark.parametrize(("part_bytes", "at_once"), [(16 << 10, 3), (64 << 10, 3), (1 << 20, 1)])
def test_parts_in_flight_are_bounded_by_the_settings(part_bytes: int, at_once: int) -> None:
    """At most as many bytes as the settings allow; if a store needs larger parts, one by one."""
    bucket = CountingBucket()
    tuning = replace(WHOLE, part_bytes=part_bytes, parts_in_flight=3)
    if at_once == 1:
        bucket.part_limits = bucket.part_limits._replace(max_parts=1)
        tuning = replace(tuning, part_bytes=1024)
    world = World(tuning, MemoryStores(out=bucket))
    content = zips.log_lines(1_000_000)
    report = world.run(zips.build(zips.Entry("big", content, zips.DEFLATE)))
    world.assert_clean(report, big=content)
    assert report.requests.part == -(-len(content) // part_bytes)
    assert bucket.most <= at_once * part_bytes


@given(size=SIZES, wanted=st.integers(1, 1 << 33))
def test_parts_of_any_size_fit_the_store(size: int, wanted: int) -> None:
    """A member of any size up to 50 TB is at most 10,000 parts of legal size, copied or not.

    All parts but the last have one size, without which Cloudflare R2 says InvalidPart.
    """
    part = uploads.choose_part_size(size, wanted, LIMITS)
    assert LIMITS.min_bytes <= part <= LIMITS.max_bytes
    assert -(-size // part) <= LIMITS.max_parts
    sizes = uploads.copy_sizes(size, wanted, LIMITS)
    assert sum(sizes) == size
    assert len(sizes) <= LIMITS.max_parts
    assert max(sizes) <= LIMITS.max_bytes
    assert set(sizes[:-1]) <= {max(sizes)}
    assert len(sizes) == 1 or max(sizes) >= LIMITS.min_bytes
    at_once, tuning = uploads.parts_at_once(part, Tuning()), Tuning()
    assert at_once == 1 or at_once * part <= tuning.part_bytes * tuning.parts_in_flight
