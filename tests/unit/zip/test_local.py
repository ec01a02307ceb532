"""Local headers, descriptors and gaps."""

import pytest
from msgspec.structs import replace

from s3unzip.errors import MemberError
from s3unzip.zip import (
    AFTER_LENGTH,
    HEAD_LENGTH,
    Member,
    OpenedMember,
    Policy,
    close_member,
    open_member,
)
from tests.corpus.core import Cut, read_index
from tests.support.zips import DESCRIPTORS, Entry, build, extra


def _first_of(raw: bytes) -> Member:
    return read_index(raw, Policy(), Cut()).members[0]


def test_asks_for_what_it_needs() -> None:
    """A short head is answered with the number of bytes wanted, never more than there are."""
    raw = build(Entry("a" * 500, b"data", local_extra=extra(0x9999, bytes(60_000))))
    member = _first_of(raw)
    assert open_member(member, raw[:29], Policy()) == HEAD_LENGTH
    need = open_member(member, raw[:1024], Policy())
    assert need == 30 + 500 + 60_004
    opened = open_member(member, raw[:need], Policy())
    assert opened == OpenedMember(30 + 500 + 60_004, has_descriptor=False, is_complete=True)
    assert open_member(_first_of(build(Entry("a", b"x"))), b"", Policy()) == 32


def test_no_room_for_a_header() -> None:
    """A member whose bound leaves no room for a local header fails."""
    raw = build(Entry("a", b"x"))
    with pytest.raises(MemberError, match="lfh-truncated"):
        open_member(replace(_first_of(raw), stop=20), raw[:20], Policy())


@pytest.mark.parametrize("form", DESCRIPTORS)
@pytest.mark.parametrize(
    "local", [{}, {"crc32": 0xFFFFFFFF}, {"size": 1, "compressed_size": 1}, {"size": 0xFFFFFFFF}]
)
def test_descriptor_forms(form: str, local: dict[str, int | bytes]) -> None:
    """With a descriptor, header values may be zero, a sentinel, or the right ones."""
    raw = build(Entry("a", b"x", descriptor=form, local=local))
    member = _first_of(raw)
    opened = open_member(member, raw, Policy())
    assert isinstance(opened, OpenedMember)
    codes = close_member(member, opened, raw[32 : member.stop])
    assert codes == ([] if form.startswith("signed") else ["dd-missing-signature"])


def test_odd_descriptors() -> None:
    """A bare one whose CRC-32 looks like the signature is no puzzle; nothing is a mismatch."""
    opened = OpenedMember(31, has_descriptor=True)
    member = _first_of(build(Entry("a", b"12345", descriptor="bare32")))
    forged = replace(member, crc32=int.from_bytes(b"PK\x07\x08", "little"))
    after = b"PK\x07\x08" + (5).to_bytes(4, "little") * 2
    assert close_member(forged, opened, after) == ["dd-missing-signature"]
    with pytest.raises(MemberError, match=r"dd-mismatch.*nothing"):
        close_member(member, opened, b"")


def test_finding_says_where() -> None:
    """A finding names the check, the member and the byte."""
    raw = build(Entry("first", b"1"), Entry("second", b"2", local={"method": 8}))
    member = read_index(raw, Policy(), Cut()).members[1]
    with pytest.raises(MemberError) as caught:
        open_member(member, raw[member.offset :], Policy())
    finding = caught.value.finding
    assert (finding.code, finding.member, finding.offset) == ("lfh-method-mismatch", "second", 36)


def test_a_promise_of_bytes_after_a_member() -> None:
    """What hides within 64 KiB after a member is found, and no more is looked at."""
    for gap, hides in ((0, True), (AFTER_LENGTH - 4, True), (AFTER_LENGTH, False)):
        raw = build(Entry("a", b"x", after=bytes(gap) + b"PK\3\4 hidden"), Entry("b"))
        member = _first_of(raw)
        opened = open_member(member, raw[: member.stop], Policy())
        assert isinstance(opened, OpenedMember)
        stop = opened.data_start + member.compressed_size
        codes = close_member(member, opened, raw[stop : member.stop])
        assert codes == ["hidden-local-header"] * hides
