"""The widgets of the dashboard, in a grid of 24 columns.

The format is CloudWatch-Dashboard-Body-Structure in CloudWatch's API reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.measures import PERIOD
from s3unzip.metric_names import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
