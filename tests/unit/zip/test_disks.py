"""Split archives in the core: every cut that the format allows, and numbers that contradict."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3unzip.zip import (
    Disks,
    Policy,
    RejectedError,
    count_disks,
)
from tests.corpus.core import Cut, extract, read_index
from tests.corpus.labels import Result
from tests.split_zips import MARKER, build_split
from tests.zips import BZIP2, DEFLATE, Entry, Shape, build, extra

ENTRIES = (
    Entry("a.txt", b"stored text, long enough to be cut into several parts"),
    Entry("folder/"),
    Entry("b.txt", b"deflated " * 30, DEFLATE),
    Entry("caf\u00e9.txt", b"with a descriptor " * 4, DEFLATE, descriptor="signed32"),
    Entry("c.bin", bytes(range(256)), BZIP2, comment=b"a comment", extra=b"zz\x02\0ab"),
    Entry("empty"),
)
WHOLE = extract(build(*ENTRIES))
ZIP64 = Shape(zip64=True)


def read_parts(parts: list[bytes], cut: Cut | None = None) -> Result:
    """Extract the parts through the core."""
    return extract(b"".join(parts), Policy(), cut, Disks([len(part) for part in parts]))


@given(
    sizes=st.lists(st.integers(1, 400), max_size=40),
    zip64=st.booleans(),
    marker=st.sampled_from([MARKER, b""]),
    step=st.sampled_from([None, 1, 47, 300]),
)
def test_every_allowed_cut_gives_the_same_members(
    sizes: list[int], step: int | None, marker: bytes, *, zip64: bool
) -> None:
    """Wherever the parts begin, members and warnings are those of the archive in one file."""
    parts = build_split(*ENTRIES, sizes=sizes, shape=Shape(zip64=zip64), marker=marker)
    result = read_parts(parts, Cut(step))
    assert result.code is None
    assert result.members == WHOLE.members
    assert result.warnings == WHOLE.warnings
    assert count_disks(parts[-1]) == len(parts)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"disk": 1}, "disk 1, directory on disk"),
        ({"disk": 9}, "disk 9, directory on disk"),
        ({"directory_disk": 3}, "directory on disk 3"),
        ({"disk_entries": 7}, "7 of 6 members on disk 2"),
        ({"disk_entries": 0}, "0 headers declared on the last disk, "),
        ({"directory_offset": 100_000}, "at byte 100,000, which has only"),
    ],
)
def test_end_records_that_contradict_the_parts(changes: dict[str, int], reason: str) -> None:
    """The numbers of disks, the place of the directory and the counts must fit the parts."""
    parts = build_split(*ENTRIES, sizes=[300, 600], shape=Shape(eocd=changes))
    assert len(parts) == 3
    disks = Disks([len(part) for part in parts])
    with pytest.raises(RejectedError, match=reason) as refusal:
        read_index(b"".join(parts), Policy(), Cut(), disks)
    assert refusal.value.finding.code == "multi-disk"


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        (replace(ZIP64, locator={"disks": 9}), "multi-disk"),
        (replace(ZIP64, locator={"disks": 1}), "multi-disk"),
        (replace(ZIP64, locator={"record_disk": 7}), "multi-disk"),
        (replace(ZIP64, zip64_eocd={"disk": 0}), "multi-disk"),
        (replace(ZIP64, zip64_eocd={"directory_disk": 9}), "zip64-eocd-mismatch"),
    ],
)
def test_zip64_records_that_contradict_the_parts(shape: Shape, code: str) -> None:
    """The ZIP64 record and its locator count the same disks."""
    parts = build_split(*ENTRIES, sizes=[300, 600], shape=shape)
    assert read_parts(parts).code == code


@pytest.mark.parametrize(("count", "code"), [(0, None), (1, "zip64-eocd-mismatch")])
def test_a_last_disk_without_headers_counts_none(count: int, code: str | None) -> None:
    """Where the ZIP64 record is on the disk before, the last disk has no header to count."""
    (whole,) = build_split(*ENTRIES, sizes=[], shape=ZIP64)
    shape = replace(ZIP64, eocd={"disk_entries": count})
    parts = build_split(*ENTRIES, sizes=[len(whole) - 22], shape=shape)
    assert [len(part) for part in parts] == [len(whole) - 22, 22]
    assert read_parts(parts).code == code


@pytest.mark.parametrize("central", [{"disk": 3}, {"disk": 0, "offset": 300}, {"offset": 99_999}])
def test_members_that_begin_on_no_disk(central: dict[str, int]) -> None:
    """A member's disk exists and has its first byte."""
    entries = (ENTRIES[0], replace(ENTRIES[2], central=central))
    parts = build_split(*entries, sizes=[150, 100])
    assert len(parts) == 3
    assert read_parts(parts).code == "multi-disk"


def test_members_that_begin_where_a_disk_ends() -> None:
    """The first byte after a disk is on the next one, whose number the header must have."""
    parts = build_split(ENTRIES[0], ENTRIES[2], sizes=[150])
    moved = replace(ENTRIES[0], central={"offset": len(parts[0])})
    assert read_parts(build_split(moved, ENTRIES[2], sizes=[150])).code == "multi-disk"


def test_a_disk_number_in_the_zip64_field() -> None:
    """The number of the disk may be in the ZIP64 field, after its sentinel."""
    field = extra(0x0001, struct.pack("<I", 1))
    moved = Entry("b", b"x" * 500, extra=field, local_extra=b"", central={"disk": 0xFFFF})
    parts = build_split(ENTRIES[0], moved, sizes=[100])
    assert [len(part) for part in parts[:1]] == [92]
    assert read_parts(parts).code is None
    lost = replace(moved, extra=extra(0x0001, struct.pack("<I", 9)))
    assert read_parts(build_split(ENTRIES[0], lost, sizes=[100])).code == "multi-disk"


def test_stub_before_a_split_archive() -> None:
    """Bytes that the offsets of a split archive do not count are refused, for all would move."""
    parts = build_split(*ENTRIES, sizes=[300, 500])
    grown = [*parts[:-1], b"stub" + parts[-1]]
    assert read_parts(grown).code == "gap-before-eocd"


def test_one_part_that_was_to_be_split() -> None:
    """The signature of an archive that needed no second part is no strange prefix."""
    for marker in (MARKER, b"PK00"):
        (only,) = build_split(*ENTRIES, sizes=[], marker=marker)
        assert extract(only).warnings == WHOLE.warnings
    (other,) = build_split(*ENTRIES, sizes=[], marker=b"stub")
    assert extract(other).warnings == WHOLE.warnings | {"prefix-adjusted"}


def test_pieces_are_one_disk() -> None:
    """A file that was cut anywhere is read as the file that it was."""
    raw = build(*ENTRIES)
    assert extract(raw, disks=Disks([100, len(raw) - 100])) == WHOLE


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        (Shape(), 1),
        (Shape(eocd={"disk": 4}, comment=b"text"), 5),
        (Shape(eocd={"disk": 4}, trailing=b"text"), 5),
        (Shape(eocd={"disk": 0xFFFF}), 1),
        (replace(ZIP64, eocd={"disk": 0xFFFF}, locator={"disks": 70}), 70),
    ],
)
def test_count_of_disks(shape: Shape, count: int) -> None:
    """The count is in the end record, or in the locator where that has only a sentinel."""
    assert count_disks(build(*ENTRIES, shape=shape)) == count
    assert count_disks(build(shape=Shape(eocd={"disk": 0xFFFF}))[-22:]) == 1
    assert count_disks(b"no end record") == 1
