"""The tables of an environment's file, with the values that each setting may have.

The checks for settings that contradict each other are in `infra.environment`. The tables of options
and limits are made from types of the package, in `infra.tables`.
"""

from typing import Annotated, Literal

from pydantic import Field

from infra.tables import OptionsTable, Section
from s3unzip.model import Options

AccountId = Annotated[str, Field(pattern=r"^\d{12}$")]
BUCKET_NAME = r"^[a-z0-9]((-*|\.)[a-z0-9])*$"
BucketName = Annotated[str, Field(pattern=BUCKET_NAME, min_length=3, max_length=63)]
IP_ADDRESS = r"\d+(\.\d+){3}"  # S3 has no bucket with such a name
# A backslash escapes the next character in a pattern of EventBridge, "${" begins a variable in a
# policy of IAM, and braces in the ARN of a right end the synthesis with cdk-nag.
KeyPrefix = Annotated[  # "" or "a/b/"
    str, Field(pattern=r"^([^/*?{}\\\x00-\x1f][^*?{}\\\x00-\x1f]*/)?$", max_length=512)
]
KeySuffix = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^*?\\\x00-\x1f]+$")]
KmsKeyArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/.+$")]
SecretArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:"
        r"[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}(#[^#\s]{1,256})?$"
    ),
]
TopicArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:.+$")]
SubnetId = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
SecurityGroupId = Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]
PolicyArn = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+$")
]
Days = Annotated[int, Field(ge=1, le=3_650)]
Memory = Annotated[int, Field(ge=128, le=10_240)]


class StackSection(Section):
    """The CloudFormation stack."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$")]
    retain: bool  # keep buckets, dead letters and logs when the stack is destroyed
    account: AccountId | None = None  # account of the stack; None: that of the credentials
    region: Annotated[str, Field(pattern=r"^[a-z]{2,4}(-[a-z]+)+-\d$")] | None = None
    tags: dict[str, str] = Field(default={}, max_length=49)  # 50 with the stack's own
    permissions_boundary: PolicyArn | None = None  # of every role that the stack creates
    qualifier: Annotated[str, Field(pattern=r"^[a-z0-9]{1,10}$")] = "hnb659fds"  # of the bootstrap


class BucketSection(Section):
    """A bucket: created with the stack, or an existing bucket with the name `existing`."""

    existing: BucketName | None = None
    prefix: KeyPrefix = ""
    kms_key: KmsKeyArn | None = None  # key of an existing bucket; the functions get rights on it


class IngestSection(BucketSection):
    """Where archives arrive."""

    suffix: KeySuffix = ".zip"
    versioned: bool = True  # whether an existing bucket keeps versions; tags need versions
    expire_days: Days | None = None  # days after which a created bucket deletes archives
    topic: TopicArn | None = None  # an SNS topic to which S3 or another account sends the events
    scan: Literal["guardduty"] | None = None  # open only archives that GuardDuty found clean
    request_payer: bool = False  # pay for reading archives from a Requester Pays bucket


class DestinationSection(BucketSection):
    """Where members go."""

    owner: AccountId | None = None  # required owner of an existing bucket
    versioned: bool = False  # let a created bucket keep overwritten objects, without a time limit


class WorkSection(BucketSection):
    """Plans, outcomes and reports."""

    expire_days: Days = 90


class RouteDestinationSection(BucketSection):
    """Where members of a route go; without `existing`, to the bucket of `[destination]`."""

    owner: AccountId | None = None  # required owner of an existing bucket


class RouteSection(Section):
    """The archives of one sender, and where and how their members are written.

    Settings that a route leaves out are taken from the rest of the file.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]  # in reports and lists of runs
    prefix: KeyPrefix = ""  # of the keys of its archives; `ingest.prefix` is not added to it
    suffix: KeySuffix = ".zip"  # of the keys of its archives
    destination: RouteDestinationSection = RouteDestinationSection()
    options: OptionsTable = Field(default_factory=Options)  # options that differ from `[options]`
    password_secret: SecretArn | None = None  # for encrypted members, instead of the environment's
    password_kms_key: KmsKeyArn | None = None  # of this secret


class AfterSuccessSection(Section):
    """What is done to an archive whose run is COMPLETED; without an action it stays unchanged."""

    action: Literal["delete", "tag"] | None = None  # a lifecycle rule can move objects with a tag
    tags: dict[str, str] = Field(default={})


class FunctionSection(Section):
    """One Lambda function; memory in MB, timeout in seconds."""

    memory: Memory
    timeout: Annotated[int, Field(ge=10, le=900)]
    # Concurrent invocations reserved for this function, which are also its maximum; 0: the function
    # shares the concurrency that no function has reserved.
    reserved_concurrency: Annotated[int, Field(ge=0)] = 0


class FunctionsSection(Section):
    """The functions."""

    intake: FunctionSection
    plan: FunctionSection
    extract: FunctionSection
    settle: FunctionSection


class IntakeSection(Section):
    """The queue between the event and the intake function."""

    batch: Annotated[int, Field(ge=1, le=10)] = 1  # events in one invocation
    # Concurrent invocations; None: as many as functions.intake reserves, or 100.
    concurrency: Annotated[int, Field(ge=2, le=1_000)] | None = None
    attempts: Annotated[int, Field(ge=1, le=1_000)] = 5  # attempts at one event


class RunsSection(Section):
    """Limits of one run."""

    workers: Annotated[int, Field(ge=1)] = 1_000  # of all runs, if extract reserves none
    max_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None  # None: half of all
    max_cost: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class NetworkSection(Section):
    """The functions' network; without subnets, it is Lambda's own network."""

    subnets: list[SubnetId] = Field(default=[], max_length=16)
    security_groups: list[SecurityGroupId] = Field(default=[], max_length=5)


ChosenAlarm = Literal["AbortedRuns", "RejectedArchives", "SourcesNotFinished"]


class AlarmsSection(Section):
    """Thresholds of alarms, and who is notified."""

    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = None
    topic: TopicArn | None = None
    archive_p95_seconds: Annotated[int, Field(ge=1)]
    waiting_seconds: Annotated[int, Field(ge=1)] = 900  # time that an archive waits in the queue
    throttles: Annotated[int, Field(ge=1)]  # 503 responses of S3 in each 5 minutes of an hour
    also: list[ChosenAlarm] = Field(default=[])


class LogsSection(Section):
    """Logs of functions and executions."""

    days: Literal[
        1,
        3,
        5,
        7,
        14,
        30,
        60,
        90,
        120,
        150,
        180,
        365,
        400,
        545,
        731,
        1_096,
        1_827,
        2_192,
        2_557,
        2_922,
        3_288,
        3_653,
    ]
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
