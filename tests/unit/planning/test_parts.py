"""Finding and comparing the parts of a split archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from s3unzip.errors import RejectedError, SourceChangedError
from s3unzip.model import Location, Pin, Report, Request, Verdict, decode, encode, run_id
from s3unzip.planning.parts import read_whole_tail
from s3unzip.planning.plan_writer import make_plan
from s3unzip.planning.reading import read_archive
from s3unzip.stores.ports import ObjectFacts
from s3unzip.zip import ByteRange, Limits, Policy
from tests.runs import DESTINATION, Bench
from tests.split_zips import build_split, cut_pieces, part_names
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Sequence

ENTRIES = [Entry(f"d/{n}.txt", b"%d, " % n * 400, DEFLATE * (n % 2)) for n in range(12)]
CONTENTS = {str(entry.name): entry.content for entry in ENTRIES}
FACTS = ObjectFacts("application/zip", {})
SPLIT = build_split(*ENTRIES, sizes=[2_500, 2_500, 700])
NAMES = part_names("a", 4)
assert len(SPLIT) == len(NAMES)


def fill(bench: Bench, parts: Sequence[bytes], names: Sequence[str]) -> Request:
    """Store parts under these names; return the request of an archive named as the last one."""
    for name, part in zip(names, parts, strict=True):
        bench.stores.bucket("ingest").put(f"in/{name}", part, FACTS, if_absent=False)
    return Request(Location("s3", "ingest", f"in/{names[-1]}"), DESTINATION)


def refuse(bench: Bench, request: Request) -> str:
    """Return the code and the message with which a plan refuses."""
    report = make_plan(request, bench.context)
    assert isinstance(report, Report)
    assert report.verdict is Verdict.REJECTED
    return f"{report.reason}: {report.message}"


def limited(bench: Bench, parts: int) -> None:
    """Set how many parts an archive may have."""
    bench.policy = Policy(limits=structs.replace(Limits(), parts=parts))


@pytest.mark.parametrize("ending", ["zip", "ZIP"])
def test_a_run_extracts_all_parts(ending: str) -> None:
    """The parts are found by their names, and nothing is copied by the store itself."""
    bench = Bench()
    bench.tune(copy_from=1_024)
    names = [name if ending == "zip" else name.upper() for name in NAMES]
    report = bench.repeat(fill(bench, SPLIT, names))
    assert report.verdict is Verdict.COMPLETED
    assert bench.contents(f"{names[0][0]}/") == CONTENTS
    assert report.requests.copy == 0
    assert report.pin is not None
    assert [part.size for part in report.pin.parts or ()] == [len(part) for part in SPLIT]
    assert report.pin.size == sum(map(len, SPLIT))


def test_pieces_of_a_cut_file() -> None:
    """An archive that was cut into .001, .002 and so on is named by its first piece."""
    pieces = cut_pieces(build(*ENTRIES), 300)
    names = [f"a.zip.{number:03}" for number in range(1, len(pieces) + 1)]
    assert len(names) > 16
    bench = Bench()
    request = fill(bench, pieces, names)
    request = structs.replace(request, source=Location("s3", "ingest", "in/a.zip.001"))
    report = bench.repeat(request)
    assert report.verdict is Verdict.COMPLETED
    assert bench.contents("a/") == CONTENTS
    later = structs.replace(request, source=Location("s3", "ingest", "in/a.zip.003"))
    assert refuse(bench, later).endswith("give its first piece as the archive: a.zip.001")
    bench.stores.bucket("ingest").delete(["in/a.zip.004"])
    assert "is missing: a.zip.004, after 3 without the archive's end" in refuse(bench, request)
    bench.stores.bucket("ingest").delete(["in/a.zip.002"])
    fill(bench, [b"no archive"], ["a.zip.001"])
    assert refuse(bench, request).startswith("no-eocd")


def test_one_piece_is_a_file() -> None:
    """The first piece may be the only one."""
    bench = Bench()
    report = bench.repeat(fill(bench, [build(*ENTRIES)], ["a.zip.001"]))
    assert report.verdict is Verdict.COMPLETED
    assert report.pin is not None
    assert not report.pin.parts


def test_missing_parts_are_named() -> None:
    """The first missing part is named, and the others are counted."""
    bench = Bench()
    request = fill(bench, SPLIT, NAMES)
    bench.stores.bucket("ingest").delete(["in/a.z02"])
    said = "part-missing: A part of the split archive is missing: a.z02, part 2 of 4"
    assert refuse(bench, request) == said
    bench.stores.bucket("ingest").delete(["in/a.z01", "in/a.z03"])
    assert refuse(bench, request) == said.replace("z02, part 2", "z01, part 1") + ", and 2 more"


def test_a_part_that_comes_later() -> None:
    """Once all parts are there the archive has another run, which is not refused."""
    bench = Bench()
    request = fill(bench, SPLIT, NAMES)
    bench.stores.bucket("ingest").delete(["in/a.z01"])
    refused = make_plan(request, bench.context)
    assert isinstance(refused, Report)
    report = bench.repeat(fill(bench, SPLIT, NAMES))
    assert report.verdict is Verdict.COMPLETED
    assert report.run != refused.run


def test_the_number_of_parts_is_limited() -> None:
    """Above the limit no part is looked for, of a split archive and of pieces."""
    bench = Bench()
    request = fill(bench, SPLIT, NAMES)
    limited(bench, 3)
    assert "too-many-parts: " in refuse(bench, request)
    limited(bench, 4)
    assert bench.repeat(request).verdict is Verdict.COMPLETED
    pieces = cut_pieces(build(*ENTRIES), 1_000)
    names = [f"a.zip.{number:03}" for number in range(1, len(pieces) + 1)]
    request = fill(bench, pieces, names)
    request = structs.replace(request, source=Location("s3", "ingest", "in/a.zip.001"))
    limited(bench, len(pieces) - 1)
    assert "more than" in refuse(bench, request)
    limited(bench, len(pieces))
    assert bench.repeat(request).verdict is Verdict.COMPLETED


def test_a_name_that_leads_to_no_parts() -> None:
    """Only NAME.zip says how the other parts are named."""
    bench = Bench()
    request = fill(bench, SPLIT, ["a.z01", "a.z02", "a.z03", "last.part"])
    assert "it has 4 parts; name it NAME.zip, beside NAME.z01" in refuse(bench, request)


def test_an_earlier_part_is_not_the_archive() -> None:
    """A part without the directory says which one has it."""
    bench = Bench()
    for name, wanted in (("a.z01", "a.zip"), ("A.Z02", "A.ZIP")):
        request = fill(bench, [SPLIT[0]], [name])
        assert refuse(bench, request).endswith(f"give its last part as the archive: {wanted}")
    whole = fill(bench, [build(*ENTRIES)], ["b.z01"])
    assert bench.repeat(whole).verdict is Verdict.COMPLETED


def test_parts_in_the_wrong_order() -> None:
    """Parts under each other's names are refused before anything is written."""
    bench = Bench()
    swapped = [SPLIT[1], SPLIT[0], *SPLIT[2:]]
    request = fill(bench, swapped, NAMES)
    said = refuse(bench, request)
    assert "part-wrong: " in said or "multi-disk: " in said
    assert bench.contents() == {}


def test_a_part_of_another_archive() -> None:
    """The part is named that has no member where the directory says."""
    bench = Bench()
    other = [SPLIT[0], bytes(len(SPLIT[1])), *SPLIT[2:]]
    assert "a.z02 has no member at byte " in refuse(bench, fill(bench, other, NAMES))


def test_a_part_that_was_cut_short() -> None:
    """A part with too few bytes is refused in words about parts, whatever was lost."""
    for lost in (1, 500):
        for place in (0, 1, 2):
            bench = Bench()
            short = [part[:-lost] if at == place else part for at, part in enumerate(SPLIT)]
            assert refuse(bench, fill(bench, short, NAMES)).startswith(("part-wrong", "multi-disk"))


def test_a_part_that_changes_ends_the_run() -> None:
    """Each part is pinned to its version, not only the last one."""
    bench = Bench()
    request = fill(bench, SPLIT, NAMES)
    reading = read_archive(request, bench.context, bench.context.calls())
    archive = bench.stores.source(request.source).pinned(request.source, reading.pin)
    whole = ByteRange(0, reading.pin.size)
    assert archive.read(whole) == b"".join(archive.stream(whole)) == b"".join(SPLIT)
    fill(bench, [SPLIT[0] + b"x", *SPLIT[1:]], NAMES)
    with pytest.raises(SourceChangedError):
        archive.read(ByteRange(0, 4))


def test_a_reader_has_no_parts_beside_it() -> None:
    """A split archive in an open reader is told to be given by its name."""
    bench = Bench()
    request = fill(bench, SPLIT, NAMES)
    source = bench.stores.source(request.source)
    reader = structs.replace(request.source, scheme="reader")
    tail = read_whole_tail(source, reader, 1_000, 500, bench.context.calls())
    assert tail.refusal is not None
    assert tail.refusal.code == "part-missing"


def test_the_pin_of_parts_is_kept() -> None:
    """Parts belong to the run's identity; the pin of one file looks as it always did."""
    one = Pin(5, '"e"')
    assert b"parts" not in encode(one)
    joined = Pin(9, '"e"', parts=(Pin(4, '"d"'), one))
    assert decode(encode(joined), Pin) == joined
    request = Request(Location("s3", "ingest", "in/a.zip"), DESTINATION)
    assert run_id(request, joined) != run_id(request, Pin(9, '"e"'))


def test_a_refusal_is_an_error_where_no_run_is_made() -> None:
    """`ls` and the others get the same words."""
    bench = Bench()
    request = fill(bench, SPLIT[-1:], NAMES[-1:])
    with pytest.raises(RejectedError, match=r"a\.z01, part 1 of 4, and 2 more"):
        read_archive(request, bench.context, bench.context.calls())
