"""Compare a member's local header (APPNOTE 4.3.7) and data descriptor (4.3.9) with the directory.

The local header and the descriptor are read together with the data, so these checks need no extra
request.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from s3unzip.zip import records
from s3unzip.zip.checks import Policy
from s3unzip.zip.names import cut_name, read_name, show_name
from s3unzip.zip.values import WRAP, Buffer, Member

HEAD_LENGTH = 1024  # long enough for nearly every local header, in bytes
# A name and an extra field have at most 65,535 bytes each (4.3.7).
MAX_HEADER = records.LOCAL_LENGTH + 2 * 65_535
# The maximum number of bytes to read after a member's data; reading also stops at the next listed
# header. The longest descriptor has 24 bytes (4.3.9), and the bytes after the descriptor are
# searched for a local header that is not listed. Most members follow each other directly, so the
# bytes to read are rarely more than a descriptor.
AFTER_LENGTH = 64 * 1024

_LOCAL = struct.Struct("<4sxxHHHxxIIIHH")
_DESCRIPTOR = struct.Struct("<III")  # CRC-32, compressed size, size
_WIDE_DESCRIPTOR = struct.Struct("<IQQ")
# Java's ZIP file system writes only this many bytes of each descriptor, even of a longer form.
_CUT_LENGTH = 16


class LocalHeader(Struct, frozen=True, gc=False):
    """The fixed fields of a local header, without the version and the date."""

    signature: bytes
    flags: int
    method: int
    time: int
    crc32: int
    compressed: int
    size: int
    name_length: int
    extra_length: int

    @property
    def length(self) -> int:
        """The length of the header in bytes, including its name and its extra field."""
        return records.LOCAL_LENGTH + self.name_length + self.extra_length


def read_local_header(data: Buffer, at: int = 0) -> LocalHeader:
    """Return the local header at `at`."""
    return LocalHeader(*_LOCAL.unpack_from(data, at))


def is_local_header(raw: bytes, name: bytes) -> bool:
    """Return whether `raw` begins with a local header whose name begins with `name`."""
    return raw.startswith(records.LOCAL_SIGNATURE) and raw[records.LOCAL_LENGTH :].startswith(name)


def find_data_stop(member: Member, raw: bytes) -> int:
    """Return the end of a member's data, according to the local header at the beginning of `raw`.

    If there is no local header, the function returns the member's offset, and `open_member` reports
    the fault.
    """
    if not raw.startswith(records.LOCAL_SIGNATURE):
        return member.offset
    return member.offset + read_local_header(raw).length + member.compressed_size


class OpenedMember(NamedTuple):
    """A local header that agrees with the directory.

    `declares_content` is True if the local header has the same CRC-32 and sizes as the directory.
    Otherwise, only the descriptor contains these values.
    """

    data_start: int  # offset of the data, relative to the start of the header
    has_descriptor: bool
    warnings: tuple[str, ...] = ()
    time_high: int = 0  # byte 11 of the header, which can check the password of an encrypted member
    declares_content: bool = False


# Describes the values of a header or a descriptor: CRC-32, compressed size and size.
_describe_content = "CRC {:08x}, {} compressed bytes, {} bytes".format


def _declared_content(member: Member) -> tuple[int, int, int]:
    """Return the CRC-32, the compressed size and the size that the headers of a member declare.

    The sizes are modulo 2^32 if the member `is_wrapped`.
    """
    if member.is_wrapped:
        return member.crc32, member.compressed_size % WRAP, member.size % WRAP
    return member.crc32, member.compressed_size, member.size


def open_member(member: Member, raw: Buffer, policy: Policy) -> OpenedMember | int:
    """Check a member's local header; `raw` begins at `member.offset`.

    Any bytes in `raw` after the header are ignored. If the header is longer than `raw`, the
    function returns the length that `raw` must have in the next call.

    Raises:
        MemberError: the local header disagrees with the directory.
    """
    room = member.stop - member.offset
    if len(raw) < records.LOCAL_LENGTH:
        if len(raw) >= room:  # the next header begins before this header can end
            member.fail("lfh-truncated", f"there are only {room} bytes for the local header")
        return min(room, HEAD_LENGTH)
    header = read_local_header(raw)
    if header.signature != records.LOCAL_SIGNATURE:
        member.fail("lfh-bad-signature", f"{header.signature.hex()} instead of 504b0304")
    if header.length + member.compressed_size > room:
        stop = member.offset + header.length + member.compressed_size
        member.fail("overlap", f"the data ends at {stop}, but must end at {member.stop} or earlier")
    if len(raw) < header.length:
        return header.length
    name_stop = records.LOCAL_LENGTH + header.name_length
    name = bytes(raw[records.LOCAL_LENGTH : name_stop])
    if _is_plain_copy(header, name, member):
        return OpenedMember(header.length, has_descriptor=False, declares_content=True)
    extras = records.walk_extras(bytes(raw[name_stop : header.length]))
    warnings = list(_compare_names(member, name, policy))
    _check_coding(member, header, extras)
    differing_flags = header.flags ^ member.flags
    if differing_flags & records.FLAG_DESCRIPTOR:
        warnings.append("lfh-flag3-mismatch")
    if differing_flags & records.FLAG_UTF8 and not member.name_bytes.isascii():
        warnings.append("lfh-flag11-mismatch")
    warnings += _check_extras(member, extras, policy)
    return OpenedMember(
        header.length,
        has_descriptor=bool(header.flags & records.FLAG_DESCRIPTOR),
        warnings=tuple(warnings),
        time_high=header.time >> 8,  # ZipCrypto may need this byte to check the password
        declares_content=_compare_content(member, header, extras),
    )


def _is_plain_copy(header: LocalHeader, name: bytes, member: Member) -> bool:
    """Return whether a header only repeats the values of the directory.

    Such a header has no extra fields, no encryption and no data descriptor.
    """
    return (
        not header.extra_length
        and not header.flags & (records.ENCRYPTION_FLAGS | records.FLAG_DESCRIPTOR)
        and name == member.name_bytes
        and header.method == member.method
        and header.flags == member.flags
        and header.crc32 == member.crc32
        and header.compressed == member.compressed_size
        and header.size == member.size
    )


def _compare_content(member: Member, header: LocalHeader, extras: records.Extras) -> bool:
    """Compare the CRC-32 and the two sizes with the directory; return whether all are equal.

    A different value is refused, with two exceptions. If a descriptor follows the data, the header
    can contain zeros or sentinels instead of the values. If the member is also encrypted, Info-ZIP
    replaces the CRC-32 by the time, shifted by 16 bits, and the compressed size of a stored member
    by the length without the encryption. This length is accepted for every method.
    """
    sizes = records.resolve_zip64(extras, records.Sizes(header.size, header.compressed))
    # This tuple and the tuples below contain the CRC-32, the compressed size and the size.
    local = (header.crc32, sizes.compressed, sizes.size)
    declared = _declared_content(member)
    placeholders: tuple[int, ...] = ()
    info_zip_values = declared
    if header.flags & records.FLAG_DESCRIPTOR:
        placeholders = (0, records.SENTINEL_32)
        if member.cipher is not None:
            info_zip_values = (header.time << 16, member.decrypted_length, member.size)
    for value, declared_value, info_zip_value in zip(local, declared, info_zip_values, strict=True):
        if value not in (declared_value, info_zip_value, *placeholders):
            member.fail_size(
                "lfh-size-crc-mismatch",
                f"{_describe_content(*local)}; "
                f"the directory declares {_describe_content(*declared)}",
            )
    # If both headers declare 0 compressed bytes, up to 32 bytes can follow the local header: an
    # empty xz stream has 32 bytes. More bytes are content that the headers do not declare.
    if (
        header.method
        and not (member.compressed_size or header.flags & records.FLAG_DESCRIPTOR)
        and member.stop - member.offset - header.length > 32
    ):
        member.fail("size-mismatch", "0 bytes are declared, but data follows the local header")
    return local == declared


def _compare_names(member: Member, name: bytes, policy: Policy) -> Iterator[str]:
    """Refuse a local header with a different path; yield a warning if only the bytes differ."""
    if name == member.name_bytes:
        return
    is_utf8 = bool(member.flags & records.FLAG_UTF8)
    local = read_name(name, is_utf8=is_utf8, policy=policy)
    declared = read_name(member.name_bytes, is_utf8=is_utf8, policy=policy)
    has_same_path = local.path == declared.path and local.is_directory == declared.is_directory
    if local.failure or declared.failure or not has_same_path:
        member.fail("lfh-name-mismatch", f"the local header has the name {show_name(name)!r}")
    yield "lfh-name-variant"


def _check_coding(member: Member, header: LocalHeader, extras: records.Extras) -> None:
    """Refuse a local header whose compression or encryption differs from that in the directory."""
    is_aes = member.cipher is not None and member.cipher.version > 0  # 0 means ZipCrypto
    has_aes_method = header.method == records.METHOD_AES
    differing_flags = (header.flags ^ member.flags) & records.ENCRYPTION_FLAGS
    # Without `FLAG_ENCRYPTED`, the other encryption flags have no meaning.
    is_encrypted = (header.flags | member.flags) & records.FLAG_ENCRYPTED
    if has_aes_method != is_aes or (is_encrypted and differing_flags):
        member.fail("lfh-encryption-mismatch", "the flags or the methods differ")
    # With AES, both headers declare method 99, and the AES field contains the compression method.
    if is_aes and records.read_aes(extras) != (member.method, member.cipher):
        member.fail("lfh-method-mismatch", "the AES fields of the two headers differ")
    # Without data, the method does not matter.
    if not is_aes and header.method != member.method and member.compressed_size:
        member.fail(
            "lfh-method-mismatch",
            f"method {header.method}, but the directory declares {member.method}",
        )


def _check_extras(member: Member, extras: records.Extras, policy: Policy) -> Iterator[str]:
    """Check the extra fields of a local header; yield the codes of warnings.

    Refuses several ZIP64 fields, and a single Unicode path field with a different path. If there
    are several Unicode path fields, a different path causes only a warning: readers disagree on
    which field counts, and most readers ignore all of them.
    """
    if extras.overrun:
        yield "lfh-extra-malformed"
    zip64_fields = len(extras.of(records.ZIP64))
    if zip64_fields > 1:
        member.fail("lfh-zip64-duplicate", f"{zip64_fields} local ZIP64 extra fields")
    payloads = extras.of(records.UNICODE_PATH)
    # For an invalid field, `_choose_local_name` returns the declared name, which passes the check.
    # Equal names are checked once, because a header can have thousands of fields.
    for raw, is_utf8 in dict.fromkeys(_choose_local_name(member, payload) for payload in payloads):
        path = read_name(raw, is_utf8=is_utf8, policy=policy).path
        if path == member.path:
            continue
        if len(payloads) > 1:
            yield "lfh-unicode-path-duplicate"
            return
        member.fail_unless_tolerated(
            "lfh-unicode-path-mismatch",
            f"the Unicode path field of the local header contains the name {cut_name(path)!r}",
            policy,
        )
        yield "lfh-unicode-path-mismatch"


def _choose_local_name(member: Member, payload: bytes) -> tuple[bytes, bool]:
    """Return the name in a Unicode path field of a local header, and whether it is UTF-8.

    If the field is invalid, for example because it has the checksum of a different name, the
    function returns the declared name.
    """
    raw, _ = records.read_unicode_path(payload, member.name_bytes)
    if raw is None:
        return member.name_bytes, bool(member.flags & records.FLAG_UTF8)
    return raw, True


def close_member(member: Member, opened: OpenedMember, tail: Buffer) -> list[str]:
    """Check the descriptor and the gap after a member's data; return the warning codes.

    `tail` begins where the data ends, and contains all bytes up to `member.stop`, or at least the
    first `AFTER_LENGTH` bytes. Later bytes are ignored.

    Raises:
        MemberError: the data descriptor disagrees with the directory.
    """
    tail = tail[:AFTER_LENGTH]
    length = 0
    warnings: list[str] = []
    if opened.has_descriptor:
        length, warnings = _check_descriptor(member, opened, tail)
    # `tail` ends before the next listed header, so a header after the descriptor is not listed.
    if records.LOCAL_SIGNATURE in bytes(tail[length:]):
        warnings.append("hidden-local-header")
    return warnings


def _check_descriptor(member: Member, opened: OpenedMember, tail: Buffer) -> tuple[int, list[str]]:
    """Return the length of the descriptor (0 if there is none), and the codes of warnings.

    `tail` has the same meaning as in `close_member`. A descriptor (4.3.9) has one of four forms: it
    can have a signature, and its sizes have 32 or 64 bits. The archive does not declare the form,
    so the descriptor is accepted if any form matches the directory.
    """
    content = _declared_content(member)
    forms = [_WIDE_DESCRIPTOR.pack(*content)]
    if max(content) <= records.SENTINEL_32:  # the usual case: all values fit in 32 bits
        forms.insert(0, _DESCRIPTOR.pack(*content))
    start = bytes(tail[: _WIDE_DESCRIPTOR.size + len(records.DESCRIPTOR_SIGNATURE)])
    for signature, warnings in (
        (records.DESCRIPTOR_SIGNATURE, []),
        (b"", ["dd-missing-signature"]),
    ):
        for form in forms:
            descriptor = signature + form
            if start.startswith(descriptor):
                return len(descriptor), warnings
            # `tail` ends at the next header, after 16 bytes: Java has cut a longer descriptor.
            if len(start) == _CUT_LENGTH and descriptor.startswith(start):
                return _CUT_LENGTH, ["dd-cut"]
    _check_absence(member, opened, start)
    return 0, ["dd-absent"]


def _check_absence(member: Member, opened: OpenedMember, start: bytes) -> None:
    """Accept a member without a descriptor; refuse a member with a wrong descriptor.

    `start` contains the first bytes after the data. LibreOffice and some other writers announce a
    descriptor but do not write it. A descriptor can be absent if the local header declares the
    content, because the descriptor would only repeat these values. The next header must then begin
    where the data ends.
    """
    data_stop = member.offset + opened.data_start + member.compressed_size
    ends_at_header = data_stop == member.stop or start.startswith(
        (records.LOCAL_SIGNATURE, records.CENTRAL_SIGNATURE)
    )
    if not (opened.declares_content and ends_at_header):
        member.fail_size(
            "dd-mismatch",
            f"{start[:16].hex() or 'nothing'} where the descriptor should be",
            data_stop,
        )
