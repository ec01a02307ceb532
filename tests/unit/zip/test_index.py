"""The settled index: order, bounds, keys, limits."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from s3unzip.errors import RejectedError
from s3unzip.zip import DirectoryReader, Index, Limits, Policy, drive, fold_key, locate_directory
from s3unzip.zip.checks import MIB
from s3unzip.zip.names import has_long_marks
from tests.corpus.core import Cut, read_index
from tests.zips import Entry, Shape, build


def index_of(*entries: Entry, policy: Policy | None = None, shape: Shape | None = None) -> Index:
    """Settle the index of an archive of these entries."""
    return read_index(build(*entries, shape=shape), policy or Policy(), Cut())


def index_through(
    raw: bytes, key_of: Callable[[str], str], policy: Policy, reserved: str | None = None
) -> Index:
    """Settle an archive's index with these keys."""
    location = drive(
        locate_directory(raw, len(raw), policy), lambda want: raw[want.start : want.stop]
    )
    reader = DirectoryReader(location, policy, key_of, reserved)
    reader.feed(raw[location.start : location.stop])
    return reader.finish()


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
    assert (index.members.size, index.members.compressed_size) == (3, 3)
    failure = index.failures[0]
    assert (failure.member.index, failure.member.path, failure.finding.code) == (
        3,
        "../x",
        "name-dotdot",
    )


def test_members_are_a_sequence() -> None:
    """Members can be counted, indexed, sliced, and walked again."""
    for entries in ([Entry("a"), Entry("b"), Entry("c")], [Entry("a"), Entry("d/"), Entry("b")]):
        members = index_of(*entries).members
        assert len(members) == len(list(members)) == len(list(members))
        assert members[0].path == "a"
        assert members[-1] == list(members)[-1]
        assert list(members[1:]) == list(members)[1:]
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
    assert len(index_through(raw, str, Policy()).members) == 2
    with pytest.raises(RejectedError, match="duplicate-name"):
        index_through(raw, lambda path: path.rpartition("/")[2], Policy())


def test_lenient_duplicates() -> None:
    """A lenient policy writes the last of several members with one key."""
    index = index_of(
        Entry("a", b"1"), Entry("A", b"-"), Entry("a", b"2"), policy=Policy(lenient=True)
    )
    assert [(m.index, m.path) for m in index.members] == [(1, "A"), (2, "a")]
    assert [(f.member.index, f.finding.code) for f in index.failures] == [(0, "duplicate-name")]
    assert index.warnings == {"case-collision": 1}


def test_key_length_counts_the_prefix() -> None:
    """The key's length is judged, not the name's."""
    raw = build(Entry("a" * 1020))
    index = index_through(raw, lambda path: "stem/" + path, Policy())
    assert [f.finding.code for f in index.failures] == ["key-too-long"]


def test_warnings_are_counted() -> None:
    """By their codes."""
    index = index_of(*(Entry(f"a//{number}") for number in range(10)))
    assert index.warnings == {"name-empty-component-normalised": 10}


# In each of the two deep cases 180,000 folders: kept without a bound, they are 15 MiB.
DEEP = "d/" * 450
HOSTILE = {
    "one deep directory": [Entry("a/" * 32_767)],
    "twenty deep directories": [Entry(f"{number:02}/" + "a/" * 32_700) for number in range(20)],
    "deep valid names": [Entry(f"{number:04}/{DEEP}f") for number in range(400)],
    "deep valid directories": [Entry(f"{number:04}/{DEEP}") for number in range(400)],
    "long names": [Entry(f"{number:03}" + "n" * 65_000) for number in range(100)],
    "long refused names": [Entry(f"../{number:03}" + "n" * 65_000) for number in range(100)],
    "one wide character": [Entry(f"{number:04}\U0001f600" + "n" * 999) for number in range(900)],
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_memory_is_bounded_by_settings(case: str) -> None:
    """Names of any length and depth cost a few times the directory's own bytes."""
    raw = build(*HOSTILE[case])
    piece = MIB // 4
    policy = Policy(limits=replace(Limits(), folder_memory=piece))
    gc.collect()
    tracemalloc.start()
    try:
        index = read_index(raw, policy, Cut(piece))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert index.entries == len(HOSTILE[case])
    names = sum(min(1_100, len(entry.raw_name)) for entry in HOSTILE[case])
    assert kept < 2 * names + 1_000 * index.entries + MIB // 2
    # A piece of the directory in several forms, and what is kept. The last name is always whole.
    assert peak < (18 if case.startswith("long") else 12) * MIB


def test_long_names_are_cut() -> None:
    """What cannot be a key is kept and shown as its beginning; so are messages about it."""
    index = index_of(Entry("n" * 65_000), Entry("../" + "n" * 65_000), Entry("k\0" * 30_000))
    assert [f.finding.code for f in index.failures] == ["key-too-long", "name-dotdot", "name-nul"]
    assert [len(f.member.path) for f in index.failures] == [203] * 3
    assert all(len(str(failure.finding)) < 1_500 for failure in index.failures)


def test_normalising_is_bounded() -> None:
    """Names are measured before they are folded, and long runs of marks are not normalised."""
    marks = "\u0323\u0301" * 10_000  # out of order: sorting them takes the square of their number
    assert fold_key("E" + marks) == "e" + marks
    raw = build(Entry("e" + marks), Entry("f" + marks[:200]), Entry("g" + marks[:20]))
    index = index_through(raw, str, Policy(lenient=True))
    codes = {failure.member.path[0]: failure.finding.code for failure in index.failures}
    assert codes == {"e": "key-too-long"}
    assert index.warnings["name-combining-run"] == 2
    assert has_long_marks(marks[:200])
    assert not has_long_marks(marks[:20])


def test_the_marker_is_reserved() -> None:
    """No member takes the key of the run's marker, in any case, nor a key below it."""
    taken = ["_SUCCESS", "_success", "_SUCCESS/x", "_SUCCESS.txt", "a/_SUCCESS"]
    raw = build(*map(Entry, taken))
    index = index_through(raw, str, Policy(), "_SUCCESS")
    assert [m.path for m in index.members] == ["_SUCCESS.txt", "a/_SUCCESS"]
    assert {f.finding.code for f in index.failures} == {"name-reserved"}
    assert len(index_through(raw, str, Policy()).members) == 5


def test_a_size_of_all_ones_is_a_size() -> None:
    """4.4.9: without a ZIP64 field, 0xFFFFFFFF is a size like any other, and is checked."""
    entry = Entry("a", method=8, data=bytes(4_000_000), central={"size": 0xFFFF_FFFF})
    for shape in (Shape(), Shape(zip64=True)):
        index = index_of(entry, shape=shape)
        assert [m.size for m in index.members] == [0xFFFF_FFFF]
        assert not index.warnings


def test_folders_are_compared_with_little_memory() -> None:
    """A file that is also a folder is found, though what was seen has to be forgotten."""
    entries = [Entry(f"{number:03}/x/y/z") for number in range(300)]
    policy = Policy(limits=replace(Limits(), folder_memory=100 * 10))
    index = index_of(*entries, Entry("007"), Entry("299/x"), policy=policy)
    assert index.warnings == {"file-dir-prefix-conflict": 2}


def test_empty_archive() -> None:
    """An archive without members is an archive."""
    index = index_of()
    assert (len(index.members), index.entries, index.members.size) == (0, 0, 0)


def test_lenient_backslashes_and_links() -> None:
    """A lenient policy converts backslashes, then judges the path again."""
    link = Entry("link", b"target", attributes=0o120777 << 16)
    index = index_of(Entry("a\\b"), Entry("..\\c"), link, policy=Policy(lenient=True))
    assert [m.path for m in index.members] == ["a/b", "link"]
    assert [f.finding.code for f in index.failures] == ["name-dotdot"]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["a", "b", "c", "A"], "case-collision"),
        (["a", "\u00e9", "e\u0301"], "unicode-collision"),
        (["a", "b"], None),
    ],
)
def test_keys_that_are_one_to_some_file_systems(names: list[str], code: str | None) -> None:
    """Each group of them is a warning."""
    counts = index_of(*map(Entry, names)).warnings
    assert counts == ({} if code is None else {code: 1})


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_member_that_reaches_the_next_one_is_refused(place: int) -> None:
    """One byte is enough; the finding names both, and where the first one begins."""
    entries = [Entry(name, b"12345") for name in "abcd"]
    offset = 36 * place
    central = {"compressed_size": 6, "size": 6}
    entries[place] = Entry("abcd"[place], b"12345", central=central)
    with pytest.raises(RejectedError) as caught:
        index_of(*entries)
    finding = caught.value.finding
    assert (finding.code, finding.offset, finding.member) == ("overlap", offset, "abcd"[place])
    following = f"{'abcd'[place + 1]!r} begins at {offset + 36}"
    assert finding.message == f"it ends at {offset + 37} or later, {following}"


def test_failures_are_in_the_order_of_the_directory() -> None:
    """Also where members lie in the archive in another order."""
    raw = build(Entry("../a"), Entry("../b"))
    start, length = len(raw) - 22 - 2 * 50, 50
    first, second = raw[start:][:length], raw[start + length :][:length]
    index = read_index(raw[:start] + second + first + raw[-22:], Policy(), Cut())
    assert [(one.member.index, one.member.path) for one in index.failures] == [
        (0, "../b"),
        (1, "../a"),
    ]
    assert [one.member.offset for one in index.failures] == [34, 0]


@pytest.mark.parametrize(("path", "kept"), [("x" * 300, 300), ("../" + "x" * 300, 203)])
def test_names_of_failures_are_cut_where_no_key_is_made(path: str, kept: int) -> None:
    """A sound name is kept whole although its member fails; an unsound one only to be shown."""
    (failure,) = index_of(Entry(path, b"x" * 12, flags=1)).failures
    assert len(failure.member.path) == kept
    assert path.startswith(failure.member.path[:200])


def test_raw_names_are_kept_as_they_are() -> None:
    """A name keeps its own bytes, unless it is its path in ASCII."""
    names: tuple[str | bytes, ...] = ("\u00e9", b"\x81", "plain", "./x")
    members = index_of(*map(Entry, names)).members
    assert [m.path for m in members] == ["\u00e9", "\u00fc", "plain", "x"]
    assert [m.raw_name for m in members] == ["\u00e9".encode(), b"\x81", None, b"./x"]
    assert members[2].name_bytes == b"plain"


def test_selected_members_and_failures() -> None:
    """What is selected has its own length, places, slices and sums, in the archive's order."""
    index = index_of(
        *(Entry("a", b"1"), Entry("b.json", b"22"), Entry("../c.json"), Entry("d.json", b"4444"))
    )
    chosen = index.members.only(lambda path: path.endswith(".json"))
    assert [one.path for one in chosen] == ["b.json", "d.json"]
    assert (len(chosen), chosen[-1].path) == (2, "d.json")
    assert [one.path for one in chosen[1:]] == ["d.json"]
    assert (chosen.size, chosen.compressed_size) == (6, 6)
    assert [one.path for one in chosen.first(1)] == ["b.json"]
    assert list(index.members.first(0)) == []
    assert len(index.members.first(9)) == 3
    nothing = index.members.only(lambda _: False)
    assert (len(nothing), list(nothing), nothing.size) == (0, [], 0)
    assert [one.member.path for one in index.failures.only(lambda path: "c" in path)] == [
        "../c.json"
    ]
    assert list(index.failures.only(lambda _: False)) == []
