"""The pipeline's own metrics, for the dashboard and the alarms, and the widgets that show them.

The dashboard is a grid of 24 columns. The format of widgets is CloudWatch-Dashboard-Body-Structure
in CloudWatch's API reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from s3unzip.metric_names import METRICS, NAMESPACE, SERVICE

PERIOD = cdk.Duration.minutes(5)
POINTS = {"p50": "p50", "p95": "p95", "max": "Maximum"}  # label: statistic


@dataclass(frozen=True, slots=True)
class Measures:
    """Metrics of one environment."""

    environment: str

    def measure(self, name: str, statistic: str, label: str | None = None) -> cloudwatch.Metric:
        """Return the pipeline's own metric `name`.

        Raises:
            LookupError: no function emits a metric of that name.
        """
        if name not in METRICS:
            raise LookupError(f"{name} is not in s3unzip.metric_names.METRICS")
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": SERVICE, "environment": self.environment},
            statistic=statistic,
            period=PERIOD,
            label=label,  # a label would make an alarm use metric math
        )

    def total(self, name: str, label: str) -> cloudwatch.IMetric:
        """Return the sum of `name`."""
        return self.measure(name, "Sum", label)

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


COLUMNS = 24


def heading(text: str) -> list[cloudwatch.IWidget]:
    """Return a row with the question that the next row answers."""
    return [cloudwatch.TextWidget(markdown=f"## {text}", width=COLUMNS, height=1)]


def number(
    title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int, precise: bool = False
) -> cloudwatch.IWidget:
    """Return the values of the whole time range that the dashboard shows."""
    return cloudwatch.SingleValueWidget(
        title=title,
        metrics=list(metrics),
        set_period_to_time_range=True,
        full_precision=precise,
        width=width,
        height=4,
    )


def own_graph(
    title: str, lines: Mapping[str, cloudwatch.IMetric], *, every: str = "", width: int = 6
) -> cloudwatch.IWidget:
    """Draw lines of the pipeline's own metrics, by the name of the metric; all of one unit."""
    (unit,) = {METRICS[name] for name in lines}
    return graph(title, list(lines.values()), unit=unit.lower() + every, width=width)


def graph(
    title: str,
    metrics: Sequence[cloudwatch.IMetric],
    *,
    unit: str,
    width: int = 6,
    stacked: bool = False,
) -> cloudwatch.IWidget:
    """Return a graph whose axis is labelled with `unit`."""
    return cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_y_axis=cloudwatch.YAxisProps(label=unit, min=0, show_units=False),
        stacked=stacked,
        width=width,
        period=PERIOD,
    )
