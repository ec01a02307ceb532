"""Function `plan`: a batch of S3 events; each archive is extracted here, or its run is started."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from s3unzip.aws.admission.opening import REMINDER, open_door
from s3unzip.aws.environment import open_client, open_worker
from s3unzip.aws.events import read_requests
from s3unzip.aws.intake.archive import take_archive
from s3unzip.aws.intake.messages import is_replaced, read_message
from s3unzip.aws.lease import hold, retry_wait
from s3unzip.aws.telemetry import lambda_function, logger
from s3unzip.clients import preload
from s3unzip.errors import ClaimedError
from s3unzip.estimate import one_function
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from s3unzip.aws.lease import Lease

preload()


def handle_record(record: dict[str, Any], lambda_context: LambdaContext, lease: Lease) -> bool:
    """Do the request of one message; return whether it succeeded.

    After a fault the message is made visible again, with a wait.
    """
    message = read_message(record)
    try:
        config = open_worker()
        context = config.context(lambda_context)
        if message.body == REMINDER:
            open_door(context).look()
            return True
        requests = list(read_requests(message.body, config, time.time()))
        may_be_held = bool(requests) and config.tuning.max_direct_members > 0
        if may_be_held and is_replaced(message, open_client("sqs"), config.queue):
            return True
        function = one_function(int(lambda_context.memory_limit_in_mb))
        for request in requests:
            take_archive(request, message, context, function)
    except Exception as error:  # noqa: BLE001 - a message fails, not the batch
        wait = retry_wait(message.attempts, error)
        if isinstance(error, ClaimedError):
            logger.info("run is held", attempts=message.attempts, next_seconds=wait)
        else:
            logger.exception("plan failed", attempts=message.attempts, next_seconds=wait)
        lease.release(record["receiptHandle"], wait)
        return False
    return True


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Process a batch of the queue; return the messages that must be delivered again.

    The response has the form of the developer guide of Lambda ("Handling errors for an
    SQS event source in Lambda", ReportBatchItemFailures). A failed archive is not an error of the
    function: its message is delivered again.
    """
    records = event["Records"]
    receipts = [record["receiptHandle"] for record in records]
    with hold(partial(open_client, "sqs"), os.environ[Variable.QUEUE], receipts) as lease:
        failed = [one["messageId"] for one in records if not handle_record(one, context, lease)]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}
