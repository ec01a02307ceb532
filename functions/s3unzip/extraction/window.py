"""A sliding view of a stream: members are cut out of it without copying where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.errors import ServiceFaultError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.stores.ports import Buffer


class Window:
    """Bytes of an archive that arrive in order and are asked for in order.

    Holds what lies between the last `take`'s start and what has arrived: one
    member and one piece of the stream at most.
    """

    def __init__(self, pieces: Iterator[Buffer], start: int) -> None:
        self._pieces = pieces
        self._held = memoryview(b"")
        self._start = start  # offset in the archive of the first byte held
        self.bytes_read = 0

    def take(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop) of the archive; bytes before `start` are dropped.

        Raises:
            ServiceFaultError: the stream ended before `stop`.
        """
        held_stop = self._start + len(self._held)
        if stop > held_stop:
            self._fill(start, stop)
        elif start > self._start:
            self._held = self._held[start - self._start :]
            self._start = start
        begin = start - self._start
        return self._held[begin : begin + stop - start]

    def _fill(self, start: int, stop: int) -> None:
        position = self._start + len(self._held)
        kept: list[Buffer] = []
        if start < position:
            kept.append(self._held[start - self._start :])
        while position < stop:
            piece = next(self._pieces, None)
            if piece is None:
                raise ServiceFaultError(f"the archive's stream ended at {position}, not at {stop}")
            self.bytes_read += len(piece)
            if position + len(piece) > start:
                kept.append(memoryview(piece)[max(0, start - position) :])
            position += len(piece)
        self._held = memoryview(kept[0] if len(kept) == 1 else b"".join(kept))
        self._start = start
