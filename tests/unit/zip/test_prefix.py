"""What counts as an archive before the first member, byte by byte, and how much is read."""

from struct import pack

import pytest

from s3unzip.zip import ByteRange, DirectoryLocation, drive
from s3unzip.zip.directory import LOOKED, find_archive, inspect_prefix
from tests.zips import EOCD, LOCAL, pack_record

NAME = b"name"


def local_header(**changes: int) -> bytes:
    """Return a local header with a name, as small as can be."""
    values: dict[str, int | bytes] = {
        **dict.fromkeys(LOCAL, 0),
        "signature": b"PK\x03\x04",
        "needed": 20,
        "name_length": len(NAME),
    }
    return pack_record(LOCAL, values, changes) + NAME


def end_record(**changes: int) -> bytes:
    """Return an end record of nothing."""
    return pack_record(EOCD, {**dict.fromkeys(EOCD, 0), "signature": b"PK\x05\x06"}, changes)


def is_found(data: bytes, spare: int = 0) -> bool:
    """Tell whether an archive is found three bytes into `data`, which ends `spare` before."""
    found = find_archive(b"abc" + data, 1_000, 1_000 + 3 + len(data) + spare)
    assert found in {None, 1_003}
    return found is not None


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"needed": 63}, True),  # APPNOTE 4.4.3.2: the last version is 6.3
        ({"needed": 64}, False),
        ({"needed": 0x300 | 20}, True),  # the upper byte is no version
        ({"method": 99}, True),
        ({"method": 100}, False),
        ({"name_length": 0}, False),
        ({"name_length": 3}, True),
        ({"name_length": 5}, False),  # it would end behind the prefix
        ({"extra_length": 1}, False),
    ],
)
def test_a_local_header_is_more_than_its_signature(changes: dict[str, int], found: bool) -> None:  # noqa: FBT001 - a parameter
    """Its fields make sense, and its name and extra fields end in the prefix."""
    assert is_found(local_header(**changes)) is found


def test_extra_fields_may_end_with_the_prefix() -> None:
    """Up to its last byte, and no further."""
    assert is_found(local_header(extra_length=4) + b"data")
    assert is_found(local_header(extra_length=5) + b"data", spare=1)
    assert not is_found(local_header(extra_length=5) + b"data")


def test_the_first_of_several_is_told() -> None:
    """Signatures that are none are passed over."""
    false = b"PK\x03\x04" + bytes(40)
    data = false + local_header() + local_header()
    assert find_archive(data, 0, len(data)) == len(false)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"disk": 1}, False),
        ({"disk": 1, "directory_disk": 1}, True),
        ({"entries": 1}, False),
        ({"entries": 1, "disk_entries": 1}, False),
        ({"entries": 1, "disk_entries": 1, "directory_size": 46}, True),
        ({"directory_size": 1}, False),
        ({"comment_length": 1}, False),
    ],
)
def test_an_end_record_is_more_than_its_signature(changes: dict[str, int], found: bool) -> None:  # noqa: FBT001 - a parameter
    """Its counts agree, and its comment ends in the prefix."""
    assert is_found(end_record(**changes)) is found


def location(size: int) -> DirectoryLocation:
    """Return where a directory of one member lies that counts its prefix."""
    return DirectoryLocation(size - 69, size - 22, 1, 0, size, held=b"")


@pytest.mark.parametrize("first", [1, LOOKED, LOOKED + 1, 2 * LOOKED - 1, 2 * LOOKED, 9 * LOOKED])
def test_two_ranges_are_read_and_no_more(first: int) -> None:
    """The first and the last bytes of a prefix; what lies between is not read."""
    asked: list[ByteRange] = []

    def read(want: ByteRange) -> bytes:
        asked.append(want)
        return bytes(want.length)

    assert drive(inspect_prefix(b"", location(10 * LOOKED), first), read) == ["prefix-adjusted"]
    assert asked[0] == ByteRange(0, min(first, LOOKED))
    rest = [ByteRange(max(LOOKED, first - LOOKED), first)] if first > LOOKED else []
    assert asked[1:] == rest


def test_an_archive_at_the_end_of_a_prefix_is_found() -> None:
    """Its offset is that in the file."""
    first, header = 5 * LOOKED, local_header()
    at = first - len(header)

    def read(want: ByteRange) -> bytes:
        whole = bytes(want.length + len(header))
        if want.start <= at < want.stop:
            whole = bytes(at - want.start) + header
        return whole[: want.length]

    warnings = drive(inspect_prefix(b"", location(10 * LOOKED), first), read)
    assert warnings == ["prefix-adjusted", "hidden-local-header"]


def test_no_prefix_is_no_request() -> None:
    """An archive that begins with its first member is not looked at."""
    assert drive(inspect_prefix(b"", location(100), 0), lambda want: pack("x") * want.length) == []
