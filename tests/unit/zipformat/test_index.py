"""The settled index: order, bounds, keys, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3unzip.errors import RejectedError
from s3unzip.zipformat import (
    DirectoryReader,
    Index,
    IndexBuilder,
    Limits,
    Policy,
    drive,
    locate_directory,
    settle_index,
)
from tests.corpus.runner import Cut, read_index
from tests.zips import Entry, Shape, build


def index_of(*entries: Entry, policy: Policy | None = None, shape: Shape | None = None) -> Index:
    """Settle the index of an archive of these entries."""
    return read_index(build(*entries, shape=shape), policy or Policy(), Cut())


def test_members_are_sorted_by_offset() -> None:
    """A directory in another order gives the same members, each with its place in it."""
    first, second = Entry("a", b"1"), Entry("b", b"22")
    raw = build(first, second)
    start = len(raw) - 22 - 2 * 47
    swapped = raw[:start] + raw[start + 47 : start + 94] + raw[start : start + 47] + raw[-22:]
    index = read_index(swapped, Policy(), Cut())
    assert [(m.index, m.path, m.offset, m.stop) for m in index.members] == [
        (1, "a", 0, 32),
        (0, "b", 32, start),
    ]


def test_stop_is_the_next_header_of_any_kind() -> None:
    """Directories and failed members bound their neighbours like any other."""
    index = index_of(
        Entry("a", b"1"), Entry("d/"), Entry("b", b"2"), Entry("../x", b"3"), Entry("c", b"4")
    )
    assert [m.path for m in index.members] == ["a", "b", "c"]
    assert [m.stop for m in index.members] == [32, 32 + 32 + 32, 32 * 4 + 35]
    assert (index.directories, index.entries, len(index.failures)) == (1, 5, 1)
    assert (index.total_size, index.total_compressed) == (3, 3)
    failure = index.failures[0]
    assert (failure.index, failure.path, failure.finding.code) == (3, "../x", "name-dotdot")


def test_members_are_a_sequence() -> None:
    """Members can be counted, indexed, sliced, and walked again."""
    for entries in ([Entry("a"), Entry("b"), Entry("c")], [Entry("a"), Entry("d/"), Entry("b")]):
        members = index_of(*entries).members
        assert len(members) == len(list(members)) == len(list(members))
        assert members[0].path == "a"
        assert members[-1] == list(members)[-1]
        assert members[1:] == list(members)[1:]
        with pytest.raises(IndexError):
            members[len(members)]


def test_unknown_time_and_mode_are_none() -> None:
    """What an archive does not say stays unknown, beside members that say it."""
    silent = Entry("a", central={"date": 0, "time": 0, "made_by": 20, "attributes": 0})
    index = index_of(silent, Entry("b"))
    assert [(m.mtime, m.mode) for m in index.members] == [
        (None, None),
        (1_776_259_990, 0o100644),
    ]


def test_keys_decide_what_is_a_duplicate() -> None:
    """Uniqueness is of keys: a template that drops folders can make two members one."""
    raw = build(Entry("x/a"), Entry("y/a"))
    location = drive(
        locate_directory(raw, len(raw), Policy()), lambda want: raw[want.start : want.stop]
    )
    headers = list(DirectoryReader(location, Policy()).feed(raw[location.start : location.stop]))
    assert len(settle_index(headers, location, Policy(), str).members) == 2
    with pytest.raises(RejectedError, match="duplicate-name"):
        settle_index(headers, location, Policy(), lambda path: path.rpartition("/")[2])


def test_lenient_duplicates() -> None:
    """A lenient policy writes the last of several members with one key."""
    index = index_of(
        Entry("a", b"1"), Entry("A", b"-"), Entry("a", b"2"), policy=Policy(lenient=True)
    )
    assert [(m.index, m.path) for m in index.members] == [(1, "A"), (2, "a")]
    assert [(f.index, f.finding.code) for f in index.failures] == [(0, "duplicate-name")]
    assert index.warnings.counts == {"case-collision": 1}


def test_key_length_counts_the_prefix() -> None:
    """The key's length is judged, not the name's."""
    raw = build(Entry("a" * 1020))
    location = drive(
        locate_directory(raw, len(raw), Policy()), lambda want: raw[want.start : want.stop]
    )
    builder = IndexBuilder(location, Policy(), lambda path: "stem/" + path)
    builder.add(DirectoryReader(location, Policy()).feed(raw[location.start : location.stop]))
    assert [f.finding.code for f in builder.finish().failures] == ["key-too-long"]


def test_warnings_are_bounded() -> None:
    """All warnings are counted; only so many are kept."""
    policy = Policy(limits=replace(Limits(), kept_warnings=3))
    index = index_of(*(Entry(f"a//{number}") for number in range(10)), policy=policy)
    assert index.warnings.counts == {"name-empty-component-normalised": 10}
    assert len(index.warnings.kept) == 3


def test_deep_folders_are_bounded() -> None:
    """Names of hundreds of folders cost no more than a look at each folder once."""
    entries = [Entry(f"{'d/' * 400}{number}/f") for number in range(300)]
    assert len(index_of(*entries).members) == 300


def test_empty_archive() -> None:
    """An archive without members is an archive."""
    index = index_of()
    assert (len(index.members), index.entries, index.total_size) == (0, 0, 0)


def test_lenient_backslashes_and_links() -> None:
    """A lenient policy converts backslashes, then judges the path again."""
    link = Entry("link", b"target", attributes=0o120777 << 16)
    index = index_of(Entry("a\\b"), Entry("..\\c"), link, policy=Policy(lenient=True))
    assert [m.path for m in index.members] == ["a/b", "link"]
    assert [f.finding.code for f in index.failures] == ["name-dotdot"]
