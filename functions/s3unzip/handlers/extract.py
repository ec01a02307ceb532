"""Function `extract`: one task of the plan, or the scan of one segment.

Scans and tasks share one function, because a huge member needs as many workers for its scans as for
its slices: the slices find the environments of the scans, so they have no cold start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws.environment import open_worker
from s3unzip.aws.invocation import child_end, parse_field
from s3unzip.aws.telemetry import bind_run, lambda_function, record_scan, record_task
from s3unzip.aws.warming import is_warm_up, warm_up
from s3unzip.extraction.split.scan import run_scan
from s3unzip.extraction.task import run_task
from s3unzip.model import Run, ScanTask, Task

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from s3unzip.context import Context


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Do the task or the scan, and write its result; raise what the state machine should retry."""
    if is_warm_up(event):
        return warm_up()
    run = parse_field(event, "run", Run)
    bind_run(run)
    worker = open_worker().context(context, child_end(event))
    if "scan" in event:
        return _scan(run, parse_field(event, "scan", ScanTask), worker)
    report = run_task(run, parse_field(event, "task", Task), worker, in_rounds=True)
    record_task(report)
    return {"task": report.task, "failed": report.failed, "unfinished": report.unfinished}


def _scan(run: Run, scan: ScanTask, worker: Context) -> dict[str, Any]:
    report = run_scan(run, scan, worker)
    record_scan(report)
    return {"scan": report.scan, "found": report.found}
