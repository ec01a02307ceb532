"""The state machine's definition."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s3unzip import errors
from s3unzip.aws_lambda.executions import MOST_INPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.infra.templates import Synthesized

SNAPSHOT = Path(__file__).with_name("workflow.json")
SERVICE_ERRORS = {"States.TaskFailed", "Lambda.TooManyRequestsException"}


def each_state(definition: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and state of a definition, those of Maps too."""
    for name, state in definition["States"].items():
        yield name, state
        if "ItemProcessor" in state:
            yield from each_state(state["ItemProcessor"])


def test_definition_is_the_one_on_record(dev: Synthesized) -> None:
    """A change of the state machine shows in its snapshot (UPDATE_SNAPSHOTS=1 writes it)."""
    text = json.dumps(dev.definition(), indent=2) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert SNAPSHOT.read_text() == text


def test_every_error_name_exists(dev: Synthesized) -> None:
    """What the state machine matches is raised under that name by the package, or by AWS."""
    names = {
        name
        for _, state in each_state(dev.definition())
        for retry in state.get("Retry", []) + state.get("Catch", [])
        for name in retry["ErrorEquals"]
    }
    for name in names - SERVICE_ERRORS:
        raised = getattr(errors, name)
        assert issubclass(raised, errors.S3UnzipError)
        assert not raised.retryable


def test_retries_back_off_with_jitter(dev: Synthesized) -> None:
    """Every task that is tried again waits longer each time, and not in step with others."""
    tasks = [(name, s) for name, s in each_state(dev.definition()) if s["Type"] == "Task"]
    assert len(tasks) == 6
    for _, task in tasks:
        for retry in task["Retry"]:
            if retry["MaxAttempts"]:
                assert retry["JitterStrategy"] == "FULL"
                assert retry["BackoffRate"] > 1


def test_maps_read_lines_and_keep_nothing(dev: Synthesized) -> None:
    """Maps are distributed with Express children, read JSON lines and discard results."""
    maps = {name: s for name, s in each_state(dev.definition()) if s["Type"] == "Map"}
    assert set(maps) == {"Scan", "Extract", "Redo"}
    for state in maps.values():
        processor = state["ItemProcessor"]["ProcessorConfig"]
        assert processor == {"Mode": "DISTRIBUTED", "ExecutionType": "EXPRESS"}
        assert state["ItemReader"]["ReaderConfig"] == {"InputType": "JSONL"}
        assert state["ResultPath"] is None
        assert "MaxConcurrencyPath" in state
    tolerated = {name: state.get("ToleratedFailurePercentage") for name, state in maps.items()}
    assert tolerated["Extract"] == tolerated["Scan"] == 100
    assert not tolerated["Redo"]


def test_children_outlive_their_function(dev: Synthesized) -> None:
    """An Express child has five minutes: a worker's timeout leaves it time for its end."""
    for name in ("Extract", "Scan"):
        made = dev.properties("AWS::Lambda::Function", f"Functions{name}")
        assert made["Timeout"] < 300


def test_state_machine_reads_only_lines(dev: Synthesized) -> None:
    """Of the work bucket it reads the three objects that Maps need."""
    reads = [
        statement
        for statement in dev.statements("WorkflowRunsRole")
        if "s3:" in str(statement["Action"])
    ]
    (only,) = reads
    assert only["Action"] == "s3:GetObject"
    assert len(only["Resource"]) == 3


def test_state_machine_may_redrive_its_maps(dev: Synthesized) -> None:
    """A redriven run may redrive its map runs."""
    statements = dev.statements("WorkflowRunsDistributedMapPolicy")
    assert any(statement["Action"] == "states:RedriveExecution" for statement in statements)


def test_input_is_bounded() -> None:
    """What the plan hands over is far below what Step Functions takes."""
    assert MOST_INPUT <= 262_144 // 8
