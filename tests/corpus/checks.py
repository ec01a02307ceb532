"""Every check has an archive that trips it, and a twin that does not."""

import struct
import zlib
from dataclasses import replace
from functools import partial

from msgspec import structs

from s3unzip.zip import AFTER_LENGTH, Limits, Policy
from tests.corpus.labels import (
    ALL_READERS,
    LENIENT,
    OPENING,
    PLAIN,
    SECRET,
    TEXT,
    A,
    Archive,
    B,
    Member,
    archive,
    fails,
    rejects,
    unread,
    warns,
)
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    LZMA,
    SENTINEL,
    ZSTD,
    Shape,
    aes_extra,
    build,
    compress,
    extra,
    seal_aes,
    seal_zipcrypto,
    unicode_path,
    zip64_extra,
)

DEFLATED = compress(DEFLATE, TEXT)
GOOD = PLAIN.whole
EOCD_BYTES = build()
EMPTY = archive()
CENTRAL_SIZE = 46
MANY = 65_537

SEALED = seal_aes(A, SECRET)
DEFLATED_SEALED = seal_aes(B, SECRET)
AE1 = seal_aes(A, SECRET, version=1)
CRYPTED = seal_zipcrypto(A, SECRET)


def raw(data: bytes) -> Archive:
    """Return an archive of these bytes."""
    return archive(raw=data)


def _one(warnings: str = "", **changes: object) -> Archive:
    return archive(replace(A, **changes), warnings=warnings)  # type: ignore[arg-type]  # any field of Member


def _two(warnings: str = "", **changes: object) -> Archive:
    return archive(replace(B, **changes), A, warnings=warnings)  # type: ignore[arg-type]  # any field of Member


def _shaped(warnings: str = "", **changes: object) -> Archive:
    return archive(A, B, shape=Shape(**changes), warnings=warnings)  # type: ignore[arg-type]  # any field of Shape


def _padded(trailing: bytes) -> Archive:
    return _shaped("trailing-padding", trailing=trailing)


def wide(**changes: object) -> Archive:
    """Build a ZIP64 archive of one member with a shape."""
    return archive(A, shape=Shape(zip64=True, **changes))  # type: ignore[arg-type]  # of Shape


def _limited(**limits: int) -> Policy:
    return Policy(limits=structs.replace(Limits(), **limits))


def listed(block: bytes, **changes: object) -> Archive:
    """Build an archive of one member whose extra fields are in the directory alone."""
    return _one("", extra=block, local_extra=b"", **changes)


def emptied(body: bytes, *, adjusted: bool = False, warnings: str = "") -> Archive:
    """Hide `body` before the end record of an archive without members."""
    return archive(shape=Shape(prefix=body, adjusted=adjusted), warnings=warnings)


def many(count: int, *, zip64: bool = False) -> Archive:
    """Build an archive of 65,537 directories that declares `count` of them."""
    return Archive(raw=partial(build_many, count, zip64=zip64), is_large=True)


def build_many(count: int, *, zip64: bool) -> bytes:
    """Build it from two headers, because single ones take a second."""
    local, central = Member("00000/").local_header(), Member("00000/").central_part(0)
    names = [b"%05d/" % number for number in range(MANY)]
    counts = {"entries": count, "disk_entries": count}
    return build(
        shape=Shape(
            prefix=b"".join(local[:-6] + name for name in names),
            adjusted=True,
            directory_tail=b"".join(
                central[:42] + struct.pack("<I", number * len(local)) + name
                for number, name in enumerate(names)
            ),
            zip64=zip64,
            eocd={} if zip64 else counts,
            zip64_eocd=counts,
        )
    )


def _by_fat(attributes: int, warnings: str = "", **changes: object) -> Archive:
    return _one(warnings, attributes=attributes, central=BY_FAT, **changes)


def _locator_off_by(offset: int) -> Archive:
    return wide(locator={"record_offset": len(build(A)) - 22 + offset})


def _folder(warnings: str = "", **changes: object) -> Archive:
    return archive(replace(Member("d/"), **changes), warnings=warnings)  # type: ignore[arg-type]  # any field of Member


def sized(warnings: str = "", *, crc32: int = 0, **changes: object) -> Archive:
    """Build an archive of one directory that declares the size of a folder on a disk."""
    return unread("7zz", _folder(warnings, central={"size": 4_096, "crc32": crc32}, **changes))


def listing(compressed_size: int) -> Member:
    """Make a directory that declares so many bytes, none of which are there."""
    failed = "dir-with-data" if compressed_size > 5 else ""
    return Member(
        "d/", method=DEFLATE, data=b"", central={"compressed_size": compressed_size}, failed=failed
    )


def roots(name: str, attributes: int = 0, content: bytes = b"") -> Archive:
    """Build an archive of a directory that is the destination itself."""
    warnings = "" if content else "dir-is-root"
    member = Member(name, content, attributes=attributes, key="")
    return unread("zipfile" if name == "./" else ALL_READERS, archive(member, warnings=warnings))


def bare_root(name: str) -> Archive:
    """Build one that is a directory by its attributes alone."""
    root = roots(name, FOLDER)
    return replace(root, warnings=f"{root.warnings} dir-attr-without-slash")


def beside(**changes: object) -> Archive:
    """Build an archive of three members, of which the second one has changes and fails."""
    changed = replace(A, name="c", failed="lfh-name-mismatch")
    changed = replace(changed, **changes)  # type: ignore[arg-type]  # any field of Member
    return archive(A, changed, B)


CJK = "\u65e5\u672c"
FITTING = unicode_path(b"a.txt", "a.txt")
EVIL = unicode_path(b"a.txt", "evil")
WIDE_FIELD = zip64_extra(1)
OTHER = {"crc32": 1}
HUGE = {"size": SENTINEL}
DESCRIBED = struct.pack("<4sIQQ", b"PK\7\x08", zlib.crc32(TEXT), len(TEXT), len(TEXT))
ONE_ENTRY = {"entries": 1, "disk_entries": 1}
BOMB = bytes(200_000)

# 7.3.4: deflated, of 60 bytes, AES with 256 bits and a password
ENCRYPTION = struct.pack("<HQQHHHHH", 8, 60, 51, 0x6610, 256, 1, 0, 0)

TOO_LONG = b"zz\x09\0"  # an extra field that ends behind its block
INFO_ZIP = extra(0x5455, b"\1" + struct.pack("<i", 1_700_000_000))
SOLID = b"\x83\\.txt"  # Shift-JIS: the second byte of a character is that of a backslash
PATH = "d\u00e9/e/a"
RAW_PATH = b"d\x82/e/a"
SLASHES = unicode_path(RAW_PATH, PATH)
BACKSLASHES = unicode_path(RAW_PATH, PATH.replace("/", "\\"))
ROOTS = ("/", "./", "//", "/./", ".//./", ".\\")
BARE_ROOTS = ("", ".", "./.", "/.")  # directories by their attributes alone
FOLDER = 0o040755 << 16
UNLIKE = (b"b", b"", b"longer than the name", b"c\0")  # local names of any length
# FILE_ATTRIBUTE_STRICTLY_SEQUENTIAL, with PINNED, with RECALL_ON_DATA_ACCESS; what is no attribute.
WINDOWS_ATTRIBUTES = (0x20000020, 0x20080020, 0x20400020, 0x60000020, 0xC0100020)
FIRST, LAST = Member("0", b"0"), Member("1", b"1")
AGAIN = replace(A, present=False, central={"offset": 32})  # it is listed twice, behind FIRST
WITH_DRIVE = {
    "C:/New Folder/1.docx": "New Folder/1.docx",
    "c:/a": "a",
    "C:/D:/a": "a",
    "A:B test.txt": "A:B test.txt",
    "C:a/b": "C:a/b",
}
VARIANTS = [
    ("name-backslash", "a\\b", b"a/b"),
    ("", "a/b", b"a\\b"),
    ("name-absolute", "/a/b", b"a/b"),
    ("", "a/b", b"\\a\\b"),
    ("name-absolute", "//a/b", b"/a/b"),
    ("name-drive-letter", "C:/a/b", b"a/b"),
    ("name-drive-letter name-backslash", "C:\\a\\b", b"C:/a/b"),
    ("name-dot-normalised", "./a/b", b"a\\b"),
]

MARK = "\u0301"
FAR = 200_000
LITERALS = b"PK\3\4 and PK\5\6 are constants of programs that read archives" + bytes(30)
BURIED = b"X" * FAR + GOOD + b"X" * FAR
CONSTANTS = b"X" * FAR + LITERALS + b"X" * FAR
BY_FAT = {"made_by": 20}  # MS-DOS (host 0)
EMPTY_FOLDER = Member("d", attributes=0x10, central=BY_FAT, key="")
INNER = build(A)
LOCAL_A = INNER[: -CENTRAL_SIZE - 5 - 22]  # local header and data
LINK_TAG = b"\x0c\0\0\xa0"  # of a REPARSE_DATA_BUFFER
ZIP64_END = wide().whole[:-42]  # without its locator and its end record
ZIP64_RECORD = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, 51, 70)
# ZIP64 records of nothing: as a comment they are a second directory.
ZIP64_NOTHING = b"PK\6\6" + struct.pack("<Q44x", 44) + b"PK\6\7" + struct.pack("<12xI", 1)


ROWS = [
    rejects("no-eocd", raw(b"<html>Not found</html>")),
    rejects("trailing-data", _shaped(trailing=b"\n\n"), _padded(b"\n")),
    rejects("trailing-data", _shaped(trailing=b"\r"), _padded(b"\r\n")),
    rejects("trailing-data", _shaped(trailing=bytes(99) + b"\n"), _padded(bytes(99))),
    rejects("trailing-data", _shaped(trailing=b"x")),
    warns("trailing-padding", _shaped(trailing=b"\n"), _shaped(comment=b"c\n")),
    warns("trailing-padding", _shaped(trailing=b"\r\n", comment=b"c")),
    warns("trailing-padding", _shaped(trailing=bytes(1))),
    warns(  # byte 257 is like that of a tar file
        "trailing-padding",
        archive(Member("n", b"n" * 226 + b"ustar"), shape=Shape(trailing=bytes(1))),
    ),
    warns(
        "trailing-padding",
        unread("zipfile unzip", _shaped(comment=b"c\0", trailing=bytes(900_000))),
        _shaped(comment=bytes(9)),
    ),
    rejects(
        "no-eocd",
        _shaped(trailing=bytes(1_200_000)),
        unread("zipfile unzip", _padded(bytes(1_000_000))),
    ),
    rejects(
        "eocd-comment-truncated",
        _shaped(eocd={"comment_length": 9}),
        _shaped(comment=b"c" * 9),
    ),
    rejects(
        "eocd-signature-in-comment",
        _shaped(comment=b"PK\x05\x06"),
        _shaped(comment=b"PK\x05"),
    ),
    rejects("multiple-eocd", _shaped(comment=EOCD_BYTES), _shaped(comment=EOCD_BYTES[4:])),
    rejects("part-missing", _shaped(eocd={"disk": 1})),
    rejects("multiple-eocd", _shaped(comment=EOCD_BYTES, trailing=b"\n"), _padded(b"\n")),
    rejects("count-mismatch", _shaped(eocd={"disk_entries": 1})),
    rejects("multi-disk", _one(central={"disk": 1})),
    rejects("multi-disk", wide(locator={"disks": 2}), wide()),
    rejects("count-mismatch", _shaped(eocd={"entries": 1, "disk_entries": 1})),
    rejects("count-mismatch", many(3)),
    rejects("count-mismatch", many(1, zip64=True)),
    warns("count-wrapped", many(1), many(MANY, zip64=True)),
    rejects("cd-size", _shaped(eocd={"entries": 9, "disk_entries": 9})),
    rejects("cd-truncated", _one(central={"comment_length": 1}), _one(comment=b"c")),
    rejects("cd-bad-signature", _one(central={"signature": b"PK\x01\x03"})),
    rejects("cd-trailing-bytes", _shaped(directory_tail=b"x" * 50)),
    rejects("cd-trailing-bytes", _shaped(directory_tail=b"x")),
    rejects("cd-out-of-bounds", _shaped(eocd={"directory_offset": 9999})),
    rejects("gap-before-eocd", _shaped(gap_after_directory=b"gap")),
    rejects(
        "gap-before-eocd",
        raw(bytes(30) + build(shape=Shape(eocd={"directory_size": 10, "directory_offset": 5}))),
    ),
    rejects("cd-ambiguous", raw(INNER[:-22] + INNER[len(LOCAL_A) : -22] + INNER[-22:])),
    rejects(
        "stacked-archive",
        _shaped(prefix=INNER),
        unread("7zz", _shaped("prefix-adjusted hidden-local-header", prefix=INNER, adjusted=True)),
    ),
    rejects(
        "stacked-archive",
        _shaped(prefix=b"X" + INNER),
        _shaped("prefix-unadjusted", prefix=b"X" * 99),
    ),
    rejects(
        "stacked-archive",
        _shaped(prefix=INNER + b"X" * FAR),
        _shaped("prefix-unadjusted", prefix=b"X" * FAR),
    ),
    rejects(
        "offsets-ambiguous",
        _shaped(prefix=EOCD_BYTES),
        _shaped("prefix-unadjusted", prefix=EOCD_BYTES[4:]),
    ),
    rejects(
        "offsets-ambiguous",
        emptied(b"X" + LOCAL_A),
        emptied(b"X" * 99, warnings="prefix-unadjusted"),
    ),
    rejects("offsets-ambiguous", emptied(b"X" + LOCAL_A, adjusted=True), EMPTY),
    rejects(
        "offsets-ambiguous",
        _shaped(prefix=LOCAL_A[:30]),
        _shaped("prefix-unadjusted", prefix=bytes(30)),
    ),
    rejects(
        "cd-ambiguous",
        emptied(b"X" * FAR + GOOD[:-22]),
        emptied(b"X" * FAR + b"PK\1\2" * 30, warnings="prefix-unadjusted"),
    ),
    rejects("cd-ambiguous", emptied(GOOD[:-22], adjusted=True), EMPTY),
    rejects("zip64-ambiguous", emptied(ZIP64_END[-56:], adjusted=True), EMPTY),
    rejects(
        "stacked-archive",
        _shaped(prefix=BURIED),
        _shaped("prefix-adjusted hidden-local-header", prefix=BURIED, adjusted=True),
    ),
    rejects(
        "stacked-archive",
        _shaped(prefix=BURIED[:-FAR]),
        _shaped("prefix-unadjusted", prefix=CONSTANTS),
    ),
    rejects("offsets-ambiguous", _shaped(prefix=b"PK\3\4" + bytes(100))),
    warns(
        "prefix-adjusted",
        unread("7zz", _shaped("hidden-local-header", prefix=INNER, adjusted=True)),
    ),
    warns("prefix-adjusted", unread("unzip 7zz", emptied(b"X" * 1000, adjusted=True)), EMPTY),
    warns("prefix-unadjusted", emptied(b"X" * 1000), EMPTY),
    warns(
        "prefix-unadjusted",
        _shaped(prefix=b"#!stub"),
        _shaped("prefix-adjusted", prefix=b"#!stub", adjusted=True),
    ),
    rejects("zip64-locator-mismatch", _locator_off_by(1), _locator_off_by(0)),
    rejects("zip64-locator-mismatch", _locator_off_by(-1)),
    rejects("zip64-locator-missing", _shaped(eocd={"directory_size": SENTINEL})),
    rejects("zip64-record-size", wide(zip64_eocd={"record_size": 45}), wide()),
    rejects("zip64-record-size", wide(zip64_eocd={"record_size": 57}), wide()),
    warns(
        "zip64-record-length",
        unread("zipfile unzip 7zz", wide(zip64_eocd={"record_size": 56})),
        wide(),
    ),
    rejects("zip64-locator-gap", wide(gap_before_eocd=b"gap"), wide()),
    rejects(
        "multiple-zip64-eocd",
        wide(gap_after_directory=ZIP64_RECORD, locator={"record_offset": len(INNER) - 22}),
        wide(),
    ),
    rejects("zip64-extensible-data", wide(extensible=b"more data"), wide()),
    rejects("zip64-extensible-data", wide(extensible=ENCRYPTION), wide()),
    rejects(
        "encrypted-directory",
        archive(
            replace(A, central={"signature": b"\x10\0\xb6\x28"}),
            shape=Shape(zip64=True, extensible=ENCRYPTION),
        ),
    ),
    rejects("zip64-eocd-mismatch", wide(eocd={"entries": 7}), wide(eocd=ONE_ENTRY)),
    rejects(
        "zip64-ambiguous",
        _one(comment=ZIP64_NOTHING),
        unread("unzip", _one(comment=bytes(56) + ZIP64_NOTHING[56:])),
    ),
    rejects(
        "zip64-ambiguous",
        raw(
            ZIP64_NOTHING
            + build(shape=Shape(eocd={**ONE_ENTRY, "directory_size": len(ZIP64_NOTHING)}))
        ),
    ),
    fails(
        "zip64-extra-missing",
        _one(central=HUGE),
        listed(zip64_extra(len(TEXT)), central=HUGE),
    ),
    # 4 GiB - 1 bytes can be in 4 MB, but not in 3 MB: then the local header decides.
    fails("zip64-extra-missing", _two(data=bytes(3_000_000), central=HUGE)),
    fails("lfh-size-crc-mismatch", _two(data=bytes(4_000_000), central=HUGE)),
    fails("zip64-extra-duplicate", listed(WIDE_FIELD * 2), listed(WIDE_FIELD)),
    *(
        fails(
            "zip64-extra-malformed",
            listed(extra(1, bytes(length)), central=HUGE),
            listed(extra(1, bytes(length))),
        )
        for length in (0, 4, 7)
    ),
    *(
        rejects(
            "multi-disk",
            listed(
                extra(1, bytes(length)),
                central={**HUGE, "compressed_size": SENTINEL, "offset": SENTINEL, "disk": 0xFFFF},
            ),
        )
        for length in (0, 23, 24)
    ),
    fails("lfh-zip64-duplicate", _one(local_extra=WIDE_FIELD * 2), _one(local_extra=WIDE_FIELD)),
    rejects("member-out-of-bounds", _one(central={"offset": 60})),
    rejects("member-out-of-bounds", _one(central={"compressed_size": 80, "size": 80})),
    rejects(
        "overlap",
        archive(A, Member("other", TEXT, central={"offset": 0}, present=False)),
        archive(A, B),
    ),
    fails("overlap", archive(replace(A, local={"extra_length": 60}), B)),
    fails("overlap", archive(A, replace(B, local={"extra_length": 4}, failed="overlap"))),
    rejects("too-many-entries", _shaped(eocd=ONE_ENTRY), archive(A), _limited(members=1)),
    rejects("too-many-entries", PLAIN, archive(A), _limited(members=1)),
    rejects("cd-too-large", PLAIN, archive(A), _limited(directory_size=60)),
    rejects("names-too-large", PLAIN, archive(A), _limited(names_size=9)),
    rejects(
        "names-too-large",
        archive(Member("../" + "n" * 60_000, failed="name-dotdot"), B),
        _one(name="n" * 207),
        _limited(names_size=207),
    ),
    rejects("bomb-total", PLAIN, archive(A), _limited(total_size=len(TEXT))),
    fails("bomb-member-size", _two(content=TEXT * 2), policy=_limited(member_size=len(TEXT))),
    fails("bomb-ratio", _two(data=DEFLATED, central={"size": 40_000}), _two(content=BOMB)),
    warns("high-ratio", _one(content=BOMB * 4, method=BZIP2), _one(content=BOMB, method=DEFLATE)),
    fails(
        "zip64-extra-missing",
        _one("cd-extra-malformed", extra=TOO_LONG, local_extra=b"", central=HUGE),
        unread("zipfile bsdtar", _one("cd-extra-malformed", extra=TOO_LONG, local_extra=b"")),
    ),
    warns(
        "cd-extra-malformed",
        unread("zipfile bsdtar", _one(extra=TOO_LONG, local_extra=b"")),
        _one(extra=b"zz\0\0"),
    ),
    warns(
        "cd-extra-malformed",
        unread("zipfile bsdtar", _one(extra=INFO_ZIP + TOO_LONG, local_extra=INFO_ZIP)),
        _one(extra=INFO_ZIP),
    ),
    warns(
        "lfh-extra-malformed",
        unread("bsdtar", _one(local_extra=b"zz\x09\0")),
        _one(local_extra=b"zz\0\0"),
    ),
    warns("extra-trailing-bytes", _one(extra=b"zz\0\0\0"), _one(extra=b"zz\0\0")),
    rejects("duplicate-name", archive(A, A)),
    rejects("duplicate-name", archive(A, replace(A, name="./a.txt"))),
    rejects("duplicate-name", archive(FIRST, A, AGAIN, LAST), archive(FIRST, A, LAST)),
    rejects(
        "duplicate-name",
        archive(FIRST, A, replace(AGAIN, central={"offset": 32, "compressed_size": 41}), LAST),
        archive(FIRST, A, LAST),
    ),
    warns(
        "dup-directory",
        archive(FIRST, Member("d/"), replace(AGAIN, name="d/", content=b""), LAST),
        archive(FIRST, Member("d/"), LAST),
    ),
    warns(
        "dup-directory",
        archive(Member("d/"), Member("d/")),
        archive(Member("d/"), Member("e/")),
    ),
    warns("case-collision", archive(A, replace(A, name="A.TXT"))),
    warns(
        "unicode-collision",
        unread("bsdtar", archive(Member("\u00e9"), Member("e\u0301"))),
        archive(Member("\u00e9")),
    ),
    warns(
        "case-collision",
        replace(
            unread("bsdtar", archive(Member("\u00c9"), Member("\u00e9"), Member("e\u0301"))),
            warnings="unicode-collision",
        ),
    ),
    warns(
        "file-dir-prefix-conflict",
        unread(ALL_READERS, archive(Member("d", in_folder=""), Member("d/f"))),
        archive(Member("d/f")),
    ),
    warns(
        "file-dir-prefix-conflict",
        unread(ALL_READERS, archive(Member("d", in_folder=""), Member("d/"))),
        archive(Member("d/")),
    ),
    warns(
        "file-dir-prefix-conflict",
        unread(
            ALL_READERS,
            archive(Member("d", TEXT, in_folder="name-is-folder"), Member("d/e/f", TEXT)),
        ),
        archive(Member("d", TEXT), Member("de/f", TEXT)),
    ),
    *(
        warns(
            "file-dir-prefix-conflict",
            unread(
                ALL_READERS, archive(*(Member(f"{number:03}/x/y/z") for number in range(300)), file)
            ),
            policy=_limited(folder_memory=100 * 10),  # what was seen has to be forgotten
        )
        for file in (Member("007"), Member("299/x"))
    ),
    fails("name-dotdot", _one(name="a/../b"), _one(name="a/..b")),
    fails("name-absolute", _one(name="/etc/passwd"), _one(name="etc/passwd")),
    fails("name-drive-letter", _one(name="C:file"), _one(name="CC:file")),
    fails("name-drive-letter", _one(name="A:B test.txt"), _one(name="AA:B test.txt")),
    fails(
        "name-drive-letter",
        _one(name="./C:/file"),
        _one(name="a/C:/file"),
    ),
    fails("name-backslash", _one(name="a\\b"), _one(name="a/b")),
    fails("name-nul", _one(name="a\0b"), _one(name="a0b")),
    fails("name-control-char", _one(name="a\x1bb"), _one(name="a b")),
    fails("name-control-char", _one(name="a\uffffb"), _one(name="a\ufffdb")),
    fails(
        "name-control-char",
        _one(name="a\r\n"),
        unread("unzip", _one("name-carriage-return", name="d/Icon\r")),
    ),
    warns("name-carriage-return", unread("unzip", _one(name="d/Icon\r")), _one(name="d/Icon")),
    fails("name-combining-run", _one(name="e" + MARK * 31), _one(name="e" + MARK * 30)),
    fails(
        "name-combining-run",
        _one(name="d" + MARK * 31 + "/a"),
        _one(name="d" + CJK * 31 + "/a"),
    ),
    fails("name-empty", _one(name=""), _one(name="a")),
    *(fails("name-empty", _one(name=name), bare_root(name)) for name in BARE_ROOTS),
    *(warns("dir-is-root", roots(name), archive(Member("d/"))) for name in ROOTS),
    *(warns("dir-is-root", roots(name, FOLDER), archive(Member("d/"))) for name in ROOTS),
    *(warns("dir-is-root", bare_root(name), archive(Member("d/"))) for name in BARE_ROOTS),
    fails("name-bad-utf8", _one(name=b"\xc0\xae", flags=0x800), _one(name="\u00e9")),
    warns("name-encoding-guess", _one(name=b"caf\x82", key="caf\u00e9"), _one(name="caf\u00e9")),
    warns(
        "lfh-flag11-mismatch",
        unread("zipfile", _one(name="\u00e9", local={"flags": 0})),
        _one(name="\u00e9"),
    ),
    warns(
        "lfh-flag11-mismatch",
        unread("zipfile 7zz", _one("name-encoding-guess", name="\u00e9", central={"flags": 0})),
        _one(flags=0x800),
    ),
    fails(
        "name-guessed-backslash",
        _one(name=b"\x83\\.txt", key=""),
        _one("name-encoding-guess", name=b"\x83A.txt", key="\u00e2A.txt"),
    ),
    fails(
        "name-guessed-backslash",
        _one(name=SOLID, key=""),
        _one(
            "unicode-path-used",
            name=SOLID,
            extra=unicode_path(SOLID, "\u30bd.txt"),
            key="\u30bd.txt",
        ),
    ),
    fails(
        "name-undecodable",
        _one(name=b"\x81\xff", key=""),
        _one(name=b"\x93\xfa", key="\u65e5"),
        Policy(encoding="cp932"),
    ),
    warns("unicode-path-used", _one(extra=unicode_path(b"a.txt", CJK), key=CJK), _one(name=b"x")),
    warns(
        "unicode-path-stale",
        _one(extra=unicode_path(b"y", CJK)),
        _one("unicode-path-used", extra=FITTING),
    ),
    warns(
        "unicode-path-backslash",
        _one("unicode-path-used", name=RAW_PATH, extra=BACKSLASHES, key=PATH),
        _one("unicode-path-used", name=RAW_PATH, extra=SLASHES, key=PATH),
    ),
    warns(
        "unicode-path-backslash",
        _one(name=PATH, extra=unicode_path(PATH.encode(), PATH.replace("/", "\\"))),
        _one(name=PATH, extra=unicode_path(PATH.encode(), PATH)),
    ),
    fails(
        "name-backslash",
        _one("unicode-path-used", extra=unicode_path(b"a.txt", "a\\b.txt"), key=""),
        unread(
            "zipfile",
            _one("unicode-path-used", extra=unicode_path(b"a.txt", "a/b.txt"), key="a/b.txt"),
        ),
    ),
    rejects("unicode-path-duplicate", _one(extra=unicode_path(b"a.txt", "b") * 2)),
    rejects(
        "unicode-path-mismatch",
        _one(flags=0x800, extra=unicode_path(b"a.txt", CJK)),
        _one(flags=0x800, extra=FITTING),
    ),
    fails("lfh-unicode-path-mismatch", _one(local_extra=EVIL), _one(local_extra=FITTING)),
    warns(
        "lfh-unicode-path-duplicate",
        unread("bsdtar", _one(local_extra=EVIL * 2)),
        _one(local_extra=FITTING * 2),
    ),
    warns(
        "lfh-unicode-path-duplicate",
        unread("bsdtar", _one(flags=0x800, local_extra=FITTING + EVIL)),
    ),
    fails(
        "lfh-unicode-path-mismatch",
        _one(flags=0x800, local_extra=EVIL),
        _one(flags=0x800, local_extra=unicode_path(b"b.txt", "evil")),
    ),
    fails(
        "lfh-unicode-path-mismatch",
        _one(
            "unicode-path-used unicode-path-backslash",
            name=RAW_PATH,
            extra=BACKSLASHES,
            local_extra=unicode_path(RAW_PATH, "d\u00e9\\x\\a"),
        ),
        _one("unicode-path-used", name=RAW_PATH, extra=SLASHES, local_extra=BACKSLASHES, key=PATH),
    ),
    fails(
        "lfh-unicode-path-mismatch",
        _one(
            "unicode-path-used",
            extra=unicode_path(b"a.txt", CJK),
            local_extra=unicode_path(b"y", "z"),
        ),
    ),
    warns("name-dot-normalised", _one(name="./a", key="a"), _one(name=".a")),
    warns("name-empty-component-normalised", _one(name="a//b", key="a/b"), _one(name="a/b")),
    fails(
        "key-too-long",
        _one(name="a" * 1025),
        unread(ALL_READERS, _one(name="a" * 1024, in_folder="key-too-long")),
    ),
    fails(
        "key-too-long",
        _one(name="\u00e9" * 513),
        unread(ALL_READERS, _one(name="\u00e9" * 512, in_folder="key-too-long")),
    ),
    warns("name-s3-special", _one(name="soap"), _one(name="soap/a")),
    warns("name-trailing-space-dot", _one(name="a ./b"), _one(name="a .b")),
    fails("encrypted", _one(flags=0x1), _one(flags=0x2000)),
    fails("encrypted", _one(flags=0x1), unread("zipfile", _one(flags=0x40))),
    fails("encrypted", _one(flags=0x1), unread("zipfile", _one(flags=0x2040))),
    fails("encrypted", _one(flags=0x1), unread("7zz", _one(central={"flags": 0x2000}))),
    fails("encrypted", _one(method=99)),
    fails("strong-encryption", _one(flags=0x41), archive(CRYPTED), OPENING),
    fails(
        "encryption-malformed",
        _one(method=99, flags=0x1),
        archive(seal_aes(A, SECRET)),
        OPENING,
    ),
    fails("encryption-malformed", _one(data=b"x" * 11, flags=0x1), policy=OPENING),
    fails(
        "wrong-password",
        archive(seal_aes(A, b"other")),
        archive(seal_aes(A, SECRET, 1)),
        OPENING,
    ),
    fails("wrong-password", archive(seal_zipcrypto(A, b"other")), archive(CRYPTED), OPENING),
    fails(
        "aes-mac-mismatch",
        archive(replace(SEALED, data=SEALED.stored_data[:-1] + b"\0")),
        archive(SEALED),
        OPENING,
    ),
    fails(
        "aes-mac-mismatch",
        archive(replace(DEFLATED_SEALED, data=DEFLATED_SEALED.stored_data[:-1] + b"\0"), A),
        archive(DEFLATED_SEALED, A),
        OPENING,
    ),
    fails("unsupported-method", _one(method=98), _one(method=LZMA)),
    fails(
        "unsupported-method",
        archive(seal_aes(replace(A, method=99), SECRET)),
        policy=OPENING,
    ),
    fails("patch-data", _one(flags=0x20)),
    warns(
        "version-needed",
        unread("zipfile unzip", _one(central={"needed": 0xFFFF})),
        unread("unzip", _one(central={"needed": 63})),
    ),
    warns(
        "version-needed",
        unread("zipfile unzip", _two(central={"needed": 64})),
        unread("unzip", _two(central={"needed": 0x033F})),
    ),
    warns("reparse-point", unread("7zz", _by_fat(0x420)), _one(attributes=0x420)),
    fails(
        "symlink",
        _by_fat(0x420, "reparse-point", content=LINK_TAG + bytes(20)),
        unread("7zz", _by_fat(0x420, "reparse-point")),
    ),
    fails(
        "symlink",
        _by_fat(0x400, "reparse-point", content=LINK_TAG + bytes(20), method=DEFLATE),
        _by_fat(0x020, content=LINK_TAG + bytes(20), method=DEFLATE),
    ),
    fails("symlink", _by_fat(0o120777 << 16), _by_fat(0o100777 << 16)),
    fails("device", _by_fat(0o020644 << 16), _by_fat(0o100644 << 16)),
    *(fails("device", _by_fat(0o020644 << 16), _by_fat(bits)) for bits in WINDOWS_ATTRIBUTES),
    warns("fifo-mode", _by_fat(0o010644 << 16), _by_fat(0o100644 << 16)),
    fails("symlink", _one(attributes=0o120644 << 16), _one(attributes=0o100644 << 16)),
    fails("device", _one(attributes=0o060644 << 16), _one(attributes=0o100644 << 16)),
    warns("fifo-mode", _one(attributes=0o010644 << 16), _one(attributes=0o100644 << 16)),
    fails("dir-with-data", _one(name="d/"), archive(Member("d/"))),
    fails("dir-with-data", _folder(data=b"hidden payload"), _folder()),
    fails(
        "dir-with-data",
        _folder(method=DEFLATE, data=bytes(6)),
        _folder(method=DEFLATE, data=b"\3\0"),
    ),
    *(fails("dir-with-data", roots(name, content=TEXT), roots(name)) for name in ROOTS),
    fails("dir-with-data", sized(data=b"a"), sized("dir-with-size")),
    fails("dir-with-data", sized(crc32=1), sized("dir-with-size")),
    fails("dir-with-data", sized(data=bytes(12), flags=1), unread("unzip", _folder(flags=1))),
    fails(
        "dir-with-data",
        sized(data=b"Z" * 9, method=ZSTD),
        unread("unzip", _folder(data=b"Z" * 9, method=ZSTD)),
    ),
    warns("dir-with-size", sized(), _folder()),
    warns(
        "dir-with-size",
        sized(data=b"\3\0", method=DEFLATE),
        _folder(data=b"\3\0", method=DEFLATE),
    ),
    warns(
        "dir-with-size",
        unread(
            "zipfile unzip 7zz",
            sized("dir-attr-without-slash", name="d", attributes=FOLDER, key=""),
        ),
        unread(
            "zipfile unzip", _folder("dir-attr-without-slash", name="d", attributes=FOLDER, key="")
        ),
    ),
    warns("dir-with-size", unread(ALL_READERS, sized("dir-is-root", name="/")), roots("/")),
    rejects("overlap", archive(listing(6), A), unread("7zz", archive(listing(5), A))),
    rejects("member-out-of-bounds", archive(A, listing(33)), unread("7zz", archive(A, listing(5)))),
    warns(
        "dir-attr-without-slash",
        unread("zipfile unzip", archive(EMPTY_FOLDER, Member("d/a"))),
        archive(Member("d/")),
    ),
    warns(
        "dir-attr-without-slash",
        unread("zipfile unzip", archive(EMPTY_FOLDER)),
        archive(Member("d", attributes=0x10)),
    ),
    warns("dir-attr-without-slash", unread("bsdtar 7zz", _by_fat(0x10)), _by_fat(0x20)),
    fails("lfh-bad-signature", _one(local={"signature": b"PK\x03\x05"})),
    fails("lfh-name-mismatch", _one(local_name=b"b.txt")),
    *(fails("lfh-name-mismatch", beside(local_name=name)) for name in UNLIKE),
    *(fails("lfh-name-mismatch", beside(name=PATH, local_name=name)) for name in UNLIKE),
    fails("lfh-name-mismatch", beside(name=PATH, local_name=PATH.encode("cp850"))),
    fails("lfh-name-mismatch", _one(name="a/b", local_name=b"a/b/")),
    warns(
        "lfh-name-variant",
        unread("zipfile", _one("name-dot-normalised", name="./a", local_name=b"a", key="a")),
    ),
    warns(
        "lfh-name-variant",
        unread("zipfile", _one(name="a/b", local_name=b".//a/./b")),
        _one(name="a/b"),
    ),
    fails("lfh-method-mismatch", _one(local={"method": 8})),
    fails(
        "lfh-method-mismatch",
        archive(replace(SEALED, local_extra=aes_extra(DEFLATE))),
        archive(SEALED),
        OPENING,
    ),
    fails(
        "lfh-size-crc-mismatch",
        _two("stream-absent", content=b"", data=b"", after=bytes(33), local={"crc32": 1}),
    ),
    fails(
        "lfh-size-crc-mismatch",
        _one(local=HUGE, local_extra=zip64_extra(len(TEXT) + 1)),
        _one(local=HUGE, local_extra=zip64_extra(len(TEXT))),
    ),
    fails("lfh-size-crc-mismatch", _one(descriptor="signed32", local={"size": 1})),
    fails("lfh-encryption-mismatch", _one(local={"flags": 1})),
    fails("dd-mismatch", _one(descriptor="signed32", described={"crc32": 1})),
    fails(
        "dd-mismatch",
        _one(flags=8, local={"size": 0, "compressed_size": 0}),
        _one(flags=8, after=DESCRIBED),
    ),
    fails(
        "dd-mismatch", _one(flags=8, after=bytes(4)), unread("unzip", _one("dd-absent", flags=8))
    ),
    fails(
        "dd-mismatch",
        _one(flags=8, after=b"PK\3\5"),
        unread("unzip", _one("dd-absent hidden-local-header", flags=8, after=b"PK\3\4")),
    ),
    warns("dd-absent", unread("unzip", _one(flags=8)), _one()),
    warns(
        "dd-absent", unread("unzip", archive(replace(B, flags=8), A)), _two(descriptor="signed32")
    ),
    warns(
        "dd-absent",
        unread("unzip", _one(flags=8, content=b"")),
        _one(descriptor="signed32", content=b""),
    ),
    warns(
        "dd-absent",
        unread(
            "unzip",
            _one(
                flags=8,
                local={"size": SENTINEL, "compressed_size": SENTINEL},
                local_extra=zip64_extra(len(TEXT), len(TEXT)),
            ),
        ),
        _one(flags=8, after=DESCRIBED),
    ),
    warns(
        "dd-absent",
        unread(ALL_READERS, archive(replace(CRYPTED, flags=9))),
        archive(CRYPTED),
        OPENING,
    ),
    warns(
        "dd-absent",
        unread("unzip 7zz", _one("lfh-flag3-mismatch", local={"flags": 8})),
        _one(descriptor="signed64"),
    ),
    warns(
        "dd-absent",
        unread("unzip", _one(flags=8, after=b"PK\1\2" + bytes(12))),
        _one(flags=8, after=DESCRIBED),
    ),
    # Java's file system for ZIP copies 16 bytes of each descriptor.
    *(
        warns("dd-cut", _one(flags=8, after=described[:16]), _one(descriptor="signed64"))
        for described in (DESCRIBED, DESCRIBED[4:])
    ),
    fails("dd-mismatch", _one(flags=8, after=DESCRIBED[:17])),
    fails("dd-mismatch", _one(flags=8, after=bytes(4) + DESCRIBED[4:16])),
    warns("dd-missing-signature", _one(descriptor="bare32"), _one(descriptor="signed32")),
    warns(  # its CRC-32 looks like the signature
        "dd-missing-signature",
        _one(content=b"\xac\nz\xd5", descriptor="bare32"),
        _one(content=b"\xac\nz\xd5", descriptor="signed32"),
    ),
    warns("lfh-flag3-mismatch", unread("7zz", _one(descriptor="signed32", central={"flags": 0}))),
    warns(
        "hidden-local-header", unread("7zz", archive(A, replace(B, listed=False))), archive(A, B)
    ),
    warns(
        "hidden-local-header",
        unread("7zz", _shaped("prefix-adjusted", prefix=b"X" + INNER, adjusted=True)),
        _shaped("prefix-adjusted", prefix=LITERALS, adjusted=True),
    ),
    *(
        warns(
            "hidden-local-header",
            archive(replace(A, after=bytes(gap) + b"PK\3\4 hidden"), B),
            archive(replace(A, after=bytes(AFTER_LENGTH) + b"PK\3\4 hidden"), B),
        )
        for gap in (0, AFTER_LENGTH - 4)
    ),
    fails("stored-size-mismatch", _one(data=TEXT + b"x")),
    fails("stored-size-mismatch", _one(flags=1), archive(CRYPTED), OPENING),
    fails("size-overrun", _two(data=compress(DEFLATE, TEXT + b"x"))),
    fails("stream-truncated", _two(data=DEFLATED[:-3])),
    warns(
        "stream-absent",
        unread("unzip 7zz", _two(content=b"", method=DEFLATE, data=b"")),
        _two(content=b"", method=DEFLATE),
    ),
    warns(
        "stream-absent",
        unread("unzip 7zz", _two(content=b"", method=ZSTD, data=b"", descriptor="signed32")),
        _two(content=b"", method=ZSTD),
    ),
    fails("bomb-ratio", _two(method=DEFLATE, data=b"")),
    fails("size-mismatch", _two(data=compress(DEFLATE, TEXT[:-1]))),
    fails(
        "size-mismatch",
        replace(_two(content=b"", data=b"", after=bytes(33)), warnings="stream-absent"),
        unread(
            "unzip 7zz",
            replace(_two(content=b"", data=b"", after=bytes(32)), warnings="stream-absent"),
        ),
    ),
    fails("compressed-trailing-bytes", _two(data=DEFLATED + b"x")),
    fails("crc-mismatch", _one(local=OTHER, central=OTHER)),
    fails(
        "crc-mismatch",
        archive(replace(AE1, local=OTHER, central=OTHER)),
        archive(AE1),
        OPENING,
    ),
    fails("corrupt-stream", _two(data=b"\xff" * 20)),
    fails(
        "memory-bound",
        _one(content=TEXT * 1000, method=LZMA),
        _one(content=TEXT * 10, method=LZMA),
        _limited(decoder_memory=16_384),
    ),
]

# What a lenient policy turns into a warning.
LENIENT_ROWS = [
    warns("trailing-data", _shaped(trailing=b"x"), policy=LENIENT),
    warns("zip64-extensible-data", wide(extensible=b"more data"), wide(), LENIENT),
    warns(
        "duplicate-name",
        archive(replace(A, key=""), replace(A, content=b"the last one")),
        policy=LENIENT,
    ),
    warns("duplicate-name", archive(FIRST, replace(A, key=""), AGAIN, LAST), policy=LENIENT),
    rejects(
        "overlap",
        archive(
            FIRST,
            replace(A, key=""),
            replace(AGAIN, central={"offset": 32, "compressed_size": 41}),
            LAST,
        ),
        archive(FIRST, A, LAST),
        LENIENT,
    ),
    *(
        warns("name-drive-letter", _one(name=name, key=key), policy=LENIENT)
        for name, key in WITH_DRIVE.items()
    ),
    fails("name-dotdot", _one("name-drive-letter", name="C:/../a"), policy=LENIENT),
    fails("name-empty", _one("name-drive-letter", name="C:"), policy=LENIENT),
    fails("name-guessed-backslash", _one(name=SOLID, key=""), policy=LENIENT),
    *(
        warns(
            "lfh-name-variant",
            _one(warnings, name=name, local_name=local_name, key="a/b"),
            policy=LENIENT,
        )
        for warnings, name, local_name in VARIANTS
    ),
    fails(
        "lfh-name-mismatch",
        _one("name-backslash", name="a\\b", local_name=b"a/c"),
        _one(name="a/b", local_name=b"a/b"),
        LENIENT,
    ),
    warns("name-absolute", _one(name="/etc/passwd", key="etc/passwd"), policy=LENIENT),
    fails("name-dotdot", _one("name-absolute", name="/../c"), policy=LENIENT),
    warns("name-backslash", _one(name="a\\b", key="a/b"), policy=LENIENT),
    fails("name-dotdot", _one("name-backslash", name="..\\c"), policy=LENIENT),
    warns("name-control-char", _one(name="a\x1bb"), policy=LENIENT),
    warns("name-combining-run", _one(name="e" + MARK * 31), policy=LENIENT),
    warns(
        "unicode-path-duplicate",
        _one("lfh-unicode-path-duplicate", extra=unicode_path(b"a.txt", "b") * 2),
        policy=LENIENT,
    ),
    warns(
        "unicode-path-mismatch",
        _one("lfh-unicode-path-mismatch", flags=0x800, extra=unicode_path(b"a.txt", CJK)),
        policy=LENIENT,
    ),
    warns("lfh-unicode-path-mismatch", _one(local_extra=EVIL), policy=LENIENT),
    warns("symlink", _one(attributes=0o120644 << 16), policy=LENIENT),
    warns("dir-with-data", _folder(content=TEXT), policy=LENIENT),
    warns("compressed-trailing-bytes", _two(data=DEFLATED + b"x"), policy=LENIENT),
]

# Names that one encoding alone reads.
ENCODED_ROWS = [
    fails(
        "name-guessed-backslash",
        _one(name=name.encode(encoding), key=""),
        replace(_one(name=name.encode(encoding), key=name), policy=Policy(encoding=encoding)),
    )
    for name, encoding in (
        ("\u65b0/SJIS_835C_\u30bd.txt", "shift_jis"),
        ("mod/\u7684\u9670\u8b00v1.0.txt", "gbk"),
        ("\u529f\u80fd/a", "big5"),
    )
]
