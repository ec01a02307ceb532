"""The complete stack of one environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk

from infra.alarms import Alarms
from infra.dashboard import Dashboard, Watched
from infra.functions import Functions
from infra.intake import Intake
from infra.queues import keep_failed_reports
from infra.storage import Storage
from infra.workflow import Workflow
from s3unzip.fingerprint import package_version, source_fingerprint

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_
    from constructs import Construct

    from infra.environment import Environment


class S3UnzipStack(cdk.Stack):
    """Buckets, queue, functions, state machine, alarms, dashboard; built from values only."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        environment: Environment,
        code: lambda_.Code,
        env: cdk.Environment,
    ) -> None:
        super().__init__(
            scope,
            name,
            env=env,
            description=f"s3unzip: ZIP archives in S3 to objects in S3 ({environment.name})",
            termination_protection=environment.stack.retain,
        )
        storage = Storage(self, environment=environment)
        functions = Functions(self, environment=environment, storage=storage, code=code)
        workflow = Workflow(self, environment=environment, storage=storage, functions=functions)
        intake = Intake(self, environment=environment, storage=storage, plan=functions.plan)
        workflow.report_failures(functions, intake)
        intake.let_send(functions.report)  # archives that a run extracted, or that replaced its own
        dead_letters = {
            "DeadLetters": intake.dead_letters,
            "UndeliveredArchives": intake.undelivered_archives,
            "UndeliveredFailures": intake.undelivered_failures,
            "FailedReports": keep_failed_reports(intake, functions.report),
        }
        alarms = Alarms(
            self,
            environment=environment,
            functions=functions,
            workflow=workflow,
            dead_letters=dead_letters,
        )
        watched = Watched(functions, workflow, intake, alarms, dead_letters)
        dashboard = Dashboard(self, environment=environment, watched=watched)
        for key, value in {
            "s3unzip:environment": environment.name,
            **environment.stack.tags,
        }.items():
            cdk.Tags.of(self).add(key, value)
        outputs = _outputs(environment, storage, watched) | {"DashboardName": dashboard.name}
        for key, value in outputs.items():
            cdk.CfnOutput(self, key, value=value)


def _outputs(environment: Environment, storage: Storage, watched: Watched) -> dict[str, str]:
    """Return the stack's outputs by name."""
    intake, functions = watched.intake, watched.functions
    versioned = environment.ingest.existing is None or environment.ingest.versioned
    outputs = {
        "IngestBucket": storage.ingest.bucket_name,
        "DestinationBucket": storage.destination.bucket_name,
        "WorkBucket": storage.work.bucket_name,
        "StateMachineArn": watched.workflow.state_machine.state_machine_arn,
        "PlanFunction": functions.plan.function_name,
        "QueueUrl": intake.queue.queue_url,
        "DeadLettersArn": intake.dead_letters.queue_arn,
        **{f"{name}Url": queue.queue_url for name, queue in watched.dead_letters.items()},
        "PlannerFunction": functions.planner.function_name,
        "ReportFunction": functions.report.function_name,
        # `s3unzip doctor` compares these with the bucket and with its own package.
        "IngestVersioned": str(versioned).lower(),
        "Version": package_version(),
        "Fingerprint": source_fingerprint(),
    }
    if environment.work.prefix:
        outputs["WorkPrefix"] = environment.work.prefix
    return outputs
