"""The rule on conflicts: what becomes of a member whose key the destination may have already.

================== ==========================================================
``overwrite``      write the member; ask nothing
``skip-unchanged`` keep an object that is the member; overwrite any other
``never``          keep an object that is the member; fail where another one is
================== ==========================================================

Ask before the write, because S3 bills a conditional PUT that it refuses. `find_unchanged` asks for
many small members at once. An object is the member if its size and CRC-32 are the member's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from os.path import commonprefix

from s3unzip.extraction.objects import stored_as, stored_size
from s3unzip.model import OnConflict, Options, Outcome, PlannedMember, Status
from s3unzip.runs.step import Step
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Destination, ListedObject, StoredObject

LIST_PRICE = 12  # HEADs that one LIST costs: https://aws.amazon.com/s3/pricing/


def must_be_absent(options: Options) -> bool:
    """Return whether a write must be refused if the key exists (``If-None-Match: *``)."""
    return options.on_conflict is OnConflict.NEVER


def resolve_conflict(row: PlannedMember, step: Step) -> Outcome | None:
    """Return the outcome of a member that is not to be written; None: write it."""
    rule = step.run.options.on_conflict
    if rule is OnConflict.OVERWRITE:
        return None
    found = step.calls.paced("head", lambda: step.destination.head(row.key))
    if found is None:
        return None
    if has_content(found, row, step.run.options):
        return row.outcome(Status.UNCHANGED, found.size)
    return _exists(row) if rule is OnConflict.NEVER else None


def explain_refusal(row: PlannedMember, step: Step) -> Outcome:
    """Return the outcome of a member whose write was refused because the key exists."""
    found = step.calls.paced("head", lambda: step.destination.head(row.key))
    if found is not None and has_content(found, row, step.run.options):
        return row.outcome(Status.UNCHANGED, found.size)
    return _exists(row)


def _exists(row: PlannedMember) -> Outcome:
    message = "the key exists with other content; --on-conflict never keeps it"
    return Outcome.failed(row.member.index, row.key, row.finding("exists", message))


def is_member(row: PlannedMember, options: Options, destination: Destination, calls: Calls) -> bool:
    """Return whether the object under the member's key has its size and its CRC-32."""
    return has_content(calls.paced("head", lambda: destination.head(row.key)), row, options)


def has_content(found: StoredObject | None, row: PlannedMember, options: Options) -> bool:
    """Compare size and CRC-32: the store's own if it keeps one, else the one in the metadata."""
    if found is not None and found.checksum is not None and options.as_gzip is None:
        found = found._replace(crc32=found.checksum)
    return stored_as(row.member, options).is_same(found)


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
) -> set[int]:
    """Return the indexes of members that the destination has; none if all are overwritten.

    LIST tells sizes, a thousand keys a request; HEAD is asked only where the sizes agree. If many
    other keys lie between the members' keys, the LIST stops after a few pages, before it costs more
    than it saves, and HEAD decides for the rest.
    """
    if not rows or options.on_conflict is OnConflict.OVERWRITE:
        return set()
    suspects = _find_suspects(rows, options, destination, calls)

    def ask(row: PlannedMember) -> bool:
        return is_member(row, options, destination, calls)

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="head") as pool:
        same = list(pool.map(ask, suspects))
    return {row.member.index for row, found in zip(suspects, same, strict=True) if found}


def _find_suspects(
    rows: Sequence[PlannedMember], options: Options, destination: Destination, calls: Calls
) -> list[PlannedMember]:
    """Return the rows whose objects may be there with the same size."""
    by_key = sorted(rows, key=lambda row: row.key.encode())
    wanted = {row.key: row for row in by_key}
    first, last = by_key[0].key, by_key[-1].key
    allowed = min(2 * len(rows) + 2 * PAGE, len(rows) // LIST_PRICE * PAGE)
    if not allowed:
        return by_key

    def compare() -> tuple[list[PlannedMember], str | None]:
        listed: list[PlannedMember] = []
        prefix = commonprefix([first, last])  # noqa: RUF071 - of characters: keys have no folders
        objects = destination.list_objects(prefix, first, last)
        for seen, found in enumerate(objects, 1):
            row = wanted.get(found.key)
            if row is not None and stored_size(row.member, options) == found.size:
                listed.append(row)
            if seen >= allowed:
                return listed, found.key
        return listed, None

    suspects, given_up_at = calls.run("list", compare)
    if given_up_at is not None:
        beyond = given_up_at.encode()
        suspects += [row for row in by_key if row.key.encode() > beyond]
    return suspects


PAGE = 1_000  # keys of one LIST
BEYOND = "\U0010ffff" * 4  # sorts after any key that people use


def list_pages(
    destination: Destination, prefix: str, first: str, last: str, calls: Calls
) -> Iterator[list[ListedObject]]:
    """Yield the objects below `prefix` with keys from `first` to `last`, a page at a time."""

    def read_page(begin: str) -> list[ListedObject]:
        return list(islice(destination.list_objects(prefix, begin, last), PAGE))

    while page := calls.paced("list", partial(read_page, first)):
        yield page
        if len(page) < PAGE or page[-1].key == last:
            return
        first = page[-1].key + "\0"  # the smallest key after it
