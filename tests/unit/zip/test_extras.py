"""Extra fields: ZIP64 values one by one, and extended timestamps."""

from __future__ import annotations

from struct import pack

import pytest

from s3unzip.zip import DirectoryLocation, DirectoryReader, Policy
from s3unzip.zip.directory.extras import (
    EXTENDED_TIMESTAMP,
    Extras,
    read_extended_time,
    resolve_zip64,
)
from s3unzip.zip.errors import RejectedError
from tests.zips import SENTINEL, Entry, extra

WIDE = 1 << 40


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (pack("<QQQI", WIDE, WIDE + 1, WIDE + 2, 7), (WIDE, WIDE + 1, WIDE + 2, 7, False)),
        (pack("<QQQ", WIDE, WIDE + 1, WIDE + 2), (WIDE, WIDE + 1, WIDE + 2, 0xFFFF, True)),
        (pack("<QQ", WIDE, WIDE + 1) + b"1234567", (WIDE, WIDE + 1, SENTINEL, 0xFFFF, True)),
        (None, (SENTINEL, SENTINEL, SENTINEL, 0xFFFF, True)),
    ],
)
def test_values_are_taken_in_order(payload: bytes | None, expected: tuple[int, ...]) -> None:
    """Each sentinel has its value; one that is cut short is missing."""
    found = resolve_zip64(payload, SENTINEL, SENTINEL, SENTINEL, 0xFFFF)
    assert found == expected


def test_what_is_no_sentinel_takes_no_value() -> None:
    """The field holds values for sentinels alone; what is left over is not looked at."""
    found = resolve_zip64(pack("<QQ", WIDE, 1), 5, SENTINEL, 6, 0)
    assert found == (5, WIDE, 6, 0, False)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (pack("<Bi", 1, 1_700_000_000), 1_700_000_000),
        (pack("<Bi", 3, -1), -1),  # before 1970
        (pack("<Bi", 2, 5), None),  # no modification time
        (pack("<B", 1), None),
        (pack("<Bi", 1, 5)[:4], None),
    ],
)
def test_extended_times(payload: bytes, expected: int | None) -> None:
    """The modification time is there if its flag is set, and may be negative."""
    assert read_extended_time(Extras([(EXTENDED_TIMESTAMP, payload)])) == expected


def read(entry: Entry, *, start: int = 1 << 40, prefix: int = 0) -> tuple[int, set[str]]:
    """Read one header before a directory at `start`; return its offset, and what is found."""
    directory = entry.central_part(0)
    stop = start + len(directory)
    location = DirectoryLocation(start, stop, 1, prefix, stop + 22, is_zip64=True, held=b"")
    (header,) = DirectoryReader(location, Policy()).feed(directory)
    note = header.note
    findings = [*note.warnings, note.finding] if note else []
    return header.offset, {finding.code for finding in findings if finding}


def test_a_field_that_is_longer_than_its_block_is_found() -> None:
    """Also where its length is that of the block and no header's."""
    for length in (5, 8, 12):
        block = pack("<HH", 0x9999, length) + b"1234"
        assert read(Entry("a", extra=block))[1] == {"cd-extra-malformed"}
    assert read(Entry("a", extra=extra(0x9999, b"1234")))[1] == set()


def test_sizes_at_their_sentinels_may_be_sizes() -> None:
    """Without a ZIP64 field, a stored member's two sizes must then be the same."""
    both = {"size": SENTINEL, "compressed_size": SENTINEL}
    assert read(Entry("a", central=both))[1] == set()
    for one in ("size", "compressed_size"):
        assert "zip64-extra-missing" in read(Entry("a", central={**both, one: 7}))[1]


@pytest.mark.parametrize("prefix", [0, 50])
def test_a_member_ends_before_the_directory(prefix: int) -> None:
    """Its header, its name and its data fit exactly, or the reader refuses it."""
    entry = Entry("name", b"12345")
    needed = 30 + len("name") + len(b"12345") + prefix
    assert read(entry, start=needed, prefix=prefix) == (prefix, set())
    with pytest.raises(RejectedError) as caught:
        read(entry, start=needed - 1, prefix=prefix)
    assert caught.value.finding.code == "member-out-of-bounds"
