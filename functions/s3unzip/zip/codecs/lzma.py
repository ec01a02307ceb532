"""LZMA (method 14, APPNOTE 5.8) and xz (method 95), by liblzma."""

from __future__ import annotations

import lzma
from typing import TYPE_CHECKING, Final

from s3unzip.zip.codecs.chain import Chain
from s3unzip.zip.codecs.port import Buffer, StreamError
from s3unzip.zip.directory.records import FLAG_LZMA_EOS

if TYPE_CHECKING:
    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

_HEADER_LENGTH: Final = 4
_PROPERTIES_LENGTH: Final = 5
_UNKNOWN_SIZE = (1 << 64) - 1
# What liblzma needs beside the dictionary: its probability tables and buffers.
_OVERHEAD = 16 << 20
_SMALLEST_DICTIONARY = 4096
_MARKER_ROOM = 64


def _explain(name: str, error: Exception) -> StreamError:
    code = "memory-bound" if "emory" in str(error) else "corrupt-stream"
    return StreamError(code, f"{name}: {error}")


class Lzma:
    """LZMA with the ZIP's own header: version, properties' length, properties.

    liblzma gets the raw stream behind a header of the old `.lzma` format, which has the same
    properties and the size. Then the library knows where the stream ends (flag bit 1: at its
    marker), and obeys a memory limit. The dictionary never needs to be larger than the member.
    """

    def __init__(self, member: Member, policy: Policy) -> None:
        self._has_marker = bool(member.flags & FLAG_LZMA_EOS)
        self._size = self._left = member.size
        self._unseen = member.compressed_size
        self._limit = policy.limits.decoder_memory
        self._stream: lzma.LZMADecompressor | None = None
        self._data: Buffer = b""
        self._late = 0

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self._stream is not None and self._stream.eof

    @property
    def spare(self) -> int:
        """Bytes after the stream."""
        if self._stream is None or not self._stream.eof:
            return 0
        return self._late + len(self._stream.unused_data)

    def push(self, data: Buffer) -> None:
        """Take the next input."""
        self._unseen -= len(data)
        if self.ended:
            self._late += len(data)
        else:
            self._data = b"".join((self._data, data)) if self._data else data

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes; see `Codec`.

        Some writers add an end marker to a stream of known size. liblzma accepts it, unless its
        input is cut inside the marker. So the last byte of output is pulled alone, when the input
        after it is there.
        """
        if self._stream is None:
            self._stream = self._start()
        if self._stream is None or self._stream.eof:
            return b""
        if not self._has_marker:
            if self._left > 1:
                max_length = min(max_length, self._left - 1)
            elif self._unseen > 0 and len(self._data) < _MARKER_ROOM:
                return b""
        if self._stream.needs_input and not self._data:
            return b""
        data, self._data = self._data, b""
        try:
            piece = self._stream.decompress(data, max_length)
        except (lzma.LZMAError, EOFError) as error:
            raise _explain("lzma", error) from error
        self._left -= len(piece)
        return piece

    def _start(self) -> lzma.LZMADecompressor | None:
        length = _HEADER_LENGTH + _PROPERTIES_LENGTH
        if len(self._data) < length:
            return None
        head = bytes(self._data[:length])
        if int.from_bytes(head[2:4], "little") != _PROPERTIES_LENGTH:
            raise StreamError("corrupt-stream", f"lzma: odd properties {head.hex()}")
        dictionary = int.from_bytes(head[5:9], "little")
        dictionary = min(dictionary, max(self._size, _SMALLEST_DICTIONARY))
        if dictionary > self._limit:
            message = f"lzma: a dictionary of {dictionary} bytes, the limit is {self._limit}"
            raise StreamError("memory-bound", message)
        known = _UNKNOWN_SIZE if self._has_marker else self._size
        header = head[4:5] + dictionary.to_bytes(4, "little") + known.to_bytes(8, "little")
        self._data = b"".join((header, self._data[length:]))
        return lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=self._limit + _OVERHEAD)


class Xz(Chain):
    """xz streams, and the padding between them."""

    def __init__(self, member: Member, policy: Policy) -> None:
        del member
        limit = policy.limits.decoder_memory + _OVERHEAD

        def start() -> lzma.LZMADecompressor:
            return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limit)

        super().__init__(start, b"\xfd7zXZ\0", bytes(4), lambda error: _explain("xz", error))
