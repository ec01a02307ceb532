"""The runs of a deployed environment, as its operator sees them: executions and their records.

The stack is found by its name, and its outputs name everything else. The name of a run's execution
is the run's id; a retry is another execution. A rejected archive has a record and no execution, and
so has a direct run; `refusals` and `claims` list these.
"""

from __future__ import annotations

import heapq
import itertools
import json
import time
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from s3unzip.aws.admission.ledger import FOLDER
from s3unzip.aws.aws_faults import asking, read_fault
from s3unzip.aws.environment import Capacity, RunDefaults, read_orders, read_scale
from s3unzip.aws.executions import planned_input
from s3unzip.aws.intake.claims import list_direct_runs
from s3unzip.aws.refusals import list_refusals
from s3unzip.aws.timeline import list_folders
from s3unzip.clients import AwsSession
from s3unzip.errors import NotFoundError, ServiceFaultError, UsageError
from s3unzip.model import Connections, Location, Report, run_stem
from s3unzip.operate.bundled_store import BundledRunStore
from s3unzip.operate.submit import ArchiveEvent, send_events
from s3unzip.operate.waiting import WAITING, WaitingRuns
from s3unzip.runs.records import RunRecords
from s3unzip.runs.watch import Items, RunEntry, unique_runs
from s3unzip.settling.after_success import is_left
from s3unzip.settling.next_step import in_environment
from s3unzip.settling.retry import plan_retry, run_of
from s3unzip.stores.s3.access import S3Access
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.stores import S3Stores

if TYPE_CHECKING:  # stubs
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_stepfunctions import SFNClient

STACK = "s3unzip-{}"  # as the files in infra/environments name it
RUNNING, STOPPED = "RUNNING", "ABORTED"
MAX_RUNS = 1_000  # that are searched for the beginning of an id
STOP_SECONDS = 60.0  # limit of waiting for a stopped execution to end


class Stack(NamedTuple):
    """A deployed stack."""

    name: str
    status: str  # of CloudFormation: CREATE_COMPLETE, UPDATE_ROLLBACK_COMPLETE, ...
    outputs: dict[str, str]


def find_stack(stacks: CloudFormationClient, environment: str) -> Stack:
    """Return the stack of `environment`, which is an environment's name or a stack's name.

    Raises:
        NotFoundError: there is no such stack, or it is not s3unzip's.
        AccessDeniedError: a right is missing.
    """
    for name in (STACK.format(environment), environment):
        try:
            found = stacks.describe_stacks(StackName=name)["Stacks"][0]
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and "does not exist" in str(error):
                continue
            raise read_fault(error, "cloudformation:DescribeStacks") from None
        outputs = {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", ())}
        if {"StateMachineArn", "WorkBucket"} <= outputs.keys():
            return Stack(name, found["StackStatus"], outputs)
        raise NotFoundError(f"stack {name} has no outputs of s3unzip; is it deployed?")
    raise NotFoundError(
        f"environment {environment}: no stack {STACK.format(environment)} here; "
        "check --env, --profile and --region"
    )


class DeployedRuns:
    """The runs of one stack.

    Raises:
        NotFoundError: there is no such stack of s3unzip.
        AccessDeniedError: a right is missing.
    """

    def __init__(self, environment: str, access: S3Access) -> None:
        self._endpoint_url = access.endpoint_url
        self.environment = environment
        self._connections = access.typed()
        self._session = AwsSession(access.profile, access.region)
        try:
            stacks: CloudFormationClient = self.client("cloudformation")
            self._states: SFNClient = self.client("stepfunctions")
        except BotoCoreError as error:
            raise read_fault(error, f"environment {environment}") from None
        self.stack = find_stack(stacks, environment)
        self.outputs = self.stack.outputs
        self._machine = self.outputs["StateMachineArn"]
        self._prefix = self.outputs.get("WorkPrefix", "")
        self.work_location = Location("s3", self.outputs["WorkBucket"], self._prefix)
        # The stores that the runs' records are in, and the operator's way to the rest.
        self.stores = S3Stores(self.work_location, session=Session(access, self._session))

    def client(self, service: str) -> Any:
        """Return a new client of a service of the stack's account and region."""
        return self._session.client(
            service,
            endpoint_url=self._endpoint_url,
            connect_timeout=5,
            read_timeout=20,
            retries={"total_max_attempts": 6, "mode": "standard"},
        )

    @cached_property
    def variables(self) -> dict[str, str]:
        """The environment variables of the plan function.

        Raises:
            UsageError: the stack is older than this.
            AccessDeniedError: lambda:GetFunctionConfiguration is missing.
        """
        name = self.outputs.get("PlanFunction")
        if name is None:
            raise UsageError(
                f"environment {self.environment}: its stack is too old, deploy it again"
            )
        with asking("lambda:GetFunctionConfiguration"):
            configuration = self.client("lambda").get_function_configuration(FunctionName=name)
        return dict(configuration.get("Environment", {}).get("Variables", {}))

    @cached_property
    def orders(self) -> RunDefaults:
        """What all runs of the environment have in common."""
        return read_orders(self.variables)

    @cached_property
    def scale(self) -> Capacity:
        """How large the runs of the environment may be."""
        return read_scale(self.variables)

    def connections(self, run: str) -> Connections:  # noqa: ARG002 - of all runs
        """Return how the environment is reached; its functions know how runs reach their stores."""
        return self._connections

    @property
    def found_by(self) -> str:
        """The options, a space before them, by which a command finds the environment."""
        return in_environment(self.environment, self._connections)

    @property
    def waiting(self) -> WaitingRuns:
        """The runs that wait for workers."""
        return WaitingRuns(self.stores.run_store(FOLDER))

    def explain_waiting(self) -> str:
        """Return what runs wait for; empty if none waits."""
        return self.waiting.explain()

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        return RunRecords(self._store(run))

    def _store(self, run: str) -> BundledRunStore:
        def read(name: str) -> bytes:
            folder, _, entry = name.partition("/")
            return self.stores.run_store(folder).read(entry)

        return BundledRunStore(self.stores.run_store(run), read)

    def recent(self, limit: int) -> Iterator[RunEntry]:
        """Yield runs, the latest first: executions (a retry by its own name) and others.

        A direct run that was handed over has an execution too.
        """
        client, work = self.stores.session.control, self.work_location
        refused = list_refusals(client, work, limit)
        direct = list_direct_runs(client, work, limit)
        runs = heapq.merge(
            *(self._executions(limit), refused, direct, self.waiting.entries()),
            key=lambda one: one.started,
            reverse=True,
        )
        yield from itertools.islice(unique_runs(runs), limit)

    def _executions(self, limit: int) -> Iterator[RunEntry]:
        pages = self._states.get_paginator("list_executions").paginate(
            stateMachineArn=self._machine, PaginationConfig={"MaxItems": limit}
        )
        with asking("states:ListExecutions"):
            for page in pages:
                for one in page["executions"]:
                    yield RunEntry(one["name"], one["status"], one["startDate"].timestamp())

    def find(self, name: str) -> str:
        """Return the full id of the latest run, or of the run whose id begins with `name`.

        Raises:
            NotFoundError: there is none.
            UsageError: several ids begin with `name`.
        """
        if name == "latest":
            latest = next(self.recent(1), None)
            if latest is None:
                raise NotFoundError(f"no run of {self.environment} has begun yet")
            return run_of(latest.id)
        found = self._recorded_ids(name) or self._begun_ids(name) or self.waiting.ids(name)
        if name in found:
            return name
        if not found:
            raise NotFoundError(f"{name}: no such run in {self.environment}; see s3unzip runs")
        if len(found) > 1:
            raise UsageError(f"{name}: {len(found)} runs begin with it; see s3unzip runs")
        return found[0]

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of archives with the name of `source`, the earliest first."""
        dated = [
            (self.records(run).read_run().created, run)
            for run in self._recorded_ids(f"{run_stem(source)}-")
        ]
        return [run for _, run in sorted(dated)]

    def state(self, run: str) -> str | None:
        """Return the state of the run's last execution; None: it never had one, nor waits."""
        return self._last(run)[1] or (WAITING if run in self.waiting.ids(run) else None)

    def items(self, run: str) -> Items | None:
        """Return the item counts of the active Map, None if there is none."""
        execution, state = self._last(run)
        if state is None:
            return None
        with asking("states:DescribeMapRun"):
            maps = self._states.list_map_runs(executionArn=execution)["mapRuns"]
            if not maps:
                return None
            latest = max(maps, key=lambda one: one["startDate"])
            counts = self._states.describe_map_run(mapRunArn=latest["mapRunArn"])["itemCounts"]
        lost = counts["failed"] + counts["timedOut"] + counts["aborted"]
        waiting = counts["pending"] + counts.get("pendingRedrive", 0)
        return Items(waiting, counts["running"], counts["succeeded"], lost)

    def redrive(self, run: str) -> None:
        """Continue the failed execution: only its unfinished tasks run.

        Raises:
            UsageError: it did not fail, or failed too long ago.
        """
        execution, state = self._last(run)
        if state is None:
            advice = (
                "put the archive again, or try failed members again with s3unzip resume --failed"
            )
            raise NotFoundError(f"{run}: has no execution; {advice}")
        RunRecords.open(self.stores, run).delete_stop()  # while stop.json exists, no task begins
        with asking("states:RedriveExecution"):
            try:
                self._states.redrive_execution(executionArn=execution)
            except self._states.exceptions.ExecutionNotRedrivable as error:
                raise UsageError(_why_not_redriven(run, state, error)) from None

    def retry(self, run: str) -> int:
        """Start an execution for the failed members only; return how many tasks it has.

        Raises:
            UsageError: the run is active.
        """
        if self.state(run) == RUNNING:
            raise UsageError(f"{run}: is running; wait for its end: s3unzip watch")
        store = self._store(run)
        records = RunRecords(store)
        records.delete_stop()
        planned = plan_retry(records)
        if planned is None:
            return 0
        name, listed = planned
        store.unpack_records()
        records.write_redo(listed)  # the list that the state machine may read
        tasks = len(listed)
        payload = planned_input(self.work_location, records.read_summary(), {})
        payload["work"]["whole"] = payload["work"]["redo"]
        payload |= {"inline": {}, "split_members": 0}
        payload["whole_at_once"] = max(1, min(tasks, payload["concurrency"]))
        with asking("states:StartExecution"):
            self._states.start_execution(
                stateMachineArn=self._machine,
                name=f"{run}-{name}",
                input=json.dumps(payload),
            )
        return tasks

    def stop(self, run: str) -> bool:
        """Stop the run's execution, or its wait for workers; return False if it had ended.

        Raises:
            ServiceFaultError: it did not end in a minute.
        """
        if self.waiting.drop(run):
            return True
        execution, state = self._last(run)
        if state != RUNNING:
            return False
        try:
            self._states.stop_execution(executionArn=execution, cause="s3unzip abort")
        except (BotoCoreError, ClientError) as error:
            if self._describe(execution) == RUNNING:  # else it ended at that moment
                raise read_fault(error, "states:StopExecution") from None
        until = time.monotonic() + STOP_SECONDS
        while (state := self._describe(execution)) == RUNNING:
            if time.monotonic() > until:
                raise ServiceFaultError(f"{run}: still running after {STOP_SECONDS:.0f} s")
            time.sleep(1.0)
        return state == STOPPED

    def _last(self, run: str) -> tuple[str, str | None]:
        """Return ARN and state of the run's last execution: its latest retry, or its own."""
        retries = reversed(RunRecords.open(self.stores, run).list_retries())
        for name in [*(f"{run}-{retry}" for retry in retries), run]:
            execution = f"{self._machine.replace(':stateMachine:', ':execution:')}:{name}"
            state = self._describe(execution)
            if state is not None:
                return execution, state
        return "", None

    def _describe(self, execution: str) -> str | None:
        with asking("states:DescribeExecution"):
            try:
                return self._states.describe_execution(executionArn=execution)["status"]
            except self._states.exceptions.ExecutionDoesNotExist:
                return None

    def _recorded_ids(self, name: str) -> list[str]:
        found = list_folders(self.stores.session.control, self.work_location, name)
        return [run for run in itertools.islice(found, MAX_RUNS) if not run.startswith("-")]

    def _begun_ids(self, name: str) -> list[str]:
        """Return the ids that begin with `name` of runs that may have no records yet."""
        direct = list_direct_runs(self.stores.session.control, self.work_location, MAX_RUNS)
        ids = {run_of(entry.id): None for entry in (*direct, *self._executions(MAX_RUNS))}
        return [run for run in ids if run.startswith(name)]


def find_end(runs: DeployedRuns, run: str) -> Report | None:
    """Return the report of a run without an active execution; None if it has none yet.

    Raises:
        AccessDeniedError: a right is missing.
        StorageError, ServiceFaultError: the report cannot be read.
    """
    # The state first: a report that is read after the end is the last one.
    state = runs.state(run)
    report = runs.records(run).find_report()
    return None if state == RUNNING else report


def redrive(runs: DeployedRuns, run: str) -> None:
    """Continue a run; where only its archive is left to delete, move or tag, send its event again.

    Raises:
        NotFoundError: the run has no execution.
        UsageError: its execution did not fail, or failed too long ago.
        AccessDeniedError: a right is missing.
    """
    report = runs.records(run).find_report()
    if report is None or not is_left(report):
        runs.redrive(run)
        return
    event = ArchiveEvent(report.source, report.event_time or report.started)
    send_events(runs.client("sqs"), runs.outputs["QueueUrl"], [event], "redrive")


def _why_not_redriven(run: str, state: str, error: ClientError) -> str:
    """Return why Step Functions does not redrive an execution in `state`, and what helps.

    It redrives executions that failed, timed out or were aborted, within 14 days after their end
    (AWS Step Functions Developer Guide, "Restarting state machine executions with redrive").
    """
    if state == "RUNNING":
        return f"{run}: is running; wait for its end: s3unzip watch {run}"
    if state == "SUCCEEDED":
        return (
            f"{run}: all its tasks have ended, nothing is left to redrive; "
            f"s3unzip resume {run} --failed tries failed members again"
        )
    reason = error.response.get("Error", {}).get("Message", "")
    return f"{run}: {state}, cannot be redriven: {reason}"
