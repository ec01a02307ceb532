"""Zstandard frames (RFC 8878), decompressed one after the other by one decoder.

Most archives have no such member, so this module is imported when one is opened.
"""

from collections.abc import Callable
from functools import partial

import zstandard

from s3unzip.zip.values import Buffer

# The library has no bound on its output. A block of 4 bytes yields up to 128 KiB, so this many
# bytes of input yield at most 16 MiB.
MAX_INPUT = 512
MIN_WINDOW = 1024  # bytes; the library takes no smaller limit


class Frame:
    """One frame, perhaps one to be skipped, with the interface of bz2 and lzma."""

    def __init__(self, decoder: zstandard.ZstdDecompressor) -> None:
        self._frame = decoder.decompressobj()
        self._input = memoryview(b"")
        self._position = 0  # of the next byte of the input
        self._output = memoryview(b"")

    @property
    def eof(self) -> bool:
        """Whether the frame has ended, and all its output was returned."""
        return self._frame.eof and not self._output

    @property
    def needs_input(self) -> bool:
        """Whether there is no more output without more input."""
        return not self._output and self._position >= len(self._input)

    @property
    def unused_data(self) -> memoryview:
        """Input after the end of the frame."""
        end = min(self._position, len(self._input)) - len(self._frame.unused_data)
        return self._input[end:]

    def decompress(self, data: Buffer, max_length: int) -> Buffer:
        """Return up to `max_length` bytes; `ValueError`: the frame is bad, or needs too much."""
        frame = self._frame
        if data:
            self._input = memoryview(data)
            self._position = 0
        try:
            while not (self._output or self.needs_input or frame.eof):
                start = self._position
                self._position += MAX_INPUT
                self._output = memoryview(frame.decompress(self._input[start : self._position]))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        output = self._output[:max_length]
        self._output = self._output[max_length:]
        return output


def open_frames(max_window: int) -> Callable[[], Frame]:
    """Return a function that begins the next frame; no frame has a window above `max_window`.

    All frames share a decoder. Creating a decoder takes 8 us, because libzstd queries the CPU's
    features; an empty frame takes 0.2 us.
    """
    decoder = zstandard.ZstdDecompressor(max_window_size=max(MIN_WINDOW, max_window))
    return partial(Frame, decoder)
