"""Check whether an existing object is the member, and whether the member may replace it.

An object counts as a member if its size and the CRC-32 of its content match those of the member.
The option `on_conflict` sets the rule:

================== ==========================================================
``overwrite``      write the member without checking the key
``skip-unchanged`` keep an object that is the member; overwrite any other
``never``          keep an object that is the member; fail if another object has the key
================== ==========================================================

The destination is queried before a write, because S3 charges even for a refused conditional PUT.
`resolve_conflict` checks one member; `resolve_conflicts` checks many small members by LIST and
HEAD. If another writer creates the key after this check, the store refuses the conditional write,
and `explain_refusal` checks the key again. A store that ignores the condition overwrites the object
of the other writer, but no older object.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from os.path import commonprefix

from isal.isal_zlib import crc32

from s3unzip.errors import NotFoundError
from s3unzip.extraction.member_object import has_stored_size
from s3unzip.model import OnConflict, Options, Outcome, PlannedMember, Status
from s3unzip.runs.step import Step
from s3unzip.stores.calls import Calls, map_ahead
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import Buffer, Destination, StoredObject
from s3unzip.zip import Member
from s3unzip.zip.decode import PIECE_LENGTH

LIST_PRICE = 12  # a LIST costs as much as this many HEADs: https://aws.amazon.com/s3/pricing/


def object_is_member(
    row: PlannedMember, options: Options, destination: Destination, calls: Calls
) -> bool:
    """Return whether the object under a member's key matches the member in size and CRC-32."""
    stored = find_object(row.key, options, destination, calls)
    return stored is not None and has_content(stored, row.member, options)


def is_same_object(
    outcome: Outcome, options: Options, destination: Destination, calls: Calls
) -> bool:
    """Return whether an object is still the one that a run wrote or found unchanged."""
    stored = find_object(outcome.key, options, destination, calls)
    if stored is None or stored.size != outcome.size:
        return False
    # The metadata of a streamed AE-2 member contains no CRC-32, so only the size can be compared.
    if stored.crc32 is None and destination.keeps_metadata:
        return True
    # A store without metadata computes `stored.crc32` from the content. The value is None only if
    # the run writes gzip files and this file is not a gzip file. Then the file was replaced.
    return stored.crc32 == outcome.crc32


def has_content(stored: StoredObject, member: Member, options: Options) -> bool:
    """Return whether an object has a member's size and its content has the member's CRC-32.

    If the member is encrypted with AES (AE-2), the archive declares no CRC-32, and the result is
    False.
    """
    return (
        member.declares_crc
        and stored.crc32 == member.crc32
        and has_stored_size(stored.size, member, options)
    )


def find_object(
    key: str, options: Options, destination: Destination, calls: Calls
) -> StoredObject | None:
    """Return the object under the key of a member, or None if the object does not exist.

    The `crc32` of the result is that of the content. If the store returns a checksum and the object
    is the content itself, this checksum is used; otherwise, the CRC-32 in the metadata is used. If
    the store does not keep metadata, a gzip file is read to compute the CRC-32.
    """
    is_gzip = options.as_gzip is not None

    def find() -> StoredObject | None:
        if is_gzip and not destination.keeps_metadata:  # the file must be inflated
            return read_stored(destination, key, is_gzip=True)
        stored = destination.head(key)
        # A checksum from the store covers the whole object: the gzip file, not its content.
        if stored is None or stored.checksum is None or is_gzip:
            return stored
        return stored._replace(crc32=stored.checksum)

    return calls.paced("head", find)


def read_stored(destination: Destination, key: str, *, is_gzip: bool) -> StoredObject | None:
    """Read an object; return it with the CRC-32 of its content, or None if it does not exist.

    The CRC-32 is None if the object should be a single gzip file, but is not.
    """
    size = 0
    crc: int | None = 0
    inflater = zlib.decompressobj(wbits=31)  # gzip format
    try:
        for chunk in destination.read(key):
            size += len(chunk)
            if crc is None:  # not a single gzip file: read the rest only to determine the size
                continue
            crc = _extend_crc(inflater, chunk, crc) if is_gzip else crc32(chunk, crc)
    except NotFoundError:
        return None
    if is_gzip and not inflater.eof:
        crc = None
    return StoredObject(key, size, crc)


def _extend_crc(inflater: "zlib._Decompress", data: Buffer, crc: int) -> int | None:
    """Inflate a piece of a gzip file; return `crc`, extended by the inflated bytes.

    Returns None if the data is corrupt, or continues after the end of the gzip file.
    """
    try:
        while data and not inflater.eof:
            crc = crc32(inflater.decompress(data, PIECE_LENGTH), crc)
            data = inflater.unconsumed_tail
    except zlib.error:
        return None
    if data or inflater.unused_data:
        return None
    return crc


def resolve_conflict(
    row: PlannedMember,
    options: Options,
    destination: Destination,
    calls: Calls,
    read_crc: Callable[[], int] | None = None,
) -> Outcome | None:
    """Return the outcome of a member that must not be written; None if it must be written.

    Args:
        row: the member.
        options: the options of the run.
        destination: the store that may have an object under the key of the member.
        calls: sends the requests.
        read_crc: function that computes the CRC-32 of the content. It is called if the archive does
            not declare the CRC-32 and the object has the size of the member. The function raises
            `MemberError` if the content is bad. If `read_crc` is None, a member without a CRC-32
            must be written.
    """
    if options.on_conflict is OnConflict.OVERWRITE:
        return None
    stored = find_object(row.key, options, destination, calls)
    if stored is None:
        return None
    if has_stored_size(stored.size, row.member, options):
        if not row.member.declares_crc:
            if read_crc is None:
                return None  # with `never`, the store then refuses the conditional write
            row = row.with_crc(read_crc())  # the CRC-32 that the archive does not declare
        if row.member.cipher is not None and stored.crc32 is None:
            # A large AE-2 member was written before its CRC-32 was known, so the metadata contains
            # no CRC-32. Compute the CRC-32 from the object, unless the object has been deleted
            # meanwhile.
            read = partial(read_stored, destination, row.key, is_gzip=options.as_gzip is not None)
            stored = calls.paced("get", read) or stored
    if has_content(stored, row.member, options):
        return row.outcome(Status.UNCHANGED, stored.size)
    if options.on_conflict is OnConflict.NEVER:
        return _fail_existing(row)
    return None  # `skip-unchanged` overwrites an object with other content


def explain_refusal(row: PlannedMember, run_step: Step) -> Outcome:
    """Return the outcome of a member whose write was refused because its key already exists."""
    return resolve_conflict(
        row, run_step.run.options, run_step.destination, run_step.calls
    ) or _fail_existing(row)


def _fail_existing(row: PlannedMember) -> Outcome:
    return row.failed(
        row.finding(
            "exists", "the key exists with other content, and the run has --on-conflict never"
        )
    )


def resolve_conflicts(
    rows: Sequence[PlannedMember],
    options: Options,
    destination: Destination,
    calls: Calls,
    threads: int,
) -> dict[int, Outcome]:
    """Return the outcomes of the members that must not be written, by index.

    LIST returns the sizes for a thousand keys per request. HEAD is sent only if the sizes agree, or
    if `on_conflict` is ``never``. If many other keys lie between the keys of the members, the
    listing stops after a few pages, before it costs more than it saves. Keys that later pages may
    contain are then checked by HEAD.
    """
    if not rows or options.on_conflict is OnConflict.OVERWRITE:
        return {}
    outcomes = map_ahead(
        lambda row: resolve_conflict(row, options, destination, calls),
        list(_find_possible_conflicts(rows, options, destination, calls)),
        at_once=threads,
        ahead=4 * threads,
    )
    return {outcome.index: outcome for outcome in outcomes if outcome is not None}


def _find_possible_conflicts(
    rows: Sequence[PlannedMember], options: Options, destination: Destination, calls: Calls
) -> Iterator[PlannedMember]:
    """Yield the rows for which the destination may contain an object that must be kept.

    With `skip-unchanged`, only an object with equal content is kept, so rows whose objects have
    other sizes are left out.

    A page of a listing costs as much as `LIST_PRICE` HEADs. If the keys are far apart, the listing
    has many pages of other keys. The listing therefore stops after `max_pages`, and all rows after
    the last listed key are yielded.
    """
    by_key = sorted(rows, key=lambda row: row.key)  # code points sort in the same order as UTF-8
    affordable_pages = len(rows) // LIST_PRICE  # more pages cost more than a HEAD for each row
    # Allow as many other keys as there are rows, and two more pages.
    max_pages = min(2 + 2 * len(rows) // PAGE_KEYS, affordable_pages)
    if not max_pages:
        yield from by_key
        return
    unlisted = {row.key: row for row in by_key}
    first = by_key[0].key
    last = by_key[-1].key
    prefix = commonprefix([first, last])  # noqa: RUF071 - by characters: keys have no folders
    pages = list_pages(destination, prefix, partial(calls.paced, "list"), first, last=last)
    for page in islice(pages, max_pages):
        for listed in page.objects:
            row = unlisted.pop(listed.key, None)
            if row is not None and (
                options.on_conflict is OnConflict.NEVER
                or has_stored_size(listed.size, row.member, options)
            ):
                yield row
    if not page.is_last:  # the listing stopped early, after this page
        last_listed_key = ""  # unless keys are ordered, any unlisted row might be on a later page
        if page.in_order and page.objects:
            last_listed_key = page.objects[-1].key
        yield from (row for row in unlisted.values() if row.key > last_listed_key)
