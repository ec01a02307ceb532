"""Segments: one deflated member over ten workers; right bytes, or a clean fall-back."""

import random
import zlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from s3unzip.deflate import ScannedSegment
from s3unzip.extraction.task import run_task
from s3unzip.model import OnConflict, Options, Report, Task, TaskKind
from s3unzip.settings import Tuning
from s3unzip.settling.loop import begin, settle
from s3unzip.stores.ports import RunStore
from tests import zips
from tests.functional.large.encoders import ENCODERS, Encoder, encode_zlib, log_lines, mixed_files
from tests.runs import KEY, TINY, World

SEGMENTS = 10


def ten_segments(data: bytes) -> Tuning:
    """Return settings with which `data` is cut into ten segments."""
    return replace(TINY, split_from=len(data), segment_bytes=-(-len(data) // SEGMENTS))


def run_split(content: bytes, data: bytes) -> tuple[World, Report]:
    """Extract a member of `data`, cut into ten segments."""
    world = World(ten_segments(data))
    report = world.run(zips.build(zips.Entry("big", content, zips.DEFLATE, data=data)))
    assert len(tasks_of(world, report, TaskKind.SCAN)) == SEGMENTS
    return world, report


def tasks_of(world: World, report: Report, kind: TaskKind) -> list[Task]:
    """Return the tasks of one kind in all rounds."""
    return [task for task in world.tasks(report) if task.kind is kind]


@pytest.mark.parametrize("kind", ["log", "mixed"])
@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_ten_segments_of_any_encoder_make_the_member(encoder: str, kind: str) -> None:
    """The parts of ten workers make the member, byte for byte, whoever deflated it."""
    content = log_lines(1_500_000) if kind == "log" else mixed_files(1_500_000)
    world, report = run_split(content, ENCODERS[encoder](content))
    world.assert_clean(report, big=content)
    assert not tasks_of(world, report, TaskKind.STREAM)
    # libdeflate's blocks are long, and this is little data
    assert len(tasks_of(world, report, TaskKind.SLICE)) >= 3


@pytest.mark.parametrize(
    ("content", "encoder"),
    [
        (bytes(60_000_000), encode_zlib(9)),
        (random.Random(1).randbytes(400_000), encode_zlib(6)),
        (log_lines(400_000), encode_zlib(0)),
        (log_lines(400_000), encode_zlib(6, zlib.Z_FIXED)),
        (log_lines(200_000) + random.Random(1).randbytes(400_000), encode_zlib(6)),
        (random.Random(1).randbytes(400_000) + log_lines(200_000), encode_zlib(6)),
        (log_lines(300_000), encode_zlib(6, memory=1)),
        (log_lines(300_000), encode_zlib(6, zlib.Z_HUFFMAN_ONLY)),
    ],
    ids=[
        "1000-to-1",
        "incompressible",
        "stored",
        "one-fixed-block",
        "noise-after-text",
        "text-after-noise",
        "tiny-blocks",
        "huffman-only",
    ],
)
def test_streams_that_resist_are_extracted_all_the_same(content: bytes, encoder: Encoder) -> None:
    """Where segments cannot be found the member is streamed: right bytes, no upload left."""
    world, report = run_split(content, encoder(content))
    world.assert_clean(report, big=content)


@pytest.mark.parametrize("encoder", [encode_zlib(0), encode_zlib(6, zlib.Z_FIXED)])
def test_one_segment_of_everything_is_not_scanned(encoder: Encoder) -> None:
    """A member without boundaries is streamed directly, not inflated twice before."""
    content = log_lines(400_000)
    data = encoder(content)
    world, report = run_split(content, data)
    assert len(tasks_of(world, report, TaskKind.STREAM)) == 1
    assert not tasks_of(world, report, TaskKind.SLICE)


@pytest.mark.parametrize("segment", range(SEGMENTS))
def test_a_flipped_bit_in_any_segment_fails_the_member_by_name(segment: int) -> None:
    """Damage in any segment fails the member; no object, and no incomplete upload."""
    content = log_lines(700_000)
    data = bytearray(encode_zlib(6)(content))
    data[len(data) * segment // SEGMENTS + 5_000] ^= 0x20
    world, report = run_split(content, bytes(data))
    assert report.verdict == "COMPLETED_WITH_ERRORS"
    assert [failure.key for failure in report.failures] == [KEY + "big"]
    assert set(report.reasons) <= {"corrupt-stream", "crc-mismatch", "size-overrun"} | {
        "stream-truncated",
        "size-mismatch",
        "compressed-trailing-bytes",
    }
    assert world.content("big") is None
    assert world.out.pending == {}


@pytest.mark.parametrize(
    ("declared", "reason"),
    [({"size": 700_001}, "size-mismatch"), ({"size": 699_000}, "size-overrun")],
)
def test_a_wrong_declared_size_fails_the_member(declared: dict[str, int], reason: str) -> None:
    """Segments that make another size than the directory declares are never completed."""
    content = log_lines(700_000)
    entry = zips.Entry("big", content, zips.DEFLATE, local=declared, central=declared)
    world = World(ten_segments(entry.stored_data))
    report = world.run(zips.build(entry))
    assert report.reasons == {reason: 1}
    assert world.content("big") is None
    assert world.out.pending == {}


def run_spoiled(content: bytes, spoil: Callable[[RunStore], None]) -> tuple[World, Report]:
    """Extract a member whose scans are spoiled before they are linked."""
    data = encode_zlib(6)(content)
    world = World(ten_segments(data))
    request = world.request(zips.build(zips.Entry("big", content, zips.DEFLATE, data=data)))
    step = begin(request, world.context)
    work = world.buckets.run_store(step.next.run)
    for task in step.next.tasks:
        run_task(world.records(step.next.run).read_plan().run, task, world.context)
    spoil(work)
    return world, world.finish(settle(step.next, world.context))


def scanned(work: RunStore) -> list[str]:
    """Return the names of what scans found."""
    return [name for name in work.names("split/") if name.endswith("-scanned.bin")]


@pytest.mark.parametrize("place", [0, 4, -1])
def test_a_lost_scan_makes_a_stream_of_the_member(place: int) -> None:
    """Where a scan's result is lost, the first, one between or the last, the member is streamed."""
    content = log_lines(700_000)
    world, report = run_spoiled(content, lambda work: work.delete([scanned(work)[place]]))
    world.assert_clean(report, big=content)
    assert len(tasks_of(world, report, TaskKind.STREAM)) == 1


def test_a_false_boundary_makes_a_stream_of_the_member() -> None:
    """Scans that agree on a place where no block begins cost time, never data."""
    content = log_lines(700_000)

    def spoil(work: RunStore) -> None:
        names = scanned(work)
        scans = [ScannedSegment.from_bytes(work.read(name)) for name in names]
        bit = scans[4].start_bit + 1
        work.write(names[3], [replace(scans[3], stop_bit=bit).to_bytes()])
        work.write(names[4], [replace(scans[4], start_bit=bit).to_bytes()])

    world, report = run_spoiled(content, spoil)
    world.assert_clean(report, big=content)
    assert tasks_of(world, report, TaskKind.SLICE)  # the link believed it; extracting found out
    assert len(tasks_of(world, report, TaskKind.STREAM)) == 1


def test_two_split_members_and_small_ones_make_one_run() -> None:
    """Members of every kind share a run, and none of them an upload."""
    logs, files = log_lines(700_000), mixed_files(900_000)
    world = World(replace(TINY, segment_bytes=16 << 10))
    small = {f"small-{n}": b"%d" % n for n in range(20)}
    entries = [
        zips.Entry("logs", logs, zips.DEFLATE),
        *(zips.Entry(name, content) for name, content in small.items()),
        zips.Entry("files", files, zips.DEFLATE),
        zips.Entry("stored", random.Random(9).randbytes(20_000)),
    ]
    report = world.run(zips.build(*entries))
    world.assert_clean(report, logs=logs, files=files, **small)
    assert set(world.records(report.run).read_plan().kinds) == {"batch", "scan", "copy"}
    slices = tasks_of(world, report, TaskKind.SLICE)
    assert sum(task.size for task in slices) == 700_000 + 900_000


def test_an_unchanged_split_member_is_not_written_again() -> None:
    """With skip-unchanged the second run uploads nothing of a split member."""
    content = log_lines(700_000)
    archive = zips.build(zips.Entry("big", content, zips.DEFLATE))
    world = World(TINY)
    world.assert_clean(world.run(archive), big=content)
    report = world.run(archive, Options(on_conflict=OnConflict.SKIP_UNCHANGED))
    assert (report.verdict, report.unchanged) == ("COMPLETED", 1)
    assert report.requests.part == 0
    never = world.run(archive, Options(on_conflict=OnConflict.NEVER))
    assert (never.verdict, never.unchanged) == ("COMPLETED", 1)
    assert world.out.pending == {}
