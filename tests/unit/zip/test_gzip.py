"""Members as gzip files: what `gzip` of the standard library reads, as long as announced."""

import gzip
import struct
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3unzip.errors import MemberError
from s3unzip.zip import Member, Policy
from s3unzip.zip.decode import GzipMember, gzip_length
from tests.unit.zip.test_decode import member_of
from tests.zips import BZIP2, DEFLATE, STORED, compress

BLOCK = 65_535  # bytes of a stored block at most (RFC 1951, 3.2.4)
NOISE = Random(3).randbytes(3 * BLOCK)
TEXT = b"The quick brown fox. " * 500


def convert(member: Member, data: bytes, step: int = 999, *, trust_crc: bool = False) -> bytes:
    """Return the gzip file of a member whose bytes come in pieces of `step`."""
    maker = GzipMember(member, Policy(lenient=True), trust_crc=trust_crc)
    pieces = (data[start : start + step] for start in range(0, len(data), step))
    return b"".join(bytes(piece) for piece in maker.decode(pieces))


@pytest.mark.parametrize("trust_crc", [False, True])
def test_deflate_stays_as_it_is(*, trust_crc: bool) -> None:
    """The stream of the archive is the stream of the file, with the content's size and CRC-32."""
    data = compress(DEFLATE, TEXT)
    member = member_of(DEFLATE, data, TEXT)._replace(mtime=1_700_000_000)
    file = convert(member, data, trust_crc=trust_crc)
    assert gzip.decompress(file) == TEXT
    assert file[10:-8] == data
    assert struct.unpack("<II", file[-8:]) == (zlib.crc32(TEXT), len(TEXT))
    assert struct.unpack("<I", file[4:8]) == (1_700_000_000,)
    assert len(file) == gzip_length(member)


@pytest.mark.parametrize("mtime", [None, -1, 1 << 32])
def test_a_time_that_gzip_cannot_hold_is_unknown(mtime: int | None) -> None:
    """RFC 1952: 0 stands for no time."""
    file = convert(member_of(STORED, TEXT, TEXT)._replace(mtime=mtime), TEXT)
    assert file[4:8] == bytes(4)


@pytest.mark.parametrize(("mtime", "stored"), [(0, 0), (1, 1), ((1 << 32) - 1, (1 << 32) - 1)])
def test_every_other_time_is_kept(mtime: int, stored: int) -> None:
    """The seconds of the archive are those of the file."""
    file = convert(member_of(STORED, TEXT, TEXT)._replace(mtime=mtime), TEXT)
    assert struct.unpack("<I", file[4:8]) == (stored,)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
@pytest.mark.parametrize("method", [STORED, BZIP2])
def test_other_methods_become_stored_blocks(method: int, size: int) -> None:
    """Each block but the last is as long as a block may be."""
    content = NOISE[:size]
    data = compress(method, content)
    member = member_of(method, data, content)
    file = convert(member, data, step=70_000)
    assert gzip.decompress(file) == content
    assert len(file) == gzip_length(member)


@given(size=st.integers(0, 3 * BLOCK), step=st.integers(1_000, 200_000))
def test_blocks_do_not_depend_on_the_pieces(size: int, step: int) -> None:
    """However the bytes come, the file has the announced length and the content."""
    content = NOISE[:size]
    member = member_of(STORED, content, content)
    file = convert(member, content, step)
    assert gzip.decompress(file) == content
    assert len(file) == gzip_length(member)


def test_a_wrong_content_is_found() -> None:
    """The deflate stream is inflated and compared, unless the CRC-32 is trusted."""
    data = compress(DEFLATE, TEXT)
    member = member_of(DEFLATE, data, TEXT)._replace(crc32=1)
    with pytest.raises(MemberError) as error:
        convert(member, data)
    assert error.value.finding.code == "crc-mismatch"
    assert convert(member, data, trust_crc=True)[10:-8] == data


@pytest.mark.parametrize("trust_crc", [False, True])
def test_a_stream_that_ends_early_is_found(*, trust_crc: bool) -> None:
    """Also where it is not inflated, its length is compared."""
    data = compress(DEFLATE, TEXT)
    with pytest.raises(MemberError) as error:
        convert(member_of(DEFLATE, data, TEXT), data[:-1], trust_crc=trust_crc)
    assert error.value.finding.code == "stream-truncated"


def test_bytes_after_the_stream_have_no_place() -> None:
    """What a lenient policy tolerates elsewhere cannot be in a gzip file."""
    data = compress(DEFLATE, TEXT) + b"!"
    with pytest.raises(MemberError) as error:
        convert(member_of(DEFLATE, data, TEXT), data)
    assert error.value.finding.code == "compressed-trailing-bytes"
