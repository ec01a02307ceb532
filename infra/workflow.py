"""The state machine of the runs, its rights, and the rule that reports failed executions.

Its states are in `infra.definition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.definition import Definition
from infra.maps import LINES
from infra.rights import allow
from s3unzip import run_files
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from infra.environment import Environment
    from infra.functions import Functions
    from infra.intake import Intake
    from infra.storage import Storage

RUN_DAYS = 7  # maximum of a run; a Standard workflow may take a year


class Workflow(Construct):
    """The `state_machine`, and the rule that reports failed executions."""

    def __init__(
        self, scope: Construct, *, environment: Environment, storage: Storage, functions: Functions
    ) -> None:
        super().__init__(scope, "Workflow")
        linked = storage.work.arn_for_objects(
            f"{environment.work.prefix}runs/*/{run_files.LINK_COST}"
        )
        self.state_machine = sfn.StateMachine(
            self,
            "Runs",
            comment="One extraction of one archive; its name is the run's id",
            definition_body=sfn.DefinitionBody.from_chainable(
                Definition(self, environment, functions, linked).start
            ),
            state_machine_type=sfn.StateMachineType.STANDARD,
            timeout=cdk.Duration.days(RUN_DAYS),
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "Logs",
                    # Only log groups below this prefix do not count towards the resource policy's
                    # 5,120 characters.
                    log_group_name=f"/aws/vendedlogs/states/{environment.stack.name}",
                    retention=logs.RetentionDays.ONE_MONTH,
                    removal_policy=cdk.RemovalPolicy.DESTROY,
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=False,
            ),
        )
        self._allow_work(environment, storage)
        functions.plan.add_environment(Variable.STATE_MACHINE, self.state_machine.state_machine_arn)
        self._allow_admission(functions)

    def report_failures(self, functions: Functions, intake: Intake) -> None:
        """Let the report function settle every execution that failed or was stopped."""
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
                    dead_letter_queue=intake.undelivered_failures,
                    retry_attempts=10,
                    max_event_age=cdk.Duration.hours(6),
                )
            ],
        )

    def _allow_admission(self, functions: Functions) -> None:
        """Let plan and report start executions, and change the concurrency of their Map Runs.

        A policy of its own, not the default policy of the role: the state machine calls the report
        function, which depends on that one.
        """
        iam.Policy(
            self,
            "Admission",
            roles=[role for role in (functions.plan.role, functions.report.role) if role],
            statements=[
                allow(["states:StartExecution"], self.state_machine.state_machine_arn),
                allow(
                    ["states:DescribeExecution", "states:ListMapRuns"], self._arn("execution", ":*")
                ),
                allow(["states:UpdateMapRun"], self._arn("mapRun", "/*")),
            ],
        )

    def _arn(self, resource: str, ending: str) -> str:
        """Return the ARN of resources of the state machine, which begins with its name."""
        return cdk.Stack.of(self).format_arn(
            service="states",
            resource=resource,
            resource_name=f"{self.state_machine.state_machine_name}{ending}",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )

    def _allow_work(self, environment: Environment, storage: Storage) -> None:
        """Allow the Maps to read their items and to write their results."""
        runs = f"{environment.work.prefix}runs/*"
        lines = [storage.work.arn_for_objects(f"{runs}/{name}.jsonl") for name in LINES]
        results = storage.work.arn_for_objects(f"{runs}/{run_files.MAPS}/*")
        statements = [
            allow(["s3:GetObject"], *lines),
            # The developer guide of Step Functions, "IAM policies for using Distributed Map
            # states", requires all four.
            allow(
                [
                    "s3:GetObject",
                    "s3:PutObject",
                    "s3:ListMultipartUploadParts",
                    "s3:AbortMultipartUpload",
                ],
                results,
            ),
        ]
        if environment.kms_key is not None:
            statements.append(allow(["kms:Decrypt", "kms:GenerateDataKey"], environment.kms_key))
        for statement in statements:
            self.state_machine.add_to_role_policy(statement)
