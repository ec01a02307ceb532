"""Decoding: bounded pieces, bounded memory, and every way a stream can be wrong."""

import gzip
import lzma
import struct
import tracemalloc
import zlib
from random import Random

import pytest
import zstandard
from hypothesis import given, strategies as st
from msgspec.structs import replace

from s3unzip.errors import MemberError
from s3unzip.zip import GzipMember, Limits, Member, Policy, gzip_length
from s3unzip.zip.decode import PIECE_LENGTH, MemberDecoder, decode_whole
from tests.support.zips import BZIP2, DEFLATE, DEFLATE64, LZMA, METHODS, STORED, XZ, ZSTD, compress

MIB = 1 << 20
TEXT = b"The quick brown fox. " * 500
NAMES = {
    STORED: "stored", DEFLATE: "deflate", DEFLATE64: "deflate64", BZIP2: "bzip2", LZMA: "lzma",
    ZSTD: "zstd", XZ: "xz",
}  # fmt: skip


def _member_of(method: int, data: bytes, content: bytes, *, flags: int | None = None) -> Member:
    flags = (2 if method == LZMA else 0) if flags is None else flags
    sums = len(data), len(content), zlib.crc32(content)
    return Member(0, "m", None, 0, 100 + len(data), *sums, method, flags, None, None)


def _decode(member: Member, data: bytes, step: int, policy: Policy | None = None) -> bytes:
    decoder = MemberDecoder(member, policy or Policy())
    pieces = []
    for start in range(0, len(data), step):
        for piece in decoder.feed(data[start : start + step]):
            assert len(piece) <= PIECE_LENGTH
            pieces.append(bytes(piece))
    decoder.finish()
    return b"".join(pieces)


def _code_of(member: Member, data: bytes, policy: Policy | None = None) -> set[str | None]:
    codes: set[str | None] = set()
    for step in (0, len(data) or 1, 7, 1):
        try:
            if step:
                _decode(member, data, step, policy)
            else:
                decode_whole(member, data, policy or Policy())
            codes.add(None)
        except MemberError as error:
            codes.add(error.finding.code)
    return codes


by_packed = pytest.mark.parametrize(
    "method", tuple(method for method in METHODS if method != STORED), ids=NAMES.get
)


@pytest.mark.parametrize("method", METHODS, ids=NAMES.get)
@pytest.mark.parametrize("content", [b"", b"x", TEXT, bytes(3 * MIB)], ids=len)
def test_round_trip(method: int, content: bytes) -> None:
    """Content comes out whole, in steps and, where it is short, byte by byte."""
    data = compress(method, content)
    member = _member_of(method, data, content)
    assert decode_whole(member, data, Policy()) == content
    for step in (len(data) or 1, 4096, *([1] if len(data) < 20_000 else [])):
        assert _decode(member, data, step) == content


def test_stored_is_not_copied() -> None:
    """A stored member's content is the very buffer that was given."""
    data = memoryview(TEXT)
    assert decode_whole(_member_of(STORED, TEXT, TEXT), data, Policy()) is data


@by_packed
@pytest.mark.parametrize("spare", [1, 5, 2000])
def test_trailing_bytes(method: int, spare: int) -> None:
    """Bytes after the stream fail the member, and are ignored by a lenient policy."""
    data = compress(method, TEXT) + b"\x01" * spare
    member = _member_of(method, data, TEXT)
    assert _code_of(member, data) == {"compressed-trailing-bytes"}
    assert _code_of(member, data, Policy(lenient=True)) == {None}


@by_packed
def test_bomb_stays_small(method: int) -> None:
    """A stream that goes on for 32 MiB past its declared size never fills memory."""
    data = compress(method, bytes(32 * MIB))
    member = _member_of(method, data, bytes(1000))
    tracemalloc.start()
    try:
        with pytest.raises(MemberError):
            _decode(member, data, len(data))
        with pytest.raises(MemberError):
            decode_whole(member, data, Policy())
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [ZSTD, LZMA, XZ], ids=NAMES.get)
def test_window_is_bounded(method: int) -> None:
    """A stream that asks for more decoder memory than allowed fails before it gets it."""
    content = TEXT * 4000
    data, memory = compress(method, content), 4096 if method == LZMA else -8 * MIB
    if method == ZSTD:
        parameters = zstandard.ZstdCompressionParameters(window_log=27)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        data, memory = stream.compress(content) + stream.flush(), MIB
    policy = Policy(limits=Limits(decoder_memory=memory))
    assert _code_of(_member_of(method, data, content), data[:300], policy) == {"memory-bound"}


def test_lzma_of_known_size_with_a_marker() -> None:
    """A marker at the end of a stream whose size is known is no corruption."""
    for content in (b"", TEXT):
        data = compress(LZMA, content)
        assert _code_of(_member_of(LZMA, data, content, flags=0), data) == {None}
        data += b"\x09\x04\x05" * 50
        member = _member_of(LZMA, data, content, flags=0)
        assert _code_of(member, data, Policy(lenient=True)) == {None}


@by_packed
def test_a_corrupt_stream_is_named(method: int) -> None:
    """The message has the full name of the method."""
    data = compress(method, TEXT)[:10] + b"\xff" * 1000
    with pytest.raises(MemberError, match=f"corrupt-stream.*: {NAMES[method]}: "):
        _decode(_member_of(method, data, TEXT), data, len(data))


def test_feeding_too_little_is_found() -> None:
    """A member that was not fed to its end is not whole."""
    data = compress(DEFLATE, TEXT)
    decoder = MemberDecoder(_member_of(DEFLATE, data + b"x", TEXT), Policy())
    list(decoder.feed(data))
    with pytest.raises(MemberError, match="stream-truncated"):
        decoder.finish()


def test_frames_share_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many frames a member has, libzstd is asked for one decoder."""
    made: list[int] = []
    make = zstandard.ZstdDecompressor

    def count(max_window_size: int) -> zstandard.ZstdDecompressor:
        made.append(max_window_size)
        return make(max_window_size=max_window_size)

    monkeypatch.setattr(zstandard, "ZstdDecompressor", count)
    data = b"".join(
        [compress(ZSTD, b"x"), compress(ZSTD, b""), compress(ZSTD, bytes(300_000))] * 99
    )
    content = b"".join([b"x", bytes(300_000)] * 99)
    assert decode_whole(_member_of(ZSTD, data, content), data, Policy()) == content
    assert made == [Limits().decoder_memory]


CHAINED = {
    BZIP2: [compress(BZIP2, b"one "), compress(BZIP2, b""), compress(BZIP2, b"two")],
    XZ: [compress(XZ, b"one "), compress(XZ, b""), bytes(8), compress(XZ, b"two"), bytes(4)],
    ZSTD: [compress(ZSTD, b"one "), compress(ZSTD, b""), compress(ZSTD, b"two")],
}


@pytest.mark.parametrize("method", CHAINED, ids=NAMES.get)
def test_streams_one_after_the_other(method: int) -> None:
    """Several streams are one content, as their own tools read them, in any cuts."""
    data = b"".join(CHAINED[method])
    member = _member_of(method, data, b"one two")
    assert decode_whole(member, data, Policy()) == b"one two"
    for step in (1, 2, 3, 7, 50):
        assert _decode(member, data, step) == b"one two"


@pytest.mark.parametrize("method", [BZIP2, XZ])
def test_a_stream_may_end_far_inside_of_what_came(method: int) -> None:
    """The next stream begins where the one before it ended, however much came at once."""
    contents = [Random(seed).randbytes(40_000) for seed in (1, 2)]
    data = b"".join(compress(method, content) for content in contents)
    member = _member_of(method, data, b"".join(contents))
    assert _decode(member, data, len(data)) == b"".join(contents)


def test_deflate_may_begin_with_blocks_that_hold_nothing() -> None:
    """More empty blocks than one call takes yield nothing, and the content follows."""
    empty = bytes.fromhex("000000ffff") * 30_000  # stored blocks of no byte (RFC 1951, 3.2.4)
    data = empty + compress(DEFLATE, TEXT)
    assert _decode(_member_of(DEFLATE, data, TEXT), data, len(data)) == TEXT


def test_xz_needs_more_than_its_dictionary() -> None:
    """The limit is for the dictionary; what liblzma needs besides is added."""
    data = lzma.compress(TEXT, preset=0)  # 256 KiB
    policy = Policy(limits=Limits(decoder_memory=1 * MIB))
    assert _decode(_member_of(XZ, data, TEXT), data, len(data), policy) == TEXT


@pytest.mark.parametrize("method", CHAINED, ids=NAMES.get)
def test_bytes_after_a_stream_must_be_a_stream(method: int) -> None:
    """Other bytes after the last stream, or one that is cut short, fail the member."""
    first, *_, last = (part for part in CHAINED[method] if any(part))
    for tail in (b"x", b"BZx and more", b"\xfd7zXX and more", b"\0\0\0"):
        data = first + tail
        assert _code_of(_member_of(method, data, b"one "), data) == {"compressed-trailing-bytes"}
    data = first + last[:-3]
    codes = _code_of(_member_of(method, data, b"one two"), data)
    assert codes <= {"stream-truncated", "size-mismatch"}
    data = first + last
    assert _code_of(_member_of(method, data, b"one "), data) == {"size-overrun"}


@pytest.mark.parametrize("method", CHAINED, ids=NAMES.get)
def test_many_streams_are_not_copied(method: int) -> None:
    """Tens of thousands of empty streams are read without a copy of the rest for each."""
    data = compress(method, b"") * 20_000
    tracemalloc.start()
    try:
        assert decode_whole(_member_of(method, data, b""), data, Policy()) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


# Members as gzip files: what `gzip` of the standard library reads, as long as announced

BLOCK = 65_535  # bytes of a stored block at most (RFC 1951, 3.2.4)
NOISE = Random(3).randbytes(3 * BLOCK)
DEFLATED = compress(DEFLATE, TEXT)
LONGER = {"compressed_size": len(DEFLATED) + 1}


def _convert(member: Member, data: bytes, step: int = 999, *, trust_crc: bool = False) -> bytes:
    maker = GzipMember(member, Policy(lenient=True), trust_crc=trust_crc)
    pieces = (data[start : start + step] for start in range(0, len(data), step))
    return b"".join(bytes(piece) for piece in maker.decode(pieces))


@pytest.mark.parametrize("trust_crc", [False, True])
def test_deflate_stays_as_it_is(*, trust_crc: bool) -> None:
    """The stream of the archive is the stream of the file, with the content's size and CRC-32."""
    data = compress(DEFLATE, TEXT)
    member = replace(_member_of(DEFLATE, data, TEXT), mtime=1_700_000_000)
    file = _convert(member, data, trust_crc=trust_crc)
    assert gzip.decompress(file) == TEXT
    assert file[10:-8] == data
    assert struct.unpack("<III", file[4:8] + file[-8:]) == (
        1_700_000_000,
        zlib.crc32(TEXT),
        len(TEXT),
    )
    assert len(file) == gzip_length(member)


@pytest.mark.parametrize(
    ("mtime", "stored"),
    [(None, 0), (-1, 0), (1 << 32, 0), (0, 0), (1, 1), ((1 << 32) - 1, (1 << 32) - 1)],
)
def test_the_time_of_a_gzip_file_is_the_members(mtime: int | None, stored: int) -> None:
    """The seconds of the archive are those of the file; 0 stands for no time (RFC 1952)."""
    file = _convert(replace(_member_of(STORED, TEXT, TEXT), mtime=mtime), TEXT)
    assert struct.unpack("<I", file[4:8]) == (stored,)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
@pytest.mark.parametrize("method", [STORED, BZIP2])
def test_other_methods_become_stored_blocks(method: int, size: int) -> None:
    """Each block but the last is as long as a block may be."""
    content = NOISE[:size]
    data = compress(method, content)
    member = _member_of(method, data, content)
    file = _convert(member, data, step=70_000)
    assert gzip.decompress(file) == content
    assert len(file) == gzip_length(member)


@given(size=st.integers(0, 3 * BLOCK), step=st.integers(1_000, 200_000))
def test_blocks_do_not_depend_on_the_pieces(size: int, step: int) -> None:
    """However the bytes come, the file has the announced length and the content."""
    content = NOISE[:size]
    member = _member_of(STORED, content, content)
    file = _convert(member, content, step)
    assert gzip.decompress(file) == content
    assert len(file) == gzip_length(member)


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
