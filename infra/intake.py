"""From the archive's event to the plan function: rule, queue, dead-letter queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.reasons import acknowledge
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_

    from infra.environment import Environment
    from infra.storage import Storage


class Intake(Construct):
    """The `queue` of archives to plan, and the `dead_letters` that need a person."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        storage: Storage,
        plan: lambda_.Function,
    ) -> None:
        super().__init__(scope, "Intake")
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),
        )
        acknowledge(self.dead_letters, "AwsSolutions-SQS3", "This is the dead-letter queue.")
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(4),
            # AWS asks for six times the function's timeout: docs.aws.amazon.com/lambda, with-sqs.
            visibility_timeout=cdk.Duration.seconds(6 * environment.functions.plan.timeout),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=environment.intake.attempts
            ),
        )
        self.rule = events.Rule(
            self,
            "ArchivePut",
            description="An archive was put into the ingest bucket",
            event_pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={
                    "bucket": {"name": [storage.ingest.bucket_name]},
                    "object": {"key": [{"wildcard": _wildcard(environment)}]},
                },
            ),
            targets=[targets.SqsQueue(self.queue, dead_letter_queue=self.dead_letters)],
        )
        plan.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=environment.intake.batch,
                max_concurrency=environment.intake.concurrency,
                report_batch_item_failures=True,
            )
        )

    def take_nested(self, report: lambda_.Function) -> None:
        """Let `report` queue the archives that a run extracted."""
        report.add_environment(Variable.QUEUE, self.queue.queue_url)
        report.add_to_role_policy(
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.queue.queue_arn])
        )


def _wildcard(environment: Environment) -> str:
    """Return the pattern of keys that start a run; a prefix and a suffix apart would mean "or"."""
    return f"{environment.ingest.prefix}*{environment.ingest.suffix}"
