"""The habits of real writers, each in the smallest archive that shows it.

What a writer does was read in its source, in files that it wrote, or in public reports of users.
Next to it are archives that look the same, but whose doubt is real.
"""

import io
import struct
import zipfile
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

from s3unzip.zip import Policy
from tests.corpus.labels import (
    ALL_READERS,
    LENIENT,
    OPENING,
    SECRET,
    TEXT,
    Archive,
    Member,
    archive,
    fails,
    rejects,
    unread,
)
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    DEFLATE64,
    LZMA,
    SENTINEL,
    XZ,
    ZSTD,
    Shape,
    build,
    extra,
    log_lines,
    seal_aes,
    seal_zipcrypto,
    unicode_path,
    zip64_extra,
)

UTF8 = 0x800
FOLDER_BITS = 0o40755 << 16 | 0x10
UTF8_GUESSED = "name-encoding-guess"

A = Member("dir/a.txt", TEXT, DEFLATE)
B = Member("b.bin", bytes(range(256)))
FOLDER = Member("dir/", attributes=FOLDER_BITS)
CAFE = Member("caf\u00e9.txt", TEXT, DEFLATE)  # bit 11, as nearly all writers of today
FILES = (FOLDER, A, B, CAFE)
STREAMED = tuple(replace(file, descriptor="signed32") for file in (A, B, CAFE))
ABSENT = tuple(replace(file, flags=8) for file in (A, B, CAFE))

TIMES = extra(0x5455, struct.pack("<BI", 3, 1_700_000_000))
LOCAL_TIMES = extra(0x5455, struct.pack("<BII", 3, 1_700_000_000, 1_700_000_001))
OWNERS = extra(0x7875, struct.pack("<BBIBI", 1, 4, 1000, 4, 1000))
NTFS = extra(0x000A, struct.pack("<IHHQQQ", 0, 1, 24, 133_444_736_000_000_000, 0, 0))
MAC_HEADERS: dict[str, Any] = {
    "extra": extra(0x5855, struct.pack("<II", 1_700_000_000, 1_700_000_000)),
    "local_extra": extra(0x5855, struct.pack("<IIHH", 1_700_000_000, 1_700_000_000, 501, 20)),
}
MAC = {"made_by": 0x315}
FAT = {"made_by": 20}
BOTH_SENTINELS = {"size": SENTINEL, "compressed_size": SENTINEL}
NOTHING = {"size": 0, "compressed_size": 0}
STUB = b"MZ" + b"This program cannot be run in DOS mode. " * 20


def by(
    *members: Member, warnings: str = "", shape: Shape | None = None, **habit: object
) -> Archive:
    """Build an archive whose members all have a habit: any fields of `Member`."""
    changed = [replace(member, **habit) for member in members]  # type: ignore[arg-type]
    return archive(*changed, warnings=warnings, shape=shape or Shape())


def _sizes_of(member: Member) -> tuple[int, int]:
    return len(member.content), len(member.stored_data)


def write_by_zipfile(*, streamed: bool, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Write the files by `zipfile`; only forward, hence with descriptors, if `streamed`."""
    written = io.BytesIO()
    forward: Any = SimpleNamespace(write=written.write, flush=written.flush)
    with zipfile.ZipFile(forward if streamed else written, "w", method) as target:
        for file in FILES:
            target.writestr(zipfile.ZipInfo(str(file.name)), file.content, method)
    return written.getvalue()


def write_in_place() -> bytes:
    """Write by `zipfile` as a file is opened in an archive, with a ZIP64 field in case."""
    written = io.BytesIO()
    entry = zipfile.ZipInfo("b.bin")
    with zipfile.ZipFile(written, "w") as target, target.open(entry, "w", force_zip64=True) as b:
        b.write(B.content)
    return written.getvalue()


PIPED = Member(
    "-",
    TEXT,
    DEFLATE,
    attributes=0o010600 << 16,
    local={**BOTH_SENTINELS, "needed": 45},
    local_extra=zip64_extra(len(TEXT), len(A.stored_data)),
    central={"made_by": 0x31E, "needed": 45},
)

AE2 = tuple(seal_aes(file, SECRET) for file in (A, B, CAFE))
CRYPTED = tuple(seal_zipcrypto(file, SECRET) for file in (A, B, CAFE))
# Info-ZIP writes the time in place of the CRC-32, and the length of stored data before encryption.
TIMED = {"crc32": 0x6C25_0000}
PIPED_SECRETS = tuple(
    seal_zipcrypto(replace(file, local=values), SECRET)
    for file, values in (
        (STREAMED[0], {**TIMED, "size": len(TEXT)}),
        (STREAMED[1], {**TIMED, "size": 256, "compressed_size": 256}),
        (STREAMED[2], {**TIMED, **BOTH_SENTINELS}),
    )
)
MIMETYPE = Member("mimetype", b"application/epub+zip")
CONTENT_TYPES = Member("[Content_Types].xml", b"<Types/>" * 9, DEFLATE)
MANIFEST = Member("META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\r\n\r\n", DEFLATE)
META_INF = Member("META-INF/", method=DEFLATE, descriptor="signed32", flags=UTF8)
INNER = build(A, B)
CAFE_NFD = "cafe\u0301.txt"
OEM = Member(b"\x84pfel.txt", TEXT, DEFLATE, key="\u00e4pfel.txt")  # cp437

# At the limits of `tests.support.memory.TINY` the first is split, and the store copies the second.
LOG = Member("a/log.txt", log_lines(400_000), DEFLATE)
NOISE = Member("noise.bin", Random(5).randbytes(20_000))
LARGE = (LOG, NOISE, B, Member("empty"))

FAMILIES = {
    "Info-ZIP": {
        "zip -r": by(*FILES, extra=TIMES + OWNERS, local_extra=LOCAL_TIMES + OWNERS),
        "zip -r - into a pipe": by(
            *STREAMED, extra=TIMES + OWNERS, local_extra=LOCAL_TIMES + OWNERS
        ),
        "zip of standard input": archive(
            PIPED,
            shape=Shape(
                zip64=True,
                eocd={
                    "entries": 1,
                    "disk_entries": 1,
                    "directory_size": 47,
                    "directory_offset": len(PIPED.local_part()),
                },
            ),
            warnings="fifo-mode",
        ),
        "zip -e into a pipe": unread("bsdtar", archive(*PIPED_SECRETS, policy=OPENING)),
        "zip -Z bzip2": by(*FILES, method=BZIP2),
        "zip -0": by(*FILES, method=0),
        "zip -z": by(*FILES, shape=Shape(comment=b"a comment\nof two lines")),
        "zip -A behind a stub": by(
            *FILES, warnings="prefix-adjusted", shape=Shape(prefix=STUB, adjusted=True)
        ),
        "cat unzipsfx and an archive": by(
            *FILES, warnings="prefix-unadjusted", shape=Shape(prefix=STUB)
        ),
        "zip 2.3, owners of two bytes": by(
            *FILES, extra=extra(0x7855, b""), local_extra=extra(0x7855, b"\xe8\3\xe8\3")
        ),
        "zip in a Latin-1 locale": archive(
            Member(
                b"caf\xe9.txt",
                TEXT,
                extra=unicode_path(b"caf\xe9.txt", "caf\u00e9.txt"),
                key="caf\u00e9.txt",
            ),
            warnings="unicode-path-used",
        ),
        "zip -fz, ZIP64 without need": by(*FILES, shape=Shape(zip64=True), local={"needed": 45}),
        "zip on OS/2": by(*FILES, extra=extra(0x0009, bytes(4)), central={"made_by": 0x61E}),
        "zip on VMS": by(A, B, extra=extra(0x000C, bytes(8)), central={"made_by": 0x21E}),
    },
    "7-Zip": {
        "on Linux": by(
            *FILES, extra=NTFS, local_extra=b"", attributes=0x81A48020, central={"made_by": 0x33F}
        ),
        "on Windows": by(
            A, B, CAFE, extra=NTFS, local_extra=b"", attributes=0x20, central={"made_by": 0x3F}
        ),
        "of standard input": by(
            A,
            warnings="fifo-mode",
            local={**BOTH_SENTINELS, "needed": 45},
            local_extra=zip64_extra(*_sizes_of(A)),
            attributes=0x11808020,
        ),
        "AES-256": archive(*AE2, policy=OPENING),
        "ZipCrypto": archive(*CRYPTED, policy=OPENING),
        "Deflate64": by(*FILES, method=DEFLATE64),
        "LZMA": by(*FILES, method=LZMA),
        "xz": by(*FILES, method=XZ),
        "zstd": by(*FILES, method=ZSTD),
        "BZip2": by(*FILES, method=BZIP2),
    },
    "WinZip": {
        "AE-1": archive(
            *tuple(seal_aes(file, SECRET, version=1) for file in (A, B, CAFE)), policy=OPENING
        ),
        "AES-128": archive(*(seal_aes(file, SECRET, 2, 1) for file in (A, B)), policy=OPENING),
        "AES-192": archive(*(seal_aes(file, SECRET, 2, 2) for file in (A, B)), policy=OPENING),
        "AES of one member": archive(AE2[0], B, policy=OPENING),
        "self-extractor, padded with NULs": by(
            *FILES,
            warnings="prefix-adjusted trailing-padding",
            shape=Shape(prefix=STUB, adjusted=True, trailing=bytes(2209)),
        ),
        "zipx: LZMA and zstd": archive(replace(A, method=LZMA), replace(B, method=ZSTD)),
        "Unicode paths beside cp437": by(
            OEM,
            warnings="unicode-path-used",
            extra=unicode_path(OEM.raw_name, "\u00e4pfel.txt"),
            central=FAT,
        ),
    },
    "Windows": {
        "Explorer, cp437 names": by(OEM, A, warnings=UTF8_GUESSED, attributes=0x20, central=FAT),
        "Explorer in Japan": archive(
            Member("\u65b0/\u8868\u30bd.txt".encode("cp932"), TEXT, key="\u65b0/\u8868\u30bd.txt"),
            policy=Policy(encoding="cp932"),
        ),
        "Explorer in Russia": archive(
            Member(
                "\u0444\u0430\u0439\u043b.txt".encode("cp866"),
                TEXT,
                key="\u0444\u0430\u0439\u043b.txt",
            ),
            policy=Policy(encoding="cp866"),
        ),
        "Explorer in China": archive(
            Member("\u7684\u9670.txt".encode("gbk"), TEXT, key="\u7684\u9670.txt"),
            policy=Policy(encoding="gbk"),
        ),
        "Explorer above 2 GB: Deflate64": by(A, B, method=DEFLATE64, attributes=0x20, central=FAT),
        "Explorer of Windows 11": by(*FILES, central={"made_by": 0xB14}, attributes=0x20),
        "directories by attribute": unread(
            "zipfile unzip",
            by(
                Member("dir", attributes=0x10, key=""),
                replace(A, attributes=0x20),
                warnings="dir-attr-without-slash",
                central=FAT,
            ),
        ),
        "OneDrive: no disk in the locator": unread(
            "unzip", by(*FILES, shape=Shape(zip64=True, locator={"disks": 0}))
        ),
    },
    "macOS": {
        "Archive Utility": by(
            *STREAMED[:2],
            Member(
                "__MACOSX/dir/._a.txt", b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(60), DEFLATE
            ),
            **MAC_HEADERS,
            descriptor="signed32",
            central=MAC,
        ),
        "Archive Utility, decomposed names": by(
            Member(CAFE_NFD.encode(), TEXT, key=CAFE_NFD),
            warnings=UTF8_GUESSED,
            **MAC_HEADERS,
            descriptor="signed32",
            central=MAC,
        ),
        "Archive Utility, folders": by(
            Member("dir/", attributes=0o40755 << 16), A, **MAC_HEADERS, central=MAC
        ),
        "Archive Utility, a folder with an icon": unread(
            "unzip",
            by(
                Member("dir/Icon\r"), A, warnings="name-carriage-return", **MAC_HEADERS, central=MAC
            ),
        ),
        "Archive Utility, empty file": by(
            Member("empty"), *STREAMED[:1], **MAC_HEADERS, central=MAC
        ),
        "ditto -c -k": by(*STREAMED, extra=OWNERS, central=MAC),
        "Finder, a slash in a name": by(Member("notes 1:2.txt", TEXT), **MAC_HEADERS, central=MAC),
    },
    "office": {
        "LibreOffice: descriptors announced and absent": unread(
            "unzip",
            archive(
                Member("mimetype", b"application/vnd.oasis.opendocument.text"),
                *(replace(file, flags=8 | UTF8) for file in (A, B, CAFE)),
                warnings="dd-absent",
            ),
        ),
        "ODF: mimetype first": archive(MIMETYPE, *STREAMED),
        "EPUB: mimetype first": archive(MIMETYPE, FOLDER, A, CAFE),
        "OOXML: a growth hint": archive(
            replace(
                CONTENT_TYPES,
                flags=6,
                local_extra=extra(0xA220, struct.pack("<HHH", 0xA028, 20, 20) + bytes(40)),
            ),
            replace(A, flags=6),
            B,
        ),
        "OOXML with a line break at its end": archive(
            CONTENT_TYPES, A, shape=Shape(trailing=b"\n"), warnings="trailing-padding"
        ),
        "OPC of .NET": by(CONTENT_TYPES, A, descriptor="signed32", central={"needed": 20, **FAT}),
        "libgsf: a length that counts too much": unread(
            "zipfile unzip 7zz",
            by(
                *FILES,
                warnings="zip64-record-length",
                shape=Shape(zip64=True, zip64_eocd={"record_size": 56}),
            ),
        ),
        "libgsf: place kept for ZIP64": by(*FILES, extra=b"", local_extra=extra(0x4949, bytes(16))),
        "USDZ: aligned to 64 bytes": archive(
            replace(B, local_extra=extra(0x1986, bytes(64 - 30 - 5 - 4)))
        ),
        "KMZ": archive(Member("doc.kml", TEXT, DEFLATE), B),
        "CBZ": by(B, Member("page 1.jpg", bytes(999)), method=0),
    },
    "libraries": {
        "adm-zip: descriptors announced and absent": unread(
            "unzip", by(*ABSENT, warnings="dd-absent", central={"made_by": 0xA14})
        ),
        "C1Zip: descriptors announced and absent": unread(
            "unzip", by(*ABSENT, warnings="dd-absent", central=FAT)
        ),
        "zipc: descriptors announced and absent": unread(
            "unzip", by(*ABSENT, warnings="dd-absent", flags=8 | UTF8)
        ),
        "PHPZipStreamer: ZIP64 and no descriptor": unread(
            "unzip",
            by(
                replace(A, local_extra=zip64_extra(*_sizes_of(A))),
                replace(B, local_extra=zip64_extra(*_sizes_of(B))),
                warnings="dd-absent",
                flags=8,
                local={**BOTH_SENTINELS, "needed": 45},
                shape=Shape(zip64=True),
            ),
        ),
        "JSZip": by(*FILES, central={"made_by": 0x314, "needed": 10}, local={"needed": 10}),
        "JSZip, Unicode paths": archive(
            replace(CAFE, extra=unicode_path(CAFE.raw_name, str(CAFE.name)))
        ),
        "yazl": by(*STREAMED, flags=UTF8, central={"made_by": 0x33F}),
        "archiver for Node": by(*STREAMED, flags=UTF8, central={"made_by": 0x32D}),
        "Go archive/zip": by(*STREAMED, central=FAT, attributes=0),
        "Go archive/zip, times": by(
            *STREAMED, extra=extra(0x5455, struct.pack("<BI", 1, 1_700_000_000)), central=FAT
        ),
        "Go above 4 GiB: descriptors of 64 bits": by(*STREAMED, descriptor="signed64"),
        "Python zipfile": archive(*FILES, raw=write_by_zipfile(streamed=False)),
        "Python zipfile, streamed": archive(*FILES, raw=write_by_zipfile(streamed=True)),
        "Python zipfile, stored": archive(
            *FILES, raw=write_by_zipfile(streamed=True, method=zipfile.ZIP_STORED)
        ),
        "Python zipfile, LZMA": archive(
            *(replace(file, method=LZMA) for file in FILES),
            raw=write_by_zipfile(streamed=False, method=zipfile.ZIP_LZMA),
        ),
        "Python zipfile, ZIP64 in case": archive(B, raw=write_in_place()),
        "libarchive": by(
            *STREAMED, local={"needed": 20}, extra=LOCAL_TIMES + OWNERS, central={"made_by": 0x314}
        ),
        "libarchive, size in the local header": archive(
            *(replace(file, local={"size": len(file.content)}) for file in STREAMED)
        ),
        "bsdtar -a -cf x.zip .": unread(
            "zipfile",  # of Python 3.12
            by(
                Member("./"),
                Member("./a.txt", TEXT, DEFLATE, descriptor="signed32", key="a.txt"),
                warnings="dir-is-root name-dot-normalised",
                extra=LOCAL_TIMES + OWNERS,
                central={"made_by": 0x314},
            ),
        ),
        "bsdtar into a pipe: padded to a block": by(
            *STREAMED, warnings="trailing-padding", shape=Shape(trailing=bytes(9000))
        ),
        "libarchive, streams in ZIP64": archive(
            *(
                replace(
                    file,
                    descriptor="signed64",
                    extra=b"",
                    local={"needed": 45, **BOTH_SENTINELS},
                    local_extra=zip64_extra(len(file.content), 0),
                )
                for file in STREAMED
            )
        ),
        "libzip": by(*FILES, central={"made_by": 0x33F}, extra=b""),
        ".NET ZipArchive": by(*FILES, central={"made_by": 0x14}, attributes=0),
        ".NET ZipArchive, streamed": by(*STREAMED, central={"made_by": 0x14}, attributes=0),
        "DotNetZip": by(*STREAMED, extra=NTFS, central={"made_by": 0x2D}),
        "SharpZipLib: ZIP64 fields in case": archive(
            *(
                replace(
                    file,
                    descriptor="signed64",
                    local=BOTH_SENTINELS,
                    local_extra=zip64_extra(0, 0),
                    extra=b"",
                )
                for file in STREAMED
            )
        ),
        "zip4j: AES and descriptors": archive(
            *(seal_aes(file, SECRET) for file in STREAMED), policy=OPENING
        ),
        "zip_tricks: disks of all ones": by(
            *FILES, shape=Shape(zip64=True, eocd={"disk": 0xFFFF, "directory_disk": 0xFFFF})
        ),
        "commons-compress, Zip64Mode.Always": archive(
            *(
                replace(
                    file,
                    local=BOTH_SENTINELS,
                    central=BOTH_SENTINELS,
                    extra=zip64_extra(*_sizes_of(file)),
                )
                for file in (A, B)
            )
        ),
        "a ZIP64 field with an offset only": archive(
            replace(A, central={"offset": SENTINEL}, extra=zip64_extra(0), local_extra=b"")
        ),
        "a ZIP64 field with a compressed size only": archive(
            replace(
                A,
                central={"compressed_size": SENTINEL},
                extra=zip64_extra(_sizes_of(A)[1]),
                local_extra=b"",
            )
        ),
        "a ZIP64 field with all values": archive(
            replace(
                A,
                central={**BOTH_SENTINELS, "offset": SENTINEL, "disk": 0xFFFF},
                extra=extra(1, struct.pack("<QQQI", *_sizes_of(A), 0, 0)),
                local_extra=b"",
            )
        ),
        "git archive": by(
            *FILES,
            extra=extra(0x5455, struct.pack("<BI", 1, 1_700_000_000)),
            central={"made_by": 0},
            shape=Shape(comment=b"0123456789abcdef0123456789abcdef01234567"),
        ),
        "rubyzip": by(*FILES, central={"made_by": 0x334}, extra=TIMES),
        "Rust zip": by(*FILES, local={"needed": 20}, central={"made_by": 0x32E}),
        "minizip-ng": by(*FILES, extra=extra(0x5455, b"\1" + bytes(4)), central={"made_by": 0x32D}),
        "ZIPFoundation: folders with a size": archive(
            replace(FOLDER, central={"size": 68}, local={"size": 68}), A, warnings="dir-with-size"
        ),
        "miniz: folders with a size": archive(
            replace(FOLDER, method=DEFLATE, data=b"", central={"size": 4096}, local={"size": 4096}),
            A,
            warnings="dir-with-size",
        ),
        "IPED: a field that ends behind its block": unread(
            "zipfile bsdtar",
            archive(
                replace(A, extra=extra(0x5455, bytes(9))[:-4], local_extra=b""),
                B,
                warnings="cd-extra-malformed",
            ),
        ),
        "as3corelib: empty members as folders": unread(
            ALL_READERS,
            archive(
                Member("202301/a.csv", TEXT),
                Member("202303", in_folder=""),
                Member("202303/b.csv", TEXT),
                Member("202301", in_folder=""),
                warnings="file-dir-prefix-conflict",
            ),
        ),
        "UnzipKit: backslashes in Unicode paths": archive(
            Member(
                b"Acribor\x82a/A.txt",
                TEXT,
                extra=unicode_path(b"Acribor\x82a/A.txt", "Acribor\u00e9a\\A.txt"),
                key="Acribor\u00e9a/A.txt",
            ),
            warnings="unicode-path-used unicode-path-backslash",
        ),
        "Windows attributes like the type of a device": by(
            B, attributes=0x20000020, central={"made_by": 0x14}
        ),
        "bit 13 without encryption": by(A, B, flags=0x2000),
        "log2timeline: backslashes, slashes in local headers": unread(
            "zipfile",
            archive(
                Member("sv\\A.dll", TEXT, local_name=b"sv/A.dll", key="sv/A.dll"),
                warnings="name-backslash lfh-name-variant",
                policy=LENIENT,
            ),
        ),
        ".NET 4.5: backslashes": archive(
            Member("sv\\A.dll", TEXT, key="sv/A.dll"), warnings="name-backslash", policy=LENIENT
        ),
        "a backslash at the end of the name of a file": archive(
            Member("sv\\b\\", TEXT, key="sv/b"), warnings="name-backslash", policy=LENIENT
        ),
        "kuba--/zip: drive letters": archive(
            Member("C:/New Folder/1.docx", TEXT, key="New Folder/1.docx"),
            warnings="name-drive-letter",
            policy=LENIENT,
        ),
        "ZipStream-PHP, zero headers": by(*STREAMED, central={"made_by": 0x603}, flags=UTF8),
    },
    "services": {
        "Google Takeout": by(*STREAMED, flags=UTF8, central={"made_by": 0x2D, "needed": 45}),
        "Dropbox: the destination as a folder": unread(
            "zipfile unzip",
            archive(Member("/", attributes=FOLDER_BITS), *STREAMED, warnings="dir-is-root"),
        ),
        "NiFi, ZipCrypto": archive(
            *(seal_zipcrypto(file, SECRET) for file in STREAMED), policy=OPENING
        ),
        "an archive of archives, stored": archive(
            Member("inner.zip", INNER), Member("b.zip", INNER)
        ),
        "an archive of archives, deflated": archive(Member("inner.zip", INNER, DEFLATE), B),
        "a CRX extension": by(
            *FILES, warnings="prefix-unadjusted", shape=Shape(prefix=b"Cr24\3\0\0\0" + bytes(500))
        ),
        "a wheel": archive(A, Member("a-1.dist-info/RECORD", b"a.txt,,\n", DEFLATE)),
        "NuGet": archive(Member("_rels/.rels", TEXT, DEFLATE), CONTENT_TYPES, A),
    },
    "Java": {
        "jar": archive(
            replace(META_INF, extra=extra(0xCAFE, b"")),
            *(replace(f, flags=UTF8) for f in STREAMED[:2]),
            CAFE,
        ),
        "jar, folders without data": archive(
            replace(META_INF, descriptor=None, data=b""), MANIFEST
        ),
        "Spring Boot, executable": archive(
            MANIFEST,
            Member("BOOT-INF/lib/inner.jar", INNER),
            warnings="prefix-adjusted",
            shape=Shape(prefix=b"#!/bin/sh\nexec java -jar $0\n", adjusted=True),
        ),
        "Maven": by(*FILES, extra=TIMES, local_extra=LOCAL_TIMES, central={"made_by": 0x314}),
        "zipalign: up to three stray bytes": archive(
            replace(A, local_extra=bytes(3)), replace(B, local_extra=bytes(2), method=0)
        ),
        "zipflinger: empty fields": archive(replace(A, local_extra=bytes(8)), B),
        "apksig: aligned": archive(replace(B, local_extra=extra(0xD935, b"\4\0" + bytes(9)))),
        "an APK signing block": archive(
            MANIFEST, replace(B, after=bytes(8) + b"pairs" * 40 + b"APK Sig Block 42")
        ),
    },
    "large members": {
        "a length that counts too much": unread(
            "zipfile unzip 7zz",
            by(
                *LARGE,
                warnings="zip64-record-length",
                shape=Shape(zip64=True, zip64_eocd={"record_size": 56}),
            ),
        ),
        "a line break at the end": by(
            *LARGE, warnings="trailing-padding", shape=Shape(trailing=b"\n")
        ),
        "NULs at the end": unread(
            "zipfile unzip",
            by(*LARGE, warnings="trailing-padding", shape=Shape(trailing=bytes(70_000))),
        ),
        "descriptors announced and absent": unread(
            "unzip", by(*LARGE, warnings="dd-absent", flags=8)
        ),
        "directories without a place or bytes": unread(
            ALL_READERS,
            archive(
                Member("/"),
                Member("./"),
                Member(".", attributes=0o40755 << 16, key=""),
                Member("a/", central={"size": 4_096}),
                Member("META-INF/", method=DEFLATE, data=b"", central={"compressed_size": 2}),
                *LARGE,
                warnings="dir-is-root dir-with-size dir-attr-without-slash",
            ),
        ),
        "odd headers": unread(
            ALL_READERS,
            archive(
                replace(LOG, extra=extra(0x5455, bytes(9))[:-4], local_extra=b""),
                replace(NOISE, attributes=0x20000020, central=FAT),
                replace(B, flags=0x2000),
                Member("./empty", local_name=b"empty", key="empty"),
                warnings="cd-extra-malformed lfh-name-variant name-dot-normalised",
            ),
        ),
        "names that a lenient policy mends": unread(
            ALL_READERS,
            archive(
                Member("b.bin", b"an older version", key=""),
                replace(LOG, name="C:\\a\\log.txt", local_name=b"a/log.txt", key="a/log.txt"),
                replace(NOISE, name="/noise.bin", local_name=b"noise.bin", key="noise.bin"),
                B,
                warnings="duplicate-name lfh-name-variant name-drive-letter name-backslash"
                " name-absolute",
                policy=LENIENT,
            ),
        ),
    },
}

# What the same writers, and others, are known to do wrong.
ROWS = [
    fails("name-backslash", archive(Member("sv\\A.dll", TEXT), B)),
    fails("name-drive-letter", archive(Member("C:/New Folder/1.docx", TEXT), B)),
    fails(
        "lfh-name-mismatch",
        archive(replace(CAFE, local_name="caf\u00e9.txt".encode("cp850")), *FILES[:3]),
    ),
    fails(
        "dd-mismatch",
        archive(replace(A, flags=8, local=NOTHING), B),
        archive(*ABSENT[:1], B, warnings="dd-absent", unread="unzip"),
    ),
    fails("dd-mismatch", archive(replace(A, flags=8, local={**NOTHING, "crc32": 0}), B)),
    fails("dd-mismatch", archive(replace(A, flags=8, after=b"junk"), B)),
    fails(
        "dd-mismatch",
        by(replace(LOG, local={"size": 0}), *LARGE[1:], flags=8, warnings="dd-absent"),
    ),
    fails(
        "dd-mismatch",
        archive(LOG, replace(NOISE, flags=8, local={"size": 0}, failed="dd-mismatch")),
    ),
    fails("lfh-name-mismatch", archive(replace(LOG, local_name=b"l"), *LARGE[1:])),
    fails("lfh-name-mismatch", archive(replace(NOISE, local_name=b"another/name.bin"), B)),
    fails("lfh-size-crc-mismatch", archive(replace(A, flags=8, local={"crc32": 1}), B)),
    fails(
        "lfh-size-crc-mismatch",
        archive(replace(STREAMED[0], local=TIMED), B),
        FAMILIES["Info-ZIP"]["zip -e into a pipe"],
    ),
    rejects("count-mismatch", by(*FILES, shape=Shape(eocd={"disk_entries": 8}))),
    rejects("count-mismatch", by(*FILES, shape=Shape(eocd={"entries": 3, "disk_entries": 3}))),
    rejects("offsets-ambiguous", by(*FILES, shape=Shape(eocd={"directory_offset": 30}))),
    fails("unsupported-method", archive(replace(A, method=98), B)),  # PPMd
    fails("unsupported-method", archive(replace(A, method=97, data=b"wvpk" + bytes(30)), B)),
    fails("unsupported-method", archive(replace(A, method=96, data=b"jpeg"), B)),
    fails("unsupported-method", archive(replace(A, method=6), B)),  # imploded by PKZIP 1
    fails("unsupported-method", archive(replace(A, method=1), B)),  # shrunk
    fails("encrypted", archive(AE2[0], B), archive(AE2[0], B, policy=OPENING)),
    fails("encrypted", archive(CRYPTED[0], B), archive(CRYPTED[0], B, policy=OPENING)),
    fails("strong-encryption", archive(replace(A, flags=0x41), B)),
    fails("symlink", by(Member("link", b"dir/a.txt", attributes=0o120777 << 16), A)),
    rejects("trailing-data", by(*FILES, shape=Shape(trailing=b"\r\n\r\n"))),
    rejects("trailing-data", by(*FILES, shape=Shape(trailing=b"<!-- cached -->"))),
    rejects("no-eocd", archive(raw=build(*FILES)[:-30])),
]
