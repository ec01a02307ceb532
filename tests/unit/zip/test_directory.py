"""The directory: where it is, how its headers are read in cuts, and what a header says."""

from cProfile import Profile
from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given, settings, strategies as st

from s3unzip.zip import (
    ByteRange,
    DirectoryLocation,
    DirectoryReader,
    Index,
    Member,
    Policy,
    RejectedError,
    drive,
    locate_directory,
)
from s3unzip.zip.checks import MIB
from s3unzip.zip.directory import MAX_SEARCHED, inspect_prefix
from s3unzip.zip.eocd import EOCD_ROOM, TAIL_LENGTH
from s3unzip.zip.records import MAX_COMMENT
from tests.support.zips import (
    EOCD,
    LOCAL,
    SENTINEL,
    Entry,
    Shape,
    build,
    extra,
    pack_record,
    unicode_path,
    zip64_extra,
)

INFO_ZIP = extra(0x5455, b"\x03" + pack("<i", 1_700_000_000)) + extra(
    0x7875, b"\x01\x04" + bytes(9)
)
EXTRAS = [
    b"",
    INFO_ZIP,
    INFO_ZIP.replace(b"\x03", b"\x02", 1),
    extra(0x5455, b"\x01" + pack("<i", -5)),
    extra(0xCAFE, b""),
    zip64_extra(10),
    zip64_extra(10, 10, 10),
    unicode_path(b"plain", "caf\u00e9"),
    b"zz\x40\x00",
    b"abc",
]
NAMES = st.one_of(
    st.from_regex(r"[a-z]{1,6}(/[a-zA-Z0-9 ._-]{1,6}){0,3}", fullmatch=True),
    st.text(max_size=8),
    st.binary(max_size=6),
    st.sampled_from(["plain", "a/../b", "../x", "d/", "./a", "a\nb", "a\n", "C:x", " a", "a."]),
)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Draw one directory header: mostly plain, with anything odd now and then."""
    central: dict[str, int | bytes] = {
        "offset": draw(st.sampled_from([0, 10, 700, 0xFFFFFFFF])),
        "time": draw(st.integers(0, 0xFFFF)),
        "date": draw(st.sampled_from([0, 0x5C8F, 0xFFFF])),
        "made_by": draw(st.sampled_from([0x031E, 0x0014, 0x131E])),
    }
    if draw(st.booleans()):
        size = draw(st.sampled_from([0, 1, 40, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF]))
        central |= {"size": size, "compressed_size": draw(st.sampled_from([size, 40, 0xFFFFFFFF]))}
    return Entry(
        draw(NAMES),
        method=draw(st.sampled_from([0, 8, 8, 8, 12, 99, 98])),
        flags=draw(st.sampled_from([0, 0, 2, 8, 0x800, 1, 0x20, 0x2000])),
        attributes=draw(st.sampled_from([0o100644 << 16, 0, 0x10, 0o120777 << 16, 0o10644 << 16])),
        extra=draw(st.sampled_from(EXTRAS)),
        comment=draw(st.sampled_from([b"", b"a comment"])),
        central=central,
    ).central_part(0)


def _place(
    directory: bytes, count: int, start: int = 1 << 43, prefix: int = 5
) -> DirectoryLocation:
    return DirectoryLocation(start, start + len(directory), count, prefix)


def _read_in_cuts(directory: bytes, count: int, cuts: list[int]) -> tuple[object, ...]:
    reader = DirectoryReader(_place(directory, count), Policy())
    edges = [0, *sorted(cut % (len(directory) + 1) for cut in cuts), len(directory)]
    try:
        for start, stop in pairwise(edges):
            reader.feed(directory[start:stop])
        index = drive(reader.finish(), lambda want: bytes(want.length))
    except RejectedError as error:
        return (error.finding.code,)
    return (
        *(list(index.members), list(index.failures), index.warnings),
        *(list(index.folders), index.directories, index.entries),
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(headers(), max_size=6),
    st.lists(st.integers(0, 5000), max_size=5),
    st.binary(max_size=60),
)
def test_cut_anywhere(parts: list[bytes], cuts: list[int], tail: bytes) -> None:
    """Any cuts, and one byte at a time, give the same, also where the directory is broken."""
    directory = b"".join(parts) + tail
    whole = _read_in_cuts(directory, len(parts), [])
    assert _read_in_cuts(directory, len(parts), cuts) == whole
    assert _read_in_cuts(directory, len(parts), list(range(len(directory)))) == whole


def _read_one(entry: Entry, start: int = 1 << 43, prefix: int = 5) -> Index:
    directory = entry.central_part(0)
    reader = DirectoryReader(_place(directory, 1, start, prefix), Policy())
    reader.feed(directory)
    return drive(reader.finish(), lambda want: bytes(want.length))


def test_fields() -> None:
    """Every field of a plain header comes through, the offset with the prefix."""
    (member,) = _read_one(Entry("a/b.txt", b"hello", extra=INFO_ZIP, central={"offset": 7})).members
    assert member == Member(
        index=0,
        path="a/b.txt",
        raw_name=None,
        offset=12,
        stop=1 << 43,
        compressed_size=5,
        size=5,
        crc32=0x3610A686,
        method=0,
        flags=0,
        mtime=1_700_000_000,
        mode=0o100644,
    )


@pytest.mark.parametrize(
    ("date", "time", "fields", "expected"),
    [
        (0x5C8F, 0x6C25, b"", 1_776_259_990),
        (0x0021, 0, b"", 315_532_800),
        (0, 0, b"", None),
        (0x5C8F, 0xFFFF, b"", None),
        (0x0021, 23 << 11 | 59 << 5 | 29, b"", 315_532_800 + 86_398),  # the last of a day
        (0x0021, 24 << 11, b"", None),
        (0x0021, 60 << 5, b"", None),
        (0x0021, 30, b"", None),
        (0x5C9F, 0x6C3D, b"", None),
        (0, 0, extra(0x5455, pack("<Bi", 1, 1_700_000_000)), 1_700_000_000),
        (0, 0, extra(0x5455, pack("<Bi", 3, -1)), -1),  # before 1970
        (0, 0, extra(0x5455, pack("<Bi", 2, 5)), None),  # no modification time
        (0, 0, extra(0x5455, pack("<Bi", 1, 5)[:4]), None),
        (0, 0, extra(0x5855, pack("<ii", 5, -1)), -1),  # the time of access is the first
        (0, 0, extra(0x5855, pack("<ii", 5, 6)[:7]), None),
        (0x0021, 0, extra(0x000A, pack("<IIQQQ", 0, 0x180001, 13 * 10**16, 5, 5)), 1_355_526_400),
        (0x0021, 0, extra(0x000A, pack("<IIQQQ", 0, 0x180001, 0, 5, 5)), 315_532_800),  # no time
        (0x0021, 0, extra(0x000A, pack("<IIQ", 0, 0x180001, SENTINEL << 32)), 315_532_800),
        (0x0021, 0, extra(0x000A, pack("<IIQ", 0, 0x180002, 13 * 10**16)), 315_532_800),
        (
            0,
            0,
            extra(0x000A, pack("<IIQ", 0, 0x180001, 13 * 10**16))
            + extra(0x5455, pack("<Bi", 1, 9)),
            9,
        ),
    ],
)
def test_times_of_members(date: int, time: int, fields: bytes, expected: int | None) -> None:
    """DOS times are taken as UTC, if no extra field has a valid time in UTC."""
    (member,) = _read_one(Entry("a", extra=fields, central={"date": date, "time": time})).members
    assert member.mtime == expected


BOTH: dict[str, int | bytes] = {"size": SENTINEL, "compressed_size": SENTINEL}


@pytest.mark.parametrize(
    ("central", "codes"),
    [
        (BOTH, set()),
        ({**BOTH, "size": 7}, {"zip64-extra-missing"}),
        ({**BOTH, "compressed_size": 7}, {"zip64-extra-missing"}),
    ],
)
def test_sizes_at_their_sentinels_may_be_sizes(
    central: dict[str, int | bytes], codes: set[str]
) -> None:
    """Without a ZIP64 field, a stored member's two sizes must then be the same."""
    index = _read_one(Entry("a", central=central))
    assert {finding.code for _, finding in index.failures} == codes
    assert not index.warnings


@pytest.mark.parametrize("prefix", [0, 50])
def test_a_member_ends_before_the_directory(prefix: int) -> None:
    """Its header and its data fit exactly, or it is refused; its local name may have no length."""
    entry = Entry("name", b"12345")
    needed = 30 + len(b"12345") + prefix
    assert _read_one(entry, needed, prefix).members[0].offset == prefix
    with pytest.raises(RejectedError, match=f"member-out-of-bounds.*would end at {needed}"):
        _read_one(entry, needed - 1, prefix)


def test_a_missing_zip64_value_puts_a_member_out_of_bounds() -> None:
    """The message says that the value is missing: the end is not one that the header declares."""
    with pytest.raises(RejectedError, match=r"would end at 4294967330.*; a ZIP64 value is missing"):
        _read_one(Entry("a", central=BOTH), 1_000)


MANY = [Entry(f"folder/file-{number:04}", b"x" * 50) for number in range(300)]


def _locate(raw: bytes) -> tuple[DirectoryLocation, list[ByteRange]]:
    asked: list[ByteRange] = []

    def read(want: ByteRange) -> bytes:
        asked.append(want)
        return raw[want.start : want.stop]

    return drive(locate_directory(len(raw), Policy()), read), asked


@pytest.mark.parametrize("zip64", [False, True])
@pytest.mark.parametrize("prefix", [b"", b"stub"])
def test_the_directory_is_located_in_the_tail(*, zip64: bool, prefix: bytes) -> None:
    """Only the last bytes of the archive are asked for, whatever is before them."""
    raw = build(*MANY, shape=Shape(zip64=zip64, prefix=prefix, comment=b"c" * MAX_COMMENT))
    location, asked = _locate(raw)
    assert (location.prefix, location.entries) == (len(prefix), len(MANY))
    assert raw[location.start : location.stop].count(b"PK\1\2") == len(MANY)
    near = [want for want in asked if want.length > 4]
    assert min(want.start for want in near) >= len(raw) - TAIL_LENGTH


def test_count_of_65535_without_zip64() -> None:
    """Exactly 65,535 members need no ZIP64: the count is a count, not a sentinel."""
    raw = build(
        Entry("a"), shape=Shape(directory_tail=bytes(65_535 * 46), eocd={"entries": 65_535,
        "disk_entries": 65_535})
    )  # fmt: skip
    assert _locate(raw)[0].entries == 65_535


def test_short_read_is_refused() -> None:
    """A source that returns too little is told so, not misread."""
    raw = build(*MANY[:3], shape=Shape(zip64=True))
    with pytest.raises(RejectedError, match="received 2 of 572 bytes"):
        drive(locate_directory(len(raw), Policy()), lambda _: b"PK")


def test_two_end_records_are_refused_at_the_first() -> None:
    """The offset is that of the first in the archive."""
    raw = b"x" * 100 + build(shape=Shape(comment=build()))
    with pytest.raises(RejectedError, match=r"^multiple-eocd at byte 100: "):
        _locate(raw)


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
        (bytes(5 * EOCD_ROOM) + _local_header(), True),  # far from the first byte
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
        inspect_prefix(_location(len(raw)), 3 + len(data)), lambda r: raw[r.start : r.stop]
    )
    assert ("hidden-local-header" in warnings) is found


def _location(size: int) -> DirectoryLocation:
    return DirectoryLocation(size, size + 47, 1, 0)


@pytest.mark.parametrize(
    ("first", "pieces", "searched"),
    [
        *((length, 0, 0) for length in (1, EOCD_ROOM, EOCD_ROOM + 1, 2 * EOCD_ROOM)),
        (2 * EOCD_ROOM + 1, 1, 2 * EOCD_ROOM + 1),
        (63 * MIB, 16, 63 * MIB),
        (99 * MIB, 16, MAX_SEARCHED),
    ],
)
def test_a_prefix_is_read_within_a_bound(first: int, pieces: int, searched: int) -> None:
    """Its first and its last bytes; of a longer one the first 64 MiB, in pieces of 4 MiB.

    Millions of signatures cause no call each.
    """
    asked: list[ByteRange] = []

    def read(want: ByteRange) -> bytes:
        asked.append(want)
        return (b"PK\5\6" * want.length)[: want.length]

    with Profile() as profile:
        assert drive(inspect_prefix(_location(100 * MIB), first), read) == ["prefix-adjusted"]
    assert sum(function.callcount for function in profile.getstats()) < MIB
    last = [ByteRange(max(EOCD_ROOM, first - EOCD_ROOM), first)] * (first > EOCD_ROOM)
    middle = [want.length for want in asked[1 + len(last) :]]
    assert (asked[: 1 + len(last)], len(middle), sum(middle)) == (
        [ByteRange(0, min(first, EOCD_ROOM)), *last],
        pieces,
        searched,
    )
