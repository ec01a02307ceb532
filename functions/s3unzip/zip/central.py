"""Read the headers of the central directory (APPNOTE 4.3.12), and check the index they make.

A directory has few different forms (signature, versions, flags, method) and traits (disk,
attributes). So each of them is interpreted once, and then recognised by its bytes: a plan takes as
long as its headers take to read. `keys` checks the keys; `local` and `decode` compare the directory
with the archive's data.
"""

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.finding import Finding, RejectedError
from s3unzip.zip import records, wrapped
from s3unzip.zip.checks import Policy
from s3unzip.zip.directory import DirectoryLocation
from s3unzip.zip.extras import (
    NO_EXTRAS,
    UNICODE_PATH,
    ZIP64,
    Extras,
    Sizes,
    read_aes,
    read_extended_time,
    read_unicode_path,
    resolve_zip64,
    walk_extras,
)
from s3unzip.zip.keys import KeyChecker, Selection
from s3unzip.zip.members import (
    FAILED,
    FOLDER,
    NAMELESS,
    PLACELESS,
    SELECTED,
    UNSELECTED,
    HeaderTable,
    Index,
    Members,
)
from s3unzip.zip.names import check_name, decode_name, is_plain_name, show_name
from s3unzip.zip.records import (
    CENTRAL_LENGTH,
    CENTRAL_SIGNATURE,
    LOCAL_LENGTH,
    SENTINEL_16,
    SENTINEL_32,
    read_dos_time,
)
from s3unzip.zip.values import FLAG_WRAPPED, WRAP, Cipher, Member, Reads, reject

_FORM = struct.Struct("<4sHHHHHHI")  # form and traits
_SLASH = ord("/")

# The file types of Unix in the upper four bits of a mode (stat.S_IFMT).
_FIFO = 0x1
_CHARACTER = 0x2
_DIRECTORY = 0x4
_BLOCK = 0x6
_LINK = 0xA
_SOCKET = 0xC
_OWNER_READS = 0o400  # a mode has this bit nearly always, attributes of Windows never

# Maximum size of compressed empty content, which some writers store for directories. Other methods
# have headers of up to 32 bytes (xz).
_EMPTY_STREAM = {records.METHOD_STORED: 0, records.METHOD_DEFLATE: 5, records.METHOD_DEFLATE64: 5}
_EMPTY_OTHER = 32
_MAX_OVERHEAD = 28  # of encryption, see `Cipher`

_COUNTS = 1 << 16  # different counts of members that the end record can declare (4.3.16)


class _HeaderForm(NamedTuple):
    """The values that follow from a header's form and traits."""

    method: int
    flags: int
    disk: int
    mode: int | None  # of Unix
    is_encrypted: bool
    is_folder: bool  # by the attributes
    findings: tuple[tuple[str, str], ...]  # code and message, if it is a file


@lru_cache(maxsize=1 << 12)
def _read_form(raw: bytes) -> _HeaderForm:
    """Interpret the form and the traits of a header."""
    _, made_by, needed, flags, method, disk, _, attributes = _FORM.unpack(raw)
    host = made_by >> 8
    mode = attributes >> 16
    is_unix = host in records.UNIX_HOSTS
    # Some writers name another host and write a Unix mode. Windows has attributes in these bits.
    kind = 0
    if is_unix or mode & _OWNER_READS:
        kind = mode >> 12
    findings: list[tuple[str, str]] = []
    if kind == _LINK:
        findings.append(("symlink", "a symbolic link"))
    elif attributes & records.ATTRIBUTE_REPARSE_POINT and not is_unix:
        flags |= records.FLAG_REPARSE
        findings.append(("reparse-point", "a reparse point of Windows, taken as a file"))
    elif kind in (_CHARACTER, _BLOCK, _SOCKET):
        findings.append(("device", "a device or socket"))
    elif kind == _FIFO:
        findings.append(("fifo-mode", "FIFO mode bits, taken as an ordinary file"))
    if needed & 0xFF > records.MAX_VERSION:
        message = f"it needs version {needed}, the last one is {records.MAX_VERSION}"
        findings.append(("version-needed", message))
    if flags & records.FLAG_PATCH:
        findings.append(("patch-data", "compressed patch data"))
    is_encrypted = records.is_encrypted(flags) or method == records.METHOD_AES
    if not is_encrypted and method not in records.METHODS:
        findings.append(("unsupported-method", records.describe_method(method)))
    unix_mode = None
    if is_unix:
        unix_mode = mode or None
    is_dos_folder = attributes & records.ATTRIBUTE_DIRECTORY and host in records.DOS_HOSTS
    return _HeaderForm(
        method=method,
        flags=flags,
        disk=disk,
        mode=unix_mode,
        is_encrypted=is_encrypted,
        is_folder=bool(kind == _DIRECTORY or is_dos_folder),
        findings=tuple(findings),
    )


class _Fixed(Struct, frozen=True, gc=False):
    """The fixed fields of a header (4.3.12)."""

    form: bytes  # signature, versions, flags, method
    stamp: int  # time and date
    crc32: int
    compressed: int
    size: int
    name_length: int
    extra_length: int
    comment_length: int
    traits: bytes  # disk, attributes
    offset: int


_FIXED = struct.Struct("<12sIIIIHHH8sI")


class _HeaderName(Struct, frozen=True, gc=False):
    """The name of a header."""

    path: str
    raw_name: bytes | None = None  # None: it is the path in ASCII
    is_slashed: bool = False  # as a directory's
    is_named: bool = True  # it can be a key


class DirectoryReader:
    """Reads a directory's bytes in pieces of any size, and checks the index that they make.

    Memory: one piece and about 300 bytes a header; see `Limits`.
    """

    def __init__(
        self, location: DirectoryLocation, policy: Policy, selection: Selection | None = None
    ) -> None:
        self._location = location
        self._policy = policy
        self._table = HeaderTable()
        self._keys = KeyChecker(self._table, policy, selection or Selection())
        self._warnings = Counter(location.warnings)
        # Of the header that is being read: its name, its offset, the finding that fails it.
        self._raw = b""
        self._offset = 0
        self._failure: tuple[str, str] | None = None
        self._unread = b""
        self._position = location.start  # of `_unread`
        # Compressed bytes from which on a deflated member may have 4 GiB more than it declares.
        self._least_wrapped = WRAP // records.MAX_DEFLATE_RATIO
        if location.is_zip64:
            self._least_wrapped = sys.maxsize
        self._wrapped = 0  # compressed bytes of such members
        self._last_disk = location.disks.starts[location.disks.disk_of(location.stop)]
        self._on_last_disk = 0  # headers that begin there or later
        self._prefix = location.prefix
        self._max_size = policy.limits.member_size
        # Whether the declared offsets are not those in the archive.
        self._moves = location.is_wrapped or location.disks.is_split
        self._declared = 0  # sum of the sizes

    def feed(self, chunk: bytes) -> None:
        """Read the headers that `chunk` completes."""
        data = self._unread + chunk
        first = len(self._table.kinds)
        at = self._read_headers(data)
        self._unread = data[at:]
        self._position += at
        self._add_sizes(first)
        self._keys.check(first)

    def _read_headers(self, data: bytes) -> int:
        """Read the whole headers at the beginning of `data`; return where they end."""
        at = 0
        length = len(data)
        limit = self._policy.limits.members
        last_disk = self._last_disk - self._position
        kinds = self._table.kinds
        while length - at >= CENTRAL_LENGTH:
            fixed = _Fixed(*_FIXED.unpack_from(data, at))
            if len(kinds) >= limit:
                reject("too-many-entries", f"the limit is {limit}")
            if fixed.form[:4] != CENTRAL_SIGNATURE:
                self._refuse_signature()
            name_at = at + CENTRAL_LENGTH
            extra_at = name_at + fixed.name_length
            extra_stop = extra_at + fixed.extra_length
            stop = extra_stop + fixed.comment_length
            if stop > length:
                break
            self._raw = data[name_at:extra_at]
            self._failure = None
            extras = NO_EXTRAS
            if fixed.extra_length:
                extras = walk_extras(data[extra_at:extra_stop])
            self._read(fixed, extras)
            if at >= last_disk:
                self._on_last_disk += 1
            at = stop
        return at

    def _add_sizes(self, first: int) -> None:
        """Add the sizes of the headers from number `first` on to those of the archive."""
        self._declared += sum(self._table.sizes[first:])
        limit = self._policy.limits.total_size
        if self._declared > limit:
            reject("bomb-total", f"{self._declared} bytes declared so far, the limit is {limit}")

    def _read(self, fixed: _Fixed, extras: Extras) -> None:
        """Read one header."""
        form = _read_form(fixed.form + fixed.traits)
        sizes = Sizes(fixed.size, fixed.compressed, fixed.offset, form.disk)
        if SENTINEL_32 in (sizes.size, sizes.compressed, sizes.offset) or form.disk == SENTINEL_16:
            sizes = resolve_zip64(extras, sizes)
        self._offset = sizes.offset + self._prefix
        if sizes.disk or self._moves:
            self._locate(sizes)
        mtime = None
        if extras is not NO_EXTRAS or sizes.lacks_value:
            self._check_extras(form, extras, sizes)
            mtime = read_extended_time(extras)
        if mtime is None:
            mtime = read_dos_time(fixed.stamp)
        name = self._read_name(form, extras)
        is_folder = False
        if name.is_slashed or (form.is_folder and (name.is_named or not name.path)):
            is_empty = _is_empty(form, fixed.crc32, sizes)
            is_folder = self._judge_folder(name, sizes, is_empty=is_empty)
            if is_empty:
                sizes = Sizes(0, 0, lacks_value=sizes.lacks_value)
        stop = self._offset + LOCAL_LENGTH + sizes.compressed  # at least: its name is not counted
        member = Member(
            index=len(self._table.kinds),
            path=name.path,
            raw_name=name.raw_name,
            offset=self._offset,
            stop=stop,
            compressed_size=sizes.compressed,
            size=sizes.size,
            crc32=fixed.crc32,
            method=form.method,
            flags=form.flags,
            mtime=mtime,
            mode=form.mode,
        )
        if not is_folder:
            member = self._judge_file(form, extras, member)
        if stop > self._location.start:
            self._refuse_beyond(stop, lacks_value=sizes.lacks_value)
        kind = SELECTED
        if self._failure or is_folder:
            kind = self._note_kind(name, is_folder=is_folder)
        self._table.add(kind, member)

    def _judge_file(self, form: _HeaderForm, extras: Extras, member: Member) -> Member:
        """Judge the name, the compression and the sizes of a file; return what they declare."""
        if not member.path:
            self._judge("name-empty", f"it is {show_name(self._raw)!r}")
        if form.findings or form.is_encrypted:
            member = self._read_coding(form, extras, member)
        if member.compressed_size > self._least_wrapped and _can_wrap(form, extras, member):
            self._wrapped += member.compressed_size
            size = wrapped.guess_size(member.size, member.compressed_size)
            member = replace(member, size=size, flags=member.flags | FLAG_WRAPPED)
        size = member.size
        is_odd = member.method or member.cipher or size != member.compressed_size
        if is_odd or size > self._max_size:
            self._check_sizes(form, member)
        return member

    def _note_kind(self, name: _HeaderName, *, is_folder: bool) -> int:
        """Return the kind of a header that failed, or is a folder's; note why it failed."""
        if self._failure:
            self._table.faults[len(self._table.kinds)] = self._failure
            return FAILED if name.is_named and not is_folder else NAMELESS
        return FOLDER if name.path else PLACELESS

    def _refuse_beyond(self, stop: int, *, lacks_value: bool) -> None:
        """Refuse the archive for a member that reaches into the directory."""
        message = f"it would end at {stop}, the directory begins at {self._location.start}"
        if lacks_value:
            message += "; a ZIP64 value is missing"
        code = wrapped.UNPROVEN if self._location.is_wrapped else "member-out-of-bounds"
        self._judge_archive(code, message)

    def _judge(self, code: str, message: str) -> None:
        """Fail the member, or count a warning."""
        if self._policy.tolerates(code):
            self._warnings[code] += 1
        elif self._failure is None:
            self._failure = code, message

    def _judge_archive(self, code: str, message: str) -> None:
        """Refuse the archive, or count a warning."""
        if not self._policy.tolerates(code):
            raise RejectedError(Finding(code, message, self._offset, show_name(self._raw)))
        self._warnings[code] += 1

    def _locate(self, sizes: Sizes) -> None:
        """Set the absolute offset of a member of several disks, or of a wrapped archive."""
        if self._location.is_wrapped and self._table.stops:
            self._offset = wrapped.place_after(sizes.offset, self._table.stops[-1])
            return
        disks = self._location.disks
        self._offset = disks.absolute(sizes.disk, sizes.offset) + self._prefix
        if lack := disks.find_lack(sizes.disk, sizes.offset):
            self._judge_archive("multi-disk", f"the member begins on {lack}")

    def _check_extras(self, form: _HeaderForm, extras: Extras, sizes: Sizes) -> None:
        """Judge malformed fields, and a sentinel without a value."""
        if extras.overrun:
            self._judge("cd-extra-malformed", "an extra field is longer than its block")
        if extras.stray:
            self._warnings["extra-trailing-bytes"] += 1
        zip64_fields = len(extras.of(ZIP64))
        if zip64_fields > 1:
            self._judge("zip64-extra-duplicate", f"{zip64_fields} ZIP64 extra fields")
        if sizes.lacks_value and (zip64_fields or not self._is_literal(form, sizes)):
            code = "zip64-extra-malformed" if zip64_fields else "zip64-extra-missing"
            self._judge(code, "a field is at its ZIP64 sentinel without a value")

    def _is_literal(self, form: _HeaderForm, sizes: Sizes) -> bool:
        """Return whether sentinels without a ZIP64 field can be the sizes themselves.

        4.4.8, 4.4.9: they have another meaning only if that field exists. Writers store a file of
        exactly 4 GiB - 1 this way; its end and CRC-32 are still checked.
        """
        if form.method == records.METHOD_STORED and not form.is_encrypted:
            return sizes.size == sizes.compressed
        return sizes.size <= sizes.compressed * self._policy.limits.ratio

    def _read_name(self, form: _HeaderForm, extras: Extras) -> _HeaderName:
        """Return the name of the header; fail the member if it cannot be written."""
        raw = self._raw
        if is_plain_name(raw) and UNICODE_PATH not in extras.fields:
            path = raw.decode("ascii")
            if raw[-1] == _SLASH:
                return _HeaderName(path[:-1], raw, is_slashed=True)
            return _HeaderName(path)
        encoded, is_utf8 = self._choose_name(form, extras)
        text, code = decode_name(encoded, is_utf8=is_utf8, policy=self._policy)
        if code:
            self._judge(code, f"the name's bytes are {encoded[:40].hex()}")
            if not self._policy.tolerates(code):
                return _HeaderName(text, raw, is_slashed=text.endswith("/"), is_named=False)
        name = check_name(text, self._policy)
        self._warnings.update(name.warnings)
        if name.failure and name.path:  # a directory needs no path
            self._judge(name.failure, "the name cannot be written")
        header_name = _HeaderName(
            name.path, raw, is_slashed=name.is_directory, is_named=name.failure is None
        )
        if name.path.isascii() and name.path.encode("ascii") == raw:
            return replace(header_name, raw_name=None)
        return header_name

    def _choose_name(self, form: _HeaderForm, extras: Extras) -> tuple[bytes, bool]:
        """Return the bytes of the name, and whether they are UTF-8."""
        unicode_path, code = read_unicode_path(extras, self._raw)
        if code == "unicode-path-duplicate":
            self._judge_archive(code, "more than one Unicode path field")
        elif code:
            self._warnings[code] += 1
        is_utf8 = bool(form.flags & records.FLAG_UTF8)
        if unicode_path is None:
            return self._raw, is_utf8
        if not is_utf8:
            self._warnings["unicode-path-used"] += 1
            return unicode_path, True
        if unicode_path != self._raw:
            message = f"the Unicode path is {show_name(unicode_path)!r}"
            self._judge_archive("unicode-path-mismatch", message)
        return self._raw, True

    def _judge_folder(self, name: _HeaderName, sizes: Sizes, *, is_empty: bool) -> bool:
        """Return whether a header is a directory's; judge its size.

        A directory by its attributes alone is a file if it has content, so that nothing is lost.
        """
        if not name.is_slashed:
            self._warnings["dir-attr-without-slash"] += 1
        if is_empty:
            if sizes.size:
                self._warnings["dir-with-size"] += 1
            if not name.path:
                self._warnings["dir-is-root"] += 1
        elif name.is_slashed:
            message = f"a directory of {sizes.size} bytes, {sizes.compressed} compressed"
            self._judge("dir-with-data", message)
        return is_empty or name.is_slashed

    def _read_coding(self, form: _HeaderForm, extras: Extras, member: Member) -> Member:
        """Judge unusual traits; return the member with its compression and encryption."""
        for code, message in form.findings:
            self._judge(code, message)
        if not form.is_encrypted:
            return member
        if form.flags & records.ENCRYPTION_FLAGS & ~records.FLAG_ENCRYPTED:
            self._judge("strong-encryption", "it is not read, with or without a password")
            return member
        if self._policy.password is None:
            self._judge("encrypted", "no password is given")
            return member
        method = form.method
        cipher = Cipher()
        if method == records.METHOD_AES:
            aes = read_aes(extras)
            if aes is None or not form.flags & records.FLAG_ENCRYPTED:
                message = "method 99 (AES) without its field or its flag"
                self._judge("encryption-malformed", message)
                return member
            method, cipher = aes
        if method not in records.METHODS:
            self._judge("unsupported-method", records.describe_method(method))
        if member.compressed_size < cipher.overhead:
            message = f"{member.compressed_size} bytes, the encryption alone has {cipher.overhead}"
            self._judge("encryption-malformed", message)
        return replace(member, method=method, cipher=cipher)

    def _check_sizes(self, form: _HeaderForm, member: Member) -> None:
        """Judge the declared sizes of a file."""
        limits = self._policy.limits
        size = member.size
        is_readable = member.cipher is not None or not form.is_encrypted
        length = member.compressed_size
        if member.cipher is not None:
            length -= member.cipher.overhead
        if member.method == records.METHOD_STORED and size != length and is_readable:
            self._judge("stored-size-mismatch", f"stored, {length} bytes for {size}")
        if size > limits.member_size:
            message = f"declares {size} bytes, the limit is {limits.member_size}"
            self._judge("bomb-member-size", message)
        if member.method != records.METHOD_STORED and size > member.compressed_size * limits.ratio:
            code = "bomb-ratio" if member.method == records.METHOD_DEFLATE else "high-ratio"
            self._judge(code, f"declares {size} bytes in {member.compressed_size}")

    def _refuse_signature(self) -> NoReturn:
        """Refuse bytes that are no header."""
        declared = self._location.entries
        number = len(self._table.kinds)
        if number == declared:
            reject("cd-trailing-bytes", f"no header after the last of {declared}")
        reject("cd-bad-signature", f"header {number} of {declared} has no signature")

    def finish(self) -> Reads[Index]:
        """Check that the directory ended after a header, and all that needs every header.

        Reads local headers of an archive that `is_wrapped`.
        """
        self._check_end()
        if self._location.is_wrapped:
            yield from self._unwrap()
        self._keys.finish()
        table = self._table
        start = self._location.start
        order = table.settle(start)
        readable = self._members(order, (SELECTED, UNSELECTED))
        selected = readable
        if UNSELECTED in table.kinds:
            selected = self._members(order, (SELECTED,))
        failed = array("I", sorted(table.faults))
        first = start
        if order:
            first = table.offsets[order[0]]
        return Index(
            table=table,
            members=readable,
            selected=selected,
            failures=Members(table, failed, table.refused),
            first=first,
            warnings=self._warnings + self._keys.warnings,
            inflation=self._spread_spare(),
        )

    def _members(self, order: Sequence[int], kinds: tuple[int, ...]) -> Members[Member]:
        """Return the members of some kinds."""
        kind_of = self._table.kinds
        numbers = array("I", (number for number in order if kind_of[number] in kinds))
        return Members(self._table, numbers, self._table.member)

    def _spread_spare(self) -> float:
        """Return how many bytes the limit leaves for each compressed byte of wrapped members."""
        if not self._wrapped:
            return 0.0
        return (self._policy.limits.total_size - self._declared) / self._wrapped

    def _unwrap(self) -> Reads[None]:
        """Give members of 4 GiB or more their sizes, and those after them their offsets."""
        table = self._table
        limit = self._policy.limits.member_size
        long_members = yield from wrapped.find_long_members(table, self._location.start)
        for number in wrapped.stretch(table, long_members):
            self._wrapped += table.compressed_sizes[number]
            code, _ = table.faults.get(number, ("", ""))
            if code == "bomb-ratio":  # by the lower 32 bits of its size
                del table.faults[number]
                table.kinds[number] = SELECTED
            if table.sizes[number] > limit:
                message = f"it has at least {table.sizes[number]} bytes, the limit is {limit}"
                table.fail_header(number, "bomb-member-size", message)
        self._declared = 0
        self._add_sizes(0)

    def _check_end(self) -> None:
        """Compare the number of headers with the declared ones."""
        location = self._location
        declared = location.entries
        count = len(self._table.kinds)
        unread = len(self._unread)
        end = location.stop - unread
        if unread and count < declared:
            message = f"{count} of {declared} headers, then {unread} bytes"
            reject("cd-truncated", message, end)
        if unread:
            message = f"{unread} bytes after the last of {declared} headers"
            reject("cd-trailing-bytes", message, end)
        if count != declared:
            if location.is_zip64 or count % _COUNTS != declared:
                reject("count-mismatch", f"{declared} declared, {count} found", end)
            self._warnings["count-wrapped"] += 1
        if location.disks.is_split and self._on_last_disk != location.entries_here:
            message = f"{location.entries_here} headers declared on the last disk, "
            reject("multi-disk", f"{message}{self._on_last_disk} found", end)


def _is_empty(form: _HeaderForm, crc32: int, sizes: Sizes) -> bool:
    """Return whether a directory has no content, whatever size it declares.

    Some writers declare the size that the folder has on its disk. `_EMPTY_STREAM` has the length of
    the longest stream without content, by method. A deflate stream this short cannot hold content
    whose CRC-32 is 0. With another method, or encrypted, it could: then no byte may be there.
    """
    if crc32:
        return False
    if sizes.size and (form.is_encrypted or form.method not in _EMPTY_STREAM):
        return sizes.compressed == 0
    max_empty = _EMPTY_STREAM.get(form.method, _EMPTY_OTHER)
    if form.is_encrypted:
        max_empty += _MAX_OVERHEAD
    return sizes.compressed <= max_empty


def _can_wrap(form: _HeaderForm, extras: Extras, member: Member) -> bool:
    """Return whether a header may have only the lower 32 bits of the size."""
    if form.method != records.METHOD_DEFLATE or form.is_encrypted or extras.of(ZIP64):
        return False
    return wrapped.can_wrap(member.size, member.compressed_size)
