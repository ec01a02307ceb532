"""Which members a destination has: by LIST, by HEAD, and where LIST is given up."""

from __future__ import annotations

from zlib import crc32

import pytest

from s3unzip.model import OnConflict, Options, PlannedMember
from s3unzip.objects.existing import LIST_PRICE, PAGE, find_unchanged
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import ObjectFacts
from s3unzip.zipformat import Member
from tests.memory import ManualClock, MemoryBucket

ROWS = LIST_PRICE  # for which one LIST may be asked
BODY = b"content"
SKIP = Options(on_conflict=OnConflict.SKIP_UNCHANGED)


def row_of(index: int, key: str) -> PlannedMember:
    """Return the row of a member whose content is `BODY`."""
    return PlannedMember(Member(index, key, None, 0, 0, 7, 7, crc32(BODY), 0, 0, None, None), key)


def bucket_with(*keys: str) -> MemoryBucket:
    """Return a bucket that has `BODY` under these keys."""
    bucket = MemoryBucket()
    facts = ObjectFacts("text/plain", {"zip-crc32": f"{crc32(BODY):08x}"})
    for key in keys:
        bucket.put(key, BODY, facts, if_absent=False)
    return bucket


@pytest.mark.parametrize("place", [0, 1, ROWS - 1])
def test_members_beyond_the_last_key_listed_are_asked_for(place: int) -> None:
    """Where LIST is given up among other keys, HEAD decides for each member behind them."""
    keys = [f"a{number:03}" if number <= place else f"z{number:03}" for number in range(ROWS)]
    others = [f"m{number:05}" for number in range(PAGE + 1)]
    bucket = bucket_with(*keys, *others)
    calls = Calls(ManualClock(), 60.0, 4)
    rows = [row_of(index, key) for index, key in enumerate(keys)]
    gone = keys[-1]
    if place < ROWS - 1:
        bucket.delete([gone])
    found = find_unchanged(rows, SKIP, bucket, calls, threads=2)
    assert set(found) == {row.member.index for row in rows if row.key in bucket.objects}
    assert calls.requests.head == ROWS  # each member once, also the one that is not there


def test_the_last_key_listed_is_not_asked_for_twice() -> None:
    """A member that LIST named as its last key has one HEAD like any other."""
    keys = [f"k{number:04}" for number in range(0, 2 * PAGE, 2 * PAGE // ROWS)][:ROWS]
    others = [f"k{number:04}x" for number in range(PAGE)]
    bucket = bucket_with(*keys, *others)
    listed = sorted(bucket.objects)[PAGE - 1]
    rows = [row_of(index, key) for index, key in enumerate([*keys[: ROWS - 2], listed, "z"])]
    calls = Calls(ManualClock(), 60.0, 4)
    found = find_unchanged(rows, SKIP, bucket, calls, threads=2)
    assert set(found) == set(range(ROWS - 1))
    assert calls.requests.head == ROWS
