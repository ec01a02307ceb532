"""Read one central directory header (APPNOTE 4.3.12) with every check.

`reader` has a fast path for plain headers, which must return the same values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.finding import Finding
from s3unzip.zip.coding import compression_of, encryption_overhead, name_unsupported, read_aes
from s3unzip.zip.directory.extras import (
    NO_EXTRAS,
    ZIP64,
    Zip64Values,
    read_dos_time,
    read_extended_time,
    read_unicode_path,
    resolve_zip64,
    walk_extras,
)
from s3unzip.zip.directory.headers import CentralHeader, HeaderNote
from s3unzip.zip.directory.names import Name, check_name, cut_name, decode_name, show_name
from s3unzip.zip.directory.records import (
    ATTRIBUTE_DIRECTORY,
    ATTRIBUTE_REPARSE_POINT,
    CENTRAL,
    CENTRAL_LENGTH,
    ENCRYPTION_FLAGS,
    FLAG_ENCRYPTED,
    FLAG_PATCH,
    FLAG_UTF8,
    LOCAL_LENGTH,
    MAX_VERSION,
    METHOD_AES,
    METHOD_DEFLATE,
    METHOD_DEFLATE64,
    METHOD_STORED,
    UNIX_HOSTS,
)
from s3unzip.zip.errors import RejectedError

if TYPE_CHECKING:
    from s3unzip.zip.directory.locate import DirectoryLocation
    from s3unzip.zip.policy import Policy

# The file types of Unix in the upper four bits of a mode (stat.S_IFMT).
_FIFO, _CHARACTER, _DIRECTORY, _BLOCK, _LINK, _SOCKET = 0x1, 0x2, 0x4, 0x6, 0xA, 0xC

# Maximum size of compressed empty content, which some writers store for directories. Other methods
# have headers of up to 32 bytes (xz).
_EMPTY_STREAM = {METHOD_STORED: 0, METHOD_DEFLATE: 5, METHOD_DEFLATE64: 5}
_EMPTY_OTHER = 32
_MAX_OVERHEAD = 28  # of encryption, see `coding`


def read_header(
    data: bytes, index: int, location: DirectoryLocation, policy: Policy
) -> CentralHeader:
    """Read one whole header with every check: the reference for the fast path.

    Raises:
        RejectedError: the header cannot belong to this archive.
    """
    return _HeaderReading(data, index, location, policy).read()


class _HeaderReading:
    """Reads one header; collects warnings and the first finding that fails it."""

    def __init__(
        self, data: bytes, index: int, location: DirectoryLocation, policy: Policy
    ) -> None:
        (
            _, self.made_by, self.needed, self.flags, self.method, self.stamp, self.crc32,
            compressed, size, name_length, extra_length, _, disk, self.attributes, offset,
        ) = CENTRAL.unpack_from(data)  # fmt: skip
        extra_at = CENTRAL_LENGTH + name_length
        self.raw = data[CENTRAL_LENGTH:extra_at]
        self.index, self.location, self.policy = index, location, policy
        self.extras = NO_EXTRAS
        if extra_length:
            self.extras = walk_extras(data[extra_at : extra_at + extra_length])
        self.zip64_fields = self.extras.of(ZIP64)
        payload = self.zip64_fields[0] if self.zip64_fields else None
        self.values = resolve_zip64(payload, size, compressed, offset, disk)
        self.offset = location.disks.place(self.values.disk, self.values.offset) + location.prefix
        self.warnings: list[Finding] = []
        self.failure: Finding | None = None

    def read(self) -> CentralHeader:
        values = self.values
        self._check_place(values)
        self._check_extras(values)
        name = self._read_name()
        is_named = name.failure is None
        mode = self._read_mode()
        is_directory = name.is_directory or self._is_other_directory(name, values)
        if name.is_directory:
            self._check_directory(values)
        elif not is_directory:
            self._check_kind()
            self._check_method()
            self._check_sizes(values)
        mtime = read_extended_time(self.extras)
        note = None
        if self.failure or self.warnings or is_directory:
            note = HeaderNote(is_directory, self.failure, is_named, tuple(self.warnings))
        is_own = name.path.isascii() and name.path.encode("ascii") == self.raw
        return CentralHeader(
            index=self.index,
            path=name.path,
            raw_name=None if is_own else self.raw,
            offset=self.offset,
            compressed_size=values.compressed_size,
            size=values.size,
            crc32=self.crc32,
            method=self.method,
            flags=self.flags,
            mtime=read_dos_time(self.stamp) if mtime is None else mtime,
            mode=mode,
            note=note,
        )

    def _finding(self, code: str, message: str) -> Finding:
        return Finding(code, message, self.offset, show_name(self.raw))

    def _find(self, code: str, message: str) -> None:
        """Record a finding: it rejects the archive, fails the member, or is a warning."""
        finding = self._finding(code, message)
        if self.policy.tolerates(code):
            self.warnings.append(finding)
        elif self.failure is None:
            self.failure = finding

    def _reject(self, code: str, message: str) -> None:
        finding = self._finding(code, message)
        if not self.policy.tolerates(code):
            raise RejectedError(finding)
        self.warnings.append(finding)

    def _check_place(self, values: Zip64Values) -> None:
        if lack := self.location.disks.find_lack(values.disk, values.offset):
            self._reject("multi-disk", f"the member begins on {lack}")
        stop = self.offset + LOCAL_LENGTH + len(self.raw) + values.compressed_size
        if stop > self.location.start:
            message = f"it would end at {stop}, the directory begins at {self.location.start}"
            if values.missing:
                message += "; a ZIP64 value is missing"
            self._reject("member-out-of-bounds", message)

    def _check_extras(self, values: Zip64Values) -> None:
        if self.extras.overrun:
            self._find("cd-extra-malformed", "an extra field is longer than its block")
        if self.extras.stray:
            message = f"{self.extras.stray} stray bytes after the extra fields"
            self._find("extra-trailing-bytes", message)
        if len(self.zip64_fields) > 1:
            self._find("zip64-extra-duplicate", f"{len(self.zip64_fields)} ZIP64 extra fields")
        if values.missing and not (self._is_literal(values) and not self.zip64_fields):
            code = "zip64-extra-malformed" if self.zip64_fields else "zip64-extra-missing"
            self._find(code, "a field is at its ZIP64 sentinel without a value")

    def _is_literal(self, values: Zip64Values) -> bool:
        """Return whether sentinels without a ZIP64 field can be the sizes themselves.

        4.4.8, 4.4.9: they have another meaning only if that field exists. Writers store a file of
        exactly 4 GiB - 1 this way; its end and CRC-32 are still checked.
        """
        method = compression_of(self.method)
        if method == METHOD_STORED and not self.flags & ENCRYPTION_FLAGS:
            return values.size == values.compressed_size
        return values.size <= values.compressed_size * self.policy.limits.ratio

    def _read_name(self) -> Name:
        raw, is_utf8 = self._choose_name()
        text, odd = decode_name(raw, is_utf8=is_utf8, policy=self.policy)
        if odd:
            self._find(odd, f"the name's bytes are {raw[:40].hex()}")
            if not self.policy.tolerates(odd):
                return Name(text, text.endswith("/"), odd, ())
        name = check_name(text, self.policy)
        for code in name.warnings:
            self._find(code, f"written as {cut_name(name.path)!r}")
        if name.failure:
            self._find(name.failure, "the name cannot be a key")
        return name

    def _choose_name(self) -> tuple[bytes, bool]:
        """Return the bytes to take the name from, and whether they are UTF-8."""
        unicode_path = read_unicode_path(self.extras, self.raw)
        if unicode_path.duplicate:
            self._reject("unicode-path-duplicate", "more than one Unicode path field")
        if unicode_path.stale:
            self._find("unicode-path-stale", "the Unicode path field is for another name")
        is_utf8 = bool(self.flags & FLAG_UTF8)
        if unicode_path.name is None:
            return self.raw, is_utf8
        if not is_utf8:
            self._find("unicode-path-used", "the name is taken from the Unicode path field")
            return unicode_path.name, True
        if unicode_path.name != self.raw:
            message = f"the Unicode path is {show_name(unicode_path.name)!r}"
            self._reject("unicode-path-mismatch", message)
        return self.raw, True

    def _read_mode(self) -> int | None:
        if self.made_by >> 8 not in UNIX_HOSTS:
            return None
        return self.attributes >> 16 or None

    def _is_other_directory(self, name: Name, values: Zip64Values) -> bool:
        """Return whether the attributes of a name without a slash declare a directory.

        An entry with content counts as a file, so that no content is lost.
        """
        is_meant = self.attributes >> 28 == _DIRECTORY or self.attributes & ATTRIBUTE_DIRECTORY
        is_link = self.attributes & ATTRIBUTE_REPARSE_POINT
        if name.is_directory or name.failure or is_link or not is_meant:
            return False
        is_empty = not values.size and not self.crc32 and not self._holds_data(values)
        taken = "directory" if is_empty else "file"
        message = f"a directory by its attributes, without a slash: taken as a {taken}"
        self._find("dir-attr-without-slash", message)
        return is_empty

    def _holds_data(self, values: Zip64Values) -> bool:
        max_empty = _EMPTY_STREAM.get(self.method, _EMPTY_OTHER)
        if self.flags & ENCRYPTION_FLAGS or self.method == METHOD_AES:
            max_empty += _MAX_OVERHEAD
        return values.compressed_size > max_empty

    def _check_directory(self, values: Zip64Values) -> None:
        if values.size or self.crc32 or self._holds_data(values):
            message = f"a directory of {values.size} bytes, {values.compressed_size} compressed"
            self._find("dir-with-data", message)

    def _check_kind(self) -> None:
        """Check the file type: other hosts write Unix modes, too."""
        kind = self.attributes >> 28
        if kind == _LINK:
            self._find("symlink", "a symbolic link")
        elif self.attributes & ATTRIBUTE_REPARSE_POINT:
            self._find("symlink", "a reparse point of Windows: a symbolic link or a junction")
        elif kind in (_CHARACTER, _BLOCK, _SOCKET):
            self._find("device", "a device or socket")
        elif kind == _FIFO:
            self._find("fifo-mode", "FIFO mode bits, taken as an ordinary file")

    def _check_method(self) -> None:
        if self.needed & 0xFF > MAX_VERSION:
            message = f"it needs version {self.needed}, the last one is {MAX_VERSION}"
            self._find("version-needed", message)
        if self.flags & ENCRYPTION_FLAGS or self.method == METHOD_AES:
            self._check_encryption()
        if self.flags & FLAG_PATCH:
            self._find("patch-data", "compressed patch data")
        method = compression_of(self.method)
        if (unsupported := name_unsupported(method)) is not None:
            self._find("unsupported-method", f"compression method {method} ({unsupported})")

    def _check_encryption(self) -> None:
        """Check how the member is encrypted; method 99 becomes its coding."""
        if self.flags & ENCRYPTION_FLAGS & ~FLAG_ENCRYPTED:
            message = "strong encryption (APPNOTE 7) is not read, with or without a password"
            self._find("encrypted", message)
            return
        if self.policy.password is None:
            self._find("encrypted", "no password is given")
            return
        if self.method == METHOD_AES:
            coding = read_aes(self.extras)
            if coding is None or not self.flags & FLAG_ENCRYPTED:
                self._find("encryption-malformed", "method 99 (AES) without its field or its flag")
                return
            self.method = coding.pack()
        overhead = encryption_overhead(self.method, self.flags)
        if self.values.compressed_size < overhead:
            message = f"{self.values.compressed_size} bytes, the encryption alone has {overhead}"
            self._find("encryption-malformed", message)

    def _check_sizes(self, values: Zip64Values) -> None:
        method = compression_of(self.method)
        is_stored = method == METHOD_STORED and (
            self.policy.password is not None or not self.flags & ENCRYPTION_FLAGS
        )
        length = values.compressed_size - encryption_overhead(self.method, self.flags)
        if is_stored and values.size != length:
            message = f"stored, {length} bytes for {values.size}"
            self._find("stored-size-mismatch", message)
        limits = self.policy.limits
        if values.size > limits.member_size:
            message = f"declares {values.size} bytes, the limit is {limits.member_size}"
            self._find("bomb-member-size", message)
        if method != METHOD_STORED and values.size > values.compressed_size * limits.ratio:
            code = "bomb-ratio" if method == METHOD_DEFLATE else "high-ratio"
            message = f"declares {values.size} bytes in {values.compressed_size}"
            self._find(code, message)
