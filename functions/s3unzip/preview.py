"""Looking into an archive without a run: its listing, and the bytes of members."""

from __future__ import annotations

from array import array
from heapq import merge
from itertools import islice
from operator import gt, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import MemberError
from s3unzip.extraction.member import open_local
from s3unzip.planning.reading import read_archive
from s3unzip.planning.selection import compile_glob
from s3unzip.stores.readahead import read_ahead
from s3unzip.zipformat import AFTER_LENGTH, MemberDecoder, close_member
from s3unzip.zipformat.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.context import Context
    from s3unzip.errors import Finding
    from s3unzip.model import Request
    from s3unzip.planning.reading import Reading
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
    failures: Sequence[Failure]


def resolve_listing(
    request: Request, context: Context, judge: Callable[[Reading], None] | None = None
) -> Listing:
    """Read the directory of an archive, and nothing else; `judge` may refuse what was read.

    Raises:
        RejectedError: the archive is refused.
        StorageError: it cannot be read.
    """
    reading = read_archive(request, context, context.calls())
    if judge is not None:
        judge(reading)
    return Listing(_list_in_order(reading.selected, reading.failures), reading.failures)


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


def read_members(
    request: Request, context: Context, judge: Callable[[Reading], None] | None = None
) -> Iterator[Buffer]:
    """Yield the bytes of the selected members, one after the other.

    They come in the order of the request's globs, and of the directory within one. An error
    after the last piece of a member says that they are wrong.

    Raises:
        NothingSelectedError: `judge` found no member.
        MemberError: a member is bad.
        RejectedError: the archive is refused.
    """
    calls = context.calls()
    reading = read_archive(request, context, calls)
    if judge is not None:
        judge(reading)
    for failure in reading.failures:
        raise MemberError(failure.finding)
    archive = context.stores.source(request.source).pinned(request.source, reading.pin)

    def read(want: ByteRange) -> bytes:
        return calls.run("get", lambda: archive.read(want))

    for member in _in_order_of_globs(reading.selected, request.options.include):
        yield from _decode(member, read, context)


def _in_order_of_globs(members: Sequence[Member], globs: Sequence[str]) -> list[Member]:
    patterns = [compile_glob(pattern) for pattern in globs]

    def place(member: Member) -> tuple[int, int]:
        fits = (at for at, pattern in enumerate(patterns) if pattern.match(member.path))
        return next(fits, 0), member.index

    return sorted(members, key=place)


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
