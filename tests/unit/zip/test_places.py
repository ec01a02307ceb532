"""Where members lie: each ends before the next one and before the directory."""

from __future__ import annotations

import pytest

from s3unzip.zip.directory.columns import MemberColumns
from s3unzip.zip.directory.headers import CentralHeader, Columns
from s3unzip.zip.directory.places import resolve_places
from s3unzip.zip.directory.records import LOCAL_LENGTH
from s3unzip.zip.errors import RejectedError

START = 1_000  # of the directory
HEAD = LOCAL_LENGTH + 1  # a local header with a name of one byte


def columns_of(*members: tuple[str, int, int]) -> MemberColumns:
    """Return columns of members with name, offset and end, in the order of the directory."""
    columns = MemberColumns()
    headers = [
        CentralHeader(n, name, None, offset, end - offset - HEAD, 0, 0, 0, 0, None, None, None)
        for n, (name, offset, end) in enumerate(members)
    ]
    columns.take(Columns._make(zip(*headers, strict=True)))
    columns.kind += bytes(len(members))
    return columns


def test_members_may_touch() -> None:
    """Each stops where the next one begins, the last one at the directory."""
    columns = columns_of(("b", 100, 300), ("a", 0, 100), ("c", 300, START))
    resolve_places(columns, START)
    assert list(columns.offset) == [0, 100, 300]
    assert list(columns.index) == [1, 0, 2]
    assert list(columns.stop) == [100, 300, START]


def test_nothing_has_no_places() -> None:
    """An empty archive is in order."""
    columns = MemberColumns()
    resolve_places(columns, START)
    assert list(columns.stop) == []


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_member_that_reaches_the_directory_is_refused(place: int) -> None:
    """Whichever it is, by one byte."""
    members = [("a", 0, 100), ("b", 100, 200), ("c", 200, 300)]
    name, offset, _ = members[place]
    members[place] = (name, offset, START + 1)
    with pytest.raises(RejectedError, match="would end at 1001") as caught:
        resolve_places(columns_of(*members), START)
    assert caught.value.finding.code == "member-out-of-bounds"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_member_that_reaches_the_next_one_is_refused(place: int) -> None:
    """One byte is enough; the finding names both, and where the first one begins."""
    members = [("a", 0, 100), ("b", 100, 200), ("c", 200, 300), ("d", 300, 400)]
    name, offset, end = members[place]
    members[place] = (name, offset, end + 1)
    with pytest.raises(RejectedError) as caught:
        resolve_places(columns_of(*members), START)
    finding = caught.value.finding
    assert (finding.code, finding.offset, finding.member) == ("overlap", offset, name)
    assert finding.message == (
        f"it ends at {end + 1} or later, {members[place + 1][0]!r} begins at {end}"
    )
