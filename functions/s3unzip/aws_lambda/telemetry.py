"""Logs, metrics and traces: the only place that knows Powertools.

Metrics have the dimensions service and environment; the archive and the run are
metadata of the line, searchable but no dimension. Names, all in `METRICS`, are
what the dashboard and the alarms of `infra` use.
"""

from __future__ import annotations

import logging
import os
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit

from s3unzip.model import Report
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.model import PlanSummary, Request, Run, TaskReport

E = TypeVar("E")  # event
C = TypeVar("C")  # context
R = TypeVar("R")  # answer

SERVICE = "s3unzip"
METRICS = {
    "ArchiveDuration": MetricUnit.Seconds,  # from the S3 event's time to the report
    "PlanDuration": MetricUnit.Seconds,
    "QueueDelay": MetricUnit.Seconds,  # from the S3 event's time to the plan's start
    "TaskDuration": MetricUnit.Seconds,
    "MembersExtracted": MetricUnit.Count,
    "MembersFailed": MetricUnit.Count,
    "MembersUnchanged": MetricUnit.Count,
    "BytesRead": MetricUnit.Bytes,
    "BytesWritten": MetricUnit.Bytes,
    "PutThrottles": MetricUnit.Count,
    "PutLatency": MetricUnit.Milliseconds,  # mean of one task
}

# The loggers of the client libraries. The runtime client gives the root logger the application
# log level of the function: at INFO botocore writes two lines for each client, at DEBUG whole
# answers, those of Secrets Manager too.
# docs.aws.amazon.com/lambda/latest/dg/python-logging.html
CLIENT_LIBRARIES = ("boto3", "botocore", "urllib3")
for _name in CLIENT_LIBRARIES:
    logging.getLogger(_name).setLevel(logging.WARNING)

logger = Logger(service=SERVICE, use_rfc3339=True, utc=True)
metrics = Metrics(namespace=SERVICE, service=SERVICE)
metrics.set_default_dimensions(environment=os.environ.get(Variable.ENVIRONMENT) or "none")
# No auto-patching: a subsegment for each of a task's thousands of calls helps nobody.
tracer = Tracer(service=SERVICE, auto_patch=False)


def publish(handler: Callable[[E, C], R]) -> Callable[[E, C], R]:
    """Write what an invocation measured, whether it ends well or not.

    Unlike ``log_metrics`` of Powertools it does not warn of an invocation that
    measured nothing: of a run that is known, or a report with tasks left.
    """

    @wraps(handler)
    def measured(event: E, context: C) -> R:
        try:
            return handler(event, context)
        finally:
            if metrics.metric_set:
                metrics.flush_metrics()
            else:
                metrics.clear_metrics()  # the run's id must not go to the next invocation

    return measured


def follow(run: Run) -> None:
    """Put the run's id into every line and trace that follows."""
    logger.set_correlation_id(run.id)
    tracer.put_annotation("run", run.id)
    metrics.add_metadata("run", run.id)
    metrics.add_metadata("archive", str(run.source))


def record_plan(plan: PlanSummary | Report, request: Request) -> None:
    """Measure one plan, accepted or rejected."""
    _add("PlanDuration", plan.plan_seconds)
    _add("BytesRead", plan.bytes_in if isinstance(plan, Report) else plan.bytes_read)
    _add("MembersFailed", plan.failed)
    if request.event_time is not None:
        _add("QueueDelay", max(0.0, plan.started - request.event_time))


def record_task(report: TaskReport) -> None:
    """Measure one task."""
    _add("TaskDuration", report.seconds)
    _add("MembersExtracted", report.extracted)
    _add("MembersFailed", report.failed)
    _add("MembersUnchanged", report.unchanged)
    _add("BytesRead", report.bytes_read)
    _add("BytesWritten", report.bytes_written)
    _add("PutThrottles", report.requests.throttled)
    puts = report.requests.put + report.requests.part + report.requests.copy
    if puts:
        _add("PutLatency", report.put_seconds / puts * 1_000)
    logger.info(
        "task",
        task=report.task,
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        unfinished=report.unfinished,
        seconds=report.seconds,
    )


def record_archive(report: Report, *, first: bool = True) -> None:
    """Measure one finished run, and count its failures by reason in the log.

    The time since the event is measured at the run's `first` end only: a run
    that is redriven or retried days later is not slow.
    """
    if first and report.event_time is not None:
        _add("ArchiveDuration", max(0.0, report.finished - report.event_time))
    logger.info(
        "archive",
        verdict=report.verdict.value,
        reason=report.reason,
        source=str(report.source),
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        missing=report.missing,
    )
    for reason, members in report.reasons.items():
        logger.info("failures", reason=reason, members=members)


def _add(name: str, value: float) -> None:
    metrics.add_metric(name=name, unit=METRICS[name], value=value)
