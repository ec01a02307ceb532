"""How the sans-io core requests bytes.

A `Reads` is a generator that yields the `ByteRange` it needs, is sent exactly those bytes, and
returns a value. `drive` runs it with any function that reads a range: from S3, from a file, or a
test's ``lambda r: raw[r.start : r.stop]``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class ByteRange(NamedTuple):
    """Bytes of the archive from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


Reads = Generator[ByteRange, bytes, T]


def drive(steps: Reads[T], read: Callable[[ByteRange], bytes]) -> T:
    """Run `steps` to its end; answer each range with `read`."""
    try:
        want = next(steps)
        while True:
            want = steps.send(read(want))
    except StopIteration as done:
        value: T = done.value
        return value
