"""Function `plan`: a batch of S3 events; each archive is planned and its execution started."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

from s3unzip.aws_lambda.budget import refuse_cost
from s3unzip.aws_lambda.environment import open_client, open_worker
from s3unzip.aws_lambda.events import announce, read_requests
from s3unzip.aws_lambda.executions import start_execution
from s3unzip.aws_lambda.refusals import note_refusal
from s3unzip.aws_lambda.telemetry import (
    follow,
    logger,
    metrics,
    record_archive,
    record_plan,
    tracer,
)
from s3unzip.errors import NotFoundError, SourceChangedError
from s3unzip.model import Report
from s3unzip.planning.archive import make_plan
from s3unzip.reporting.refusal import write_refusal

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from s3unzip.context import Context
    from s3unzip.model import Request

PROCESSOR = BatchProcessor(event_type=EventType.SQS)


def plan_archive(request: Request, context: Context) -> None:
    """Plan what is there now, whatever the event said, and start its run."""
    worker = open_worker()
    try:
        context.stores.source(request.source).head(request.source)
    except NotFoundError:
        logger.info("archive is gone", source=str(request.source))
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


def handle_record(record: SQSRecord, lambda_context: LambdaContext) -> None:
    """Plan what one message asks for."""
    context = open_worker().context(lambda_context)
    for request in read_requests(record.body, open_worker(), time.time()):
        plan_archive(request, context)


@logger.inject_lambda_context(clear_state=True)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    """Take a batch of the queue; say which messages must come again."""
    return process_partial_response(
        event=event, record_handler=handle_record, processor=PROCESSOR, context=context
    )
