"""One environment: the settings of `infra/environments/<name>.toml`, checked before synthesis.

A wrong, missing or unknown setting ends the command with one line that names the file, the setting
and the expected value. The names of tuning settings come from `s3unzip.settings`.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from infra.overrides import SettingError, first_line, replace_settings
from infra.sections import (
    AfterSuccessSection,
    AlarmsSection,
    BucketSection,
    DestinationSection,
    FunctionsSection,
    IngestSection,
    IntakeSection,
    KmsKeyArn,
    LimitsSection,
    LogsSection,
    OptionsSection,
    RunsSection,
    SecretArn,
    Section,
    StackSection,
    WorkSection,
)
from s3unzip.errors import UsageError
from s3unzip.settings import MIB, Tuning, make_tuning

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
    event_bus: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,256}$")] = "default"
    options: OptionsSection = OptionsSection()
    after_success: AfterSuccessSection = AfterSuccessSection()
    limits: LimitsSection = LimitsSection()
    tuning: dict[str, int | float] = Field(default={})
    runs: RunsSection = RunsSection()
    intake: IntakeSection = IntakeSection()
    functions: FunctionsSection
    alarms: AlarmsSection
    logs: LogsSection

    @property
    def workers(self) -> int:
        """The workers that all runs share."""
        return self.functions.extract.reserved_concurrency or self.runs.workers

    @property
    def max_workers(self) -> int:
        """The workers of one run; half of all by default, so that one run cannot take them all."""
        return self.runs.max_workers or max(1, self.workers // 2)

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse settings that do not go together."""
        try:
            tuning = make_tuning(self.tuning)
        except UsageError as error:
            raise ValueError(str(error)) from error
        problem = (
            self._explain_plan_memory()
            or self._explain_small_archives(tuning)
            or self._explain_concurrency()
            or self._explain_overlap()
            or self._explain_after_success()
        )
        if problem is not None:
            raise ValueError(problem)
        return self

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
        members = self.limits.members or DEFAULT_MEMBERS
        names_size = self.limits.names_size or DEFAULT_NAMES_SIZE
        needed = plan_memory(members, names_size)
        if needed <= memory:
            return None
        fitting = max(0, (memory - plan_memory(0, names_size)) * MIB // MEMBER_BYTES)
        return (
            f"functions.plan.memory: {memory} MB is too little for limits.members "
            f"({members:,}) and limits.names_size ({names_size:,} bytes), which take {needed:,} "
            f"MB: raise it, or set limits.members to at most {fitting:,}"
        )

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
        return None

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
        if rule.action == "delete" and (self.options.include or self.options.exclude):
            return (
                "after_success.action: with options.include or options.exclude, members that are "
                "not extracted would be lost with a deleted archive: tag it instead"
            )
        return None


SMALL_SECONDS = 20.0  # that the intake function needs for what counts as small
# `s3unzip.zip.Limits` gives the bound: bytes a member, the names, and twice
# `folder_memory`. 273 bytes a member, short names included, were measured with 5,000,000.
MEMBER_BYTES = 300
FOLDERS_MB = 64
BASE_MB = 256  # the interpreter with its libraries
DEFAULT_MEMBERS = 10_000_000  # defaults of `Limits`, if the environment sets none
DEFAULT_NAMES_SIZE = 1024 * MIB


def plan_memory(members: int, names_size: int) -> int:
    """Return the memory, in MB, that a plan with these members and bytes of names needs."""
    return BASE_MB + FOLDERS_MB + math.ceil((members * MEMBER_BYTES + names_size) / MIB)


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
        replace_settings(values, settings or {}, Environment)
        return Environment.model_validate({**values, "name": name})
    except SettingError as error:
        raise EnvironmentFileError(str(error)) from error
    except ValidationError as error:
        said = first_line(error)
        where = "-c" if re.split("[: ]", said, maxsplit=1)[0] in (settings or {}) else f"{shown}:"
        raise EnvironmentFileError(f"{where} {said}") from error
