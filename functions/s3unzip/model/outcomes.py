"""What became of tasks and members, and what they cost."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from s3unzip.errors import Finding  # noqa: TC001 - msgspec reads it
from s3unzip.model.counts import Requests
from s3unzip.model.plan import TaskKind  # noqa: TC001 - msgspec reads it


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


class UploadRecord(Struct, frozen=True, array_like=True):
    """``uploads/<owner>/<attempt>.json``; without an id, any upload of the key may be meant."""

    key: str
    upload_id: str | None = None


class Stop(Struct, frozen=True):
    """Why a whole run must end: ``stop.json``; every task looks for it."""

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
