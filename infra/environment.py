"""One environment: the settings of `infra/environments/<name>.toml`, checked before synthesis.

A wrong, missing or unknown setting ends the command with one line that names the file, the setting
and the expected value. The names of tuning settings come from `s3unzip.settings`.
"""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from infra.after_success import explain_problem
from infra.overrides import SettingError, first_line, replace_settings
from infra.plan_memory import explain_shortage
from infra.scopes import explain_overlap
from infra.sections import (
    AfterSuccessSection,
    AlarmsSection,
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
from s3unzip.settings import make_tuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.settings import Tuning

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
        """The workers that all runs share: those reserved, or the account's less the reserve."""
        reserved = self.functions.extract.reserved_concurrency
        return self.runs.concurrency - self.runs.reserve if reserved is None else reserved

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse settings that do not go together."""
        try:
            tuning = make_tuning(self.tuning)
        except UsageError as error:
            raise ValueError(str(error)) from error
        planner, limits = self.functions.planner, self.limits
        problem = (
            explain_shortage(planner.memory, limits.members, limits.names_size)
            or self._explain_direct_runs(tuning)
            or self._explain_workers()
            or self._explain_intake()
            or self._explain_tenants()
            or explain_overlap(self.ingest, self.destination, self.work)
            or explain_problem(self.after_success, self.ingest)
        )
        if problem is not None:
            raise ValueError(problem)
        return self

    def _explain_direct_runs(self, tuning: Tuning) -> str | None:
        needed = math.ceil(tuning.max_direct_seconds + tuning.margin_seconds)
        if not tuning.max_direct_members or self.functions.plan.timeout >= needed:
            return None
        return (
            f"functions.plan.timeout: {self.functions.plan.timeout} s is too little for "
            f"direct runs of tuning.max_direct_seconds ({tuning.max_direct_seconds:.0f}) with "
            f"tuning.margin_seconds ({tuning.margin_seconds:.0f}) to spare: make it {needed} "
            "or more, or lower them"
        )

    def _explain_workers(self) -> str | None:
        runs, reserved = self.runs, self.functions.extract.reserved_concurrency
        if reserved is not None and runs.max_workers > reserved:
            return (
                f"runs.max_workers: {runs.max_workers} is more than "
                f"functions.extract.reserved_concurrency ({reserved}): lower the one or raise "
                "the other"
            )
        if runs.reserve >= runs.concurrency:
            return (
                f"runs.reserve: {runs.reserve} leaves no worker of runs.concurrency "
                f"({runs.concurrency}): lower the one or raise the other"
            )
        return None

    def _explain_intake(self) -> str | None:
        """Return why Lambda has no room for all plan functions at once beside the workers.

        It would throttle some, and after `intake.attempts` deliveries their messages are dead
        letters. Workers with a reservation of their own leave all the rest.
        """
        at_once, functions = self.intake.concurrency, self.functions
        reserved = functions.plan.reserved_concurrency
        if at_once is None:
            return None
        if reserved is not None and at_once > reserved:
            return (
                f"intake.concurrency: {at_once} is more than "
                f"functions.plan.reserved_concurrency ({reserved}): lower the one or raise the "
                "other"
            )
        shared = reserved is None and functions.extract.reserved_concurrency is None
        if shared and at_once >= self.runs.reserve:
            return (
                f"intake.concurrency: {at_once} is not below runs.reserve ({self.runs.reserve}), "
                "what the workers leave to plans, reports and other functions: lower the one or "
                "raise the other"
            )
        return None

    def _explain_tenants(self) -> str | None:
        prefix = self.ingest.prefix
        outside = [one for one in self.ingest.tenants if not one.startswith(prefix)]
        if not outside:
            return None
        return (
            f"ingest.tenants: {outside[0]} is not below ingest.prefix ({prefix}), so its archives "
            "would start no run: correct one of them"
        )


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
