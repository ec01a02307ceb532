"""Finding and comparing the parts of a split archive."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from s3unzip.model import Location, Pin, Report, Request, Verdict, encode
from s3unzip.run_ids import run_id
from s3unzip.settling.loop import begin
from s3unzip.stores.archives import read_whole_tail
from s3unzip.stores.ports import ObjectFacts
from tests.support.memory import OUT, World
from tests.support.zips import DEFLATE, Entry, build, build_split, cut_pieces, part_names

ENTRIES = [Entry(f"d/{n}.txt", b"%d, " % n * 400, DEFLATE * (n % 2)) for n in range(12)]
CONTENTS = {str(entry.name): entry.content for entry in ENTRIES}
FACTS = ObjectFacts("application/zip", {})
SPLIT = build_split(*ENTRIES, sizes=[2_500, 2_500, 700])
NAMES = part_names("a", 4)
assert len(SPLIT) == len(NAMES)


def _fill(world: World, parts: Sequence[bytes], names: Sequence[str]) -> Request:
    for name, part in zip(names, parts, strict=True):
        world.buckets.bucket("ingest").put(f"in/{name}", part, FACTS, if_absent=False)
    return Request(Location("s3", "ingest", f"in/{names[-1]}"), OUT)


def _refuse(world: World, request: Request) -> str:
    report = begin(request, world.context).report
    assert isinstance(report, Report)
    assert report.verdict is Verdict.REJECTED
    return f"{report.reason}: {report.message}"


@pytest.mark.parametrize("names", [NAMES, [name.upper() for name in NAMES]], ids=["zip", "ZIP"])
def test_a_run_extracts_all_parts(world: World, names: list[str]) -> None:
    """The parts are found by their names, and nothing is copied by the store itself."""
    world.tune(copy_from=1_024)
    report = world.run_request(_fill(world, SPLIT, names))
    assert (report.verdict, report.requests.copy) == (Verdict.COMPLETED, 0)
    assert world.contents(f"{names[0][0]}/") == CONTENTS
    assert report.pin is not None
    sizes = [report.pin.size, *(part.size for part in report.pin.parts or ())]
    assert sizes == [sum(map(len, SPLIT)), *map(len, SPLIT)]


def test_pieces_of_a_cut_file(world: World) -> None:
    """An archive that was cut into .001, .002 and so on is named by its first piece."""
    pieces = cut_pieces(build(*ENTRIES), 300)
    assert len(pieces) > 16
    _fill(world, pieces, [f"a.zip.{number:03}" for number in range(1, len(pieces) + 1)])
    request = Request(Location("s3", "ingest", "in/a.zip.001"), OUT)
    assert world.run_request(request).verdict is Verdict.COMPLETED
    assert world.contents("a/") == CONTENTS
    later = Request(Location("s3", "ingest", "in/a.zip.003"), OUT)
    assert _refuse(world, later).endswith("give its first piece as the archive: a.zip.001")
    world.buckets.bucket("ingest").delete(["in/a.zip.004"])
    assert "is missing: a.zip.004, after 3 without the archive's end" in _refuse(world, request)
    world.buckets.bucket("ingest").delete(["in/a.zip.002"])
    _fill(world, [b"no archive"], ["a.zip.001"])
    assert _refuse(world, request).startswith("no-eocd")


def test_one_piece_is_a_file(world: World) -> None:
    """The first piece may be the only one."""
    report = world.run_request(_fill(world, [build(*ENTRIES)], ["a.zip.001"]))
    assert report.verdict is Verdict.COMPLETED
    assert report.pin is not None
    assert b"parts" not in encode(report.pin)


def test_missing_parts_are_named(world: World) -> None:
    """The first missing part is named, and the others are counted."""
    request = _fill(world, SPLIT, NAMES)
    world.buckets.bucket("ingest").delete(["in/a.z02"])
    said = "part-missing: A part of the split archive is missing: a.z02, part 2 of 4"
    assert _refuse(world, request) == said
    world.buckets.bucket("ingest").delete(["in/a.z01", "in/a.z03"])
    assert _refuse(world, request) == said.replace("z02, part 2", "z01, part 1") + ", and 2 more"


def test_a_part_that_comes_later(world: World) -> None:
    """Once all parts are there the archive has another run, which is not refused."""
    request = _fill(world, SPLIT, NAMES)
    world.buckets.bucket("ingest").delete(["in/a.z01"])
    refused = begin(request, world.context).report
    assert isinstance(refused, Report)
    report = world.run_request(_fill(world, SPLIT, NAMES))
    assert report.verdict is Verdict.COMPLETED
    assert report.run != refused.run


def test_a_name_that_leads_to_no_parts(world: World) -> None:
    """Only NAME.zip says how the other parts are named."""
    request = _fill(world, SPLIT, ["a.z01", "a.z02", "a.z03", "last.part"])
    assert "it has 4 parts; name it NAME.zip, beside NAME.z01" in _refuse(world, request)


@pytest.mark.parametrize(("name", "last"), [("a.z01", "a.zip"), ("A.Z02", "A.ZIP")])
def test_an_earlier_part_is_not_the_archive(world: World, name: str, last: str) -> None:
    """A part without the directory says which one has it."""
    said = _refuse(world, _fill(world, [SPLIT[0]], [name]))
    assert said.endswith(f"give its last part as the archive: {last}")


def test_a_whole_archive_may_have_the_name_of_a_part(world: World) -> None:
    """Its bytes say that it needs no other part."""
    request = _fill(world, [build(*ENTRIES)], ["b.z01"])
    assert world.run_request(request).verdict is Verdict.COMPLETED


def test_a_part_of_another_archive(world: World) -> None:
    """The part is named that has no member where the directory says."""
    other = [SPLIT[0], bytes(len(SPLIT[1])), *SPLIT[2:]]
    assert "a.z02 has no member at byte " in _refuse(world, _fill(world, other, NAMES))


@pytest.mark.parametrize("lost", [1, 500])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_part_that_was_cut_short(world: World, lost: int, place: int) -> None:
    """A part with too few bytes is refused in words about parts, whatever was lost."""
    short = [*SPLIT[:place], SPLIT[place][:-lost], *SPLIT[place + 1 :]]
    assert _refuse(world, _fill(world, short, NAMES)).startswith(("part-wrong", "multi-disk"))


def test_a_reader_has_no_parts_beside_it(world: World) -> None:
    """A split archive in an open reader is told to be given by its name."""
    request = _fill(world, SPLIT, NAMES)
    reader = structs.replace(request.source, scheme="reader")
    source = world.buckets.source(reader)
    tail = read_whole_tail(source, reader, world.context.calls(), length=1_000, max_parts=500)
    assert tail.refusal is not None
    assert tail.refusal.code == "part-missing"


def test_parts_belong_to_the_identity_of_a_run() -> None:
    """An archive of other parts has another run."""
    one = Pin(5, '"e"')
    joined = Pin(9, '"e"', parts=(Pin(4, '"d"'), one))
    request = Request(Location("s3", "ingest", "in/a.zip"), OUT)
    assert run_id(request, joined, 0.0) != run_id(request, Pin(9, '"e"'), 0.0)
