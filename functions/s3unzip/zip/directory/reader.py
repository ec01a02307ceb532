"""Read the central directory from chunks cut anywhere: the loop over its headers.

Plain headers (nearly all of them) are read in runs, field by field over the whole run, because
reading a million headers decides how long a plan takes. `judging.read_header` reads every other
header and says what is particular. It also reads a whole run in which any check fails.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import repeat
from operator import le, mul
from struct import Struct
from typing import TYPE_CHECKING, NoReturn

from s3unzip.finding import Finding
from s3unzip.zip.directory import extras
from s3unzip.zip.directory.headers import CentralHeader, Columns, HeaderRun, Headers
from s3unzip.zip.directory.judging import read_header
from s3unzip.zip.directory.names import PLAIN_NAME
from s3unzip.zip.directory.records import (
    ATTRIBUTE_DIRECTORY,
    ATTRIBUTE_REPARSE_POINT,
    CENTRAL_LENGTH,
    CENTRAL_SIGNATURE,
    FLAG_UTF8,
    LOCAL_LENGTH,
    MAX_VERSION,
    METHOD_DEFLATE,
    METHOD_STORED,
    SENTINEL_32,
    UNIX_HOSTS,
)
from s3unzip.zip.errors import RejectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.zip.directory.locate import DirectoryLocation
    from s3unzip.zip.policy import Policy

# The parts of APPNOTE 4.3.12 that the fast path reads. An archive has few different heads
# (signature, versions, flags, method) and traits (disk, attributes), so each is checked once and
# then recognised by its bytes.
_ROW = Struct("<12sIIIIHHH8sI")
_HEAD = Struct("<4sHHHH")
_TRAITS = Struct("<HHI")
# Bits of file types other than regular files (0x8), of directories and reparse points.
_ODD_ATTRIBUTES = 0x7000_0000 | ATTRIBUTE_DIRECTORY | ATTRIBUTE_REPARSE_POINT
_MAX_KNOWN = 4096
_MAX_TIMES = 1 << 16

# Flag bits 1 and 2 (compression effort), 3 (descriptor) and 11 (UTF-8) need no special care.
_PLAIN_FLAGS = frozenset(a | b | c for a in (0, 2, 4, 6) for b in (0, 8) for c in (0, FLAG_UTF8))
_MEANT_EXTRAS = (extras.ZIP64, extras.EXTENDED_TIMESTAMP, extras.UNICODE_PATH)
# What Info-ZIP writes: an extended timestamp (5 bytes here), then Unix owners.
_INFO_ZIP = Struct("<5si4s")
_INFO_ZIP_LENGTH = 24
_INFO_ZIP_TAG, _INFO_ZIP_REST = b"UT\x05\x00\x03", b"ux\x0b\x00"

_RUN = 1024
_are_plain = re.compile(rb"(?:%s\n)++" % PLAIN_NAME).fullmatch


class DirectoryReader:
    """Read headers from the directory's bytes, in pieces of any size.

    Its memory is bounded by one header and one piece.
    """

    def __init__(self, location: DirectoryLocation, policy: Policy) -> None:
        self._location = location
        self._policy = policy
        self._rest = b""
        self._read = 0
        self._position = location.start  # of `_rest`
        self._here = location.disks.starts[location.disks.disk_of(location.stop)]
        self._read_here = 0  # headers that begin there or later
        # Known plain heads: method, flags, whether attributes hold a mode. Known plain traits: the
        # mode. Known extra blocks without meaning: their length.
        self._heads: dict[bytes, tuple[int, int, bool]] = {}
        self._modes: dict[bytes, int | None] = {}
        self._extras: dict[bytes, int] = {}
        self._times: dict[int, int | None] = {}

    def feed(self, chunk: bytes) -> Headers:
        """Return the headers that `chunk` completes.

        Raises:
            RejectedError: a bad signature, more members than the limit, or a
                member that cannot lie before the directory.
        """
        data = self._rest + chunk if self._rest else bytes(chunk)
        headers = Headers()
        at = 0
        while len(data) - at >= CENTRAL_LENGTH:
            room = min(_RUN, self._policy.limits.members - self._read)
            if room <= 0:
                message = f"the limit is {self._policy.limits.members}"
                raise RejectedError(Finding("too-many-entries", message))
            run = self._walk(data, at, room)
            if not run.starts:
                break
            headers.runs.append(self._read_run(data, run))
            self._read += len(run.starts)
            at = run.stop
            if self._location.disks.is_split:
                first = bisect_left(run.starts, self._here - self._position)
                self._read_here += len(run.starts) - first
        self._rest = data[at:]
        self._position += at
        return headers

    def finish(self) -> None:
        """Check that the directory ended after a header, and check the count.

        Raises:
            RejectedError: it did not.
        """
        declared, at = self._location.entries, self._location.stop - len(self._rest)
        if self._rest and self._read < declared:
            message = f"{self._read} of {declared} headers, then {len(self._rest)} bytes"
            raise RejectedError(Finding("cd-truncated", message, at))
        if self._rest:
            message = f"{len(self._rest)} bytes after the last of {declared} headers"
            raise RejectedError(Finding("cd-trailing-bytes", message, at))
        if self._read != declared:
            message = f"{declared} declared, {self._read} found"
            if self._read % 65536 == declared:
                message += " (the same modulo 65,536: a writer without ZIP64)"
            raise RejectedError(Finding("count-mismatch", message, at))
        here = self._location.entries_here
        if self._location.disks.is_split and self._read_here != here:
            message = f"{here} headers declared on the last disk, {self._read_here} found"
            raise RejectedError(Finding("multi-disk", message, at))

    # This code runs once for each header, so it avoids calls.
    def _walk(self, data: bytes, at: int, room: int) -> HeaderRun:
        """Split up to `room` whole headers from `at`, and separate plain from odd ones."""
        run, end = HeaderRun(at), len(data)
        unpack, heads, modes, extras = _ROW.unpack_from, self._heads, self._modes, self._extras
        starts, rows, names, mtimes = run.starts, run.rows, run.names, run.mtimes
        for place in range(room):
            if end - at < CENTRAL_LENGTH:
                break
            row = unpack(data, at)
            is_plain = row[0] in heads or self._learn_head(row[0])
            if not is_plain and row[0][:4] != CENTRAL_SIGNATURE:
                if place == 0:
                    self._refuse_signature()
                break
            extra_at = at + CENTRAL_LENGTH + row[5]
            extra_length = row[6]
            stop = extra_at + extra_length + row[7]
            if stop > end:
                break
            mtime = None
            if extra_length == _INFO_ZIP_LENGTH:
                tag, mtime, rest = _INFO_ZIP.unpack_from(data, extra_at)
                if tag != _INFO_ZIP_TAG or rest != _INFO_ZIP_REST:
                    mtime = None
                    is_plain = is_plain and self._learn_extra(data[extra_at:][:extra_length])
            elif extra_length and extras.get(data[extra_at : extra_at + 4]) != extra_length:
                is_plain = is_plain and self._learn_extra(data[extra_at : extra_at + extra_length])
            if is_plain and (row[8] in modes or self._learn_traits(row[8])):
                rows.append(row)
                names.append(data[at + CENTRAL_LENGTH : extra_at])
                mtimes.append(mtime)
            else:
                run.odd.append(place)
            starts.append(at)
            at = stop
        run.stop = at
        return run

    def _refuse_signature(self) -> NoReturn:
        declared = self._location.entries
        if self._read == declared:
            message = f"no header after the last of {declared}"
            raise RejectedError(Finding("cd-trailing-bytes", message))
        message = f"header {self._read} of {declared} has no signature"
        raise RejectedError(Finding("cd-bad-signature", message))

    def _learn_head(self, head: bytes) -> bool:
        """Check a head; remember it if it is plain: stored or deflated, no special flags."""
        signature, made_by, needed, flags, method = _HEAD.unpack(head)
        if (
            signature != CENTRAL_SIGNATURE
            or needed & 0xFF > MAX_VERSION
            or flags not in _PLAIN_FLAGS
            or method not in (METHOD_STORED, METHOD_DEFLATE)
            or len(self._heads) >= _MAX_KNOWN
        ):
            return False
        self._heads[head] = (method, flags, made_by >> 8 in UNIX_HOSTS)
        return True

    def _learn_traits(self, traits: bytes) -> bool:
        """Check disk and attributes, and remember them if plain: disk 0 and a regular file."""
        disk, _, attributes = _TRAITS.unpack(traits)
        if disk or attributes & _ODD_ATTRIBUTES or len(self._modes) >= _MAX_KNOWN:
            return False
        self._modes[traits] = attributes >> 16 or None
        return True

    def _learn_extra(self, block: bytes) -> bool:
        """Check an extra block and remember it if it is one field without meaning here."""
        field_id, length = int.from_bytes(block[:2], "little"), int.from_bytes(block[2:4], "little")
        if field_id in _MEANT_EXTRAS or length + 4 != len(block) or len(self._extras) >= _MAX_KNOWN:
            return False
        self._extras[block[:4]] = len(block)
        return True

    def _read_run(self, data: bytes, run: HeaderRun) -> Columns:
        """Return a run's headers, in order."""
        names = b"\n".join((*run.names, b""))
        if not _are_plain(names) or names.count(b"\n") != len(run.names):
            run.set_odd_names_apart()
            names = b"\n".join((*run.names, b""))
        stops = [*run.starts[1:], run.stop]
        plain = self._read_plain(run, names) if run.rows else None
        if plain and not run.odd:
            return plain
        following = zip(*plain, strict=True) if plain else iter(())
        headers, odd = [], set(run.odd if plain else range(len(stops)))
        for place, (start, stop) in enumerate(zip(run.starts, stops, strict=True)):
            if place in odd:
                header = read_header(
                    data[start:stop], self._read + place, self._location, self._policy
                )
            else:
                header = CentralHeader._make(next(following))
            headers.append(header)
        return Columns._make(zip(*headers, strict=True))

    def _read_plain(self, run: HeaderRun, names: bytes) -> Columns | None:
        """Return the headers of all rows, or None if any check fails."""
        heads, stamps, crcs, compressed, sizes, lengths, _, _, traits, offsets = zip(
            *run.rows, strict=True
        )
        limits, prefix = self._policy.limits, self._location.prefix
        methods, flags, is_unix = zip(*map(self._heads.__getitem__, heads), strict=True)
        if (
            max(sizes) > min(limits.member_size, SENTINEL_32 - 1)
            or max(compressed) >= SENTINEL_32
            or max(offsets) >= SENTINEL_32
            or (self._location.disks.is_split and max(offsets) >= self._location.disks.stop(0))
        ):
            return None
        if METHOD_STORED in methods:
            fits = all(
                size == length if method == METHOD_STORED else size <= length * limits.ratio
                for method, size, length in zip(methods, sizes, compressed, strict=True)
            )
        else:
            fits = all(map(le, sizes, map(mul, compressed, repeat(limits.ratio))))
        if not fits or not self._is_inside(offsets, compressed, lengths):
            return None
        modes: list[int | None] = list(map(self._modes.__getitem__, traits))
        if not all(is_unix):
            modes = [mode if unix else None for mode, unix in zip(modes, is_unix, strict=True)]
        if prefix:
            offsets = tuple(offset + prefix for offset in offsets)
        first = self._read
        indexes: Sequence[int] = range(first, first + len(heads))
        if run.odd:
            odd = set(run.odd)
            indexes = [first + place for place in range(len(run.starts)) if place not in odd]
        nothing = (None,) * len(heads)
        return Columns(
            indexes, names.decode("ascii").split("\n")[:-1], nothing, offsets, compressed, sizes,
            crcs, methods, flags, self._date(run.mtimes, stamps), modes, nothing,
        )  # fmt: skip

    def _is_inside(
        self, offsets: Sequence[int], compressed: Sequence[int], lengths: Sequence[int]
    ) -> bool:
        """Return whether every member ends before the directory begins."""
        room = self._location.start - self._location.prefix - LOCAL_LENGTH
        if max(offsets) + max(compressed) + max(lengths) <= room:
            return True
        return max(map(sum, zip(offsets, compressed, lengths, strict=True))) <= room

    def _date(self, mtimes: list[int | None], stamps: Sequence[int]) -> list[int | None]:
        """Fill in DOS times where there is no extended timestamp."""
        if None not in mtimes:
            return mtimes
        times = self._times
        if len(times) > _MAX_TIMES:
            times.clear()
        for stamp in set(stamps).difference(times):
            times[stamp] = extras.read_dos_time(stamp)
        dos = map(times.__getitem__, stamps)
        return [
            stamped if mtime is None else mtime for mtime, stamped in zip(mtimes, dos, strict=True)
        ]
