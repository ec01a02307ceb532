"""Starts the execution of a run; its name is the run's id, so it starts only once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from s3unzip import run_files
from s3unzip.model import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_stepfunctions import SFNClient

    from s3unzip.aws_lambda.environment import LambdaConfig
    from s3unzip.model import Location, PlanSummary, Request

MAX_INPUT = 32 * 1024  # bytes; the limit of Step Functions is 262,144


def start_execution(
    client: SFNClient, worker: LambdaConfig, run: str, payload: Mapping[str, Any]
) -> bool:
    """Start the run's execution with the input `payload`; return False if it already exists.

    Step Functions forgets an execution 90 days after its end (quotas of
    Standard workflows).
    """
    try:
        client.start_execution(
            stateMachineArn=worker.state_machine, name=run, input=encode(payload).decode()
        )
    except client.exceptions.ExecutionAlreadyExists:
        return False
    return True


def unplanned_input(request: Request) -> dict[str, Any]:
    """Return the input of an execution whose first state is the planner."""
    return {"planned": False, "request": msgspec.to_builtins(request)}


def planned_input(work: Location, plan: PlanSummary, max_workers: int = 1) -> dict[str, Any]:
    """Return the input of the state machine of `infra.workflow`; small for every archive.

    Args:
        work: the prefix of all runs.
        plan: of the run.
        max_workers: limit of concurrent scans.
    """
    run = f"{work.key}runs/{plan.run.id}"
    return {
        "planned": True,
        "refused": False,
        "run": msgspec.to_builtins(plan.run),
        "work": {
            "bucket": work.bucket,
            "scan": f"{run}/{run_files.SCAN}",
            "rescan": f"{run}/{run_files.RESCAN}",
            "plan": f"{run}/{run_files.PLAN}",
            "redo": f"{run}/{run_files.REDO}",
            "maps": f"{run}/{run_files.MAPS}",
        },
        "tasks": plan.tasks,
        "scans": plan.scans,
        "split_members": plan.split_members,
        "concurrency": max(1, plan.concurrency),
        "scans_at_once": max(1, min(plan.scans, max_workers)),
    }
