"""256 KiB for every input, output and result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from embedded.ministack import EmbeddedAws
from tests.strict.machines import Machines, distributed, machine, task

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT = 262_144
EXCEEDED = ("FAILED", "States.DataLimitExceeded")


def outcome(told: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return status and error of an execution."""
    return told["status"], told.get("error")


def giving(size: int) -> dict[str, Any]:
    """Return a state whose output is a JSON string of so many bytes, its quotes included."""
    return {"Type": "Pass", "Result": "x" * (size - 2), "End": True}


@pytest.mark.parametrize(
    ("size", "expected"), [(LIMIT, ("SUCCEEDED", None)), (LIMIT + 1, EXCEEDED)]
)
def test_output_of_a_state(machines: Machines, size: int, expected: tuple[str, str | None]) -> None:
    """The last byte that fits passes, the next one fails the execution."""
    assert outcome(machines.run(machine(A=giving(size)))) == expected


def test_bytes_of_utf8_count(machines: Machines) -> None:
    """Not characters: two bytes each are too many."""
    told = machines.run(machine(A={"Type": "Pass", "Result": "é" * (LIMIT // 2), "End": True}))
    assert outcome(told) == EXCEEDED


def test_input_of_an_execution(machines: Machines) -> None:
    """StartExecution refuses it."""
    arn = machines.create(machine(A={"Type": "Pass", "End": True}))
    text = '"' + "x" * (LIMIT - 1) + '"'
    with pytest.raises(ClientError, match="ValidationException"):
        machines.states.start_execution(stateMachineArn=arn, input=text)
    machines.states.start_execution(stateMachineArn=arn, input=text.replace("x", "", 1))


def test_result_of_a_task(machines: Machines) -> None:
    """States.ALL and States.TaskFailed neither retry nor catch it; its own name does."""
    caught = {"Next": "Caught"}
    failed = {"Type": "Succeed"}
    wild = task(machines.function(), Catch=[{"ErrorEquals": ["States.ALL"], **caught}])
    assert outcome(machines.run(machine(A=wild, Caught=failed), {"size": LIMIT})) == EXCEEDED
    named = [{"ErrorEquals": ["States.DataLimitExceeded"], **caught}]
    told = machines.run(machine(A={**wild, "Catch": named}, Caught=failed), {"size": LIMIT})
    assert told["status"] == "SUCCEEDED"


def test_input_of_a_task_after_parameters(machines: Machines) -> None:
    """Twice the state's input is too large, although the input is not."""
    twice = task(machines.function(), Parameters={"a.$": "$.give", "b.$": "$.give"})
    assert outcome(machines.run(machine(A=twice), {"give": "x" * (LIMIT // 2)})) == EXCEEDED


CHILD = {"Type": "Pass"}
MANY = {"items": [{"path": "x" * 80, "n": n} for n in range(2_400)]}


def test_result_of_a_distributed_map(machines: Machines) -> None:
    """Null for ResultPath and OutputPath does not help: the raw result is too large.

    https://github.com/aws/aws-cdk/issues/24799
    """
    grown = {"Type": "Pass", "Parameters": {"a.$": "$", "b": "x" * 30}}
    away: dict[str, Any] = {"ResultPath": None, "OutputPath": None}
    execution = machines.start(machine(M=distributed(grown, **away)), MANY)
    assert outcome(machines.wait(execution)) == EXCEEDED
    assert machines.map_run(execution)["status"] == "FAILED"
    counts = machines.map_run(execution)["executionCounts"]
    assert counts["succeeded"] == counts["total"] == len(MANY["items"])


def test_a_result_writer_takes_the_result(machines: Machines) -> None:
    """The same Map with a ResultWriter succeeds, and its output is small."""
    grown = {"Type": "Pass", "Parameters": {"a.$": "$", "b": "x" * 30}}
    writer = {
        "Resource": "arn:aws:states:::s3:putObject",
        "Parameters": {"Bucket": machines.bucket(), "Prefix": "results"},
    }
    told = machines.run(machine(M=distributed(grown, ResultWriter=writer)), MANY)
    assert told["status"] == "SUCCEEDED"
    assert len(told["output"]) < 400


def test_empty_outputs_of_children_fit(machines: Machines) -> None:
    """OutputPath null of the child's state leaves two bytes and a comma each."""
    empty = {**CHILD, "OutputPath": None}
    told = machines.run(machine(M=distributed(empty)), MANY)
    assert told["output"] == "[" + ",".join(["{}"] * len(MANY["items"])) + "]"


def test_input_of_a_child(machines: Machines) -> None:
    """ItemSelector may make it too large."""
    selector = {"a.$": "$$.Map.Item.Value", "b.$": "$.items[0]"}
    large = {"items": ["x" * (LIMIT // 2), 1]}
    told = machines.run(machine(M=distributed(CHILD, ItemSelector=selector)), large)
    assert outcome(told) == EXCEEDED


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_ministack_alone_lets_it_pass(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With strict off the rule is gone: it is ours, and what it refuses is no accident."""
    if how == "variable":
        monkeypatch.setenv("EMBEDDED_STRICT", "0")
    with EmbeddedAws(strict=how == "variable") as aws:
        assert outcome(Machines(aws).run(machine(A=giving(LIMIT + 1)))) == ("SUCCEEDED", None)
