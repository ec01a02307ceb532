"""The costs of the environment, as metric math over requests, durations and runs.

Prices are those of `s3unzip.rates`: us-east-1, with the AWS page of each. Requests, attempts and
memory are actual usage, so a resumed run counts once. Not included: storage, KMS, transfer and the
cost of the idle stack (docs/cost.md).
"""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_

from infra.environment import Environment
from infra.functions import Functions
from infra.measures import PERIOD, Measures
from infra.workflow import Workflow
from s3unzip import rates

TASK_TRANSITIONS = 2  # the start of a child execution, and its task


def spending_lines(
    environment: Environment, functions: Functions, workflow: Workflow
) -> dict[str, cloudwatch.MathExpression]:
    """Return dollars a period, by an id: requests to S3, runs, and each function."""
    lines = {"requests": _requests(Measures(environment.name)), "runs": _runs(workflow)}
    for name, function in functions.by_name.items():
        gigabytes = getattr(environment.functions, name).memory / 1_024
        lines[name] = _function(name, function, gigabytes)
    return lines


def spending_total(lines: dict[str, cloudwatch.MathExpression]) -> cloudwatch.MathExpression:
    """Return the sum of the lines.

    Most runs have no scan. Arithmetic treats missing values as 0; AWS does not document this for
    ``SUM``: using-metric-math in the user guide of CloudWatch.
    """
    return cloudwatch.MathExpression(
        expression=" + ".join(lines), using_metrics=dict(lines), label="dollars", period=PERIOD
    )


def _requests(measures: Measures) -> cloudwatch.MathExpression:
    return _line(
        "S3 requests",
        f"s3_writes * {_price(rates.PRICE_S3_WRITE)} + s3_reads * {_price(rates.PRICE_S3_READ)}",
        {
            "s3_writes": measures.measure("WriteRequests", "Sum"),
            "s3_reads": measures.measure("ReadRequests", "Sum"),
        },
    )


def _runs(workflow: Workflow) -> cloudwatch.MathExpression:
    each = (
        rates.TRANSITIONS * rates.PRICE_STANDARD_TRANSITION
        + rates.SQS_REQUESTS * rates.PRICE_SQS_REQUEST
        + rates.EVENTS * rates.PRICE_EVENT
    )
    return _line(
        "state transitions, queue, events",
        f"runs_started * {_price(each)}",
        {"runs_started": workflow.state_machine.metric_started(statistic="Sum")},
    )


def _function(name: str, function: lambda_.Function, gigabytes: float) -> cloudwatch.MathExpression:
    """Price a function's time, calls and logs; for a task also its state transitions."""
    second = gigabytes * rates.PRICE_LAMBDA_GB_SECOND
    call = rates.PRICE_LAMBDA_REQUEST + rates.LOG_BYTES * rates.PRICE_LOG_BYTE
    if name == "extract":
        call += TASK_TRANSITIONS * rates.PRICE_STANDARD_TRANSITION
    return _line(
        f"{name} function",
        f"{name}_ms / 1000 * {_price(second)} + {name}_calls * {_price(call)}",
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
