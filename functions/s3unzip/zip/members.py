"""What a directory holds: members to extract, members that fail, warnings, all in little memory.

A header takes about 70 bytes and its name; a `Member` is created on demand. Names that are not
ASCII are kept as UTF-8, because one character outside Latin-1 makes every character of a Python
string take two or four bytes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from operator import gt, itemgetter
from typing import NamedTuple, overload

from msgspec import Struct, field

from s3unzip.finding import Finding, RejectedError
from s3unzip.zip.names import cut_name
from s3unzip.zip.values import Cipher, Member

# What becomes of a header. The first two have a key, and the keys are compared with each other.
MEMBER, FAILED = 0, 1
NAMELESS = 2  # it failed, and its name can be no key
FOLDER = 3
LONG_FOLDER = 4  # its name is longer than a key may be, and is not kept whole

_ROW = struct.Struct("<qIHIHB")  # mtime, CRC-32, method, flags, mode, cipher
_NO_TIME = -(1 << 63)
_CIPHERS = (None, Cipher(), *(Cipher(version, key) for version in (1, 2) for key in (1, 2, 3)))
_CIPHER_CODES = {cipher: code for code, cipher in enumerate(_CIPHERS)}


class HeaderTable:
    """The headers of one directory. The place of a header is its number in the directory."""

    def __init__(self) -> None:
        self._paths: list[str | bytes] = []  # UTF-8 where it is not ASCII
        self._raw_names: list[bytes | None] = []
        self._rows = bytearray()
        self.offsets: array[int] = array("Q")
        self.stops: array[int] = array("Q")  # at first where each header's member ends at least
        self.compressed_sizes: array[int] = array("Q")
        self.sizes: array[int] = array("Q")
        self.kinds = bytearray()

    def add(
        self,
        kind: int,
        path: str,
        raw_name: bytes | None,
        spot: tuple[int, int, int, int],
        facts: tuple[int | None, int, int, int, int, Cipher | None],
    ) -> None:
        """Append a header.

        Args:
            kind: what becomes of it.
            path: see `Member`.
            raw_name: see `Member`.
            spot: its offset, least end, compressed size and size.
            facts: its mtime, CRC-32, method, flags, mode (0: unknown) and cipher.
        """
        self.kinds.append(kind)
        if path.isascii():
            self._paths.append(path)
            self._raw_names.append(raw_name)
        else:  # nearly always a name's bytes are its path in UTF-8: then they are kept once
            kept = path.encode("utf-8", "surrogatepass")
            self._paths.append(kept)
            self._raw_names.append(kept if raw_name == kept else raw_name)
        self.offsets.append(spot[0])
        self.stops.append(spot[1])
        self.compressed_sizes.append(spot[2])
        self.sizes.append(spot[3])
        mtime, crc32, method, flags, mode, cipher = facts
        time = _NO_TIME if mtime is None else mtime
        self._rows += _ROW.pack(time, crc32, method, flags, mode, _CIPHER_CODES[cipher])

    def path(self, place: int) -> str:
        """Return one header's path."""
        path = self._paths[place]
        return path if isinstance(path, str) else path.decode("utf-8", "surrogatepass")

    def raw_name(self, place: int) -> bytes | None:
        """Return one header's name as declared, None where it is the path in ASCII."""
        return self._raw_names[place]

    def cut_path(self, place: int) -> None:
        """Keep only the beginning of a name that will not become a key."""
        cut = cut_name(self.path(place))
        self._paths[place] = cut if cut.isascii() else cut.encode("utf-8", "surrogatepass")
        self._raw_names[place] = None

    def names_size(self, start: int) -> int:
        """Return how many bytes the kept names from `start` on have, in UTF-8."""
        paths, raw_names = self._paths[start:], self._raw_names[start:]
        size = sum(map(len, paths))
        if any(raw_names):
            pairs = zip(paths, raw_names, strict=True)
            size += sum(len(raw) for path, raw in pairs if raw is not None and raw is not path)
        return size

    def member(self, place: int) -> Member:
        """Return the member of the header at `place`."""
        time, crc32, method, flags, mode, cipher = _ROW.unpack_from(self._rows, place * _ROW.size)
        return Member(
            place,
            self.path(place),
            self._raw_names[place],
            self.offsets[place],
            self.stops[place],
            self.compressed_sizes[place],
            self.sizes[place],
            crc32,
            method,
            flags,
            None if time == _NO_TIME else time,
            mode or None,
            _CIPHERS[cipher],
        )

    def settle(self, start: int) -> Sequence[int]:
        """Set where each member must stop; return all places by offset.

        Args:
            start: of the directory.
        """
        offsets, stops = self.offsets, self.stops
        order: Sequence[int] = range(len(offsets))
        if any(map(gt, offsets, islice(offsets, 1, None))):
            order = array("I", sorted(order, key=offsets.__getitem__))
        bounds = array("Q", map(offsets.__getitem__, islice(order, 1, None)))
        if offsets:
            bounds.append(start)
        if any(map(gt, map(stops.__getitem__, order), bounds)):
            self._refuse_overlap(order)
        self.stops = bounds
        if not isinstance(order, range):
            for place, bound in zip(order, bounds, strict=True):
                stops[place] = bound
            self.stops = stops
        return order

    def _refuse_overlap(self, order: Sequence[int]) -> None:
        for place, following in zip(order, islice(order, 1, None), strict=False):
            end, begin = self.stops[place], self.offsets[following]
            if end > begin:
                path, other = cut_name(self.path(place)), cut_name(self.path(following))
                message = f"it ends at {end} or later, {other!r} begins at {begin}"
                raise RejectedError(Finding("overlap", message, self.offsets[place], path))


class Members(Sequence[Member]):
    """The members at some places of a table, by local header offset; each is created on demand."""

    def __init__(self, table: HeaderTable, places: Sequence[int]) -> None:
        self._table, self._places = table, places

    def only(self, wanted: Callable[[str], bool]) -> Members:
        """Return the members with a `wanted` path."""
        path = self._table.path
        return Members(self._table, array("I", (at for at in self._places if wanted(path(at)))))

    def first(self, count: int) -> Members:
        """Return the first members in the order of the directory."""
        last = max(nsmallest(count, self._places), default=-1)
        return Members(self._table, array("I", (at for at in self._places if at <= last)))

    def in_order(self) -> Members:
        """Return the members in the order of the directory."""
        return Members(self._table, array("I", sorted(self._places)))

    @property
    def size(self) -> int:
        """The sum of the members' sizes."""
        return sum(map(self._table.sizes.__getitem__, self._places))

    @property
    def compressed_size(self) -> int:
        """The sum of the members' compressed sizes."""
        return sum(map(self._table.compressed_sizes.__getitem__, self._places))

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Member]:
        return map(self._table.member, self._places)

    @overload
    def __getitem__(self, at: int) -> Member: ...
    @overload
    def __getitem__(self, at: slice) -> Members: ...
    def __getitem__(self, at: int | slice) -> Member | Members:
        if isinstance(at, slice):
            return Members(self._table, self._places[at])
        return self._table.member(self._places[at])


class RefusedMember(NamedTuple):
    """A member that fails by the index alone.

    `path` is shortened by `names.cut_name` if it cannot be a key.
    """

    index: int  # type: ignore[assignment]  # a field of this name hides tuple.index, as meant
    path: str
    raw_name: bytes | None
    offset: int
    compressed_size: int
    size: int
    finding: Finding


class RefusedMembers(Sequence[RefusedMember]):
    """The members that failed, in directory order; each is created on demand.

    Args:
        table: the headers.
        found: place of each failed header, code and message.
    """

    def __init__(self, table: HeaderTable, found: list[tuple[int, str, str]]) -> None:
        self._table, self._found = table, found

    def only(self, wanted: Callable[[str], bool]) -> RefusedMembers:
        """Return the failures of members with a `wanted` path."""
        path = self._table.path
        return RefusedMembers(self._table, [one for one in self._found if wanted(path(one[0]))])

    def add(self, place: int, code: str, message: str) -> None:
        """Record why a header fails; once for each."""
        self._found.append((place, code, message))

    def sort(self) -> None:
        """Sort them by directory order."""
        self._found.sort(key=itemgetter(0))

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, at: int) -> RefusedMember: ...
    @overload
    def __getitem__(self, at: slice) -> RefusedMembers: ...
    def __getitem__(self, at: int | slice) -> RefusedMember | RefusedMembers:
        if isinstance(at, slice):
            return RefusedMembers(self._table, self._found[at])
        table, (place, code, message) = self._table, self._found[at]
        path, offset = table.path(place), table.offsets[place]
        sizes = table.compressed_sizes[place], table.sizes[place]
        finding = Finding(code, message, offset, cut_name(path))
        return RefusedMember(place, path, table.raw_name(place), offset, *sizes, finding)


class Warnings(Struct):
    """Warnings, all counted by code, the first `limit` kept."""

    limit: int
    kept: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a warning, and keep it if there is room."""
        self.counts[finding.code] = self.counts.get(finding.code, 0) + 1
        if len(self.kept) < self.limit:
            self.kept.append(finding)


class Index(Struct, frozen=True):
    """The checked index of one archive.

    `members` are those to extract, by offset; `failures` those that cannot be,
    in directory order. `first` is the offset of the first listed item: a local header, or the
    directory.
    """

    table: HeaderTable
    members: Members
    failures: RefusedMembers
    first: int
    warnings: Warnings

    @property
    def entries(self) -> int:
        """The number of headers, those of directories among them."""
        return len(self.table.kinds)

    @property
    def directories(self) -> int:
        """The number of directories."""
        return self.table.kinds.count(FOLDER) + self.table.kinds.count(LONG_FOLDER)

    @property
    def folders(self) -> Iterator[str]:
        """The names of directories; those longer than a key may be are left out."""
        kinds = enumerate(self.table.kinds)
        return (self.table.path(place) for place, kind in kinds if kind == FOLDER)
