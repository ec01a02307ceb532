"""The values between the steps of a run: tasks and members, their outcomes, their costs."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from s3unzip.errors import Finding
from s3unzip.model.request import Run
from s3unzip.zip import Member


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
    retries: int = 0  # how many of these were retries
    throttled: int = 0  # how many S3 answered with "slow down"

    @property
    def reads(self) -> int:
        """Requests that AWS prices as GET: https://aws.amazon.com/s3/pricing/."""
        return self.get + self.head

    @property
    def writes(self) -> int:
        """Requests that AWS prices as PUT, COPY, POST or LIST; abort and delete are free."""
        return self.put + self.create + self.part + self.copy + self.complete + self.list

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, n) + getattr(other, n) for n in Requests.__struct_fields__))

    def __sub__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, n) - getattr(other, n) for n in Requests.__struct_fields__))


class TaskKind(StrEnum):
    """How a worker does a task."""

    BATCH = "batch"  # a contiguous byte range of the archive holding many small members
    STREAM = "stream"  # one large member, inflated into a multipart upload
    COPY = "copy"  # a stored member, or a slice of one, copied server-side
    SEGMENT = "segment"  # a slice of one huge deflated member


class Task(Struct, frozen=True, omit_defaults=True):
    """A unit of work for one worker: a line of ``plan.jsonl``, a few hundred bytes at most."""

    id: str  # "batch-000012": unique in the run, names its outcomes
    kind: TaskKind
    rows: tuple[int, int]  # its members: bytes [start, stop) of members.jsonl
    members: int
    span: tuple[int, int]  # bytes [start, stop): of the archive; of one member: of its data
    size: int  # bytes it writes; of a segment: of the compressed slice, as only a scan knows
    seconds: float  # forecast
    part: int = 0  # of a split member: the number of the slice
    parts: int = 1  # and the number of slices


HEADER_BYTES = 128  # around a member's data: its local header, its descriptor


class PlannedMember(Struct, frozen=True, array_like=True, gc=False):
    """A member that a task extracts: a line of ``members.jsonl``, a JSON array."""

    member: Member
    key: str = ""  # in the file empty where it is the run's key prefix and the member's path
    written: bytes | None = None  # digest of the ETag of the object that an earlier run wrote

    def finding(self, code: str, message: str) -> Finding:
        """Return what is wrong with the member, with its place in the archive."""
        return Finding(code, message, self.member.offset, self.key)

    def outcome(self, status: Status, size: int | None = None, etag: str | None = None) -> Outcome:
        """Return the outcome of the member if its object is right.

        Args:
            status: extracted or unchanged.
            size: bytes of the object, if it is not the member's own size.
            etag: of the object, without quotes; None: not known.
        """
        member = self.member
        written = member.size if size is None else size
        return Outcome(member.index, self.key, status, written, member.crc32, etag=etag)

    @property
    def work(self) -> int:
        """Bytes of the archive that the member counts for in the progress of a run."""
        return self.member.compressed_size + HEADER_BYTES

    def share_of_work(self, start: int, stop: int) -> int:
        """Return what bytes [start, stop) of the content count for; all together are `work`."""
        size = max(1, self.member.size)
        return self.work * stop // size - self.work * start // size


class PlanSummary(Struct, frozen=True, omit_defaults=True):
    """The result of the plan: ``summary.json``, small for every archive."""

    run: Run
    members: int  # in the central directory
    directories: int = 0
    excluded: int = 0  # by include, exclude, names or limit
    failed: int = 0  # by the plan; listed in outcomes/index.jsonl
    selected: int = 0  # members in tasks
    tasks: int = 0
    kinds: dict[str, int] = {}  # members by task kind
    split_members: int = 0  # members over several tasks: these need scan and link
    scans: int = 0  # lines of scan.jsonl
    bytes_in: int = 0  # compressed, selected
    bytes_out: int = 0  # uncompressed, selected
    slices: int = 0  # tasks of split members
    concurrency: int = 1  # concurrent tasks
    whole_at_once: int = 1  # concurrent tasks of whole members, beside those of split members
    split_at_once: int = 1  # concurrent scans or slices
    seconds: float = 0.0  # forecast of the run
    longest_task: float = 0.0  # forecast
    warnings: dict[str, int] = {}
    started: float = 0.0  # Unix seconds
    plan_seconds: float = 0.0
    requests: Requests = Requests()
    bytes_read: int = 0

    @property
    def work(self) -> int:
        """Bytes of the archive that all selected members count for in the progress."""
        return self.bytes_in + HEADER_BYTES * self.selected


class ScanTask(Struct, frozen=True):
    """One segment to scan: a line of ``scan.jsonl``."""

    id: str  # "scan-000012-0003"
    row: tuple[int, int]  # its member: bytes [start, stop) of members.jsonl
    member: int  # index of the member
    part: int
    parts: int
    step: int  # bytes of compressed data between two searches for a boundary


class Status(StrEnum):
    """The result of a member."""

    EXTRACTED = "extracted"
    UNCHANGED = "unchanged"
    FAILED = "failed"


class Outcome(Struct, frozen=True, omit_defaults=True, gc=False):
    """The outcome of one member: a line of ``outcomes/<task>.jsonl``."""

    index: int
    key: str
    status: Status
    size: int = 0
    crc32: int = 0
    reason: str | None = None  # code of a check or of a service's error
    message: str | None = None
    offset: int | None = None
    etag: str | None = None  # the ETag of the PUT, without quotes; None: not known

    @staticmethod
    def failed(index: int, key: str, finding: Finding) -> Outcome:
        """Return the outcome of a member with `finding`."""
        return Outcome(
            index=index,
            key=key,
            status=Status.FAILED,
            reason=finding.code,
            message=finding.message,
            offset=finding.offset,
        )


class Part(Struct, frozen=True, omit_defaults=True):
    """One uploaded part of a multipart upload."""

    number: int  # from 1
    etag: str
    size: int
    crc32: int | None = None  # of the part's bytes, if it is known
    checksum_crc32: str | None = None  # as Complete needs it (base64)


class TaskReport(Struct, frozen=True, omit_defaults=True):
    """The report of one task: the first line of ``outcomes/<task>.jsonl``."""

    task: str
    kind: TaskKind
    members: int
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_done: int = 0  # of the archive, of members with an outcome: `PlannedMember.work`
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
    unfinished: int = 0  # members that were left at the time limit
    late: int = 0  # attempts in a row that ended at the time limit with no member done


class UploadRecord(Struct, frozen=True, array_like=True):
    """``uploads/<owner>/<attempt>.json``; without an id, any upload of the key may be meant."""

    key: str
    upload_id: str | None = None


class Stop(Struct, frozen=True):
    """Why the whole run must end: ``stop.json``, for which every task looks."""

    verdict: Verdict
    reason: str
    message: str


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


class ScanReport(Struct, frozen=True, omit_defaults=True):
    """The cost of one scan: ``scans/<id>.json``; its result is in ``scans/<id>.bin``."""

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
    upload_id: str | None  # None: there is no slice to do
    data_start: int = 0  # offset in the archive of the member's data
    slices: tuple[SliceParts, ...] = ()
    stream: bool = False  # the whole member is to be streamed, as a separate task
    outcome: Outcome | None = None  # the member's outcome, if it is already known


class LinkCost(Struct, frozen=True):
    """The cost of linking, all attempts together: ``link.json``."""

    requests: Requests
