"""Members in columns: one array for each header field; a `Member` is created on demand.

A million members then cost about 150 MB instead of 450. Names that are not ASCII are kept as UTF-8,
because one character outside Latin-1 makes every character of a Python string take two or four
bytes. `index` checks the values.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from heapq import nsmallest
from itertools import compress, islice
from operator import add, le
from struct import pack
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from s3unzip.zip.directory.names import cut_name
from s3unzip.zip.directory.records import LOCAL_LENGTH
from s3unzip.zip.member import Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from s3unzip.zip.directory.headers import Columns

T = TypeVar("T")

_UNKNOWN_TIME = -(1 << 63)
_UNKNOWN_MODE = -1


# What becomes of a header.
DIRECTORY, MEMBER, FAILED = 0, 1, 2
LONG_DIRECTORY = 3  # its name is longer than a key may be, and is not kept whole
_IS_MEMBER = bytes(kind == MEMBER for kind in range(256))  # for bytes.translate


class MemberColumns:
    """One array for each header field, in directory order until sorted."""

    def __init__(self) -> None:
        self.index: array[int] = array("I")
        self._paths: list[str | bytes] = []  # UTF-8 where it is not ASCII
        self._all_ascii = True
        self.raw_name: list[bytes | None] = []
        self.offset: array[int] = array("Q")
        self.end: array[int] = array("Q")
        self.stop: array[int] = array("Q")
        self.compressed_size: array[int] = array("Q")
        self.size: array[int] = array("Q")
        self.crc32: array[int] = array("I")
        self.method: array[int] = array("H")
        self.flags: array[int] = array("H")
        self.mtime: array[int] = array("q")
        self.mode: array[int] = array("i")
        self.kind = bytearray()
        self.lacks_mtime = False
        self.lacks_mode = False

    def take(self, run: Columns) -> None:
        """Append headers."""
        self.index.extend(run.index)
        self._take_names(run)
        self.offset.extend(run.offset)
        self.compressed_size.extend(run.compressed_size)
        self.size.extend(run.size)
        self.crc32.extend(run.crc32)
        # Extending a 16-bit array item by item is three times as slow as packing.
        self.method.frombytes(pack(f"{len(run.method)}H", *run.method))
        self.flags.frombytes(pack(f"{len(run.flags)}H", *run.flags))
        mtime, mode = run.mtime, run.mode
        self.lacks_mtime |= None in mtime
        self.mtime.extend([_UNKNOWN_TIME if value is None else value for value in mtime])
        self.lacks_mode |= None in mode
        modes = [_UNKNOWN_MODE if value is None else value for value in mode]
        self.mode.frombytes(pack(f"{len(modes)}i", *modes))
        names = map(_choose, run.raw_name, run.path) if any(run.raw_name) else run.path
        lengths = map(LOCAL_LENGTH.__add__, map(len, names))
        self.end.extend(map(add, map(add, run.offset, run.compressed_size), lengths))

    def _take_names(self, run: Columns) -> None:
        if not any(run.raw_name):  # then all paths are ASCII
            self._paths.extend(run.path)
            self.raw_name.extend(run.raw_name)
            return
        for path, raw in zip(run.path, run.raw_name, strict=True):
            kept = path if path.isascii() else path.encode("utf-8", "surrogatepass")
            self._all_ascii &= isinstance(kept, str)
            # Nearly always a name's bytes are its path in UTF-8: then they are kept once.
            self.raw_name.append(kept if raw == kept and isinstance(kept, bytes) else raw)
            self._paths.append(kept)

    def path(self, place: int) -> str:
        """Return one member's path."""
        return _text(self._paths[place])

    def paths(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """Yield the paths of the members from `start` to before `stop`."""
        paths = _between(self._paths, start, stop)
        return cast("Iterator[str]", paths) if self._all_ascii else map(_text, paths)

    def cut_path(self, place: int) -> None:
        """Keep only the beginning of a name that will not become a key."""
        path = self.path(place)
        cut = cut_name(path)
        if cut != path:
            self._paths[place] = cut if cut.isascii() else cut.encode("utf-8", "surrogatepass")
        self.raw_name[place] = None

    def names_size(self, start: int) -> int:
        """Return how many bytes the kept names from `start` on have, in UTF-8."""
        paths, raw_names = self._paths[start:], self.raw_name[start:]
        size = sum(map(len, paths))
        if not any(raw_names):
            return size
        pairs = zip(paths, raw_names, strict=True)
        return size + sum(len(raw) for path, raw in pairs if raw is not None and raw is not path)

    def sort(self) -> None:
        """Sort everything by local header offset; most archives are sorted already."""
        offsets = self.offset
        if all(map(le, offsets, islice(offsets, 1, None))):
            return
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        for name, column in vars(self).items():
            if isinstance(column, bool) or not column:
                continue
            taken = map(column.__getitem__, order)
            if isinstance(column, array):
                setattr(self, name, array(column.typecode, taken))
            else:
                setattr(self, name, type(column)(taken))


class Members(Sequence[Member]):
    """The members to extract, by local header offset; each is created on demand.

    `chosen` has a byte for each header in `columns`, 1 if its member is here; None: all members
    are. So a part of a million members takes 5 MB, and not an object for each.
    """

    def __init__(self, columns: MemberColumns, chosen: bytes | bytearray | None = None) -> None:
        self._columns = columns
        chosen = columns.kind.translate(_IS_MEMBER) if chosen is None else chosen
        self._chosen = chosen if 0 in chosen else None
        self._places: Sequence[int] = range(len(columns.kind))
        if self._chosen is not None:
            self._places = array("I", compress(self._places, chosen))

    def only(self, wanted: Callable[[str], bool]) -> Members:
        """Return the members with a `wanted` path."""
        fits = map(wanted, map(self._columns.path, self._places))
        return self._choose(compress(self._places, fits))

    def first(self, count: int) -> Members:
        """Return the first members in the order of the directory."""
        if count >= len(self):
            return self
        return self._choose(nsmallest(count, self._places, key=self._columns.index.__getitem__))

    def _choose(self, places: Iterable[int]) -> Members:
        chosen = bytearray(len(self._columns.kind))
        for place in places:
            chosen[place] = 1
        return Members(self._columns, chosen)

    @property
    def size(self) -> int:
        """The sum of the members' sizes."""
        return self._sum(self._columns.size)

    @property
    def compressed_size(self) -> int:
        """The sum of the members' compressed sizes."""
        return self._sum(self._columns.compressed_size)

    def _sum(self, column: array[int]) -> int:
        return sum(column if self._chosen is None else compress(column, self._chosen))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Member: ...
    @overload
    def __getitem__(self, place: slice) -> list[Member]: ...
    def __getitem__(self, place: int | slice) -> Member | list[Member]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        at = self._places[place]
        return next(self._make(at, at + 1))

    def __iter__(self) -> Iterator[Member]:
        made = self._make(0, len(self._columns.kind))
        return made if self._chosen is None else compress(made, self._chosen)

    def _make(self, start: int, stop: int) -> Iterator[Member]:
        rows = self._zip(start, stop, self._columns.paths(start, stop))
        return map(partial(tuple.__new__, Member), rows)

    def _zip(self, start: int, stop: int, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        columns = self._columns
        mtime: Iterable[int | None] = _between(columns.mtime, start, stop)
        mode: Iterable[int | None] = _between(columns.mode, start, stop)
        if columns.lacks_mtime:
            mtime = (None if value == _UNKNOWN_TIME else value for value in mtime)
        if columns.lacks_mode:
            mode = (None if value == _UNKNOWN_MODE else value for value in mode)
        return zip(
            _between(columns.index, start, stop),
            names,
            _between(columns.raw_name, start, stop),
            _between(columns.offset, start, stop),
            _between(columns.stop, start, stop),
            _between(columns.compressed_size, start, stop),
            _between(columns.size, start, stop),
            _between(columns.crc32, start, stop),
            _between(columns.method, start, stop),
            _between(columns.flags, start, stop),
            mtime,
            mode,
            strict=True,
        )


class Folders:
    """The names of the directory entries, each created on demand.

    An entry whose name is longer than a key may be is left out.
    """

    def __init__(self, columns: MemberColumns) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[str]:
        if DIRECTORY not in self._columns.kind:
            return iter(())
        return compress(self._columns.paths(), map(DIRECTORY.__eq__, self._columns.kind))


def _between(column: Sequence[T], start: int, stop: int | None) -> Iterator[T]:
    """Yield part of a column: without a copy from the beginning, without skipping otherwise."""
    return islice(column, stop) if start == 0 else iter(column[start:stop])


def _text(path: str | bytes) -> str:
    return path if isinstance(path, str) else path.decode("utf-8", "surrogatepass")


def _choose(raw_name: bytes | None, path: str) -> bytes | str:
    return path if raw_name is None else raw_name
