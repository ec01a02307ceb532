"""Definitions that AWS refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import WaiterError

from tests.strict.machines import ROLE, distributed, machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.strict.machines import Machines

PASS: dict[str, Any] = {"Type": "Pass", "End": True}
TASK = {"Type": "Task", "Resource": "arn:aws:lambda:us-east-1:000000000000:function:f", "End": True}
WRITER = {
    "Resource": "arn:aws:states:::s3:putObject",
    "Parameters": {"Bucket": "b", "Prefix": "p"},
}


def retrying(**retrier: Any) -> dict[str, Any]:
    """Return a definition whose task has one retrier."""
    return machine(A={**TASK, "Retry": [{"ErrorEquals": ["E"], **retrier}]})


def mapping(**fields: Any) -> dict[str, Any]:
    """Return a definition of one Distributed Map."""
    return machine(M=distributed({"Type": "Pass"}, **fields))


HALF = {"Mode": "DISTRIBUTED"}
AS_CSV = {"OutputType": "CSV"}
INLINE = {"Type": "Map", "ItemProcessor": machine(A=PASS), "End": True}
INVALID: dict[str, tuple[Mapping[str, Any], str]] = {
    "no states": ({"StartAt": "A"}, "States is missing"),
    "unknown start": ({**machine(A=PASS), "StartAt": "B"}, "StartAt names no state"),
    "unknown type": (machine(A={"Type": "Sleep", "End": True}), "'Sleep' is no type of state"),
    "no end": (machine(A={"Type": "Pass"}), "either Next or End"),
    "both ends": (machine(A={**PASS, "Next": "B"}, B=PASS), "either Next or End"),
    "end of Fail": (machine(A={"Type": "Fail", "End": True}), "neither Next nor End"),
    "unknown target": (machine(A={"Type": "Pass", "Next": "B"}), "'B' is no state"),
    "unknown catch": (
        machine(A={**TASK, "Catch": [{"ErrorEquals": ["E"], "Next": "B"}]}),
        "'B' is no state",
    ),
    "unreachable": (machine(A=PASS, B=PASS), "no state leads here"),
    "no resource": (machine(A={"Type": "Task", "End": True}), "Resource is missing"),
    "States.ALL not last": (
        machine(A={**TASK, "Retry": [{"ErrorEquals": ["States.ALL"]}, {"ErrorEquals": ["E"]}]}),
        "alone and last",
    ),
    "no error": (retrying(ErrorEquals=[]), "ErrorEquals is missing"),
    "back-off": (retrying(BackoffRate=0.5), "BackoffRate is at least 1"),
    "jitter": (retrying(JitterStrategy="SOME"), "NONE or FULL"),
    "inside": (machine(P={**PASS, "Type": "Parallel", "Branches": [{}]}), "States is missing"),
    "inline label": (machine(M={**INLINE, "Label": "L"}), "mode DISTRIBUTED"),
    "long label": (mapping(Label="L" * 41), "at most 40"),
    "odd label": (mapping(Label="a b"), "plain characters"),
    "same labels": (
        machine(
            M={**mapping(Label="L")["States"]["M"], "End": False, "Next": "N"},
            N=mapping(Label="L")["States"]["M"],
        ),
        "'L' is used twice",
    ),
    "percentage": (mapping(ToleratedFailurePercentage=101), "from 0 to 100"),
    "two limits": (mapping(MaxConcurrency=1, MaxConcurrencyPath="$.n"), "exclude each other"),
    "no execution type": (
        machine(M={**INLINE, "ItemProcessor": {**machine(A=PASS), "ProcessorConfig": HALF}}),
        "Mode and ExecutionType",
    ),
    "reader": (mapping(ItemReader={**WRITER}), "s3:getObject"),
    "writer": (mapping(ResultWriter={**WRITER, "Resource": "arn:aws:s3:::b"}), "s3:putObject"),
    "empty writer": (mapping(ResultWriter={}), "ResultWriter is empty"),
    "writer to nowhere": (mapping(ResultWriter={"Resource": WRITER["Resource"]}), "Parameters"),
    "output type": (
        mapping(
            ResultWriter={**WRITER, "WriterConfig": {**AS_CSV, "Transformation": "NONE"}},
        ),
        "OutputType",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_definitions(machines: Machines, case: str) -> None:
    """InvalidDefinition says what is wrong; ValidateStateMachineDefinition says it too."""
    definition, fault = INVALID[case]
    with pytest.raises(machines.states.exceptions.InvalidDefinition, match=fault):
        machines.create(definition)
    told = machines.states.validate_state_machine_definition(definition=json.dumps(definition))
    assert told["result"] == "FAIL"
    assert any(fault in found["message"] for found in told["diagnostics"])


def test_no_json(machines: Machines) -> None:
    """InvalidDefinition, and by an update as well."""
    states, arn = machines.states, machines.create(machine(A=PASS))
    for text in ("{", json.dumps(machine(A={"Type": "Pass"}))):
        with pytest.raises(states.exceptions.InvalidDefinition):
            states.update_state_machine(stateMachineArn=arn, definition=text)


def test_the_size_of_a_definition(machines: Machines) -> None:
    """One MiB at most."""
    large = machine(A={**PASS, "Result": "x" * (1 << 20)})
    with pytest.raises(machines.states.exceptions.InvalidDefinition, match="1048576 bytes"):
        machines.create(large)


def test_valid_definitions(machines: Machines) -> None:
    """What the invalid ones are varied from is taken."""
    writer = {**WRITER, "WriterConfig": {"Transformation": "FLATTEN", "OutputType": "JSONL"}}
    for definition in (
        machine(A=PASS),
        machine(A={**TASK, "Retry": [{"ErrorEquals": ["E"]}, {"ErrorEquals": ["States.ALL"]}]}),
        machine(M=INLINE),
        mapping(Label="L" * 40, ResultWriter=writer, ToleratedFailurePercentage=100),
    ):
        told = machines.states.validate_state_machine_definition(definition=json.dumps(definition))
        assert (told["result"], told["diagnostics"]) == ("OK", [])
        machines.create(definition)


def test_a_template_with_an_invalid_definition(machines: Machines) -> None:
    """The stack is not created; its event names the fault."""
    resource = {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {
            "RoleArn": ROLE,
            "DefinitionString": json.dumps(machine(A={"Type": "Pass"})),
        },
    }
    body = json.dumps({"Resources": {"M": resource}})
    cloudformation = machines.cloudformation
    cloudformation.create_stack(StackName="invalid", TemplateBody=body)
    with pytest.raises(WaiterError):
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName="invalid", WaiterConfig={"Delay": 0.05}
        )
    events = cloudformation.describe_stack_events(StackName="invalid")["StackEvents"]
    reasons = [event.get("ResourceStatusReason", "") for event in events]
    assert any("either Next or End" in reason for reason in reasons)
