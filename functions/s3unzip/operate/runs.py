"""The runs of a deployed environment, as its operator sees them: their records and executions.

The stack is found by its name, and its outputs name everything else. A run's id begins with the day
of its archive, so a LIST of one day is the list of runs. The name of a run's execution is the run's
id; each execution that goes on with it has a name of its own, ``-r2``, ``-r3``, ... Errors of the
AWS control plane become errors of the package here.
"""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from botocore import exceptions, xform_name
from msgspec.structs import replace

from s3unzip.aws.environment import LambdaConfig, read_worker
from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    ThrottledError,
    UsageError,
)
from s3unzip.model import (
    AGAIN,
    Location,
    Report,
    execution_name,
    run_of_execution,
    run_stem,
)
from s3unzip.runs.records import RUNS, Items, RunRecords, pick_run
from s3unzip.settling.loop import look_up_run
from s3unzip.settling.next_command import in_environment
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.listing import bound_pages
from s3unzip.stores.s3.credentials import AwsSession
from s3unzip.stores.s3.session import Session

STACK = "s3unzip-{}"  # as the files in infra/environments name it
RUNNING, STOPPED = "RUNNING", "ABORTED"
MAX_RUNS = 1_000  # that are searched for the beginning of an id
STOP_SECONDS = 60.0  # limit of waiting for a stopped execution to end


class Resource(NamedTuple):
    """One resource of a stack."""

    logical: str  # its name in the template: "FunctionsExtract1A2B3C4D"
    kind: str  # "AWS::Lambda::Function"
    physical: str  # its name in AWS; for a queue its URL


class DeployedRuns:
    """The runs of one stack, and what its operator asks of AWS.

    Args:
        environment: the name of an environment, or of a stack.
    """

    def __init__(self, environment: str, access: StoreConfig) -> None:
        self._endpoint_url = access.endpoint_url
        self.environment = environment
        self._connections = access.typed()
        self._session = AwsSession(access.profile, access.region)
        self._clients: dict[str, Any] = {}
        with asking(f"environment {environment}"):
            self.client("cloudformation")
        self.stack = self._find_stack()
        self.outputs = {one["OutputKey"]: one["OutputValue"] for one in self.stack["Outputs"]}
        self._machine = self.outputs["StateMachineArn"]
        _, self.partition, _, self.region, self.account, *_ = self._machine.split(":")
        self._prefix = self.outputs.get("WorkPrefix", "")
        self.work_location = Location("s3", self.outputs["WorkBucket"], self._prefix)
        # The stores that the runs' records are in, and the operator's way to the rest.
        session = Session(access, self._session)
        self.stores = open_stores(replace(access, work=self.work_location), session)

    def _find_stack(self) -> Any:
        """Return the stack, as CloudFormation describes it."""
        names = STACK.format(self.environment), self.environment
        for name in names:
            try:
                stack = self.ask("cloudformation:DescribeStacks", StackName=name)["Stacks"][0]
            except NotFoundError:
                continue
            outputs = {one["OutputKey"] for one in stack.get("Outputs", ())}
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

    def ask(self, action: str, **given: object) -> Any:
        """Return the answer to one request that needs the IAM action `action`.

        Args:
            action: ``service:Operation``, of an operation with that name.
            given: the parameters of the operation.
        """
        service, _, operation = action.partition(":")
        with asking(action):
            client = self.client("stepfunctions" if service == "states" else service)
            return getattr(client, xform_name(operation))(**given)

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of the stack."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources")
        with asking("cloudformation:ListStackResources"):
            return tuple(
                Resource(one["LogicalResourceId"], one["ResourceType"], one["PhysicalResourceId"])
                for page in pages.paginate(StackName=self.stack["StackName"])
                for one in page["StackResourceSummaries"]
                if "PhysicalResourceId" in one  # missing while the resource is being created
            )

    def names(self, kind: str, logical: str | tuple[str, ...] = "") -> list[str]:
        """Return the names in AWS of the resources of a kind whose logical names begin so."""
        found = (one for one in self.resources if one.kind == kind)
        return [one.physical for one in found if one.logical.startswith(logical)]

    @cached_property
    def variables(self) -> dict[str, str]:
        """The environment variables of the plan function."""
        if "PlanFunction" not in self.outputs:
            raise UsageError(
                f"environment {self.environment}: its stack is too old, deploy it again"
            )
        given = {"FunctionName": self.outputs["PlanFunction"]}
        found = self.ask("lambda:GetFunctionConfiguration", **given)
        return dict(found.get("Environment", {}).get("Variables", {}))

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

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        return RunRecords.open(self.stores, run)

    def recent(self, limit: int) -> Iterator[tuple[str, str, float]]:
        """Yield runs, the latest archive's first; those at work that have no record yet, too.

        Each with the state of its execution, if it is at work, and its time in Unix seconds.
        """
        given = {"stateMachineArn": self._machine, "statusFilter": RUNNING}
        working = self.ask("states:ListExecutions", **given)["executions"]
        begun = {run_of_execution(one["name"]) for one in working}
        listed = (
            run for day in reversed(self._folders("")) for run in reversed(self._folders(day))
        )
        known = {*begun, *itertools.islice(listed, limit)}
        for run in sorted(known, reverse=True)[:limit]:
            yield run, RUNNING if run in begun else "", _time_of(run)

    def _folders(self, day: str) -> list[str]:
        """Return the days that have runs, or the ids of the runs of one day, in order."""
        root, pages = f"{self._prefix}{RUNS}", self.client("s3").get_paginator("list_objects_v2")
        where = {"Bucket": self.work_location.bucket, "Prefix": f"{root}{day}{'/' if day else ''}"}
        with asking("s3:ListBucket"):
            listing = bound_pages(pages.paginate(**where, Delimiter="/"), where["Prefix"])
            folders = [one["Prefix"] for page in listing for one in page.get("CommonPrefixes", ())]
        return [folder.removeprefix(root).rstrip("/") for folder in folders]

    def find(self, name: str) -> str:
        """Return the full id of a run.

        Args:
            name: ``latest``, an id, the name of an execution, the beginning of an id or of what
                follows the time in it: the archive's stem.
        """
        name = run_of_execution(name)
        if name == "latest":
            for latest, *_ in self.recent(1):
                return latest
            raise NotFoundError(f"no run of {self.environment} has begun yet")
        try:
            known = (run for run, *_ in self.recent(MAX_RUNS))
            return pick_run(name, known, f"in {self.environment}")
        except NotFoundError:
            if self.state(name) is None:
                raise
            return name

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of the archive that is at `source` now, the earliest first.

        Those of its day and of the day before are listed: a run over a replaced archive has the id
        of the run that met the older version, and is later than the others.
        """
        modified = self.stores.source(source).stat(source).modified or 0.0
        put, stem = datetime.fromtimestamp(modified, UTC), f"-{run_stem(source)}"
        days = (put - timedelta(days=1), put)
        found = [run for day in days for run in self._folders(f"{day:%Y-%m-%d}") if stem in run]
        return sorted(found, key=lambda run: (run.endswith(AGAIN), run))

    def state(self, run: str) -> str | None:
        """Return the state of the run's last execution; None: it never had one."""
        return self._last(run)[1]

    def items(self, run: str) -> Items | None:
        """Return the item counts of the active Map, None if there is none."""
        name, state, _ = self._last(run)
        if state is None:
            return None
        maps = self.ask("states:ListMapRuns", executionArn=self._arn(name))["mapRuns"]
        if not maps:
            return None
        latest = max(maps, key=lambda one: one["startDate"])["mapRunArn"]
        counts = self.ask("states:DescribeMapRun", mapRunArn=latest)["itemCounts"]
        lost = counts["failed"] + counts["timedOut"] + counts["aborted"]
        return Items(counts["pending"], counts["running"], counts["succeeded"], lost)

    def resume(self, run: str, *, failed: bool = False) -> str:
        """Start an execution that goes on with a run; return its name.

        With `failed` the members that failed are done again, too.
        """
        last, state, number = self._last(run)
        if state == RUNNING:
            raise UsageError(f"{run}: is running; wait for its end: s3unzip watch {run}")
        recorded = look_up_run(self.records(run))
        given = json.dumps({"run": run, "failed": failed})
        if recorded.run is None:
            if state is None:
                raise NotFoundError(f"{run}: nothing is on record of it; put the archive again")
            # It ended before it had a plan, or its records cannot be read: it is planned anew.
            given = self._request_of(last, execution_name(run))
        name = execution_name(f"{run}-r{number + 1}")
        again = {"stateMachineArn": self._machine, "name": name, "input": given}
        self.ask("states:StartExecution", **again)
        return name

    def _request_of(self, *executions: str) -> str:
        """Return what the first of these executions was asked for, as the input of another one."""
        given: dict[str, Any] = {}
        for name in executions:
            if "request" not in given:
                answer = self.ask("states:DescribeExecution", executionArn=self._arn(name))
                given = json.loads(answer["input"])
        return json.dumps(
            {name: given[name] for name in ("run", "request", "pin") if name in given}
        )

    def stop(self, run: str) -> bool:
        """Stop the run's execution; return False if it had ended."""
        name, state, _ = self._last(run)
        if state != RUNNING:
            return False
        try:
            given = {"executionArn": self._arn(name), "cause": "s3unzip abort"}
            self.ask("states:StopExecution", **given)
        except S3UnzipError:
            if self._describe(name) == RUNNING:  # else it ended at that moment
                raise
        until = time.monotonic() + STOP_SECONDS
        while (state := self._describe(name)) == RUNNING:
            if time.monotonic() > until:
                raise ServiceFaultError(f"{run}: still running after {STOP_SECONDS:.0f} s")
            time.sleep(1.0)
        return state == STOPPED

    def _last(self, run: str) -> tuple[str, str | None, int]:
        """Return name and state of the run's last execution, and its number; the first is 1."""
        name = again = execution_name(run)
        state, number = self._describe(name), 1
        while (later := self._describe(f"{name}-r{number + 1}")) is not None:
            state, number = later, number + 1
            again = f"{name}-r{number}"
        return again, state, number

    def _arn(self, name: str) -> str:
        return f"{self._machine.replace(':stateMachine:', ':execution:')}:{name}"

    def _describe(self, name: str) -> str | None:
        try:
            answer = self.ask("states:DescribeExecution", executionArn=self._arn(name))
        except NotFoundError:
            return None
        state: str = answer["status"]
        return state


def _time_of(run: str) -> float:
    """Return when the archive of a run was put, in Unix seconds, as its id says it."""
    try:
        return datetime.strptime(f"{run[:17]}+0000", "%Y-%m-%d/%H%M%S%z").timestamp()
    except ValueError:
        return datetime.fromtimestamp(0, UTC).timestamp()


def find_end(runs: DeployedRuns, run: str) -> Report | None:
    """Return the report of a run without an active execution; None if it has none yet."""
    # The state first: a report that is read after the end is the last one.
    state = runs.state(run)
    report = runs.records(run).find_report()
    return None if state == RUNNING else report


class UnsupportedActionError(S3UnzipError):
    """The endpoint is not AWS and does not have this action."""


# Error codes of emulators for an operation that they do not have. AWS has all operations.
_UNKNOWN_CODES = frozenset(
    {
        "InvalidAction",
        "NotImplemented",
        "NotImplementedException",
        "UnknownOperation",
        "UnknownOperationException",
        "UnsupportedOperation",
    }
)
_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)


@contextmanager
def asking(action: str) -> Iterator[None]:
    """Translate the errors of a request that needs the IAM action `action`."""
    try:
        yield
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
    ) as error:
        text = f"{action}: {error}; set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        raise AccessDeniedError(text) from None
    except (exceptions.NoRegionError, exceptions.ProfileNotFound) as error:
        raise UsageError(
            f"{action}: {str(error).rstrip('.')}; give --region and --profile, or set AWS_REGION"
        ) from None
    except exceptions.ClientError as error:
        raise _read_answer(error, action) from None
    except exceptions.BotoCoreError as error:
        raise ServiceFaultError(f"{action}: {error}") from None


def _read_answer(error: exceptions.ClientError, action: str) -> S3UnzipError:
    """Return an operator's error for an answer of the AWS control plane."""
    fault = error.response.get("Error", {})
    code, message = fault.get("Code", ""), fault.get("Message", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{action}: {code}: {message}"
    # A HEAD has no body, so its code is its status. Some emulators know no path of an operation.
    missing = code.startswith("NoSuch") or "DoesNotExist" in code or "does not exist" in message
    if code in _UNKNOWN_CODES or code == "404" or "not yet implemented" in str(error).lower():
        return UnsupportedActionError(f"this endpoint does not have {action}")
    if code == "403":
        return AccessDeniedError(f"{action}: access denied")
    if "AccessDenied" in code or "Unauthorized" in code or code in _CREDENTIALS:
        return AccessDeniedError(text)
    if "Throttl" in code or code == "TooManyRequestsException":
        return ThrottledError(text)
    if missing or code == "NotFoundException":
        return NotFoundError(text)
    return ServiceFaultError(text) if status >= 500 else StorageError(text)
