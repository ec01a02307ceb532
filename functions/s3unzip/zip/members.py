"""What a directory holds: members to extract, members that fail, warnings, all in little memory.

A header takes about 70 bytes and its name; a `Member` is created on demand. Names that are not
ASCII are kept as UTF-8, because one character outside Latin-1 makes every character of a Python
string take two or four bytes.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import gt
from typing import NamedTuple, TypeVar, overload

from msgspec import Struct

from s3unzip.finding import Finding, RejectedError
from s3unzip.zip.names import cut_name, utf8_length
from s3unzip.zip.values import FLAG_WRAPPED, Cipher, Member

M = TypeVar("M")

# What becomes of a header. The first two have a key, and the keys are compared with each other.
MEMBER, FAILED = 0, 1
NAMELESS = 2  # it failed, and its name can be no key
FOLDER = 3
PLACELESS = 4  # a folder that is not made: the destination itself, or its name is too long for keys
UNSELECTED = 5  # it can be read, and the options do not select it
DROPPED = 6  # it failed and is not selected, or a later member has its key

_ROW = struct.Struct("<qIHIHB")  # mtime, CRC-32, method, flags, mode, cipher
_NO_TIME = -(1 << 63)
_CIPHERS = (None, Cipher(), *(Cipher(version, key) for version in (1, 2) for key in (1, 2, 3)))
_CIPHER_CODES = {cipher: code for code, cipher in enumerate(_CIPHERS)}


class RefusedMember(NamedTuple):
    """A member that fails by the index alone; its name is cut if it cannot be a key."""

    member: Member
    finding: Finding


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
        self.faults: dict[int, tuple[str, str]] = {}  # code and message of those that failed

    def add(
        self,
        kind: int,
        path: str,
        raw_name: bytes | None,
        spot: tuple[int, int, int, int],
        facts: tuple[int | None, int, int, int, int, Cipher | None],
    ) -> None:
        """Append a header.

        `spot` is its offset, least end, compressed size and size; `facts` are its mtime, CRC-32,
        method, flags, mode (0: unknown) and cipher.
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

    def lengthen(self, place: int, longer: int) -> None:
        """Add to the compressed size of a member whose headers have only the lower 32 bits."""
        self.compressed_sizes[place] += longer
        time, crc32, method, flags, mode, cipher = _ROW.unpack_from(self._rows, place * _ROW.size)
        flags |= FLAG_WRAPPED
        _ROW.pack_into(self._rows, place * _ROW.size, time, crc32, method, flags, mode, cipher)

    def path(self, place: int) -> str:
        """Return one header's path."""
        path = self._paths[place]
        return path if isinstance(path, str) else path.decode("utf-8", "surrogatepass")

    def known_name(self, place: int) -> bytes:
        """Return the name as the archive has it, empty if it is not kept."""
        raw_name = self._raw_names[place]
        if raw_name is not None:
            return raw_name
        is_kept = self.kinds[place] in (MEMBER, FAILED, FOLDER)
        return self.path(place).encode("ascii") if is_kept else b""

    def cut_path(self, place: int) -> None:
        """Keep only the beginning of a name that will not become a key."""
        cut = cut_name(self.path(place))
        self._paths[place] = cut if cut.isascii() else cut.encode("utf-8", "surrogatepass")
        self._raw_names[place] = None

    def leave_out(self, place: int, max_bytes: int) -> None:
        """Note that a header is not selected; keep at most `max_bytes` of its name."""
        if self.kinds[place] == MEMBER:
            self.kinds[place] = UNSELECTED
        else:
            self.drop(place)
        if utf8_length(self.path(place)) > max_bytes:
            self.cut_path(place)

    def drop(self, place: int) -> None:
        """Note that a header's member is neither extracted nor failed."""
        self.kinds[place] = DROPPED
        self.faults.pop(place, None)

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

    def refused(self, place: int) -> RefusedMember:
        """Return the member of the header at `place`, and why it failed."""
        member, (code, message) = self.member(place), self.faults[place]
        return RefusedMember(member, Finding(code, message, member.offset, cut_name(member.path)))

    def settle(self, start: int) -> Sequence[int]:
        """Bound each member, before a directory at `start`; return all places by offset."""
        offsets, stops = self.offsets, self.stops
        order: Sequence[int] = range(len(offsets))
        if any(map(gt, offsets, islice(offsets, 1, None))):
            order = array("I", sorted(order, key=offsets.__getitem__))
        bounds = array("Q", map(offsets.__getitem__, islice(order, 1, None)))
        if offsets:
            bounds.append(start)
        if any(map(gt, map(stops.__getitem__, order), bounds)):
            self._judge_overlap(order, bounds)
        if isinstance(order, range):
            self.stops = bounds
        else:
            for place, bound in zip(order, bounds, strict=True):
                stops[place] = bound
        return order

    def _judge_overlap(self, order: Sequence[int], bounds: array[int]) -> None:
        """Refuse members that share bytes; a header that is listed twice ends at one bound."""
        offsets = self.offsets
        for at in range(len(order) - 2, -1, -1):
            place, following = order[at : at + 2]
            is_same = offsets[place] == offsets[following]
            if is_same and self.path(place) == self.path(following):
                bounds[at] = bounds[at + 1]
        for at, bound in enumerate(bounds):
            place = order[at]
            if self.stops[place] > bound:
                path = cut_name(self.path(place))
                next_path = cut_name(self.path(order[at + 1]))
                message = (
                    f"it ends at {self.stops[place]} or later, {next_path!r} begins at {bound}"
                )
                raise RejectedError(Finding("overlap", message, offsets[place], path))


class Members(Sequence[M]):
    """What `make` returns for the headers at some places of a table; created on demand."""

    def __init__(self, table: HeaderTable, places: Sequence[int], make: Callable[[int], M]) -> None:
        self._table, self._places, self._make = table, places, make

    def _at(self, places: Sequence[int]) -> Members[M]:
        return Members(self._table, places, self._make)

    def in_order(self) -> Members[M]:
        """Return them in the order of the directory."""
        return self._at(array("I", sorted(self._places)))

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

    def __iter__(self) -> Iterator[M]:
        return map(self._make, self._places)

    @overload
    def __getitem__(self, at: int) -> M: ...
    @overload
    def __getitem__(self, at: slice) -> Members[M]: ...
    def __getitem__(self, at: int | slice) -> M | Members[M]:
        if isinstance(at, slice):
            return self._at(self._places[at])
        return self._make(self._places[at])


class Index(Struct, frozen=True):
    """The checked index of one archive.

    `members` are those that can be read, by offset; `selected` those of them to extract; `failures`
    those of the selected ones that fail by the index alone, in directory order. `first` is the
    offset of the first listed item: a local header, or the directory. `warnings` are counted by
    their codes. `inflation` is how many bytes more than declared each compressed byte may stand
    for of a member that `is_wrapped`.
    """

    table: HeaderTable
    members: Members[Member]
    selected: Members[Member]
    failures: Members[RefusedMember]
    first: int
    warnings: Counter[str]
    inflation: float = 0.0

    @property
    def entries(self) -> int:
        """The number of headers, those of directories among them."""
        return len(self.table.kinds)

    @property
    def directories(self) -> int:
        """The number of directories."""
        return self.table.kinds.count(FOLDER) + self.table.kinds.count(PLACELESS)

    @property
    def excluded(self) -> int:
        """The number of members that are not selected."""
        return self.entries - self.directories - len(self.selected) - len(self.failures)

    @property
    def paths(self) -> Iterator[str]:
        """The names of all members, also of those that failed or are not selected."""
        kinds = enumerate(self.table.kinds)
        return (self.table.path(place) for place, kind in kinds if kind not in (FOLDER, PLACELESS))

    @property
    def folders(self) -> Iterator[str]:
        """The names of directories; those that are not made are left out."""
        kinds = enumerate(self.table.kinds)
        return (self.table.path(place) for place, kind in kinds if kind == FOLDER)
