"""Decoding: bounded pieces, bounded memory, and every way a stream can be wrong."""

import lzma
import tracemalloc
import zlib
from random import Random

import pytest
from backports import zstd

from s3unzip.errors import MemberError
from s3unzip.zip import Limits, Member, Policy
from s3unzip.zip.decode import PIECE_LENGTH, MemberDecoder, decode_whole
from tests.zips import BZIP2, DEFLATE, DEFLATE64, LZMA, METHODS, STORED, XZ, ZSTD, compress

MIB = 1 << 20
TEXT = b"The quick brown fox. " * 500
PACKED = tuple(method for method in METHODS if method != STORED)
NAMES = {
    STORED: "stored", DEFLATE: "deflate", DEFLATE64: "deflate64", BZIP2: "bzip2", LZMA: "lzma",
    ZSTD: "zstd", XZ: "xz",
}  # fmt: skip


def member_of(
    method: int, data: bytes, content: bytes, *, size: int | None = None, flags: int | None = None
) -> Member:
    """Describe a member whose compressed bytes are `data`."""
    flags = (2 if method == LZMA else 0) if flags is None else flags
    return Member(
        index=0,
        path="m",
        raw_name=None,
        offset=0,
        stop=100 + len(data),
        compressed_size=len(data),
        size=len(content) if size is None else size,
        crc32=zlib.crc32(content),
        method=method,
        flags=flags,
        mtime=None,
        mode=None,
    )


def decode(member: Member, data: bytes, step: int, policy: Policy | None = None) -> bytes:
    """Decode in steps, checking that no piece is too long."""
    decoder = MemberDecoder(member, policy or Policy())
    pieces = []
    for start in range(0, len(data), step):
        for piece in decoder.feed(data[start : start + step]):
            assert len(piece) <= PIECE_LENGTH
            pieces.append(bytes(piece))
    decoder.finish()
    return b"".join(pieces)


def code_of(member: Member, data: bytes, policy: Policy | None = None) -> set[str | None]:
    """Return the code by which a member fails: whole, in steps, byte by byte."""
    codes: set[str | None] = set()
    for step in (len(data) or 1, 7, 1):
        try:
            decode(member, data, step, policy)
            codes.add(None)
        except MemberError as error:
            codes.add(error.finding.code)
    try:
        decode_whole(member, data, policy or Policy())
        codes.add(None)
    except MemberError as error:
        codes.add(error.finding.code)
    return codes


by_method = pytest.mark.parametrize("method", METHODS, ids=NAMES.get)
by_packed = pytest.mark.parametrize("method", PACKED, ids=NAMES.get)


@by_method
@pytest.mark.parametrize("content", [b"", b"x", TEXT, bytes(3 * MIB)], ids=len)
def test_round_trip(method: int, content: bytes) -> None:
    """Content comes out whole, in steps and, where it is short, byte by byte."""
    data = compress(method, content)
    member = member_of(method, data, content)
    assert decode_whole(member, data, Policy()) == content
    for step in (len(data) or 1, 4096, *([1] if len(data) < 20_000 else [])):
        assert decode(member, data, step) == content


def test_stored_is_not_copied() -> None:
    """A stored member's content is the very buffer that was given."""
    data = memoryview(TEXT)
    assert decode_whole(member_of(STORED, TEXT, TEXT), data, Policy()) is data


@by_packed
def test_truncated(method: int) -> None:
    """A stream that ends early fails, though its length is the declared one."""
    data = compress(method, TEXT)[:-6]
    assert code_of(member_of(method, data, TEXT), data) == {"stream-truncated"}


@by_packed
def test_too_long(method: int) -> None:
    """Decoding stops at the declared size and one byte."""
    data = compress(method, TEXT + b"more")
    found = code_of(member_of(method, data, TEXT), data)
    assert found <= {"size-overrun", "corrupt-stream", "stream-truncated"}
    assert None not in found


@by_packed
def test_too_short(method: int) -> None:
    """Content shorter than declared fails."""
    data = compress(method, TEXT[:-4])
    assert code_of(member_of(method, data, TEXT), data) == {"size-mismatch"}


@by_packed
@pytest.mark.parametrize("spare", [1, 5, 2000])
def test_trailing_bytes(method: int, spare: int) -> None:
    """Bytes after the stream fail the member, and are ignored by a lenient policy."""
    data = compress(method, TEXT) + b"\x01" * spare
    member = member_of(method, data, TEXT)
    assert code_of(member, data) == {"compressed-trailing-bytes"}
    assert code_of(member, data, Policy(lenient=True)) == {None}


@by_method
def test_wrong_crc(method: int) -> None:
    """Content of the right length with another CRC-32 fails."""
    data = compress(method, TEXT)
    member = member_of(method, data, TEXT)._replace(crc32=1)
    assert code_of(member, data) == {"crc-mismatch"}


@by_packed
def test_garbage(method: int) -> None:
    """What is no stream fails as corrupt, whatever the decoder's own words."""
    data = b"\xff" * 200
    assert code_of(member_of(method, data, TEXT), data) <= {"corrupt-stream", "memory-bound"}


@by_packed
def test_bomb_stays_small(method: int) -> None:
    """A stream that goes on for 32 MiB past its declared size never fills memory."""
    data = compress(method, bytes(32 * MIB))
    member = member_of(method, data, bytes(1000))
    tracemalloc.start()
    try:
        with pytest.raises(MemberError):
            decode(member, data, len(data))
        with pytest.raises(MemberError):
            decode_whole(member, data, Policy())
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [ZSTD, LZMA, XZ], ids=NAMES.get)
def test_window_is_bounded(method: int) -> None:
    """A stream that asks for more decoder memory than allowed fails before it gets it."""
    content = TEXT * 4000
    if method == ZSTD:
        wide = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
        data = wide.compress(content) + wide.flush()
    else:
        data = compress(method, content)
    policy = Policy(limits=Limits(decoder_memory=4096 if method == LZMA else -8 * MIB))
    if method == ZSTD:
        policy = Policy(limits=Limits(decoder_memory=MIB))
    assert code_of(member_of(method, data, content), data[:300], policy) == {"memory-bound"}


def test_lzma_of_known_size_with_a_marker() -> None:
    """A marker at the end of a stream whose size is known is no corruption."""
    for content in (b"", TEXT):
        data = compress(LZMA, content)
        assert code_of(member_of(LZMA, data, content, flags=0), data) == {None}
        data += b"\x09\x04\x05" * 50
        member = member_of(LZMA, data, content, flags=0)
        assert code_of(member, data, Policy(lenient=True)) == {None}


def test_zstd_frames() -> None:
    """Several frames, and skippable ones, make one member."""
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    data = compress(ZSTD, TEXT) + skippable + compress(ZSTD, TEXT)
    assert code_of(member_of(ZSTD, data, TEXT * 2), data) == {None}


def test_feeding_too_little_is_found() -> None:
    """A member that was not fed to its end is not whole."""
    data = compress(DEFLATE, TEXT)
    decoder = MemberDecoder(member_of(DEFLATE, data + b"x", TEXT), Policy())
    list(decoder.feed(data))
    with pytest.raises(MemberError, match="stream-truncated"):
        decoder.finish()


CHAINED = {
    BZIP2: [compress(BZIP2, b"one "), compress(BZIP2, b""), compress(BZIP2, b"two")],
    XZ: [compress(XZ, b"one "), compress(XZ, b""), bytes(8), compress(XZ, b"two"), bytes(4)],
    ZSTD: [compress(ZSTD, b"one "), compress(ZSTD, b""), compress(ZSTD, b"two")],
}


@pytest.mark.parametrize("method", CHAINED, ids=NAMES.get)
def test_streams_one_after_the_other(method: int) -> None:
    """Several streams are one content, as their own tools read them, in any cuts."""
    data = b"".join(CHAINED[method])
    member = member_of(method, data, b"one two")
    assert decode_whole(member, data, Policy()) == b"one two"
    for step in (1, 2, 3, 7, 50):
        assert decode(member, data, step) == b"one two"


@pytest.mark.parametrize("method", [BZIP2, XZ])
def test_a_stream_may_end_far_inside_of_what_came(method: int) -> None:
    """The next stream begins where the one before it ended, however much came at once."""
    contents = [Random(seed).randbytes(40_000) for seed in (1, 2)]
    data = b"".join(compress(method, content) for content in contents)
    member = member_of(method, data, b"".join(contents))
    assert decode(member, data, len(data)) == b"".join(contents)


def test_deflate_may_begin_with_blocks_that_hold_nothing() -> None:
    """More empty blocks than one call takes yield nothing, and the content follows."""
    empty = bytes.fromhex("000000ffff") * 30_000  # stored blocks of no byte (RFC 1951, 3.2.4)
    data = empty + compress(DEFLATE, TEXT)
    assert decode(member_of(DEFLATE, data, TEXT), data, len(data)) == TEXT


def test_xz_needs_more_than_its_dictionary() -> None:
    """The limit is for the dictionary; what liblzma needs besides is added."""
    data = lzma.compress(TEXT, preset=0)  # 256 KiB
    policy = Policy(limits=Limits(decoder_memory=1 * MIB))
    assert decode(member_of(XZ, data, TEXT), data, len(data), policy) == TEXT


@pytest.mark.parametrize("method", CHAINED, ids=NAMES.get)
def test_what_follows_a_stream_must_be_a_stream(method: int) -> None:
    """Other bytes after the last stream, or one that is cut short, fail the member."""
    first, *_, last = (part for part in CHAINED[method] if any(part))
    for tail in (b"x", b"BZx and more", b"\xfd7zXX and more", b"\0\0\0"):
        data = first + tail
        assert code_of(member_of(method, data, b"one "), data) == {"compressed-trailing-bytes"}
    data = first + last[:-3]
    codes = code_of(member_of(method, data, b"one two"), data)
    assert codes <= {"stream-truncated", "size-mismatch"}
    data = first + last
    assert code_of(member_of(method, data, b"one "), data) == {"size-overrun"}


@pytest.mark.parametrize("method", CHAINED, ids=NAMES.get)
def test_many_streams_are_not_copied(method: int) -> None:
    """Tens of thousands of empty streams are read without a copy of the rest for each."""
    data = compress(method, b"") * 20_000
    tracemalloc.start()
    try:
        assert decode_whole(member_of(method, data, b""), data, Policy()) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_tolerated_bytes_are_a_warning() -> None:
    """A lenient policy takes bytes after the stream, and says so, whole and in steps."""
    data = compress(DEFLATE, TEXT) + b"x"
    member, policy = member_of(DEFLATE, data, TEXT), Policy(lenient=True)
    found: list[str] = []
    assert decode_whole(member, data, policy, None, found) == TEXT
    decoder = MemberDecoder(member, policy)
    assert b"".join(bytes(piece) for piece in decoder.decode([data])) == TEXT
    for warnings in (found, decoder.warnings):
        assert warnings == ["compressed-trailing-bytes"]
