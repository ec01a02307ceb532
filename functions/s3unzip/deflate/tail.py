"""The last 32 KiB of a segment's output, while the output before the segment is unknown.

A segment may copy from the 32 KiB before it. Its worker does not have them,
so it inflates the segment twice, after two invented windows that differ at every position. A byte
equal in both outputs is known; two bytes that differ are, together, the position in the window that
the byte was copied from.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

WINDOW_SIZE: Final = 1 << 15
"""Bytes that deflate can look back (RFC 1951, 2)."""

FIRST_WINDOW: Final = bytes(range(256)) * 128
"""A made-up window: the low byte of each position."""

SECOND_WINDOW: Final = b"".join(
    bytes([high | 0x80]) * 128 + bytes([high]) * 128 for high in range(128)
)
"""The other: the high seven bits, and a top bit that makes it differ from the first."""


class SymbolicTail(Struct, frozen=True):
    """The last bytes of a segment's output after the first and after the second window.

    Both have 32 KiB, also where the segment wrote less: the made-up window
    counts as output before it, so parts of the older window are carried
    along as positions. Only a segment at the beginning of the stream, which
    has nothing before it, may have less.
    """

    first: bytes
    second: bytes

    def resolve(self, window: bytes, history: int) -> bytes:
        """Return the true tail, which is the window of the next segment.

        Args:
            window: What came before the segment, up to 32 KiB of it.
            history: Bytes of output from the beginning of the stream to the end of the
                segment; the tail has no more than that.

        Raises:
            IndexError: A byte was copied from before the beginning of the stream.
        """
        keep = min(history, len(self.first))
        first, second = self.first[-keep:] if keep else b"", self.second[-keep:] if keep else b""
        if first == second:
            return first
        missing = WINDOW_SIZE - len(window)
        padded = bytes(missing) + window
        resolved = bytearray(first)
        for at, (low, high) in enumerate(zip(first, second, strict=True)):
            if low != high:
                position = low | (high & 0x7F) << 8
                if position < missing:
                    raise IndexError(f"window of {len(window)} bytes has no position {position}")
                resolved[at] = padded[position]
        return bytes(resolved)
