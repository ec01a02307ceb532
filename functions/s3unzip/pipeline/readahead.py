"""Reading a long range in pieces, some of them before they are needed."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from s3unzip.zipformat.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future


def read_ahead(
    read: Callable[[ByteRange], bytes], whole: ByteRange, piece: int, ahead: int
) -> Iterator[bytes]:
    """Yield `whole` in order, in pieces of `piece` bytes.

    At most `ahead` pieces are being read or waiting, besides the one handed
    out: that bounds the memory, and a slow consumer stops the reading.
    """
    if whole.length <= piece:
        if whole.length:
            yield read(whole)
        return
    cuts = iter(range(whole.start, whole.stop, piece))
    with ThreadPoolExecutor(max_workers=ahead, thread_name_prefix="read-ahead") as pool:
        pending: deque[Future[bytes]] = deque()

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
