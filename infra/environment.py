"""One environment: all settings of its file, and the checks for settings that contradict others.

The tables of the file are in `infra.sections`, and `infra.environment_file` reads the file. The
names of tuning settings come from `s3unzip.settings`.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import chain, permutations
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from infra.routes import (
    explain_order,
    explain_patterns,
    explain_writes,
    inherit_settings,
    widest,
)
from infra.sections import (
    IP_ADDRESS,
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

    # The name of the file is a dimension of metrics, which is ASCII, and a word for a shell.
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    stack: StackSection
    ingest: IngestSection = IngestSection()
    destination: DestinationSection = DestinationSection()
    work: WorkSection = WorkSection()
    kms_key: KmsKeyArn | None = None  # for created buckets and written objects; None: SSE-S3
    password_secret: SecretArn | None = None  # for encrypted members; ARN#field for a JSON secret
    password_kms_key: KmsKeyArn | None = None  # of the secret, if it is not aws/secretsmanager
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
        """The routes in order; the last one is the environment's own, which has no name."""
        own = RouteSection.model_construct(  # not validated: a route of the file needs a name
            name="",
            prefix=self.ingest.prefix,
            suffix=self.ingest.suffix,
            destination=self.destination,
            options=self.options,
            password_secret=self.password_secret,
            password_kms_key=self.password_kms_key,
        )
        return [*self.routes, own]

    @property
    def archive_keys(self) -> str:
        """Prefix and suffix of keys that start runs, as JSON; the environment's own are last."""
        return json.dumps([(route.prefix, route.suffix) for route in widest(self.all_routes)])

    def by_path(self) -> dict[str, RouteSection]:
        """Return all routes by the prefix of their settings, which is "" for the environment's own.

        The environment's own route is the first. The others have prefixes such as ``routes.0.``.
        """
        *named, own = self.all_routes
        return {"": own, **{f"routes.{n}.": route for n, route in enumerate(named)}}

    def written_key(self, destination: BucketSection) -> str | None:
        """Return the KMS key for the PUTs of members; None: the bucket's default encryption."""
        if destination.kms_key:
            return None
        return self.kms_key

    @property
    def max_workers(self) -> int:
        """The maximum number of workers of one run; by default half of all, to leave some free."""
        return self.runs.max_workers or min(
            MAX_MAP,
            max(1, (self.functions.extract.reserved_concurrency or self.runs.workers) // 2),
        )

    @property
    def intake_concurrency(self) -> int:
        """The maximum number of concurrent invocations of intake."""
        return (
            self.intake.concurrency
            or min(MAX_INTAKE, self.functions.intake.reserved_concurrency)
            or DEFAULT_INTAKE
        )

    @model_validator(mode="before")
    @classmethod
    def _complete_routes(cls, values: Any) -> Any:
        """Add the inherited settings to each route; values that are no tables are refused later."""
        tables = values.get("routes")
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            return values
        return {**values, "routes": [inherit_settings(table, values) for table in tables]}

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse settings that contradict each other; the error has the first reason."""
        try:
            problem = next(
                chain(
                    self._explain_plan_memory(),
                    self._explain_timeouts(make_tuning(self.tuning)),
                    self._explain_concurrency(),
                    self._explain_buckets(),
                    self._explain_prefixes(),
                    self._explain_keys(),
                    self._explain_network(),
                    explain_order(self.all_routes),
                    explain_patterns(self.all_routes),
                    explain_writes(dict(self.buckets()), self.all_routes),
                    self._explain_tags(),
                    self._explain_after_success(),
                    self._explain_scan(),
                ),
                None,
            )
        except UsageError as error:
            raise ValueError(str(error)) from error
        if problem is not None:
            raise ValueError(problem)
        return self

    def _explain_timeouts(self, tuning: Tuning) -> Iterator[str]:
        """Yield a message for each function whose timeout is too short for its work."""
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
                    f"{needed} or more, or lower the margin"
                )

    def _explain_plan_memory(self) -> Iterator[str]:
        """Yield a message if the plan function has too little memory for the largest directory."""
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
        """Return the settings with which a plan fits into `memory` (in MB); usually none."""
        if plan_memory(self.limits.members, self.limits.names_size) <= memory:
            return []
        return [f"limits.members={_fitting_members(memory, self.limits.names_size)}"]

    def _explain_concurrency(self) -> Iterator[str]:
        """Yield a message for each limit that exceeds the function's reserved concurrency."""
        if "max_workers" in self.tuning:
            yield "tuning.max_workers: an environment has runs.max_workers in its place: set that"
        for name, at_once, function in (
            ("runs.max_workers", self.runs.max_workers, "extract"),
            ("intake.concurrency", self.intake.concurrency, "intake"),
        ):
            reserved = getattr(self.functions, function).reserved_concurrency
            if at_once is not None and 0 < reserved < at_once:
                yield (
                    f"{name}: {at_once} is more than functions.{function}.reserved_concurrency "
                    f"({reserved}): lower the one or raise the other"
                )
        if self.functions.intake.reserved_concurrency == 1:
            yield (
                "functions.intake.reserved_concurrency: 1 is too little, because the queue's event "
                "source has at least 2 invocations at once: make it 2 or more, or 0"
            )

    def buckets(self) -> Iterator[tuple[str, BucketSection]]:
        """Yield each bucket's setting, such as ``routes.0.destination``, and its section."""
        yield "ingest", self.ingest
        for path, route in self.by_path().items():
            yield f"{path}destination", route.destination
        yield "work", self.work

    def _explain_buckets(self) -> Iterator[str]:
        """Yield a message for each bucket or prefix that the pipeline cannot use."""
        for setting, bucket in self.buckets():
            name = bucket.existing or ""
            for suffix, kind in (
                OTHER_BUCKETS | {"-s3alias": "the alias of an access point"}
            ).items():
                if name.endswith(suffix):
                    yield (
                        f"{setting}.existing: {name} is {kind}: name a general purpose bucket, "
                        "because only those send events and keep what a run writes"
                    )
            if re.fullmatch(IP_ADDRESS, name):
                yield f"{setting}.existing: {name} looks like an IP address; S3 has no such bucket"

    def _explain_prefixes(self) -> Iterator[str]:
        """Yield a message for each prefix that IAM would refuse, or CDK with a traceback."""
        prefixes = {
            **{setting: bucket.prefix for setting, bucket in self.buckets()},
            **{f"routes.{number}": route.prefix for number, route in enumerate(self.routes)},
        }
        for setting, prefix in prefixes.items():
            if re.search(r"[^\x00-\xff]", prefix):  # the pattern of API_PutRolePolicy
                yield (
                    f"{setting}.prefix: {prefix}: the policies of the roles contain it, and IAM "
                    "accepts only characters of Latin-1 (up to U+00FF): use another prefix, or none"
                )
            # The ids of cdk-nag's findings contain ARNs, and CDK requires pairs of brackets in ids.
            if re.search(r"[][()]", re.sub(r"\([^][()]*\)|\[[^][()]*\]", "", prefix)):
                yield (
                    f"{setting}.prefix: {prefix}: synthesis with CDK needs brackets in pairs, and "
                    "nested pairs are not supported: use another prefix"
                )

    def _explain_keys(self) -> Iterator[str]:
        """Yield a message for each key, owner or ACL that is set without its bucket or secret."""
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
            acl = route.options.objects and route.options.objects.acl
            # about-object-ownership.html in the S3 user guide: all other ACLs are refused.
            if acl not in {None, "bucket-owner-full-control"} and not (
                route.destination.existing or self.destination.existing
            ):
                yield (
                    f"{path}options.objects.acl: the stack creates the destination bucket without "
                    "ACLs, so S3 would refuse each PUT: leave it out, or name a bucket"
                )

    def _explain_network(self) -> Iterator[str]:
        for missing, present in permutations(("subnets", "security_groups")):
            if getattr(self.network, present) and not getattr(self.network, missing):
                yield f"network.{missing}: functions in a VPC need both subnets and security_groups"

    def _explain_tags(self) -> Iterator[str]:
        """Yield a message for each tag that AWS would refuse, of archives or of resources."""
        for section, checked in [
            ("after_success", self.after_success.tags),
            # One at a time: the check allows as many tags as an object can have; a stack can have
            # more.
            *(("stack", {key: value}) for key, value in self.stack.tags.items()),
        ]:
            try:
                check_tags(checked)
            except UsageError as error:
                yield f"{section}.tags: {error}"
        if len({key.lower() for key in self.stack.tags}) < len(self.stack.tags):
            yield (
                "stack.tags: two keys differ only in upper and lower case, which the tags of a "
                "role ignore (IAM): leave one out"
            )

    def _explain_after_success(self) -> Iterator[str]:
        rule = self.after_success
        if (rule.action == "tag") != bool(rule.tags):
            yield 'after_success.tags: action = "tag" needs at least one; others have none'
        if rule.action == "tag" and self.ingest.existing and not self.ingest.versioned:
            yield (
                "after_success.action: S3 cannot tag one version in a bucket without versioning: "
                "delete the archives, or turn versioning on and set ingest.versioned"
            )
        if rule.action == "delete":
            for path, route in self.by_path().items():
                check_after_success(  # raises UsageError
                    AfterSuccess(SourceAction.DELETE),
                    route.options,
                    "after_success.action:",
                    naming=f"{path}options.{{}}".format,  # returns the setting of an option
                )

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


SCANNED_DEPTH = 4  # GuardDuty scans 5 levels (its quotas); the archive itself is the first level
DEFAULT_INTAKE = 100  # concurrent invocations of intake, if it has no reserved concurrency
MAX_INTAKE = 1_000  # maximum concurrency of a queue's event source (Lambda, services-sqs-scaling)
MAX_MAP = 10_000  # maximum number of concurrent children of a Distributed Map (its quotas)
# The time that intake needs for the largest archive that it extracts, and extract for a task.
WORK_SECONDS = 20.0
# `s3unzip.zip.Limits` bounds the memory of a plan: 300 bytes for each member, the names, and twice
# `folder_memory`. For 5,000,000 members with short names, 273 bytes each were measured.
MEMBER_BYTES = 300
FOLDERS_MB = 64
BASE_MB = 256  # memory of the interpreter with its libraries


def plan_memory(members: int, names_size: int) -> int:
    """Return the memory in MB for a plan with this number of members and bytes of names."""
    return BASE_MB + FOLDERS_MB + math.ceil((members * MEMBER_BYTES + names_size) / MIB)


def _fitting_members(memory: int, names_size: int) -> int:
    """Return the maximum number of members of a plan for which `memory` MB are enough."""
    return max(0, (memory - plan_memory(members=0, names_size=names_size)) * MIB // MEMBER_BYTES)
