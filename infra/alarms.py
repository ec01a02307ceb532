"""The alarms, each with a description of what to do."""

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
    from collections.abc import Mapping

    from aws_cdk import aws_sqs as sqs

    from infra.environment import Environment
    from infra.functions import Functions
    from infra.workflow import Workflow


# What to do about messages in a dead-letter queue, by the name of its alarm.
LETTERS = {
    "DeadLetters": "Archives could not be planned. Read the messages and the plan function's log, "
    "fix the cause, then move the messages back: aws sqs start-message-move-task with "
    "the stack's output DeadLettersArn.",
    "UndeliveredArchives": "EventBridge could not put events of archives into the queue: see the "
    "queue's policy. Then run s3unzip reconcile --start, which finds their archives, and purge the "
    "queue of the stack's output UndeliveredArchivesUrl.",
    "UndeliveredFailures": "EventBridge could not call the report function after a run failed, so "
    "nobody was told of that run. Each message of the stack's output UndeliveredFailuresUrl is an "
    "event: invoke the report function with it, then delete it.",
    "FailedReports": "The report function failed three times after a run failed, so nobody was "
    "told of that run. Read its log, fix the cause, and invoke the function again with the "
    "requestPayload of each message of the stack's output FailedReportsUrl.",
}


class Alarms(Construct):
    """The alarms `by_name`; with an e-mail address also a topic that notifies it."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        functions: Functions,
        workflow: Workflow,
        dead_letters: Mapping[str, sqs.IQueue],
    ) -> None:
        super().__init__(scope, "Alarms")
        self.by_name: dict[str, cloudwatch.Alarm] = {}
        self._stack_name = environment.stack.name
        self._topic = self._make_topic(environment.alarms.email)
        if self._topic is None:
            cdk.Annotations.of(self).add_warning_v2(
                "s3unzip:alarms.email",
                f"alarms of {environment.name} notify nobody: set alarms.email in "
                f"infra/environments/{environment.name}.toml",
            )
        measures = Measures(environment.name)
        self._watch_queues(dead_letters)
        self._watch_runs(workflow)
        self._watch_speed(measures, functions, environment)

    def _watch_queues(self, dead_letters: Mapping[str, sqs.IQueue]) -> None:
        for name, queue in dead_letters.items():
            waiting = queue.metric_approximate_number_of_messages_visible(
                statistic="Maximum", period=cdk.Duration.minutes(1)
            )
            self._alarm(name, waiting, advice=LETTERS[name])

    def _watch_runs(self, workflow: Workflow) -> None:
        self._alarm(
            "FailedRuns",
            workflow.state_machine.metric_failed(statistic="Sum"),
            advice="A run ended FAILED. Read reason and message in its report.json in the work "
            "bucket, fix the cause (a right, a key, a quota), then redrive the execution: only "
            "the tasks that failed run again.",
        )
        self._alarm(
            "TimedOutRuns",
            workflow.state_machine.metric_timed_out(statistic="Sum"),
            advice="A run took longer than its execution may. Look at its report.html for tasks "
            "that never ended, then redrive the execution.",
        )
        self._alarm(
            "AbortedRuns",
            workflow.state_machine.metric_aborted(statistic="Sum"),
            advice="Somebody stopped a run: by s3unzip abort, or in the console. If it was not "
            "meant, s3unzip resume goes on where it stopped.",
        )

    def _watch_speed(
        self, measures: Measures, functions: Functions, environment: Environment
    ) -> None:
        self._alarm(
            "PlanCrashed",
            functions.plan.metric_errors(statistic="Sum"),
            advice="The plan function was killed, by its memory or its time limit: a fault that it "
            "handles is no error here. Its message comes again by itself. If it lasts, raise "
            "functions.plan.memory or functions.plan.timeout, or lower tuning.max_direct_bytes.",
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
            "RunsWaitLong",
            measures.measure("WaitingAge", "Maximum"),
            above=environment.alarms.waiting_seconds,
            advice="A run has waited for workers longer than alarms.waiting_seconds. s3unzip runs "
            "says how many wait and who is at work. Nothing is lost. If it lasts, raise "
            "runs.concurrency with the account's quota, or lower runs.reserve.",
        )
        self._alarm(
            "S3Throttling",
            measures.measure("S3Throttles", "Sum"),
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

    def _alarm(self, name: str, metric: cloudwatch.IMetric, *, above: int = 0, advice: str) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._stack_name}-{name}",
            metric=metric,
            threshold=above,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=advice,
        )
        self.by_name[name] = alarm
        if self._topic is not None:
            alarm.add_alarm_action(actions.SnsAction(self._topic))
