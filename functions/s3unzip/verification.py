"""Compares the objects of a destination with the archive's directory. Writes nothing.

LIST returns keys, sizes and ETags. An object whose ETag is on record needs no further request. For
the others, HEAD returns a CRC-32. An object that was replaced after a run wrote it is read.

The records of runs have the ETag that the store answered each PUT and Complete with. A run writes
an object only after it has compared the bytes with the archive's directory, so an object that still
has that ETag is the very one, whatever its metadata says.
"""

from __future__ import annotations

import hashlib
import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from operator import attrgetter, eq, itemgetter
from typing import NamedTuple

from msgspec import Struct

from s3unzip.context import Context, Progress
from s3unzip.errors import S3UnzipError, StorageError, UnorderedListError
from s3unzip.extraction.comparison import read_stored
from s3unzip.extraction.forms import stored_size
from s3unzip.model import Location, Pin, Request, Requests, Run
from s3unzip.planning.reading import Reading, read_archive
from s3unzip.planning.select import parse_template
from s3unzip.runs.records import RunRecords
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.listing import BEYOND, list_pages
from s3unzip.stores.ports import ListedObject, StoredObject
from s3unzip.zip.values import WRAP

LISTS = 16  # ranges of keys that are listed concurrently
ADVICE = "leave out --objects"
HANDFUL = 16  # objects that a thread takes at a time
_KEY = attrgetter("key")


class Comparison(StrEnum):
    """Whether the objects are what the archive's directory declares."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"

    @property
    def exit_code(self) -> int:
        """The exit code of ``s3unzip verify``."""
        return 0 if self is Comparison.EQUAL else 1


class Kind(StrEnum):
    """How an object differs from its member."""

    MISSING = "missing"
    SIZE = "size"
    CRC = "crc"
    NO_CRC = "no-crc"  # without zip-crc32: somebody else wrote it
    EXTRA = "extra"  # below the run's prefix, but not the key of a member


class Proof(StrEnum):
    """The evidence for an object's bytes; docs/howto/verify.md says what each proves."""

    RECORD = "record"  # the store: the ETag equals the one that the store returned for a run's PUT
    CHECKSUM = "checksum"  # the store: its own CRC-32 of the bytes is the directory's
    READ = "read"  # this verify, which read the bytes
    METADATA = "metadata"  # the writer of the object: its zip-crc32 is the directory's
    SIZE = "size"  # nothing: the archive does not declare the CRC-32 of an AES member (AE-2)


class ComparedObject(Struct, frozen=True, omit_defaults=True):
    """One object and its result: a line of ``verify --objects``."""

    key: str
    proof: Proof | None = None  # set for an equal object
    difference: Kind | None = None  # set for a different object


class Difference(Struct, frozen=True, omit_defaults=True):
    """One object that differs from the directory."""

    key: str
    kind: Kind
    expected: str | None = None
    found: str | None = None


class Verification(Struct, frozen=True):
    """The result of a verify."""

    verdict: Comparison
    source: Location
    pin: Pin
    destination: Location
    prefix: str  # prefix of the listed keys
    deep: bool  # whether the objects were read
    members: int  # objects that should exist
    refused: int  # members that no run extracts, because the directory refuses them
    equal: int
    proofs: dict[str, int]  # equal objects, by proof
    records: tuple[str, ...]  # runs whose records were used
    counts: dict[str, int]  # of differences, by kind
    differences: tuple[Difference, ...]  # the first of each kind, up to the requested number
    bytes_read: int
    requests: Requests
    started: float  # Unix seconds
    seconds: float


class Effort(NamedTuple):
    """How many requests a verify may send, and what it trusts."""

    at_once: int = 64  # HEADs, or GETs of a deep verify, in flight
    listed: int = 20  # differences of each kind to keep; all are counted
    deep: bool = False  # read every object; trust no record and no stored CRC-32
    range_keys: int = 4_990  # members of one range of keys: five pages of LIST, and not a sixth


class _Expected(NamedTuple):
    """One object that should exist."""

    key: str
    size: int
    crc32: int | None  # None: the archive does not declare it
    wanted: bool  # False: a member that is not selected; its object does not count as extra
    is_wrapped: bool = False  # only the lower 32 bits of the size are known

    def fit(self, listed: ListedObject | None) -> _Expected:
        """Return the object with the size of the listed one, if that can be its own."""
        if self.is_wrapped and listed is not None and (listed.size - self.size) % WRAP == 0:
            return self._replace(size=listed.size)
        return self


def verify_objects(
    request: Request,
    context: Context,
    effort: Effort,
    written: WrittenObjects | None = None,
    each: Callable[[ComparedObject], object] | None = None,
    check: Callable[[Reading], None] | None = None,
) -> Verification:
    """Compare every object with its member.

    Args:
        request: archive, destination and options, as the run had them.
        context: stores and rules; progress goes to ``extracted`` (equal) and ``failed``.
        effort: concurrency, and what to trust.
        written: the ETags that the store returned to runs.
        each: called with every object and its result.
        check: called with what was read of the archive; may raise to stop here.
    """
    started = context.clock.now()
    known = WrittenObjects() if effort.deep or written is None else written
    calls = Calls(context.clock, context.tuning.retry_seconds, effort.at_once)
    reading = read_archive(request, context, calls)
    if check is not None:
        check(reading)
    expected = _expect(request, reading)
    objects = _compare_all(_Objects(request, context, effort, each=each), expected, known)
    return Verification(
        verdict=Comparison.DIFFERENT if objects.counts else Comparison.EQUAL,
        source=request.source.public,
        pin=reading.pin,
        destination=request.destination,
        prefix=reading.template.prefix,
        deep=effort.deep,
        members=sum(member.wanted for member in expected),
        refused=len(reading.failures),
        equal=objects.proofs.total(),
        proofs={one.value: objects.proofs[one] for one in Proof if objects.proofs[one]},
        records=tuple(known.runs),
        counts={kind.value: objects.counts[kind] for kind in Kind if objects.counts[kind]},
        differences=objects.differences,
        bytes_read=objects.bytes_read,
        requests=calls.requests + objects.requests,
        started=started,
        seconds=round(context.clock.now() - started, 3),
    )


def _compare_all(objects: _Objects, expected: list[_Expected], known: WrittenObjects) -> _Objects:
    """Return the objects once all are compared: others where the store lists in another order."""
    try:
        objects.compare(expected, known)
    except UnorderedListError as error:
        if objects.were_told:
            raise StorageError(f"{error}, and objects were told before: {ADVICE}") from error
        objects = objects.begin_again()
        objects.compare_unordered(expected, known)
    return objects


def _expect(request: Request, reading: Reading) -> list[_Expected]:
    """Return the objects that the directory declares, by key in UTF-8 order."""
    key_of, options = reading.template.key_of(), request.options
    expected = [
        _Expected(
            key_of(member.path),
            stored_size(member, options),
            member.crc32 if member.declares_crc else None,
            wanted=True,
            is_wrapped=member.is_wrapped and options.as_gzip is None,
        )
        for member in reading.selected
    ]
    if reading.selected is not reading.index.members:  # their keys may be equal
        keys = {member.key for member in expected}
        unselected = {key_of(member.path) for member in reading.index.members} - keys
        expected += [_Expected(key, size=0, crc32=None, wanted=False) for key in unselected]
    expected.sort(key=itemgetter(0))  # code points are in the order of their UTF-8
    return expected


class _Objects:
    """The objects of a destination, compared by the listing, by HEAD and by their bytes.

    Threads add to the counts, and keep the first differences of each kind. The progress gets
    ``extracted`` (equal), ``failed`` and ``bytes_read``.
    """

    def __init__(
        self,
        request: Request,
        context: Context,
        effort: Effort,
        each: Callable[[ComparedObject], object] | None,
        earlier: Requests | None = None,
    ) -> None:
        self._request = request
        self._context = context
        self._destination = context.stores.destination(request.destination)
        self._prefix = parse_template(request).prefix
        self._is_gzip = request.options.as_gzip is not None
        # Without metadata HEAD reads the object.
        self._head = Proof.METADATA if self._destination.keeps_metadata else Proof.READ
        self._effort = effort
        self._calls = Calls(context.clock, context.tuning.retry_seconds, effort.at_once)
        self._earlier = earlier or Requests()
        self._each = each
        self._progress = context.progress or Progress()
        # Of the right size, but the listing does not prove their bytes: without a record of a run,
        # and written by a run and replaced later.
        self._unrecorded: list[_Expected] = []
        self._replaced: list[_Expected] = []
        self._has_wrapped = False
        self._lock = threading.Lock()
        self._kept: dict[Kind, list[Difference]] = {kind: [] for kind in Kind}
        self.counts: Counter[Kind] = Counter()
        self.proofs: Counter[Proof] = Counter()
        self.bytes_read = 0

    @property
    def requests(self) -> Requests:
        """The requests for listings and objects."""
        return self._earlier + self._calls.requests

    @property
    def were_told(self) -> bool:
        """Whether the caller was given results."""
        return self._each is not None and bool(self.counts or self.proofs)

    def begin_again(self) -> _Objects:
        """Return objects of which none is compared; threads of these may still be at work."""
        return _Objects(
            self._request, self._context, self._effort, each=self._each, earlier=self.requests
        )

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The kept differences, by kind and key."""
        return tuple(one for kind in Kind for one in sorted(self._kept[kind], key=_KEY))

    def _add(self, differences: Sequence[Difference], keys: Sequence[str], proof: Proof) -> None:
        """Add objects that are not as they should be, and others that are, all by one proof."""
        with self._lock:
            for one in differences:
                self.counts[one.kind] += 1
                if len(self._kept[one.kind]) < self._effort.listed:
                    self._kept[one.kind].append(one)
                if self._each is not None:
                    self._each(ComparedObject(one.key, difference=one.kind))
            if keys:
                self.proofs[proof] += len(keys)
            if self._each is not None:
                for key in keys:
                    self._each(ComparedObject(key, proof=proof))
        self._progress.finished({"extracted": len(keys), "failed": len(differences)})

    def compare(self, expected: list[_Expected], known: WrittenObjects) -> None:
        """Compare all; `expected` is in the order of the keys.

        Ranges of keys are listed concurrently, each from one member's key to another's.
        """
        self._has_wrapped = any(member.is_wrapped for member in expected)
        size = self._effort.range_keys
        starts = range(0, max(1, len(expected)), size)
        keys = ["", *(expected[at].key for at in starts[1:]), self._prefix + BEYOND]

        def compare_range(place: int) -> None:
            members = expected[starts[place] : starts[place] + size]
            self._compare_range(members, keys[place], keys[place + 1], known)

        self._share(compare_range, range(len(starts)), LISTS)
        self._compare_listed()

    def compare_unordered(self, expected: list[_Expected], known: WrittenObjects) -> None:
        """Compare all where the store lists keys in no order; a key may come more than once."""
        self._has_wrapped = any(member.is_wrapped for member in expected)
        members = {member.key: member for member in expected}
        unseen = dict(members)
        list_page = partial(self._calls.paced, "list")
        for page in list_pages(self._destination, self._prefix, list_page):
            objects = [
                listed
                for listed in page.objects
                if listed.key in unseen or listed.key not in members
            ]
            pairs = (unseen.pop(listed.key, None) for listed in objects)
            self._compare_page([member for member in pairs if member], objects, known)
        self._compare_page(list(unseen.values()), [], known)
        self._compare_listed()

    def _compare_listed(self) -> None:
        """Compare the contents of objects that the listing does not prove."""
        self._compare_contents(self._unrecorded, self._read if self._effort.deep else self._ask)
        self._compare_contents(self._replaced, self._read)

    def _share(self, work: Callable[[int], None], places: Sequence[int], threads: int) -> None:
        """Call `work` for the places in so many threads."""

        def work_on(place: int) -> None:
            try:
                work(place)
            except S3UnzipError:
                self._calls.end()
                raise

        try:
            for _ in map_ahead(work_on, places, threads, 4 * threads):
                pass
        except BaseException:  # Ctrl-C, too: the threads end at their next page
            self._calls.end()
            raise

    def _compare_range(
        self, members: Sequence[_Expected], first: str, stop: str, known: WrittenObjects
    ) -> None:
        """Compare the members before the key `stop` with the listing from `first`."""
        start = 0
        list_page = partial(self._calls.paced, "list")
        pages = list_pages(self._destination, self._prefix, list_page, first=first, last=stop)
        for page in pages:
            if self._calls.has_ended:
                return
            if not page.in_order:
                raise UnorderedListError(f"{self._prefix}: the store lists keys in another order")
            objects = page.objects
            if objects and objects[-1].key == stop:  # the first of the next range
                objects = objects[:-1]
            if objects:
                end = bisect_right(members, objects[-1].key, start, key=_KEY)
                self._compare_page(members[start:end], objects, known)
                start = end
        self._compare_page(members[start:], [], known)

    def _compare_page(
        self,
        members: Sequence[_Expected],
        page: Sequence[ListedObject],
        known: WrittenObjects,
    ) -> None:
        """Compare the objects of one page with the members up to the page's last key."""
        pairs: Iterable[tuple[_Expected | None, ListedObject | None]]
        pairs = zip(members, page, strict=False)
        if len(members) != len(page) or not all(map(eq, map(_KEY, members), map(_KEY, page))):
            ours, theirs = {one.key: one for one in members}, {one.key: one for one in page}
            pairs = ((ours.get(key), theirs.get(key)) for key in sorted(ours.keys() | theirs))
        differences: list[Difference] = []
        proved: list[str] = []
        if self._has_wrapped:
            pairs = [(member and member.fit(listed), listed) for member, listed in pairs]
        for member, listed in pairs:
            if member is not None and not member.wanted:
                continue
            if member is None or listed is None or listed.size != member.size:
                differences.append(_compare_sizes(member, listed))
            elif match := known.match(member.key, member.size, member.crc32, listed.etag):
                proved.append(member.key)
            else:
                (self._unrecorded if match is None else self._replaced).append(member)
        missing = [one.key for one in differences if one.kind is Kind.MISSING]
        if missing and self._ask(missing[0]) is not None:
            raise UnorderedListError(f"{missing[0]}: exists, and the store does not list it there")
        if differences or proved:
            self._add(differences, proved, Proof.RECORD)

    def _compare_contents(
        self,
        members: Sequence[_Expected],
        look_up: Callable[[str], tuple[Proof, StoredObject] | None],
    ) -> None:
        """Compare the CRC-32 of objects with the directory, many at once."""

        def compare(start: int) -> None:
            for member in members[start : start + HANDFUL]:
                found = _compare_crc(member, look_up(member.key))
                if isinstance(found, Difference):
                    self._add([found], [], Proof.RECORD)
                else:
                    self._add([], [member.key], found)

        self._share(compare, range(0, len(members), HANDFUL), self._effort.at_once)

    def _ask(self, key: str) -> tuple[Proof, StoredObject] | None:
        """Return an object by HEAD, None if it does not exist.

        The store's own checksum covers the bytes of the object. These are the member's content only
        if the object is not a gzip file; else its writer's metadata count, or the file is read.
        """
        if self._is_gzip and not self._destination.keeps_metadata:
            return self._read(key)
        stored = self._calls.paced("head", partial(self._destination.head, key))
        if stored is None or stored.checksum is None or self._is_gzip:
            return None if stored is None else (self._head, stored)
        return Proof.CHECKSUM, stored._replace(crc32=stored.checksum)

    def _read(self, key: str) -> tuple[Proof, StoredObject] | None:
        """Return an object by its bytes alone, None if it does not exist."""
        read = partial(read_stored, self._destination, key, is_gzip=self._is_gzip)
        stored = self._calls.paced("get", read)
        if stored is None:
            return None
        with self._lock:
            self.bytes_read += stored.size
        self._progress.finished({"bytes_read": stored.size})
        return Proof.READ, stored


def _compare_sizes(
    member: _Expected | None, found: ListedObject | StoredObject | None
) -> Difference:
    """Return the difference of an object of another size, or where one of the two is missing."""
    key = member.key if member is not None else found.key if found is not None else ""
    kind = Kind.EXTRA if member is None else Kind.MISSING if found is None else Kind.SIZE
    sizes = (None if one is None else f"{one.size} bytes" for one in (member, found))
    return Difference(key, kind, *sizes)


def _compare_crc(member: _Expected, found: tuple[Proof, StoredObject] | None) -> Difference | Proof:
    """Return what proves the content of an object, or how it differs."""
    if found is None or found[1].size != member.size:  # changed after the listing
        return _compare_sizes(member, found and found[1])
    proof, stored = found
    if member.crc32 is None:
        return Proof.SIZE
    expected = f"{member.crc32:08x}"
    if stored.crc32 is None:
        return Difference(member.key, Kind.NO_CRC, expected)
    if stored.crc32 != member.crc32:
        return Difference(member.key, Kind.CRC, expected, f"{stored.crc32:08x}")
    return proof


_MD5 = re.compile(r"[0-9a-f]{32}")


class WrittenObjects:
    """The objects that some runs wrote; about 190 bytes of memory each, whatever their names.

    Later runs count: they overwrote what earlier ones wrote.
    """

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self.runs: list[str] = []  # whose objects these are

    def __len__(self) -> int:
        return len(self._known)

    def add(self, key: str, size: int, crc32: int, etag: str) -> None:
        """Note one object: its length in bytes, its content's CRC-32, its ETag without quotes."""
        self._known[hash((key, size))] = crc32.to_bytes(4, "big") + _digest(etag)

    def match(self, key: str, size: int, crc32: int | None, etag: str | None) -> bool | None:
        """Say whether an object is the one that was written.

        Args:
            crc32: what its content should have; None: the archive does not tell it.
            etag: as the store lists it, without quotes.

        Returns:
            True: it is. False: another one was written. None: nobody knows of such a member.
        """
        known = self._known.get(hash((key, size)))
        if known is None or (crc32 is not None and known[:4] != crc32.to_bytes(4, "big")):
            return None
        return etag is not None and known[4:] == _digest(etag)


def read_written(runs: Iterable[RunRecords], destination: Location) -> WrittenObjects:
    """Return what runs wrote to the bucket of `destination`.

    Args:
        runs: the records of the runs, the earliest first; those to other buckets are left out.
        destination: a prefix in S3; a folder has no ETags, so nothing is read for one.
    """
    written = WrittenObjects()
    if not destination.store.has_etags:
        return written
    for records in runs:
        plan = records.find_plan()
        known = plan.run if plan is not None else records.find_report()  # a small run has no plan
        if known is None or known.destination.bucket != destination.bucket:
            continue
        has_etags = False
        for line in records.outcome_lines():
            if line.etag is not None:
                written.add(line.key, line.size, line.crc32, line.etag)
                has_etags = True
        if has_etags:
            written.runs.append(known.id if isinstance(known, Run) else known.run)
    return written


def _digest(etag: str) -> bytes:
    """Return 16 bytes for an ETag; most are an MD5 in hexadecimal digits."""
    if _MD5.fullmatch(etag):
        return bytes.fromhex(etag)
    return hashlib.blake2b(etag.encode(), digest_size=16).digest()
