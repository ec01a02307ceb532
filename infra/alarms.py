"""What wakes somebody, each with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.measures import Measures

if TYPE_CHECKING:
    from infra.environment import Environment
    from infra.functions import Functions
    from infra.intake import Intake
    from infra.workflow import Workflow


class Alarms(Construct):
    """The alarms; with an e-mail address, a topic that tells it."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        functions: Functions,
        workflow: Workflow,
        intake: Intake,
    ) -> None:
        super().__init__(scope, "Alarms")
        self._topic = self._make_topic(environment.alarms.email)
        measures = Measures(environment.name)
        self._alarm(
            "DeadLetters",
            intake.dead_letters.metric_approximate_number_of_messages_visible(
                statistic="Maximum", period=cdk.Duration.minutes(1)
            ),
            above=0,
            advice="Archives could not be planned, or a failed run could not be reported. Read the "
            "messages and the plan function's log, mend the cause, then start the queue's redrive.",
        )
        self._alarm(
            "FailedRuns",
            workflow.state_machine.metric_failed(statistic="Sum"),
            above=0,
            advice="A run ended FAILED. Read reason and message in its report.json in the work "
            "bucket, mend the cause (a right, a key, a quota), then redrive the execution: only "
            "the tasks that failed run again.",
        )
        self._alarm(
            "TimedOutRuns",
            workflow.state_machine.metric_timed_out(statistic="Sum"),
            above=0,
            advice="A run took longer than its execution may. Look at its report.html for tasks "
            "that never ended, then redrive the execution.",
        )
        self._alarm(
            "SlowArchives",
            measures.measure("ArchiveDuration", "p95"),
            above=environment.alarms.archive_p95_seconds,
            advice="One archive in twenty takes longer than alarms.archive_p95_seconds. Compare "
            "QueueDelay, PlanDuration and TaskDuration on the dashboard: a queue that waits wants "
            "intake.concurrency, tasks that wait want runs.max_workers or less throttling.",
        )
        self._alarm(
            "S3Throttling",
            measures.measure("PutThrottles", "Sum"),
            above=environment.alarms.throttles,
            advice="The destination asks to slow down more often than alarms.throttles. S3 grows "
            "partitions within minutes; if it lasts, spread keys over prefixes with the key "
            "template or lower runs.max_workers.",
        )
        self._alarm(
            "ExtractThrottled",
            functions.extract.metric_throttles(),
            above=100,
            advice="Lambda refuses invocations of extract: the account's or the function's "
            "concurrency is used up. Runs go on, slower. Lower runs.max_workers or ask for a "
            "higher quota.",
        )

    def _make_topic(self, email: str | None) -> sns.Topic | None:
        if email is None:
            return None
        topic = sns.Topic(self, "Topic", enforce_ssl=True)
        topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _alarm(self, name: str, metric: cloudwatch.IMetric, *, above: int, advice: str) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=above,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=advice,
        )
        if self._topic is not None:
            alarm.add_alarm_action(actions.SnsAction(self._topic))
