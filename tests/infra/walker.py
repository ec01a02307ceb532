"""Walks the state machine's definition with functions of the test in place of Lambda's.

It knows the kinds of states and the paths that the definition uses, and one
attempt a task: retries of a task are left out, so that what follows them shows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.paths import choose, fill, follow, look, output_of

if TYPE_CHECKING:
    from collections.abc import Callable

Payload = dict[str, Any]
# What tasks are given of the execution; no test looks at it.
CONTEXT = {
    "Execution.Name": "run",
    "StateMachine.Id": "machine",
    "State.EnteredTime": "2026-01-01T00:00:00Z",
    "Execution.StartTime": "2026-01-01T00:00:00Z",
}


class NamedError(Exception):
    """What a function failed with, under the name that Retry and Catch match."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class FailedExecutionError(Exception):
    """The execution failed in `state`, which a redrive enters again with the same `data`."""

    def __init__(self, state: str, data: Payload) -> None:
        super().__init__(state)
        self.state = state
        self.data = data


@dataclass(slots=True)
class Walker:
    """Functions by the logical id of their ARN, and the objects that Maps read."""

    definition: Payload
    functions: dict[str, Callable[[Payload], Payload]]
    lines: dict[str, list[Any]]  # by key
    visited: list[str] = field(default_factory=list)
    waited: float = 0.0  # seconds

    def run(self, data: Payload, state: str | None = None) -> None:
        """Walk to the end, from the first state or from the one that a redrive enters."""
        self._walk(self.definition, data, state)

    def _walk(self, machine: Payload, data: Payload, state: str | None = None) -> Payload:
        """Walk through a machine, or a branch of one, to its end; return its output."""
        following: str | None = state or str(machine["StartAt"])
        states = machine["States"]
        while following is not None:
            name = following
            self.visited.append(name)
            one = states[name]
            if one["Type"] == "Succeed":
                break
            try:
                following, data = self._step(one, data)
            except NamedError as error:
                following = _catch(one, error)
                if following is None:
                    raise FailedExecutionError(name, data) from error
        return data

    def _step(self, state: Payload, data: Payload) -> tuple[str | None, Payload]:
        match state["Type"]:
            case "Choice":
                return choose(state, data), data
            case "Wait":
                self.waited += look(state["SecondsPath"], data)
            case "Map":
                self._map(state, data)
            case "Parallel":  # one branch after the other
                outputs = [self._walk(branch, data) for branch in state["Branches"]]
                data = output_of(state, outputs, data)
            case "Task":
                data = output_of(state, {"Payload": self._invoke(state, data)}, data)
        return follow(state), data

    def _map(self, state: Payload, data: Payload) -> None:
        if "ItemsPath" in state:
            items = look(state["ItemsPath"], data)
        else:
            items = self.lines[look(state["ItemReader"]["Parameters"]["Key.$"], data)]
        failed = 0
        for item in items:
            values = fill(state["ItemSelector"], data, {**CONTEXT, "Map.Item.Value": item})
            failed += not self._child(state["ItemProcessor"], values)
        if failed * 100 > state.get("ToleratedFailurePercentage", 0) * len(items):
            raise NamedError("States.ExceedToleratedFailureThreshold")

    def _child(self, child: Payload, values: Payload) -> bool:
        """Do the tasks of a child one after the other; return whether it succeeded."""
        name: str | None = str(child["StartAt"])
        while name is not None and child["States"][name]["Type"] == "Task":
            task = child["States"][name]
            try:
                self._invoke(task, values)
            except NamedError as error:
                name = _catch(task, error)
                if name is None:
                    return False
            else:
                name = follow(task)
        return True

    def _invoke(self, state: Payload, data: Payload) -> Payload:
        parameters = state["Parameters"]
        if state["Resource"].endswith(":s3:headObject"):
            return self.functions["s3:headObject"](fill(parameters, data, CONTEXT))
        function = self.functions[parameters["FunctionName"]]
        payload = fill(parameters["Payload"], data, CONTEXT)
        if parameters.get("InvocationType") == "Event":  # nobody learns what comes of it
            with suppress(NamedError):
                function(payload)
            return {}
        return function(payload)


def _catch(state: Payload, error: NamedError) -> str | None:
    """Return the state that follows the error, None where nothing catches it."""
    for catch in state.get("Catch", []):
        if error.name in catch["ErrorEquals"] or "States.ALL" in catch["ErrorEquals"]:
            return str(catch["Next"])
    return None
