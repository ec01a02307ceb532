"""Keys that are one key to some file systems: found by hash, told by text, in bounded memory."""

from __future__ import annotations

import pytest

from s3unzip.zip.directory.keys import (
    HASH_COST,
    FoldedKeys,
    find_collision,
    find_duplicates,
)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["a", "a"], None),  # a duplicate is no collision
        (["a", "b"], None),  # a hash may be that of another key
        (["a", "A"], 1),
        (["a", "a", "b", "A"], 3),
        (["\u00e9", "e\u0301"], 1),
    ],
)
def test_a_collision_folds_alike_and_differs(keys: list[str], found: int | None) -> None:
    """Keys that are the same, and keys that only share a hash, are none."""
    assert find_collision(range(len(keys)), keys.__getitem__) == found


def test_duplicates_are_told_by_their_text() -> None:
    """The places of each key that comes twice, in a group of any keys."""
    keys = ["a", "b", "a", "A", "b", "a"]
    found = sorted(map(list, find_duplicates(range(len(keys)), keys.__getitem__)))
    assert found == [[0, 2, 5], [1, 4]]


class Alike(str):
    """A key whose hash is that of every other one."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1


def test_keys_that_share_a_hash_are_no_duplicates() -> None:
    """A hash only says where to look."""
    keys = [Alike("a"), Alike("b"), Alike("a")]
    assert list(map(list, find_duplicates(range(3), keys.__getitem__))) == [[0, 2]]


@pytest.mark.parametrize("remembered", [1, 10, 1_000])
def test_folders_are_remembered_in_the_memory_given(remembered: int) -> None:
    """Beyond it all are forgotten, and some are looked at again."""
    folded = FoldedKeys()
    folded.take(["0/1"])
    seen = set[int]()
    most = 0
    folders = [f"{n % 7}/{n}" for n in range(500)]
    for _ in folded._walk(folders, seen, remembered * HASH_COST):
        most = max(most, len(seen))
    most = max(most, len(seen))
    assert 0 < most <= remembered
    assert list(folded.folders(iter(["0/1/x", "y"]), HASH_COST)) == ["0/1"]
