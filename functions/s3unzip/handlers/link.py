"""Function `link`: fits the segments of huge members together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from s3unzip.aws.environment import open_worker
from s3unzip.aws.invocation import parse_field
from s3unzip.aws.telemetry import bind_run, lambda_function, logger, timed
from s3unzip.extraction.split.link import await_scans, link_members
from s3unzip.model import Run
from s3unzip.runs.records import RunRecords
from s3unzip.runs.rounds import Round, next_round

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Link the scanned segments when all scans are done, and begin the uploads of split members.

    It waits for the scans as long as the event says.
    """
    run = parse_field(event, "run", Run)
    bind_run(run)
    worker = open_worker()
    step = worker.context(context)
    calls = step.calls()
    records = RunRecords.open(worker.stores, run.id, calls)
    waited = event.get("patience", 0.0)
    left = 0 if event.get("anyway") else await_scans(records, step.clock, waited)
    if not left:
        with timed("LinkDuration"):
            report = link_members(run, step, calls)
        logger.info("linked", **report._asdict())
    earlier = parse_field(event, "earlier", Round) if "earlier" in event else None
    return asdict(next_round(left, earlier))
