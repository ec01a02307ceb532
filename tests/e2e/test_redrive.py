"""A run that failed goes on by `s3unzip resume`, as its operator types it."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from s3unzip.model import Report, Run, TaskReport, Verdict, decode
from s3unzip.settings import Variable
from tests.e2e.executions import describe, list_maps
from tests.e2e.functions import with_variables
from tests.patience import HANG_SECONDS
from tests.processes import run_command
from tests.zips import Entry, build
from tools.house import ROOT

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from embedded.deploy import Assembly
    from embedded.pipeline import DeployedPipeline


def call(pipeline: DeployedPipeline, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``s3unzip`` with `words` and the credentials of the account."""
    variables = {**os.environ, **pipeline.variables, "S3UNZIP_HOME": str(home)}
    return run_command(words, ROOT, variables)


def until_status(pipeline: DeployedPipeline, key: str, *wanted: str) -> Run:
    """Return the run of the archive `key` as soon as its execution has a wanted status."""
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        run = pipeline.find_run(key)
        if run is not None and pipeline.status(run) in wanted:
            return run
        time.sleep(0.05)
    raise AssertionError(f"{key} is not {wanted}: {pipeline.logs()[-2_000:]}")


@pytest.fixture(scope="module")
def assembly(orchestrated: Assembly) -> Assembly:
    """The stack without direct runs: the tests look at executions."""
    return orchestrated


@pytest.fixture(scope="module")
def redriven(
    pipeline: DeployedPipeline, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, dict[str, Any]]:
    """A run whose tasks all failed for a wrong variable, then redriven; how it had failed."""
    members = [Entry(f"m{n}.json", json.dumps({"n": n}).encode()) for n in range(25)]
    with with_variables(pipeline, "extract", {Variable.TUNING.value: "{no JSON"}):
        pipeline.put("redriven.zip", build(*members))
        run = until_status(pipeline, "redriven.zip", "FAILED")
    failed = describe(pipeline, run.id)
    done = call(pipeline, tmp_path_factory.mktemp("home"), "resume", run.id, "--env", "dev")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"redriven: s3unzip watch {run.id} --env dev\n"
    return run, failed


def test_what_failed_is_redrivable(redriven: tuple[Run, dict[str, Any]]) -> None:
    """Its Redo tolerates no failure."""
    _, failed = redriven
    assert failed["error"] == "States.ExceedToleratedFailureThreshold"
    assert (failed["redriveStatus"], failed["redriveCount"]) == ("REDRIVABLE", 0)


def test_a_redriven_run_completes(
    pipeline: DeployedPipeline, redriven: tuple[Run, dict[str, Any]], tmp_path: Path
) -> None:
    """Every member exists, the report says so, and Redo keeps its Map Run."""
    run, _ = redriven
    until_status(pipeline, "redriven.zip", "SUCCEEDED")
    watched = call(pipeline, tmp_path, "watch", run.id, "--env", "dev", "--json")
    report = decode(watched.stdout.splitlines()[-1], Report)
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 25)
    assert len(pipeline.members("redriven/")) == 25
    told = describe(pipeline, run.id)
    assert told["redriveCount"] == 1
    states = pipeline.client("stepfunctions")
    runs = list_maps(pipeline, run.id)
    described = [states.describe_map_run(mapRunArn=one["mapRunArn"]) for one in runs]
    assert [one["redriveCount"] for one in described] == [1]  # Redo; the first round was inline


def test_a_run_that_succeeded_is_left_alone(
    pipeline: DeployedPipeline, redriven: tuple[Run, dict[str, Any]], tmp_path: Path
) -> None:
    """The command says that nothing is left to do."""
    run, _ = redriven
    until_status(pipeline, "redriven.zip", "SUCCEEDED")
    done = call(pipeline, tmp_path, "resume", run.id, "--env", "dev")
    assert done.returncode == 0
    assert done.stderr == f"{run.id}: COMPLETED already, nothing is left to do\n"


def test_a_task_without_time_fails_its_run_at_the_fourth_attempt(
    pipeline: DeployedPipeline, tmp_path: Path
) -> None:
    """Each attempt is in another round; a redrive with time completes the run."""
    without_time = json.dumps({"margin_seconds": 1_000})  # more than a worker ever has left
    with with_variables(pipeline, "extract", {Variable.TUNING.value: without_time}):
        pipeline.put("late.zip", build(*(Entry(f"{n}", b"x") for n in range(3))))
        run = until_status(pipeline, "late.zip", "FAILED")
    (line,) = (pipeline.read(f"runs/{run.id}/outcomes/batch-0000000.jsonl") or b"").splitlines()
    report = decode(line, TaskReport)
    assert (report.late, report.unfinished) == (4, 3)
    assert describe(pipeline, run.id)["redriveStatus"] == "REDRIVABLE"
    done = call(pipeline, tmp_path, "resume", run.id, "--env", "dev")
    assert done.returncode == 0, done.stderr
    until_status(pipeline, "late.zip", "SUCCEEDED")
    assert len(pipeline.members("late/")) == 3
