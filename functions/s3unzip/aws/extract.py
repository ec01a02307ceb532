"""The function `extract`, which processes one task of a run."""

from functools import lru_cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from msgspec import Struct

from s3unzip.aws.environment import convert_input, load_config
from s3unzip.aws.telemetry import add_task_metrics, bind_run, lambda_function
from s3unzip.extraction.task import run_task
from s3unzip.model import Run, Task
from s3unzip.runs.records import RunRecords


class TaskInput(Struct, frozen=True):
    """The input of the function."""

    run: str  # id of the run
    task: Task


@lambda_function
def handler(event: dict[str, Any], invocation: LambdaContext) -> dict[str, Any]:
    """Extract the members of a task; after an error, the state machine retries the task."""
    task_input = convert_input(event, TaskInput)
    bind_run(task_input.run)
    run = _read_run(task_input.run)
    report = run_task(run, task_input.task, load_config().context(invocation, run))
    add_task_metrics(report)
    return {}


@lru_cache(maxsize=16)
def _read_run(run: str) -> Run:
    """Return a run by its id; cached, because a plan never changes."""
    return RunRecords.open(load_config().stores, run).require_plan().run
