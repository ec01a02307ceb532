"""What the destination has already: which members need no PUT."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from s3unzip.errors import Finding
from s3unzip.objects.stored import stored_as, stored_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.model import MemberRow, Options, Outcome
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination

PAGE = 1000  # keys of one LIST answer
LIST_PRICE = 12  # HEADs that one LIST costs: https://aws.amazon.com/s3/pricing/


def exists_finding(row: MemberRow) -> Finding:
    """Return why a member was not written over what is there."""
    message = "the key exists with other content; --on-conflict never keeps it"
    return Finding("exists", message, row.offset, row.key)


def is_unchanged(row: MemberRow, options: Options, destination: Destination, calls: Calls) -> bool:
    """Say whether the object under the member's key has its size and its CRC-32."""
    found = calls.paced("head", lambda: destination.head(row.key))
    return stored_as(row, options).is_same(found)


def is_same_object(outcome: Outcome, destination: Destination, calls: Calls) -> bool:
    """Say whether the object is still the one that a run wrote or found unchanged."""
    found = calls.paced("head", lambda: destination.head(outcome.key))
    return (
        found is not None
        and found.size == outcome.size
        and found.crc32 in (None, outcome.crc32)  # a streamed AE-2 member has none
    )


def find_unchanged(
    rows: Sequence[MemberRow],
    options: Options,
    destination: Destination,
    calls: Calls,
    threads: int,
) -> set[int]:
    """Return the indexes of the members that the destination has as they should be.

    LIST tells the sizes, a thousand keys a request; HEAD is asked only where
    they agree. Where the members' keys lie far apart among others', the LIST
    is given up after a few pages, before it costs more than it can save, and
    HEAD decides for the rest.
    """
    if not rows:
        return set()
    suspects = _same_size(rows, options, destination, calls)
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="head") as pool:
        verdicts = pool.map(lambda row: is_unchanged(row, options, destination, calls), suspects)
        return {row.index for row, same in zip(suspects, verdicts, strict=True) if same}


def _same_size(
    rows: Sequence[MemberRow], options: Options, destination: Destination, calls: Calls
) -> list[MemberRow]:
    by_key = sorted(rows, key=lambda row: row.key.encode())
    wanted = {row.key: row for row in by_key}
    first, last = by_key[0].key, by_key[-1].key
    allowed = min(2 * len(rows) + 2 * PAGE, len(rows) // LIST_PRICE * PAGE)
    if not allowed:
        return by_key

    def list_sizes() -> tuple[list[MemberRow], str | None, int]:
        suspects: list[MemberRow] = []
        seen = 0
        for found in destination.list_objects(_common_prefix(first, last), first, last):
            seen += 1
            row = wanted.get(found.key)
            if row is not None and stored_size(row, options) == found.size:
                suspects.append(row)
            if seen >= allowed:
                return suspects, found.key, seen
        return suspects, None, seen

    suspects, given_up_at, seen = calls.run("list", list_sizes)
    calls.count("list", seen // PAGE)
    if given_up_at is not None:
        beyond = given_up_at.encode()
        suspects += [row for row in by_key if row.key.encode() > beyond]
    return suspects


def _common_prefix(first: str, last: str) -> str:
    length = 0
    for one, other in zip(first, last, strict=False):
        if one != other:
            break
        length += 1
    return first[:length]
