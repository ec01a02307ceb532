"""The names of an archive's parts, and reading over their borders."""

import pytest

from s3unzip.errors import UsageError
from s3unzip.model import Location, Pin
from s3unzip.run_ids import archive_stem
from s3unzip.stores.archives import is_first_piece, last_part_name, locate_part
from tests.support.memory import MemoryBucket, MemorySource


def _s3(key: str) -> Location:
    return Location("s3", "bucket", key)


@pytest.mark.parametrize(
    ("named", "number", "count", "wanted"),
    [
        ("d/a.zip", 1, 3, "d/a.z01"),
        ("d/a.zip", 3, 3, "d/a.zip"),
        ("a.ZIP", 12, 13, "a.Z12"),
        ("a.zip", 100, 200, "a.z100"),
        ("d.zip/a.zip", 1, 2, "d.zip/a.z01"),
        ("a.zip.001", 2, 2, "a.zip.002"),
        ("a.zip.0001", 1_234, 2_000, "a.zip.1234"),
        ("a.zip?x.zip", 1, 2, "a.zip?x.z01"),
        ("a.exe", 1, 2, None),
    ],
)
def test_the_names_of_all_parts_follow_from_one(
    named: str, number: int, count: int, wanted: str | None
) -> None:
    """The name of the last part, or of the first piece, leads to all others."""
    found = locate_part(_s3(named), number, count)
    assert (found.key if found else None) == wanted


def test_the_query_of_a_url_stays() -> None:
    """A signature for a whole folder holds for its parts, too."""
    link = Location("https", "host", "d/a.zip?sig=a.zip")
    assert locate_part(link, 1, 2) == Location("https", "host", "d/a.z01?sig=a.zip")


def test_parts_and_pieces_are_told_by_their_endings() -> None:
    """Parts and pieces are told by their endings; a counter of backups is neither."""
    assert [is_first_piece(_s3(key)) for key in ("a.zip.001", "a.ZIP.0001")] == [True, True]
    assert [is_first_piece(_s3(key)) for key in ("a.zip", "a.zip.1", "a.zip.002")] == [False] * 3
    named = {"d/a.z01": "a.zip", "A.Z123": "A.ZIP", "a.zip": None, "a.zst": None}
    assert {key: last_part_name(_s3(key)) for key in named} == named
    assert archive_stem(_s3("d/a.zip.001")) == "a"
    assert archive_stem(_s3("d/a.zip.1")) == "a.zip.1"


def test_parts_without_names() -> None:
    """A pin with parts needs a name that leads to them."""
    source = MemorySource(MemoryBucket())
    with pytest.raises(UsageError, match="does not say where"):
        source.pinned(_s3("a.bin"), Pin(2, parts=(Pin(1), Pin(1))))
