"""Calls that run ahead: while the consumer uses one result, the next calls run in threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from s3unzip.settings import Tuning
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import PinnedArchive
from s3unzip.zip import ByteRange

S = TypeVar("S")
T = TypeVar("T")


def stream_ahead(
    archive: PinnedArchive, whole: ByteRange, calls: Calls, tuning: Tuning
) -> Iterator[memoryview]:
    """Yield `whole` in pieces of about a MiB; ranges of `read_piece` bytes are read ahead.

    Pieces are small, because allocating pages for large buffers costs more than reading into them.
    """
    for pieces in read_ahead(
        lambda want: list(calls.stream(archive, want)),
        whole,
        tuning.read_piece,
        tuning.reads_ahead,
    ):
        yield from (memoryview(data) for data in pieces)


def read_ahead(
    read: Callable[[ByteRange], T], whole: ByteRange, piece_length: int, ahead: int
) -> Iterator[T]:
    """Yield what `read` returns for each piece of `whole`, in order.

    Each piece has `piece_length` bytes; the last one may be shorter. At most `ahead` pieces are
    being read or wait for the consumer, so the memory is bounded and a slow consumer stops the
    reading.
    """
    if whole.length <= piece_length:  # one piece needs no thread
        if whole.length:
            yield read(whole)
        return
    pieces = (
        ByteRange(start, min(start + piece_length, whole.stop))
        for start in range(whole.start, whole.stop, piece_length)
    )
    yield from map_ahead(read, pieces, ahead)


def map_ahead(
    call: Callable[[S], T], values: Iterable[S], at_once: int, ahead: int | None = None
) -> Generator[T, None, None]:
    """Yield what `call` returns for each value, in order.

    Args:
        call: runs in a thread.
        values: are taken in the consumer's thread.
        at_once: calls that run at the same time.
        ahead: the bound on values that are in progress or wait for the consumer. With more than
            `at_once`, one slow call does not stop the others. None: `at_once`.
    """
    remaining = iter(values)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="ahead")
    try:
        pending = deque(pool.submit(call, value) for value in islice(remaining, ahead or at_once))
        while pending:
            result = pending.popleft().result()
            # The next call starts before the consumer uses this result.
            pending.extend(pool.submit(call, value) for value in islice(remaining, 1))
            yield result
    finally:
        # The garbage collector closes an abandoned generator, perhaps in a thread that is just
        # starting. A wait would never end there, because `threading` holds the lock that it needs.
        pool.shutdown(wait=False, cancel_futures=True)
