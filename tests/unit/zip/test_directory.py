"""Reading directory headers: cuts, the two readings, and what a header says."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3unzip.errors import RejectedError
from s3unzip.zip import (
    CentralHeader,
    DirectoryLocation,
    DirectoryReader,
    Limits,
    Policy,
    read_header,
)
from tests.zips import Entry, extra, unicode_path, zip64_extra

INFO_ZIP = extra(0x5455, b"\x03" + struct.pack("<i", 1_700_000_000)) + extra(
    0x7875, b"\x01\x04" + bytes(9)
)
EXTRAS = [
    b"",
    INFO_ZIP,
    INFO_ZIP.replace(b"\x03", b"\x02", 1),
    extra(0x5455, b"\x01" + struct.pack("<i", -5)),
    extra(0x000A, bytes(32)),
    extra(0xCAFE, b""),
    zip64_extra(10),
    zip64_extra(10, 10, 10),
    unicode_path(b"plain", "caf\u00e9"),
    b"zz\x40\x00",
    b"abc",
    bytes(24),
]
NAMES = st.one_of(
    st.from_regex(r"[a-z]{1,6}(/[a-zA-Z0-9 ._-]{1,6}){0,3}", fullmatch=True),
    st.text(max_size=8),
    st.binary(max_size=6),
    st.sampled_from(["plain", "a/../b", "../x", "d/", "./a", "a\nb", "a\n", "C:x", " a", "a."]),
)
SIZES = st.sampled_from([0, 1, 40, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF])


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Draw one directory header: mostly plain, with anything odd now and then."""
    central: dict[str, int | bytes] = {
        "offset": draw(st.sampled_from([0, 10, 700, 0xFFFFFFFF])),
        "time": draw(st.integers(0, 0xFFFF)),
        "date": draw(st.sampled_from([0, 0x5C8F, 0xFFFF])),
        "made_by": draw(st.sampled_from([0x031E, 0x0014, 0x131E])),
        "crc32": draw(st.integers(0, 0xFFFFFFFF)),
    }
    if draw(st.booleans()):
        size = draw(SIZES)
        central |= {"size": size, "compressed_size": draw(st.sampled_from([size, 40, 0xFFFFFFFF]))}
    entry = Entry(
        draw(NAMES),
        method=draw(st.sampled_from([0, 8, 8, 8, 12, 99, 98])),
        flags=draw(st.sampled_from([0, 0, 2, 8, 0x800, 1, 0x20, 0x2000])),
        attributes=draw(st.sampled_from([0o100644 << 16, 0, 0x10, 0o120777 << 16, 0o10644 << 16])),
        extra=draw(st.sampled_from(EXTRAS)),
        comment=draw(st.sampled_from([b"", b"a comment"])),
        central=central,
    )
    return entry.central_part(0)


def place(directory: bytes, count: int) -> DirectoryLocation:
    """Place a directory far enough in for any member that is not absurd."""
    start = 1 << 33
    stop = start + len(directory)
    return DirectoryLocation(start, stop, count, 5, stop + 22, is_zip64=True, held=b"")


def read_in_cuts(
    directory: bytes, location: DirectoryLocation, policy: Policy, cuts: list[int]
) -> list[CentralHeader] | str:
    """Read a directory cut at `cuts`; a refusal is its code."""
    reader = DirectoryReader(location, policy)
    read: list[CentralHeader] = []
    edges = [0, *sorted(cut % (len(directory) + 1) for cut in cuts), len(directory)]
    try:
        for start, stop in pairwise(edges):
            read += reader.feed(directory[start:stop])
        reader.finish()
    except RejectedError as error:
        return error.finding.code
    return read


def read_each(
    parts: list[bytes], location: DirectoryLocation, policy: Policy
) -> list[CentralHeader] | str:
    """Read every header by the full reading; a refusal is its code."""
    try:
        return [read_header(part, index, location, policy) for index, part in enumerate(parts)]
    except RejectedError as error:
        return error.finding.code


@settings(max_examples=150, deadline=None)
@given(st.lists(headers(), max_size=12), st.lists(st.integers(0, 5000), max_size=5), st.booleans())
def test_both_readings_agree(
    parts: list[bytes],
    cuts: list[int],
    lenient: bool,  # noqa: FBT001 (hypothesis gives arguments by position)
) -> None:
    """The short reading of plain headers gives what the full one gives, cut anywhere."""
    directory, policy = b"".join(parts), Policy(lenient=lenient)
    location = place(directory, len(parts))
    assert read_in_cuts(directory, location, policy, cuts) == read_each(parts, location, policy)


@settings(max_examples=30, deadline=None)
@given(st.lists(headers(), max_size=4), st.binary(max_size=60))
def test_byte_by_byte(parts: list[bytes], tail: bytes) -> None:
    """One byte at a time gives the same, also where the directory is broken."""
    directory = b"".join(parts) + tail
    location = place(directory, len(parts))
    whole = read_in_cuts(directory, location, Policy(), [])
    assert read_in_cuts(directory, location, Policy(), list(range(len(directory)))) == whole


def read_one(entry: Entry, policy: Policy | None = None) -> CentralHeader:
    """Read one entry's header."""
    directory = entry.central_part(0)
    (header,) = DirectoryReader(place(directory, 1), policy or Policy()).feed(directory)
    return header


def test_fields() -> None:
    """Every field of a plain header comes through, the offset with the prefix."""
    header = read_one(Entry("a/b.txt", b"hello", extra=INFO_ZIP, central={"offset": 7}))
    assert header == CentralHeader(
        0, "a/b.txt", None, 12, 5, 5, 0x3610A686, 0, 0, 1_700_000_000, 0o100644, None
    )


@pytest.mark.parametrize(
    ("date", "time", "expected"),
    [
        (0x5C8F, 0x6C25, 1_776_259_990),
        (0x0021, 0, 315_532_800),
        (0, 0, None),
        (0x5C8F, 0xFFFF, None),
        (0x0021, 23 << 11 | 59 << 5 | 29, 315_532_800 + 86_398),  # the last of a day
        (0x0021, 24 << 11, None),
        (0x0021, 60 << 5, None),
        (0x0021, 30, None),
        (0x5C9F, 0x6C3D, None),
    ],
)
def test_dos_time(date: int, time: int, expected: int | None) -> None:
    """DOS times are taken as UTC; what is no date is no time."""
    assert read_one(Entry("a", central={"date": date, "time": time})).mtime == expected


def test_zip64_values_in_order() -> None:
    """Only fields at their sentinel take a value, in the order of 4.5.3."""
    wide = {"size": 0xFFFFFFFF, "offset": 0xFFFFFFFF, "compressed_size": 5}
    header = read_one(Entry("a", method=12, extra=zip64_extra(1 << 32, 9), central=wide))
    assert (header.size, header.compressed_size, header.offset) == (1 << 32, 5, 14)


def test_member_limit_is_of_headers_read() -> None:
    """The limit counts headers, whatever the end record declares."""
    directory = Entry("a").central_part(0) * 3
    reader = DirectoryReader(place(directory, 1), Policy(limits=Limits(members=2)))
    with pytest.raises(RejectedError, match="too-many-entries"):
        reader.feed(directory)


def test_count_modulo_65536_is_explained() -> None:
    """A count that wrapped at 65,536 is refused, saying so."""
    directory = Entry("a").central_part(0) * 65_537
    reader = DirectoryReader(place(directory, 1), Policy())
    assert len(reader.feed(directory)) == 65_537
    with pytest.raises(RejectedError, match="modulo"):
        reader.finish()


def test_headers_are_a_sequence() -> None:
    """Headers can be indexed, sliced, counted and walked."""
    directory = b"".join(Entry(name).central_part(0) for name in ("a", "b", "c/", "d"))
    read = DirectoryReader(place(directory, 4), Policy()).feed(directory)
    assert len(read) == 4
    assert read[-1].path == "d"
    assert [header.path for header in read[1:3]] == ["b", "c"]
