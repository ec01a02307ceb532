"""The state machine of the runs, and the rule that settles those whose execution failed.

::

    Planned? --no--> Plan --> Next? -- few ---> Few tasks (Map, inline) -------+
     |  |                     ^ ^ +--- many --> Many tasks (Map, distributed) --+--> Settle
     |  +-------yes-----------+ | +--- done --> Done                            |     |
     |                          +-----------------------------------------------------+
     +--wait--> Wait for functions ---------------------------------------------+

The data of every state is `s3unzip.model.Next`: the run, and what comes next in it. The functions
write the tasks of a round and read their outcomes; the state machine only starts the tasks. If a
task fails, it is repeated in the next round, so no Map stops at a failure. If the input of an
execution has ``wait``, the execution first waits for this number of seconds, because functions of a
stopped execution may still be at work.

The children of the distributed Map are Standard workflows, because their retries may wait for
hours. A child returns ``{}``, and a ResultWriter writes the Map's result to the work bucket.
Without it, the result is one array with all children. If the array is larger than 256 KiB, the
execution fails with States.DataLimitExceeded, even if ResultPath is null (aws/aws-cdk#24799).
"""

import aws_cdk as cdk
import jsii
from aws_cdk import (
    aws_events as events,
    aws_events_targets as targets,
    aws_iam as iam,
    aws_lambda as lambda_,
    aws_logs as logs,
    aws_sqs as sqs,
    aws_stepfunctions as sfn,
    aws_stepfunctions_tasks as tasks,
)
from constructs import Construct

from infra.environment import Environment
from infra.functions import RETENTION, Functions
from infra.rights import allow
from infra.storage import Storage
from s3unzip.errors import lasting_errors

RUN_DAYS = 7  # maximum duration of an execution; Step Functions allows a year
# Names of exception classes, as Lambda reports them, for which a retry would fail in the same way.
FINAL = sorted(lasting_errors())
# Lambda cannot invoke the function yet (API_Invoke): there is no free concurrency, or Lambda makes
# the network of a function in a VPC anew, which it removes after weeks without an invocation. That
# invocation fails, and so do others for a minute or more (configuration-vpc, functions-states).
NOT_YET = [
    "Lambda.TooManyRequestsException",
    "Lambda.ResourceNotReadyException",
    "Lambda.ENINotReadyException",
    "Lambda.CodeArtifactUserPendingException",
    "Lambda.ResourceConflictException",
]
# Faults of S3 while Step Functions itself reads a round's list, or writes the Map's result.
MAP_FAULTS = ["States.ItemReaderFailed", "States.ResultWriterFailed"]
# Maximum numbers of waits for a free worker. A wait is at most about a fifth of the time waited so
# far, so a free worker soon gets a task. Each attempt adds three events to the history of an
# execution, which can have 25,000 events.
LONGEST_WAIT = 900  # seconds
CHILD_WAITS = 400  # about 44 hours; each task of a Distributed Map has its own history
STEP_WAITS = 100  # about 7 hours; for Plan, and for Settle after each round
INLINE_WAITS = 61  # about 2 hours; in each of two rounds, 40 tasks share the history of the run


class _RoundReader(sfn.S3JsonLItemReader):
    """An item reader for which CDK adds no rights; they would apply to the whole bucket."""

    @jsii.member(jsii_name="providePolicyStatements")
    def provide_policy_statements(self) -> list[iam.PolicyStatement]:
        """Return nothing: `Workflow` grants access to the objects of rounds."""
        return []


class _ResultWriter(sfn.ResultWriterV2):
    """A result writer for which CDK adds no rights; they would apply to the whole bucket."""

    @jsii.member(jsii_name="providePolicyStatements")
    def provide_policy_statements(self) -> list[iam.PolicyStatement]:
        """Return nothing: `Workflow` grants access to the objects of rounds."""
        return []


class Workflow(Construct):
    """The `state_machine`, which is named after the stack."""

    def __init__(
        self, scope: Construct, *, environment: Environment, storage: Storage, functions: Functions
    ) -> None:
        super().__init__(scope, "Workflow")
        self._functions = functions
        self._work = storage.work
        self.state_machine = sfn.StateMachine(
            self,
            "Runs",
            state_machine_name=environment.stack.name,
            comment="One extraction of one archive; its name is the run's id",
            definition_body=sfn.DefinitionBody.from_chainable(self._definition()),
            state_machine_type=sfn.StateMachineType.STANDARD,
            timeout=cdk.Duration.days(RUN_DAYS),
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "Logs",
                    # Log groups with other prefixes add to a resource policy, which is limited to
                    # 5,120 characters.
                    log_group_name=f"/aws/vendedlogs/states/{environment.stack.name}",
                    retention=RETENTION[environment.logs.days],
                    removal_policy=cdk.RemovalPolicy.DESTROY,  # retained, it would block its name
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=False,
            ),
        )
        # The developer guide of Step Functions, "IAM policies for using Distributed Map states",
        # requires all four for a ResultWriter.
        self.state_machine.add_to_role_policy(
            allow(
                [
                    "s3:GetObject",
                    "s3:PutObject",
                    "s3:ListMultipartUploadParts",
                    "s3:AbortMultipartUpload",
                ],
                storage.work.arn_for_objects(f"{environment.work.prefix}runs/*/rounds/*"),
            )
        )
        for key in sorted(filter(None, {environment.kms_key, environment.work.kms_key})):
            self.state_machine.add_to_role_policy(
                allow(["kms:Decrypt", "kms:GenerateDataKey"], key)
            )

    def settle_failures(self, settle: lambda_.Function, undelivered: sqs.Queue) -> None:
        """Invoke the settle function for every execution that failed, timed out or was aborted."""
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
                    settle,
                    dead_letter_queue=undelivered,
                    retry_attempts=10,
                    max_event_age=cdk.Duration.hours(6),
                )
            ],
        )

    def _definition(self) -> sfn.IChainable:
        plan = self._invoke("Plan", self._functions.plan)
        settle = self._invoke("Settle", self._functions.settle)
        following = (
            sfn.Choice(self, "Next?")
            .when(sfn.Condition.string_equals("$.next", "few"), self._few_tasks().next(settle))
            .when(sfn.Condition.string_equals("$.next", "many"), self._many_tasks().next(settle))
            .otherwise(sfn.Succeed(self, "Done"))
        )
        settle.next(following)
        wait = sfn.Wait(self, "Wait for functions", time=sfn.WaitTime.seconds_path("$.wait"))
        return (
            sfn.Choice(self, "Planned?")
            .when(sfn.Condition.is_present("$.wait"), wait.next(settle))
            .when(sfn.Condition.is_present("$.next"), following)
            .otherwise(plan.next(following))
        )

    def _few_tasks(self) -> sfn.Map:
        """Return the Map over the tasks that are in the state's data."""
        left = sfn.Pass(self, "Left for the next round", output_path=sfn.JsonPath.DISCARD)
        task = self._extract("Extract", INLINE_WAITS)
        task.add_catch(left, errors=[sfn.Errors.ALL], result_path=sfn.JsonPath.DISCARD)
        state = sfn.Map(
            self,
            "Few tasks",
            items_path="$.tasks",
            item_selector={"run.$": "$.run", "task.$": "$$.Map.Item.Value"},
            max_concurrency_path="$.workers",
            result_path=sfn.JsonPath.DISCARD,
        )
        state.item_processor(task)
        return state

    def _many_tasks(self) -> sfn.DistributedMap:
        """Return the Map over the tasks of the object ``rounds/NN.jsonl``."""
        state = sfn.DistributedMap(
            self,
            "Many tasks",
            label="Tasks",
            map_execution_type=sfn.StateMachineType.STANDARD,
            item_reader=_RoundReader(bucket=self._work, key=sfn.JsonPath.string_at("$.list")),
            item_selector={"run.$": "$.run", "task.$": "$$.Map.Item.Value"},
            max_concurrency_path="$.workers",
            tolerated_failure_percentage=100,
            # COMPACT: only the outputs of children, so `{}` for each task that succeeded.
            result_writer_v2=_ResultWriter(
                bucket=self._work,
                prefix=sfn.JsonPath.format("{}-result", sfn.JsonPath.string_at("$.list")),
                writer_config=sfn.WriterConfig(
                    output_type=sfn.OutputType.JSONL, transformation=sfn.Transformation.COMPACT
                ),
            ),
            result_path=sfn.JsonPath.DISCARD,
        )
        state.item_processor(self._extract("Extract one of many", CHILD_WAITS))
        # A retry repeats the whole round. Tasks that have ended find their outcomes on record.
        state.add_retry(
            errors=MAP_FAULTS,
            interval=cdk.Duration.seconds(10),
            max_attempts=3,
            backoff_rate=3,
            jitter_strategy=sfn.JitterType.FULL,
        )
        return state

    def _extract(self, name: str, waits: int) -> tasks.LambdaInvoke:
        """Return a state that does one task; the result is written to the work bucket."""
        return self._invoke(
            name,
            self._functions.extract,
            waits,
            output_path=sfn.JsonPath.DISCARD,
            result_path=sfn.JsonPath.DISCARD,
        )

    def _invoke(
        self,
        name: str,
        function: lambda_.Function,
        waits: int = STEP_WAITS,
        *,
        output_path: str = "$.Payload",
        result_path: str | None = None,
    ) -> tasks.LambdaInvoke:
        """Return a state that invokes a function with its input and returns the response.

        CDK adds six retries in two minutes for faults of the Lambda service.

        Args:
            name: the name of the state.
            function: the function to invoke.
            waits: the maximum number of retries while Lambda cannot invoke the function yet.
            output_path: the part of the output that the next state gets.
            result_path: where the response is put into the input of the state; None: it replaces
                the input.
        """
        task = tasks.LambdaInvoke(
            self,
            name,
            lambda_function=function,
            output_path=output_path,
            result_path=result_path,
        )
        task.add_retry(errors=FINAL, max_attempts=0)
        task.add_retry(
            errors=NOT_YET,
            interval=cdk.Duration.seconds(5),
            max_attempts=waits,
            backoff_rate=1.1,
            max_delay=cdk.Duration.seconds(LONGEST_WAIT),
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
        return task
