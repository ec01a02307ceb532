"""All configurable sizes, counts and times, and the names that functions share with their stack.

Lambda functions read their settings from environment variables (`Variable`); on one machine, the
command line or the caller of the API provides them. The functions emit `METRICS`; the dashboard and
the alarms of the stack use them. This module reads no files and does not depend on AWS.
"""

import math
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import fields, replace

from s3unzip.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40


# Variables that libraries read when a function's process starts.
PROCESS_VARIABLES = {
    # glibc returns freed buffers of at least this size to the system. Otherwise glibc would keep
    # these buffers with holes between them, and a worker would hold twice the memory that it uses.
    "MALLOC_MMAP_THRESHOLD_": str(4 * MIB),
    # By default, numpy's OpenBLAS starts a thread for each processor at import, which takes 30 ms
    # of CPU time. OpenBLAS is for linear algebra, which a scan does not need.
    "OPENBLAS_NUM_THREADS": "1",
}


# Kinds of buckets that s3unzip does not support, keyed by the name suffixes that S3 reserves for
# them (bucketnamingrules.html in the S3 user guide). Listings of directory buckets are not sorted.
# Requests to the other kinds of buckets must be signed differently.
OTHER_BUCKETS = {
    "--x-s3": "a directory bucket (S3 Express One Zone)",
    "--xa-s3": "an access point of a directory bucket",
    "--table-s3": "a table bucket",
    "--ol-s3": "the alias of an Object Lambda access point",
    "--op-s3": "a bucket on Outposts",
    ".mrap": "a Multi-Region Access Point",
}


class Variable(StrEnum):
    """Environment variables that the stack sets for its functions."""

    ENVIRONMENT = "S3UNZIP_ENVIRONMENT"  # name of the environment
    STACK = "S3UNZIP_STACK"  # name of the stack; commands find the environment by this name
    WORK_BUCKET = "S3UNZIP_WORK_BUCKET"  # name of the work bucket
    WORK_PREFIX = "S3UNZIP_WORK_PREFIX"  # `work.prefix`
    DESTINATION = "S3UNZIP_DESTINATION"  # location of members: s3://bucket/prefix/
    DESTINATION_OWNER = "S3UNZIP_DESTINATION_OWNER"  # account id of the bucket's owner, or empty
    DESTINATION_KMS_KEY = "S3UNZIP_DESTINATION_KMS_KEY"  # ARN of the key; empty for SSE-S3
    TRIGGER_BUCKET = "S3UNZIP_TRIGGER_BUCKET"  # name of the ingest bucket
    TRIGGER_PREFIX = "S3UNZIP_TRIGGER_PREFIX"  # `ingest.prefix`
    TRIGGER_SUFFIX = "S3UNZIP_TRIGGER_SUFFIX"  # `ingest.suffix`
    ROUTES = "S3UNZIP_ROUTES"  # a JSON array of the routes in their order, or empty
    SCAN = "S3UNZIP_SCAN"  # "guardduty" to open archives only after their scan, or empty
    REQUEST_PAYER = "S3UNZIP_REQUEST_PAYER"  # "requester" to pay for reading archives, or empty
    STATE_MACHINE = "S3UNZIP_STATE_MACHINE_ARN"  # ARN of the state machine
    QUEUE = "S3UNZIP_QUEUE_URL"  # URL of the intake queue
    EVENT_BUS = "S3UNZIP_EVENT_BUS"  # name of the event bus
    OPTIONS = "S3UNZIP_OPTIONS"  # model.Options as JSON
    AFTER_SUCCESS = "S3UNZIP_AFTER_SUCCESS"  # model.AfterSuccess as JSON, or empty
    TUNING = "S3UNZIP_TUNING"  # Tuning as a JSON object with the values that are not defaults
    LIMITS = "S3UNZIP_LIMITS"  # zip.Limits as a JSON object with the values that are not defaults
    # ARN or ARN#field of the password; set only for functions that read members.
    PASSWORD_SECRET = "S3UNZIP_PASSWORD_SECRET"  # noqa: S105 - a name
    WORKER_MEMORY = "S3UNZIP_WORKER_MEMORY"  # memory of the extract function, in MB, for estimates
    MAX_COST = "S3UNZIP_MAX_COST"  # maximum cost per run in dollars, or empty


# The name of a stack is this prefix and the environment's name, unless the environment's file
# contains the name of the stack.
STACK_PREFIX = "s3unzip-"
NAMESPACE = "s3unzip"  # namespace of the metrics
SERVICE = "s3unzip"  # value of the metrics' dimension `service`
# The unit of each metric, as CloudWatch spells it (StandardUnit of MetricDatum).
METRICS = {
    "ArchivesCompleted": "Count",  # runs that ended with COMPLETED
    "ArchivesWithErrors": "Count",  # runs that ended with COMPLETED_WITH_ERRORS
    "ArchivesRejected": "Count",  # archives that were REJECTED; nothing was written
    "ArchivesChanged": "Count",  # runs with SOURCE_CHANGED; the newer archive has its own run
    "ArchivesFailed": "Count",  # runs that ended with FAILED, including those that timed out
    "ArchivesStopped": "Count",  # runs that a user stopped
    "ArchivesWithheld": "Count",  # archives not opened because they lack a clean scan result
    "DirectHandovers": "Count",  # small archives that the state machine had to finish
    "SourcesFinished": "Count",  # archives deleted or tagged after success
    "SourcesNotFinished": "Count",  # archives that could not be deleted or tagged, or were replaced
    "ArchiveDuration": "Seconds",  # from the S3 event's time to the report
    "ArchivePace": "Seconds",  # ArchiveDuration per 10 GB or 100,000 members of a large archive
    "RunDuration": "Seconds",  # from the start of the plan to the report
    "QueueDelay": "Seconds",  # from the S3 event's time to the plan's start
    "PlanDuration": "Seconds",  # duration of one plan
    "TaskDuration": "Seconds",  # duration of one task of the extract function
    "SettleDuration": "Seconds",  # duration of one settling; a run has one settling per round
    "MembersExtracted": "Count",  # members written
    "MembersFailed": "Count",  # members that were not written
    "MembersUnchanged": "Count",  # members that the destination already had
    "BytesRead": "Bytes",  # bytes read from archives
    "BytesWritten": "Bytes",  # bytes written to the destination
    "ReadRequests": "Count",  # GET and HEAD requests of plans and tasks
    "WriteRequests": "Count",  # PUT, COPY, POST and LIST requests of plans and tasks
    "S3Throttles": "Count",  # requests that S3 answered with "slow down"
    "PutLatency": "Milliseconds",  # mean latency of the PUTs of one task
}


# The settings for which 0 means off.
MAY_BE_ZERO = frozenset({"max_direct_members", "max_few_tasks", "min_worker_seconds"})


class Tuning(Struct, frozen=True):
    """How the work is divided and how much is in flight; sizes are in bytes, times in seconds."""

    # plan
    tail_bytes: int = 256 * KIB  # size of the first suffix GET, enough for small directories
    directory_piece: int = 8 * MIB  # size of one range of a large directory
    directory_readers: int = 4  # number of ranges of a large directory in flight
    small_member: int = 8 * MIB  # size, compressed or not, from which a member has its own task
    copy_from: int = 8 * MIB  # size from which stored members are copied server-side
    split_from: int = 256 * MIB  # compressed size from which deflated members are split
    segment_bytes: int = 64 * MIB  # maximum number of compressed bytes in one segment
    batch_bytes: int = 128 * MIB  # maximum number of compressed bytes in one batch
    batch_output: int = 512 * MIB  # maximum number of uncompressed bytes in one batch
    batch_members: int = 4_000
    batch_seconds: float = 20.0  # maximum estimated duration of one batch
    batch_min_seconds: float = 1.0  # duration below which a separate task is not worthwhile
    gap_bytes: int = 1 * MIB  # a batch also reads gaps up to this size; a longer gap ends a range
    copy_task_bytes: int = 4 * GIB  # maximum size of one copy task, which takes about ten seconds
    # the basis of the estimate for a task; `rates` contains the other figures and their sources
    worker_bandwidth: int = 75_000_000  # bytes per second, in or out
    put_seconds: float = 0.030  # latency of one PUT
    member_seconds: float = 0.000_3  # CPU time for one small member
    prefix_put_rate: int = 3_500  # PUTs per second to one partitioned prefix
    rate_headroom: float = 2.5  # S3 raises the rate: plan for this multiple; 6 on one machine
    max_workers: int = 1_000  # maximum number of concurrent tasks of one run
    min_worker_seconds: float = 0.0  # estimated work that justifies a worker; 4 on one machine
    max_few_tasks: int = 40  # a round with more tasks uses a Distributed Map; with 0, all rounds do
    # direct runs: limits for archives that are extracted by the function that receives the event
    max_direct_members: int = 2_500  # with 0, the state machine extracts every archive
    max_direct_bytes: int = 256 * MIB  # limit for the bytes read, and for the bytes written
    # extract
    puts_in_flight: int = 32  # PUTs of one worker; 100 on one machine
    bytes_in_flight: int = 64 * MIB  # size of the members waiting for their PUT
    read_piece: int = 8 * MIB  # size of one range of a large member
    reads_ahead: int = 3  # number of ranges of a large member that are read before they are needed
    part_bytes: int = 16 * MIB  # minimum size of a multipart part
    parts_in_flight: int = 4
    copy_part_bytes: int = 512 * MIB
    retry_seconds: float = 60.0  # retry budget of one call
    margin_seconds: float = 30.0  # part of the worker's time limit reserved for writing outcomes
    # limits for all nested archives of one archive together
    nested_archives: int = 1_000
    nested_members: int = 1_000_000
    nested_bytes: int = 1 * TIB
    # report
    failures_listed: int = 1_000  # maximum in report.json; the outcomes contain all failures

    def puts_at_once(self, members: int) -> int:
        """Return the number of concurrent PUTs, each on its own connection, for small members."""
        connections = max(CONNECTION_PAYS_PUTS, members // CONNECTION_PAYS_PUTS)
        return max(1, min(self.puts_in_flight, connections, members))


# A thread and its connection take 0.3 ms of CPU time to start, even without TLS. So above this
# number of connections, each must carry at least this number of PUTs.
CONNECTION_PAYS_PUTS = 32

NUMBER_TYPES = {field.name: type(field.default) for field in fields(Tuning)}  # int or float
MIN_VALUES = {  # zero is also allowed for the settings in `MAY_BE_ZERO`
    **{name: {int: 1, float: 1e-6}[number_type] for name, number_type in NUMBER_TYPES.items()},
    # Only the last part of an upload may be smaller than 5 MiB:
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
    "part_bytes": 5 * MIB,
    "copy_part_bytes": 5 * MIB,
    "tail_bytes": 22,
}
MAX_VALUES = {
    **dict.fromkeys(MIN_VALUES, 10**15),
    # An inline Map processes at most 40 items concurrently. All events of these items are in
    # the history of the execution, and the length of the history is limited.
    "max_few_tasks": 40,
    # A part can contain at most 5 GiB (see the page above).
    "part_bytes": 5 * GIB,
    "copy_part_bytes": 5 * GIB,
}


def machine_tuning(processes: int) -> dict[str, int | float]:
    """Return the settings that differ from the defaults for `processes` workers on one machine."""
    return {
        "max_workers": processes,
        # A process takes 0.2 to 0.5 s of CPU time before its first byte. Small members take half of
        # the estimated time.
        "min_worker_seconds": 4.0,
        # At the latency `put_seconds`, one process sends about as many PUTs per second as S3
        # accepts below one prefix (`prefix_put_rate`).
        "puts_in_flight": limit_by_files(100),
        "rate_headroom": 6.0,  # servers other than S3 have no rate for a prefix
    }


def limit_by_files(requests: int) -> int:
    """Return `requests`, or a third of this process's limit on open files if the third is less.

    A request to S3 needs one file descriptor, for the connection. A PUT into a folder needs two,
    for the folder and the new file. The last third of the limit is for other connections and files.
    """
    import resource  # noqa: PLC0415 - the functions on AWS do not need it

    return max(1, min(requests, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3))


def make_tuning(changes: Mapping[str, object], base: Tuning | None = None) -> Tuning:
    """Return `base`, or the defaults, with `changes` applied."""
    values: dict[str, int | float] = {}
    for name, value in changes.items():
        if name not in NUMBER_TYPES:
            raise UsageError(f"tuning {name!r} is unknown; {_advise_name(name)}")
        values[name] = NUMBER_TYPES[name](_check_number(name, value))
    return replace(base or Tuning(), **values)


def _advise_name(name: str) -> str:
    import difflib  # noqa: PLC0415 - needed only for a mistake

    near = difflib.get_close_matches(name, NUMBER_TYPES, n=3, cutoff=0.5)
    if near:
        return f"near: {', '.join(near)}"
    return "see docs/reference/settings.md#tuning for all names"


def _check_number(name: str, value: object) -> int | float:
    """Return `value` if it is valid for the setting `name`; otherwise, raise `UsageError`."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)  # in Python, a bool is an int
        or not 0 <= value < math.inf  # also refuses NaN
        or (value == 0 and name not in MAY_BE_ZERO)
    ):
        raise UsageError(
            f"tuning {name!r} must be a positive number, not {value!r}; only "
            f"{', '.join(sorted(MAY_BE_ZERO))} may be 0"
        )
    if 0 < value < MIN_VALUES[name]:
        raise UsageError(f"tuning {name!r} must be at least {MIN_VALUES[name]:,}, not {value!r}")
    if value > MAX_VALUES[name]:
        raise UsageError(f"tuning {name!r} must be at most {MAX_VALUES[name]:,}, not {value!r}")
    return value


def spellings(suffix: str) -> tuple[str, ...]:
    """Return the accepted spellings of a key's suffix: as given, lower, upper and title case.

    An EventBridge pattern that has both a prefix and a suffix cannot ignore case. The rule
    therefore lists these spellings, and the functions accept the same ones.
    """
    return tuple(dict.fromkeys((suffix, suffix.lower(), suffix.upper(), suffix.title())))
