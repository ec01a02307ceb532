"""A stream: any method, bounded memory, and nothing visible until it is whole and right."""

import threading
import zlib

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from s3unzip.extraction.uploads import choose_part_size, copy_sizes, parts_at_once
from s3unzip.model import Part
from s3unzip.settings import Tuning
from s3unzip.stores.ports import Buffer, PartLimits, Upload
from tests.support import zips
from tests.support.contents import log_lines, mixed_files
from tests.support.memory import MemoryBucket, MemoryStores
from tests.support.runs import KEY, WHOLE, World

CONTENT = mixed_files(300_000)
METHODS = [zips.DEFLATE, zips.DEFLATE64, zips.BZIP2, zips.LZMA, zips.ZSTD, zips.XZ]
LIMITS = PartLimits()
SIZES = st.one_of(
    st.integers(1, LIMITS.object_bytes),
    st.integers(1, 1 << 30),
    st.integers(0, 20).map(lambda less: LIMITS.object_bytes - less),
)


@pytest.mark.parametrize("method", METHODS)
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
    assert world.content("ok") == b"ok"
    world.assert_absent("big")


@pytest.mark.parametrize(
    ("method", "data", "reason"),
    [
        (zips.DEFLATE, zips.compress(zips.DEFLATE, CONTENT)[:-500], "stream-truncated"),
        (6, CONTENT, "unsupported-method"),
    ],
)
def test_a_stream_that_cannot_be_decoded_fails(method: int, data: bytes, reason: str) -> None:
    """A stream that ends early, and a method that is not known, before its upload begins."""
    world = World(WHOLE)
    report = world.run(zips.build(zips.Entry("big", CONTENT, method, data=data)))
    assert report.reasons == {reason: 1}
    assert (report.requests.create == 0) is (method == 6)
    world.assert_absent("big")


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
    content = log_lines(1_000_000)
    report = world.run(zips.build(zips.Entry("big", content, zips.DEFLATE)))
    world.assert_clean(report, big=content)
    assert report.requests.part == -(-len(content) // part_bytes)
    assert bucket.most <= at_once * part_bytes


@given(size=SIZES, wanted=st.integers(1, 1 << 33))
def test_parts_of_any_size_fit_the_store(size: int, wanted: int) -> None:
    """A member of any size up to 50 TB is at most 10,000 parts of legal size, copied or not."""
    part = choose_part_size(size, wanted, LIMITS)
    assert LIMITS.min_bytes <= part <= LIMITS.max_bytes
    assert -(-size // part) <= LIMITS.max_parts
    sizes = copy_sizes(size, wanted, LIMITS)
    assert sum(sizes) == size
    assert len(sizes) <= LIMITS.max_parts
    assert max(sizes) <= LIMITS.max_bytes
    assert len(sizes) == 1 or min(sizes) >= LIMITS.min_bytes
    at_once, tuning = parts_at_once(part, Tuning()), Tuning()
    assert at_once == 1 or at_once * part <= tuning.part_bytes * tuning.parts_in_flight
