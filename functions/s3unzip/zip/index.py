"""Read the headers of the central directory (APPNOTE 4.3.12), and check the index they make.

A directory has few different heads (signature, versions, flags, method) and traits (disk,
attributes), so what each says is read once and then recognised by its bytes: reading a million
headers decides how long a plan takes. `local` and `decode` check what needs the archive's data.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import NamedTuple, NoReturn

from s3unzip.finding import Finding, RejectedError
from s3unzip.zip import members, names, records, wrapped
from s3unzip.zip.checks import Policy
from s3unzip.zip.directory import DirectoryLocation
from s3unzip.zip.values import FLAG_WRAPPED, WRAP, Cipher, Member, Reads, reject

# 4.3.12: head; time and date, CRC-32, sizes; lengths of name, extra field and comment; traits;
# offset.
_HEADER = Struct("<12sIIIIHHH8sI")
_FORM = Struct("<4sHHHHHHI")  # head and traits

# The file types of Unix in the upper four bits of a mode (stat.S_IFMT).
_FIFO, _CHARACTER, _DIRECTORY, _BLOCK, _LINK, _SOCKET = 0x1, 0x2, 0x4, 0x6, 0xA, 0xC
_OWNER_READS = 0o400  # a mode has this bit nearly always, attributes of Windows never

# Maximum size of compressed empty content, which some writers store for directories. Other methods
# have headers of up to 32 bytes (xz).
_EMPTY_STREAM = {records.METHOD_STORED: 0, records.METHOD_DEFLATE: 5, records.METHOD_DEFLATE64: 5}
_EMPTY_OTHER = 32
_MAX_OVERHEAD = 28  # of encryption, see `Cipher`

_COUNTS = 1 << 16  # of members that the end record can tell apart (4.3.16)
_S3_SPECIAL = "soap"  # some S3 clients cannot address this key


class _HeaderForm(NamedTuple):
    """What the head and the traits of a header say."""

    method: int
    flags: int
    disk: int
    mode: int  # of Unix; 0: unknown
    is_encrypted: bool
    is_folder: bool  # by the attributes
    findings: tuple[tuple[str, str], ...]  # code and message, if it is a file


@lru_cache(maxsize=1 << 12)
def _read_form(raw: bytes) -> _HeaderForm:
    """Return what head and traits say."""
    _, made_by, needed, flags, method, disk, _, attributes = _FORM.unpack(raw)
    host = made_by >> 8
    mode = attributes >> 16
    is_unix = host in records.UNIX_HOSTS
    # Some writers name another host and write a Unix mode. Windows has attributes in these bits.
    kind = mode >> 12 if is_unix or mode & _OWNER_READS else 0
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
    says_folder = attributes & records.ATTRIBUTE_DIRECTORY and host in records.DOS_HOSTS
    return _HeaderForm(
        method, flags, disk, mode if is_unix else 0, is_encrypted,
        bool(kind == _DIRECTORY or says_folder), tuple(findings),
    )  # fmt: skip


def _is_empty(form: _HeaderForm, crc32: int, compressed: int, size: int) -> bool:
    """Return whether a directory has no content, whatever size it declares.

    Some writers declare the size that the folder has on its disk. So few bytes of a deflated stream
    hold no content whose CRC-32 is 0; of other methods, and encrypted, they might.
    """
    if crc32:
        return False
    max_empty = _EMPTY_STREAM.get(form.method, _EMPTY_OTHER)
    if form.is_encrypted:
        max_empty += _MAX_OVERHEAD
    if size and (form.is_encrypted or form.method not in _EMPTY_STREAM):
        max_empty = 0
    return compressed <= max_empty


class Selection(NamedTuple):
    """Which members are extracted, and their keys, which must be unique and short enough.

    Keys of members that are not selected are not judged.
    """

    key_of: Callable[[str], str] = str  # destination key of a member's path
    reserved: str | None = None  # a key that the run writes itself
    wanted: Callable[[str], bool] | None = None  # whether a path is selected; None: all are
    limit: int | None = None  # of the members that are wanted, in the directory's order
    # The key of a folder that the archive lists, None if it is not made. Without this function the
    # destination has no folders.
    folder_key: Callable[[str], str | None] | None = None


def _can_wrap(form: _HeaderForm, extras: records.Extras, size: int, compressed: int) -> bool:
    """Return whether a header may have only the lower 32 bits of the size."""
    is_deflated = form.method == records.METHOD_DEFLATE and not form.is_encrypted
    return is_deflated and not extras.of(records.ZIP64) and wrapped.can_wrap(size, compressed)


class DirectoryReader:
    """Reads a directory's bytes in pieces of any size, and checks the index that they make.

    Memory: one piece and about 300 bytes a header; see `Limits`.
    """

    def __init__(
        self, location: DirectoryLocation, policy: Policy, selection: Selection | None = None
    ) -> None:
        selection = selection or Selection()
        reserved = selection.reserved
        self._location = location
        self._policy = policy
        self._key_of = selection.key_of
        self._wanted = selection.wanted
        self._limit = selection.limit
        self._folder_key = selection.folder_key
        self._selected = 0
        self._reserved = None if reserved is None else names.fold_key(reserved)
        self._table = members.HeaderTable()
        self._warnings = Counter(location.warnings)
        # Of the header that is being read: its name, its offset, the finding that fails it.
        self._raw, self._offset = b"", 0
        self._failure: tuple[str, str] | None = None
        self._rest = b""
        self._position = location.start  # of `_rest`
        # Compressed bytes from which on a deflated member may have 4 GiB more than it declares.
        self._least_wrapped = (
            sys.maxsize if location.is_zip64 else WRAP // records.MAX_DEFLATE_RATIO
        )
        self._wrapped = 0  # compressed bytes of such members
        self._here = location.disks.starts[location.disks.disk_of(location.stop)]
        self._read_here = 0  # headers that begin there or later
        self._declared = self._names_size = 0
        self._directories: set[int] = set()
        self._folded = names.FoldedKeys()

    def feed(self, chunk: bytes) -> None:
        """Read the headers that `chunk` completes."""
        data = self._rest + chunk if self._rest else bytes(chunk)
        at, base, end = 0, len(self._table.kinds), len(data)
        limit, unpack, read = self._policy.limits.members, _HEADER.unpack_from, self._read
        here = self._here - self._position
        while end - at >= records.CENTRAL_LENGTH:
            fixed = unpack(data, at)
            if len(self._table.kinds) >= limit:
                reject("too-many-entries", f"the limit is {limit}")
            if fixed[0][:4] != records.CENTRAL_SIGNATURE:
                self._refuse_signature()
            extra_at = at + records.CENTRAL_LENGTH + fixed[5]
            extra_stop = extra_at + fixed[6]
            stop = extra_stop + fixed[7]
            if stop > end:
                break
            read(fixed, data[at + records.CENTRAL_LENGTH : extra_at], data[extra_at:extra_stop])
            self._read_here += at >= here
            at = stop
        self._rest = data[at:]
        self._position += at
        self._add_sizes(base)
        self._check_names(base)

    def _add_sizes(self, base: int) -> None:
        """Add the sizes of the headers from `base` on to those of the archive."""
        self._declared += sum(self._table.sizes[base:])
        if self._declared > self._policy.limits.total_size:
            limit = self._policy.limits.total_size
            reject("bomb-total", f"{self._declared} bytes declared so far, the limit is {limit}")

    def _read(
        self, fixed: tuple[bytes, int, int, int, int, int, int, int, bytes, int],
        raw: bytes, block: bytes,
    ) -> None:  # fmt: skip
        """Read one header: its fixed fields, its name and its extra block."""
        head, stamp, crc32, compressed, size, _, _, _, traits, offset = fixed
        form = _read_form(head + traits)
        extras = records.walk_extras(block) if block else records.NO_EXTRAS
        disk, lacks = form.disk, False
        if records.SENTINEL_32 in (size, compressed, offset) or disk == records.SENTINEL_16:
            size, compressed, offset, disk, lacks = records.resolve_zip64(
                extras, size, compressed, offset, disk
            )
        self._begin(raw, disk, offset)
        if block or lacks:
            is_literal = not extras.of(records.ZIP64) and self._is_literal(form, size, compressed)
            self._check_extras(extras, lacks=lacks and not is_literal)
        path, raw_name, is_folder, is_named = self._read_name(form, extras)
        method = form.method
        cipher = None
        flags = form.flags
        if is_folder or (form.is_folder and (is_named or not path)):
            is_empty = _is_empty(form, crc32, compressed, size)
            is_folder = self._judge_folder(
                path, (size, compressed), is_empty=is_empty, is_slashed=is_folder
            )
            if is_empty:
                size = compressed = 0
        if not is_folder:
            if not path:
                self._find("name-empty", f"it is {names.show_name(raw)!r}")
            if form.findings or form.is_encrypted:
                method, cipher = self._read_coding(form, extras, compressed)
            if compressed > self._least_wrapped and _can_wrap(form, extras, size, compressed):
                flags |= FLAG_WRAPPED
                size = wrapped.guess_size(size, compressed)
                self._wrapped += compressed
            if method or cipher or size != compressed or size > self._policy.limits.member_size:
                self._check_sizes(form, method, cipher, (size, compressed))
        # Only the local header tells how long its name is.
        end = self._offset + records.LOCAL_LENGTH + compressed
        if end > self._location.start:
            self._reject_beyond(end, lacks=lacks)
        kind = members.MEMBER
        if self._failure or is_folder:
            kind = self._note_kind(path, is_folder=is_folder, is_named=is_named)
        mtime = records.read_extended_time(extras) if block else None
        mtime = records.read_dos_time(stamp) if mtime is None else mtime
        facts = mtime, crc32, method, flags, form.mode, cipher
        self._table.add(kind, path, raw_name, (self._offset, end, compressed, size), facts)

    def _reject_beyond(self, end: int, *, lacks: bool) -> None:
        """Refuse the archive for a member that reaches into the directory."""
        message = f"it would end at {end}, the directory begins at {self._location.start}"
        if lacks:
            message += "; a ZIP64 value is missing"
        code = wrapped.UNPROVEN if self._location.is_wrapped else "member-out-of-bounds"
        self._reject(code, message)

    def _find(self, code: str, message: str) -> None:
        """Fail the member, or count a warning."""
        if self._policy.tolerates(code):
            self._warnings[code] += 1
        elif self._failure is None:
            self._failure = code, message

    def _reject(self, code: str, message: str) -> None:
        """Reject the archive, or count a warning."""
        if not self._policy.tolerates(code):
            raise RejectedError(Finding(code, message, self._offset, names.show_name(self._raw)))
        self._warnings[code] += 1

    def _begin(self, raw: bytes, disk: int, offset: int) -> None:
        """Begin another header: note its name and the absolute offset of its member."""
        self._raw, self._failure = raw, None
        disks, prefix = self._location.disks, self._location.prefix
        self._offset = offset + prefix
        if self._location.is_wrapped and self._table.stops:
            self._offset = wrapped.place_after(offset, self._table.stops[-1])
        elif disk or disks.is_split:
            self._offset = disks.place(disk, offset) + prefix
            if lack := disks.find_lack(disk, offset):
                self._reject("multi-disk", f"the member begins on {lack}")

    def _check_extras(self, extras: records.Extras, *, lacks: bool) -> None:
        if extras.overrun:
            self._find("cd-extra-malformed", "an extra field is longer than its block")
        if extras.stray:
            self._warnings["extra-trailing-bytes"] += 1
        zip64_fields = len(extras.of(records.ZIP64))
        if zip64_fields > 1:
            self._find("zip64-extra-duplicate", f"{zip64_fields} ZIP64 extra fields")
        if lacks:
            code = "zip64-extra-malformed" if zip64_fields else "zip64-extra-missing"
            self._find(code, "a field is at its ZIP64 sentinel without a value")

    def _is_literal(self, form: _HeaderForm, size: int, compressed: int) -> bool:
        """Return whether sentinels without a ZIP64 field can be the sizes themselves.

        4.4.8, 4.4.9: they have another meaning only if that field exists. Writers store a file of
        exactly 4 GiB - 1 this way; its end and CRC-32 are still checked.
        """
        if form.method == records.METHOD_STORED and not form.is_encrypted:
            return size == compressed
        return size <= compressed * self._policy.limits.ratio

    def _read_name(
        self, form: _HeaderForm, extras: records.Extras
    ) -> tuple[str, bytes | None, bool, bool]:
        """Return path, raw name, whether it is a directory's, and whether it can be a key."""
        raw = self._raw
        if names.is_plain_name(raw) and records.UNICODE_PATH not in extras.fields:
            path = raw.decode("ascii")
            is_folder = raw[-1] == 0x2F
            return (path[:-1], raw, True, True) if is_folder else (path, None, False, True)
        chosen, is_utf8 = self._choose_name(form, extras)
        text, odd = names.decode_name(chosen, is_utf8=is_utf8, policy=self._policy)
        if odd:
            self._find(odd, f"the name's bytes are {chosen[:40].hex()}")
            if not self._policy.tolerates(odd):
                return text, raw, text.endswith("/"), False
        name = names.check_name(text, self._policy)
        self._warnings.update(name.warnings)
        if name.failure and name.path:  # a directory needs no path
            self._find(name.failure, "the name cannot be written")
        is_own = name.path.isascii() and name.path.encode("ascii") == raw
        return name.path, None if is_own else raw, name.is_directory, name.failure is None

    def _choose_name(self, form: _HeaderForm, extras: records.Extras) -> tuple[bytes, bool]:
        """Return the bytes to take the name from, and whether they are UTF-8."""
        chosen, odd = records.read_unicode_path(extras, self._raw)
        if odd == "unicode-path-duplicate":
            self._reject(odd, "more than one Unicode path field")
        elif odd:
            self._warnings[odd] += 1
        is_utf8 = bool(form.flags & records.FLAG_UTF8)
        if chosen is None:
            return self._raw, is_utf8
        if not is_utf8:
            self._warnings["unicode-path-used"] += 1
            return chosen, True
        if chosen != self._raw:
            self._reject(
                "unicode-path-mismatch", f"the Unicode path is {names.show_name(chosen)!r}"
            )
        return self._raw, True

    def _note_kind(self, path: str, *, is_folder: bool, is_named: bool) -> int:
        """Return what becomes of a header that failed, or is a directory's; note why it failed."""
        if self._failure:
            self._table.faults[len(self._table.kinds)] = self._failure
            return members.FAILED if is_named and not is_folder else members.NAMELESS
        return members.FOLDER if path else members.PLACELESS

    def _judge_folder(
        self, path: str, sizes: tuple[int, int], *, is_empty: bool, is_slashed: bool
    ) -> bool:
        """Return whether a header is a directory's, and find what is odd about it.

        A directory by its attributes alone is a file if it has content, so that nothing is lost.
        """
        size, compressed = sizes
        if not is_slashed:
            self._warnings["dir-attr-without-slash"] += 1
        if is_empty:
            if size:
                self._warnings["dir-with-size"] += 1
            if not path:
                self._warnings["dir-is-root"] += 1
        elif is_slashed:
            self._find("dir-with-data", f"a directory of {size} bytes, {compressed} compressed")
        return is_empty or is_slashed

    def _read_coding(
        self, form: _HeaderForm, extras: records.Extras, compressed: int
    ) -> tuple[int, Cipher | None]:
        """Find what is odd about a file; return its compression and its encryption."""
        for code, message in form.findings:
            self._find(code, message)
        if form.is_encrypted:
            return self._read_cipher(form, extras, compressed)
        return form.method, None

    def _read_cipher(
        self, form: _HeaderForm, extras: records.Extras, compressed: int
    ) -> tuple[int, Cipher | None]:
        """Return the method of compression below the encryption, and the encryption."""
        method, cipher = form.method, Cipher()
        if form.flags & records.ENCRYPTION_FLAGS & ~records.FLAG_ENCRYPTED:
            self._find("strong-encryption", "it is not read, with or without a password")
            return method, None
        if self._policy.password is None:
            self._find("encrypted", "no password is given")
            return method, None
        if method == records.METHOD_AES:
            found = records.read_aes(extras)
            if found is None or not form.flags & records.FLAG_ENCRYPTED:
                self._find("encryption-malformed", "method 99 (AES) without its field or its flag")
                return method, None
            method, cipher = found
        if method not in records.METHODS:
            self._find("unsupported-method", records.describe_method(method))
        if compressed < cipher.overhead:
            message = f"{compressed} bytes, the encryption alone has {cipher.overhead}"
            self._find("encryption-malformed", message)
        return method, cipher

    def _check_sizes(
        self, form: _HeaderForm, method: int, cipher: Cipher | None, sizes: tuple[int, int]
    ) -> None:
        limits, (size, compressed) = self._policy.limits, sizes
        length = compressed - (cipher.overhead if cipher else 0)
        if method == records.METHOD_STORED and size != length and (cipher or not form.is_encrypted):
            self._find("stored-size-mismatch", f"stored, {length} bytes for {size}")
        if size > limits.member_size:
            message = f"declares {size} bytes, the limit is {limits.member_size}"
            self._find("bomb-member-size", message)
        if method != records.METHOD_STORED and size > compressed * limits.ratio:
            code = "bomb-ratio" if method == records.METHOD_DEFLATE else "high-ratio"
            self._find(code, f"declares {size} bytes in {compressed}")

    def _refuse_signature(self) -> NoReturn:
        declared, read = self._location.entries, len(self._table.kinds)
        if read == declared:
            reject("cd-trailing-bytes", f"no header after the last of {declared}")
        reject("cd-bad-signature", f"header {read} of {declared} has no signature")

    def _check_names(self, base: int) -> None:
        """Check the names of the headers from `base` on, and the keys that members would have."""
        table = self._table
        max_bytes = self._policy.limits.key_bytes
        is_selective = self._wanted is not None or self._limit is not None
        keys: list[str] = []
        for place in range(base, len(table.kinds)):
            kind = table.kinds[place]
            if kind == members.FOLDER:
                self._take_directory(place)
                continue
            if is_selective and kind != members.PLACELESS and not self._selects(place):
                table.leave_out(place, max_bytes)
                continue
            if kind > members.FAILED:
                table.cut_path(place)
                continue
            key = self._key_of(table.path(place))
            if 4 * len(key) > max_bytes and (length := names.utf8_length(key)) > max_bytes:
                message = f"the key would have {length} bytes, the limit is {max_bytes}"
                self._fail(place, "key-too-long", message, members.NAMELESS)
                table.cut_path(place)
                continue
            if self._reserved is not None:
                folded = names.fold_key(key)
                if folded == self._reserved or folded.startswith(f"{self._reserved}/"):
                    message = "the run writes this key itself, when all went well: its marker"
                    self._fail(place, "name-reserved", message)
            keys.append(key)
            if is_selective:
                self._selected += table.kinds[place] == members.MEMBER
        self._folded.take(keys)
        self._names_size += table.names_size(base)
        if self._names_size > self._policy.limits.names_size:
            limit = self._policy.limits.names_size
            message = f"{self._names_size} bytes of names so far, the limit is {limit}"
            reject("names-too-large", message)

    def _selects(self, place: int) -> bool:
        """Return whether the options select a member, or one that failed."""
        if self._limit is not None and self._selected >= self._limit:
            return False
        return self._wanted is None or self._wanted(self._table.path(place))

    def _take_directory(self, place: int) -> None:
        table, path = self._table, self._table.path(place)
        mark = hash(path)
        if mark in self._directories:
            self._warnings["dup-directory"] += 1
        elif len(self._directories) < self._policy.limits.folder_memory // names.HASH_COST:
            self._directories.add(mark)
        if names.utf8_length(path) > self._policy.limits.key_bytes:
            table.kinds[place] = members.PLACELESS  # no key lies below it
            table.cut_path(place)

    def _fail(self, place: int, code: str, message: str, kind: int = members.FAILED) -> None:
        """Fail a member, unless it has failed already."""
        self._table.faults.setdefault(place, (code, message))
        self._table.kinds[place] = kind

    def finish(self) -> Reads[members.Index]:
        """Check that the directory ended after a header, and what needs every header.

        Reads local headers of an archive that `is_wrapped`.
        """
        self._check_end()
        if self._location.is_wrapped:
            yield from self._unwrap()
        self._resolve_repeated()
        clashes = self._warn_clashes()
        if clashes and self._folder_key is not None:
            self._judge_folders(clashes, self._folder_key)
        table, location = self._table, self._location
        order = table.settle(location.start)
        readable = self._members(order, (members.MEMBER, members.UNSELECTED))
        selected = readable
        if members.UNSELECTED in table.kinds:
            selected = self._members(order, (members.MEMBER,))
        failed = array("I", sorted(table.faults))
        return members.Index(
            table=table,
            members=readable,
            selected=selected,
            failures=members.Members(table, failed, table.refused),
            first=table.offsets[order[0]] if order else location.start,
            warnings=self._warnings,
            inflation=self._spread_spare(),
        )

    def _members(self, order: Sequence[int], kinds: tuple[int, ...]) -> members.Members[Member]:
        """Return the members of some kinds."""
        kind_of = self._table.kinds
        places = array("I", (place for place in order if kind_of[place] in kinds))
        return members.Members(self._table, places, self._table.member)

    def _spread_spare(self) -> float:
        """Return what the limit leaves for each compressed byte whose size may be larger."""
        spare = self._policy.limits.total_size - self._declared
        return spare / self._wrapped if self._wrapped else 0.0

    def _unwrap(self) -> Reads[None]:
        """Give members of 4 GiB or more their sizes, and those after them their offsets."""
        table = self._table
        long_members = yield from wrapped.find_long_members(table, self._location.start)
        for place in wrapped.stretch(table, long_members):
            self._wrapped += table.compressed_sizes[place]
            if table.faults.get(place, ("",))[0] == "bomb-ratio":  # by the lower bits
                del table.faults[place]
                table.kinds[place] = members.MEMBER
            limit = self._policy.limits.member_size
            if table.sizes[place] > limit:
                message = f"it has at least {table.sizes[place]} bytes, the limit is {limit}"
                self._fail(place, "bomb-member-size", message)
        self._declared = 0
        self._add_sizes(0)

    def _check_end(self) -> None:
        location, read, rest = self._location, len(self._table.kinds), len(self._rest)
        declared, at = location.entries, location.stop - rest
        if rest and read < declared:
            reject("cd-truncated", f"{read} of {declared} headers, then {rest} bytes", at)
        if rest:
            message = f"{rest} bytes after the last of {declared} headers"
            reject("cd-trailing-bytes", message, at)
        if read != declared:
            if location.is_zip64 or read % _COUNTS != declared:
                reject("count-mismatch", f"{declared} declared, {read} found", at)
            self._warnings["count-wrapped"] += 1
        if location.disks.is_split and self._read_here != location.entries_here:
            message = f"{location.entries_here} headers declared on the last disk, "
            reject("multi-disk", f"{message}{self._read_here} found", at)

    def _places(self, *kinds: int) -> Iterator[int]:
        """Yield the places of the headers that are of one of `kinds`."""
        return (place for place, kind in enumerate(self._table.kinds) if kind in kinds)

    def _resolve_repeated(self) -> None:
        """Separate duplicates from collisions among the keys whose folded hash is not unique."""
        kinds, path, key_of = self._table.kinds, self._table.path, self._key_of
        keyed = (
            (place, key_of(path(place)))
            for place, kind in enumerate(kinds)
            if kind <= members.FAILED
        )
        for places in self._folded.repeated(keyed):
            last: dict[str, int] = {}  # place of each key
            for place in places:
                key = key_of(path(place))
                if key in last:
                    self._resolve_duplicate(last[key], place, names.cut_name(key))
                last[key] = place
            first = key_of(path(places[0]))
            folded = names.fold_key(first)
            for key in last:
                if key != first and names.fold_key(key) == folded:
                    is_form = names.fold_form(first) == names.fold_form(key)
                    self._warnings["unicode-collision" if is_form else "case-collision"] += 1
                    break

    def _resolve_duplicate(self, earlier: int, place: int, key: str) -> None:
        message = f"members {earlier} and {place} are {key!r}"
        if not self._policy.lenient:
            offset = self._table.offsets[place]
            raise RejectedError(Finding("duplicate-name", message, offset, key))
        self._warnings["duplicate-name"] += 1
        self._table.drop(earlier)

    def _warn_clashes(self) -> set[int]:
        """Warn of keys that are also another key's folder, and of keys that S3 treats specially.

        Returns:
            The hashes of the folded keys that are also folders.
        """
        members_keys = self._keys(members.MEMBER, members.FAILED)
        above = (key.rpartition("/")[0] for key in members_keys)
        folders = chain(above, map(self._key_of, self._listed_folders()))
        memory = self._policy.limits.folder_memory
        clashes = set(self._folded.folders(folders, memory))
        for code, count in (
            ("file-dir-prefix-conflict", len(clashes)),
            ("name-s3-special", _S3_SPECIAL in self._folded),
        ):
            if count:
                self._warnings[code] += count
        self._folded, self._directories = names.FoldedKeys(), set()
        return clashes

    def _keys(self, *kinds: int) -> Iterator[str]:
        """Yield the keys of the members that are of one of `kinds`."""
        return map(self._key_of, map(self._table.path, self._places(*kinds)))

    def _listed_folders(self) -> Iterator[str]:
        """Yield the paths of the folders that the archive lists and the options select."""
        wanted = self._wanted
        for path in map(self._table.path, self._places(members.FOLDER)):
            if wanted is None or wanted(f"{path}/"):
                yield path

    def _judge_folders(self, clashes: set[int], folder_key: Callable[[str], str | None]) -> None:
        """Decide what becomes of members whose keys are also folders, where keys are paths.

        A member without content is the folder: some writers list folders so. One with content
        fails if members lie below it, because there can be only one of them: always itself.
        """
        table = self._table
        clashing: dict[int, int] = {}  # places by the hashes of their keys
        for place in self._places(members.MEMBER):
            key = self._key_of(table.path(place))
            if hash(names.fold_key(key)) in clashes:
                clashing[hash(key)] = place
        memory = self._policy.limits.folder_memory
        above = (key.rpartition("/")[0] for key in self._keys(members.MEMBER))
        needed = set(clashing).intersection(names.hash_folders(above, memory))
        listed = filter(None, map(folder_key, self._listed_folders()))
        folders = needed.union(names.hash_folders(listed, memory))
        for mark, place in clashing.items():
            if not table.sizes[place] and mark in folders:
                table.kinds[place] = members.FOLDER
            elif mark in needed:
                message = "other members lie below its name, and it has content"
                self._fail(place, "name-is-folder", message)
