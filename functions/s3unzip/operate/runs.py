"""The runs of a deployed environment: their records and their executions.

The outputs of the stack name all its resources. The id of a run begins with the date of its
archive, so a LIST of the prefix of a day returns the runs of that day. The name of the first
execution of a run is the id of the run; the names of later executions end in ``-r2``, ``-r3``, ...
"""

import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property, reduce
from operator import getitem
from typing import Any

from botocore import exceptions, parsers, xform_name
from msgspec.structs import replace

from s3unzip.aws.environment import CLIENT_OPTIONS, LambdaConfig, read_config
from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    UsageError,
)
from s3unzip.model import Location, Verdict
from s3unzip.run_ids import (
    FOLLOW_UP_SUFFIX,
    execution_name,
    run_of_execution,
    run_stem,
    time_of_run,
)
from s3unzip.runs.records import RUNS
from s3unzip.runs.run_list import MAX_RUNS, RUNNING, ListedRun, RunList
from s3unzip.settings import STACK_PREFIX
from s3unzip.settling.loop import look_up_run
from s3unzip.settling.next_command import environment_options
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.listing import bound_pages
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.stores.s3.botocore_clients import let_requester_pay, translate_client_error
from s3unzip.stores.s3.session import Session
from s3unzip.version import __version__

PAYER_OUTPUT = "IngestPayer"  # the output of a stack that pays for reading archives
# Maximum time until DescribeExecution shows that an execution has been started or stopped.
SHOWN_SECONDS = 60.0
# The IAM actions of the operations whose actions have other names.
IAM_ACTIONS = {
    "s3:DeleteObjects": "s3:DeleteObject, s3:DeleteObjectVersion",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:GetBucketNotificationConfiguration": "s3:GetBucketNotification",
    "s3:HeadBucket": "s3:ListBucket",
}


@contextmanager
def translating_errors(action: str) -> Iterator[None]:
    """Translate the errors of AWS requests, and of reading responses; messages name `action`."""
    try:
        yield
    except exceptions.NoRegionError as error:
        raise UsageError(
            f"{action}: {str(error).rstrip('.')}; give --region and --profile, or set AWS_REGION"
        ) from None
    except exceptions.ClientError as error:
        raise translate_client_error(error, action) from None
    except exceptions.BotoCoreError as error:
        raise ServiceFaultError(
            f"{action}: {error}; check --region, --endpoint-url and the network"
        ) from None
    # The response is a web page, or some of its elements are missing or have the wrong type.
    except (parsers.ResponseParserError, AttributeError, LookupError, TypeError, ValueError):
        raise ServiceFaultError(
            f"{action}: the endpoint does not answer as AWS does; check --endpoint-url"
        ) from None


class DeployedRuns(RunList):
    """The runs of one stack, and the AWS clients of the operator.

    Args:
        environment: the name of an environment or of a stack.
        access: the operator's options for reaching AWS.
    """

    environment: str

    def __init__(self, environment: str, access: StoreConfig) -> None:
        self._endpoint_url = access.endpoint_url
        self.environment = environment
        self.location = f"in {environment}"
        self.nothing_yet = f"no run of {environment} has begun yet"
        # Printed commands leave out options that environment variables set.
        self.env_options = environment_options(environment, access.for_printed_commands())
        self._session = AwsSession(access)
        self._clients: dict[tuple[str, str | None], Any] = {}  # by service and region
        with translating_errors(f"environment {environment}"):
            self.client("cloudformation")  # raises an error if the settings are wrong
            self._session.keys.require()  # without keys, each request would search for them
            self.stack = self._find_stack()
            self.outputs = {
                output["OutputKey"]: output["OutputValue"] for output in self.stack["Outputs"]
            }
            self._machine = self.outputs["StateMachineArn"]
            _, self.partition, _, self.region, self.account, *_ = self._machine.split(":")
        self.work_location = Location(
            "s3", self.outputs["WorkBucket"], self.outputs.get("WorkPrefix", "")
        )
        self.stores = OpenedStores(
            replace(access, work=self.work_location, request_payer=PAYER_OUTPUT in self.outputs),
            Session(self._session),
        )

    def _find_stack(self) -> Any:
        """Return the stack with the environment's name, with or without the prefix "s3unzip-"."""
        names = [STACK_PREFIX + self.environment]
        if self.environment:  # without a name, CloudFormation would describe any stack
            names.append(self.environment)
        refusal: S3UnzipError = NotFoundError(
            f"environment {self.environment}: no stack {names[0]} here; "
            "check --env, --profile and --region"
        )
        for name in names:
            try:
                stack = self.ask("cloudformation:DescribeStacks", "Stacks", 0, StackName=name)
            except NotFoundError:
                continue
            except AccessDeniedError as error:  # the user may have access to the other stack
                refusal = AccessDeniedError(f"{error}; check --env, --profile and --region")
                continue
            if {"PlanFunction", "StateMachineArn", "WorkBucket"} <= {
                output["OutputKey"] for output in stack.get("Outputs", ())
            }:
                return stack
            raise NotFoundError(
                f"stack {name} is {stack['StackStatus']} and lacks the outputs of s3unzip; "
                "if it belongs to s3unzip, see docs/howto/first-deployment.md"
            )
        raise refusal

    def client(self, service: str, region_of: str = "") -> Any:
        """Return the client for a service in the region of the stack, or of the ARN `region_of`."""
        region = None  # the region of the stack
        if region_of.startswith("arn:") and region_of.split(":")[3] != self.region:
            region = region_of.split(":")[3]  # the fourth field of an ARN is its region
        if (service, region) not in self._clients:
            client = self._session.client(
                service,
                region=region,
                endpoint_url=self._endpoint_url,
                # A command may look up thousands of runs, but DescribeExecution allows 10 to 15
                # requests a second. An adaptive client slows down to the rate that AWS allows.
                **CLIENT_OPTIONS | {"retries": CLIENT_OPTIONS["retries"] | {"mode": "adaptive"}},
            )
            # botocore obeys the first handler that asks for a retry, so this handler must be the
            # first.
            client.meta.events.register_first("needs-retry", self._session.renew_refused_keys)
            if service == "s3" and PAYER_OUTPUT in self.outputs:
                client.meta.events.register("before-call.s3", let_requester_pay)
            self._clients[service, region] = client
        return self._clients[service, region]

    def ask(self, request: str, *path: str | int, region_of: str = "", **parameters: object) -> Any:
        """Send one request and return the response, or a part of it.

        Args:
            request: ``service:Operation``; ``service`` is the prefix of the service's IAM actions.
            path: the fields and indexes that lead to the part; empty for the whole response.
            region_of: the ARN of a resource that may be in a region other than the stack's.
            parameters: the arguments of the operation.
        """
        service, _, operation = request.partition(":")
        if service == "states":  # the prefix in IAM; botocore uses another name
            service = "stepfunctions"
        with translating_errors(IAM_ACTIONS.get(request, request)):
            response = getattr(self.client(service, region_of), xform_name(operation))(**parameters)
            return reduce(getitem, path, response)  # a missing field raises a translated error

    @cached_property
    def resources(self) -> tuple[Any, ...]:
        """The resources of the stack, as CloudFormation lists them, except deleted ones."""
        with translating_errors("cloudformation:ListStackResources"):
            return tuple(
                summary
                for page in self.client("cloudformation")
                .get_paginator("list_stack_resources")
                .paginate(StackName=self.stack["StackName"])
                for summary in page["StackResourceSummaries"]
                if "PhysicalResourceId" in summary  # missing while the resource is being created
                and summary.get("ResourceStatus") != "DELETE_COMPLETE"
            )

    def resource_names(self, kind: str, *logical: str) -> list[str]:
        """Return the AWS names of the resources of one kind; for queues, their URLs.

        Args:
            kind: a CloudFormation resource type, such as "AWS::Lambda::Function".
            logical: prefixes of logical IDs in the template; if empty, any ID matches.

        Raises:
            NotFoundError: the stack has no such resource, for example because it is being deleted.
        """
        names = [
            summary["PhysicalResourceId"]
            for summary in self.resources
            if summary["ResourceType"] == kind
            and summary["LogicalResourceId"].startswith(logical or "")  # any ID begins with ""
        ]
        if not names:
            raise NotFoundError(f"{self.stack['StackName']} has no {' '.join((kind, *logical))}")
        return names

    @cached_property
    def reserved_concurrency(self) -> dict[str, int | None]:
        """The reserved concurrency by the name of the function; None if none is reserved."""
        return {
            function: self.ask("lambda:GetFunctionConcurrency", FunctionName=function).get(
                "ReservedConcurrentExecutions"
            )
            for function in self.resource_names("AWS::Lambda::Function", "Functions")
        }

    @cached_property
    def variables(self) -> dict[str, str]:
        """The environment variables of the plan function."""
        return dict(
            self.ask("lambda:GetFunctionConfiguration", FunctionName=self.outputs["PlanFunction"])
            .get("Environment", {})
            .get("Variables", {})
        )

    @cached_property
    def config(self) -> LambdaConfig:
        """The settings shared by all runs of the environment."""
        try:
            return read_config(self.variables)
        except UsageError as error:
            raise UsageError(
                f"the functions of {self.stack['StackName']}: {error}. The functions are of "
                f"version {self.outputs.get('Version', 'unknown')}, and this command is of version "
                f"{__version__}: deploy again, or use the deployed version"
            ) from None

    def connections(self, run: str) -> StoreConfig:  # noqa: ARG002 - the same for all runs
        """Return the operator's options for reaching the stores; the run's options are not used."""
        return self._session.access.for_printed_commands()

    def recent(self, limit: int) -> Iterator[ListedRun]:
        """Yield runs, latest archive first; a run in progress may have no record yet.

        The start time is when the archive was put. The state is empty unless an execution is
        running.
        """
        with translating_errors("states:ListExecutions"):
            running = {
                run_of_execution(execution["name"])
                for page in bound_pages(
                    self.client("stepfunctions")
                    .get_paginator("list_executions")
                    .paginate(
                        stateMachineArn=self._machine,
                        statusFilter=RUNNING,
                        # A response may contain fewer executions than `PageSize`, or none at all.
                        PaginationConfig={"MaxItems": MAX_RUNS, "PageSize": MAX_RUNS},
                    ),
                    self._machine,
                )
                for execution in page["executions"]
                # Executions RUN-w1, ... only wait until a failed execution's functions have ended.
                if not re.search(r"-w\d+\Z", execution["name"])
            }
        recorded = (
            run
            for day in reversed(self._list_folders(""))
            for run in reversed(self._list_folders(f"{day}/"))
        )
        runs = {*running, *itertools.islice(recorded, limit)}
        # If a user chose the name of an execution, the name contains no time, so the run is last.
        for run in sorted(runs, key=lambda run: (time_of_run(run), run), reverse=True)[:limit]:
            yield ListedRun(run, RUNNING if run in running else "", time_of_run(run))

    def list_pages(
        self, operation: str, bucket: str, prefix: str, **parameters: str
    ) -> Iterator[Any]:
        """Yield the pages of a listing below a prefix; raise `StorageError` if it does not end.

        The operation is ``list_objects_v2`` or ``list_object_versions``.
        """
        action = "ListBucketVersions" if operation == "list_object_versions" else "ListBucket"
        with translating_errors(f"s3:{action} s3://{bucket}/{prefix}"):
            yield from bound_pages(
                self.client("s3")
                .get_paginator(operation)
                .paginate(Bucket=bucket, Prefix=prefix, **parameters),
                f"s3://{bucket}/{prefix}",
            )

    def _list_folders(self, below: str) -> list[str]:
        """Return the sorted days with runs; if `below` is "DAY/", the sorted run ids of the day."""
        root = f"{self.work_location.key}{RUNS}"
        return [
            folder["Prefix"].removeprefix(root).rstrip("/")
            for page in self.list_pages(
                "list_objects_v2", self.work_location.bucket, root + below, Delimiter="/"
            )
            for folder in page.get("CommonPrefixes", ())
        ]

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of the current archive at `source`, in chronological order.

        The id of a run contains the date of its archive. If the archive was cut into pieces,
        `source` is the first piece. But the date belongs to the last piece, which may be a day
        later. A run that replaces what an older version wrote (`FOLLOW_UP_SUFFIX`) began after the
        other runs.
        """
        put_time = datetime.fromtimestamp(
            self.stores.source(source).stat(source).modified or 0.0, UTC
        )
        stem = f"-{run_stem(source)}"
        runs = [
            run
            for day in (put_time, put_time + timedelta(days=1))
            for run in self._list_folders(f"{day:%Y-%m-%d}/")
            if stem in run
        ]
        return sorted(runs, key=lambda run: (run.endswith(FOLLOW_UP_SUFFIX), run))

    def state(self, run: str) -> str | None:
        """Return the state of the last execution of a run; None if there was no execution."""
        return self._find_last_execution(run)[1]

    @translating_errors("states:DescribeMapRun")  # `itemCounts` may lack one of the counts
    def map_counts(self, run: str) -> dict[str, int]:
        """Return the counts of the last Map Run of a run, keyed by the fields of `RunProgress`."""
        number, state = self._find_last_execution(run)
        if state is None:
            return {}
        # Only a Distributed Map creates a Map Run; a round with few tasks has none.
        maps = self.ask(
            "states:ListMapRuns", "mapRuns", executionArn=self._arn(execution_name(run, number))
        )
        if not maps:
            return {}
        with translating_errors("states:ListMapRuns"):  # a Map Run may lack one of the fields
            latest = max(maps, key=lambda map_run: map_run["startDate"])["mapRunArn"]
        counts = self.ask("states:DescribeMapRun", "itemCounts", mapRunArn=latest)
        return {
            "waiting": counts["pending"],
            "running": counts["running"],
            "lost": counts["failed"] + counts["timedOut"] + counts["aborted"],
        }

    def resume(self, run: str, *, failed: bool = False) -> None:
        """Start an execution that continues a run.

        Returns when the execution can be described, because DescribeExecution is eventually
        consistent: until then, the state of the run would be that of the previous execution.

        With `failed`, the members that failed are also extracted again.
        """
        number, state = self._find_last_execution(run)
        if state == RUNNING:
            raise UsageError(
                f"{run}: it is running; wait for it to end: s3unzip watch {run}{self.env_options}"
            )
        recorded = look_up_run(self.records(run))
        if recorded.report is not None and recorded.report.verdict is Verdict.REJECTED:
            raise NotFoundError(
                f"{run}: the archive was refused ({recorded.report.reason}), so nothing remains to "
                "resume; fix the archive or change the setting that refuses it, then upload the "
                "archive again"
            )
        if recorded.run_or_report is not None:
            data = json.dumps({"run": run, "failed": failed})
        elif state is not None:
            # The run is planned again. The new plan contains all members, so `failed` is not used.
            data = self._copy_input(execution_name(run))
        else:
            raise NotFoundError(f"{run}: there is no record of it; upload the archive again")
        name = execution_name(run, number + 1)
        self.ask("states:StartExecution", stateMachineArn=self._machine, name=name, input=data)
        deadline = time.monotonic() + SHOWN_SECONDS
        while self._find_state(name) is None and time.monotonic() < deadline:
            time.sleep(0.5)

    def _copy_input(self, first_execution: str) -> str:
        """Return the input of a run's first execution, without its plan, to plan the run again.

        The input of the first execution contains the request; the input of a later execution may
        not.
        """
        copied = json.loads(
            self.ask("states:DescribeExecution", "input", executionArn=self._arn(first_execution))
        )
        return json.dumps(
            {field: copied[field] for field in ("run", "request", "pin") if field in copied}
        )

    def stop(self, run: str) -> bool:
        """Stop the execution of a run and wait for its end; return False if it ended by itself."""
        number, last_state = self._find_last_execution(run)
        if last_state != RUNNING:
            return False
        name = execution_name(run, number)
        self.ask("states:StopExecution", executionArn=self._arn(name), cause="s3unzip abort")
        deadline = time.monotonic() + SHOWN_SECONDS
        while (state := self._find_state(name)) == RUNNING:
            if time.monotonic() > deadline:
                raise ServiceFaultError(f"{run}: still running after {SHOWN_SECONDS:.0f} s")
            time.sleep(1.0)
        return state == "ABORTED"

    def _find_last_execution(self, run: str) -> tuple[int, str | None]:
        """Return the number and the state of a run's last execution; 0 and None if there is none.

        The numbers of executions start at 1, and the last execution is before the first gap. A
        running execution takes precedence, because Step Functions can redrive an earlier execution.
        """
        last: tuple[int, str | None] = (0, None)
        for number in itertools.count(1):
            state = self._find_state(execution_name(run, number))
            if state is None:
                break
            if state == RUNNING or last[1] != RUNNING:
                last = (number, state)
        return last

    def _arn(self, name: str) -> str:
        return f"{self._machine.replace(':stateMachine:', ':execution:')}:{name}"

    def _find_state(self, name: str) -> str | None:
        """Return the state of an execution, or None if no execution has this name."""
        try:
            return str(self.ask("states:DescribeExecution", "status", executionArn=self._arn(name)))
        except NotFoundError:
            return None
