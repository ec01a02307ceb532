"""Values of directory headers (APPNOTE 4.3.12): single headers, and columns of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, overload

from msgspec import Struct

from s3unzip.zip.directory.names import is_plain_name

if TYPE_CHECKING:
    from s3unzip.finding import Finding


class CentralHeader(NamedTuple):
    """One header; `note` is None for a plain header.

    `raw_name` is None where it is `path` in ASCII; `offset` is absolute.
    """

    index: int  # type: ignore[assignment]  # a field of this name hides tuple.index, as meant
    path: str
    raw_name: bytes | None
    offset: int
    compressed_size: int
    size: int
    crc32: int
    method: int
    flags: int
    mtime: int | None
    mode: int | None
    note: HeaderNote | None


class HeaderNote(Struct, frozen=True):
    """What is particular about a header.

    `finding` fails the member. `is_named` says whether its path is valid nevertheless.
    """

    is_directory: bool = False
    finding: Finding | None = None
    is_named: bool = True
    warnings: tuple[Finding, ...] = ()


class Columns(NamedTuple):
    """Headers field by field: one sequence for each field of `CentralHeader`."""

    index: Sequence[int]  # type: ignore[assignment]  # as in CentralHeader
    path: Sequence[str]
    raw_name: Sequence[bytes | None]
    offset: Sequence[int]
    compressed_size: Sequence[int]
    size: Sequence[int]
    crc32: Sequence[int]
    method: Sequence[int]
    flags: Sequence[int]
    mtime: Sequence[int | None]
    mode: Sequence[int | None]
    note: Sequence[HeaderNote | None]

    def header(self, place: int) -> CentralHeader:
        """Return one header."""
        return CentralHeader._make(column[place] for column in self)


class Headers(Sequence[CentralHeader]):
    """Headers in directory order, kept in columns; each is created on demand.

    Most headers are only used column by column, so creating them would cost as much as reading
    them.
    """

    def __init__(self) -> None:
        self.runs: list[Columns] = []

    def __len__(self) -> int:
        return sum(len(run.path) for run in self.runs)

    def __iter__(self) -> Iterator[CentralHeader]:
        return (run.header(place) for run in self.runs for place in range(len(run.path)))

    @overload
    def __getitem__(self, place: int) -> CentralHeader: ...
    @overload
    def __getitem__(self, place: slice) -> list[CentralHeader]: ...
    def __getitem__(self, place: int | slice) -> CentralHeader | list[CentralHeader]:
        return list(self)[place]


# The fixed fields of a header that the fast path reads; `reader` has their layout.
RawHeader = tuple[bytes, int, int, int, int, int, int, int, bytes, int]


class HeaderRun:
    """Consecutive headers: where each begins, and the fields of those that may be plain."""

    __slots__ = ("mtimes", "names", "odd", "rows", "starts", "stop")

    def __init__(self, start: int) -> None:
        self.starts: list[int] = []
        self.stop = start
        self.rows: list[RawHeader] = []
        self.names: list[bytes] = []
        self.mtimes: list[int | None] = []
        self.odd: list[int] = []

    def set_odd_names_apart(self) -> None:
        """Keep only rows whose names are plain; the others become odd."""
        keep = [is_plain_name(name) is not None for name in self.names]
        odd = set(self.odd)
        places = [place for place in range(len(self.starts)) if place not in odd]
        odd.update(place for place, kept in zip(places, keep, strict=True) if not kept)
        self.odd = sorted(odd)
        self.rows = list(compress(self.rows, keep))
        self.names = list(compress(self.names, keep))
        self.mtimes = list(compress(self.mtimes, keep))
