"""The state machine of one run: scan, link, extract, report, and what is left once more.

::

    scans? -> Scan (Map) -> Link -+
      |                      ^    |
      +-> split members? ----+    v
      +-> tasks? ------------> Extract (Map) -> Report -> left? -> Redo (Map) -> Report again
            |                                     ^         |                       |
            +-------------------------------------+         +-> Done <--- left? ----+-> Work left

Extract tolerates every failed task, so that one bad task does not hide the
rest; Report then lists what is left, and Redo tolerates none. A run that fails
fails there, so a redrive repeats exactly the failed tasks. It keeps to what
the embedded AWS can run too: JSONPath, lines that are already tasks (no
ItemBatcher), results of Maps discarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    RunStoppedError,
    StoreFullError,
    UsageError,
)
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_

    from infra.environment import Environment
    from infra.functions import Functions
    from infra.intake import Intake
    from infra.storage import Storage

# What another attempt would only meet again. Lambda reports the class's name;
# an emulator that does not leaves them to the retry below, which ends too.
FINAL = (AccessDeniedError, NotFoundError, RunStoppedError, StoreFullError, UsageError)
RUN_DAYS = 7  # of a whole run, at most; Standard workflows may take a year
LINES = ("scan", "plan", "redo")  # objects that a Map reads


class Workflow(Construct):
    """The `state_machine`, and the rule that reports executions which ended badly."""

    def __init__(
        self, scope: Construct, *, environment: Environment, storage: Storage, functions: Functions
    ) -> None:
        super().__init__(scope, "Workflow")
        self.state_machine = sfn.StateMachine(
            self,
            "Runs",
            comment="One extraction of one archive; its name is the run's id",
            definition_body=sfn.DefinitionBody.from_chainable(self._definition(functions)),
            state_machine_type=sfn.StateMachineType.STANDARD,
            timeout=cdk.Duration.days(RUN_DAYS),
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "Logs",
                    # Only below this prefix does a log group not count against the resource
                    # policy's 5,120 characters.
                    log_group_name=f"/aws/vendedlogs/states/{environment.stack.name}",
                    retention=logs.RetentionDays.ONE_MONTH,
                    removal_policy=cdk.RemovalPolicy.DESTROY,
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=False,
            ),
        )
        self._allow_reading(environment, storage)
        functions.plan.add_environment(Variable.STATE_MACHINE, self.state_machine.state_machine_arn)
        functions.plan.add_to_role_policy(
            iam.PolicyStatement(
                actions=["states:StartExecution"],
                resources=[self.state_machine.state_machine_arn],
            )
        )

    def report_failures(self, functions: Functions, intake: Intake) -> None:
        """Let the report function settle every execution that failed, timed out or was aborted."""
        events.Rule(
            self,
            "Failed",
            description="A run's execution failed, timed out or was aborted",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [self.state_machine.state_machine_arn],
                    "status": ["FAILED", "TIMED_OUT", "ABORTED"],
                },
            ),
            targets=[
                targets.LambdaFunction(
                    functions.report,
                    dead_letter_queue=intake.dead_letters,
                    retry_attempts=10,
                    max_event_age=cdk.Duration.hours(6),
                )
            ],
        )

    def _definition(self, functions: Functions) -> sfn.IChainable:
        done = sfn.Succeed(self, "Done")
        failed = sfn.Fail(
            self,
            "Work left",
            error="WorkLeft",
            cause="Tasks have no complete outcomes after a second attempt: see report.json",
        )
        again = self._settle("Report again", functions.report)
        again.next(self._nothing_left("All done?", done, failed))
        redo = self._map("Redo", "redo", "task", functions.extract, tolerated=0)
        redo.next(again)
        report = self._settle("Report", functions.report)
        report.next(self._nothing_left("Anything left?", done, redo))
        extract = self._map("Extract", "plan", "task", functions.extract, tolerated=100)
        extract.next(report)
        link = self._invoke("Link", functions.link, {"run.$": "$.run"})
        link.next(extract)
        scan = self._map("Scan", "scan", "scan", functions.scan, tolerated=100)
        scan.next(link)
        return (
            sfn.Choice(self, "Anything to scan?")
            .when(sfn.Condition.number_greater_than("$.scans", 0), scan)
            .when(sfn.Condition.number_greater_than("$.split_members", 0), link)
            .otherwise(
                sfn.Choice(self, "Anything to extract?")
                .when(sfn.Condition.number_greater_than("$.tasks", 0), extract)
                .otherwise(report)
            )
        )

    def _map(
        self, name: str, lines: str, item: str, worker: lambda_.Function, *, tolerated: int
    ) -> sfn.DistributedMap:
        """Return a Distributed Map that hands each line of an object to `worker`."""
        state = sfn.DistributedMap(
            self,
            name,
            label=name,
            map_execution_type=sfn.StateMachineType.EXPRESS,
            item_reader=sfn.S3JsonLItemReader(
                bucket_name_path=sfn.JsonPath.string_at("$.work.bucket"),
                key=sfn.JsonPath.string_at(f"$.work.{lines}"),
            ),
            item_selector={"run.$": "$.run", f"{item}.$": "$$.Map.Item.Value"},
            max_concurrency_path="$.concurrency" if item == "task" else "$.scans_at_once",
            tolerated_failure_percentage=tolerated,
            result_path=sfn.JsonPath.DISCARD,
        )
        work = self._invoke(f"{name} one", worker, {"run.$": "$.run", f"{item}.$": f"$.{item}"})
        state.item_processor(work)
        return state

    def _invoke(
        self, name: str, function: lambda_.Function, payload: dict[str, str]
    ) -> tasks.LambdaInvoke:
        """Return a task whose result is thrown away: it is in the work bucket."""
        task = tasks.LambdaInvoke(
            self,
            name,
            lambda_function=function,
            payload=sfn.TaskInput.from_object(payload),
            result_path=sfn.JsonPath.DISCARD,
            retry_on_service_exceptions=False,
        )
        _retry(task)
        return task

    def _settle(self, name: str, report: lambda_.Function) -> tasks.LambdaInvoke:
        task = tasks.LambdaInvoke(
            self,
            name,
            lambda_function=report,
            payload=sfn.TaskInput.from_object({"run.$": "$.run"}),
            result_selector={"verdict.$": "$.Payload.verdict", "left.$": "$.Payload.left"},
            result_path="$.settled",
            retry_on_service_exceptions=False,
        )
        _retry(task)
        return task

    def _nothing_left(self, name: str, done: sfn.IChainable, rest: sfn.IChainable) -> sfn.Choice:
        return (
            sfn.Choice(self, name)
            .when(sfn.Condition.number_equals("$.settled.left", 0), done)
            .otherwise(rest)
        )

    def _allow_reading(self, environment: Environment, storage: Storage) -> None:
        runs = f"{environment.work.prefix}runs/*"
        self.state_machine.add_to_role_policy(
            iam.PolicyStatement(
                actions=["s3:GetObject"],
                resources=[storage.work.arn_for_objects(f"{runs}/{name}.jsonl") for name in LINES],
            )
        )
        if environment.kms_key is not None:
            self.state_machine.add_to_role_policy(
                iam.PolicyStatement(actions=["kms:Decrypt"], resources=[environment.kms_key])
            )


def _retry(task: tasks.LambdaInvoke) -> None:
    """Retry what may work later, with back-off and full jitter, so that retries do not march."""
    task.add_retry(errors=[error.__name__ for error in FINAL], max_attempts=0)
    task.add_retry(
        errors=["Lambda.TooManyRequestsException"],
        interval=cdk.Duration.seconds(1),
        max_attempts=12,
        backoff_rate=1.6,
        max_delay=cdk.Duration.seconds(20),
        jitter_strategy=sfn.JitterType.FULL,
    )
    task.add_retry(
        errors=[sfn.Errors.TASKS_FAILED],
        interval=cdk.Duration.seconds(1),
        max_attempts=3,
        backoff_rate=2.5,
        max_delay=cdk.Duration.seconds(30),
        jitter_strategy=sfn.JitterType.FULL,
    )
