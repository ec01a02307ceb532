"""Checks of the path from an archive to the planner: events, rules, queues, trigger."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s3unzip.operate.doctor.asking import ask
from s3unzip.operate.doctor.buckets import bucket_of
from s3unzip.operate.doctor.deployment import QUEUE, RULE
from s3unzip.operate.doctor.results import Answer
from s3unzip.operate.queue import read_depth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client

    from s3unzip.operate.doctor.deployment import Deployment


def check_events(deployment: Deployment) -> Answer:
    """Does the ingest bucket send its events to EventBridge?

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/enable-event-notifications-eventbridge.html
    """
    bucket = bucket_of(deployment, "ingest")
    s3: S3Client = deployment.client("s3")
    answer: Mapping[str, object] = ask(
        "s3:GetBucketNotification", partial(s3.get_bucket_notification_configuration, Bucket=bucket)
    )
    if "EventBridgeConfiguration" not in answer:  # present and empty if it is enabled
        return Answer.failure(
            f"{bucket} does not send events to EventBridge: no archive will start a run",
            "switch it on: the bucket's properties, Event notifications, Amazon EventBridge",
        )
    return Answer.ok(f"{bucket} sends its events to EventBridge")


def check_rules(deployment: Deployment) -> Answer:
    """Are the EventBridge rules of the stack enabled?"""
    client: EventBridgeClient = deployment.client("events")
    states = {
        name: ask("events:DescribeRule", partial(client.describe_rule, Name=name)).get("State")
        for name in deployment.names(RULE)
    }
    if not states:
        advice = "deploy the stack again"
        return Answer.failure("the stack has no EventBridge rule", advice)
    off = [name for name, state in states.items() if state != "ENABLED"]
    if off:
        return Answer.failure(
            f"{', '.join(off)}: not enabled, so its events go nowhere",
            f"aws events enable-rule --name {off[0]}",
        )
    return Answer.ok(f"{len(states)} EventBridge rules are enabled")


def check_trigger(deployment: Deployment) -> Answer:
    """Does the queue invoke the plan function?"""
    client: LambdaClient = deployment.client("lambda")
    function = deployment.stack.outputs["PlanFunction"]
    answer = ask(
        "lambda:ListEventSourceMappings",
        partial(client.list_event_source_mappings, FunctionName=function),
    )
    states = [one.get("State", "unknown") for one in answer["EventSourceMappings"]]
    if not states:
        advice = "deploy the stack again"
        return Answer.failure(f"no queue invokes {function}", advice)
    if states != ["Enabled"] * len(states):
        return Answer.failure(
            f"the queue's trigger of {function} is {', '.join(states)}",
            "enable it: the function's configuration, Triggers",
        )
    return Answer.ok(f"the queue invokes {function}")


def check_queue(deployment: Deployment) -> Answer:
    """Report how many archives wait to be planned."""
    visible, in_flight = _depth(deployment, deployment.stack.outputs["QueueUrl"])
    said = f"{visible:,} events wait, {in_flight:,} are being planned"
    return Answer.ok(said)


def check_dead_letters(deployment: Deployment) -> Answer:
    """Are all dead-letter queues of the stack (every queue except the intake) empty?"""
    intake = deployment.stack.outputs["QueueUrl"]
    queues = [url for url in deployment.names(QUEUE) if url != intake]
    if not queues:
        advice = "deploy the stack again: a failed event would be lost"
        return Answer.failure("the stack has no dead-letter queue", advice)
    depths = {url: sum(_depth(deployment, url)) for url in queues}
    full = [url for url, depth in depths.items() if depth]
    if full:
        return Answer.warning(
            f"{sum(depths.values()):,} messages are in {', '.join(_name(url) for url in full)}",
            "read the messages and the functions' logs, fix the cause, then move the messages "
            "back: docs/howto/alarms.md, DeadLetters",
        )
    return Answer.ok(f"none in {', '.join(_name(url) for url in queues)}")


def _depth(deployment: Deployment, url: str) -> tuple[int, int]:
    return ask("sqs:GetQueueAttributes", partial(read_depth, deployment.client("sqs"), url))


def _name(url: str) -> str:
    return url.rsplit("/", 1)[-1]
