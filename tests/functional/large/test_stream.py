"""A stream: any method, bounded memory, and nothing visible until it is whole and right."""

import threading
import zlib

import pytest
from msgspec.structs import replace

from s3unzip.model import Part
from s3unzip.stores.ports import Buffer, Upload
from tests import zips
from tests.functional.large.encoders import log_lines, mixed_files
from tests.memory import MemoryBucket, MemoryStores
from tests.runs import KEY, WHOLE, World

CONTENT = mixed_files(300_000)


@pytest.mark.parametrize(
    "method", [zips.DEFLATE, zips.DEFLATE64, zips.BZIP2, zips.LZMA, zips.ZSTD, zips.XZ]
)
def test_every_method_is_streamed_in_parts(method: int) -> None:
    """A large member of any compression method becomes one object, uploaded in parts."""
    world = World(WHOLE)
    report = world.run(zips.build(zips.Entry("big", CONTENT, method)))
    world.assert_clean(report, big=CONTENT)
    assert report.requests.part == -(-len(CONTENT) // WHOLE.part_bytes)
    assert world.out.puts == 0
    stored = world.out.head(KEY + "big")
    assert stored is not None
    assert stored.crc32 == zlib.crc32(CONTENT)


@pytest.mark.parametrize("descriptor", [None, "signed32", "bare32", "signed64"])
def test_descriptors_are_read_after_the_data(descriptor: str | None) -> None:
    """A data descriptor of any form is read and checked."""
    world = World(WHOLE)
    entry = zips.Entry("big", CONTENT, zips.DEFLATE, descriptor=descriptor)
    world.assert_clean(world.run(zips.build(entry, zips.Entry("next", b"n"))), big=CONTENT)


@pytest.mark.parametrize("place", [0.01, 0.5, 0.999])
@pytest.mark.parametrize("method", [zips.DEFLATE, zips.BZIP2, zips.LZMA, zips.ZSTD, zips.XZ])
def test_a_flipped_bit_fails_the_member_by_name(method: int, place: float) -> None:
    """A damaged member is named with a reason; no object and no upload is left of it."""
    data = bytearray(zips.compress(method, CONTENT))
    data[int(place * len(data))] ^= 0x10
    world = World(WHOLE)
    report = world.run(
        zips.build(zips.Entry("big", CONTENT, method, data=bytes(data)), zips.Entry("ok", b"ok"))
    )
    assert report.verdict == "COMPLETED_WITH_ERRORS"
    assert [failure.key for failure in report.failures] == [KEY + "big"]
    assert report.failures[0].offset is not None
    assert world.content("big") is None
    assert world.content("ok") == b"ok"
    assert world.out.pending == {}


def test_a_member_without_bytes_beyond_its_header_fails() -> None:
    """A stream that ends early is a failed member, even if the directory declares more."""
    data = zips.compress(zips.DEFLATE, CONTENT)[:-500]
    world = World(WHOLE)
    report = world.run(zips.build(zips.Entry("big", CONTENT, zips.DEFLATE, data=data)))
    assert report.reasons == {"stream-truncated": 1}
    assert world.out.pending == {}


def test_an_encrypted_or_unknown_method_fails_before_an_upload_begins() -> None:
    """A member that cannot be decoded fails before its upload begins."""
    world = World(WHOLE)
    report = world.run(zips.build(zips.Entry("big", CONTENT, 6, data=CONTENT)))
    assert report.failed == 1
    assert report.requests.create == 0
    assert world.out.pending == {}


class CountingBucket(MemoryBucket):
    """Knows how many bytes of parts were on the wire at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._now = 0
        self._gate = threading.Lock()

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Upload one part, slowly."""
        with self._gate:
            self._now += len(body)
            self.most = max(self.most, self._now)
        threading.Event().wait(0.002)
        part = super().upload_part(upload, number, offset, body, crc32)
        with self._gate:
            self._now -= len(body)
        return part


@pytest.mark.parametrize("part_bytes", [16 << 10, 64 << 10])
def test_parts_in_flight_are_bounded_by_the_settings(part_bytes: int) -> None:
    """At most part_bytes x parts_in_flight bytes are in flight."""
    bucket = CountingBucket()
    tuning = replace(WHOLE, part_bytes=part_bytes, parts_in_flight=3)
    world = World(tuning, MemoryStores(out=bucket))
    content = log_lines(1_000_000)
    world.assert_clean(world.run(zips.build(zips.Entry("big", content, zips.DEFLATE))), big=content)
    assert bucket.most <= 3 * part_bytes


def test_large_parts_of_a_huge_member_go_one_by_one() -> None:
    """If the store's limit requires larger parts, fewer are in flight."""
    bucket = CountingBucket()
    bucket.part_limits = bucket.part_limits._replace(max_parts=1, max_bytes=1 << 30)
    world = World(replace(WHOLE, part_bytes=1024, parts_in_flight=4), MemoryStores(out=bucket))
    content = log_lines(1_500_000)
    report = world.run(zips.build(zips.Entry("big", content, zips.DEFLATE)))
    world.assert_clean(report, big=content)
    assert report.requests.part == 1
