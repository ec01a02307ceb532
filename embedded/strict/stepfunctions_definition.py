"""A definition that AWS refuses is refused when the state machine is created or updated.

InvalidDefinition by the API, a failed resource by CloudFormation, and diagnostics by
ValidateStateMachineDefinition: no JSON, more than 1 MiB, unknown types of states, no or
unknown targets, states that nothing leads to, and the fields of Map, Retry and Catch that
`stepfunctions_map_fields` knows. AWS checks more; the linter of cdk-nag and CDK see some of it.
https://docs.aws.amazon.com/step-functions/latest/dg/amazon-states-language-state-machine-structure.html
https://docs.aws.amazon.com/step-functions/latest/apireference/API_CreateStateMachine.html
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import DEFINITION_BYTES, NAME_CHARACTERS
from embedded.strict.stepfunctions_map_fields import find_map_faults, find_retry_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPES = ("Pass", "Task", "Choice", "Wait", "Succeed", "Fail", "Parallel", "Map")
NEEDED = {"Task": "Resource", "Choice": "Choices", "Parallel": "Branches"}
ENDS = ("Succeed", "Fail")  # take neither Next nor End


def find_faults(text: str) -> list[tuple[str, str]]:
    """Return what is wrong with a definition: each fault and its place, ``/States/A/Next``."""
    if len(text.encode()) > DEFINITION_BYTES:
        return [(f"the definition has more than {DEFINITION_BYTES} bytes", "/")]
    try:
        definition = json.loads(text)
    except ValueError as error:
        return [(f"INVALID_JSON_DESCRIPTION: {error}", "/")]
    labels: list[str] = []
    faults = list(_machine(definition, "", labels))
    twice = sorted({label for label in labels if labels.count(label) > 1})
    return faults + [(f"the label {label!r} is used twice", "/States") for label in twice]


def _machine(machine: Any, place: str, labels: list[str]) -> Iterator[tuple[str, str]]:
    """Find faults of a state machine, or of a branch or item processor."""
    states = machine.get("States") if isinstance(machine, dict) else None
    if not isinstance(states, dict) or not states:
        yield "SCHEMA_VALIDATION_FAILED: States is missing", f"{place}/States"
        return
    if machine.get("StartAt") not in states:
        yield "MISSING_TRANSITION_TARGET: StartAt names no state", f"{place}/StartAt"
    reached = {machine.get("StartAt")}
    for name, state in states.items():
        here = f"{place}/States/{name}"
        if len(name) > NAME_CHARACTERS:
            yield f"SCHEMA_VALIDATION_FAILED: more than {NAME_CHARACTERS} characters", here
        yield from _state(state, here, labels)
        for field, target in _targets(state):
            reached.add(target)
            if target not in states:
                yield f"MISSING_TRANSITION_TARGET: {target!r} is no state", f"{here}/{field}"
    for name in states.keys() - reached:
        yield "MISSING_TRANSITION_TARGET: no state leads here", f"{place}/States/{name}"


def _targets(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for field in ("Next", "Default"):
        if field in state:
            yield field, state[field]
    for field in ("Catch", "Choices"):
        for number, one in enumerate(state.get(field) or ()):
            yield f"{field}[{number}]/Next", one.get("Next")


def _state(state: dict[str, Any], place: str, labels: list[str]) -> Iterator[tuple[str, str]]:
    kind = state.get("Type")
    if kind not in TYPES:
        yield f"SCHEMA_VALIDATION_FAILED: {kind!r} is no type of state", f"{place}/Type"
        return
    leaves = ("Next" in state) + (state.get("End") is True)
    if kind != "Choice" and leaves != (0 if kind in ENDS else 1):
        wanted = "neither Next nor End" if kind in ENDS else "either Next or End"
        yield f"SCHEMA_VALIDATION_FAILED: this state has {wanted}", place
    needed = NEEDED.get(kind)
    if needed and not state.get(needed):
        yield f"SCHEMA_VALIDATION_FAILED: {needed} is missing", f"{place}/{needed}"
    yield from find_retry_faults(state, place)
    for number, branch in enumerate(state.get("Branches") or ()):
        yield from _machine(branch, f"{place}/Branches[{number}]", labels)
    if kind == "Map":
        yield from find_map_faults(state, place)
        if "Label" in state:
            labels.append(state["Label"])
        processor = state.get("ItemProcessor") or state.get("Iterator")
        yield from _machine(processor, f"{place}/ItemProcessor", labels)


def _sentence(faults: list[tuple[str, str]]) -> str:
    told = ", ".join(f"'{what} at {place}'" for what, place in faults)
    return f"Invalid State Machine Definition: {told}"


def _validate(data: dict[str, Any]) -> Any:
    """Answer ValidateStateMachineDefinition."""
    faults = find_faults(data.get("definition", ""))
    diagnostics = []
    for what, place in faults:
        code, colon, message = what.partition(": ")
        found = {"severity": "ERROR", "code": code if colon else "SCHEMA_VALIDATION_FAILED"}
        diagnostics.append({**found, "message": message or what, "location": place})
    answer = {"result": "FAIL" if faults else "OK", "diagnostics": diagnostics, "truncated": False}
    return engine.sfn.json_response(answer)


def install() -> None:
    """Look at definitions where they come in."""
    names = vars(engine.sfn)
    provisioners: Any = import_module("ministack.services.cloudformation.provisioners")
    template = provisioners._sfn_definition

    def checking(action: Any) -> Any:
        def answer(data: dict[str, Any]) -> Any:
            faults = find_faults(data["definition"]) if data.get("definition") else []
            if faults:
                text = _sentence(faults)
                return engine.sfn.error_response_json("InvalidDefinition", text, 400)
            return action(data)

        return answer

    def of_template(properties: dict[str, Any]) -> Any:
        text = template(properties)
        if faults := find_faults(text):
            raise provisioners._sfn_handler_error(_sentence(faults))
        return text

    for name in ("_create_state_machine", "_update_state_machine"):
        names[name] = checking(names[name])
    names["_validate_state_machine_definition"] = _validate
    provisioners._sfn_definition = of_template
