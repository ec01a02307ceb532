"""What bounds memory and time in a worker, and how the upload of a large member goes on."""

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from s3unzip.errors import AccessDeniedError, NotFoundError, ServiceFaultError
from s3unzip.extraction.batch import PutPool, Window
from s3unzip.extraction.stream import stream_member
from s3unzip.extraction.uploads import UploadGoneError, begin_upload, complete_once, finish_upload
from s3unzip.model import Part, Status
from s3unzip.runs.step import TaskAttempt
from s3unzip.settling.loop import begin as begin_run
from s3unzip.stores.ahead import map_ahead, read_ahead
from s3unzip.stores.ports import Buffer, Upload
from s3unzip.zip import ByteRange
from tests.support import zips
from tests.support.contents import log_lines
from tests.support.memory import MemoryBucket, MemoryStores
from tests.support.patience import HANG_SECONDS
from tests.support.runs import KEY, WHOLE, World

DATA = bytes(range(256)) * 8


def _pieces(cuts: list[int], start: int) -> Iterator[bytes]:
    edges = [start, *sorted(c for c in cuts if start < c < len(DATA)), len(DATA)]
    for begin, end in pairwise(edges):
        yield DATA[begin:end]


@given(
    st.lists(st.integers(0, len(DATA)), max_size=30),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 400)), max_size=20),
)
def test_a_window_gives_what_a_slice_would(cuts: list[int], takes: list[tuple[int, int]]) -> None:
    """This holds for every cut of the stream, with skipped and repeated ranges."""
    window = Window(_pieces(cuts, 100), 100)
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

    def put(_number: int, _body: Buffer) -> None:
        release.wait(HANG_SECONDS)

    pool = PutPool(put, 4, 1000)
    pool.submit(0, b"x" * 5000)
    second = threading.Thread(target=pool.submit, args=(1, b"x"))
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

    def put(number: int, _body: Buffer) -> None:
        if number == 5:
            refused.set()
            raise AccessDeniedError("no")
        assert number < 5 or refused.wait(HANG_SECONDS)
        time.sleep(0.001)
        done.append(number)

    pool = PutPool(put, 2, 10**6)

    def submit_all() -> None:
        for number in range(10_000):
            pool.submit(number, b"")

    with pytest.raises(AccessDeniedError):
        submit_all()
    pool.abandon()
    assert len(done) < 5_000


BIG = zips.build(zips.Entry("big", log_lines(60_000), zips.DEFLATE))


def _begin(world: World) -> TaskAttempt:
    step = begin_run(world.request(BIG), world.context)
    (task,) = step.next.tasks
    return TaskAttempt(world.records(step.next.run).read_plan().run, task, world.context)


def _stream(attempt: TaskAttempt) -> list[Status]:
    stream_member(attempt, attempt.read_rows(attempt.task.rows))
    return [outcome.status for outcome in attempt.outcomes]


def test_an_upload_that_somebody_aborted_is_told_as_gone() -> None:
    """Nothing is noted of the member, so that the task is tried again."""
    world = World(WHOLE)
    attempt = _begin(world)
    (row,) = attempt.read_rows(attempt.task.rows)
    upload = begin_upload(attempt, row)
    world.out.abort_upload(upload)
    with pytest.raises(UploadGoneError):
        finish_upload(attempt, row, upload, ())
    assert attempt.outcomes == []


class LosingBucket(MemoryBucket):
    """Completes an upload, and loses the answer."""

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        etag = super().complete_upload(upload, parts, if_absent=if_absent)
        raise ServiceFaultError(f"connection lost before {etag} came")


def test_a_completion_whose_answer_was_lost_is_found_by_the_object() -> None:
    """The second attempt is told that there is no such upload; the member is there."""
    attempt = _begin(World(WHOLE, MemoryStores(out=LosingBucket())))
    assert _stream(attempt) == [Status.EXTRACTED]
    assert attempt.outcomes[0].etag is None
    assert attempt.calls.requests.complete == 2


def test_an_upload_that_was_never_there_is_not_taken_for_done() -> None:
    """The first attempt is told so: what is under the key is not of this upload."""
    world = World(WHOLE)
    attempt = _begin(world)
    (row,) = attempt.read_rows(attempt.task.rows)
    assert _stream(attempt) == [Status.EXTRACTED]
    upload = begin_upload(attempt, row)
    world.out.abort_upload(upload)
    with pytest.raises(NotFoundError):
        complete_once(attempt, row, upload, ())
    assert world.out.head(KEY + "big") is not None
