"""Every method with every form of descriptor and every encryption, and streams that are at fault.

The larger contents are streamed, sliced or copied at the limits of `tests.support.memory.TINY`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from s3unzip.zip import Policy
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
)
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    DEFLATE64,
    DESCRIPTORS,
    LZMA,
    STORED,
    XZ,
    ZSTD,
    compress,
    seal_aes,
    seal_zipcrypto,
)

NAMES = {
    STORED: "stored",
    DEFLATE: "deflate",
    DEFLATE64: "deflate64",
    BZIP2: "bzip2",
    LZMA: "lzma",
    ZSTD: "zstd",
    XZ: "xz",
}
CODED = [method for method in NAMES if method != STORED]
SECRET = b"p\xc3\xa4ss word\x7f"
OPENING = Policy(password=SECRET)
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


def _describe(method: int, form: str | None) -> Archive:
    warnings = "dd-missing-signature" if form in {"bare32", "bare64"} else ""
    member = Member("m.txt", LARGE[:6_000], method, descriptor=form)
    return archive(member, replace(A, descriptor=form), warnings=warnings)


def _seal(method: int, cipher: str, content: bytes = TEXT) -> Member:
    form = "signed32" if method % 2 else None
    return SEALS[cipher](Member(f"{method}.txt", content, method, descriptor=form), SECRET)


SOUND = {
    **{
        f"{NAMES[method]}, {form}": _describe(method, form)
        for method in NAMES
        for form in (None, *DESCRIPTORS)
    },
    **{
        f"{cipher}, all methods": unread(
            "bsdtar", archive(*(_seal(method, cipher) for method in NAMES), policy=OPENING)
        )
        for cipher in SEALS
    },
    **{
        f"large, {NAMES[method]}": archive(Member("large.txt", LARGE, method), B)
        for method in NAMES
    },
    "empty, deflated": archive(Member("empty", method=DEFLATE), A),
    "empty, other methods": unread("7zz", archive(*(Member(NAMES[m], method=m) for m in CODED))),
    "large, ZipCrypto": archive(_seal(DEFLATE, "ZipCrypto", LARGE), B, policy=OPENING),
    "large, AES": archive(_seal(DEFLATE, "AE-2, 256 bits", LARGE), B, policy=OPENING),
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
        ("compressed-trailing-bytes", replace(good, data=data + b"x")),
        ("size-overrun", replace(good, data=compress(method, TEXT + b"x"))),
        ("size-mismatch", replace(good, data=compress(method, TEXT[:-1]))),
        ("crc-mismatch", replace(good, local=wrong, central=wrong)),
        ("corrupt-stream", replace(good, data=b"\xff" * 30)),
    ):
        yield fails(code, archive(spoiled, B), twin)


ROWS = [
    *(case for method in CODED for case in _spoil(method)),
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
