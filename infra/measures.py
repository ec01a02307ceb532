"""The metrics that the dashboard draws and the alarms watch.

The names are those of `s3unzip.aws_lambda.telemetry`; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.functions import NAMESPACE, SERVICE

PERIOD = cdk.Duration.minutes(5)


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
            label=label,  # with a label an alarm would become metric math
        )

    def percentiles(self, name: str) -> list[cloudwatch.IMetric]:
        """Return p50, p90 and p99 of a duration."""
        return [self.measure(name, point, f"{name} {point}") for point in ("p50", "p90", "p99")]

    def rate(self, name: str, label: str) -> cloudwatch.IMetric:
        """Return the sum of `name` a second."""
        return cloudwatch.MathExpression(
            expression=f"{name.lower()} / PERIOD({name.lower()})",
            using_metrics={name.lower(): self.measure(name, "Sum")},
            period=PERIOD,
            label=label,
        )
