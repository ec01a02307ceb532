"""What reading a directory finds: members, members that fail, and warnings, all bounded."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, overload

from msgspec import Struct, field

from s3unzip.finding import Finding
from s3unzip.zip.directory.columns import FAILED
from s3unzip.zip.directory.names import cut_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from s3unzip.zip.directory.columns import Folders, MemberColumns, Members

_MAX_MESSAGES = 4096


class Failure(NamedTuple):
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


class Failures(Sequence[Failure]):
    """The members that failed, in directory order; each is created on demand.

    Most of their values are in the columns of the index. So a million failures cost about 30 MB,
    plus the text of different messages.
    """

    def __init__(
        self,
        columns: MemberColumns,
        codes: Iterable[str] = (),
        messages: Iterable[str] = (),
        places: Iterable[int] = (),
    ) -> None:
        self._columns = columns
        self._index: array[int] = array("I")
        self._codes = list(codes)
        self._messages = list(messages)
        self._known: dict[str, str] = {}
        self._places: array[int] = array("I", places)

    def add(self, index: int, code: str, message: str) -> None:
        """Record why the member at `index` of the directory fails; once for each member."""
        if len(self._known) < _MAX_MESSAGES:
            message = self._known.setdefault(message, message)
        else:
            message = self._known.get(message, message)
        self._index.append(index)
        self._codes.append(code)
        self._messages.append(message)

    def sort(self) -> None:
        """Sort them by directory order, after the columns have their final order."""
        if not self._index:
            return
        order = sorted(range(len(self._index)), key=self._index.__getitem__)
        self._codes = [self._codes[at] for at in order]
        self._messages = [self._messages[at] for at in order]
        columns = self._columns
        failed = [place for place, kind in enumerate(columns.kind) if kind == FAILED]
        failed.sort(key=columns.index.__getitem__)
        self._places = array("I", failed)
        self._index, self._known = array("I"), {}

    def only(self, wanted: Callable[[str], bool]) -> Failures:
        """Return the failures of members with a `wanted` path, after they are sorted."""
        fits = bytes(map(wanted, map(self._columns.path, self._places)))
        codes, messages = compress(self._codes, fits), compress(self._messages, fits)
        return Failures(self._columns, codes, messages, compress(self._places, fits))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Failure: ...
    @overload
    def __getitem__(self, at: slice) -> list[Failure]: ...
    def __getitem__(self, at: int | slice) -> Failure | list[Failure]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        columns, place = self._columns, self._places[at]
        path, offset = columns.path(place), columns.offset[place]
        return Failure(
            columns.index[place],
            path,
            columns.raw_name[place],
            offset,
            columns.compressed_size[place],
            columns.size[place],
            Finding(self._codes[at], self._messages[at], offset, cut_name(path)),
        )


class Warnings(Struct):
    """Warnings, all counted by code, the first `most` kept."""

    limit: int
    kept: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a warning, and keep it if there is room."""
        self.counts[finding.code] = self.counts.get(finding.code, 0) + 1
        if len(self.kept) < self.limit:
            self.kept.append(finding)


class Index(Struct, frozen=True):
    """The checked index of one archive; sizes in bytes.

    `members` are those to extract, by offset; `failures` those that cannot be,
    in directory order. `folders` yields the names of directory entries. `entries` counts every
    header, `directories` among them.
    `total_size` and `total_compressed` are of `members`. `first` is the offset of the first listed
    item: a local header, or the directory.
    """

    members: Members
    failures: Failures
    first: int
    folders: Folders
    directories: int
    entries: int
    total_size: int
    total_compressed: int
    warnings: Warnings
