"""The dead-letter queues: one for each sender, because each is emptied in another way.

SQS can move messages back (StartMessageMoveTask), but only those that came from another SQS queue
(API_StartMessageMoveTask).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from infra.reasons import acknowledge
from infra.rights import allow

if TYPE_CHECKING:
    from constructs import Construct

KEPT_DAYS = 14  # the maximum of SQS
REPORT_ATTEMPTS = 2  # retries; the maximum of Lambda


def make_dead_letters(scope: Construct, name: str) -> sqs.Queue:
    """Return an encrypted queue that keeps messages for 14 days."""
    queue = sqs.Queue(
        scope,
        name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=cdk.Duration.days(KEPT_DAYS),
    )
    acknowledge(queue, "AwsSolutions-SQS3", "This is a dead-letter queue.")
    return queue


def keep_failed_reports(scope: Construct, report: lambda_.Function) -> sqs.Queue:
    """Return the queue of events that `report` failed to handle three times.

    EventBridge invokes the function asynchronously, so the rule's own dead-letter queue gets only
    events that Lambda did not accept.
    """
    queue = make_dead_letters(scope, "FailedReports")
    lambda_.CfnEventInvokeConfig(
        scope,
        "ReportAttempts",
        function_name=report.function_name,
        qualifier="$LATEST",
        maximum_retry_attempts=REPORT_ATTEMPTS,
        maximum_event_age_in_seconds=6 * 3_600,
        destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
            on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=queue.queue_arn)
        ),
    ).node.add_dependency(report.role or report)
    report.add_to_role_policy(allow(["sqs:SendMessage"], queue.queue_arn))
    return queue
