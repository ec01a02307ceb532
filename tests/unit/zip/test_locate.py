"""Finding the directory: what is asked for, and where it is found."""

import gzip
import struct

import pytest

from s3unzip.errors import RejectedError
from s3unzip.zip import ByteRange, DirectoryLocation, Limits, Policy, drive, locate_directory
from tests.zips import Entry, Shape, build

MANY = [Entry(f"folder/file-{number:04}", b"x" * 50) for number in range(300)]


def locate(raw: bytes, tail_length: int) -> tuple[DirectoryLocation, list[ByteRange]]:
    """Locate the directory of `raw`; return it and the ranges asked for."""
    asked: list[ByteRange] = []

    def read(want: ByteRange) -> bytes:
        asked.append(want)
        return raw[want.start : want.stop]

    tail = raw[len(raw) - tail_length :]
    return drive(locate_directory(tail, len(raw), Policy()), read), asked


@pytest.mark.parametrize("shape", [Shape(), Shape(zip64=True), Shape(comment=b"c" * 65_535)])
def test_small_archive_asks_nothing(shape: Shape) -> None:
    """A tail that holds the whole archive is enough."""
    raw = build(*MANY, shape=shape)
    location, asked = locate(raw, len(raw))
    assert asked == []
    assert location.held == raw[location.start : location.stop]
    assert location.missing.length == 0


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("prefix", [b"", b"stub"])
def test_every_tail_length_agrees(*, zip64: bool, prefix: bytes) -> None:
    """However short the tail, the location is the same, and missing bytes are asked for once."""
    raw = build(*MANY[:3], shape=Shape(zip64=zip64, prefix=prefix, comment=b"a comment"))
    whole, _ = locate(raw, len(raw))
    for length in range(len(raw)):
        location, asked = locate(raw, length)
        held = raw[max(whole.start, len(raw) - length) : max(whole.stop, len(raw) - length)]
        assert location.held == raw[location.missing.stop : location.stop]
        assert len(location.held) == len(held)
        assert (location.start, location.stop) == (whole.start, whole.stop)
        assert (location.prefix, location.entries) == (len(prefix), 3)
        assert all(want.stop <= len(raw) - length for want in asked)


def test_count_of_65535_without_zip64() -> None:
    """Exactly 65,535 members need no ZIP64: the count is a count, not a sentinel."""
    raw = build(
        Entry("a"), shape=Shape(directory_tail=bytes(65_535 * 46), eocd={"entries": 65_535,
        "disk_entries": 65_535})
    )  # fmt: skip
    location, _ = locate(raw, 1000)
    assert location.entries == 65_535


def test_short_read_is_refused() -> None:
    """A source that returns too little is told so, not misread."""
    raw = build(*MANY[:3], shape=Shape(zip64=True))
    with pytest.raises(RejectedError, match="wanted"):
        drive(locate_directory(b"", len(raw), Policy()), lambda _: b"PK")


def test_tail_longer_than_archive() -> None:
    """A tail that cannot be one is the caller's mistake."""
    with pytest.raises(ValueError, match="tail"):
        drive(locate_directory(b"12345", 4, Policy()), lambda _: b"")


def test_lenient_trailing_bytes() -> None:
    """A lenient policy reads an archive with bytes after its end."""
    raw = build(*MANY[:2]) + b"\n\n"
    location = drive(
        locate_directory(raw, len(raw), Policy(lenient=True)), lambda r: raw[r.start : r.stop]
    )
    assert location.entries == 2
    assert location.warnings == ("trailing-data",)


def code_of(raw: bytes, policy: Policy | None = None) -> tuple[str, int | None]:
    """Return code and offset of why no directory is located."""
    with pytest.raises(RejectedError) as caught:
        drive(locate_directory(raw, len(raw), policy or Policy()), lambda _: b"")
    return caught.value.finding.code, caught.value.finding.offset


def test_two_end_records_are_refused_at_the_first() -> None:
    """The offset is that of the first in the archive, however short the tail."""
    inner = build()
    raw = b"x" * 100 + build(shape=Shape(comment=inner))
    assert code_of(raw) == ("multiple-eocd", 100)


def test_too_many_members_are_refused_before_they_are_read() -> None:
    """The declared count is enough."""
    raw = build(*MANY[:3])
    few = Policy(limits=Limits(members=2))
    assert code_of(raw, few) == ("too-many-entries", None)
    location = drive(
        locate_directory(raw, len(raw), Policy(limits=Limits(members=3))), lambda _: b""
    )
    assert location.entries == 3


def test_an_empty_archive_has_an_empty_directory() -> None:
    """A directory without members that has bytes, and does not end at its end record, is a gap."""
    raw = bytes(30) + build(shape=Shape(eocd={"directory_size": 10, "directory_offset": 5}))
    assert code_of(raw)[0] == "gap-before-eocd"


def test_another_format_is_named() -> None:
    """What has no end record is described by how it begins."""
    with pytest.raises(RejectedError, match="gzip") as error:
        locate(gzip.compress(bytes(500)), 100)
    assert error.value.finding.code == "no-eocd"


def test_an_archive_before_the_archive_is_refused() -> None:
    """Readers that begin at the first byte would read the other one."""
    raw = build(Entry("b"), shape=Shape(prefix=b"PK\x03\x04" + bytes(100)))
    assert code_of(raw) == ("stacked-archive", 0)


def test_a_zip64_record_at_the_first_byte_counts() -> None:
    """A directory that needs no ZIP64 may hold no locator of a record, wherever that is."""
    record = b"PK\x06\x06" + (44).to_bytes(8, "little") + bytes(44)
    locator = b"PK\x06\x07" + bytes(12) + (1).to_bytes(4, "little")
    size = len(record + locator)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, size, 0, 0)
    assert code_of(record + locator + end) == ("zip64-ambiguous", 0)
