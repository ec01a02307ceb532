"""Executions of a deployed stack, as tests start, look at and abort them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.ledger import await_that
from tests.zips import Entry, build

if TYPE_CHECKING:
    from embedded.pipeline import DeployedPipeline
    from s3unzip.model import Run


def execution_of(pipeline: DeployedPipeline, run: str) -> str:
    """Return the ARN of a run's execution."""
    machine = pipeline.outputs["StateMachineArn"]
    return f"{machine.replace(':stateMachine:', ':execution:')}:{run}"


def describe(pipeline: DeployedPipeline, run: str) -> dict[str, Any]:
    """Return what DescribeExecution tells of a run."""
    states = pipeline.client("stepfunctions")
    return dict(states.describe_execution(executionArn=execution_of(pipeline, run)))


def has_execution(pipeline: DeployedPipeline, key: str) -> bool:
    """Say whether the execution of an archive's run was started: its run is known before."""
    run = pipeline.find_run(key)
    return run is not None and pipeline.status(run) is not None


def list_maps(pipeline: DeployedPipeline, run: str) -> list[dict[str, Any]]:
    """Return the Map Runs of a run's execution."""
    states = pipeline.client("stepfunctions")
    listed = states.list_map_runs(executionArn=execution_of(pipeline, run))
    return list(listed["mapRuns"])


def labels_of_maps(pipeline: DeployedPipeline, run: str) -> set[str]:
    """Return the labels of the Distributed Maps that a run's execution started."""
    return {one["mapRunArn"].split("/")[1].split(":")[0] for one in list_maps(pipeline, run)}


def start_map(pipeline: DeployedPipeline, key: str) -> Run:
    """Put an archive; return its run when its Map is at work."""
    earlier = pipeline.find_run(key)
    pipeline.put(key, build(Entry("a", b"a")))

    def find_at_work() -> Run | None:
        run = pipeline.find_run(key)
        if run is None or run == earlier or pipeline.status(run) is None:
            return None
        return run if list_maps(pipeline, run.id) else None

    await_that(pipeline, lambda: find_at_work() is not None)
    run = pipeline.find_run(key)
    assert run is not None
    return run


def abort(pipeline: DeployedPipeline, run: Run) -> None:
    """Abort a run's execution; its end is reported some time later."""
    states = pipeline.client("stepfunctions")
    states.stop_execution(executionArn=execution_of(pipeline, run.id))


def await_end(pipeline: DeployedPipeline, run: Run) -> None:
    """Wait for the report of a run that was aborted: its workers were given to others before."""
    await_that(pipeline, lambda: pipeline.report(run) is not None)


def stop(pipeline: DeployedPipeline, run: Run) -> None:
    """Abort a run's execution, and wait for its end."""
    abort(pipeline, run)
    await_end(pipeline, run)
