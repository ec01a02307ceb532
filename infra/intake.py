"""The way from an archive's event to the intake function: a rule, a queue, dead-letter queues."""

import aws_cdk as cdk
from aws_cdk import (
    aws_events as events,
    aws_events_targets as targets,
    aws_lambda as lambda_,
    aws_lambda_event_sources as sources,
    aws_sns as sns,
    aws_sns_subscriptions as subscriptions,
    aws_sqs as sqs,
)
from constructs import Construct

from infra.best_practices import acknowledge
from infra.environment import Environment
from infra.rights import allow
from infra.routes import key_patterns
from infra.storage import Storage
from s3unzip.settings import Variable

RETENTION_PERIOD = cdk.Duration.days(14)  # the maximum of SQS
SETTLE_RETRIES = 2  # the maximum of Lambda


class Intake(Construct):
    """The `queue` of archives, and the `dead_letters`: queues of messages that need a person.

    Each sender has a dead-letter queue of its own, because each queue is emptied in another way.
    SQS can move messages back only if they came from an SQS queue (API_StartMessageMoveTask).
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        storage: Storage,
        intake: lambda_.Function,
    ) -> None:
        super().__init__(scope, "Intake")
        self._removal = storage.removal
        self.dead_letters = {
            name: self._make_dead_letters(name)
            for name in (
                "DeadLetters",
                "UndeliveredArchives",
                "UndeliveredFailures",
                "FailedReports",
            )
        }
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=RETENTION_PERIOD,  # an expired message does not become a dead letter
            # AWS recommends six times the function's timeout (docs.aws.amazon.com/lambda,
            # with-sqs). This timeout matters only if the function is killed: after a fault, the
            # function sets a shorter one.
            visibility_timeout=cdk.Duration.seconds(6 * environment.functions.intake.timeout),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters["DeadLetters"],
                max_receive_count=environment.intake.attempts,
            ),
        )
        events.Rule(
            self,
            "ArchivePut",
            description="An archive was put into the ingest bucket, or GuardDuty has scanned it",
            event_pattern=_event_pattern(environment, storage.ingest.bucket_name),
            targets=[
                targets.SqsQueue(
                    self.queue, dead_letter_queue=self.dead_letters["UndeliveredArchives"]
                )
            ],
        )
        if environment.ingest.topic is not None:
            sns.Topic.from_topic_arn(self, "Arrivals", environment.ingest.topic).add_subscription(
                subscriptions.SqsSubscription(self.queue)
            )
        intake.add_environment(Variable.QUEUE, self.queue.queue_url)
        intake.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=environment.intake.batch,
                # The concurrency is limited here: a message that is throttled because of reserved
                # concurrency counts as received (docs.aws.amazon.com/lambda, services-sqs-scaling).
                max_concurrency=environment.intake_concurrency,
                report_batch_item_failures=True,
            )
        )

    def keep_failed_reports(self, settle: lambda_.Function) -> None:
        """Keep the events of failed executions that `settle` could not handle in three attempts.

        EventBridge invokes the function asynchronously, so the rule's own dead-letter queue gets
        only events that Lambda did not accept.
        """
        queue = self.dead_letters["FailedReports"]
        # After the role: Lambda refuses a destination to which the function may not send.
        lambda_.CfnEventInvokeConfig(
            self,
            "SettleAttempts",
            function_name=settle.function_name,
            qualifier="$LATEST",
            maximum_retry_attempts=SETTLE_RETRIES,
            maximum_event_age_in_seconds=6 * 3_600,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(
                    destination=queue.queue_arn
                )
            ),
        ).node.add_dependency(settle.role or settle)
        settle.add_to_role_policy(allow(["sqs:SendMessage"], queue.queue_arn))

    def _make_dead_letters(self, name: str) -> sqs.Queue:
        queue = sqs.Queue(
            self,
            name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=RETENTION_PERIOD,
            removal_policy=self._removal,
        )
        acknowledge(queue, "AwsSolutions-SQS3", "This is a dead-letter queue.")
        return queue


def _event_pattern(environment: Environment, bucket: str) -> events.EventPattern:
    """Return the pattern of the events that start runs: S3's events, or GuardDuty's scan results.

    All results match, even bad ones, so that the pipeline can count the archives that it does not
    open. The format: docs.aws.amazon.com/guardduty, monitor-with-eventbridge-s3-malware-protection.
    """
    keys = key_patterns(environment.all_routes)
    if environment.ingest.scan is None:
        return events.EventPattern(
            source=["aws.s3"],
            detail_type=["Object Created"],
            detail={"bucket": {"name": [bucket]}, "object": {"key": keys}},
        )
    return events.EventPattern(
        source=["aws.guardduty"],
        detail_type=["GuardDuty Malware Protection Object Scan Result"],
        detail={"s3ObjectDetails": {"bucketName": [bucket], "objectKey": keys}},
    )
