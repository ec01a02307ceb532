"""The runs of a deployed environment, as its operator sees them: their records and executions.

The stack is found by its name, and its outputs name everything else. A run's id begins with its
archive's date, so listing one day's prefix lists that day's runs. The name of a run's execution is
the run's id; each execution that goes on with it has a name of its own, ``-r2``, ``-r3``, ...
"""

import itertools
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from botocore import xform_name
from msgspec.structs import replace

from s3unzip.aws.environment import LambdaConfig, read_worker
from s3unzip.errors import (
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    UsageError,
)
from s3unzip.model import Location, Report
from s3unzip.operate.control_plane import asking
from s3unzip.run_ids import (
    FOLLOW_UP_SUFFIX,
    execution_name,
    run_of_execution,
    run_stem,
    time_of_run,
)
from s3unzip.runs.records import RUNS
from s3unzip.runs.run_list import RUNNING, MapCounts, RecentRun, RunList
from s3unzip.settling.loop import look_up_run
from s3unzip.settling.next_command import in_environment
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.listing import bound_pages
from s3unzip.stores.open import open_stores
from s3unzip.stores.s3.credentials import AwsSession
from s3unzip.stores.s3.session import Session

STACK = "s3unzip-{}"  # as the files in infra/environments name it
ABORTED = "ABORTED"
STOP_SECONDS = 60.0  # limit of waiting for a stopped execution to end


class Resource(NamedTuple):
    """One resource of a stack."""

    logical: str  # its name in the template: "FunctionsExtract1A2B3C4D"
    kind: str  # "AWS::Lambda::Function"
    physical: str  # its name in AWS; for a queue its URL


class LastExecution(NamedTuple):
    """The last execution of a run."""

    name: str
    state: str | None  # None: the run never had an execution
    number: int  # the first is 1


class DeployedRuns(RunList):
    """The runs of one stack, and what its operator asks of AWS.

    Args:
        environment: the name of an environment, or of a stack.
    """

    environment: str

    def __init__(self, environment: str, access: StoreConfig) -> None:
        self._endpoint_url = access.endpoint_url
        self.environment = environment
        self.location = f"in {environment}"
        self.nothing_yet = f"no run of {environment} has begun yet"
        self._connections = access.without_environment()
        self._session = AwsSession(access.profile, access.region)
        self._clients: dict[str, Any] = {}
        with asking(f"environment {environment}"):
            self.client("cloudformation")
        self.stack = self._find_stack()
        self.outputs = {
            output["OutputKey"]: output["OutputValue"] for output in self.stack["Outputs"]
        }
        self._machine = self.outputs["StateMachineArn"]
        _, self.partition, _, self.region, self.account, *_ = self._machine.split(":")
        prefix = self.outputs.get("WorkPrefix", "")
        self.work_location = Location("s3", self.outputs["WorkBucket"], prefix)
        # The stores of the runs' records, and the operator's S3 session.
        session = Session(access, self._session)
        self.stores = open_stores(replace(access, work=self.work_location), session)

    def _find_stack(self) -> Any:
        """Return the stack, as CloudFormation describes it."""
        names = (STACK.format(self.environment), self.environment)
        for name in names:
            try:
                stack = self.ask("cloudformation:DescribeStacks", StackName=name)["Stacks"][0]
            except NotFoundError:
                continue
            outputs = {output["OutputKey"] for output in stack.get("Outputs", ())}
            if {"StateMachineArn", "WorkBucket"} <= outputs:
                return stack
            raise NotFoundError(f"stack {name} has no outputs of s3unzip; is it deployed?")
        raise NotFoundError(
            f"environment {self.environment}: no stack {names[0]} here; "
            "check --env, --profile and --region"
        )

    def client(self, service: str) -> Any:
        """Return the client of a service of the stack's account and region."""
        if service not in self._clients:
            self._clients[service] = self._session.client(
                service,
                endpoint_url=self._endpoint_url,
                connect_timeout=5,
                read_timeout=20,
                retries={"total_max_attempts": 6, "mode": "standard"},
            )
        return self._clients[service]

    def ask(self, action: str, **parameters: object) -> Any:
        """Return the answer to one request that needs the IAM action `action`.

        Args:
            action: ``service:Operation``, of an operation with that name.
            parameters: those of the operation.
        """
        service, _, operation = action.partition(":")
        with asking(action):
            client = self.client("stepfunctions" if service == "states" else service)
            return getattr(client, xform_name(operation))(**parameters)

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of the stack."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources")
        with asking("cloudformation:ListStackResources"):
            return tuple(
                Resource(
                    logical=summary["LogicalResourceId"],
                    kind=summary["ResourceType"],
                    physical=summary["PhysicalResourceId"],
                )
                for page in pages.paginate(StackName=self.stack["StackName"])
                for summary in page["StackResourceSummaries"]
                if "PhysicalResourceId" in summary  # missing while the resource is being created
            )

    def names(self, kind: str, logical: str | tuple[str, ...] = "") -> list[str]:
        """Return the names in AWS of the resources of a kind whose logical names begin so."""
        return [
            resource.physical
            for resource in self.resources
            if resource.kind == kind and resource.logical.startswith(logical)
        ]

    @cached_property
    def variables(self) -> dict[str, str]:
        """The environment variables of the plan function."""
        if "PlanFunction" not in self.outputs:
            raise UsageError(
                f"environment {self.environment}: its stack is too old, deploy it again"
            )
        function = self.outputs["PlanFunction"]
        configuration = self.ask("lambda:GetFunctionConfiguration", FunctionName=function)
        return dict(configuration.get("Environment", {}).get("Variables", {}))

    @cached_property
    def defaults(self) -> LambdaConfig:
        """What all runs of the environment have in common."""
        return read_worker(self.variables)

    def connections(self, run: str) -> StoreConfig:  # noqa: ARG002 - of all runs
        """Return how the environment is reached; its functions know how runs reach their stores."""
        return self._connections

    @property
    def found_by(self) -> str:
        """The options, a space before them, by which a command finds the environment."""
        return in_environment(self.environment, self._connections)

    def recent(self, limit: int) -> Iterator[RecentRun]:
        """Yield runs, the latest archive's first; those at work that have no record yet, too.

        Each with the state of its execution, if it is at work, and its archive's time. Executions
        that only wait for the functions of one that failed are no work of the run.
        """
        answer = self.ask(
            "states:ListExecutions",
            stateMachineArn=self._machine,
            statusFilter=RUNNING,
            maxResults=1_000,  # the most that one answer lists
        )
        names = [execution["name"] for execution in answer["executions"]]
        running = {run_of_execution(name) for name in names if not _is_waiting(name)}
        recorded = (
            run for day in reversed(self._folders("")) for run in reversed(self._folders(day))
        )
        runs = {*running, *itertools.islice(recorded, limit)}
        for run in sorted(runs, reverse=True)[:limit]:
            yield RecentRun(run, RUNNING if run in running else "", _time_of(run))

    def begun(self, limit: int) -> Iterator[str]:
        """Yield the ids of runs, the latest archive's first."""
        return (recent.run for recent in self.recent(limit))

    def has(self, run: str) -> bool:
        """Return whether a run has an execution; it may have no record yet."""
        return self.state(run) is not None

    def _folders(self, day: str) -> list[str]:
        """Return the days that have runs, or the ids of the runs of one day, in order."""
        root = f"{self.work_location.key}{RUNS}"
        prefix = root
        if day:
            prefix += f"{day}/"
        pages = self.client("s3").get_paginator("list_objects_v2")
        with asking("s3:ListBucket"):
            listing = pages.paginate(Bucket=self.work_location.bucket, Prefix=prefix, Delimiter="/")
            folders = [
                folder["Prefix"]
                for page in bound_pages(listing, prefix)
                for folder in page.get("CommonPrefixes", ())
            ]
        return [folder.removeprefix(root).rstrip("/") for folder in folders]

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of the archive that is at `source` now, the earliest first.

        Those of its day and of the day before are listed: a run over a replaced archive has the id
        of the run that met the older version, and is later than the others.
        """
        modified = self.stores.source(source).stat(source).modified or 0.0
        put = datetime.fromtimestamp(modified, UTC)
        stem = f"-{run_stem(source)}"
        days = (put - timedelta(days=1), put)
        runs = [run for day in days for run in self._folders(f"{day:%Y-%m-%d}") if stem in run]
        return sorted(runs, key=lambda run: (run.endswith(FOLLOW_UP_SUFFIX), run))

    def state(self, run: str) -> str | None:
        """Return the state of the run's last execution; None: it never had one."""
        return self._last(run).state

    def map_counts(self, run: str) -> MapCounts | None:
        """Return the item counts of the active Map, None if there is none."""
        execution = self._last(run)
        if execution.state is None:
            return None
        maps = self.ask("states:ListMapRuns", executionArn=self._arn(execution.name))["mapRuns"]
        if not maps:
            return None
        latest = max(maps, key=itemgetter("startDate"))
        counts = self.ask("states:DescribeMapRun", mapRunArn=latest["mapRunArn"])["itemCounts"]
        lost = counts["failed"] + counts["timedOut"] + counts["aborted"]
        return MapCounts(counts["pending"], counts["running"], counts["succeeded"], lost)

    def resume(self, run: str, *, failed: bool = False) -> str:
        """Start an execution that goes on with a run; return its name.

        With `failed` the members that failed are done again, too.
        """
        execution = self._last(run)
        if execution.state == RUNNING:
            raise UsageError(f"{run}: is running; wait for its end: s3unzip watch {run}")
        recorded = look_up_run(self.records(run))
        start = json.dumps({"run": run, "failed": failed})
        if recorded.run is None:
            if execution.state is None:
                raise NotFoundError(f"{run}: nothing is on record of it; put the archive again")
            # It ended before it had a plan, or its records cannot be read: it is planned anew.
            start = self._request_of(execution.name, execution_name(run))
        name = execution_name(f"{run}-r{execution.number + 1}")
        self.ask("states:StartExecution", stateMachineArn=self._machine, name=name, input=start)
        return name

    def _request_of(self, *executions: str) -> str:
        """Return the input for a new execution: the request of the first one that has a request."""
        start: dict[str, Any] = {}
        for name in executions:
            if "request" not in start:
                answer = self.ask("states:DescribeExecution", executionArn=self._arn(name))
                start = json.loads(answer["input"])
        return json.dumps(
            {name: start[name] for name in ("run", "request", "pin") if name in start}
        )

    def stop(self, run: str) -> bool:
        """Stop the run's execution; return False if it had ended."""
        execution = self._last(run)
        if execution.state != RUNNING:
            return False
        name = execution.name
        try:
            self.ask("states:StopExecution", executionArn=self._arn(name), cause="s3unzip abort")
        except S3UnzipError:
            if self._describe(name) == RUNNING:  # else it ended at that moment
                raise
        deadline = time.monotonic() + STOP_SECONDS
        while (state := self._describe(name)) == RUNNING:
            if time.monotonic() > deadline:
                raise ServiceFaultError(f"{run}: still running after {STOP_SECONDS:.0f} s")
            time.sleep(1.0)
        return state == ABORTED

    def _last(self, run: str) -> LastExecution:
        """Return the run's last execution: that of the run, or of the last ``-rN``."""
        name = execution_name(run)
        last = LastExecution(name, self._describe(name), number=1)
        while True:
            number = last.number + 1
            state = self._describe(f"{name}-r{number}")
            if state is None:
                return last
            last = LastExecution(f"{name}-r{number}", state, number)

    def _arn(self, name: str) -> str:
        return f"{self._machine.replace(':stateMachine:', ':execution:')}:{name}"

    def _describe(self, name: str) -> str | None:
        """Return the state of an execution; None: there is none with this name."""
        try:
            answer = self.ask("states:DescribeExecution", executionArn=self._arn(name))
        except NotFoundError:
            return None
        state: str = answer["status"]
        return state


def _is_waiting(execution: str) -> bool:
    """Return whether an execution waits for the functions of one that failed: ``RUN-w1``."""
    return re.search(r"-w\d+\Z", execution) is not None


def _time_of(run: str) -> float:
    """Return when the archive of a run was put, in Unix seconds, as its id says it."""
    try:
        return time_of_run(run)
    except ValueError:
        return 0.0


def find_end(runs: DeployedRuns, run: str) -> Report | None:
    """Return the report of a run without an active execution; None if it has none yet."""
    # The state first: a report that is read after the end is the last one.
    if runs.state(run) == RUNNING:
        return None
    return runs.records(run).find_report()
