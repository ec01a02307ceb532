"""The pipeline's own metrics, and the alarms, each with a description of what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import (
    aws_cloudwatch as cloudwatch,
    aws_cloudwatch_actions as actions,
    aws_iam as iam,
    aws_sns as sns,
    aws_sns_subscriptions as subscriptions,
    aws_sqs as sqs,
)
from constructs import Construct

from infra.environment import Environment
from infra.functions import Functions
from infra.intake import Intake
from infra.sections import AlarmsSection, ChosenAlarm
from infra.workflow import Workflow
from s3unzip.settings import NAMESPACE, SERVICE

PERIOD = cdk.Duration.minutes(5)
HOUR = 12  # in periods
POINTS = {"p50": "p50", "p95": "p95", "max": "Maximum"}  # label: statistic


@dataclass(frozen=True, slots=True)
class Measures:
    """Metrics of one environment."""

    environment: str

    def measure(self, name: str, statistic: str, label: str | None = None) -> cloudwatch.Metric:
        """Return the pipeline's own metric `name`."""
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": SERVICE, "environment": self.environment},
            statistic=statistic,
            period=PERIOD,
            label=label,  # a label would make an alarm use metric math
        )

    def spread(self, name: str) -> list[cloudwatch.IMetric]:
        """Return p50, p95 and the maximum of a duration."""
        return [self.measure(name, statistic, label) for label, statistic in POINTS.items()]

    def rate(self, name: str, label: str) -> cloudwatch.IMetric:
        """Return the sum of `name` a second."""
        return cloudwatch.MathExpression(
            expression=f"{name.lower()} / PERIOD({name.lower()})",
            using_metrics={name.lower(): self.measure(name, "Sum")},
            period=PERIOD,
            label=label,
        )


# What to do about messages in a dead-letter queue, by the name of its alarm.
LETTERS = {
    "DeadLetters": "Archives could not be taken. Read the messages and the intake function's log, "
    "fix the cause, then move the messages back: aws sqs start-message-move-task with "
    "the stack's output DeadLettersArn.",
    "UndeliveredArchives": "EventBridge could not put events of archives into the queue: see the "
    "queue's policy. Then run s3unzip submit --missing, which finds their archives, and purge the "
    "queue of the stack's output UndeliveredArchivesUrl.",
    "UndeliveredFailures": "EventBridge could not call the settle function after a run failed, so "
    "nobody was told of that run. Each message of the stack's output UndeliveredFailuresUrl is an "
    "event: invoke the settle function with it, then delete it.",
    "FailedReports": "The settle function failed three times after a run failed, so nobody was "
    "told of that run. Read its log, fix the cause, and invoke the function again with the "
    "requestPayload of each message of the stack's output FailedReportsUrl.",
}
# What to do about an alarm that `alarms.also` names.
CHOSEN = {
    "AbortedRuns": "Only with alarms.also. Somebody stopped a run: by s3unzip abort, or in the "
    "console. If it was not meant, s3unzip resume goes on where it stopped.",
    "RejectedArchives": "Only with alarms.also. An archive is broken, ambiguous or above a limit, "
    "and nothing of it was written. Read the check in its report.json, and ask its sender for "
    "another one; a limit or an option is a setting.",
    "SourcesNotFinished": "Only with alarms.also. An archive was extracted, and not deleted or "
    "tagged after it. Read source in the settle function's log, or in that of intake for a small "
    "archive, mend the right, then s3unzip submit --missing.",
}


class Alarms(Construct):
    """The alarms `by_name`, and who is notified."""

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
        self.by_name: dict[str, cloudwatch.Alarm] = {}
        self._advice: dict[str, str] = {}
        self._stack_name = environment.stack.name
        self._actions = [actions.SnsAction(topic) for topic in self._topics(environment.alarms)]
        if not self._actions:
            cdk.Annotations.of(self).add_warning_v2(
                "s3unzip:alarms.email",
                f"alarms of {environment.name} notify nobody: set alarms.email or alarms.topic in "
                f"infra/environments/{environment.name}.toml",
            )
        measures = Measures(environment.name)
        self._watch_queues(intake.dead_letters)
        self._watch_intake(functions, intake, environment)
        self._watch_runs(measures, workflow)
        if environment.ingest.scan is not None:
            self._watch_scans(measures)
        self._watch_speed(measures, functions, environment)
        self._watch_chosen(measures, workflow, environment.alarms.also)

    @property
    def runbook(self) -> str:
        """What to do about each alarm, in Markdown, with a link to it that works in any Region."""
        rows = (
            f"| [{name}](#alarmsV2:alarm/{alarm.alarm_name}) | {self._advice[name]} |"
            for name, alarm in self.by_name.items()
        )
        head = "An alarm is red: find its row. Every step in full: docs/howto/dashboard.md."
        return "\n".join(["## What to do", head, "", "| alarm | do |", "| --- | --- |", *rows])

    def _watch_queues(self, dead_letters: Mapping[str, sqs.IQueue]) -> None:
        for name, queue in dead_letters.items():
            waiting = queue.metric_approximate_number_of_messages_visible(
                statistic="Maximum", period=cdk.Duration.minutes(1)
            )
            self._alarm(name, waiting, advice=LETTERS[name])

    def _watch_intake(self, functions: Functions, intake: Intake, environment: Environment) -> None:
        self._alarm(
            "ArchivesWait",
            intake.queue.metric_approximate_age_of_oldest_message(statistic="Maximum"),
            above=environment.alarms.waiting_seconds,
            periods=3,
            advice="An archive has waited in the queue longer than alarms.waiting_seconds. Read "
            "the intake function's log; it may be throttled, or switched off. Messages are kept "
            "for 14 days, then they are lost without a dead letter.",
        )
        self._alarm(
            "IntakeThrottled",
            functions.intake.metric_throttles(statistic="Sum"),
            periods=3,
            advice="Lambda refuses invocations of intake: archives wait. Raise "
            "functions.intake.reserved_concurrency, or the account's quota.",
        )

    def _watch_runs(self, measures: Measures, workflow: Workflow) -> None:
        self._alarm(
            "FailedRuns",
            measures.measure("ArchivesFailed", "Sum"),
            advice="A run ended FAILED. Read reason and message in its report.json in the work "
            "bucket, fix the cause (a right, a key, a quota), then s3unzip resume: only what is "
            "left is done.",
        )
        self._alarm(
            "FailedExecutions",
            workflow.state_machine.metric_failed(statistic="Sum"),
            advice="An execution failed, so a function failed for good or the state machine did. "
            "Its run has a FAILED report soon, with the cause; without one read the execution's "
            "history, then s3unzip resume.",
        )
        self._alarm(
            "TimedOutRuns",
            workflow.state_machine.metric_timed_out(statistic="Sum"),
            advice="A run took longer than its execution may. Look at its report.html for tasks "
            "that never ended, then s3unzip resume.",
        )

    def _watch_chosen(
        self, measures: Measures, workflow: Workflow, chosen: Sequence[ChosenAlarm]
    ) -> None:
        """Add the alarms that only some environments want: about a person's actions or archives."""
        metrics = {
            "AbortedRuns": workflow.state_machine.metric_aborted(statistic="Sum"),
            "RejectedArchives": measures.measure("ArchivesRejected", "Sum"),
            "SourcesNotFinished": measures.measure("SourcesNotFinished", "Sum"),
        }
        for name, metric in metrics.items():
            if name in chosen:
                self._alarm(name, metric, advice=CHOSEN[name])

    def _watch_scans(self, measures: Measures) -> None:
        self._alarm(
            "WithheldArchives",
            measures.measure("ArchivesWithheld", "Sum"),
            advice="An archive was not opened: GuardDuty found a threat in it, or could not scan "
            "it. The intake function's log names it, the result and the threats. Delete or "
            "quarantine it; what is right but cannot be scanned is extracted elsewhere.",
        )

    def _watch_speed(
        self, measures: Measures, functions: Functions, environment: Environment
    ) -> None:
        self._alarm(
            "IntakeCrashed",
            functions.intake.metric_errors(statistic="Sum"),
            advice="The intake function was killed, by its memory or its time limit: a fault that "
            "it handles is no error here. Its message comes again by itself. If it lasts, raise "
            "functions.intake.memory or its timeout, or lower tuning.max_direct_bytes.",
        )
        self._alarm(
            "SlowArchives",
            measures.measure("ArchivePace", "p95"),
            above=environment.alarms.archive_p95_seconds,
            advice="One archive in twenty takes longer than alarms.archive_p95_seconds for each "
            "10 GB or 100,000 members, or for all of a smaller one. Compare QueueDelay, "
            "PlanDuration and TaskDuration on the dashboard: a queue that waits wants "
            "intake.concurrency, tasks that wait want runs.max_workers or less throttling.",
        )
        self._alarm(
            "S3Throttling",
            measures.measure("S3Throttles", "Sum"),
            above=environment.alarms.throttles,
            periods=HOUR,
            advice="For an hour the destination has asked to slow down more often than "
            "alarms.throttles. S3 grows partitions within minutes, so this lasts: spread keys over "
            "prefixes with the key template or lower runs.max_workers.",
        )
        self._alarm(
            "ExtractThrottled",
            functions.extract.metric_throttles(statistic="Sum"),
            above=100,
            periods=HOUR,
            advice="For an hour Lambda has refused invocations of extract: the account's or the "
            "function's concurrency is used up. Runs go on, slower. Raise "
            "functions.extract.reserved_concurrency, or ask for a higher quota.",
        )

    def _topics(self, section: AlarmsSection) -> list[sns.ITopic]:
        topics: list[sns.ITopic] = []
        if section.email is not None:
            topic = sns.Topic(self, "Topic", enforce_ssl=True)
            # A policy replaces SNS's default one, which lets the account publish, and
            # `enforce_ssl` makes a policy. Without this right CloudWatch notifies nobody:
            # repost.aws/knowledge-center/cloudwatch-receive-sns-for-alarm-trigger
            topic.grant_publish(
                iam.ServicePrincipal(
                    "cloudwatch.amazonaws.com",
                    conditions={"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}},
                )
            )
            topic.add_subscription(subscriptions.EmailSubscription(section.email))
            topics.append(topic)
        if section.topic is not None:
            topics.append(sns.Topic.from_topic_arn(self, "ExistingTopic", section.topic))
        return topics

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        *,
        above: int = 0,
        periods: int = 1,
        advice: str,
    ) -> None:
        """Add an alarm that rings when a metric was above a threshold for a number of periods.

        Args:
            name: of the alarm, without that of the stack.
            metric: its period is five minutes, or one minute for the messages of a queue.
            above: the threshold.
            periods: how many, one after the other.
            advice: what to do when it rings.
        """
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._stack_name}-{name}",
            metric=metric,
            threshold=above,
            evaluation_periods=periods,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=advice,
        )
        self.by_name[name] = alarm
        self._advice[name] = advice
        # No action when an alarm ends: each alarm is OK for the first time when the stack is
        # created, and would send a message then.
        alarm.add_alarm_action(*self._actions)
