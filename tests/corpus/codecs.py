"""Every method with every form of descriptor and every encryption, and streams that are at fault.

The larger contents are streamed, sliced or copied at the limits of `tests.support.memory.TINY`.
"""

import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random

from s3unzip.zip import Limits, Policy
from tests.corpus.labels import (
    TEXT,
    A,
    Archive,
    B,
    Case,
    Member,
    archive,
    fails,
    unread,
    warns,
)
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    DESCRIPTORS,
    LZMA,
    METHODS,
    STORED,
    XZ,
    ZSTD,
    compress,
    seal_aes,
    seal_zipcrypto,
)

CODED = [method for method in METHODS if method != STORED]
SECRET = b"p\xc3\xa4ss word\x7f"
OPENING = Policy(password=SECRET)
LITTLE_MEMORY = Policy(limits=Limits(decoder_memory=1 << 20))
NOISE = Random(3).randbytes(80_000)
CHAINED = {
    BZIP2: [compress(BZIP2, b"one "), compress(BZIP2, b""), compress(BZIP2, b"two")],
    XZ: [compress(XZ, b"one "), compress(XZ, b""), bytes(8), compress(XZ, b"two"), bytes(4)],
    ZSTD: [compress(ZSTD, b"one "), compress(ZSTD, b""), compress(ZSTD, b"two")],
}
NOT_CHAINED = {  # the readers that read such a stream to the end of its first part
    BZIP2: "zipfile unzip bsdtar 7zz",  # unzip 6.00 never ends
    XZ: "zipfile bsdtar",
    ZSTD: "zipfile",
}
LARGE = b"".join(b"%d, " % (number * number % 99_991) for number in range(30_000))
SEALS: Mapping[str, Callable[[Member, bytes], Member]] = {
    "ZipCrypto": seal_zipcrypto,
    **{
        f"AE-{version}, {64 + 64 * strength} bits": partial(
            seal_aes, version=version, strength=strength
        )
        for version, strength in product((1, 2), (1, 2, 3))
    },
}


SEALED = seal_aes(Member("a.txt", b"0123456789"), SECRET)


def _describe(method: int, form: str | None) -> Archive:
    warnings = "dd-missing-signature" if form in {"bare32", "bare64"} else ""
    member = Member("m.txt", LARGE[:6_000], method, descriptor=form)
    return archive(member, replace(A, descriptor=form), warnings=warnings)


def _seal(method: int, cipher: str, content: bytes = TEXT) -> Member:
    form = "signed32" if method % 2 else None
    return SEALS[cipher](Member(f"{method}.txt", content, method, descriptor=form), SECRET)


SOUND = {
    **{
        f"{METHODS[method]}, {form}": _describe(method, form)
        for method in METHODS
        for form in (None, *DESCRIPTORS)
    },
    **{
        f"{cipher}, all methods": unread(
            "bsdtar", archive(*(_seal(method, cipher) for method in METHODS), policy=OPENING)
        )
        for cipher in SEALS
    },
    **{
        f"large, {METHODS[method]}": archive(Member("large.txt", LARGE, method), B)
        for method in METHODS
    },
    **{
        f"{form}, {name}": archive(
            replace(A, descriptor=form, local=local),
            B,
            warnings="dd-missing-signature" * form.startswith("bare"),
        )
        for form in DESCRIPTORS
        for name, local in {
            "a CRC-32 of all ones": {"crc32": 0xFFFFFFFF},
            "sizes in the header": {"size": len(TEXT), "compressed_size": len(TEXT)},
            "a sentinel in the header": {"size": 0xFFFFFFFF},
        }.items()
    },
    **{
        f"{METHODS[method]}, one stream after the other": unread(
            NOT_CHAINED[method],
            archive(Member("m.txt", b"one two", method, data=b"".join(streams)), A),
        )
        for method, streams in CHAINED.items()
    },
    **{
        f"{METHODS[method]}, a stream that ends far inside of what came": unread(
            NOT_CHAINED[method],
            archive(
                Member(
                    "m.bin",
                    NOISE,
                    method,
                    data=compress(method, NOISE[:40_000]) + compress(method, NOISE[40_000:]),
                ),
                A,
            ),
        )
        for method in (BZIP2, XZ)
    },
    # More stored blocks of no byte (RFC 1951, 3.2.4) than one call takes.
    "deflate that begins with blocks that hold nothing": archive(
        Member(
            "m.txt",
            TEXT,
            DEFLATE,
            data=bytes.fromhex("000000ffff") * 30_000 + compress(DEFLATE, TEXT),
        ),
        A,
    ),
    "lzma, a marker although the size is known": unread(
        "7zz", archive(Member("m.txt", TEXT, LZMA, local={"flags": 0}, central={"flags": 0}), A)
    ),
    "empty, deflated": archive(Member("empty", method=DEFLATE), A),
    "empty, other methods": unread("7zz", archive(*(Member(METHODS[m], method=m) for m in CODED))),
    "large, ZipCrypto": archive(_seal(DEFLATE, "ZipCrypto", LARGE), B, policy=OPENING),
    "large, AES": archive(_seal(DEFLATE, "AE-2, 256 bits", LARGE), B, policy=OPENING),
    "more memory than there is": unread(
        "zipfile unzip bsdtar",
        archive(
            *(Member(METHODS[m], TEXT, m) for m in CODED),
            policy=Policy(limits=Limits(decoder_memory=1 << 70)),
        ),
    ),
    "large, two members": archive(
        Member("1", LARGE, DEFLATE, descriptor="signed32"), Member("2", LARGE), B
    ),
}


def _spoil(method: int) -> Iterator[Case]:
    good = Member("m.txt", TEXT, method)
    data = good.stored_data
    wrong = {"crc32": 1}
    twin = archive(good, B)
    for code, spoiled in (
        ("stream-truncated", replace(good, data=data[:-1])),
        ("stream-truncated", replace(good, data=data[: len(data) // 2])),
        *(
            ("compressed-trailing-bytes", replace(good, data=data + b"\1" * spare))
            for spare in (1, 5, 2_000)
        ),
        ("size-overrun", replace(good, data=compress(method, TEXT + b"x"))),
        ("size-mismatch", replace(good, data=compress(method, TEXT[:-1]))),
        ("crc-mismatch", replace(good, local=wrong, central=wrong)),
        ("corrupt-stream", replace(good, data=b"\xff" * 30)),
    ):
        yield fails(code, archive(spoiled, B), twin)


ROWS = [
    *(case for method in CODED for case in _spoil(method)),
    *(
        warns(
            "compressed-trailing-bytes",
            archive(Member("m.txt", TEXT, method, data=compress(method, TEXT) + b"\1" * spare), B),
            policy=Policy(lenient=True),
        )
        for method in CODED
        for spare in (1, 5, 2_000)
    ),
    *(
        fails(
            "compressed-trailing-bytes",
            archive(Member("m.txt", b"one ", method, data=streams[0] + tail), A),
        )
        for method, streams in CHAINED.items()
        for tail in (b"x", b"BZx and more", b"\xfd7zXX and more", b"\0\0\0")
    ),
    *(
        fails("size-overrun", archive(Member("m.txt", b"one ", method, data=b"".join(streams)), A))
        for method, streams in CHAINED.items()
    ),
    # As ``7zz -mm=LZMA:lc=8`` writes it; 225 is no value.
    *(
        fails(
            code,
            archive(
                Member(
                    "m.txt",
                    TEXT,
                    LZMA,
                    data=compress(LZMA, TEXT)[:4] + bytes([properties]) + compress(LZMA, TEXT)[5:],
                ),
                B,
            ),
            archive(Member("m.txt", TEXT, LZMA), B),
        )
        for code, properties in (
            ("unsupported-method", 98),
            ("unsupported-method", 93 + 4 * 9),
            ("corrupt-stream", 225),
        )
    ),
    # The limit is for the dictionary of 256 KiB; what liblzma needs besides is added.
    fails(
        "memory-bound",
        archive(Member("m.txt", TEXT, XZ, data=lzma.compress(TEXT, preset=9)), A),
        archive(Member("m.txt", TEXT, XZ, data=lzma.compress(TEXT, preset=0)), A),
        LITTLE_MEMORY,
    ),
    fails(
        "memory-bound",  # a window of 128 MiB
        archive(
            Member("m", TEXT, ZSTD, data=bytes.fromhex("28b52ffd0088") + compress(ZSTD, TEXT)[6:]),
            A,
        ),
        archive(Member("m.txt", TEXT, ZSTD), A),
        LITTLE_MEMORY,
    ),
    *(
        fails(
            code,
            archive(
                replace(
                    SEALED,
                    data=SEALED.stored_data[:at]
                    + bytes([SEALED.stored_data[at] ^ 0x40])
                    + SEALED.stored_data[at + 1 :],
                ),
                B,
            ),
            archive(SEALED, B),
            OPENING,
        )
        for at, code in enumerate(
            ["wrong-password"] * (16 + 2) + ["aes-mac-mismatch"] * (len(SEALED.content) + 10)
        )
    ),
    # Cut short anywhere.
    *(
        fails(
            code,
            archive(replace(sealed, data=sealed.stored_data[:length]), A),
            archive(sealed, A),
            OPENING,
        )
        for sealed, header in ((seal_zipcrypto(B, SECRET), 12), (seal_aes(B, SECRET), 28))
        for length, code in enumerate(
            ["encryption-malformed"] * header
            + ["stream-truncated"] * (len(sealed.stored_data) - header)
        )
    ),
    # One wrong password of 256 passes the check of ZipCrypto: then the data tells.
    *(
        fails(
            code,
            archive(seal_zipcrypto(member, b"another 27")),
            archive(seal_zipcrypto(member, SECRET)),
            OPENING,
        )
        for code, member in (("crc-mismatch", A), ("corrupt-stream", B))
    ),
    *(
        fails(
            "dd-mismatch",
            archive(replace(A, descriptor=form, described={field: 1}), B),
            _describe(STORED, form),
        )
        for form in DESCRIPTORS
        for field in ("crc32", "size", "compressed_size")
    ),
    *(
        fails(
            "wrong-password",
            archive(SEALS[cipher](A, b"another"), policy=OPENING),
            archive(SEALS[cipher](A, SECRET)),
            OPENING,
        )
        for cipher in SEALS
    ),
]
