"""Read an archive's directory: one range from its end, and the rest of the directory if need be.

One suffix GET returns the tail, the size and the version of the archive. A small archive has its
whole directory in the tail. A larger directory is read in parallel ranges, each pinned to that
version, and parsed as it arrives.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.errors import RejectedError
from s3unzip.planning.cutting import Totals
from s3unzip.planning.keys import parse_template
from s3unzip.planning.parts import blaming_parts, check_parts, read_whole_tail
from s3unzip.planning.selection import find_unmatched, selector
from s3unzip.stores.readahead import read_ahead
from s3unzip.zip import (
    ONE_DISK,
    DirectoryReader,
    drive,
    inspect_prefix,
    join_disks,
    locate_directory,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.context import Context
    from s3unzip.model import Budget, Location, Options, Pin, Request
    from s3unzip.planning.keys import KeyTemplate
    from s3unzip.planning.selection import Unmatched
    from s3unzip.stores import ports
    from s3unzip.stores.calls import Calls
    from s3unzip.zip import (
        ByteRange,
        DirectoryLocation,
        Disks,
        Index,
        Members,
        Policy,
        RefusedMembers,
    )


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
    """Read and check the directory of the archive of `request`.

    Raises:
        RejectedError: the archive is refused.
        StorageError: it cannot be read.
        ServiceFaultError: it cannot be read now.
    """
    source = context.stores.source(request.source)
    tail = read_tail(source, request.source, context, calls)
    archive = source.pinned(request.source, tail.pin)
    return read_directory(archive, tail, request, parse_template(request), context, calls)


def read_tail(
    source: ports.Source, location: Location, context: Context, calls: Calls
) -> ports.Tail:
    """Read the end of an archive, and learn which version it is.

    Raises:
        StorageError: it cannot be read.
        ServiceFaultError: it cannot be read now.
    """
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

    Raises:
        RejectedError: the archive is refused.
        StorageError: it cannot be read.
        ServiceFaultError: it cannot be read now.
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
