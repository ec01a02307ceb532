"""The tables of an environment's file, and what each of their settings may be."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from s3unzip.errors import UsageError
from s3unzip.object_properties import ARCHIVED_CLASSES, ObjectProperties

AccountId = Annotated[str, Field(pattern=r"^\d{12}$")]
BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
KeyPrefix = Annotated[str, Field(pattern=r"^([^/*?][^*?]*/)?$", max_length=512)]  # "" or "a/b/"
KmsKeyArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/.+$")]
SecretArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:"
        r"[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}(#[^#\s]{1,256})?$"
    ),
]
Days = Annotated[int, Field(ge=1, le=3_650)]
Memory = Annotated[int, Field(ge=128, le=10_240)]


class Section(BaseModel):
    """A table of the file: unknown names and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StackSection(Section):
    """The CloudFormation stack."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$")]
    retain: bool  # keep buckets, dead letters and logs when the stack is destroyed
    account: AccountId | None = None  # None: the account of the credentials
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] | None = None
    tags: dict[str, str] = {}


class BucketSection(Section):
    """A bucket: created with the stack, or an existing one by its name."""

    existing: BucketName | None = None
    prefix: KeyPrefix = ""


class IngestSection(BucketSection):
    """Where archives arrive."""

    suffix: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^*?\\]+$")] = ".zip"
    versioned: bool = True  # of an existing bucket: whether versioning is on (used by checks)
    expire_days: Days | None = None  # of a created bucket: days after which archives are deleted
    request_payer: bool = False  # pay for reading archives from a Requester Pays bucket

    @property
    def keeps_versions(self) -> bool:
        """Whether the bucket keeps versions: one that the stack creates does."""
        return self.existing is None or self.versioned


class DestinationSection(BucketSection):
    """Where members go."""

    owner: AccountId | None = None  # of an existing bucket: refuse any other owner
    versioned: bool = False  # of a created bucket: keep overwritten objects without a time limit


class WorkSection(BucketSection):
    """Plans, outcomes and reports."""

    expire_days: Days = 90


class ObjectsSection(Section):
    """What is set on every member besides its content: `s3unzip.ObjectProperties`."""

    storage_class: str | None = None  # None: STANDARD
    cache_control: str | None = None  # the header with which S3 returns the object
    content_types: dict[str, str] = {}  # type by glob of the member's path; the first that fits
    metadata: dict[str, str] = {}  # by name, without x-amz-meta-
    tags: dict[str, str] = {}  # the roles then have s3:PutObjectTagging

    @model_validator(mode="after")
    def _check_properties(self) -> Self:
        try:
            ObjectProperties(**self.model_dump()).check()
        except UsageError as error:
            raise ValueError(f"options.objects: {error}") from error
        return self


class AfterSuccessSection(Section):
    """What is done to an archive whose run is COMPLETED; without an action it is left."""

    action: Literal["delete", "tag"] | None = None  # a lifecycle rule can move what has a tag
    tags: dict[Annotated[str, Field(min_length=1, max_length=128)], str] = {}


class OptionsSection(Section):
    """The options of every run of this environment: `s3unzip.model.Options`."""

    key_template: Annotated[str, Field(min_length=1)] = "{archive_stem}/{member}"
    on_conflict: Literal["overwrite", "skip-unchanged", "never"] = "overwrite"
    include: list[str] = []
    exclude: list[str] = []
    lenient: bool = False
    encoding: str | None = None
    as_gzip: Literal["suffix", "encoding"] | None = None
    trust_crc: bool = False  # with as_gzip: do not inflate to check
    nested_depth: Annotated[int, Field(ge=0, le=8)] = 0  # levels of archives inside archives
    marker: bool = False
    objects: ObjectsSection = ObjectsSection()

    @model_validator(mode="after")
    def _check_forms(self) -> Self:
        if self.trust_crc and self.as_gzip is None:
            raise ValueError(
                "trust_crc: needs as_gzip, because inflated members are always checked"
            )
        if self.nested_depth and self.as_gzip is not None:
            raise ValueError(
                "nested_depth: cannot be combined with as_gzip: no archive inside gzip is read"
            )
        if self.nested_depth and self.objects.storage_class in ARCHIVED_CLASSES:
            raise ValueError(
                "nested_depth: archives inside are read from the destination, so "
                f"objects.storage_class cannot be {self.objects.storage_class}"
            )
        return self


class LimitsSection(Section):
    """Limits of archives: `s3unzip.zip.Limits`; None keeps the default."""

    members: Annotated[int, Field(gt=0)] | None = None
    total_size: Annotated[int, Field(gt=0)] | None = None
    member_size: Annotated[int, Field(gt=0)] | None = None
    ratio: Annotated[int, Field(gt=0)] | None = None
    directory_size: Annotated[int, Field(gt=0)] | None = None
    key_bytes: Annotated[int, Field(gt=0, le=1_024)] | None = None
    names_size: Annotated[int, Field(gt=0)] | None = None
    folder_memory: Annotated[int, Field(gt=0)] | None = None
    decoder_memory: Annotated[int, Field(gt=0)] | None = None
    parts: Annotated[int, Field(gt=0, le=500)] | None = None


class FunctionSection(Section):
    """One Lambda function; memory in MB, timeout in seconds."""

    memory: Memory
    timeout: Annotated[int, Field(ge=10, le=900)]
    # Kept for this function alone, and its limit; 0: it shares what nobody has reserved.
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
    concurrency: Annotated[int, Field(ge=2, le=1_000)] | None = None  # invocations at once
    attempts: Annotated[int, Field(ge=1, le=1_000)] = (
        5  # before an event goes to the dead-letter queue
    )


class RunsSection(Section):
    """Limits of one run."""

    workers: Annotated[int, Field(ge=1)] = 1_000  # of all runs, where extract reserves none
    max_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None  # None: half of all
    max_cost: Annotated[float, Field(gt=0)] | None = None  # dollars; above it the run is refused


class AlarmsSection(Section):
    """Thresholds of alarms, and who gets them."""

    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = None
    topic: Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:.+$")] | None = None
    archive_p95_seconds: Annotated[int, Field(ge=1)]
    waiting_seconds: Annotated[int, Field(ge=1)] = 900  # that an archive has waited in the queue
    throttles: Annotated[int, Field(ge=1)]  # 503 responses of S3 in five minutes


class LogsSection(Section):
    """Logs of functions and executions."""

    days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731]
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
