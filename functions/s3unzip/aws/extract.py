"""The function `extract`, which does one task of a run."""

from functools import lru_cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip.aws.environment import convert_input, load_config
from s3unzip.aws.telemetry import bind_run, lambda_function, measure_task
from s3unzip.extraction.task import run_task
from s3unzip.model import Run, Task
from s3unzip.runs.records import RunRecords


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Extract the members of a task; after an error, the state machine retries the task.

    The event has the id of the run (``run``) and the task (``task``).
    """
    bind_run(event["run"])
    run = _read_run(event["run"])
    task = convert_input(event["task"], Task)
    measure_task(run_task(run, task, load_config().context(context, run)))
    return {}


@lru_cache(maxsize=16)
def _read_run(run: str) -> Run:
    """Return a run by its id; cached, because a plan never changes."""
    return RunRecords.open(load_config().stores, run).require_plan().run
