"""The values of the pipeline: request -> run -> plan -> tasks -> outcomes -> report.

Each value is frozen, and converts to JSON and back without loss (`encode`, `decode`).
Data flows in one direction: extraction never changes a plan, and settling never asks the store for
data that an outcome has.
"""

from __future__ import annotations

import re
import threading
from enum import StrEnum
from functools import cache
from operator import add
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple, fields, force_setattr

from s3unzip.errors import Finding, UsageError, VerdictError
from s3unzip.globs import compile_glob
from s3unzip.object_properties import ObjectProperties
from s3unzip.options import HelpSection, RunOption, bare_type
from s3unzip.stages import Stage, gives_outcome
from s3unzip.store_kinds import StoreKind, find_kind
from s3unzip.zip import Member

T = TypeVar("T")
KEY_FIELD = re.compile(r"\{([^{}]*)\}")  # of a key template
MEMBER_FIELDS = frozenset({"member", "dir", "name", "stem", "suffix"})
ARCHIVE_FIELDS = frozenset({"archive_stem", "archive_dir", "archive_key", "bucket"})
NO_NAMES = frozenset({"", ".", ".."})  # parts of a path that do not name a folder or a file


def encode(value: object) -> bytes:
    """Return `value` as one line of JSON, without the newline."""
    return msgspec.json.encode(value)


# msgspec reads the fields of a type at its first decode. Another thread that decodes the type
# meanwhile sees only some fields, and the process crashes (SIGSEGV, msgspec 0.22).
_preparing = threading.Lock()


@cache
def _decoder(kind: type) -> Any:
    with _preparing:
        return msgspec.json.Decoder(kind)


_fields_of = cache(fields)  # msgspec compiles the annotations at each call


def decode(line: bytes | str, kind: type[T]) -> T:
    """Return the `kind` that `line` holds."""
    try:
        return _decoder(kind).decode(line)  # type: ignore[arg-type, no-any-return]  # a `kind`
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from error


def decode_lines(data: bytes, kind: type[T]) -> list[T]:
    """Return the `kind` of each line of `data`; twice as fast as a line at a time."""
    try:
        return _decoder(kind).decode_lines(data)  # type: ignore[arg-type, no-any-return]  # a list
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not lines of {kind.__name__}: {error}") from error


class Location(Struct, frozen=True):
    """One object, or a prefix of them: ``s3://bucket/key``, a path, ``https://host/path``."""

    # one of `STORE_KINDS`
    scheme: str
    bucket: str  # bucket, or host with port; empty for a file
    key: str  # key, absolute path, or path with query

    def __str__(self) -> str:
        if self.store.shows_key:
            return self.key or self.scheme
        shown = self.public
        return f"{shown.scheme}://{shown.bucket}/{shown.key}"

    @property
    def public(self) -> Location:
        """The location for display, without its secrets: the user and the query of a URL."""
        if not self.store.is_url:
            return self
        host = self.bucket.rpartition("@")[2]
        path, mark, _ = self.key.partition("?")
        if mark:
            path += "?..."
        return Location(self.scheme, host, path)

    @property
    def name(self) -> str:
        """The key or the path. The path of a URL is decoded: ``%20`` becomes a space."""
        if self.store.is_url:
            return unquote(self.key.partition("?")[0])
        return self.key

    @property
    def store(self) -> StoreKind:
        """What the store of the location can do."""
        return find_kind(self.scheme)


class Pin(Struct, frozen=True):
    """The version of the archive that a run reads; every range request names it.

    If an archive has several parts, the size is their sum, and ETag and version are those of the
    part that the location names.
    """

    size: int
    etag: str | None = None  # as the store returned it, with quotes
    version_id: str | None = None
    parts: tuple[Pin, ...] | UnsetType = UNSET  # of an archive of several parts, in their order


class OnConflict(StrEnum):
    """What to do if the destination already has the key."""

    OVERWRITE = "overwrite"
    SKIP_UNCHANGED = "skip-unchanged"  # size and zip-crc32 equal
    NEVER = "never"  # If-None-Match


class GzipForm(StrEnum):
    """How a member that stays compressed is marked as gzip."""

    SUFFIX = "suffix"  # the key ends in .gz
    ENCODING = "encoding"  # Content-Encoding: gzip


class Budget(Struct, frozen=True, array_like=True):
    """The limits of all nested archives together."""

    archives: int
    members: int
    size: int  # bytes of their members


Count = Annotated[int, Meta(ge=0)]


class Options(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The caller's choices; part of the run's identity. They are checked when they are made."""

    key_template: Annotated[
        str,
        RunOption(
            "--key-template TEXT",
            "How keys are made; default {archive_stem}/{member}.",
            HelpSection.KEYS,
        ),
    ] = "{archive_stem}/{member}"
    on_conflict: Annotated[
        OnConflict,
        RunOption("--on-conflict", "What to do if DEST already has the key.", HelpSection.OBJECTS),
    ] = OnConflict.OVERWRITE
    include: Annotated[
        tuple[str, ...],
        RunOption("--include -i GLOB", "Only members that match; repeatable.", HelpSection.MEMBERS),
    ] = ()
    exclude: Annotated[
        tuple[str, ...],
        RunOption("--exclude -x GLOB", "No members that match; repeatable.", HelpSection.MEMBERS),
    ] = ()
    strip_components: Annotated[
        Count,
        RunOption(
            "--strip-components N",
            "Leave out N leading folders; members with fewer folders are not extracted.",
            HelpSection.KEYS,
            in_file=False,
        ),
    ] = 0  # leading folders of a member's path that its key leaves out
    names: Annotated[
        tuple[str, ...],
        RunOption(
            "--member -m NAME",
            "Only this member; repeatable.",
            HelpSection.MEMBERS,
            in_file=False,
        ),
    ] = ()  # exact member names; none: all
    limit: Annotated[
        Count | None,
        RunOption(
            "--limit N",
            "Only the first N of the selected members.",
            HelpSection.MEMBERS,
            minimum=1,
            in_file=False,
        ),
    ] = None  # extract only this many of the selected members
    lenient: Annotated[
        bool,
        RunOption(
            "--lenient",
            "Turn checks that are policy into warnings; absolute names lose their slash.",
            HelpSection.ODD,
        ),
    ] = False
    encoding: Annotated[
        str | None,
        RunOption(
            "--encoding TEXT",
            "Encoding of names that are neither ASCII nor marked as UTF-8.",
            HelpSection.ODD,
        ),
    ] = None
    as_gzip: Annotated[
        GzipForm | None,
        RunOption(
            "--as-gzip",
            "Keep deflated members compressed, re-wrapped as gzip.",
            HelpSection.OBJECTS,
        ),
    ] = None  # the raw deflate stream re-wrapped, not inflated
    trust_crc: Annotated[
        bool,
        RunOption(help="With as_gzip: do not inflate members to check them."),
    ] = False  # with as_gzip: do not inflate to check
    password_ref: str | None = None  # the place of the password, never the password itself
    nested_depth: Annotated[
        Count,
        RunOption(
            "--nested DEPTH",
            "Also extract archives inside the archive, up to DEPTH levels deep.",
            HelpSection.OBJECTS,
            maximum_in_file=8,
        ),
    ] = 0  # how many levels of archives inside archives are also extracted
    nested_budget: Budget | None = None  # of a nested run: limits of it and the runs below
    marker: Annotated[
        bool,
        RunOption(
            "--marker",
            "Write the object _SUCCESS last, if all members are extracted.",
            HelpSection.AFTERWARDS,
        ),
    ] = False  # write _SUCCESS last
    objects: Annotated[
        ObjectProperties | None,
        RunOption(help="Properties of the objects besides their content."),
    ] = None  # the properties of the objects besides their content

    def __post_init__(self) -> None:
        """Convert each option to its declared type, and check the values that types cannot."""
        for option in _fields_of(Options):
            value = getattr(self, option.name)
            if isinstance(value, str) and bare_type(option.type) == tuple[str, ...]:
                raise UsageError(
                    f"option {option.name}: give a list of texts, ({value!r},), not one text"
                )
            try:
                force_setattr(self, option.name, msgspec.convert(value, option.type))
            except msgspec.ValidationError as error:
                raise UsageError(f"option {option.name}={value!r}: {error}") from None
        _check_key_template(self.key_template)
        for pattern in self.include + self.exclude:
            compile_glob(pattern)
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError as error:
            raise UsageError(f"encoding {self.encoding!r} is unknown to Python") from error


def _check_key_template(text: str) -> None:
    names = set(KEY_FIELD.findall(text))
    key_fields = MEMBER_FIELDS | ARCHIVE_FIELDS
    if names - key_fields or re.search(r"[{}]", KEY_FIELD.sub("", text)):
        raise UsageError(
            f"key template {text!r}: unknown or broken field; known: "
            f"{', '.join(sorted(key_fields))}"
        )
    if not names & {"member", "name", "stem"}:  # the fields that tell members apart
        raise UsageError(f"key template {text!r} gives every member one key: add {{member}}")


class SourceAction(StrEnum):
    """The action on the archive."""

    DELETE = "delete"
    TAG = "tag"


class AfterSuccess(Struct, frozen=True, omit_defaults=True):
    """The action on the archive when its run is COMPLETED and the report is written.

    It is not part of a run's identity, because it does not change the objects of the run.
    """

    action: SourceAction
    tags: dict[str, str] = {}  # of a tag: they are added to the archive's tags

    def __post_init__(self) -> None:
        if (self.action is SourceAction.TAG) != bool(self.tags):
            raise ValueError("tags are for the action tag, and for no other")


class SourceState(StrEnum):
    """The state of the action."""

    PENDING = "pending"  # the report is written, the action is next
    DONE = "done"
    KEPT = "kept"  # nothing is done: the archive was replaced, or no member was extracted
    FAILED = "failed"  # a resumed run or a repeated event does it again


class SourceResult(Struct, frozen=True, omit_defaults=True):
    """The result of the action on the archive, in the report."""

    action: SourceAction
    state: SourceState
    message: str | None = None

    def __str__(self) -> str:
        done = {SourceAction.DELETE: "deleted", SourceAction.TAG: "tagged"}[self.action]
        if self.state is SourceState.DONE:
            return f"the archive is {done}"
        if self.message:
            return f"the archive is not {done}: {self.message}"
        return f"the archive is not {done}"


class Route(Struct, frozen=True, omit_defaults=True):
    """The route of a deployed environment that an archive took, and how its members are written."""

    name: str
    destination_owner: str | None = None  # the account that must own the destination's bucket
    destination_kms_key: str | None = None  # None: the bucket's own encryption


class Request(Struct, frozen=True):
    """The input of a run, from an event or a command line."""

    source: Location
    destination: Location  # a prefix, its key empty or ending in "/"
    options: Options = Options()
    event_time: float | None = None  # Unix seconds: when the archive was put
    after_success: AfterSuccess | None = None  # not part of the run's identity
    again: str | None = None  # the run of an older version, which this run follows
    route: Route | None = None  # None: no route of the environment fits the archive


class Run(Request, frozen=True, kw_only=True):
    """One extraction of one archive version to one destination with one set of options."""

    id: str
    pin: Pin
    key_prefix: str  # every key of the run begins with it; the member's path follows
    created: float  # Unix seconds
    # If only the lower 32 bits of a size are known: the bytes beyond the declared size that each
    # compressed byte may add. So all members together stay within the limit.
    inflation: float = 0.0

    @property
    def request(self) -> Request:
        """The request that begins the run anew; its `again` is None."""
        return Request(
            source=self.source,
            destination=self.destination,
            options=self.options,
            event_time=self.event_time,
            after_success=self.after_success,
            route=self.route,
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

    def __add__(self, more: Requests) -> Requests:
        return Requests(*map(add, astuple(self), astuple(more)))


class TaskKind(StrEnum):
    """The kind of a task, and so the code that does it."""

    BATCH = "batch"  # a contiguous byte range of the archive with many small members
    STREAM = "stream"  # one large member, inflated into a multipart upload
    COPY = "copy"  # one stored member, or a slice of it, copied server-side
    SCAN = "scan"  # one segment of a huge deflated member: find it, and the window it leaves
    SLICE = "slice"  # some linked segments of such a member: inflate and upload them


class Slice(Struct, frozen=True):
    """The place of one slice in the multipart upload of its member."""

    upload_id: str
    offset: int  # of its first byte in the object
    first_number: int  # of its first multipart part
    parts: int  # of the upload that it makes
    data_start: int  # offset in the archive of the member's data
    segments: tuple[int, ...] = ()  # parts of the scans that it inflates, in order; a copy has none


class Task(Struct, frozen=True, omit_defaults=True):
    """A unit of work for one worker: a line of ``rounds/NN.jsonl``, some hundred bytes."""

    id: str  # unique in the run, names its outcomes; has no other meaning
    kind: TaskKind
    rows: tuple[int, int]  # its members: bytes [start, stop) of members.jsonl
    members: int
    span: tuple[int, int]  # bytes [start, stop) of the archive or, for a single member, of its data
    size: int  # bytes that it writes
    seconds: float  # estimate
    part: int = 0  # the number of the segment or slice of a split member
    parts: int = 1  # the segments or slices of the split member
    slice: Slice | None = None
    member: int | None = None  # index of the one member of a task that is not a batch

    @property
    def stage(self) -> Stage | None:
        """The stage of the split member to which the task belongs; None: its members have none."""
        if self.kind is TaskKind.SCAN:
            return Stage.SCAN
        if self.slice is not None:
            return Stage.SLICE
        if self.parts > 1:  # a copy that is planned: no worker does it
            return Stage.LINK
        if self.kind is TaskKind.STREAM:
            return Stage.STREAM
        return None

    @property
    def is_whole(self) -> bool:
        """Whether this task alone gives its members their outcomes."""
        return gives_outcome(self.stage)


class Next(Struct, frozen=True, omit_defaults=True):
    """The state of a run between two steps, as the state machine holds it."""

    run: str
    next: Literal["few", "many", "done"]
    round: int = 0  # its tasks are in rounds/NN.jsonl
    tasks: tuple[Task, ...] = ()  # few: the round itself
    list: str = ""  # many: the key of the round's list in the work bucket
    workers: int = 1  # tasks at once
    done: int = 0  # tasks that were complete before this round
    idle: int = 0  # rounds in a row before this one in which no task ended
    reopened: bool = False  # a person resumed the run with --failed: failed members are done again
    requests: Requests = Requests()  # of the steps between the rounds so far


# The format number of a run's records rises with each change that another version would misread.
RECORDS_FORMAT = 5  # the tasks of format 4 do not name their member
HEADER_BYTES = 128  # around a member's data: its local header, its descriptor


class PlannedMember(Struct, frozen=True, array_like=True, gc=False):
    """A member that a task extracts: a line of ``members.jsonl``, a JSON array."""

    member: Member
    key: str = ""  # empty in the file if it is the run's key prefix and the member's path

    def finding(self, code: str, message: str) -> Finding:
        """Return a finding about the member, with its offset in the archive."""
        return Finding(code, message, self.member.offset, self.key)

    def outcome(self, status: Status, size: int | None = None, etag: str | None = None) -> Outcome:
        """Return the outcome of the member if its object is correct.

        Args:
            size: bytes of the object, if it is not the member's own size.
            etag: of the object, without quotes; None: not known.
        """
        return Outcome(
            index=self.member.index,
            key=self.key,
            status=status,
            size=self.member.size if size is None else size,
            crc32=self.member.crc32,
            etag=etag,
        )

    @property
    def work(self) -> int:
        """The member's part of a run's progress, in bytes of the archive."""
        return self.member.compressed_size + HEADER_BYTES

    def share_of_work(self, start: int, stop: int) -> int:
        """Return the part of `work` for bytes [start, stop) of the content."""
        size = max(1, self.member.size)  # an empty member must not divide by 0
        return self.work * min(stop, size) // size - self.work * min(start, size) // size


class PlanSummary(Struct, frozen=True, omit_defaults=True):
    """The result of the plan: ``run.json``, small for every archive, written last of the plan."""

    run: Run
    members: int  # in the central directory
    format: int = 3
    directories: int = 0
    excluded: int = 0  # by the options; if lenient, also because a later member has the key
    failed: int = 0  # by the plan; listed in outcomes/plan.jsonl
    selected: int = 0  # members in tasks
    tasks: int = 0  # of the first round
    kinds: dict[str, int] = {}  # members by task kind; of split members: scan
    bytes_in: int = 0  # compressed, selected
    bytes_out: int = 0  # uncompressed, selected
    workers: int = 1  # tasks at once
    longest_task: float = 0.0  # estimate in seconds
    warnings: dict[str, int] = {}
    started: float = 0.0  # Unix seconds
    plan_seconds: float = 0.0
    requests: Requests = Requests()
    bytes_read: int = 0
    stores: dict[str, Any] = {}  # how they are reached: `StoreConfig`, without a secret

    @property
    def work(self) -> int:
        """The sum of `PlannedMember.work` of all selected members."""
        return self.bytes_in + HEADER_BYTES * self.selected


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
    crc32: int | None = None  # of the part's bytes; None: not known
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
    uploaded: tuple[Part, ...] = ()  # of a slice of a split member
    warnings: dict[str, int] = {}
    unfinished: int = 0  # members without an outcome
    fault: str | None = None  # the error that ended the last attempt too early
    stage: Stage | None = None  # of the one member, as `Task.stage`
    member: int | None = None  # index of the one member, as `Task.member`


class Stop(Struct, frozen=True):
    """The reason why the whole run must end: ``stop.json``; every task reads it first."""

    verdict: Verdict
    reason: str
    message: str


class Verdict(StrEnum):
    """How a run ended."""

    COMPLETED = "COMPLETED"
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"
    REJECTED = "REJECTED"  # ambiguous or broken index: nothing was written
    SOURCE_CHANGED = "SOURCE_CHANGED"
    FAILED = "FAILED"  # a service fault, or unfinished work: resume

    @property
    def exit_code(self) -> int:
        """Exit code of the command line."""
        return _EXIT_CODES[self]

    @property
    def rank(self) -> int:
        """The success of the run: a verdict never replaces one of a higher rank."""
        return _RANKS.get(self, 0)


_EXIT_CODES = {
    Verdict.COMPLETED: 0,
    Verdict.COMPLETED_WITH_ERRORS: 1,
    Verdict.REJECTED: 3,
    Verdict.SOURCE_CHANGED: 4,
    Verdict.FAILED: 5,
}


# FAILED and SOURCE_CHANGED have the rank 0: among these the newer verdict counts.
_RANKS = {Verdict.COMPLETED: 3, Verdict.COMPLETED_WITH_ERRORS: 2, Verdict.REJECTED: 1}


class Failure(Struct, frozen=True, omit_defaults=True):
    """A member or a task that failed, as the report lists it."""

    key: str
    reason: str
    message: str = ""
    index: int | None = None
    offset: int | None = None
    task: str | None = None


class Report(Struct, frozen=True, omit_defaults=True):
    """``report.json``: written last, with every verdict.

    Attributes:
        verdict: how the run ended. `ok` is true if all selected members are in the destination.
        reason, message, offset: why the run ended, if not by its members: a code, a sentence, and
            the place in the archive.
        members: all members of the archive. `directories` and `excluded` count those that are not
            written. Each other one is extracted, unchanged (it existed already), failed, or missing
            (its task did not end).
        reasons: the failed members by code. `failures` has the first ones, each with its key,
            its message and its place in the archive.
        warnings: tolerated findings by code.
        bytes_in, bytes_out: bytes read from the archive, and bytes written.
        requests: requests to stores, by kind.
        cost: dollars, from the counted requests. None: not computed.
        started, finished: Unix seconds. `plan_seconds` is the time of the plan, `task_seconds` the
            sum of the tasks.
        run: the id by which the command line finds the records of the run.
    """

    run: str
    verdict: Verdict
    source: Location
    pin: Pin | None
    destination: Location
    options: Options
    reason: str | None = None  # of a verdict that is not about members
    message: str | None = None  # as printable text
    offset: int | None = None  # in the archive, if the message is about a byte of it
    members: int = 0
    directories: int = 0
    excluded: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    missing: int = 0  # members without an outcome, because their task did not end
    reasons: dict[str, int] = {}
    warnings: dict[str, int] = {}
    failures: tuple[Failure, ...] = ()  # the first Tuning.failures_listed
    tasks: int = 0
    workers: int = 0  # at once; 0: no task was a worker's
    tasks_failed: int = 0
    bytes_in: int = 0  # read from the archive: its end for the directory, and the members
    bytes_out: int = 0  # written to the destination
    requests: Requests = Requests()  # of all steps, up to the writing of this report
    event_time: float | None = None
    started: float = 0.0
    finished: float = 0.0
    plan_seconds: float = 0.0
    task_seconds: float = 0.0  # sum over tasks
    first_object: float | None = None
    cost: float | None = None  # dollars, from the counted requests
    rounds: int = 0
    after_success: SourceResult | None = None  # of the action on the archive, if one was requested
    route: Route | None = None  # of the environment

    @staticmethod
    def of(run: str, request: Request, pin: Pin | None, verdict: Verdict, **more: Any) -> Report:
        """Return the report of a run; `more` are further fields."""
        return Report(
            run=run,
            verdict=verdict,
            source=request.source.public,
            pin=pin,
            destination=request.destination,
            options=request.options,
            event_time=request.event_time,
            route=request.route,
            **more,
        )

    @property
    def ok(self) -> bool:
        """Whether every selected member is in the destination."""
        return self.verdict is Verdict.COMPLETED

    @property
    def archive_left(self) -> bool:
        """Whether the action on the archive is not done yet, or failed."""
        source = self.after_success
        return source is not None and source.state in {SourceState.PENDING, SourceState.FAILED}

    def raise_for_verdict(self) -> None:
        """Raise `VerdictError` unless the run is COMPLETED."""
        if not self.ok:
            why = self.message or f"{self.failed:,} failed, {self.missing:,} missing"
            for failure in self.failures[:1]:  # if there is one
                why += f"; the first: {failure.key}: {failure.reason}"
            raise VerdictError(f"{self.run}: {self.verdict.value}: {why}")

    def __repr__(self) -> str:
        return (
            f"<Report {self.run}: {self.verdict.value}, {self.extracted} extracted, "
            f"{self.unchanged} unchanged, {self.failed} failed>"
        )


class NestedRun(Struct, frozen=True, omit_defaults=True):
    """The result of one nested archive: a line of ``nested.jsonl``."""

    key: str
    run: str | None = None  # None: it was not begun
    verdict: Verdict | None = None
    reason: str | None = None
    message: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether all its members are extracted, or the file is not an archive (``no-eocd``)."""
        return self.verdict is Verdict.COMPLETED or self.reason == "no-eocd"


class ArchiveEnd(Struct, frozen=True, omit_defaults=True):
    """How one of several archives ended."""

    source: str
    exit_code: int
    report: Report | None = None  # None: it was not planned
    error: str | None = None  # why
    nested: tuple[NestedRun, ...] = ()  # the archives inside it
    warnings: tuple[str, ...] = ()  # globs that match no member


class Batch(Struct, frozen=True, omit_defaults=True):
    """How several archives ended, in the order in which they were named."""

    exit_code: int  # the highest one
    archives: tuple[ArchiveEnd, ...]
