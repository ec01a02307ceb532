"""The CDK application: one stack for one environment, checked by cdk-nag.

The context value ``env`` names the environment, and a context value ``section.setting`` replaces a
setting of the environment's file. `infra.bundle` builds the asset, unless ``S3UNZIP_ASSET`` names a
folder. The context of cdk.json includes feature flags, which change the template: an app without
them is not the app that is deployed. This module does not call AWS.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk.cx_api import CloudAssembly

from infra.bundle import PACKAGE, ensure_asset
from infra.environment import Environment, load_environment
from infra.overrides import select_settings
from infra.reasons import acknowledge_wildcards
from infra.stack import S3UnzipStack

# The CLI sets it: the list of stacks whose assets are needed, empty for `ls` and `destroy`.
BUNDLING_STACKS = "aws:cdk:bundling-stacks"
# A ready asset: the embedded AWS runs functions on this machine, not on Lambda's arm64.
ASSET_VARIABLE = "S3UNZIP_ASSET"
# `--no-validation` of the CLI sets it to "false". CDK then leaves its own linter out, and this
# module leaves cdk-nag out.
VALIDATION_VARIABLE = "CDK_VALIDATION"


class Application(cdk.App):
    """An app that always has the context of cdk.json; values of the CLI override it.

    `outdir` is the folder of the cloud assembly. None means ``CDK_OUTDIR``, which the CLI sets, or
    a folder that CDK chooses. Without `linter`, CDK's own linter does not check the templates.
    """

    def __init__(self, outdir: Path | None = None, *, linter: bool = True) -> None:
        super().__init__(
            context=read_context(),
            outdir=None if outdir is None else str(outdir),
            builtin_cloud_formation_validation=linter,
        )


def synthesize() -> CloudAssembly:
    """Write the cloud assembly of the environment that the context names."""
    app = Application()
    settings = select_settings(app.node.get_all_context())
    environment = load_environment(str(app.node.try_get_context("env")), settings=settings)
    return build(app, environment, _code(app))


def build(app: Application, environment: Environment, code: lambda_.Code) -> CloudAssembly:
    """Put the stack of `environment` into `app` and synthesize it."""
    stack = S3UnzipStack(
        app,
        environment.stack.name,
        environment=environment,
        code=code,
        env=cdk.Environment(account=environment.stack.account, region=environment.stack.region),
    )
    acknowledge_wildcards(stack)
    check_best_practices(app)
    return app.synth()


def _code(app: Application) -> lambda_.Code:
    ready = os.environ.get(ASSET_VARIABLE)
    if ready:
        return lambda_.Code.from_asset(ready)
    if app.node.try_get_context(BUNDLING_STACKS) == []:
        # The command reads no asset: use the bare package and build nothing.
        return lambda_.Code.from_asset(str(PACKAGE))
    return lambda_.Code.from_asset(str(ensure_asset()))


def check_best_practices(app: cdk.App) -> None:
    """Let the synthesis of `app` fail if cdk-nag finds anything that no reason accepts."""
    if os.environ.get(VALIDATION_VARIABLE) == "false":
        return
    # cdk-nag is a development dependency: a deployment with the infra group only runs without it.
    try:
        from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415 - it may not be there
    except ModuleNotFoundError:
        return
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True))


FILE = Path(__file__).resolve().parent.parent / "cdk.json"


def read_context(file: Path = FILE) -> dict[str, Any]:
    """Return the table ``context`` of `file`: feature flags and the default environment."""
    context: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["context"]
    return context
