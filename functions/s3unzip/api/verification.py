"""Compare the objects in a destination with the directory of an archive, without writing anything.

LIST returns keys, sizes and ETags. If a run has recorded the ETag of an object, LIST is enough. If
a run has recorded another ETag, the object was replaced and is read. If no run has recorded the
object, HEAD returns its CRC-32; in a store without metadata, the object is read.

The records of runs contain the ETag that each PUT or completed upload returned. A run writes an
object only after it has checked the bytes against the directory of the archive. Therefore an object
that still has the recorded ETag is equal to its member, regardless of its metadata.

>>> import tempfile, zipfile
>>> from pathlib import Path
>>> import s3unzip
>>> folder = tempfile.TemporaryDirectory()
>>> path = Path(folder.name, "a.zip")
>>> with zipfile.ZipFile(path, "w") as new:
...     new.writestr("one.txt", "1")
...     new.writestr("two.txt", "2")
>>> _ = Path(folder.name, "a").mkdir()
>>> _ = Path(folder.name, "a", "one.txt").write_text("1")
>>> found = s3unzip.verify(path, folder.name)
>>> found.members, found.equal, found.counts
(2, 1, {'missing': 1})
>>> folder.cleanup()
"""

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.api.options import as_text, at_endpoint, open_context
from s3unzip.context import Context, Progress
from s3unzip.errors import S3UnzipError, StorageError, UnorderedListError, UnreadableRecordError
from s3unzip.extraction.existing_objects import read_stored
from s3unzip.extraction.member_object import stored_size
from s3unzip.local.runs import runs_of_archive
from s3unzip.model import Location, Options, Pin, Request, Requests
from s3unzip.planning.reading import Reading, read_archive
from s3unzip.planning.select import check_selection, parse_template
from s3unzip.printable import show_count
from s3unzip.runs.records import RunRecords
from s3unzip.settings import limit_by_files
from s3unzip.stores.calls import Calls, map_ahead
from s3unzip.stores.config import StoreConfig, parse_destination, parse_source
from s3unzip.stores.listing import BEYOND, list_pages
from s3unzip.stores.ports import StoredObject
from s3unzip.zip.values import WRAP

LISTS = 16  # number of ranges of keys that are listed concurrently
OBJECTS_OF_A_JOB = 16  # number of objects that one thread looks up one after another
_KEY = attrgetter("key")


class Comparison(StrEnum):
    """The result of a verification in one word: whether all objects are equal to their members."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"

    @property
    def exit_code(self) -> int:
        """The exit code of ``s3unzip verify``."""
        return int(self is not Comparison.EQUAL)


class Kind(StrEnum):
    """How an object differs from its member."""

    MISSING = "missing"
    SIZE = "size"
    CRC = "crc"
    NO_CRC = "no-crc"  # no zip-crc32 in the metadata, so no run wrote the object
    EXTRA = "extra"  # below the prefix of the run, but not the key of a member


class Proof(StrEnum):
    """The evidence that the bytes of an object are correct; see docs/howto/verify.md."""

    # Each comment names the source of the evidence, and then the evidence.
    RECORD = "record"  # the store: the object has the ETag that the PUT of a run returned
    CHECKSUM = "checksum"  # the store: the CRC-32 that it computed is the CRC-32 in the directory
    READ = "read"  # this verification: the bytes that it read have the CRC-32 in the directory
    METADATA = "metadata"  # the writer: zip-crc32 in the metadata is the CRC-32 in the directory
    SIZE = "size"  # none: the archive does not declare the CRC-32 of an AES member (AE-2)


class ComparedObject(Struct, frozen=True, omit_defaults=True):
    """One object with its result: a line of ``verify --objects``."""

    key: str
    proof: Proof | None = None  # the evidence that the object is equal; None if it is different
    difference: Kind | None = None  # how the object differs; None if it is equal


class Difference(Struct, frozen=True, omit_defaults=True):
    """One object that differs from the directory."""

    key: str
    kind: Kind
    expected: str | None = None
    found: str | None = None


class Verification(Struct, frozen=True):
    """The result of a verification.

    Attributes:
        verdict: EQUAL, or DIFFERENT if an object is missing, different or extra.
        members: number of objects that should exist; `equal` is the number of those that are equal
            to their members.
        refused: number of members that no run extracts, because a check of the directory refused
            them.
        proofs: number of equal objects by evidence: record, checksum, read, metadata, size.
        counts: number of differences by kind; `differences` contains the first differences of each
            kind.
        records: ids of the runs whose records were used.
        requests, bytes_read: number of requests to the stores, and number of bytes read from
            objects.
    """

    verdict: Comparison
    source: Location
    pin: Pin
    destination: Location
    prefix: str  # prefix of the listed keys
    deep: bool  # whether the objects were read
    members: int  # number of objects that should exist
    refused: int  # number of members that a check of the directory refused
    equal: int
    proofs: dict[str, int]  # number of equal objects, by proof
    records: tuple[str, ...]  # ids of the runs whose records were used
    counts: dict[str, int]  # number of differences, by kind
    differences: tuple[Difference, ...]  # at most `Effort.listed` differences of each kind
    bytes_read: int
    requests: Requests
    started: float  # time in Unix seconds
    seconds: float


class Effort(NamedTuple):
    """How many requests to send at once, and whether to trust records and metadata."""

    at_once: int = 128  # maximum number of concurrent requests to the destination
    listed: int = 20  # maximum number of differences to list per kind; all are counted
    deep: bool = False  # whether to read every object, instead of trusting records and metadata
    range_keys: int = 4_990  # number of members in a range of keys: less than five pages of LIST


class _Expected(Struct, frozen=True, gc=False):
    """An object that may be in the destination. If `is_selected`, the object must be there."""

    key: str
    size: int = 0
    crc32: int | None = None  # None if the archive does not declare the CRC-32
    is_selected: bool = True  # if False, the object may be missing or have any content
    is_wrapped: bool = False  # whether only the lower 32 bits of the size are known


def verify(  # noqa: PLR0913 - options of a public function
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: Options | None = None,
    *,
    deep: bool = False,
    records: Iterable[RunRecords] | None = None,
    at_once: int = 128,
    max_listed: int = 20,
    each: Callable[[ComparedObject], object] | None = None,
    password: bytes | str | None = None,
    endpoint_url: str | None = None,
    stores: StoreConfig | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], object] | None = None,
) -> Verification:
    """Compare each object in `destination` with its member in the archive's directory.

    Args:
        source: the archive, in any form that `extract` accepts.
        destination: the location to which `extract` wrote the members.
        options: the options given to `extract`; they determine which keys are compared.
        deep: whether to read every object. If False, the ETag or CRC-32 of an S3 object is enough.
        records: the records of the runs that wrote the objects, earliest first. None means the runs
            of this machine. An object that still has its recorded ETag needs no request of its own.
        at_once: maximum number of concurrent requests; at most a third of the open files allowed.
        max_listed: maximum number of differences to list per kind; all are counted.
        each: function called with each object and its result, one call at a time.
        password: password for encrypted members. A string is encoded as UTF-8.
        endpoint_url: URL of the S3 server. None means the variable ``AWS_ENDPOINT_URL``, or AWS.
        stores: how to reach S3 and web servers. None means the defaults of boto3.
        progress: receives ``extracted`` (equal), ``failed`` (different) and ``bytes_read``.
        warn: called with a message for each glob without a match and each unreadable record.

    Raises:
        RejectedError: the archive is refused.
        UsageError: a location or an option is wrong, or nothing is selected.
        StorageError, ServiceFaultError: a store refused a request, or failed after all retries.
    """
    target = parse_destination(as_text(destination))
    request = Request(parse_source(as_text(source)), target, options or Options())
    config = at_endpoint(stores, endpoint_url, at_once)
    context = open_context(request.options, config, password, target, progress=progress)
    if records is None:
        records = map(
            partial(RunRecords.open, context.stores), runs_of_archive(config.work, request.source)
        )
    written = None if deep else read_written(records, target, warn)  # None if every object is read
    effort = Effort(limit_by_files(at_once), max_listed, deep=deep)
    return verify_objects(request, context, effort, written, each=each, warn=warn)


def verify_objects(
    request: Request,
    context: Context,
    effort: Effort,
    written: "WrittenObjects | None" = None,
    each: Callable[[ComparedObject], object] | None = None,
    warn: Callable[[str], object] | None = None,
) -> Verification:
    """Compare every object with its member.

    Args:
        request: the archive, the destination and the options, as in the run.
        context: the stores and rules; its progress receives ``extracted`` (equal) and ``failed``.
        effort: the concurrency, and whether records are trusted.
        written: the objects that runs recorded, or None. None for a deep verification.
        each: function that is called with every object and its result.
        warn: function that is called with a message for each glob that matches no member.
    """
    started = context.clock.now()
    written = written or WrittenObjects()
    make_comparison = partial(  # `_compare_all` makes a second comparison if keys are out of order
        _ObjectComparison, request, context, effort, written=written, each=each
    )
    first_comparison = make_comparison()  # `calls` also counts the requests for the directory
    reading = read_archive(request, context, first_comparison.calls)
    check_selection(request.options, reading.index, warn)
    expected = _list_expected(request, reading)
    comparison, requests = _compare_all(first_comparison, make_comparison, expected)
    proofs = comparison.proofs
    counts = comparison.difference_counts
    return Verification(
        verdict=Comparison.DIFFERENT if counts else Comparison.EQUAL,
        source=request.source.public,
        pin=reading.pin,
        destination=request.destination,
        prefix=reading.template.prefix,
        deep=effort.deep,
        members=sum(member.is_selected for member in expected),
        refused=len(reading.index.failures),
        equal=proofs.total(),
        proofs={proof.value: proofs[proof] for proof in Proof if proofs[proof]},
        records=tuple(written.runs),
        counts={kind.value: counts[kind] for kind in Kind if counts[kind]},
        differences=comparison.first_differences(),
        bytes_read=comparison.bytes_read,
        requests=requests,
        started=started,
        seconds=round(context.clock.now() - started, 3),
    )


def _compare_all(
    first: "_ObjectComparison",
    make_comparison: "Callable[[], _ObjectComparison]",
    expected: list[_Expected],
) -> "tuple[_ObjectComparison, Requests]":
    """Compare all objects; if the store does not list keys in byte order, compare again.

    Args:
        first: the first comparison.
        make_comparison: function that returns a new comparison.
        expected: the objects that may exist, in the order of their keys.

    Returns:
        The comparison with the results, and the number of requests sent for all comparisons.
    """
    try:
        first.compare(expected)
    except UnorderedListError as error:
        # A second comparison would pass the same results to `each` again.
        if first.each is not None and (first.difference_counts or first.proofs):
            raise StorageError(
                f"{error}, after some results were reported: verify again without --objects (in "
                "Python, without `each`)"
            ) from error
        # The results of the first comparison are discarded, because its threads may still add
        # results.
        second = make_comparison()
        second.compare(expected, any_order=True)
        return second, first.calls.requests + second.calls.requests
    return first, first.calls.requests


def _list_expected(request: Request, reading: Reading) -> list[_Expected]:
    """Return the objects that may exist, sorted by key in UTF-8 order.

    The objects of all members and the marker may exist. Only the objects of the selected members
    must exist. `is_wrapped` is False for a gzip file, because the compressed size determines the
    size of the file.
    """
    key_of = reading.template.key_of()
    expected = [
        _Expected(
            key_of(member.path),
            size=stored_size(member, request.options),
            crc32=member.crc32 if member.declares_crc else None,
            is_wrapped=member.is_wrapped and request.options.as_gzip is None,
        )
        for member in reading.index.selected
    ]
    possible_keys = {reading.template.marker}
    if reading.index.selected is not reading.index.members:
        possible_keys.update(key_of(member.path) for member in reading.index.members)
    expected += [
        _Expected(key, is_selected=False)
        # Leave out the keys of selected members; other members may have the same keys.
        for key in possible_keys.difference(map(_KEY, expected))
    ]
    expected.sort(key=_KEY)  # by code point, which is also the order of UTF-8 bytes
    return expected


class _ObjectComparison:
    """One comparison of all expected objects with the destination; several threads add results.

    All differences are counted, and at most `Effort.listed` of each kind are listed. `Progress`
    receives ``extracted`` (equal objects), ``failed`` (different ones) and ``bytes_read``.
    """

    def __init__(
        self,
        request: Request,
        context: Context,
        effort: Effort,
        written: "WrittenObjects",
        *,
        each: Callable[[ComparedObject], object] | None,
    ) -> None:
        self._destination = context.stores.destination(request.destination)
        self._prefix = parse_template(request).prefix
        self._is_gzip = request.options.as_gzip is not None
        self._effort = effort
        self._written = written
        self.each = each
        self._progress = context.progress or Progress()
        self.calls = Calls(context.clock, context.tuning.retry_seconds, effort.at_once)
        # Objects that have the correct size, but whose content the listing cannot confirm:
        self._unrecorded: list[_Expected] = []  # objects that no run has recorded
        self._replaced: list[_Expected] = []  # objects that were replaced after a run
        self._lock = threading.Lock()
        self._differences: list[Difference] = []
        self.difference_counts: Counter[Kind] = Counter()
        self.proofs: Counter[Proof] = Counter()  # number of equal objects
        self.bytes_read = 0

    def first_differences(self) -> tuple[Difference, ...]:
        """Return the listed differences, sorted by kind and key."""
        kinds = list(Kind)
        return tuple(sorted(self._differences, key=lambda each: (kinds.index(each.kind), each.key)))

    def _add(self, differences: Sequence[Difference], equal: Mapping[str, Proof]) -> None:
        """Add differences and equal objects; `equal` maps keys to proofs."""
        with self._lock:
            for difference in differences:
                self.difference_counts[difference.kind] += 1
                if self.difference_counts[difference.kind] <= self._effort.listed:
                    self._differences.append(difference)
            self.proofs.update(equal.values())  # counts each proof
            if self.each is not None:
                for difference in differences:
                    self.each(ComparedObject(difference.key, difference=difference.kind))
                for key, proof in equal.items():
                    self.each(ComparedObject(key, proof=proof))
        # `Progress` has no names for equal and different objects, so these two names are used.
        self._progress.finished({"extracted": len(equal), "failed": len(differences)})

    def compare(self, expected: list[_Expected], *, any_order: bool = False) -> None:
        """Compare all objects; `expected` is sorted by key.

        Ranges of keys are listed concurrently. The first range begins where the prefix begins, the
        last range ends where the prefix ends, and each other range begins at an expected key. Thus,
        every extra object is in a range. Objects whose content the listing cannot confirm are
        looked up or read afterwards.

        Args:
            any_order: whether the store may list keys in any order, and may list some keys twice.
                If so, all keys are in one range.
        """
        size = self._effort.range_keys
        if any_order:
            size = max(1, len(expected))
        # An archive without members has one range, which contains only extra objects.
        first_indices = range(0, max(1, len(expected)), size)
        first_keys = (expected[index].key for index in first_indices[1:])
        # The first bound, "", sorts before all keys with the prefix. The last bound sorts after all
        # of them.
        key_bounds = ["", *first_keys, self._prefix + BEYOND]
        ranges = (
            partial(
                self._compare_range,
                expected[index : index + size],
                start_key,
                stop_key,
                any_order=any_order,
            )
            for index, (start_key, stop_key) in zip(
                first_indices, pairwise(key_bounds), strict=True
            )
        )
        self._run_all(ranges, threads=LISTS)  # also fills `_unrecorded` and `_replaced`
        examine = self._look_up
        if self._effort.deep:
            examine = self._read
        self._compare_contents(self._unrecorded, examine)
        # The metadata of an object that was replaced proves nothing, so the object is read.
        self._compare_contents(self._replaced, self._read)

    def _run_all(self, jobs: Iterable[Callable[[], None]], threads: int) -> None:
        """Run all jobs in `threads` threads; after an error, the other jobs end early."""

        def run(job: Callable[[], None]) -> None:
            try:
                job()
            except S3UnzipError:
                # End the other jobs now: `map_ahead` raises this error only after the earlier jobs
                # have ended.
                self.calls.end()
                raise

        try:
            # Up to four jobs wait for each thread, so that a slow job does not hold up the others.
            for _ in map_ahead(run, jobs, threads, 4 * threads):
                pass
        except BaseException:  # also on Ctrl-C; a thread that is listing stops at its next page
            self.calls.end()
            raise

    def _compare_range(
        self, members: Sequence[_Expected], start: str, stop: str, *, any_order: bool
    ) -> None:
        """Compare the members with the objects whose keys are in [`start`, `stop`)."""
        unlisted = {member.key: member for member in members}
        # Unlike `unlisted`, this set does not shrink, because a member may be listed twice. An
        # extra key that is listed twice counts twice, because there may be too many extra keys to
        # remember.
        not_extra = {stop, *unlisted}  # `stop` may be listed, but belongs to the next range
        for page in list_pages(
            self._destination, self._prefix, partial(self.calls.paced, "list"), start, last=stop
        ):
            if self.calls.has_ended:  # another thread has failed
                return
            if not (page.in_order or any_order):
                raise UnorderedListError(f"{self._prefix}: the store lists keys out of order")
            self._add(
                [
                    Difference(listed.key, Kind.EXTRA, found=show_count(listed.size, "byte"))
                    for listed in page.objects
                    if listed.key not in not_extra
                ],
                {},
            )
            pairs: list[tuple[_Expected, StoredObject]] = []
            for listed in page.objects:
                member = unlisted.pop(listed.key, None)  # None if extra, or listed before
                if member is not None and member.is_selected:
                    pairs.append((member, listed))
            self._compare_page(pairs)
        missing = [
            _missing_or_resized(member, stored=None)
            for member in unlisted.values()
            if member.is_selected
        ]
        # Looking up one object shows whether the store listed all keys of the range.
        if missing and self._look_up(missing[0].key) is not None:
            raise UnorderedListError(
                f"{missing[0].key} exists, but the store does not list it under this name; on a "
                "file system that ignores case, rename the file or folder whose name differs only "
                "in case"
            )
        self._add(missing, {})

    def _compare_page(self, pairs: Sequence[tuple[_Expected, StoredObject]]) -> None:
        """Compare the objects of a page with their members; note those that need a request."""
        differences: list[Difference] = []
        proved: dict[str, Proof] = {}
        for member, listed in pairs:
            if member.is_wrapped and (listed.size - member.size) % WRAP == 0:
                # `member.size` is known only modulo `WRAP`, so the listed size may be correct.
                member = replace(member, size=listed.size)  # noqa: PLW2901 - the same object
            if listed.size != member.size:
                differences.append(_missing_or_resized(member, listed))
                continue
            recorded_match = self._written.match(member.key, member.size, member.crc32, listed.etag)
            if recorded_match:
                proved[member.key] = Proof.RECORD
            elif recorded_match is None:  # no run has recorded the object
                self._unrecorded.append(member)
            else:
                self._replaced.append(member)
        self._add(differences, proved)

    def _compare_contents(
        self,
        members: Sequence[_Expected],
        examine: Callable[[str], tuple[Proof, StoredObject] | None],  # `_look_up` or `_read`
    ) -> None:
        def compare_job(job: Sequence[_Expected]) -> None:
            for member in job:
                result = _prove_content(member, examine(member.key))
                if isinstance(result, Difference):
                    self._add([result], {})
                else:
                    self._add([], {member.key: result})

        jobs = (
            partial(compare_job, members[start : start + OBJECTS_OF_A_JOB])
            for start in range(0, len(members), OBJECTS_OF_A_JOB)
        )
        self._run_all(jobs, self._effort.at_once)

    def _look_up(self, key: str) -> tuple[Proof, StoredObject] | None:
        """Return the proof that HEAD can give, and the object; None if there is no object.

        The store's own checksum is the CRC-32 of the object's bytes. For a gzip file, the CRC-32 in
        the metadata is used, because the bytes of the file are not the bytes of the member. In a
        store without metadata, the object is read.
        """
        if not self._destination.keeps_metadata:
            return self._read(key)
        stored = self.calls.paced("head", partial(self._destination.head, key))
        if stored is None:
            return None
        if stored.checksum is not None and not self._is_gzip:
            return Proof.CHECKSUM, stored._replace(crc32=stored.checksum)
        return Proof.METADATA, stored

    def _read(self, key: str) -> tuple[Proof, StoredObject] | None:
        """Read an object; return `Proof.READ` and the object, or None if there is no object."""
        stored = self.calls.paced(
            "get", partial(read_stored, self._destination, key, is_gzip=self._is_gzip)
        )
        if stored is None:
            return None
        with self._lock:
            self.bytes_read += stored.size
        self._progress.finished({"bytes_read": stored.size})
        return Proof.READ, stored


def _missing_or_resized(member: _Expected, stored: StoredObject | None) -> Difference:
    """Return the difference for an object that is missing (`stored` is None) or differs in size."""
    if stored is None:
        return Difference(member.key, Kind.MISSING, show_count(member.size, "byte"))
    return Difference(
        member.key, Kind.SIZE, show_count(member.size, "byte"), show_count(stored.size, "byte")
    )


def _prove_content(
    member: _Expected, examined: tuple[Proof, StoredObject] | None
) -> Difference | Proof:
    """Return the proof that an object is equal to its member, or the difference.

    Args:
        member: the object that should exist.
        examined: the proof to return if the object is equal, and the object in the store. If the
            object does not exist, `examined` is None.
    """
    if examined is None:
        return _missing_or_resized(member, stored=None)
    proof, stored = examined
    if stored.size != member.size:  # changed since the listing
        return _missing_or_resized(member, stored)
    if member.crc32 is None:
        return Proof.SIZE
    expected = f"{member.crc32:08x}"
    if stored.crc32 is None:
        return Difference(member.key, Kind.NO_CRC, expected)
    if stored.crc32 != member.crc32:
        return Difference(member.key, Kind.CRC, expected, f"{stored.crc32:08x}")
    return proof


class WrittenObjects:
    """The objects that runs wrote; each uses about 190 bytes of memory, however long its key is.

    If two runs wrote the same key, the later run counts. If two objects have the same hash, the
    earlier object needs a request.
    """

    def __init__(self) -> None:
        # For each object, the CRC-32 and the digest of the ETag, in 20 bytes. To save memory, the
        # keys are hashes of a key and a size. If two objects have the same hash, the later object
        # is kept. `match` does not find the earlier object, so a request must prove its content.
        self._digests: dict[int, bytes] = {}
        self.runs: list[str] = []  # ids of the runs that wrote objects

    def add_run(self, records: RunRecords) -> None:
        """Add the objects of a run that have an ETag; to save memory, keep only their hashes."""
        for outcome in records.all_outcomes():
            if outcome.etag is not None:
                self._digests[hash((outcome.key, outcome.size))] = b"".join(
                    (outcome.crc32.to_bytes(4, "big"), _digest(outcome.etag))
                )
                if not self.runs or self.runs[-1] != records.run:  # the first object of the run
                    self.runs.append(records.run)

    def match(self, key: str, size: int, crc32: int | None, etag: str | None) -> bool | None:
        """Return whether an object is still the one that a run wrote.

        Args:
            key, size: the key and the size of an object in the listing of the store.
            crc32: the CRC-32 that its content should have; None if the archive does not declare it.
            etag: the ETag in the listing, without quotes; None if the listing contains none.

        Returns:
            None if no run recorded an object with this key, size and CRC-32. Otherwise, True if the
            object has the recorded ETag, and False if the object was replaced or `etag` is None.
        """
        recorded = self._digests.get(hash((key, size)))
        # The first four bytes of `recorded` are the CRC-32.
        if recorded is None or (crc32 is not None and recorded[:4] != crc32.to_bytes(4, "big")):
            return None
        return etag is not None and recorded[4:] == _digest(etag)


def _digest(etag: str) -> bytes:
    return hashlib.blake2b(etag.encode(), digest_size=16).digest()


def read_written(
    runs: Iterable[RunRecords], destination: Location, warn: Callable[[str], object] | None = None
) -> WrittenObjects:
    """Return the objects that runs wrote to the bucket of `destination`.

    Args:
        runs: the records of the runs in chronological order; runs to other buckets are ignored.
        destination: a prefix; if its store does not provide ETags, no records are read.
        warn: called with a message for each run with an unreadable record. Outcomes of the run that
            have not been read yet are ignored.
    """
    written = WrittenObjects()
    if not destination.store.has_etags:
        return written
    for records in runs:
        try:
            plan = records.find_plan()
            # A small run has no plan, but the report also contains the destination.
            run_or_report = plan.run if plan is not None else records.find_report()
            if run_or_report is not None and run_or_report.destination.bucket == destination.bucket:
                written.add_run(records)
        except UnreadableRecordError as error:
            if warn is not None:
                warn(f"{error}; verify continues without the records of this run")
    return written
