"""Archives above 4 GiB without ZIP64: which members they have is proved, or they are refused."""

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from s3unzip.errors import MemberError, RejectedError
from s3unzip.zip import (
    ByteRange,
    Index,
    Limits,
    Member,
    OpenedMember,
    Policy,
    Selection,
    close_member,
    drive,
    open_member,
)
from s3unzip.zip.decode import MemberDecoder
from s3unzip.zip.members import SELECTED, HeaderTable
from s3unzip.zip.records import LOCAL_LENGTH
from s3unzip.zip.wrapped import MAX_PROBES, find_long_members
from tests.corpus.ways import read_index_by
from tests.support.mac_zips import GIB, WRAP, MacFile, Sparse, build_mac, deflate_zeros, deflated
from tests.support.zips import DEFLATE, Shape, build

BIG = 5 * GIB


def _read_mac(
    archive: Sparse, policy: Policy | None = None, selection: Selection | None = None
) -> Index:
    policy = policy or Policy()
    return read_index_by(archive.read, archive.size, policy, selection=selection)


def _codes_of(archive: Sparse, policy: Policy | None = None) -> set[str]:
    try:
        index = _read_mac(archive, policy)
    except RejectedError as refusal:
        return {refusal.finding.code}
    return {finding.code for _, finding in index.failures} | set(index.warnings)


def _headers_of(archive: Sparse) -> list[int]:
    return [place for place, piece in archive.pieces.items() if piece.startswith(b"PK\3\4")]


def _stored(*sizes: int) -> list[MacFile]:
    return [MacFile(f"{number}.bin", size) for number, size in enumerate(sizes)]


def compressed(*sizes: int) -> list[MacFile]:
    """Return files whose data have these sizes; nobody could inflate them."""
    return [
        MacFile(f"{number}.bin", 3 * size, filled=size, method=DEFLATE)
        for number, size in enumerate(sizes)
    ]


def _check_member(archive: Sparse, file: MacFile, member: Member) -> list[str]:
    assert (member.compressed_size, member.has_size(file.size)) == (file.compressed_size, True)
    assert member.size == file.size or file.method == DEFLATE
    head = archive.read(ByteRange(member.offset, min(member.stop, member.offset + 1000)))
    opened = open_member(member, head, Policy())
    assert isinstance(opened, OpenedMember)
    stop = member.offset + opened.data_start + member.compressed_size
    return close_member(member, opened, archive.read(ByteRange(stop, member.stop)))


# How headers and descriptors share what they say: those of Archive Utility, of ditto, of a writer
# that leaves descriptors out, and of one that announces none.
FORMS: list[dict[str, Any]] = [
    {},
    {"is_complete": True},
    {"is_complete": True, "has_descriptor": False},
    {"flags": 0},
]
FILES = st.tuples(
    st.sampled_from([0, 5, 3 * GIB, WRAP - 1, WRAP, WRAP + 5, 9 * GIB, 17 * GIB]),
    st.sampled_from([_stored, compressed]),
).filter(lambda file: file != (0, compressed))  # a compressed file has at least two bytes


@settings(max_examples=200, deadline=None)
@given(st.lists(FILES, min_size=1, max_size=12), st.sampled_from(FORMS))
def test_every_member_is_at_its_place(
    kinds: list[tuple[int, Callable[..., list[MacFile]]]], form: dict[str, Any]
) -> None:
    """Of any lengths in any order: offsets, sizes, headers and descriptors are as written."""
    lengths = [length for length, _ in kinds]
    files = [dataclasses.replace(make(*lengths)[at], **form) for at, (_, make) in enumerate(kinds)]
    archive = build_mac(*files)
    index = _read_mac(archive)
    assert [member.offset for member in index.members] == _headers_of(archive)
    for file, member in zip(files, index.members, strict=True):
        assert _check_member(archive, file, member) == ["dd-absent"] * (not file.has_descriptor)
    assert set(index.warnings) == ({"offsets-wrapped"} if archive.size >= WRAP else set())


def test_a_directory_at_the_last_offset_of_32_bits() -> None:
    """An offset of 4 GiB - 1 is no sentinel if the directory can be there."""
    files = _stored(WRAP - 1 - 30 - 5 - 16 - 16)
    archive = build_mac(*files)
    assert archive.size > WRAP
    assert _check_member(archive, files[0], _read_mac(archive).members[0]) == []


TWO = _stored(BIG, 5)
THREE = _stored(10, BIG, 10)


def _hide_header(archive: Sparse, number: int) -> Sparse:
    place = _headers_of(archive)[number]
    archive.pieces[place] = b"XX" + archive.pieces[place][2:]
    return archive


def _repeat_header(archive: Sparse, number: int, distance: int) -> Sparse:
    place = _headers_of(archive)[number]
    archive.pieces[place + distance] = archive.pieces[place]
    return archive


@pytest.mark.parametrize(
    ("archive", "code"),
    [
        (_hide_header(build_mac(*TWO), 1), "offsets-unproven"),
        (_hide_header(build_mac(*THREE), 0), "offsets-unproven"),
        (_hide_header(build_mac(*THREE), 2), "offsets-unproven"),
        (_repeat_header(build_mac(*TWO), 1, -WRAP), "offsets-unproven"),
        (_repeat_header(build_mac(*TWO), 0, WRAP), "offsets-unproven"),
        (build_mac(*THREE, headers=(2, 1, 0)), "offsets-unproven"),
        (build_mac(*_stored(WRAP, 1, 1), headers=(0, 2, 1)), "offsets-unproven"),
        (build_mac(*_stored(MAX_PROBES * WRAP, 5)), "offsets-unproven"),
        (build_mac(dataclasses.replace(THREE[0], before=WRAP), shift=-WRAP), "prefix-unadjusted"),
        (Sparse({WRAP: build(shape=Shape(comment=b"c" * 24))}, WRAP + 46), "prefix-unadjusted"),
        (build_mac(*THREE, eocd={"directory_offset": 5}), "offsets-ambiguous"),
        (build_mac(*THREE, eocd={"directory_size": 0xFFFFFFFF}), "zip64-locator-missing"),
    ],
)
def test_offsets_without_proof_are_refused(archive: Sparse, code: str) -> None:
    """No local header at the right place, two, too many places, another order: nothing is read.

    Offsets that lack a prefix of 4 GiB are as those that lack any other prefix.
    """
    assert code in _codes_of(archive)


def test_the_first_local_header_is_where_it_is_declared() -> None:
    """A ZIP64 field may move the first member away from its proved offset: that is refused."""
    table = HeaderTable()
    table.add(SELECTED, Member(0, "a", None, 0, GIB, GIB, GIB, 0, 0, 0, None, None))
    archive = Sparse()
    archive.add(b"", WRAP)
    archive.add(b"PK\3\4" + bytes(LOCAL_LENGTH - 4) + b"a", 2 * GIB)
    with pytest.raises(RejectedError, match="offsets-unproven"):
        drive(find_long_members(table, archive.size), archive.read)


@pytest.mark.parametrize(
    ("limits", "codes"),
    [
        ({"total_size": BIG}, {"bomb-total"}),
        ({"member_size": BIG - 1}, {"bomb-member-size"}),
        ({"total_size": BIG + 20, "member_size": BIG}, set()),
    ],
)
def test_limits_hold_for_the_real_sizes(limits: dict[str, int], codes: set[str]) -> None:
    """A limit is compared with what a member has, not with what its header says."""
    policy = Policy(limits=replace(Limits(), **limits))
    assert _codes_of(build_mac(*THREE), policy) - {"offsets-wrapped"} == codes


@pytest.mark.parametrize(
    ("selection", "codes"),
    [
        (Selection(), []),
        (Selection(reserved="big"), ["name-reserved"]),
        (Selection(lambda path: 400 * path), ["key-too-long"]),
    ],
)
def test_a_long_member_may_have_an_impossible_key(selection: Selection, codes: list[str]) -> None:
    """The ratio of its headers is false, and becomes plausible; the fault of its key stays."""
    index = _read_mac(
        build_mac(MacFile("big", 3 * WRAP + 2 * GIB, filled=WRAP + 100, method=DEFLATE)),
        selection=selection,
    )
    assert [finding.code for _, finding in index.failures] == codes


@pytest.mark.parametrize(
    ("selection", "codes"),
    [
        (Selection(selects=lambda path: path != "big"), []),
        (Selection(lambda path: 400 * path if path == "big" else path), ["key-too-long"]),
    ],
)
def test_a_long_member_without_a_key_is_not_compared(
    selection: Selection, codes: list[str]
) -> None:
    """If it is too large, it still has no key, and all other keys are compared."""
    policy = Policy(limits=replace(Limits(), member_size=BIG - 1))
    files = [MacFile("big", BIG), MacFile("x", 5), MacFile("X", 5)]
    index = _read_mac(build_mac(*files), policy, selection)
    assert [finding.code for _, finding in index.failures] == codes
    assert ([member.path for member in index.selected], index.warnings["case-collision"]) == (
        ["x", "X"],
        1,
    )
    with pytest.raises(RejectedError, match="duplicate-name"):
        _read_mac(build_mac(*files, MacFile("x", 5)), policy, selection)


@pytest.mark.parametrize(
    "change",
    [{"described": {"crc32": 1}}, {"local": {"size": 1}}, {"has_descriptor": False}],
)
def test_a_long_member_needs_its_descriptor(change: dict[str, Any]) -> None:
    """If header or descriptor disagree, nothing tells of the size, and the reason says so."""
    file = MacFile("big", BIG, **change)
    archive = build_mac(file, *_stored(5))
    with pytest.raises(MemberError, match="size-unproven"):
        _check_member(archive, file, _read_mac(archive).members[0])


def test_a_stream_that_grew_keeps_its_size() -> None:
    """Deflate may be longer than its content: that alone is no sign of 4 GiB more."""
    file = MacFile("a", 4_000_000, filled=5_000_000, method=DEFLATE)
    assert (_member_of(file).size, _member_of(dataclasses.replace(file, size=4_000)).size) == (
        4_000_000,
        WRAP + 4_000,
    )


def _decode(member: Member, data: bytes, policy: Policy) -> MemberDecoder:
    decoder = MemberDecoder(member, policy)
    deque(decoder.decode([data]), maxlen=0)
    return decoder


def _member_of(file: MacFile) -> Member:
    return _read_mac(build_mac(file)).members[0]


def test_a_wrapped_size_is_proved_by_the_data() -> None:
    """4 GiB more than declared are right; with another size, CRC-32 or limit they are not."""
    file = deflated("a", WRAP + 7)
    member = _member_of(file)
    decoder = _decode(member, file.data or b"", Policy())
    assert (decoder.size, decoder.warnings) == (WRAP + 7, ["size-wrapped"])
    with pytest.raises(MemberError, match="bomb-wrapped-size"):
        list(MemberDecoder(member, Policy(), max_size=0).feed(file.data or b""))
    for wrong, code, policy in (
        (replace(member, size=WRAP + 8), "size-mismatch", Policy()),
        (replace(member, crc32=1), "crc-mismatch", Policy()),
        (replace(member, flags=0, size=7), "size-overrun", Policy()),
        (
            replace(member, size=7),
            "bomb-wrapped-size",
            Policy(limits=replace(Limits(), member_size=GIB)),
        ),
    ):
        with pytest.raises(MemberError, match=code):
            _decode(wrong, file.data or b"", policy)


@pytest.mark.parametrize(
    ("change", "is_wrapped"),
    [
        ({}, True),
        ({"flags": 0}, True),
        ({"data": deflate_zeros(WRAP)[:-1_000]}, True),
        ({"data": bytes(4_000_000)}, False),  # too few bytes for 4 GiB
        ({"method": 12}, False),
    ],
)
def test_which_sizes_may_be_wrapped(change: dict[str, object], is_wrapped: bool) -> None:  # noqa: FBT001
    """Only a deflated member whose bytes can stand for 4 GiB more may declare too little."""
    assert _member_of(dataclasses.replace(deflated("a", WRAP), **change)).is_wrapped == is_wrapped  # type: ignore[arg-type]
