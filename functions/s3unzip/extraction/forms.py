"""The two forms of a member's object: the content as it is, or a gzip file of it."""

from typing import NamedTuple

from isal.isal_zlib import crc32

from s3unzip.model import Options
from s3unzip.stores.ports import Buffer
from s3unzip.zip import Member, OpenedMember, Policy
from s3unzip.zip.decode import GzipMember, MemberDecoder, decode_whole, gzip_length


def stored_size(member: Member, options: Options) -> int:
    """Return the length of the object of `member`."""
    return member.size if options.as_gzip is None else gzip_length(member)


def has_stored_size(size: int, member: Member, options: Options) -> bool:
    """Return whether the object of `member` can have `size` bytes."""
    return member.has_size(size) if options.as_gzip is None else size == gzip_length(member)


def open_content(
    member: Member,
    policy: Policy,
    opened: OpenedMember,
    options: Options,
    *,
    max_size: int | None = None,
) -> MemberDecoder:
    """Return the decoder that turns the member's data into its object, of at most `max_size` bytes.

    The bytes are verified, and `crc32` and `warnings` are set, once all output has been yielded.
    """
    if options.as_gzip is None:
        return MemberDecoder(member, policy, opened, max_size)
    return GzipMember(member, policy, opened, max_size, trust_crc=options.trust_crc)


class SmallObject(NamedTuple):
    """The verified object of a small member."""

    body: Buffer
    crc32: int  # of the content
    warnings: list[str]  # codes of tolerated findings


def decode_small(
    member: Member, data: memoryview, policy: Policy, opened: OpenedMember, options: Options
) -> SmallObject:
    """Return the object of a small member, whose compressed bytes are `data`."""
    if options.as_gzip is not None:
        content = open_content(member, policy, opened, options)
        body = b"".join(content.decode([data]))
        return SmallObject(body, content.crc32, content.warnings)
    warnings: list[str] = []
    plain = decode_whole(member, data, policy, opened, warnings=warnings)
    crc = member.crc32 if member.declares_crc else crc32(plain)
    return SmallObject(plain, crc, warnings)
