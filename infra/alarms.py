"""The pipeline's own metrics, and the alarms. The description of an alarm says what to do."""

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
HOUR = 12  # number of periods in an hour
STATISTICS = {"p50": "p50", "p95": "p95", "max": "Maximum"}  # CloudWatch's statistics by label


@dataclass(frozen=True, slots=True)
class Measures:
    """Makes the metrics of one environment."""

    environment: str

    def measure(self, name: str, statistic: str, label: str | None = None) -> cloudwatch.Metric:
        """Return the pipeline's own metric `name`; without a label, CloudWatch chooses one."""
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": SERVICE, "environment": self.environment},
            statistic=statistic,
            period=PERIOD,
            label=label,  # None for an alarm: with a label, it would need metric math
        )

    def spread(self, name: str) -> list[cloudwatch.IMetric]:
        """Return p50, p95 and the maximum of a duration."""
        return [self.measure(name, statistic, label) for label, statistic in STATISTICS.items()]

    def rate(self, name: str, label: str) -> cloudwatch.IMetric:
        """Return the sum of the metric `name` per second."""
        return cloudwatch.MathExpression(
            expression=f"{name.lower()} / PERIOD({name.lower()})",
            using_metrics={name.lower(): self.measure(name, "Sum")},
            period=PERIOD,
            label=label,
        )


# What to do about messages in a dead-letter queue, by the name of its alarm.
QUEUE_ADVICE = {
    "DeadLetters": "The intake function failed to process messages about archives. Read the "
    "messages and the function's log, fix the cause, then move the messages back: aws sqs "
    "start-message-move-task with the stack's output DeadLettersArn.",
    "UndeliveredArchives": "EventBridge could not send events about archives to the queue: check "
    "the queue's policy. Then run s3unzip submit --missing, which finds their archives, and purge "
    "the queue of the stack's output UndeliveredArchivesUrl.",
    "UndeliveredFailures": "EventBridge could not invoke the settle function after an execution "
    "failed, so its run may have no report. Each message in the queue of the stack's output "
    "UndeliveredFailuresUrl is an event: invoke the settle function with it, then delete it.",
    "FailedReports": "The settle function failed three times to report a failed execution, so its "
    "run may have no report. Read the function's log, fix the cause, and invoke the function with "
    "the requestPayload of each message in the queue of the stack's output FailedReportsUrl.",
}
# What to do about an alarm that is created only if `alarms.also` names it.
OPTIONAL_ADVICE = {
    "AbortedRuns": "Only with alarms.also. A user stopped a run with s3unzip abort or in the "
    "console. If this was a mistake, s3unzip resume continues the run where it stopped.",
    "RejectedArchives": "Only with alarms.also. An archive is broken, ambiguous or above a limit, "
    "and none of its members was written. Read the check in its report.json. Ask the sender for "
    "another archive, or change the limit or the option.",
    "SourcesNotFinished": "Only with alarms.also. An archive was extracted, but then not deleted "
    "or tagged. Read the reason in the settle function's log, or for a small archive in that of "
    "intake, grant the missing permission, then run s3unzip submit --missing.",
}


class Alarms(Construct):
    """The alarms of an environment, `by_name`; an alarm notifies an email address or a topic."""

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
        """What to do about each alarm, as a Markdown table; the links work in each Region."""
        rows = (
            f"| [{name}](#alarmsV2:alarm/{alarm.alarm_name}) | {self._advice[name]} |"
            for name, alarm in self.by_name.items()
        )
        return "\n".join(
            [
                "## What to do",
                "If an alarm is red, find its row. All steps are in docs/howto/dashboard.md.",
                "",
                "| alarm | do |",
                "| --- | --- |",
                *rows,
            ]
        )

    def _watch_queues(self, dead_letters: Mapping[str, sqs.IQueue]) -> None:
        for name, queue in dead_letters.items():
            self._alarm(
                name,
                queue.metric_approximate_number_of_messages_visible(
                    statistic="Maximum", period=cdk.Duration.minutes(1)
                ),
                advice=QUEUE_ADVICE[name],
            )

    def _watch_intake(self, functions: Functions, intake: Intake, environment: Environment) -> None:
        self._alarm(
            "ArchivesWait",
            intake.queue.metric_approximate_age_of_oldest_message(statistic="Maximum"),
            above=environment.alarms.waiting_seconds,
            periods=3,
            advice="An archive has waited in the queue longer than alarms.waiting_seconds. Read "
            "the intake function's log: the function may be throttled or disabled. After 14 days, "
            "SQS deletes a message, and it does not reach the dead-letter queue.",
        )
        self._alarm(
            "IntakeThrottled",
            functions.intake.metric_throttles(statistic="Sum"),
            periods=3,
            advice="Lambda throttles the intake function, so archives wait. Raise "
            "functions.intake.reserved_concurrency, or the account's quota.",
        )

    def _watch_runs(self, measures: Measures, workflow: Workflow) -> None:
        self._alarm(
            "FailedRuns",
            measures.measure("ArchivesFailed", "Sum"),
            advice="A run ended with the verdict FAILED. Read reason and message in its "
            "report.json in the work bucket, fix the cause (a permission, a key, a quota), then "
            "run s3unzip resume, which does only the remaining work.",
        )
        self._alarm(
            "FailedExecutions",
            workflow.state_machine.metric_failed(statistic="Sum"),
            advice="An execution failed, because a function kept failing or the state machine "
            "did. Its run soon has a FAILED report with the cause. If there is no report, read "
            "the execution's history, then run s3unzip resume.",
        )
        self._alarm(
            "TimedOutRuns",
            workflow.state_machine.metric_timed_out(statistic="Sum"),
            advice="A run took longer than an execution is allowed to. Look at its report.html "
            "for tasks that never ended, then run s3unzip resume.",
        )

    def _watch_chosen(
        self, measures: Measures, workflow: Workflow, chosen: Sequence[ChosenAlarm]
    ) -> None:
        """Add the optional alarms, which are about the actions of users and about their archives.

        Args:
            measures: makes the metrics.
            workflow: contains the state machine.
            chosen: the names of the alarms to add.
        """
        metrics = {
            "AbortedRuns": workflow.state_machine.metric_aborted(statistic="Sum"),
            "RejectedArchives": measures.measure("ArchivesRejected", "Sum"),
            "SourcesNotFinished": measures.measure("SourcesNotFinished", "Sum"),
        }
        for name, metric in metrics.items():
            if name in chosen:
                self._alarm(name, metric, advice=OPTIONAL_ADVICE[name])

    def _watch_scans(self, measures: Measures) -> None:
        self._alarm(
            "WithheldArchives",
            measures.measure("ArchivesWithheld", "Sum"),
            advice="An archive was not opened, because GuardDuty found a threat in it or could "
            "not scan it. The intake function's log has the archive, the result and the threats. "
            "Delete or quarantine the archive. If it is safe but cannot be scanned, extract it "
            "in another environment.",
        )

    def _watch_speed(
        self, measures: Measures, functions: Functions, environment: Environment
    ) -> None:
        self._alarm(
            "IntakeCrashed",
            functions.intake.metric_errors(statistic="Sum"),
            advice="The intake function exceeded its memory or its time limit; faults that it "
            "handles do not count here. SQS delivers the message again. If this continues, raise "
            "functions.intake.memory or its timeout, or lower tuning.max_direct_bytes.",
        )
        self._alarm(
            "SlowArchives",
            measures.measure("ArchivePace", "p95"),
            above=environment.alarms.archive_p95_seconds,
            advice="One archive in twenty takes longer than alarms.archive_p95_seconds for each "
            "10 GB or 100,000 members; a smaller archive counts as one such unit. Compare "
            "QueueDelay, PlanDuration and TaskDuration on the dashboard. If the queue waits, raise "
            "intake.concurrency; if tasks wait, raise runs.max_workers or reduce throttling.",
        )
        self._alarm(
            "S3Throttling",
            measures.measure("S3Throttles", "Sum"),
            above=environment.alarms.throttles,
            periods=HOUR,
            advice="For an hour, S3 has answered 503 Slow Down more often than alarms.throttles. "
            "S3 usually adds partitions within minutes, so this does not end by itself: spread the "
            "keys over prefixes with the key template, or lower runs.max_workers.",
        )
        self._alarm(
            "ExtractThrottled",
            functions.extract.metric_throttles(statistic="Sum"),
            above=100,
            periods=HOUR,
            advice="For an hour, Lambda has throttled the extract function: the concurrency of "
            "the account or of the function is used up. Runs continue, but more slowly. Raise "
            "functions.extract.reserved_concurrency, or request a higher quota.",
        )

    def _topics(self, section: AlarmsSection) -> list[sns.ITopic]:
        topics: list[sns.ITopic] = []
        if section.email is not None:
            topic = sns.Topic(self, "Topic", enforce_ssl=True)
            # `enforce_ssl` creates a policy, which replaces the default policy of SNS. The default
            # policy lets the account publish. Without this grant, CloudWatch notifies nobody:
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
        """Add an alarm that goes off when a metric exceeds a threshold for a number of periods.

        Args:
            name: the name of the alarm, without the prefix for the stack.
            metric: the metric; its period is five minutes, or one minute for a dead-letter queue.
            above: the threshold.
            periods: the number of consecutive periods.
            advice: what to do when the alarm goes off.
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
        # There is no action for the state OK: each alarm enters this state when the stack is
        # created, and would send a message then.
        alarm.add_alarm_action(*self._actions)
