"""Calls that run ahead: threads run the next calls while the consumer uses a result."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from s3unzip.zip import ByteRange

S = TypeVar("S")
T = TypeVar("T")


def read_ahead(
    read: Callable[[ByteRange], T], whole: ByteRange, piece_length: int, ahead: int
) -> Iterator[T]:
    """Yield the result of `read` for each piece of `whole`, in order.

    Each piece has `piece_length` bytes; the last one may be shorter. At most `ahead` pieces are
    being read or waiting for the consumer, so memory use is bounded, and reading pauses while the
    consumer is slow.
    """
    if whole.length <= piece_length:  # a single piece needs no thread
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
    """Yield the result of `call` for each value, in order.

    Args:
        call: function to run in a thread.
        values: arguments for the calls. They are iterated in the consumer's thread.
        at_once: maximum number of concurrent calls.
        ahead: maximum number of values in progress or waiting for the consumer. If it is greater
            than `at_once`, one slow call does not hold up the others. Defaults to `at_once`.
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
        # starting. Waiting there would deadlock, because `threading` holds the lock that the wait
        # needs.
        pool.shutdown(wait=False, cancel_futures=True)
