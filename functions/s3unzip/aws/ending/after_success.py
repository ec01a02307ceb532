"""After success: what a function does to the archive of a run whose report is written.

It is done, logged and measured. It never fails an invocation: the run has ended, and its verdict
stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.aws.telemetry import logger, record_source
from s3unzip.errors import S3UnzipError
from s3unzip.settling.after_success import finish_source, is_left

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Report, Run
    from s3unzip.runs.records import RunRecords


def end_source(run: Run, report: Report, context: Context) -> None:
    """Delete, move or tag the archive of a run whose report is written, if that is to be done."""
    if not is_left(report):
        return
    try:
        result = finish_source(run, report, context).after_success
    except S3UnzipError:
        logger.exception("the report cannot be written again")
        return
    if result is not None:
        record_source(result)


def end_source_again(records: RunRecords, context: Context, run: Run | None = None) -> None:
    """Do for a known run what an earlier attempt did not do.

    Args:
        records: of the run.
        context: of the invocation.
        run: the run itself, if the caller has it.

    Raises:
        StorageError, ServiceFaultError: the records cannot be read.
    """
    report = records.find_report()
    if report is not None and is_left(report):
        end_source(run or records.read_run(), report, context)
