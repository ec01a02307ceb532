"""Function `extract`: one task of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws_lambda.environment import open_worker
from s3unzip.aws_lambda.invocation import child_end, parse_field
from s3unzip.aws_lambda.telemetry import bind_run, logger, publish, record_task
from s3unzip.aws_lambda.tracing import trace
from s3unzip.extraction.task import run_task
from s3unzip.model import Run, Task

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context(clear_state=True)
@trace
@publish
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Do the task and write its outcomes; raise what the state machine should retry."""
    run, task = parse_field(event, "run", Run), parse_field(event, "task", Task)
    bind_run(run)
    report = run_task(run, task, open_worker().context(context, child_end(event)))
    record_task(report)
    return {"task": report.task, "failed": report.failed, "unfinished": report.unfinished}
