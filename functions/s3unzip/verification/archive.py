"""Verify: what stands in the destination against what the archive's directory says.

LIST tells the keys and sizes, HEAD the CRC-32 of each object whose size
agrees; no data is read unless asked. Nothing is written, and no record of a
run is needed: the directory alone says what there should be.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from s3unzip.errors import NotFoundError, S3UnzipError
from s3unzip.model import Verdict
from s3unzip.objects.stored import GzipCrc, PlainCrc, stored_as
from s3unzip.planning.keys import parse_template
from s3unzip.planning.reading import read_archive
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import StoredObject
from s3unzip.verification.results import Difference, Kind, Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.context import Context
    from s3unzip.model import Request
    from s3unzip.planning.reading import Reading
    from s3unzip.stores.ports import Destination, ListedObject

PAGE = 1_000  # keys of one LIST answer
RANGE_KEYS = 5_000  # members of one range of keys that is listed on its own
LISTS = 16  # such ranges at once
HANDFUL = 16  # objects that a thread takes at a time
BEYOND = "\U0010ffff" * 4  # after any key that people give


class Expected(NamedTuple):
    """One object that should be there."""

    key: str
    size: int
    crc32: int | None  # None: the archive does not tell it
    wanted: bool  # False: a member that was not asked for; its object is not extra


def verify_objects(
    request: Request,
    context: Context,
    *,
    at_once: int,
    listed: int,
    deep: bool = False,
    range_keys: int = RANGE_KEYS,
) -> Verification:
    """Compare every object with its member.

    Args:
        request: archive, destination and options, as the run had them.
        context: stores and rules; told of progress as ``extracted`` (equal) and ``failed``.
        at_once: HEADs, or GETs of a deep verify, in flight.
        listed: differences of each kind to keep; all are counted.
        deep: read every object and compute its CRC-32, instead of asking for the stored one.
        range_keys: members of one range of keys that is listed on its own.

    Raises:
        RejectedError: the archive is refused; there is nothing to compare with.
        StorageError: a store refused.
        ServiceFaultError: a store failed beyond the retries.
    """
    started = context.clock.now()
    calls = Calls(context.clock, context.tuning.retry_seconds, at_once)
    reading = read_archive(request, context, calls)
    expected = _expect(request, reading)
    destination = context.stores.destination(request.destination)
    prefix = parse_template(request).prefix
    found = _Found(context, listed)
    ranges = _Ranges(expected, prefix, range_keys)
    suspects = _compare_sizes(ranges, destination, calls, found)
    is_gzip = request.options.as_gzip is not None
    look = _Reader(destination, found, is_gzip=is_gzip) if deep else destination.head
    _compare_contents(suspects, look, calls, found, at_once, kind="get" if deep else "head")
    return Verification(
        verdict=found.verdict,
        source=request.source.public,
        pin=reading.pin,
        destination=request.destination,
        prefix=prefix,
        deep=deep,
        members=sum(member.wanted for member in expected),
        refused=len(reading.index.failures),
        equal=found.equal,
        counts={kind.value: found.counts[kind] for kind in Kind if found.counts[kind]},
        differences=found.differences,
        bytes_read=found.bytes_read,
        requests=calls.requests,
        started=started,
        seconds=round(context.clock.now() - started, 3),
    )


def _expect(request: Request, reading: Reading) -> list[Expected]:
    """Return the objects that the directory speaks of, by key in UTF-8 order."""
    key_of = parse_template(request).key_of()
    members = reading.index.members
    chosen = None
    if len(reading.selected) < len(members):
        chosen = {member.index for member in reading.selected}
    expected = [
        Expected(
            key_of(m.path), *stored_as(m, request.options), chosen is None or m.index in chosen
        )
        for m in members
    ]
    expected.sort(key=itemgetter(0))  # code points are in the order of their UTF-8
    return expected


class _Found:
    """What was found so far; threads add to it."""

    def __init__(self, context: Context, listed: int) -> None:
        self._progress = context.progress
        self._listed = listed
        self._lock = threading.Lock()
        self._kept: dict[Kind, list[Difference]] = {kind: [] for kind in Kind}
        self.counts: Counter[Kind] = Counter()
        self.equal = 0
        self.bytes_read = 0

    def add(self, differences: Sequence[Difference], equal: int = 0, bytes_read: int = 0) -> None:
        """Add what some objects gave."""
        with self._lock:
            self.equal += equal
            self.bytes_read += bytes_read
            for difference in differences:
                self.counts[difference.kind] += 1
                kept = self._kept[difference.kind]
                if len(kept) < self._listed:
                    kept.append(difference)
        if self._progress is not None:
            self._progress.finished(
                {"extracted": equal, "failed": len(differences), "bytes_read": bytes_read}
            )

    @property
    def verdict(self) -> Verdict:
        """Whether all is as it should be."""
        return Verdict.COMPLETED_WITH_ERRORS if self.counts else Verdict.COMPLETED

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What was kept, by kind and key."""
        return tuple(
            one for kind in Kind for one in sorted(self._kept[kind], key=lambda one: one.key)
        )


class _Ranges:
    """The keys below a prefix, cut where members lie: what is listed at once."""

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


def _compare_sizes(
    ranges: _Ranges, destination: Destination, calls: Calls, found: _Found
) -> list[Expected]:
    """List the destination, several ranges of keys at once; return what has the right size."""

    def compare(place: int) -> list[Expected]:
        members, first, stop = ranges[place]
        objects = _list(destination, ranges.prefix, first, stop, calls)
        return _merge(members, objects, found)

    with ThreadPoolExecutor(LISTS, thread_name_prefix="list") as pool:
        try:
            return list(itertools.chain.from_iterable(pool.map(compare, range(len(ranges)))))
        except S3UnzipError:
            calls.end()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
    members: Sequence[Expected], objects: Iterator[ListedObject], found: _Found
) -> list[Expected]:
    """Walk members and objects together, both by key; return those of equal size."""
    suspects: list[Expected] = []
    differences: list[Difference] = []
    entry = next(objects, None)
    for member in members:
        while entry is not None and entry.key < member.key:
            differences.append(Difference(entry.key, Kind.EXTRA, found=f"{entry.size} bytes"))
            entry = next(objects, None)
        size = None
        if entry is not None and entry.key == member.key:
            size = entry.size
            entry = next(objects, None)
        if not member.wanted:
            continue
        if size == member.size:
            suspects.append(member)
        else:
            differences.append(_of_size(member, size))
    while entry is not None:
        differences.append(Difference(entry.key, Kind.EXTRA, found=f"{entry.size} bytes"))
        entry = next(objects, None)
    if differences:
        found.add(differences)
    return suspects


def _of_size(member: Expected, size: int | None) -> Difference:
    if size is None:
        return Difference(member.key, Kind.MISSING, f"{member.size} bytes")
    return Difference(member.key, Kind.SIZE, f"{member.size} bytes", f"{size} bytes")


class _Reader:
    """Reads objects, as a HEAD that trusts no metadata."""

    def __init__(self, destination: Destination, found: _Found, *, is_gzip: bool) -> None:
        self._destination = destination
        self._found = found
        self._is_gzip = is_gzip

    def __call__(self, key: str) -> StoredObject | None:
        """Return the size and the CRC-32 of an object's bytes, None if it is gone."""
        size = 0
        content = GzipCrc() if self._is_gzip else PlainCrc()
        try:
            for piece in self._destination.read(key):
                size += len(piece)
                content.feed(piece)
        except NotFoundError:
            return None
        self._found.add((), bytes_read=size)
        return StoredObject(key, size, content.crc32)


def _compare_contents(
    suspects: Sequence[Expected],
    look: Callable[[str], StoredObject | None],
    calls: Calls,
    found: _Found,
    threads: int,
    *,
    kind: Literal["head", "get"],
) -> None:
    """Compare CRCs, many at once."""
    starts = iter(range(0, len(suspects), HANDFUL))  # shared: `next` of it is one step

    def compare_some() -> None:
        for start in starts:
            some = suspects[start : start + HANDFUL]
            judged = [
                _judge(member, calls.paced(kind, partial(look, member.key))) for member in some
            ]
            differences = [one for one in judged if one is not None]
            found.add(differences, equal=len(some) - len(differences))

    with ThreadPoolExecutor(threads, thread_name_prefix="look") as pool:
        working = [pool.submit(compare_some) for _ in range(min(threads, len(suspects)))]
        try:
            for one in working:
                one.result()
        except S3UnzipError:
            calls.end()
            for _ in starts:  # nobody begins another
                pass
            raise


def _judge(member: Expected, stored: StoredObject | None) -> Difference | None:
    if stored is None or stored.size != member.size:  # changed since it was listed
        return _of_size(member, None if stored is None else stored.size)
    if member.crc32 is None:
        return None
    expected = f"{member.crc32:08x}"
    if stored.crc32 is None:
        return Difference(member.key, Kind.NO_CRC, expected)
    if stored.crc32 != member.crc32:
        return Difference(member.key, Kind.CRC, expected, f"{stored.crc32:08x}")
    return None
