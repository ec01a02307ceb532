"""Checks of alarms: does each notify somebody, and is one of them in ALARM?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s3unzip.operate.doctor.asking import ask
from s3unzip.operate.doctor.deployment import ALARM
from s3unzip.operate.doctor.results import Answer

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricAlarmTypeDef
    from mypy_boto3_sns import SNSClient

    from s3unzip.operate.doctor.deployment import Deployment

MAX_NAMES = 100  # limit of one DescribeAlarms
SET_EMAIL = "set alarms.email in the environment's file and deploy, or add your own action"


def check_alarms(deployment: Deployment) -> Answer:
    """Has every alarm of the stack an action, and is none in ALARM?"""
    alarms = _read_alarms(deployment)
    if not alarms:
        return Answer.warning("the stack has no alarms", "deploy the stack again")
    silent = [
        one["AlarmName"]
        for one in alarms
        if not one.get("AlarmActions") or not one.get("ActionsEnabled", True)
    ]
    if silent:
        whose = "no alarm tells" if len(silent) == len(alarms) else f"{', '.join(silent)}: tells no"
        message = f"{whose} anybody: {len(silent)} of {len(alarms)} have no action"
        return Answer.warning(message, SET_EMAIL)
    on = [one["AlarmName"] for one in alarms if one.get("StateValue") == "ALARM"]
    if on:
        return Answer.warning(
            f"in ALARM: {', '.join(on)}", "docs/howto/alarms.md says what to do for each"
        )
    return Answer.ok(f"{len(alarms)} alarms, each with an action, none in ALARM")


def check_subscriptions(deployment: Deployment) -> Answer:
    """Has somebody confirmed a subscription to each topic that the alarms publish to?

    https://docs.aws.amazon.com/sns/latest/dg/SendMessageToHttp.confirm.html: until then nothing
    is delivered, and after two days the subscription is gone.
    """
    client: SNSClient = deployment.client("sns")
    topics = sorted(
        {
            action
            for one in _read_alarms(deployment)
            for action in one.get("AlarmActions", ())
            if ":sns:" in action
        }
    )
    if not topics:
        return Answer.warning("the alarms publish to no topic", SET_EMAIL)
    for topic in topics:
        call = partial(client.list_subscriptions_by_topic, TopicArn=topic)
        found = ask("sns:ListSubscriptionsByTopic", call)["Subscriptions"]
        if not any(one["SubscriptionArn"].startswith("arn:") for one in found):
            waiting = "has a subscription that is not confirmed" if found else "has no subscription"
            return Answer.warning(
                f"{topic} {waiting}: nobody is notified",
                "follow the link in the message of AWS Notifications, or subscribe again",
            )
    return Answer.ok(f"confirmed for {', '.join(topics)}")


def _read_alarms(deployment: Deployment) -> list[MetricAlarmTypeDef]:
    client: CloudWatchClient = deployment.client("cloudwatch")
    names = deployment.names(ALARM)[:MAX_NAMES]
    if not names:
        return []
    call = partial(client.describe_alarms, AlarmNames=names, MaxRecords=MAX_NAMES)
    return ask("cloudwatch:DescribeAlarms", call)["MetricAlarms"]
