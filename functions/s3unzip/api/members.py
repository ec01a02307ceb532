"""An opened archive, its members, and the content of each."""

from __future__ import annotations

from array import array
from heapq import merge
from itertools import islice
from operator import attrgetter, gt
from typing import TYPE_CHECKING

from s3unzip.errors import MemberError, NotFoundError
from s3unzip.extraction.member import open_local
from s3unzip.stores.readahead import read_ahead
from s3unzip.zip import AFTER_LENGTH, METHODS, ByteRange, Member, MemberDecoder, close_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from s3unzip.context import Context
    from s3unzip.finding import Finding
    from s3unzip.model import Location
    from s3unzip.planning.reading import Reading
    from s3unzip.zip import RefusedMember

WHOLE_BYTES = 1024**2  # a member up to this size is read with one request


class Archive:
    """The members of one version of an archive, in the order of its directory.

    Iterating reads nothing. `ArchiveMember.read` and `ArchiveMember.stream` read one member. If
    the archive is overwritten in the meantime, they raise `SourceChangedError`. Nothing stays
    open between two reads, so there is nothing to close.
    """

    def __init__(
        self,
        location: Location,
        reading: Reading,
        read: Callable[[ByteRange], bytes],
        context: Context,
    ) -> None:
        self._location = location
        self._reading = reading
        self._refused = reading.failures
        self._read = read
        self._context = context
        self._places: dict[str, int] | None = None

    def __repr__(self) -> str:
        return f"<Archive {self.source}: {len(self)} members>"

    def __len__(self) -> int:
        """Return the number of selected members; refused ones count, directories do not."""
        return len(self._reading.selected) + len(self._refused)

    def __iter__(self) -> Iterator[ArchiveMember]:
        """Yield the selected members, refused ones too, in the order of the directory."""
        good = (ArchiveMember(self._stream, member) for member in self._in_order())
        if not self._refused:
            return good
        refused = (ArchiveMember(self._stream, failure) for failure in self._refused)
        return merge(good, refused, key=attrgetter("index"))

    def member(self, name: str) -> ArchiveMember:
        """Return the member of that name.

        The first call notes the names of all members; the others are immediate.

        Raises:
            NotFoundError: no selected member has that name.
        """
        if self._places is None:
            self._places = {one.path: place for place, one in enumerate(self._reading.selected)}
        place = self._places.get(name)
        if place is not None:
            return ArchiveMember(self._stream, self._reading.selected[place])
        for failure in self._refused:
            if failure.path == name:
                return ArchiveMember(self._stream, failure)
        raise NotFoundError(f"{name!r}: no such member in {self.source}; see s3unzip ls")

    @property
    def source(self) -> str:
        """Where the archive is, without secrets."""
        return str(self._location.public)

    @property
    def size(self) -> int:
        """The archive's size in bytes."""
        return self._reading.pin.size

    @property
    def refused(self) -> int:
        """How many of the selected members have a `problem` and cannot be read."""
        return len(self._refused)

    @property
    def warnings(self) -> Mapping[str, int]:
        """What is odd but tolerated: code of the check to number of findings.

        In the directory, and in the members that were read so far.
        """
        return dict(self._reading.index.warnings.counts)

    def _in_order(self) -> Iterator[Member]:
        """Yield the good members in the order of the directory, without a copy of them."""
        members = self._reading.selected
        index = array("I", (member.index for member in members))
        if not any(map(gt, index, islice(index, 1, None))):
            return iter(members)
        places = array("I", sorted(range(len(index)), key=index.__getitem__))
        return (members[place] for place in places)

    def _stream(self, member: Member) -> Iterator[bytes]:
        policy, tuning = self._context.policy, self._context.tuning
        read = self._reader(member)
        opened = open_local(member, read, policy)
        self._note(opened.warnings)
        start = member.offset + opened.data_start
        stop = start + member.compressed_size
        decoder = MemberDecoder(member, policy, opened)
        pieces = read_ahead(read, ByteRange(start, stop), tuning.read_piece, tuning.reads_ahead)
        for piece in decoder.decode(pieces):
            yield piece if isinstance(piece, bytes) else bytes(piece)
        self._note(decoder.warnings)
        end = min(member.stop, stop + AFTER_LENGTH)
        after = read(ByteRange(stop, end)) if end > stop else b""
        self._note(close_member(member, opened, after, policy))

    def _note(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._reading.index.warnings.add(finding)

    def _reader(self, member: Member) -> Callable[[ByteRange], bytes]:
        """Return what reads the member's ranges; a small member is read with one request."""
        whole = ByteRange(member.offset, member.stop)
        if whole.length > WHOLE_BYTES:
            return self._read
        held = self._read(whole)
        return lambda want: held[want.start - whole.start : want.stop - whole.start]


class ArchiveMember:
    """One member of an `Archive`. Directories are no members."""

    __slots__ = ("_entry", "_stream")

    def __init__(
        self, stream: Callable[[Member], Iterator[bytes]], entry: Member | RefusedMember
    ) -> None:
        self._stream = stream
        self._entry = entry

    def __repr__(self) -> str:
        return f"<ArchiveMember {self.name!r}: {self.size} bytes>"

    def read(self) -> bytes:
        """Return the content, checked against its size and CRC-32.

        The content must fit into memory; `size` says how large it is.

        Raises:
            MemberError: the member is refused, is corrupt, or needs another password.
            SourceChangedError: the archive is no longer the one that was opened.
            StorageError: it cannot be read.
            ServiceFaultError: the store failed for now; a later call may succeed.
        """
        return b"".join(self.stream())

    def stream(self) -> Iterator[bytes]:
        """Yield the content in pieces of at most 1 MiB.

        The size and the CRC-32 are checked after the last piece. Use the content only when the
        iteration has ended without an error.

        Raises:
            MemberError, SourceChangedError, StorageError, ServiceFaultError: as `read`.
        """
        if not isinstance(self._entry, Member):
            raise MemberError(self._entry.finding)
        return self._stream(self._entry)

    @property
    def index(self) -> int:
        """Place in the central directory, from 0."""
        return self._entry.index

    @property
    def name(self) -> str:
        """The normalised path: segments joined by slashes, never absolute."""
        return self._entry.path

    @property
    def size(self) -> int:
        """Size of the content in bytes, as the directory declares it."""
        return self._entry.size

    @property
    def compressed_size(self) -> int:
        """Size in the archive in bytes, as the directory declares it."""
        return self._entry.compressed_size

    @property
    def offset(self) -> int:
        """Byte offset of the local header in the archive."""
        return self._entry.offset

    @property
    def method(self) -> str | None:
        """Short name of the compression method; None if the member is refused."""
        return METHODS[self._entry.method] if isinstance(self._entry, Member) else None

    @property
    def crc32(self) -> int | None:
        """CRC-32 of the content as the directory declares it; None if the member is refused."""
        return self._entry.crc32 if isinstance(self._entry, Member) else None

    @property
    def mtime(self) -> int | None:
        """Time of modification in Unix seconds; None if it is unknown."""
        return self._entry.mtime if isinstance(self._entry, Member) else None

    @property
    def mode(self) -> int | None:
        """Unix mode bits; None if they are unknown."""
        return self._entry.mode if isinstance(self._entry, Member) else None

    @property
    def problem(self) -> Finding | None:
        """Why the member cannot be read, by the directory alone; None: nothing is wrong so far."""
        return None if isinstance(self._entry, Member) else self._entry.finding
