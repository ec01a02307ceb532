"""Logs and metrics with Powertools, and the keys for finding the log lines and traces of a run.

Metrics have the dimensions `service` and `environment`. The archive and the run are metadata of the
log lines. Metadata can be searched, but are not dimensions. Names and units come from
`s3unzip.settings`, as in the dashboard and the alarms of `infra`.
"""

import logging
import os
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import aws_lambda_powertools.tracing.tracer as powertools
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip.model import (
    PlanSummary,
    Report,
    Requests,
    SourceResult,
    SourceState,
    TaskReport,
    Verdict,
)
from s3unzip.runs.step import STOPPED
from s3unzip.settings import METRICS, NAMESPACE, SERVICE, Variable

# Called with the event and Lambda's context of an invocation; returns the response.
Handler = Callable[[dict[str, Any], LambdaContext], dict[str, Any]]

END_METRICS = {  # the metric that counts runs with this verdict
    Verdict.COMPLETED: "ArchivesCompleted",
    Verdict.COMPLETED_WITH_ERRORS: "ArchivesWithErrors",
    Verdict.REJECTED: "ArchivesRejected",
    Verdict.SOURCE_CHANGED: "ArchivesChanged",
    Verdict.FAILED: "ArchivesFailed",
}

STOPPED_RUNS = "ArchivesStopped"  # a run that was stopped by a person has not failed

# The metric `ArchivePace` is the time for an archive, divided by the size of the archive in units
# of `PACE_BYTES` or `PACE_MEMBERS`.
PACE_BYTES = 10_000_000_000
PACE_MEMBERS = 100_000

LOGGED_COUNTS = ("members", "extracted", "unchanged", "failed", "missing")  # fields of a report

# The runtime client sets the root logger to the application log level of the function. At INFO,
# botocore writes two lines for each client; at DEBUG, it writes whole responses, including those of
# Secrets Manager. docs.aws.amazon.com/lambda/latest/dg/python-logging.html
CLIENT_LIBRARIES = ("boto3", "botocore", "urllib3")
for _name in CLIENT_LIBRARIES:
    logging.getLogger(_name).setLevel(logging.WARNING)

# For each invocation, Lambda sets whether X-Ray samples it (Lambda developer guide, "Defined
# runtime environment variables"; the format is in the X-Ray developer guide, "Tracing header").
TRACE_HEADER = "_X_AMZN_TRACE_ID"

logger = Logger(service=SERVICE, use_rfc3339=True, utc=True)
# Lambda's own log level must be INFO or lower: at a higher level, Lambda drops metric lines.
# In Powertools, Lambda's log level has priority over POWERTOOLS_LOG_LEVEL, so the level is set on
# the logger that Powertools wraps.
logging.getLogger(SERVICE).setLevel(os.environ.get("POWERTOOLS_LOG_LEVEL") or logging.INFO)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)
metrics.set_default_dimensions(environment=os.environ.get(Variable.ENVIRONMENT) or "none")


def lambda_function(handler: Handler) -> Handler:
    """Log, trace and measure each invocation of a Lambda function, including invocations that fail.

    Powertools' ``log_metrics`` is not used: it would print a warning for each invocation without
    metrics.
    """

    @wraps(handler)
    def measured(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        try:
            return handler(event, context)
        finally:
            if metrics.metric_set:
                metrics.flush_metrics()
            else:
                metrics.clear_metrics()  # drop the metadata, which names the run

    @logger.inject_lambda_context(clear_state=True)
    @wraps(handler)
    def invoke(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        if not is_sampled():
            # Without this line, a later sampled invocation would be marked as a cold start. The
            # X-Ray SDK is not imported here: the import takes a tenth of the time of a cold start.
            powertools.is_cold_start = False
            return measured(event, context)
        traced: Handler = _open_tracer().capture_lambda_handler(measured, capture_response=False)
        return traced(event, context)

    logged: Handler = invoke  # restores the type, which the decorator of Powertools hides
    return logged


def is_sampled() -> bool:
    """Return whether X-Ray samples this invocation."""
    return "Sampled=1" in os.environ.get(TRACE_HEADER, "").split(";")


@cache
def _open_tracer() -> Tracer:
    # Auto-patching would add a subsegment for each of the thousands of calls in a task.
    return Tracer(service=SERVICE, auto_patch=False)


def bind_run(run: str, archive: str = "") -> None:
    """Add the id of the run to all later log lines, metrics and traces of this invocation.

    If the batch also contained the archive of another run, that run's metrics are written first.
    """
    if metrics.metric_set and metrics.metadata_set.get("run") != run:
        metrics.flush_metrics()
    logger.set_correlation_id(run)
    if is_sampled():
        _open_tracer().put_annotation("run", run)
    metrics.add_metadata("run", run)
    if archive:
        metrics.add_metadata("archive", archive)


def add_plan_metrics(plan: PlanSummary) -> None:
    """Add the metrics of one plan."""
    add_metrics(
        PlanDuration=plan.plan_seconds, BytesRead=plan.bytes_read, MembersFailed=plan.failed
    )
    _add_requests(plan.requests)
    if plan.run.event_time is not None:
        add_metrics(QueueDelay=max(0.0, plan.started - plan.run.event_time))


def add_task_metrics(report: TaskReport) -> None:
    """Add the metrics of one task."""
    add_metrics(
        TaskDuration=report.seconds,
        MembersExtracted=report.extracted,
        MembersFailed=report.failed,
        MembersUnchanged=report.unchanged,
        BytesRead=report.bytes_read,
        BytesWritten=report.bytes_written,
    )
    _add_requests(report.requests)
    puts = report.requests.put + report.requests.part + report.requests.copy
    if puts:
        add_metrics(PutLatency=report.put_seconds / puts * 1_000)
    logger.info(
        "task",
        task=report.task,
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        unfinished=report.unfinished,
        seconds=report.seconds,
    )


def add_archive_metrics(report: Report, *, is_first: bool = True) -> None:
    """Add the metrics of a run that has ended, and log its failures by reason.

    Args:
        report: the report of the run.
        is_first: whether the run had no report before. The duration is measured only for a first
            report, because a run that is resumed days later is not slow.
    """
    metric = STOPPED_RUNS if report.reason == STOPPED else END_METRICS[report.verdict]
    # The other metrics are set to zero, so that the dashboard does not show "no data" for them.
    add_metrics(**{name: float(name == metric) for name in (*END_METRICS.values(), STOPPED_RUNS)})
    if is_first:
        add_metrics(RunDuration=max(0.0, report.finished - report.started))
    if is_first and report.event_time is not None:
        seconds = max(0.0, report.finished - report.event_time)
        size = max(report.bytes_in, report.bytes_out) / PACE_BYTES
        # An archive that is smaller than one unit is counted as one unit.
        pace = seconds / max(1.0, size, report.members / PACE_MEMBERS)
        add_metrics(ArchiveDuration=seconds, ArchivePace=pace)
    logger.info(
        "archive",
        verdict=report.verdict.value,
        reason=report.reason,
        source=str(report.source),
        seconds=round(report.finished - (report.event_time or report.started), 3),
        dollars=report.cost,
        **{name: getattr(report, name) for name in LOGGED_COUNTS},
    )
    for reason, members in report.reasons.items():
        logger.info("failures", reason=reason, members=members)


def add_source_metrics(result: SourceResult) -> None:
    """Count and log whether an archive was deleted or tagged after its run."""
    is_done = result.state is SourceState.DONE
    add_metrics(SourcesFinished=float(is_done), SourcesNotFinished=float(not is_done))
    log = logger.info if is_done else logger.warning
    log("source", action=result.action.value, state=result.state.value, reason=result.message)


def _add_requests(requests: Requests) -> None:
    add_metrics(
        ReadRequests=requests.reads,
        WriteRequests=requests.writes,
        S3Throttles=requests.throttled,
    )


def add_metrics(**values: float) -> None:
    """Add metric values; each keyword is the name of a metric."""
    for name, value in values.items():
        metrics.add_metric(name=name, unit=METRICS[name], value=value)
