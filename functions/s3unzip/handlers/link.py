"""Function `link`: fits the segments of huge members together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws_lambda.environment import open_worker, take
from s3unzip.aws_lambda.telemetry import follow, logger, tracer
from s3unzip.extraction.split.link import link_members
from s3unzip.model import Run

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context(clear_state=True)
@tracer.capture_lambda_handler(capture_response=False)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Link what the scans found; the uploads of split members are begun here."""
    run = take(event, "run", Run)
    follow(run)
    report = link_members(run, open_worker().context(context))
    logger.info("linked", **report._asdict())
    return {"run": run.id}
