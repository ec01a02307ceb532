"""What LIST tells of the objects: keys, sizes and ETags, a thousand a request."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import S3UnzipError
from s3unzip.verification.findings import Equal, Expected
from s3unzip.verification.results import Difference, Kind, Witness

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s3unzip.runs.written import WrittenObjects
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, ListedObject
    from s3unzip.verification.findings import Findings

PAGE = 1_000  # keys of one LIST answer
LISTS = 16  # ranges of keys that are listed at once
BEYOND = "\U0010ffff" * 4  # after any key that people give


class Suspects(NamedTuple):
    """Objects of the right size, of which the listing alone does not prove the bytes."""

    unrecorded: list[Expected]  # no run is known that wrote them
    replaced: list[Expected]  # a run wrote one, and another is there now


class KeyRanges:
    """The keys below a prefix, cut where members lie: what is listed at once.

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
        """Return the members of one range, its first key and the key that it ends before."""
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
    """List the destination, several ranges of keys at once; return what must be looked at.

    Raises:
        StorageError: the store refused.
        ServiceFaultError: the store failed beyond the retries.
    """

    def compare(place: int) -> Suspects:
        members, first, stop = ranges[place]
        objects = _list(destination, ranges.prefix, first, stop, calls)
        return _merge(members, objects, written, found)

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
    """Return the difference of an object of another size, or of none."""
    if size is None:
        return Difference(member.key, Kind.MISSING, f"{member.size} bytes")
    return Difference(member.key, Kind.SIZE, f"{member.size} bytes", f"{size} bytes")


def _list(
    destination: Destination, prefix: str, first: str, stop: str, calls: Calls
) -> Iterator[ListedObject]:
    """Yield what is there from `first` to before `stop`; each page is a call of its own."""

    def read_page(begin: str) -> list[ListedObject]:
        return list(itertools.islice(destination.list_objects(prefix, begin, stop), PAGE))

    while True:
        page = calls.paced("list", partial(read_page, first))
        yield from (entry for entry in page if entry.key < stop)
        if len(page) < PAGE:
            return
        first = page[-1].key + "\0"  # the least key after it


def _merge(
    members: Sequence[Expected],
    objects: Iterator[ListedObject],
    written: WrittenObjects,
    found: Findings,
) -> Suspects:
    """Judge members and objects by the listing; return those of equal size that need more."""
    suspects = Suspects([], [])
    differences: list[Difference] = []
    equal: list[Equal] = []
    for member, listed in _pair(members, objects):
        judged = _judge(member, listed, written, suspects)
        if isinstance(judged, Difference):
            differences.append(judged)
        elif judged is not None:
            equal.append(judged)
    if differences or equal:
        found.add(differences, equal)
    return suspects


def _pair(
    members: Sequence[Expected], objects: Iterator[ListedObject]
) -> Iterator[tuple[Expected | None, ListedObject | None]]:
    """Walk members and objects together, both by key; what only one side has comes alone."""
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


def _judge(
    member: Expected | None,
    listed: ListedObject | None,
    written: WrittenObjects,
    suspects: Suspects,
) -> Difference | Equal | None:
    """Return what the listing proves; None: nothing is wanted, or it is among the suspects now."""
    if member is None:
        return None if listed is None else _extra(listed)
    if not member.wanted:
        return None
    if listed is None or listed.size != member.size:
        return size_difference(member, None if listed is None else listed.size)
    match = written.match(member.key, member.size, member.crc32, listed.etag)
    if match:
        return Equal(member.key, Witness.RECORD)
    (suspects.unrecorded if match is None else suspects.replaced).append(member)
    return None


def _extra(entry: ListedObject) -> Difference:
    return Difference(entry.key, Kind.EXTRA, found=f"{entry.size} bytes")
