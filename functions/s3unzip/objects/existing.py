"""Find which members the destination already has, so that they need no PUT."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from os.path import commonprefix
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.model import OnConflict
from s3unzip.objects.stored import read_stored, stored_as, stored_size
from s3unzip.runs.written import is_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.model import Options, Outcome, PlannedMember
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, ListedObject, StoredObject

PAGE = 1000  # keys of one LIST answer
LIST_PRICE = 12  # HEADs that one LIST costs: https://aws.amazon.com/s3/pricing/


def is_member(row: PlannedMember, options: Options, destination: Destination, calls: Calls) -> bool:
    """Return whether the object under the member's key has its size and its CRC-32.

    For objects that this run may have written, or that no run recorded.
    """
    found = calls.paced("head", lambda: destination.head(row.key))
    return _has_crc(row, options, found)


def find_existing(
    row: PlannedMember, options: Options, destination: Destination, calls: Calls
) -> tuple[StoredObject | None, bool]:
    """Return what is under the member's key, and whether that is the member as it should be.

    Where an earlier run wrote the member, its ETag decides, not the metadata. An object that was
    replaced since is written again; it is read where nothing may be overwritten.
    """
    found = calls.paced("head", lambda: destination.head(row.key))
    if found is None or row.written is None:
        return found, _has_crc(row, options, found)
    if is_written(row.written, found.etag):
        return found, True
    if options.on_conflict is not OnConflict.NEVER:
        return found, False
    is_gzip = options.as_gzip is not None
    read = calls.paced("get", lambda: read_stored(destination, row.key, is_gzip=is_gzip))
    return found, stored_as(row.member, options).is_same(read)


def _has_crc(row: PlannedMember, options: Options, found: StoredObject | None) -> bool:
    """Compare size and CRC-32: the store's own if it keeps one, else the one in the metadata."""
    if found is not None and found.checksum is not None and options.as_gzip is None:
        found = found._replace(crc32=found.checksum)
    return stored_as(row.member, options).is_same(found)


def recorded_etag(row: PlannedMember, found: StoredObject | ListedObject) -> str | None:
    """Return the ETag of an object if it is the one on record."""
    return found.etag if row.written is not None and is_written(row.written, found.etag) else None


def is_same_object(outcome: Outcome, destination: Destination, calls: Calls) -> bool:
    """Return whether the object is still the one that a run wrote or found unchanged."""
    found = calls.paced("head", lambda: destination.head(outcome.key))
    return (
        found is not None
        and found.size == outcome.size
        and found.crc32 in (None, outcome.crc32)  # a streamed AE-2 member has none
    )


def find_unchanged(
    rows: Sequence[PlannedMember],
    options: Options,
    destination: Destination,
    calls: Calls,
    threads: int,
) -> dict[int, str | None]:
    """Return the members that the destination has as they should be; none if all are overwritten.

    LIST tells sizes and ETags, a thousand keys a request; HEAD is asked only where the sizes
    agree and no earlier run recorded what it wrote. If many other keys lie between the members'
    keys, the LIST stops after a few pages, before it costs more than it saves, and HEAD decides for
    the rest.

    Returns:
        The ETag on record of each, by the member's index; None: only its metadata speaks for it.
    """
    if not rows or options.on_conflict is OnConflict.OVERWRITE:
        return {}
    unchanged, suspects = _compare_listing(rows, options, destination, calls)

    def ask(row: PlannedMember) -> tuple[StoredObject | None, bool]:
        return find_existing(row, options, destination, calls)

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="head") as pool:
        for row, (found, same) in zip(suspects, pool.map(ask, suspects), strict=True):
            if found is not None and same:
                unchanged[row.member.index] = recorded_etag(row, found)
    return unchanged


class _Listed(NamedTuple):
    """What a listing proves."""

    unchanged: dict[int, str | None]
    suspects: list[PlannedMember]  # to be asked for


def _compare_listing(
    rows: Sequence[PlannedMember], options: Options, destination: Destination, calls: Calls
) -> _Listed:
    by_key = sorted(rows, key=lambda row: row.key.encode())
    wanted = {row.key: row for row in by_key}
    first, last = by_key[0].key, by_key[-1].key
    allowed = min(2 * len(rows) + 2 * PAGE, len(rows) // LIST_PRICE * PAGE)
    if not allowed:
        return _Listed({}, by_key)

    def compare() -> tuple[_Listed, str | None]:
        listed = _Listed({}, [])
        prefix = commonprefix([first, last])  # noqa: RUF071 - of characters: keys have no folders
        objects = destination.list_objects(prefix, first, last)
        for seen, found in enumerate(objects, 1):
            row = wanted.get(found.key)
            if row is not None and stored_size(row.member, options) == found.size:
                _judge_listed(row, found, options, listed)
            if seen >= allowed:
                return listed, found.key
        return listed, None

    listed, given_up_at = calls.run("list", compare)
    if given_up_at is not None:
        beyond = given_up_at.encode()
        listed.suspects.extend(row for row in by_key if row.key.encode() > beyond)
    return listed


def _judge_listed(
    row: PlannedMember, found: ListedObject, options: Options, listed: _Listed
) -> None:
    """Classify an object of the right size; a replaced object is written again."""
    etag = recorded_etag(row, found)
    if etag is not None:
        listed.unchanged[row.member.index] = etag
    elif row.written is None or options.on_conflict is OnConflict.NEVER:
        listed.suspects.append(row)
