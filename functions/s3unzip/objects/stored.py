"""The stored form of a member: its size, CRC-32 and bytes as an object.

A member is written as it is or as a gzip file. Code that writes objects, or compares them with the
archive, uses this module.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from isal.isal_zlib import crc32
from msgspec.structs import replace

from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import GzipForm
from s3unzip.object_properties import ARCHIVED_CLASSES
from s3unzip.stores.ports import StoredObject
from s3unzip.zip import (
    PIECE_LENGTH,
    GzipMember,
    MemberDecoder,
    decode_whole,
    gzip_length,
)

if TYPE_CHECKING:
    from s3unzip.errors import Finding
    from s3unzip.model import Options, PlannedMember, Request
    from s3unzip.object_properties import ObjectProperties
    from s3unzip.stores.ports import Buffer, Destination
    from s3unzip.zip import Member, OpenedMember, Policy


class Stored(NamedTuple):
    """An object as it should be: its length, and the CRC-32 of the content in `zip-crc32`."""

    size: int
    crc32: int | None  # None: the archive does not declare it (AES of version AE-2)

    def is_same(self, found: StoredObject | None) -> bool:
        """Return whether size and CRC-32 prove that an object is the member."""
        return (
            found is not None
            and self.crc32 is not None
            and (found.size, found.crc32) == (self.size, self.crc32)
        )


def stored_as(member: Member, options: Options) -> Stored:
    """Return what the object of `member` is in a run with `options`."""
    return Stored(stored_size(member, options), member.crc32 if member.declares_crc else None)


def stored_size(member: Member, options: Options) -> int:
    """Return the length of the object of `member`."""
    if options.as_gzip is None:
        return member.size
    return gzip_length(member)


def check_form(request: Request) -> None:
    """Check that the destination can hold the form asked for.

    Raises:
        UsageError: it cannot.
    """
    options = request.options
    if options.trust_crc and options.as_gzip is None:
        raise UsageError("trust_crc is for as_gzip: what is inflated is always checked")
    if options.nested_depth and options.as_gzip is not None:
        raise UsageError("--nested: an archive that is kept as gzip cannot be read; drop --as-gzip")
    if options.as_gzip is GzipForm.ENCODING and request.destination.scheme == "file":
        raise UsageError(
            "--as-gzip encoding: a folder keeps no Content-Encoding; use --as-gzip suffix"
        )
    if options.objects is not None:
        _check_properties(options.objects, request)


def _check_properties(chosen: ObjectProperties, request: Request) -> None:
    """Check that the destination can keep what is set on its objects.

    Raises:
        UsageError: it cannot.
    """
    if request.destination.scheme == "file":
        raise UsageError(
            f"{request.destination}: a folder keeps no storage class, tags, metadata, cache "
            "control or content types; leave these options out, or write to s3://"
        )
    chosen.check()
    if request.options.nested_depth and chosen.storage_class in ARCHIVED_CLASSES:
        raise UsageError(
            f"--nested: archives inside are read from the destination, and {chosen.storage_class} "
            "must be restored before it can be read; use another storage class, GLACIER_IR perhaps"
        )


def open_content(
    member: Member, policy: Policy, opened: OpenedMember, options: Options
) -> MemberDecoder | GzipMember:
    """Return what turns the member's data into its object.

    Its `crc32` and its `warnings` are known, and its bytes are known to be right, once all of them
    were yielded.

    Raises:
        MemberError: it is encrypted without a password, or its method is not read.
    """
    if options.as_gzip is None:
        return MemberDecoder(member, policy, opened)
    return GzipMember(member, policy, opened, trust_crc=options.trust_crc)


def decode_small(
    member: Member,
    data: memoryview,
    policy: Policy,
    opened: OpenedMember,
    options: Options,
    warnings: list[Finding],
) -> tuple[Buffer, int]:
    """Return a small member's object and the CRC-32 of its content; add to `warnings`.

    Raises:
        MemberError: the content is not what the directory declares.
    """
    if options.as_gzip is None:
        body = decode_whole(member, data, policy, opened, warnings)
        return body, member.crc32 if member.declares_crc else crc32(body)
    content = open_content(member, policy, opened, options)
    body = b"".join(content.decode([data]))
    warnings += content.warnings
    return body, content.crc32


def read_stored(destination: Destination, key: str, *, is_gzip: bool) -> StoredObject | None:
    """Read an object; return it with the CRC-32 of its content, None if it does not exist.

    The CRC-32 is None if the object should be a gzip file and is none.
    """
    size = crc = 0
    content = _GzipCrc() if is_gzip else None
    try:
        for piece in destination.read(key):
            size += len(piece)
            if content is None:
                crc = crc32(piece, crc)
            else:
                content.feed(piece)
    except NotFoundError:
        return None
    return StoredObject(key, size, crc if content is None else content.crc32)


class _GzipCrc:
    """The CRC-32 of what a gzip file holds, None if it is none; memory is bounded."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._crc = 0
        self._broken = False

    def feed(self, piece: Buffer) -> None:
        """Take the next bytes of the object."""
        data: Buffer = piece
        while data and not self._broken:
            try:
                output = self._stream.decompress(data, PIECE_LENGTH)
            except zlib.error:
                self._broken = True
                return
            self._crc = crc32(output, self._crc)
            self._broken = bool(self._stream.unused_data)
            data = self._stream.unconsumed_tail

    @property
    def crc32(self) -> int | None:
        """Of all that was fed."""
        return None if self._broken or not self._stream.eof else self._crc


def with_crc(row: PlannedMember, crc: int) -> PlannedMember:
    """Return `row` with the CRC-32 of its content, now that it is known."""
    member = row.member
    return row if member.declares_crc else replace(row, member=member.with_crc(crc))
