"""Archives that want something of the reader: bytes twice, time, memory, or another reading.

Beside them are sound ones that look alike. A reader that trusts its bounds extracts them.
"""

import struct
import zlib
from dataclasses import replace

import zstandard

from s3unzip.model import Options
from tests.corpus.checks import GOOD, INNER, raw, wide
from tests.corpus.labels import (
    ALL_READERS,
    TEXT,
    A,
    B,
    Member,
    archive,
    fails,
    rejects,
    unread,
    warns,
)
from tests.support.streams import EMPTY_BLOCKS, END_OF_STREAM
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    DEFLATE64,
    LZMA,
    SENTINEL,
    XZ,
    ZSTD,
    Shape,
    compress,
    extra,
    zip64_extra,
)

LARGE = b"".join(b"%07d the quick brown fox\n" % (number * 7919 % 10**7) for number in range(9_000))
EMPTY_FRAME = bytes.fromhex("28b52ffd2000010000")  # of zstd
SKIPPED_FRAME = struct.pack("<II", 0x184D2A50, 9) + b"any bytes"
MANY_BYTES = bytes(2_000_000)
LZMA_DATA = compress(LZMA, TEXT)
# Its extra fields hold the whole member B, at byte 75: only its local header tells of it.
HOLDER = replace(A, local_extra=extra(0x9999, bytes(36) + B.local_part()))
_dictionary = zlib.compressobj(6, zlib.DEFLATED, -15, zdict=TEXT)
BEFORE_START = _dictionary.compress(TEXT) + _dictionary.flush()  # copies what it does not have
NESTED = Options(nested_depth=1)
FAR = {"offset": SENTINEL}


def deflated(block: int, flush: int) -> Member:
    """Deflate in blocks of some bytes, with a flush after each."""
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    blocks = (LARGE[at : at + block] for at in range(0, len(LARGE), block))
    data = b"".join(stream.compress(piece) + stream.flush(flush) for piece in blocks)
    return Member("large.txt", LARGE, DEFLATE, data=data + stream.flush())


def _in_streams(method: int) -> Member:
    pieces = (LARGE[at : at + 9_000] for at in range(0, len(LARGE), 9_000))
    return Member("large.txt", LARGE, method, data=b"".join(compress(method, p) for p in pieces))


FLUSHED = deflated(len(LARGE), zlib.Z_FULL_FLUSH).stored_data[: -len(END_OF_STREAM)]
SOUND = {
    "the last segment inflates to nothing": archive(
        Member("large.txt", LARGE, DEFLATE, data=FLUSHED + EMPTY_BLOCKS * 900 + END_OF_STREAM), A
    ),
    "the first segment inflates to nothing": archive(
        Member("large.txt", LARGE, DEFLATE, data=EMPTY_BLOCKS * 900 + FLUSHED + END_OF_STREAM), A
    ),
    "nothing but empty blocks": archive(
        Member("empty", method=DEFLATE, data=EMPTY_BLOCKS * 900 + END_OF_STREAM), A
    ),
    "a block for every 100 bytes": archive(deflated(100, zlib.Z_FULL_FLUSH), A),
    "an empty stored block after every 1,000 bytes": archive(deflated(1000, zlib.Z_SYNC_FLUSH), A),
    "many empty zstd frames": archive(
        Member("m", LARGE, ZSTD, data=EMPTY_FRAME * 4_000 + compress(ZSTD, LARGE)), A
    ),
    "skipped zstd frames": archive(
        Member("m", TEXT, ZSTD, data=SKIPPED_FRAME * 9 + compress(ZSTD, TEXT) + SKIPPED_FRAME), A
    ),
    "zstd frames": archive(_in_streams(ZSTD)),
    "bzip2 streams": unread(ALL_READERS, archive(_in_streams(BZIP2))),
    "xz streams": unread("bsdtar", archive(_in_streams(XZ))),
    "a dictionary of 4 GiB for 35 bytes": archive(
        Member("a", TEXT, LZMA, data=LZMA_DATA[:5] + b"\xff\xff\xff\xff" + LZMA_DATA[9:]), A
    ),
    "an end record in stored content": archive(Member("a", b"PK\5\6" + bytes(18)), A),
    "an archive in stored content, last": archive(A, Member("inner.zip", INNER)),
    "local headers in stored content": archive(Member("a", A.local_header() * 3), A),
    "descriptors in stored content": archive(
        Member(
            "a",
            TEXT
            + struct.pack("<4sIII", b"PK\7\x08", zlib.crc32(TEXT), len(TEXT), len(TEXT))
            + TEXT,
            descriptor="signed32",
        ),
        A,
    ),
    "directory headers in a comment": archive(replace(A, comment=A.central_part(0) * 3), B),
    "a ZIP64 field with two values of three": archive(
        replace(
            A,
            central={"size": SENTINEL, "offset": SENTINEL},
            extra=zip64_extra(len(TEXT), 0),
            local_extra=b"",
        ),
        B,
    ),
    "the longest comment": archive(A, shape=Shape(comment=b"c" * 65_535)),
    "the longest comment of a member": archive(replace(A, comment=b"c" * 65_535), B),
    "the longest extra fields": archive(replace(A, extra=extra(0x9999, bytes(65_531))), B),
    "three hundred empty members": archive(*(Member(f"{number}") for number in range(300))),
    "a hundred directories in another": archive(Member("d/" * 100), A),
    "the end record alone": archive(),
    "a header that is listed twice, and not selected": unread(
        ALL_READERS,
        archive(
            Member("b.txt", TEXT),
            replace(A, key=""),
            replace(A, present=False, central={"offset": 35 + len(TEXT)}, key=""),
            options=Options(exclude=("a.txt",)),
        ),
    ),
    "ZIP64 records of nothing": unread("7zz", archive(shape=Shape(zip64=True))),
}
ROWS = [
    rejects("overlap", archive(A, replace(A, name="b.txt", present=False, central={"offset": 0}))),
    rejects(
        "overlap",
        archive(
            Member("a", extra(0x9999, A.local_part())),
            replace(A, present=False, central={"offset": 35}),
        ),
    ),
    fails("overlap", archive(HOLDER, replace(B, present=False, central={"offset": 75}))),
    fails(
        "size-overrun", archive(Member("a", TEXT, DEFLATE, data=compress(DEFLATE, MANY_BYTES)), A)
    ),
    fails("size-overrun", archive(Member("a", TEXT, BZIP2, data=compress(BZIP2, MANY_BYTES)), A)),
    fails("size-overrun", archive(Member("a", TEXT, ZSTD, data=compress(ZSTD, MANY_BYTES)), A)),
    fails("size-overrun", archive(Member("a", TEXT, XZ, data=compress(XZ, MANY_BYTES)), A)),
    fails(
        "memory-bound",
        archive(
            Member(
                "a", TEXT, ZSTD, data=bytes.fromhex("28b52ffd00a8") + zstandard.compress(TEXT)[6:]
            ),
            A,
        ),
    ),
    fails("corrupt-stream", archive(Member("a", TEXT, DEFLATE, data=b"\7" + bytes(9)), A)),
    fails("corrupt-stream", archive(Member("a", TEXT, DEFLATE, data=b"\1\5\0\0\0hello"), A)),
    fails("corrupt-stream", archive(Member("a", TEXT, DEFLATE, data=BEFORE_START), A)),
    # Matches from before the beginning of the data, found by the fuzzer.
    *(
        fails("corrupt-stream", archive(Member("a", TEXT, DEFLATE64, data=data), A))
        for data in (
            bytes.fromhex("636018bdff47a3a18600008a00000000000000"),
            bytes.fromhex("636018bdff47a3a1860000"),
        )
    ),
    fails("stream-truncated", archive(Member("a", TEXT, DEFLATE, data=EMPTY_BLOCKS), A)),
    fails("size-mismatch", archive(Member("a", TEXT, DEFLATE, data=END_OF_STREAM), A)),
    rejects(
        "too-many-entries", wide(zip64_eocd={"entries": 1 << 63, "disk_entries": 1 << 63}), wide()
    ),
    rejects("cd-out-of-bounds", wide(zip64_eocd={"directory_offset": (1 << 64) - 1}), wide()),
    rejects("cd-out-of-bounds", wide(zip64_eocd={"directory_size": (1 << 64) - 1}), wide()),
    rejects("zip64-record-size", wide(zip64_eocd={"record_size": (1 << 64) - 1}), wide()),
    rejects("zip64-locator-mismatch", wide(locator={"record_offset": (1 << 64) - 1}), wide()),
    rejects(
        "member-out-of-bounds",
        archive(replace(A, central=FAR, extra=zip64_extra((1 << 64) - 1), local_extra=b"")),
        archive(replace(A, central=FAR, extra=zip64_extra(0), local_extra=b"")),
    ),
    rejects(
        "member-out-of-bounds",
        archive(
            replace(
                A,
                central={"compressed_size": SENTINEL},
                extra=zip64_extra((1 << 64) - 1),
                local_extra=b"",
            )
        ),
    ),
    *(rejects("no-eocd", raw(GOOD[:length])) for length in (0, 1, 4, 30, 100, len(GOOD) - 22)),
    *(rejects("no-eocd", raw(GOOD[:-length])) for length in (1, 2, 21, 22)),
    *(rejects("cd-out-of-bounds", raw(GOOD[length:])) for length in (1, 4, 30, 66)),
    rejects("cd-ambiguous", raw(GOOD + GOOD)),
    rejects("stacked-archive", raw(GOOD + b"glue" + INNER)),
    rejects("trailing-data", raw(GOOD + GOOD[:60])),
    rejects("no-eocd", raw(b"\x1f\x8b\x08" + bytes(60))),
    rejects("no-eocd", raw(b"7z\xbc\xaf\x27\x1c" + bytes(60))),
    rejects("no-eocd", raw(b"Rar!\x1a\x07" + bytes(60))),
    rejects("no-eocd", raw(b"%PDF-1.7\n" + bytes(60))),
    rejects("no-eocd", raw(b"<!DOCTYPE html><html><body>403</body></html>")),
    rejects("no-eocd", raw(b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>')),
    rejects("no-eocd", raw(b'{"error": "not found"}')),
    rejects("no-eocd", raw(bytes(70_000))),
    # What an archive alone does not cause: these need an option of the run.
    fails(
        "name-reserved",
        archive(
            *(
                Member(name, failed="name-reserved")
                for name in ("_SUCCESS", "_success", "_SUCCESS/x")
            ),
            *(Member(name, TEXT) for name in ("_SUCCESS.txt", "a/_SUCCESS")),
            options=Options(marker=True),
            warnings="case-collision file-dir-prefix-conflict",
        ),
        archive(Member("_SUCCESS", TEXT), Member("a/_success", TEXT)),
    ),
    warns("nested-no-stem", archive(Member("m/.zip", INNER), A, options=NESTED)),
    warns(
        "nested-prefix-taken",
        archive(
            Member("i.zip", INNER),
            Member("i.ZIP", INNER),
            warnings="case-collision",
            options=NESTED,
        ),
    ),
]
