"""One environment: the settings of `infra/environments/<name>.toml`, checked before synthesis.

A wrong, missing or unknown setting ends the command with one line that names the file, the setting
and the expected value. The names of tuning settings come from `s3unzip.settings`.
"""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from infra.overrides import SettingError, replace_settings
from infra.plan_memory import explain_shortage
from infra.setting_errors import first_line
from s3unzip.errors import UsageError
from s3unzip.settings import EXPRESS_END, EXPRESS_SECONDS, make_tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent / "environments"

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


class EnvironmentFileError(Exception):
    """The environment's file is missing or a setting in it is wrong; the message is one line."""


class Section(BaseModel):
    """A table of the file: unknown names and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StackSection(Section):
    """The CloudFormation stack."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$")]
    retain: bool  # keep buckets when the stack is destroyed
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


class DestinationSection(BucketSection):
    """Where members go."""

    owner: AccountId | None = None  # of an existing bucket: refuse any other owner
    versioned: bool = False  # of a created bucket: keep overwritten objects without a time limit


class WorkSection(BucketSection):
    """Plans, outcomes and reports."""

    expire_days: Days = 90


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
        return self


class LimitsSection(Section):
    """Limits of archives: `s3unzip.zipformat.Limits`; None keeps the default."""

    members: Annotated[int, Field(gt=0)] | None = None
    total_size: Annotated[int, Field(gt=0)] | None = None
    member_size: Annotated[int, Field(gt=0)] | None = None
    ratio: Annotated[int, Field(gt=0)] | None = None
    directory_size: Annotated[int, Field(gt=0)] | None = None
    key_bytes: Annotated[int, Field(gt=0, le=1_024)] | None = None
    names_size: Annotated[int, Field(gt=0)] | None = None
    folder_memory: Annotated[int, Field(gt=0)] | None = None
    decoder_memory: Annotated[int, Field(gt=0)] | None = None


class FunctionSection(Section):
    """One Lambda function; memory in MB, timeout in seconds."""

    memory: Memory
    timeout: Annotated[int, Field(ge=10, le=900)]
    reserved_concurrency: Annotated[int, Field(ge=1)] | None = None


class WorkerSection(FunctionSection):
    """A Lambda function that an Express child workflow calls."""

    timeout: Annotated[int, Field(ge=60, le=EXPRESS_SECONDS - EXPRESS_END - 5)]


class FunctionsSection(Section):
    """The functions."""

    plan: FunctionSection
    planner: FunctionSection
    scan: WorkerSection
    link: FunctionSection
    extract: WorkerSection
    report: FunctionSection


class IntakeSection(Section):
    """The queue between the event and the plan function."""

    batch: Annotated[int, Field(ge=1, le=10)] = 1  # events in one invocation
    concurrency: Annotated[int, Field(ge=2, le=1_000)] | None = None  # concurrent plans
    attempts: Annotated[int, Field(ge=1, le=1_000)] = (
        5  # before an event goes to the dead-letter queue
    )


class RunsSection(Section):
    """Limits of one run."""

    max_workers: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    max_cost: Annotated[float, Field(gt=0)] | None = None  # dollars; above it the run is refused


class AlarmsSection(Section):
    """Thresholds of alarms, and who gets them."""

    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = None
    archive_p95_seconds: Annotated[int, Field(ge=1)]
    throttles: Annotated[int, Field(ge=1)]  # 503 responses of S3 in five minutes


class LogsSection(Section):
    """Logs of functions and executions."""

    days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731]
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


class Environment(Section):
    """All settings of one environment."""

    name: str
    stack: StackSection
    ingest: IngestSection = IngestSection()
    destination: DestinationSection = DestinationSection()
    work: WorkSection = WorkSection()
    kms_key: KmsKeyArn | None = None  # of created buckets and written objects; None: SSE-S3
    password_secret: SecretArn | None = None  # of encrypted members; ARN#field: of a JSON secret
    event_bus: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,256}$")] = "default"
    options: OptionsSection = OptionsSection()
    limits: LimitsSection = LimitsSection()
    tuning: dict[str, int | float] = {}
    runs: RunsSection = RunsSection()
    intake: IntakeSection = IntakeSection()
    functions: FunctionsSection
    alarms: AlarmsSection
    logs: LogsSection

    @model_validator(mode="after")
    def _check_tuning(self) -> Self:
        try:
            make_tuning(self.tuning)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        short = explain_shortage(
            self.functions.planner.memory, self.limits.members, self.limits.names_size
        )
        if short is not None:
            raise ValueError(short)
        return self

    @model_validator(mode="after")
    def _check_direct_runs(self) -> Self:
        tuning = make_tuning(self.tuning)
        needed = math.ceil(tuning.max_direct_seconds + tuning.margin_seconds)
        if tuning.max_direct_members and self.functions.plan.timeout < needed:
            raise ValueError(
                f"functions.plan.timeout: {self.functions.plan.timeout} s is too little for "
                f"direct runs of tuning.max_direct_seconds ({tuning.max_direct_seconds:.0f}) with "
                f"tuning.margin_seconds ({tuning.margin_seconds:.0f}) to spare: make it {needed} "
                "or more, or lower them"
            )
        return self

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        reserved = self.functions.extract.reserved_concurrency
        if reserved is not None and self.runs.max_workers > reserved:
            raise ValueError(
                f"runs.max_workers: {self.runs.max_workers} is more than "
                f"functions.extract.reserved_concurrency ({reserved}): lower the one or raise "
                "the other"
            )
        return self

    @model_validator(mode="after")
    def _check_scopes(self) -> Self:
        ingest, destination, work = self.ingest, self.destination, self.work
        for name, written in (("destination", destination), ("work", work)):
            if _overlap(ingest, written):
                raise ValueError(
                    f"{name}.prefix: s3://{written.existing}/{written.prefix} is inside the "
                    f"trigger's scope (s3://{ingest.existing}/{ingest.prefix}*{ingest.suffix}), so "
                    "what a run writes could start runs: choose another bucket or prefix"
                )
        if _overlap(destination, work):
            raise ValueError(
                f"work.prefix: s3://{work.existing}/{work.prefix} and the destination overlap, so "
                "a member could replace a plan: choose another bucket or prefix"
            )
        return self


def _overlap(one: BucketSection, other: BucketSection) -> bool:
    """Return whether a key can be below both prefixes; created buckets always differ."""
    if one.existing is None or one.existing != other.existing:
        return False
    return one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)


def load_environment(
    name: str, folder: Path = FOLDER, *, settings: Mapping[str, object] | None = None
) -> Environment:
    """Return the environment `name`; `settings` replace those of its file, by ``section.setting``.

    Raises:
        EnvironmentFileError: there is no such file, or a setting is wrong, missing or unknown.
    """
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
        replace_settings(values, settings or {}, Environment)
        return Environment.model_validate({**values, "name": name})
    except SettingError as error:
        raise EnvironmentFileError(str(error)) from error
    except ValidationError as error:
        said = first_line(error)
        where = "-c" if re.split("[: ]", said, maxsplit=1)[0] in (settings or {}) else f"{shown}:"
        raise EnvironmentFileError(f"{where} {said}") from error
