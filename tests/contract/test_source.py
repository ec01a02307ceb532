"""What every source promises: exact bytes of one version, or an error that says why not."""

import random

import pytest

from s3unzip.errors import NotFoundError, SourceChangedError
from s3unzip.stores.calls import Calls
from s3unzip.stores.split_archives import read_whole_tail
from s3unzip.zip import ByteRange
from tests.contract.places import Place
from tests.support.memory import ManualClock
from tests.support.split_zips import build_split, part_names
from tests.support.zips import Entry

DATA = random.Random(1).randbytes(3_000_001)


@pytest.mark.parametrize("data", [DATA, b"0123456789", b""])
def test_tail_gives_the_end_and_the_pin(place: Place, data: bytes) -> None:
    """The last bytes come with size and version; of a small archive all of them, or none."""
    where = place.fill("a.zip", data)
    tail = place.source.tail(where, 1_000)
    assert tail.data == data[-1_000:]
    assert tail.pin.size == len(data)
    assert tail.pin.etag
    assert place.source.head(where) == tail.pin
    assert place.source.stat(where) == tail._replace(data=b"")


def test_ranges_are_exact(place: Place) -> None:
    """Every range is the slice it names."""
    where = place.fill("a.zip", DATA)
    archive = place.source.pinned(where, place.source.head(where))
    size = len(DATA)
    spans = [(0, 1), (0, size), (size - 1, size), (1_000, 1_001), (5, 2_000_000), (7, 7)]
    for start, stop in spans:
        assert b"".join(archive.stream(ByteRange(start, stop))) == DATA[start:stop]
        pieces = list(archive.stream(ByteRange(start, stop)))
        assert b"".join(pieces) == DATA[start:stop]
        assert all(len(piece) <= 4 * 1024**2 for piece in pieces)


def test_a_large_stream(place: Place) -> None:
    """Tens of MiB come in order, in pieces."""
    data = random.Random(2).randbytes(24 * 1024**2)
    where = place.fill("large.zip", data)
    archive = place.source.pinned(where, place.source.head(where))
    assert b"".join(archive.stream(ByteRange(11, len(data)))) == data[11:]


def test_overwritten_between_two_reads(place: Place) -> None:
    """The second range is refused, never mixed in."""
    where = place.fill("a.zip", DATA)
    archive = place.source.pinned(where, place.source.head(where))
    assert b"".join(archive.stream(ByteRange(0, 4))) == DATA[:4]
    place.fill("a.zip", DATA[::-1])
    with pytest.raises(SourceChangedError, match=r"a\.zip"):
        b"".join(archive.stream(ByteRange(4, 8)))
    with pytest.raises(SourceChangedError):
        list(archive.stream(ByteRange(4, 8)))


def test_deleted_between_two_reads(place: Place) -> None:
    """A deleted archive has changed."""
    where = place.fill("a.zip", DATA)
    archive = place.source.pinned(where, place.source.head(where))
    place.destination.delete([where.key])
    with pytest.raises(SourceChangedError, match=r"a\.zip"):
        b"".join(archive.stream(ByteRange(0, 4)))


def test_the_parts_of_a_split_archive(place: Place) -> None:
    """Parts beside each other are read as one, each pinned to its version."""
    entries = [Entry(f"{n}.txt", b"%d " % n * 700) for n in range(9)]
    parts = build_split(*entries, sizes=[3_000, 3_000])
    wheres = [
        place.fill(name, part)
        for name, part in zip(part_names("a", len(parts)), parts, strict=True)
    ]
    calls = Calls(ManualClock(), 1.0, 4)
    tail = read_whole_tail(place.source, wheres[-1], calls, length=1_000, max_parts=10)
    assert tail.refusal is None
    whole = b"".join(parts)
    assert tail.pin.size == len(whole)
    assert whole.endswith(tail.data)
    archive = place.source.pinned(wheres[-1], tail.pin)
    for start, stop in ((0, len(whole)), (2_999, 3_001), (3_000, 6_001), (7, 7)):
        assert b"".join(archive.stream(ByteRange(start, stop))) == whole[start:stop]
        assert b"".join(archive.stream(ByteRange(start, stop))) == whole[start:stop]
    place.fill("a.z02", parts[1][::-1])
    assert b"".join(archive.stream(ByteRange(0, 10))) == whole[:10]
    with pytest.raises(SourceChangedError, match=r"a\.z02"):
        b"".join(archive.stream(ByteRange(2_999, 3_001)))
    place.destination.delete([wheres[0].key])
    missing = read_whole_tail(place.source, wheres[-1], calls, length=1_000, max_parts=10).refusal
    assert missing is not None
    assert missing.message == "a.z01, part 1 of 3"


def test_an_archive_that_is_not_there(place: Place) -> None:
    """The error names it."""
    with pytest.raises(NotFoundError, match="nothing"):
        place.source.tail(place.at("nothing.zip"), 10)
    with pytest.raises(NotFoundError, match="nothing"):
        place.source.head(place.at("nothing.zip"))
