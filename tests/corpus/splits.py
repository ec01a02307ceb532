"""Split archives (APPNOTE 8), as PKZIP and `zip -s` write them, and files that were cut.

WinZip and PKZIP begin the first part with a marker (8.5.3). 7-Zip's volumes and `split` cut a
finished archive anywhere, so that no record knows of the cuts.
"""

import struct
from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from s3unzip.zip import Limits, Policy
from tests.corpus.labels import Archive, Member, archive, fails, rejects
from tests.support.zips import BZIP2, DEFLATE, MARKER, Fields, Shape, extra

FILES = (
    Member("a.txt", b"stored text, long enough to be cut into several parts"),
    Member("c.bin", bytes(range(256)), BZIP2, comment=b"a comment", extra=b"zz\x02\0ab"),
    Member("folder/"),
    Member("b.txt", b"deflated " * 30, DEFLATE),
    Member("caf\u00e9.txt", b"with a descriptor " * 4, DEFLATE, descriptor="signed32"),
    Member("empty"),
)
SPLIT = Archive(FILES, sizes=(300, 400))
ZIP64 = replace(SPLIT, shape=Shape(zip64=True))
FEW_PARTS = Policy(limits=structs.replace(Limits(), parts=2))


def _shaped(**changes: object) -> Archive:
    return replace(SPLIT, shape=Shape(**changes))  # type: ignore[arg-type]  # any field of Shape


def _spoiled(spoil: Callable[[list[bytes]], list[bytes]]) -> Archive:
    return replace(SPLIT, spoil=spoil)


def on_disk(number: int) -> Archive:
    """Build two parts; the number of the second member's disk is in its ZIP64 field."""
    field = extra(0x0001, struct.pack("<I", number))
    moved = Member("b", b"x" * 500, extra=field, local_extra=b"", central={"disk": 0xFFFF})
    return archive(FILES[0], moved, sizes=(100,))


# Places where no disk has a byte: the last byte of the first disk is 142.
NOWHERE: tuple[Fields, ...] = (
    {"disk": 3},
    *({"disk": 0, "offset": offset} for offset in (143, 300)),
    {"offset": 99_999},
)
SOUND = {
    "zip -s, two parts": replace(SPLIT, sizes=(400,)),
    "zip -s, three parts": SPLIT,
    "a part for nearly each record": replace(SPLIT, sizes=(40,) * 20),
    "the directory in a part of its own": replace(SPLIT, sizes=(756,)),
    "parts of one byte": archive(FILES[0], sizes=(1,) * 120),
    "ZIP64 records": ZIP64,
    "ZIP64 records in several parts": replace(ZIP64, sizes=(300, 300, 300, 60, 30)),
    "the end record in a part of its own": replace(
        _shaped(zip64=True, eocd={"disk_entries": 0}), sizes=(len(ZIP64.whole) - 22,)
    ),
    "zip4j: members that begin in the last part": _shaped(eocd={"disk_entries": 0}),
    "a comment": _shaped(comment=b"part 3 of 3"),
    "7-Zip volumes": Archive(FILES, piece=200),
    "7-Zip volumes of a ZIP64 archive": Archive(FILES, piece=333, shape=Shape(zip64=True)),
    "one part that was to be split": Archive(FILES, shape=Shape(prefix=MARKER, adjusted=True)),
    "one part, temporary marker": Archive(FILES, shape=Shape(prefix=b"PK00", adjusted=True)),
    "a disk number in the ZIP64 field": on_disk(1),
    "one volume": Archive(FILES, piece=9_999),
}
ROWS = [
    rejects("part-missing", _shaped(eocd={"disk": 9}), SPLIT),
    rejects("part-wrong", _spoiled(lambda parts: [bytes(len(parts[0])), *parts[1:]]), SPLIT),
    rejects(
        "part-wrong", _spoiled(lambda parts: [parts[0], bytes(len(parts[1])), parts[2]]), SPLIT
    ),
    rejects("part-wrong", _spoiled(lambda parts: [parts[0][1:], *parts[1:]]), SPLIT),
    rejects("part-wrong", _spoiled(lambda parts: [parts[0][:-1], *parts[1:]]), SPLIT),
    rejects("part-wrong", _spoiled(lambda parts: [parts[0], parts[1][1:], parts[2]]), SPLIT),
    rejects("multi-disk", _shaped(eocd={"disk": 1}), SPLIT),
    rejects("multi-disk", _shaped(eocd={"directory_disk": 3}), SPLIT),
    rejects("multi-disk", _shaped(eocd={"directory_offset": 100_000}), SPLIT),
    rejects("multi-disk", _shaped(zip64=True, locator={"disks": 9}), ZIP64),
    rejects("multi-disk", _shaped(zip64=True, zip64_eocd={"disk": 0}), ZIP64),
    rejects("multi-disk", _shaped(zip64=True, locator={"disks": 1}), ZIP64),
    rejects("multi-disk", _shaped(zip64=True, locator={"record_disk": 7}), ZIP64),
    rejects("zip64-eocd-mismatch", _shaped(zip64=True, zip64_eocd={"directory_disk": 9}), ZIP64),
    rejects(
        "zip64-eocd-mismatch",
        replace(_shaped(zip64=True, eocd={"disk_entries": 1}), sizes=(len(ZIP64.whole) - 22,)),
        ZIP64,
    ),
    rejects("multi-disk", on_disk(9), on_disk(1)),
    *(
        rejects(
            "multi-disk", archive(FILES[0], replace(FILES[3], central=central), sizes=(150, 100))
        )
        for central in NOWHERE
    ),
    rejects("gap-before-eocd", _spoiled(lambda parts: [*parts[:-1], b"stub" + parts[-1]]), SPLIT),
    rejects("too-many-parts", SPLIT, replace(SPLIT, sizes=(400,)), FEW_PARTS),
    rejects("too-many-parts", Archive(FILES, piece=200), Archive(FILES, piece=900), FEW_PARTS),
    fails(
        "crc-mismatch",
        replace(SPLIT, members=(replace(FILES[0], data=FILES[0].content[:-1] + b"?"), *FILES[1:])),
        SPLIT,
    ),
]
