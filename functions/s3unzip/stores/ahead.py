"""Calls whose results are read ahead: the next ones run while the consumer uses the first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from s3unzip.settings import Tuning
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Buffer, PinnedArchive
from s3unzip.zip import ByteRange

S = TypeVar("S")
T = TypeVar("T")


def stream_ahead(
    archive: PinnedArchive, whole: ByteRange, calls: Calls, tuning: Tuning
) -> Iterator[memoryview]:
    """Yield `whole` in pieces of about a MiB; ranges of `read_piece` bytes are read ahead.

    Pieces are small, because allocating pages for large buffers costs more than reading into them.
    """

    def read(want: ByteRange) -> list[Buffer]:
        return list(calls.stream(archive, want))

    for buffers in read_ahead(read, whole, tuning.read_piece, tuning.reads_ahead):
        for data in buffers:
            yield memoryview(data)


def read_ahead(
    read: Callable[[ByteRange], T], whole: ByteRange, length: int, ahead: int
) -> Iterator[T]:
    """Yield `whole` in order, in pieces of `length` bytes.

    At most `ahead` pieces are being read or waiting, besides the one that was yielded. This bounds
    the memory, and a slow consumer stops the reading.
    """
    if whole.length <= length:
        if whole.length:
            yield read(whole)
        return
    starts = range(whole.start, whole.stop, length)
    pieces = (ByteRange(start, min(start + length, whole.stop)) for start in starts)
    yield from map_ahead(read, pieces, ahead)


def map_ahead(
    call: Callable[[S], T], values: Iterable[S], at_once: int, ahead: int | None = None
) -> Generator[T, None, None]:
    """Yield what `call` returns for each value, in order.

    Args:
        call: runs in a thread.
        values: are taken in the consumer's thread.
        at_once: calls that run at the same time.
        ahead: values that are in progress or wait for the consumer, so that one slow call does not
            stop the others; None: as many as `at_once`. This bounds the memory.
    """
    coming = iter(values)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="ahead")
    try:
        pending = deque(pool.submit(call, value) for value in islice(coming, ahead or at_once))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(call, value) for value in islice(coming, 1))
            yield result
    finally:
        # A generator that is left behind is closed by the garbage collector, perhaps in a thread
        # that is just starting. There a join never ends: `threading` wants a lock that it holds.
        pool.shutdown(wait=False, cancel_futures=True)
