"""What bounds memory and time in a worker, and how the upload of a large member goes on."""

import gzip
import pickle
import posixpath
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from s3unzip.errors import AccessDeniedError, NotFoundError, ServiceFaultError
from s3unzip.extraction.batch import PutPool, Window
from s3unzip.extraction.existing_objects import (
    LIST_PRICE,
    is_same_object,
    object_is_member,
    read_stored,
    resolve_conflicts,
)
from s3unzip.extraction.large_members import stream_member
from s3unzip.extraction.member_object import DEFAULT_TYPE, content_type
from s3unzip.extraction.uploads import (
    UploadGoneError,
    begin_upload,
    complete_once,
    finish_upload,
    upload_parts,
)
from s3unzip.model import GzipForm, OnConflict, Options, Outcome, Part, PlannedMember, Status
from s3unzip.runs.step import TaskAttempt
from s3unzip.settling.loop import begin_run
from s3unzip.stores.calls import Calls, map_ahead, read_ahead
from s3unzip.stores.listing import PAGE_KEYS
from s3unzip.stores.ports import Buffer, ObjectFacts, StoredObject, Upload
from s3unzip.zip import ByteRange, Member
from tests.support import zips
from tests.support.memory import KEY, WHOLE, ManualClock, MemoryBucket, MemoryStores, World
from tests.support.servers import HANG_SECONDS

DATA = bytes(range(256)) * 8


@given(
    st.lists(st.integers(0, len(DATA)), max_size=30),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 400)), max_size=20),
)
def test_a_window_gives_what_a_slice_would(cuts: list[int], takes: list[tuple[int, int]]) -> None:
    """This holds for every cut of the stream, with skipped and repeated ranges."""
    edges = [100, *sorted(cut for cut in cuts if 100 < cut < len(DATA)), len(DATA)]
    window = Window((DATA[begin:end] for begin, end in pairwise(edges)), 100)
    position = 100
    for skip, length in takes:
        position = min(position + skip, len(DATA))
        stop = min(position + length, len(DATA))
        assert bytes(window.take(position, stop)) == DATA[position:stop]


def test_a_window_says_that_the_stream_ended() -> None:
    """A stream that is shorter than it said is a service fault."""
    with pytest.raises(ServiceFaultError):
        Window(iter([b"abc"]), 0).take(0, 4)


@given(st.integers(1, 500), st.integers(1, 5), st.integers(0, 700), st.integers(0, 700))
def test_reading_ahead_gives_the_range_in_order(piece: int, ahead: int, a: int, b: int) -> None:
    """The pieces have the requested size; none is missing or repeated."""
    whole = ByteRange(min(a, b), max(a, b))
    got = list(read_ahead(lambda want: DATA[want.start : want.stop], whole, piece, ahead))
    assert b"".join(got) == DATA[whole.start : whole.stop]
    assert all(len(part) == piece for part in got[:-1])


def test_calls_ahead_run_at_once_and_give_their_results_in_order() -> None:
    """Three calls wait for each other; while the first one lasts, at most five are begun."""
    met, begun = threading.Barrier(3, timeout=HANG_SECONDS), []

    def call(number: int) -> int:
        begun.append(number)
        met.wait()
        return -number

    for number, result in enumerate(map_ahead(call, iter(range(9)), 3, 5)):
        assert result == -number
        assert max(begun) <= number + 5
    assert sorted(begun) == list(range(9))


def test_closing_calls_ahead_waits_for_none() -> None:
    """A collector of garbage closes what is left behind, where a thread must not be waited for."""
    release, ended = threading.Event(), []

    def call(number: int) -> None:
        if number:
            release.wait(HANG_SECONDS)
            ended.append(number)

    results = map_ahead(call, range(3), 2)
    next(results)
    results.close()
    assert not ended
    release.set()


def test_a_put_pool_bounds_bytes_in_flight() -> None:
    """Submit waits while the bytes are used up; one body of any size may go alone."""
    release = threading.Event()

    def put() -> None:
        release.wait(HANG_SECONDS)

    pool = PutPool(4, 1000)
    pool.submit(put, 5000)
    second = threading.Thread(target=pool.submit, args=(put, 1))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    release.set()
    second.join(HANG_SECONDS)
    assert not second.is_alive()
    pool.close()


def test_the_first_error_of_a_put_ends_the_pool() -> None:
    """What is queued behind it is dropped, and the submitting thread learns of it."""
    done: list[int] = []
    refused = threading.Event()

    def put(number: int) -> None:
        if number == 5:
            refused.set()
            raise AccessDeniedError("no")
        assert number < 5 or refused.wait(HANG_SECONDS)
        time.sleep(0.001)
        done.append(number)

    pool = PutPool(2, 10**6)

    def submit_all() -> None:
        for number in range(10_000):
            pool.submit(partial(put, number), 0)

    with pytest.raises(AccessDeniedError):
        submit_all()
    pool.abandon()
    assert len(done) < 5_000


BIG = zips.build(zips.Entry("big", zips.log_lines(60_000), zips.DEFLATE))


def _begin(world: World) -> tuple[TaskAttempt, PlannedMember]:
    step = begin_run(world.request(BIG), world.context)
    (task,) = step.next.tasks
    attempt = TaskAttempt(world.records(step.next.run).read_plan().run, task, world.context)
    (row,) = attempt.read_rows(task.rows)
    return attempt, row


def test_an_upload_that_somebody_aborted_is_told_as_gone() -> None:
    """Nothing is noted of the member, so that the task is tried again."""
    world = World(WHOLE)
    attempt, row = _begin(world)
    upload = begin_upload(attempt, row)
    world.out.abort_upload(upload)
    with pytest.raises(UploadGoneError) as gone:
        finish_upload(attempt, row, upload, ())
    assert attempt.outcomes == []
    # A worker process sends the error to its program.
    assert str(pickle.loads(pickle.dumps(gone.value))) == str(gone.value)  # noqa: S301 - our own


@dataclass(eq=False)
class NotingBucket(MemoryBucket):
    """Notes which parts came as a memoryview, which S3 must copy."""

    views: list[int] = field(default_factory=list)

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        if isinstance(body, memoryview):
            self.views.append(number)  # in threads
        return super().upload_part(upload, number, offset, body, crc32)


@pytest.mark.parametrize(
    ("chunks", "sizes", "views"),
    [
        ([b"abc", b"", b"de", b"fg"], [2, 2, 2, 1], [4]),
        ([b"", b"abcd", b""], [2, 2], []),  # no third part: its number may be that of another slice
        ([b"ab", b"cd", b"", b""], [2, 2], []),
        ([], [0], [1]),
        ([b""], [0], [1]),
    ],
)
def test_a_stream_is_cut_into_the_planned_parts(
    chunks: list[bytes], sizes: list[int], views: list[int]
) -> None:
    """However it comes in chunks; a full part is sent from its buffer, without a copy."""
    bucket = NotingBucket()
    attempt, row = _begin(World(WHOLE, MemoryStores(out=bucket)))
    parts = upload_parts(attempt, begin_upload(attempt, row), iter(chunks), [2])
    assert ([(part.number, part.size) for part in parts], sorted(bucket.views)) == (
        list(enumerate(sizes, 1)),
        views,
    )


def test_an_upload_that_was_never_there_is_not_taken_for_done() -> None:
    """The first attempt is told so: what is under the key is not of this upload.

    It may be, if an earlier step may have completed the upload.
    """
    world = World(WHOLE)
    attempt, row = _begin(world)
    stream_member(attempt, row)
    assert [outcome.status for outcome in attempt.outcomes] == [Status.EXTRACTED]
    upload = begin_upload(attempt, row)
    world.out.abort_upload(upload)
    with pytest.raises(NotFoundError):
        complete_once(attempt, row, upload, ())
    assert world.out.head(KEY + "big") is not None
    assert complete_once(attempt, row, upload, (), is_repeated=True) is None


ROWS = LIST_PRICE  # for which one LIST may be asked
BODY = b"content"
SKIP = Options(on_conflict=OnConflict.SKIP_UNCHANGED)


def _row_of(index: int, key: str) -> PlannedMember:
    return PlannedMember(Member(index, key, None, 0, 0, 7, 7, crc32(BODY), 0, 0, None, None), key)


def hold(
    bucket: MemoryBucket, *keys: str, body: bytes = BODY, crc: int | None = crc32(BODY)
) -> MemoryBucket:
    """Put objects with a body into a bucket, with this CRC-32 in their metadata; return it."""
    metadata = {} if crc is None else {"zip-crc32": f"{crc:08x}"}
    for key in keys:
        bucket.put(key, body, ObjectFacts("text/plain", metadata), if_absent=False)
    return bucket


@pytest.fixture
def calls() -> Calls:
    return Calls(ManualClock(), 60.0, 4)


@pytest.mark.parametrize("place", [0, 1, ROWS - 1])
def test_members_beyond_the_last_key_listed_are_asked_for(place: int, calls: Calls) -> None:
    """Where LIST is given up among other keys, HEAD decides for each member behind them."""
    keys = [f"a{number:03}" if number <= place else f"z{number:03}" for number in range(ROWS)]
    bucket = hold(MemoryBucket(), *keys, *[f"m{number:05}" for number in range(PAGE_KEYS + 1)])
    if place < ROWS - 1:
        bucket.delete(keys[-1:])
    rows = [_row_of(index, key) for index, key in enumerate(keys)]
    assert resolve_conflicts(rows, SKIP, bucket, calls, threads=2).keys() == {
        row.member.index for row in rows if row.key in bucket.objects
    }
    assert calls.requests.head == ROWS  # each member once, also the one that is not there


def test_the_last_key_listed_is_not_asked_for_twice(calls: Calls) -> None:
    """A member that LIST named as its last key has one HEAD like any other."""
    keys = [f"k{number:04}" for number in range(0, 2 * PAGE_KEYS, 2 * PAGE_KEYS // ROWS)][:ROWS]
    bucket = hold(MemoryBucket(), *keys, *[f"k{number:04}x" for number in range(PAGE_KEYS)])
    last = sorted(bucket.objects)[PAGE_KEYS - 1]
    rows = [_row_of(index, key) for index, key in enumerate([*keys[: ROWS - 2], last, "z"])]
    assert (len(resolve_conflicts(rows, SKIP, bucket, calls, threads=2)), calls.requests.head) == (
        ROWS - 1,
        ROWS,
    )


class ChecksummedBucket(MemoryBucket):
    """A bucket that keeps a CRC-32 of its own for each object."""

    def head(self, key: str) -> StoredObject | None:
        stored = super().head(key)
        return stored and stored._replace(checksum=crc32(self.objects[key].body))


GZIPPED = gzip.compress(BODY, mtime=0)
AS_GZIP = replace(SKIP, as_gzip=GzipForm.SUFFIX)
GZIP_ROW = PlannedMember(  # 18 bytes are header and trailer (RFC 1952)
    replace(_row_of(0, "k").member, compressed_size=len(GZIPPED) - 18, method=8), "k"
)


@pytest.mark.parametrize(
    ("row", "options", "body", "noted", "same"),
    [
        (_row_of(0, "k"), SKIP, BODY, BODY, True),
        (_row_of(0, "k"), SKIP, b"another", BODY, False),
        (_row_of(0, "k"), SKIP, BODY, b"another", True),
        # The store's checksum of a gzip file is of the file, the noted one of the content.
        (GZIP_ROW, AS_GZIP, GZIPPED, BODY, True),
        (GZIP_ROW, replace(SKIP, as_gzip=GzipForm.ENCODING), GZIPPED, BODY, True),
        (GZIP_ROW, AS_GZIP, GZIPPED, GZIPPED, False),
    ],
)
def test_the_stores_own_checksum_counts_more_than_the_noted_one(
    row: PlannedMember, options: Options, body: bytes, noted: bytes, calls: Calls, *, same: bool
) -> None:
    """Whoever wrote the object chose its metadata; the store computed its checksum."""
    bucket = hold(ChecksummedBucket(), "k", body=body, crc=crc32(noted))
    assert object_is_member(row, options, bucket, calls) is same


@pytest.mark.parametrize(
    ("rows", "pages"),
    [
        (LIST_PRICE - 1, 0),  # one page costs more than their HEADs
        (LIST_PRICE, 1),
        (3 * LIST_PRICE, 2),
    ],
)
def test_a_listing_is_given_up_before_it_costs_too_much(
    rows: int, pages: int, calls: Calls
) -> None:
    """After the pages that cost as much as the HEADs, or those that hold twice the members."""
    bucket = hold(
        MemoryBucket(), *(f"m{number:05}" for number in range(3 * PAGE_KEYS)), body=b"", crc=None
    )
    members = [_row_of(index, f"{'az'[index % 2]}{index:03}") for index in range(rows)]
    assert (resolve_conflicts(members, SKIP, bucket, calls, threads=2), calls.requests.list) == (
        {},
        pages,
    )


def test_an_object_without_a_noted_crc_is_known_by_its_size(calls: Calls) -> None:
    """The metadata of a streamed AE-2 member has none."""
    bucket = hold(MemoryBucket(), "k", crc=None)
    assert is_same_object(
        Outcome(0, "k", Status.EXTRACTED, len(BODY), crc32(BODY)), Options(), bucket, calls
    )


@pytest.mark.parametrize(
    ("body", "crc"),
    [(GZIPPED, crc32(BODY)), (GZIPPED[:-1], None), (GZIPPED + b"more", None), (BODY, None)],
    ids=["whole", "cut short", "with a rest", "plain"],
)
def test_a_gzip_file_is_read_to_its_end(body: bytes, crc: int | None) -> None:
    """Only a file that is one whole stream has the CRC-32 of its content."""
    bucket = hold(MemoryBucket(), "k", body=body, crc=None)
    assert read_stored(bucket, "k", is_gzip=True) == StoredObject("k", len(body), crc)
    assert read_stored(bucket, "k", is_gzip=False) == StoredObject("k", len(body), crc32(body))
    assert read_stored(bucket, "nothing", is_gzip=True) is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a/b.json", "application/json"),
        ("a/b.JSON", "application/json"),
        ("a.html/b", DEFAULT_TYPE),
        (".json", DEFAULT_TYPE),
        ("a/..json", DEFAULT_TYPE),
        ("a/.b.json", "application/json"),
        ("a.tar.gz", "application/gzip"),
        ("a.tgz", "application/gzip"),
        ("a.csv.bz2", "application/x-bzip2"),
        (
            "a.docx",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
        ("a.XLSX", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.odt", "application/vnd.oasis.opendocument.text"),
        ("a.ndjson", "application/x-ndjson"),
        ("a.geojson", "application/geo+json"),
        ("a.toml", "application/toml"),
        ("a.log", "text/plain"),
        ("a.7z", "application/x-7z-compressed"),
        ("a.flac", "audio/flac"),
        ("a.mkv", "video/matroska"),
        ("a.ttf", "font/ttf"),
        # In all versions of Python.
        ("a.md", "text/markdown"),
        ("a.mjs", "text/javascript"),
        ("a.webp", "image/webp"),
        ("a.rtf", "text/rtf"),
        ("a.bmp", "image/bmp"),
        ("a.", DEFAULT_TYPE),
        ("a.unheard-of", DEFAULT_TYPE),
        ("", DEFAULT_TYPE),
    ],
)
def test_a_type_comes_from_the_suffix(key: str, expected: str) -> None:
    """The last suffix of the last segment counts, in any case; a leading dot makes none."""
    assert content_type(key) == expected


@given(st.text(alphabet="./aAjsonhtml", max_size=20))
@example("...json")
@example("a/...html.")
def test_a_suffix_is_what_posix_calls_one(key: str) -> None:
    """A key has the type of its suffix, as `posixpath.splitext` cuts it, and of nothing else."""
    assert content_type(key) == content_type("name" + posixpath.splitext(key)[1])
