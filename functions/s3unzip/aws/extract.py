"""Function `extract`: one task of a run."""

from functools import lru_cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip.aws.environment import open_worker
from s3unzip.aws.events import parse_field
from s3unzip.aws.telemetry import bind_run, lambda_function, record_task
from s3unzip.extraction.task import run_task
from s3unzip.model import Run, Task
from s3unzip.runs.records import RunRecords


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Extract the members of a task; after an error the state machine tries the task again."""
    run = parse_field(event, "run", str)
    task = parse_field(event, "task", Task)
    bind_run(run)
    planned = _read_run(run)
    record_task(run_task(planned, task, open_worker().context(context, planned)))
    return {}


@lru_cache(maxsize=16)
def _read_run(run: str) -> Run:
    """Return a run by its id; a plan never changes."""
    return RunRecords.open(open_worker().stores, run).require_plan().run
