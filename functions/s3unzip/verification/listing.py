"""Compares keys, sizes and ETags by LIST, a thousand objects a request."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter, eq
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import S3UnzipError
from s3unzip.extraction.conflicts import BEYOND, list_pages
from s3unzip.verification.results import Difference, Kind, Witness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from s3unzip.runs.written import WrittenObjects
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, ListedObject
    from s3unzip.verification.findings import Expected, Findings

LISTS = 16  # ranges of keys that are listed concurrently
_KEY = attrgetter("key")


class Suspects(NamedTuple):
    """Objects of the right size whose bytes the listing alone does not prove."""

    unrecorded: list[Expected]  # without a record of a run
    replaced: list[Expected]  # written by a run and replaced later


class KeyRanges:
    """The keys below a prefix, cut at members into ranges that can be listed concurrently.

    Args:
        expected: in the order of their keys.
        prefix: of all keys.
        members: of one range.
    """

    def __init__(self, expected: Sequence[Expected], prefix: str, members: int) -> None:
        self.prefix = prefix
        self._expected = expected
        self._members = members
        starts = range(members, len(expected), members)
        self._bounds = ["", *(expected[at].key for at in starts), prefix + BEYOND]

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, place: int) -> tuple[Sequence[Expected], str, str]:
        """Return the members of one range, its first key and the key before which it ends."""
        start = place * self._members
        members = self._expected[start : start + self._members]
        return members, self._bounds[place], self._bounds[place + 1]


def compare_listing(
    ranges: KeyRanges,
    destination: Destination,
    calls: Calls,
    written: WrittenObjects,
    found: Findings,
) -> Suspects:
    """List the destination, several ranges of keys at once; return the objects to look at.

    Raises:
        StorageError: the store refuses.
        ServiceFaultError: the store still fails after all retries.
    """

    def compare(place: int) -> Suspects:
        members, first, stop = ranges[place]
        pages = list_pages(destination, ranges.prefix, first, stop, calls)
        return _merge(members, stop, pages, written, found)

    with ThreadPoolExecutor(LISTS, thread_name_prefix="list") as pool:
        try:
            parts = list(pool.map(compare, range(len(ranges))))
        except S3UnzipError:
            calls.end()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Suspects(
        list(itertools.chain.from_iterable(part.unrecorded for part in parts)),
        list(itertools.chain.from_iterable(part.replaced for part in parts)),
    )


def size_difference(member: Expected, size: int | None) -> Difference:
    """Return the difference of an object of another size, or of a missing object."""
    if size is None:
        return Difference(member.key, Kind.MISSING, f"{member.size} bytes")
    return Difference(member.key, Kind.SIZE, f"{member.size} bytes", f"{size} bytes")


def _merge(
    members: Sequence[Expected],
    stop_key: str,
    pages: Iterator[list[ListedObject]],
    written: WrittenObjects,
    found: Findings,
) -> Suspects:
    """Compare the members before `stop_key` with the listing; return what needs more requests."""
    suspects = Suspects([], [])
    start = 0
    for page in pages:
        if page[-1].key == stop_key:  # the first of the next range
            del page[-1]
        if not page:
            break
        stop = bisect_right(members, page[-1].key, start, key=_KEY)
        _merge_page(members[start:stop], page, written, suspects, found)
        start = stop
    _merge_page(members[start:], [], written, suspects, found)
    return suspects


def _merge_page(
    members: Sequence[Expected],
    page: Sequence[ListedObject],
    written: WrittenObjects,
    suspects: Suspects,
    found: Findings,
) -> None:
    """Compare the objects of one page with the members up to the page's last key."""
    pairs: Iterable[tuple[Expected | None, ListedObject | None]] = zip(members, page, strict=False)
    if len(members) != len(page) or not all(map(eq, map(_KEY, members), map(_KEY, page))):
        pairs = _pair(members, iter(page))
    differences: list[Difference] = []
    proven: list[str] = []
    for member, listed in pairs:
        if member is None or listed is None or listed.size != member.size or not member.wanted:
            differences += _differences(member, listed)
        elif match := written.match(member.key, member.size, member.crc32, listed.etag):
            proven.append(member.key)
        else:
            (suspects.unrecorded if match is None else suspects.replaced).append(member)
    if differences:
        found.add(differences)
    if proven:
        found.add_equal(proven, Witness.RECORD)


def _pair(
    members: Sequence[Expected], objects: Iterator[ListedObject]
) -> Iterator[tuple[Expected | None, ListedObject | None]]:
    """Merge members and objects by key; an entry of one side only comes with None."""
    entry = next(objects, None)
    for member in members:
        while entry is not None and entry.key < member.key:
            yield None, entry
            entry = next(objects, None)
        if entry is not None and entry.key == member.key:
            yield member, entry
            entry = next(objects, None)
        else:
            yield member, None
    while entry is not None:
        yield None, entry
        entry = next(objects, None)


def _differences(member: Expected | None, listed: ListedObject | None) -> list[Difference]:
    """Return the difference that the listing shows; none for a member that is not selected."""
    if member is None:
        return [] if listed is None else [_extra(listed)]
    if not member.wanted:
        return []
    return [size_difference(member, None if listed is None else listed.size)]


def _extra(entry: ListedObject) -> Difference:
    return Difference(entry.key, Kind.EXTRA, found=f"{entry.size} bytes")
