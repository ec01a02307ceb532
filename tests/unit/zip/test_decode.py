"""Decoding: bounded pieces, bounded memory, and every way a stream can be wrong."""

import gzip
import struct
import tracemalloc
import zlib
from functools import cache
from random import Random

import pytest
import zstandard
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from s3unzip.errors import MemberError
from s3unzip.zip import Member, Policy
from s3unzip.zip.decode import (
    PIECE_LENGTH,
    GzipMember,
    MemberDecoder,
    decode_member,
    gzip_length,
)
from tests.support.zips import BZIP2, DEFLATE, LZMA, METHODS, STORED, XZ, ZSTD, compress

MIB = 1 << 20
TEXT = b"The quick brown fox. " * 500


def _member_of(method: int, data: bytes, content: bytes, *, flags: int | None = None) -> Member:
    flags = 2 * (method == LZMA) if flags is None else flags
    sums = len(data), len(content), zlib.crc32(content)
    return Member(0, "m", None, 0, 100 + len(data), *sums, method, flags, None, None)


def _decode(member: Member, data: bytes, step: int, policy: Policy | None = None) -> bytes:
    """Decode a member from pieces of `step` bytes; 0 stands for the way of small members."""
    if not step:
        return bytes(decode_member(member, data, policy or Policy()).content)
    decoder = MemberDecoder(member, policy or Policy())
    pieces = []
    for start in range(0, len(data), step):
        for piece in decoder.feed(data[start : start + step]):
            assert len(piece) <= PIECE_LENGTH
            pieces.append(bytes(piece))
    decoder.finish()
    return b"".join(pieces)


def _codes_of(
    method: int,
    data: bytes,
    content: bytes,
    policy: Policy | None = None,
    *,
    flags: int | None = None,
) -> set[str | None]:
    codes = set[str | None]()
    for step in (0, len(data) or 1, 7, 1):
        try:
            _decode(_member_of(method, data, content, flags=flags), data, step, policy)
            codes.add(None)
        except MemberError as error:
            codes.add(error.finding.code)
    return codes


by_packed = pytest.mark.parametrize(
    "method", tuple(method for method in METHODS if method != STORED), ids=METHODS.get
)


@pytest.mark.parametrize("method", METHODS, ids=METHODS.get)
@pytest.mark.parametrize("content", [b"", b"x", TEXT, bytes(3 * MIB)], ids=len)
def test_round_trip(method: int, content: bytes) -> None:
    """Content comes out whole, in steps and, where it is short, byte by byte."""
    data = compress(method, content)
    member = _member_of(method, data, content)
    steps = (0, len(data) or 1, 4096, *[1] * (len(data) < 20_000))
    assert {_decode(member, data, step) for step in steps} == {content}


def test_stored_is_not_copied() -> None:
    """A stored member's content is the very buffer that was given."""
    data = memoryview(TEXT)
    assert decode_member(_member_of(STORED, TEXT, TEXT), data, Policy()).content is data


@by_packed
def test_bomb_stays_small(method: int, traced: None) -> None:
    """A stream that goes on for 32 MiB past its declared size never fills memory."""
    data = compress(method, bytes(32 * MIB))
    tracemalloc.start()
    assert None not in _codes_of(method, data, bytes(1000))
    assert tracemalloc.get_traced_memory()[1] < 20 * MIB


@by_packed
def test_a_corrupt_stream_is_named(method: int) -> None:
    """The message has the full name of the method."""
    data = compress(method, TEXT)[:10] + b"\xff" * 1000
    with pytest.raises(MemberError, match=f"corrupt-stream.*: {METHODS[method]}: "):
        _decode(_member_of(method, data, TEXT), data, len(data))


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"\x07", "a block has an impossible header"),
        (b"\x1b\x03", "a code is not assigned to a symbol"),
        (b"\x03\x42\x02\x10", "a match points before the beginning of the data"),
    ],
)
def test_a_corrupt_deflate_stream_is_described(start: bytes, words: str) -> None:
    """The message says what is wrong, without the library's code, also where it is streamed."""
    data = start + bytes(300)
    member = _member_of(DEFLATE, data, bytes(500))
    for step in (0, 9):
        with pytest.raises(MemberError, match=f"corrupt-stream.*: deflate: {words}$"):
            _decode(member, data, step)


def test_feeding_too_little_is_found() -> None:
    """A member that was not fed to its end is not whole."""
    data = compress(DEFLATE, TEXT)
    with pytest.raises(MemberError, match="stream-truncated"):
        _decode(_member_of(DEFLATE, data + b"x", TEXT), data, len(data))


def test_frames_share_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many frames a member has, libzstd is asked for one decoder."""
    made = cache(zstandard.ZstdDecompressor)
    monkeypatch.setattr(zstandard, "ZstdDecompressor", made)
    frames = [compress(ZSTD, b"x"), compress(ZSTD, b""), compress(ZSTD, bytes(300_000))]
    data, content = b"".join(frames * 99), b"".join([b"x", bytes(300_000)] * 99)
    assert _decode(_member_of(ZSTD, data, content), data, 0) == content
    assert (made.cache_info().misses, made.cache_info().hits) == (1, 0)


BLOCK = 65_535  # bytes of a stored block at most (RFC 1951, 3.2.4)
NOISE = Random(3).randbytes(3 * BLOCK)


@pytest.mark.parametrize("method", [BZIP2, XZ, ZSTD], ids=METHODS.get)
def test_many_streams_are_not_copied(method: int, traced: None) -> None:
    """Tens of thousands of empty streams are read without a copy of the rest for each."""
    data = compress(method, b"") * 20_000
    tracemalloc.start()
    assert decode_member(_member_of(method, data, b""), data, Policy()).content == b""
    assert tracemalloc.get_traced_memory()[1] < MIB


# Members as gzip files: what `gzip` of the standard library reads, as long as announced

DEFLATED = compress(DEFLATE, TEXT)


def _convert(member: Member, data: bytes, step: int = 999, *, trust_crc: bool = False) -> bytes:
    maker = GzipMember(member, Policy(lenient=True), trust_crc=trust_crc)
    pieces = (data[start : start + step] for start in range(0, len(data), step))
    file = b"".join(bytes(piece) for piece in maker.decode(pieces))
    assert len(file) == gzip_length(member)
    return file


@pytest.mark.parametrize(
    ("mtime", "stored"),
    [(None, 0), (-1, 0), (1 << 32, 0), (0, 0), (1, 1), ((1 << 32) - 1, (1 << 32) - 1)],
)
def test_the_time_of_a_gzip_file_is_the_members(mtime: int | None, stored: int) -> None:
    """The seconds of the archive are those of the file; 0 stands for no time (RFC 1952)."""
    assert struct.unpack(
        "<I", _convert(replace(_member_of(STORED, TEXT, TEXT), mtime=mtime), TEXT)[4:8]
    ) == (stored,)


@pytest.mark.parametrize("method", [STORED, BZIP2])
@given(size=st.integers(0, 3 * BLOCK), step=st.integers(1_000, 200_000))
@example(size=0, step=70_000)
@example(size=1, step=70_000)
@example(size=BLOCK - 1, step=70_000)
@example(size=BLOCK, step=70_000)
@example(size=BLOCK + 1, step=70_000)
@example(size=2 * BLOCK, step=70_000)
@example(size=2 * BLOCK + 1, step=70_000)
def test_other_methods_become_stored_blocks(method: int, size: int, step: int) -> None:
    """However the bytes come, each block but the last is as long as a block may be."""
    data = compress(method, NOISE[:size])
    file = _convert(_member_of(method, data, NOISE[:size]), data, step)
    assert gzip.decompress(file) == NOISE[:size]


@pytest.mark.parametrize(
    ("data", "declared", "trust_crc", "code"),
    [
        (DEFLATED, {"crc32": 1}, False, "crc-mismatch"),
        (DEFLATED[:-1], {}, False, "stream-truncated"),
        (DEFLATED[:-1], {}, True, "stream-truncated"),
        # Gzip has no place for what a lenient policy tolerates elsewhere.
        (
            DEFLATED + b"!",
            {"compressed_size": len(DEFLATED) + 1},
            False,
            "compressed-trailing-bytes",
        ),
    ],
)
def test_a_damaged_deflate_stream_makes_no_gzip_file(
    data: bytes, declared: dict[str, int], code: str, *, trust_crc: bool
) -> None:
    """The stream is inflated and compared; its length also where the CRC-32 is trusted."""
    member = replace(_member_of(DEFLATE, DEFLATED, TEXT), **declared)
    with pytest.raises(MemberError, match=code):
        _convert(member, data, trust_crc=trust_crc)
