"""What every destination and every work store promises: objects, uploads, and records of runs."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from zlib import crc32

import pytest

from s3unzip import model
from s3unzip.errors import (
    ConflictError,
    NotFoundError,
    SourceChangedError,
    StorageError,
    UnreadableRecordError,
)
from s3unzip.stores.ports import Buffer, ObjectFacts, Upload
from s3unzip.stores.run_store import ObjectRunStore, RunStore
from s3unzip.zip import ByteRange
from tests.contract.conftest import FACTS, Place, list_all

# In a folder the lock of a run keeps others off: files have no ETags, and are not copied.
each_object_store = pytest.mark.parametrize(
    "place", ["memory", "ministack", "versitygw"], indirect=True
)


def _body_of(place: Place, key: str) -> bytes:
    return b"".join(place.destination.read(place.key(key)))


def test_bytes_come_back(place: Place) -> None:
    """What was put is what is read, from nothing to megabytes; any buffer can be put."""
    data = random.Random(9).randbytes(9_000_000)
    bodies: list[Buffer] = [data[:size] for size in (0, 1, 11_000, 9_000_000)]
    for body in (*bodies, memoryview(data)[2:4], bytearray(data[:6])):
        place.fill("file", body)
        assert _body_of(place, "file") == body


@pytest.mark.parametrize(
    "key",
    [
        "plain.txt",
        "sp ace/and  two.txt",
        "ünïcödé/文件/😀.txt",
        "pl+us&amp=1?x#y.txt",
        "per%25cent%zz.txt",
        "quo'te\"<>.txt",
        "star*[a]{b}~!$(),;:@.txt",
        "back\\slash.txt",
        "-dash/.hidden/...three",
    ],
)
def test_unusual_keys(place: Place, key: str) -> None:
    """Keys are kept to the letter."""
    place.fill(key, b"body")
    assert (
        _body_of(place, key),
        [entry[:2] for entry in list_all(place.destination, place.root.key)],
    ) == (b"body", [(place.key(key), 4)])


@pytest.mark.parametrize("place", ["memory", "ministack"], indirect=True)
@pytest.mark.parametrize(
    "key", ["double//slash", "/leading", "trailing/", "a/./b", "a/../b", "new\nline", "\x01"]
)
def test_keys_that_cannot_be_paths_are_taken(place: Place, key: str) -> None:
    """Where the store takes any key, so does the adapter, for reading too."""
    where = place.fill(key, b"body")
    tail = place.source.tail(where, 2)
    assert (_body_of(place, key), tail.data) == (b"body", b"dy")
    assert place.source.stat(where) == tail._replace(data=b"")
    assert tail.modified is not None
    with pytest.raises(ConflictError):
        place.destination.put(where.key, b"", FACTS, if_absent=True)


@pytest.mark.parametrize("place", ["folder", "ministack", "versitygw"], indirect=True)
def test_the_kind_of_a_store_is_true(place: Place) -> None:
    """A listing has ETags, or a key is not both file and folder, where the store's kind says so.

    No folder copies a range of another file.
    """
    kind = place.root.store
    where = place.fill("a", b"body")
    assert [entry.etag is not None for entry in list_all(place.destination, place.root.key)] == [
        kind.has_etags
    ]
    if kind.has_folders:
        assert not place.destination.copies_from(where, place.source.stat(where).pin)
        with pytest.raises(StorageError):
            place.fill("a/b", b"body")


def test_head(place: Place) -> None:
    """HEAD returns size and CRC of an object, and None for a missing one.

    An object of another writer has no CRC; a folder computes it.
    """
    place.fill("a", b"123456789", ObjectFacts("text/plain", {"zip-crc32": "cbf43926"}))
    place.fill("other", b"123456789", ObjectFacts("text/plain", {}))
    heads = (place.destination.head(place.key(name)) for name in ("a", "other", "b", "a/b"))
    assert [stored and stored[:3] for stored in heads] == [
        (place.key("a"), 9, 0xCBF43926),
        (place.key("other"), 9, None if place.keeps_metadata else 0xCBF43926),
        None,
        None,
    ]


def test_eight_threads_race_for_one_key(place: Place) -> None:
    """Exactly one conditional write wins, and the object is the winner's."""
    start = threading.Barrier(8)

    def race(body: bytes) -> bytes | None:
        start.wait()
        with contextlib.suppress(ConflictError):
            place.destination.put(place.key("prize"), body, FACTS, if_absent=True)
            return body
        return None

    with ThreadPoolExecutor(8) as pool:
        (winner,) = filter(None, pool.map(race, (b"%d" % n * 10_000 for n in range(8))))
    assert _body_of(place, "prize") == winner


def test_listings_are_in_utf8_order(place: Place) -> None:
    """Keys come in the order of their bytes, from first to last, both included."""
    names = ["a.txt", "a/b", "a0", "b/c/d", "b/c.d", "z", "é", "文", "😀"]
    for size, name in enumerate(names):
        place.fill(name, b"x" * size)
    ordered = sorted((place.key(name), size) for size, name in enumerate(names))
    keys = [key for key, _ in ordered]
    everything = list_all(place.destination, place.root.key, keys[0], keys[-1])
    assert [entry[:2] for entry in everything] == ordered
    assert list_all(place.destination, place.root.key, keys[2], keys[5]) == everything[2:6]
    assert [
        entry.key
        for entry in list_all(place.destination, place.key("b/"), place.key("b/"), place.key("b/z"))
    ] == [place.key("b/c.d"), place.key("b/c/d")]
    assert list_all(place.destination, place.key("no/")) == []


def test_the_answer_to_a_write_has_the_etag_that_the_listing_has(place: Place) -> None:
    """PUT, Complete and LIST return the same ETag; other bytes have another; a folder has none."""
    etags = [
        place.destination.put(place.key("a"), body, FACTS, if_absent=False)
        for body in (b"one", b"two", b"one")
    ]
    upload = place.begin("b")
    part = place.destination.upload_part(upload, 1, 0, b"part", crc32(b"part"))
    etags.append(place.destination.complete_upload(upload, [part], if_absent=False))
    assert [
        entry.etag for entry in list_all(place.destination, place.root.key, "", place.key("z"))
    ] == etags[2:]
    if place.root.scheme == "file":
        assert etags == [None] * 4
    else:
        assert etags[0] != etags[1]
        assert not any(etag is None or '"' in etag for etag in etags)


# 1,100 PUTs of VersityGW to the disk take longer than they prove.
@pytest.mark.parametrize("place", ["memory", "folder", "ministack"], indirect=True)
def test_many_pages(place: Place) -> None:
    """A listing continues over pages."""
    for number in range(1_100):
        place.fill(f"n/{number:05d}", b"")
    assert [
        entry.key
        for entry in list_all(
            place.destination, place.key("n/"), place.key("n/00050"), place.key("n/z")
        )
    ] == [place.key(f"n/{n:05d}") for n in range(50, 1_100)]


@each_object_store
def test_replace(place: Place) -> None:
    """A write on the condition of an ETag changes nothing where that is not there."""
    where, destination = place.fill("a", b"1"), place.destination
    (first,) = list_all(destination, where.key)
    destination.replace(where.key, b"2", FACTS, first.etag)
    with pytest.raises(ConflictError, match="a"):
        destination.replace(where.key, b"3", FACTS, first.etag)
    assert _body_of(place, "a") == b"2"
    destination.delete([where.key])
    with pytest.raises(NotFoundError, match="a"):
        destination.replace(where.key, b"3", FACTS, first.etag)


def test_delete(place: Place) -> None:
    """What is deleted is gone; what is gone can be deleted."""
    place.fill("a", b"1")
    place.fill("b", b"2")
    place.destination.delete([place.key("a"), place.key("never")])
    assert [entry.key for entry in list_all(place.destination, place.root.key)] == [place.key("b")]


MIB = 1024**2
DATA = random.Random(3).randbytes(12 * MIB)
CUTS = [(1, 0, 5 * MIB), (2, 5 * MIB, 10 * MIB), (3, 10 * MIB, 12 * MIB)]


def _add(place: Place, upload: Upload, number: int, start: int, stop: int) -> model.Part:
    body = DATA[start:stop]
    return place.destination.upload_part(upload, number, start, body, crc32(body))


def test_parts_in_any_order(place: Place) -> None:
    """The order of arrival does not matter, of a part sent twice the last counts; all have CRCs."""
    upload = place.begin("whole")
    stale = bytes(5 * MIB)
    place.destination.upload_part(upload, 1, 0, stale, crc32(stale))
    parts = sorted((_add(place, upload, *CUTS[n]) for n in (2, 0, 1)), key=attrgetter("number"))
    assert place.destination.head(upload.key) is None
    place.destination.complete_upload(upload, parts, if_absent=False)
    assert _body_of(place, "whole") == DATA
    assert [part.crc32 for part in parts] == [crc32(DATA[a:b]) for _, a, b in CUTS]
    stored = place.destination.head(upload.key)
    assert stored is not None
    assert stored.crc32 == (10 if place.keeps_metadata else crc32(DATA))


@pytest.fixture
def begun(place: Place) -> tuple[Upload, list[model.Part]]:
    """An upload that has all its parts."""
    upload = place.begin("whole")
    return upload, [_add(place, upload, *cut) for cut in CUTS]


def test_incomplete_uploads_are_listed_and_dropped(
    place: Place, begun: tuple[Upload, list[model.Part]]
) -> None:
    """Who knows only the prefix finds an upload; aborted it is gone, and may be aborted again."""
    upload, parts = begun
    prefixes = (place.root.key, upload.key, place.key("other/"))
    assert [list(place.destination.uploads(prefix)) for prefix in prefixes] == [
        [upload],
        [upload],
        [],
    ]
    for _ in range(2):
        place.destination.abort_upload(upload)
        assert list(place.destination.uploads(place.root.key)) == []
    with pytest.raises(NotFoundError):
        place.destination.complete_upload(upload, parts, if_absent=False)
    assert place.destination.head(upload.key) is None


def test_complete_twice(place: Place, begun: tuple[Upload, list[model.Part]]) -> None:
    """The second time is either fine or finds no upload, as in S3; the object stays."""
    place.destination.complete_upload(*begun, if_absent=False)
    with contextlib.suppress(NotFoundError):
        place.destination.complete_upload(*begun, if_absent=False)
    assert _body_of(place, "whole") == DATA


def test_complete_if_absent(place: Place, begun: tuple[Upload, list[model.Part]]) -> None:
    """An object that came in between is not overwritten."""
    place.fill("whole", b"somebody else's")
    with pytest.raises(ConflictError):
        place.destination.complete_upload(*begun, if_absent=True)
    place.destination.abort_upload(begun[0])
    assert _body_of(place, "whole") == b"somebody else's"


@each_object_store
def test_copied_parts(place: Place) -> None:
    """Ranges of a pinned source become parts without a byte going through here."""
    where, pin = place.fill_pinned("source.zip", b"head" + DATA + b"tail")
    assert place.destination.copies_from(where, pin)
    upload = place.begin("whole")
    parts = [
        place.destination.copy_part(upload, n, a, where, pin, ByteRange(a + 4, b + 4))
        for n, a, b in CUTS
    ]
    assert [part.size for part in parts] == [b - a for _, a, b in CUTS]
    place.destination.complete_upload(upload, parts, if_absent=False)
    assert _body_of(place, "whole") == DATA


@each_object_store
def test_copy_of_an_overwritten_source(place: Place) -> None:
    """A copy carries the pin, too."""
    where, pin = place.fill_pinned("source.zip", DATA)
    place.fill("source.zip", DATA[::-1])
    upload = place.begin("whole")
    with pytest.raises(SourceChangedError, match=r"source\.zip"):
        place.destination.copy_part(upload, 1, 0, where, pin, ByteRange(0, 6 * MIB))
    place.destination.abort_upload(upload)


LINE = b'{"member": 1}\n'


def test_write_and_read(place: Place) -> None:
    """Pieces become one object, read whole, by range and as a stream; none make an empty one."""
    work = place.work
    for name, count in (("plan.jsonl", 1_000), ("outcomes/index.jsonl", 0)):
        assert work.write(name, (LINE for _ in range(count))) == count * len(LINE)
        assert work.read(name) == b"".join(work.stream(name)) == LINE * count
    assert work.read("plan.jsonl", (len(LINE), 2 * len(LINE))) == LINE
    assert work.read("plan.jsonl", (3, 3)) == b""
    assert list(work.names("outcomes/")) == ["outcomes/index.jsonl"]


def test_create(place: Place) -> None:
    """Only the first one writes, also where the other one is another process."""
    place.work.create("report.json", b"1")
    with pytest.raises(ConflictError, match=r"report\.json"):
        place.stores.run_store("run-1").create("report.json", b"2")
    assert place.work.read("report.json") == b"1"
    place.work.delete(["report.json"])
    place.work.create("report.json", b"3")
    assert place.work.read("report.json") == b"3"


def test_replace_a_record(place: Place) -> None:
    """Only what was looked at is replaced: not what came in between, and not nothing."""
    other = place.stores.run_store("run-1")
    place.work.create("report.json", b"1")
    other.replace("report.json", b"1", b"2")
    assert place.work.read("report.json") == b"2"
    with pytest.raises(ConflictError, match=r"report\.json"):
        place.work.replace("report.json", b"1", b"3")
    assert place.work.read("report.json") == b"2"
    place.work.delete(["report.json"])
    with pytest.raises(ConflictError, match=r"report\.json"):
        place.work.replace("report.json", b"2", b"3")
    assert list(place.work.names("")) == []


@pytest.mark.parametrize(
    ("content", "span"), [(b"12345", (3, 8)), (b"12345", (7, 9)), (b"", (0, 1))]
)
def test_a_range_that_is_not_there(place: Place, content: bytes, span: tuple[int, int]) -> None:
    """An object that ends before the range is damaged: a run's rows are never fewer than asked."""
    place.work.write("members.jsonl", filter(None, [content]))
    with pytest.raises(UnreadableRecordError, match=r"members\.jsonl"):
        place.work.read("members.jsonl", span)


def test_larger_than_one_request(place: Place) -> None:
    """The rows of a million members go in parts, and come back by range."""
    piece = bytes(range(256)) * 4_096
    assert place.work.write("members.jsonl", (piece for _ in range(36))) == 36 * len(piece)
    span = 20_000_000, 20_000_256
    assert place.work.read("members.jsonl", span) == (piece * 20)[slice(*span)]
    assert b"".join(place.work.stream("members.jsonl")) == piece * 36


def test_whole_or_not_at_all(place: Place) -> None:
    """A writer that fails leaves what was there, and no upload behind."""
    work = place.work
    work.write("report.json", [b"old"])

    def broken(count: int) -> Iterator[bytes]:
        yield from (b"x" * 1024**2 for _ in range(count))
        raise RuntimeError("the writer failed")

    for count in (1, 40):
        with pytest.raises(RuntimeError):
            work.write("report.json", broken(count))
    assert (work.read("report.json"), list(work.names(""))) == (b"old", ["report.json"])
    assert isinstance(work, ObjectRunStore)
    assert list(work._store.uploads("")) == []  # in a folder, each run has its own


def test_names_are_sorted_and_of_one_run(place: Place) -> None:
    """Names begin with the prefix and come in order; other runs are not seen."""
    names = ["outcomes-not.json", "outcomes/a.jsonl", "outcomes/b.jsonl", "plan.jsonl"]
    for name in reversed(names):
        place.work.write(name, [b"1"])
    place.stores.run_store("run-2").write("outcomes/c.jsonl", [b"1"])
    for prefix, listed in (("", names), ("outcomes/", names[1:3]), ("outcomes/a", names[1:2])):
        assert list(place.work.names(prefix)) == listed
    assert list(place.stores.run_store("run-3").names("")) == []


@pytest.mark.parametrize(
    "read",
    [
        lambda work: work.read("stop.json"),
        lambda work: work.read("stop.json", (0, 1)),
        lambda work: list(work.stream("stop.json")),
    ],
    ids=["whole", "range", "stream"],
)
def test_a_missing_object_is_named(place: Place, read: Callable[[RunStore], object]) -> None:
    """The error names the missing object."""
    with pytest.raises(NotFoundError, match=r"stop\.json"):
        read(place.work)
