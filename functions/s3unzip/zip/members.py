"""A compact index of an archive: members to extract, members that fail, and warnings.

Each header needs about 70 bytes of memory plus its name, and `Member` objects are created on
demand. Names that are not ASCII are stored as UTF-8, because a single character outside Latin-1
causes every character of a Python string to use two or four bytes. The number of a header is its
position in the directory, starting from 0.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import gt
from struct import Struct as PackedStruct
from typing import TypeVar, overload

from msgspec import Struct

from s3unzip.errors import Finding
from s3unzip.zip.names import cut_name, utf8_length
from s3unzip.zip.values import SHOWN_NAME, Cipher, Member, reject

M = TypeVar("M")

# The kinds of headers. Only SELECTED and FAILED members have a key to compare.
SELECTED = 0  # the member can be read, and the options select it
FAILED = 1
KEYLESS = 2  # a failed folder, or a failed member with a name that cannot be a key
FOLDER = 3
SKIPPED_FOLDER = 4  # not created: the folder is the destination itself, or its name is too long
UNSELECTED = 5  # the member can be read, but the options do not select it
DROPPED = 6  # the member failed and is not selected, or a later member has the same key
_FILE_KINDS = (SELECTED, FAILED, KEYLESS, UNSELECTED, DROPPED)

# The values of a header that only `HeaderTable.member` reads: the time, the CRC-32, the method, the
# mode (0 if unknown) and the index of the cipher in `_CIPHERS`.
_FACTS = PackedStruct("<qIHHB")
_NO_TIME = -(1 << 63)  # represents None
# The maximum number of failed members that keep a message. A message takes up to 500 bytes of
# memory, and all members of an archive can fail.
MAX_MESSAGES = 10_000
_CIPHERS = (None, Cipher(), *(Cipher(version, key) for version in (1, 2) for key in (1, 2, 3)))
_CIPHER_CODES = {cipher: code for code, cipher in enumerate(_CIPHERS)}


class HeaderTable:
    """The headers of one directory, by their numbers."""

    def __init__(self) -> None:
        self._paths: list[str | bytes] = []  # packed by `_pack_path`
        self._raw_names: list[bytes | None] = []
        self._facts = bytearray()  # packed by `_FACTS`
        self.flags: array[int] = array("I")
        self.offsets: array[int] = array("Q")
        # Until `set_stops` is called: a lower bound for the end of each member. After that, the
        # upper bound `Member.stop`.
        self.stops: array[int] = array("Q")
        self.compressed_sizes: array[int] = array("Q")
        self.sizes: array[int] = array("Q")
        self.kinds = bytearray()
        self.codes: list[str] = []  # why a member failed; "" for all others
        self._messages: dict[int, str] = {}  # at most `MAX_MESSAGES`

    def add(self, kind: int, member: Member) -> None:
        """Append the header of `member`; `member.stop` is a lower bound of the member's end."""
        self.kinds.append(kind)
        self.codes.append("")
        path = _pack_path(member.path)
        self._paths.append(path)
        # The path and the raw name are nearly always the same bytes, so one copy suffices.
        self._raw_names.append(path if path == member.raw_name else member.raw_name)
        self.offsets.append(member.offset)
        self.stops.append(member.stop)
        self.compressed_sizes.append(member.compressed_size)
        self.sizes.append(member.size)
        self.flags.append(member.flags)
        self._facts += _FACTS.pack(
            _NO_TIME if member.mtime is None else member.mtime,
            member.crc32,
            member.method,
            member.mode or 0,
            _CIPHER_CODES[member.cipher],
        )

    def path(self, number: int) -> str:
        """Return the path in the header with this number."""
        path = self._paths[number]
        if isinstance(path, str):  # an ASCII path (see `_pack_path`)
            return path
        return path.decode("utf-8", "surrogatepass")  # the reverse of `_pack_path`

    def shorten_name(self, number: int) -> None:
        """Keep only the beginning of a name that does not become a key, to save memory."""
        member = self.member(number)
        # The beginning of the declared name is enough for `wrapped` to recognise local headers.
        self._raw_names[number] = member.name_bytes[:SHOWN_NAME]
        self._paths[number] = _pack_path(cut_name(member.path))

    def leave_out(self, number: int, max_bytes: int) -> None:
        """Mark a member as not selected, or drop a failed member; shorten a long name.

        A name is long if it has more than `max_bytes` bytes.
        """
        if self.kinds[number] == SELECTED:
            self.kinds[number] = UNSELECTED
        else:  # the member has failed; it is not reported, because it is not selected
            self.drop(number)
        if utf8_length(self.path(number)) > max_bytes:
            self.shorten_name(number)

    def drop(self, number: int) -> None:
        """Mark a header as dropped: its member is neither extracted nor reported as failed."""
        self.kinds[number] = DROPPED
        self._messages.pop(number, None)

    def fail_header(self, number: int, code: str, message: str, kind: int = FAILED) -> None:
        """Fail a member for the given reason, which replaces any earlier reason."""
        self.kinds[number] = kind
        self.codes[number] = code
        if number in self._messages or len(self._messages) < MAX_MESSAGES:
            self._messages[number] = message

    def numbers(self, *kinds: int) -> Iterator[int]:
        """Yield the numbers of the headers whose kind is in `kinds`."""
        return (number for number, kind in enumerate(self.kinds) if kind in kinds)

    def paths(self, *kinds: int) -> Iterator[str]:
        """Yield the paths of the headers whose kind is in `kinds`."""
        return map(self.path, self.numbers(*kinds))

    def names_size(self, start: int) -> int:
        """Return the total size in bytes of the names in header `start` and all later headers."""
        paths = self._paths[start:]
        raw_names = self._raw_names[start:]
        size = sum(map(len, paths))  # a path that is stored as text is ASCII: one byte a character
        if any(raw_names):  # the names of most files have no separate raw name
            size += sum(
                len(raw)
                for path, raw in zip(paths, raw_names, strict=True)
                if raw is not None and raw is not path  # both names can be the same object
            )
        return size

    def member(self, number: int) -> Member:
        """Return the member for the header with this number."""
        mtime, crc32, method, mode, cipher = _FACTS.unpack_from(self._facts, number * _FACTS.size)
        return Member(
            index=number,
            path=self.path(number),
            raw_name=self._raw_names[number],
            offset=self.offsets[number],
            stop=self.stops[number],
            compressed_size=self.compressed_sizes[number],
            size=self.sizes[number],
            crc32=crc32,
            method=method,
            flags=self.flags[number],
            mtime=None if mtime == _NO_TIME else mtime,
            mode=mode or None,
            cipher=_CIPHERS[cipher],
        )

    def refused(self, number: int) -> tuple[Member, Finding]:
        """Return the member of header `number`, which has failed, and the reason."""
        member = self.member(number)
        message = self._messages.get(number, f"one of more than {MAX_MESSAGES:,} members that fail")
        return member, Finding(self.codes[number], message, member.offset, cut_name(member.path))

    def set_stops(self, directory_start: int) -> Sequence[int]:
        """Set an upper bound for the end of each member; return the header numbers, by offset.

        `stops` contains lower bounds before the call, and upper bounds after it. The upper bound is
        the start of the next local header or, for the last member, of the directory. Members that
        share bytes are refused.
        """
        offsets = self.offsets
        order: Sequence[int] = range(len(offsets))
        # The headers are nearly always in order already: no offset is greater than the next one.
        if any(map(gt, offsets, islice(offsets, 1, None))):
            order = array("I", sorted(order, key=offsets.__getitem__))
        bounds = array("Q", map(offsets.__getitem__, islice(order, 1, None)))
        if offsets:
            bounds.append(directory_start)
        # If a lower bound is above its upper bound, members share bytes.
        if any(map(gt, map(self.stops.__getitem__, order), bounds)):
            self._refuse_overlap(order, bounds)
        if isinstance(order, range):  # the headers are in order
            self.stops = bounds
        else:
            for number, bound in zip(order, bounds, strict=True):
                self.stops[number] = bound
        return order

    def _refuse_overlap(self, order: Sequence[int], bounds: array[int]) -> None:
        """Refuse members that share bytes; correct the `bounds` of members that are listed twice.

        `order` contains the header numbers, sorted by offset. The member of header ``order[at]``
        must end at or before ``bounds[at]``, the start of the next member or of the directory. A
        member that is listed twice does not overlap itself: the bound of its last header applies to
        all of its headers.
        """
        identities = ((self.offsets[number], self.path(number)) for number in order)
        first = 0
        for (offset, path), headers in groupby(identities):
            next_first = first + sum(1 for _ in headers)  # position of the next member in `order`
            bound = bounds[next_first - 1]  # the bound of the member's last header
            for at in range(first, next_first):
                bounds[at] = bound
                stop = self.stops[order[at]]
                if stop > bound:
                    # Another member follows, because `DirectoryReader` has refused any member that
                    # ends after the start of the directory.
                    next_path = cut_name(self.path(order[next_first]))
                    message = f"it ends at {stop} or later, but {next_path!r} begins at {bound}"
                    reject("overlap", message, offset, cut_name(path))
            first = next_first


def _pack_path(path: str) -> str | bytes:
    """Return a path as it is stored: as text if it is ASCII, and otherwise as UTF-8."""
    if path.isascii():  # as ASCII text, a path takes one byte for each character
        return path
    return path.encode("utf-8", "surrogatepass")  # a decoded name can contain lone surrogates


class Members(Sequence[M]):
    """A sequence of the results of `make` for the given header numbers, created on demand."""

    def __init__(
        self, table: HeaderTable, numbers: Sequence[int], make: Callable[[int], M]
    ) -> None:
        self._table = table
        self._numbers = numbers
        self._make = make

    def in_order(self) -> Members[M]:
        """Return the same members in the order of the directory."""
        return Members(self._table, array("I", sorted(self._numbers)), self._make)

    @property
    def size(self) -> int:
        """The total size of the members."""
        return sum(map(self._table.sizes.__getitem__, self._numbers))

    @property
    def compressed_size(self) -> int:
        """The total compressed size of the members."""
        return sum(map(self._table.compressed_sizes.__getitem__, self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[M]:
        return map(self._make, self._numbers)

    @overload
    def __getitem__(self, at: int) -> M: ...
    @overload
    def __getitem__(self, at: slice) -> Members[M]: ...
    def __getitem__(self, at: int | slice) -> M | Members[M]:
        if isinstance(at, slice):
            return Members(self._table, self._numbers[at], self._make)
        return self._make(self._numbers[at])


class Index(Struct, frozen=True):
    """The checked index of one archive.

    `members` contains the members that can be read, in the order of their offsets. `selected`
    contains the members to extract. `failures` contains the selected members that fail before their
    data is read, with the reasons, in directory order. A name that cannot be a key is shortened.
    `first` is the offset of the first local header, or of the directory if there are no local
    headers. `warnings` contains the number of warnings for each code. A member that `is_wrapped`
    can exceed its declared size by up to `inflation` bytes for each compressed byte.
    """

    table: HeaderTable
    members: Members[Member]
    selected: Members[Member]
    failures: Members[tuple[Member, Finding]]
    first: int
    warnings: Counter[str]
    inflation: float = 0.0

    @property
    def entries(self) -> int:
        """The number of headers, including the headers of directories."""
        return len(self.table.kinds)

    @property
    def directories(self) -> int:
        """The number of directories."""
        return self.table.kinds.count(FOLDER) + self.table.kinds.count(SKIPPED_FOLDER)

    @property
    def excluded(self) -> int:
        """The number of members that are not selected."""
        return self.entries - self.directories - len(self.selected) - len(self.failures)

    @property
    def paths(self) -> Iterator[str]:
        """The names of all members, including members that failed or are not selected."""
        return self.table.paths(*_FILE_KINDS)

    @property
    def folders(self) -> Iterator[str]:
        """The names of all folders that are created."""
        return self.table.paths(FOLDER)
