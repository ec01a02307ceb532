"""Finding the directory, and what lies before the first member: what is asked for and found."""

import pytest

from s3unzip.errors import RejectedError
from s3unzip.zip import ByteRange, DirectoryLocation, Policy, drive, locate_directory
from s3unzip.zip.checks import MIB
from s3unzip.zip.directory import MAX_SEARCHED, inspect_prefix
from s3unzip.zip.eocd import EOCD_ROOM
from tests.support.zips import EOCD, LOCAL, Entry, Shape, build, pack_record

MANY = [Entry(f"folder/file-{number:04}", b"x" * 50) for number in range(300)]


def locate(raw: bytes, tail_length: int) -> tuple[DirectoryLocation, list[ByteRange]]:
    """Locate the directory of `raw`; return it and the ranges asked for."""
    asked: list[ByteRange] = []

    def read(want: ByteRange) -> bytes:
        asked.append(want)
        return raw[want.start : want.stop]

    return drive(locate_directory(raw[len(raw) - tail_length :], len(raw), Policy()), read), asked


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("prefix", [b"", b"stub"])
def test_every_tail_length_agrees(*, zip64: bool, prefix: bytes) -> None:
    """However short the tail, the location is the same, and missing bytes are asked for once."""
    raw = build(*MANY[:3], shape=Shape(zip64=zip64, prefix=prefix, comment=b"a comment"))
    whole, asked = locate(raw, len(raw))
    assert asked == []
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


def test_two_end_records_are_refused_at_the_first() -> None:
    """The offset is that of the first in the archive, however short the tail."""
    raw = b"x" * 100 + build(shape=Shape(comment=build()))
    with pytest.raises(RejectedError) as caught:
        locate(raw, len(raw))
    assert (caught.value.finding.code, caught.value.finding.offset) == ("multiple-eocd", 100)


# What counts as an archive before the first member, and how much is read

NAME = b"name"


def _local_header(**changes: int) -> bytes:
    values: dict[str, int | bytes] = {
        **dict.fromkeys(LOCAL, 0),
        "signature": b"PK\x03\x04",
        "needed": 20,
        "name_length": len(NAME),
    }
    return pack_record(LOCAL, values, changes) + NAME


def _end_record(**changes: int) -> bytes:
    return pack_record(EOCD, {**dict.fromkeys(EOCD, 0), "signature": b"PK\x05\x06"}, changes)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (_local_header(), True),
        (_local_header(needed=63), True),  # APPNOTE 4.4.3.2: the last version is 6.3
        (_local_header(needed=64), False),
        (_local_header(needed=0x300 | 20), True),  # the upper byte is no version
        (_local_header(method=99), True),
        (_local_header(method=100), False),
        (_local_header(name_length=0), False),
        (_local_header(name_length=3), True),
        (_local_header(name_length=5), False),  # it would end behind the prefix
        (_local_header(extra_length=1), False),
        (_local_header(extra_length=4) + b"data", True),  # up to the last byte, and no further
        (_local_header(extra_length=5) + b"data", False),
        (b"PK\x03\x04" + bytes(40) + _local_header(), True),  # a signature that is none before it
        (_end_record(), True),
        (_end_record(disk=1), False),
        (_end_record(disk=1, directory_disk=1), True),
        (_end_record(entries=1), False),
        (_end_record(entries=1, disk_entries=1), False),
        (_end_record(entries=1, disk_entries=1, directory_size=46), True),
        (_end_record(directory_size=1), False),
        (_end_record(comment_length=1), False),
    ],
)
def test_a_record_is_more_than_its_signature(data: bytes, found: bool) -> None:  # noqa: FBT001 - a parameter
    """Its fields make sense, and all of it ends in the prefix."""
    raw = b"abc" + data + b"behind the prefix"
    warnings = drive(
        inspect_prefix(b"", _location(len(raw)), 3 + len(data)), lambda r: raw[r.start : r.stop]
    )
    assert ("hidden-local-header" in warnings) is found


def _location(size: int) -> DirectoryLocation:
    return DirectoryLocation(size - 69, size - 22, 1, 0, size, held=b"")


@pytest.mark.parametrize(
    ("first", "middle"),
    [
        *((length, 0) for length in (1, EOCD_ROOM, EOCD_ROOM + 1, 2 * EOCD_ROOM)),
        (2 * EOCD_ROOM + 1, 1),
        (63 * MIB, 16),
        (99 * MIB, 16),
    ],
)
def test_a_prefix_is_read_within_a_bound(first: int, middle: int) -> None:
    """Its first and its last bytes; of a longer one the first 64 MiB, in pieces of 4 MiB."""
    asked: list[ByteRange] = []

    def read(want: ByteRange) -> bytes:
        asked.append(want)
        return bytes(want.length)

    assert drive(inspect_prefix(b"", _location(100 * MIB), first), read) == ["prefix-adjusted"]
    assert asked.pop(0) == ByteRange(0, min(first, EOCD_ROOM))
    if first > EOCD_ROOM:
        assert asked.pop(0) == ByteRange(max(EOCD_ROOM, first - EOCD_ROOM), first)
    assert len(asked) == middle
    assert sum(want.length for want in asked) == (min(first, MAX_SEARCHED) if middle else 0)


def test_an_archive_at_the_end_of_a_prefix_is_found() -> None:
    """Far from the first byte; an archive that begins with its first member is not looked at."""
    raw = bytes(5 * EOCD_ROOM) + _local_header()
    steps = inspect_prefix(b"", _location(10 * EOCD_ROOM), len(raw))
    found = drive(steps, lambda want: raw[want.start : want.stop])
    assert found == ["prefix-adjusted", "hidden-local-header"]
    with pytest.raises(StopIteration):
        next(inspect_prefix(b"", _location(100), 0))
