"""Function `scan`: one segment of a huge deflated member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws_lambda.environment import open_worker
from s3unzip.aws_lambda.invocation import child_end, parse_field
from s3unzip.aws_lambda.telemetry import bind_run, logger, publish, record_scan
from s3unzip.aws_lambda.tracing import trace
from s3unzip.extraction.split.scan import run_scan
from s3unzip.model import Run, ScanTask

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context(clear_state=True)
@trace
@publish
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Scan the segment; its result goes to the work bucket."""
    run, scan = parse_field(event, "run", Run), parse_field(event, "scan", ScanTask)
    bind_run(run)
    report = run_scan(run, scan, open_worker().context(context, child_end(event)))
    record_scan(report)
    return {"scan": report.scan, "found": report.found}
