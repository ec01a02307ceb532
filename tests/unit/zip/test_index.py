"""The settled index: order, bounds, keys, limits; local headers; encrypted and split archives."""

import gc
import tracemalloc
from collections.abc import Callable, Collection
from cProfile import Profile
from dataclasses import replace as replace_entry

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from s3unzip.errors import MemberError, RejectedError
from s3unzip.zip import (
    HEAD_LENGTH,
    Disks,
    Index,
    Limits,
    Member,
    OpenedMember,
    Policy,
    Selection,
    count_disks,
    fold_key,
    open_member,
)
from s3unzip.zip.checks import MIB
from s3unzip.zip.names import has_long_marks
from tests.corpus import labels
from tests.corpus.codecs import SEALS
from tests.corpus.ways import extract, read_index
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    MARKER,
    STORED,
    Entry,
    Shape,
    build,
    build_split,
    extra,
)


def _index_of(*entries: Entry, policy: Policy | None = None, shape: Shape | None = None) -> Index:
    return read_index(build(*entries, shape=shape), policy or Policy())


def _index_through(raw: bytes, selection: Selection) -> Index:
    return read_index(raw, Policy(), selection=selection)


def test_stop_is_the_next_header_of_any_kind() -> None:
    """Directories and failed members bound their neighbours like any other."""
    index = _index_of(
        Entry("a", b"1"), Entry("d/"), Entry("b", b"2"), Entry("../x", b"3"), Entry("c", b"4")
    )
    stops = [(member.path, member.stop) for member in index.members]
    assert (stops, index.directories, index.entries) == (
        [("a", 32), ("b", 32 + 32 + 32), ("c", 32 * 4 + 35)],
        1,
        5,
    )
    assert (index.members.size, index.members.compressed_size) == (3, 3)
    assert [(member.index, member.path, found.code) for member, found in index.failures] == [
        (3, "../x", "name-dotdot")
    ]


def test_unknown_time_and_mode_are_none() -> None:
    """What an archive does not say stays unknown, beside members that say it."""
    index = _index_of(
        Entry("a", central={"date": 0, "time": 0, "made_by": 20, "attributes": 0}), Entry("b")
    )
    assert [(m.mtime, m.mode) for m in index.members] == [
        (None, None),
        (1_776_259_990, 0o100644),
    ]


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


LAST_FIRST = (Entry("a", flags=1), Entry("a", b"2"), Entry("A", b"-"), Entry("a", b"1"))


@pytest.mark.parametrize(
    ("entries", "selected", "duplicates"),
    [(LAST_FIRST[:0:-1], [(1, "A"), (2, "a")], 1), (LAST_FIRST, [(2, "A"), (3, "a")], 2)],
    ids=["good", "the first one failed"],
)
def test_lenient_duplicates(
    entries: tuple[Entry, ...], selected: list[tuple[int, str]], duplicates: int
) -> None:
    """A lenient policy writes the last of several members with one key, and warns."""
    index = _index_of(*entries, policy=Policy(lenient=True))
    assert [(member.index, member.path) for member in index.selected] == selected
    assert (len(index.failures), index.excluded, index.entries, index.warnings) == (
        0,
        duplicates,
        len(entries),
        {"case-collision": 1, "duplicate-name": duplicates},
    )


COLLIDING = (Entry("x/a"), Entry("y/a"), Entry("a"), Entry("A"), Entry("a/b"), Entry("b", flags=1))


@pytest.mark.parametrize(
    ("selection", "selected", "warnings"),
    [
        (Selection(selects="x/a".__eq__), ["x/a"], {}),
        (
            Selection(_last_part, selects=("x/a", "A").__contains__),
            ["x/a", "A"],
            {"case-collision"},
        ),
        (Selection(_last_part, limit=1), ["x/a"], {}),
        (Selection(_last_part, reserved="a", selects="b".__lt__), ["x/a", "y/a"], None),
        (Selection(limit=4), ["x/a", "y/a", "a", "A"], {"case-collision"}),
        (Selection(limit=0), [], {}),
        (
            Selection(selects=("a", "a/b").__contains__),
            ["a", "a/b"],
            {"file-dir-prefix-conflict"},
        ),
    ],
)
def test_members_that_are_not_selected_collide_with_nothing(
    selection: Selection, selected: list[str], warnings: Collection[str] | None
) -> None:
    """Keys of members that the options leave out, or that come after a limit, are not judged."""
    raw = build(*COLLIDING)
    if warnings is None:
        with pytest.raises(RejectedError, match="duplicate-name"):
            _index_through(raw, selection)
        return
    index = _index_through(raw, selection)
    assert ([member.path for member in index.selected], set(index.warnings)) == (
        selected,
        set(warnings),
    )
    assert (index.excluded, len(index.members), set(index.paths)) == (
        len(COLLIDING) - len(selected),
        5,
        {str(entry.name) for entry in COLLIDING},
    )


@pytest.mark.parametrize(
    ("entries", "selection", "codes", "excluded"),
    [
        (COLLIDING, Selection(selects="b".__ne__), [], 1),
        (COLLIDING, Selection(selects="b".__eq__), ["encrypted"], 5),
        ([Entry("a" * 1020)], Selection("stem/".__add__), ["key-too-long"], 0),
    ],
    ids=["not selected", "selected", "too long with its prefix"],
)
def test_members_that_fail_are_selected_as_others(
    entries: Collection[Entry], selection: Selection, codes: list[str], excluded: int
) -> None:
    """One that is not selected does not count; of the others the key is judged, not the name."""
    index = _index_through(build(*entries), selection)
    assert ([finding.code for _, finding in index.failures], index.excluded) == (
        codes,
        excluded,
    )


# In each of the two deep cases 180,000 folders: kept without a bound, they are 15 MiB.
DEEP = "d/" * 450
HOSTILE = {
    "one deep directory": [Entry("a/" * 32_767)],
    "twenty deep directories": [Entry(f"{number:02}/" + "a/" * 32_700) for number in range(20)],
    "deep valid names": [Entry(f"{number:04}/{DEEP}f") for number in range(400)],
    "deep valid directories": [Entry(f"{number:04}/{DEEP}") for number in range(400)],
    "long names": [Entry(f"{number:03}" + "n" * 65_000) for number in range(100)],
    "long refused names": [Entry(f"../{number:03}" + "n" * 65_000) for number in range(100)],
    "many refused members": [Entry("\1" * 40)] * 30_000,
    "one wide character": [Entry(f"{number:04}\U0001f600" + "n" * 999) for number in range(900)],
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_memory_is_bounded_by_settings(case: str, traced: None) -> None:
    """A header costs 300 bytes and a few times its name, if members fail, too."""
    raw = build(*HOSTILE[case])
    piece = MIB // 4
    policy = Policy(limits=replace(Limits(), folder_memory=piece))
    gc.collect()
    tracemalloc.start()
    index = read_index(raw, policy, piece)
    kept, peak = tracemalloc.get_traced_memory()
    assert index.entries == len(HOSTILE[case])
    bound = sum(300 + 2 * min(1_100, len(entry.raw_name)) for entry in HOSTILE[case])
    assert kept < bound + MIB // 2
    # A piece of the directory in several forms, and what is kept. The last name is always whole.
    assert peak < bound + (18 if case.startswith("long") else 12) * MIB


def test_long_names_are_cut() -> None:
    """What cannot be a key is kept and shown as its beginning; the name of a failure is not."""
    names = ["n" * 65_000, "../" + "n" * 65_000, "k\0" * 30_000]
    index = _index_of(*map(Entry, names), Entry("x" * 300, b"x" * 12, flags=1))
    assert [(found.code, len(member.path)) for member, found in index.failures] == [
        ("key-too-long", 203),
        ("name-dotdot", 203),
        ("name-nul", 203),
        ("encrypted", 300),
    ]
    assert all(len(str(finding)) < 1_500 for _, finding in index.failures)


def test_normalising_is_bounded() -> None:
    """Names are measured before they are folded, and long runs of marks are not normalised."""
    marks = "\u0323\u0301" * 10_000  # out of order: sorting them takes the square of their number
    assert fold_key("E" + marks) == "e" + marks
    raw = build(Entry("e" + marks), Entry("f" + marks[:200]), Entry("g" + marks[:20]))
    index = read_index(raw, Policy(lenient=True))
    codes = {member.path[0]: finding.code for member, finding in index.failures}
    assert (codes, index.warnings["name-combining-run"]) == ({"e": "key-too-long"}, 2)
    assert [has_long_marks(marks[:length]) for length in (200, 20)] == [True, False]


@pytest.mark.parametrize("listings", [1, 3])
@pytest.mark.parametrize("place", [0, 2])
def test_a_member_that_reaches_the_next_one_is_refused(place: int, listings: int) -> None:
    """The finding names both, and where each begins, even if the first is listed several times."""
    offset = 36 * place
    entries = [Entry(name, b"12345") for name in "abcd"]
    entries[place : place + 1] = [
        Entry(
            "abcd"[place],
            b"12345",
            central={"compressed_size": 7, "size": 7, "offset": offset},
            present=not repetition,
        )
        for repetition in range(listings)
    ]
    with pytest.raises(RejectedError) as caught:
        _index_of(*entries, policy=Policy(lenient=True))
    assert str(caught.value) == (
        f"{'abcd'[place]!r}: overlap at byte {offset}: it ends at {offset + 37} or later, but "
        f"{'abcd'[place + 1]!r} begins at {offset + 36}"
    )


def test_a_directory_in_another_order() -> None:
    """Members are sorted by offset, failures by their places in the directory, with both known."""
    raw = build(Entry("a"), Entry("b", b"22"), Entry("../c"), Entry("../d"))
    start = len(raw) - 22 - 2 * 47 - 2 * 50
    headers = [raw[start:][:47], raw[start + 47 :][:47], raw[start + 94 :][:50], raw[-72:-22]]
    index = read_index(raw[:start] + b"".join(reversed(headers)) + raw[-22:], Policy())
    members = [*index.members, *(member for member, _ in index.failures)]
    assert [(member.index, member.path, member.offset, member.stop) for member in members] == [
        (3, "a", 0, 31),
        (2, "b", 31, 64),
        (0, "../d", 98, 132),
        (1, "../c", 64, 98),
    ]


def test_raw_names_are_kept_as_they_are() -> None:
    """A name keeps its own bytes, unless it is its path in ASCII."""
    names: tuple[str | bytes, ...] = ("\u00e9", b"\x81", "plain", "./x")
    members = _index_of(*map(Entry, names)).members
    assert [(member.path, member.raw_name, member.name_bytes) for member in members] == [
        ("\u00e9", "\u00e9".encode(), "\u00e9".encode()),
        ("\u00fc", b"\x81", b"\x81"),
        ("plain", None, b"plain"),
        ("x", b"./x", b"./x"),
    ]


def test_selected_members() -> None:
    """What is selected has its own length, places, slices and sums, in the archive's order."""
    raw = build(Entry("a", b"1"), Entry("b.json", b"22"), Entry("d.json", b"4444"))
    chosen = _index_through(raw, Selection(selects=lambda path: path.endswith(".json"))).selected
    assert [[one.path for one in part] for part in (chosen, chosen[1:], chosen[-1:])] == [
        ["b.json", "d.json"],
        ["d.json"],
        ["d.json"],
    ]
    with pytest.raises(IndexError):
        chosen[2]
    assert (len(chosen), chosen[-1].path, chosen.size, chosen.compressed_size) == (
        2,
        "d.json",
        6,
        6,
    )
    nothing = _index_through(raw, Selection(limit=0)).selected
    assert (len(nothing), list(nothing), nothing.size) == (0, [], 0)


def _first_of(raw: bytes) -> Member:
    return read_index(raw, Policy()).members[0]


def test_asks_for_what_it_needs() -> None:
    """A short head is answered with the number of bytes wanted, never more than there are.

    Thousands of invalid Unicode path fields cost one reading of the name.
    """
    raw = build(Entry("a" * 500, b"data", local_extra=extra(0x7075, b"\1none") * 6_000))
    member = _first_of(raw)
    assert open_member(member, raw[:29], Policy()) == HEAD_LENGTH
    need = open_member(member, raw[:1024], Policy())
    assert need == 30 + 500 + 54_000
    with Profile() as profile:
        assert open_member(member, raw[:need], Policy()) == OpenedMember(
            need, has_descriptor=False, time_high=raw[11], declares_content=True
        )
    assert sum(function.callcount for function in profile.getstats()) < 6_000 * 30
    assert open_member(_first_of(build(Entry("a", b"x"))), b"", Policy()) == 32


def test_no_room_for_a_header() -> None:
    """A member whose bound leaves no room for a local header fails."""
    raw = build(Entry("a", b"x"))
    with pytest.raises(MemberError, match="lfh-truncated"):
        open_member(replace(_first_of(raw), stop=20), raw[:20], Policy())


def test_finding_says_where() -> None:
    """A finding names the check, the member and the byte."""
    raw = build(Entry("first", b"1"), Entry("second", b"2", local={"method": 8}))
    member = read_index(raw, Policy()).members[1]
    with pytest.raises(MemberError, match=r"^'second': lfh-method-mismatch at byte 36: "):
        open_member(member, raw[member.offset :], Policy())


# Encrypted members and split archives, in any cuts


@settings(max_examples=60, deadline=None)
@given(
    content=st.binary(max_size=200),
    password=st.binary(min_size=1, max_size=80),
    seal=st.sampled_from(list(SEALS.values())),
    method=st.sampled_from([STORED, DEFLATE]),
    step=st.integers(1, 60),
)
def test_round_trip(
    content: bytes,
    password: bytes,
    seal: Callable[[labels.Member, bytes], labels.Member],
    method: int,
    step: int,
) -> None:
    """Any content comes back with any password, cut anywhere."""
    assert extract(
        build(seal(labels.Member("a", content, method), password)),
        Policy(password=password),
        step,
    ).members[0] == labels.extracted("a", content)


def test_password_is_in_no_representation() -> None:
    """What is logged of a policy does not hold its password."""
    assert "sesame" not in repr(Policy(password=b"open sesame"))


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
    read = extract(b"".join(parts), Policy(), step, Disks([len(part) for part in parts]))
    assert (read, count_disks(parts[-1])) == (WHOLE, len(parts))


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        (build(*ENTRIES), 1),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 4}, comment=b"text")), 5),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 4}, trailing=b"text")), 5),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 8224, "comment_length": 8224})), 1),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 0xFFFF})), 1),
        (
            build(
                *ENTRIES, shape=replace_entry(ZIP64, eocd={"disk": 0xFFFF}, locator={"disks": 70})
            ),
            70,
        ),
        (
            build(
                *ENTRIES,
                shape=replace_entry(
                    ZIP64, eocd={"disk": 0xFFFF}, locator={"disks": 70}, trailing=b"text"
                ),
            ),
            70,
        ),
        (b"MZ" + build(shape=Shape(eocd={"disk": 5}, trailing=b"code")), 1),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 5}, trailing=b"code"))[-32:], 1),
        (build(*ENTRIES)[:-22] + b"code" + build(shape=Shape(eocd={"disk": 5})) + b"code", 1),
        (build(shape=Shape(eocd={"disk": 0xFFFF}))[-22:], 1),
        (b"no end record", 1),
    ],
    ids=[
        "one",
        "a comment",
        "bytes after it",
        "cut short",
        "no locator",
        "a locator",
        "bytes after it and a locator",
        "a constant of a program",
        "a constant behind other bytes",
        "a constant behind a directory",
        "the record alone",
        "none",
    ],
)
def test_count_of_disks(raw: bytes, count: int) -> None:
    """The count is in the end record, or in the locator where that has only a sentinel."""
    assert count_disks(raw) == count
