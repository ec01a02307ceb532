"""Looking into an archive without a run: its listing, and one member's bytes."""

from __future__ import annotations

from array import array
from heapq import merge
from itertools import islice
from operator import gt, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import MemberError, NotFoundError
from s3unzip.extraction.member import open_local
from s3unzip.planning.reading import read_archive
from s3unzip.planning.selection import selector
from s3unzip.stores.readahead import read_ahead
from s3unzip.zipformat import AFTER_LENGTH, MemberDecoder, close_member
from s3unzip.zipformat.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.context import Context
    from s3unzip.errors import Finding
    from s3unzip.model import Request
    from s3unzip.stores.ports import Buffer
    from s3unzip.zipformat import Failure, Member


class Listed(NamedTuple):
    """One line of a listing."""

    path: str
    size: int
    compressed_size: int
    method: int
    crc32: int
    mtime: int | None
    offset: int
    problem: Finding | None = None


class Listing(NamedTuple):
    """What an archive holds, by its directory; `members` in its order, to be read once."""

    members: Iterator[Listed]
    failed: int


def resolve_listing(request: Request, context: Context) -> Listing:
    """Read the directory of an archive, and nothing else.

    Raises:
        RejectedError: the archive is refused.
        StorageError: it cannot be read.
    """
    reading = read_archive(request, context, context.calls())
    wanted = selector(request.options)
    failures: Sequence[Failure] = reading.index.failures
    if wanted is not None:
        failures = [failure for failure in failures if wanted(failure.path)]
    return Listing(_list_in_order(reading.selected, failures), len(failures))


def _list_in_order(members: Sequence[Member], failures: Sequence[Failure]) -> Iterator[Listed]:
    """Yield members and failures in the order of the directory, without a copy of either."""
    index = array("I", (member.index for member in members))
    ordered: Iterator[Member] = iter(members)
    if any(map(gt, index, islice(index, 1, None))):
        places = array("I", sorted(range(len(index)), key=index.__getitem__))
        ordered = (members[place] for place in places)
    listed = (
        (m.index, Listed(m.path, m.size, m.compressed_size, m.method, m.crc32, m.mtime, m.offset))
        for m in ordered
    )
    refused = (
        (f.index, Listed(f.path, f.size, f.compressed_size, -1, 0, None, f.offset, f.finding))
        for f in failures
    )
    for _, entry in merge(listed, refused, key=itemgetter(0)):
        yield entry


def read_member(request: Request, name: str, context: Context) -> Iterator[Buffer]:
    """Yield the bytes of one member; an error after the last piece says that they are wrong.

    Raises:
        NotFoundError: there is no such member.
        MemberError: the member is bad.
        RejectedError: the archive is refused.
    """
    calls = context.calls()
    reading = read_archive(request, context, calls)
    for failure in reading.index.failures:
        if failure.path == name:
            raise MemberError(failure.finding)
    if not reading.selected:
        raise NotFoundError(f"{name!r}: no such member in {request.source}; see s3unzip ls")
    archive = context.stores.source(request.source).pinned(request.source, reading.pin)

    def read(want: ByteRange) -> bytes:
        return calls.run("get", lambda: archive.read(want))

    yield from _decode(reading.selected[0], read, context)


def _decode(
    member: Member, read: Callable[[ByteRange], bytes], context: Context
) -> Iterator[Buffer]:
    opened = open_local(member, read, context.policy)
    start = member.offset + opened.data_start
    stop = start + member.compressed_size
    decoder = MemberDecoder(member, context.policy, opened)
    tuning = context.tuning
    pieces = read_ahead(read, ByteRange(start, stop), tuning.read_piece, tuning.reads_ahead)
    yield from decoder.decode(pieces)
    end = min(member.stop, stop + AFTER_LENGTH)
    close_member(member, opened, read(ByteRange(stop, end)) if end > stop else b"", context.policy)
