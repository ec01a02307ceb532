"""The CDK application: one stack for one environment, checked by cdk-nag.

The context value ``env`` names the environment. A context value ``section.setting`` replaces a
setting of the environment's file. `infra.bundle` builds the asset, unless ``S3UNZIP_ASSET`` names a
folder with an asset. The context of cdk.json contains feature flags, which change the template: an
app without these flags would synthesize another template. This module does not call AWS.
"""

import json
import os
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_iam as iam, aws_lambda as lambda_
from aws_cdk.cx_api import CloudAssembly
from constructs import Construct

from infra.alarms import Alarms
from infra.best_practices import acknowledge_wildcards, check_best_practices
from infra.bundle import PACKAGE, ROOT, ensure_asset
from infra.dashboard import Dashboard
from infra.environment import Environment
from infra.environment_file import load_environment, select_settings
from infra.functions import Functions
from infra.intake import Intake
from infra.storage import Storage
from infra.workflow import Workflow
from s3unzip.settings import SERVICE
from s3unzip.version import __version__, source_fingerprint

# Context value of the CLI: the stacks whose assets are needed; empty for `ls` and `destroy`.
BUNDLING_STACKS = "aws:cdk:bundling-stacks"
# Names a folder with an asset. The embedded AWS needs one for this machine, not for Lambda's arm64.
ASSET_VARIABLE = "S3UNZIP_ASSET"


class Application(cdk.App):
    """An app that always has the context of cdk.json; values of the CLI override it.

    Args:
        outdir: the folder of the cloud assembly; None: ``CDK_OUTDIR``, which the CLI sets, or a
            folder that CDK chooses.
        linter: whether CDK's own linter checks the templates.
    """

    def __init__(self, outdir: Path | None = None, *, linter: bool = True) -> None:
        super().__init__(
            context=json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"],
            outdir=None if outdir is None else str(outdir),
            builtin_cloud_formation_validation=linter,
        )


def synthesize() -> CloudAssembly:
    """Write the cloud assembly of the environment that the context names."""
    app = Application()
    context = app.node.get_all_context()
    return build(app, load_environment(str(context.get("env")), settings=select_settings(context)))


def build(
    app: Application,
    environment: Environment,
    synthesizer: cdk.IStackSynthesizer | None = None,
) -> CloudAssembly:
    """Put the stack of `environment` into `app` and synthesize it.

    Args:
        app: the app.
        environment: the settings of the stack.
        synthesizer: decides where assets are stored; None: in the bucket of CDK's bootstrap.
    """
    stack = S3UnzipStack(
        app,
        environment.stack.name,
        environment=environment,
        code=_find_asset(app),
        synthesizer=synthesizer
        or cdk.DefaultStackSynthesizer(qualifier=environment.stack.qualifier),
        env=cdk.Environment(account=environment.stack.account, region=environment.stack.region),
    )
    acknowledge_wildcards(stack)
    check_best_practices(app)
    return app.synth()


def _find_asset(app: Application) -> lambda_.Code:
    folder = os.environ.get(ASSET_VARIABLE)
    if folder:
        return lambda_.Code.from_asset(folder)
    if app.node.try_get_context(BUNDLING_STACKS) == []:
        # `ls` and `destroy` do not read the asset: build nothing; any folder stands in for it.
        return lambda_.Code.from_asset(str(PACKAGE))
    return lambda_.Code.from_asset(str(ensure_asset()))


class S3UnzipStack(cdk.Stack):
    """The stack of one environment: buckets, queue, functions, state machine, alarms, dashboard."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        environment: Environment,
        code: lambda_.Code,
        synthesizer: cdk.IStackSynthesizer,
        env: cdk.Environment,
    ) -> None:
        super().__init__(
            scope,
            name,
            env=env,
            description=f"{SERVICE}: ZIP archives in S3 to objects in S3 ({environment.name})",
            termination_protection=environment.stack.retain,
            synthesizer=synthesizer,
        )
        boundary = environment.stack.permissions_boundary
        if boundary is not None:
            iam.PermissionsBoundary.of(self).apply(
                iam.ManagedPolicy.from_managed_policy_arn(self, "Boundary", boundary)
            )
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
        dashboard = Dashboard(
            self,
            environment=environment,
            functions=functions,
            workflow=workflow,
            intake=intake,
            alarms=alarms,
        )
        for key, value in {
            "s3unzip:environment": environment.name,
            **environment.stack.tags,
        }.items():
            cdk.Tags.of(self).add(key, value)
        for key, value in {
            **_outputs(
                environment, storage=storage, functions=functions, workflow=workflow, intake=intake
            ),
            "DashboardUrl": dashboard.url,
        }.items():
            cdk.CfnOutput(self, key, value=value)


def _outputs(
    environment: Environment,
    *,
    storage: Storage,
    functions: Functions,
    workflow: Workflow,
    intake: Intake,
) -> dict[str, str]:
    """Return the stack's outputs by name."""
    outputs = {
        "IngestBucket": storage.ingest.bucket_name,
        "IngestKeys": environment.archive_keys,
        "DestinationBucket": storage.destination.bucket_name,
        "WorkBucket": storage.work.bucket_name,
        "StateMachineArn": workflow.state_machine.state_machine_arn,
        **{
            f"{name.capitalize()}Function": function.function_name
            for name, function in functions.by_name.items()
        },
        "QueueUrl": intake.queue.queue_url,
        "DeadLettersArn": intake.dead_letters["DeadLetters"].queue_arn,
        **{f"{name}Url": queue.queue_url for name, queue in intake.dead_letters.items()},
        "Environment": environment.name,  # `make` refuses the stack of another environment
        # `s3unzip doctor` compares these outputs with its own package.
        "Version": __version__,
        "Fingerprint": source_fingerprint(),
    }
    optional = {
        f"{name.title()}Key": getattr(environment, name).kms_key or environment.kms_key
        for name in ("ingest", "destination", "work")
    }
    optional |= {
        "IngestTopic": environment.ingest.topic,
        "IngestPayer": "requester" if environment.ingest.request_payer else None,
        "WorkPrefix": environment.work.prefix,
    }
    if environment.destination.existing is not None:
        optional["DestinationPolicy"] = functions.destination_policy(environment.destination)
    for number, route in enumerate(environment.routes):
        if route.destination.existing not in {None, environment.destination.existing}:
            optional[f"Route{number}DestinationPolicy"] = functions.destination_policy(
                route.destination
            )
        optional[f"Route{number}DestinationKey"] = route.destination.kms_key or environment.kms_key
    return outputs | {name: value for name, value in optional.items() if value}
