"""Finding and comparing the parts of a split archive."""

import re
from collections.abc import Mapping

import pytest
from msgspec import structs

from s3unzip.model import Location, Pin, Request, Verdict, encode
from s3unzip.run_ids import run_id
from s3unzip.stores.archives import read_whole_tail
from s3unzip.stores.ports import ObjectFacts
from tests.support.memory import OUT, World
from tests.support.zips import DEFLATE, Entry, build, build_split, cut_pieces, part_names

Files = Mapping[str, bytes]  # by name; the last one is given as the archive

ENTRIES = [Entry(f"d/{n}.txt", b"%d, " % n * 400, DEFLATE * (n % 2)) for n in range(12)]
WHOLE = build(*ENTRIES)
NAMES = part_names("a", 4)
SPLIT = dict(zip(NAMES, build_split(*ENTRIES, sizes=[2_500, 2_500, 700]), strict=True))
PIECES = {
    f"a.zip.{number:03}": piece
    for number, piece in reversed([*enumerate(cut_pieces(WHOLE, 300), 1)])
}


def _without(files: Files, *names: str) -> dict[str, bytes]:
    return {name: files[name] for name in files if name not in names}


def _fill(world: World, files: Files) -> Request:
    for name, part in files.items():
        world.buckets.bucket("ingest").put(
            f"in/{name}", part, ObjectFacts("application/zip", {}), if_absent=False
        )
    return Request(Location("s3", "ingest", f"in/{name}"), OUT)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            _without(SPLIT, "a.z02"),
            r"part-missing: A part of the split archive is missing: a\.z02, part 2 of 4",
        ),
        (
            _without(SPLIT, *NAMES[:3]),
            r"part-missing: A part .* is missing: a\.z01, part 1 of 4, and 2 more",
        ),
        (
            dict(zip((*NAMES[:3], "last.part"), SPLIT.values(), strict=True)),
            r".*the archive has 4 parts; name the last one NAME\.zip, beside NAME\.z01.*",
        ),
        ({"a.z01": SPLIT["a.z01"]}, r".*give its last part as the archive: a\.zip"),
        ({"A.Z02": SPLIT["a.z01"]}, r".*give its last part as the archive: A\.ZIP"),
        (SPLIT | {"a.z02": bytes(len(SPLIT["a.z02"]))}, r".*a\.z02 has no member at byte .*"),
        *(
            (SPLIT | {name: SPLIT[name][:-lost]}, "(part-wrong|multi-disk).*")
            for name in NAMES[:3]
            for lost in (1, 500)
        ),
        (
            _without(PIECES, "a.zip.001", "a.zip.002"),
            r".*give its first piece as the archive: a\.zip\.001",
        ),
        (
            _without(PIECES, "a.zip.004"),
            r".*is missing: a\.zip\.004; the earlier parts do not contain the end of the archive.*",
        ),
        (
            {"a.002": PIECES["a.zip.002"], "a.001": PIECES["a.zip.001"]},
            r".*is missing: a\.003; the earlier parts do not contain the end of the archive.*",
        ),
        (_without(PIECES, "a.zip.002") | {"a.zip.001": b"no archive"}, "no-eocd.*"),
    ],
    ids=[
        "one part is missing",
        "three parts are missing",
        "a name that leads to no parts",
        "an earlier part",
        "an earlier part in capitals",
        "a part of another archive",
        *(f"{name} lacks {lost} bytes" for name in NAMES[:3] for lost in (1, 500)),
        "a later piece",
        "a piece is missing",
        "a piece of any file is missing",
        "no archive",
    ],
)
def test_parts_that_are_not_a_whole_archive(world: World, files: Files, said: str) -> None:
    """What is missing or wrong is named, in words about parts."""
    report = world.run_request(_fill(world, files))
    assert report.verdict is Verdict.REJECTED
    assert re.fullmatch(said, f"{report.reason}: {report.message}")


def test_a_part_that_comes_later(world: World) -> None:
    """Once all parts are there the archive has another run, which is not refused."""
    refused = world.run_request(_fill(world, _without(SPLIT, "a.z01")))
    report = world.run_request(_fill(world, SPLIT))
    assert report.verdict is Verdict.COMPLETED
    assert report.run != refused.run


@pytest.mark.parametrize("name", ["a.zip.001", "b.z01"])
def test_a_whole_archive_may_have_the_name_of_a_part(world: World, name: str) -> None:
    """The first piece may be the only one; bytes say that they need no other part."""
    report = world.run_request(_fill(world, {name: WHOLE}))
    assert report.verdict is Verdict.COMPLETED
    assert report.pin is not None
    assert b"parts" not in encode(report.pin)


def test_a_reader_has_no_parts_beside_it(world: World) -> None:
    """A split archive in an open reader is told to be given by its name."""
    reader = structs.replace(_fill(world, SPLIT).source, scheme="reader")
    tail = read_whole_tail(
        world.buckets.source(reader), reader, world.context.calls(), length=1_000, max_parts=500
    )
    assert tail.refusal is not None
    assert tail.refusal.code == "part-missing"


def test_parts_belong_to_the_identity_of_a_run() -> None:
    """An archive of other parts has another run."""
    joined = Pin(9, '"e"', parts=(Pin(4, '"d"'), Pin(5, '"e"')))
    request = Request(Location("s3", "ingest", "in/a.zip"), OUT)
    assert run_id(request, joined, 0.0) != run_id(request, Pin(9, '"e"'), 0.0)
