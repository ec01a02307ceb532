"""One environment: all settings of its file, and which of them do not go together.

Its tables are in `infra.sections`, the file is read by `infra.environment_file`. The names of
tuning settings come from `s3unzip.settings`.
"""

import math
from collections.abc import Iterator
from itertools import chain, permutations
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from infra.routes import complete, explain_order, explain_patterns, explain_writes
from infra.sections import (
    AfterSuccessSection,
    AlarmsSection,
    BucketSection,
    DestinationSection,
    FunctionsSection,
    IngestSection,
    IntakeSection,
    KmsKeyArn,
    LogsSection,
    NetworkSection,
    RouteSection,
    RunsSection,
    SecretArn,
    StackSection,
    WorkSection,
)
from infra.tables import LimitsTable, OptionsTable, Section
from s3unzip.contradictions import check_after_success
from s3unzip.errors import UsageError
from s3unzip.model import AfterSuccess, Options, SourceAction
from s3unzip.object_properties import check_tags
from s3unzip.settings import MIB, OTHER_BUCKETS, Tuning, make_tuning
from s3unzip.zip import Limits


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
    routes: list[RouteSection] = Field(default=[])

    @property
    def all_routes(self) -> list[RouteSection]:
        """The routes in their order; the last has the environment's own settings, and no name."""
        own = RouteSection.model_construct(
            name="",
            prefix=self.ingest.prefix,
            suffix=self.ingest.suffix,
            destination=self.destination,
            options=self.options,
            password_secret=self.password_secret,
            password_kms_key=self.password_kms_key,
        )
        return [*self.routes, own]

    def by_path(self) -> dict[str, RouteSection]:
        """Return all routes by what their settings begin with: first the environment's, by ""."""
        *named, own = self.all_routes
        return {"": own, **{f"routes.{n}.": route for n, route in enumerate(named)}}

    def written_key(self, destination: BucketSection) -> str | None:
        """Return the KMS key that is sent with each member; None: the bucket's own encryption."""
        if destination.kms_key:
            return None
        return self.kms_key

    @property
    def bucket_keys(self) -> list[str]:
        """The KMS keys of all buckets, each once."""
        return sorted(
            filter(None, {self.kms_key, *(bucket.kms_key for _, bucket in self.buckets())})
        )

    @property
    def workers(self) -> int:
        """The workers that all runs share."""
        return self.functions.extract.reserved_concurrency or self.runs.workers

    @property
    def max_workers(self) -> int:
        """The workers of one run; half of all by default, so that one run cannot take them all."""
        return self.runs.max_workers or min(MAX_MAP, max(1, self.workers // 2))

    @property
    def intake_concurrency(self) -> int:
        """The invocations of intake at once."""
        reserved = self.functions.intake.reserved_concurrency
        return self.intake.concurrency or min(MAX_INTAKE, reserved) or DEFAULT_INTAKE

    @model_validator(mode="before")
    @classmethod
    def _complete_routes(cls, values: Any) -> Any:
        """Put into each route what it leaves out; a value that is not a table is refused later."""
        tables = values.get("routes")
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            return values
        return {**values, "routes": [complete(table, values) for table in tables]}

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse settings that do not go together, with the first reason."""
        try:
            problems = chain(
                self._explain_plan_memory(),
                self._explain_timeouts(make_tuning(self.tuning)),
                self._explain_concurrency(),
                self._explain_buckets(),
                self._explain_keys(),
                self._explain_network(),
                explain_order(self.all_routes),
                explain_patterns(self.all_routes),
                explain_writes(dict(self.buckets()), self.all_routes),
                self._explain_tags(),
                self._explain_after_success(),
                self._explain_scan(),
            )
            problem = next(problems, None)
        except UsageError as error:
            raise ValueError(str(error)) from error
        if problem is not None:
            raise ValueError(problem)
        return self

    def _explain_timeouts(self, tuning: Tuning) -> Iterator[str]:
        """Yield which function has too little time for its work."""
        needed = math.ceil(WORK_SECONDS + tuning.margin_seconds)
        largest_work = {"extract": "a task"}
        if tuning.max_direct_members:
            largest_work["intake"] = "a small archive"
        for name, work in largest_work.items():
            timeout = getattr(self.functions, name).timeout
            if timeout < needed:
                yield (
                    f"functions.{name}.timeout: {timeout} s is too little for {work} with "
                    f"tuning.margin_seconds ({tuning.margin_seconds:.0f}) to spare: make it "
                    f"{needed} or more, or lower them"
                )

    def _explain_plan_memory(self) -> Iterator[str]:
        """Yield why Lambda would kill the plan function with the largest directory allowed."""
        memory = self.functions.plan.memory
        limits = self.limits
        needed = plan_memory(limits.members, limits.names_size)
        if needed > memory:
            yield (
                f"functions.plan.memory: {memory} MB is too little for limits.members "
                f"({limits.members:,}) and limits.names_size ({limits.names_size:,} bytes), which "
                f"take {needed:,} MB: raise it, or set limits.members to at most "
                f"{_fitting_members(memory, limits.names_size):,}"
            )

    def fit_plan(self, memory: int) -> list[str]:
        """Return the settings with which a plan fits into `memory`, in MB; usually none."""
        if plan_memory(self.limits.members, self.limits.names_size) <= memory:
            return []
        return [f"limits.members={_fitting_members(memory, self.limits.names_size)}"]

    def _explain_concurrency(self) -> Iterator[str]:
        """Yield which limit is above the reservation that it uses."""
        functions = self.functions
        if "max_workers" in self.tuning:
            yield "tuning.max_workers: an environment has runs.max_workers in its place: set that"
        wanted = (
            ("runs.max_workers", self.runs.max_workers, "extract"),
            ("intake.concurrency", self.intake.concurrency, "intake"),
        )
        for name, at_once, function in wanted:
            reserved = getattr(functions, function).reserved_concurrency
            if at_once is not None and 0 < reserved < at_once:
                yield (
                    f"{name}: {at_once} is more than functions.{function}.reserved_concurrency "
                    f"({reserved}): lower the one or raise the other"
                )
        if functions.intake.reserved_concurrency == 1:
            yield (
                "functions.intake.reserved_concurrency: 1 is too little, because the queue's event "
                "source has at least 2 invocations at once: make it 2 or more, or 0"
            )

    def buckets(self) -> Iterator[tuple[str, BucketSection]]:
        """Yield the sections of buckets, by their settings."""
        yield "ingest", self.ingest
        for path, route in self.by_path().items():
            yield f"{path}destination", route.destination
        yield "work", self.work

    def _explain_buckets(self) -> Iterator[str]:
        """Yield which existing bucket is of a kind that the pipeline cannot use."""
        kinds = OTHER_BUCKETS | {"-s3alias": "the alias of an access point"}
        for setting, bucket in self.buckets():
            name = bucket.existing or ""
            for suffix, kind in kinds.items():
                if name.endswith(suffix):
                    yield (
                        f"{setting}.existing: {name} is {kind}: name a general purpose bucket, "
                        "because only those send events and keep what a run writes"
                    )

    def _explain_keys(self) -> Iterator[str]:
        """Yield which key or owner is set for a bucket or a secret that is not named."""
        for setting, bucket in self.buckets():
            if getattr(bucket, "owner", None) and not bucket.existing:
                yield (
                    f"{setting}.owner: is the owner of an existing bucket; the stack creates this "
                    "bucket in its own account: leave it out, or name a bucket"
                )
            if bucket.kms_key and not bucket.existing:
                yield (
                    f"{setting}.kms_key: is the key of an existing bucket; the stack creates this "
                    "bucket, with the key of kms_key: set that, or name a bucket"
                )
        for path, route in self.by_path().items():
            if route.password_kms_key and not route.password_secret:
                yield f"{path}password_kms_key: is the key of password_secret, which is not set"

    def _explain_network(self) -> Iterator[str]:
        for missing, present in permutations(("subnets", "security_groups")):
            if getattr(self.network, present) and not getattr(self.network, missing):
                yield f"network.{missing}: functions in a VPC need both subnets and security_groups"

    def _explain_tags(self) -> Iterator[str]:
        """Yield which tag AWS would refuse: of archives, or of resources, which may have more."""
        resources = [("stack", {key: value}) for key, value in self.stack.tags.items()]
        for section, checked in [("after_success", self.after_success.tags), *resources]:
            try:
                check_tags(checked)
            except UsageError as error:
                yield f"{section}.tags: {error}"

    def _explain_after_success(self) -> Iterator[str]:
        rule = self.after_success
        if (rule.action == "tag") != bool(rule.tags):
            yield 'after_success.tags: action = "tag" needs at least one, and others have none'
        if rule.action == "tag" and not self.ingest.keeps_versions:
            yield (
                "after_success.action: S3 cannot tag one version in a bucket without versioning: "
                "delete the archives, or turn versioning on and set ingest.versioned"
            )
        if rule.action == "delete":
            delete = AfterSuccess(SourceAction.DELETE)
            for path, route in self.by_path().items():
                name_option = f"{path}options.{{}}".format  # returns the setting of an option
                check_after_success(delete, route.options, "after_success.action:", name_option)

    def _explain_scan(self) -> Iterator[str]:
        if not self.ingest.scan:
            return
        if self.limits.parts not in {1, Limits().parts}:
            yield (
                "limits.parts: with ingest.scan split archives are not opened, because the scan of "
                "a part does not look into the archive: leave it out"
            )
        for path, route in self.by_path().items():
            if route.options.nested_depth > SCANNED_DEPTH:
                yield (
                    f"{path}options.nested_depth: with ingest.scan at most {SCANNED_DEPTH}, "
                    "because GuardDuty does not look into deeper archives"
                )


SCANNED_DEPTH = 4  # GuardDuty reads 5 levels (its quotas), of which the archive is one
DEFAULT_INTAKE = 100  # invocations of intake at once, if none are reserved
MAX_INTAKE = 1_000  # of the event source of a queue (Lambda guide, services-sqs-scaling)
MAX_MAP = 10_000  # children of a Distributed Map at once (quotas of Step Functions)
# What intake needs for the largest archive that it extracts itself, and extract for a task.
WORK_SECONDS = 20.0
# `s3unzip.zip.Limits` gives the bound: 300 bytes for each member, the names, and twice
# `folder_memory`. With 5,000,000 members 273 bytes for each were measured, short names included.
MEMBER_BYTES = 300
FOLDERS_MB = 64
BASE_MB = 256  # the interpreter with its libraries


def plan_memory(members: int, names_size: int) -> int:
    """Return the memory, in MB, that a plan with these members and bytes of names needs."""
    return BASE_MB + FOLDERS_MB + math.ceil((members * MEMBER_BYTES + names_size) / MIB)


def _fitting_members(memory: int, names_size: int) -> int:
    """Return how many members a plan can have with `memory` MB."""
    return max(0, (memory - plan_memory(members=0, names_size=names_size)) * MIB // MEMBER_BYTES)
