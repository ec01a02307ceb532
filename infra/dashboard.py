"""The dashboard of an environment; its rows answer the questions of an operator, in this order.

Is it healthy, and what must I do? What failed? Does work wait, or is it throttled? How long do runs
and their stages take? How much do they process? What do the functions do? What does it cost?
"""

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch, aws_lambda as lambda_
from constructs import Construct

from infra.alarms import PERIOD, Alarms, Measures
from infra.environment import Environment
from infra.functions import Functions
from infra.intake import Intake
from infra.workflow import Workflow
from s3unzip import rates
from s3unzip.settings import METRICS

STAGES = {
    "Put to done": "ArchiveDuration",
    "Run: plan to report": "RunDuration",
    "Put to intake": "QueueDelay",
    "Plan": "PlanDuration",
    "Extract, one task": "TaskDuration",
    "Settle, one round": "SettleDuration",
}
ENDS = {
    "ArchivesCompleted": "completed",
    "ArchivesWithErrors": "with errors",
    "ArchivesRejected": "rejected",
    "ArchivesChanged": "changed in mid-run",
    "ArchivesFailed": "failed",
    "ArchivesStopped": "stopped",
    "ArchivesWithheld": "withheld by their scan",
}


# docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries, "Partitions"
CONSOLES = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
    "aws-eusc": "console.amazonaws-eusc.eu",  # European Sovereign Cloud
}


class Dashboard(Construct):
    """The dashboard of an environment; `url` opens it in the console."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        functions: Functions,
        workflow: Workflow,
        intake: Intake,
        alarms: Alarms,
    ) -> None:
        super().__init__(scope, "Dashboard")
        region = cdk.Stack.of(self).region
        # Dashboards belong to an account, not to a region (AWS::CloudWatch::Dashboard).
        name = f"{environment.stack.name}-{region}"
        consoles = cdk.CfnMapping(
            self,
            "Consoles",
            mapping={partition: {"Host": host} for partition, host in CONSOLES.items()},
        )
        host = consoles.find_in_map(cdk.Aws.PARTITION, "Host")
        self.url = (
            f"https://{region}.{host}/cloudwatch/home?region={region}#dashboards/dashboard/{name}"
        )
        measures = Measures(environment.name)
        lines = _spending_lines(environment, functions, workflow)
        cloudwatch.Dashboard(
            self,
            "Board",
            dashboard_name=name,
            default_interval=cdk.Duration.hours(3),
            widgets=[
                _headline(measures, _spending_total(lines)),
                _health(alarms),
                heading("What ended last"),
                [_last_runs(functions)],
                heading("What failed"),
                _failures(functions, workflow, intake),
                heading("Does work wait? Is it throttled?"),
                *_waiting(functions, intake, measures),
                heading("How long"),
                *_stages(measures),
                heading("How much"),
                _throughput(measures),
                heading("Functions and cost"),
                _functions(functions, list(lines.values())),
            ],
        )


def _headline(measures: Measures, dollars: cloudwatch.IMetric) -> list[cloudwatch.IWidget]:
    """Return the most important numbers, over the time range of the dashboard."""
    ends = [measures.measure(name, "Sum", label) for name, label in ENDS.items()]
    return [
        number("Archives", ends, width=10),
        number(
            "Members written", [measures.measure("MembersExtracted", "Sum", "extracted")], width=5
        ),
        number("Put to done (s)", [measures.measure("ArchiveDuration", "p95", "p95")], width=4),
        number("Dollars, estimated at us-east-1", [dollars], width=5, precise=True),
    ]


def _health(alarms: Alarms) -> list[cloudwatch.IWidget]:
    return [
        cloudwatch.AlarmStatusWidget(
            title="Alarms",
            alarms=list(alarms.by_name.values()),
            sort_by=cloudwatch.AlarmStatusWidgetSortBy.STATE_UPDATED_TIMESTAMP,
            width=10,
            height=9,
        ),
        cloudwatch.TextWidget(markdown=alarms.runbook, width=14, height=9),
    ]


def _last_runs(functions: Functions) -> cloudwatch.IWidget:
    """Return a table of the last runs, from the log lines that `s3unzip.aws.telemetry` writes."""
    return _logged(
        functions,
        "Last 20 runs",
        [
            (
                "fields @timestamp, correlation_id as run, verdict, members, failed, seconds, "
                "dollars, source"
            ),
            'filter message = "archive"',
            "sort @timestamp desc",
            "limit 20",
        ],
        width=COLUMNS,
    )


def _failures(functions: Functions, workflow: Workflow, intake: Intake) -> list[cloudwatch.IWidget]:
    """Return the widgets about failures; reasons come from logs, because no metric has them."""
    machine = workflow.state_machine
    return [
        _logged(
            functions,
            "Failures by reason",
            [
                "fields reason, members",
                'filter message = "failures"',
                "stats sum(members) as failed_members by reason",
                "sort failed_members desc",
            ],
            width=6,
        ),
        _logged(
            functions,
            "Last runs that did not complete",
            [
                "fields @timestamp, correlation_id as run, verdict, reason, failed, source",
                'filter message = "archive" and verdict != "COMPLETED"',
                "sort @timestamp desc",
                "limit 20",
            ],
            width=10,
        ),
        graph(
            "Executions",
            [
                machine.metric_failed(label="failed", statistic="Sum"),
                machine.metric_timed_out(label="timed out", statistic="Sum"),
                machine.metric_aborted(label="aborted", statistic="Sum"),
                machine.metric_started(label="started", statistic="Sum"),
                machine.metric_succeeded(label="succeeded", statistic="Sum"),
            ],
            unit="runs",
            width=4,
        ),
        graph(
            "Dead letters",
            [
                queue.metric_approximate_number_of_messages_visible(label=name, statistic="Maximum")
                for name, queue in intake.dead_letters.items()
            ],
            unit="messages",
            width=4,
        ),
    ]


def _waiting(
    functions: Functions, intake: Intake, measures: Measures
) -> list[list[cloudwatch.IWidget]]:
    """Return a row of graphs of waiting and throttling, and a row of what happened later."""
    queue = intake.queue
    lengths = [
        queue.metric_approximate_number_of_messages_visible(label="waiting", statistic="Maximum"),
        queue.metric_approximate_number_of_messages_not_visible(
            label="being taken", statistic="Maximum"
        ),
    ]
    throttles = [
        function.metric_throttles(label=name, statistic="Sum")
        for name, function in functions.by_name.items()
    ]
    return [
        [
            graph(
                "Queue: age of the oldest message",
                [
                    queue.metric_approximate_age_of_oldest_message(
                        label="oldest", statistic="Maximum"
                    )
                ],
                unit="seconds",
            ),
            graph("Queue: messages", lengths, unit="messages"),
            graph("Lambda throttles", throttles, unit="invocations"),
            own_graph("S3 throttles", measures, {"S3Throttles": "slow down"}),
        ],
        [
            own_graph(
                "Small archives handed over",
                measures,
                {"DirectHandovers": "handed over"},
                width=8,
            ),
            own_graph(
                "After success",
                measures,
                {"SourcesFinished": "done", "SourcesNotFinished": "not done"},
                width=8,
            ),
            graph("Put to done, for its size", measures.spread("ArchivePace"), unit="s", width=8),
        ],
    ]


def _stages(measures: Measures) -> list[list[cloudwatch.IWidget]]:
    """Return graphs of the p50, p95 and maximum of each duration in `STAGES`, three in a row."""
    graphs: list[cloudwatch.IWidget] = [
        graph(title, measures.spread(name), unit=METRICS[name].lower(), width=8)
        for title, name in STAGES.items()
    ]
    return [graphs[:3], graphs[3:]]


def _throughput(measures: Measures) -> list[cloudwatch.IWidget]:
    members = {
        "MembersExtracted": "extracted",
        "MembersUnchanged": "unchanged",
        "MembersFailed": "failed",
    }
    return [
        own_graph("Members", measures, members, rate=True),
        own_graph("Bytes", measures, {"BytesRead": "read", "BytesWritten": "written"}, rate=True),
        own_graph(
            "Requests to S3",
            measures,
            {"WriteRequests": "writes", "ReadRequests": "reads"},
            rate=True,
        ),
        graph("PUT latency", measures.spread("PutLatency"), unit=METRICS["PutLatency"].lower()),
    ]


def _functions(
    functions: Functions, dollars: Sequence[cloudwatch.IMetric]
) -> list[cloudwatch.IWidget]:
    by_name = functions.by_name.items()
    return [
        graph(
            "Function errors",
            [function.metric_errors(label=name, statistic="Sum") for name, function in by_name],
            unit="invocations",
        ),
        graph(
            "Functions at once",
            [
                function.metric("ConcurrentExecutions", statistic="Maximum", label=name)
                for name, function in by_name
            ],
            unit="invocations",
        ),
        graph(
            "Cost, estimated at us-east-1",
            dollars,
            unit="dollars in 5 minutes",
            width=12,
            stacked=True,
        ),
    ]


def _logged(
    functions: Functions, title: str, lines: Sequence[str], *, width: int
) -> cloudwatch.IWidget:
    return cloudwatch.LogQueryWidget(
        title=title,
        log_group_names=[
            functions.by_name[name].log_group.log_group_name
            for name in ("settle", "intake", "plan")  # the functions that end runs
        ],
        query_lines=list(lines),
        view=cloudwatch.LogQueryVisualizationType.TABLE,
        width=width,
    )


# The cost of the environment, at the prices for us-east-1 in `s3unzip.rates`. Requests, attempts
# and memory are actual usage, so a resumed run is not counted twice. Not included: storage, KMS,
# data transfer, X-Ray and the cost of the idle stack (docs/cost.md).
TRANSITION = rates.PRICE_STANDARD_TRANSITION + rates.TRANSITION_LOG_BYTES * rates.PRICE_LOG_BYTE


def _spending_lines(
    environment: Environment, functions: Functions, workflow: Workflow
) -> dict[str, cloudwatch.MathExpression]:
    """Return the dollars per period for requests to S3, for runs and for each function, by id."""
    measures = Measures(environment.name)
    run = (
        rates.TRANSITIONS * TRANSITION
        + rates.EVENTS * rates.PRICE_EVENT
        + rates.SQS_REQUESTS * rates.PRICE_SQS_REQUEST
    )
    lines = {
        "requests": _line(
            "S3 requests",
            f"s3_writes * {_price(rates.PRICE_S3_WRITE)} "
            f"+ s3_reads * {_price(rates.PRICE_S3_READ)}",
            {
                "s3_writes": measures.measure("WriteRequests", "Sum"),
                "s3_reads": measures.measure("ReadRequests", "Sum"),
            },
        ),
        "runs": _line(
            "state transitions, queue, events",
            f"runs_started * {_price(run)}",
            {"runs_started": workflow.state_machine.metric_started(statistic="Sum")},
        ),
    }
    for name, function in functions.by_name.items():
        lines[name] = _price_function(name, function, getattr(environment.functions, name).memory)
    return lines


def _spending_total(lines: dict[str, cloudwatch.MathExpression]) -> cloudwatch.MathExpression:
    """Return the sum of the lines.

    A line without data counts as 0, because ``+`` treats missing values as 0. AWS does not document
    this for ``SUM`` (using-metric-math in the user guide of CloudWatch).
    """
    return cloudwatch.MathExpression(
        expression=" + ".join(lines), using_metrics=dict(lines), label="dollars", period=PERIOD
    )


def _price_function(
    name: str, function: lambda_.Function, memory_mb: int
) -> cloudwatch.MathExpression:
    """Return the dollars for a function's time, calls and logs; for `extract` also transitions."""
    second = memory_mb / 1_024 * rates.PRICE_LAMBDA_GB_SECOND
    call = rates.PRICE_LAMBDA_REQUEST + rates.LOG_BYTES * rates.PRICE_LOG_BYTE
    if name == "extract":
        call += rates.TASK_TRANSITIONS * TRANSITION
    expression = f"{name}_ms / 1000 * {_price(second)} + {name}_calls * {_price(call)}"
    return _line(
        f"{name} function",
        expression,
        {
            f"{name}_ms": function.metric_duration(statistic="Sum"),
            f"{name}_calls": function.metric_invocations(statistic="Sum"),
        },
    )


def _line(
    label: str, expression: str, metrics: dict[str, cloudwatch.Metric]
) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression=expression, using_metrics=dict(metrics), label=label, period=PERIOD
    )


def _price(dollars: float) -> str:
    return f"{dollars:.12f}".rstrip("0")


# Widgets. The dashboard is a grid of 24 columns (CloudWatch-Dashboard-Body-Structure).

COLUMNS = 24


def heading(text: str) -> list[cloudwatch.IWidget]:
    """Return a row with a heading for the next rows."""
    return [cloudwatch.TextWidget(markdown=f"## {text}", width=COLUMNS, height=1)]


def number(
    title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int, precise: bool = False
) -> cloudwatch.IWidget:
    """Return a widget with one number for each metric, over the time range of the dashboard."""
    return cloudwatch.SingleValueWidget(
        title=title,
        metrics=list(metrics),
        set_period_to_time_range=True,
        full_precision=precise,
        width=width,
        height=4,
    )


def own_graph(
    title: str,
    measures: Measures,
    labels: Mapping[str, str],
    *,
    rate: bool = False,
    width: int = 6,
) -> cloudwatch.IWidget:
    """Return a graph of sums, or of sums per second, of the pipeline's own metrics of one unit."""
    (unit,) = {METRICS[name].lower() for name in labels}
    if rate:
        return graph(
            title,
            [measures.rate(name, label) for name, label in labels.items()],
            unit=f"{unit} a second",
            width=width,
        )
    return graph(
        title,
        [measures.measure(name, "Sum", label) for name, label in labels.items()],
        unit=unit,
        width=width,
    )


def graph(
    title: str,
    metrics: Sequence[cloudwatch.IMetric],
    *,
    unit: str,
    width: int = 6,
    stacked: bool = False,
) -> cloudwatch.IWidget:
    """Return a graph whose vertical axis has the label `unit`."""
    return cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_y_axis=cloudwatch.YAxisProps(label=unit, min=0, show_units=False),
        stacked=stacked,
        width=width,
        period=PERIOD,
    )
