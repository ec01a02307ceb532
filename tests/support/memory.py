"""A store in memory that really implements the ports, and whole runs over it in this process.

The contract suite runs over the store as over every other adapter, so what a test shows on it
holds for the rest.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from zlib import crc32

from msgspec.structs import replace

from s3unzip.context import Context, Progress, UploadNotes
from s3unzip.errors import (
    ConflictError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
)
from s3unzip.extraction.task import run_task
from s3unzip.local.machine import Machine
from s3unzip.local.workers import Workers
from s3unzip.model import (
    Location,
    NestedRun,
    Options,
    Outcome,
    Part,
    Pin,
    PlanSummary,
    Report,
    Request,
    Task,
    TaskKind,
    Verdict,
)
from s3unzip.pricing import Platform
from s3unzip.runs.records import RunRecords
from s3unzip.settings import KIB, Tuning
from s3unzip.settling.loop import StepResult, begin_run, resume, settle
from s3unzip.stores import Stores, archives, listing
from s3unzip.stores.calls import Calls
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.ports import (
    Buffer,
    Clock,
    ListPage,
    ObjectFacts,
    PartLimits,
    StoredObject,
    Tail,
    Upload,
)
from s3unzip.stores.run_store import ObjectRunStore
from s3unzip.zip import ByteRange, Policy

PIECE = 64 * 1024
LIMITS = PartLimits(min_bytes=1024, max_bytes=1 << 30, max_parts=10_000, object_bytes=1 << 40)
MODIFIED = 1_795_466_132.0  # 2026-11-23 20:35:32


@dataclass(slots=True)
class Stored:
    """One object."""

    body: bytes
    facts: ObjectFacts
    etag: str
    modified: float = MODIFIED


@dataclass(slots=True)
class Pending:
    """One incomplete multipart upload."""

    key: str
    facts: ObjectFacts
    parts: dict[int, tuple[Part, bytes]] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class MemoryBucket:
    """Source and destination at once."""

    copies: bool = True
    part_checksums: bool = False
    objects: dict[str, Stored] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    puts: int = 0
    neighbours: dict[str, MemoryBucket] | None = None  # that parts are copied from
    versions: dict[tuple[str, str], Stored] | None = None  # by key and id, where kept
    keeps_metadata: bool = True
    part_limits: PartLimits = LIMITS
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # Source

    def tail(self, location: Location, length: int) -> Tail:
        stored = self._stored(location.key)
        pin = Pin(len(stored.body), stored.etag, None if self.versions is None else stored.etag)
        return Tail((stored.body[-length:] if length else b""), pin, stored.modified)

    # Destination

    def _nothing(self, *_: object, **__: object) -> None:
        """Do nothing: memory is reached and ready, and nothing of it is kept open."""

    check_reachable = check_ready = release = _nothing

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        data = bytes(body)
        with self._lock:
            if if_absent and key in self.objects:
                raise ConflictError(f"{key} exists")
            self.puts += 1
            stored = self.objects[key] = Stored(data, facts, _etag(data))
            if self.versions is not None:
                self.versions[key, stored.etag] = stored
            return stored.etag.strip('"')

    @property
    def bodies(self) -> dict[str, bytes]:
        return {key: stored.body for key, stored in self.objects.items()}

    def add(self, key: str, body: bytes) -> None:
        """Put an object as any program does, also over another one."""
        self.put(key, body, ObjectFacts("application/zip", {}), if_absent=False)

    def replace(self, key: str, body: bytes, facts: ObjectFacts, etag: str | None) -> None:
        with self._lock:
            if self._stored(key).etag != f'"{etag}"':
                raise ConflictError(f"{key} has another ETag")
            self.objects[key] = Stored(body, facts, _etag(body))

    def head(self, key: str) -> StoredObject | None:
        stored = self.objects.get(key)
        if stored is None:
            return None
        crc = stored.facts.metadata.get("zip-crc32")
        return StoredObject(
            key, len(stored.body), None if crc is None else int(crc, 16), stored.etag.strip('"')
        )

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        return listing.cut_page(self.list_objects(prefix, token or first, last))

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[StoredObject]:
        low, high = first.encode(), last.encode()
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and low <= key.encode() <= high:
                stored = self.objects[key]
                yield StoredObject(key, len(stored.body), etag=stored.etag.strip('"'))

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        body = self._stored(key).body
        body = body if span is None else body[span[0] : span[1]]
        for at in range(0, len(body), PIECE):
            yield body[at : at + PIECE]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        with self._lock:
            upload_id = f"upload-{next(self._ids)}"
            self.pending[upload_id] = Pending(key, facts)
            return upload_id

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        return self._add_part(upload, number, bytes(body), crc32)

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        bucket = self if self.neighbours is None else self.neighbours[source.bucket]
        body = MemorySource(bucket).read(source, pin, span)
        return self._add_part(upload, number, body, crc32(body) if self.part_checksums else None)

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        with self._lock:
            pending = self._pending(upload)
            if if_absent and upload.key in self.objects:
                raise ConflictError(f"{upload.key} exists")
            if not parts:
                raise StorageError(f"{upload.key}: an upload without parts: MalformedXML")
            held = [pending.parts.get(part.number) for part in parts]
            if any(
                found is None or found[0].etag.strip('"') != part.etag.strip('"')
                for found, part in zip(held, parts, strict=True)
            ):
                raise StorageError(f"{upload.key}: a part is not of this upload: InvalidPart")
            bodies = [found[1] for found in held if found is not None]
            for part, content in zip(parts[:-1], bodies, strict=False):
                if len(content) < self.part_limits.min_bytes:
                    raise AssertionError(
                        f"part {part.number} has {len(content)} bytes: EntityTooSmall"
                    )
            del self.pending[upload.upload_id]
            whole = b"".join(bytes.fromhex(_etag(body).strip('"')) for body in bodies)
            etag = f'{_etag(whole)[:-1]}-{len(bodies)}"'
            stored = self.objects[upload.key] = Stored(b"".join(bodies), pending.facts, etag)
            return stored.etag.strip('"')

    def abort_upload(self, upload: Upload) -> None:
        with self._lock:
            self.pending.pop(upload.upload_id, None)

    def uploads(self, prefix: str) -> Iterator[Upload]:
        for upload_id, pending in list(self.pending.items()):
            if pending.key.startswith(prefix):
                yield Upload(pending.key, upload_id)

    def copies_from(self, source: Location, pin: Pin) -> bool:
        return self.copies and not pin.parts

    def _stored(self, key: str) -> Stored:
        try:
            return self.objects[key]
        except KeyError:
            raise NotFoundError(f"{key}: no such key") from None

    def _pending(self, upload: Upload) -> Pending:
        try:
            return self.pending[upload.upload_id]
        except KeyError:
            raise NotFoundError(f"{upload.key}: no such upload") from None

    def _add_part(self, upload: Upload, number: int, body: bytes, crc: int | None) -> Part:
        with self._lock:
            part = Part(number, _etag(body), len(body), crc)
            self._pending(upload).parts[number] = (part, body)
            return part


@dataclass(eq=False)
class MemorySource(archives.Source):
    """The reading side of a bucket, which knows one version of each archive to delete or tag."""

    bucket: MemoryBucket

    def tail(self, location: Location, length: int) -> Tail:
        return self.bucket.tail(location, length)

    def stat(self, location: Location) -> Tail:
        return self.tail(location, 0)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        for start in range(want.start, want.stop, PIECE):
            piece = ByteRange(start, min(start + PIECE, want.stop))
            yield self.read(location, pin, piece)

    def read(self, location: Location, pin: Pin, want: ByteRange) -> bytes:
        """Return a range of the pinned version at once."""
        stored = self.bucket.objects.get(location.key)
        if pin.version_id is not None and self.bucket.versions is not None:
            stored = self.bucket.versions.get((location.key, pin.version_id))
        if stored is None or stored.etag != pin.etag:
            raise SourceChangedError(f"{location.key} changed")
        assert 0 <= want.start <= want.stop <= len(stored.body), want
        return stored.body[want.start : want.stop]

    def delete(self, location: Location, pin: Pin) -> None:
        if self._find(location, pin) is not None:
            del self.bucket.objects[location.key]

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        found = self._find(location, pin)
        if found is None:
            raise SourceChangedError(f"{location}: is gone")
        found.facts.metadata.update(tags)

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:
        found = self._find(location, pin)
        return {} if found is None else dict(found.facts.metadata)

    def _find(self, location: Location, pin: Pin) -> Stored | None:
        found = self.bucket.objects.get(location.key)
        if found is not None and found.etag != pin.etag:
            raise SourceChangedError(f"{location}: a newer archive has replaced it")
        return found


class MemoryStores:
    """Buckets by name, and one for the records of all runs."""

    def __init__(self, **buckets: MemoryBucket) -> None:
        self.buckets = dict(buckets)
        self.records = MemoryBucket()

    def bucket(self, name: str) -> MemoryBucket:
        bucket = self.buckets.setdefault(name, MemoryBucket())
        bucket.neighbours = self.buckets
        return bucket

    def end_startup(self) -> None:
        """Do nothing: memory is always reached."""

    def source(self, location: Location) -> MemorySource:
        return MemorySource(self.bucket(location.bucket))

    def destination(self, location: Location) -> MemoryBucket:
        return self.bucket(location.bucket)

    def run_store(self, run: str, calls: Calls | None = None) -> ObjectRunStore:
        return ObjectRunStore(
            Location("mem", "work", f"runs/{run}/"),
            MemorySource(self.records),
            self.records,
            calls or Calls(ManualClock(), 0.0, 4),
        )

    def forget_runs(self) -> None:
        self.records = MemoryBucket()


class ManualClock(Clock):
    """Time that passes only when somebody sleeps, and a limit that a test can set."""

    def __init__(self, remaining: float = float("inf")) -> None:
        super().__init__(remaining=lambda: self.left)
        self.slept = 0.0
        self.left = remaining
        began = time.time()
        self.now = lambda: began + self.slept

    def wait(self, _stopped: threading.Event, seconds: float) -> None:
        self.slept += seconds


def put_archive(stores: MemoryStores, data: bytes, key: str = "in/archive.zip") -> Location:
    """Store an archive in the bucket ``ingest``; return where it is."""
    stores.bucket("ingest").add(key, data)
    return Location("s3", "ingest", key)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'  # noqa: S324 - what an ETag is


OUT = Location("s3", "out", "")
KEY = "archive/"

# Sizes at which a few hundred KiB are a huge member.
TINY = Tuning(
    small_member=4 * KIB,
    copy_from=4 * KIB,
    split_from=32 * KIB,
    segment_bytes=32 * KIB,
    copy_task_bytes=1 << 40,
    copy_part_bytes=16 * KIB,
    part_bytes=16 * KIB,
    read_piece=8 * KIB,
)
WHOLE = replace(TINY, split_from=1 << 40)  # nothing is split


@dataclass(eq=False)
class Told(Progress):
    """Keeps what a run tells."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def finished(self, counts: Mapping[str, int]) -> None:
        assert all(count > 0 for count in counts.values()), "progress never goes back"
        self.counts.update(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        self.failures += outcomes

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def trouble(self, message: str) -> None:
        self.troubles.append(message)


WholeT = TypeVar("WholeT")


def check_fields(whole: WholeT, expected: Mapping[str, object]) -> WholeT:
    """Assert what some fields of a value are; return it."""
    assert {name: getattr(whole, name) for name in expected} == expected, whole
    return whole


@dataclass(slots=True)
class OneRunMachine:
    """Opens a machine with a home of its own for each call."""

    context: Context

    @contextmanager
    def open(self) -> Iterator[Machine]:
        with TemporaryDirectory() as home:
            workers = Workers(1, self.context, lambda *_: self.context)
            config = StoreConfig(Location("file", "", f"{home}/"))
            with Machine(self.context, config, workers) as machine:
                yield machine

    def run(self, request: Request) -> Report:
        with self.open() as machine:
            return machine.run(request)

    def resume(self, run: str, *, failed: bool = False) -> Report:
        with self.open() as machine:
            return machine.resume(run, failed=failed)

    def run_nested(self, report: Report, max_cost: float | None = None) -> list[NestedRun]:
        with self.open() as machine:
            machine._lock(report.run)
            return list(machine.run_nested(report, max_cost))


@dataclass(slots=True)
class World:
    """Buckets, and runs between them; `stores` may stand before the buckets."""

    tuning: Tuning = field(default_factory=Tuning)
    buckets: MemoryStores = field(default_factory=MemoryStores)
    clock: Clock = field(default_factory=ManualClock)
    stores: Stores | None = None
    progress: Progress | None = None
    platform: Platform | None = None
    policy: Policy = field(default_factory=Policy)
    uploads: UploadNotes = field(default_factory=UploadNotes)

    @property
    def out(self) -> MemoryBucket:
        return self.buckets.bucket("out")

    @property
    def context(self) -> Context:
        return Context(
            (self.stores or self.buckets),
            self.clock,
            self.policy,
            self.tuning,
            self.progress,
            self.platform,
            uploads=self.uploads,
        )

    def tune(self, **changes: float) -> None:
        self.tuning = replace(self.tuning, **changes)

    def request(self, archive: bytes, options: Options | None = None) -> Request:
        return Request(put_archive(self.buckets, archive), OUT, options or Options())

    def run(self, archive: bytes, options: Options | None = None, **expected: Any) -> Report:
        """Extract an archive; assert what some fields of the report are."""
        return check_fields(self.run_request(self.request(archive, options)), expected)

    def run_request(self, request: Request) -> Report:
        plans: list[PlanSummary] = []
        self.buckets.forget_runs()
        step = begin_run(request, self.context, planned=plans.append)
        report = self.finish(step)
        # The plan is told of once, if the archive is not refused, and every entry counts once.
        assert len(plans) == (report.verdict is not Verdict.REJECTED)
        for plan in plans:
            assert plan.run.id == report.run
            parts = plan.selected + plan.failed + plan.directories + plan.excluded
            assert plan.members == parts == report.members
            assert (
                report.extracted + report.unchanged + report.failed + report.missing
            ) == plan.selected + plan.failed
        return report

    def resume(self, run: str, *, failed: bool = False, **expected: Any) -> Report:
        """Continue a run; assert what some fields of the report are."""
        return check_fields(self.finish(resume(run, self.context, failed=failed)), expected)

    def finish(self, step: StepResult, before: Callable[[Task], object] | None = None) -> Report:
        """Do rounds until the run ends; a task that fails is in the next round."""
        while step.report is None:
            records = self.records(step.next.run)
            run = records.read_plan().run
            for task in step.next.tasks or records.read_round(step.next.round):
                if before is not None:
                    before(task)
                try:
                    run_task(run, task, self.context)
                except S3UnzipError as fault:
                    if not (
                        isinstance(fault, ServiceFaultError) or records.find_stop() is not None
                    ):
                        raise
            step = settle(step.next, self.context)
        return step.report

    @property
    def machine(self) -> OneRunMachine:
        """What extracts as this machine does, after-success action included."""
        return OneRunMachine(self.context)

    def records(self, run: str) -> RunRecords:
        return RunRecords.open(self.stores or self.buckets, run)

    def tasks(self, report: Report, *kinds: TaskKind) -> list[Task]:
        return [
            task for task in self.records(report.run).tasks() if not kinds or task.kind in kinds
        ]

    def contents(self, prefix: str = KEY) -> dict[str, bytes]:
        return {key.removeprefix(prefix): body for key, body in self.out.bodies.items()}

    def content(self, name: str) -> bytes | None:
        return self.out.bodies.get(KEY + name)

    def assert_clean(self, report: Report, **contents: bytes) -> None:
        """Assert that the run completed with these members, and left no upload."""
        assert (report.verdict, report.tasks_failed) == ("COMPLETED", 0), report
        for name, content in contents.items():
            assert self.content(name) == content, name
        assert self.out.pending == {}

    def assert_absent(self, name: str) -> None:
        assert self.content(name) is None
        assert self.out.pending == {}
