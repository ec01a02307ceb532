"""The CDK application: one stack for one environment, checked by cdk-nag.

The environment is the context value ``env``, the asset the folder ``bundle``
(default: what ``python -m infra.bundle`` builds). Nothing here calls AWS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_

from infra.bundle import BUILT
from infra.environment import load_environment
from infra.reasons import acknowledge_wildcards
from infra.stack import S3UnzipStack

if TYPE_CHECKING:
    from aws_cdk.cx_api import CloudAssembly

    from infra.environment import Environment


def synthesize() -> CloudAssembly:
    """Write the cloud assembly to ``CDK_OUTDIR`` or a folder of CDK's choice.

    Raises:
        EnvironmentFileError: the environment is unknown, or a setting is wrong or missing.
    """
    app = cdk.App()
    environment = load_environment(str(app.node.try_get_context("env") or "dev"))
    bundle = str(app.node.try_get_context("bundle") or BUILT)
    return build(app, environment, lambda_.Code.from_asset(bundle))


def build(app: cdk.App, environment: Environment, code: lambda_.Code) -> CloudAssembly:
    """Put the stack of `environment` into `app` and synthesize it."""
    stack = S3UnzipStack(
        app,
        environment.stack.name,
        environment=environment,
        code=code,
        env=cdk.Environment(account=environment.stack.account, region=environment.stack.region),
    )
    acknowledge_wildcards(stack)
    _check_best_practices(app)
    return app.synth()


def _check_best_practices(app: cdk.App) -> None:
    # cdk-nag is a tool of development: a deployment from the infra group alone goes without.
    try:
        from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415 - it may not be there
    except ModuleNotFoundError:
        return
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True))
