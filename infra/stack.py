"""The complete stack of one environment."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.alarms import Alarms
from infra.dashboard import Dashboard, Watched
from infra.environment import Environment
from infra.functions import Functions
from infra.intake import Intake
from infra.storage import Storage
from infra.workflow import Workflow
from s3unzip.fingerprint import source_fingerprint
from s3unzip.version import __version__


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
        about = f"s3unzip: ZIP archives in S3 to objects in S3 ({environment.name})"
        keep = environment.stack.retain
        super().__init__(scope, name, env=env, description=about, termination_protection=keep)
        storage = Storage(self, environment=environment)
        functions = Functions(self, environment=environment, storage=storage, code=code)
        workflow = Workflow(self, environment=environment, storage=storage, functions=functions)
        intake = Intake(self, environment=environment, storage=storage, intake=functions.intake)
        workflow.settle_failures(functions.settle, intake.dead_letters["UndeliveredFailures"])
        intake.keep_failed_reports(functions.settle)
        alarms = Alarms(
            self,
            environment=environment,
            functions=functions,
            workflow=workflow,
            intake=intake,
        )
        watched = Watched(functions, workflow, intake, alarms)
        dashboard = Dashboard(self, environment=environment, watched=watched)
        for key, value in {
            "s3unzip:environment": environment.name,
            **environment.stack.tags,
        }.items():
            cdk.Tags.of(self).add(key, value)
        outputs = _outputs(environment, storage, watched) | {"DashboardUrl": dashboard.url}
        for key, value in outputs.items():
            cdk.CfnOutput(self, key, value=value)


def _outputs(environment: Environment, storage: Storage, watched: Watched) -> dict[str, str]:
    """Return the stack's outputs by name."""
    intake, functions = watched.intake, watched.functions
    outputs = {
        "IngestBucket": storage.ingest.bucket_name,
        "DestinationBucket": storage.destination.bucket_name,
        "WorkBucket": storage.work.bucket_name,
        "StateMachineArn": watched.workflow.state_machine.state_machine_arn,
        **{
            f"{name.capitalize()}Function": one.function_name
            for name, one in functions.by_name.items()
        },
        "QueueUrl": intake.queue.queue_url,
        "DeadLettersArn": intake.dead_letters["DeadLetters"].queue_arn,
        **{f"{name}Url": queue.queue_url for name, queue in intake.dead_letters.items()},
        # `s3unzip doctor` compares these with the bucket and with its own package.
        "IngestVersioned": str(environment.ingest.keeps_versions).lower(),
        "Version": __version__,
        "Fingerprint": source_fingerprint(),
    }
    if environment.work.prefix:
        outputs["WorkPrefix"] = environment.work.prefix
    if environment.destination.existing is not None:
        outputs["DestinationPolicy"] = functions.destination_policy
    return outputs
