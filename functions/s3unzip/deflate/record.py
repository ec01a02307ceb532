"""The records that one worker writes for another: deflated MessagePack."""

import zlib
from typing import Self

from msgspec import DecodeError, Struct, msgpack

from s3unzip.deflate.inflater import WINDOW_SIZE
from s3unzip.finding import SegmentRecordError

_MAX_RECORD = 2 * WINDOW_SIZE + 4_096  # bytes of a record before they are deflated


class Record(Struct, frozen=True):
    """A value that one worker writes for another, in 100 bytes to 65 KiB."""

    def to_bytes(self) -> bytes:
        """Return the record's bytes."""
        return zlib.compress(msgpack.encode(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the record that `to_bytes` wrote.

        Raises:
            SegmentRecordError: Another version wrote it, or it is damaged.
        """
        try:
            inflate = zlib.decompressobj()
            plain = inflate.decompress(data, _MAX_RECORD)
            if not inflate.eof or inflate.unused_data:
                raise SegmentRecordError(f"a {cls.__name__} of more or fewer bytes")
            return msgpack.decode(plain, type=cls)
        except (zlib.error, DecodeError) as error:
            raise SegmentRecordError(f"no {cls.__name__} of this version: {error}") from error
