"""Compare a member's local header (APPNOTE 4.3.7) and data descriptor (4.3.9) with the index.

Their bytes are in the same range as the data, so these checks cost no extra request.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from s3unzip.finding import MemberError
from s3unzip.zip import records
from s3unzip.zip.checks import Policy
from s3unzip.zip.names import check_name, cut_name, decode_name, show_name
from s3unzip.zip.values import WRAP, Buffer, Member

# Enough for nearly every local header in one read.
HEAD_LENGTH = 1024
# A local header is 30 bytes, a name and an extra field of at most 65,535 each (4.3.7).
MAX_HEADER = records.LOCAL_LENGTH + 2 * 65_535
# Bytes to read after a member's data, at most up to the next listed item. The longest descriptor
# has 24 bytes (4.3.9); the rest is searched for a local header that is not listed. Members mostly
# follow each other, so there are rarely more bytes.
AFTER_LENGTH = 64 * 1024


class OpenedMember(NamedTuple):
    """A local header that agrees with the index; data begins `data_start` bytes after its start.

    `is_complete` says that it has the directory's CRC-32 and sizes; it may leave them to a
    descriptor.
    """

    data_start: int
    has_descriptor: bool
    warnings: tuple[str, ...] = ()
    time_high: int = 0  # of an encrypted member: high byte of its time, a check of its password
    is_complete: bool = False


def open_member(member: Member, head: Buffer, policy: Policy) -> OpenedMember | int:
    """Check a member's local header; `head` begins at `member.offset`.

    It may have more bytes than the header, up to `member.stop`; later bytes are ignored. Returns
    the number of bytes to call with again if the header is longer.

    Raises:
        MemberError: the local header disagrees with the directory.
    """
    room = member.stop - member.offset
    if len(head) < records.LOCAL_LENGTH:
        if len(head) >= room:
            member.fail("lfh-truncated", f"{room} bytes for a header")
        return min(room, HEAD_LENGTH)
    magic, flags, method, crc32, compressed, size, name_length, extra_length = (
        records.LOCAL.unpack_from(head)
    )
    if magic != records.LOCAL_SIGNATURE:
        member.fail("lfh-bad-signature", f"{bytes(head[:4]).hex()} instead of 504b0304")
    data_start: int = records.LOCAL_LENGTH + name_length + extra_length
    if data_start + member.compressed_size > room:
        stop = member.offset + data_start + member.compressed_size
        member.fail("overlap", f"with its local header it ends at {stop}, past {member.stop}")
    if len(head) < data_start:
        return data_start
    name = head[records.LOCAL_LENGTH : records.LOCAL_LENGTH + name_length]
    declared = (member.crc32, member.compressed_size, member.size)
    said = (name, method, flags, crc32, compressed, size)
    if not (extra_length or flags & (records.ENCRYPTION_FLAGS | records.FLAG_DESCRIPTOR)) and (
        said == (member.name_bytes, member.method, member.flags, *declared)
    ):
        return OpenedMember(data_start, has_descriptor=False, is_complete=True)
    extra = bytes(head[records.LOCAL_LENGTH + name_length : data_start])
    extras = records.walk_extras(extra)
    warnings = list(_compare_names(member, bytes(name), policy))
    _check_coding(member, flags, method, extras)
    warnings += _compare_flags(member, flags)
    warnings += _check_extras(member, extras, policy)
    size, compressed, *_ = records.resolve_zip64(extras, size, compressed)
    has_descriptor = bool(flags & records.FLAG_DESCRIPTOR)
    is_complete = _compare_sizes(member, (crc32, compressed, size), has_descriptor=has_descriptor)
    return OpenedMember(
        data_start,
        has_descriptor=has_descriptor,
        warnings=tuple(warnings),
        time_high=head[11] if records.is_encrypted(flags) else 0,
        is_complete=is_complete,
    )


def _compare_sizes(member: Member, local: tuple[int, int, int], *, has_descriptor: bool) -> bool:
    """Compare CRC-32, compressed size and size; return whether all of them are the directory's.

    With a descriptor, zeros and sentinels stand for what it says.
    """
    declared = (member.crc32, *_declared_sizes(member))
    allowed = (0, records.SENTINEL_32) if has_descriptor else ()
    if any(
        have != want and have not in allowed for have, want in zip(local, declared, strict=True)
    ):
        here, there = (
            f"CRC {crc32:08x}, {compressed} bytes for {size}"
            for crc32, compressed, size in (local, declared)
        )
        code = "size-unproven" if member.is_long else "lfh-size-crc-mismatch"
        member.fail(code, f"{here}; in the directory {there}")
    return local == declared


def find_data_stop(member: Member, header: bytes) -> int:
    """Return where the data of a member ends by its local header, of which `header` is the start.

    Where there is no local header, its own check says so: the answer is the member's offset.
    """
    if not header.startswith(records.LOCAL_SIGNATURE):
        return member.offset
    *_, name_length, extra_length = records.LOCAL.unpack_from(header)
    start: int = member.offset + records.LOCAL_LENGTH + name_length + extra_length
    return start + member.compressed_size


def _compare_names(member: Member, name: bytes, policy: Policy) -> Iterator[str]:
    """Compare the bytes of the two names; names that differ may still be of one path."""
    if name == member.name_bytes:
        return
    checked = _check_raw(member, name, policy)
    if checked is None or checked != _check_raw(member, member.name_bytes, policy):
        member.fail("lfh-name-mismatch", f"it says {show_name(name)!r}")
    yield "lfh-name-variant"


def _check_raw(member: Member, raw: bytes, policy: Policy) -> tuple[str, bool] | None:
    """Return the path of a member's raw name, and whether it is a directory's; None: refused."""
    text, odd = decode_name(raw, is_utf8=bool(member.flags & records.FLAG_UTF8), policy=policy)
    name = check_name(text, policy)
    is_refused = name.failure is not None or (odd is not None and not policy.tolerates(odd))
    return None if is_refused else (name.path, name.is_directory)


def _declared_sizes(member: Member) -> tuple[int, int]:
    """Return the compressed size and the size as the member's headers have them."""
    if member.is_wrapped:
        return member.compressed_size % WRAP, member.size % WRAP
    return member.compressed_size, member.size


def _check_coding(member: Member, flags: int, method: int, extras: records.Extras) -> None:
    cipher = member.cipher
    wanted = member.method
    if cipher is not None and cipher.version:
        wanted = records.METHOD_AES
    differing = (flags ^ member.flags) & records.ENCRYPTION_FLAGS
    is_encrypted = records.is_encrypted(flags | member.flags)
    if (is_encrypted and differing) or (method == records.METHOD_AES) != (
        wanted == records.METHOD_AES
    ):
        member.fail("lfh-encryption-mismatch", "only one of its two headers says encrypted")
    if wanted == records.METHOD_AES and records.read_aes(extras) != (member.method, cipher):
        member.fail("lfh-method-mismatch", "its AES field is another than in the directory")
    if method != wanted:
        member.fail("lfh-method-mismatch", f"method {method}, in the directory {member.method}")


def _compare_flags(member: Member, flags: int) -> Iterator[str]:
    if (flags ^ member.flags) & records.FLAG_DESCRIPTOR:
        yield "lfh-flag3-mismatch"
    if (flags ^ member.flags) & records.FLAG_UTF8 and not member.name_bytes.isascii():
        yield "lfh-flag11-mismatch"


def _check_extras(member: Member, extras: records.Extras, policy: Policy) -> Iterator[str]:
    if extras.overrun:
        yield "lfh-extra-malformed"
    zip64_fields = len(extras.of(records.ZIP64))
    if zip64_fields > 1:
        member.fail("lfh-zip64-duplicate", f"{zip64_fields} local ZIP64 extra fields")
    fields = extras.of(records.UNICODE_PATH)
    for payload in fields:
        name = _read_local_path(member, payload, policy)
        if name == member.path:
            continue
        if len(fields) > 1:  # readers do not agree on which counts, and most take none
            yield "lfh-unicode-path-duplicate"
            return
        message = f"by its local Unicode path field it is {cut_name(name)!r}"
        member.judge("lfh-unicode-path-mismatch", message, policy)
        yield "lfh-unicode-path-mismatch"


def _read_local_path(member: Member, payload: bytes, policy: Policy) -> str:
    """Return the path that the member has by one Unicode path field of its local header."""
    extras = records.Extras({records.UNICODE_PATH: [payload]})
    chosen, _ = records.read_unicode_path(extras, member.name_bytes)
    is_utf8 = chosen is not None or bool(member.flags & records.FLAG_UTF8)
    raw = member.name_bytes if chosen is None else chosen
    text, _ = decode_name(raw, is_utf8=is_utf8, policy=policy)
    return check_name(text, policy).path


def close_member(member: Member, opened: OpenedMember, after: Buffer) -> list[str]:
    """Check what follows a member's data: its descriptor, then the gap; return warnings.

    `after` begins where the data ends. It has all bytes up to `member.stop`, or at least the first
    `AFTER_LENGTH` of them; later bytes are ignored.

    LibreOffice and others announce a descriptor and leave it out. It would only repeat what two
    complete headers say, so it is not missed if the next header begins where the data ends.

    Raises:
        MemberError: the data descriptor disagrees with the directory.
    """
    after = after[:AFTER_LENGTH]
    warnings: list[str] = []
    length = 0
    if opened.has_descriptor:
        length, warning = _check_descriptor(member, opened, after)
        if warning:
            warnings.append(warning)
    if len(after) > length and records.LOCAL_SIGNATURE in bytes(after[length:]):
        warnings.append("hidden-local-header")
    return warnings


def _check_descriptor(
    member: Member, opened: OpenedMember, after: Buffer
) -> tuple[int, str | None]:
    """Return the length of the descriptor, 0 if it is absent, and the warning about it.

    A descriptor (4.3.9) has a signature or not, and sizes of 32 or 64 bits. Nothing declares which
    of the four forms it has, so one of them must match the directory.
    """
    crc32 = member.crc32
    compressed, size = _declared_sizes(member)
    wide = struct.pack("<IQQ", crc32, compressed, size)
    forms = [wide]
    if compressed <= records.SENTINEL_32 and size <= records.SENTINEL_32:
        forms.insert(0, struct.pack("<III", crc32, compressed, size))
    head = bytes(after[: len(wide) + 4])
    for signature in (records.DESCRIPTOR_SIGNATURE, b""):
        for form in forms:
            if head.startswith(signature + form):
                return len(signature + form), None if signature else "dd-missing-signature"
    data_stop = member.offset + opened.data_start + member.compressed_size
    is_next = data_stop == member.stop or head.startswith(records.LOCAL_SIGNATURE)
    if opened.is_complete and is_next:
        return 0, "dd-absent"
    message = f"{head[:16].hex() or 'nothing'} where the descriptor should be"
    code = "size-unproven" if member.is_long else "dd-mismatch"
    raise MemberError(member.finding(code, message, data_stop))
