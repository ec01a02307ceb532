"""Function `planner`: plans the run of an archive with a large directory, as a state of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws.environment import open_worker
from s3unzip.aws.intake.planner import plan_run
from s3unzip.aws.invocation import parse_field
from s3unzip.aws.telemetry import lambda_function
from s3unzip.model import Request

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Plan the run, or refuse it; the answer is what the states after this one read."""
    request = parse_field(event, "request", Request)
    return plan_run(parse_field(event, "run", str), request, open_worker().context(context))
