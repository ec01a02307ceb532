"""Read the directory of an archive, and select the members that a run extracts.

One suffix GET returns the tail, the size and the version of the archive. The tail of a small
archive contains the whole directory. A larger directory is read in concurrent ranges of the same
version, and is parsed while it arrives. `open_local` reads the local header of one member.
"""

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import RejectedError, ServiceFaultError
from s3unzip.model import Budget, Location, Options, Pin, Request
from s3unzip.planning.select import (
    KeyTemplate,
    makes_folders,
    parse_template,
    selector,
)
from s3unzip.stores.archives import (
    Source,
    blaming_parts,
    check_parts,
    make_archive_test,
    read_whole_tail,
)
from s3unzip.stores.calls import Calls, read_ahead
from s3unzip.stores.ports import PinnedArchive, Tail
from s3unzip.zip import (
    HEAD_LENGTH,
    MAX_HEADER,
    ByteRange,
    DirectoryReader,
    Index,
    Member,
    OpenedMember,
    Policy,
    Selection,
    drive,
    inspect_prefix,
    open_member,
)


class Reading(Struct, frozen=True):
    """The version and the directory of an archive, with the members that the options select."""

    pin: Pin
    index: Index
    template: KeyTemplate  # builds the keys of the members
    bytes_read: int  # from the archive


def read_tail(source: Source, location: Location, context: Context, calls: Calls) -> Tail:
    """Read the end of an archive, and pin its version."""
    return read_whole_tail(
        source,
        location,
        calls,
        length=context.tuning.tail_bytes,
        max_parts=context.policy.limits.parts,
    )


def read_archive(request: Request, context: Context, calls: Calls) -> Reading:
    """Read and check the directory of the archive in `request`."""
    source = context.stores.source(request.source)
    tail = read_tail(source, request.source, context, calls)
    return read_directory(
        source.pinned(request.source, tail.pin, tail.data), tail, request, context, calls=calls
    )


def read_directory(
    archive: PinnedArchive,
    tail: Tail,
    request: Request,
    context: Context,
    *,
    calls: Calls,
    template: KeyTemplate | None = None,
) -> Reading:
    """Read and check the directory of an archive.

    Args:
        archive: the archive of `request`, pinned to the version from which `tail` was read.
        tail: the end of the archive.
        request: the archive, the destination and the options.
        context: the context of this process.
        calls: the object that sends, counts and retries the requests.
        template: builds the keys of the members; no two keys may be equal. None stands for
            the template in the options.

    Raises:
        RejectedError: the archive is refused.
    """
    if tail.refusal is not None:
        raise RejectedError(tail.refusal)
    template = template or parse_template(request)
    read = partial(calls.read, archive)
    policy = _narrow_to_budget(context.policy, request.options.nested_budget)
    # `drive` reads the ranges that functions of `s3unzip.zip` request.
    location = drive(tail.locate_directory(policy), read)
    directory = DirectoryReader(location, policy, _make_selection(request, template, tail.pin))
    tuning = context.tuning
    whole = ByteRange(location.start, location.stop)
    with blaming_parts(location.disks):  # if a part has the wrong size, members seem to overlap
        for data in read_ahead(read, whole, tuning.directory_piece, tuning.directory_readers):
            directory.feed(data)
        index = drive(directory.finish(), read)
    check_parts(index.members, location.disks, read, request.source)
    index.warnings.update(drive(inspect_prefix(location, index.first), read))
    return Reading(
        pin=tail.pin,
        index=index,
        template=template,
        bytes_read=len(tail.data) + archive.bytes_read,
    )


def _make_selection(request: Request, template: KeyTemplate, pin: Pin) -> Selection:
    """Return the rules for selecting members, building keys and refusing equal keys."""
    options = request.options
    selection = Selection(template.key_of(), selects=selector(options), limit=options.limit)
    if options.marker:  # no member may have the key of the marker
        selection = selection._replace(reserved=template.marker)
    # A member can replace the archive only if source and destination have the same bucket or disk.
    if replace(request.destination, key=request.source.key) == request.source:
        selection = selection._replace(
            is_archive=make_archive_test(request.source, pin, request.destination)
        )
    if not request.destination.store.has_folders:
        return selection  # without `folder_key`, a key may also be the name of a folder
    if makes_folders(options):
        return selection._replace(folder_key=template.folder_key)
    # The run does not create the folders that the archive lists, so these folders get no keys. With
    # a `folder_key`, no key may be the name of a folder that contains members.
    return selection._replace(folder_key=lambda _: None)


def _narrow_to_budget(policy: Policy, budget: Budget | None) -> Policy:
    if budget is None:  # the archive is not nested
        return policy
    return replace(
        policy,
        limits=replace(
            policy.limits,
            members=min(policy.limits.members, budget.members),
            total_size=min(policy.limits.total_size, budget.size),
        ),
    )


def folder_keys(reading: Reading, options: Options) -> Iterator[str]:
    """Yield the keys of the archive's folders that the options select.

    Yields nothing if the options name members or limit the number of members. Globs are matched
    against the full path of a folder, including the final slash.
    """
    if not makes_folders(options):
        return
    is_selected = selector(options)
    for path in reading.index.folders:
        name = f"{path}/"
        key = reading.template.folder_key(name)
        if key is not None and (is_selected is None or is_selected(name)):
            yield key


def open_local(member: Member, read: Callable[[ByteRange], bytes], policy: Policy) -> OpenedMember:
    """Read and check a member's local header.

    A first, short range nearly always contains the whole header. A second range is read only for a
    longer header.
    """
    max_stop = min(member.stop, member.offset + MAX_HEADER)
    for length in (HEAD_LENGTH, MAX_HEADER):
        header = read(ByteRange(member.offset, min(member.offset + length, max_stop)))
        opened = open_member(member, header, policy)
        if not isinstance(opened, int):  # an int means that the header is longer than `length`
            return opened
    raise ServiceFaultError(f"the local header at {member.offset} was cut short")
