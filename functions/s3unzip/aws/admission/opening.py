"""The door of the environment that a function belongs to, and its reminders."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from s3unzip.aws.admission.door import Door
from s3unzip.aws.admission.ledger import FOLDER
from s3unzip.aws.environment import open_client, open_worker

if TYPE_CHECKING:
    from s3unzip.aws.environment import LambdaConfig
    from s3unzip.context import Context

REMINDER = json.dumps({"s3unzip-waiting": True})  # a message from s3unzip itself: runs wait
REMINDER_SECONDS = 300  # SQS delays a message by at most 900


def open_door(context: Context, machine: str = "") -> Door:
    """Return the door of this function's environment.

    Args:
        context: of the invocation.
        machine: ARN of the state machine; the plan function knows it by itself.
    """
    config = open_worker()
    return Door(
        store=config.stores.run_store(FOLDER, context.calls()),
        states=open_client("stepfunctions"),
        machine=machine or config.state_machine,
        workers=config.workers,
        clock=context.clock,
        remind=partial(_remind, config),
    )


def _remind(config: LambdaConfig) -> None:
    open_client("sqs").send_message(
        QueueUrl=config.queue, MessageBody=REMINDER, DelaySeconds=REMINDER_SECONDS
    )
