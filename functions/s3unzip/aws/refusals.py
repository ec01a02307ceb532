"""The list of runs that ended with their plan: rejected archives, and those above a budget.

They have a report and no execution, and S3 cannot list reports by time. So each refusal has an
empty object ``runs/-refused/<time, counted down>-<run>``, and a listing returns the latest first.
No run's id begins with a dash.

A refused run has no execution that would say that it is known. So its last
object, ``refused.json``, says which event it answered: that event again is a
repetition, but the same archive put again is refused anew, maybe by another
budget or version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip import run_files
from s3unzip.aws.timeline import list_entries
from s3unzip.errors import NotFoundError
from s3unzip.model import decode, encode
from s3unzip.runs.watch import RunEntry

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.aws.environment import LambdaConfig
    from s3unzip.context import Context
    from s3unzip.model import Location, Report, Request
    from s3unzip.stores.calls import Calls

REFUSED = "REFUSED"


class Refusal(Struct, frozen=True):
    """``refused.json``: what a refused run answered."""

    event_time: float | None  # Unix seconds: when the archive was put


def is_refused(request: Request | Report, run: str, context: Context, calls: Calls) -> bool:
    """Return whether this event was answered: its archive refused, and the run's event sent."""
    if request.event_time is None:
        return False
    try:
        data = context.stores.run_store(run, calls).read(run_files.REFUSED)
    except NotFoundError:
        return False
    return decode(data, Refusal).event_time == request.event_time


def close_refusal(report: Report, context: Context) -> None:
    """Note that the event of a refused run was sent; the last thing that is done for it."""
    refusal = Refusal(report.event_time)
    store = context.stores.run_store(report.run, context.calls())
    store.write(run_files.REFUSED, [encode(refusal)])


def note_refusal(worker: LambdaConfig, report: Report, context: Context) -> None:
    """Add a run to the list."""
    name = run_files.entry_name(report.run, report.started)
    worker.stores.run_store(run_files.REFUSALS, context.calls()).write(name, [b""])


def list_refusals(client: S3Client, work: Location, limit: int) -> list[RunEntry]:
    """Return the latest refusals, at most 1,000.

    Raises:
        AccessDeniedError: a right is missing.
    """
    entries = list_entries(client, work, run_files.REFUSALS, limit)
    return [RunEntry(entry.run, REFUSED, entry.time) for entry in entries]
