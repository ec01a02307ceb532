"""Compare objects in the destination with members of the archive.

An object is a member's if it has the member's size and the CRC-32 of its content.
"""

import zlib

from isal.isal_zlib import crc32

from s3unzip.errors import NotFoundError
from s3unzip.extraction.forms import has_stored_size
from s3unzip.model import Options, Outcome, PlannedMember
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Buffer, Destination, StoredObject
from s3unzip.zip import Member
from s3unzip.zip.decode import PIECE_LENGTH


def is_member(row: PlannedMember, options: Options, destination: Destination, calls: Calls) -> bool:
    """Return whether the object under the member's key has its size and its CRC-32."""
    stored = find_object(row.key, options, destination, calls)
    return stored is not None and has_content(stored, row.member, options)


def is_same_object(
    outcome: Outcome, options: Options, destination: Destination, calls: Calls
) -> bool:
    """Return whether the object is still the one that a run wrote or found unchanged."""
    stored = find_object(outcome.key, options, destination, calls)
    if stored is None or stored.size != outcome.size:
        return False
    is_unknown = stored.crc32 is None and destination.keeps_metadata  # a streamed AE-2 member
    return is_unknown or stored.crc32 == outcome.crc32


def has_content(stored: StoredObject, member: Member, options: Options) -> bool:
    """Compare the size of an object, and the CRC-32 of its content, with those of a member.

    The archive declares no CRC-32 of members with AES of version AE-2: no object has their content.
    """
    is_equal = member.declares_crc and stored.crc32 == member.crc32
    return is_equal and has_stored_size(stored.size, member, options)


def find_object(
    key: str, options: Options, destination: Destination, calls: Calls
) -> StoredObject | None:
    """Return the object under the key of a member, or None.

    Its `crc32` is that of the content. If the object is the content itself, the checksum of the
    store counts, else the one in the metadata. If the store keeps no metadata, a gzip file is read.
    """
    is_gzip = options.as_gzip is not None

    def find() -> StoredObject | None:
        if is_gzip and not destination.keeps_metadata:
            return read_stored(destination, key, is_gzip=True)
        stored = destination.head(key)
        if stored is None or stored.checksum is None or is_gzip:
            return stored
        return stored._replace(crc32=stored.checksum)

    return calls.paced("head", find)


def read_stored(destination: Destination, key: str, *, is_gzip: bool) -> StoredObject | None:
    """Read an object; return it with the CRC-32 of its content, None if it does not exist.

    The CRC-32 is None if the object should be a gzip file and is none.
    """
    size = 0
    crc = 0
    gzip_content = _GzipContent()
    try:
        for chunk in destination.read(key):
            size += len(chunk)
            if is_gzip:
                gzip_content.feed(chunk)
            else:
                crc = crc32(chunk, crc)
    except NotFoundError:
        return None
    return StoredObject(key, size, gzip_content.crc32 if is_gzip else crc)


class _GzipContent:
    """The content of a gzip file that arrives in pieces, of which only the CRC-32 is kept."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._crc = 0
        self._is_broken = False

    def feed(self, data: Buffer) -> None:
        while data and not self._is_broken:
            try:
                content = self._stream.decompress(data, PIECE_LENGTH)
            except zlib.error:
                self._is_broken = True
                return
            self._crc = crc32(content, self._crc)
            self._is_broken = bool(self._stream.unused_data)
            data = self._stream.unconsumed_tail

    @property
    def crc32(self) -> int | None:
        """The CRC-32 of the content; None if the file is no single, whole gzip stream."""
        if self._is_broken or not self._stream.eof:
            return None
        return self._crc
