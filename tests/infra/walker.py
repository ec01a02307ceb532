"""Walks the state machine's definition with functions of the test in place of Lambda's.

It knows the kinds of states and the paths that the definition uses, and one
attempt a task: retries of a task are left out, so that what follows them shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Payload = dict[str, Any]


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
                return _choose(state, data), data
            case "Wait":
                self.waited += _look(state["SecondsPath"], data)
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
                    key.removesuffix(".$"): _look(path, {"Payload": answer})
                    for key, path in state["ResultSelector"].items()
                }
                data = {**data, state["ResultPath"].removeprefix("$."): selected}
        return str(state["Next"]), data

    def _map(self, state: Payload, data: Payload) -> None:
        if "ItemsPath" in state:
            items = _look(state["ItemsPath"], data)
        else:
            items = self.lines[_look(state["ItemReader"]["Parameters"]["Key.$"], data)]
        child = state["ItemProcessor"]
        task = child["States"][child["StartAt"]]
        failed = 0
        for item in items:
            values = _fill(state["ItemSelector"], {**data, "$item": item})
            try:
                self._invoke(task, values)
            except NamedError as error:
                failed += _catch(task, error) is None
        if failed * 100 > state.get("ToleratedFailurePercentage", 0) * len(items):
            raise NamedError("States.ExceedToleratedFailureThreshold")

    def _invoke(self, state: Payload, data: Payload) -> Payload:
        parameters = state["Parameters"]
        function = self.functions[parameters["FunctionName"]]
        return function(_fill(parameters["Payload"], data))


def _catch(state: Payload, error: NamedError) -> str | None:
    """Return the state that follows the error, None where nothing catches it."""
    for catch in state.get("Catch", []):
        if error.name in catch["ErrorEquals"] or "States.ALL" in catch["ErrorEquals"]:
            return str(catch["Next"])
    return None


def _choose(state: Payload, data: Payload) -> str:
    for rule in state["Choices"]:
        if all(_is_true(one, data) for one in rule.get("And", (rule,))):
            return str(rule["Next"])
    return str(state["Default"])


def _is_true(rule: Payload, data: Payload) -> bool:
    if "IsPresent" in rule:
        return _is_present(rule["Variable"], data) is rule["IsPresent"]
    value = _look(rule["Variable"], data)
    if "BooleanEquals" in rule:
        return value is rule["BooleanEquals"]
    return bool(value == rule.get("NumericEquals") or value > rule.get("NumericGreaterThan", value))


def _is_present(path: str, data: Payload) -> bool:
    try:
        _look(path, data)
    except KeyError:
        return False
    return True


def _fill(template: Payload, data: Payload) -> Payload:
    return {
        key.removesuffix(".$"): _look(value, data) if key.endswith(".$") else value
        for key, value in template.items()
    }


def _look(path: str, data: Payload) -> Any:
    """Return the value at a path; of the context only the item of a Map."""
    if path.startswith("$$."):
        return data.get("$item") if path == "$$.Map.Item.Value" else path
    found: Any = data
    for part in path.removeprefix("$.").split("."):
        found = found[part]
    return found
