"""The retries of the state machine.

There are three kinds of tasks. A worker of a Distributed Map runs in an Express child workflow,
which lives at most 300 s. A worker of an inline Map runs in the Standard workflow itself, with the
same retries. The steps of the Standard workflow (link, report) may wait for days.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_stepfunctions as sfn

from s3unzip import rates
from s3unzip.errors import (
    AccessDeniedError,
    DeadlineError,
    NotFoundError,
    RunStoppedError,
    StoreFullError,
    UsageError,
)
from s3unzip.settings import EXPRESS_END, EXPRESS_SECONDS

if TYPE_CHECKING:
    from aws_cdk import aws_stepfunctions_tasks as tasks

# A retry would fail in the same way. Lambda reports the name of the class.
FINAL = (AccessDeniedError, NotFoundError, RunStoppedError, StoreFullError, UsageError)
# Lambda has no free concurrency (developer guide of Step Functions, "Handling errors").
THROTTLED = "Lambda.TooManyRequestsException"
POLL_SECONDS = 5  # maximum delay of a child that waits for a free worker
WAIT_SECONDS = 90  # that a slice waits for the link step, of the 300 s of its child
SCAN_SECONDS = 60  # that the link step waits for scans which run beside it
WARM_SECONDS = 30  # that a call may take which only starts an environment, or queues its event
STEP_POLL_SECONDS = 300  # maximum delay of link and report
STEP_ATTEMPTS = 1_000  # about 40 hours with full jitter


def retry_worker(task: tasks.LambdaInvoke, timeout: int, no_worker: sfn.IChainable) -> None:
    """Retry a task of an Express child; without a free worker end the child as `no_worker`.

    The waits for a worker and one full attempt of `timeout` seconds fit into the child's 300 s.
    Later attempts see the remaining time (`s3unzip.aws.invocation.LambdaClock`). A worker
    that runs out of time is not retried in the same child.
    """
    _retry_work(task, timeout)
    task.add_catch(no_worker, errors=[THROTTLED], result_path=sfn.JsonPath.DISCARD)


def retry_inline_worker(task: tasks.LambdaInvoke, timeout: int, left: sfn.IChainable) -> None:
    """Retry a task of an inline Map as that of an Express child; after any error go to `left`."""
    _retry_work(task, timeout)
    task.add_catch(left, errors=[sfn.Errors.ALL], result_path=sfn.JsonPath.DISCARD)


def wait_for_link(task: tasks.CallAwsService, late: sfn.IChainable) -> None:
    """Ask again each second, with no worker; after `WAIT_SECONDS` end the child as `late`.

    Any error means "not yet": S3 answers 403 and not 404 if the role may not list the bucket.
    """
    task.add_retry(
        errors=[sfn.Errors.TASKS_FAILED],
        interval=cdk.Duration.seconds(rates.SLICE_POLL_SECONDS),
        max_attempts=WAIT_SECONDS,
        backoff_rate=1,
    )
    task.add_catch(late, errors=[sfn.Errors.ALL], result_path=sfn.JsonPath.DISCARD)


def retry_step(task: tasks.LambdaInvoke) -> None:
    """Retry a task of the Standard workflow."""
    task.add_retry(errors=_names(*FINAL), max_attempts=0)
    _retry_throttles(task, STEP_ATTEMPTS, STEP_POLL_SECONDS)
    _retry_faults(task)


def attempts_within(seconds: int) -> int:
    """Return how many waits for a worker fit into `seconds`, at least one."""
    attempts, wait, total = 0, 1.0, 0.0
    while (total := total + min(wait, POLL_SECONDS)) <= seconds:
        attempts += 1
        wait *= 1.6
    return max(1, attempts)


def _retry_work(task: tasks.LambdaInvoke, timeout: int) -> None:
    task.add_retry(errors=_names(*FINAL, DeadlineError), max_attempts=0)
    patience = EXPRESS_SECONDS - EXPRESS_END - timeout
    _retry_throttles(task, attempts_within(patience), POLL_SECONDS)
    _retry_faults(task)


def _retry_throttles(task: tasks.LambdaInvoke, attempts: int, max_delay: int) -> None:
    task.add_retry(
        errors=[THROTTLED],
        interval=cdk.Duration.seconds(1),
        max_attempts=attempts,
        backoff_rate=1.6,
        max_delay=cdk.Duration.seconds(max_delay),
        jitter_strategy=sfn.JitterType.FULL,  # thousands must not retry at the same moment
    )


def _retry_faults(task: tasks.LambdaInvoke) -> None:
    task.add_retry(
        errors=[sfn.Errors.TASKS_FAILED],
        interval=cdk.Duration.seconds(1),
        max_attempts=3,
        backoff_rate=2.5,
        max_delay=cdk.Duration.seconds(30),
        jitter_strategy=sfn.JitterType.FULL,
    )


def _names(*errors: type[Exception]) -> list[str]:
    return [error.__name__ for error in errors]
