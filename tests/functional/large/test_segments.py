"""Segments: one deflated member over ten workers; right bytes, or a clean fall-back."""

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from s3unzip.deflate import ScannedSegment
from s3unzip.extraction.task import run_task
from s3unzip.model import OnConflict, Options, Report, Status, TaskKind
from s3unzip.runs.run_list import RunWatcher
from s3unzip.settings import Tuning
from s3unzip.settling.loop import begin, settle
from s3unzip.stores.ports import RunStore
from tests.support import zips
from tests.support.contents import log_lines, mixed_files
from tests.support.runs import KEY, TINY, World
from tests.support.streams import EMPTY_BLOCKS, ENCODERS, END_OF_STREAM, flushed

SEGMENTS = 10
LOG = log_lines(700_000)


def ten_segments(data: bytes) -> Tuning:
    """Return settings with which `data` is cut into ten segments."""
    return replace(TINY, split_from=len(data), segment_bytes=-(-len(data) // SEGMENTS))


def _run_split(content: bytes, data: bytes) -> tuple[World, Report]:
    world = World(ten_segments(data))
    report = world.run(zips.build(zips.Entry("big", content, zips.DEFLATE, data=data)))
    assert len(world.tasks(report, TaskKind.SCAN)) == SEGMENTS
    return world, report


@pytest.mark.parametrize(
    ("make", "encoder"),
    [
        (log_lines, "zlib-1"),
        (mixed_files, "zlib-6"),
        (log_lines, "zlib-9"),
        (mixed_files, "pigz-like"),
        (log_lines, "isal-2"),
    ],
)
def test_ten_segments_of_any_encoder_make_the_member(
    make: Callable[[int], bytes], encoder: str
) -> None:
    """The parts of ten workers make the member, byte for byte, whoever deflated it."""
    content = make(1_500_000)
    world, report = _run_split(content, ENCODERS[encoder](content))
    world.assert_clean(report, big=content)
    assert not world.tasks(report, TaskKind.STREAM)
    assert len(world.tasks(report, TaskKind.SLICE)) >= 3


@pytest.mark.parametrize(
    ("content", "encoder"),
    [
        (bytes(20_000_000), "zlib-9"),
        (random.Random(1).randbytes(400_000), "zlib-6"),
        (LOG[:200_000] + random.Random(1).randbytes(400_000), "zlib-6"),
        (random.Random(1).randbytes(400_000) + LOG[:200_000], "zlib-6"),
        (LOG[:300_000], "zlib-9-small-blocks"),
        (LOG[:300_000], "zlib-huffman-only"),
    ],
    ids=["1000-to-1", "noise", "noise-after-text", "text-after-noise", "tiny-blocks", "huffman"],
)
def test_streams_that_resist_are_extracted_all_the_same(content: bytes, encoder: str) -> None:
    """Where segments cannot be found the member is streamed: right bytes, no upload left."""
    world, report = _run_split(content, ENCODERS[encoder](content))
    world.assert_clean(report, big=content)


# Stretches of a member: its content, or nothing, in as many compressed bytes.
EMPTY_STRETCHES = {
    "last": (1, 0),
    "first": (0, 1),
    "middle": (1, 0, 1),
    "all-but-the-first": (1, 0, 0, 0),
    "every": (0, 0),
}


@pytest.mark.parametrize("stretches", EMPTY_STRETCHES.values(), ids=EMPTY_STRETCHES)
def test_segments_without_bytes_are_valid(stretches: tuple[int, ...]) -> None:
    """A segment may inflate to nothing, wherever it is: the slices still make the member."""
    text = LOG[:300_000]
    data = b"".join(flushed(text) if has_bytes else EMPTY_BLOCKS * 1_000 for has_bytes in stretches)
    content = text * sum(stretches)
    world, report = _run_split(content, data + END_OF_STREAM)
    world.assert_clean(report, big=content)
    assert not world.tasks(report, TaskKind.STREAM)
    assert all(task.size for task in world.tasks(report, TaskKind.SLICE)) or not content


@pytest.mark.parametrize("encoder", ["zlib-0-stored", "zlib-fixed"])
def test_one_segment_of_everything_is_not_scanned(encoder: str) -> None:
    """A member without boundaries is streamed directly, not inflated twice before."""
    world, report = _run_split(LOG[:400_000], ENCODERS[encoder](LOG[:400_000]))
    world.assert_clean(report, big=LOG[:400_000])
    assert len(world.tasks(report, TaskKind.STREAM)) == 1
    assert not world.tasks(report, TaskKind.SLICE)


@pytest.mark.parametrize("segment", range(SEGMENTS))
def test_a_flipped_bit_in_any_segment_fails_the_member_by_name(segment: int) -> None:
    """Damage in any segment fails the member; no object, and no incomplete upload."""
    data = bytearray(zips.compress(zips.DEFLATE, LOG))
    data[len(data) * segment // SEGMENTS + 5_000] ^= 0x20
    world, report = _run_split(LOG, bytes(data))
    assert report.verdict == "COMPLETED_WITH_ERRORS"
    assert [failure.key for failure in report.failures] == [KEY + "big"]
    sizes = {"size-overrun", "size-mismatch", "stream-truncated", "compressed-trailing-bytes"}
    assert set(report.reasons) <= {"corrupt-stream", "crc-mismatch"} | sizes
    world.assert_absent("big")


@pytest.mark.parametrize(
    ("declared", "reason"),
    [({"size": 700_001}, "size-mismatch"), ({"size": 699_000}, "size-overrun")],
)
def test_a_wrong_declared_size_fails_the_member(declared: dict[str, int], reason: str) -> None:
    """Segments that make another size than the directory declares are never completed."""
    entry = zips.Entry("big", LOG, zips.DEFLATE, local=declared, central=declared)
    world = World(ten_segments(entry.stored_data))
    assert world.run(zips.build(entry)).reasons == {reason: 1}
    world.assert_absent("big")


def run_spoiled(spoil: Callable[[RunStore, list[str]], None]) -> tuple[World, Report]:
    """Extract a member; what its scans found is spoiled, by their names, before it is linked."""
    entry = zips.Entry("big", LOG, zips.DEFLATE)
    world = World(ten_segments(entry.stored_data))
    step = begin(world.request(zips.build(entry)), world.context)
    work = world.buckets.run_store(step.next.run)
    for task in step.next.tasks:
        run_task(world.records(step.next.run).read_plan().run, task, world.context)
    spoil(work, [name for name in work.names("split/") if name.endswith("-scanned.bin")])
    report = world.finish(settle(step.next, world.context))
    world.assert_clean(report, big=LOG)
    assert len(world.tasks(report, TaskKind.STREAM)) == 1
    return world, report


@pytest.mark.parametrize("place", [0, 4, -1])
def test_a_lost_scan_makes_a_stream_of_the_member(place: int) -> None:
    """Where a scan's result is lost, the first, one between or the last, the member is streamed."""
    run_spoiled(lambda work, names: work.delete([names[place]]))


def test_a_false_boundary_makes_a_stream_of_the_member() -> None:
    """Scans that agree on a place where no block begins cost time, never data."""

    def spoil(work: RunStore, names: list[str]) -> None:
        scans = [ScannedSegment.from_bytes(work.read(name)) for name in names]
        bit = scans[4].start_bit + 1
        work.write(names[3], [replace(scans[3], stop_bit=bit).to_bytes()])
        work.write(names[4], [replace(scans[4], start_bit=bit).to_bytes()])

    world, report = run_spoiled(spoil)
    assert world.tasks(report, TaskKind.SLICE)  # the link believed it; extracting found out
    # The slices that failed are no failed member, neither in the records nor for `watch`.
    records = world.records(report.run)
    assert [outcome.status for _, outcome in records.each_outcome()] == [Status.EXTRACTED]
    snapshot = RunWatcher(records).read()
    assert (snapshot.counts["failed"], snapshot.failures) == (0, ())


def test_two_split_members_and_small_ones_make_one_run() -> None:
    """Members of every kind share a run; where they are unchanged, nothing is written again."""
    world = World(replace(TINY, segment_bytes=16 << 10))
    contents = {"logs": LOG, "files": mixed_files(900_000)}
    small = {f"small-{n}": b"%d" % n for n in range(20)}
    archive = zips.build(
        *(zips.Entry(name, content, zips.DEFLATE) for name, content in contents.items()),
        *(zips.Entry(name, content) for name, content in small.items()),
        zips.Entry("stored", random.Random(9).randbytes(20_000)),
    )
    report = world.run(archive)
    world.assert_clean(report, **contents, **small)
    assert set(world.records(report.run).read_plan().kinds) == {"batch", "scan", "copy"}
    assert sum(task.size for task in world.tasks(report, TaskKind.SLICE)) == 700_000 + 900_000
    for rule in (OnConflict.SKIP_UNCHANGED, OnConflict.NEVER):
        report = world.run(archive, Options(on_conflict=rule))
        assert (report.verdict, report.unchanged) == ("COMPLETED", 23)
        assert report.requests.part == 0
        assert world.out.pending == {}
