"""Function `report`: settles a run, by a state of it or after its execution failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip import run_files
from s3unzip.aws_lambda.environment import open_client, open_worker, take
from s3unzip.aws_lambda.events import announce, queue_nested
from s3unzip.aws_lambda.telemetry import follow, logger, metrics, record_archive, tracer
from s3unzip.model import Run, decode
from s3unzip.reporting.nested import nested_requests
from s3unzip.reporting.retry import run_of
from s3unzip.reporting.settle import settle

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context(clear_state=True)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Settle the run; announce it unless tasks are left that the execution does once more."""
    worker = open_worker()
    step = worker.context(context)
    failure = event.get("detail")  # EventBridge: the execution failed, timed out or was aborted
    work = worker.stores.work(run_of(failure["name"])) if failure else None
    run = decode(work.read(run_files.RUN), Run) if work else take(event, "run", Run)
    follow(run)
    settled = settle(run, step)
    if work is not None:
        work.delete([run_files.STOP])  # or no task of a redrive would begin
    if work is not None or not settled.left:
        if worker.queue:
            requests = nested_requests(run, settled.report, step)
            count = queue_nested(open_client("sqs"), worker, requests)
            logger.info("nested archives", queued=count)
        record_archive(settled.report)
        announce(open_client("events"), worker, settled.report)
    return {"verdict": settled.report.verdict.value, "left": settled.left}
