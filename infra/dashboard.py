"""One dashboard an environment: how fast, how much, what failed, what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.measures import PERIOD, Measures

if TYPE_CHECKING:
    from infra.environment import Environment
    from infra.functions import Functions
    from infra.intake import Intake
    from infra.workflow import Workflow

WIDTH = 8  # of 24
# us-east-1, 2026-05: dollars a PUT, a GB-second (arm64), an invocation.
PUT_PRICE = 0.005 / 1_000
GB_SECOND_PRICE = 0.0000133334
INVOCATION_PRICE = 0.20 / 1_000_000


class Dashboard(Construct):
    """The dashboard; `name` is what the console lists it under."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        functions: Functions,
        workflow: Workflow,
        intake: Intake,
    ) -> None:
        super().__init__(scope, "Dashboard")
        measures = Measures(environment.name)
        self.name = environment.stack.name
        cloudwatch.Dashboard(
            self,
            "Board",
            dashboard_name=self.name,
            default_interval=cdk.Duration.hours(3),
            widgets=[
                [
                    _graph("Archives: event to report", measures.percentiles("ArchiveDuration")),
                    _graph("Plans", measures.percentiles("PlanDuration")),
                    _graph("Tasks", measures.percentiles("TaskDuration")),
                ],
                [
                    _graph(
                        "Members a second",
                        [
                            measures.rate("MembersExtracted", "extracted"),
                            measures.rate("MembersUnchanged", "unchanged"),
                            measures.rate("MembersFailed", "failed"),
                        ],
                    ),
                    _graph(
                        "Bytes a second",
                        [
                            measures.rate("BytesRead", "read"),
                            measures.rate("BytesWritten", "written"),
                        ],
                    ),
                    _failures(functions),
                ],
                [
                    _graph("Slow down answers", [measures.measure("PutThrottles", "Sum")]),
                    _graph("PUT latency (ms)", measures.percentiles("PutLatency")),
                    _graph("Event to plan (s)", measures.percentiles("QueueDelay")),
                ],
                [
                    _graph("Executions", _executions(workflow)),
                    _graph("Function errors", _of_functions(functions, "errors")),
                    _graph("Function throttles", _of_functions(functions, "throttles")),
                ],
                [
                    _graph("Functions at once", _concurrency(functions)),
                    _graph("Queue", _queue(intake)),
                    _graph(
                        "Estimated cost (dollars, us-east-1)",
                        _cost(measures, functions, environment),
                    ),
                ],
            ],
        )


def _graph(title: str, metrics: list[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=metrics, width=WIDTH, period=PERIOD)


def _failures(functions: Functions) -> cloudwatch.LogQueryWidget:
    """Count failures by reason from the report's log: a reason is no dimension of a metric."""
    return cloudwatch.LogQueryWidget(
        title="Failures by reason",
        log_group_names=[
            functions.report.log_group.log_group_name,
            functions.plan.log_group.log_group_name,
        ],
        query_lines=[
            "fields reason, members",
            'filter message = "failures"',
            "stats sum(members) as members by reason",
            "sort members desc",
        ],
        view=cloudwatch.LogQueryVisualizationType.TABLE,
        width=WIDTH,
    )


def _executions(workflow: Workflow) -> list[cloudwatch.IMetric]:
    machine = workflow.state_machine
    return [
        machine.metric_started(label="started", statistic="Sum"),
        machine.metric_failed(label="failed", statistic="Sum"),
        machine.metric_timed_out(label="timed out", statistic="Sum"),
        machine.metric_aborted(label="aborted", statistic="Sum"),
    ]


def _of_functions(functions: Functions, what: str) -> list[cloudwatch.IMetric]:
    return [
        (one.metric_errors if what == "errors" else one.metric_throttles)(label=name)
        for name, one in functions.by_name.items()
    ]


def _concurrency(functions: Functions) -> list[cloudwatch.IMetric]:
    return [
        one.metric("ConcurrentExecutions", statistic="Maximum", label=name)
        for name, one in functions.by_name.items()
    ]


def _queue(intake: Intake) -> list[cloudwatch.IMetric]:
    return [
        intake.queue.metric_approximate_age_of_oldest_message(label="oldest (s)"),
        intake.queue.metric_approximate_number_of_messages_visible(label="waiting"),
        intake.dead_letters.metric_approximate_number_of_messages_visible(label="dead letters"),
    ]


def _cost(
    measures: Measures, functions: Functions, environment: Environment
) -> list[cloudwatch.IMetric]:
    """Estimate dollars a period: PUTs of members dominate, then the time of extract."""
    extract = functions.extract
    gigabytes = environment.functions.extract.memory / 1_024
    return [
        cloudwatch.MathExpression(
            expression=f"members * {PUT_PRICE:.9f}",
            using_metrics={"members": measures.measure("MembersExtracted", "Sum")},
            label="PUTs of members",
            period=PERIOD,
        ),
        cloudwatch.MathExpression(
            expression=(
                f"time / 1000 * {gigabytes:g} * {GB_SECOND_PRICE:.10f}"
                f" + calls * {INVOCATION_PRICE:.9f}"
            ),
            using_metrics={
                "time": extract.metric_duration(statistic="Sum"),
                "calls": extract.metric_invocations(),
            },
            label="extract functions",
            period=PERIOD,
        ),
    ]
