"""Function `plan`: a batch of S3 events; each archive is planned and its execution started."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from s3unzip.aws_lambda.budget import refuse_cost
from s3unzip.aws_lambda.environment import open_client, open_worker
from s3unzip.aws_lambda.events import announce, read_requests
from s3unzip.aws_lambda.executions import is_started, start_execution
from s3unzip.aws_lambda.lease import hold, retry_wait
from s3unzip.aws_lambda.refusals import note_refusal
from s3unzip.aws_lambda.telemetry import (
    follow,
    logger,
    publish,
    record_archive,
    record_plan,
)
from s3unzip.aws_lambda.tracing import trace
from s3unzip.errors import NotFoundError, SourceChangedError
from s3unzip.model import Report, run_id
from s3unzip.planning.archive import make_plan
from s3unzip.reporting.refusal import write_refusal
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from s3unzip.aws_lambda.lease import Lease
    from s3unzip.context import Context
    from s3unzip.model import Request


def plan_archive(request: Request, context: Context) -> None:
    """Plan what is there now, whatever the event said, and start its run."""
    worker = open_worker()
    try:
        pin = context.stores.source(request.source).head(request.source)
    except NotFoundError:
        logger.info("archive is gone", source=str(request.source))
        return
    run = run_id(request, pin)
    if is_started(open_client("stepfunctions"), worker, run):  # its plan must stay as it is
        logger.info("run is known", run=run)
        return
    try:
        plan = make_plan(request, context)
    except SourceChangedError:  # the newer one has an event of its own
        logger.info("archive changed while it was planned", source=str(request.source))
        return
    record_plan(plan, request)
    outcome = plan if isinstance(plan, Report) else refuse_cost(worker, plan, context) or plan
    if isinstance(outcome, Report):
        write_refusal(outcome, context)
        record_archive(outcome)
        note_refusal(worker, outcome, context)
        announce(open_client("events"), worker, outcome)
        return
    follow(outcome.run)
    started = start_execution(open_client("stepfunctions"), worker, outcome)
    logger.info("run started" if started else "run is known", tasks=outcome.tasks)


def handle_record(record: dict[str, Any], lambda_context: LambdaContext, lease: Lease) -> bool:
    """Plan what one message asks for, and return whether that is done.

    After a fault the message is made visible again, with a wait.
    """
    try:
        context = open_worker().context(lambda_context)
        for request in read_requests(record["body"], open_worker(), time.time()):
            plan_archive(request, context)
    except Exception as error:  # noqa: BLE001 - a message fails, not the batch
        attempts = int(record["attributes"]["ApproximateReceiveCount"])
        wait = retry_wait(attempts, error)
        logger.exception("plan failed", attempts=attempts, next_seconds=wait)
        lease.release(record["receiptHandle"], wait)
        return False
    return True


@logger.inject_lambda_context(clear_state=True)
@trace
@publish
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Take a batch of the queue; say which messages must come again.

    The answer is as the developer guide of Lambda has it ("Handling errors for an
    SQS event source in Lambda", ReportBatchItemFailures). A batch of one archive
    that failed is no error of the function: its message comes again.
    """
    records = event["Records"]
    receipts = [record["receiptHandle"] for record in records]
    with hold(partial(open_client, "sqs"), os.environ[Variable.QUEUE], receipts) as lease:
        failed = [one["messageId"] for one in records if not handle_record(one, context, lease)]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}
