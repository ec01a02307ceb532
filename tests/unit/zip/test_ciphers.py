"""Encrypted members and split archives in the core: any cuts, and every way to be wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from s3unzip.zip import (
    Disks,
    Policy,
    count_disks,
)
from tests.corpus.codecs import SEALS
from tests.corpus.core import Cut, extract
from tests.corpus.labels import Member, Result, extracted
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    MARKER,
    STORED,
    Entry,
    Shape,
    build,
    build_split,
    seal_aes,
    seal_zipcrypto,
)

SECRET = b"p\xc3\xa4ss word\x00\xff"
OPENING = Policy(password=SECRET)
TEXT = b"The quick brown fox. " * 40


@settings(max_examples=60, deadline=None)
@given(
    content=st.binary(max_size=200),
    password=st.binary(min_size=1, max_size=80),
    seal=st.sampled_from(list(SEALS.values())),
    method=st.sampled_from([STORED, DEFLATE]),
    step=st.integers(1, 60),
)
def test_round_trip(
    content: bytes, password: bytes, seal: Callable[[Member, bytes], Member], method: int, step: int
) -> None:
    """Any content comes back with any password, cut anywhere."""
    assert extract(
        build(seal(Member("a", content, method), password)), Policy(password=password), Cut(step)
    ).members[0] == extracted("a", content)


def test_wrong_password_that_passes_the_check_byte() -> None:
    """One wrong password of 256 passes ZipCrypto's check: then the data tells."""
    raw = build(seal_zipcrypto(Entry("a", TEXT, DEFLATE), SECRET))
    guesses = (Policy(password=b"guess %d" % number) for number in range(700))
    codes = {extract(raw, policy).members[0].code for policy in guesses}
    assert codes > {"wrong-password"}
    assert None not in codes


@pytest.mark.parametrize("seal", [seal_zipcrypto, seal_aes])
def test_a_member_that_is_cut_short_fails(seal: Callable[[Entry, bytes], Entry]) -> None:
    """A member cut short anywhere fails, whatever was cut off."""
    sealed = seal(Entry("a", TEXT, DEFLATE), SECRET)
    assert None not in [
        extract(build(replace(sealed, data=sealed.stored_data[:length])), OPENING).members[0].code
        for length in range(len(sealed.stored_data))
    ]


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


def _read_parts(parts: list[bytes], cut: Cut | None = None) -> Result:
    return extract(b"".join(parts), Policy(), cut, Disks([len(part) for part in parts]))


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
    assert (_read_parts(parts, Cut(step)), count_disks(parts[-1])) == (WHOLE, len(parts))


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        (build(*ENTRIES), 1),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 4}, comment=b"text")), 5),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 4}, trailing=b"text")), 5),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 8224, "comment_length": 8224})), 1),
        (build(*ENTRIES, shape=Shape(eocd={"disk": 0xFFFF})), 1),
        (build(*ENTRIES, shape=replace(ZIP64, eocd={"disk": 0xFFFF}, locator={"disks": 70})), 70),
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
        "the record alone",
        "none",
    ],
)
def test_count_of_disks(raw: bytes, count: int) -> None:
    """The count is in the end record, or in the locator where that has only a sentinel."""
    assert count_disks(raw) == count
