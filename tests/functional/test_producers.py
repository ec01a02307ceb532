"""Archives as real producers write them, by the command: small, streamed and split members."""

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest

from s3unzip.stores.ports import ObjectFacts
from tests.support.memory_server import MemoryS3, run_memory_s3
from tests.support.processes import Program
from tests.support.zips import DEFLATE, Entry, Shape, build, log_lines

MIB = 1024**2
NOISE = random.Random(5).randbytes(6 * MIB)  # the store copies stored members from 5 MiB on
PLAIN = [
    Entry("a/log.txt", log_lines(700_000), DEFLATE),
    Entry("noise.bin", NOISE),
    Entry("b.txt", b"content\n" * 100, DEFLATE),
    Entry("empty.txt"),
]
MEMBERS = {str(entry.name): entry.content for entry in PLAIN}
GOOD = build(*PLAIN)
SILENT = [replace(entry, flags=8) for entry in PLAIN]  # they announce a descriptor

# Settings with which every member is small, streamed, or copied and split.
WAYS = {
    "small": {"small_member": 16 * MIB, "copy_from": 16 * MIB},
    "streamed": {"small_member": 1_000, "copy_from": 16 * MIB},
    "split": {"small_member": 1_000, "split_from": 50_000, "segment_bytes": 20_000},
}

FILLERS = [Entry(f"fill/{number}") for number in range(1 << 16)]  # are not extracted


# Directories that need no place or no bytes, whatever they declare.
PLACELESS = [
    Entry("/"),
    Entry("./"),
    Entry(".", attributes=0o40755 << 16),
    Entry("a/", central={"size": 4_096}),
    Entry("META-INF/", method=DEFLATE, data=b"", central={"compressed_size": 2}),
]
TOO_LONG = b"zz\x09\0"  # an extra field that ends behind its block
STRICTLY_SEQUENTIAL = 0x20000020
ODD = [
    replace(PLAIN[0], extra=TOO_LONG, local_extra=b""),
    replace(PLAIN[1], attributes=STRICTLY_SEQUENTIAL, central={"made_by": 20}),
    replace(PLAIN[2], flags=0x2000),
    replace(PLAIN[3], name="./empty.txt", local_name=b"empty.txt"),
]
SOFTENED = [
    Entry("b.txt", b"an older version"),
    replace(PLAIN[0], name="C:\\a\\log.txt", local_name=b"a/log.txt"),
    replace(PLAIN[1], name="/noise.bin", local_name=b"noise.bin"),
    *PLAIN[2:],
]
SOFTENED_CODES = "duplicate-name lfh-name-variant name-drive-letter name-backslash name-absolute"

HABITS: dict[str, tuple[bytes, str]] = {
    "count-wrapped": (build(*PLAIN, *FILLERS), "count-wrapped"),
    "length-of-libgsf": (
        build(*PLAIN, shape=Shape(zip64=True, zip64_eocd={"record_size": 56})),
        "zip64-record-length",
    ),
    "line-break-at-the-end": (GOOD + b"\n", "trailing-padding"),
    "nuls-at-the-end": (GOOD + bytes(70_000), "trailing-padding"),
    "descriptor-absent": (build(*SILENT), "dd-absent"),
    "placeless": (build(*PLACELESS, *PLAIN), "dir-is-root dir-with-size"),
    "odd": (build(*ODD), "cd-extra-malformed lfh-name-variant"),
    "softened": (build(*SOFTENED), SOFTENED_CODES),
}
# Twins of the habits, which are refused, or of which a member fails.
TWINS = {
    "text-at-the-end": (GOOD + b"\n.\n", "trailing-data"),
    "miscounted": (
        build(*PLAIN, *FILLERS, shape=Shape(eocd={"entries": 9, "disk_entries": 9})),
        "count-mismatch",
    ),
    "descriptor-absent-and-needed": (
        build(replace(SILENT[0], local={"size": 0}), *SILENT[1:]),
        "dd-mismatch",
    ),
    "not-softened": (build(*SOFTENED[1:]), "name-backslash name-absolute"),
    "duplicate": (build(*SOFTENED), "duplicate-name"),
    "longer-local-name": (
        build(*PLAIN[:2], replace(PLAIN[2], local_name=b"another/name.txt"), PLAIN[3]),
        "lfh-name-mismatch",
    ),
    "shorter-local-name": (
        build(replace(PLAIN[0], local_name=b"l"), *PLAIN[1:]),
        "lfh-name-mismatch",
    ),
}


# 7.3.4: deflated, AES with 256 bits and a password
ENCRYPTION = struct.pack("<HQQHHHHH", 8, 60, 51, 0x6610, 256, 1, 0, 0)
ENCRYPTED = Shape(zip64=True, extensible=ENCRYPTION)
# What is refused: the archive, what is said, and what would be no fact, or help nobody.
REFUSALS = {
    "encrypted-directory": (
        build(replace(PLAIN[0], central={"signature": b"\x10\0\xb6\x28"}), shape=ENCRYPTED),
        "encrypted",
        "--lenient z01 --password",
    ),
    "strong-encryption": (build(replace(PLAIN[2], flags=0x41), PLAIN[0]), "PKZIP", "--password"),
    "counts-that-differ": (
        build(*PLAIN, shape=Shape(eocd={"disk_entries": 8})),
        "count-mismatch",
        "z01 split",
    ),
    "offset-too-small": (
        build(*PLAIN, shape=Shape(eocd={"directory_offset": len(GOOD) % 65_536})),
        "after its declared offset",
        "Another Fetch",
    ),
    "in-front": (build(PLAIN[2]) + GOOD, "Another ZIP archive lies in front", "Fetch"),
}


class Shop:
    """The command line, a folder and a store for what it extracts."""

    def __init__(self, program: Program, s3: MemoryS3, url: str) -> None:
        self.program, self.s3, self.url = program, s3, url
        self.source = s3.create_bucket("from")
        self.target = s3.create_bucket("out")

    def extract(self, raw: bytes, place: str, *options: str) -> tuple[int, dict[str, int]]:
        archive, where = "x.zip", "out"
        if place == "s3":
            archive, where = "s3://from/x.zip", "s3://out/"
            self.source.put("x.zip", raw, ObjectFacts("application/zip", {}), if_absent=False)
        else:
            (self.program.folder / archive).write_bytes(raw)
        words = (archive, where, "--prefix", "", "--exclude", "fill/**", "--json", "--quiet")
        ended = self.program.extract(*words, "--endpoint-url", self.url, *options)
        assert ended.lines, ended.err
        (report,) = ended.lines
        return ended.code, {**report.get("warnings", {}), **report.get("reasons", {})}

    def files(self, place: str) -> dict[str, bytes]:
        if place == "s3":
            return {key: stored.body for key, stored in self.target.objects.items()}
        return self.program.files("out")


@pytest.fixture
def shop(program: Program) -> Iterator[Shop]:
    s3 = MemoryS3()
    with run_memory_s3(s3) as url:
        yield Shop(program, s3, url)


@pytest.mark.parametrize("place", ["folder", "s3"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("habit", HABITS)
def test_archives_of_real_producers_are_extracted(
    shop: Shop, habit: str, way: str, place: str
) -> None:
    """Every member has its bytes, and the habit is a warning."""
    raw, expected = HABITS[habit]
    options = ["--lenient"] * (habit == "softened")
    shop.program.variables["S3UNZIP_TUNING"] = json.dumps(WAYS[way])
    exit_code, codes = shop.extract(raw, place, *options)
    assert exit_code == 0
    assert shop.files(place) == MEMBERS
    assert set(expected.split()) <= codes.keys()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("twin", TWINS)
def test_an_archive_that_only_looks_like_a_producers_is_refused(
    shop: Shop, twin: str, way: str
) -> None:
    """A twin that proves too little has its own code, and no wrong byte is written."""
    raw, expected = TWINS[twin]
    shop.program.variables["S3UNZIP_TUNING"] = json.dumps(WAYS[way])
    exit_code, codes = shop.extract(raw, "s3")
    assert exit_code in {1, 3}
    assert set(expected.split()) <= codes.keys()
    assert shop.files("s3").items() <= MEMBERS.items()
    assert bool(shop.files("s3")) == (exit_code == 1)


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("options", [(), ("--lenient",)])
def test_a_refusal_says_only_facts(
    program: Program, case: tuple[bytes, str, str], options: tuple[str, ...]
) -> None:
    """It gives no guess as a reason, and no advice that cannot work."""
    raw, said, unsaid = case
    (program.folder / "x.zip").write_bytes(raw)
    ended = program.extract("x.zip", "out", *options)
    assert ended.code in {1, 3}
    assert said in ended.err
    assert [word for word in unsaid.split() if word in ended.err] == []
