"""Read an archive's directory: one range from its end, and the rest of the directory if need be.

One suffix GET returns the tail, the size and the version of the archive. A small archive has its
whole directory in the tail. A larger directory is read in parallel ranges, each pinned to that
version, and parsed as it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import NotFoundError, RejectedError
from s3unzip.finding import Finding
from s3unzip.model import Budget, Location, Options, Pin, Request
from s3unzip.planning.cut import Totals
from s3unzip.planning.keys import KeyTemplate, parse_template
from s3unzip.planning.select import Unmatched, find_unmatched, selector
from s3unzip.stores import ports
from s3unzip.stores.calls import Calls
from s3unzip.stores.parts import (
    NAMED_SCHEMES,
    first_piece_name,
    is_first_piece,
    last_part_name,
    locate_part,
    part_name,
)
from s3unzip.stores.ports import Source, Tail
from s3unzip.stores.readahead import read_ahead
from s3unzip.zip import (
    ONE_DISK,
    ByteRange,
    DirectoryLocation,
    DirectoryReader,
    Disks,
    Index,
    Member,
    Members,
    Policy,
    RefusedMembers,
    count_disks,
    drive,
    first_members,
    inspect_prefix,
    join_disks,
    locate_directory,
)
from s3unzip.zip.records import EOCD_SIGNATURE, LOCAL_SIGNATURE


class Reading(Struct, frozen=True):
    """An archive's version and directory, and the members that the options select."""

    pin: Pin
    index: Index
    template: KeyTemplate
    selected: Members
    amount: Totals  # of the selected members
    failures: RefusedMembers  # of the members that the options ask for
    bytes_read: int
    unmatched: tuple[Unmatched, ...] = ()  # what the options ask for in vain

    @property
    def excluded(self) -> int:
        """Members that the options leave out."""
        index = self.index
        everything = len(index.members) + len(index.failures)
        return everything - len(self.selected) - len(self.failures)


def read_archive(request: Request, context: Context, calls: Calls) -> Reading:
    """Read and check the directory of the archive of `request`."""
    source = context.stores.source(request.source)
    tail = read_tail(source, request.source, context, calls)
    archive = source.pinned(request.source, tail.pin)
    return read_directory(archive, tail, request, parse_template(request), context, calls)


def read_tail(
    source: ports.Source, location: Location, context: Context, calls: Calls
) -> ports.Tail:
    """Read the end of an archive, and learn which version it is."""
    max_parts = context.policy.limits.parts
    return read_whole_tail(source, location, context.tuning.tail_bytes, max_parts, calls)


def disks_of(pin: Pin) -> Disks:
    """Return where the parts of an archive begin."""
    return join_disks([part.size for part in pin.parts]) if pin.parts else ONE_DISK


def read_directory(
    archive: ports.Archive,
    tail: ports.Tail,
    request: Request,
    template: KeyTemplate,
    context: Context,
    calls: Calls,
) -> Reading:
    """Read and check the directory of an archive.

    Args:
        archive: the version that `tail` is the end of.
        tail: the end of the archive.
        request: of which archive; which members to select, what nested archives may add up to.
        template: makes the keys that are checked against each other.
        context: the policy, and the sizes of ranges.
        calls: counts and retries the requests.
    """
    if tail.refusal is not None:
        raise RejectedError(tail.refusal)
    options = request.options
    read = _Counted(archive, calls)
    policy = _narrow(context.policy, options.nested_budget)
    disks = disks_of(tail.pin)
    location = drive(locate_directory(tail.data, tail.pin.size, policy, disks), read)
    reserved = template.marker if options.marker else None
    reader = DirectoryReader(location, policy, template.key_of(), reserved)
    with blaming_parts(location.disks):
        for piece in _directory_pieces(location, read, context):
            reader.feed(piece)
        index = reader.finish()
    check_parts(index.members, location.disks, read, request.source)
    for finding in drive(inspect_prefix(tail.data, location, index.first), read):
        index.warnings.add(finding)
    selected, failures = _select(options, index)
    return Reading(
        pin=tail.pin,
        index=index,
        template=template,
        selected=selected,
        amount=Totals(len(selected), selected.compressed_size, selected.size),
        failures=failures,
        bytes_read=len(tail.data) + read.bytes,
        unmatched=find_unmatched(options, partial(_paths, index), len(selected)),
    )


def _paths(index: Index) -> Iterator[str]:
    yield from (member.path for member in index.members)
    yield from (failure.path for failure in index.failures)


def _narrow(policy: Policy, budget: Budget | None) -> Policy:
    """Return the policy for an archive that must stay within `budget`."""
    if budget is None:
        return policy
    limits = replace(
        policy.limits,
        members=min(policy.limits.members, budget.members),
        total_size=min(policy.limits.total_size, budget.size),
    )
    return replace(policy, limits=limits)


class _Counted:
    """Reads ranges of one archive, and counts their bytes."""

    def __init__(self, archive: ports.Archive, calls: Calls) -> None:
        self._archive = archive
        self._calls = calls
        self.bytes = 0

    def __call__(self, want: ByteRange) -> bytes:
        data = self._calls.run("get", lambda: self._archive.read(want))
        self.bytes += len(data)
        return data


def _directory_pieces(
    location: DirectoryLocation, read: _Counted, context: Context
) -> Iterator[bytes]:
    tuning = context.tuning
    yield from read_ahead(read, location.missing, tuning.directory_piece, tuning.directory_readers)
    yield location.held


def _select(options: Options, index: Index) -> tuple[Members, RefusedMembers]:
    wanted = selector(options)
    members, failures = index.members, index.failures
    if wanted is not None:
        members, failures = members.only(wanted), failures.only(wanted)
    return (members if options.limit is None else members.first(options.limit)), failures


def folder_keys(reading: Reading, options: Options) -> Iterator[str]:
    """Yield the keys of the folders that the archive lists and the options select.

    Only a folder as destination has folders without files.
    Globs are compared with the name as the archive has it, with a slash at its end. Names and a
    limit select members, so no folder is made for its own sake.
    """
    if options.names or options.limit is not None:
        return
    wanted = selector(options)
    for path in reading.index.folders:
        name = path.rstrip("/") + "/"
        key = reading.template.folder_key(name)
        if key is not None and (wanted is None or wanted(name)):
            yield key


THREADS = 16  # parts that are asked for at once
SHIFTED = frozenset({"overlap", "member-out-of-bounds"})  # what a part of another size looks like


def read_whole_tail(
    source: Source, location: Location, length: int, max_parts: int, calls: Calls
) -> Tail:
    """Return the last bytes and the pin of an archive, which may have several parts.

    A part that is missing is told in the `refusal` of the tail, so that the run can be named.
    """
    if is_first_piece(location):
        return _read_pieces(source, location, length, max_parts, calls)
    tail = calls.run("get", lambda: source.tail(location, length))
    count = count_disks(tail.data)
    if count > 1 and not tail.pin.parts and tail.refusal is None:
        return _join_parts(source, location, tail, (count, max_parts), calls)
    if EOCD_SIGNATURE in tail.data:
        return tail
    if last := last_part_name(location):
        message = f"give its last part as the archive: {last}"
    elif first := first_piece_name(location):
        message = f"give its first piece as the archive: {first}"
    else:
        return tail
    return tail._replace(refusal=Finding("multi-disk", message))


def _join_parts(
    source: Source, location: Location, tail: Tail, counts: tuple[int, int], calls: Calls
) -> Tail:
    """Return the tail of a split archive, of which `tail` is the last part's."""
    count, max_parts = counts
    if count > max_parts:
        message = f"{count:,} parts, the limit is {max_parts:,}"
        return tail._replace(refusal=Finding("too-many-parts", message))
    if location.scheme not in NAMED_SCHEMES or locate_part(location, 1, count) is None:
        message = f"it has {count:,} parts; name it NAME.zip, beside NAME.z01 and the others"
        return tail._replace(refusal=Finding("part-missing", message))
    others = range(1, count)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="parts") as pool:
        found = list(pool.map(lambda n: _look(source, location, n, count, calls), others))
    missing = [number for number, pin in zip(others, found, strict=True) if pin is None]
    if missing:
        first = locate_part(location, missing[0], count)
        message = f"{_name(first)}, part {missing[0]:,} of {count:,}"
        if len(missing) > 1:
            message += f", and {len(missing) - 1:,} more"
        return tail._replace(refusal=Finding("part-missing", message))
    return tail._replace(pin=_join_pins([*filter(None, found), tail.pin], tail.pin))


def _read_pieces(
    source: Source, location: Location, length: int, max_parts: int, calls: Calls
) -> Tail:
    """Return the tail of an archive that was cut into pieces, of which the first is named."""
    pins = [calls.run("head", lambda: source.head(location))]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="parts") as pool:
        while len(pins) <= max_parts:
            following = range(len(pins) + 1, len(pins) + 1 + THREADS)
            found = list(pool.map(lambda n: _look(source, location, n, n + 1, calls), following))
            known = found.index(None) if None in found else len(found)
            pins += filter(None, found[:known])
            if known < len(found):
                break
    pin = _join_pins(pins, pins[0])
    archive = source.pinned(location, pin)
    want = ByteRange(max(0, pin.size - length), pin.size)
    tail = Tail(calls.run("get", lambda: archive.read(want)), pin)
    if len(pins) > max_parts:
        message = f"more than {max_parts:,} parts, the limit"
        return tail._replace(refusal=Finding("too-many-parts", message))
    begins = calls.run("get", lambda: archive.read(ByteRange(0, min(4, pin.size))))
    if begins == LOCAL_SIGNATURE and EOCD_SIGNATURE not in tail.data:
        absent = _name(locate_part(location, len(pins) + 1, len(pins) + 1))
        message = f"{absent}, after {len(pins):,} without the archive's end"
        return tail._replace(refusal=Finding("part-missing", message))
    return tail


def _join_pins(pins: Sequence[Pin], named: Pin) -> Pin:
    if len(pins) == 1:
        return named
    return replace(named, size=sum(pin.size for pin in pins), parts=tuple(pins))


def _look(source: Source, location: Location, number: int, count: int, calls: Calls) -> Pin | None:
    """Return the pin of part `number`; None if it is not there."""
    where = locate_part(location, number, count)
    if where is None:
        return None
    try:
        return calls.run("head", lambda: source.head(where))
    except NotFoundError:
        return None


def _name(location: Location | None) -> str:
    return "" if location is None else part_name(location)


@contextmanager
def blaming_parts(disks: Disks) -> Iterator[None]:
    """Say of members that overlap that a part has another size, if the archive has parts."""
    try:
        yield
    except RejectedError as refusal:
        finding = refusal.finding
        if not disks.is_split or finding.code not in SHIFTED:
            raise
        message = f"a part is shorter than it was: {finding.message}"
        raise RejectedError(replace(finding, code="part-wrong", message=message)) from None


def check_parts(
    members: Sequence[Member],
    disks: Disks,
    read: Callable[[ByteRange], bytes],
    location: Location,
) -> None:
    """Check that each part has a member where the directory says that its first one is.

    Reads four bytes of each part on which a member begins.
    """
    if not disks.is_split:
        return
    firsts = list(first_members(members, disks))

    def begins(found: tuple[int, Member]) -> bool:
        at = found[1].offset
        return read(ByteRange(at, at + len(LOCAL_SIGNATURE))) == LOCAL_SIGNATURE

    with ThreadPoolExecutor(THREADS, thread_name_prefix="parts") as pool:
        for (disk, member), is_good in zip(firsts, pool.map(begins, firsts), strict=True):
            if not is_good:
                name = _name(locate_part(location, disk + 1, disks.last + 1))
                message = f"{name} has no member at byte {member.offset - disks.starts[disk]:,}"
                raise RejectedError(Finding("part-wrong", message))
