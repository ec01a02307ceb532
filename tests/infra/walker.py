"""Walks the state machine's definition with functions of the test in place of Lambda's.

It knows the kinds of states and the paths that the definition uses, and one
attempt a task: retries of a task are left out, so that what follows them shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.paths import choose, fill, look

if TYPE_CHECKING:
    from collections.abc import Callable

Payload = dict[str, Any]
# What tasks are given of the execution; no test looks at it.
CONTEXT = {
    "Execution.Name": "run",
    "StateMachine.Id": "machine",
    "State.EnteredTime": "2026-01-01T00:00:00Z",
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

    def _walk(self, machine: Payload, data: Payload, state: str | None = None) -> None:
        """Walk through a machine, or a branch of one, to its end."""
        name = state or str(machine["StartAt"])
        states = machine["States"]
        while True:
            self.visited.append(name)
            one = states[name]
            if one["Type"] == "Succeed":
                return
            try:
                name, data = self._step(one, data)
            except NamedError as error:
                caught = _catch(one, error)
                if caught is None:
                    raise FailedExecutionError(name, data) from error
                name = caught

    def _step(self, state: Payload, data: Payload) -> tuple[str, Payload]:
        match state["Type"]:
            case "Choice":
                return choose(state, data), data
            case "Wait":
                self.waited += look(state["SecondsPath"], data)
            case "Map":
                self._map(state, data)
            case "Parallel":  # one branch after the other
                for branch in state["Branches"]:
                    self._walk(branch, data)
            case "Task" if state.get("OutputPath") == "$.Payload":
                return str(state["Next"]), self._invoke(state, data)
            case "Task":
                answer = self._invoke(state, data)
                selected = {
                    key.removesuffix(".$"): look(path, {"Payload": answer})
                    for key, path in state["ResultSelector"].items()
                }
                data = {**data, state["ResultPath"].removeprefix("$."): selected}
        return str(state["Next"]), data

    def _map(self, state: Payload, data: Payload) -> None:
        if "ItemsPath" in state:
            items = look(state["ItemsPath"], data)
        else:
            items = self.lines[look(state["ItemReader"]["Parameters"]["Key.$"], data)]
        child = state["ItemProcessor"]
        task = child["States"][child["StartAt"]]
        failed = 0
        for item in items:
            values = fill(state["ItemSelector"], data, {**CONTEXT, "Map.Item.Value": item})
            try:
                self._invoke(task, values)
            except NamedError as error:
                failed += _catch(task, error) is None
        if failed * 100 > state.get("ToleratedFailurePercentage", 0) * len(items):
            raise NamedError("States.ExceedToleratedFailureThreshold")

    def _invoke(self, state: Payload, data: Payload) -> Payload:
        parameters = state["Parameters"]
        function = self.functions[parameters["FunctionName"]]
        return function(fill(parameters["Payload"], data, CONTEXT))


def _catch(state: Payload, error: NamedError) -> str | None:
    """Return the state that follows the error, None where nothing catches it."""
    for catch in state.get("Catch", []):
        if error.name in catch["ErrorEquals"] or "States.ALL" in catch["ErrorEquals"]:
            return str(catch["Next"])
    return None
