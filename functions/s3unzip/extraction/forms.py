"""The two forms of a member's object: the content as it is, or a gzip file of it."""

from s3unzip.model import Options
from s3unzip.zip import Member, OpenedMember, Policy
from s3unzip.zip.as_gzip import GzipMember, gzip_length
from s3unzip.zip.decode import Decoded, MemberDecoder, decode_member


def stored_size(member: Member, options: Options) -> int:
    """Return the length of the object of `member`."""
    if options.as_gzip is None:
        return member.size
    return gzip_length(member)


def has_stored_size(size: int, member: Member, options: Options) -> bool:
    """Return whether the object of `member` can have `size` bytes."""
    if options.as_gzip is None:
        return member.has_size(size)
    return size == gzip_length(member)


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


def decode_small(
    member: Member, data: memoryview, policy: Policy, opened: OpenedMember, options: Options
) -> Decoded:
    """Return the object of a small member, whose compressed bytes are `data`.

    With `as_gzip` the object is a gzip file. The CRC-32 is that of the content.
    """
    if options.as_gzip is None:
        return decode_member(member, data, policy, opened)
    decoder = open_content(member, policy, opened, options)
    file = b"".join(decoder.decode([data]))
    return Decoded(file, decoder.crc32, decoder.warnings)
