"""From the archive's event to the plan function: rule, queue, dead-letter queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.queues import make_dead_letters
from infra.rights import allow
from s3unzip.settings import Variable, spellings

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_

    from infra.environment import Environment
    from infra.storage import Storage


class Intake(Construct):
    """The `queue` of archives to plan, and the queues of messages that need a person.

    `dead_letters` holds messages that could not be planned. The other two hold
    events that EventBridge could not deliver: of archives, and of failed runs.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        storage: Storage,
        plan: lambda_.Function,
    ) -> None:
        super().__init__(scope, "Intake")
        self.dead_letters = make_dead_letters(self, "DeadLetters")
        self.undelivered_archives = make_dead_letters(self, "UndeliveredArchives")
        self.undelivered_failures = make_dead_letters(self, "UndeliveredFailures")
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(4),
            # AWS recommends six times the function's timeout: docs.aws.amazon.com/lambda, with-sqs.
            # It applies until the function has the message; see s3unzip.aws.lease.
            visibility_timeout=cdk.Duration.seconds(6 * environment.functions.plan.timeout),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=environment.intake.attempts
            ),
        )
        for number, tenant in enumerate(environment.ingest.tenants or [""]):
            self._add_rule(f"ArchivePut{number or ''}", environment, storage, tenant)
        plan.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=environment.intake.batch,
                max_concurrency=environment.intake.concurrency,
                report_batch_item_failures=True,
            )
        )
        self.let_send(plan)  # the reminder that runs wait for workers, and copies of messages

    def _add_rule(self, name: str, environment: Environment, storage: Storage, tenant: str) -> None:
        """Queue the archives of a tenant, or all archives.

        The messages of one tenant are one message group, so the queue is fair between tenants: a
        tenant with many messages in flight holds up only itself (developer guide of SQS, "Amazon
        SQS fair queues"; SqsParameters in the API reference of EventBridge).
        """
        rule = events.Rule(
            self,
            name,
            description=f"An archive was put into the ingest bucket, below '{tenant}'"
            if tenant
            else "An archive was put into the ingest bucket",
            event_pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={
                    "bucket": {"name": [storage.ingest.bucket_name]},
                    "object": {"key": _patterns(environment, tenant)},
                },
            ),
            targets=[targets.SqsQueue(self.queue, dead_letter_queue=self.undelivered_archives)],
        )
        resource = rule.node.default_child
        if tenant and isinstance(resource, events.CfnRule):
            resource.add_property_override("Targets.0.SqsParameters.MessageGroupId", tenant)

    def let_send(self, function: lambda_.Function) -> None:
        """Let `function` put messages into the queue."""
        function.add_environment(Variable.QUEUE, self.queue.queue_url)
        function.add_to_role_policy(allow(["sqs:SendMessage"], self.queue.queue_arn))


def _patterns(environment: Environment, tenant: str = "") -> list[dict[str, str]]:
    """Return the patterns of keys that start a run.

    Each has prefix and suffix, because separate patterns would mean "or".
    """
    ingest = environment.ingest
    prefix = tenant or ingest.prefix
    return [{"wildcard": f"{prefix}*{suffix}"} for suffix in spellings(ingest.suffix)]
