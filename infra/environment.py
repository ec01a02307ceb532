"""One environment: the settings of `infra/environments/<name>.toml`, checked before synthesis.

First the tables of the file with what each of their settings may be, then what does not go
together, then the settings of the command line: ``-c runs.max_workers=50`` replaces the file's
value. A wrong, missing or unknown setting ends the command with one line that names the file, the
setting and the expected value. The names of tuning settings come from `s3unzip.settings`.
"""

import math
import re
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, model_validator

from infra.tables import LimitsTable, OptionsTable, Section, table_of
from s3unzip.contradictions import check_after_success
from s3unzip.errors import UsageError
from s3unzip.model import AfterSuccess, Options, SourceAction
from s3unzip.settings import MIB, OTHER_BUCKETS, Tuning, make_tuning
from s3unzip.zip import Limits

AccountId = Annotated[str, Field(pattern=r"^\d{12}$")]
BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
# A backslash escapes the next character in a pattern of EventBridge.
KeyPrefix = Annotated[str, Field(pattern=r"^([^/*?\\][^*?\\]*/)?$", max_length=512)]  # "" or "a/b/"
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
    account: AccountId | None = None  # None: the account of the credentials
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] | None = None
    tags: dict[str, str] = Field(default={})
    permissions_boundary: PolicyArn | None = None  # of every role that the stack creates
    qualifier: Annotated[str, Field(pattern=r"^[a-z0-9]{1,10}$")] = "hnb659fds"  # of the bootstrap


class BucketSection(Section):
    """A bucket: created with the stack, or an existing one by its name."""

    existing: BucketName | None = None
    prefix: KeyPrefix = ""
    kms_key: KmsKeyArn | None = None  # of an existing bucket: the functions get rights on it


class IngestSection(BucketSection):
    """Where archives arrive."""

    suffix: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^*?\\]+$")] = ".zip"
    versioned: bool = True  # of an existing bucket: whether versioning is on (used by checks)
    expire_days: Days | None = None  # of a created bucket: days after which archives are deleted
    topic: TopicArn | None = None  # of SNS, to which S3 or another account sends the events
    scan: Literal["guardduty"] | None = None  # open only archives that were scanned for malware
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


class AfterSuccessSection(Section):
    """What is done to an archive whose run is COMPLETED; without an action it is left."""

    action: Literal["delete", "tag"] | None = None  # a lifecycle rule can move what has a tag
    tags: dict[Annotated[str, Field(min_length=1, max_length=128)], str] = Field(default={})


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
    # Invocations at once; None: what functions.intake reserves, or 100.
    concurrency: Annotated[int, Field(ge=2, le=1_000)] | None = None
    attempts: Annotated[int, Field(ge=1, le=1_000)] = (
        5  # before an event goes to the dead-letter queue
    )


class RunsSection(Section):
    """Limits of one run."""

    workers: Annotated[int, Field(ge=1)] = 1_000  # of all runs, where extract reserves none
    max_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None  # None: half of all
    max_cost: Annotated[float, Field(gt=0)] | None = None  # dollars; above it the run is refused


class NetworkSection(Section):
    """Where the functions' network interfaces are; without subnets Lambda's own network."""

    subnets: list[SubnetId] = Field(default=[], max_length=16)
    security_groups: list[SecurityGroupId] = Field(default=[], max_length=5)


ChosenAlarm = Literal["AbortedRuns", "RejectedArchives", "SourcesNotFinished"]


class AlarmsSection(Section):
    """Thresholds of alarms, and who gets them."""

    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = None
    topic: TopicArn | None = None
    archive_p95_seconds: Annotated[int, Field(ge=1)]
    waiting_seconds: Annotated[int, Field(ge=1)] = 900  # that an archive has waited in the queue
    throttles: Annotated[int, Field(ge=1)]  # 503 responses of S3 in five minutes, for an hour
    also: list[ChosenAlarm] = Field(
        default=[]
    )  # alarms that are made only where they are named here


class LogsSection(Section):
    """Logs of functions and executions."""

    days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731]
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


FOLDER = Path(__file__).parent / "environments"


class EnvironmentFileError(Exception):
    """The environment's file is missing or a setting in it is wrong; the message is one line."""


class Environment(Section):
    """All settings of one environment."""

    name: str
    stack: StackSection
    ingest: IngestSection = IngestSection()
    destination: DestinationSection = DestinationSection()
    work: WorkSection = WorkSection()
    kms_key: KmsKeyArn | None = None  # of created buckets and written objects; None: SSE-S3
    password_secret: SecretArn | None = None  # of encrypted members; ARN#field: of a JSON secret
    password_kms_key: KmsKeyArn | None = None  # of the secret, where it is not aws/secretsmanager
    event_bus: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,256}$")] = "default"
    options: OptionsTable = Field(default_factory=Options)
    after_success: AfterSuccessSection = AfterSuccessSection()
    limits: LimitsTable = Field(default_factory=Limits)
    tuning: dict[str, int | float] = Field(default={})
    runs: RunsSection = RunsSection()
    intake: IntakeSection = IntakeSection()
    network: NetworkSection = NetworkSection()
    functions: FunctionsSection
    alarms: AlarmsSection
    logs: LogsSection

    @property
    def written_key(self) -> str | None:
        """The KMS key that is sent with each member; None: the bucket's own encryption applies."""
        return None if self.destination.kms_key else self.kms_key

    @property
    def bucket_keys(self) -> list[str]:
        """The KMS keys of all buckets, each once."""
        sections = (self.ingest, self.destination, self.work)
        keys = [self.kms_key, *(section.kms_key for section in sections)]
        return sorted({key for key in keys if key is not None})

    @property
    def workers(self) -> int:
        """The workers that all runs share."""
        return self.functions.extract.reserved_concurrency or self.runs.workers

    @property
    def max_workers(self) -> int:
        """The workers of one run; half of all by default, so that one run cannot take them all."""
        return self.runs.max_workers or max(1, self.workers // 2)

    @property
    def intake_concurrency(self) -> int:
        """The invocations of intake at once."""
        reserved = self.functions.intake.reserved_concurrency
        return self.intake.concurrency or reserved or DEFAULT_INTAKE

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse settings that do not go together."""
        try:
            tuning = make_tuning(self.tuning)
            problem = self._explain_problem(tuning)
        except UsageError as error:
            raise ValueError(str(error)) from error
        if problem is not None:
            raise ValueError(problem)
        return self

    def _explain_problem(self, tuning: Tuning) -> str | None:
        """Return why the first settings do not go together, None if all do."""
        return (
            self._explain_plan_memory()
            or self._explain_small_archives(tuning)
            or self._explain_concurrency()
            or self._explain_buckets()
            or self._explain_keys()
            or self._explain_network()
            or self._explain_overlap()
            or self._explain_after_success()
            or self._explain_scan()
        )

    def _explain_small_archives(self, tuning: Tuning) -> str | None:
        timeout = self.functions.intake.timeout
        needed = math.ceil(SMALL_SECONDS + tuning.margin_seconds)
        if not tuning.max_direct_members or timeout >= needed:
            return None
        return (
            f"functions.intake.timeout: {timeout} s is too little for a small archive with "
            f"tuning.margin_seconds ({tuning.margin_seconds:.0f}) to spare: make it {needed} "
            "or more, or lower them"
        )

    def _explain_plan_memory(self) -> str | None:
        """Return why Lambda would kill the plan function with the largest directory allowed."""
        memory = self.functions.plan.memory
        members = self.limits.members
        names_size = self.limits.names_size
        needed = plan_memory(members, names_size)
        if needed <= memory:
            return None
        fitting = _fitting_members(memory, names_size)
        return (
            f"functions.plan.memory: {memory} MB is too little for limits.members "
            f"({members:,}) and limits.names_size ({names_size:,} bytes), which take {needed:,} "
            f"MB: raise it, or set limits.members to at most {fitting:,}"
        )

    def fit_plan(self, memory: int) -> list[str]:
        """Return the settings with which a plan fits into `memory`, in MB; usually none."""
        members = self.limits.members
        names_size = self.limits.names_size
        if plan_memory(members, names_size) <= memory:
            return []
        return [f"limits.members={_fitting_members(memory, names_size)}"]

    def _explain_concurrency(self) -> str | None:
        """Return which limit is above the reservation that it uses."""
        functions = self.functions
        wanted = (
            ("runs.max_workers", self.runs.max_workers, "extract"),
            ("intake.concurrency", self.intake.concurrency, "intake"),
        )
        for name, at_once, function in wanted:
            reserved = getattr(functions, function).reserved_concurrency
            if at_once is not None and 0 < reserved < at_once:
                return (
                    f"{name}: {at_once} is more than functions.{function}.reserved_concurrency "
                    f"({reserved}): lower the one or raise the other"
                )
        if functions.intake.reserved_concurrency == 1:
            return (
                "functions.intake.reserved_concurrency: 1 is too little, because the queue's event "
                "source has at least 2 invocations at once: make it 2 or more, or 0"
            )
        return None

    def _explain_buckets(self) -> str | None:
        """Return which existing bucket is of a kind that the pipeline cannot use."""
        for section in ("ingest", "destination", "work"):
            name = getattr(self, section).existing or ""
            kinds = OTHER_BUCKETS | {"-s3alias": "the alias of an access point"}
            for suffix, kind in kinds.items():
                if name.endswith(suffix):
                    return (
                        f"{section}.existing: {name} is {kind}: name a general purpose bucket, "
                        "because only those send events and keep what a run writes"
                    )
        return None

    def _explain_keys(self) -> str | None:
        """Return which key belongs to nothing."""
        for section in ("ingest", "destination", "work"):
            bucket = getattr(self, section)
            if bucket.kms_key and not bucket.existing:
                return (
                    f"{section}.kms_key: is the key of an existing bucket; the stack creates this "
                    "bucket, with the key of kms_key: set that, or name a bucket"
                )
        if self.password_kms_key and not self.password_secret:
            return "password_kms_key: is the key of password_secret, which is not set"
        return None

    def _explain_network(self) -> str | None:
        network = self.network
        if bool(network.subnets) == bool(network.security_groups):
            return None
        missing = "security_groups" if network.subnets else "subnets"
        return f"network.{missing}: functions in a VPC need both subnets and security_groups"

    def _explain_overlap(self) -> str | None:
        """Return which prefixes overlap, so that what a run writes could start a run."""
        ingest, destination, work = self.ingest, self.destination, self.work
        for name, written in (("destination", destination), ("work", work)):
            if _overlap(ingest, written):
                return (
                    f"{name}.prefix: s3://{written.existing}/{written.prefix} is inside the "
                    f"trigger's scope (s3://{ingest.existing}/{ingest.prefix}*{ingest.suffix}), "
                    "so what a run writes could start runs: choose another bucket or prefix"
                )
        if _overlap(destination, work):
            return (
                f"work.prefix: s3://{work.existing}/{work.prefix} and the destination overlap, so "
                "a member could replace a plan: choose another bucket or prefix"
            )
        return None

    def _explain_after_success(self) -> str | None:
        rule = self.after_success
        if (rule.action == "tag") != bool(rule.tags):
            return 'after_success.tags: action = "tag" needs at least one, and others have none'
        if rule.action == "tag" and not self.ingest.keeps_versions:
            return (
                "after_success.action: S3 cannot tag one version in a bucket without versioning: "
                "delete the archives, or turn versioning on and set ingest.versioned"
            )
        if rule.action == "delete":
            made = AfterSuccess(SourceAction.DELETE)
            check_after_success(made, self.options, "after_success.action:", "options.{}".format)
        return None

    def _explain_scan(self) -> str | None:
        if self.ingest.scan and self.limits.parts not in {1, Limits().parts}:
            return (
                "limits.parts: with ingest.scan split archives are not opened, because the scan of "
                "a part does not look into the archive: leave it out"
            )
        if self.ingest.scan and self.options.nested_depth > SCANNED_DEPTH:
            return (
                f"options.nested_depth: with ingest.scan at most {SCANNED_DEPTH}, because "
                "GuardDuty does not look into deeper archives"
            )
        return None


SCANNED_DEPTH = 4  # of 5 levels, one is the archive itself: quotas of GuardDuty
DEFAULT_INTAKE = 100  # invocations of intake at once, where nothing is reserved
SMALL_SECONDS = 20.0  # that the intake function needs for what counts as small
# `s3unzip.zip.Limits` gives the bound: bytes a member, the names, and twice
# `folder_memory`. 273 bytes a member, short names included, were measured with 5,000,000.
MEMBER_BYTES = 300
FOLDERS_MB = 64
BASE_MB = 256  # the interpreter with its libraries


def plan_memory(members: int, names_size: int) -> int:
    """Return the memory, in MB, that a plan with these members and bytes of names needs."""
    return BASE_MB + FOLDERS_MB + math.ceil((members * MEMBER_BYTES + names_size) / MIB)


def _fitting_members(memory: int, names_size: int) -> int:
    """Return the members that a plan can have in `memory`, in MB."""
    return max(0, (memory - plan_memory(0, names_size)) * MIB // MEMBER_BYTES)


def _overlap(one: BucketSection, other: BucketSection) -> bool:
    """Return whether a key can be below both prefixes; created buckets always differ."""
    if one.existing is None or one.existing != other.existing:
        return False
    return one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)


def load_environment(
    name: str, folder: Path = FOLDER, *, settings: Mapping[str, object] | None = None
) -> Environment:
    """Return the environment; `settings` replace those of its file, by ``section.setting``."""
    file = folder / f"{name}.toml"
    shown = f"infra/environments/{name}.toml"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.toml")))
        raise EnvironmentFileError(f"environment {name!r}: there is no {shown}; known: {known}")
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text())
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentFileError(f"{shown}: {error}") from error
    try:
        replace_settings(values, settings or {})
        return Environment.model_validate({**values, "name": name})
    except ValidationError as error:
        said = first_line(error)
        where = "-c" if re.split("[: ]", said, maxsplit=1)[0] in (settings or {}) else f"{shown}:"
        raise EnvironmentFileError(f"{where} {said}") from error


SETTING = re.compile(r"[a-z_]+(\.[a-z0-9_]+)+")


def select_settings(context: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a CDK context whose keys are settings: ``section.setting``."""
    return {key: value for key, value in context.items() if SETTING.fullmatch(key)}


def replace_settings(values: dict[str, Any], settings: Mapping[str, object]) -> None:
    """Put `settings` into `values`, the values of an environment's file.

    A text setting gets the text unchanged. Other settings parse their text as TOML: ``50``,
    ``true``, ``["*.csv"]``.
    """
    for path, value in settings.items():
        kind = _kind_of(path)
        *sections, name = path.split(".")
        table = values
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = _read(value) if isinstance(value, str) and not _is_text(kind) else value


def _kind_of(path: str) -> Any:
    kind: Any = Environment
    for part in path.split("."):
        if get_origin(kind) is dict:  # a table of free names
            kind = get_args(kind)[1]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and part in kind.model_fields:
            kind = table_of(kind.model_fields[part])
        else:
            raise EnvironmentFileError(f"-c {path}: there is no such setting")
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        raise EnvironmentFileError(f"-c {path}: this is a section; name one of its settings")
    return kind


def _is_text(kind: Any) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return any(isinstance(one, str) for one in arguments)
    if origin in {Union, types.UnionType, Annotated}:
        return any(_is_text(one) for one in arguments)
    return kind is str


def _read(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # the validation reports the expected value


# By pydantic's type of an error; the fields in braces are its context.
_EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type"), "must be a table"),
    "string_type": "must be text",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
}


def first_line(error: ValidationError) -> str:
    """Return the first error as ``setting: expected value, actual value``."""
    first = error.errors(include_url=False)[0]
    setting = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "missing":
            return f"{setting}: this setting is missing"
        case "extra_forbidden":
            return f"{setting}: there is no such setting"
        case "value_error":
            return first["msg"].removeprefix("Value error, ")
    message = first["msg"]
    expected = _EXPECTED.get(first["type"], f"{message[0].lower()}{message[1:]}")
    return f"{setting} {expected.format(**first.get('ctx', {}))}; it is {first['input']!r}"
