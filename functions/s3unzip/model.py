"""The values of the pipeline: request -> run -> plan -> tasks -> outcomes -> report.

Each value is frozen, and converts to JSON and back without loss (`encode`, `decode`).
Data flows in one direction: extraction never changes a plan, and settling relies on the outcomes
instead of asking the stores again.
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
from s3unzip.zip import Member

T = TypeVar("T")
# The exceptions for bytes that are not JSON of the expected type. A `RecursionError` means that the
# JSON is nested too deeply.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
KEY_FIELD = re.compile(r"\{([^{}]*)\}")  # a field in a key template
MEMBER_FIELDS = frozenset({"member", "dir", "name", "stem", "suffix"})
ARCHIVE_FIELDS = frozenset({"archive_stem", "archive_dir", "archive_key", "bucket"})
NO_NAMES = frozenset({"", ".", ".."})  # parts of a path that do not name a folder or file

# msgspec reads the fields of a type when it creates the first decoder for the type. If another
# thread creates a decoder for the type at the same time, that thread sees only some of the fields,
# and the process crashes (SIGSEGV, msgspec 0.22).
_preparing = threading.Lock()


@cache
def _decoder(kind: type) -> Any:
    with _preparing:
        return msgspec.json.Decoder(kind)


_fields_of = cache(fields)  # without the cache, each call evaluates the annotations


def encode(value: object) -> bytes:
    """Return a value as one line of JSON, without the newline.

    Raises:
        UsageError: a string, such as a file name, contains bytes that are not valid UTF-8.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{error.object.encode(errors='backslashreplace').decode()}: "
            "records cannot contain a name that is not UTF-8; use another name"
        ) from None


def decode(line: bytes | str, kind: type[T]) -> T:
    """Return the value of type `kind` that is encoded in `line`."""
    try:
        return _decoder(kind).decode(line)  # type: ignore[arg-type, no-any-return]  # a `kind`
    except UNREADABLE as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from error


def decode_lines(data: bytes, kind: type[T]) -> list[T]:
    """Return the values of type `kind`, one per line; `decode` would take twice as long."""
    try:
        return _decoder(kind).decode_lines(data)  # type: ignore[arg-type, no-any-return]  # a list
    except UNREADABLE as error:
        raise UsageError(f"not lines of {kind.__name__}: {error}") from error


class StoreKind(Struct, frozen=True):
    """The capabilities of all stores with one scheme."""

    is_local: bool = False  # files on this machine; no request is sent
    shows_key: bool = False  # a location is displayed as its key alone
    is_url: bool = False  # the key is the path of a URL, with a query that might be secret
    has_folders: bool = False  # a key cannot be both a file and a folder
    has_prefixes: bool = False  # a key that ends in a slash is a prefix, not an object
    has_neighbours: bool = True  # the other parts of an archive may be stored next to it
    has_etags: bool = False  # a listing contains the ETags of objects
    keeps_properties: bool = True  # storage class, ACL, tags, metadata and headers of objects
    takes_members: bool = False  # a run can write members to this store
    deletes_archives: bool = False
    tags_archives: bool = False
    is_billed: bool = False  # AWS charges for the requests
    takes_s3_options: bool = False  # endpoint, region, credentials, payer and KMS key apply


# Only this table declares schemes; other modules ask `Location.store`. `stores.open` opens the
# adapter for a scheme.
_WEB = StoreKind(is_url=True)
STORE_KINDS = {
    "s3": StoreKind(
        has_prefixes=True,
        has_etags=True,
        takes_members=True,
        deletes_archives=True,
        tags_archives=True,
        is_billed=True,
        takes_s3_options=True,
    ),
    "file": StoreKind(
        is_local=True,
        shows_key=True,
        has_folders=True,
        keeps_properties=False,
        takes_members=True,
        deletes_archives=True,
    ),
    "http": _WEB,
    "https": _WEB,
    "reader": StoreKind(has_neighbours=False),  # a file opened by the caller
    "nowhere": StoreKind(shows_key=True),  # discards all objects
}


class Location(Struct, frozen=True):
    """One object, or a prefix of objects: ``s3://bucket/key``, a path, ``https://host/path``."""

    scheme: str  # a key of `STORE_KINDS`
    bucket: str  # bucket, or host and port; empty for a file
    key: str  # key, absolute path, or path and query

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
        """The key or the path, decoded if the location is a URL: ``%20`` becomes a space."""
        if self.store.is_url:
            return unquote(self.key.partition("?")[0])
        return self.key

    @property
    def store(self) -> StoreKind:
        """The capabilities of the location's store; for an undeclared scheme, the defaults."""
        return STORE_KINDS.get(self.scheme, StoreKind())


class Pin(Struct, frozen=True):
    """The version of the archive that a run reads; every range request specifies it.

    If the archive is split, the size is the sum over its parts, and the ETag and the version id are
    those of the part that the location names.
    """

    size: int
    etag: str | None = None  # as returned by the store, with quotes
    version_id: str | None = None
    parts: tuple[Pin, ...] | UnsetType = UNSET  # the parts of a split archive, in order

    @property
    def has_strong_etag(self) -> bool:
        """Whether a request can use the ETag as a condition.

        A weak ETag cannot be a condition, and neither can the date that replaces a missing ETag.
        """
        return self.etag is not None and self.etag.startswith('"')


class OnConflict(StrEnum):
    """What to do if the key already exists in the destination."""

    OVERWRITE = "overwrite"
    SKIP_UNCHANGED = "skip-unchanged"  # write only if the size or zip-crc32 differs
    NEVER = "never"  # If-None-Match


class GzipForm(StrEnum):
    """How a member that stays compressed is marked as gzip."""

    SUFFIX = "suffix"  # the key ends in .gz
    ENCODING = "encoding"  # Content-Encoding: gzip


class Budget(Struct, frozen=True, array_like=True):
    """The limits for all nested archives together."""

    archives: int
    members: int
    size: int  # total size of their members, in bytes


Count = Annotated[int, Meta(ge=0)]


class Options(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The options of a run, which are part of its identity; they are checked on creation."""

    key_template: Annotated[
        str,
        RunOption(
            "--key-template TEXT",
            "How keys are formed; default {archive_stem}/{member}.",
            HelpSection.KEYS,
        ),
    ] = "{archive_stem}/{member}"
    on_conflict: Annotated[
        OnConflict,
        RunOption("--on-conflict", "What to do if the key exists in DEST.", HelpSection.OBJECTS),
    ] = OnConflict.OVERWRITE
    include: Annotated[
        tuple[str, ...],
        RunOption("--include -i GLOB", "Only members that match; repeatable.", HelpSection.MEMBERS),
    ] = ()
    exclude: Annotated[
        tuple[str, ...],
        RunOption(
            "--exclude -x GLOB", "Leave out members that match; repeatable.", HelpSection.MEMBERS
        ),
    ] = ()
    strip_components: Annotated[
        Count,
        RunOption(
            "--strip-components N",
            "Leave out N leading folders; members with fewer folders are not extracted.",
            HelpSection.KEYS,
            in_file=False,
        ),
    ] = 0  # number of leading folders of a member's path to leave out of its key
    names: Annotated[
        tuple[str, ...],
        RunOption(
            "--member -m NAME",
            "Only this member; repeatable.",
            HelpSection.MEMBERS,
            in_file=False,
        ),
    ] = ()  # exact names of members; if empty, all members
    limit: Annotated[
        Count | None,
        RunOption(
            "--limit N",
            "Only the first N of the selected members.",
            HelpSection.MEMBERS,
            minimum=1,
            in_file=False,
        ),
    ] = None  # maximum number of selected members to extract
    lenient: Annotated[
        bool,
        RunOption(
            "--lenient",
            "Turn policy checks into warnings, and strip the leading slash from absolute names.",
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
    ] = None  # how to mark members that stay compressed; None if members are inflated
    trust_crc: Annotated[
        bool,
        RunOption(help="With as_gzip: do not inflate members to check them."),
    ] = False  # with as_gzip: whether to trust the archive's CRC-32s without inflating
    password_ref: str | None = None  # where the password is stored, never the password itself
    nested_depth: Annotated[
        Count,
        RunOption(
            "--nested DEPTH",
            "Also extract archives inside the archive, up to DEPTH levels deep.",
            HelpSection.OBJECTS,
            maximum_in_file=8,
        ),
    ] = 0  # number of levels of nested archives to extract
    nested_budget: Budget | None = None  # limits for a nested run and the runs below it
    marker: Annotated[
        bool,
        RunOption(
            "--marker",
            "Write the object _SUCCESS last, if all members are extracted.",
            HelpSection.AFTERWARDS,
        ),
    ] = False  # whether to write _SUCCESS last
    objects: Annotated[
        ObjectProperties | None,
        RunOption(help="Properties of the objects besides their content."),
    ] = None  # the properties of the objects, in addition to their content

    def __post_init__(self) -> None:
        """Convert each option to its declared type, and check what the types do not express."""
        for option in _fields_of(Options):
            value = getattr(self, option.name)
            if isinstance(value, str) and bare_type(option.type) == tuple[str, ...]:
                raise UsageError(
                    f"option {option.name}: give a list of strings, ({value!r},), not one string"
                )
            try:
                # `convert` checks the fields of a dict, but not of a struct: make a dict first.
                # By default, `to_builtins` turns bytes into strings. With `builtin_types`, bytes
                # remain bytes, and `convert` refuses them.
                plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
                force_setattr(self, option.name, msgspec.convert(plain, option.type))
            except (msgspec.ValidationError, TypeError) as error:
                raise UsageError(f"option {option.name}={value!r}: {error}") from None
        _check_key_template(self.key_template)
        for pattern in self.include + self.exclude:
            compile_glob(pattern)
        try:
            "".encode(self.encoding or "utf-8")
        except (LookupError, ValueError) as error:
            raise UsageError(f"encoding {self.encoding!r} is unknown to Python") from error


def _check_key_template(text: str) -> None:
    """Raise `UsageError` for an unknown field, or if all members would have the same key."""
    names = set(KEY_FIELD.findall(text))
    key_fields = MEMBER_FIELDS | ARCHIVE_FIELDS
    if names - key_fields or re.search(r"[{}]", KEY_FIELD.sub("", text)):
        raise UsageError(
            f"key template {text!r}: unknown or broken field; known: "
            f"{', '.join(sorted(key_fields))}"
        )
    if not names & {"member", "name", "stem"}:  # the fields that distinguish members
        raise UsageError(f"key template {text!r} gives every member one key: add {{member}}")


class SourceAction(StrEnum):
    """The action on the archive after its run."""

    DELETE = "delete"
    TAG = "tag"


class AfterSuccess(Struct, frozen=True, omit_defaults=True):
    """What to do with the archive once its run is COMPLETED and the report is written.

    The action is not part of the identity of a run, because it does not change the run's objects.
    """

    action: SourceAction
    tags: dict[str, str] = {}  # for the action `tag`: the tags to add to the archive

    def __post_init__(self) -> None:
        if (self.action is SourceAction.TAG) != bool(self.tags):
            raise ValueError("the action tag needs tags, and no other action accepts them")


class SourceState(StrEnum):
    """The state of the action on the archive."""

    PENDING = "pending"  # the report is written; the action comes next
    DONE = "done"
    KEPT = "kept"  # nothing was done: the archive was replaced, or no member was extracted
    FAILED = "failed"  # a resumed run or a repeated event retries the action


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
            return f"the archive was not {done}: {self.message}"
        return f"the archive was not {done}"


class Route(Struct, frozen=True, omit_defaults=True):
    """A route of a deployed environment: its name, and how members are written to S3."""

    name: str
    destination_owner: str | None = None  # the account that must own the bucket of the destination
    destination_kms_key: str | None = None  # None if the bucket's own encryption applies


class Request(Struct, frozen=True):
    """The input of a run, from an event or a command line."""

    source: Location
    destination: Location  # a prefix, with a key that is empty or ends in "/"
    options: Options = Options()
    event_time: float | None = None  # time at which the archive was put, in Unix seconds
    after_success: AfterSuccess | None = None  # not part of the identity of the run
    again: str | None = None  # cause of a run that extracts the archive again, after a replacement
    route: Route | None = None  # None if the archive matches no route of the environment


class Run(Request, frozen=True, kw_only=True):
    """One extraction of one archive version to one destination with one set of options."""

    id: str
    pin: Pin
    key_prefix: str  # start of every key of the run, before the path of the member
    created: float  # time in Unix seconds
    # Some members declare only the lower 32 bits of their size. Such a member may exceed this size
    # by `inflation` bytes for each of its compressed bytes. With this limit, all members together
    # stay within `Limits.total_size`.
    inflation: float = 0.0


class Requests(Struct, frozen=True, omit_defaults=True):
    """The number of requests to object stores, by kind, including retries."""

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
    retries: int = 0  # how many of these requests were retries
    throttled: int = 0  # how many of these requests S3 throttled with "slow down"

    @property
    def reads(self) -> int:
        """The number of requests that AWS prices as GET: https://aws.amazon.com/s3/pricing/."""
        return self.get + self.head

    @property
    def writes(self) -> int:
        """The number of requests priced as PUT, COPY, POST or LIST; abort and delete are free."""
        return self.put + self.create + self.part + self.copy + self.complete + self.list

    def __add__(self, more: Requests) -> Requests:
        return Requests(*map(add, astuple(self), astuple(more)))


class TaskKind(StrEnum):
    """The kind of a task, which determines the code that performs the task."""

    BATCH = "batch"  # a contiguous byte range of the archive that contains many small members
    STREAM = "stream"  # one large member, inflated into a multipart upload
    COPY = "copy"  # one stored member, or a slice of it, copied by the server
    SCAN = "scan"  # find one segment of a huge deflated member, and the window of the next segment
    SLICE = "slice"  # inflate and upload some linked segments of a huge deflated member


class Slice(Struct, frozen=True):
    """The position of one slice in the multipart upload of its member."""

    upload_id: str
    offset: int  # offset of the first byte of the slice in the object
    first_number: int  # number of the first multipart part
    parts: int  # number of parts that the slice uploads
    data_start: int  # offset of the member's data in the archive
    segments: tuple[int, ...] = ()  # numbers of the segments to inflate, in order; empty for a copy


class Task(Struct, frozen=True, omit_defaults=True):
    """A unit of work for one worker: a line of ``rounds/NN.jsonl``, a few hundred bytes long."""

    id: str  # unique in the run; only used to name the task's outcomes
    kind: TaskKind
    rows: tuple[int, int]  # the rows of its members: bytes [start, stop) of members.jsonl
    members: int
    span: tuple[int, int]  # bytes [start, stop) of the archive or, for a single member, of its data
    size: int  # number of bytes to write
    seconds: float  # estimated duration
    part: int = 0  # number of the segment or slice of a split member
    parts: int = 1  # number of segments or slices of the split member
    slice: Slice | None = None
    member: int | None = None  # index of the member; None for a batch

    @property
    def stage(self) -> Stage | None:
        """The stage of the task's member; None for batches and for members that one task copies."""
        if self.kind is TaskKind.SCAN:
            return Stage.SCAN
        if self.slice is not None:
            return Stage.SLICE
        if self.parts > 1:  # a copy task that is not linked: linking sets `slice`
            return Stage.LINK
        if self.kind is TaskKind.STREAM:
            return Stage.STREAM
        return None

    @property
    def is_whole(self) -> bool:
        """Whether the task determines the outcomes of its members; False for scans and slices."""
        return gives_outcome(self.stage)


class Next(Struct, frozen=True, omit_defaults=True):
    """The state of a run between two steps, as the state machine holds it."""

    run: str
    next: Literal["few", "many", "done"]  # a round of few or many tasks, or the end of the run
    round: int = 0  # number of the round; its tasks are in rounds/NN.jsonl
    tasks: tuple[Task, ...] = ()  # the tasks of the round, if there are few
    workers: int = 1  # number of concurrent tasks
    done: int = 0  # number of ended tasks plus members with an outcome, before this round
    idle: int = 0  # number of consecutive rounds without progress before this one
    reopened: bool = False  # whether a user resumed the run to extract its failed members again
    requests: Requests = Requests()  # the requests of all settling steps so far


# The format number of the records of a run. A change that other versions of s3unzip would misread
# increases this number.
RECORDS_FORMAT = 5  # in format 4, tasks do not contain the index of their member
HEADER_BYTES = 128  # assumed size of a member's local header and data descriptor


class PlannedMember(Struct, frozen=True, array_like=True, gc=False):
    """A member that a task extracts; a line of ``members.jsonl`` contains it as a JSON array."""

    member: Member
    key: str = ""  # empty in the file if the key is the run's prefix followed by the member's path

    def finding(self, code: str, message: str) -> Finding:
        """Return a finding about the member, with the offset of the member in the archive."""
        return Finding(code, message, self.member.offset, self.key)

    def with_crc(self, crc32: int) -> PlannedMember:
        """Return the row, with the CRC-32 of the content if the archive does not declare one."""
        if self.member.declares_crc:
            return self
        return PlannedMember(self.member.with_crc(crc32), self.key)

    def outcome(self, status: Status, size: int | None = None, etag: str | None = None) -> Outcome:
        """Return the outcome of a member whose object is correct.

        Args:
            status: `EXTRACTED` or `UNCHANGED`.
            size: the size of the object in bytes, or None if it is the size of the member.
            etag: the ETag of the object, without quotes; None if it is not known.
        """
        return Outcome(
            index=self.member.index,
            key=self.key,
            status=status,
            size=self.member.size if size is None else size,
            crc32=self.member.crc32,
            etag=etag,
        )

    def failed(self, finding: Finding) -> Outcome:
        """Return the outcome of a member that failed with `finding`."""
        return Outcome(
            index=self.member.index,
            key=self.key,
            status=Status.FAILED,
            reason=finding.code,
            message=finding.message,
            offset=finding.offset,
        )

    @property
    def work(self) -> int:
        """The contribution of the member to the progress of its run, in bytes of the archive."""
        return self.member.compressed_size + HEADER_BYTES

    def share_of_work(self, start: int, stop: int) -> int:
        """Return the part of `work` for bytes [start, stop) of the member's content."""
        size = max(1, self.member.size)  # an empty member must not cause a division by 0
        return self.work * min(stop, size) // size - self.work * min(start, size) // size


class PlanSummary(Struct, frozen=True, omit_defaults=True):
    """The result of the plan, ``run.json``: written last, and small even for a large archive."""

    run: Run
    members: int  # number of members in the central directory
    format: int = 3  # records without this field have format 3; plans write `RECORDS_FORMAT`
    directories: int = 0
    excluded: int = 0  # left out by options or, if lenient, because a later member has the same key
    failed: int = 0  # refused by the plan; listed in outcomes/plan.jsonl
    selected: int = 0  # number of members that have tasks
    tasks: int = 0  # number of tasks in the first round
    kinds: dict[str, int] = {}  # members by task kind; a split deflated member counts as a scan
    bytes_in: int = 0  # compressed size of the selected members
    bytes_out: int = 0  # uncompressed size of the selected members
    workers: int = 1  # number of concurrent tasks
    longest_task: float = 0.0  # estimated duration in seconds
    warnings: dict[str, int] = {}
    started: float = 0.0  # time in Unix seconds
    plan_seconds: float = 0.0
    requests: Requests = Requests()
    bytes_read: int = 0
    stores: dict[str, Any] = {}  # how to reach the stores: a `StoreConfig` without secrets

    @property
    def work(self) -> int:
        """The sum of `PlannedMember.work` of all selected members."""
        return self.bytes_in + HEADER_BYTES * self.selected


class Status(StrEnum):
    """The result of extracting a member."""

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
    reason: str | None = None  # code of a check or of an error from a service
    message: str | None = None
    offset: int | None = None
    etag: str | None = None  # the ETag of the PUT, without quotes; None if unknown


class Part(Struct, frozen=True, omit_defaults=True):
    """One uploaded part of a multipart upload."""

    number: int  # counted from 1
    etag: str
    size: int
    crc32: int | None = None  # CRC-32 of the bytes of the part; None if unknown
    checksum_crc32: str | None = None  # in the form that Complete requires (base64)


class TaskReport(Struct, frozen=True, omit_defaults=True):
    """The report of one task: the first line of ``outcomes/<task>.jsonl``."""

    task: str
    kind: TaskKind
    members: int
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_done: int = 0  # sum of `PlannedMember.work` for members with an outcome
    bytes_written: int = 0
    requests: Requests = Requests()
    started: float = 0.0  # time in Unix seconds
    seconds: float = 0.0
    first_object: float | None = None  # time at which the first PUT finished, in Unix seconds
    put_seconds: float = 0.0  # sum of the latencies of the PUTs
    uploaded: tuple[Part, ...] = ()  # parts of a slice of a split member
    warnings: dict[str, int] = {}
    unfinished: int = 0  # number of members without an outcome
    fault: str | None = None  # the error that ended the last attempt early
    stage: Stage | None = None  # stage of the single member, as in `Task.stage`
    member: int | None = None  # index of the single member, as in `Task.member`


class Stop(Struct, frozen=True):
    """The reason to end the whole run: ``stop.json``, which every task reads before it starts."""

    verdict: Verdict
    reason: str
    message: str


class Verdict(StrEnum):
    """How a run ended."""

    COMPLETED = "COMPLETED"  # no member failed
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"  # some members failed
    REJECTED = "REJECTED"  # the archive was refused: nothing was written
    SOURCE_CHANGED = "SOURCE_CHANGED"
    FAILED = "FAILED"  # a service failed, or work remains: the run can be resumed

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return _EXIT_CODES[self]

    @property
    def rank(self) -> int:
        """The rank by degree of success: a verdict never replaces one of a higher rank."""
        return _RANKS.get(self, 0)


_EXIT_CODES = {
    Verdict.COMPLETED: 0,
    Verdict.COMPLETED_WITH_ERRORS: 1,
    Verdict.REJECTED: 3,
    Verdict.SOURCE_CHANGED: 4,
    Verdict.FAILED: 5,
}


# FAILED and SOURCE_CHANGED both have rank 0. Of two verdicts with equal rank, the newer one counts.
_RANKS = {Verdict.COMPLETED: 3, Verdict.COMPLETED_WITH_ERRORS: 2, Verdict.REJECTED: 1}


class Failure(Struct, frozen=True, omit_defaults=True):
    """A failed member or task, as listed in the report."""

    key: str
    reason: str
    message: str = ""
    index: int | None = None
    offset: int | None = None
    task: str | None = None


class Report(Struct, frozen=True, omit_defaults=True):
    """The result of a run: ``report.json``. Every run that has ended has a report.

    Attributes:
        verdict: how the run ended. `ok` is true if all selected members are in the destination.
        reason, message, offset: a code, a sentence and an offset in the archive that explain the
            verdict; None if the outcomes of the members explain it.
        members: number of members in the archive. `directories` and `excluded` count members that
            are not written. Each of the other members is extracted, unchanged (it already existed),
            failed, or missing (its task was not completed).
        reasons: number of failed members, by code. `failures` contains the first of these members,
            each with its key, its message and its offset in the archive.
        warnings: number of tolerated findings, by code.
        bytes_in, bytes_out: number of bytes read from the archive, and number of bytes written.
        requests: number of requests to stores, by kind.
        cost: cost in dollars, computed from the counted requests; None if it was not computed.
        started, finished: times in Unix seconds. `plan_seconds` is the duration of the plan, and
            `task_seconds` is the sum of the durations of all tasks.
        run: the id by which the command line finds the records of the run.
    """

    run: str
    verdict: Verdict
    source: Location
    pin: Pin | None
    destination: Location
    options: Options
    reason: str | None = None  # code for a verdict that was not caused by members
    message: str | None = None  # explanation, in printable text
    offset: int | None = None  # offset in the archive, if the message is about a place in it
    members: int = 0
    directories: int = 0
    excluded: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    missing: int = 0  # number of members without an outcome, because their task was not completed
    reasons: dict[str, int] = {}
    warnings: dict[str, int] = {}
    failures: tuple[Failure, ...] = ()  # the first failures, at most Tuning.failures_listed
    tasks: int = 0
    workers: int = 0  # number of concurrent workers; 0 if no worker performed a task
    tasks_failed: int = 0
    bytes_in: int = 0  # bytes read from the archive, for the directory and for the members
    bytes_out: int = 0  # bytes written to the destination
    requests: Requests = Requests()  # requests that the steps counted: see docs/run-files.md
    event_time: float | None = None
    started: float = 0.0
    finished: float = 0.0
    plan_seconds: float = 0.0
    task_seconds: float = 0.0  # sum of the durations of all tasks
    first_object: float | None = None
    cost: float | None = None  # cost in dollars, computed from the counted requests
    rounds: int = 0
    after_success: SourceResult | None = None  # result of the requested action on the archive
    route: Route | None = None  # route of the environment

    @staticmethod
    def of(run: str, request: Request, pin: Pin | None, verdict: Verdict, **more: Any) -> Report:
        """Return a report on `request`; `more` contains further fields of the report."""
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
        """Whether the action on the archive is still pending or has failed."""
        source = self.after_success
        return source is not None and source.state in {SourceState.PENDING, SourceState.FAILED}

    def raise_for_verdict(self) -> None:
        """Raise `VerdictError` unless the run is `ok`, that is, its verdict is COMPLETED."""
        if not self.ok:
            why = self.message or f"{self.failed:,} failed, {self.missing:,} missing"
            if self.failures:
                why += f"; the first: {self.failures[0].key}: {self.failures[0].reason}"
            raise VerdictError(f"{self.run}: {self.verdict.value}: {why}")

    def __repr__(self) -> str:
        return (
            f"<Report {self.run}: {self.verdict.value}, {self.extracted} extracted, "
            f"{self.unchanged} unchanged, {self.failed} failed>"
        )


class NestedRun(Struct, frozen=True, omit_defaults=True):
    """The result of one nested archive: a line of ``nested.jsonl``."""

    key: str
    run: str | None = None  # None if no run was started
    verdict: Verdict | None = None
    reason: str | None = None
    message: str | None = None

    @property
    def is_failure(self) -> bool:
        """Whether members may be missing; False for a file that never was an archive."""
        # A truncated archive has the same reason: only the message differs.
        never_was_archive = self.reason == "no-eocd" and re.search(
            r"the file is empty|look like (?!a ZIP archive)", self.message or ""
        )
        return self.verdict is not Verdict.COMPLETED and not never_was_archive


class ArchiveEnd(Struct, frozen=True, omit_defaults=True):
    """The result for one archive of a command that processes several archives."""

    source: str
    exit_code: int
    report: Report | None = None  # None if the archive was not planned
    error: str | None = None  # why the archive has no report
    nested: tuple[NestedRun, ...] = ()  # results of the archive's nested archives
    warnings: tuple[str, ...] = ()  # warnings about globs that match no member


class Batch(Struct, frozen=True, omit_defaults=True):
    """The results for several archives, in the order in which the archives were named."""

    exit_code: int  # the highest of the archives' exit codes
    archives: tuple[ArchiveEnd, ...]
