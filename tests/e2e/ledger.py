"""The ledger of shares of a deployed stack, as tests read and write it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from s3unzip.aws.admission.ledger import Entry
from s3unzip.runs.shares import Bid

from tests.patience import looks

if TYPE_CHECKING:
    from collections.abc import Callable

    from embedded.pipeline import DeployedPipeline

FOLDER = "runs/-shares/"


def hold(
    pipeline: DeployedPipeline, run: str, workers: int, *, share: int = 0, seconds: float = 0.0
) -> str:
    """Write the entry of a run, in the place of those that it has; return its key.

    Args:
        pipeline: the stack.
        run: the run's id.
        workers: that it wants.
        share: that it has; 0: all that it wants.
        seconds: since when.
    """
    for key in entries_of(pipeline, run):
        pipeline.client("s3").delete_object(Bucket=pipeline.outputs["WorkBucket"], Key=key)
    since = round(time.time() - seconds)
    key = FOLDER + Entry(Bid(run, workers=workers), since, share or workers).name
    pipeline.client("s3").put_object(Bucket=pipeline.outputs["WorkBucket"], Key=key, Body=b"{}")
    return key


def entries_of(pipeline: DeployedPipeline, run: str = "") -> list[str]:
    """Return the keys of the ledger's entries, of one run or of all."""
    listed = pipeline.client("s3").list_objects_v2(
        Bucket=pipeline.outputs["WorkBucket"], Prefix=FOLDER
    )
    keys = [one["Key"] for one in listed.get("Contents", [])]
    return [key for key in keys if not run or key.endswith(f"~{run}")]


def clear_ledger(pipeline: DeployedPipeline) -> None:
    """Delete all entries and messages that an earlier test left."""
    for key in entries_of(pipeline):
        pipeline.client("s3").delete_object(Bucket=pipeline.outputs["WorkBucket"], Key=key)
    pipeline.client("sqs").purge_queue(QueueUrl=pipeline.outputs["QueueUrl"])


def await_that(pipeline: DeployedPipeline, what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    assert any(what() for _ in looks()), pipeline.logs()


def count_refusals(pipeline: DeployedPipeline) -> int:
    """Return how often a function logged that it was refused something."""
    return pipeline.logs().count("AccessDenied")
