"""The archives of the acceptance set: valid, the same each time, and never whole in memory."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
import zipfile
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from acceptance.archives import Archive, PieceReader
from acceptance.cases import one_member, small_archive, split_size
from acceptance.contents import encrypt, large_member, small_member, stored_member
from acceptance.published import PUBLISHED, make_archive
from s3unzip.forecast import find_fixture
from s3unzip.settings import GIB, MIB, make_tuning
from tests.encrypting import encrypt_aes

if TYPE_CHECKING:
    from acceptance.published import Scaled


def read(archive: Archive) -> zipfile.ZipFile:
    """Return the archive, opened by Python's own reader."""
    return zipfile.ZipFile(io.BytesIO(b"".join(archive.pieces())))


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.name)
def test_small_scale_archives_are_valid(one: Scaled) -> None:
    """Every member of a scaled-down archive has its CRC-32, and every sample its bytes."""
    archive = make_archive(one, full=False)
    with read(archive) as made:
        assert made.testzip() is None
        assert len(made.namelist()) == archive.count
        stretches = list(archive.samples())
        for stretch in stretches:
            whole = made.read(stretch.name)
            assert whole[stretch.offset : stretch.offset + len(stretch.data)] == stretch.data
        assert {made.namelist()[0], made.namelist()[-1]} <= {one.name for one in stretches}


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.name)
def test_members_are_as_large_as_published(one: Scaled) -> None:
    """A member has the published size, and is compressed about as well."""
    fixture = find_fixture(one.name)
    member = next(make_archive(one, full=fixture.members > 1).members())
    if fixture.members > 1:
        assert member.size == fixture.size
    share = member.content.compressed_size / member.size
    assert share == pytest.approx(fixture.compressed / fixture.size, rel=0.15)


def test_the_same_archive_each_time() -> None:
    """Two makings give the same bytes, and two members never the same content."""
    first, second = (
        hashlib.sha256(b"".join(small_archive(50).pieces())).digest() for _ in range(2)
    )
    assert first == second
    with read(small_archive(50)) as made:
        assert len({made.read(name) for name in made.namelist()}) == 50


def test_a_hundred_gigabytes_need_no_memory() -> None:
    """The member of 100 GB is sent piece by piece; no piece and no sum of them is large."""
    (one,) = (one for one in PUBLISHED if one.name == "100gb")
    archive = make_archive(one, full=True)
    tracemalloc.start()
    size = largest = 0
    for piece in archive.pieces():
        size += len(piece)
        largest = max(largest, len(piece))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (member,) = archive.members()
    assert member.size >= 100_000_000_000
    assert size > member.content.compressed_size > 30 * GIB
    assert largest < 4 * MIB
    assert peak < 32 * MIB


def test_published_counts() -> None:
    """At full scale the archives have the members that others measured with."""
    counts = {one.name: make_archive(one, full=True).count for one in PUBLISHED}
    assert counts == {"49k": 49_152, "1k": 1_000, "400k": 400_000, "100gb": 1}


def test_a_reader_gives_what_the_pieces_hold() -> None:
    """Reads of any length put the pieces together, empty ones too."""
    pieces = [b"abc", b"", b"d", b"efghij"]
    stream = io.BufferedReader(PieceReader(iter(pieces)), buffer_size=4)
    assert [stream.read(4), stream.read(5), stream.read(), stream.read()] == [
        *(b"abcd", b"efghi", b"j"),
        b"",
    ]


def test_plain_bytes_at_any_place() -> None:
    """The head and the repeated unit are distinguished, across their borders and at the end."""
    member = small_member(7, 1_000, 0.4)
    whole = member.plain(0, 10_000)
    assert len(whole) == member.size == 1_000
    cuts = [0, 3, 19, 20, 500, 999, 1_000]
    assert b"".join(member.plain(a, b - a) for a, b in pairwise(cuts)) == whole
    stored = stored_member("s", 3 * MIB)
    assert stored.plain(MIB - 2, 4) == (stored.unit + stored.unit)[MIB - 2 : MIB + 2]


@pytest.mark.parametrize("version", [1, 2])
def test_encryption_is_winzips(version: int) -> None:
    """The data is what an encoder written apart from this one makes of it."""
    member = small_member(1, 3_000, 0.4)
    sealed = encrypt(member, b"password", version)
    plain = b"".join(member.content.pieces())
    (data,) = sealed.content.chunks
    assert data == encrypt_aes(plain, b"password")
    assert bool(sealed.content.crc32) is (version == 1)


def test_a_split_member_follows_the_tuning() -> None:
    """The compressed data is larger than the environment's `split_from`, for any value of it."""
    for changes in ({}, {"split_from": 2 * MIB, "segment_bytes": MIB}):
        tuning = make_tuning(changes)
        size = split_size(tuning, 0.28)
        member = large_member("m", min(size, 64 * MIB), 0.4)
        share = member.content.compressed_size / member.size
        assert size * share > tuning.split_from
        assert size >= tuning.small_member


def test_a_cut_archive_is_none() -> None:
    """What is put as a refused archive has no end."""
    whole = small_archive(3)
    with pytest.raises(zipfile.BadZipFile):
        read(Archive(whole.members, 3, cut=30))
    assert one_member(small_member(0, 100, 0.4)).count == 1
