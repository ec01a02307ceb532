"""Read a long range in pieces, some of them before they are needed."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from s3unzip.zipformat.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from s3unzip.settings import Tuning
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Archive, Buffer

T = TypeVar("T")


def stream_ahead(
    archive: Archive, whole: ByteRange, calls: Calls, tuning: Tuning
) -> Iterator[memoryview]:
    """Yield `whole` in pieces of about a MiB; ranges of `read_piece` bytes are read ahead.

    Pieces are small, because allocating pages for large buffers costs more than reading into them.
    """

    def read(want: ByteRange) -> list[Buffer]:
        return calls.run("get", lambda: list(archive.stream(want)))

    for pieces in read_ahead(read, whole, tuning.read_piece, tuning.reads_ahead):
        for piece in pieces:
            yield memoryview(piece)


def read_ahead(
    read: Callable[[ByteRange], T], whole: ByteRange, piece: int, ahead: int
) -> Iterator[T]:
    """Yield `whole` in order, in pieces of `piece` bytes.

    At most `ahead` pieces are being read or waiting, besides the one that was yielded. This bounds
    the memory, and a slow consumer stops the reading.
    """
    if whole.length <= piece:
        if whole.length:
            yield read(whole)
        return
    cuts = iter(range(whole.start, whole.stop, piece))
    with ThreadPoolExecutor(max_workers=ahead, thread_name_prefix="read-ahead") as pool:
        pending: deque[Future[T]] = deque()

        def start_next() -> None:
            start = next(cuts, None)
            if start is not None:
                stop = min(start + piece, whole.stop)
                pending.append(pool.submit(read, ByteRange(start, stop)))

        try:
            for _ in range(ahead):
                start_next()
            while pending:
                data = pending.popleft().result()
                start_next()
                yield data
        finally:
            for future in pending:
                future.cancel()
