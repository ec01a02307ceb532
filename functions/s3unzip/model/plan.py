"""What the plan makes of an archive: members as rows, tasks, and its summary."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from s3unzip.model.counts import Requests
from s3unzip.model.request import Run  # noqa: TC001 - msgspec reads it
from s3unzip.zipformat.member import Member  # noqa: TC001 - msgspec reads


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


class PlannedMember(Struct, frozen=True, array_like=True, gc=False):
    """A member that a task extracts: a line of ``members.jsonl``, a JSON array."""

    member: Member
    key: str = ""  # in the file empty where it is the run's key prefix and the member's path
    written: bytes | None = None  # digest of the ETag of the object that an earlier run wrote


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
