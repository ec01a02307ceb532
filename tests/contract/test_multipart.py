"""What every destination promises of objects that come in parts."""

import contextlib
import random
from zlib import crc32

import pytest

from s3unzip.errors import ConflictError, NotFoundError, SourceChangedError
from s3unzip.model import Part
from s3unzip.stores.ports import CopiesParts, Upload
from s3unzip.zip import ByteRange
from tests.contract.places import FACTS, Place

MIB = 1024**2
DATA = random.Random(3).randbytes(12 * MIB)
CUTS = [(1, 0, 5 * MIB), (2, 5 * MIB, 10 * MIB), (3, 10 * MIB, 12 * MIB)]


def _begin(place: Place, key: str = "whole") -> Upload:
    return Upload(place.key(key), place.destination.create_upload(place.key(key), FACTS))


def _add(place: Place, upload: Upload, number: int, start: int, stop: int) -> Part:
    body = DATA[start:stop]
    return place.destination.upload_part(upload, number, start, body, crc32(body))


def _body_of(place: Place, key: str = "whole") -> bytes:
    return b"".join(place.destination.read(place.key(key)))


def test_parts_in_any_order(place: Place) -> None:
    """The order of arrival does not matter, and each part has its CRC."""
    upload = _begin(place)
    parts = [_add(place, upload, *CUTS[n]) for n in (2, 0, 1)]
    assert place.destination.head(upload.key) is None
    in_order = sorted(parts, key=lambda part: part.number)
    place.destination.complete_upload(upload, in_order, if_absent=False)
    assert _body_of(place) == DATA
    assert [part.crc32 for part in in_order] == [crc32(DATA[a:b]) for _, a, b in CUTS]
    found = place.destination.head(upload.key)
    assert found is not None
    assert found.crc32 == (10 if place.keeps_metadata else crc32(DATA))


def test_a_part_sent_twice(place: Place) -> None:
    """The last one counts."""
    upload = _begin(place)
    body = b"\0" * (5 * MIB)
    place.destination.upload_part(upload, 1, 0, body, crc32(body))
    parts = [_add(place, upload, *cut) for cut in CUTS]
    place.destination.complete_upload(upload, parts, if_absent=False)
    assert _body_of(place) == DATA


def test_incomplete_uploads_are_listed(place: Place) -> None:
    """An incomplete upload can be found by somebody who knows only the prefix."""
    upload = _begin(place)
    for cut in CUTS[:2]:
        _add(place, upload, *cut)
    assert list(place.destination.uploads(place.root.key)) == [upload]
    assert list(place.destination.uploads(upload.key)) == [upload]
    assert list(place.destination.uploads(place.key("other/"))) == []
    place.destination.abort_upload(upload)
    assert list(place.destination.uploads(place.root.key)) == []


def test_an_upload_can_be_aborted_twice(place: Place) -> None:
    """An aborted upload is gone, and may be aborted again."""
    upload = _begin(place)
    part = _add(place, upload, *CUTS[0])
    place.destination.abort_upload(upload)
    place.destination.abort_upload(upload)
    with pytest.raises(NotFoundError):
        place.destination.complete_upload(upload, [part], if_absent=False)
    assert place.destination.head(upload.key) is None


def test_complete_twice(place: Place) -> None:
    """The second time is either fine or finds no upload, as in S3; the object stays."""
    upload = _begin(place)
    parts = [_add(place, upload, *cut) for cut in CUTS]
    place.destination.complete_upload(upload, parts, if_absent=False)
    with contextlib.suppress(NotFoundError):
        place.destination.complete_upload(upload, parts, if_absent=False)
    assert _body_of(place) == DATA


def test_complete_if_absent(place: Place) -> None:
    """An object that came in between is not overwritten."""
    upload = _begin(place)
    parts = [_add(place, upload, *cut) for cut in CUTS]
    place.fill("whole", b"somebody else's")
    with pytest.raises(ConflictError):
        place.destination.complete_upload(upload, parts, if_absent=True)
    place.destination.abort_upload(upload)
    assert _body_of(place) == b"somebody else's"


def test_copied_parts(place: Place) -> None:
    """Ranges of a pinned source become parts without a byte going through here."""
    where = place.fill("source.zip", b"head" + DATA + b"tail")
    pin = place.source.head(where)
    if not place.copies:
        assert not isinstance(place.destination, CopiesParts)
        return
    assert isinstance(place.destination, CopiesParts)
    assert place.destination.copies_from(where, pin)
    upload = _begin(place)
    parts = [
        place.destination.copy_part(upload, n, a, where, pin, ByteRange(a + 4, b + 4))
        for n, a, b in CUTS
    ]
    assert [part.size for part in parts] == [b - a for _, a, b in CUTS]
    place.destination.complete_upload(upload, parts, if_absent=False)
    assert _body_of(place) == DATA


def test_copy_of_an_overwritten_source(place: Place) -> None:
    """A copy carries the pin, too."""
    copies = place.destination
    if not isinstance(copies, CopiesParts):
        pytest.skip("a folder does not copy")
    where = place.fill("source.zip", DATA)
    pin = place.source.head(where)
    place.fill("source.zip", DATA[::-1])
    upload = _begin(place)
    with pytest.raises(SourceChangedError, match=r"source\.zip"):
        copies.copy_part(upload, 1, 0, where, pin, ByteRange(0, 6 * MIB))
    place.destination.abort_upload(upload)
