"""Zstandard (method 93): one frame or several, as the format allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zstandard

from s3unzip.zip.codecs.port import Buffer, StreamError

if TYPE_CHECKING:
    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

# The library has no bound on its output. A block of 4 bytes yields up to 128 KiB, so a
# slice of this many bytes yields at most 16 MiB.
_SLICE = 512
_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_TAIL = b"\x2a\x4d\x18"


class Zstd:
    """Zstandard frames up to the end of the member."""

    def __init__(self, member: Member, policy: Policy) -> None:
        del member
        # The library takes no window below 1 KiB.
        self._limit = max(1024, policy.limits.decoder_memory)
        self._frames = zstandard.ZstdDecompressor(max_window_size=self._limit)
        self._frame = self._frames.decompressobj()
        self._data = memoryview(b"")
        self._output = memoryview(b"")
        self._between = b""
        self._late = 0

    @property
    def ended(self) -> bool:
        """Whether a frame has ended and all its output was pulled."""
        return bool(self._frame.eof) and not self._output

    @property
    def spare(self) -> int:
        """Bytes after the last frame that begin no other."""
        return self._late + len(self._between)

    def push(self, data: Buffer) -> None:
        """Take the next input."""
        if self._late:
            self._late += len(data)
        else:
            self._data = memoryview(data)

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes; see `Codec`."""
        while not self._output and self._data and not self._late:
            if self._frame.eof and not self._next_frame():
                break
            given, taken = self._data, self._data[:_SLICE]
            self._data = given[_SLICE:]
            try:
                self._output = memoryview(self._frame.decompress(taken))
            except zstandard.ZstdError as error:
                code = "memory-bound" if "too much memory" in str(error) else "corrupt-stream"
                raise StreamError(code, f"zstd: {error}") from error
            if self._frame.eof and self._frame.unused_data:
                # The unused input is part of this slice. Copying it would take quadratic time for
                # tiny frames.
                self._data = given[len(taken) - len(self._frame.unused_data) :]
        piece, self._output = self._output[:max_length], self._output[max_length:]
        return piece

    def _next_frame(self) -> bool:
        """Begin another frame if its magic follows; otherwise the rest is spare."""
        data = self._data
        if self._between:
            data, self._between = memoryview(b"".join((self._between, data))), b""
        if len(data) < len(_MAGIC):
            self._between, self._data = bytes(data), memoryview(b"")
            return False
        if data[:4] == _MAGIC or (data[0] >> 4 == 5 and data[1:4] == _SKIPPABLE_TAIL):
            self._frame = self._frames.decompressobj()
            self._data = data
            return True
        self._late, self._data = len(data), memoryview(b"")
        return False
