"""Members in columns: names are kept once, lengths are bytes, failures keep directory order."""

from __future__ import annotations

import tracemalloc

import pytest
from msgspec.structs import replace

from s3unzip.zip import Index, Policy
from s3unzip.zip.directory.columns import FAILED, MEMBER, MemberColumns, Members
from s3unzip.zip.directory.headers import CentralHeader, Columns
from tests.corpus.core import Cut, read_index
from tests.zips import Entry, build

LENIENT = Policy(lenient=True)


def columns_of(*names: tuple[str, bytes | None]) -> MemberColumns:
    """Return columns of members with these paths and raw names, 100 bytes apart."""
    columns = MemberColumns()
    headers = [
        CentralHeader(n, path, raw, n * 100, 10, 10, 0, 0, 0, None, None, None)
        for n, (path, raw) in enumerate(names)
    ]
    columns.take(Columns._make(zip(*headers, strict=True)))
    columns.kind += bytes((MEMBER,)) * len(names)
    columns.stop.extend(n * 100 + 100 for n in range(len(names)))
    return columns


def test_raw_names_are_kept_as_they_are() -> None:
    """A name that is its path in UTF-8 is kept once; any other keeps its own bytes."""
    columns = columns_of(("é", "é".encode()), ("ü", b"\x81"), ("plain", None))
    assert columns.raw_name == ["é".encode(), b"\x81", None]
    assert list(columns.paths()) == ["é", "ü", "plain"]
    assert [columns.path(place) for place in range(3)] == ["é", "ü", "plain"]
    assert columns.raw_name[0] is columns._paths[0]


def test_the_size_of_names_is_in_bytes() -> None:
    """Paths count in UTF-8, and raw names where they are kept beside them."""
    columns = columns_of(("é", "é".encode()), ("ü", b"\x81\x82\x83"), ("plain", None))
    assert columns.names_size(0) == 2 + (2 + 3) + 5
    assert columns.names_size(2) == 5
    assert columns_of(("plain", None), ("b", None)).names_size(0) == 6


def test_members_are_what_did_not_fail() -> None:
    """A header that failed is no member."""
    columns = columns_of(("a", None), ("b", None), ("c", None))
    assert [(one.index, one.path) for one in Members(columns)] == [(0, "a"), (1, "b"), (2, "c")]
    columns.kind[1] = FAILED
    assert [(one.index, one.path) for one in Members(columns)] == [(0, "a"), (2, "c")]


def index_of(*entries: Entry, policy: Policy | None = None) -> Index:
    """Finish the index of an archive of these entries."""
    return read_index(build(*entries), policy or Policy(), Cut())


def test_failures_are_in_the_order_of_the_directory() -> None:
    """Also where members lie in the archive in another order."""
    raw = build(Entry("../a"), Entry("../b"))
    start, length = len(raw) - 22 - 2 * 50, 50
    first, second = raw[start:][:length], raw[start + length :][:length]
    index = read_index(raw[:start] + second + first + raw[-22:], Policy(), Cut())
    assert [(one.index, one.path) for one in index.failures] == [(0, "../b"), (1, "../a")]
    assert [one.offset for one in index.failures] == [34, 0]


@pytest.mark.parametrize(("path", "kept"), [("x" * 300, 300), ("../" + "x" * 300, 203)])
def test_names_of_failures_are_cut_where_no_key_is_made(path: str, kept: int) -> None:
    """A sound name is kept whole although its member fails; an unsound one only to be shown."""
    index = index_of(Entry(path, b"x" * 12, flags=1))
    (failure,) = index.failures
    assert len(failure.path) == kept
    assert path.startswith(failure.path[:200])


def test_totals_are_of_members() -> None:
    """Bytes of a directory do not count, although it has some and nothing failed."""
    index = index_of(Entry("a", b"12"), Entry("d/", b"345"), policy=LENIENT)
    assert (index.directories, len(index.failures)) == (1, 0)
    assert (index.total_size, index.total_compressed) == (2, 2)


def test_an_empty_directory_by_its_attributes_is_one() -> None:
    """Without a slash it is a directory if it has no bytes and no CRC-32, else a file."""
    assert index_of(Entry("d", attributes=0x10)).directories == 1
    index = index_of(Entry("d", attributes=0x10, central={"crc32": 1}, local={"crc32": 1}))
    assert (index.directories, len(index.members)) == (0, 1)


def test_warnings_of_a_location_are_kept() -> None:
    """What was said when the directory was found is said in the index."""
    policy = replace(Policy(), lenient=True)
    index = read_index(build(Entry("a", b"1")) + b"tail", policy, Cut())
    assert "trailing-data" in index.warnings.counts


def mixed() -> MemberColumns:
    """Return columns of four members, which the directory lists from the last to the first."""
    columns = columns_of(("a", None), ("b.json", None), ("c", None), ("d.json", None))
    columns.index[:] = columns.index[::-1]
    columns.size[3] = 7
    return columns


def is_json(path: str) -> bool:
    """Return whether a filter for JSON selects a path."""
    return path.endswith(".json")


def test_members_with_a_wanted_path() -> None:
    """What is selected has its own length, places, slices and sums; what failed is never in it."""
    columns = mixed()
    columns.kind[0] = FAILED
    every = Members(columns)
    chosen = every.only(is_json)
    assert [one.path for one in chosen] == ["b.json", "d.json"]
    assert (len(chosen), chosen[0].path, chosen[-1].path) == (2, "b.json", "d.json")
    assert [one.path for one in chosen[1:]] == ["d.json"]
    assert (chosen.size, chosen.compressed_size) == (17, 20)
    assert (every.size, every.compressed_size) == (27, 30)
    assert [one.path for one in every.only(lambda _: True)] == ["b.json", "c", "d.json"]
    nothing = every.only(lambda _: False)
    assert (len(nothing), list(nothing), nothing.size) == (0, [], 0)


def test_a_part_of_the_members_takes_few_bytes() -> None:
    """A filter or a limit creates no object for each member that it selects."""
    columns = columns_of(*((f"{number}.json", None) for number in range(20_000)))
    every = Members(columns)
    tracemalloc.start()
    try:
        parts = [every.only(lambda path: path != "0.json"), every.first(19_999)]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(part) for part in parts] == [19_999, 19_999]
    assert kept < len(parts) * 10 * 20_000


def test_the_first_members_are_those_of_the_directory() -> None:
    """They keep the order of the archive; a filter goes before the count."""
    every = Members(mixed())
    assert [one.path for one in every.first(2)] == ["c", "d.json"]
    assert [one.path for one in every.only(is_json).first(1)] == ["d.json"]
    assert list(every.first(0)) == []
    assert every.first(4) is every


def test_failures_with_a_wanted_path() -> None:
    """They keep their order, and each its finding."""
    names = ("a.json", "b", "c.json")
    index = index_of(*(Entry(name, b"x" * 12, flags=1) for name in names), Entry("../d.json"))
    chosen = index.failures.only(is_json)
    assert [one.path for one in chosen] == ["a.json", "c.json", "../d.json"]
    assert list(chosen) == [index.failures[at] for at in (0, 2, 3)]
    assert list(index.failures.only(lambda _: False)) == []
