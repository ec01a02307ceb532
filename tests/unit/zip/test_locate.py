"""Finding the directory: what is asked for, and where it is found."""

import pytest

from s3unzip.errors import RejectedError
from s3unzip.zip import ByteRange, DirectoryLocation, Policy, drive, locate_directory
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
