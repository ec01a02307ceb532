"""Segments: one deflated member over ten workers; right bytes, or a clean fall-back."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from s3unzip.deflate import ScannedSegment
from s3unzip.extraction.split.link import linked_sizes
from s3unzip.local.runner import run_archive
from s3unzip.local.worker import LINK
from s3unzip.model import Link, OnConflict, Options, decode
from s3unzip.runs.records import RunRecords
from tests import zips
from tests.functional.large.encoders import (
    ENCODERS,
    Encoder,
    encode_zlib,
    log_lines,
    mixed_files,
)
from tests.functional.large.world import KEY, TUNING, World

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s3unzip.local.pool import PoolResult
    from s3unzip.local.worker import Done, Failed, Follow, Job
    from s3unzip.model import Report, Run
    from s3unzip.settings import Tuning

SEGMENTS = 10


def ten_segments(data: bytes) -> Tuning:
    """Return settings with which `data` is cut into ten segments."""
    return replace(TUNING, split_from=len(data), segment_bytes=-(-len(data) // SEGMENTS))


def run_split(content: bytes, data: bytes) -> tuple[World, Report]:
    """Extract a member of `data`, cut into ten segments."""
    world = World(ten_segments(data))
    report = world.run(zips.build(zips.Entry("big", content, zips.DEFLATE, data=data)))
    assert world.summary(report).scans == SEGMENTS
    return world, report


def link_of(world: World, report: Report) -> Link:
    """Return the link of the one member."""
    return decode(world.buckets.run_store(report.run).read("links/00000000.json"), Link)


@pytest.mark.parametrize("kind", ["log", "mixed"])
@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_ten_segments_of_any_encoder_make_the_member(encoder: str, kind: str) -> None:
    """The parts of ten workers make the member, byte for byte, whoever deflated it."""
    content = log_lines(1_500_000) if kind == "log" else mixed_files(1_500_000)
    world, report = run_split(content, ENCODERS[encoder](content))
    world.assert_clean(report, big=content)
    link = link_of(world, report)
    assert not link.stream
    assert len(link.slices) >= 3  # libdeflate's blocks are long, and this is little data


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
    link = link_of(world, report)
    assert link.stream
    assert link.upload_id is None
    assert world.read_by_tasks(report) < 1.1 * len(data)


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


class LosingPool:
    """A pool that loses what one of its scans found."""

    processes = 1

    def __init__(self, world: World, run: Run, place: int) -> None:
        self._pool = world.pool(run)
        self._work = world.buckets.run_store(run.id)
        self._place = place

    def work(self, jobs: Iterable[Job], follow: Follow) -> PoolResult:
        """Do `jobs`, and lose one scan before the members are linked."""

        def follow_after_loss(ended: Done | Failed) -> Sequence[Job]:
            following = follow(ended)
            if [job.id for job in following] == [LINK]:
                self.spoil()
            return following

        return self._pool.work(jobs, follow_after_loss)

    def spoil(self) -> None:
        """Lose one scan."""
        found = [name for name in self._work.names("scans/") if name.endswith(".bin")]
        self._work.delete([found[self._place]])

    def close(self) -> None:
        """Do nothing: there is no process."""


@pytest.mark.parametrize("place", [0, 4, -1])
def test_a_lost_scan_makes_a_stream_of_the_member(place: int) -> None:
    """Where a scan never ended, the first, one between or the last, the member is streamed."""
    content = log_lines(700_000)
    data = encode_zlib(6)(content)
    world = World(ten_segments(data))
    request = world.request(zips.build(zips.Entry("big", content, zips.DEFLATE, data=data)))
    report = run_archive(
        request, world.context, lambda run: LosingPool(world, run, place), lambda _: None
    )
    world.assert_clean(report, big=content)
    assert link_of(world, report).stream


def test_a_false_boundary_makes_a_stream_of_the_member() -> None:
    """Scans that agree on a place where no block begins cost time, never data."""
    content = log_lines(700_000)
    data = encode_zlib(6)(content)
    world = World(ten_segments(data))
    request = world.request(zips.build(zips.Entry("big", content, zips.DEFLATE, data=data)))

    class FalsePool(LosingPool):
        """Moves one boundary by a bit, in both scans that know it."""

        def spoil(self) -> None:
            """Falsify two scans."""
            names = [name for name in self._work.names("scans/") if name.endswith(".bin")]
            scans = [ScannedSegment.from_bytes(self._work.read(name)) for name in names]
            before, after = scans[3], scans[4]
            bit = after.start_bit + 1
            self._work.write(names[3], [replace(before, stop_bit=bit).to_bytes()])
            self._work.write(names[4], [replace(after, start_bit=bit).to_bytes()])

    report = run_archive(
        request, world.context, lambda run: FalsePool(world, run, 0), lambda _: None
    )
    world.assert_clean(report, big=content)
    slices = link_of(world, report).slices
    assert slices  # the link believed it; extracting found out


def test_two_split_members_and_small_ones_make_one_run() -> None:
    """Members of every kind share a run, and none of them an upload."""
    logs, files = log_lines(700_000), mixed_files(900_000)
    world = World(replace(TUNING, segment_bytes=16 << 10))
    small = {f"small-{n}": b"%d" % n for n in range(20)}
    entries = [
        zips.Entry("logs", logs, zips.DEFLATE),
        *(zips.Entry(name, content) for name, content in small.items()),
        zips.Entry("files", files, zips.DEFLATE),
        zips.Entry("stored", random.Random(9).randbytes(20_000)),
    ]
    report = world.run(zips.build(*entries))
    world.assert_clean(report, logs=logs, files=files, **small)
    assert set(world.summary(report).kinds) == {"batch", "segment", "copy"}
    records = RunRecords(world.buckets.run_store(report.run))
    sizes = linked_sizes(records)
    assert sum(sizes.values()) == 700_000 + 900_000
    assert set(sizes) <= {task.id for task in records.tasks() if task.parts > 1}


def test_an_unchanged_split_member_is_not_written_again() -> None:
    """With skip-unchanged the second run uploads nothing of a split member."""
    content = log_lines(700_000)
    archive = zips.build(zips.Entry("big", content, zips.DEFLATE))
    world = World(TUNING)
    world.assert_clean(world.run(archive), big=content)
    report = world.run(archive, Options(on_conflict=OnConflict.SKIP_UNCHANGED))
    assert (report.verdict, report.unchanged) == ("COMPLETED", 1)
    assert report.requests.part == 0
    never = world.run(archive, Options(on_conflict=OnConflict.NEVER))
    assert (never.verdict, never.unchanged) == ("COMPLETED", 1)
    assert world.out.pending == {}
