"""The pipeline's own metrics, for the dashboard and the alarms."""

from __future__ import annotations

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
