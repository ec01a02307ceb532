"""Read the headers of the central directory (APPNOTE 4.3.12) into an index, and check it.

The form of a header consists of its signature, versions, flags, method, disk and attributes. Most
headers of an archive have the same form, so each form is interpreted once and cached by its bytes.
`keys` checks the keys; `local` and `decode` compare the directory with the data in the archive.
"""

import stat
import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from s3unzip.zip import records, wrapped
from s3unzip.zip.checks import Policy
from s3unzip.zip.directory import DirectoryLocation
from s3unzip.zip.keys import KeyChecker, Selection
from s3unzip.zip.members import (
    FAILED,
    FOLDER,
    KEYLESS,
    SELECTED,
    SKIPPED_FOLDER,
    UNSELECTED,
    HeaderTable,
    Index,
    Members,
)
from s3unzip.zip.names import Name, is_plain_name, read_name, show_name
from s3unzip.zip.records import (
    CENTRAL_LENGTH,
    CENTRAL_SIGNATURE,
    LOCAL_LENGTH,
    NO_EXTRAS,
    SENTINEL_16,
    SENTINEL_32,
    UNICODE_PATH,
    ZIP64,
    Extras,
    Sizes,
    read_aes,
    read_dos_time,
    read_unicode_path,
    read_utc_time,
    resolve_zip64,
    walk_extras,
)
from s3unzip.zip.values import FLAG_WRAPPED, WRAP, Cipher, Member, Reads, reject

# The fixed fields of a header (4.3.12). The bytes of the two `s` fields, one after the other, are
# the form of the header, which has the layout of `_FORM`.
_FIXED = struct.Struct("<12sIIIIHHH8sI")
_FORM = struct.Struct("<4sHHHHHHI")

# The maximum length of a stream without content, by method. Some writers store such a stream for a
# directory. With a method that is not listed, an empty stream has up to 32 bytes (xz).
_EMPTY_STREAM = {records.METHOD_STORED: 0, records.METHOD_DEFLATE: 5, records.METHOD_DEFLATE64: 5}
_EMPTY_OTHER = 32
# A deflated member with so few compressed bytes cannot exceed its declared size by 4 GiB.
_MAX_UNWRAPPED = WRAP // records.MAX_DEFLATE_RATIO

# For each of these Unix file types, the code and the message of the finding.
_TYPE_FINDINGS = {
    stat.S_IFLNK: ("symlink", "a symbolic link"),
    stat.S_IFCHR: ("device", "a device or socket"),
    stat.S_IFBLK: ("device", "a device or socket"),
    stat.S_IFSOCK: ("device", "a device or socket"),
    stat.S_IFIFO: ("fifo-mode", "FIFO mode bits, treated as an ordinary file"),
}


class _HeaderForm(NamedTuple):
    """The values that are derived from the form of a header."""

    method: int
    flags: int
    disk: int
    mode: int | None  # Unix mode bits
    is_encrypted: bool
    declares_folder: bool  # whether the attributes declare a directory
    findings: tuple[tuple[str, str], ...]  # codes and messages; used only for a file


@lru_cache(maxsize=1 << 12)
def _read_form(raw: bytes) -> _HeaderForm:
    """Interpret the form of a header, whose fields are packed in `raw` without gaps."""
    _, made_by, needed, flags, method, disk, _, attributes = _FORM.unpack(raw)
    host = made_by >> 8  # 4.4.2: the upper byte identifies the system that wrote the attributes
    mode = attributes >> 16  # Unix systems store the mode in the upper half
    is_unix = host in records.UNIX_HOSTS
    # Some writers declare a different host but write a Unix mode. Nearly always, this mode has
    # S_IRUSR, the read permission for the owner. Windows never sets S_IRUSR in its attributes.
    file_type = 0
    if is_unix or mode & stat.S_IRUSR:
        file_type = stat.S_IFMT(mode)
    has_reparse_point = attributes & records.ATTRIBUTE_REPARSE_POINT and not is_unix
    if has_reparse_point and file_type != stat.S_IFLNK:
        flags |= records.FLAG_REPARSE
    is_dos_folder = attributes & records.ATTRIBUTE_DIRECTORY and host in records.DOS_HOSTS
    return _HeaderForm(
        method=method,
        flags=flags,
        disk=disk,
        mode=(is_unix and mode) or None,  # a mode of 0 means that the writer declared no mode
        is_encrypted=bool(flags & records.FLAG_ENCRYPTED) or method == records.METHOD_AES,
        declares_folder=bool(file_type == stat.S_IFDIR or is_dos_folder),
        findings=tuple(_find_form_faults(file_type, needed, flags, method)),
    )


def _find_form_faults(
    file_type: int, needed: int, flags: int, method: int
) -> Iterator[tuple[str, str]]:
    # Yield the code and the message of each finding about a file whose header has this form.
    if flags & records.FLAG_REPARSE:
        yield "reparse-point", "a Windows reparse point, treated as a file"
    elif file_type in _TYPE_FINDINGS:
        yield _TYPE_FINDINGS[file_type]
    if needed & 0xFF > records.MAX_VERSION:  # the upper byte is not part of the version
        yield "version-needed", f"it requires version {needed}; the latest is {records.MAX_VERSION}"
    if flags & records.FLAG_PATCH:
        yield "patch-data", "compressed patch data"
    # The method of an encrypted member is checked together with the cipher.
    if not flags & records.FLAG_ENCRYPTED and method not in (*records.METHODS, records.METHOD_AES):
        yield "unsupported-method", records.describe_method(method)


class DirectoryReader:
    """Reads the bytes of a directory in pieces of any size, and checks the resulting index.

    The reader needs memory for one piece, and about 300 bytes for each header; see `Limits`.
    """

    def __init__(
        self, location: DirectoryLocation, policy: Policy, selection: Selection | None = None
    ) -> None:
        self._location = location
        self._policy = policy
        self._table = HeaderTable()
        self._keys = KeyChecker(self._table, policy, selection or Selection())
        self._warnings = Counter(location.warnings)
        self._unread = b""
        # The header that `_read_header` is reading: its name, the offset of its local header, and
        # the code and the message of its first fault.
        self._raw_name = b""
        self._offset = 0
        self._fault: tuple[str, str] | None = None
        self._wrapped_bytes = 0  # total compressed size of the members with `FLAG_WRAPPED`
        # Whether declared offsets are relative to the start of a disk, or are modulo 4 GiB.
        self._must_correct_offsets = location.is_wrapped or location.disks.is_split
        self._declared_size = 0  # total of the declared sizes

    def feed(self, chunk: bytes) -> None:
        """Read all headers that become complete with `chunk`."""
        data = self._unread + chunk
        first = len(self._table.kinds)  # number of the first header in `data`
        stop = self._read_headers(data)
        self._unread = data[stop:]
        self._add_sizes(first)
        self._keys.check(first)

    def _read_headers(self, data: bytes) -> int:
        """Read all complete headers at the beginning of `data`; return the position after them."""
        at = 0
        length = len(data)
        limit = self._policy.limits.members
        kinds = self._table.kinds
        while length - at >= CENTRAL_LENGTH:
            (
                form_start, dos_time, crc32, compressed, size,
                name_length, extra_length, comment_length, form_end, offset,
            ) = _FIXED.unpack_from(data, at)  # fmt: skip
            if len(kinds) >= limit:
                reject("too-many-entries", f"the limit is {limit}")
            if form_start[:4] != CENTRAL_SIGNATURE:
                if len(kinds) == self._location.entries:
                    reject("cd-trailing-bytes", f"{len(kinds)} headers, then other bytes")
                reject(
                    "cd-bad-signature",
                    f"header {len(kinds)} of {self._location.entries} has no signature",
                )
            name_at = at + CENTRAL_LENGTH
            extra_at = name_at + name_length
            extra_stop = extra_at + extra_length
            stop = extra_stop + comment_length
            if stop > length:  # the end of the header is in a later chunk
                break
            self._raw_name = data[name_at:extra_at]
            self._fault = None
            extras = NO_EXTRAS
            if extra_length:
                extras = walk_extras(data[extra_at:extra_stop])
            form = _read_form(form_start + form_end)  # nearly always cached
            sizes = Sizes(size, compressed, offset, form.disk)
            self._read_header(form, sizes, extras, dos_time=dos_time, crc32=crc32)
            at = stop
        return at

    def _add_sizes(self, first: int) -> None:
        """Add the declared sizes of header `first` and all later headers; enforce the limit."""
        self._declared_size += sum(self._table.sizes[first:])
        limit = self._policy.limits.total_size
        if self._declared_size > limit:
            reject(
                "bomb-total", f"{self._declared_size} bytes declared so far; the limit is {limit}"
            )

    def _read_header(
        self, form: _HeaderForm, sizes: Sizes, extras: Extras, *, dos_time: int, crc32: int
    ) -> None:
        """Interpret and check the header whose name is `_raw_name`; add it to the table."""
        if SENTINEL_32 in (sizes.size, sizes.compressed, sizes.offset) or form.disk == SENTINEL_16:
            sizes = resolve_zip64(extras, sizes)
        self._offset = sizes.offset + self._location.prefix
        if sizes.disk or self._must_correct_offsets:
            self._correct_offset(sizes)
        mtime = None
        if extras is not NO_EXTRAS or sizes.lacks_value:
            self._check_extras(form, extras, sizes)
            mtime = read_utc_time(extras)
        if mtime is None:
            mtime = read_dos_time(dos_time)
        name = self._read_name(form, extras)
        creates_folder = False  # remains False for a directory that becomes a file
        # If only the attributes declare a directory, the name must be valid or empty.
        if name.is_directory or (form.declares_folder and name.failure in (None, "name-empty")):
            is_empty = _is_empty(form, crc32, sizes)
            creates_folder = self._check_folder(name, sizes, is_empty=is_empty)
            if is_empty:  # ignore the declared sizes
                sizes = Sizes(0, 0, lacks_value=sizes.lacks_value)
        # `stop` is a lower bound: the full length of the local header is not known yet.
        stop = self._offset + LOCAL_LENGTH + sizes.compressed
        member = Member(
            index=len(self._table.kinds),
            path=name.path,
            raw_name=name.raw_name,
            offset=self._offset,
            stop=stop,
            compressed_size=sizes.compressed,
            size=sizes.size,
            crc32=crc32,
            method=form.method,
            flags=form.flags,
            mtime=mtime,
            mode=form.mode,
        )
        if not creates_folder:
            member = self._check_file(form, extras, member)
        if stop > self._location.start:
            self._report_out_of_bounds(stop, lacks_value=sizes.lacks_value)
        kind = SELECTED
        if creates_folder:
            kind = FOLDER if name.path else SKIPPED_FOLDER  # "" stands for the destination itself
        self._table.add(kind, member)
        if self._fault is not None:  # a failed folder or an invalid name has no key
            failed_kind = KEYLESS if creates_folder or name.failure else FAILED
            self._table.fail_header(member.index, *self._fault, kind=failed_kind)

    def _check_file(self, form: _HeaderForm, extras: Extras, member: Member) -> Member:
        """Check the name, the compression and the sizes of a file.

        Returns the member with its cipher and its compression method. If the header might declare
        only the lower 32 bits of the size, the returned size is a guess.
        """
        if not member.path:
            self._warn_or_fail("name-empty", f"the name is {show_name(self._raw_name)!r}")
        for code, message in form.findings:
            self._warn_or_fail(code, message)
        if form.is_encrypted:
            member = self._read_encryption(form, extras, member)
        if member.method and member.compressed_size == member.size == member.crc32 == 0:
            self._warnings["stream-absent"] += 1
            member = replace(member, method=records.METHOD_STORED)
        # In an archive with ZIP64 records, no size is truncated to 32 bits.
        has_long_data = member.compressed_size > _MAX_UNWRAPPED
        if has_long_data and not self._location.is_zip64 and _can_wrap(form, extras, member):
            self._wrapped_bytes += member.compressed_size
            size = wrapped.guess_size(member.size, member.compressed_size)
            member = replace(member, size=size, flags=member.flags | FLAG_WRAPPED)
        # A member without a cipher passes the checks of its sizes if the two sizes are equal and
        # within the limit.
        if (
            member.cipher is not None
            or member.size != member.compressed_size
            or member.size > self._policy.limits.member_size
        ):
            self._check_sizes(form, member)
        return member

    def _report_out_of_bounds(self, stop: int, *, lacks_value: bool) -> None:
        """Report that a member ends at `stop`, after the start of the directory."""
        message = f"it would end at {stop}, but the directory begins at {self._location.start}"
        if lacks_value:
            message += "; a ZIP64 value is missing"
        # If offsets are modulo 4 GiB, `stop` depends on a guess, so the member may be valid.
        code = wrapped.UNPROVEN if self._location.is_wrapped else "member-out-of-bounds"
        self._warn_or_refuse(code, message)

    def _warn_or_fail(self, code: str, message: str) -> None:
        """Count a warning about the header that is being read, or fail its member."""
        if self._policy.tolerates(code):
            self._warnings[code] += 1
        elif self._fault is None:  # only the first fault of a member is reported
            self._fault = (code, message)

    def _warn_or_refuse(self, code: str, message: str) -> None:
        """Count a warning about the header that is being read, or refuse the archive."""
        if not self._policy.tolerates(code):
            reject(code, message, self._offset, show_name(self._raw_name))
        self._warnings[code] += 1

    def _correct_offset(self, sizes: Sizes) -> None:
        """Set `_offset` if offsets are declared relative to a disk or modulo 4 GiB."""
        # If offsets are modulo 4 GiB, a member begins at the first matching offset after the end of
        # the preceding member.
        if self._location.is_wrapped and self._table.stops:
            self._offset = wrapped.place_after(sizes.offset, self._table.stops[-1])
            return
        # A wrapped archive has one disk and no prefix, so the offset of its first member does not
        # change here.
        disks = self._location.disks
        self._offset = disks.absolute(sizes.disk, sizes.offset) + self._location.prefix
        if missing := disks.describe_missing(sizes.disk, sizes.offset):
            self._warn_or_refuse("multi-disk", f"the member begins on {missing}")

    def _check_extras(self, form: _HeaderForm, extras: Extras, sizes: Sizes) -> None:
        """Check for malformed extra fields, and for a sentinel without a ZIP64 value."""
        if extras.overrun:
            self._warn_or_fail("cd-extra-malformed", "an extra field is longer than its block")
        if extras.stray:
            self._warnings["extra-trailing-bytes"] += 1
        zip64_fields = len(extras.of(ZIP64))
        if zip64_fields > 1:
            self._warn_or_fail("zip64-extra-duplicate", f"{zip64_fields} ZIP64 extra fields")
        message = "a field contains its ZIP64 sentinel, but there is no ZIP64 value for it"
        if sizes.lacks_value and zip64_fields:
            self._warn_or_fail("zip64-extra-malformed", message)
        elif sizes.lacks_value and not self._can_be_actual_size(form, sizes):
            self._warn_or_fail("zip64-extra-missing", message)

    def _can_be_actual_size(self, form: _HeaderForm, sizes: Sizes) -> bool:
        """Return whether a sentinel in a header without a ZIP64 field can be an actual size.

        A sentinel stands for another value only if there is a ZIP64 field (4.4.8, 4.4.9). A file of
        exactly 4 GiB - 1 byte has a size that equals the sentinel, and needs no ZIP64 field. The
        end of the data and the CRC-32 of such a file are still checked. If no member can have the
        sizes in the header, the writer has omitted the ZIP64 field.
        """
        if form.method == records.METHOD_STORED and not form.is_encrypted:  # encryption adds bytes
            return sizes.size == sizes.compressed
        return sizes.size <= sizes.compressed * self._policy.limits.ratio

    def _read_name(self, form: _HeaderForm, extras: Extras) -> Name:
        """Return the name in the header; fail the member if no file can have this name."""
        raw = self._raw_name
        if is_plain_name(raw) and UNICODE_PATH not in extras.fields:
            path = raw.decode("ascii")
            if raw.endswith(b"/"):
                return Name(path[:-1], is_directory=True, raw_name=raw)
            return Name(path)
        encoded, is_utf8 = self._choose_name(form, extras)
        name = read_name(encoded, is_utf8=is_utf8, policy=self._policy)
        self._warnings.update(name.warnings)
        # Only `_check_file` reports "name-empty", because a directory can have an empty name.
        # The policy does not tolerate the code in `failure`, so this call always fails the member.
        if name.failure not in (None, "name-empty"):
            self._warn_or_fail(
                name.failure, f"the name cannot be written; its bytes are {encoded[:40].hex()}"
            )
        # A raw name is stored only if it differs from the path or is not ASCII.
        if name.path.isascii() and name.path.encode("ascii") == raw:
            return name
        return replace(name, raw_name=raw)

    def _choose_name(self, form: _HeaderForm, extras: Extras) -> tuple[bytes, bool]:
        """Return the bytes of the name, and whether they are UTF-8.

        A Unicode path field replaces the name in the header, unless a flag marks the name in the
        header as UTF-8. Such a name must equal the name in the Unicode path field.
        """
        unicode_path = None
        payloads = extras.of(UNICODE_PATH)
        if len(payloads) > 1:
            self._warn_or_refuse("unicode-path-duplicate", "more than one Unicode path field")
        elif payloads:
            unicode_path, code = read_unicode_path(payloads[0], self._raw_name)
            if code:
                self._warnings[code] += 1
        is_utf8 = bool(form.flags & records.FLAG_UTF8)
        if unicode_path is None:
            return self._raw_name, is_utf8
        if not is_utf8:
            self._warnings["unicode-path-used"] += 1
            return unicode_path, True
        if unicode_path != self._raw_name:
            self._warn_or_refuse(
                "unicode-path-mismatch", f"the Unicode path is {show_name(unicode_path)!r}"
            )
        return self._raw_name, True

    def _check_folder(self, name: Name, sizes: Sizes, *, is_empty: bool) -> bool:
        """Check the size of a directory; return whether the header creates a folder.

        Some directories have no slash at the end of the name, but a backslash, or attributes that
        declare a directory. If such a directory has content, it becomes a file, so no data is lost.
        Any other directory with content is reported. The declared size of a directory without
        content is ignored.
        """
        # A name that ends with a slash is never the name of a file. A name that ends with a
        # backslash can be the name of a file, unless the path is empty.
        can_be_file = not name.is_directory or (name.path != "" and self._raw_name.endswith(b"\\"))
        if not name.is_directory:
            self._warnings["dir-attr-without-slash"] += 1
        if is_empty:
            if sizes.size:
                self._warnings["dir-with-size"] += 1
            if not name.path:
                self._warnings["dir-is-root"] += 1
        elif not can_be_file:
            self._warn_or_fail(
                "dir-with-data", f"a directory of {sizes.size} bytes, {sizes.compressed} compressed"
            )
        return is_empty or not can_be_file

    def _read_encryption(self, form: _HeaderForm, extras: Extras, member: Member) -> Member:
        """Check the encryption; return the member with its cipher and its compression method.

        Returns the member unchanged if its encryption cannot be read or there is no password.
        """
        if form.flags & (records.FLAG_STRONG_ENCRYPTION | records.FLAG_MASKED_HEADER):
            self._warn_or_fail("strong-encryption", "a password does not help")
            return member
        if self._policy.password is None:
            self._warn_or_fail("encrypted", "no password is given")
            return member
        method = form.method
        cipher = Cipher()  # ZipCrypto, unless the header declares the method of AES
        if method == records.METHOD_AES:
            aes = read_aes(extras)
            if aes is None or not form.flags & records.FLAG_ENCRYPTED:
                self._warn_or_fail(
                    "encryption-malformed", "method 99 (AES) without its extra field or its flag"
                )
                return member
            method, cipher = aes
        # Even if the member fails a check below, the returned member has the cipher.
        if method not in records.METHODS:
            self._warn_or_fail("unsupported-method", records.describe_method(method))
        if member.compressed_size < cipher.overhead:
            self._warn_or_fail(
                "encryption-malformed",
                f"{member.compressed_size} bytes, but the encryption alone needs {cipher.overhead}",
            )
        return replace(member, method=method, cipher=cipher)

    def _check_sizes(self, form: _HeaderForm, member: Member) -> None:
        """Compare the declared size of a file with its compressed size and with the limits."""
        limits = self._policy.limits
        size = member.size
        # The number of bytes that encryption adds is known only if the cipher is known.
        has_known_length = member.cipher is not None or not form.is_encrypted
        length = member.decrypted_length
        if member.method == records.METHOD_STORED and size != length and has_known_length:
            self._warn_or_fail(
                "stored-size-mismatch", f"stored in {length} bytes, but its size is {size}"
            )
        if size > limits.member_size:
            self._warn_or_fail(
                "bomb-member-size", f"declares {size} bytes; the limit is {limits.member_size}"
            )
        if member.method != records.METHOD_STORED and size > member.compressed_size * limits.ratio:
            # Only deflate has a maximum ratio. With other methods, even legitimate data can have a
            # high ratio.
            code = "bomb-ratio" if member.method == records.METHOD_DEFLATE else "high-ratio"
            self._warn_or_fail(
                code, f"declares {size} bytes in {member.compressed_size} compressed bytes"
            )

    def finish(self) -> Reads[Index]:
        """Check that the directory ends after a complete header; return the checked index.

        Call this method once, after the last call of `feed`. If the offsets are modulo 4 GiB, local
        headers are read.
        """
        self._check_end()
        if self._location.is_wrapped:
            yield from self._unwrap()
        self._keys.finish()
        table = self._table
        start = self._location.start
        order = table.set_stops(start)  # the numbers of all headers, by offset
        readable = self._members_of(order, SELECTED, UNSELECTED)
        selected = readable  # nearly always all members are selected
        if UNSELECTED in table.kinds:
            selected = self._members_of(order, SELECTED)
        # Members with `FLAG_WRAPPED` can be larger than declared. The part of the limit that the
        # declared sizes do not use is divided among these members, in proportion to their
        # compressed sizes.
        inflation = 0.0  # bytes that each compressed byte may add to the declared size
        if self._wrapped_bytes:
            inflation = (self._policy.limits.total_size - self._declared_size) / self._wrapped_bytes
        return Index(
            table=table,
            members=readable,
            selected=selected,
            failures=Members(table, array("I", table.numbers(FAILED, KEYLESS)), table.refused),
            first=table.offsets[order[0]] if order else start,
            warnings=self._warnings + self._keys.warnings,
            inflation=inflation,
        )

    def _members_of(self, order: Sequence[int], *kinds: int) -> Members[Member]:
        """Return the members of the given kinds, in the order of the header numbers in `order`."""
        kind_of = self._table.kinds
        numbers = array("I", (number for number in order if kind_of[number] in kinds))
        return Members(self._table, numbers, self._table.member)

    def _unwrap(self) -> Reads[None]:
        """Give each member of 4 GiB or more its smallest plausible sizes; shift later offsets."""
        table = self._table
        limit = self._policy.limits.member_size
        long_members = yield from wrapped.find_long_members(table, self._location.start)
        wrapped.lengthen_members(table, long_members)
        for number in long_members:
            self._wrapped_bytes += table.compressed_sizes[number]
            # Discard a "bomb-ratio", because only the lower 32 bits of both sizes were compared.
            if table.kinds[number] == FAILED and table.codes[number] == "bomb-ratio":
                table.kinds[number] = SELECTED
            # Only SELECTED and FAILED members have a key, which `KeyChecker.finish` needs. Other
            # members are not extracted, so their sizes do not matter.
            if table.sizes[number] > limit and table.kinds[number] in (SELECTED, FAILED):
                table.fail_header(
                    number,
                    "bomb-member-size",
                    f"it has at least {table.sizes[number]} bytes; the limit is {limit}",
                )
        # Compute the total again from the corrected sizes.
        self._declared_size = 0
        self._add_sizes(first=0)

    def _check_end(self) -> None:
        """Refuse a directory with bytes after its last header, or with a wrong header count."""
        location = self._location
        declared = location.entries
        count = len(self._table.kinds)
        unread = len(self._unread)
        unread_at = location.stop - unread
        if unread:
            code = "cd-truncated" if count < declared else "cd-trailing-bytes"
            reject(code, f"{unread} bytes after {count} of {declared} headers", unread_at)
        if count != declared:
            # Without ZIP64, some writers store only the lower 16 bits of the count.
            if location.is_zip64 or count % (1 << 16) != declared:
                reject("count-mismatch", f"{declared} declared, {count} found", unread_at)
            self._warnings["count-wrapped"] += 1


def _is_empty(form: _HeaderForm, crc32: int, sizes: Sizes) -> bool:
    """Return whether a directory has no content, even if it declares a size.

    Some writers declare the size that the folder occupies on disk. Therefore a directory has no
    content if its CRC-32 is 0 and its data is as short as an empty stream. This rule is not enough
    if the data is encrypted or the method is not in `_EMPTY_STREAM`: a stream with content can be
    as short as an empty stream. In this case, a directory that declares a size must have no data.
    """
    short_stream_can_have_content = form.is_encrypted or form.method not in _EMPTY_STREAM
    if sizes.size and short_stream_can_have_content:
        return crc32 == 0 and sizes.compressed == 0
    max_empty = _EMPTY_STREAM.get(form.method, _EMPTY_OTHER)
    if form.is_encrypted:
        max_empty += Cipher(version=2, strength=3).overhead  # the overhead with the longest key
    return crc32 == 0 and sizes.compressed <= max_empty


def _can_wrap(form: _HeaderForm, extras: Extras, member: Member) -> bool:
    """Return whether a deflated member can be 4 GiB larger than its header declares."""
    if form.method != records.METHOD_DEFLATE or form.is_encrypted or extras.of(ZIP64):
        return False
    return member.size + WRAP <= member.compressed_size * records.MAX_DEFLATE_RATIO
