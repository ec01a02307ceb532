"""The values that travel: request -> run -> tasks and members -> outcomes -> report.

Each is defined once, frozen, and goes through JSON without loss (`encode`,
`decode`). Nothing flows back: `extract` never edits a plan, `report` never
asks the store for what an outcome already says.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from s3unzip.errors import Finding, UsageError

T = TypeVar("T")

NOT_AN_ARCHIVE = "no-eocd"  # the reason of a file that is only called .zip


def encode(value: object) -> bytes:
    """Return `value` as one line of JSON, without the newline."""
    return msgspec.json.encode(value)


def decode(line: bytes | str, kind: type[T]) -> T:
    """Return the `kind` that `line` holds.

    Raises:
        UsageError: `line` is not such a value: another version wrote it, or a hand did.
    """
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from error


class Location(Struct, frozen=True):
    """One object, or a prefix of them: ``s3://bucket/key``, a path, ``https://host/path``."""

    scheme: str  # s3, file, http or https
    bucket: str  # bucket, or host with port; empty for a file
    key: str  # key, absolute path, or path with query

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.key
        shown = self.public
        return f"{shown.scheme}://{shown.bucket}/{shown.key}"

    @property
    def public(self) -> Location:
        """The location fit to be shown: a user, and the query of a presigned URL, are secrets."""
        if self.scheme not in {"http", "https"}:
            return self
        path, mark, _ = self.key.partition("?")
        host = self.bucket.rpartition("@")[2]
        return Location(self.scheme, host, path + ("?..." if mark else ""))


class Pin(Struct, frozen=True):
    """The one version of the archive that a run reads; every range carries it."""

    size: int
    etag: str | None = None  # as the store gave it, quotes included
    version_id: str | None = None


class OnConflict(StrEnum):
    """What to do where the destination already has the key."""

    OVERWRITE = "overwrite"
    SKIP_UNCHANGED = "skip-unchanged"  # size and zip-crc32 equal
    NEVER = "never"  # If-None-Match


class GzipForm(StrEnum):
    """How a member that is kept compressed is marked as gzip."""

    SUFFIX = "suffix"  # the key ends in .gz
    ENCODING = "encoding"  # Content-Encoding: gzip


class Budget(Struct, frozen=True, array_like=True):
    """What nested archives may come to, all of them together."""

    archives: int
    members: int
    size: int  # bytes of their members


class Options(Struct, frozen=True, omit_defaults=True):
    """What the caller chose; part of the run's identity."""

    key_template: str = "{archive_stem}/{member}"
    on_conflict: OnConflict = OnConflict.OVERWRITE
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # exact member names; none: all
    limit: int | None = None  # extract the first so many of the selected members
    lenient: bool = False
    encoding: str | None = None
    as_gzip: GzipForm | None = None  # the raw deflate stream re-wrapped, not inflated
    trust_crc: bool = False  # with as_gzip: do not inflate to check
    password_ref: str | None = None  # where the password is, never the password
    nested_depth: int = 0  # how many levels of archives inside of archives are extracted too
    nested_budget: Budget | None = None  # of a nested run: what it and those below it may come to
    marker: bool = False  # write _SUCCESS last


class Request(Struct, frozen=True):
    """What starts a run: an event or a command line."""

    source: Location
    destination: Location  # a prefix, its key empty or ending in "/"
    options: Options = Options()
    event_time: float | None = None  # Unix seconds: when the archive was put
    received_time: float | None = None  # Unix seconds: when the planner saw the event


class Run(Struct, frozen=True):
    """One extraction of one archive version to one destination with one set of options."""

    id: str
    source: Location
    pin: Pin
    destination: Location
    options: Options
    key_prefix: str  # every key of the run begins with it; the member's path follows
    created: float  # Unix seconds
    event_time: float | None = None


def run_id(request: Request, pin: Pin) -> str:
    """Return the run's id: a readable stem and a hash, fit for an execution's name.

    Step Functions takes 1-80 characters of [A-Za-z0-9_-] as a name.
    """
    identity = encode((request.source, pin, request.destination, request.options))
    return f"{run_stem(request.source)}-{hashlib.sha256(identity).hexdigest()[:20]}"


def run_stem(source: Location) -> str:
    """Return what the ids of all runs of an archive of this name begin with, before a hyphen."""
    return re.sub(r"[^A-Za-z0-9]+", "-", archive_stem(source)).strip("-")[:40] or "archive"


def archive_stem(source: Location) -> str:
    """Return the archive's last path part without its ``.zip``."""
    name = source.key.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"\.zip$", "", name, flags=re.IGNORECASE)


class TaskKind(StrEnum):
    """How a worker does a task."""

    BATCH = "batch"  # a contiguous byte range of the archive holding many small members
    STREAM = "stream"  # one large member, inflated into a multipart upload
    COPY = "copy"  # a stored member, or a slice of one, copied server-side
    SEGMENT = "segment"  # a slice of one huge deflated member


class Task(Struct, frozen=True, omit_defaults=True):
    """A unit for one worker: a line of ``plan.jsonl``, a few hundred bytes at most."""

    id: str  # "batch-000012": unique in the run, names its outcomes
    kind: TaskKind
    rows: tuple[int, int]  # its members: bytes [start, stop) of members.jsonl
    members: int
    span: tuple[int, int]  # bytes [start, stop): of the archive; of one member: of its data
    size: int  # bytes it writes; of a segment: of the compressed slice, as only a scan knows
    seconds: float  # forecast
    part: int = 0  # of a split member: which slice
    parts: int = 1  # and of how many


class MemberRow(Struct, frozen=True, array_like=True, gc=False):
    """One member as a worker needs it: a line of ``members.jsonl``, a JSON array."""

    index: int  # place in the central directory, from 0
    key: str
    raw_name: bytes | None  # None: the key without the run's prefix, in UTF-8
    offset: int  # of the local header in the archive
    stop: int  # where the next listed thing begins
    compressed_size: int
    size: int
    crc32: int
    method: int
    flags: int
    mtime: int | None  # Unix seconds
    mode: int | None  # Unix mode bits
    path: str | None = None  # None: the key without the run's prefix
    written: bytes | None = None  # digest of the ETag of the object that an earlier run wrote


class Status(StrEnum):
    """What became of a member."""

    EXTRACTED = "extracted"
    UNCHANGED = "unchanged"
    FAILED = "failed"


class Outcome(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a worker says of one member: a line of ``outcomes/<task>.jsonl``."""

    index: int
    key: str
    status: Status
    size: int = 0
    crc32: int = 0
    reason: str | None = None  # code of a check, or of a service answer
    message: str | None = None
    offset: int | None = None
    etag: str | None = None  # without quotes, as the store answered the PUT; None: not known

    @staticmethod
    def failed(index: int, key: str, finding: Finding) -> Outcome:
        """Return the outcome of a member that `finding` is about."""
        return Outcome(
            index=index,
            key=key,
            status=Status.FAILED,
            reason=finding.code,
            message=finding.message,
            offset=finding.offset,
        )


class Requests(Struct, frozen=True, omit_defaults=True):
    """Calls to object stores by kind; retries included."""

    get: int = 0
    put: int = 0
    head: int = 0
    list: int = 0
    create: int = 0  # CreateMultipartUpload
    part: int = 0  # UploadPart
    copy: int = 0  # UploadPartCopy
    complete: int = 0
    abort: int = 0
    delete: int = 0  # DeleteObjects
    retries: int = 0  # how many of all these were second and later attempts
    throttled: int = 0  # how many were answered with "slow down"

    @property
    def reads(self) -> int:
        """Requests that AWS prices as GET: https://aws.amazon.com/s3/pricing/."""
        return self.get + self.head

    @property
    def writes(self) -> int:
        """Requests that AWS prices as PUT, COPY, POST or LIST; to abort and delete is free."""
        return self.put + self.create + self.part + self.copy + self.complete + self.list

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, n) + getattr(other, n) for n in Requests.__struct_fields__))

    def __sub__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, n) - getattr(other, n) for n in Requests.__struct_fields__))


class Part(Struct, frozen=True, omit_defaults=True):
    """One uploaded part of a multipart upload."""

    number: int  # from 1
    etag: str
    size: int
    crc32: int | None = None  # of the part's bytes, where somebody computed it
    checksum_crc32: str | None = None  # as the store wants it back on Complete (base64)


class TaskReport(Struct, frozen=True, omit_defaults=True):
    """What one task did: the first line of ``outcomes/<task>.jsonl``."""

    task: str
    kind: TaskKind
    members: int
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    requests: Requests = Requests()
    started: float = 0.0  # Unix seconds
    seconds: float = 0.0
    first_object: float | None = None  # Unix seconds of the first finished PUT
    put_seconds: float = 0.0  # sum of the PUTs' latencies
    part: int = 0
    parts: int = 1
    uploaded: tuple[Part, ...] = ()  # of a slice of a split member
    upload_id: str | None = None
    warnings: dict[str, int] = {}
    unfinished: int = 0  # members left when time ran out


class Verdict(StrEnum):
    """How a run ended."""

    COMPLETED = "COMPLETED"
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"
    REJECTED = "REJECTED"  # ambiguous or broken index: nothing was written
    SOURCE_CHANGED = "SOURCE_CHANGED"
    FAILED = "FAILED"  # a service fault, or work left: redrive

    @property
    def exit_code(self) -> int:
        """Exit code of the command line."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Verdict.COMPLETED: 0,
    Verdict.COMPLETED_WITH_ERRORS: 1,
    Verdict.REJECTED: 3,
    Verdict.SOURCE_CHANGED: 4,
    Verdict.FAILED: 5,
}


class PlanSummary(Struct, frozen=True, omit_defaults=True):
    """What the plan found: ``summary.json``, small whatever the archive."""

    run: Run
    members: int  # in the central directory
    directories: int = 0
    excluded: int = 0  # by include, exclude, names or limit
    failed: int = 0  # at the index already; listed in outcomes/index.jsonl
    selected: int = 0  # members in tasks
    tasks: int = 0
    kinds: dict[str, int] = {}  # members by task kind
    split_members: int = 0  # members over several tasks: these need scan and link
    scans: int = 0  # lines of scan.jsonl
    bytes_in: int = 0  # compressed, selected
    bytes_out: int = 0  # uncompressed, selected
    concurrency: int = 1  # tasks at once
    seconds: float = 0.0  # forecast of the run
    longest_task: float = 0.0  # forecast
    warnings: dict[str, int] = {}
    started: float = 0.0  # Unix seconds
    plan_seconds: float = 0.0
    requests: Requests = Requests()
    bytes_read: int = 0


class ScanTask(Struct, frozen=True):
    """One segment to scan: a line of ``scan.jsonl``."""

    id: str  # "scan-000012-0003"
    row: tuple[int, int]  # its member: bytes [start, stop) of members.jsonl
    member: int  # index of the member
    part: int
    parts: int
    step: int  # bytes of compressed data between the places where segments are looked for


class ScanReport(Struct, frozen=True, omit_defaults=True):
    """What one scan cost: ``scans/<id>.json``; what it found is beside it, ``scans/<id>.bin``."""

    scan: str
    member: int
    part: int
    found: bool  # False: no boundary here, the segment joins the one before it
    seconds: float = 0.0
    started: float = 0.0  # Unix seconds
    bytes_read: int = 0
    requests: Requests = Requests()


class SliceParts(Struct, frozen=True, array_like=True):
    """Which multipart parts one slice of a split member uploads: an element of a `Link`."""

    part: int  # of the task that does it
    segments: tuple[int, ...]  # parts of the scans it extracts, in order; of a copy: none
    offset: int  # of its first byte in the object
    size: int  # bytes
    first_number: int  # of its first multipart part
    count: int  # of its multipart parts


class Link(Struct, frozen=True, omit_defaults=True):
    """How the tasks of one split member fit together: ``links/<member>.json``."""

    member: int
    key: str
    upload_id: str | None  # None: no slice is to be done
    data_start: int = 0  # offset in the archive of the member's data
    slices: tuple[SliceParts, ...] = ()
    stream: bool = False  # the member is to be streamed whole, as a task of its own
    outcome: Outcome | None = None  # the member's, where it is known already


class LinkCost(Struct, frozen=True):
    """What linking cost, all attempts together: ``link.json``."""

    requests: Requests


class Stop(Struct, frozen=True):
    """Why a whole run must end: ``stop.json``; every task looks for it."""

    verdict: Verdict
    reason: str
    message: str


class UploadRecord(Struct, frozen=True, array_like=True):
    """``uploads/<owner>/<attempt>.json``; without an id, any upload of the key may be meant."""

    key: str
    upload_id: str | None = None


class Failure(Struct, frozen=True, omit_defaults=True):
    """A member or a task that failed, as the report lists it."""

    key: str
    reason: str
    message: str = ""
    index: int | None = None
    offset: int | None = None
    task: str | None = None


class Report(Struct, frozen=True, omit_defaults=True):
    """``report.json``: written last, whatever the verdict."""

    run: str
    verdict: Verdict
    source: Location
    pin: Pin | None
    destination: Location
    options: Options
    reason: str | None = None  # of a verdict that is not about members
    message: str | None = None  # in words, fit to be shown
    offset: int | None = None  # in the archive, where the message is about a place in it
    members: int = 0
    directories: int = 0
    excluded: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    missing: int = 0  # members without an outcome: their task did not end
    reasons: dict[str, int] = {}
    warnings: dict[str, int] = {}
    failures: tuple[Failure, ...] = ()  # the first Tuning.failures_listed
    tasks: int = 0
    tasks_failed: int = 0
    bytes_in: int = 0  # read from the archive
    bytes_out: int = 0  # written to the destination
    requests: Requests = Requests()  # of all steps, this report's own among them
    settling: Requests = Requests()  # of these, what reports took: this one and earlier ones
    event_time: float | None = None
    started: float = 0.0
    finished: float = 0.0
    plan_seconds: float = 0.0
    task_seconds: float = 0.0  # sum over tasks
    first_object: float | None = None
    forecast_seconds: float | None = None
    forecast_cost: float | None = None  # dollars
    cost: float | None = None  # dollars, of what was counted
    records: str | None = None  # of a direct run: the object below runs/ that has all its records


class Settled(Struct, frozen=True):
    """What settling a run gave: the report, and how many tasks ``redo.jsonl`` lists."""

    report: Report
    left: int


class NestedRun(Struct, frozen=True, omit_defaults=True):
    """What became of one nested archive: a line of ``nested.jsonl``."""

    key: str
    run: str | None = None  # None: it was not begun
    verdict: Verdict | None = None
    reason: str | None = None
    message: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether all of it is extracted, or there was nothing to extract."""
        return self.verdict is Verdict.COMPLETED or self.reason == NOT_AN_ARCHIVE
